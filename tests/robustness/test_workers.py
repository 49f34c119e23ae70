"""Workers that share a sweep: each run is done once, whatever dies, stops, or has a wrong clock."""

import calendar
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from test_sweep_failures import LAYERS as UNSWEPT

import particleflow as pf
from particleflow import scenario
from particleflow._support import signals
from particleflow.app.cli import main
from particleflow.app.sweep import Manifest, execute, leases, new_sweep, plan_groups, plan_sweep, workers
from particleflow.app.sweep.execute import GroupRunner
from particleflow.app.sweep.groups import lease_path
from particleflow.app.sweep.leases import Lease, holder_of
from particleflow.errors import StoreError, UserError

LAYERS = UNSWEPT + "seed = { count = 4 }\n"


@pytest.fixture
def sweep(tmp_path):
    """A new sweep of four runs, each a group of its own, of which none has been run: its plan and manifest."""
    path = tmp_path / "sweep.toml"
    path.write_text(LAYERS, encoding="utf-8")
    plan = plan_sweep(scenario.load(path))
    return new_sweep(plan, tmp_path / "out", plan_groups(plan, shares=4))


def states(folder):
    return [run["state"] for run in Manifest.open(folder).runs]


def times_done(folder):
    """How often each group was done, by the manifest's own log."""
    return Counter(row["group"] for row in Manifest.open(folder).log if row["state"] in ("done", "failed"))


def results(folder):
    """What every group has found: name → bytes."""
    found = {}
    for path in sorted((folder / "groups").glob("*.npz")):
        with np.load(path) as archive:
            found[path.name] = {name: archive[name].tobytes() for name in archive}
    return found


def foreign(path, seconds_ago, seconds=60.0):
    """A lease of a worker on another machine, whose last sign of life was so long ago."""
    path.parent.mkdir(exist_ok=True)
    content = {"worker": "far-1", "host": "far", "boot": "another", "seconds": seconds}
    path.write_text(json.dumps(content))
    long_ago = time.time() - seconds_ago
    os.utime(path, (long_ago, long_ago))


def test_one_worker_has_a_lease_until_it_gives_it_back(tmp_path):
    path = tmp_path / "0.lease"
    lease = Lease.claim(path, "first")
    assert lease is not None
    with lease:
        assert Lease.claim(path, "second") is None
        holder = holder_of(path)
        assert holder is not None
        assert (holder.worker, holder.alive) == ("first", True)
        lease.check()
    assert holder_of(path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"worker": "a"}', '{"worker": 1, "host": 2, "boot": "", "seconds": -1}']
)
def test_a_lease_whose_text_cannot_be_read_ends_with_its_signs_of_life(tmp_path, text):
    path = tmp_path / "0.lease"
    path.write_text(text)
    assert Lease.claim(path, "second") is None
    os.utime(path, (0.0, 0.0))
    lease = Lease.claim(path, "second")
    assert lease is not None
    lease.release()


def test_the_lease_of_a_process_that_was_killed_is_free_at_once(tmp_path):
    path = tmp_path / "0.lease"
    code = (
        "import sys\nfrom pathlib import Path\nfrom particleflow.app.sweep.leases import Lease\n"
        "Lease.claim(Path(sys.argv[1]), 'a')\ninput()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE) as process:
        while not (holder := holder_of(path)) or holder.worker != "a":
            time.sleep(0.01)
        assert Lease.claim(path, "second") is None
        process.kill()
    lease = Lease.claim(path, "second")
    assert lease is not None
    lease.release()


@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0])
def test_leases_do_not_depend_on_the_clock_of_a_machine(tmp_path, monkeypatch, ahead):
    quiet, lively = tmp_path / "0.lease", tmp_path / "1.lease"
    foreign(quiet, 61.0)
    foreign(lively, 55.0)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead)
    assert Lease.claim(lively, "second") is None
    lease = Lease.claim(quiet, "second")
    assert lease is not None
    lease.release()
    warning = leases.clock_difference(tmp_path)
    if ahead:
        assert warning is not None
        assert f"3600 s {'ahead of' if ahead > 0 else 'behind'} that of the file system" in warning
    else:
        assert warning is None


@pytest.mark.slow
def test_a_worker_shows_signs_of_life(tmp_path):
    path = tmp_path / "0.lease"
    lease = Lease.claim(path, "first", seconds=0.3)
    assert lease is not None
    with lease:
        time.sleep(0.6)
        holder = holder_of(path)
        assert holder is not None
        assert holder.alive
        assert holder.silent < 0.3


@pytest.mark.slow
def test_workers_share_a_sweep(sweep):
    plan, manifest = sweep
    assert manifest.groups == [[0], [1], [2], [3]]
    folder, out = manifest.folder, []
    helpers = [threading.Thread(target=lambda: out.append(workers.work(plan, Manifest.open(folder)))) for _ in range(2)]
    for each in helpers:
        each.start()
    for each in helpers:
        each.join()
    assert out == [None, None]
    assert states(folder) == ["done"] * 4
    assert times_done(folder) == dict.fromkeys(range(4), 1)
    assert not list(folder.rglob("*.lease"))


def test_a_worker_that_was_taken_for_dead_leaves_the_group_to_the_other(sweep, monkeypatch):
    """The first one stops for longer than its lease, the second one ends the group, then the first one goes on."""
    plan, manifest = sweep
    folder = manifest.folder
    real, second = execute.run_group, GroupRunner(plan, Manifest.open(folder))

    def stopped(*given):
        monkeypatch.setattr(execute, "run_group", real)
        result = real(*given)
        foreign(lease_path(folder, 0), 61.0)  # its file is another's now, and that one is silent
        assert second.run(0)
        return result

    monkeypatch.setattr(execute, "run_group", stopped)
    (folder / "groups").mkdir()
    assert not GroupRunner(plan, Manifest.open(folder)).run(0)
    assert times_done(folder) == {0: 1}
    assert [row["worker"] for row in Manifest.open(folder).log if row["state"] == "done"] == [second.name]


def test_resume_is_refused_while_workers_run(sweep, capsys):
    folder = sweep[1].folder
    foreign(lease_path(folder, 2), 5.0)
    assert main(["resume", str(folder)]) == 1
    assert "is being run by 1 worker (far-1 on far)" in capsys.readouterr().err
    assert main(["info", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"] == ["far-1"]


def test_a_worker_is_refused_while_another_process_runs_the_sweep_alone(sweep, monkeypatch):
    plan, manifest = sweep
    monkeypatch.setattr(execute, "_PATIENCE_SECONDS", 0.1)
    with manifest.locked(), pytest.raises(StoreError, match="being written by another process"):
        workers.work(plan, Manifest.open(manifest.folder))


def test_a_worker_stops_before_its_time_is_over(sweep):
    plan, manifest = sweep
    with pytest.raises(workers.OutOfTime):
        workers.work(plan, manifest, stop_before=time.time() + 1.0)
    assert states(manifest.folder) == ["waiting"] * 4
    assert not signals.asked()


def test_the_command_says_that_its_time_is_over(sweep, capsys, monkeypatch):
    folder = sweep[1].folder
    assert main(["work", str(folder), "--stop-before", "1s"]) == 0
    assert "The time is over: 4 waiting." in capsys.readouterr().err
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time())))
    assert main(["work", str(folder)]) == 0
    assert "The time is over" in capsys.readouterr().err
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    assert main(["work", str(folder), "--quiet"]) == 0
    assert states(folder) == ["done"] * 4
    assert (folder / "results.csv").is_file()


def test_times_to_stop_are_read():
    now = time.time()
    assert workers.end_of_time("90") == pytest.approx(now + 90, abs=5)
    assert workers.end_of_time("1.5h") == pytest.approx(now + 5400, abs=5)
    assert workers.end_of_time("2030-01-31T06:00+00:00") == calendar.timegm((2030, 1, 31, 6, 0, 0))
    assert 0 < (workers.end_of_time("00:00") or 0.0) - now <= 86400
    assert workers.end_of_time(None) is None
    for wrong in ("", "soon", "-5m", "25:00", "nan", "inf", "2030-13-01"):
        with pytest.raises(UserError, match="--stop-before must be"):
            workers.end_of_time(wrong)


def test_leases_that_cannot_be_made_are_said(sweep, monkeypatch):
    plan, manifest = sweep
    real = os.open

    def refuse(path, *given, **named):
        if str(path).endswith(".lease") and given[0] & os.O_CREAT:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *given, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match=r"claimed by files in .*groups, which cannot be made: Permission denied"):
        workers.work(plan, manifest)
    assert states(manifest.folder) == ["waiting"] * 4


def command(*arguments):
    return [sys.executable, "-m", "particleflow", *map(str, arguments)]


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing_and_do_nothing_twice(tmp_path):
    """Each of four workers is killed while it runs a group, again and again; the results are those of a quiet sweep."""
    path = tmp_path / "sweep.toml"
    path.write_text(LAYERS.replace("count = 4 }\n", "count = 200 }\n"), encoding="utf-8")
    plan = plan_sweep(scenario.load(path))
    assert len(plan.runs) == 200
    folders = [new_sweep(plan, tmp_path / name, plan_groups(plan, shares=200))[1].folder for name in ("alone", "out")]
    workers.work(plan, Manifest.open(folders[0]))
    environment = {**os.environ, "PYTHONPATH": str(Path(pf.__file__).parents[1])}
    folder = folders[1]

    def start():
        return subprocess.Popen(command("work", folder, "--quiet", "--no-products"), env=environment)

    crew = [start() for _ in range(4)]
    kills = 0
    try:
        while set(states(folder)) != {"done"}:
            time.sleep(0.2)
            holders = {holder.worker for holder in Manifest.open(folder).workers().values()} if kills < 100 else set()
            for place, each in enumerate(crew):
                if kills < 100 and any(f"-{each.pid}-" in worker for worker in holders):  # in the middle of a group
                    each.kill()
                    each.wait()
                    crew[place] = start()
                    kills += 1
                    break
    finally:
        for each in crew:
            each.terminate()
        for each in crew:
            each.wait()
    assert times_done(folder) == dict.fromkeys(range(200), 1)
    assert results(folder) == results(folders[0])
    begun = sum(row["state"] == "begun" for row in Manifest.open(folder).log)
    print(f"{kills} kills, {begun} groups begun")
    assert kills == 100
    assert begun > 250  # most kills hit a group that was under way
