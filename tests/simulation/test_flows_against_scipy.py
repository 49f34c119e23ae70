"""Random Q, K and V, both normalisations, both geometries, causal or not: SciPy's DOP853 gives the same state."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, kernels
from particleflow.dynamics.drifts.total_support import check_total_support
from particleflow.errors import ArgumentError
from shares import by_default

COUNT, DIMENSION, BETA, TIMES = 6, 3, 1.3, np.array([0.0, 0.5, 1.0])
_RNG = np.random.default_rng(11)
QUERY, KEY, VALUE = 0.7 * _RNG.normal(size=(3, DIMENSION, DIMENSION))


def every_field():
    """Eight fields; by default one, the hardest: softmax on the sphere under a mask."""
    for normalization, sphere, causal in itertools.product(("row", "none"), (False, True), (False, True)):
        fast = (normalization, sphere, causal) == ("row", True, True)
        slow = [] if fast else [pytest.mark.slow]
        words = (normalization, "sphere" if sphere else "space", "causal" if causal else "all")
        yield pytest.param(normalization, sphere, causal, id="-".join(words), marks=slow)


@pytest.mark.parametrize(("normalization", "sphere", "causal"), list(every_field()))
def test_final_state_agrees_with_scipy(normalization, sphere, causal):
    start = oracle.random_sphere(12, COUNT, DIMENSION) * (1.0 if sphere else 0.5)
    drift = pf.Attend(
        kernels.Attention(beta=BETA, query=QUERY, key=KEY),
        value=VALUE,
        normalization=normalization,
        positional=kernels.Causal() if causal else None,
    )
    flow = pf.Flow(drift, geometry=pf.Sphere() if sphere else pf.Euclidean())
    run = pf.simulate(flow, start, TIMES, rtol=1e-11, atol=1e-12)
    field = oracle.attention_field(BETA, QUERY, KEY, VALUE, normalization=normalization, causal=causal, sphere=sphere)
    expected = oracle.solve(field, start, TIMES)
    if sphere:
        expected = oracle.on_sphere(expected)
        assert oracle.norm_error(run.points) < 1e-9
    assert np.max(np.abs(run.points - expected)) < 1e-8


@pytest.mark.slow
def test_sinkhorn_attention_agrees_with_scipy():
    start = oracle.random_sphere(13, COUNT, DIMENSION)
    drift = pf.Attend(kernels.Attention(beta=2.0), value=VALUE, normalization="sinkhorn")
    run = pf.simulate(pf.Flow(drift, geometry=pf.Sphere()), start, TIMES, rtol=1e-9, atol=1e-11, solver="tsit5")
    field = oracle.attention_field(2.0, value=VALUE, normalization="sinkhorn", sphere=True)
    expected = oracle.solve(field, start, TIMES, rtol=1e-10, atol=1e-11)
    assert np.max(np.abs(run.points - oracle.on_sphere(expected))) < 1e-8


def support_of(pattern):
    """Whether every positive entry lies on a permutation of positive entries, by trying all permutations."""
    size = len(pattern)
    on_some = np.zeros_like(pattern)
    for order in itertools.permutations(range(size)):
        if all(pattern[row, column] for row, column in enumerate(order)):
            on_some[range(size), order] = True
    return bool((on_some == pattern).all())


@pytest.mark.parametrize("seed", by_default(range(40), [0]))
def test_sinkhorn_is_refused_exactly_without_total_support(seed):
    rng = np.random.default_rng(seed)
    pattern = rng.random((5, 5)) < rng.uniform(0.3, 0.9)
    table = kernels.Discrete(np.where(pattern, 0.0, -np.inf))
    letters = pf.Measure.of_symbols(np.arange(5))
    if support_of(pattern):
        check_total_support(table, letters)
        drift = pf.Attend(table, normalization="sinkhorn")
        weights = drift.interactions(0.0)[0].attention(letters)
        assert np.max(np.abs(np.sum(weights, axis=0) - 1)) < 1e-6
    else:
        with pytest.raises(ArgumentError, match="Sinkhorn normalisation"):
            check_total_support(table, letters)


def test_causal_sinkhorn_is_refused_and_not_finite_where_it_cannot_be():
    """A triangular matrix is doubly stochastic only if it is the identity."""
    start = oracle.random_sphere(13, COUNT, DIMENSION)
    drift = pf.Attend(kernels.Attention(beta=2.0), normalization="sinkhorn", positional=kernels.Causal())
    measure = pf.Measure.uniform(start, positions=np.arange(COUNT, dtype=float))
    with pytest.raises(ArgumentError, match="causal mask leaves only the identity"):
        drift(0.0, measure.sites, measure)
    with pytest.raises(ArgumentError, match="causal mask leaves only the identity"):
        pf.evolve(pf.Flow(drift, geometry=pf.Sphere()), measure, 1.0, rtol=1e-6, atol=1e-8)
    velocity = jax.jit(lambda points: drift(0.0, measure.with_points(points).sites, measure.with_points(points)))
    assert np.isnan(np.asarray(velocity(measure.points))).all()


@pytest.mark.slow
def test_weights_change_the_field_as_repeated_particles_do():
    start = oracle.random_sphere(14, 4, DIMENSION)
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA)), geometry=pf.Sphere())
    weighted = pf.Measure.weighted(start, np.array([0.5, 0.25, 0.125, 0.125]))
    run = pf.simulate(flow, weighted, TIMES, rtol=1e-11, atol=1e-12)
    repeated = np.repeat(start, [4, 2, 1, 1], axis=0)
    expected = oracle.on_sphere(oracle.solve(oracle.attention_field(BETA, sphere=True), repeated, TIMES))
    assert np.max(np.abs(run.points - expected[:, [0, 4, 6, 7]])) < 1e-8
    assert np.allclose(run.weights, [0.5, 0.25, 0.125, 0.125], atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["tsit5", "bosh3", "kvaerno5"])
def test_every_kind_of_solver_converges_to_the_same_state(solver):
    start = oracle.random_sphere(15, COUNT, DIMENSION)
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA), value=VALUE), geometry=pf.Sphere())
    run = pf.simulate(flow, start, [0.0, 1.0], rtol=1e-7, atol=1e-9, solver=solver)
    field = oracle.attention_field(BETA, value=VALUE, sphere=True)
    assert np.max(np.abs(run.points[-1] - oracle.on_sphere(oracle.solve(field, start, [0.0, 1.0])[-1]))) < 2e-6


@pytest.mark.slow
def test_single_precision_agrees_to_single_precision():
    start = oracle.random_sphere(15, COUNT, DIMENSION)
    drift = pf.Attend(kernels.Attention(beta=BETA), value=jnp.asarray(VALUE, jnp.float32))
    flow = pf.Flow(drift, geometry=pf.Sphere())
    run = pf.simulate(flow, start.astype(np.float32), [0.0, 1.0], rtol=1e-5, atol=1e-6)
    field = oracle.attention_field(BETA, value=VALUE, sphere=True)
    assert run.points.dtype == np.float32
    assert np.max(np.abs(run.points[-1] - oracle.on_sphere(oracle.solve(field, start, [0.0, 1.0])[-1]))) < 1e-4
    assert oracle.norm_error(run.points) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "order", "step"),
    [
        pytest.param("euler", 1, 1 / 64, marks=pytest.mark.slow),
        pytest.param("implicit_euler", 1, 1 / 64, marks=pytest.mark.slow),
        ("kvaerno3", 3, 1 / 16),
        pytest.param("kvaerno5", 5, 1 / 8, marks=pytest.mark.slow),
    ],
)
def test_fixed_steps_converge_at_the_order_of_the_solver(solver, order, step):
    start = oracle.random_sphere(15, COUNT, DIMENSION)
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA), value=VALUE), geometry=pf.Sphere())
    exact = oracle.on_sphere(
        oracle.solve(oracle.attention_field(BETA, value=VALUE, sphere=True), start, [0.0, 1.0])[-1]
    )
    runs = [pf.simulate(flow, start, [0.0, 1.0], step=size, solver=solver) for size in (step, step / 2)]
    errors = [np.max(np.abs(run.points[-1] - exact)) for run in runs]
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.1 * order
    # Every stage of an implicit step takes one evaluation at least, and Newton's method a few more.
    counts = runs[0].metadata["statistics"]
    stages = {"euler": 1, "implicit_euler": 1, "kvaerno3": 3, "kvaerno5": 6}[solver]
    assert stages * counts["accepted steps"] <= counts["field evaluations"] <= 6 * stages * counts["accepted steps"]


@pytest.mark.slow
def test_implicit_steps_are_as_exact_between_their_ends():
    """An implicit method steps on every saved time: its interpolation alone is off by 4e-6 here."""
    start, times = oracle.random_sphere(15, COUNT, DIMENSION), np.linspace(0.0, 1.0, 12)
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA), value=VALUE), geometry=pf.Sphere())
    run = pf.simulate(flow, start, times, rtol=1e-7, atol=1e-9, solver="kvaerno5")
    exact = oracle.on_sphere(oracle.solve(oracle.attention_field(BETA, value=VALUE, sphere=True), start, times))
    assert np.max(np.abs(run.points - exact)) < 2e-7


@pytest.mark.slow
def test_schedule_of_beta_agrees_with_scipy():
    start = oracle.random_sphere(16, COUNT, DIMENSION)
    ramp = drifts.Varying(pf.Attend(kernels.Attention(beta=1.0)), drifts.Ramp(1.0, 4.0, end=1.0), "kernel.beta")
    run = pf.simulate(pf.Flow(ramp, geometry=pf.Sphere()), start, TIMES, rtol=1e-11, atol=1e-12)

    def field(time, points):
        return oracle.attention_field(1.0 + 3.0 * min(time, 1.0), sphere=True)(time, points)

    assert np.max(np.abs(run.points - oracle.on_sphere(oracle.solve(field, start, TIMES)))) < 1e-8
