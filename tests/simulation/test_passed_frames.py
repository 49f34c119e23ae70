"""Frames of large clouds cost no steps: windows end between frames, and states at frames are interpolated.

A cloud is large from 1,449 particles on, where windows would otherwise hold fewer than 32 frames. Here it is fifteen
points, each of them a hundred times, which move as the fifteen alone: SciPy solves for those.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, events, kernels
from particleflow.errors import RunError
from particleflow.simulation.plan import Stepping, make_plan
from shares import by_default

FEW, COPIES, BETA, END = 15, 100, 4.0, 2.0
FLOW = pf.Flow(pf.Attend(kernels.Attention(BETA)), geometry=pf.Sphere())
FIFTEEN = oracle.random_sphere(3, FEW, 3)
START = np.repeat(FIFTEEN, COPIES, axis=0)
TOLERANCES: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8}


FRAMES = 300
CALLS: list[int] = []


def counted(present: Any) -> Any:
    jax.debug.callback(lambda: CALLS.append(1))
    return jnp.sum(present.measure.points)


def run(frames: int = FRAMES, **options: Any) -> pf.Trajectory:
    return pf.simulate(FLOW, START, np.linspace(0.0, END, frames), **{**TOLERANCES, "observe": [counted], **options})


def steps_of(found: pf.Trajectory) -> list[int]:
    return [found.metadata["statistics"][name] for name in ("accepted steps", "rejected steps", "field evaluations")]


@pytest.fixture(scope="module")
def whole() -> pf.Trajectory:
    return run()


def exact(times: Any, beta: float = BETA) -> np.ndarray:
    """The fifteen points at these times."""
    return oracle.on_sphere(oracle.solve(oracle.attention_field(beta, sphere=True), FIFTEEN, times))


def worst(points: Any, expected: np.ndarray) -> float:
    return float(np.max(np.abs(points - np.repeat(expected, COPIES, axis=-2))))


@pytest.mark.slow
@pytest.mark.parametrize("frames", by_default([2, 3, 26, 101, 700], [700]))
def test_field_evaluations_depend_on_the_span_alone(frames, whole):
    """A window has room for 256 frames, and no step of this run passes more."""
    assert steps_of(run(frames)) == steps_of(whole)


@pytest.mark.slow
def test_windows_end_with_steps_and_frames_lie_on_the_solution(whole):
    sizes, ends = [], []
    for window in pf.stream(FLOW, START, whole.times, **TOLERANCES, observe=[counted]):
        sizes.append(len(window.times))
        ends.append(window.progress.time)
        assert window.times[-1] <= window.progress.time
    assert sum(sizes) == FRAMES
    assert len(set(sizes)) > 1
    assert np.isin(ends, whole.times).tolist() == [False] * (len(ends) - 1) + [True]
    assert worst(whole.points, exact(whole.times)) < TOLERANCES["rtol"]


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["bosh3", "dopri5", "dopri8", "heun", "midpoint", "ralston", "tsit5"])
@pytest.mark.parametrize("rtol", [1e-4, 1e-6])
def test_interpolated_frames_are_as_exact_as_steps(solver, rtol):
    """At most five times the tolerance off, as at the ends of steps."""
    found = run(101, solver=solver, rtol=rtol, atol=rtol / 100)
    assert worst(found.points, exact(found.times)) < 5 * rtol


@pytest.mark.slow
def test_a_window_without_room_cuts_its_last_step():
    """Frames of 16 MiB: there is room for eight."""
    span, wide = np.linspace(0.0, END, 26), np.ones((1, 2**21))
    plan = make_plan(pf.Flow(drifts.Linear(-1.0)), wide, span, Stepping(**TOLERANCES))
    assert (plan.window, plan.passing) == (8, 2)
    found = pf.simulate(pf.Flow(drifts.Linear(-1.0)), wide, span, **TOLERANCES)
    assert np.max(np.abs(found.points[:, 0, [0, -1]] - np.exp(-span)[:, None])) < 1e-6


@pytest.mark.slow
def test_observables_are_evaluated_at_frames_alone(whole):
    jax.effects_barrier()
    before = len(CALLS)
    assert len(run()) == FRAMES
    jax.effects_barrier()
    assert len(CALLS) - before == FRAMES


def stop_after(frames: int) -> Any:
    def stop(window: Any) -> None:
        if window.progress.frames >= frames:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("least", by_default([1, 80, 200], [80]))
def test_a_run_stopped_between_frames_is_resumed_bit_for_bit(tmp_path, whole, least):
    with pytest.raises(KeyboardInterrupt):
        run(store=tmp_path / "run.h5", progress=stop_after(least))
    with pf.Trajectory.open(tmp_path / "run.h5") as part:
        assert least <= len(part) < FRAMES
        assert part.metadata["statistics"]["end time"] > part.times[-1]
    with run(store=tmp_path / "run.h5", resume=True) as resumed:
        assert resumed.times.tolist() == whole.times.tolist()
        assert (np.asarray(resumed.points) == np.asarray(whole.points)).all()
        assert steps_of(resumed) == steps_of(whole)


KILLED = """
import sys, time
sys.path[:0] = {paths!r}
import test_passed_frames as case
def hold(window):
    print(window.progress.frames, flush=True)
    if window.progress.frames >= 80:
        time.sleep(60)
case.run(store={store!r}, progress=hold)
"""


@pytest.mark.slow
def test_a_killed_run_is_resumed_bit_for_bit(tmp_path, whole):
    modules = (sys.modules[__name__], oracle, sys.modules["shares"])
    paths = [str(Path(module.__file__ or "").parent) for module in modules]
    code = KILLED.format(paths=paths, store=str(tmp_path / "run.h5"))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        next(line for line in child.stdout if int(line) >= 80)
        child.kill()
    assert child.returncode == -signal.SIGKILL
    with run(store=tmp_path / "run.h5", resume=True) as resumed:
        assert (np.asarray(resumed.points) == np.asarray(whole.points)).all()


@pytest.mark.slow
@pytest.mark.parametrize("frames", [3, 26, 101])
def test_an_event_between_frames_is_located_as_in_a_small_cloud(frames):
    """SciPy finds when the fifteen are within 0.7 of each other; the frames before are kept, the event is the last."""

    def level(time: float, flat: np.ndarray) -> float:
        points = oracle.on_sphere(flat.reshape(FEW, 3))
        return float(np.max(np.linalg.norm(points[:, None] - points[None], axis=2))) - 0.7

    field, flow = oracle.attention_field(1.0, sphere=True), pf.Flow(pf.Attend(kernels.Attention(1.0)), pf.Sphere())
    level.terminal = True  # type: ignore[attr-defined]
    solved = solve_ivp(
        lambda t, y: field(t, y.reshape(FEW, 3)).ravel(), (0.0, 20.0), FIFTEEN.ravel(), method="DOP853",
        events=level, rtol=1e-12, atol=1e-13,
    )  # fmt: skip
    when = float(solved.t_events[0][0])
    times = np.linspace(0.0, 20.0, frames)
    found = pf.simulate(flow, START, times, rtol=1e-9, atol=1e-11, event=events.Clustered(0.7))
    assert found.status == "stopped by event"
    assert found.times.tolist() == [*times[times < when], found.times[-1]]
    assert abs(found.times[-1] - when) < 1e-7
    assert worst(found.points, exact(found.times, 1.0)) < 1e-7


@pytest.mark.slow
def test_layers_that_jump_between_frames_agree_with_scipy():
    layers = drifts.Layers([pf.Attend(kernels.Attention(beta=beta)) for beta in (1.0, 4.0)], duration=0.7)
    times = np.linspace(0.0, 1.4, 12)
    found = pf.simulate(pf.Flow(layers, pf.Sphere()), START, times, rtol=1e-8, atol=1e-10)
    first = exact([*times[times < 0.7], 0.7], 1.0)
    after = oracle.solve(oracle.attention_field(4.0, sphere=True), first[-1], [0.7, *times[times > 0.7]])
    expected = np.concatenate([first[:-1], oracle.on_sphere(after)[1:]])
    assert worst(found.points, expected) < 5e-8


@pytest.mark.slow
def test_frames_before_a_blow_up_are_kept():
    """ẋ = x² from 1 is 1/(1 − t)."""

    times = np.linspace(0.0, 2.0, 40)
    with pytest.raises(RunError, match=r"blew up at t = (0\.99|1\.0)\d*, .* All frames before are kept") as caught:
        pf.simulate(pf.Flow(drifts.FunctionDrift(lambda t, x, mu: x**2)), np.ones((1500, 1)), times, **TOLERANCES)
    kept = caught.value.trajectory
    assert kept is not None
    assert kept.times.tolist() == times[times < 0.999].tolist()
    assert np.max(np.abs(kept.points[:, 0, 0] * (1 - kept.times) - 1)) < 1e-4


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (1448, {}, (32, None)),  # windows of as many frames as any
        (1449, {}, (100, 31)),  # 2²⁶ pairs a window
        (9000, {}, (100, 1)),
        (9000, {"window": 4}, (4, None)),  # as asked
        (9000, {"solver": "kvaerno3"}, (1, None)),  # steps to every frame
        (9000, {"step": 1 / 99}, (1, None)),
        (9000, {"discretization": pf.Particles(coalesce=1e-9)}, (1, None)),  # merges at frames
    ],
)
def test_steps_pass_frames_where_windows_are_short_and_nothing_else_needs_their_ends(count, options, expected):
    stepping = {name: options.pop(name) for name in ("solver", "step") if name in (options := dict(options))}
    steps = {**({} if "step" in stepping else TOLERANCES), **stepping}
    points = np.resize(FIFTEEN, (count, 3))
    plan = make_plan(FLOW, points, np.linspace(0, 1, 100), Stepping(**steps), **options)
    assert (plan.window, plan.passing) == expected
    ensemble = make_plan(FLOW, np.stack([points[:1449]] * 2), np.linspace(0, 1, 100), Stepping(**TOLERANCES))
    assert ensemble.passing is None
