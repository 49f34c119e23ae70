"""The density along particles: closed forms, Jacobian determinants by finite differences, spheres; what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.linalg import expm

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, geometry, kernels, observables
from particleflow.discretization import Characteristics, Gaussian
from particleflow.errors import ArgumentError, ParticleflowError
from shares import by_default

_RNG = np.random.default_rng(8)
TOLERANCES: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}
MATRIX = np.array([[0.3, -0.6], [0.4, -0.5]])


def with_density(measure: pf.Measure, log_density: Any) -> pf.Measure:
    return measure.with_fields({"log_density": jnp.asarray(log_density)})


def normal_grid(dimension: int, nodes: int) -> pf.Measure:
    """Gauss and Hermite's nodes with the density of the normal law that they stand for."""
    cloud = pf.initial.GaussHermite(dimension, nodes).start(jax.random.key(0)).measure
    squares = np.sum(np.asarray(cloud.points) ** 2, axis=1)
    return with_density(cloud, -0.5 * squares - 0.5 * dimension * np.log(2 * np.pi))


@pytest.mark.slow
def test_linear_flows_spread_by_their_trace(tmp_path):
    """ρ(t, e^{tA}x) = ρ₀(x) e^{−t tr A}: exact, in a file and resumed."""
    start, times = normal_grid(2, 4), np.linspace(0.0, 1.0, 5)
    options: dict[str, Any] = {
        **TOLERANCES, "discretization": Characteristics(), "observe": [observables.entropy], "window": 2,
    }  # fmt: skip
    run = pf.simulate(pf.Flow(drifts.Linear(MATRIX)), start, times, **options)
    expected = np.asarray(start.fields["log_density"]) - times[:, None] * np.trace(MATRIX)
    assert np.max(np.abs(np.asarray(run.fields["log_density"]) - expected)) < 1e-12
    assert np.max(np.abs(np.asarray(run.points)[-1] - np.asarray(start.points) @ expm(MATRIX).T)) < 1e-8
    entropy = np.log(2 * np.pi * np.e) + times * np.trace(MATRIX)
    assert np.max(np.abs(np.asarray(run.observables["entropy"]) - entropy)) < 1e-12

    def stop(frames: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pf.simulate(pf.Flow(drifts.Linear(MATRIX)), start, times, **options, store=tmp_path / "x.h5", progress=stop)
    resumed = pf.simulate(pf.Flow(drifts.Linear(MATRIX)), start, times, **options, store=tmp_path / "x.h5", resume=True)
    assert np.array_equal(np.asarray(resumed.fields["log_density"]), np.asarray(run.fields["log_density"]))


@pytest.mark.slow
def test_attention_of_a_gaussian():
    """Particles at the nodes of a quadrature carry the density of the Gaussian that they stay."""
    start, flow = normal_grid(1, 24), pf.Flow(pf.Attend(kernels.Attention(beta=0.4)))
    times, observe = [0.0, 0.3], [observables.entropy]
    carried = pf.simulate(flow, start, times, **TOLERANCES, discretization=Characteristics(), observe=observe)
    law = pf.simulate(flow, start.with_fields({}), times, **TOLERANCES, discretization=Gaussian(), observe=observe)
    exact = 0.5 * np.log(2 * np.pi * np.e / (1 - 2 * 0.4 * np.array(times)))
    assert np.max(np.abs(np.asarray(law.observables["entropy"]) - exact)) < 1e-9
    assert np.max(np.abs(np.asarray(carried.observables["entropy"]) - exact)) < 1e-7


def poisson_log_density(order: float, angles: np.ndarray) -> np.ndarray:
    return np.log((1 - order**2) / (2 * np.pi * (1 - 2 * order * np.cos(angles) + order**2)))


@pytest.mark.slow
def test_the_poisson_density_of_kuramoto_stays_one():
    """β = 0 on the circle: r(t) = r₀ e^{t/2}/√(1 − r₀² + r₀² e^t), and the density is Poisson's kernel."""
    order, time = 0.3, 1.5
    points = pf.initial.UniformCircle("equispaced", order=order).start(jax.random.key(0), 64).measure
    angles = np.arctan2(*np.asarray(points.points).T[::-1])
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=0.0)), geometry=pf.Sphere())
    start = with_density(points, poisson_log_density(order, angles))
    run = pf.simulate(flow, start, [0.0, time], **TOLERANCES, discretization=Characteristics())
    later = order * np.exp(time / 2) / np.sqrt(1 - order**2 + order**2 * np.exp(time))
    moved = np.arctan2(*np.asarray(run.points)[-1].T[::-1])
    assert np.max(np.abs(np.asarray(run.fields["log_density"])[-1] - poisson_log_density(later, moved))) < 1e-7


def flow_map(flow: pf.Flow, cloud: pf.Measure, place: np.ndarray, end: float) -> np.ndarray:
    """Where a test particle without weight is carried."""
    points = np.concatenate([np.asarray(cloud.points), place[None]])
    weights = np.concatenate([np.exp(np.asarray(cloud.log_weights)), [0.0]])
    found = pf.evolve(flow, pf.Measure.weighted(points, weights), end, rtol=1e-11, atol=1e-13)
    return np.asarray(found.points)[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "space", [geometry.Euclidean(), geometry.Sphere(), geometry.LayerNorm(), geometry.Ngpt(0.7)], ids=repr
)
def test_densities_are_divided_by_the_jacobian_of_the_flow(space):
    """log ρ(t) − log ρ(0) = −log |det D(flow map)|, by differences of test particles in tangent directions."""
    points = np.asarray(space.retract(jnp.asarray(_RNG.normal(size=(7, 3)))))
    flow, end, small = pf.Flow(pf.Attend(kernels.Attention(beta=1.2), MATRIX_3), geometry=space), 0.6, 1e-4
    cloud = pf.Measure.uniform(points)
    run = pf.simulate(
        flow, with_density(cloud, np.zeros(7)), [0.0, end], **TOLERANCES, discretization=Characteristics()
    )

    def basis(at: np.ndarray) -> np.ndarray:
        moved = np.asarray(space.tangent(jnp.asarray(np.repeat(at[None], 3, 0)), jnp.eye(3)))
        kept = np.linalg.svd(moved)[2]
        return kept[: np.linalg.matrix_rank(moved, tol=1e-8)]

    here, there = basis(points[0]), basis(np.asarray(run.points)[-1, 0])
    ends = [
        [flow_map(flow, cloud, np.asarray(space.retract(jnp.asarray((points[0] + s * small * e)[None])))[0], end)
         for s in (1, -1)]
        for e in here
    ]  # fmt: skip
    jacobian = np.stack([(one - other) / (2 * small) for one, other in ends]) @ there.T
    change = float(np.asarray(run.fields["log_density"])[-1, 0])
    assert abs(change + np.log(abs(np.linalg.det(jacobian)))) < 1e-6


MATRIX_3 = np.array([[0.9, 0.3, -0.2], [-0.4, 0.7, 0.1], [0.2, -0.3, 1.1]])


@pytest.mark.slow
def test_random_signs_estimate_the_trace():
    """Σ_k z_k ∂v_k/∂z averages to the trace: exact where the Jacobian is diagonal, within its error where it is not."""
    start, times = normal_grid(2, 3), [0.0, 1.0]
    random = Characteristics("random", draws=2000, seed=1)
    diagonal, full = (
        pf.simulate(pf.Flow(drifts.Linear(matrix)), start, times, rtol=1e-6, atol=1e-8, discretization=random)
        for matrix in (np.array([0.5, -0.2]), MATRIX)
    )
    before = np.asarray(start.fields["log_density"])
    assert np.max(np.abs(np.asarray(diagonal.fields["log_density"])[1] - before + 0.3)) < 1e-12
    error = np.asarray(full.fields["log_density"])[1] - before + np.trace(MATRIX)
    deviation = abs(MATRIX[0, 1] + MATRIX[1, 0]) / np.sqrt(2000)  # zᵀAz = tr A + (A₀₁ + A₁₀) z₀z₁
    assert 0 < np.max(np.abs(error)) < 4.5 * deviation


@pytest.mark.slow
def test_a_normalised_set_keeps_the_entropy_of_its_gaussian():
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=0.4)), geometry=geometry.SetNorm())
    run = pf.simulate(
        flow, normal_grid(1, 16), [0.0, 0.5], **TOLERANCES, discretization=Characteristics(),
        observe=[observables.entropy],
    )  # fmt: skip
    assert np.max(np.abs(np.asarray(run.observables["entropy"]) - 0.5 * np.log(2 * np.pi * np.e))) < 1e-6


SCENARIO = """
initial = { INITIAL }
geometry = { GEOMETRY }
discretization = "characteristics"
drift = [{ kind = "linear", matrix = 0.5 }]
time = { end = 0.1, frames = 2 }
record = { observables = ["entropy"] }
"""
KNOWN: dict[str, tuple[str, str, Any]] = {
    "gaussian": (
        'kind = "gaussian", dim = 2, scale = [0.5, 2.0], centre = 1.0, count = 7', 'kind = "euclidean"',
        lambda x: np.sum(stats.norm.logpdf(x, 1.0, [0.5, 2.0]), axis=1),
    ),
    "quadrature": (
        'kind = "gauss_hermite", dim = 1, nodes = 5, scale = 2.0', 'kind = "euclidean"',
        lambda x: stats.norm.logpdf(x[:, 0], 0, 2),
    ),
    "sphere": (
        'kind = "von_mises_fisher", mean = [0.0, 0.0, 1.0], concentration = 3.0, count = 7',
        'kind = "sphere", radius = 2.5',
        lambda x: stats.vonmises_fisher([0, 0, 1], 3).logpdf(x / 2.5) - 2 * np.log(2.5),
    ),
    "set": (
        'kind = "quantiles", law = "gaussian", mean = 1.0, scale = 3.0, count = 9', 'kind = "set_norm"',
        lambda x: stats.norm.logpdf(x[:, 0], 0, 1 / QUANTILE_SPREAD),
    ),
}  # fmt: skip
# nine Gaussian quantiles have less than unit variance, so that the law they are drawn from is stretched by one over it
QUANTILE_SPREAD = float(np.std(stats.norm.ppf((np.arange(9) + 0.5) / 9)))


@pytest.mark.parametrize("name", by_default(KNOWN, list(KNOWN)[:1]))
def test_a_scenario_begins_with_the_density_that_its_initial_kind_knows(name, tmp_path):
    initial, space, expected = KNOWN[name]
    path = tmp_path / "known.toml"
    path.write_text(SCENARIO.replace("INITIAL", initial).replace("GEOMETRY", space))
    start = pf.scenario.load(path).build().start
    found, points = np.asarray(start.fields["log_density"]), np.asarray(start.points)
    assert np.max(np.abs(found - expected(points))) < 1e-12
    single = pf.scenario.load(path, ['precision="float32"', "time.rtol=1e-4"]).build().start
    assert single.fields["log_density"].dtype == np.float32


def test_a_scenario_whose_density_nobody_knows_is_refused(tmp_path):
    path = tmp_path / "unknown.toml"
    for initial, space, words in (
        ('kind = "gaussian", dim = 3, count = 7', 'kind = "sphere"', "in flat space, and that .* sphere is unknown"),
        ('kind = "uniform_sphere", dim = 3, count = 7', 'kind = "layer_norm"', "and that .* layer_norm is unknown"),
        ('kind = "equiangular", count = 3, dim = 3', 'kind = "sphere"', "has no field `log_density`"),
    ):
        path.write_text(SCENARIO.replace("INITIAL", initial).replace("GEOMETRY", space))
        with pytest.raises(ParticleflowError, match=words):
            pf.scenario.load(path).build()


@pytest.mark.parametrize("radius", [1e5, 1.0])
def test_a_sphere_of_any_size_stretches_the_density_of_the_unit_sphere(radius):
    law, key = pf.initial.UniformSphere(3), jax.random.key(0)
    drawn, space = law.start(key, 50).measure.points, pf.Sphere(radius=radius)
    placed = pf.Measure.uniform(geometry.retracted(space, drawn))
    flow = pf.Flow(drifts.Linear(0.0), space)
    start = Characteristics().from_sampling_law(flow, placed, drawn, law.density(key))
    assert np.max(np.abs(np.asarray(start.fields["log_density"]) + np.log(4 * np.pi * radius**2))) < 1e-13


def test_what_is_refused():
    cloud, options = normal_grid(2, 2), {**TOLERANCES, "discretization": Characteristics()}
    linear = pf.Flow(drifts.Linear(1.0))
    with pytest.raises(ArgumentError, match="has no field `log_density`"):
        pf.simulate(linear, cloud.with_fields({}), [0.0, 1.0], **options)
    noisy, noise = pf.Flow(drifts.Linear(1.0), temperature=0.1), {"step": 0.1, "key": jax.random.key(0)}
    with pytest.raises(ArgumentError, match="With noise the density does not move along"):
        pf.simulate(noisy, cloud, [0.0, 1.0], **noise, discretization=Characteristics())
    stream = pf.Flow(pf.Attend(kernels.Attention()), geometry.PreNorm())
    round_ = with_density(pf.Measure.uniform(oracle.random_sphere(1, 4, 2)), np.zeros(4))
    with pytest.raises(ArgumentError, match=r"geometry pre_norm are not all that moves \(residual_norm\)"):
        pf.simulate(stream, round_, [0.0, 1.0], **options)
    with pytest.raises(ArgumentError, match="the solver 'map' takes explicit layers"):
        pf.simulate(linear, cloud, [0.0, 1.0], step=0.5, solver="map", discretization=Characteristics())
    with pytest.raises(ArgumentError, match="needs a density, which particles do not have"):
        pf.simulate(linear, cloud.with_fields({}), [0.0, 1.0], **TOLERANCES, observe=[observables.entropy])
    for arguments, message in (
        (("some",), "must be 'exact' or 'random'"),
        (("random", 0), "must be a positive integer"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Characteristics(*arguments)  # pyright: ignore[reportArgumentType]
