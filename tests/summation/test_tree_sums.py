"""Sums by a tree of cells, against brute force in NumPy on clouds chosen to hurt, and their derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pair_oracles import assert_refused
from particleflow import kernels as k
from particleflow.errors import ArgumentError
from particleflow.measure import Measure
from particleflow.summation import Auto, Dense, Native, Tree
from particleflow.summation.base import Limits
from particleflow.summation.native.build import library
from particleflow.summation.native.far_sums import _far, pairwise
from particleflow.summation.prepared import prepare
from shares import by_default

COUNT, LOOKED_AT = 6000, 150
CLOUDS = (
    "even",
    "tight clusters in clusters",
    "far outliers",
    "far from the origin",
    "copies of few points",
    "one point",
    "weights over ten orders",
    "on a line",
)
# Kernels with (power p, square of the softening, logarithm of the factor) in NumPy, dimension, and tolerance.
PROBLEMS: dict[str, tuple[Any, tuple[float, float, float], int, float]] = {
    "line": (k.Cauchy(0.02), (1.0, 0.02**2, 2 * np.log(0.02)), 1, 1e-8),
    "plane": (k.InverseDistance(1.0, 1e-3), (0.5, 1e-6, 0.0), 2, 1e-6),
    "space": (k.InverseDistance(1.0, 1e-3), (0.5, 1e-6, 0.0), 3, 1e-3),
    "steep in space": (k.InverseDistance(3.0, 0.05), (1.5, 0.05**2, 0.0), 3, 1e-2),
    "student": (k.StudentT(0.1, 1.5), (1.75, 1.5 * 0.01, 1.75 * np.log(1.5 * 0.01)), 2, 1e-4),
}


def hurtful(cloud: str, dimension: int) -> Measure:
    rng = np.random.default_rng(7)
    points, log_weights = rng.uniform(-1, 1, size=(COUNT, dimension)), np.zeros(COUNT)
    if cloud == "tight clusters in clusters":
        for scale in (1e-2, 1e-4, 1e-6):
            points = points[rng.integers(0, 40, COUNT)] + scale * rng.normal(size=points.shape)
    if cloud == "far outliers":
        points[::500] *= 10.0 ** rng.uniform(2, 9, size=(len(points[::500]), 1))
    if cloud == "far from the origin":
        points += 1e4
    if cloud == "copies of few points":
        points = points[rng.integers(0, 37, COUNT)]
    if cloud == "one point":
        points = np.repeat(points[:1], COUNT, axis=0)
    if cloud == "weights over ten orders":
        log_weights = np.log(10) * rng.uniform(-10, 0, COUNT)
    if cloud == "on a line":
        points = np.linspace(-1, 1, COUNT)[:, None] * np.linspace(1, 0.3, dimension)
    return Measure(jnp.asarray(points), jnp.asarray(log_weights), values=jnp.asarray(rng.normal(size=(COUNT, 2)) + 3))


def brute_force(
    law: tuple[float, float, float], queries: np.ndarray, measure: Measure
) -> tuple[np.ndarray, np.ndarray]:
    points, log_weights, values = (np.asarray(each) for each in (measure.points, measure.log_weights, measure.values))
    squares = sum((queries[:, None, a] - points[None, :, a]) ** 2 for a in range(points.shape[1])) + law[1]
    logits = law[2] - law[0] * np.log(squares) + log_weights
    highest = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - highest)
    return np.log(weights.sum(axis=1)) + highest[:, 0], weights @ values / weights.sum(axis=1, keepdims=True)


CASES = [(problem, cloud) for problem in PROBLEMS for cloud in CLOUDS]


@pytest.mark.parametrize(
    "case", by_default(CASES, [("plane", CLOUDS[1]), ("plane", CLOUDS[6]), ("space", CLOUDS[2])]), ids=", ".join
)
def test_the_tolerance_is_kept(case):
    problem, cloud = case
    kernel, law, dimension, tolerance = PROBLEMS[problem]
    measure = hurtful(cloud, dimension)
    some = np.random.default_rng(8).choice(COUNT, LOOKED_AT, replace=False)
    away = measure.points[:50] + 0.3  # queries that are no sources
    found = Tree(tolerance).moments(kernel, measure, jnp.concatenate([measure.points, away]))
    places = np.concatenate([some, COUNT + np.arange(50)])
    queries = np.concatenate([np.asarray(measure.points)[some], np.asarray(away)])
    log_mass, mean = brute_force(law, queries, measure)
    assert np.abs(np.asarray(found.log_mass)[places] - log_mass).max() <= tolerance
    off = np.linalg.norm(np.asarray(found.mean)[places] - mean, axis=1).max()
    assert off <= tolerance * np.linalg.norm(np.asarray(measure.values), axis=1).max()


@pytest.mark.slow
def test_derivatives_forward_and_backward_are_those_of_the_sum():
    measure, queries = (
        hurtful("weights over ten orders", 2),
        jnp.asarray(np.random.default_rng(9).normal(size=(700, 2))),
    )
    given = (jnp.asarray(1.4), jnp.asarray(0.1), measure.points[:900], measure.log_weights[:900], queries)

    def total(how: Any, power: Any, softening: Any, points: Any, log_weights: Any, queries: Any) -> Any:
        cloud = Measure(points, log_weights, values=jnp.sin(points))
        found = how.moments(k.InverseDistance(power, softening), cloud, queries)
        return jnp.sum(found.log_mass) + jnp.sum(jnp.array([1.0, -2.0])[None] * found.mean)

    slopes = [
        jax.jit(jax.grad(lambda *x, how=how: total(how, *x), argnums=range(5)))(*given) for how in (Tree(), Dense())
    ]
    for one, other in zip(*slopes, strict=True):
        assert float(jnp.max(jnp.abs(one - other))) <= 1e-6 * float(jnp.max(jnp.abs(other)))
    steps = tuple(jnp.cos(each) for each in given)
    one, other = (jax.jvp(lambda *x, how=how: total(how, *x), given, steps)[1] for how in (Tree(), Dense()))
    assert abs(float(one - other)) <= 1e-7 * abs(float(other))


KINDS = [("sums", False), ("sums", True), ("gradients", False), ("dipoles", False)]


@pytest.mark.parametrize("kind", by_default(KINDS, KINDS[3:]), ids=str)
def test_native_kinds_are_the_pairs_of_numpy(kind):
    """Sums, the derivative by the power, gradients and dipoles, of charges of both signs."""
    if not library().key:
        pytest.skip("no native library")
    rng, (power, square) = np.random.default_rng(10), (0.5, 0.01)
    keys, queries, charges = rng.normal(size=(5000, 3)), rng.normal(size=(4000, 3)), rng.normal(size=(5000, 2, 3))
    charges = charges if kind[0] == "dipoles" else charges[:, :, 0]
    settings = {"kind": kind[0], "logarithmic": kind[1], "error": 1e-4}
    numbers = jnp.asarray([power, square])
    found = _far.bind(*map(jnp.asarray, (queries, keys, charges)), numbers, **settings, library=library().key)
    steps = queries[:200, None] - keys[None]
    squares = np.sum(steps**2, axis=-1) + square
    weights = -np.log(squares) * squares**-power if kind[1] else squares**-power
    slopes = -2 * power * (squares ** (-power - 1))[..., None] * steps
    rule, given = {
        "sums": ("ij,jk->ik", weights),
        "gradients": ("ijd,jk->ikd", slopes),
        "dipoles": ("ijd,jkd->ik", -slopes),
    }[kind[0]]
    exact, size = np.einsum(rule, given, charges), np.einsum(rule, np.abs(given), np.abs(charges))
    assert np.max(np.abs(np.asarray(found)[:200] - exact) / size) <= 1e-4


def test_without_a_library_all_pairs_are_summed():
    rng = np.random.default_rng(12)
    points, charges = jnp.asarray(rng.normal(size=(90, 2))), jnp.asarray(rng.normal(size=(90, 3)))
    numbers = jnp.asarray([0.8, 0.04])
    found = pairwise(points, points, charges, numbers, kind="sums", logarithmic=False)
    squares = np.sum((points[:, None] - points[None]) ** 2, axis=-1) + 0.04
    np.testing.assert_allclose(found, squares**-0.8 @ charges, rtol=1e-12)


def test_a_query_on_a_source_takes_its_value_without_softening():
    measure = hurtful("even", 2)
    assert measure.values is not None
    for power in (1.0, 3.0):
        found = Tree().moments(k.InverseDistance(power), measure, measure.points[:40])
        np.testing.assert_allclose(found.mean, measure.values[:40], rtol=1e-12)


def test_what_a_tree_cannot_sum_is_refused():
    points = jnp.ones((4, 4))
    for kernel, cloud, reason in (
        (k.Gaussian(1.0), Measure.uniform(points[:, :2]), "InverseDistance, Cauchy, StudentT"),
        (k.Cauchy(1.0) * k.Causal(), Measure.uniform(points[:, :2], positions=jnp.arange(4.0)), "nothing else"),
        (k.Cauchy(1.0), Measure.uniform(points), "has 4"),
    ):
        assert_refused(lambda a=kernel, b=cloud: Tree().moments(a, b, b.points), ArgumentError, ["Tree", reason])
    assert_refused(lambda: Tree(2.0), ArgumentError, ["`tolerance`", "2.0"])


def test_auto_takes_it_where_it_is_cheapest():
    rng = np.random.default_rng(11)
    tight = Measure.uniform(jnp.asarray(rng.normal(size=(200_000, 2))))
    chosen = Auto(tolerance=1e-6).select(k.InverseDistance(1.0, 1e-3), tight, tight)
    assert isinstance(chosen.summation, Tree)
    assert chosen.error <= 1e-6
    few = Measure.uniform(tight.points[:500])
    assert not isinstance(Auto(tolerance=1e-6).select(k.Cauchy(0.1), few, few).summation, Tree)
    assert Tree().promise(prepare(k.Gaussian(1.0), few, few), Limits(1e-6, 2**24)) is None


@pytest.mark.slow
def test_single_precision_and_no_queries():
    measure = hurtful("even", 3)
    single = jax.tree_util.tree_map(lambda leaf: leaf.astype(jnp.float32), measure)
    kernel = k.Cauchy(jnp.asarray(0.3, jnp.float32))
    found, exact = (how.moments(kernel, single, single.points[:300]) for how in (Tree(1e-4), Native()))
    assert found.mean.dtype == found.log_mass.dtype == jnp.float32
    assert float(jnp.max(jnp.abs(found.mean - exact.mean))) <= 1e-4 * 7
    assert Tree().moments(k.Cauchy(0.3), measure, measure.points[:0]).mean.shape == (0, 2)
