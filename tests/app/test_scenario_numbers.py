"""Matrices that a scenario names or describes: files beside it, and random ones."""

# pyright: reportAttributeAccessIssue=false

import json
import tomllib
import zlib
from dataclasses import replace

import numpy as np
import pytest

import particleflow as pf
from particleflow import scenario
from particleflow.app.cli import main
from particleflow.app.scenario.schema import json_schema
from particleflow.app.sweep import Manifest, plan_sweep, run_sweep, start_sweep
from particleflow.app.sweep.results import table
from particleflow.errors import UserError

BASE = """\
# What to look for.
seed = 3
initial = { kind = "gaussian", dim = 3, count = 6 }   # six tokens
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 1.0 }   # the kernel
value = -1.0  # V
[time]
end = 1.0
frames = 3
step = 0.5
solver = "map"
[record]
observables = ["order_parameter"]
"""
QUIET = ("--no-summary", "--no-figures", "--no-movie", "--no-page", "--quiet")


@pytest.fixture
def write(tmp_path):
    def write(value="-1.0", more="", kernel=""):
        path = tmp_path / "test.toml"
        text = BASE.replace("value = -1.0", f"value = {value}").replace("beta = 1.0", f"beta = 1.0{kernel}")
        path.write_text(text + more, encoding="utf-8")
        return path

    return write


def value_of(path, *overrides):
    return np.asarray(scenario.load(path, overrides).build().flow.drift.value)


@pytest.mark.parametrize(
    ("random", "expected"),
    [
        ('"normal", shape = [3, 3], scale = 0.5, seed = 7', 0.5 * np.random.default_rng(7).standard_normal((3, 3))),
        ('"normal", shape = [3], seed = 8', np.random.default_rng(8).standard_normal(3)),
        ('"normal", shape = [], seed = 8', np.random.default_rng(8).standard_normal()),
        ('"uniform", shape = [3, 3], scale = 2, seed = 9', np.random.default_rng(9).uniform(-2, 2, (3, 3))),
        (
            '"normal", shape = [3, 3]',
            np.random.default_rng([3, zlib.crc32(b"drift.0.value")]).standard_normal((3, 3)),
        ),
    ],
)
def test_random_numbers_are_those_of_numpy(write, random, expected):
    np.testing.assert_array_equal(value_of(write(f"{{ random = {random} }}")), expected)


def test_orthogonal_matrices_have_the_haar_measure(write):
    path = write('{ random = "orthogonal", shape = [3, 3], scale = 2.0 }')
    document = scenario.load(path).document
    flows = [scenario.make_flow(replace(document, seed=seed)) for seed in range(200)]
    drawn = np.stack([np.asarray(flow.drift.value) for flow in flows])
    np.testing.assert_allclose(drawn @ drawn.swapaxes(1, 2), np.broadcast_to(4 * np.eye(3), drawn.shape), atol=1e-13)
    # Entries of a Haar matrix have mean 0 and variance 1/3, and half of all determinants are positive.
    np.testing.assert_allclose(drawn.mean(axis=0) / 2, 0, atol=5 / np.sqrt(3 * 200))
    np.testing.assert_allclose((drawn / 2).var(axis=0), 1 / 3, atol=0.1)
    assert 60 < np.sum(np.linalg.det(drawn) > 0) < 140
    feed_forward = BASE.replace('kind = "attend"', 'kind = "feed_forward"').replace("value = -1.0  # V\n", "")
    feed_forward = feed_forward.replace('kernel = { kind = "attention", beta = 1.0 }', "")
    wide = feed_forward.replace(
        "[time]",
        'weight = { random = "orthogonal", shape = [2, 3] }\noutput = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]\n[time]',
    )
    (path.parent / "wide.toml").write_text(wide, encoding="utf-8")
    weight = np.asarray(scenario.load(path.parent / "wide.toml").build().flow.drift.weight)
    np.testing.assert_allclose(weight @ weight.T, np.eye(2), atol=1e-14)


def test_every_key_and_every_seed_has_numbers_of_its_own(write):
    path = write(kernel=', query = { random = "normal", shape = [3, 3] }, key = { random = "normal", shape = [3, 3] }')
    kernel, other = (scenario.load(path, [f"seed={seed}"]).build().flow.drift.kernel for seed in (3, 4))
    different = [kernel.query, kernel.key, other.query, other.key]
    assert len({np.asarray(each).tobytes() for each in different}) == 4
    again = scenario.load(path).build().flow.drift.kernel
    np.testing.assert_array_equal(again.query, kernel.query)
    fixed = write('{ random = "normal", shape = [3, 3], seed = 1 }')
    np.testing.assert_array_equal(value_of(fixed, "seed=3"), value_of(fixed, "seed=4"))


def test_clouds_may_hold_random_numbers(write, tmp_path):
    text = BASE.replace("dim = 3", 'dim = 3, centre = { random = "normal", shape = [3], scale = 1e6 }')
    (tmp_path / "cloud.toml").write_text(text, encoding="utf-8")
    means = [
        np.asarray(scenario.load(tmp_path / "cloud.toml", [f"seed={seed}"]).build().start.points).mean(0)
        for seed in (3, 4)
    ]
    for seed, mean in zip((3, 4), means, strict=True):
        expected = 1e6 * np.random.default_rng([seed, zlib.crc32(b"initial.centre")]).standard_normal(3)
        np.testing.assert_allclose(mean, expected, atol=5)


@pytest.mark.parametrize(
    "array",
    [
        np.float64(2.5),
        np.arange(3),
        np.arange(9.0).reshape(3, 3),
        np.eye(3, dtype=np.float32),
        np.asfortranarray(np.arange(9.0).reshape(3, 3)),
    ],
    ids=["number", "whole diagonal", "matrix", "float32", "fortran"],
)
def test_files_give_the_numbers_in_them(write, tmp_path, array, monkeypatch):
    np.save(tmp_path / "v.npy", array)
    path = write('"v.npy"')
    monkeypatch.chdir("/")
    found = value_of(path)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(value_of(path, f"drift.0.value={json.dumps(str(tmp_path / 'v.npy'))}"), array)


class Trap:
    """An object whose unpickling leaves a trace."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('"missing.npy"', "drift.0.value = 'missing.npy': names FOLDER/missing.npy, but there is no such file"),
        ('"folder.npy"', "names FOLDER/folder.npy, but there is no such file"),
        ('"cube.npy"', "a matrix, as a list of equally long rows, but FOLDER/cube.npy has shape (2, 2, 2)"),
        ('"empty.npy"', "has shape (0, 3)"),
        ('"pickled.npy"', "Object arrays cannot be loaded"),
        ('"text.npy"', "cannot be read as numbers"),
        ('"words.npy"', "must hold numbers, but those of FOLDER/words.npy are of type <U1"),
        ('"complex.npy"', "of type complex128"),
        ('"nan.npy"', "FOLDER/nan.npy holds NaN at index [1, 0]"),
        ('"infinite.npy"', "drift.0.value: Argument `value` must be finite, but holds inf at index [0, 1]"),
        ('"four.npy"', "does not act on vectors of dimension 3"),
        ('"nul\\u0000.npy"', "FOLDER/nul .npy, but there is no such file"),
        ('"x.csv"', "drift.0.value = 'x.csv': must be a number, a list of numbers (a diagonal) or a matrix"),
        ('{ random = "cauchy", shape = [3, 3] }', "random = 'cauchy': must be 'normal', 'orthogonal' or 'uniform'"),
        ('{ random = "normal" }', "drift.0.value.shape: is missing"),
        ('{ random = "normal", shape = [3, 3, 3] }', "value.shape = [3, 3, 3]: must hold 0 or 1 or 2 numbers here"),
        ('{ random = "orthogonal", shape = [3] }', "drift.0.value.shape = [3]: must hold 2 numbers here"),
        ('{ random = "normal", shape = [0] }', "drift.0.value.shape.0 = 0: must be greater than or equal to 1"),
        ('{ random = "normal", shape = [100000, 100000] }', "asks for more than 16777216 numbers"),
        ('{ random = "normal", shape = [3], scale = -1 }', "value.scale = -1: must be greater than or equal to 0"),
        ('{ random = "normal", shape = [3], scale = nan }', "drift.0.value.scale = nan: must be"),
        ('{ random = "normal", shape = [3], sede = 1 }', "value.sede = 1: is no known key; did you mean 'seed'?"),
        ('{ random = "normal", shape = [3], seed = -1 }', "value.seed = -1: must be greater than or equal to 0"),
        ('{ random = "normal", shape = [4, 4] }', "does not act on vectors of dimension 3"),
        ("{ shape = [3] }", "drift.0.value = {'shape': [3]}: must be a number"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_the_path(write, tmp_path, value, message):
    arrays = {
        "cube": np.zeros((2, 2, 2)),
        "empty": np.zeros((0, 3)),
        "words": np.array(["a"]),
        "complex": np.eye(3) * 1j,
        "nan": np.array([[1.0, 2.0], [np.nan, 4.0]]),
        "infinite": np.array([[1.0, np.inf], [3.0, 4.0]]),
        "four": np.eye(4),
        "pickled": np.array([Trap(tmp_path / "trace")], dtype=object),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "text.npy").write_text("not an array")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(UserError) as caught:
        scenario.load(write(value)).build()
    assert message.replace("FOLDER", str(tmp_path)) in str(caught.value)
    assert not (tmp_path / "trace").exists()


def test_all_problems_come_at_once(write):
    kernel = ', query = "a.npy", key = { random = "normal", shape = [], scle = 1 }, bta = 2'
    with pytest.raises(UserError) as caught:
        scenario.load(write('{ random = "x", shape = [3] }', kernel=kernel))
    for fragment in ("kernel.query = 'a.npy'", "kernel.key.scle = 1", "kernel.bta = 2", "drift.0.value.random = 'x'"):
        assert fragment in str(caught.value)


def test_the_json_schema_knows_files_and_random_numbers():
    schema = json_schema()
    kernels = {choice["title"]: choice for choice in schema["$defs"]["kernel"]["anyOf"]}
    query = kernels["attention"]["properties"]["query"]["anyOf"]
    assert {"type": "string", "pattern": r"\.npy$"} in query
    assert {"$ref": "#/$defs/random"} in query
    assert schema["$defs"]["random"]["required"] == ["random", "shape"]
    assert kernels["attention"]["properties"]["beta"]["anyOf"][0]["type"] == "number"


@pytest.mark.slow
def test_a_run_needs_no_other_files_and_keeps_the_comments(write, tmp_path, capsys):
    np.save(tmp_path / "q.npy", np.random.default_rng(0).standard_normal((3, 3)))
    np.save(tmp_path / "v.npy", np.array([-1.0, -0.5, -2.0]))
    path = write('"v.npy"', kernel=', query = "q.npy", key = { random = "orthogonal", shape = [3, 3] }')
    assert main(["run", str(path), "--output", str(tmp_path / "run"), *QUIET]) == 0
    for name in ("q.npy", "v.npy"):
        (tmp_path / name).unlink()
    text = (tmp_path / "run" / "scenario.toml").read_text(encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    expected = expected.replace('"v.npy"', '"inputs/drift.0.value.npy"').replace(
        '"q.npy"', '"inputs/drift.0.kernel.query.npy"'
    )
    assert text.startswith(expected.rstrip())
    again = ["run", str(tmp_path / "run/scenario.toml"), "--output", str(tmp_path / "again"), *QUIET]
    assert main(again) == 0
    (tmp_path / "run/trajectory.h5").rename(tmp_path / "first.h5")
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 0  # from the start, as the trajectory has gone
    capsys.readouterr()
    first = np.asarray(pf.Trajectory.open(tmp_path / "first.h5").points)
    for folder in ("again", "run"):
        np.testing.assert_array_equal(pf.Trajectory.open(tmp_path / folder).points, first)


def test_files_of_a_single_drift_table_are_found(write, tmp_path):
    np.save(tmp_path / "v.npy", np.array([-1.0, -0.5, -2.0]))  # the program of the run before
    orthogonal = '{ random = "orthogonal", shape = [3, 3] }'
    path = write('"v.npy"', kernel=f", query = {orthogonal}, key = {orthogonal}")
    path.write_text(path.read_text().replace("[[drift]]", "[drift]"))
    assert main(["run", str(path), "--output", str(tmp_path / "run"), *QUIET]) == 0
    raw = tomllib.loads((tmp_path / "run/scenario.toml").read_text(encoding="utf-8"))
    assert raw["drift"]["value"] == "inputs/drift.0.value.npy"


@pytest.mark.slow
def test_a_sweep_over_seeds_draws_new_matrices_in_one_ensemble(write, tmp_path):
    loaded = scenario.load(
        write(
            '{ random = "normal", shape = [3, 3], scale = 0.5 }',
            '[sweep]\nseed = { count = 2 }\n"drift.0.value.scale" = [0.5, 1.0]\n',
        )
    )
    (tmp_path / "out").mkdir()
    plan, manifest = start_sweep(plan_sweep(loaded), tmp_path / "out")
    assert manifest.groups == [[0, 1, 2, 3]]
    run_sweep(plan, manifest)
    ends = []
    for number, row in enumerate(table(manifest)):
        setup = loaded.with_values(manifest.runs[number]["values"]).build()
        scale, seed = (manifest.runs[number]["values"][key] for key in ("drift.0.value.scale", "seed"))
        drawn = scale * np.random.default_rng([seed, zlib.crc32(b"drift.0.value")]).standard_normal((3, 3))
        np.testing.assert_array_equal(setup.flow.drift.value, drawn)
        alone = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
        ends.append(float(alone.observables["order_parameter"][-1]))
        assert row["order_parameter"] == pytest.approx(ends[-1], rel=1e-9)
    assert len(set(ends)) == 4


@pytest.mark.slow
def test_a_sweep_over_files_needs_nothing_but_its_folder(write, tmp_path, capsys):
    for index in range(3):
        np.save(tmp_path / f"v{index}.npy", (index - 1.0) * np.eye(3))
    path = write(more='[sweep]\n"drift.0.value" = ["v0.npy", "v1.npy", "v2.npy", 0.5]\n')
    loaded = scenario.load(path)
    expected = []
    for value in ("v0.npy", "v1.npy", "v2.npy", 0.5):
        setup = loaded.with_values({"drift.0.value": value}).build()
        run = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
        expected.append(float(run.observables["order_parameter"][-1]))
    (tmp_path / "out").mkdir()
    start_sweep(plan_sweep(loaded), tmp_path / "out")
    for index in range(3):
        (tmp_path / f"v{index}.npy").unlink()
    assert main(["resume", str(tmp_path / "out"), "--quiet"]) == 0
    capsys.readouterr()
    rows = table(Manifest.open(tmp_path / "out"))
    assert [row["order_parameter"] for row in rows] == pytest.approx(expected, rel=1e-9)
