"""A Gaussian as a state: closed forms, quadratures and NumPy's equations for mean and covariance; what it refuses."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, events, geometry, kernels, observables
from particleflow.discretization import Gaussian
from particleflow.dynamics.normal_law import Normal, spd_power
from particleflow.errors import ArgumentError, RunError
from shares import by_default

_RNG = np.random.default_rng(3)
QUERY, KEY, VALUE, OUTPUT = 0.5 * _RNG.normal(size=(4, 2, 2))
MEAN, FACTOR = 0.3 * _RNG.normal(size=2), np.array([[0.6, 0.1], [-0.2, 0.5]])
COVARIANCE = FACTOR @ FACTOR.T
LAW = Normal(jnp.asarray(MEAN), jnp.asarray(FACTOR), jnp.asarray(0.0))
TOLERANCES: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-14}
MOMENTS = [observables.centre, observables.covariance]


def hermite(nodes: int, mean: Any = MEAN, factor: Any = FACTOR) -> pf.Measure:
    """The law as a weighted grid, by NumPy."""
    dimension = len(mean)
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[places] * dimension, indexing="ij")], axis=1)
    shares = np.prod([axis.ravel() for axis in np.meshgrid(*[weights] * dimension, indexing="ij")], axis=0)
    return pf.Measure.weighted(mean + grid @ factor.T, shares / shares.sum())


@eqx.filter_jit
def affine(drift: Any, time: Any = 0.0, law: Normal = LAW) -> Any:
    return drift.affine(time, law)


def attend(kernel: Any, **options: Any) -> pf.Attend:
    return pf.Attend(kernel, VALUE, output=OUTPUT, **options)


SOFTMAX, DISTANCE = kernels.Attention(0.7, QUERY, KEY), kernels.SquaredDistanceAttention(0.8, QUERY, KEY)
GAUSSIAN = kernels.Gaussian(0.9)
# Under each of these a Gaussian stays one: the velocity is affine.
AFFINE = {
    "softmax": attend(SOFTMAX),
    "numbers and diagonals": pf.Attend(kernels.Attention(0.7, 0.5, np.array([0.3, 1.2])), value=np.array([1.0, -0.4])),
    "distance": attend(DISTANCE),
    "gaussian kernel": attend(GAUSSIAN),
    "constant": attend(kernels.Constant()),
    "product": attend(kernels.Product((SOFTMAX, kernels.Scaled(GAUSSIAN, 3.0)))),
    "transposed": attend(kernels.Transposed(SOFTMAX)),
    "symmetrised": attend(kernels.Symmetrised(DISTANCE, "geometric")),
    "sinkhorn": attend(SOFTMAX, normalization="sinkhorn"),
    "sinkhorn of distances": attend(GAUSSIAN, normalization="sinkhorn"),
    "mean shift": pf.MeanShift(GAUSSIAN),
    "ascent": pf.LogNormalizerAscent(DISTANCE),
    "linear attention": drifts.LinearAttention(QUERY, KEY, VALUE),
    "linear": drifts.Linear(VALUE),
    "confinement": drifts.Confinement(0.7, centre=np.array([0.2, -0.4])),
    "layer without activation": drifts.FeedForward(QUERY, 0.3, VALUE, np.array([0.1, 0.2]), "identity"),
    "sum of multiples": attend(SOFTMAX) + 0.5 * drifts.Linear(KEY) + -2.0 * pf.MeanShift(GAUSSIAN),
    "varying": drifts.Varying(attend(SOFTMAX), drifts.Ramp(0.2, 0.7, 0.5), "kernel.beta"),
    "layers of one kind": drifts.Layers([pf.Attend(kernels.Attention(b)) for b in (0.3, 0.6)], 0.5),
    "layers of two kinds": drifts.Layers([drifts.Linear(0.3), pf.MeanShift(GAUSSIAN)], 0.5),
    "block": drifts.Block([attend(SOFTMAX), drifts.Linear(VALUE)]),
}


QUICK = ("softmax", "product", "layers of two kinds")


@pytest.mark.parametrize("name", by_default(AFFINE, QUICK))
def test_affine_fields_are_those_of_a_quadrature(name):
    """The same drift, asked of a quadrature of the law, says u + B ξ at every place."""
    time, drift = jnp.asarray(0.7), AFFINE[name]
    measure = hermite(14 if "sinkhorn" in name else 24)
    places = MEAN + 0.8 * _RNG.normal(size=(5, 2))
    field = affine(drift, time)
    expected = np.asarray(field.offset) + (places - MEAN) @ np.asarray(field.matrix).T
    found = np.asarray(eqx.filter_jit(drift)(time, pf.Sites(jnp.asarray(places)), measure))
    assert np.max(np.abs(found - expected)) < 1e-11


@pytest.mark.parametrize("kernel", by_default([SOFTMAX, DISTANCE, GAUSSIAN], [SOFTMAX]), ids=repr)
def test_unnormalised_attention_is_the_nearest_affine_field(kernel):
    """u = E[v] and B = E[v ξᵀ] S⁻¹ of a quadrature."""
    drift, measure = attend(kernel, normalization="none"), hermite(48)
    weights, away = np.exp(np.asarray(measure.log_weights)), np.asarray(measure.points) - MEAN
    velocity = np.asarray(eqx.filter_jit(drift)(0.0, measure.sites, measure))
    field = affine(drift)
    assert np.max(np.abs(np.asarray(field.offset) - weights @ velocity)) < 1e-11
    slope = (weights[:, None] * velocity).T @ away @ np.linalg.inv(COVARIANCE)
    assert np.max(np.abs(np.asarray(field.matrix) - slope)) < 1e-10


def test_closed_forms_of_theory():
    """a' = V(1 + SA)a, S' = VSAS + (VSAS)ᵀ; L2: v = V C(S⁻¹a + 2KᵀQx); Sinkhorn on the line."""
    field = affine(pf.Attend(SOFTMAX, VALUE))
    rates = 0.7 * KEY.T @ QUERY
    assert np.max(np.abs(np.asarray(field.offset) - VALUE @ (np.eye(2) + COVARIANCE @ rates) @ MEAN)) < 1e-15
    assert np.max(np.abs(np.asarray(field.matrix) - VALUE @ COVARIANCE @ rates)) < 1e-15
    field = affine(pf.Attend(kernels.SquaredDistanceAttention(1.0, QUERY, KEY), VALUE))
    narrow = np.linalg.inv(np.linalg.inv(COVARIANCE) + 2 * KEY.T @ KEY)
    at_mean = VALUE @ narrow @ (np.linalg.solve(COVARIANCE, MEAN) + 2 * KEY.T @ QUERY @ MEAN)
    assert np.max(np.abs(np.asarray(field.offset) - at_mean)) < 1e-14
    assert np.max(np.abs(np.asarray(field.matrix) - 2 * VALUE @ narrow @ KEY.T @ QUERY)) < 1e-14
    for rate, variance in ((0.7, 0.9), (-1.3, 0.2), (20.0, 4.0)):
        line = Normal(jnp.zeros(1), jnp.full((1, 1), variance**0.5), jnp.asarray(0.0))
        field = affine(pf.Attend(kernels.Attention(rate), normalization="sinkhorn"), 0.0, line)
        exact = (np.sqrt(1 + 4 * rate**2 * variance**2) - 1) / (2 * rate * variance)
        assert abs(float(field.matrix[0, 0]) - exact) < 1e-14


@pytest.mark.slow
def test_degenerate_laws_and_derivatives():
    """A law on a line in the plane has fields like any other, and derivatives where eigenvalues agree."""
    flat = Normal(jnp.zeros(2), jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.asarray(0.0))
    for normalization in ("row", "none", "sinkhorn"):
        field = affine(pf.Attend(kernels.Attention(0.2), normalization=normalization), 0.0, flat)
        assert np.isfinite(np.asarray(field.matrix)).all(), normalization
    change = jnp.array([[0.3, -0.2], [-0.2, 0.5]])
    for power in (0.5, -0.5):
        slope = jax.jvp(lambda matrix, p=power: spd_power(matrix, p), (jnp.eye(2),), (change,))[1]
        assert np.max(np.abs(np.asarray(slope) - power * np.asarray(change))) < 1e-15


@pytest.mark.slow
@pytest.mark.parametrize("value", [1.0, -1.0])
def test_softmax_on_the_line(value):
    rate, variance = 0.5, 0.4
    times = np.array([0.0, 1.0, 2.0])
    flow = pf.Flow(pf.Attend(kernels.Attention(rate), value=value))
    start = pf.initial.GaussHermite(1, 12, variance**0.5).start(jax.random.key(0)).measure
    run = pf.simulate(flow, start, times, **TOLERANCES, discretization=Gaussian(), observe=MOMENTS)
    exact = variance / (1 - 2 * value * rate * variance * times)
    assert np.max(np.abs(np.asarray(run.observables["covariance"])[:, 0, 0] / exact - 1)) < 1e-10
    assert run.metadata["discretization"] == "gaussian"
    assert "closed form" in run.metadata["statistics"]["chosen summation"]


def moment_equations(time: float, state: np.ndarray) -> np.ndarray:
    """ȧ = V(1 + SA)a and Ṡ = VSAS + (VSAS)ᵀ + 2T, as one vector."""
    mean, spread, rates = state[0], state[1:], 0.7 * KEY.T @ QUERY
    moved = VALUE @ spread @ rates @ spread
    return np.concatenate([[VALUE @ (mean + spread @ rates @ mean)], moved + moved.T + 0.2 * np.eye(2)])


@pytest.mark.slow
def test_a_run_of_a_law_on_the_line_is_its_closed_form():
    """s(t) = s₀/(1 − 2 a s₀ t), seen in the points that are carried along."""
    flow, start = pf.Flow(pf.Attend(kernels.Attention(beta=1.0))), hermite(5, np.zeros(1), np.full((1, 1), 0.7))
    run = pf.simulate(flow, start, [0.0, 0.4, 0.8], discretization=Gaussian(), rtol=1e-9, atol=1e-11)
    variances = np.exp(np.asarray(start.log_weights)) @ np.asarray(run.points)[:, :, 0].T ** 2
    assert np.max(np.abs(variances - 0.49 / (1 - 2 * 0.49 * run.times))) < 1e-7


@pytest.mark.slow
def test_the_matrix_case_with_noise_against_scipy():
    flow, times = pf.Flow(pf.Attend(SOFTMAX, VALUE), temperature=0.1), np.array([0.0, 1.0, 2.0])
    run = pf.simulate(flow, hermite(4), times, **TOLERANCES, discretization=Gaussian(), observe=MOMENTS)
    path = oracle.solve(moment_equations, np.concatenate([[MEAN], COVARIANCE]), times)
    assert np.max(np.abs(np.asarray(run.observables["centre"]) - path[:, 0])) < 1e-10
    assert np.max(np.abs(np.asarray(run.observables["covariance"]) - path[:, 1:])) < 1e-10


@pytest.mark.slow
def test_mean_shift_flows():
    """log(σ/σ0) + (β/2)(σ² − σ0²) = −t."""
    beta, sigma, times = 1.5, 0.8, np.array([0.0, 1.0, 2.0])
    flow, start = pf.Flow(pf.MeanShift(kernels.Gaussian(beta**-0.5))), hermite(8, np.zeros(1), np.full((1, 1), sigma))
    run = pf.simulate(flow, start, times, **TOLERANCES, discretization=Gaussian(), observe=MOMENTS)
    for time, found in zip(times[1:], np.sqrt(np.asarray(run.observables["covariance"])[1:, 0, 0]), strict=True):
        exact = oracle.root(lambda s, t=time: np.log(s / sigma) + beta / 2 * (s**2 - sigma**2) + t, 1e-6, sigma)
        assert abs(found / exact - 1) < 1e-10


@pytest.mark.slow
def test_hard_steps_of_mean_shift():
    """σ' = σ³/(σ² + 1/β), seen in the points that are carried along."""
    beta, sigma = 1.5, 0.8
    flow, start = pf.Flow(pf.MeanShift(kernels.Gaussian(beta**-0.5))), hermite(8, np.zeros(1), np.full((1, 1), sigma))
    run = pf.simulate(flow, start, [0.0, 1.0, 2.0], step=1.0, solver="map", discretization=Gaussian())
    found = np.sqrt(np.exp(np.asarray(start.log_weights)) @ np.asarray(run.points)[:, :, 0].T ** 2)
    assert np.max(np.abs(found[1:] / (found[:-1] ** 3 / (found[:-1] ** 2 + 1 / beta)) - 1)) < 1e-13
    assert abs(found[0] - sigma) < 1e-13


@pytest.mark.slow
def test_blow_up_is_found_by_an_event():
    """Softmax on the line: infinite at 1/(2 a s0), which the observable knows from the beginning."""
    rate, variance = 0.5, 0.4
    flow, start = pf.Flow(pf.Attend(kernels.Attention(rate))), hermite(8, np.zeros(1), np.full((1, 1), variance**0.5))
    run = pf.simulate(
        flow, start, np.linspace(0.0, 4.0, 9), rtol=1e-11, atol=1e-13, discretization=Gaussian(),
        observe=[observables.blow_up_time, observables.largest_variance], event=events.SpreadReached(1e6),
    )  # fmt: skip
    pole = 1 / (2 * rate * variance)
    assert run.status == "stopped by event"
    assert "largest variance reached 1e+06" in run.metadata["message"]
    assert abs(run.times[-1] - (pole - 1e-6 / (2 * rate))) < 1e-9
    assert np.max(np.abs(np.asarray(run.observables["blow_up_time"]) - pole)) < 1e-9
    assert abs(run.observables["largest_variance"][-1] / 1e6 - 1) < 1e-4  # a time is found to 1e-10, 1e-6 from the pole


@pytest.mark.slow
def test_unnormalised_attention_ends_where_its_integral_does():
    """s' = 2as²(1 − a²s²)^{−3/2} reaches s = 1/a at the time ∫ ds/s', and there the run says why it ends."""
    rate, variance = 0.5, 0.4
    flow = pf.Flow(pf.Attend(kernels.Attention(rate), normalization="none"))
    start = hermite(8, np.zeros(1), np.full((1, 1), variance**0.5))
    with pytest.raises(RunError, match=r"normalization 'none'.* becomes infinite, now that its largest variance is 2"):
        pf.simulate(flow, start, [0.0, 2.0], rtol=1e-9, atol=1e-11, discretization=Gaussian())
    from scipy.integrate import quad

    end = quad(lambda s: (1 - (rate * s) ** 2) ** 1.5 / (2 * rate * s**2), variance, 1 / rate)[0]
    half = quad(lambda s: (1 - (rate * s) ** 2) ** 1.5 / (2 * rate * s**2), variance, 1.0)[0]
    assert half < end < 2.0
    found = pf.evolve(flow, start, half, rtol=1e-9, atol=1e-11, discretization=Gaussian())
    assert abs(np.exp(np.asarray(found.log_weights)) @ np.asarray(found.points)[:, 0] ** 2 - 1.0) < 1e-8


# Through everything that runs go through.


class StopError(Exception):
    """Ends a run between two windows."""


@pytest.mark.slow
def test_stored_streamed_stopped_and_resumed(tmp_path):
    flow, start, times = pf.Flow(pf.Attend(SOFTMAX, VALUE)), hermite(3), np.linspace(0.0, 1.0, 7)
    options: dict[str, Any] = {
        "rtol": 1e-9, "atol": 1e-11, "discretization": Gaussian(), "window": 2,
        "observe": [*MOMENTS, observables.entropy],
    }  # fmt: skip
    whole = pf.simulate(flow, start, times, **options)
    streamed = np.concatenate([each.fields["points"] for each in pf.stream(flow, start, times, **options)])
    assert np.array_equal(streamed, np.asarray(whole.points))

    def stop(frames: Any) -> None:
        if frames.progress.frames >= 4:
            raise StopError

    with pytest.raises(StopError):
        pf.simulate(flow, start, times, **options, store=tmp_path / "law.h5", progress=stop)
    resumed = pf.simulate(flow, start, times, **options, store=tmp_path / "law.h5", resume=True)
    assert np.array_equal(np.asarray(resumed.points), np.asarray(whole.points))
    spreads = np.asarray(resumed.observables["covariance"])
    assert np.array_equal(spreads, np.asarray(whole.observables["covariance"]))
    exact = 0.5 * np.log(np.linalg.det(2 * np.pi * np.e * spreads))
    assert np.max(np.abs(np.asarray(resumed.observables["entropy"]) - exact)) < 1e-13
    other = pf.simulate([flow, pf.Flow(pf.Attend(SOFTMAX, -VALUE))], start, times, **options)
    assert np.max(np.abs(np.asarray(other.run(0).points) - np.asarray(whole.points))) < 1e-13


@pytest.mark.slow
def test_particles_over_many_nodes_follow_the_gaussian():
    """A quadrature of a Gaussian, moved as particles, moves with the affine field for a while."""
    flow, times = pf.Flow(pf.Attend(SOFTMAX, VALUE)), [0.0, 0.5]
    law, particles = (
        pf.simulate(flow, hermite(10), times, rtol=1e-9, atol=1e-11, discretization=how)
        for how in (Gaussian(), pf.Particles())
    )
    assert np.max(np.abs(np.asarray(law.points) - np.asarray(particles.points))) < 1e-6


@pytest.mark.slow
def test_single_precision_ensembles_of_starts_and_gradients():
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32), (pf.Flow(pf.Attend(SOFTMAX, VALUE)), hermite(3)))
    double = pf.Flow(pf.Attend(SOFTMAX, VALUE)), hermite(3)
    runs = [
        pf.simulate(flow, start, [0.0, 1.0], rtol=1e-5, atol=1e-6, discretization=Gaussian(), observe=MOMENTS)
        for flow, start in (single, double)
    ]
    assert np.asarray(runs[0].points).dtype == np.float32
    assert np.max(np.abs(np.asarray(runs[0].points) - np.asarray(runs[1].points))) < 1e-4
    starts = [hermite(3), hermite(3, -MEAN, 0.5 * FACTOR)]
    both = pf.simulate(double[0], starts, [0.0, 1.0], rtol=1e-9, atol=1e-11, discretization=Gaussian())
    alone = pf.simulate(double[0], starts[1], [0.0, 1.0], rtol=1e-9, atol=1e-11, discretization=Gaussian())
    assert np.max(np.abs(np.asarray(both.run(1).points) - np.asarray(alone.points))) < 1e-12

    def spread(beta: Any) -> Any:
        flow = pf.Flow(pf.Attend(kernels.Attention(beta, QUERY, KEY), normalization="sinkhorn"))
        end = pf.evolve(flow, hermite(3), 1.0, step=0.25, solver="heun", discretization=Gaussian(), max_steps=8)
        return jnp.sum(jnp.square(end.points[:, 0]))

    slope = jax.grad(spread)(0.7)
    assert abs(slope - (spread(0.7 + 1e-6) - spread(0.7 - 1e-6)) / 2e-6) < 1e-6


@pytest.mark.slow
def test_common_noise_moves_the_mean_as_it_moves_that_of_particles():
    flow = pf.Flow(drifts.Linear(-0.5), common_temperature=0.2)
    options: dict[str, Any] = {"step": 0.25, "key": jax.random.key(1), "observe": MOMENTS}
    law, particles = (
        pf.simulate(flow, hermite(3), [0.0, 1.0], **options, discretization=how) for how in (Gaussian(), pf.Particles())
    )
    assert np.max(np.abs(np.asarray(law.points) - np.asarray(particles.points))) < 1e-12
    assert np.max(np.abs(np.asarray(law.observables["centre"])[1] - MEAN)) > 1e-2


DATA = pf.Measure.uniform(np.eye(2))
REFUSED = {
    "another activation": (pf.Flow(drifts.FeedForward(QUERY)), "feed_forward with activation 'tanh'"),
    "hardmax": (pf.Flow(drifts.Hardmax()), "under the drift hardmax"),
    "fixed data": (pf.Flow(pf.MeanShift(GAUSSIAN, DATA)), "looks at fixed data"),
    "another kernel": (pf.Flow(pf.Attend(kernels.Laplace(1.0))), r"no quadratic form of two points \(Laplace"),
    "a direction": (pf.Flow(pf.Attend(kernels.Cosine(1.0))), r"no quadratic form of two points \(Cosine"),
    "positions": (pf.Flow(pf.Attend(SOFTMAX, positional=kernels.Causal())), "no quadratic form of two points"),
    "a mixture": (pf.Flow(pf.Attend(SOFTMAX + GAUSSIAN)), "no quadratic form of two points"),
    "another power": (pf.Flow(drifts.Confinement(1.0, 4.0)), "another power than 2"),
    "a sphere": (pf.Flow(pf.Attend(SOFTMAX), geometry=geometry.LayerNorm()), "but the geometry is layer_norm"),
    "another frame": (pf.Flow(pf.Attend(SOFTMAX), geometry=geometry.Rescaled()), "but the geometry is rescaled"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_affine_velocity_is_refused(name):
    flow, message = REFUSED[name]
    with pytest.raises(ArgumentError, match=message):
        pf.simulate(flow, hermite(3), [0.0, 1.0], rtol=1e-6, atol=1e-8, discretization=Gaussian())


def test_starts_that_are_refused():
    flow, options = pf.Flow(drifts.Linear(1.0)), {"rtol": 1e-6, "atol": 1e-8, "discretization": Gaussian()}
    with pytest.raises(ArgumentError, match="no `values` of its points"):
        pf.simulate(flow, hermite(3).with_values(jnp.ones(9)), [0.0, 1.0], **options)
    with pytest.raises(ArgumentError, match="no fields, but the start has residual_norm"):
        pf.simulate(flow, hermite(3).with_fields({"residual_norm": jnp.ones(9)}), [0.0, 1.0], **options)
    with pytest.raises(ArgumentError, match="must spread in every direction"):
        pf.simulate(eqx.tree_at(lambda f: f.temperature, flow, jnp.asarray(0.1)), np.eye(2), [0.0, 1.0], **options)


@pytest.mark.slow
def test_a_scenario_with_a_gaussian(tmp_path):
    text = """
initial = { kind = "gauss_hermite", dim = 1, nodes = 6, scale = 0.5 }
discretization = { kind = "gaussian" }
event = { kind = "spread_reached", variance = 100.0 }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 1.0 }
[time]
end = 3.0
frames = 4
rtol = 1e-9
atol = 1e-11
[record]
observables = ["largest_variance", "blow_up_time", "excess_kurtosis", "gaussian_distance"]
"""
    (tmp_path / "law.toml").write_text(text)
    setup = pf.scenario.load(tmp_path / "law.toml").build()
    run = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
    assert abs(run.times[-1] - (2.0 - 0.5 / 100.0)) < 1e-8
    assert np.max(np.abs(np.asarray(run.observables["blow_up_time"]) - 2.0)) < 1e-7
    assert np.max(np.abs(np.asarray(run.observables["excess_kurtosis"]))) < 1e-12
    distances = np.asarray(run.observables["gaussian_distance"])
    assert np.ptp(distances) < 1e-12  # the cloud keeps its shape: it is moved by an affine map
