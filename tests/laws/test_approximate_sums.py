"""Laws of the one operator for sums that approximate it, each at the error it may make; derivatives and batches, too.

Random features keep the laws as well as their rank allows; a random batch that holds all sources keeps them exactly,
and a smaller one promises nothing (see `test_random_batch`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from particleflow import kernels as k
from particleflow.measure import Measure
from particleflow.summation import Dense, Features, NearFar, RandomBatch, Spectral, Tree
from particleflow.summation.base import AbstractSummation
from particleflow.summation.moments import Moments
from shares import by_default

COUNT, QUERIES = 57, 19


class Column(NamedTuple):
    """A summation, the width of a kernel, the errors of moments and of derivatives that it may make, the kernel."""

    summation: AbstractSummation
    width: float
    error: float
    of_derivatives: float
    kernel: Any = k.Gaussian


COLUMNS = {
    "spectral": Column(Spectral(1e-8, (48, 48), 1e-10), 1.5, 1e-8, 1e-7),
    "near and far": Column(NearFar(1e-6, 8), 0.3, 1e-6, 1e-4),
    "tree": Column(Tree(1e-6), 0.3, 1e-6, 1e-6, k.Cauchy),
    "landmarks": Column(Features(40, "nystrom"), 3.0, 1e-6, 1e-4),
    "positive": Column(Features(2**12, "positive"), 5.0, 5e-2, 0.2),
    "fourier": Column(Features(2**12, "fourier"), 5.0, 5e-2, 0.2),
    "phase": Column(Features(2**12, "phase"), 5.0, 5e-2, 0.2),
    "random batch of all": Column(RandomBatch(2 * COUNT), 1.5, 1e-12, 1e-10),
}
by_column = pytest.mark.parametrize("name", by_default(list(COLUMNS), ["near and far"]))


def cloud(seed: int, count: int = COUNT) -> Measure:
    rng = np.random.default_rng(seed)
    return Measure(rng.normal(size=(count, 2)), rng.normal(size=count) - 5, values=rng.normal(size=(count, 3)))


def queries(seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(QUERIES, 2)))


def assert_alike(found: Any, expected: Any, error: float, largest: float) -> None:
    assert np.max(np.abs(np.asarray(found.log_mass) - np.asarray(expected.log_mass))) <= error
    assert np.max(np.linalg.norm(np.asarray(found.mean - expected.mean), axis=1)) <= error * largest


@pytest.mark.slow
@by_column
def test_order_copies_and_pieces_change_nothing_beyond_the_error(name):
    """Against the dense sum, and so against each other: points and queries in another order, twice, in two pieces."""
    how, width, error, _, family = COLUMNS[name]
    kernel = family(width)
    take, order, turn = jax.tree_util.tree_map, *(np.random.default_rng(1).permutation(n) for n in (COUNT, QUERIES))
    measure, looking = cloud(2), queries(3)

    @jax.jit
    def variants(measure, looking):
        pieces = [take(lambda leaf, part=part: leaf[part], measure) for part in (slice(0, 30), slice(30, COUNT))]
        first, second = (how.moments(kernel, each, looking) for each in pieces)
        return {
            "plain": how.moments(kernel, measure, looking),
            "points": how.moments(kernel, take(lambda leaf: leaf[order], measure), looking),
            "queries": how.moments(kernel, measure, looking[turn]),
            "copies": how.moments(kernel, measure.concatenated(measure), looking),
            "pieces": first.merge(second),
        }

    found, exact = variants(measure, looking), Dense().moments(kernel, measure, looking)
    largest = float(np.linalg.norm(measure.carried, axis=1).max())
    expected = dict.fromkeys(found, exact)
    expected["queries"] = take(lambda leaf: leaf[turn], exact)
    expected["copies"] = Moments(exact.log_mass + np.log(2.0), exact.mean)
    for variant, moments in found.items():
        assert_alike(moments, expected[variant], error, largest)


@by_column
def test_derivatives_and_batches_are_those_of_the_sum(name):
    """By points, queries and width, of a sum of all moments, against the dense sum; two clouds at once by `vmap`."""
    how, width, error, of_derivatives, family = COLUMNS[name]
    measures = jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), cloud(4), cloud(5))
    looking = jnp.stack([queries(6), queries(7)])

    def both(summation, width, measure, sites):
        def total(width, points, sites):
            found = summation.moments(family(width), Measure(points, measure.log_weights, measure.values), sites)
            return jnp.sum(found.log_mass) + jnp.sum(jnp.cos(jnp.arange(3.0))[None] * found.mean), found

        slopes, found = jax.grad(total, argnums=(0, 1, 2), has_aux=True)(width, measure.points, sites)
        return found, slopes

    def batched(summation):
        return jax.jit(jax.vmap(lambda *operands: both(summation, jnp.asarray(width), *operands)))(measures, looking)

    (found, slopes), (exact, expected) = batched(how), batched(Dense())
    largest = float(jnp.max(jnp.linalg.norm(measures.values, axis=-1)))
    for run in range(2):
        one, other = (Moments(each.log_mass[run], each.mean[run]) for each in (found, exact))
        assert_alike(one, other, error, largest)
    for one, other in zip(slopes, expected, strict=True):
        scale = float(jnp.max(jnp.abs(other)))
        assert float(jnp.max(jnp.abs(one - other))) <= of_derivatives * scale
