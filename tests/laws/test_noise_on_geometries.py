"""Noise × geometry: the displacement is √(2 · temperature · t), whatever the step and however small the temperature.

To first order in √temperature, noise moves a state y to y + √(2Tt) ξ, and what is stored to its retraction; so a cloud
of Gaussian displacements in NumPy says how far the particles go. Longer runs follow the laws of Brownian motion.
"""

from functools import partial

import jax
import numpy as np
import pytest

import particleflow as pf
import system_oracles as oracle
from particleflow import drifts, geometry
from shares import by_default

COUNT, DIMENSION, TIME = 3000, 4, 0.02
KEY = jax.random.key(12)
SPACES = oracle.spaces(DIMENSION)
PACED = {"ngpt": geometry.Ngpt(0.5), "sqrt_scaled": geometry.SqrtScaled()}


def states() -> np.ndarray:
    """Vectors of lengths between 1 and 3."""
    rng = np.random.default_rng(4)
    return oracle.unit(rng.normal(size=(COUNT, DIMENSION))) * rng.uniform(1, 3, (COUNT, 1))


def begun(space: oracle.Space) -> tuple[np.ndarray, pf.Measure]:
    """A state, and the measure that stands for it."""
    state = states() if space.carries else space.retract(states())
    start = pf.Measure.uniform(space.retract(state))
    if not space.carries:
        return state, start
    shape = jax.ShapeDtypeStruct(state.shape, state.dtype)
    carried = jax.eval_shape(partial(geometry.carried_fields, space.build()), shape)
    centred = state - state.mean(axis=1, keepdims=True) if "residual_mean" in carried else state
    fields = {"residual_norm": np.linalg.norm(centred, axis=1), "residual_mean": state.mean(axis=1)}
    return state, start.with_fields({name: fields[name] for name in carried})


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_displacement_is_the_root_of_the_temperature(name):
    space = SPACES[name]
    state, start = begun(space)
    small = 1e-6 * np.random.default_rng(5).normal(size=state.shape)
    expected = np.sqrt(np.mean((space.retract(state + small) - space.retract(state)) ** 2)) / 1e-6

    def ends(temperature: float, step: float) -> np.ndarray:
        flow = pf.Flow(drifts.Linear(0.4), geometry=space.build(), temperature=temperature)
        return np.asarray(pf.simulate(flow, start, [0.0, TIME], step=step, key=KEY).points[-1])

    for step in (TIME / 2, TIME / 8):
        still = ends(1e-300, step)
        for temperature in (1e-12, 1e-6):
            moved = np.sqrt(np.mean((ends(temperature, step) - still) ** 2)) / np.sqrt(2 * temperature * TIME)
            # 12,000 numbers give 0.7 %, the drift of a short time 1 %, and a float64 of 1 keeps 1e-16 of 2e-7
            assert abs(moved / expected - 1) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("name", by_default(PACED, ["ngpt"]))
def test_paced_spheres_have_the_brownian_motion_of_the_sphere(name):
    """Without a drift E⟨X_t, X_0⟩ = e^{−(d−1)Tt}."""
    temperature, start = 0.3, oracle.unit(states())
    flow = pf.Flow(drifts.Linear(0.0), geometry=PACED[name], temperature=temperature)
    run = pf.simulate(flow, start, [0.0, 1.0], step=1 / 64, key=KEY)
    cosines = np.sum(np.asarray(run.points[-1]) * start, axis=1)
    wanted = np.exp(-(DIMENSION - 1) * temperature)
    assert abs(cosines.mean() - wanted) < 4.5 * cosines.std() / np.sqrt(COUNT) + 2e-3


@pytest.mark.slow
def test_streams_have_the_brownian_motion_of_flat_space():
    """Without a drift a peri-norm stream is y₀ + √(2T) W_t, its norm stored beside its direction."""
    temperature = 0.3
    state, start = begun(oracle.spaces(DIMENSION)["peri_norm"])
    flow = pf.Flow(drifts.Linear(0.0), geometry=geometry.PeriNorm(), temperature=temperature)
    run = pf.simulate(flow, start, [0.0, 1.0], step=1 / 64, key=KEY)
    moved = np.asarray(run.points[-1]) * np.asarray(run.fields["residual_norm"][-1])[:, None] - state
    variance = 2 * temperature
    assert abs(moved.mean()) < 4.5 * np.sqrt(variance / moved.size)
    assert abs(moved.var() / variance - 1) < 4.5 * np.sqrt(2 / moved.size)


@pytest.mark.slow
def test_the_moving_frame_carries_its_noise_along():
    """dx = V x dt + √(2T) dW in the frame z = e^{−tV} x is dz = e^{−tV} √(2T) dW: variance T (1 − e^{−2Vt})/V."""
    temperature, value, time = 0.3, 0.7, 1.0
    flow = pf.Flow(drifts.Linear(value), geometry=geometry.Rescaled(value), temperature=temperature)
    run = pf.simulate(flow, states(), [0.0, time], step=1 / 128, key=KEY)
    moved = np.asarray(run.points[-1]) - states()
    variance = temperature * (1 - np.exp(-2 * value * time)) / value
    assert abs(moved.mean()) < 4.5 * np.sqrt(variance / moved.size)
    assert abs(moved.var() / variance - 1) < 4.5 * np.sqrt(2 / moved.size) + 2e-3
