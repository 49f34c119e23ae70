"""`NearFar` against brute force: its tolerance on clouds chosen to hurt, by native code and by XLA, and derivatives."""

import hashlib
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from particleflow import kernels as k
from particleflow.errors import ArgumentError
from particleflow.measure import Measure, Sites
from particleflow.summation import Auto, Dense, Native, NearFar
from particleflow.summation.base import NATIVE_TIME, Limits, cost_of_pairs
from particleflow.summation.kernel_parts import KernelParts
from particleflow.summation.native.build import SWITCH, library
from particleflow.summation.prepared import prepare
from shares import by_default

COUNT = 500  # boxes of at most 4 make more than 125 of them; XLA's hold 64
TOLERANCE = 1e-4
needs_native = pytest.mark.skipif(library().path is None, reason=f"no native sum here: {library().reason}")


def sphere(rng: np.random.Generator, count: int) -> np.ndarray:
    points = rng.normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def clouds() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Points and log-weights: those that a cell list, a box or a common scale gets wrong."""
    rng = np.random.default_rng(0)
    even, plain = sphere(rng, COUNT), np.zeros(COUNT)
    centres = rng.normal(size=(9, 3))
    clusters = centres[rng.integers(9, size=COUNT)] + 1e-5 * rng.normal(size=(COUNT, 3))
    outlier = np.concatenate([even[:-1], [[60.0, -80.0, 40.0]]])
    return {
        "even": (even, plain),
        "tight clusters": (clusters, plain),
        "one far outlier": (outlier, plain),
        "far from the origin": (even + 1e4, plain),
        "weights over ten orders": (even, rng.uniform(-23, 0, size=COUNT)),
        "duplicates": (np.repeat(even[: COUNT // 5], 5, axis=0), plain),
        "some without weight": (even, np.where(rng.uniform(size=COUNT) < 0.5, -np.inf, 0.0)),
        "all at one place": (np.ones((COUNT, 3)), plain),
    }


CLOUDS = clouds()
KERNELS = {
    "attention": (k.Attention(200.0), lambda x, y: 200 * x @ y.T),
    "repelling attention": (k.Attention(-200.0), lambda x, y: -200 * x @ y.T),
    "gaussian": (k.Gaussian(0.07), lambda x, y: -squares(x, y) / (2 * 0.07**2)),
    "laplace": (k.Laplace(0.03), lambda x, y: -np.sqrt(squares(x, y)) / 0.03),
    "cauchy": (k.Cauchy(0.01), lambda x, y: -np.log1p(squares(x, y) / 0.01**2)),
    "ball": (k.Ball(0.31), lambda x, y: np.where(squares(x, y) < 0.31**2, 0.0, -np.inf)),
    "epanechnikov": (k.Epanechnikov(0.3), lambda x, y: positive_log(1 - squares(x, y) / 0.3**2)),
    "triangle": (k.Triangle(0.3), lambda x, y: positive_log(1 - np.sqrt(squares(x, y)) / 0.3)),
    "inner and distance": (
        k.Attention(40.0) * k.Laplace(0.1),
        lambda x, y: 40 * x @ y.T - np.sqrt(squares(x, y)) / 0.1,
    ),
}
COMPACT = ("ball", "epanechnikov", "triangle")


def squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.square(x[:, None] - y[None]).sum(-1)


def positive_log(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(numbers, 0))


def brute_force(logits: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log Σ_j e^{logit_ij} and the mean of the values, (−∞, 0) for a row without mass."""
    highest = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - np.where(np.isneginf(highest), 0, highest))
    mass = weights.sum(axis=1)
    return highest[:, 0] + positive_log(mass), weights @ values / np.where(mass > 0, mass, 1)[:, None]


def errors(found: Any, log_mass: Any, mean: Any, values: np.ndarray) -> tuple[float, float]:
    """Of the log-mass, absolute, and of the mean, relative to max |z|; the same queries see nothing."""
    log_mass, mean = np.asarray(log_mass), np.asarray(mean)
    seen = np.isfinite(log_mass)
    np.testing.assert_array_equal(np.isfinite(found.log_mass), seen)
    np.testing.assert_array_equal(np.asarray(found.mean)[~seen], 0.0)
    of_mass = np.abs(np.asarray(found.log_mass, np.float64)[seen] - log_mass[seen]).max(initial=0)
    off = np.linalg.norm(np.asarray(found.mean, np.float64) - mean, axis=1).max()
    return float(of_mass), float(off / np.linalg.norm(values, axis=1).max())


def check(name: str, cloud: str, dtype: Any, queries: np.ndarray | None = None) -> None:
    kernel, logarithm = KERNELS[name]
    points, log_weights = (np.asarray(each, dtype) for each in CLOUDS[cloud])
    values = np.random.default_rng(1).normal(size=(COUNT, 2)).astype(dtype)
    asked = points if queries is None else queries.astype(dtype)
    found = NearFar(TOLERANCE, block=4).moments(kernel, Measure(points, log_weights, values), jnp.asarray(asked))
    assert found.mean.dtype == found.log_mass.dtype == dtype
    x, y = (each.astype(np.float64) for each in (asked, points))
    logits = logarithm(x, y)
    expected = brute_force(logits + log_weights.astype(np.float64)[None], values.astype(np.float64))
    size = np.max(np.abs(logits[np.isfinite(logits)]), initial=1.0)
    rounding = 40 * float(np.finfo(dtype).eps) * (1 + size)  # of scores
    allowed = 0 if name in COMPACT else TOLERANCE
    if name in COMPACT[1:]:
        rounding *= 100  # log(1 − r) near the edge
    of_mass, of_mean = errors(found, *expected, values)
    assert of_mass <= allowed + rounding, (of_mass, rounding)
    assert of_mean <= allowed + rounding, (of_mean, rounding)


@needs_native
@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("name", by_default(KERNELS, ["attention", "laplace", "epanechnikov"]))
def test_the_tolerance_is_kept_on_clouds_chosen_to_hurt(name, cloud):
    check(name, cloud, np.float64)


# Far from the origin single precision has lost the points themselves.
SINGLE = [(name, cloud) for name in KERNELS for cloud in CLOUDS if cloud != "far from the origin"]


@needs_native
@pytest.mark.parametrize(
    "case", by_default(SINGLE, [("attention", "even"), ("ball", "weights over ten orders")]), ids=str
)
def test_the_tolerance_is_kept_in_single_precision(case):
    name, cloud = case
    check(name, cloud, np.float32)


@needs_native
@pytest.mark.parametrize("name", KERNELS)
def test_queries_apart_from_sources_some_of_which_see_nothing(name):
    rng = np.random.default_rng(2)
    queries = np.concatenate([0.3 * rng.normal(size=(50, 3)), sphere(rng, 41), [[9.0, 9.0, 9.0]]])
    for cloud in ("even", "weights over ten orders", "tight clusters"):
        check(name, cloud, np.float64, queries)


QUICK = {("attention", "even")}


@pytest.mark.parametrize(
    ("name", "cloud"),
    [
        pytest.param(name, cloud, marks=[] if (name, cloud) in QUICK else [pytest.mark.slow])
        for name in KERNELS
        for cloud in CLOUDS
    ],
)
def test_the_same_by_xla_where_there_is_no_library(monkeypatch, name, cloud):
    monkeypatch.setenv(SWITCH, "0")
    check(name, cloud, np.float64)
    if cloud != "far from the origin" and (name, cloud) not in QUICK:
        check(name, cloud, np.float32)
    kernel, measure = KERNELS[name][0], Measure.uniform(np.eye(3))
    assert "by XLA" in NearFar().select(kernel, measure, measure).reason


@needs_native
@pytest.mark.parametrize("case", pair_oracles.CASES, ids=pair_oracles.NAMES)
def test_every_kernel_is_brute_force_or_refused(case):
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 11, 17)
    kernel, near = case.build(jnp.float64), NearFar(1e-14, block=4)
    if KernelParts.of(kernel, measure.dimension) is None:
        for act in (near.moments, near.select):
            pair_oracles.assert_refused(
                lambda act=act: act(kernel, measure, queries), ArgumentError, ["NearFar", "use `Auto`"]
            )
        return
    logits = pair_oracles.log_matrix(case, queries, measure.sites) + np.asarray(measure.log_weights)
    found = near.moments(kernel, measure, queries)
    pair_oracles.assert_close(found, *pair_oracles.moments(logits, np.asarray(measure.values)), 1e-12)


@needs_native
@pytest.mark.parametrize("size", [(1, 1), (0, 5), (3, 129), (33, 8), (97, 65)], ids=str)
def test_every_size(size):
    rng = np.random.default_rng(3)
    queries, points = rng.normal(size=(size[0], 2)), rng.normal(size=(size[1], 2))
    found = NearFar(1e-13, block=8).moments(k.Gaussian(0.2), Measure.uniform(points), jnp.asarray(queries))
    logits = -squares(queries, points) / (2 * 0.2**2) - np.log(size[1])
    log_mass, mean = pair_oracles.moments(logits, points)
    np.testing.assert_allclose(found.log_mass, log_mass.reshape(-1), rtol=1e-11)
    np.testing.assert_allclose(found.mean, mean.reshape(-1, 2), rtol=1e-11)


@needs_native
def test_far_pairs_are_left_out_and_never_more_than_allowed():
    """The error shows that something is left out; it grows with the tolerance, and stays below it."""
    points = sphere(np.random.default_rng(4), 2000)
    measure, kernel = Measure.uniform(points), k.Attention(400.0)
    exact = brute_force(400 * points @ points.T - np.log(2000), points)
    found = [errors(NearFar(tolerance).moments(kernel, measure, points), *exact, points)
             for tolerance in (1e-2, 1e-5, 1e-9)]  # fmt: skip
    for (of_mass, of_mean), tolerance in zip(found, (1e-2, 1e-5, 1e-9), strict=True):
        assert 1e-5 * tolerance < of_mass <= tolerance / 2
        assert of_mean <= tolerance
    assert found[0][0] > 100 * found[1][0] > 1e4 * found[2][0]


BANDED = {"causal": k.Gaussian(0.1) * k.Causal(), "linear bias": k.Attention(60.0) * k.Window(50.0) * k.Alibi(0.3)}


@needs_native
@pytest.mark.parametrize("name", by_default(BANDED, ["linear bias"]))
def test_bands_of_positions_are_masks(name):
    rng = np.random.default_rng(5)
    points, positions = sphere(rng, 400), rng.permutation(400).astype(float)
    measure = Measure(points, rng.normal(size=400), positions=positions)
    exact = jax.jit(Dense().moments)(BANDED[name], measure, measure)
    found = NearFar(1e-6, block=4).moments(BANDED[name], measure, measure)
    assert max(errors(found, np.asarray(exact.log_mass), np.asarray(exact.mean), points)) <= 1e-6


# --- derivatives, batches, bits -------------------------------------------------------------------------------------


def reading(kernel: Any, points: Any, queries: Any, log_weights: Any, values: Any, how: Any) -> Any:
    moments = how.moments(kernel, Measure(points, log_weights, values), queries)
    return jnp.vdot(jnp.sin(moments.mean), jnp.cos(moments.mean) + 1) + jnp.sum(jnp.sin(moments.log_mass))


def arguments(count: int = 300) -> tuple:
    rng = np.random.default_rng(6)
    points, queries = sphere(rng, count), sphere(rng, count - 23)
    return tuple(map(jnp.asarray, (points, queries, rng.normal(size=count), rng.normal(size=(count, 2)))))


DIFFERENTIATED = [
    pytest.param(k.Attention(100.0), "", id="attention-native", marks=[needs_native, pytest.mark.slow]),
    pytest.param(k.Gaussian(0.1), "", id="gaussian-native", marks=[needs_native, pytest.mark.slow]),
    pytest.param(k.Laplace(0.05), "", id="laplace-native", marks=[needs_native, pytest.mark.slow]),
    pytest.param(k.Epanechnikov(0.6), "0", id="epanechnikov-xla", marks=pytest.mark.slow),
    pytest.param(k.Attention(100.0), "0", id="attention-xla", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kernel", "switch"), DIFFERENTIATED)
def test_derivatives_are_those_of_the_dense_sum(monkeypatch, kernel, switch):
    monkeypatch.setenv(SWITCH, switch)
    given, rng = (kernel, *arguments()), np.random.default_rng(7)
    direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)).astype(leaf.dtype), given)

    def derivatives(how: Any, given: tuple) -> Any:
        def read(given: tuple) -> Any:
            return reading(*given, how=how)

        return jax.grad(read)(given), jax.jvp(read, (given,), (direction,))[1]

    ours, theirs = (jax.jit(derivatives, static_argnums=0)(how, given) for how in (NearFar(1e-9, block=4), Dense()))
    for mine, exact in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.max(np.abs(np.asarray(mine) - np.asarray(exact))) <= 1e-6 * (1 + np.max(np.abs(np.asarray(exact))))


@pytest.mark.slow
@needs_native
def test_batches_are_one_by_one():
    points, queries, log_weights, values = arguments()
    near, kernel = NearFar(1e-6, block=4), k.Attention(100.0)
    some = jnp.stack([points, -points[::-1], 0.9 * points])

    def read(points: Any) -> Any:
        return reading(kernel, points, queries, log_weights, values, near)

    slopes = jax.jit(jax.vmap(jax.value_and_grad(read)))(some)
    for index in range(3):
        number, slope = jax.jit(jax.value_and_grad(read))(some[index])
        np.testing.assert_array_equal(slopes[0][index], number)
        np.testing.assert_array_equal(slopes[1][index], slope)


def test_nan_shows():
    points = jnp.asarray(sphere(np.random.default_rng(8), 200)).at[17, 1].set(jnp.nan)
    for kernel in (k.Attention(100.0), k.Ball(0.3)):
        found = jax.jit(lambda x, kernel=kernel: NearFar(1e-6).moments(kernel, Measure.uniform(x), x))(points)
        assert np.isnan(found.mean[17]).all()


@needs_native
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_bits_do_not_depend_on_the_number_of_threads():
    """Two processes, one with all cores, one with one core."""
    code = (
        "import os, sys, hashlib; os.sched_setaffinity(0, set(map(int, sys.argv[1].split(','))));"
        "import numpy as np, jax, jax.numpy as jnp, particleflow as pf;"
        "x = jnp.asarray(np.random.default_rng(3).normal(size=(20000, 2)));"
        "read = lambda x: pf.local_mean(pf.kernels.Gaussian(0.02), pf.Measure.uniform(x), x,"
        " summation=pf.summation.NearFar(1e-6));"
        "found = read(x), jax.grad(lambda x: jnp.sum(jnp.sin(read(x))))(x);"
        "print(hashlib.sha256(b''.join(np.asarray(each).tobytes() for each in found)).hexdigest())"
    )
    cores = os.sched_getaffinity(0)
    some = [",".join(map(str, sorted(each))) for each in (cores, {min(cores)})]
    said = [
        subprocess.run([sys.executable, "-c", code, each], capture_output=True, text=True, check=True).stdout
        for each in some
    ]
    assert said[0] == said[1]
    assert len(said[0].strip()) == hashlib.sha256().digest_size * 2


# --- what it promises ---------------------------------------------------------------------------------------------


def promised(kernel: Any, points: np.ndarray, tolerance: float | None = 1e-6) -> Any:
    measure = Measure.uniform(points)
    return NearFar().promise(prepare(kernel, measure, measure.sites), Limits(tolerance, 2**24))


@needs_native
def test_it_promises_for_points_that_are_known_and_a_tolerance():
    points = sphere(np.random.default_rng(9), 8000)
    choice, native = (
        promised(k.Attention(400.0), points),
        cost_of_pairs(Measure.uniform(points), Sites(jnp.asarray(points)), NATIVE_TIME),
    )
    assert choice.error == choice.summation.tolerance == 1e-6
    assert "% of 8000 × 8000 pairs are near" in choice.reason
    assert 0.03 * native < choice.cost < 0.25 * native
    assert promised(k.Attention(1.0), points).cost > native  # everything is near
    assert promised(k.Ball(0.1), points).error == 0
    assert promised(k.Attention(400.0), points, None) is None
    assert promised(k.Sigmoid(400.0), points) is None
    assert jax.jit(lambda x: jnp.asarray(promised(k.Attention(400.0), x) is None))(points)
    measure = Measure.uniform(points, positions=np.arange(8000.0))
    assert NearFar().promise(prepare(k.Gaussian(0.1) * k.Causal(), measure, measure.sites), Limits(1e-6, 2**24)) is None


def test_a_plan_reads_whether_it_is_native_code(monkeypatch):
    """`choices`, which plans read, is what `select` says."""
    measure = Measure.uniform(sphere(np.random.default_rng(9), 50))
    monkeypatch.setenv(SWITCH, "0")
    (only,) = NearFar().choices(k.Gaussian(0.1), measure, measure)
    assert only.reason.startswith("as asked, by XLA: no native sum")
    assert only.cost == cost_of_pairs(measure, measure.sites) > 0
    refused = lambda: list(NearFar().choices(k.Sigmoid(1.0), measure, measure))  # noqa: E731
    pair_oracles.assert_refused(refused, ArgumentError, ["NearFar", "Sigmoid"])


@needs_native
def test_auto_takes_it_for_narrow_kernels():
    measure = Measure.uniform(sphere(np.random.default_rng(10), 8000))
    chosen = Auto(tolerance=1e-6).select(k.Attention(400.0), measure, measure)
    assert chosen.summation == NearFar(1e-6)
    assert "error of at most 1e-06" in chosen.reason
    assert isinstance(Auto().select(k.Attention(400.0), measure, measure).summation, Native)


@needs_native
@pytest.mark.slow
def test_auto_does_not_take_it_for_wide_kernels():
    measure = Measure.uniform(sphere(np.random.default_rng(10), 8000))
    assert not isinstance(Auto(tolerance=1e-6).select(k.Attention(1.0), measure, measure).summation, NearFar)


@pytest.mark.parametrize("given", [{"tolerance": 0.0}, {"tolerance": 2.0}, {"tolerance": "small"}, {"tolerance": True},
                                   {"block": 3}, {"block": True}, {"block": 8.0}], ids=str)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(given):
    name = next(iter(given))
    pair_oracles.assert_refused(lambda: NearFar(**given), ArgumentError, [f"`{name}`", repr(given[name])])


@needs_native
@pytest.mark.slow
@pytest.mark.parametrize("name", ["sphere", "plane", "ball"])
def test_a_hundred_thousand_points(name):
    rng = np.random.default_rng(11)
    cases = {
        "sphere": (k.Attention(400.0), sphere(rng, 100_000)),
        "plane": (k.Gaussian(0.01), rng.uniform(size=(100_000, 2))),
        "ball": (k.Ball(0.03), rng.uniform(size=(100_000, 2))),
    }
    kernel, points = cases[name]
    measure, some = Measure.uniform(points), rng.integers(100_000, size=200)
    exact = Native().moments(kernel, measure, points[some])
    found = jax.tree.map(lambda leaf: leaf[some], NearFar(1e-6).moments(kernel, measure, points))
    worst = max(errors(found, np.asarray(exact.log_mass), np.asarray(exact.mean), points))
    assert worst <= (1e-13 if name == "ball" else 1e-6)
