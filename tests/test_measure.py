"""Weighted clouds: their masses, and what tilting, normalising and joining do to them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from particleflow.measure import Measure

# Few sizes: every new shape compiles its operations anew.
points = hnp.arrays(np.float64, st.sampled_from([(1, 2), (5, 2)]), elements=st.floats(-10, 10))


@st.composite
def measures(draw):
    at = draw(points)
    weights = draw(hnp.arrays(np.float64, len(at), elements=st.one_of(st.just(0.0), st.floats(1e-3, 10))))
    weights[draw(st.integers(0, len(at) - 1))] = 1.0
    return Measure.weighted(at, weights)


def weights_of(measure: Measure) -> np.ndarray:
    return np.exp(np.asarray(measure.log_weights))


@settings(max_examples=20)
@given(points)
def test_uniform_is_a_probability(at):
    measure = Measure.uniform(at)
    np.testing.assert_allclose(weights_of(measure), np.full(len(at), 1 / len(at)), rtol=1e-14)
    assert abs(float(measure.log_mass)) < 1e-14
    assert (measure.count, measure.dimension) == at.shape
    np.testing.assert_array_equal(measure.carried, at)


@settings(max_examples=20)
@given(measures())
def test_normalised_keeps_the_shape_and_has_mass_one(measure):
    weights = weights_of(measure)
    np.testing.assert_allclose(np.exp(measure.log_mass), weights.sum(), rtol=1e-14)
    np.testing.assert_allclose(weights_of(measure.normalised()), weights / weights.sum(), rtol=1e-13)


@settings(max_examples=20)
@given(measures(), st.floats(-5, 5))
def test_tilting_multiplies_the_weights(measure, slope):
    density = slope * measure.points[:, 0]
    np.testing.assert_allclose(
        weights_of(measure.tilted(density)),
        weights_of(measure) * np.exp(slope * np.asarray(measure.points)[:, 0]),
        rtol=1e-12,
    )
    back = measure.tilted(density).tilted(-density)
    np.testing.assert_allclose(weights_of(back), weights_of(measure), rtol=1e-12)


@settings(max_examples=15)
@given(measures(), measures())
def test_joining_adds_masses_and_keeps_the_order(first, second):
    both = first.concatenated(second)
    np.testing.assert_array_equal(both.points, np.concatenate([first.points, second.points]))
    np.testing.assert_allclose(np.exp(both.log_mass), np.exp(first.log_mass) + np.exp(second.log_mass), rtol=1e-13)
    assert both.values is None


def test_joining_values_and_positions():
    first = Measure.uniform(np.zeros((2, 1)), values=np.array([[1.0], [2.0]]), positions=np.array([0.0, 1.0]))
    second = Measure.uniform(np.ones((1, 1)), positions=np.array([5.0]))
    both = first.concatenated(second)
    np.testing.assert_array_equal(both.carried, [[1.0], [2.0], [1.0]])  # the second carries its own point
    np.testing.assert_array_equal(both.positions, [0.0, 1.0, 5.0])


def test_a_weight_of_zero_is_minus_infinity_with_a_finite_gradient():
    measure = Measure.weighted(np.zeros((3, 1)), np.array([1.0, 0.0, 3.0]))
    np.testing.assert_array_equal(np.isneginf(measure.log_weights), [False, True, False])
    gradient = jax.grad(lambda w: Measure.weighted(jnp.zeros((3, 1)), w).log_mass)(jnp.array([1.0, 0.0, 3.0]))
    np.testing.assert_allclose(gradient, [0.25, 0.0, 0.25], rtol=1e-14)


def test_letters_are_points_of_one_coordinate():
    measure = Measure.of_symbols([2, 0, 1, 2], values=np.eye(4, dtype=np.float32), dtype=jnp.float32)
    np.testing.assert_array_equal(measure.points, np.array([[2], [0], [1], [2]], np.float32))
    assert measure.points.dtype == jnp.float32


def test_replacing_one_part_keeps_the_others():
    measure = Measure(np.zeros((2, 1)), np.zeros(2), values=np.array([3.0, 4.0]), positions=np.array([0.0, 1.0]))
    moved = measure.with_points(jnp.ones((2, 1)))
    np.testing.assert_array_equal(moved.points, np.ones((2, 1)))
    np.testing.assert_array_equal(moved.values, [3.0, 4.0])
    np.testing.assert_array_equal(moved.positions, [0.0, 1.0])
    assert measure.with_values(None).carried is measure.points
    np.testing.assert_array_equal(measure.with_log_weights(jnp.array([1.0, 2.0])).log_weights, [1.0, 2.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept(dtype):
    measure = Measure.uniform(np.ones((3, 2), dtype))
    assert {leaf.dtype for leaf in jax.tree_util.tree_leaves(measure)} == {np.dtype(dtype)}
    assert measure.normalised().log_weights.dtype == dtype


def test_measures_are_made_inside_jit_and_vmap():
    clouds = jnp.arange(24.0).reshape(3, 4, 2)
    masses = jax.jit(jax.vmap(lambda cloud: Measure.weighted(cloud, cloud[:, 0]).log_mass))(clouds)
    np.testing.assert_allclose(masses, np.log(np.asarray(clouds)[:, :, 0].sum(1)), rtol=1e-14)
