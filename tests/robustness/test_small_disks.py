"""Every writing command on small file systems: a sentence, exit code 1, nothing lost, and all there once there is room.

The file systems are real ones in memory, which only root may mount. The room that a command has goes from nothing to
more than it needs, so that on its way it is stopped at every kind of file it writes.
"""

import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from test_two_processes import SCENARIO

import particleflow as pf

pytestmark = pytest.mark.slow

PAGE = 4096
LADDER = tuple(PAGE * pages for pages in (0, 1, 3, 8, 30, 120, 500, 4000))  # up to 16 MB
ROOM = 64 << 20


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A file system of so many bytes, empty."""
    place.mkdir()
    options = f"size={max(size, PAGE)},nr_inodes=1000"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.rmdir()


@pytest.fixture(scope="module")
def disks(tmp_path_factory) -> Path:
    if shutil.which("mount") is None:
        pytest.skip("there is no program `mount` here")
    folder = tmp_path_factory.mktemp("disks")
    with small_disk(folder / "trial", PAGE):
        pass
    return folder


def enlarge(place: Path) -> None:
    subprocess.run(["mount", "-o", f"remount,size={ROOM}", str(place)], check=True)


def call(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and what it said; its words are checked for what must never be among them."""
    ended = subprocess.run(
        [sys.executable, "-m", "particleflow", *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode in (0, 1), (arguments, ended.returncode, ended.stderr[-2000:])
    for word in ("Traceback", "fault", "HDF5-DIAG"):
        assert word not in ended.stderr, (arguments, ended.stderr[-2000:])
    if ended.returncode == 1:
        assert "space" in ended.stderr or "disk" in ended.stderr, (arguments, ended.stderr)
    return ended.returncode, ended.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pages_of(folder: Path) -> int:
    """The bytes that a file system needs for a folder: whole pages for every file."""
    return sum(-(-path.stat().st_size // PAGE) * PAGE for path in folder.rglob("*") if path.is_file())


class Made(NamedTuple):
    """Folders that commands begin with, and what they lead to when nothing stops them."""

    scenario: Path
    run: Path
    begun: Path
    killed: Path
    sweep: Path
    waiting: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory, disks) -> Made:
    home = tmp_path_factory.mktemp("made")
    scenario = home / "a.toml"
    text = SCENARIO.replace("page = false\nsummary = false\n", "").replace("frames = 401", "frames = 201")
    scenario.write_text(text.replace("end = 20.0", "end = 10.0"))
    run, sweep, begun, killed, waiting = (home / name for name in ("run", "sweep", "begun", "killed", "waiting"))
    assert call("run", str(scenario), "--output", str(run))[0] == 0
    assert call("sweep", str(scenario), "--output", str(sweep))[0] == 0
    break_off(scenario, begun)
    shutil.copytree(begun, killed)
    shutil.copytree(sweep, waiting)
    manifest = json.loads((waiting / "manifest.json").read_text())
    manifest["runs"][1]["state"] = "waiting"
    (waiting / "manifest.json").write_text(json.dumps(manifest))
    return Made(scenario, run, begun, killed, sweep, waiting)


KILL = """
import os, sys
from pathlib import Path
from particleflow import scenario
from particleflow.app.runs.driver import Listener, PlannedRun, run
frames = lambda each: os._exit(9) if each.progress.frames > 20 else None
run(PlannedRun(scenario.load(sys.argv[1])), Path(sys.argv[2]), Listener(windows=frames))
"""


def break_off(scenario: Path, folder: Path) -> None:
    """A run whose process dies after some windows."""
    folder.mkdir()
    assert subprocess.run([sys.executable, "-c", KILL, str(scenario), str(folder)], check=False).returncode == 9


def check_prefix(folder: Path, whole: Path) -> None:
    """What is there of a run can be read, and is the beginning of the whole run, bit for bit."""
    if (folder / "trajectory.h5").exists():
        with pf.Trajectory.open(folder) as run, pf.Trajectory.open(whole) as expected:
            np.testing.assert_array_equal(run.points, np.asarray(expected.points)[: len(run)])
            assert run.damaged_frames() == {}


def check_whole(folder: Path, whole: Path) -> None:
    with pf.Trajectory.open(folder) as run, pf.Trajectory.open(whole) as expected:
        assert run.status == "finished"
        np.testing.assert_array_equal(run.points, expected.points)
        np.testing.assert_array_equal(run.observables["energy"], expected.observables["energy"])
    assert {"summary.json", "viewer.html"} <= {path.name for path in folder.iterdir()}
    check_tidy(folder)


def check_tidy(folder: Path) -> None:
    assert not [path.name for path in folder.rglob("*") if "partial" in path.name or path.suffix == ".lock"]


def check_sweep(folder: Path, whole: Path) -> None:
    assert {run["state"] for run in json.loads((folder / "manifest.json").read_text())["runs"]} == {"done"}
    for name in ("groups/00000.h5", "groups/00000.npz"):
        assert (folder / name).exists()
    found, expected = (sorted((each / "groups").glob("*.npz")) for each in (folder, whole))
    for one, other in zip(found, expected, strict=True):
        with np.load(one) as first, np.load(other) as second:
            for name in second.files:
                np.testing.assert_array_equal(first[name], second[name])
    assert (folder / "results.csv").read_text() == (whole / "results.csv").read_text()
    check_tidy(folder)


def climb(disks: Path, template: Path | None, attempt: Callable[[Path], int]) -> None:
    """Try on every rung; the lowest must stop the command and the highest must not."""
    codes = []
    for free in LADDER:
        used = 0 if template is None else pages_of(template) + PAGE
        with small_disk(disks / "disk", used + free) as disk:
            if template is not None:
                shutil.copytree(template, disk / "out")
            codes.append(attempt(disk / "out"))
    assert codes[0] == 1
    assert codes[-1] == 0
    assert codes == sorted(codes, reverse=True)


def test_run(disks, made):
    def attempt(out: Path) -> int:
        begin = ["run", str(made.scenario), "--output", str(out)]
        code, _ = call(*begin)
        check_prefix(out, made.run)
        if code:
            enlarge(out.parent)
            begun = (out / "scenario.toml").exists()  # else nothing is left, and the folder can be used
            assert call(*(["resume", str(out)] if begun else begin))[0] == 0
        check_whole(out, made.run)
        return code

    climb(disks, None, attempt)


def test_resume(disks, made):
    def attempt(out: Path) -> int:
        code, _ = call("resume", str(out))
        check_prefix(out, made.run)
        if code:
            enlarge(out.parent)
            assert call("resume", str(out))[0] == 0
        check_whole(out, made.run)
        return code

    climb(disks, made.begun, attempt)


def test_recover(disks, made):
    before = contents(made.killed)["trajectory.h5"]

    def attempt(out: Path) -> int:
        code, _ = call("recover", str(out))
        if code:
            assert contents(out)["trajectory.h5"] == before
            check_prefix(out, made.run)
            enlarge(out.parent)
            assert call("recover", str(out))[0] == 0
        check_prefix(out, made.run)
        with pf.Trajectory.open(out) as run:
            assert run.status == "interrupted"
            assert len(run) > 20
        check_tidy(out)
        return code

    climb(disks, made.killed, attempt)


@pytest.mark.parametrize("again", [False, True], ids=["sweep", "sweep resume"])
def test_sweep(disks, made, again):
    def attempt(out: Path) -> int:
        begin = ["sweep", str(made.scenario), "--output", str(out)]
        code, _ = call("resume", str(out)) if again else call(*begin)
        if code:
            enlarge(out.parent)
            begun = (out / "manifest.json").exists()  # else nothing is left, and the folder can be used
            assert call(*(["resume", str(out)] if begun else begin))[0] == 0
        check_sweep(out, made.sweep)
        return code

    climb(disks, made.waiting if again else None, attempt)


PRODUCTS = {
    "analyze": (["analyze", "RUN"], "summary.json"),
    "plot": (["plot", "RUN"], "figures/snapshots.png"),
    "view": (["view", "RUN", "--no-open"], "viewer.html"),
    "animate": (["animate", "RUN", "--frames", "4"], "movie.mp4"),
    "animate gif": (["animate", "RUN", "--frames", "4", "--output", "RUN/movie.gif"], "movie.gif"),
    "npz": (["export", "RUN", "--to", "npz"], "trajectory.npz"),
    "xyz": (["export", "RUN", "--to", "xyz"], "trajectory.xyz"),
    "h5md": (["export", "RUN", "--to", "h5md"], "trajectory.h5md"),
    "netcdf": (["export", "RUN", "--to", "netcdf"], "trajectory.nc"),
    "gsd": (["export", "RUN", "--to", "gsd"], "trajectory.gsd"),
}
OLD = b"the old one"
NEEDS = {"netcdf": "h5netcdf", "gsd": "gsd", "animate": "imageio_ffmpeg"}


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(disks, made, tmp_path, name):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")
    arguments, product = PRODUCTS[name]
    template = tmp_path / "template"
    shutil.copytree(made.run, template)
    (template / product).parent.mkdir(exist_ok=True)
    (template / product).write_bytes(OLD)
    before = contents(template)

    def attempt(out: Path) -> int:
        wanted = [each.replace("RUN", str(out)) for each in arguments]
        code, _ = call(*wanted)
        after = contents(out)
        pictures = {path: content for path, content in after.items() if path.startswith("figures/")}  # each by itself
        assert all(content == OLD or content.endswith(b"IEND\xaeB`\x82") for content in pictures.values())
        new = {*pictures, *(() if code else (product,))}
        for path, content in before.items():
            assert path in new or after[path] == content, path
        check_tidy(out)
        if code:
            enlarge(out.parent)
            assert call(*wanted)[0] == 0
        assert (out / product).read_bytes() != OLD
        return code

    climb(disks, template, attempt)
