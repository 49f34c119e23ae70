"""Runs of very many particles: the same answers as by brute force, and never all frames or all pairs in memory."""

import matplotlib as mpl

mpl.use("Agg")

import tracemalloc

import numpy as np
import pytest

from page_oracles import undo
from particleflow import view
from particleflow._support.single_linkage import distinct
from particleflow.analysis import cluster_labels, summarize
from particleflow.analysis import reading as frames_module
from particleflow.analysis.clusters import agreement, merge_tree, tracking
from particleflow.analysis.clusters.agreement import silhouette
from particleflow.analysis.clusters.merge_tree import first_contacts
from particleflow.analysis.distances import sliced_wasserstein2
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.plots import base
from particleflow.view.plots.density import histograms
from particleflow.view.plots.density.distributions import particle_density
from particleflow.view.plots.space.ring import ring_bars
from particleflow.view.webpage import page_data as data

CIRCLE = {"geometry": "sphere", "title": "A crowd"}


def gathering(count: int, frames: int, places: int = 4) -> np.ndarray:
    """Points (T, N, 2) of a circle that go to a few places: θ' = −sin(pθ)/p, so that tan(pθ/2) falls like e^{−t}."""
    start = np.random.default_rng(5).uniform(-np.pi, np.pi, count)
    turn = 2 * np.pi / places
    centre = np.round(start / turn) * turn
    half = places * (start - centre) / 2
    angles = [centre + 2 / places * np.arctan(np.tan(half) * np.exp(-t)) for t in np.linspace(0, 9, frames)]
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def sorted_circle_labels(points: np.ndarray, threshold: float) -> np.ndarray:
    """Clusters on the circle from the gaps between sorted angles, numbered by their first particle."""
    angle = np.arctan2(points[:, 1], points[:, 0])
    order = np.argsort(angle, kind="stable")
    neighbours = points[np.roll(order, -1)] - points[order]
    cut = np.hypot(*neighbours.T) > threshold
    number = np.concatenate([[0], np.cumsum(cut[:-1])])
    if not cut[-1] and cut.any():
        number[number == number[-1]] = 0
    labels = np.empty(len(points), int)
    labels[order] = number
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


@pytest.mark.parametrize(("frame", "threshold"), [(0, 1e-5), (0, 2e-4), (0, 0.0447), (6, 0.0447), (11, 1e-3)])
def test_clusters_of_a_crowd_are_cut_where_sorted_angles_have_gaps(frame, threshold):
    points = gathering(100_000, 12)[frame].astype(float)
    np.testing.assert_array_equal(cluster_labels(points, threshold), sorted_circle_labels(points, threshold))


@pytest.mark.parametrize("low", [0, -5, 10**15])
@pytest.mark.parametrize("span", [3, 50, 10**9])
def test_integers_are_numbered_as_by_sorting(low, span):
    keys = low + np.random.default_rng(1).integers(0, span, 500)
    np.testing.assert_array_equal(distinct(keys), np.unique(keys, return_inverse=True)[1])


def test_few_particles_touch_crowds_when_a_tree_says_so(monkeypatch):
    random = np.random.default_rng(2)
    crowds = np.concatenate([centre + 0.01 * random.normal(size=(3000, 2)) for centre in ((0, 0), (1, 0))])
    stragglers = np.array([[0.5, 0.2], [0.4, 0.0], [0.8, 0.3], [0.5, 0.21]])
    before = np.concatenate([crowds, stragglers])
    after = np.concatenate([crowds, 0.06 * stragglers + 0.94 * np.array([[0, 0.02], [0.03, 0], [1, 0.02], [0, 0.02]])])
    owner, crowd = (
        np.repeat([0, 1, 2, 3, 4, 5], [3000, 3000, 1, 1, 1, 1]),
        np.repeat([0, 1, 0, 1, 0], [3000, 3000, 2, 1, 1]),
    )
    found = first_contacts(before, after, owner, crowd, 0.05)
    monkeypatch.setattr(merge_tree, "_FEW", 0)
    monkeypatch.setattr(merge_tree, "_CONTACTS_LIMIT", 10**9)
    expected = first_contacts(before, after, owner, crowd, 0.05)
    assert len(found[0]) == len(expected[0]) == 4
    for one, other in zip(found[0], expected[0], strict=True):
        assert {one.first, one.second} == {other.first, other.second}
        assert one.fraction == pytest.approx(other.fraction, rel=1e-12)


def test_labels_of_a_large_run_are_in_a_file_and_the_same(monkeypatch):
    run = Trajectory.from_arrays(np.arange(10.0), gathering(5000, 10), metadata=CIRCLE)
    kept = tracking.track_clusters(run)
    monkeypatch.setattr(tracking, "_IN_MEMORY", 0)
    filed = tracking.track_clusters(run)
    np.testing.assert_array_equal(filed.labels, kept.labels)
    assert isinstance(filed.labels.base, np.memmap)
    assert filed.tree.merges == kept.tree.merges
    np.testing.assert_array_equal(filed.counts, kept.counts)


def test_sliced_distance_of_equal_and_of_unequal_weights_agree():
    random = np.random.default_rng(3)
    x, y = random.normal(size=(2, 400, 2))
    plain = sliced_wasserstein2(x, 2 * y + 1, seed=1, directions=20)
    nearly = np.full(400, 1.0)
    nearly[0] += 1e-13  # no longer equal: the general way
    assert plain == pytest.approx(sliced_wasserstein2(x, 2 * y + 1, seed=1, directions=20, x_weights=nearly), rel=1e-9)


def test_a_silhouette_does_not_depend_on_its_blocks(monkeypatch):
    points = gathering(600, 8)[-1]
    labels = cluster_labels(points, 0.3)
    whole = silhouette(points, labels)
    monkeypatch.setattr(agreement, "_PAIRS_AT_ONCE", 1)
    assert silhouette(points, labels) == pytest.approx(whole, rel=1e-12)


def test_a_histogram_counts_every_particle_once():
    run = Trajectory.from_arrays(np.arange(3.0), gathering(30_000, 3), metadata=CIRCLE)
    frames = np.arange(3)
    ruler = histograms.ruler_of(run, frames)
    edges, found = histograms.densities(run, frames, ruler)
    angle = np.arctan2(*np.asarray(run.points[1], float).T[::-1])
    angle = (angle - ruler.ends[0]) % (2 * np.pi) + ruler.ends[0]
    expected = np.histogram(angle, edges)[0] / 30_000 / np.diff(edges)
    np.testing.assert_allclose(found[1], expected, atol=1e-9)
    np.testing.assert_allclose(found @ np.diff(edges), 1.0)
    assert [histograms.cell_count(n) for n in (9, 400, 10_000, 10**6, 10**8)] == [20, 40, 90, 240, 240]


def test_bars_of_a_ring_have_the_root_of_the_density_and_the_mean_colour():
    angle = np.concatenate([np.full(30, 0.3), np.full(10, -2.0)])
    points, colors = np.column_stack([np.cos(angle), np.sin(angle)]), np.repeat([[1.0, 0, 0], [0, 0, 1.0]], 20, axis=0)
    corners, shades = ring_bars(points, colors, np.full(40, 1 / 40), cells=8)
    heights = np.linalg.norm(corners[:, 1], axis=1) - 1
    # 8 cells: −2.0 lies in the second, 0.3 in the fifth; three quarters of the mass in an eighth of the circle
    np.testing.assert_allclose(heights, 0.04 * np.sqrt(8 * np.array([0.25, 0.75])))
    np.testing.assert_allclose(shades, [[0, 0, 1], [2 / 3, 0, 1 / 3]])
    np.testing.assert_allclose(corners[1, 0], [1, 0], atol=1e-12)
    np.testing.assert_allclose(corners[1, 3], [np.sqrt(0.5)] * 2)


def small_print_of(ax) -> str:
    return ax.figure._supxlabel.get_text()


def test_pictures_of_a_crowd_say_what_they_show(monkeypatch):
    monkeypatch.setattr(base, "MAX_DOTS", 500)
    run = Trajectory.from_arrays(np.arange(6.0), gathering(2000, 6), metadata=CIRCLE)
    with style.use("light"):
        assert "bars: root of the density of all particles" in small_print_of(view.snapshot(run))
        assert "all particles, in 89 cells" in small_print_of(particle_density(run))
        assert "512 of the particles drawn" in small_print_of(view.kymograph(run))
        assert "200 of the particles drawn" in small_print_of(view.similarity(run))
        assert "1,024 of the particles drawn" in small_print_of(view.gram(run))
        few = Trajectory.from_arrays(np.arange(6.0), gathering(100, 6), metadata=CIRCLE)
        assert "drawn" not in "".join(small_print_of(draw(few)) for draw in (view.snapshot, view.kymograph, view.gram))
        assert "cells" not in small_print_of(particle_density(few))


def test_the_page_of_a_crowd_shows_a_sample_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "CROWD", 3000)
    monkeypatch.setattr(data, "SHOWN_OF_A_CROWD", 700)
    points = gathering(4000, 9)
    run = Trajectory.from_arrays(np.arange(9.0), points, metadata=CIRCLE)
    coded = data.CodedLabels.of(tracking.track_clusters(run).labels)
    chosen, sections = data.fit(run, data.survey(run), coded, 1e6)
    assert chosen.particles is not None
    assert len(chosen.particles) == 700
    np.testing.assert_array_equal(chosen.particles, data.fit(run, data.survey(run), coded, 1e6)[0].particles)
    found: list[np.ndarray] = []
    for section in sections:
        if section.name.startswith("positions"):
            found += list(undo(section.text, section.shape, chosen.order, found))
    decoded = chosen.grid.low[:, None] + chosen.grid.step[:, None] * np.array(found)
    np.testing.assert_allclose(np.swapaxes(decoded, 1, 2), points[:, chosen.particles], atol=0.51 * chosen.grid.step[0])
    text = view.page(run, tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"count": 700' in text
    assert '"totalCount": 4000' in text


@pytest.mark.slow
def test_analysis_and_pictures_never_hold_all_frames(tmp_path, monkeypatch):
    count, frames = 30_000, 150
    path = tmp_path / "trajectory.h5"
    Trajectory.from_arrays(np.arange(float(frames)), gathering(count, frames), metadata=CIRCLE).save(path)
    frame = 8 * 2 * count  # bytes, in double precision
    for module, name, less in (  # what is held at once, smaller as this run is smaller
        (tracking, "_IN_MEMORY", 0), (frames_module, "_BLOCK_BYTES", 2**19), (data, "BLOCK_VALUES", 200_000),
        (agreement, "_PAIRS_AT_ONCE", 2**18),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, less)
    monkeypatch.setattr(data, "CROWD", 10_000)
    monkeypatch.setattr(data, "SHOWN_OF_A_CROWD", 3000)
    with Trajectory.open(path) as run:
        tracemalloc.start()
        try:
            track = tracking.track_clusters(run)
            summarize(run, track=track)
            particle_density(run)
            view.snapshots(run)
            view.page(run, tmp_path / "page.html", analysis=track)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    # blocks of a few megabytes and some thirty arrays of a frame, but not the frames themselves
    assert peak < 0.5 * frames * frame + 40e6
