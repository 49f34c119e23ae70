"""Numbers behind the figures of particular runs: heat, densities of data, steps up and down, clusters of directions."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.stats import multivariate_normal

import particleflow as pf
from particleflow.analysis import (
    choose_threshold,
    cluster_counts,
    counts_directions,
    data_density,
    data_width,
    heat_profile,
    heat_rate,
    step_means,
    summarize,
    track_clusters,
    up_and_down,
)
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory

CIRCLE = {"kind": "sphere", "radius": 1.0, "sees_stored": True}


def repelling(beta: float = 100.0, value: float = -2.0, **others: Any) -> dict[str, Any]:
    kernel = {"kind": "attention", "form": "inner", "beta": beta, "query": 1.0, "key": 1.0}
    row = {"kernel": kernel, "normalization": "row", "value": value, "output": 1.0}
    return {"space": CIRCLE, "interactions": [row], **others}


def on_circle(angles: Any, metadata: dict[str, Any]) -> Trajectory:
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return Trajectory.from_arrays([0.0], points[None], metadata=metadata)


def test_a_heat_profile_is_a_sum_of_wrapped_normal_laws():
    rng = np.random.default_rng(0)
    angles, weights, spread = rng.uniform(-3, 3, 5), rng.dirichlet(np.ones(5)), 0.08
    grid = np.linspace(-np.pi, np.pi, 31)
    turns = 2 * np.pi * np.arange(-4, 5)
    away = grid[:, None, None] - angles[None, :, None] + turns
    wrapped = np.exp(-(away**2) / (4 * spread)) / np.sqrt(4 * np.pi * spread)
    np.testing.assert_allclose(
        heat_profile(angles, weights, spread, grid, 40), wrapped.sum(axis=2) @ weights, atol=1e-12
    )
    with pytest.raises(ArgumentError, match="spread"):
        heat_profile(angles, weights, -1.0, grid, 4)


def test_repelling_attention_spreads_at_the_rate_of_heat():
    """The velocity v (P m)(x) of many particles with a small ripple of mode k changes its amplitude by −k² v/β."""
    beta, value, wave = 400.0, -2.0, 2
    begin = np.linspace(0, 2 * np.pi, 600, endpoint=False)
    angles = begin + 0.01 * np.sin(wave * begin)
    run = on_circle(angles, repelling(beta, value))
    points = run.points[0]
    weights = np.exp(beta * (points @ points.T - 1))
    mean = weights @ points / weights.sum(axis=1, keepdims=True)
    speed = value * (-np.sin(angles) * mean[:, 0] + np.cos(angles) * mean[:, 1])
    amplitude = np.exp(-1j * wave * angles).mean()
    change = (-1j * wave * speed * np.exp(-1j * wave * angles)).mean()
    rate = heat_rate(run)
    assert rate is not None
    assert (change / amplitude).real == pytest.approx(-(wave**2) * rate, rel=0.02)


@pytest.mark.parametrize(
    "metadata",
    [
        repelling(beta=5.0), repelling(value=1.0), repelling(temperature=0.1), {},
        repelling(schedule={"name": "beta", "times": [0, 1], "values": [50, 60]}),
    ],
)  # fmt: skip
def test_other_runs_have_no_rate_of_heat(metadata):
    assert heat_rate(on_circle(np.arange(4.0), metadata)) is None


def test_the_density_of_data_is_a_mean_of_normal_densities():
    rng = np.random.default_rng(1)
    data, places, width = rng.normal(size=(7, 2)), rng.normal(size=(5, 2)), 0.4
    each = [multivariate_normal(point, width**2 * np.eye(2)).pdf(places) for point in data]  # pyright: ignore
    np.testing.assert_allclose(data_density(data, width, places), np.mean(each, axis=0))
    with pytest.raises(ShapeError):
        data_density(data, width, places[:, :1])


def test_a_run_stores_the_data_that_it_looks_at():
    from particleflow.simulation.plan import Stepping, make_plan
    from particleflow.simulation.recording.provenance import describe

    rng = np.random.default_rng(2)
    data = pf.Measure.uniform(rng.normal(size=(6, 2)))
    drift = pf.drifts.Varying(
        pf.MeanShift(pf.kernels.Gaussian(0.7), data), pf.drifts.Ramp(0.7, 0.1, 2.0), "kernel.width"
    )  # fmt: skip
    start, times = pf.Measure.uniform(rng.normal(size=(3, 2))), np.array([0.0, 1.0])
    metadata = describe(make_plan(pf.Flow(drift), start, times, Stepping(rtol=1e-6, atol=1e-8)))
    run = Trajectory.from_arrays(times, np.zeros((2, 3, 2)), metadata=metadata)
    np.testing.assert_allclose(run.facts.data_points, np.asarray(data.points))  # type: ignore[arg-type]
    assert data_width(run, 0.0) == pytest.approx(0.7)
    assert data_width(run, 1.0) == pytest.approx(0.4, abs=1e-3)


def stepped(values: list[float], series: Any = None, frames: int = 4) -> Trajectory:
    """A run whose parameter has these values for one unit of time each, with `frames` frames a step."""
    ends = np.arange(1.0, len(values))
    times = np.linspace(0, len(values), frames * len(values) + 1)
    clock = np.sort(np.concatenate([ends - 1e-9, ends, [0.0, len(values)]]))
    steps = np.repeat(values, 2)
    metadata = {
        "schedule": {"name": "value", "times": clock.tolist(), "values": steps.tolist()}, "changes": ends.tolist(),
    }  # fmt: skip
    return Trajectory.from_arrays(times, np.zeros((len(times), 2, 2)), metadata=metadata)


def test_steps_up_and_down_have_the_means_of_their_second_halves():
    run = stepped([0.1, 0.2, 0.5, 0.3])
    series = np.random.default_rng(3).normal(size=len(run))
    assert up_and_down(run) is not None
    found = step_means(run, series)
    assert found.values == pytest.approx([0.1, 0.2, 0.5, 0.3])
    assert found.top == 2
    halves = [series[2:4], series[6:8], series[10:12], series[14:17]]
    np.testing.assert_allclose(found.means, [half.mean() for half in halves])
    np.testing.assert_allclose(found.deviations, [half.std() for half in halves])


@pytest.mark.parametrize("values", [[0.1, 0.2, 0.3], [0.3, 0.1, 0.2], [0.1, 0.3, 0.3, 0.1]])
def test_steps_that_do_not_go_up_and_then_down_are_no_loop(values):
    assert up_and_down(stepped(values)) is None
    assert up_and_down(stepped([0.1, 0.3, 0.2], frames=1)) is None


def layers_of_words(frames: int = 4, **others: Any) -> Trajectory:
    """Directions of words that come together, at lengths that differ."""
    rng = np.random.default_rng(4)
    begin, end = rng.normal(size=(2, 9, 5))
    end = end[[0, 0, 0, 1, 1, 2, 2, 2, 2]]
    lengths = rng.uniform(0.2, 30.0, (frames, 9, 1))
    shares = np.linspace(0, 0.97, frames)[:, None, None]
    points = lengths * ((1 - shares) * begin + shares * end)
    space = {"kind": "flat", "sees_stored": True}
    metadata = {"space": space, "drift": "trained_layers", "solver": "map", "step": 1.0, **others}
    return Trajectory.from_arrays(np.arange(float(frames)), points, words=list("abcdefghi"), metadata=metadata)


def test_clusters_of_a_network_are_those_of_cosines_above_nine_tenths():
    run = layers_of_words()
    assert counts_directions(run)
    units = run.points[:] / np.linalg.norm(run.points[:], axis=-1, keepdims=True)
    linked = [connected_components(unit @ unit.T >= 0.9)[0] for unit in units]
    assert cluster_counts(run).tolist() == linked
    assert len(set(linked)) > 1
    track = track_clusters(run)
    assert track.counts.tolist() == linked
    assert "cosine 0.9" in track.threshold.reason
    assert 1 - track.threshold.value**2 / 2 == pytest.approx(0.9)


def test_merges_of_a_network_happen_at_layers():
    run = layers_of_words()
    merges = track_clusters(run).tree.merges
    assert merges
    assert all(merge.between.before == merge.between.after == run.times[merge.frame] for merge in merges)
    seen = layers_of_words(5)[::2]  # layers 0, 2 and 4: what is seen at 4 may have happened at 3
    assert {tuple(merge.between) for merge in track_clusters(seen).tree.merges} <= {(1.0, 2.0), (3.0, 4.0)}
    summary = summarize(run)
    assert summary["unit_of_time"] == "layer"
    assert summary["thresholds"]["cluster_metric"] == "directional"


@pytest.mark.parametrize(
    "others", [{"drift": "attend"}, {"linking distance": 0.3}, {"space": {"kind": "sphere", "radius": 1.0}}]
)
def test_other_runs_are_linked_where_they_are(others):
    run = layers_of_words(**others)
    assert not counts_directions(run)
    assert choose_threshold(run).metric != "directional"
