"""One threshold for a run: that of its event, or the one a user gave to `analyze`, in everything that is made of it."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from folders_oracles import merging_points, save_run
from particleflow.analysis import choose_threshold, cluster_count, track_clusters
from particleflow.app.cli import main
from particleflow.app.runs.folder_contents import kept_threshold, threshold_for

# Nine points ten apart: at 5 they are nine clusters (five in the end), at 15 one.
FINE, COARSE = 5.0, 15.0


@pytest.fixture
def seen(monkeypatch):
    """The cluster counts that pictures and pages are given, by product."""
    counts = {}
    from particleflow import view

    def noting(name, make, pick):
        def made(trajectory, target, **options):
            counts[name] = np.asarray(pick(options)).tolist()
            return make(target)

        return made

    def touched(target):
        target.touch()
        return target

    monkeypatch.setattr(view, "figures", noting("plot", lambda folder: [], lambda options: options["analysis"].counts))
    monkeypatch.setattr(view, "animate", noting("animate", touched, lambda options: options["counts"]))
    monkeypatch.setattr(view, "page", noting("view", touched, lambda options: options["analysis"].counts))
    return counts


def products(folder, *threshold):
    for command in (["plot"], ["animate"], ["view", "--no-open"]):
        assert main([command[0], str(folder), *command[1:], *threshold, "--quiet"]) == 0


def counted_at(distance):
    return [cluster_count(points, distance) for points in merging_points()]


@pytest.mark.parametrize("form", ["folder", "file"])
def test_a_threshold_that_was_given_is_kept_and_honoured(form, tmp_path, seen, capsys):
    folder = save_run(tmp_path / "run")
    named = folder if form == "folder" else folder / "trajectory.h5"
    assert counted_at(FINE) == [9, 9, 7, 7, 7, 5, 5, 5, 5]
    assert counted_at(COARSE)[0] == 1
    assert main(["analyze", str(named), "--threshold", str(COARSE), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["thresholds"]["cluster_distance"] == COARSE
    assert kept_threshold(folder) == COARSE
    products(named)
    assert seen == dict.fromkeys(("plot", "animate", "view"), counted_at(COARSE))
    products(named, "--threshold", str(FINE))  # for once
    assert seen == dict.fromkeys(("plot", "animate", "view"), counted_at(FINE))
    assert main(["analyze", str(named), "--quiet"]) == 0
    assert kept_threshold(folder) == COARSE
    assert main(["analyze", str(named), "--threshold", "auto", "--quiet"]) == 0
    assert kept_threshold(folder) is None
    products(named)
    assert seen["plot"] == counted_at(choose_threshold(pf.Trajectory.from_arrays(range(9), merging_points())).value)


def test_that_of_an_ensemble_is_kept_too(tmp_path):
    folder = save_run(tmp_path / "runs", np.stack([merging_points()] * 2, axis=1))
    assert main(["analyze", str(folder), "--threshold", "15", "--quiet"]) == 0
    assert kept_threshold(folder) == COARSE


@pytest.mark.parametrize(
    "thresholds",
    [
        None, 3, [], {"cluster_distance": 1.0}, {"cluster_distance": "x", "cluster_reason": "given"},
        {"cluster_distance": True, "cluster_reason": "given"}, {"cluster_distance": -1.0, "cluster_reason": "given"},
        {"cluster_distance": 1e999, "cluster_reason": "given"},
    ],
)  # fmt: skip
def test_nothing_else_is_a_kept_threshold(thresholds, tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps({"thresholds": thresholds}), encoding="utf-8")
    assert kept_threshold(tmp_path) is None
    assert threshold_for(tmp_path, 2.0) == 2.0


def test_a_threshold_must_be_a_distance(tmp_path, capsys):
    folder = save_run(tmp_path / "run")
    for wrong in ("-1", "nan", "much"):
        assert main(["plot", str(folder), "--threshold", wrong, "--quiet"]) == 2
        assert "threshold" in capsys.readouterr().err.lower()


@pytest.mark.slow
def test_the_distance_of_an_event_is_that_of_the_analysis():
    """x ← x/2 of 0, 1, 3: the first gap is below 0.3 after two layers, when the second is 0.5."""
    run = pf.simulate(
        pf.Flow(pf.drifts.Linear(-0.5)), pf.Measure.uniform(jnp.asarray([[0.0], [1.0], [3.0]])), jnp.arange(6.0),
        step=1.0, solver="map", event=pf.events.Merged(merges=1, distance=0.3),
    )  # fmt: skip
    assert float(run.times[-1]) == 2.0
    track = track_clusters(run)
    assert track.threshold.value == pytest.approx(0.3, rel=1e-4)
    assert "event" in track.threshold.reason
    assert track.counts.tolist() == [3, 3, 2]
    assert choose_threshold(run, 0.1).value == 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "clusters", "time"),
    [
        # ẋ = −x brings 0, 1, 3 together: gaps e^{−t}, 2 e^{−t} and width 3 e^{−t}.
        (pf.events.Merged(merges=1, distance=0.5), 2, np.log(2.0)),
        (pf.events.Merged(merges=2, distance=0.5), 1, np.log(4.0)),
        (pf.events.Clustered(distance=0.5), 1, np.log(6.0)),
        (None, 3, 1.0),
    ],
)
@pytest.mark.parametrize("storage", [None, "float32"])
def test_what_stops_at_so_many_clusters_is_counted_so(event, clusters, time, storage, tmp_path):
    start = pf.Measure.uniform(jnp.asarray([[0.0], [1.0], [3.0]]))
    end = 3.0 if event is not None else 1.0
    run = pf.simulate(
        pf.Flow(pf.drifts.Linear(-1.0)), start, jnp.linspace(0.0, end, 4), rtol=1e-8, atol=1e-10, event=event,
        store=tmp_path / "trajectory.h5", storage=storage,
    )  # fmt: skip
    with run:
        track = track_clusters(run)
        assert run.times[-1] == pytest.approx(time, rel=1e-6)
        assert track.counts[-1] == clusters
        if event is not None:
            assert track.threshold.value == pytest.approx(0.5, rel=1e-4)
            assert "event" in track.threshold.reason


@pytest.mark.parametrize("distance", ["x", float("nan"), -1.0, 0.0, None, [0.5, 0.5], True, 1e999])
def test_a_distance_that_is_none_is_not_used(distance):
    run = pf.Trajectory.from_arrays(range(9), merging_points(), metadata={"linking distance": distance})
    plain = pf.Trajectory.from_arrays(range(9), merging_points())
    assert choose_threshold(run) == choose_threshold(plain)
