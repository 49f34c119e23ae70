"""The trajectory interface: the same answers from memory and from a file, compared with plain NumPy indexing."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray

from particleflow.errors import ArgumentError, ShapeError, StoreError
from particleflow.trajectory.store import TrajectoryWriter
from particleflow.trajectory.store.file_layout import chunk_shape
from particleflow.trajectory.trajectory import Trajectory

FRAMES, RUNS, COUNT, DIMENSION = 23, 3, 7, 2
SHAPES = {"single": (FRAMES, COUNT, DIMENSION), "ensemble": (FRAMES, RUNS, COUNT, DIMENSION)}


def hdf5(path: Path, mode: str = "r") -> Any:
    """A file opened by h5py, whose own annotations cannot tell a group from a dataset."""
    return h5py.File(path, mode)


def arrays(kind: str) -> dict:
    rng = np.random.default_rng(4)
    points = rng.normal(size=SHAPES[kind])
    energy = points.sum(axis=(-1, -2))
    return {
        "times": np.cumsum(rng.random(FRAMES)),
        "points": points,
        "steps": np.arange(FRAMES) * 3,
        "observables": {"energy": energy, "radii": rng.random((*energy.shape, 4))},
        "log_weights": rng.normal(size=COUNT),
        "positions": np.arange(COUNT) * 0.5,
        "labels": rng.integers(0, 3, COUNT),
        "words": np.array(["the", "naïve", "字", "", "\x1b[31m", "a\nb", "<b>$x$"]),
        "metadata": {"title": "A test", "geometry": "euclidean", "seed": 3, "scenario": "seed = 3\n"},
    }


@pytest.fixture(params=["memory", "file"])
def home(request) -> str:
    return request.param


@pytest.fixture(params=["single", "ensemble"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def trajectory(home, kind, tmp_path):
    trajectory = Trajectory.from_arrays(**arrays(kind))
    if home == "memory":
        yield trajectory
        return
    trajectory.save(tmp_path / "trajectory.h5")
    with Trajectory.open(tmp_path) as stored:
        yield stored


def test_everything_comes_back(trajectory, kind):
    truth = arrays(kind)
    assert len(trajectory) == FRAMES
    assert (trajectory.count, trajectory.dimension) == (COUNT, DIMENSION)
    assert trajectory.runs == (RUNS if kind == "ensemble" else None)
    for name in ("times", "steps", "points", "log_weights", "positions", "labels", "words"):
        values = getattr(trajectory, name)
        np.testing.assert_array_equal(values, truth[name])
        assert np.asarray(values).dtype == truth[name].dtype
    for name, values in truth["observables"].items():
        np.testing.assert_array_equal(trajectory.observables[name], values)
    assert {name: trajectory.metadata[name] for name in truth["metadata"]} == truth["metadata"]
    weights = np.exp(truth["log_weights"])
    np.testing.assert_allclose(trajectory.weights, weights / weights.sum(), rtol=1e-14)


@pytest.mark.parametrize("window", [slice(None), slice(3, 15, 4), slice(None, None, -1), slice(20, 2, -3), slice(5, 5)])
def test_slices_are_trajectories(trajectory, kind, window):
    truth = arrays(kind)
    part = trajectory[window]
    np.testing.assert_array_equal(part.times, truth["times"][window])
    np.testing.assert_array_equal(part.points, truth["points"][window])
    np.testing.assert_array_equal(part[::2].observables["radii"], truth["observables"]["radii"][window][::2])
    assert part.points.shape == truth["points"][window].shape


def test_frames(trajectory, kind):
    truth = arrays(kind)
    for index in (0, 11, -1, -FRAMES):
        frame = trajectory[index]
        assert (frame.time, frame.step) == (truth["times"][index], truth["steps"][index])
        np.testing.assert_array_equal(frame.points, truth["points"][index])
        np.testing.assert_array_equal(frame.observables["energy"], truth["observables"]["energy"][index])
    assert [frame.step for frame in trajectory] == truth["steps"].tolist()
    for index in (FRAMES, -FRAMES - 1):
        with pytest.raises(IndexError, match="out of range"):
            trajectory[index]


@pytest.mark.parametrize(
    "key",
    [
        5,
        -2,
        (3, 1),
        (slice(2, 9), 0),
        (slice(None, None, -2), slice(1, None)),
        (..., 1),
        (slice(None), -1),
        (slice(1, 8), [0, 2]),
        (4, [2, 0]),
        [5, 1, 5],
        np.array([7, 2]),
        ([3, 8], 1),
        ([3, 8], ..., 0),
        np.arange(FRAMES) % 5 == 0,
        (None, 3),
        (slice(3, 6), slice(None, None, -1)),
    ],
)
def test_points_index_like_numpy(trajectory, kind, key):
    expected = arrays(kind)["points"][key]
    np.testing.assert_array_equal(trajectory.points[key], expected)
    assert np.shape(trajectory.points[key]) == expected.shape


@pytest.mark.parametrize("key", [[0.5], 0.5, ([0.0, 1.0], 1)])
def test_frames_have_whole_numbers(trajectory, key):
    with pytest.raises(IndexError):
        trajectory.points[key]


def test_only_the_whole_is_refreshed(tmp_path):
    Trajectory.from_arrays(**arrays("ensemble")).save(tmp_path / "trajectory.h5")
    with Trajectory.open(tmp_path) as whole:
        assert (whole.refresh(), whole.refresh()) == (FRAMES, FRAMES)
        for part, shape in ((whole[2:5], (3, RUNS)), (whole.run(1), (FRAMES, COUNT))):
            with pytest.raises(ArgumentError, match="Refresh the trajectory that `open` gave"):
                part.refresh()
            assert part.points.shape[:2] == shape


def test_runs_of_an_ensemble(trajectory, kind):
    if kind == "single":
        with pytest.raises(ArgumentError, match="a single run"):
            trajectory.run(0)
        return
    truth = arrays(kind)
    one = trajectory.run(2)[4:9]
    assert one.runs is None
    np.testing.assert_array_equal(one.points, truth["points"][4:9, 2])
    np.testing.assert_array_equal(one.points[1:3, ::2], truth["points"][5:7, 2, ::2])
    np.testing.assert_array_equal(one.observables["radii"], truth["observables"]["radii"][4:9, 2])
    with pytest.raises(ArgumentError, match="runs 0 to 2"):
        trajectory.run(3)


def test_card_and_xarray(trajectory, kind):
    card = str(trajectory)
    assert card.startswith("A test\n")
    assert f"{FRAMES}, t = " in card
    assert f"{COUNT} in dimension {DIMENSION}" in card
    assert "energy, radii" in card
    truth = arrays(kind)
    dataset = trajectory.to_xarray()
    selected = dataset["points"].isel(time=slice(2, 9, 3), particle=[4, 1])
    np.testing.assert_array_equal(selected.values, truth["points"][2:9:3][..., [4, 1], :])
    np.testing.assert_array_equal(dataset["energy"].mean("time"), truth["observables"]["energy"].mean(axis=0))
    np.testing.assert_array_equal(dataset["time"], truth["times"])


def test_titles_cannot_reach_the_terminal():
    trajectory = Trajectory.from_arrays([0.0], np.zeros((1, 2, 2)), metadata={"title": "\x1b[2Jgone\nnext"})
    assert str(trajectory).splitlines()[0] == " [2Jgone next"


def test_uniform_weights_and_defaults():
    trajectory = Trajectory.from_arrays([0.0, 1.0], np.zeros((2, 4, 3)))
    np.testing.assert_array_equal(trajectory.weights, [0.25] * 4)
    np.testing.assert_array_equal(trajectory.steps, [0, 1])
    assert trajectory.status == "in memory"


def test_shapes_that_do_not_fit_are_refused(tmp_path):
    points = np.zeros((2, 4, 3))
    with pytest.raises(ShapeError, match=r"points of shape"):
        Trajectory.from_arrays([0.0], points)
    with pytest.raises(ShapeError, match="`energy`"):
        Trajectory.from_arrays([0.0, 1.0], points, observables={"energy": [1.0]})
    for name, wrong in (("labels", (2,)), ("labels", (4, 3)), ("log_weights", (4, 1)), ("positions", (4, 3))):
        given: dict[str, Any] = {name: np.zeros(wrong, int)}
        with pytest.raises(ShapeError, match=f"`{name}`"):
            Trajectory.from_arrays([0.0, 1.0], points, **given)
        with pytest.raises(ShapeError, match=f"`{name}`"):
            TrajectoryWriter.create(tmp_path, count=4, dimension=3, **given)
    assert Trajectory.from_arrays([0.0, 1.0], points, values=np.zeros((4, 3, 2))).values is not None


def test_fields_have_places_of_their_own(tmp_path):
    masses = np.ones((2, 4))
    run = Trajectory.from_arrays([0.0, 1.0], np.zeros((2, 4, 3)), fields={"mass": masses, "masses": masses})
    with pytest.raises(ArgumentError, match="'mass' and 'masses' have one place"):
        run.save(tmp_path / "run.h5")


def test_single_precision_and_a_subset_of_particles(tmp_path):
    points = np.random.default_rng(0).normal(size=(5, 4, 3))
    with TrajectoryWriter.create(tmp_path, count=4, dimension=3, dtype="float32", particles=[9, 2, 4, 0]) as writer:
        writer.append(np.arange(5), np.arange(5), points)
    with Trajectory.open(tmp_path) as trajectory:
        assert trajectory.points.dtype == np.float32
        np.testing.assert_array_equal(trajectory.points, points.astype(np.float32))
        np.testing.assert_array_equal(trajectory.particles, [9, 2, 4, 0])


def test_numbers_that_single_precision_cannot_hold_are_refused(tmp_path):
    """A frame that is stored as infinite would belong to a run that is called finished."""
    points = np.array([[[1.0]], [[2e38]], [[np.nan]], [[1e39]]])

    def store():
        with TrajectoryWriter.create(tmp_path, count=1, dimension=1, dtype="float32") as writer:
            writer.append(np.arange(3), np.arange(3), points[:3])
            writer.append([3], [3], points[3:])

    with pytest.raises(StoreError, match=r"reaches 1e\+39, which a file in float32 cannot hold"):
        store()
    with Trajectory.open(tmp_path) as trajectory:
        assert (trajectory.status, len(trajectory)) == ("failed", 3)


@pytest.mark.parametrize(
    ("shape", "itemsize", "expected_frames", "chunk"),
    [
        ((), 8, None, (511,)),
        ((), 8, 20, (20,)),
        ((100, 3), 8, None, (218, 100, 3)),
        ((10, 3), 8, None, (256, 10, 3)),
        ((10_000, 3), 8, None, (2, 10_000, 3)),
        ((100_000, 3), 8, None, (1, 21_845, 3)),
        ((16, 100_000, 3), 4, None, (1, 1, 43_690, 3)),
    ],
)
def test_blocks_are_about_half_a_megabyte(shape, itemsize, expected_frames, chunk):
    assert chunk_shape(shape, itemsize, expected_frames) == chunk


def test_frames_of_several_blocks(tmp_path):
    points = np.random.default_rng(0).normal(size=(3, 50_000, 3))
    Trajectory.from_arrays(np.arange(3.0), points).save(tmp_path / "trajectory.h5")
    with Trajectory.open(tmp_path) as trajectory:
        np.testing.assert_array_equal(trajectory.points[1:, 20_000:40_000], points[1:, 20_000:40_000])
        assert trajectory.damaged_frames() == {}
    path = tmp_path / "trajectory.h5"
    content = bytearray(path.read_bytes())
    content[content.index(points[1, 45_000].tobytes()) + 5] ^= 16
    path.write_bytes(content)
    with Trajectory.open(tmp_path) as trajectory:
        assert trajectory.damaged_frames() == {"position": [1]}
        np.testing.assert_array_equal(trajectory[2].points, points[2])


def test_the_file_is_h5md_and_opens_in_xarray(tmp_path):
    truth = arrays("ensemble")
    Trajectory.from_arrays(**truth).save(tmp_path / "trajectory.h5")
    path = tmp_path / "trajectory.h5"
    with hdf5(path) as file:
        np.testing.assert_array_equal(file["h5md"].attrs["version"], [1, 1])
        assert file["h5md/creator"].attrs["name"] == b"particleflow"
        assert file["particles/trajectory/box"].attrs["dimension"] == DIMENSION
        assert file["observables/energy/step"] == file["particles/trajectory/position/step"]
        assert bytes(file["particleflow/scenario"][...]) == b"seed = 3\n"
    with xarray.open_dataset(path, group="particles/trajectory/position", engine="h5netcdf") as dataset:
        assert dataset["value"].dims == ("time", "run", "particle", "coordinate")
        np.testing.assert_array_equal(dataset["value"].sel(particle=3), truth["points"][:, :, 3])
    with xarray.open_dataset(path, group="observables/radii", engine="h5netcdf") as dataset:
        assert dataset["value"].dims == ("time", "run", "axis_2")
        np.testing.assert_array_equal(dataset["time"], truth["times"])


def test_a_fresh_process_saves_and_exports_without_jax(tmp_path):
    """Nothing of the store is imported yet when `save` is called; h5py is imported for a file only."""
    code = """
        import sys
        from pathlib import Path
        import particleflow.trajectory.store as store
        print("h5py" in sys.modules)
        for name in [name for name in sys.modules if name.startswith("particleflow")]:
            del sys.modules[name]
        from particleflow.trajectory import Trajectory
        run = Trajectory.from_arrays([0.0, 1.0], [[[0.0]], [[1.0]]])
        run.save(Path(sys.argv[1]) / "run.h5")
        from particleflow import store
        store.export(run, Path(sys.argv[1]) / "run.npz")
        print(len(store.StoredRun(Path(sys.argv[1]) / "run.h5").times), "jax" in sys.modules)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    answer = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "2", "False"]
