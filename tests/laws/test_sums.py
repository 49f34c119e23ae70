"""Laws of the one operator, over the table of all kernels and all summations."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from pair_oracles import assert_close
from particleflow import kernels as k
from particleflow.errors import ShapeError
from particleflow.measure import Measure
from particleflow.summation import Auto, Blockwise, Dense, Native
from particleflow.summation.local_mean import local_mean, local_moments
from shares import by_default

TOLERANCE = {jnp.float64: 1e-12, jnp.float32: 1e-5}
SUMMATIONS = {"dense": Dense(), "small blocks": Blockwise(5, 7), "native": Native(), "auto": Auto(dense_bytes=8)}
by_summation = pytest.mark.parametrize("summation", SUMMATIONS.values(), ids=SUMMATIONS)
EXACT = {"dense": Dense(), "blocks": Blockwise(3, 4), "native": Native()}
by_exact_way = pytest.mark.parametrize("summation", EXACT.values(), ids=EXACT)
summed = jax.jit(lambda how, kernel, measure, queries: how.moments(kernel, measure, queries))
by_precision = pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32], ids=["float64", "float32"])
in_single_precision = pytest.mark.parametrize(
    "dtype", by_default([jnp.float64, jnp.float32], [jnp.float32]), ids=["float64", "float32"]
)


def table(double: int, single: int):
    """Every kernel in both precisions; one in `double` and one in `single` of them by default."""
    for number, case in enumerate(pair_oracles.CASES):
        for dtype, every in ((jnp.float64, double), (jnp.float32, single)):
            slow = [pytest.mark.slow] if number % every else []
            yield pytest.param(case, dtype, id=f"{case.name}-{dtype.__name__}", marks=slow)


@pytest.mark.parametrize(("case", "dtype"), list(table(double=32, single=32)))
def test_every_kernel_in_blocks_is_brute_force(case, dtype):
    queries, measure = pair_oracles.cloud(case.space, dtype, 11, 17)
    kernel, tolerance = case.build(dtype), TOLERANCE[dtype]
    logits = pair_oracles.log_matrix(case, queries, measure.sites) + np.asarray(measure.log_weights, np.float64)
    dense, blocks = jax.jit(lambda *cloud: (Dense().moments(kernel, *cloud), Blockwise(5, 7).moments(kernel, *cloud)))(
        measure, queries
    )
    assert blocks.mean.dtype == blocks.log_mass.dtype == dtype
    assert_close(dense, *pair_oracles.moments(logits, np.asarray(measure.values)), tolerance)
    assert_close(blocks, dense.log_mass, dense.mean, tolerance)


@pytest.mark.parametrize(("case", "dtype"), list(table(double=8, single=16)))
def test_every_kernel_is_brute_force(case, dtype):
    """The matrices of all kernels are checked in `test_kernels`, and their native sums in `test_near_far`."""
    queries, measure = pair_oracles.cloud(case.space, dtype, 11, 17)
    kernel = case.build(dtype)
    logits = pair_oracles.log_matrix(case, queries, measure.sites) + np.asarray(measure.log_weights, np.float64)
    # Not compiled as a whole: one by one, the operations of all kernels are the same few.
    for summation in (Dense(), Auto()):
        moments = summation.moments(kernel, measure, queries)
        assert moments.mean.dtype == moments.log_mass.dtype == dtype
        assert_close(moments, *pair_oracles.moments(logits, np.asarray(measure.values)), TOLERANCE[dtype])
    # In blocks the numbers are the same by the test above; what remains is that nothing changes its precision.
    blocks = jax.eval_shape(lambda *cloud: Blockwise(5, 7).moments(kernel, *cloud), measure, queries)
    assert blocks.mean.dtype == blocks.log_mass.dtype == dtype


@pytest.mark.parametrize("size", by_default([(1, 1), (3, 1), (1, 31), (37, 7), (6, 71)], [(1, 1), (37, 7)]), ids=str)
def test_every_size(size):
    dtype = jnp.float32 if size == (37, 7) else jnp.float64
    case = next(case for case in pair_oracles.CASES if case.name == "causal attention")
    queries, measure = pair_oracles.cloud("vectors", dtype, *size, seed=3)
    logits = pair_oracles.log_matrix(case, queries, measure.sites) + np.asarray(measure.log_weights, np.float64)
    expected = pair_oracles.moments(logits, np.asarray(measure.values))
    for summation in (Blockwise(5, 7), Native()):
        assert_close(summed(summation, case.build(dtype), measure, queries), *expected, TOLERANCE[dtype])


UNEVEN = [k.Attention(3.0), k.Gaussian(0.3) * k.Causal()]


@in_single_precision
@pytest.mark.parametrize("kernel", by_default(UNEVEN, UNEVEN[:1]), ids=repr)
def test_default_blocks_at_sizes_that_are_no_multiples(kernel, dtype):
    queries, measure = pair_oracles.cloud("vectors", dtype, 4099, 1031, seed=4)
    dense = jax.jit(Dense().moments)(kernel, measure, queries)
    for summation in (Blockwise(), Native()):
        moments = jax.jit(summation.moments)(kernel, measure, queries)
        assert_close(moments, dense.log_mass, dense.mean, TOLERANCE[dtype])


@pytest.mark.parametrize("summation", [Blockwise(), Native()], ids=["blocks", "native"])
@pytest.mark.parametrize("count", by_default([10_000, 100_000], [100_000]))
def test_large_sums_take_little_memory_at_any_size(count, summation):
    points = jax.ShapeDtypeStruct((count, 3), jnp.float64)
    field = jax.jit(lambda cloud: local_mean(k.Attention(4.0), Measure.uniform(cloud), cloud, summation=summation))
    memory: Any = field.lower(points).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 40 * 2**20  # a few blocks of 4096 × 256 pairs, and a few copies of the points


@by_exact_way
def test_no_queries_give_no_moments(summation):
    _, measure = pair_oracles.cloud("vectors", jnp.float64, 3, 5)
    moments = summed(summation, k.Gaussian(1.0), measure, jnp.zeros((0, 3)))
    assert moments.log_mass.shape == (0,)
    assert moments.mean.shape == (0, 2)


# --- invariances --------------------------------------------------------------------------------------------------


# Every exact way keeps every law by default, each with a kernel of its own; the whole table is slow.
REPRESENTATIVE = {("dense", "self-localized"), ("blocks", "causal attention"), ("native", "attention with matrices")}


def table_of_laws():
    """Every kernel, by every exact way, in both precisions."""
    for case in pair_oracles.CASES:
        for name, summation in EXACT.items():
            for dtype in (jnp.float64, jnp.float32):
                default = (name, case.name) in REPRESENTATIVE and dtype == jnp.float64
                identity = f"{case.name}-{name}-{dtype.__name__}"
                yield pytest.param(case, summation, dtype, id=identity, marks=[] if default else [pytest.mark.slow])


@pytest.mark.parametrize(("case", "summation", "dtype"), list(table_of_laws()))
def test_every_kernel_keeps_every_law(case, summation, dtype):
    """Order of points and of queries, two copies, two pieces: the same for the whole table, at odd sizes."""
    kernel, tolerance = case.build(dtype), TOLERANCE[dtype]
    queries, measure = pair_oracles.cloud(case.space, dtype, 9, 23, seed=12)
    order, turn = np.random.default_rng(13).permutation(23), np.random.default_rng(14).permutation(9)
    take = jax.tree_util.tree_map

    @jax.jit
    def variants(measure, queries):
        first, second = take(lambda leaf: leaf[:10], measure), take(lambda leaf: leaf[10:], measure)
        return (
            summation.moments(kernel, measure, queries),
            summation.moments(kernel, take(lambda leaf: leaf[order], measure), queries),
            summation.moments(kernel, measure, take(lambda leaf: leaf[turn], queries)),
            summation.moments(kernel, measure.concatenated(measure), queries),
            summation.moments(kernel, first, queries).merge(summation.moments(kernel, second, queries)),
        )

    plain, shuffled, turned, twice, merged = variants(measure, queries)
    assert_close(shuffled, plain.log_mass, plain.mean, tolerance)
    assert_close(turned, plain.log_mass[turn], plain.mean[turn], tolerance)
    assert_close(twice, np.asarray(plain.log_mass, np.float64) + np.log(2.0), plain.mean, tolerance)
    assert_close(merged, plain.log_mass, plain.mean, tolerance)


@pytest.mark.parametrize("summation", by_default(EXACT.values(), [EXACT["blocks"], EXACT["native"]]), ids=EXACT)
def test_translation_by_thirty_units_does_not_hurt_a_narrow_gaussian_in_float32(summation):
    rng = np.random.default_rng(11)
    points = (rng.normal(size=(257, 3)) * 0.1 + 30).astype(np.float32)
    measure = Measure.uniform(points)
    moments = summed(summation, k.Gaussian(0.05), measure, points)
    exact = points.astype(np.float64)
    squares = ((exact[:, None] - exact[None]) ** 2).sum(-1)
    log_mass, mean = pair_oracles.moments(-squares / (2 * 0.05**2) - np.log(257), exact)
    np.testing.assert_allclose(moments.log_mass, log_mass, rtol=1e-5, atol=1e-5)
    # A sum of numbers near 30 is rounded like one; values near 0 show that the weights themselves lost nothing.
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-6)
    centred = summed(summation, k.Gaussian(0.05), measure.with_values(jnp.asarray(points - np.float32(30))), points)
    assert np.abs(np.asarray(centred.mean, np.float64) - (mean - 30)).max() < 2e-7


# --- the exponent's range -----------------------------------------------------------------------------------------
# All logits below are whole numbers that float32 holds exactly, so that only the summation can be at fault.

CAP = float(np.log(np.finfo(np.float32).max)) / 2


def integer_moments(logits: np.ndarray, values: np.ndarray):
    return pair_oracles.moments(np.asarray(logits, np.float64), np.asarray(values, np.float64))


SHIFTED = [Dense(), Blockwise(4, 7), Blockwise(100, 1), Blockwise(1, 100), Native()]


@in_single_precision
@pytest.mark.parametrize("beta", by_default([1.0, 64.0, 4096.0], [4096.0]))
@pytest.mark.parametrize("direction", by_default([1, -1], [1]))
@pytest.mark.parametrize("summation", by_default(SHIFTED, [Blockwise(4, 7), Native()]), ids=repr)
def test_sorted_clusters_with_extreme_logits(dtype, beta, direction, summation):
    # The best source comes last (or first): no shift taken from one block suits another.
    grid = np.repeat(np.arange(-8.0, 9.0), 5)[::direction]
    points = np.stack([grid, np.ones_like(grid)], axis=1)
    queries = points[::3]
    logits = beta * queries @ points.T - np.log(len(grid))
    measure = Measure.uniform(jnp.asarray(points, dtype))
    if beta > 1:
        assert (logits.max(1) - logits[:, :7].max(1)).max() > CAP  # the common shift must fail somewhere
    log_mass, mean = integer_moments(logits, points)
    moments = summed(summation, k.Attention(beta), measure, jnp.asarray(queries, dtype))
    assert_close(moments, log_mass, mean, TOLERANCE[dtype])


@by_precision
@pytest.mark.parametrize(
    "excess",
    by_default([40.0, 44.0, 45.0, 46.0, 89.0, 354.0, 355.0, 356.0, 700.0, 5000.0], [44.0, 45.0, 355.0, 356.0, 5000.0]),
)
def test_one_source_just_beyond_what_the_first_block_promises(dtype, excess):
    points = np.array([[0.0], [0.0], [1.0], [0.0]])
    measure = Measure.weighted(jnp.asarray(points, dtype), jnp.ones(4, dtype))
    log_mass, mean = integer_moments(excess * points.T, points)
    for summation in (Blockwise(1, 2), Native()):
        moments = summed(summation, k.Attention(1.0), measure, jnp.full((1, 1), excess, dtype))
        assert_close(moments, log_mass, mean, TOLERANCE[dtype])


MASKED = [Dense(), Blockwise(6, 5), Blockwise(41, 3), Native()]


@in_single_precision
@pytest.mark.parametrize("summation", by_default(MASKED, [Blockwise(6, 5), Native()]), ids=repr)
def test_causal_mask_with_extreme_logits_and_a_row_that_sees_nothing(dtype, summation):
    count = 41
    points = np.stack([np.arange(-20.0, 21.0), np.ones(count)], axis=1)
    positions = np.arange(count, dtype=float)[::-1].copy()
    measure = Measure.uniform(jnp.asarray(points, dtype), positions=jnp.asarray(positions, dtype))
    logits = np.where(positions[None] < positions[:, None], 8.0 * points @ points.T - np.log(count), -np.inf)
    log_mass, mean = integer_moments(logits, points)
    assert np.isneginf(log_mass[-1])
    moments = summed(summation, k.Attention(8.0) * k.StrictlyCausal(), measure, measure)
    assert_close(moments, log_mass, mean, TOLERANCE[dtype])


# --- compilation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compile_", "summation"),
    [
        *(pytest.param(jax.jit, how, id=f"jax.jit-{name}") for name, how in SUMMATIONS.items()),
        pytest.param(eqx.filter_jit, SUMMATIONS["auto"], id="equinox.filter_jit-auto"),
    ],
)
def test_a_sweep_over_beta_compiles_once(compile_, summation):
    _, measure = pair_oracles.cloud("vectors", jnp.float64, 3, 9)
    traces = 0

    @compile_
    def field(kernel, measure):
        nonlocal traces
        traces += 1
        return local_mean(kernel, measure, measure, summation=summation)

    means = [np.asarray(field(k.Attention(beta), measure)) for beta in np.linspace(0.5, 10, 20)]
    assert traces == 1
    assert all(np.abs(means[i] - means[i + 1]).max() > 1e-6 for i in range(19))


def test_float32_points_keep_python_numbers_from_compiling_again():
    _, measure = pair_oracles.cloud("vectors", jnp.float32, 3, 9)
    traces = 0

    @jax.jit
    def field(kernel, measure):
        nonlocal traces
        traces += 1
        return local_mean(kernel, measure, measure)

    for beta in (1, 2.0, np.float64(3.0), True + 1):
        assert field(k.Gaussian(beta) * k.Alibi(beta), measure).dtype == jnp.float32
    assert traces == 1


@by_summation
def test_a_summation_is_an_argument_like_any_other(summation):
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 11, 17)
    moments = jax.jit(lambda how, kernel: how.moments(kernel, measure, queries))(summation, k.Gaussian(0.8))
    direct = summation.moments(k.Gaussian(0.8), measure, queries)
    assert_close(moments, direct.log_mass, direct.mean, 1e-13)


# --- the choice ---------------------------------------------------------------------------------------------------


def test_auto_says_what_it_chose_and_why(monkeypatch):
    monkeypatch.setenv("PARTICLEFLOW_NATIVE", "0")
    measure, kernel = Measure.uniform(np.zeros((1000, 2)) + np.arange(1000.0)[:, None]), k.Attention(1.0)
    small, large = Auto().select(kernel, measure, measure), Auto(dense_bytes=10**6).select(kernel, measure, measure)
    assert isinstance(small.summation, Dense)
    assert isinstance(large.summation, Blockwise)
    for choice in (small, large):
        assert "1000 × 1000 pairs need 7.63 MiB" in choice.reason
        assert choice.error == 0
    assert "16 MiB" in small.reason
    assert str(small).startswith("Dense: 1000 × 1000 pairs")
    assert "0.954 MiB" in large.reason
    assert isinstance(Auto().select(kernel, measure, jnp.zeros((3000, 2))).summation, Blockwise)
    monkeypatch.delenv("PARTICLEFLOW_NATIVE")
    native = Auto().select(kernel, measure, measure)
    assert isinstance(native.summation, Native)
    assert str(native) == "Native: 1000 × 1000 pairs in native code"


def test_a_tolerance_is_kept_by_exact_sums_and_the_choice_says_so():
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 11, 17)
    asked = Auto(dense_bytes=8, tolerance=1e-6)
    choice = asked.select(k.Attention(1.0), measure, queries)
    assert choice.error == 0
    assert choice.reason.endswith("exact up to rounding, within the tolerance 1e-06")
    expected = Dense().moments(k.Attention(1.0), measure, queries)
    found = jax.jit(lambda how: how.moments(k.Attention(1.0), measure, queries))(asked)
    assert_close(found, expected.log_mass, expected.mean, 1e-13)


@by_exact_way
def test_a_summation_that_was_asked_for_is_the_choice(summation):
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 11, 17)
    choice = summation.select(k.Attention(1.0), measure, queries)
    assert choice.summation is summation
    assert str(choice) == f"{type(summation).__name__}: as asked"
    assert choice.error == 0


@pytest.mark.parametrize(
    "summation", by_default(SUMMATIONS.values(), [SUMMATIONS["small blocks"], SUMMATIONS["auto"]]), ids=SUMMATIONS
)
@pytest.mark.parametrize("name", by_default(["causal attention", "on values", "self-localized"], ["on values"]))
def test_other_values_are_summed_and_the_kernel_sees_its_own(summation, name):
    case = next(case for case in pair_oracles.CASES if case.name == name)
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 6, 17, seed=15)
    other = np.random.default_rng(16).normal(size=(17, 5))
    logits = pair_oracles.log_matrix(case, queries, measure.sites) + np.asarray(measure.log_weights)
    kernel = case.build(jnp.float64)
    assert_close(summation.moments(kernel, measure, queries, values=other), *pair_oracles.moments(logits, other), 1e-12)
    numbers = summation.moments(kernel, measure, queries, values=other[:, 2])
    assert_close(numbers, *pair_oracles.moments(logits, other[:, 2:3]), 1e-12)
    with pytest.raises(ShapeError, match=r"`values`.*\(17, k\).*\(16, 5\)"):
        summation.moments(kernel, measure, queries, values=other[:16])


def test_moments_of_plain_numbers_and_single_points():
    measure = Measure.weighted(np.array([[0.0], [1.0]]), np.array([1.0, 3.0]), values=np.array([10.0, 20.0]))
    many = local_moments(k.Constant(), measure, np.zeros((5, 1)))
    assert many.mean.shape == (5,)
    np.testing.assert_allclose(many.mean, 17.5, rtol=1e-15)
    one = local_moments(k.Constant(), measure, np.zeros(1))
    assert one.mean.shape == ()
    np.testing.assert_allclose(one.log_mass, np.log(4.0), rtol=1e-15)
