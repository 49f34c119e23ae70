"""Every shipped scenario in single precision, with and without an event, against itself in double precision.

How far apart the two may be is measured: by a third run, in double precision, from a start that is off by what single
precision cannot tell. A scenario that makes much of such an error (a ripple that grows) is allowed as much. Particles
are compared by their points, densities by their masses.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import scenario
from particleflow.discretization import CarriesDensity
from particleflow.dynamics.geometry import retracted
from particleflow.simulation.observables import name_of
from shares import by_default, skip_without_extra

COUNT, FRAMES, STEPS, CELLS, MODES = 24, 9, 24, 80, 8
ROUNDING = float(np.finfo(np.float32).eps)
TOLERANCES = {"time.rtol": 2e-6, "time.atol": 1e-6}  # about the tightest that single precision holds
# Measured: points are within 3e-5 of their largest coordinate, or within 6 times what the third run is off.
ALLOWED, AMPLIFIED = 1e-4, 20.0
# They count, and so jump: a level between two of their values is nowhere to be found.
COUNTING = ("attention_rank", "pair_fraction")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Each scenario compiles programs of its own, and all of them are more than a process can hold."""
    yield
    jax.clear_caches()


def height(present: pf.Present) -> Any:
    """The mean first coordinate: something that moves wherever the measure does."""
    return jnp.exp(present.measure.log_weights - present.measure.log_mass) @ present.measure.points[:, 0]


SHIPPED = list(scenario.shipped())


def shrunk(name: str) -> scenario.Scenario:
    """A shipped scenario with fewer particles, cells and frames and an earlier end; what is computed stays as it is."""
    skip_without_extra(name)
    loaded = scenario.load(name)
    initial, time = loaded.raw["initial"], loaded.raw["time"]
    values: dict[str, Any] = {"time.frames": FRAMES, "time.end": time["end"] / 4, "precision": "float64"}
    if "step" in time:
        values["time.end"] = min(STEPS, round(time["end"] / time["step"])) * time["step"]
    if "count" in initial:
        values["initial.count"] = min(initial["count"], COUNT)
    if loaded.document.carries_density:  # they are run to loose tolerances, which would hide a difference
        values |= TOLERANCES
    for name, most in (("cells", CELLS), ("modes", MODES)):
        if name in loaded.raw.get("discretization", {}):
            values[f"discretization.{name}"] = most
    if "sides" in initial:
        values["initial.sides"] = [5] * len(initial["sides"])
    if "particles" in loaded.raw.get("record", {}):
        values["record.particles"] = 5
    if "merges" in loaded.raw.get("event", {}):
        values["event.merges"] = COUNT - 3
    return loaded.with_values(values)


def in_single(loaded: scenario.Scenario) -> scenario.Scenario:
    return loaded.with_values({"precision": "float32"} | (TOLERANCES if "rtol" in loaded.raw["time"] else {}))


def observed(setup: scenario.Setup) -> dict[str, Any]:
    """What a scenario records, and what any can."""
    of_particles = () if carries_density(setup) else (pf.observables.diameter,)
    return {name_of(each): each for each in (*setup.arguments["observe"], *of_particles, height)}


def carries_density(setup: scenario.Setup) -> bool:
    how = setup.arguments["discretization"]
    return isinstance(how, CarriesDensity)


def held(trajectory: pf.Trajectory) -> np.ndarray:
    """What tells a frame from another: points of particles, masses of a density."""
    return np.asarray(trajectory.fields.get("masses", trajectory.points))


def run(setup: scenario.Setup, event: Any, *, off: float = 0.0) -> pf.Trajectory:
    start = setup.start
    if off and carries_density(setup):
        start = start.tilted(jnp.asarray(off * np.random.default_rng(0).normal(size=start.count))).normalised()
    elif off:
        shift = off * np.random.default_rng(0).normal(size=start.points.shape)
        start = start.with_points(retracted(setup.flow.geometry, start.points + shift))
    arguments = setup.arguments | {"observe": list(observed(setup).values()), "event": event}
    return pf.simulate(setup.flow, start, setup.times, **arguments)


@cache
def plain_run(name: str) -> pf.Trajectory:
    return run(shrunk(name).build(), None)


def distance(first: Any, second: Any) -> float:
    return float(np.max(np.abs(np.asarray(first, float) - np.asarray(second, float)), initial=0.0))


def check_close(double: Any, off: Any, single: Any, what: str, scale: Any = 0.0) -> None:
    """`scale`: what a number is made of that may cancel, such as the coordinates of a mean."""
    allowed = ALLOWED * max(float(np.max(np.abs(double))), float(np.max(np.abs(scale)))) + AMPLIFIED * distance(
        off, double
    )
    assert distance(single, double) <= allowed, what


def check_single(single: pf.Trajectory) -> None:
    """Points and observables are finite numbers of single precision."""
    assert held(single).dtype == np.float32
    assert {values.dtype for values in single.observables.values()} == {np.dtype(np.float32)}
    assert all(np.isfinite(values).all() for values in (held(single), *single.observables.values()))


def check_noise(double: pf.Trajectory, single: pf.Trajectory) -> None:
    """The draws of two precisions differ: they must be of one size."""
    sizes = [float(np.sum(np.square(np.diff(np.asarray(each.points, float), axis=0)))) for each in (double, single)]
    assert 1 / 4 < sizes[0] / sizes[1] < 4


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_a_scenario_in_single_precision_is_that_in_double_precision(name):
    double, off = plain_run(name), run(shrunk(name).build(), None, off=ROUNDING)
    single = run(in_single(shrunk(name)).build(), None)
    assert single.status == double.status == "finished"
    check_single(single)
    np.testing.assert_array_equal(single.times, double.times)
    setup = shrunk(name).build()
    if setup.flow.is_noisy and not carries_density(setup):
        check_noise(double, single)
        return
    check_close(held(double), held(off), held(single), "points or masses")
    for key, values in double.observables.items():
        summed = double.points if key == height.__name__ else 0.0
        check_close(values, off.observables[key], single.observables[key], key, summed)


def crossed_level(trajectory: pf.Trajectory) -> tuple[str, float]:
    """An observable that changes, and a level between two successive frames of it, half-way through its change.

    Of several the one that turns least: a level that a curve only touches on its way is there in one precision, and in
    the other between two steps.
    """
    changing = {}
    for name, values in trajectory.observables.items():
        values = np.asarray(values)
        size = np.max(np.abs(trajectory.points if name == height.__name__ else values))  # a mean may be rounding alone
        if values.ndim == 1 and name not in COUNTING and abs(values[-1] - values[0]) > 1e-3 * size:
            changing[name] = values
    assert changing, "nothing changes"
    turns = {name: np.count_nonzero(np.diff(np.sign(np.diff(values)))) for name, values in changing.items()}
    name = min(changing, key=lambda each: turns[each])
    values = changing[name]
    middle = (values[0] + values[-1]) / 2
    after = int(np.argmax((values > middle) != (values[0] > middle)))
    return name, float(values[after - 1] + values[after]) / 2


def events(name: str) -> list[tuple[Any, Any]]:
    """Events in double and in single precision: a level that is reached, and the scenario's own."""
    which, level = crossed_level(plain_run(name))
    double, single = shrunk(name).build(), in_single(shrunk(name)).build()
    reached = pf.events.Reached(observed(double)[which], level)
    both = [(reached, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), reached))]
    own = double.arguments["event"], single.arguments["event"]
    return both if own[0] is None else [*both, own]


@pytest.mark.slow
@pytest.mark.parametrize("name", by_default(SHIPPED, ("bounded_confidence",)))
def test_an_event_in_single_precision_is_that_in_double_precision(name):
    double, single = shrunk(name).build(), in_single(shrunk(name)).build()
    for event_in_double, event_in_single in events(name):
        expected, found = run(double, event_in_double), run(single, event_in_single)
        assert found.status == expected.status
        check_single(found)
        if carries_density(double) or not double.flow.is_noisy:
            off = run(double, event_in_double, off=ROUNDING)
            check_close(expected.times[-1:], off.times[-1:], found.times[-1:], "time")
            check_close(held(expected)[-1], held(off)[-1], held(found)[-1], "points or masses at the event")
