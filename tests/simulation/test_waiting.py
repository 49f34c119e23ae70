"""What a user waits for: windows begin short and grow by a rule, progress is true, Ctrl-C is answered at once."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import kernels
from particleflow._support import signals
from particleflow._support.progress import TimeLeft
from particleflow._support.text import duration
from particleflow.app.cli import main
from particleflow.app.cli.console import Meter, RunMeter
from particleflow.app.cli.signal_thread import answering_signals
from particleflow.simulation.plan import Stepping, make_plan

FLOW = pf.Flow(pf.Attend(kernels.Attention(4.0)), geometry=pf.Sphere())
LARGE = """
title = "Large"
initial = { kind = "uniform_sphere", dim = 3, count = %d }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 9.0 }
[time]
end = 20.0
frames = 401
rtol = 1e-8
atol = 1e-10
"""


def sphere(count: int) -> np.ndarray:
    points = np.random.default_rng(0).normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def plan_of(count: int, frames: int, **options: Any) -> Any:
    return make_plan(FLOW, sphere(count), np.linspace(0, 1, frames), Stepping(rtol=1e-6, atol=1e-8), **options)


def lengths(plan: Any) -> list[int]:
    found, first = [], 0
    while first < len(plan.times):
        found.append(plan.window_times(first).frames)
        first += found[-1]
    return found


@pytest.mark.parametrize(
    ("count", "frames", "window", "expected"),
    [
        (16, 100, None, [2, 2, 4, 8, 16, 32, 32, 4]),  # the start and a frame, then doubling
        (16, 1, None, [1]),
        (16, 3, None, [2, 1]),
        (1448, 70, None, [2, 2, 4, 8, 16, 32, 6]),
        (16, 10, 4, [4, 4, 2]),  # as asked
    ],
)
def test_windows_begin_short_and_grow_by_a_rule(count, frames, window, expected):
    assert lengths(plan_of(count, frames, window=window)) == expected


TRACED: list[int] = []


def watched(present: Any) -> Any:
    TRACED.append(1)
    return jnp.sum(present.measure.points)


@pytest.mark.slow
def test_growing_windows_are_one_program_and_resume_bit_for_bit(tmp_path):
    times, options = np.linspace(0, 3, 40), {"rtol": 1e-6, "atol": 1e-8, "observe": [watched]}
    whole = pf.simulate(FLOW, sphere(16), times, **options)
    traces = len(TRACED)
    for cut in (2, 16):
        path = tmp_path / f"{cut}.h5"

        def stop(frames, cut=cut):
            if frames.progress.frames == cut:
                signals.ask()

        try:
            with pf.simulate(FLOW, sphere(16), times, **options, store=path, progress=stop) as part:
                assert (part.status, len(part)) == ("interrupted", cut)
        finally:
            signals.forget()
        with pf.simulate(FLOW, sphere(16), times, **options, store=path, resume=True) as resumed:
            assert np.array_equal(np.asarray(resumed.points), np.asarray(whole.points))
            assert np.array_equal(np.asarray(resumed.observables["watched"]), np.asarray(whole.observables["watched"]))
    assert len(TRACED) - traces <= 2 * 4  # shapes are looked at for every file; the run is compiled no more


def started(command: list[Any], log: Path) -> subprocess.Popen:
    with log.open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "particleflow", *map(str, command)], stderr=errors, stdout=errors
        )


def wait_for(text: str, log: Path, seconds: float) -> float:
    """How long it takes until a log has this text."""
    begin = time.monotonic()
    while text not in log.read_text():
        assert time.monotonic() - begin < seconds, f"{text!r} is not in {log.read_text()!r}"
        time.sleep(0.01)
    return time.monotonic() - begin


def interrupted(count: int, tmp_path: Path, *settings: str) -> tuple[float, float, Path]:
    """Begin a run of so many particles and interrupt it within a window: seconds to the answer, and to the end."""
    scenario, folder, log = tmp_path / "large.toml", tmp_path / "run", tmp_path / "log"
    scenario.write_text(LARGE % count, encoding="utf-8")
    products = ["--no-summary", "--no-figures", "--no-movie", "--no-page"]
    process = started(["run", scenario, "--output", folder, *products, *settings], log)
    try:
        wait_for("simulating", log, 300)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        answer = wait_for("again to quit now", log, 20)
        begin = time.monotonic()
        assert process.wait(120) == 130
        return answer, time.monotonic() - begin, folder
    finally:
        process.kill()


def test_ctrl_c_is_answered_at_once_and_obeyed_after_the_window(tmp_path):
    answer, end, folder = interrupted(
        1500, tmp_path, "--set", "time.rtol=", "time.atol=", "time.step=0.05", "time.solver=map"
    )
    assert answer < 1.0  # 0.1 s on a machine that has nothing else to do
    assert end < 60
    with pf.Trajectory.open(folder) as cut:
        assert cut.status == "interrupted"
        assert len(cut) >= 2
    assert f"particleflow resume {folder}" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_ctrl_c_at_thirty_thousand_particles(tmp_path):
    answer, end, _ = interrupted(30_000, tmp_path)
    assert answer < 1.0
    assert end < 100  # a window of one frame cannot be cut


@pytest.mark.slow
def test_a_second_ctrl_c_quits_now(tmp_path):
    scenario, log = tmp_path / "large.toml", tmp_path / "log"
    scenario.write_text(LARGE % 12_000, encoding="utf-8")
    process = started(["run", scenario, "--output", tmp_path / "run"], log)
    try:
        wait_for("compiling", log, 100)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        wait_for("again to quit now", log, 20)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()


def test_work_that_was_asked_to_stop_ends_at_its_next_word(capsys):
    def work() -> int:
        with Meter(quiet=True) as meter:
            for done in range(10_000):
                if done == 3:
                    os.kill(os.getpid(), signal.SIGINT)
                meter.update("filming", done, 10_000)
                time.sleep(0.01)
        return 0

    with pytest.raises(KeyboardInterrupt):
        answering_signals(work)
    assert not signals.asked()
    assert "again to quit now" in capsys.readouterr().err


def test_an_interrupted_movie_leaves_nothing_and_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    with pf.store.TrajectoryWriter.create(tmp_path, count=3, dimension=2) as writer:
        writer.append(np.arange(2.0), np.arange(2), np.arange(12.0).reshape(2, 3, 2))
    keep, told = Meter.update, []

    def update(self: Meter, label: str, *numbers: Any) -> None:
        if label == "filming" and not told:
            told.append(label)
            os.kill(os.getpid(), signal.SIGINT)
            while not signals.asked():
                time.sleep(0.01)
        keep(self, label, *numbers)

    monkeypatch.setattr(Meter, "update", update)
    assert main(["animate", str(tmp_path)]) == 130
    assert "the same command begins anew" in capsys.readouterr().err
    assert told
    assert not list(tmp_path.glob("*movie*"))


def test_codes_and_errors_of_commands_come_through():
    assert answering_signals(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        answering_signals(lambda: 1 // 0)
    assert main(["info", "no such folder"]) == 2


def test_progress_says_how_fast_and_how_long(capsys, monkeypatch):
    clock = iter(np.arange(0.0, 1000.0, 10.0))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    shown: list[str] = []
    meter = SimpleNamespace(quiet=False, update=lambda label, done, total, details: shown.append(details))
    progress, hand = RunMeter(meter, 4.0, 40), iter(np.arange(0.0, 1000.0, 10.0))  # type: ignore[arg-type]
    progress.time_left = TimeLeft(4.0, lambda: float(next(hand)))
    for frames, fields in zip(range(2, 22, 2), [10, *[50] * 9], strict=True):
        state = SimpleNamespace(time=frames / 10, proposed=np.array([0.1]), frames=frames)
        cloud = np.zeros((1, 100, 3))
        window = SimpleNamespace(times=[0.0], progress=state, observables={}, points=cloud, pairs=fields * 100**2)
        progress(window)
    assert "pairs/s" not in shown[0]
    assert "5.0e+04 pairs/s" in shown[1]  # 50 fields of 100² pairs in 10 s
    assert "left" not in shown[1]  # the rate may still change
    assert "about 2 min left" in shown[-1]  # half of the time, at .2 in 10 s
    assert "1 cluster " in shown[1] + " "


@pytest.mark.parametrize(("seconds", "said"), [(3, "3 s"), (89, "89 s"), (150, "2 min"), (7200, "2.0 h")])
def test_durations(seconds, said):
    assert duration(seconds) == said


def test_a_pipe_gets_a_line_for_the_begin_and_one_for_the_end_however_often_it_is_told(capsys):
    with Meter(quiet=False) as meter:
        for done in (0, 1, 2, 3, 3, 3):
            meter.update("figures", done, 3)
        meter.update("page", 0, 0)
    said = [line.split("  [")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == ["figures 0 %", "figures 100 %", "page"]


@pytest.mark.parametrize("width", [80, 160])
def test_percentage_and_time_are_shown_in_narrow_terminals(width):
    """Details that do not fit are cut; what tells how long to wait is not."""
    from rich.console import Console

    from particleflow._support.progress import make_bar

    said = io.StringIO()
    with make_bar(Console(file=said, width=width, force_terminal=True, color_system=None)) as bar:
        bar.add_task("compiling, then the first frame", total=1, completed=1, details="")
        bar.add_task("simulating", total=100, completed=56, details="t = 11.18 of 20  step 0.49  energy 114.949  " * 2)
    last = [line for line in said.getvalue().splitlines() if "simulating" in line][-1]
    assert " 56% t = 11.18" in last
    assert "0:00:00" in last
