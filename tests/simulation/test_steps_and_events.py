"""Steps that overflow, steps in single precision, and events between steps, against closed forms."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import drifts, events, kernels
from particleflow.errors import ArgumentError, RunError

SQUARE = pf.Flow(pf.Attend(kernels.Attention(beta=1.0), normalization="none"))  # ẋ = e^{x²} x for one particle
LINEAR = pf.Flow(drifts.Linear(-1.0))
TWO = np.array([[[0.5]], [[0.01]]])


def overflow_time(start: float, step: float) -> float:
    """The last time at which x ← x + step · e^{x²} x is finite."""
    with np.errstate(over="ignore"):
        time, x = 0.0, start
        while np.isfinite(x):
            time, x = time + step, x + step * np.exp(x * x) * x
    return time - step


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["euler", "map"])
def test_fixed_steps_that_overflow_fail_and_keep_every_finite_frame(solver):
    step, times = 0.125, np.arange(0.0, 4.0, 0.25)
    last = overflow_time(0.5, step)
    message = rf"The run blew up at t = {last:g}, particle 0: .* after a step of 0.125 it is not finite"
    with pytest.raises(RunError, match=message) as caught:
        pf.simulate(SQUARE, TWO[0], times, step=step, solver=solver, window=4)
    kept = caught.value.trajectory
    assert kept is not None
    assert kept.status == "failed"
    assert kept.times.tolist() == times[times <= last].tolist()
    assert np.isfinite(np.asarray(kept.points)).all()


@pytest.mark.slow
def test_a_run_of_an_ensemble_that_overflows_is_named_and_the_others_go_on():
    step, times = 0.125, np.arange(0.0, 4.0, 0.25)
    run = pf.simulate(SQUARE, TWO, times, step=step, solver="euler", window=4)
    lost, kept = np.asarray(run.points)[:, :, 0, 0].T
    last = overflow_time(0.5, step)
    assert run.status == "failed"
    assert f"run 0 blew up at t = {last:g}" in run.metadata["message"]
    assert np.array_equal(np.isfinite(lost), times <= last)
    assert np.isfinite(kept).all()


@pytest.mark.parametrize(
    ("flow", "options", "error"),
    [
        (
            LINEAR,
            {"solver": "euler"},
            0.125,
        ),  # x ← (1 − h) x and (1 − h/2)² x differ by h² x/4, here of x = 2 and h = ½
        pytest.param([LINEAR, pf.Flow(drifts.Linear(-2.0))], {"solver": "euler"}, 0.5, marks=pytest.mark.slow),
        pytest.param(LINEAR, {"solver": "map"}, None, marks=pytest.mark.slow),
        pytest.param(
            pf.Flow(drifts.Linear(-1.0), temperature=0.1), {"key": jax.random.key(0)}, None, marks=pytest.mark.slow
        ),
    ],
    ids=["a run", "an ensemble", "a map", "noise"],
)
def test_a_fixed_step_is_compared_with_two_halves(flow, options, error, tmp_path):
    def stop(frames: Any) -> None:
        raise KeyboardInterrupt

    store = {"store": tmp_path / "run.h5", "step": 0.5, "window": 1} | options
    with pytest.raises(KeyboardInterrupt):
        pf.simulate(flow, [[1.0, 2.0]], np.arange(5.0), **store, progress=stop)
    resumed = pf.simulate(flow, [[1.0, 2.0]], np.arange(5.0), **store, resume=True)
    assert resumed.metadata["statistics"].get("error of a step") == error


class HalfLine(pf.geometry.AbstractGeometry):
    """x > 0, shown as it is; a state below 0 stands for no point."""

    def retract(self, state: Any) -> Any:
        return jnp.where(state > 0, state, jnp.nan)

    def observe(self, state: Any, time: Any = 0.0) -> Any:
        return state

    def tangent(self, state: Any, velocity: Any, time: Any = 0.0) -> Any:
        return velocity

    def advance(self, state: Any, velocity: Any, size: Any, time: Any = 0.0) -> Any:
        return state + size * velocity


class Falling(drifts.AbstractDrift):
    """v = −1."""

    def __call__(self, time: Any, queries: Any, measure: Any) -> Any:
        return -jnp.ones_like(queries.points)


def test_a_frame_that_is_not_finite_is_a_failure_whatever_the_state():
    flow, times = pf.Flow(Falling(), geometry=HalfLine()), np.linspace(0.0, 3.0, 7)
    with pytest.raises(RunError, match=r"at t = 1\.5, particle 1: .* its point is not finite") as caught:
        pf.simulate(flow, np.array([[4.0], [1.25]]), times, step=0.5, solver="euler")
    kept = caught.value.trajectory
    assert kept is not None
    assert kept.times.tolist() == [0.0, 0.5, 1.0]


def sine(present: Any) -> Any:
    """sin t, whatever the particles do."""
    return jnp.sin(present.time)


def height(present: Any) -> Any:
    """The second coordinate of the first particle."""
    return present.measure.points[0, 1]


TURNING = pf.Flow(drifts.Linear(np.array([[0.0, -1.0], [1.0, 0.0]])))  # (cos t, sin t) from (1, 0)
RIGHT = np.array([[1.0, 0.0]])
FIRST = np.arcsin(0.99)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("observable", "options"),
    [
        (sine, {"rtol": 1e-6, "atol": 1e-8}),
        pytest.param(height, {"rtol": 1e-9, "atol": 1e-11, "solver": "dopri8"}, marks=pytest.mark.slow),
        (height, {"rtol": 1e-10, "atol": 1e-11, "solver": "kvaerno5"}),
        pytest.param(sine, {"step": 5.0, "solver": "tsit5"}, marks=pytest.mark.slow),
        pytest.param(height, {"rtol": 1e-3, "atol": 1e-3, "solver": "tsit5"}, marks=pytest.mark.slow),
        pytest.param(height, {"rtol": 1e-10, "atol": 1e-11, "solver": "kvaerno3"}, marks=pytest.mark.slow),
    ],
)
def test_a_level_that_is_crossed_twice_within_a_step_is_seen(observable, options):
    """sin t is above 0.99 from 1.43 to 1.71 only."""
    run = pf.simulate(TURNING, RIGHT, [0.0, 10.0], **options, event=events.Reached(observable, 0.99))
    allowed = 1e-8 if observable is sine or options.get("rtol") < 1e-8 else 0.1
    assert run.status == "stopped by event"
    assert abs(run.times[-1] - FIRST) < allowed


def steep(present: Any) -> Any:
    """A level whose values next to its root are far from 0, in steps of rounding."""
    return 1e9 * present.measure.points[0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_a_level_that_is_never_small_is_located(precision):
    """sin t = 1/π, where a rounding unit of the level is 32 in float32 and 6e-8 in float64."""
    options: Any = {"rtol": 1e-5, "atol": 1e-6} if precision == np.float32 else {"rtol": 1e-10, "atol": 1e-11}
    flow = jax.tree.map(lambda leaf: leaf.astype(precision), TURNING)
    run = pf.simulate(flow, RIGHT.astype(precision), [0.0, 2.0], **options, event=events.Reached(steep, 1e9 / np.pi))
    assert run.status == "stopped by event"
    assert abs(run.times[-1] - np.arcsin(1 / np.pi)) < {np.float32: 1e-5, np.float64: 1e-9}[precision]


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["euler", "map"])
def test_small_steps_go_on_at_late_times_in_single_precision(solver):
    """ẋ = −1: from 8192 on, steps of 1e-3 are less than half of a rounding unit of a time in float32."""
    start = np.array([[4.0], [1.25]], np.float32)
    times = 8192.0 + np.array([0.0, 0.25, 0.5])
    run = pf.simulate(pf.Flow(Falling()), start, times, step=1e-3, solver=solver)
    assert run.points.dtype == np.float32
    assert run.times.tolist() == times.tolist()
    expected = start[:, 0] - (times - times[0])[:, None]
    allowed = {"euler": 1e-6, "map": 1e-4}[solver]  # a layer is computed in the precision of the state
    assert np.max(np.abs(run.points[:, :, 0] - expected)) < allowed


@pytest.mark.slow
def test_noise_of_a_last_step_that_is_shorter_has_its_variance_and_the_same_path():
    """Brownian motion, var W_t = t: steps of 0.4 to 0.5, and to 0.8, whose path runs through the same points."""
    count, key = 20_000, jax.random.key(5)
    flow, start = pf.Flow(drifts.Linear(0.0), temperature=0.5), np.zeros((count, 1))
    options: dict[str, Any] = {"step": 0.4, "key": key, "max_steps": 8}
    ends = jnp.array([0.4, 0.5, 0.8])
    walk = jax.vmap(lambda end: pf.evolve(flow, start, end, **options).points[:, 0])(ends)
    grid, inside, later = np.asarray(walk)
    spread = 4.5 * np.sqrt(2 / count)
    assert abs(inside.var() / 0.5 - 1) < spread
    assert abs(np.mean((inside - grid) ** 2) / 0.1 - 1) < spread
    assert abs(np.mean((later - inside) ** 2) / 0.3 - 1) < spread
    saved = pf.simulate(flow, start, [0.0, 0.4, 0.8], step=0.4, key=key)
    assert np.max(np.abs(saved.points[1:, :, 0] - np.stack([grid, later]))) < 1e-12


@pytest.mark.parametrize(("merges", "count"), [(1, 1), (5, 2)])
def test_more_merges_than_particles_can_do_are_refused(merges, count):
    with pytest.raises(ArgumentError, match=f"less than the number of particles, {count}, but is {merges}"):
        pf.simulate(TURNING, np.eye(2)[:count], [0.0, 1.0], step=0.5, event=events.Merged(merges, 0.1))


@pytest.mark.slow
def test_a_merge_with_a_particle_without_weight_never_happens():
    """The two close points are one with weight and one without: no edge of the tree is as short as their distance."""
    measure = pf.Measure(np.array([[0.0, 0.0], [0.01, 0.0], [1.0, 0.0]]), np.array([0.0, -np.inf, 0.0]))
    present = pf.Present.of(TURNING, measure)
    assert abs(events.Merged(1, 0.1).level(present) - 0.9) < 1e-12
    assert events.Merged(2, 0.1).level(present) == np.inf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(
            {"step": 0.125, "solver": "euler"},
            f"blew up at t = {overflow_time(0.5, 0.125):g}: after one more step",
            marks=pytest.mark.slow,
        ),
        ({"rtol": 1e-6, "atol": 1e-8, "max_steps": 60}, r"has taken 60 steps at t = 0\.\d+ and is not at its end"),
        pytest.param(
            {"step": 0.125, "solver": "map"},
            f"blew up at t = {overflow_time(0.5, 0.125):g}: after one more step",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_evolution_that_cannot_go_on_says_what_and_when(options, said):
    start = jnp.asarray([[0.5]])
    with pytest.raises(RunError, match=said):
        pf.evolve(SQUARE, start, 20.0, **options)
    sentence = said.split(" at t = ")[0]  # a compiled program does not know when
    with pytest.raises(RuntimeError, match=f"`evolve` {sentence}"):
        eqx.filter_jit(lambda points: pf.evolve(SQUARE, points, 20.0, **options).points)(start)


@pytest.mark.slow
def test_an_evolution_that_cannot_go_on_says_so_under_vmap_and_grad():
    def end(scale):
        return pf.evolve(SQUARE, scale * jnp.ones((1, 1)), 20.0, step=0.125, solver="euler").points[0, 0]

    with pytest.raises(RunError, match="`evolve` blew up at t = "):
        jax.grad(end)(1.0)
    with pytest.raises(RuntimeError, match="`evolve` blew up: after one more step"):
        eqx.filter_jit(jax.vmap(end))(jnp.ones(2))
    np.testing.assert_allclose(jax.grad(end)(0.0), 1.125**160)  # x ← (1 + h) x beside 0
