"""Geometries as maps: what is saved, seen and moved, against NumPy and with their laws."""

import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
import system_oracles as family
from particleflow import geometry, kernels
from shares import by_default

_RNG = np.random.default_rng(21)
STATE, VELOCITY = _RNG.normal(size=(2, 5, 4))
GAIN, BIAS = _RNG.uniform(0.5, 1.5, size=4), _RNG.normal(size=4)


def layer_norm(points):
    centred = points - points.mean(axis=1, keepdims=True)
    return 2.0 * centred / np.linalg.norm(centred, axis=1, keepdims=True)  # √d = 2


SPACES = [
    (geometry.Euclidean(), lambda x: x),
    (geometry.Sphere(), oracle.on_sphere),
    (geometry.Sphere(2.5), lambda x: 2.5 * oracle.on_sphere(x)),
    (geometry.LayerNorm(), layer_norm),
    (geometry.RmsNorm(), lambda x: 2.0 * oracle.on_sphere(x)),
    (geometry.PreNorm(), oracle.on_sphere),
    (geometry.PeriNorm(), oracle.on_sphere),
    (geometry.Ngpt(0.3), oracle.on_sphere),
    (geometry.SqrtScaled(), oracle.on_sphere),
    (geometry.Rescaled(0.5), lambda x: x),
    (geometry.SetNorm(), family.spaces(4)["set_norm"].retract),
    (geometry.ResidualStream(), lambda x: x),
]
NAMES = [type(space).__name__ for space, _ in SPACES]


# `test_set_norm` has the formulas of sets.
BY_DEFAULT = [
    pytest.param(*each, marks=[pytest.mark.slow] if each[0].name == "set_norm" else [], id=name)
    for name, each in zip(NAMES, SPACES, strict=True)
]


@pytest.mark.parametrize(("space", "formula"), BY_DEFAULT)
def test_retraction_is_its_formula_and_idempotent(space, formula):
    points = np.asarray(space.retract(jnp.asarray(STATE)))
    rounding = 1e-13 if space.name == "set_norm" else 1e-15  # five particles barely span R⁴
    assert np.max(np.abs(points - formula(STATE))) < rounding * 8
    assert np.max(np.abs(np.asarray(space.retract(jnp.asarray(points))) - points)) < rounding
    space.check_contains(jnp.asarray(points))


@pytest.mark.parametrize(
    "name", by_default(family.spaces(4), [name for name in family.spaces(4) if name != "set_norm"])
)
def test_a_free_space_leaves_states_and_velocities_as_they_are(name):
    space, state, velocity = family.spaces(4)[name].build(), jnp.asarray(STATE), jnp.asarray(VELOCITY)
    maps = [space.retract(state) - state, space.observe(state, 0.7) - state]
    maps += [space.advance(state, velocity, 0.1, 0.7) - state - 0.1 * velocity]
    assert isinstance(space, geometry.Unconstrained) == (max(float(jnp.max(jnp.abs(each))) for each in maps) < 1e-15)


@pytest.mark.parametrize("index", [1, 2, 3, 4, 7, 8])
def test_constrained_fields_have_no_radial_part(index):
    space, formula = SPACES[index]
    moved = np.asarray(space.tangent(jnp.asarray(STATE), jnp.asarray(VELOCITY), 0.7))
    centred = STATE - STATE.mean(axis=1, keepdims=True) if space.__class__ is geometry.LayerNorm else STATE
    assert np.max(np.abs(np.sum(centred * moved, axis=1))) < 1e-14
    # Degree one in the state: twice the state moves twice as fast, so what is seen of it does not change.
    twice = np.asarray(space.tangent(jnp.asarray(2 * STATE), jnp.asarray(VELOCITY), 0.7))
    assert np.max(np.abs(twice - 2 * moved)) < 1e-14
    assert formula(STATE).shape == moved.shape


def test_tangent_of_each_scheme():
    units = oracle.on_sphere(STATE)
    sizes = np.linalg.norm(STATE, axis=1, keepdims=True)
    pull = np.linalg.norm(VELOCITY, axis=1, keepdims=True)
    expected = [
        (geometry.PreNorm(), VELOCITY),
        (geometry.ResidualStream(), VELOCITY),
        (geometry.PeriNorm(), VELOCITY / pull),
        (geometry.Ngpt(0.3), 0.3 * sizes * oracle.tangent(units, VELOCITY / pull)),
        (geometry.SqrtScaled(), sizes * oracle.tangent(units, VELOCITY) / np.sqrt(1.7)),
        (geometry.Sphere(2.5), sizes / 2.5 * oracle.tangent(units, VELOCITY)),
        (geometry.Rescaled(0.5), np.exp(-0.35) * VELOCITY - 0.5 * STATE),
    ]
    for space, moved in expected:
        found = np.asarray(space.tangent(jnp.asarray(STATE), jnp.asarray(VELOCITY), 0.7))
        assert np.max(np.abs(found - moved)) < 1e-14


def test_layer_norm_shows_drifts_gain_and_bias():
    seen = np.asarray(geometry.LayerNorm(GAIN, BIAS).observe(jnp.asarray(STATE)))
    assert np.max(np.abs(seen - (GAIN * layer_norm(STATE) + BIAS))) < 1e-14
    seen = np.asarray(geometry.RmsNorm(GAIN).observe(jnp.asarray(STATE)))
    assert np.max(np.abs(seen - GAIN * 2 * oracle.on_sphere(STATE))) < 1e-14


@pytest.mark.slow
def test_layer_norm_with_gain_and_bias_in_a_run():
    start = layer_norm(STATE)
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=0.5)), geometry=pf.LayerNorm(GAIN, BIAS))
    times = np.array([0.0, 0.5, 1.0])
    run = pf.simulate(flow, start, times, rtol=1e-11, atol=1e-12)

    def field(time, points):
        seen = GAIN * layer_norm(points) + BIAS
        velocity = oracle.attention_weights(seen, 0.5, 1.0, 1.0) @ seen
        velocity = velocity - velocity.mean(axis=1, keepdims=True)
        return oracle.tangent(layer_norm(points) / 2, velocity)

    assert np.max(np.abs(run.points - np.stack([layer_norm(x) for x in oracle.solve(field, start, times)]))) < 1e-8
    assert oracle.norm_error(run.points, 2.0) < 1e-9
    assert np.max(np.abs(np.mean(run.points, axis=2))) < 1e-14


@pytest.mark.slow
def test_sphere_of_another_radius():
    """On radius r attention at β is attention on the unit sphere at βr², with the same speed of angles."""
    start = oracle.random_sphere(1, 6, 3)
    times = np.array([0.0, 0.5, 1.0])
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=0.25)), geometry=pf.Sphere(2.0))
    run = pf.simulate(flow, 2 * start, times, rtol=1e-11, atol=1e-12)
    expected = 2 * oracle.on_sphere(oracle.solve(oracle.attention_field(1.0, sphere=True), start, times))
    assert np.max(np.abs(run.points - expected)) < 1e-8
    assert oracle.norm_error(run.points, 2.0) < 1e-9


@pytest.mark.parametrize("index", [1, 2, 3, 4, 7, 8])
def test_a_start_off_the_geometry_is_refused(index):
    from particleflow.errors import ArgumentError

    space = SPACES[index][0]
    with pytest.raises(ArgumentError, match=r"particle \d+ is off it by .* use `geometry.retract\(points\)`"):
        space.check_contains(jnp.asarray(STATE))
