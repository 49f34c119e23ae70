"""Exports, opened by the programs they are for: MDAnalysis, gsd, xarray, NumPy, and a plain XYZ reader."""

import warnings
from pathlib import Path
from typing import Any

import gsd.hoomd
import h5py
import numpy as np
import pytest
import xarray

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MDAnalysis warns about its own dependencies when it is imported
    import MDAnalysis

from sklearn.decomposition import PCA

from particleflow.errors import ArgumentError
from particleflow.trajectory.store import export
from particleflow.trajectory.trajectory import Trajectory

FRAMES, COUNT = 12, 9


WORDS = ["the", "naïve 字", "the", "", "a\x1b[31mb", "bank", "bank", "<i>", "$x$"]


def trajectory_of(dimension: int, runs: int | None = None, **more: Any) -> Trajectory:
    rng = np.random.default_rng(dimension)
    shape = (FRAMES, COUNT, dimension) if runs is None else (FRAMES, runs, COUNT, dimension)
    points = rng.normal(size=shape) * np.arange(1, dimension + 1)[::-1] + 5.0
    energy = np.sum(points**2, axis=(-1, -2))
    labels = np.arange(COUNT) % 3
    metadata = {"title": "<b>bold</b>"}
    return Trajectory.from_arrays(
        np.linspace(0, 2, FRAMES) ** 2, points, observables={"energy": energy}, labels=labels, metadata=metadata, **more
    )


COLUMN = {"naïve 字": "naïve_字", "": "_", "a\x1b[31mb": "a_[31mb"}
ASCII = {word: COLUMN.get(word, word).encode("ascii", "backslashreplace").decode() for word in WORDS}


def opened(path: Path) -> Any:
    """A GSD file; its annotations cannot tell a frame from a view of frames."""
    return gsd.hoomd.open(str(path))


def padded(points: np.ndarray) -> np.ndarray:
    return np.concatenate([points, np.zeros((*points.shape[:-1], 3 - points.shape[-1]))], axis=-1)


@pytest.fixture(params=[1, 2, 3])
def flat(request, tmp_path) -> Trajectory:
    """A trajectory in a file, of a dimension that needs no projection."""
    trajectory_of(request.param).save(tmp_path / "trajectory.h5")
    return Trajectory.open(tmp_path)


def test_mdanalysis_opens_the_h5md(flat, tmp_path):
    path = export(flat, tmp_path / "run.h5md", "h5md")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        universe = MDAnalysis.Universe(str(path))
        seen = [(step.time, step.positions.copy()) for step in universe.trajectory]
        universe.trajectory.close()
    assert len(seen) == FRAMES
    np.testing.assert_allclose([time for time, _ in seen], flat.times, rtol=1e-12)
    np.testing.assert_array_equal([points for _, points in seen], padded(np.asarray(flat.points)).astype(np.float32))


def test_mdanalysis_opens_the_trajectory_itself(tmp_path):
    """In three dimensions no export is needed, if MDAnalysis is told that there are no units."""
    trajectory = trajectory_of(3)
    trajectory.save(tmp_path / "trajectory.h5")
    universe = MDAnalysis.Universe.empty(COUNT, trajectory=True)
    universe.load_new(str(tmp_path / "trajectory.h5"), format="H5MD", convert_units=False)
    seen = np.array([step.positions.copy() for step in universe.trajectory])
    universe.trajectory.close()
    np.testing.assert_array_equal(seen, np.asarray(trajectory.points).astype(np.float32))


def test_gsd_opens(flat, tmp_path):
    path = export(flat, tmp_path / "run.gsd")
    with opened(path) as file:
        assert len(file) == FRAMES
        positions = np.array([frame.particles.position for frame in file])
        times = [float(frame.log["particleflow/time"][0]) for frame in file]
        energies = [float(frame.log["particleflow/energy"][0]) for frame in file]
        np.testing.assert_array_equal(file[3].particles.typeid, flat.labels)
        assert np.abs(positions).max() < file[0].configuration.box[0] / 2
    np.testing.assert_array_equal(positions, padded(np.asarray(flat.points)).astype(np.float32))
    np.testing.assert_array_equal(times, flat.times)
    np.testing.assert_array_equal(energies, flat.observables["energy"])


def test_masses_of_a_density_are_in_viewers_files(tmp_path):
    points = np.linspace(0.0, 1.0, 5)[:, None]
    masses = np.random.default_rng(2).dirichlet(np.ones(5), size=3)
    run = Trajectory.from_arrays(np.arange(3.0), np.stack([points] * 3), fields={"masses": masses})
    with opened(export(run, tmp_path / "run.gsd")) as file:
        for frame, expected in zip(file, masses, strict=True):
            np.testing.assert_array_equal(frame.log["particles/particleflow/masses"], expected)
            np.testing.assert_array_equal(frame.particles.mass, expected.astype(np.float32))
    lines = export(run, tmp_path / "run", "xyz").read_text(encoding="utf-8").splitlines()
    assert ":id:I:1:masses:R:1 " in lines[1]
    found = [[float(line.split()[5]) for line in lines[7 * frame + 2 : 7 * frame + 7]] for frame in range(3)]
    np.testing.assert_array_equal(found, masses)


def test_gsd_refuses_what_single_precision_cannot_hold(tmp_path):
    points = np.zeros((1, 2, 3))
    for reach, fits in ((1.5e38, True), (2e38, False), (1e300, False)):
        points[0, 1, 0] = reach
        trajectory = Trajectory.from_arrays([0.0], points)
        if fits:
            with opened(export(trajectory, tmp_path / "run.gsd")) as file:
                assert np.isfinite(file[0].configuration.box).all()
                assert file[0].particles.position[1, 0] == np.float32(reach)
        else:
            with pytest.raises(ArgumentError, match=r"single precision.*Export to npz"):
                export(trajectory, tmp_path / "large.gsd")
    assert not (tmp_path / "large.gsd").exists()


def test_gsd_holds_all_points_whatever_frames_are_not_finite(tmp_path):
    points = np.array([np.nan, 1.0, 5.0, np.inf])[:, None, None] * np.ones((4, 2, 3))
    with opened(export(Trajectory.from_arrays(np.arange(4.0), points), tmp_path / "run.gsd")) as file:
        assert 10.0 < file[0].configuration.box[0] < 11.0


@pytest.mark.parametrize(
    ("observables", "fields", "message"),
    [
        (["points"], [], "The observable 'points'"),
        (["labels"], [], "The observable 'labels'"),
        (["particle"], [], "The observable 'particle'"),
        ([], ["labels"], "The field 'labels'"),
        (["masses"], ["masses"], "The observable 'masses'"),
    ],
)
def test_variables_of_one_name_are_refused(observables, fields, message, tmp_path):
    run = Trajectory.from_arrays(
        [0.0, 1.0], np.zeros((2, 3, 2)), labels=[0, 1, 2], fields=dict.fromkeys(fields, np.ones((2, 3))),
        observables=dict.fromkeys(observables, np.arange(2.0)),
    )  # fmt: skip
    with pytest.raises(ArgumentError, match=message):
        run.to_xarray()
    with pytest.raises(ArgumentError, match=message):
        export(run, tmp_path / "run.nc")


def test_extended_xyz_reads_back_exactly(flat, tmp_path):
    lines = export(flat, tmp_path / "run", "xyz").read_text().splitlines()
    assert len(lines) == FRAMES * (COUNT + 2)
    for index in range(FRAMES):
        count, keys, *rows = lines[index * (COUNT + 2) : (index + 1) * (COUNT + 2)]
        assert int(count) == COUNT
        values = dict(pair.split("=") for pair in keys.replace("F F F", "FFF").split())
        assert float(values["Time"]) == flat.times[index]
        assert float(values["energy"]) == flat.observables["energy"][index]
        assert values["Properties"] == "species:S:1:pos:R:3:id:I:1:label:I:1"
        table = np.array([row.split()[1:] for row in rows], dtype=float)
        np.testing.assert_array_equal(table[:, :3], padded(flat[index].points))
        np.testing.assert_array_equal(table[:, 4], flat.labels)


@pytest.mark.parametrize("runs", [None, 4])
@pytest.mark.parametrize("home", ["memory", "file"])
def test_npz_and_netcdf_hold_everything(tmp_path, runs, home):
    trajectory = trajectory_of(5, runs)
    if home == "file":
        trajectory.save(tmp_path / "trajectory.h5")
        trajectory = Trajectory.open(tmp_path)
    with np.load(export(trajectory, tmp_path / "run.npz"), allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["points"], trajectory.points)
        np.testing.assert_array_equal(archive["times"], trajectory.times)
        np.testing.assert_array_equal(archive["observable.energy"], trajectory.observables["energy"])
        np.testing.assert_array_equal(archive["labels"], trajectory.labels)
    with xarray.open_dataset(export(trajectory, tmp_path / "run.nc"), engine="h5netcdf") as dataset:
        np.testing.assert_array_equal(dataset["points"], trajectory.points)
        np.testing.assert_array_equal(dataset["energy"], trajectory.observables["energy"])
        assert dataset["points"].dims == ("time", *(["run"] if runs else []), "particle", "coordinate")
        xarray.testing.assert_equal(dataset.drop_attrs(), trajectory.to_xarray().drop_attrs())
    trajectory.close()


@pytest.mark.parametrize("rows", [None, 1, 3], ids=["one run", "shared", "a row for every run"])
def test_words_go_along_where_a_format_has_room(tmp_path, rows):
    words = WORDS if rows in (None, 1) else [WORDS, WORDS[::-1], WORDS[3:] + WORDS[:3]]
    trajectory = trajectory_of(3, None if rows is None else 3, words=words)
    with np.load(export(trajectory, tmp_path / "run.npz"), allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["words"], np.array(words))
    with xarray.open_dataset(export(trajectory, tmp_path / "run.nc"), engine="h5netcdf") as dataset:
        np.testing.assert_array_equal(dataset["words"], np.array(words))
        xarray.testing.assert_equal(dataset.drop_attrs(), trajectory.to_xarray().drop_attrs())
    own, run = (WORDS, None) if rows is None else (words[1] if rows == 3 else WORDS, 1)
    with h5py.File(export(trajectory, tmp_path / "run.h5md", run=run)) as file:
        assert file["parameters/words"].asstr()[...].tolist() == own  # type: ignore[union-attr]
    with opened(export(trajectory, tmp_path / "run.gsd", run=run)) as file:
        particles = file[2].particles
        assert [particles.types[number] for number in particles.typeid] == [ASCII[word] for word in own]
        np.testing.assert_array_equal(file[2].log["particles/particleflow/label"], trajectory.labels)
    lines = export(trajectory, tmp_path / "run.xyz", run=run).read_text(encoding="utf-8").splitlines()
    assert "label:I:1:word:S:1 " in lines[1]
    assert [line.split()[-1] for line in lines[2 : 2 + COUNT]] == [COLUMN.get(word, word) for word in own]
    assert {len(line.split()) for line in lines[2 : 2 + COUNT]} == {7}


def test_many_dimensions_are_projected_on_the_principal_components(tmp_path):
    trajectory = trajectory_of(6)
    points = np.asarray(trajectory.points)
    scores = PCA(3, svd_solver="full").fit_transform(points.reshape(-1, 6)).reshape(FRAMES, COUNT, 3)
    with opened(export(trajectory, tmp_path / "run.gsd")) as file:
        positions = np.array([frame.particles.position for frame in file])
    np.testing.assert_allclose(np.abs(positions), np.abs(scores), rtol=1e-5, atol=1e-5)
    with pytest.raises(ArgumentError, match="cannot be padded"):
        export(trajectory, tmp_path / "run.gsd", projection="pad")


def test_one_run_of_an_ensemble(tmp_path):
    trajectory = trajectory_of(3, runs=4)
    with pytest.raises(ArgumentError, match="ensemble of 4"):
        export(trajectory, tmp_path / "run.gsd")
    with opened(export(trajectory, tmp_path / "run.gsd", run=2)) as file:
        np.testing.assert_array_equal(file[5].particles.position, trajectory.points[5, 2].astype(np.float32))


def test_what_cannot_be_exported(tmp_path):
    trajectory = trajectory_of(3)
    with pytest.raises(ArgumentError, match="h5md, gsd, xyz, npz, netcdf"):
        export(trajectory, tmp_path / "run.pdb")
    odd = Trajectory.from_arrays([0.0], np.zeros((1, 2, 3)), observables={"../x": [1.0]})
    with pytest.raises(ArgumentError, match="observable name"):
        export(odd, tmp_path / "run.npz")
    path = tmp_path / "run.h5md"
    trajectory.save(path)
    with Trajectory.open(path) as stored, pytest.raises(ArgumentError, match="trajectory itself"):
        export(stored, path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.h5md"]
