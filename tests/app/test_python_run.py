"""What a Python program does with runs: scenarios by `pf.run`, files that are replaced, bars, times, seeds."""

import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import particleflow as pf
from particleflow._support import progress as progress_bar
from particleflow.app.cli import main
from particleflow.errors import ArgumentError, ProductMissing, StoreError, UserError

SMALL = """
# What to look for.
title = "A small run"
seed = 7
precision = "PRECISION"
temperature = TEMPERATURE
initial = { kind = "uniform_sphere", dim = 3, count = 12 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 4.0 }
[time]
end = 2.0
frames = 5
step = 0.25
solver = "SOLVER"
[record]
observables = ["energy"]
"""
NOTHING: dict[str, Any] = {"summary": False, "figures": False, "movie": False, "page": False}
TIMES = np.linspace(0.0, 2.0, 5)


@pytest.fixture
def small(tmp_path):
    def write(precision="float64", temperature=0.0):
        path = tmp_path / "small.toml"
        solver = "heun" if temperature else "map"
        text = SMALL.replace("PRECISION", precision).replace("TEMPERATURE", str(temperature)).replace("SOLVER", solver)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def started(dtype=jnp.float64):
    """What `SMALL` begins with, made in Python from the same seed."""
    cloud = pf.initial.UniformSphere(dim=3).sample(pf.key_for(7, "initial"), 12)
    return pf.geometry.retracted(pf.Sphere(), cloud.astype(dtype))


def flow(beta=4.0, temperature=0.0):
    return pf.Flow(pf.Attend(pf.kernels.Attention(beta=beta)), geometry=pf.Sphere(), temperature=temperature)


def simulated(**options):
    return pf.simulate(flow(), started(), TIMES, step=0.25, solver="map", **options)


def test_a_scenario_runs_as_the_command_runs_it(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(small()), "--set", "drift.0.kernel.beta=5.0", "--no-movie", "--no-figures", "--quiet"]) == 0
    run = pf.run(small(), set={"drift.0.kernel.beta": 5.0}, movie=False, figures=False)
    first, second = tmp_path / "outputs/small/001", tmp_path / "outputs/small/002"
    assert {each.name for each in first.iterdir()} == {each.name for each in second.iterdir()}
    assert {"summary.json", "viewer.html"} <= {each.name for each in second.iterdir()}
    assert not {"movie.mp4", "figures"} & {each.name for each in second.iterdir()}
    assert (first / "scenario.toml").read_bytes() == (second / "scenario.toml").read_bytes()
    with run, pf.Trajectory.open(first) as commanded:
        assert run.path == str(second.relative_to(tmp_path) / "trajectory.h5")
        assert run.status == "finished"
        np.testing.assert_array_equal(run.points, commanded.points)
        np.testing.assert_array_equal(run.observables["energy"], commanded.observables["energy"])
        assert run.metadata["interactions"][0]["kernel"]["beta"] == 5.0


@pytest.mark.slow
def test_values_of_any_kind_reach_the_scenario(small, tmp_path):
    values = {"drift.0.value": jnp.diag(jnp.arange(1.0, 4.0)), "seed": np.int64(3), "time.end": np.float64(1.0)}
    with pf.run(small(), set=values, output=tmp_path / "mine", **NOTHING) as run:
        assert run.metadata["seed"] == 3
        assert run.times[-1] == 1.0
        made = {each.name for each in (tmp_path / "mine").iterdir()}
        assert made - {"trajectory.h5.checkpoints"} == {"scenario.toml", "trajectory.h5"}
        points, values = np.asarray(run.points), np.diag([1.0, 2.0, 3.0])
    weights = np.exp(4.0 * points[0] @ points[0].T)
    velocity = weights @ points[0] / weights.sum(1, keepdims=True) @ values
    tangent = velocity - np.sum(velocity * points[0], axis=1, keepdims=True) * points[0]
    toward = points[1] - points[0]
    assert np.sum(tangent * toward) / np.linalg.norm(tangent) / np.linalg.norm(toward) > 0.95


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"drift.0.kernel.bta": 1.0}, "did you mean 'beta'"),
        ({"seed": None}, "seed is NoneType"),
        ({"seed": [1, object()]}, r"seed\.1 is object"),
        ({"a..b": 1}, "names between its dots"),
        (["seed=1"], "values by their paths"),
    ],
)
def test_wrong_values_leave_nothing_behind(values, message, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        pf.run(small(), set=values)
    assert not (tmp_path / "outputs").exists()


def test_a_folder_in_use_is_refused_and_a_product_that_fails_is_a_warning(small, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise OSError("no paper")

    monkeypatch.setattr("particleflow.view.page", broken, raising=False)
    with pytest.warns(ProductMissing, match="The page of .*mine could not be made: OSError: no paper"):
        pf.run(small(), output=tmp_path / "mine", **{**NOTHING, "page": True, "summary": True}).close()
    assert (tmp_path / "mine/summary.json").is_file()
    with pytest.raises(UserError, match="is in use"):
        pf.run(small(), output=tmp_path / "mine", **NOTHING)


@pytest.mark.slow
def test_pictures_leave_the_backend_of_a_notebook_alone(small, tmp_path, monkeypatch):
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "backend", "svg")
    pf.run(small(), output=tmp_path / "mine", **{**NOTHING, "figures": True}).close()
    assert mpl.get_backend() == "svg"
    assert list((tmp_path / "mine/figures").glob("*.png"))


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_one_seed_is_one_start_and_one_noise(precision, small):
    setup = pf.scenario.load(small(precision, 0.1)).build(check=False)
    mine = started(jnp.dtype(precision))
    assert setup.start.points.dtype == mine.dtype
    np.testing.assert_array_equal(setup.start.points, mine)
    assert setup.arguments["key"] == pf.key_for(7, "noise") != pf.key_for(8, "noise")


@pytest.mark.parametrize(
    ("precision", "temperature"),
    [("float64", 0.0), *(pytest.param(*each, marks=pytest.mark.slow) for each in (("float32", 0.0), ("float64", 0.1)))],
)
def test_one_seed_is_one_run_in_a_scenario_and_in_python(precision, temperature, small, tmp_path):
    """The start is drawn with the key of "initial", the noise with that of "noise"; the bits are the same."""
    dtype = jnp.dtype(precision)
    key = pf.key_for(7, "noise") if temperature else None
    mine = jax.tree_util.tree_map(
        lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, flow(4.0, temperature)
    )
    solver = "heun" if temperature else "map"
    found = pf.simulate(mine, started(dtype), TIMES, step=0.25, key=key, solver=solver, observe=[pf.observables.energy])
    with pf.run(small(precision, temperature), output=tmp_path / "run", **NOTHING) as run:
        assert run.points.dtype == found.points.dtype == dtype
        np.testing.assert_array_equal(run.points, found.points)


@pytest.mark.slow
def test_a_second_run_replaces_the_file_only_if_it_is_asked_to(tmp_path):
    store = tmp_path / "new" / "deep" / "run.h5"
    first = simulated(store=store)
    before = store.read_bytes()
    with pytest.raises(StoreError, match="overwrite=True"):
        simulated(store=store)
    assert store.read_bytes() == before
    second = pf.simulate(flow(2.0), started(), TIMES, step=0.25, solver="map", store=store, overwrite=True)
    with pf.Trajectory.open(store) as again:
        np.testing.assert_array_equal(again.points, second.points)
    expected = simulated()
    np.testing.assert_array_equal(first.points, expected.points)  # who had it open keeps what was there
    assert not np.array_equal(np.asarray(second.points), expected.points)
    first.close()
    second.close()
    assert {each.name for each in store.parent.iterdir()} <= {"run.h5", "run.h5.checkpoints"}


@pytest.mark.slow
def test_a_replaced_run_can_be_resumed_and_is_itself(tmp_path):
    """Checkpoints of the run before must not be taken for those of the new one."""
    store, options = tmp_path / "run.h5", {"step": 0.25, "window": 2, "solver": "map"}
    pf.simulate(flow(2.0), started(), TIMES, store=store, **options).close()

    def stop(frames):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pf.simulate(flow(), started(), TIMES, store=store, overwrite=True, progress=stop, **options)
    with pf.simulate(flow(), started(), TIMES, store=store, resume=True, **options) as whole:
        expected = pf.simulate(flow(), started(), TIMES, **options)
        np.testing.assert_array_equal(whole.points, expected.points)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"overwrite": True}, ArgumentError, "go with `store`"),
        ({"overwrite": True, "resume": True, "store": "FILE"}, ArgumentError, "must not both be true"),
        ({"store": "FILE", "overwrite": True, "progress": "yes"}, ArgumentError, "`progress` must be"),
        ({"store": "FILE/below/it.h5"}, StoreError, "The folder .* cannot be made: Not a directory|File exists"),
    ],
)
def test_what_does_not_go_with_a_file_is_refused_before_it_is_touched(options, error, message, tmp_path):
    store = tmp_path / "run.h5"
    simulated(store=store).close()
    before = store.read_bytes()
    given = {name: value.replace("FILE", str(store)) if name == "store" else value for name, value in options.items()}
    with pytest.raises(error, match=message):
        simulated(**given)
    assert store.read_bytes() == before


@pytest.mark.slow
def test_a_bar_is_drawn_on_terminals_only(monkeypatch, capfd):
    simulated(progress=True, window=2)
    assert capfd.readouterr() == ("", "")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(progress_bar, "_console", lambda: console)
    simulated(progress=True, window=2)
    shown = screen.getvalue()
    assert "simulating" in shown
    assert "100%" in shown
    assert "t = 2 of 2" in shown
    assert capfd.readouterr() == ("", "")
    seen = []
    simulated(progress=seen.append, window=2)
    assert [len(frames.times) for frames in seen] == [2, 2, 1]
    before = len(screen.getvalue())
    for silent in (False, None):
        simulated(progress=silent)
    assert len(screen.getvalue()) == before


@pytest.mark.parametrize("home", ["memory", "file"])
@pytest.mark.parametrize("runs", [None, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_frame_at_a_time(home, runs, dtype, tmp_path):
    rng = np.random.default_rng(5)
    shape = (4, 6, 2) if runs is None else (4, runs, 6, 2)
    points, times = rng.normal(size=shape).astype(dtype), np.array([0.0, 1.0, 3.0, 3.5])
    energy, masses = rng.normal(size=shape[:-2]), rng.random(shape[:-1]).astype(dtype)
    log_weights = rng.normal(size=6)
    run = pf.Trajectory.from_arrays(
        times, points, observables={"energy": energy}, fields={"masses": masses}, log_weights=log_weights
    )
    if home == "file":
        run.save(tmp_path / "run.h5")
        run = pf.Trajectory.open(tmp_path / "run.h5")
    for time, index in ((0, 0), (0.4, 0), (0.5, 0), (0.6, 1), (1.0, 1), (2.0, 1), (2.1, 2), (3.5, 3)):
        frame = run.at(time)
        assert (frame.time, frame.step) == (times[index], index)
        np.testing.assert_array_equal(frame.points, points[index])
        np.testing.assert_array_equal(frame.log_weights, log_weights)
    for time in (0.0, 0.25, 1.0, 2.75, 3.5):
        frame = run.at(time, interpolate=True)
        assert frame.time == time
        assert frame.points.dtype == dtype
        flat = points.reshape(4, -1).astype(float)
        expected = np.stack([np.interp(time, times, column) for column in flat.T]).reshape(shape[1:])
        np.testing.assert_allclose(frame.points, expected, rtol=0, atol=1e-14 if dtype == np.float64 else 1e-6)
        expected = [np.interp(time, times, column) for column in energy.reshape(4, -1).T]
        np.testing.assert_allclose(np.ravel(frame.observables["energy"]), expected, atol=1e-14)
        assert frame.fields["masses"].shape == masses.shape[1:]
    for outside in (-1e-9, 3.6, np.nan, np.inf):
        with pytest.raises(ArgumentError, match=r"from 0 to 3\.5, but is"):
            run.at(outside)
    with pytest.raises(ArgumentError, match="which has no frames"):
        run[:0].at(0.0)
    run.close()


def test_the_only_frame_is_at_its_time():
    run = pf.Trajectory.from_arrays([2.0], np.ones((1, 1, 1)))
    assert run.at(2.0).points == run.at(2, interpolate=True).points == 1.0
    with pytest.raises(ArgumentError, match="from 2 to 2, but is 1"):
        run.at(1)
