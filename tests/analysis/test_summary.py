"""The summary: planted runs come back whole, JSON holds only numbers, files are read lazily and JAX is not needed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from particleflow.analysis import find_plateaus, summarize, track_clusters, write_summary
from particleflow.analysis.summary.summary import plain
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory


def collapsing_circle(seed: int = 0, frames: int = 301) -> Trajectory:
    """Three clusters on the circle, at rest up to t = 10, two of which meet then, and the third at t = 20."""
    generator = np.random.default_rng(seed)
    times = np.linspace(0, 40, frames)
    member = np.repeat([0, 1, 2], [30, 20, 10])
    centres = np.stack([0 * times, np.clip(1.0 - (times - 9), 0, 1), 4.0 * np.clip(1.0 - (times - 19.0), 0, 1)], axis=1)
    spread = 0.01 * np.exp(-times)[:, None] * generator.normal(size=60)
    angles = centres[:, member] + spread
    energy = np.select([times < 9, times < 10, times < 19, times < 20], [0.0, times - 9, 1.0, 1 + times - 19], 2.0)
    return Trajectory.from_arrays(
        times,
        np.stack([np.cos(angles), np.sin(angles)], axis=2),
        observables={"energy": energy},
        labels=member,
        metadata={"geometry": "sphere", "title": "three", "interactions": [CAUSAL]},
    )


KERNEL = {"kind": "attention", "form": "inner", "beta": 25.0, "query": 1.0, "key": 1.0}
CAUSAL = {"kernel": KERNEL, "normalization": "row", "positional": {"kind": "causal"}, "data": False, "value": 1.0}


def test_summary_of_a_planted_run():
    summary = summarize(collapsing_circle())
    assert summary["thresholds"]["cluster_distance"] == pytest.approx(0.0447, abs=1e-4)
    assert summary["thresholds"]["cluster_metric"] == "chordal"
    assert "0.999" in summary["thresholds"]["cluster_reason"]
    clusters = summary["clusters"]
    assert (clusters["initial_count"], clusters["final_count"], len(clusters["counts"])) == (3, 1, 301)
    assert clusters["final_masses"] == pytest.approx([1.0])
    merges = summary["merge_tree"]["listed_merges"]
    # The angle falls at speeds 1 and 4, so the chord reaches r at 10 − r and at 20 − r/4 (2π − 4 is never closer).
    for merge, truth in zip(merges, [10 - 0.0447, 20 - 0.0447 / 4], strict=True):
        assert abs(merge["time"] - truth) <= merge["half_width"] == pytest.approx(1 / 15)
        assert merge["between"][0] < truth < merge["between"][1]
    assert [(merge["survivor"], merge["absorbed"], merge["size"]) for merge in merges] == [(0, 1, 50), (0, 2, 60)]
    assert summary["collapse"]["time"] == pytest.approx(merges[1]["time"])
    plateaus = summary["plateaus"]["listed"]
    assert [plateau["count"] for plateau in plateaus] == [2, 1]  # what was there before the first merge is no tread
    np.testing.assert_allclose([plateau["dwell"] for plateau in plateaus], [10, 20], atol=0.3)
    assert summary["plateaus"]["detected_from"] == ["counts"]
    assert summary["energy"]["last"] == 2.0
    assert summary["energy"]["largest_decrease"] == 0.0
    assert summary["similarity"]["mean"][-1] == pytest.approx(1.0)
    assert summary["modes"]["basis"] == "Fourier"
    assert summary["attention"]["last"]["beta"] == 25.0
    assert summary["attention"]["last"]["causal"] is True
    assert summary["parking"]["separation"] == pytest.approx(0.8)
    assert summary["parking"]["count"] == 3
    assert summary["distances"]["wasserstein2"] > summary["distances"]["sliced_wasserstein2"] > 0


def test_agreement_with_labels_while_clusters_are_still_apart():
    early = summarize(collapsing_circle()[:50])
    assert early["agreement"]["adjusted_rand_index"] == 1.0
    assert early["agreement"]["normalized_mutual_information"] == pytest.approx(1.0)
    assert early["agreement"]["silhouette"] > 0.98
    assert early["collapse"]["time"] is None
    assert early["persistence"]["widest_gap"]["count"] == 3


def test_approach_rate_of_a_shrinking_cloud():
    times = np.linspace(0, 12, 200)
    start = np.random.default_rng(0).normal(size=(40, 3))
    run = Trajectory.from_arrays(times, np.exp(-1.3 * times)[:, None, None] * start)
    approach = summarize(run)["similarity"]["approach"]
    assert approach["series"] == "mean distance"
    assert approach["exponential"]["rate"] == pytest.approx(-1.3, abs=1e-6)


def test_given_threshold_and_beta_are_used_and_stated():
    summary = summarize(collapsing_circle(), threshold=1.2, beta=2.0, causal=False)
    assert summary["thresholds"]["cluster_reason"] == "given"
    assert summary["clusters"]["initial_count"] == 2
    assert summary["attention"]["first"]["beta"] == 2.0
    assert summary["parking"] is None


def test_clusters_that_are_known_already_are_not_followed_again():
    run, other = collapsing_circle(frames=31), collapsing_circle(1, frames=31)
    track = track_clusters(run)
    assert summarize(run, track=track) == summarize(run)
    both = Trajectory.from_arrays(run.times, np.stack([run.points, other.points], axis=1), metadata=run.metadata)
    assert summarize(both, track=track_clusters(both.run(0))) == summarize(both)
    with pytest.raises(ShapeError, match=r"\(31, 60\)"):
        summarize(run, track=track_clusters(collapsing_circle(frames=5)))
    with pytest.raises(ArgumentError, match="must be that of `track`"):
        summarize(run, threshold=0.5, track=track)


def test_ensembles_give_every_run_and_statistics():
    runs = [collapsing_circle(seed) for seed in range(2)]
    points = np.stack([run.points for run in runs], axis=1)
    energy = np.stack([run.observables["energy"] for run in runs], axis=1)
    ensemble = Trajectory.from_arrays(
        runs[0].times, points, observables={"energy": energy}, metadata={"geometry": "sphere"}
    )
    summary = summarize(ensemble)
    assert len(summary["runs"]) == 2
    alone = [summarize(run)["collapse"]["time"] for run in runs]
    found = summary["aggregate"]["collapse_time"]
    assert found["mean"] == pytest.approx(np.mean(alone))
    assert found["standard_deviation"] == pytest.approx(np.std(alone, ddof=1))
    assert (found["runs"], summary["aggregate"]["energy"]["median"]) == (2, 2.0)
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5, 1), (4, 1, 3), (3, 2, 2), (2, 6, 12)])
def test_small_runs_have_summaries(shape):
    points = np.random.default_rng(0).normal(size=shape)
    for geometry in ("euclidean", "sphere", "layer_norm"):
        run = Trajectory.from_arrays(np.arange(shape[0]), points, metadata={"geometry": geometry})
        summary = summarize(run)
        assert summary["particles"] == shape[1]
        assert 1 <= summary["clusters"]["final_count"] <= shape[1]
        json.dumps(summary, allow_nan=False)


def test_the_text_of_a_scenario_and_a_title_are_only_text():
    scenario = '[[drift]]\nkind = "attend"\nkernel = { kind = "attention", beta = 3.0 }'
    run = Trajectory.from_arrays([0], np.eye(2)[None], metadata={"scenario": scenario, "title": "<script>"})
    summary = summarize(run)
    assert summary["attention"] is None
    assert summary["title"] == "<script>"


def test_written_file_is_strict_json_and_replaces_whole(tmp_path):
    calls: list[tuple[int, int]] = []
    target = tmp_path / "summary.json"
    target.write_text("old")
    written = write_summary(collapsing_circle(), tmp_path, progress=lambda done, total: calls.append((done, total)))

    def refuse(name: str):
        raise AssertionError(name)

    assert json.loads(target.read_text(encoding="utf-8"), parse_constant=refuse) == written
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert calls[-1] == (1000, 1000)
    with pytest.raises(ArgumentError, match="does not exist"):
        write_summary(collapsing_circle(), tmp_path / "missing" / "summary.json")


def test_failed_summary_leaves_the_old_file(tmp_path):
    target = tmp_path / "summary.json"
    target.write_text("old")
    with pytest.raises(ArgumentError, match="Frame 1"):
        write_summary(Trajectory.from_arrays([0, 1], np.array([[[0.0]], [[np.nan]]])), target)
    assert target.read_text() == "old"


def test_plain_turns_numpy_and_infinities_into_json():
    value = {"a": np.float32(0.5), 1: [np.nan, -np.inf, np.int8(3)], "b": np.array([[1, 2]]), "c": np.bool_(True)}
    assert plain(value) == {"a": 0.5, "1": [None, None, 3], "b": [[1, 2]], "c": True}


def test_stored_run_has_the_same_summary_as_memory(tmp_path):
    run = collapsing_circle(frames=60)
    run.save(tmp_path / "trajectory.h5")
    with Trajectory.open(tmp_path / "trajectory.h5") as stored:
        summary = summarize(stored)
    expected = summarize(run)
    for name in ("clusters", "merge_tree", "plateaus", "collapse", "similarity", "modes", "agreement", "attention"):
        assert summary[name] == expected[name], name


def test_analysis_needs_neither_jax_nor_matplotlib_nor_test_oracles():
    program = (
        "import sys, numpy as np\n"
        "import particleflow.analysis as analysis\n"
        "assert 'scipy' not in sys.modules\n"
        "from particleflow.trajectory.trajectory import Trajectory\n"
        "run = Trajectory.from_arrays([0, 1, 2], np.random.default_rng(0).normal(size=(3, 9, 3)))\n"
        "analysis.summarize(run, beta=1.0)\n"
        "for name in analysis.__all__: getattr(analysis, name)\n"
        "print([name for name in ('jax', 'sklearn', 'ot', 'matplotlib') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def huge(shape: np.ndarray) -> dict:
    """The summary of a run whose energy has the given shape, in units that doubles can just hold."""
    points = np.repeat(np.random.default_rng(0).normal(size=(2, 6, 2)), 10, axis=0)
    run = Trajectory.from_arrays(np.arange(20.0), points, observables={"energy": 1.7e308 * shape})
    return summarize(run)


def test_energies_that_doubles_can_just_hold_are_measured_without_overflow():
    """Any warning is an error here; the exact answers are those of the small shapes, times 1.7e308."""
    still = huge(np.ones(20))
    assert still["plateaus"]["found"] > 0
    assert all(each["energy"] == pytest.approx(1.7e308) for each in still["plateaus"]["listed"])
    assert still["energy"]["largest_increase"] == 0
    rising = huge(np.linspace(-1, 1, 20))["energy"]
    assert rising["largest_increase"] == pytest.approx(1.7e308 * (2 / 19))
    jumping = huge(np.where(np.arange(20) % 2, 1.0, -1.0))
    assert jumping["plateaus"]["found"] == 1  # the count stays; by its energy alone the run has none
    assert find_plateaus(np.arange(20.0), energy=np.where(np.arange(20) % 2, 1.7e308, -1.7e308)) == []
    assert jumping["energy"]["largest_increase"] is None  # 3.4e308 is no double
    assert jumping["energy"]["maximum"] == 1.7e308


def test_statistics_over_runs_with_huge_energies():
    points = np.random.default_rng(0).normal(size=(4, 3, 6, 2))
    energies = 1.7e308 * np.array([[1.0, 0.5, 0.75]] * 4)
    runs = Trajectory.from_arrays(np.arange(4.0), points, observables={"energy": energies})
    found = summarize(runs)["aggregate"]["energy"]
    assert found["mean"] == pytest.approx(0.75 * 1.7e308)
    assert found["median"] == 0.75 * 1.7e308
    assert found["standard_deviation"] == pytest.approx(0.25 * 1.7e308)
