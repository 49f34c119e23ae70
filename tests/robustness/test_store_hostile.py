"""Files and folders that somebody prepared: links are not followed, lengths are not believed, nothing hangs."""

import faulthandler
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import particleflow as pf
from particleflow._support.files import write_text, written_folder
from particleflow.app.runs.run_outputs import Outcome, make_products
from particleflow.errors import StoreError
from particleflow.trajectory.store import TrajectoryWriter, export, load_checkpoint, recover, save_checkpoint
from particleflow.trajectory.trajectory import Trajectory

FRAMES, COUNT = 20, 6
LIMIT, MEMORY = 20, 3 << 29  # seconds and bytes that a look may take


def hdf5(path: Path) -> Any:
    """A file opened by h5py, whose own annotations cannot tell a group from a dataset."""
    return h5py.File(path, "r+", libver="v110")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run in a folder of its own."""
    (tmp_path / "run").mkdir()
    points = np.random.default_rng(2).normal(size=(FRAMES, COUNT, 2))
    steps = np.arange(FRAMES)
    constants = {"log_weights": np.zeros(COUNT), "words": list("abcdef")}
    with TrajectoryWriter.create(
        tmp_path / "run", count=COUNT, dimension=2, observables={"energy": ()}, fsync=False, **constants
    ) as writer:
        writer.append(steps / 10, steps, points, {"energy": points[:, 0, 0]})
        writer.set_status("finished")
    return tmp_path / "run" / "trajectory.h5"


def damage(path: Path) -> None:
    """Flip a bit in the last points, so that recovery has to write a new file and to keep the old one."""
    content = bytearray(path.read_bytes())
    place = content.index(np.random.default_rng(2).normal(size=(FRAMES, COUNT, 2))[-1].tobytes())
    content[place] ^= 1
    path.write_bytes(content)


WRITERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "lock of recover": ("trajectory.h5.lock", recover),
    "lock of reopen": ("trajectory.h5.lock", lambda path: TrajectoryWriter.reopen(path, frames=3).close()),
    "lock of create": ("new.h5.lock", lambda path: create(path.with_name("new.h5"))),
    "partial file of recover": ("trajectory.h5.partial", recover),
    "partial file of create": ("new.h5.partial", lambda path: create(path.with_name("new.h5"))),
    "kept original": ("trajectory.h5.damaged-1", recover),
    "partial checkpoint": (
        f".checkpoint-00000000.partial-{os.getpid()}.npz",
        lambda path: save_checkpoint(path.parent, {"x": np.zeros(3)}, {"frames": 1}),
    ),
    "partial folder": (f".figures.partial-{os.getpid()}", lambda path: fill(path.with_name("figures"))),
    "partial text": (f".a.partial-{os.getpid()}.csv", lambda path: write_text(path.with_name("a.csv"), "1,2\n")),
} | {
    f"partial {suffix}": (
        f".a.partial-{os.getpid()}.{suffix}",
        lambda path, suffix=suffix: export(Trajectory.open(path), path.with_name(f"a.{suffix}")),
    )
    for suffix in ("npz", "xyz", "h5md", "nc", "gsd")
}


def fill(folder: Path) -> None:
    """Make a folder with one file, as figures are."""
    with written_folder(folder) as partial:
        (partial / "a.png").write_text("picture")
    assert [each.name for each in folder.iterdir()] == ["a.png"]
    assert not folder.is_symlink()


def create(path: Path) -> None:
    with TrajectoryWriter.create(path, count=2, dimension=2, fsync=False) as writer:
        writer.append([0.0], [0], np.zeros((1, 2, 2)))


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "symbolic link": lambda name, victim: name.symlink_to(victim),
    "hard link": lambda name, victim: name.hardlink_to(victim),
    "link to nowhere": lambda name, victim: name.symlink_to(victim.with_name("nowhere")),
    "link to a folder": lambda name, victim: name.symlink_to(victim.parent),
    "pipe": lambda name, victim: os.mkfifo(name),
}


@pytest.fixture
def time_limit() -> Iterator[None]:
    """A pipe that is waited for is an error after some seconds."""

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError(f"still waiting after {LIMIT} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", WRITERS)
def test_what_waits_under_a_name_of_ours_is_not_followed(run: Path, name: str, plant: str) -> None:
    if package := {"partial nc": "h5netcdf", "partial gsd": "gsd"}.get(name):
        pytest.importorskip(package)
    (run.parents[1] / "precious").mkdir()
    victim = run.parents[1] / "precious" / "victim"
    victim.write_text("precious")
    file, write = WRITERS[name]
    if write is recover:
        damage(run)
    PLANTS[plant](run.with_name(file), victim)
    if "lock" in name:
        with pytest.raises(StoreError, match=r"leads elsewhere\. Remove it"):
            write(run)
    else:
        write(run)
    assert victim.read_text() == "precious"
    assert [each.name for each in victim.parent.iterdir()] == ["victim"]


def test_a_folder_for_checkpoints_that_leads_elsewhere_is_refused(run: Path) -> None:
    """Old checkpoints are deleted there."""
    elsewhere = run.parents[1] / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "checkpoint-00000000.npz").write_text("precious")
    run.with_name("new.h5.checkpoints").symlink_to(elsewhere)
    flow, start = pf.Flow(pf.Attend(pf.kernels.Attention(beta=1.0))), np.eye(2)
    with pytest.raises(StoreError, match=r"leads elsewhere\. Remove it"):
        pf.simulate(flow, start, [0.0, 0.1], step=0.1, store=run.with_name("new.h5"))
    assert [each.name for each in elsewhere.iterdir()] == ["checkpoint-00000000.npz"]
    assert not run.with_name("new.h5").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [".figures.partial", f".figures.partial-{os.getpid()}"], ids=["plain", "of this process"]
)
def test_figures_are_not_drawn_into_a_folder_that_somebody_planted(run: Path, name: str) -> None:
    elsewhere = run.parents[1] / "elsewhere"
    elsewhere.mkdir()
    run.with_name(name).symlink_to(elsewhere)
    outcome = Outcome(run.parent, "finished")
    with Trajectory.open(run) as trajectory:
        make_products(run.parent, trajectory, dict.fromkeys(("summary", "movie", "page"), False), outcome)
    assert outcome.products == {"figures": "figures"}
    assert any(run.with_name("figures").iterdir())
    assert not run.with_name("figures").is_symlink()
    assert list(elsewhere.iterdir()) == []


def replaced(file: Any, place: str, **made: Any) -> Any:
    """A dataset made anew, without any data, where another was."""
    del file[place]
    return file.create_dataset(place, **made)


def long_constant(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/log_weights", shape=(400_000_000,), dtype="<f8", chunks=(1 << 16,), fletcher32=True)


def long_text(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/provenance", shape=(3_000_000_000,), dtype="u1", chunks=(1 << 16,), fletcher32=True)


def long_status(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/status", shape=(2, 1_500_000_000), dtype="u1")


def a_billion_frames(file: Any, pipe: str) -> None:
    position = file["particles/trajectory/position"]
    growing = [position[name] for name in ("value", "time", "step")]
    for dataset in (*growing, file["observables/energy/value"], file["particleflow/checksums"]):
        dataset.resize(10**9, axis=0)
    file["particleflow/committed"][...] = [10**9, ~(10**9)]


def a_billion_frames_without_a_count(file: Any, pipe: str) -> None:
    a_billion_frames(file, pipe)
    file["particleflow/committed"][...] = [1, 1]


def a_trillion_particles(file: Any, pipe: str) -> None:
    a_billion_frames(file, pipe)
    file["particleflow/committed"][...] = [0, ~0]
    del file["particleflow/log_weights"]
    made = {"shape": (0, 10**12, 2), "maxshape": (None, 10**12, 2), "chunks": (1, 1000, 2), "fletcher32": True}
    replaced(file, "particles/trajectory/position/value", dtype="<f8", **made)


def other_number_of_weights(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/log_weights", data=np.zeros(COUNT + 1), chunks=(COUNT + 1,))


def long_words(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/words", shape=(400_000_000,), dtype="S8", chunks=(1 << 16,), fletcher32=True)


def wide_words(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/words", data=np.zeros(COUNT, "S4000"), chunks=(COUNT,), fletcher32=True)


def words_of_varying_length(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/words", data=["a"] * COUNT, dtype=h5py.string_dtype(), chunks=(COUNT,))


def words_that_are_numbers(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/words", data=np.zeros(COUNT), chunks=(COUNT,))


def other_number_of_words(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/words", data=np.zeros(COUNT + 1, "S1"), chunks=(COUNT + 1,))


def a_table_of_words(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/words", data=np.zeros((COUNT, 2), "S1"), chunks=(COUNT, 2))


def compressed_words(file: Any, pipe: str) -> None:
    replaced(file, "particleflow/words", data=np.zeros(COUNT, "S9"), chunks=(COUNT,), compression="gzip")


def checksums_of_fewer_columns(file: Any, pipe: str) -> None:
    columns = file["particleflow/checksums"].attrs["columns"]
    made = replaced(file, "particleflow/checksums", data=np.zeros((FRAMES, 1), "<u4"), chunks=(FRAMES, 1))
    made.attrs["columns"] = columns


def compressed(file: Any, pipe: str) -> None:
    value = file["particles/trajectory/position/value"][...]
    replaced(file, "particles/trajectory/position/value", data=value, chunks=value.shape, compression="gzip")


def linked(place: str, link: Callable[[str], Any]) -> Callable[[Any, str], None]:
    def craft(file: Any, pipe: str) -> None:
        del file[place]
        file[place] = link(pipe)

    return craft


def outside(place: str, shape: tuple[int, ...], dtype: str) -> Callable[[Any, str], None]:
    """A dataset whose bytes are said to lie in another file."""
    return lambda file, pipe: replaced(file, place, shape=shape, dtype=dtype, external=[(pipe, 0, 1 << 20)])


def virtual(file: Any, pipe: str) -> None:
    del file["particles/trajectory/position/value"]
    plan = h5py.VirtualLayout(shape=(FRAMES, COUNT, 2), dtype="<f8")
    plan[...] = h5py.VirtualSource(pipe, "x", shape=(FRAMES, COUNT, 2))
    file.create_virtual_dataset("particles/trajectory/position/value", plan)


PLACES = ["particleflow", "particleflow/committed", "particleflow/status", "particleflow/provenance"]
PLACES += ["particleflow/checksums", "particleflow/log_weights", "particles", "particles/trajectory/position/value"]
PLACES += ["particleflow/words"]
CRAFTED: dict[str, Callable[[Any, str], None]] = {
    each.__name__: each
    for each in (long_constant, long_text, long_status, a_billion_frames, a_billion_frames_without_a_count,
                 a_trillion_particles, other_number_of_weights, checksums_of_fewer_columns, compressed, virtual,
                 long_words, wide_words, words_of_varying_length, words_that_are_numbers, other_number_of_words,
                 a_table_of_words, compressed_words)
}  # fmt: skip
CRAFTED |= {f"{place} in a pipe": linked(place, lambda pipe: h5py.ExternalLink(pipe, "/x")) for place in PLACES}
CRAFTED |= {f"{place} elsewhere": linked(place, lambda pipe: h5py.SoftLink("/x")) for place in PLACES}
CRAFTED |= {
    "count in a pipe": outside("particleflow/committed", (2,), "<i8"),
    "status in a pipe": outside("particleflow/status", (2, 1 << 14), "u1"),
}
LOOKS: dict[str, Callable[[Path], Any]] = {
    "open": lambda path: np.asarray(Trajectory.open(path).points),
    "recover": recover,
    "resume": lambda path: TrajectoryWriter.reopen(path).close(),
}


def look_at_all(folder: Path) -> None:
    """Go through every door of every file of a folder, with little memory and time, and print who was let in."""
    for path in sorted(folder.glob("*.h5")):
        for name, door in LOOKS.items():
            faulthandler.dump_traceback_later(LIMIT, exit=True)  # ends this process also from within HDF5
            try:
                door(path)
                print(f"{path.stem}: {name}", flush=True)
            except StoreError:
                pass
            except BaseException as error:
                print(f"{path.stem}: {name}: {type(error).__name__}: {error}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    # of this program alone: the peak that `getrusage` tells is handed down by the process that started it
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(f"{int(peak.split()[1]) // 1024} MB")


def test_crafted_files_are_refused_at_once_and_without_memory(run: Path, tmp_path: Path) -> None:
    """All in one process of its own; the largest of these files has a hundred kilobytes."""
    folder, pipe = tmp_path / "crafted", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    for index, (name, craft) in enumerate(CRAFTED.items()):
        path = folder / f"{index:02d} {name.replace('/', ' ')}.h5"
        path.write_bytes(run.read_bytes())
        with hdf5(path) as file:
            craft(file, str(pipe))
        assert path.stat().st_size < 3 * run.stat().st_size
    code = "import sys, pathlib, test_store_hostile as case; case.look_at_all(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(folder)]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False, timeout=600,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    *let_in, memory = ended.stdout.splitlines()
    recovered = [line for line in let_in if "without_a_count: recover" in line or "without_a_count: resume" in line]
    assert let_in == recovered
    assert int(memory.split()[0]) < 300


@pytest.mark.usefixtures("time_limit")
def test_a_pipe_is_no_trajectory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trajectory.h5")
    for door in LOOKS.values():
        with pytest.raises(StoreError, match="a pipe or a device"):
            door(tmp_path / "trajectory.h5")


@pytest.mark.usefixtures("time_limit")
def test_checkpoints_that_are_pipes_or_swell_are_of_no_use(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "checkpoint-00000001.npz")
    with (tmp_path / "checkpoint-00000000.npz").open("wb") as file:
        np.savez_compressed(file, x=np.zeros(1_000_000))
    with pytest.raises(StoreError, match="longer than the file"):
        load_checkpoint(tmp_path)
