"""Sweeps as Slurm job arrays: the script, and a real Slurm on this machine that cancels and requeues."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_two_processes import SCENARIO
from test_workers import LAYERS, results, states, times_done

import particleflow as pf
from local_slurm import local_slurm, why_not
from particleflow import scenario
from particleflow.app.cli import main
from particleflow.app.sweep import Manifest, new_sweep, plan_groups, plan_sweep
from particleflow.app.sweep.slurm import submit, sweep_script
from particleflow.app.sweep.workers import work
from particleflow.errors import StoreError, UserError
from same_files import datasets


def directives(script):
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]


def test_a_script_is_one_worker_a_task(tmp_path):
    folder = tmp_path / "a sweep; rm -rf $HOME `date`"
    script = sweep_script(folder, ["--array=0-7%2", "--time=00:10:00"], ["--native", "off"])
    assert directives(script)[1:4] == ["--array=0-7%2", "--time=00:10:00", f'--output="{folder}/slurm/%A_%a.out"']
    last = script.splitlines()[-1]
    assert shlex.split(last) == ["exec", sys.executable, "-m", "particleflow", "work", str(folder), "--native", "off"]
    assert "%%A" in sweep_script(tmp_path / "%A", [], [])  # of the folder, which Slurm would replace


def test_a_run_by_several_tasks_is_frozen_and_its_script_printed(tmp_path, capsys, monkeypatch):
    path, folder = tmp_path / "run.toml", tmp_path / "out"
    path.write_text(SCENARIO[: SCENARIO.index("[sweep]")], encoding="utf-8")
    command = ["run", str(path), "--output", str(folder), "--slurm", "--dry-run", "--devices", "2"]
    assert main(command) == 2
    assert "Option --slurm needs --tasks" in capsys.readouterr().err
    assert main([*command, "--tasks", "3", "--time", "00:10:00"]) == 0
    said = capsys.readouterr().out
    assert said == (folder / "slurm.sh").read_text()
    assert directives(said)[1:3] == ["--ntasks=3", "--time=00:10:00"]
    assert "--signal=TERM@60" in directives(said)  # to all tasks
    last = shlex.split(said.splitlines()[-1])
    assert last == ["exec", "srun", sys.executable, "-m", "particleflow", "resume", str(folder), "--devices", "2"]
    assert "count = 40" in (folder / "scenario.toml").read_text()
    assert main(["run", str(path), "--output", str(tmp_path / "other"), "--tasks", "3"]) == 2
    assert "Option --tasks is for Slurm: add --slurm" in capsys.readouterr().err


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline"])
def test_a_folder_that_a_script_cannot_name_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="must not have quotes"):
        sweep_script(tmp_path / name, [], [])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(LAYERS, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dry-run"], "Option --dry-run is for Slurm: add --slurm"),
        (["--array-limit", "3"], "Option --array-limit is for Slurm"),
        (["--slurm", "--time", "1; date"], "Option --time must be written as for sbatch, but is '1; date'"),
        (["--slurm", "--partition", "a\n#SBATCH"], "Option --partition must be written as for sbatch"),
        (["--slurm", "--array-limit", "0"], "Option --array-limit must be at least 1"),
    ],
)
def test_wrong_options_are_said_before_anything_is_made(file, tmp_path, capsys, options, said):
    assert main(["sweep", str(file), "--output", str(tmp_path / "out"), *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_prints_the_script_and_submits_nothing(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    folder = tmp_path / "out"
    assert main(["sweep", str(file), "--output", str(folder), "--slurm", "--dry-run", "--workers", "3"]) == 0
    said = capsys.readouterr()
    assert said.out == (folder / "slurm.sh").read_text()
    assert "--array=0-2" in directives(said.out)
    assert states(folder) == ["waiting"] * 4
    with pytest.raises(UserError, match="sbatch cannot be started on this machine"):
        submit(folder / "slurm.sh", "work")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if reason := why_not():
        pytest.skip(reason)
    with local_slurm(tmp_path_factory.mktemp("slurm"), cores=len(os.sched_getaffinity(0))) as environment:
        yield {**environment, "PYTHONPATH": str(Path(pf.__file__).parents[1])}


def asked(environment, *command):
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.slow
def test_two_tasks_share_a_run_and_a_cancelled_job_goes_on(slurm, tmp_path):
    """Two tasks of srun find each other; the job is cancelled after some windows and submitted once more."""
    path, folder = tmp_path / "run.toml", tmp_path / "out"
    path.write_text(SCENARIO[: SCENARIO.index("[sweep]")].replace("count = 40", "count = 250"), encoding="utf-8")
    assert main(["run", str(path), "--output", str(tmp_path / "alone"), "--devices", "1", "--quiet"]) == 0
    command = [sys.executable, "-m", "particleflow", "run", str(path), "--slurm", "--tasks", "2", "--quiet"]
    subprocess.run([*command, "--output", str(folder)], env=slurm, check=True, capture_output=True)
    while asked(slurm, "squeue", "-h", "-o", "%A") and not frames_in(folder):
        time.sleep(0.1)
    for job in asked(slurm, "squeue", "-h", "-o", "%A"):
        subprocess.run(["scancel", job], env=slurm, check=False, capture_output=True)
    messages = "\n".join(each.read_text() for each in (folder / "slurm").iterdir())
    assert 0 < frames_in(folder) < 401, messages
    while asked(slurm, "squeue", "-h", "-o", "%A"):
        time.sleep(0.5)
    subprocess.run(["sbatch", str(folder / "slurm.sh")], env=slurm, check=True, capture_output=True)
    while asked(slurm, "squeue", "-h", "-o", "%A"):
        time.sleep(0.5)
    messages = "\n".join(each.read_text() for each in (folder / "slurm").iterdir())
    assert frames_in(folder) == 401, messages
    assert datasets(folder / "trajectory.h5") == datasets(tmp_path / "alone" / "trajectory.h5")


def frames_in(folder):
    """The number of frames that a run has stored so far."""
    try:
        with pf.Trajectory.open(folder / "trajectory.h5") as run:
            return len(run)
    except (OSError, StoreError):
        return 0


@pytest.mark.slow
def test_cancelled_and_requeued_tasks_lose_nothing(slurm, tmp_path):
    """Tasks of a real array are requeued and cancelled while they run; a second array ends what is left."""
    path = tmp_path / "sweep.toml"
    path.write_text(LAYERS.replace("count = 4 }\n", "count = 60 }\n"), encoding="utf-8")
    plan = plan_sweep(scenario.load(path))
    alone = new_sweep(plan, tmp_path / "alone", plan_groups(plan, shares=16))[1]
    work(plan, alone)
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "particleflow", "sweep", str(path), "--slurm", "--workers", "4", "--quiet"]
    subprocess.run([*command, "--output", str(folder)], env=slurm, check=True, capture_output=True)
    for action in ("requeue", "requeue", "cancel"):
        begun = len(Manifest.open(folder).log)
        while len(Manifest.open(folder).log) == begun and "waiting" in states(folder):
            time.sleep(0.2)
        running = asked(slurm, "squeue", "-h", "-t", "R", "-o", "%A")
        for job in running[:1]:
            order = ["scontrol", "requeue", job] if action == "requeue" else ["scancel", job]
            subprocess.run(order, env=slurm, check=False, capture_output=True)
    while asked(slurm, "squeue", "-h", "-o", "%A %T"):
        time.sleep(0.5)
    if set(states(folder)) != {"done"}:  # every task may have been cancelled
        subprocess.run(["sbatch", str(folder / "slurm.sh")], env=slurm, check=True, capture_output=True)
        while asked(slurm, "squeue", "-h", "-o", "%A %T"):
            time.sleep(0.5)
    messages = "\n".join(each.read_text() for each in (folder / "slurm").iterdir())
    assert set(states(folder)) == {"done"}, messages
    assert set(times_done(folder).values()) == {1}
    assert len(times_done(folder)) == len(Manifest.open(folder).groups)
    assert results(folder) == results(alone.folder)
    assert (folder / "results.csv").is_file()
