"""Whole systems drawn at random, kernel × normalisation × geometry × positions × drifts × weights, against DOP853.

A system is drawn twice from one seed's numbers: as a flow, and as a field in NumPy from the formulas alone. Its id says
what it is. A few systems run by default, and two hundred with `-m slow`.
"""

import equinox as eqx
import numpy as np
import pytest

from particleflow import geometry
from random_systems import (
    COUNT,
    MORE,
    NORMALIZATIONS,
    SEEDS,
    SINGLE,
    SPACES,
    assert_agrees,
    draw,
    draw_kernel,
    draw_other,
)
from shares import by_default


@pytest.mark.parametrize("system", [draw(seed) for seed in SEEDS], ids=lambda system: system.name)
def test_velocity_of_a_random_system(system):
    state = system.begun()
    moving = geometry.lifted(system.flow.geometry, system.start.points, system.start.fields)
    found = eqx.filter_jit(system.flow.velocity)(0.0, moving, system.start.with_points(moving))
    wanted = system.field(0.0, state)
    assert np.max(np.abs(moving - state)) < 1e-13 * max(1.0, np.max(np.abs(state)))
    assert np.max(np.abs(found - wanted)) < 1e-11 * max(1.0, np.max(np.abs(wanted)))


@pytest.mark.parametrize("seed", by_default(SEEDS, SEEDS[:1]), ids=lambda seed: draw(seed).name)
@pytest.mark.slow
def test_random_system_agrees_with_scipy(seed):
    assert_agrees(draw(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE)
def test_more_random_systems_agree_with_scipy(seed):
    system = draw(seed)
    print(system.name)
    assert_agrees(system)


@pytest.mark.parametrize("seed", by_default(SEEDS, []), ids=lambda seed: draw(seed).name)
def test_random_system_agrees_with_scipy_in_single_precision(seed):
    assert_agrees(draw(seed), SINGLE)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE)
def test_more_random_systems_agree_with_scipy_in_single_precision(seed):
    system = draw(seed)
    print(system.name)
    assert_agrees(system, SINGLE)


def test_the_default_systems_cover_everything():
    """Every kernel, normalisation, geometry, positional kernel, kind of weights and other drift is among them."""
    found = {part for seed in SEEDS for part in draw(seed).parts}
    wanted = {*SPACES, *NORMALIZATIONS, "causal", "window", "alibi", "time_gaussian"}
    wanted |= {"equal", "weighted", "one weightless"}
    wanted |= {draw_kernel(np.random.default_rng(0), which).name for which in range(11)}
    some = np.ones(COUNT), np.arange(COUNT)
    wanted |= {draw_other(np.random.default_rng(0), which, *some).name for which in range(11)}
    assert sorted(wanted - found) == []
