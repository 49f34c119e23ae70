"""The native sum: accuracy against long double, every derivative, batches, threads, and what it must not hide."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

import particleflow as pf
from particleflow import kernels as k
from particleflow.measure import Measure, Sites
from particleflow.summation import Auto, Blockwise, Dense, Native
from particleflow.summation.native.build import library
from particleflow.summation.native.primitive import Arrays, Form, native_moments
from shares import by_default

pytestmark = pytest.mark.skipif(library().path is None, reason=f"no native sum here: {library().reason}")

NO_BAND = (0.0, -np.inf, np.inf, 0.0, 1.0)


def on_the_sphere(seed: int, count: int, dimension: int, dtype: Any) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(count, dimension))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(dtype)


def summed(queries: np.ndarray, keys: np.ndarray) -> Any:
    """The native moments of exp⟨q, s⟩ with equal weights and the keys as values."""
    dtype, count = keys.dtype, len(keys)
    offsets, none = np.full(count, -np.log(count), dtype), np.zeros(0, dtype)
    arrays = (queries, keys, keys, offsets, none, none, np.array(NO_BAND, dtype))
    return native_moments(Form(keys.shape[1], None, library=library().key), Arrays(*map(jnp.asarray, arrays)))


def in_long_double(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = queries.astype(np.longdouble), keys.astype(np.longdouble)
    logits = x @ y.T - np.log(np.longdouble(len(y)))
    highest = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - highest)
    mass = weights.sum(axis=1)
    return highest[:, 0] + np.log(mass), weights @ y / mass[:, None]


SHAPES = [(70, 3), (71, 2), (1000, 16), (130, 64), (2100, 64)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("beta", by_default([1.0, 4.0, 5.9, 9.0, 60.0, 500.0], [1.0, 9.0, 500.0]))
@pytest.mark.parametrize("shape", by_default(SHAPES, [(70, 3), (1000, 16), (130, 64)]), ids=str)
def test_means_are_right_to_the_last_digits(dtype, beta, shape):
    """3e-7 in float32 and 1e-15 (1 + |logit|) in float64 at any β: wide single-precision sums are made in double."""
    count, dimension = shape
    keys = on_the_sphere(count, count, dimension, dtype)
    queries = (keys[:110] * dtype(beta)).astype(dtype)
    log_mass, mean = in_long_double(queries, keys)
    found = summed(queries, keys)
    assert found.mean.dtype == found.log_mass.dtype == dtype
    assert np.max(np.abs(np.asarray(found.mean) - mean)) < (3e-7 if dtype == np.float32 else 1e-15 * (1 + beta))
    rounding = float(np.finfo(dtype).eps)
    assert np.max(np.abs(np.asarray(found.log_mass) - log_mass)) < 4 * rounding * (1 + beta)


KERNELS = {
    "attention": k.Attention(1.3, query=np.array([[1.0, 0.2, 0.0], [0.0, 0.7, 0.1], [0.3, 0.0, 1.1]])),
    "gaussian": k.Gaussian(0.7),
    "squared distances": k.SquaredDistanceAttention(0.5, key=0.8),
    "laplace": k.Laplace(0.7),
    "student": k.StudentT(0.7, 2.5),
    "linear bias": k.Attention(1.0) * k.Causal() * k.Alibi(0.1),
    "space and time": k.Gaussian(1.0) * k.TimeGaussian(20.0),
    "relative positions": k.RelativeAttention(0.5, 1.0, 0.7, np.array([[0.3, 1.0], [0.8, -0.5], [0.1, 0.4]]))
    * k.Causal(),
    "mixed": 2.0 * (k.Attention(0.5) * k.Laplace(1.0)) * k.Window(9.0),
}
QUICK = ["attention"]
by_kernel = pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in KERNELS]
)


class Cloud:
    """A small weighted cloud with values and positions, and random numbers to weigh what is read from it."""

    def __init__(self, queries: int = 9, sources: int = 13):
        rng = np.random.default_rng(5)
        self.points, self.queries = (jnp.asarray(rng.normal(size=(count, 3))) for count in (sources, queries))
        self.values, self.log_weights = (
            jnp.asarray(rng.normal(size=(sources, 2))),
            jnp.asarray(rng.normal(size=sources)),
        )
        self.positions, self.times = jnp.arange(sources).astype(float), jnp.linspace(0.0, sources, queries)
        self.rates, self.mass_rates = jnp.asarray(rng.normal(size=(queries, 2))), jnp.asarray(rng.normal(size=queries))

    def reading(self, kernel: Any, points: Any, queries: Any, values: Any, log_weights: Any, how: Any) -> Any:
        measure = Measure(points, log_weights, values, self.positions)
        moments = how.moments(kernel, measure, Sites(queries, self.times, None))
        return jnp.vdot(moments.mean, self.rates) + jnp.vdot(moments.log_mass, self.mass_rates)

    def arguments(self, kernel: Any) -> tuple:
        return kernel, self.points, self.queries, self.values, self.log_weights


def furthest(first: Any, second: Any) -> float:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) for a, b in pairs)


@by_kernel
def test_first_and_second_derivatives_are_those_of_the_dense_sum(name):
    cloud, rng = Cloud(), np.random.default_rng(6)
    arguments = cloud.arguments(KERNELS[name])
    direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)).astype(leaf.dtype), arguments)

    def derivatives(how: Any) -> Any:
        def reading(arguments: tuple) -> Any:
            return cloud.reading(*arguments, how=how)

        def along(arguments: tuple) -> Any:
            pairs = zip(jax.tree.leaves(jax.grad(reading)(arguments)), jax.tree.leaves(direction), strict=True)
            return sum(jnp.vdot(a, b) for a, b in pairs)

        forward = jax.jvp(reading, (arguments,), (direction,))[1]
        twice = jax.jvp(jax.grad(reading), (arguments,), (direction,))[1]
        return jax.grad(reading)(arguments), forward, twice, jax.grad(along)(arguments)

    native, dense = (jax.jit(derivatives, static_argnums=0)(how) for how in (Native(), Dense()))
    for ours, theirs in zip(native, dense, strict=True):
        assert furthest(ours, theirs) < 3e-12


@pytest.mark.slow
@by_kernel
def test_batches_of_sums_and_of_derivatives(name):
    """vmap of grad, grad of vmap, jacobians, and batches in batches, in which some arrays are shared."""
    cloud, kernel = Cloud(), KERNELS[name]
    clouds = jnp.stack([cloud.points, 1.1 * cloud.points, cloud.points - 0.2])
    weights = jnp.stack([cloud.log_weights, 0.5 * cloud.log_weights])

    def all_of(how: Any) -> Any:
        def reading(kernel: Any, points: Any, log_weights: Any) -> Any:
            return cloud.reading(kernel, points, cloud.queries, cloud.values, log_weights, how)

        def table(kernel: Any, clouds: Any, weights: Any) -> Any:
            by_weight = jax.vmap(reading, in_axes=(None, None, 0))
            return jax.vmap(by_weight, in_axes=(None, 0, None))(kernel, clouds, weights)

        of_each = jax.vmap(jax.grad(reading, argnums=(0, 1)), in_axes=(None, 0, None))(kernel, clouds, weights[0])
        of_all = jax.grad(lambda *arguments: jnp.sum(table(*arguments)), argnums=(0, 1, 2))(kernel, clouds, weights)
        mean = lambda points: how.moments(kernel, Measure(points, weights[0], cloud.values, cloud.positions),  # noqa: E731
                                          Sites(cloud.queries, cloud.times, None)).mean  # fmt: skip
        return (
            table(kernel, clouds, weights),
            of_each,
            of_all,
            jax.jacrev(mean)(cloud.points),
            jax.jacfwd(mean)(cloud.points),
        )

    native, dense = (jax.jit(all_of, static_argnums=0)(how) for how in (Native(), Dense()))
    for ours, theirs in zip(native, dense, strict=True):
        assert furthest(ours, theirs) < 3e-12


@pytest.mark.slow
def test_the_gradient_of_a_narrow_gaussian_far_from_the_origin():
    """Sums of differences lose (|x|/width) digits unless they are taken about an origin among the points."""
    rng = np.random.default_rng(8)
    points = jnp.asarray((30 + 0.1 * rng.normal(size=(60, 3))).astype(np.float32))
    rates = jnp.asarray(rng.normal(size=(60, 3)))

    def reading(points: Any, how: Any) -> Any:
        moments = how.moments(k.Gaussian(0.05), Measure.uniform(points, values=points - points.dtype.type(30)), points)
        return jnp.vdot(moments.mean.astype(float), rates)

    exact = jax.grad(reading)(points.astype(float), Dense())
    found = jax.grad(reading)(points, Native())
    assert np.max(np.abs(np.asarray(found) - np.asarray(exact))) < 3e-6 * np.max(np.abs(exact))


def test_nan_shows_and_a_row_without_mass_is_nothing():
    measure = Measure.uniform(np.random.default_rng(1).normal(size=(40, 3)))
    bad = jnp.asarray(measure.points).at[17, 1].set(jnp.nan)
    for kernel in (k.Attention(1.0), k.Gaussian(1.0), k.Laplace(1.0), k.Ball(1.0), k.Triangle(9.0)):
        for dtype in (jnp.float32, jnp.float64):
            how = jax.jit(lambda points, kernel=kernel: Native().moments(kernel, Measure.uniform(points), points[:9]))
            moments = how(bad.astype(dtype))
            assert np.isnan(np.asarray(moments.log_mass)).all()
    alone = Native().moments(k.Ball(0.1), measure, np.full((5, 3), 40.0))
    assert np.isneginf(np.asarray(alone.log_mass)).all()
    assert np.array_equal(alone.mean, np.zeros((5, 3)))


MASKS = [k.Causal(), k.StrictlyCausal(), k.Window(11.0), k.Causal() * k.Window(3.5) * k.Alibi(0.2)]


@pytest.mark.parametrize("count", by_default([7, 300, 5000], [300]))
@pytest.mark.parametrize("mask", by_default(MASKS, MASKS[3:]), ids=["causal", "strictly", "window", "all"])
def test_positions_in_any_order_are_masked_right(count, mask):
    """Blocks that a band hides are skipped; which ones depends on the order of the sources."""
    rng = np.random.default_rng(count)
    points, positions = rng.normal(size=(count, 2)), rng.permutation(count).astype(float)
    shuffled = Measure.uniform(points, positions=positions)
    order = np.argsort(positions)
    sorted_ = Measure.uniform(points[order], positions=positions[order])
    kernel = k.Attention(1.5) * mask
    expected = jax.jit(Blockwise(64, 64).moments)(kernel, shuffled, shuffled)
    ours, in_order = (Native().moments(kernel, each, each) for each in (shuffled, sorted_))
    assert furthest(ours.mean, expected.mean) < 1e-13
    assert furthest(np.asarray(ours.mean)[order], in_order.mean) < 1e-13
    assert np.array_equal(np.isneginf(ours.log_mass), np.isneginf(expected.log_mass))


UNKNOWN = [k.Sigmoid(1.0), k.Gaussian(1.0) + k.Laplace(1.0), k.Laplace(1.0) * k.Cauchy(1.0)]


@pytest.mark.parametrize("kernel", by_default(UNKNOWN, UNKNOWN[2:]), ids=["sigmoid", "sum", "product"])
def test_kernels_that_it_does_not_know_are_summed_by_xla_and_the_reason_is_told(kernel):
    measure = Measure.uniform(np.random.default_rng(2).normal(size=(12, 3)))
    choice = Native().select(kernel, measure, measure)
    assert str(choice) == "Dense: in place of Native: the kernel has a factor that native code does not know"
    assert isinstance(Auto().select(kernel, measure, measure).summation, Dense)
    native, dense = (jax.jit(how.moments)(kernel, measure, measure) for how in (Native(), Dense()))
    assert furthest(native, dense) == 0


# Fields of 256 and of 3,000 points in both precisions, and their gradients, as a hash of all their bits.
HASHED = """
import os, sys
os.sched_setaffinity(0, set(map(int, sys.argv[1].split(","))))
import hashlib, jax, numpy as np, jax.numpy as jnp, particleflow as pf
from particleflow.summation import Native
digest = hashlib.sha256()
for dtype, count in ((np.float32, 3000), (np.float64, 3000), (np.float64, 256)):
    points = jnp.asarray(np.random.default_rng(3).normal(size=(count, 3)).astype(dtype))
    read = lambda x: pf.local_mean(pf.kernels.Attention(1.0), pf.Measure.uniform(x), x, summation=Native())
    digest.update(np.asarray(read(points)).tobytes())
    digest.update(np.asarray(jax.grad(lambda x: jnp.sum(jnp.sin(read(x))))(points)).tobytes())
print(digest.hexdigest())
"""


def hashed(cores: set[int]) -> str:
    command = [sys.executable, "-c", HASHED, ",".join(map(str, sorted(cores)))]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_bits_do_not_depend_on_the_number_of_threads():
    cores = os.sched_getaffinity(0)
    assert hashed(cores) == hashed({min(cores)})


def test_callers_at_once_do_not_wait_for_each_other_for_ever():
    clouds = [jnp.asarray(on_the_sphere(seed, 1500, 3, np.float64)) for seed in range(6)]
    field = jax.jit(lambda x: pf.local_mean(k.Attention(4.0), Measure.uniform(x), x, summation=Native()))
    alone = [np.asarray(field(cloud)) for cloud in clouds]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(10):
            together = list(pool.map(lambda cloud: np.asarray(field(cloud)), clouds, timeout=120))
            assert all(np.array_equal(ours, theirs) for ours, theirs in zip(together, alone, strict=True))


@pytest.mark.slow
def test_ten_thousand_calls_beside_forks_take_no_memory():
    cloud = jnp.asarray(on_the_sphere(1, 600, 3, np.float64))
    field = jax.jit(lambda x: pf.local_mean(k.Attention(4.0), Measure.uniform(x), x, summation=Native()))
    first = hashlib.sha256(np.asarray(field(cloud)).tobytes()).hexdigest()
    for _ in range(500):
        field(cloud)
    before, result = psutil.Process().memory_info().rss, None
    for call in range(10_000):
        result = field(cloud)
        if call % 1000 == 0 and os.fork() == 0:
            os._exit(0)
    assert hashlib.sha256(np.asarray(result).tobytes()).hexdigest() == first
    assert psutil.Process().memory_info().rss - before < 20 * 2**20


@pytest.mark.parametrize("softening", [0.0, 0.3])
def test_inverse_distances_are_native_and_right_without_softening(softening):
    rng = np.random.default_rng(20)
    points, queries = rng.normal(size=(300, 3)), rng.normal(size=(40, 3))
    kernel, measure = k.InverseDistance(3.0, softening), Measure.uniform(jnp.asarray(points))
    chosen = Auto().select(kernel, measure, jnp.asarray(queries)).summation
    assert isinstance(chosen, Native) or not library().key
    found = chosen.moments(kernel, measure, jnp.asarray(queries))
    weights = (np.sum((queries[:, None] - points[None]) ** 2, axis=-1) + softening**2) ** -1.5
    np.testing.assert_allclose(found.log_mass, np.log(weights.mean(axis=1)), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.mean, weights @ points / weights.sum(axis=1, keepdims=True), atol=1e-12)
