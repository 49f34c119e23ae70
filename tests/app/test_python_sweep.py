"""`particleflow.sweep`: runs, folder and figures of the command, as rows, means over seeds, DataFrame and Dataset."""

import math
import sys

import h5py
import matplotlib as mpl
import numpy as np
import pytest

import particleflow as pf
from particleflow import scenario
from particleflow.app.cli import main
from particleflow.app.scenario.schema import find_kinds, json_schema
from particleflow.errors import ArgumentError, UserError

BASE = """
title = "A small sweep"
seed = 5
initial = { kind = "uniform_sphere", dim = 3, count = 8 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 1.0 }
[time]
end = 2.0
frames = 3
step = 1.0
solver = "map"
[record]
observables = ["energy"]
"""
BETA = "drift.0.kernel.beta"
PHASE = f'phase = {{ x = "time", y = "{BETA}", value = "energy" }}'
OVER = {BETA: [1.0, 4.0], "seed": {"count": 3}}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("sweeps") / "small.toml"
    file.write_text(BASE, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def drawing(path):
    """The same scenario with a sweep of its own, which names a figure."""
    file = path.with_name("drawing.toml")
    file.write_text(f'{BASE}[sweep]\n"{BETA}" = [2.0]\n{PHASE}\n', encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def found(drawing):
    return pf.sweep(drawing, OVER, output=drawing.parent / "python")


@pytest.mark.slow
def test_python_and_the_command_give_the_same_table_and_figure(path, found, tmp_path, capsys):
    (tmp_path / "small.toml").write_text(
        f'{BASE}[sweep]\n"{BETA}" = [1.0, 4.0]\nseed = {{ count = 3 }}\n{PHASE}\n', encoding="utf-8"
    )
    assert main(["sweep", str(tmp_path / "small.toml"), "--output", str(tmp_path / "out"), "--quiet"]) == 0
    for name in ("results.csv", "figures/phase_diagram.png", "figures/series.png"):  # the first is that of the file
        assert (tmp_path / "out" / name).read_bytes() == (found.folder / name).read_bytes()
    assert main(["resume", str(found.folder)]) == 0
    assert "6 done" in capsys.readouterr().err


def test_means_and_errors_are_over_the_seeds(found):
    assert len(found) == 6
    assert (found.keys, found.axes) == ([BETA, "seed"], [BETA])
    for place, beta in zip(found.means, (1.0, 4.0), strict=True):
        energies = [row["energy"] for row in found.rows if row[BETA] == beta]
        assert place[BETA] == beta
        assert place["runs"] == 3
        assert place["energy"] == pytest.approx(sum(energies) / 3)
        spread = sum((each - sum(energies) / 3) ** 2 for each in energies) / 2
        assert place["energy_error"] == pytest.approx(math.sqrt(spread / 3))
    assert f"β = 4:  energy {found.means[1]['energy']:.4g} ±" in repr(found)
    assert "end time" not in repr(found)  # all runs share it
    assert "6 runs: 6 done" in repr(found)


def test_means_along_time_are_those_of_the_stored_series(found):
    with h5py.File(found.folder / "results.h5") as file:
        stored = [file[f"groups/00000/{name}"] for name in ("runs", "times", "observable.energy")]
        runs, times, energy = map(np.asarray, stored)
    data, frame = found.to_xarray(along_time=True), found.to_pandas(along_time=True)
    assert dict(data.sizes) == {BETA: 2, "time": 3}
    assert data["time"].values.tolist() == times.tolist() == [0.0, 1.0, 2.0]
    for place, beta in zip(found.series, (1.0, 4.0), strict=True):
        own = energy[[found.rows[run][BETA] == beta for run in runs]]
        error = np.sqrt(((own - own.mean(axis=0)) ** 2).sum(axis=0) / 2 / 3)
        assert place["runs"] == 3
        for name, expected in {"energy": own.mean(axis=0), "energy_error": error}.items():
            np.testing.assert_allclose(place[name], expected, rtol=1e-13)
            np.testing.assert_array_equal(data[name].sel({BETA: beta}), place[name])
            np.testing.assert_array_equal(frame[frame[BETA] == beta][name], place[name])


def test_a_data_frame_has_a_row_a_run(found):
    frame = found.to_pandas()
    assert frame.index.name == "run"
    assert frame["seed"].tolist() == [5, 6, 7, 5, 6, 7]
    assert frame.groupby(BETA)["energy"].sem()[4.0] == pytest.approx(found.means[1]["energy_error"])


def test_a_data_set_has_an_axis_a_key(found):
    data = found.to_xarray()
    assert dict(data.sizes) == {BETA: 2}
    assert float(data["energy"].sel({BETA: 4.0})) == found.means[1]["energy"]
    assert float(data["energy_error"].sel({BETA: 4.0})) == found.means[1]["energy_error"]


@pytest.mark.slow
def test_runs_that_fill_no_grid_lie_along_one_axis(path, tmp_path):
    betas = [{"kind": "attention", "beta": beta} for beta in (1.0, 2.0)]
    over = {"mode": "zip", "drift.0.kernel": betas, "drift.0.value": np.array([1.0, 0.5]), "geometry": ["sphere"] * 2}
    zipped = pf.sweep(path, over, output=tmp_path / "out")
    data = zipped.to_xarray()
    assert dict(data.sizes) == {"place": 2}
    assert data["geometry"].values.tolist() == ["sphere", "sphere"]
    assert data["drift.0.kernel"].values[1] == '{ kind = "attention", beta = 2.0 }'
    assert math.isnan(zipped.means[0]["energy_error"])
    assert "±" not in repr(zipped)


@pytest.mark.parametrize(("package", "way"), [("pandas", "to_pandas"), ("xarray", "to_xarray")])
def test_a_missing_package_is_named(package, way, found, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ArgumentError, match=f"This needs {package}"):
        getattr(found, way)()


@pytest.mark.slow
def test_progress_is_reported_and_the_backend_of_a_program_stays(drawing, tmp_path):
    told = []
    mpl.use("svg")
    try:
        pf.sweep(drawing, {"seed": [1, 2, 3]}, output=tmp_path / "out", progress=lambda *step: told.append(step))
        assert mpl.get_backend() == "svg"
    finally:
        mpl.use("Agg")
    assert told[-1][:2] == (3, 3)
    assert (tmp_path / "out" / "figures" / "sweep.png").is_file()  # not that of the file, whose axis is not swept


def test_a_wrong_sweep_is_refused_before_a_folder_is_made(path, tmp_path):
    for over, message in [(None, "`over`"), ({"drift.0.kernel.bta": [1.0]}, "did you mean 'beta'")]:
        with pytest.raises(UserError, match=message):
            pf.sweep(path, over, output=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_sweep_is_described_and_in_the_schema(capsys):
    (kind,) = find_kinds("sweep")
    assert [each.name for each in kind.parameters] == ["mode", "count", "keep", "phase"]
    assert all(each.meaning for each in kind.parameters)
    assert main(["describe", "sweep"]) == 0
    assert "seed = { count = 16 }" in capsys.readouterr().out
    assert main(["kinds", "table"]) == 0
    assert "\n  sweep " in capsys.readouterr().out


def test_the_schema_holds_what_a_sweep_may_be():
    definitions = json_schema()["$defs"]
    table = definitions["SweepTable"]
    assert table["properties"].keys() == {"mode", "count", "keep", "phase"}
    kinds = table["additionalProperties"]["anyOf"]
    assert kinds[0]["type"] == "array"
    keys = [definitions[each["$ref"].removeprefix("#/$defs/")]["properties"].keys() for each in kinds[1:]]
    assert keys == [{"start", "stop", "count", "spacing"}, {"count"}]
    assert definitions["PhaseTable"]["required"] == ["x", "y", "value"]


@pytest.mark.parametrize(
    ("line", "message"),
    [('mode = "grd"', "sweep.mode"), ('phase = { x = "time", yy = "seed", value = "energy" }', "did you mean 'y'")],
)
def test_settings_of_a_sweep_are_checked_with_the_file(line, message, tmp_path):
    (tmp_path / "small.toml").write_text(f"{BASE}[sweep]\nseed = [1]\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        scenario.load(tmp_path / "small.toml")
