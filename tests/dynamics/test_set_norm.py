"""Normalisation of the whole set: its maps and fields against NumPy, as a flow, as layers, of weights and of laws."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import sqrtm

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, geometry, kernels, observables
from particleflow.discretization import Gaussian
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError, ShapeError

_RNG = np.random.default_rng(12)
STATE, VELOCITY = _RNG.normal(size=(2, 9, 2)) @ np.array([[1.0, 0.6], [0.0, 0.7]])
WEIGHTS = np.array([0.1, 0.2, 0.05, 0.15, 0.1, 0.1, 0.2, 0.1, 0.0])
TARGET = np.array([[1.5, 0.4], [0.4, 0.8]])
BETA, TURN = 0.6, np.array([[0.9, 0.4], [-0.3, 1.1]])
# kind, mean, variance, and the covariance that they stand for
SPACES: dict[str, tuple[Any, Any, Any]] = {
    "full": ("full", 0.0, 1.0),
    "diagonal": ("diagonal", 0.0, 1.0),
    "full with a target": ("full", np.array([0.5, -1.0]), TARGET),
    "diagonal with a target": ("diagonal", np.array([0.5, -1.0]), np.array([2.0, 0.3])),
}
OBSERVE = [observables.centre, observables.covariance]


def space(name: str) -> geometry.SetNorm:
    kind, mean, variance = SPACES[name]
    return geometry.SetNorm(kind, mean, variance).for_weights(jnp.log(jnp.asarray(WEIGHTS)))


def moments(points: np.ndarray, weights: np.ndarray = WEIGHTS) -> tuple[np.ndarray, np.ndarray]:
    mean = weights @ points
    return mean, (points - mean).T @ (weights[:, None] * (points - mean))


def normalised(points: np.ndarray, name: str, weights: np.ndarray = WEIGHTS) -> np.ndarray:
    """N(y) by NumPy and SciPy."""
    kind, target_mean, variance = SPACES[name]
    mean, spread = moments(points, weights)
    if kind == "diagonal":
        return target_mean + (points - mean) * np.sqrt(variance / np.diag(spread))
    root = np.linalg.cholesky(variance if np.ndim(variance) == 2 else variance * np.eye(2))
    white = np.linalg.solve(root, (points - mean).T)
    inner = np.linalg.inv(np.real(sqrtm(np.linalg.solve(root, np.linalg.solve(root, spread).T))))
    return target_mean + (root @ inner @ white).T


@pytest.mark.parametrize("name", SPACES)
def test_the_set_is_brought_to_its_mean_and_covariance(name):
    kind, mean, variance = SPACES[name]
    found = np.asarray(space(name).retract(jnp.asarray(STATE)))
    assert np.max(np.abs(found - normalised(STATE, name))) < 1e-13
    centre, spread = moments(found)
    wanted = np.asarray(variance) if np.ndim(variance) == 2 else variance * np.eye(2)
    assert np.max(np.abs(centre - mean)) < 1e-14
    compared = np.diag(np.diag(spread)) if kind == "diagonal" else spread
    assert np.max(np.abs(compared - wanted)) < 1e-13
    space(name).check_contains(jnp.asarray(found))


@pytest.mark.parametrize("name", SPACES)
def test_the_field_is_the_limit_of_small_layers(name):
    """(N(x + hv) − x)/h → v − E[v] − A ξ; asked at other places it is the same affine field that is taken off."""
    here = normalised(STATE, name)
    field = np.asarray(space(name).tangent(jnp.asarray(here), jnp.asarray(VELOCITY)))
    small = 1e-5
    steps = [normalised(here + sign * small * VELOCITY, name) for sign in (1, -1)]
    assert np.max(np.abs(field - (steps[0] - steps[1]) / (2 * small))) < 1e-8
    restoring = space(name).restoring(jnp.asarray(here), jnp.asarray(VELOCITY), jnp.asarray(WEIGHTS), 0.0)
    assert np.max(np.abs(VELOCITY - np.asarray(restoring.at(jnp.asarray(here))) - field)) < 1e-13
    # What is not normalised moves so that what is seen of it moves alike.
    stretched = STATE * 3.0 + 1.0
    through = jax.jvp(
        space(name).retract,
        (jnp.asarray(stretched),),
        (space(name).tangent(jnp.asarray(stretched), jnp.asarray(VELOCITY)),),
    )[1]
    seen = np.asarray(space(name).retract(jnp.asarray(stretched)))
    expected = space(name).tangent(jnp.asarray(seen), jnp.asarray(VELOCITY))
    assert np.max(np.abs(np.asarray(through) - np.asarray(expected))) < 1e-12


def attention(points: np.ndarray) -> np.ndarray:
    logits = BETA * points @ points.T + np.log(np.maximum(WEIGHTS, 1e-300))
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    return rows / rows.sum(axis=1, keepdims=True) @ points @ TURN.T


def flow(name: str, **options: Any) -> pf.Flow:
    kind, mean, variance = SPACES[name]
    return pf.Flow(pf.Attend(kernels.Attention(BETA), TURN), geometry.SetNorm(kind, mean, variance), **options)


def start(name: str) -> pf.Measure:
    return pf.Measure.weighted(normalised(STATE, name), WEIGHTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_flows_and_layers_against_numpy(name):
    kind = SPACES[name][0]

    def field(time: float, points: np.ndarray) -> np.ndarray:
        velocity, (mean, spread) = attention(points), moments(points)
        cross = (velocity - WEIGHTS @ velocity).T @ (WEIGHTS[:, None] * (points - mean))
        slope = np.diag(np.diag(cross) / np.diag(spread))
        if kind == "full":
            slope = 0.5 * (cross + cross.T) @ np.linalg.inv(spread)
        return velocity - WEIGHTS @ velocity - (points - mean) @ slope.T

    times = np.array([0.0, 0.5, 1.0])
    run = pf.simulate(flow(name), start(name), times, rtol=1e-10, atol=1e-12, observe=OBSERVE)
    assert np.max(np.abs(np.asarray(run.points) - oracle.solve(field, normalised(STATE, name), times))) < 1e-8
    layers = pf.simulate(flow(name), start(name), [0.0, 0.25, 0.5], step=0.25, solver="map")
    points = normalised(STATE, name)
    for found in np.asarray(layers.points)[1:]:
        points = normalised(points + 0.25 * attention(points), name)
        assert np.max(np.abs(found - points)) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_the_constraint_holds_for_long_and_with_noise(name):
    kind, mean, variance = SPACES[name]
    wanted = np.asarray(variance) if np.ndim(variance) == 2 else variance * np.eye(2)
    long = pf.simulate(flow(name), start(name), [0.0, 20.0], rtol=1e-5, atol=1e-6, observe=OBSERVE)
    noisy = pf.simulate(
        flow(name, temperature=0.2, common_temperature=0.5), start(name), [0.0, 1.0], step=1 / 32,
        key=jax.random.key(0), observe=OBSERVE,
    )  # fmt: skip
    for run in (long, noisy):
        assert np.max(np.abs(np.asarray(run.observables["centre"])[-1] - mean)) < 1e-12
        spread = np.asarray(run.observables["covariance"])[-1]
        compared = np.diag(np.diag(spread)) if kind == "diagonal" else spread
        assert np.max(np.abs(compared - wanted)) < 1e-12
    assert np.max(np.abs(np.asarray(noisy.points)[1] - np.asarray(noisy.points)[0])) > 1e-2


@pytest.mark.slow
def test_noise_forgets_everything_but_the_constraint():
    """dX = √(2T) P∘dW of n particles: as n → ∞ an Ornstein–Uhlenbeck process dX = −T X dt + √(2T) dW."""
    count, temperature, time = 4000, 0.5, 1.0
    points = np.asarray(_RNG.normal(size=(count, 1)))
    points = (points - points.mean()) / points.std()
    free = pf.Flow(drifts.Linear(0.0), geometry.SetNorm(), temperature=temperature)
    run = pf.simulate(free, points, [0.0, time], step=1 / 32, key=jax.random.key(3))
    slope = np.mean(np.asarray(run.points)[1] * points)
    assert abs(slope - np.exp(-temperature * time)) < 4.5 / np.sqrt(count)


@pytest.mark.slow
def test_laws_move_as_their_quadratures_do():
    """What is done to a normal law is done to a cloud of its mean and covariance by the same affine field."""
    law = Normal(jnp.array([0.3, -0.2]), jnp.array([[0.8, 0.3], [0.1, 0.6]]), jnp.asarray(0.0))
    field = Affine(jnp.array([0.2, 0.5]), jnp.asarray(TURN))
    for kind, mean, variance in SPACES.values():
        bare = geometry.SetNorm(kind, mean, variance)
        seen = bare.retract_law(law)
        cloud = seen.cloud()
        velocity = field.offset[None] + (cloud.points - seen.mean[None]) @ field.matrix.T
        found = bare.tangent_law(seen, field, 0.0)
        expected = bare.for_weights(cloud.log_weights).tangent(cloud.points, velocity)
        moved = found.offset[None] + (cloud.points - seen.mean[None]) @ found.matrix.T
        assert np.max(np.abs(np.asarray(moved - expected))) < 1e-13
        stepped = bare.advance_law(seen, field, 0.3).cloud().points
        advanced = bare.for_weights(cloud.log_weights).advance(cloud.points, velocity, 0.3)
        assert np.max(np.abs(np.asarray(stepped - advanced))) < 1e-13


@pytest.mark.slow
def test_a_gaussian_on_a_normalised_set_stands_still_and_turns():
    """Full: S never changes, whatever the drift and the noise; the velocity left over is a rotation in its metric."""
    on_set = pf.Flow(pf.Attend(kernels.Attention(BETA), TURN), geometry.SetNorm(), temperature=0.3)
    cloud = pf.initial.GaussHermite(2, 4).start(jax.random.key(0)).measure
    run = pf.simulate(on_set, cloud, [0.0, 2.0], rtol=1e-10, atol=1e-12, discretization=Gaussian(), observe=OBSERVE)
    assert np.max(np.abs(np.asarray(run.observables["covariance"])[1] - np.eye(2))) < 1e-14
    rates = BETA * TURN  # B = V S A with S = 1, A = β; what turns is its antisymmetric part
    turned = 2.0 * 0.5 * (rates - rates.T)
    rotation = np.array([[np.cos(turned[0, 1]), np.sin(turned[0, 1])], [-np.sin(turned[0, 1]), np.cos(turned[0, 1])]])
    assert np.max(np.abs(np.asarray(run.points)[1] - np.asarray(cloud.points) @ rotation.T)) < 1e-8


@pytest.mark.slow
def test_the_field_is_asked_anywhere():
    """`Flow.velocity_at` at the particles is their velocity; elsewhere it takes off the same affine field."""
    name = "full with a target"
    measure = start(name)
    field = flow(name).velocity_at(0.0, measure.points, measure)
    velocity = flow(name).velocity(0.0, measure.points, measure)
    assert np.max(np.abs(np.asarray(field - velocity))) < 1e-13
    places = jnp.asarray(_RNG.normal(size=(4, 2)))
    found = flow(name).velocity_at(0.0, places, measure)
    own = attention(np.asarray(measure.points))
    bare = pf.Attend(kernels.Attention(BETA), TURN)(0.0, pf.Sites(places), measure)
    taken = space(name).restoring(measure.points, jnp.asarray(own), jnp.asarray(WEIGHTS), 0.0).at(places)
    assert np.max(np.abs(np.asarray(found - (bare - taken)))) < 1e-13
    sphere, round_ = pf.Flow(pf.Attend(kernels.Attention(BETA)), pf.Sphere()), oracle.random_sphere(1, 5, 3)
    cloud = pf.Measure.uniform(round_)
    found = sphere.velocity_at(0.0, jnp.asarray(round_), cloud)
    assert np.array_equal(np.asarray(found), np.asarray(sphere.velocity(0.0, jnp.asarray(round_), cloud)))


@pytest.mark.slow
def test_a_variance_that_is_held_never_blows_up():
    """λ̇ = 0 where the whole covariance is given; of given variances alone λ moves, by differences of small layers."""
    found = {
        name: float(observables.blow_up_time(pf.Present.of(flow(name), start(name), 0.7))) for name in list(SPACES)[:2]
    }
    assert found["full"] == np.inf
    points = np.asarray(start("diagonal").points)
    ahead, behind = (
        np.linalg.eigvalsh(moments(normalised(points + h * attention(points), "diagonal"))[1])[-1]
        for h in (1e-5, -1e-5)
    )
    largest = np.linalg.eigvalsh(moments(points)[1])[-1]
    assert abs((found["diagonal"] - 0.7) * (ahead - behind) / 2e-5 / largest - 1) < 1e-7


@pytest.mark.slow
def test_ensembles_resume_and_single_precision(tmp_path):
    name, times = "full", np.linspace(0.0, 0.5, 5)
    options: dict[str, Any] = {"step": 0.125, "solver": "map", "window": 2, "observe": OBSERVE}
    whole = pf.simulate(flow(name), start(name), times, **options)
    starts = [start(name), pf.Measure.weighted(np.asarray(start(name).points)[:, ::-1], WEIGHTS)]
    flows = [flow(name), eqx.tree_at(lambda f: f.drift.kernel.beta, flow(name), jnp.asarray(0.3))]
    both = pf.simulate(flows, starts, times, **options)
    assert np.max(np.abs(np.asarray(both.run(0).points) - np.asarray(whole.points))) < 1e-12

    def stop(frames: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pf.simulate(flow(name), start(name), times, **options, store=tmp_path / "set.h5", progress=stop)
    resumed = pf.simulate(flow(name), start(name), times, **options, store=tmp_path / "set.h5", resume=True)
    assert np.array_equal(np.asarray(resumed.points), np.asarray(whole.points))
    halved = jax.tree.map(lambda leaf: leaf.astype(np.float32), (flow(name), start(name)))
    single = pf.simulate(halved[0], halved[1], times, **options)
    assert np.asarray(single.points).dtype == np.float32
    assert np.max(np.abs(np.asarray(single.points) - np.asarray(whole.points))) < 1e-5


def test_what_is_refused():
    unchecked: Any = geometry.SetNorm  # what is wrong here is also wrong for type checkers
    for arguments, error, message in (
        (("both",), ArgumentError, "must be 'diagonal' or 'full', but is 'both'"),
        (("diagonal", 0.0, TARGET), ArgumentError, "goes with covariance = 'full' only"),
        (("full", 0.0, -1.0), ArgumentError, "must be positive, but is -1.0"),
        (("full", 0.0, np.array([[1.0, 2.0], [2.0, 1.0]])), ArgumentError, "positive definite, but has the eigenvalue"),
        (("full", np.eye(2)), ShapeError, "`mean` must be a number or a vector"),
    ):
        with pytest.raises(error, match=message):
            unchecked(*arguments)
    options: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8}
    with pytest.raises(ArgumentError, match="must be on the geometry SetNorm"):
        pf.simulate(flow("full"), STATE, [0.0, 1.0], **options)
    with pytest.raises(ArgumentError, match="needs more particles than dimensions"):
        pf.simulate(flow("full"), np.eye(2), [0.0, 1.0], **options)
    with pytest.raises(ArgumentError, match="looks at the whole set, which merging narrows"):
        pf.simulate(flow("full"), start("full"), [0.0, 1.0], **options, discretization=pf.Particles(coalesce=1e-9))
    noisy, shared = flow("full", temperature=0.1), flow("full", common_temperature=0.1)
    fixed: dict[str, Any] = {"step": 0.1, "key": jax.random.key(0)}
    with pytest.raises(ArgumentError, match="'euler' does not converge to this noise"):
        pf.simulate(noisy, start("full"), [0.0, 1.0], **fixed, solver="euler")
    with pytest.raises(ArgumentError, match="moves the mean, which the geometry set_norm holds"):
        pf.simulate(shared, start("full"), [0.0, 1.0], **fixed, discretization=Gaussian())
