"""Stored runs are the runs in memory, bit for bit, also after an interruption; windows bound the memory."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import kernels, observables
from particleflow.errors import ArgumentError, ResumedElsewhere

FLOW = pf.Flow(pf.Attend(kernels.Attention(beta=4.0)), geometry=pf.Sphere())
START = oracle.random_sphere(1, 6, 3)
TIMES = np.linspace(0.0, 6.0, 25)
OPTIONS: dict[str, Any] = {
    "rtol": 1e-9,
    "atol": 1e-11,
    "solver": "tsit5",
    "observe": [observables.energy],
    "window": 4,
}


def run(**options):
    return pf.simulate(FLOW, START, TIMES, **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def whole():
    return run()


def check_same(found, expected):
    assert found.times.tolist() == expected.times.tolist()
    assert (np.asarray(found.points) == np.asarray(expected.points)).all()
    assert (np.asarray(found.observables["energy"]) == np.asarray(expected.observables["energy"])).all()


@pytest.mark.slow
def test_stored_run_is_the_run_in_memory(tmp_path, whole):
    with run(store=tmp_path / "run.h5") as stored:
        check_same(stored, whole)
        assert stored.status == "finished"
        counts = ("accepted steps", "rejected steps", "field evaluations")
        assert [stored.metadata["statistics"][c] for c in counts] == [whole.metadata["statistics"][c] for c in counts]


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 25])
def test_windows_agree_to_tolerance(window, whole):
    assert np.max(np.abs(run(window=window).points - whole.points)) < 1e-7


def test_stream_yields_windows(whole):
    sizes = []
    for frames in pf.stream(FLOW, START, TIMES, **OPTIONS):
        sizes.append(len(frames.times))
        first = frames.first
        assert (frames.points == np.asarray(whole.points)[first : first + len(frames.times)]).all()
    assert sizes == [4, 4, 4, 4, 4, 4, 1]


def test_run_broken_off_is_resumed_bit_for_bit(tmp_path, whole):
    def stop(frames):
        if frames.progress.frames >= 12:
            time.sleep(0.2)  # so that the seconds before the interrupt are more than those after it
            raise KeyboardInterrupt

    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        run(store=tmp_path / "run.h5", progress=stop)
    with pf.Trajectory.open(tmp_path / "run.h5") as part:
        assert part.status == "interrupted"
        assert len(part) == 12
        before = part.metadata["statistics"]["wall seconds"]
        assert before >= 0.2
    with run(store=tmp_path / "run.h5", resume=True) as resumed:
        check_same(resumed, whole)
        assert resumed.status == "finished"
        assert resumed.metadata["statistics"]["accepted steps"] == whole.metadata["statistics"]["accepted steps"]
        assert before < resumed.metadata["statistics"]["wall seconds"] <= time.perf_counter() - begun


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signal_ends_the_run_after_its_window(tmp_path, whole, number):
    def interrupt(frames):
        if frames.progress.frames == 8:
            os.kill(os.getpid(), number)

    with run(store=tmp_path / "run.h5", progress=interrupt) as part:
        assert part.status == "interrupted"
        assert len(part) == 8
    with run(store=tmp_path / "run.h5", resume=True) as resumed:
        check_same(resumed, whole)


def test_resuming_with_other_settings_is_refused(tmp_path):
    def stop(frames):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(store=tmp_path / "run.h5", progress=stop)
    with pytest.raises(ArgumentError, match="was made with other settings"):
        run(store=tmp_path / "run.h5", resume=True, rtol=1e-8)
    hotter = pf.Flow(pf.Attend(kernels.Attention(beta=5.0)), geometry=pf.Sphere())
    with pytest.raises(ArgumentError, match="was made with other settings"):
        pf.simulate(hotter, START, TIMES, **OPTIONS, store=tmp_path / "run.h5", resume=True)


KILLED = """
import sys
import time
sys.path.insert(0, {folder!r})
import test_stored_runs as case
def slow(frames):
    print(frames.progress.frames, flush=True)
    if frames.progress.frames >= 12:
        import time
        time.sleep(60)
case.run(store={path!r}, progress=slow)
"""


def test_killed_run_is_resumed_bit_for_bit(tmp_path, whole):
    path = tmp_path / "run.h5"
    code = KILLED.format(folder=str(Path(__file__).parent), path=str(path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= 12:
                break
        child.kill()
    assert child.returncode == -signal.SIGKILL
    with pf.Trajectory.open(path) as part:
        assert len(part) == 12
        assert (np.asarray(part.points) == np.asarray(whole.points)[:12]).all()
    with run(store=path, resume=True) as resumed:
        check_same(resumed, whole)


def test_only_some_particles_in_single_precision(tmp_path, whole):
    with run(store=tmp_path / "run.h5", particles=[4, 1], storage="float32", labels=[9, 8, 7, 6, 5, 4]) as stored:
        expected = np.asarray(whole.points)[:, [4, 1]]
        assert stored.points.dtype == np.float32
        assert np.max(np.abs(np.asarray(stored.points) - expected)) < 1e-7
        assert np.asarray(stored.labels).tolist() == [5, 8]


def test_card_tells_what_the_run_cost(whole):
    card, statistics = str(whole), whole.metadata["statistics"]
    for name in ("accepted steps", "rejected steps", "field evaluations"):
        assert str(statistics[name]) in card, name
    for word in ("25", "6 in dimension 3", "Native", "wall", "memory"):
        assert word in card, word


def test_a_run_that_goes_on_elsewhere_says_so(tmp_path, whole, monkeypatch):
    windows = 0

    def stop(_):
        nonlocal windows
        windows += 1
        if windows == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(store=tmp_path / "run.h5", progress=stop)
    monkeypatch.setattr("platform.python_version", lambda: "3.99.1")
    with pytest.warns(ResumedElsewhere, match=r"platform .*Python 3\.99\.1.* last digits"):
        resumed = run(store=tmp_path / "run.h5", resume=True)
    with resumed:
        check_same(resumed, whole)
        assert "Python 3.99.1" in resumed.metadata["statistics"]["resumed elsewhere"]
