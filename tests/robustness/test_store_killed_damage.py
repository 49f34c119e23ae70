"""Bit flips in the file of a killed process, and full disks: nothing hangs or crashes, and what is shown is right."""

import faulthandler
import importlib.util
import json
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from particleflow.errors import StoreError
from particleflow.trajectory.store import TrajectoryWriter, recover
from particleflow.trajectory.trajectory import Trajectory

FRAMES, COUNT = 40, 30
LIMIT = 10  # seconds that one look at a damaged file may take; a sound one takes a hundredth of one

WRITE_AND_WAIT = """
    import sys, time
    import numpy as np
    from particleflow.trajectory.store import TrajectoryWriter
    points = np.random.default_rng(8).normal(size=(40, 30, 3))
    writer = TrajectoryWriter.create(sys.argv[1], count=30, dimension=3, observables={"energy": ()},
                                     log_weights=np.linspace(-1, 0, 30), provenance={"title": "killed"}, fsync=False)
    for start in range(0, 40, 4):
        steps = np.arange(start, start + 4)
        writer.append(steps / 10, steps, points[start : start + 4], {"energy": points[start : start + 4, 0, 0]})
    print("written", flush=True)
    time.sleep(1000)
"""


def truth() -> np.ndarray:
    return np.random.default_rng(8).normal(size=(FRAMES, COUNT, 3))


@contextmanager
def living_writer(folder: Path) -> Iterator[None]:
    """A process that has written 40 frames and has not closed its file; SIGKILL ends it."""
    command = [sys.executable, "-c", textwrap.dedent(WRITE_AND_WAIT), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a writer that SIGKILL ended after 40 frames."""
    folder = tmp_path_factory.mktemp("killed")
    with living_writer(folder):
        pass
    return (folder / "trajectory.h5").read_bytes()


def check_shown(path: Path) -> int:
    """Compare all that is shown of a file with what was written, and return the number of its frames."""
    points = truth()
    with Trajectory.open(path) as trajectory:
        shown = len(trajectory)
        np.testing.assert_array_equal(np.asarray(trajectory.points), points[:shown])
        np.testing.assert_array_equal(trajectory.times, np.arange(shown) / 10)
        np.testing.assert_array_equal(trajectory.observables["energy"], points[:shown, 0, 0])
        assert trajectory.log_weights is not None
        np.testing.assert_array_equal(trajectory.log_weights, np.linspace(-1, 0, COUNT))
        assert trajectory.metadata["title"] == "killed"
        damaged = trajectory.damaged_frames()
    if damaged:
        raise StoreError(f"reported as damaged: {damaged}")
    return shown


def look(path: Path) -> None:
    assert check_shown(path) == FRAMES


def bring_back(path: Path) -> None:
    """What recovery keeps is right, and it says how many frames it could not keep."""
    report = recover(path)
    assert report.frames + report.lost == FRAMES
    try:
        assert check_shown(path) == report.frames
    except StoreError as error:
        raise AssertionError("still damaged") from error


def go_on(path: Path) -> None:
    points = truth()
    with TrajectoryWriter.reopen(path, fsync=False) as writer:
        assert writer.committed == FRAMES
        writer.append([4.0], [FRAMES], points[:1], {"energy": [1.0]})
    with Trajectory.open(path) as trajectory:
        np.testing.assert_array_equal(trajectory.points[:FRAMES], points)


DOORS: dict[str, Callable[[Path], None]] = {"open": look, "recover": bring_back, "resume": go_on}


def flip_and_look(folder: Path, name: str, door: str, bits: list[int]) -> None:
    """Flip one bit after the other in a file without an end and go through a door; print how many were refused.

    Parameters: `name`, that of the file; if a living process writes it, it stays the same file.
    """
    content, refused = (folder / "killed.h5").read_bytes(), 0
    for bit in bits:
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path = folder / name
        path.write_bytes(changed)
        faulthandler.dump_traceback_later(LIMIT, exit=True)  # ends this process also from within HDF5
        try:
            DOORS[door](path)
        except StoreError:
            refused += 1
        except BaseException:
            print(f"bit {bit} of byte {bit // 8}", file=sys.stderr, flush=True)
            raise
    faulthandler.cancel_dump_traceback_later()
    print(refused)


def chosen_bits(content: bytes, sample: int) -> list[int]:
    """Half of the bits within the blocks of HDF5's own structure, a quarter in the first 64 kB, the others anywhere."""
    rng = np.random.default_rng(11)
    blocks = [match.start() for match in re.finditer(rb"\x89HDF|OHDR|OCHK|FRHP|FHDB|BTHD|EAHD|EAIB|EADB", content)]
    assert len(blocks) > 20
    bits = []
    for trial in range(sample):
        first = int(rng.choice(blocks)) if trial % 2 else 0
        bits.append(
            first * 8 + int(rng.integers(48 * 8 if trial % 2 else (1 << 19 if trial % 4 else len(content) * 8)))
        )
    return bits


def refused_flips(folder: Path, names: dict[str, str], bits: list[int]) -> list[int]:
    """How many flips each door refused, all looked at in a process of its own: HDF5 could hang it or crash it.

    Parameters: `names`, the names of the files by door.
    """
    code = "import sys, json, pathlib, test_store_killed_damage as case\nbits = [int(bit) for bit in sys.argv[3:]]\n"
    code += "for door, name in json.loads(sys.argv[2]).items():\n"
    code += "    case.flip_and_look(pathlib.Path(sys.argv[1]), name, door, bits)"
    command = [sys.executable, "-c", code, str(folder), json.dumps(names), *map(str, bits)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [int(line) for line in ended.stdout.split()]


@pytest.mark.parametrize("sample", [pytest.param(6, id="6"), pytest.param(2000, id="2000", marks=pytest.mark.slow)])
def test_a_flipped_bit_in_a_killed_file_neither_hangs_nor_passes(killed, tmp_path, sample):
    (tmp_path / "killed.h5").write_bytes(killed)
    refused = refused_flips(tmp_path, {door: f"{door}.h5" for door in DOORS}, chosen_bits(killed, sample))
    assert len(refused) == len(DOORS)
    assert all(refused)


@pytest.mark.slow
@pytest.mark.parametrize("sample", [pytest.param(2, id="2"), pytest.param(100, id="100", marks=pytest.mark.slow)])
def test_a_flipped_bit_beside_a_living_writer_neither_hangs_nor_passes(tmp_path, sample):
    """A reader of HDF5's own kind would look again for ever: the writer might just be about to mend it."""
    with living_writer(tmp_path):
        content = (tmp_path / "trajectory.h5").read_bytes()
        (tmp_path / "killed.h5").write_bytes(content)
        assert all(refused_flips(tmp_path, {"open": "trajectory.h5"}, chosen_bits(content, sample)))
        (tmp_path / "trajectory.h5").write_bytes(content)
        look(tmp_path / "trajectory.h5")


@pytest.mark.slow
def test_damage_beside_a_living_writer_is_told_with_what_to_do(tmp_path):
    with living_writer(tmp_path):
        path = tmp_path / "trajectory.h5"
        content = bytearray(path.read_bytes())
        content[content.index(b"OHDR") + 20] ^= 1
        path.write_bytes(content)
        with pytest.raises(StoreError, match=r"damaged .*Another process is writing to it: stop that one first\.$"):
            Trajectory.open(path)


FILL_THE_DISK = """
    import resource, sys
    from pathlib import Path
    from types import SimpleNamespace
    import numpy as np
    from particleflow.errors import StoreError
    from particleflow.trajectory.store import export
    from particleflow.app.sweep.results import write_results
    from particleflow.trajectory.trajectory import Trajectory
    folder, kinds = Path(sys.argv[1]), sys.argv[2].split(",")
    points = np.random.default_rng(0).normal(size=(200, 100, 3))
    trajectory = Trajectory.from_arrays(np.arange(200.0), points, observables={"energy": points[:, 0, 0]})
    (folder / "groups").mkdir()
    np.savez(folder / "groups" / "00000.npz", times=np.arange(200.0), end_times=np.ones(1), series=points[None])
    run = {"state": "done", "values": {}, "message": ""}
    manifest = SimpleNamespace(folder=folder, runs=[run], groups=[[0]])
    for limit in (200, 3000, 100_000, 200_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        for kind in (*kinds, "results"):
            try:
                write_results(manifest) if kind == "results" else export(trajectory, folder / f"a.{kind}")
                print(kind, limit, "was written")
            except StoreError as error:
                print(kind, limit, error)
"""


def test_a_full_disk_ends_an_export_with_a_sentence_and_leaves_the_old_file(tmp_path):
    """The process that met the full disk ends in the usual way: HDF5 has seen no write fail."""
    import_names = {"nc": "h5netcdf", "gsd": "gsd"}
    kinds = [kind for kind in ("h5md", "nc", "npz", "xyz", "gsd") if has_module(import_names.get(kind, "h5py"))]
    files = [*(f"a.{kind}" for kind in kinds), "results.h5"]
    for name in files:
        (tmp_path / name).write_text("old")
    command = [sys.executable, "-c", textwrap.dedent(FILL_THE_DISK), str(tmp_path), ",".join(kinds)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines = ended.stdout.splitlines()
    assert len(lines) == 4 * len(files)
    assert all("Cannot write" in line and "File too large" in line for line in lines), ended.stdout
    assert [(tmp_path / name).read_text() for name in files] == ["old"] * len(files)
    assert {path.name for path in tmp_path.iterdir()} <= {*files, "groups", "results.csv"}


def has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
