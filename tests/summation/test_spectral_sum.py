"""Spectral sums against brute force in NumPy: what they promise they keep, what they cannot they refuse or show."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import ArgumentError, ShapeError
from particleflow.measure import Measure, Sites
from particleflow.summation import Auto, Dense, Limits, Spectral
from particleflow.summation.base import as_query_sites
from particleflow.summation.prepared import prepare
from particleflow.summation.spectral.mode_choice import bucket
from shares import by_default

COUNT = 300
LIMITS = Limits(1e-6, 16 * 2**20)


def sphere(dimension: int, count: int = COUNT, seed: int = 0) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(count, dimension))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def plane(dimension: int, count: int = COUNT, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dimension))


def squares(xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    return np.sum((xs[:, None] - ys[None]) ** 2, axis=-1)


# Kernels with their logarithms in NumPy, on points of as few dimensions as they are meant for.
PROBLEMS = {
    "circle": (k.Attention(9.0), lambda x, y: 9 * x @ y.T, sphere(2)),
    "sphere": (k.Attention(4.0), lambda x, y: 4 * x @ y.T, sphere(3)),
    "repulsion": (k.Attention(-3.0, query=0.5), lambda x, y: -1.5 * x @ y.T, sphere(3)),
    "inner products off the sphere": (k.Attention(0.7), lambda x, y: 0.7 * x @ y.T, plane(2)),
    "gaussian": (2.5 * k.Gaussian(0.4), lambda x, y: np.log(2.5) - squares(x, y) / (2 * 0.4**2), plane(2)),
    "cauchy": (k.Cauchy(0.8), lambda x, y: -np.log1p(squares(x, y) / 0.8**2), plane(1)),
    "student": (k.StudentT(1.0, 3.0), lambda x, y: -2.5 * np.log1p(squares(x, y) / 3.0), plane(2)),
    "product": (k.Gaussian(1.0) * k.Cauchy(1.0), lambda x, y: -squares(x, y) / 2 - np.log1p(squares(x, y)), plane(1)),
    "constant": (k.Constant(), lambda x, y: np.zeros((len(x), len(y))), plane(2)),
}  # fmt: skip


def expected(log_kernel: Any, queries: Any, measure: Measure, values: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Log-mass and mean in extended precision."""
    exact = [np.asarray(each, np.longdouble) for each in (queries, measure.points, measure.log_weights)]
    logits = log_kernel(exact[0], exact[1]) + exact[2]
    highest = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - highest)
    masses = weights.sum(axis=1)
    summed = np.asarray(measure.carried if values is None else values, np.longdouble)
    return np.log(masses) + highest[:, 0], weights @ summed.reshape(len(summed), -1) / masses[:, None]


def largest_error(moments: Any, log_mass: np.ndarray, mean: np.ndarray, largest_value: float) -> float:
    """That of the log-mass, and that of the mean relative to max |z|; NaN counts as infinitely wrong."""
    found = [np.asarray(each, np.float64) for each in (moments.log_mass, moments.mean)]
    errors = np.abs(found[0] - log_mass).max(), np.abs(found[1] - mean).max() / largest_value
    return float(np.nan_to_num(max(errors), nan=np.inf))


def weighted(points: Any, dtype: Any = jnp.float64, orders: float = 2.0) -> Measure:
    """Points with weights over some orders of magnitude, one of them without any."""
    log_weights = np.log(10) * orders * np.random.default_rng(7).uniform(-1, 0, size=len(points))
    log_weights[1] = -np.inf
    return Measure(jnp.asarray(points, dtype), jnp.asarray(log_weights, dtype))


# --- brute force --------------------------------------------------------------------------------------------------

QUICK = {("circle", 1e-8), ("cauchy", 1e-4)}
TABLE = [
    pytest.param(name, dtype, tolerance, id=f"{name}-{dtype.__name__}-{tolerance:.0e}", marks=marks)
    for name in PROBLEMS
    for dtype, tolerance in ((jnp.float64, 1e-8), (jnp.float64, 1e-4), (jnp.float32, 1e-3))
    for marks in [[] if (name, tolerance) in QUICK else pytest.mark.slow]
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype", "tolerance"), TABLE)
def test_promised_errors_are_kept(name, dtype, tolerance):
    kernel, log_kernel, points = PROBLEMS[name]
    measure, values = weighted(points, dtype), plane(5, seed=2) + 10.0
    queries = jnp.asarray(points[:50] * 0.999 if "circle" not in name else points[:50], dtype)
    choice = Spectral(tolerance).select(kernel, measure, queries)
    assert 0 < choice.error <= tolerance / 2
    assert "Fourier modes" in choice.reason
    given = jnp.asarray(values, dtype)
    moments = choice.summation.moments(kernel, measure, queries, given)
    assert moments.mean.dtype == moments.log_mass.dtype == dtype
    assert largest_error(moments, *expected(log_kernel, queries, measure, given), np.abs(values).max()) < choice.error


@pytest.mark.slow
def test_numbers_as_values_and_no_queries():
    kernel, log_kernel, points = PROBLEMS["gaussian"]
    measure, how = weighted(points), Spectral(1e-6, (64, 64), 1e-11)
    numbers = how.moments(kernel, measure, points[:50], values=points[:, 1])
    assert largest_error(numbers, *expected(log_kernel, points[:50], measure, points[:, 1]), 4.0) < 1e-6
    nothing = how.moments(kernel, measure, jnp.zeros((0, 2)))
    assert nothing.mean.shape == (0, 2)
    with pytest.raises(ShapeError, match="`values`"):
        how.moments(kernel, measure, points, values=points[:-1])


# --- laws ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_order_copies_pieces_and_places_change_nothing():
    kernel, how, tolerance = k.Gaussian(0.5), Spectral(1e-6, (48, 48), 1e-12), 1e-10
    measure, queries = weighted(plane(2)), jnp.asarray(plane(2)[:40])
    order, turn = np.random.default_rng(3).permutation(COUNT), np.random.default_rng(4).permutation(40)

    @jax.jit
    def variants(measure, queries):
        take = jax.tree_util.tree_map
        pieces = (take(lambda leaf: leaf[:100], measure), take(lambda leaf: leaf[100:], measure))
        moved = measure.with_points(measure.points + 100.0).with_values(measure.points)
        return (
            how.moments(kernel, measure, queries),
            how.moments(kernel, take(lambda leaf: leaf[order], measure), queries),
            how.moments(kernel, measure, queries[turn]),
            how.moments(kernel, measure.concatenated(measure), queries),
            how.moments(kernel, pieces[0], queries).merge(how.moments(kernel, pieces[1], queries)),
            how.moments(kernel, moved, queries + 100.0),
        )

    plain, shuffled, turned, twice, merged, moved = variants(measure, queries)
    pair_oracles.assert_close(shuffled, plain.log_mass, plain.mean, tolerance)
    pair_oracles.assert_close(turned, plain.log_mass[turn], plain.mean[turn], tolerance)
    pair_oracles.assert_close(twice, np.asarray(plain.log_mass) + np.log(2.0), plain.mean, tolerance)
    pair_oracles.assert_close(merged, plain.log_mass, plain.mean, 1e-7)  # a piece sees less, and errs by more
    pair_oracles.assert_close(moved, plain.log_mass, plain.mean, tolerance)


@pytest.mark.slow
def test_the_gradient_of_the_log_mass_is_beta_times_the_mean_on_the_circle_and_off_it():
    kernel, measure = k.Attention(3.0), weighted(sphere(2))
    how = Spectral(1e-6, (40, 32, 32), 1e-11, "circle")
    queries = jnp.asarray(sphere(2, 20, seed=5))
    gradient = jax.jit(jax.grad(lambda q: jnp.sum(how.moments(kernel, measure, q).log_mass)))(queries)
    mean = expected(lambda x, y: 3 * x @ y.T, queries, measure)[1]
    np.testing.assert_allclose(gradient, 3 * mean.astype(float), atol=1e-8)


SETTINGS = {
    "circle": Spectral(1e-6, (64, 48, 48), 1e-12, "circle"),
    "sphere": Spectral(1e-6, (32, 32, 32), 1e-12),
    "gaussian": Spectral(1e-4, (64, 64), 1e-12),
    "cauchy": Spectral(1e-6, (256,), 1e-12),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["circle", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sphere", "gaussian", "cauchy"))]
)
def test_derivatives_are_those_of_the_dense_sum(name):
    kernel, _, points = PROBLEMS[name]
    measure = weighted(points[:40]).with_values(jnp.asarray(plane(3, 40, seed=6)))
    operands = (kernel, measure, jnp.asarray(points[:7]))

    def reading(how, operands):
        moments = how.moments(*operands)
        return jnp.sum(jnp.sin(moments.log_mass)) + jnp.sum(jnp.square(moments.mean))

    gradient = eqx.filter_jit(lambda how: jax.grad(lambda each: reading(how, each))(operands))
    ours, theirs = (jax.tree_util.tree_leaves(gradient(how)) for how in (SETTINGS[name], Dense()))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7 * (1 + np.abs(other).max()))
    directions = jax.tree_util.tree_map(lambda leaf: jnp.full_like(leaf, 0.3), operands)
    along = eqx.filter_jit(lambda how: jax.jvp(lambda each: reading(how, each), (operands,), (directions,))[1])
    slope = sum(np.sum(0.3 * np.asarray(leaf)) for leaf in theirs)
    np.testing.assert_allclose(along(SETTINGS[name]), slope, rtol=1e-7)


@pytest.mark.slow
def test_an_ensemble_is_its_members():
    kernel, how = k.Attention(4.0), Spectral(1e-6, (40, 32, 32), 1e-11, "circle")
    clouds = jnp.stack([jnp.asarray(sphere(2, 60, seed)) for seed in (1, 2)])
    together = jax.jit(jax.vmap(lambda points: how.moments(kernel, Measure.uniform(points), points)))(clouds)
    for number, points in enumerate(np.asarray(clouds)):
        log_mass, mean = expected(lambda x, y: 4 * x @ y.T, points, Measure.uniform(points))
        member = jax.tree_util.tree_map(lambda leaf, number=number: leaf[number], together)
        assert largest_error(member, log_mass, mean, 1.0) < 1e-8


@pytest.mark.parametrize("columns", by_default([1, 2, 5, 8], [2]))
def test_the_same_sum_gives_the_same_bits(columns):
    points = np.random.default_rng(8).uniform(size=(100_000, 1))
    measure = Measure.uniform(points, values=np.random.default_rng(9).normal(size=(100_000, columns)))
    how = Spectral(1e-6, (64,), 1e-11)
    field = jax.jit(lambda measure: how.moments(k.Gaussian(0.1), measure, measure))
    first = field(measure)
    for _ in range(5):
        again = field(measure)
        np.testing.assert_array_equal(again.mean, first.mean)
        np.testing.assert_array_equal(again.log_mass, first.log_mass)


# --- clouds chosen to hurt ----------------------------------------------------------------------------------------


def hurtful(name: str, dimension: int, on_sphere: bool) -> Measure:
    rng = np.random.default_rng(10)
    points = sphere(dimension) if on_sphere else plane(dimension)
    log_weights = np.full(COUNT, -np.log(COUNT))
    if name == "tight clusters":
        points = points[rng.integers(0, 4, COUNT)] + 1e-6 * rng.normal(size=points.shape)
    if name == "a far outlier":
        points = 0.1 * points + np.eye(dimension)[0]
        points[-1] = -np.eye(dimension)[0] * (1 if on_sphere else 5)
    if name == "far from the origin":
        points = points + 1000.0
    if name == "weights over ten orders":
        log_weights = np.log(10) * rng.uniform(-10, 0, size=COUNT)
    if name == "duplicates":
        points = points[rng.integers(0, 5, COUNT)]
    if on_sphere:
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    return Measure(jnp.asarray(points), jnp.asarray(log_weights))


NAMES = ("tight clusters", "a far outlier", "far from the origin", "weights over ten orders", "duplicates")
KERNELS = {
    "attention": (k.Attention(6.0), lambda x, y: 6 * x @ y.T),
    "repulsion": (k.Attention(-2.0), lambda x, y: -2 * x @ y.T),
    "gaussian": PROBLEMS["gaussian"][:2],
    "cauchy": PROBLEMS["cauchy"][:2],
}
PLACES = [("attention", 2, True), ("attention", 3, True), ("attention", 2, False), ("repulsion", 3, True)]
PLACES += [("gaussian", 1, False), ("gaussian", 2, False), ("cauchy", 1, False), ("cauchy", 2, False)]


@pytest.mark.parametrize("place", by_default(PLACES, [("gaussian", 2, False)]), ids=str)
@pytest.mark.parametrize("name", by_default(NAMES, ["a far outlier"]))
def test_a_tolerance_is_kept_or_refused_on_clouds_that_hurt(name, place):
    (kernel, log_kernel), tolerance = KERNELS[place[0]], 1e-7
    measure = hurtful(name, *place[1:])
    choice = Spectral(tolerance).select(kernel, measure, measure)
    if choice.error == 0:  # refused: then nothing is summed
        assert "as asked, but" in choice.reason
        with pytest.raises(ArgumentError, match="cannot keep the tolerance"):
            Spectral(tolerance).moments(kernel, measure, measure)
        return
    moments = choice.summation.moments(kernel, measure, measure)
    largest = np.abs(np.asarray(measure.points)).max()
    assert largest_error(moments, *expected(log_kernel, measure.points, measure), largest) <= choice.error <= tolerance


@pytest.mark.slow
def test_what_can_be_kept_is_not_refused():
    kept = [("tight clusters", "attention"), ("a far outlier", "gaussian"), ("duplicates", "cauchy")]
    for name, kernel in kept:
        measure = hurtful(name, 2, kernel == "attention")
        assert 0 < Spectral(1e-6).select(KERNELS[kernel][0], measure, measure).error < 1e-6
    light = hurtful("weights over ten orders", 2, on_sphere=False)
    assert "of the weight" in Spectral(1e-6).select(k.Gaussian(0.05), light, light).reason


# --- what breaks, shows -------------------------------------------------------------------------------------------


def test_a_cloud_that_outgrows_its_modes_shows():
    how, points = Spectral(1e-6, (32, 32), 1e-11), jnp.asarray(plane(2))
    field = jax.jit(lambda points: how.moments(k.Gaussian(1.0), Measure.uniform(points), points))
    assert np.isfinite(field(0.3 * points).mean).all()
    grown = field(10.0 * points)
    assert np.isnan(grown.mean).all()
    assert np.isnan(grown.log_mass).all()


def test_a_query_that_sees_too_little_shows_and_the_others_do_not_suffer():
    kernel, log_kernel, points = PROBLEMS["gaussian"]
    queries, measure = np.concatenate([points[:49], [[0.0, 6.2]]]), Measure.uniform(points)
    moments = Spectral(1e-6, (96, 96), 1e-11).moments(kernel, measure, queries)
    log_mass, mean = expected(log_kernel, queries, measure)
    assert log_mass[-1] < np.log(1e-6)
    assert np.isnan(moments.mean[-1]).all()
    assert np.isnan(moments.log_mass[-1])
    seen = jax.tree_util.tree_map(lambda leaf: leaf[:-1], moments)
    assert largest_error(seen, log_mass[:-1], mean[:-1], 4.0) < 1e-6


def test_points_that_leave_the_circle_show():
    how = Spectral(1e-6, (40, 32, 32), 1e-11, "circle")
    points = sphere(2)
    on, off = (how.moments(k.Attention(3.0), Measure.uniform(each), each[:20]) for each in (points, points * 1.0))
    np.testing.assert_array_equal(on.mean, off.mean)
    left = np.where(np.arange(COUNT)[:, None] == 7, 1.001 * points, points)
    assert np.isnan(how.moments(k.Attention(3.0), Measure.uniform(left), points[:20]).mean).all()


@pytest.mark.parametrize("name", ["gaussian", "cauchy", "circle"])
def test_points_that_are_not_finite_show(name):
    """FINUFFT ends the process for an angle of NaN; where a run has failed, there are such points."""
    settings = {"gaussian": ((48, 48), "box"), "cauchy": ((160,), "box"), "circle": ((40, 32, 32), "circle")}
    kernel, _, points = PROBLEMS[name]
    modes, domain = settings[name]
    how = Spectral(1e-2, modes, 1e-8, domain)  # pyright: ignore[reportArgumentType]
    field = jax.jit(lambda points, queries: how.moments(kernel, Measure.uniform(points), queries).mean)
    for value in (np.nan, np.inf):
        spoiled = jnp.where(np.arange(COUNT)[:, None] == 7, value, points)
        assert np.isnan(field(spoiled, points)).all()
        assert np.isnan(field(jnp.asarray(points), spoiled)[7]).all()
    assert np.isfinite(field(jnp.asarray(points), jnp.asarray(points))).all()


def test_modes_that_do_not_suffice_are_named():
    """A run takes 512 modes where none are given, and says so where it fails for a kernel that needs more."""
    measure = Measure.uniform(plane(1, 40))
    for width, lost in ((1e-3, True), (1.0, False)):
        (interaction,) = pf.Attend(k.Gaussian(width), summation=Spectral(1e-6)).interactions(0.0)
        found = jax.jit(lambda points, each=interaction: each.moments(Sites(points), Measure.uniform(points)).mean)
        assert np.isnan(found(measure.points)).all() == lost
        said = interaction.diagnose(measure)
        assert (said is not None) == lost
        assert said is None or all(each in said for each in ("512 modes", "1e-06 for 40 of 40", "`modes`", "Auto"))


REFUSED = {
    "too many dimensions": (k.Attention(1.0), plane(4), ["Attention", "4 dimensions", "at most 3"]),
    "no form": (k.Sigmoid(1.0), plane(2), ["Sigmoid", "neither bilinear nor a function of a distance"]),
    "positions": (k.Attention(1.0) * k.Causal(), plane(2), ["Product", "neither bilinear"]),
    "a kink": (k.Laplace(0.5), plane(1), ["tolerance 1e-06", "not smooth enough"]),
    "a jump": (k.Ball(0.5), plane(1), ["tolerance 1e-06", "not smooth enough"]),
    "too narrow": (k.Gaussian(1e-5), plane(2), ["tolerance 1e-06", "too narrow"]),
}


@pytest.mark.parametrize(("kernel", "points", "pieces"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_summed_is_refused_with_its_reason(kernel, points, pieces):
    measure = Measure.uniform(points, positions=np.arange(float(len(points))))
    pair_oracles.assert_refused(lambda: Spectral(1e-6).moments(kernel, measure, measure), ArgumentError, pieces)
    assert Spectral().promise(prepare(kernel, measure, measure.sites), LIMITS) is None


WRONG = {
    "tolerance": (lambda: Spectral(tolerance=-1.0), ["`tolerance`", "-1.0"]),
    "accuracy": (lambda: Spectral(accuracy=2.0), ["`accuracy`", "2.0"]),
    "odd modes": (lambda: Spectral(modes=(31,)), ["`modes`", "(31,)"]),
    "domain": (lambda: Spectral(domain="torus"), ["`domain`", "'torus'"]),  # pyright: ignore[reportArgumentType]
    "number of modes": (
        lambda: Spectral(modes=(32,)).moments(k.Gaussian(1.0), Measure.uniform(plane(2)), plane(2)),
        ["`modes`", "2 numbers", "(32,)"],
    ),
}


@pytest.mark.parametrize(("act", "pieces"), WRONG.values(), ids=WRONG)
def test_wrong_settings_are_refused(act, pieces):
    pair_oracles.assert_refused(act, ArgumentError, pieces)


# --- the choice ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_promises_need_a_tolerance_known_points_and_many_of_them():
    kernel, measure = k.Attention(9.0), Measure.uniform(sphere(2, 20_000))
    sites = as_query_sites(measure)
    assert Spectral().promise(prepare(kernel, measure, sites), Limits(None, 2**24)) is None
    jax.eval_shape(lambda cloud: _nothing_for(kernel, cloud), measure)
    assert Spectral().promise(prepare(kernel, Measure.uniform(sphere(2)), as_query_sites(sphere(2))), LIMITS) is None
    choice = Auto(tolerance=1e-6).select(kernel, measure, measure)
    assert isinstance(choice.summation, Spectral)
    assert "Fourier modes on the circle; with an error of at most" in choice.reason
    assert choice.cost < 0.2 * 20_000**2
    few = sites._replace(points=sites.points[:64], values=None)
    moments = choice.summation.moments(kernel, measure, few)
    found = expected(lambda x, y: 9 * x @ y.T, few.points, measure)
    assert largest_error(moments, *found, 1.0) < choice.error


def _nothing_for(kernel: k.AbstractKernel, cloud: Measure) -> Any:
    assert Spectral().promise(prepare(kernel, cloud, as_query_sites(cloud)), LIMITS) is None
    return cloud


def test_numbers_of_modes_are_few_and_easy_to_transform():
    buckets = {bucket(needed) for needed in np.linspace(1, 1000, 5000)}
    assert buckets == {8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024}
    assert all(bucket(needed) >= needed for needed in np.linspace(1, 1000, 5000))


@pytest.mark.slow
def test_any_tolerance_may_be_asked_for():
    """Errors of one and more are not bounded, so one half is kept instead."""
    measure = Measure.uniform(sphere(2, 4000))
    promised = Spectral().promise(prepare(k.Attention(9.0), measure, measure.sites), Limits(1.5, 2**24))
    assert promised is not None
    assert 0 < promised.error <= promised.summation.tolerance == 0.5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
def test_a_plan_knows_what_transforms_cost():
    """What is asked for, by plans as by `Auto`, at the cost of its modes and not of all pairs."""
    measure = Measure.uniform(sphere(2, 20_000))
    (asked,) = Spectral(1e-6).choices(k.Attention(9.0), measure, measure)
    assert asked.summation == Spectral(1e-6)
    assert asked.cost < 0.2 * 20_000**2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["circle", "sphere", "gaussian"])
def test_a_hundred_thousand_points_take_no_matrix_and_keep_the_tolerance(name):
    kernel, log_kernel, _ = PROBLEMS[name]
    points = {"circle": sphere(2, 100_000), "sphere": sphere(3, 100_000), "gaussian": plane(2, 100_000)}[name]
    measure = Measure.uniform(points)
    choice = Auto(tolerance=1e-6).select(kernel, measure, measure)  # by modes, or where these are many by landmarks
    assert choice.cost < 0.1 * 100_000**2
    field = jax.jit(lambda cloud: choice.summation.moments(kernel, cloud, cloud)).lower(measure).compile()
    memory: Any = field.memory_analysis()
    assert memory.temp_size_in_bytes < 200 * 2**20
    few = jax.tree_util.tree_map(lambda leaf: leaf[:200], field(measure))
    found = expected(log_kernel, points[:200], measure)
    assert largest_error(few, *found, np.abs(points).max()) < choice.error
