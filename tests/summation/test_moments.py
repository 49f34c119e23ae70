"""Moments and sums as monoids: merging is associative, commutative, has an identity, and loses no digits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pair_oracles
from pair_oracles import assert_close
from particleflow.errors import ShapeError
from particleflow.summation.moments import Moments, Sums

masses = st.one_of(st.just(-np.inf), st.floats(-700, 700), st.floats(-1e5, 1e5))


@st.composite
def some_moments(draw, count: int = 3):
    # XLA takes subnormal numbers for 0 in some programs.
    log_mass = draw(hnp.arrays(np.float64, count, elements=masses))
    mean = draw(hnp.arrays(np.float64, (count, 2), elements=st.floats(-10, 10, allow_subnormal=False)))
    return Moments(jnp.asarray(log_mass), jnp.asarray(np.where(np.isneginf(log_mass)[:, None], 0.0, mean)))


def same(a: Moments, b: Moments) -> bool:
    return np.array_equal(a.log_mass, b.log_mass) and np.array_equal(a.mean, b.mean)


@settings(max_examples=10)  # each is seven merges of ten operations
@given(some_moments(), some_moments(), some_moments())
def test_merge_is_a_commutative_monoid(a, b, c):
    assert same(a.merge(b), b.merge(a))
    left, right = a.merge(b).merge(c), a.merge(b.merge(c))
    assert_close(left, right.log_mass, right.mean, 1e-13)
    nothing = Moments.nothing(3, 2, jnp.float64)
    assert same(a.merge(nothing), a)
    assert same(nothing.merge(a), a)
    assert same(nothing.merge(nothing), nothing)
    assert_close(a.merge(a), np.asarray(a.log_mass) + np.log(2.0), a.mean, 1e-13)  # even the very same object


@settings(max_examples=20)
@given(some_moments(), some_moments())
def test_merge_is_the_weighted_mean(a, b):
    logs = np.stack([a.log_mass, b.log_mass], axis=1)
    means = np.stack([a.mean, b.mean], axis=1)
    both = a.merge(b)
    for row in range(3):
        log_mass, mean = pair_oracles.moments(logs[row : row + 1], means[row])
        np.testing.assert_allclose(both.log_mass[row], log_mass[0], rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(both.mean[row], mean[0], rtol=1e-13, atol=1e-13)


def test_merge_of_numbers_and_of_single_queries():
    for shape in ((4,), ()):
        a = Moments(jnp.full(shape, np.log(3.0)), jnp.full(shape, 1.0))
        b = Moments(jnp.full(shape, 0.0), jnp.full(shape, 5.0))
        both = jax.jit(Moments.merge)(a, b)
        np.testing.assert_allclose(both.mean, np.full(shape, 2.0), rtol=1e-15)
        np.testing.assert_allclose(both.log_mass, np.full(shape, np.log(4.0)), rtol=1e-15)


def test_merge_refuses_other_shapes():
    a, b = Moments.nothing(3, 2, jnp.float64), Moments.nothing(3, 1, jnp.float64)
    with pytest.raises(ShapeError, match=r"\(3, 2\).*\(3, 1\)"):
        a.merge(b)


def test_not_a_number_is_not_nothing():
    logits, values = jnp.array([[jnp.nan, 0.0], [-jnp.inf, -jnp.inf]]), jnp.ones((2, 1))
    moments = Moments.from_logits(logits, values)
    assert np.isnan(moments.log_mass[0])
    assert np.isnan(moments.mean[0, 0])
    assert moments.log_mass[1] == -np.inf


@settings(max_examples=10)
@given(st.lists(some_moments(), min_size=1, max_size=4))
def test_sums_merge_as_moments_do(pieces):
    moments, sums = Moments.nothing(3, 2, jnp.float64), Sums.nothing(3, 2, jnp.float64)
    for piece in pieces:
        moments, sums = moments.merge(piece), sums.merge(piece.sums())
    found = sums.moments()
    assert_close(found, moments.log_mass, moments.mean, 1e-13)
    logs, means = (np.stack([np.asarray(getattr(p, f)) for p in pieces], axis=1) for f in ("log_mass", "mean"))
    for row in range(3):
        log_mass, mean = pair_oracles.moments(logs[row : row + 1], means[row])
        np.testing.assert_allclose(found.log_mass[row], log_mass[0], rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(found.mean[row], mean[0], rtol=1e-13, atol=1e-12)


def test_sums_with_one_shift_are_added():
    shift = jnp.array([3.0, -4000.0])
    first, second = Sums(shift, jnp.array([[2.0, 1.0], [5.0, 1.0]])), Sums(shift, jnp.array([[4.0, 3.0], [1.0, 1.0]]))
    both, apart = first.merge(second), first.merge(Sums(shift + 0.0, second.sums))
    np.testing.assert_array_equal(both.sums, [[6.0, 4.0], [6.0, 2.0]])
    np.testing.assert_array_equal(both.sums, apart.sums)
    np.testing.assert_array_equal(both.shift, apart.shift)


def test_empty_blocks_do_not_hide_small_masses():
    # The block without mass must not lift the others' shift to 0, where e^-5000 is nothing.
    values = jnp.array([[2.0], [4.0]])
    seen, unseen = (Sums.from_logits(jnp.full((1, 2), level), values) for level in (-5000.0, -jnp.inf))
    for merged in (seen.merge(unseen), unseen.merge(seen)):
        np.testing.assert_allclose(merged.moments().log_mass, [-5000.0 + np.log(2.0)], rtol=1e-15)
        np.testing.assert_allclose(merged.moments().mean, [[3.0]], rtol=1e-15)


def test_gradients_of_a_merge():
    def reading(masses, merge):
        a, b = Moments(masses[:1], jnp.array([[1.0]])), Moments(masses[1:], jnp.array([[5.0]]))
        both = merge(a, b)
        return both.log_mass[0] + 2 * both.mean[0, 0]

    masses = jnp.array([0.3, -0.8])
    share = 1 / (1 + np.exp(1.1))  # of the second piece
    expected = np.array([1 - share, share]) + 2 * 4 * share * (1 - share) * np.array([-1, 1])
    for merge in (Moments.merge, lambda a, b: a.sums().merge(b.sums()).moments()):
        np.testing.assert_allclose(jax.jit(jax.grad(reading), static_argnums=1)(masses, merge), expected, rtol=1e-13)
    nothing = jax.jit(jax.grad(reading), static_argnums=1)(jnp.full(2, -jnp.inf), Moments.merge)
    assert np.isfinite(nothing).all()
