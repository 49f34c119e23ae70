"""What is drawn is the data: artists of every figure against the arrays they show."""

import matplotlib as mpl

mpl.use("Agg")

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import particleflow
from figure_oracles import make, offsets
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.plots.base import emptiest_angle, projection

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know


@pytest.mark.parametrize(
    ("dimension", "sphere", "kind"),
    [
        (1, False, "line"),
        (2, False, "plane"),
        (2, True, "circle"),
        (3, False, "space"),
        (3, True, "sphere"),
        (8, False, "pca"),
    ],
)
def test_projection_follows_geometry_and_dimension(dimension, sphere, kind):
    assert projection(make(dimension, sphere=sphere)).kind == kind


@pytest.mark.parametrize("scheme", ["layer_norm", "pre_norm", "my_module:Centred"])
def test_projection_of_layer_normed_points_is_one_dimension_lower(scheme):
    generator = np.random.default_rng(1)
    raw = generator.normal(size=(4, 9, 3))
    normed = raw - raw.mean(axis=-1, keepdims=True)
    normed *= np.sqrt(3) / np.linalg.norm(normed, axis=-1, keepdims=True)
    space = {"kind": "sphere", "radius": np.sqrt(3), "coordinates": "any", "sees_stored": True}
    run = Trajectory.from_arrays(np.arange(4.0), normed, metadata={"geometry": scheme, "space": space})
    found = projection(run)
    assert found.kind == "circle"
    assert found.radius == pytest.approx(np.sqrt(3))
    seen = found(normed)
    np.testing.assert_allclose(np.linalg.norm(seen, axis=-1), 1, atol=1e-12)
    # the map is an isometry, up to the radius
    np.testing.assert_allclose(seen @ seen.swapaxes(-1, -2), normed @ normed.swapaxes(-1, -2) / 3, atol=1e-12)


def test_principal_components_match_a_singular_value_decomposition():
    run = make(8, count=30, frames=5)
    rows = np.asarray(run.points).reshape(-1, 8)
    left, values, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    found = projection(run)(rows)
    np.testing.assert_allclose(np.abs(found), np.abs(left[:, :2] * values[:2]), atol=1e-9)


def test_plane_snapshot_draws_the_points():
    run = make(2)
    np.testing.assert_allclose(offsets(view.snapshot(run, 3)), run.points[3])
    np.testing.assert_allclose(offsets(view.snapshot(run)), run.points[6])


def test_circle_snapshot_draws_directions():
    run = make(2, sphere=True)
    np.testing.assert_allclose(offsets(view.snapshot(run, 2)), run.points[2], atol=1e-12)


def test_line_snapshot_draws_places():
    run = make(1)
    np.testing.assert_allclose(offsets(view.snapshot(run, 1))[:, 0], run.points[1, :, 0])


def test_kymograph_lines_are_the_trajectory():
    run = make(1)
    lines = view.kymograph(run).collections[0].get_segments()
    assert len(lines) == 12
    for particle, line in enumerate(lines):
        np.testing.assert_allclose(line, np.column_stack([run.times, run.points[:, particle, 0]]))
    upward = view.kymograph(run, vertical=True).collections[0].get_segments()
    np.testing.assert_allclose(upward[5], np.column_stack([run.points[:, 5, 0], run.times]))


def test_kymograph_of_the_circle_shows_angles_and_breaks_at_the_cut():
    turn = np.linspace(0, 4 * np.pi, 200)
    points = np.stack([np.cos(turn), np.sin(turn)], axis=-1)[:, None]
    run = Trajectory.from_arrays(np.arange(200.0), points, metadata={"geometry": "sphere"})
    line = view.kymograph(run).collections[0].get_segments()[0]
    seen = line[np.isfinite(line[:, 1])]
    np.testing.assert_allclose(np.exp(1j * seen[:, 1]), np.exp(1j * turn[seen[:, 0].astype(int)]), atol=1e-9)
    assert len(seen) < 200
    assert np.abs(np.diff(seen[:, 1])[np.diff(seen[:, 0]) == 1]).max() < np.pi


def test_circle_is_cut_where_nobody_is():
    angle = np.random.default_rng(0).uniform(0.4, 5.0, 4000)
    cut = emptiest_angle(angle)
    assert 5.0 < np.mod(cut, 2 * np.pi) < 2 * np.pi + 0.4
    assert emptiest_angle(np.linspace(0, 2 * np.pi, 7200, endpoint=False)) == -np.pi


def test_kymograph_pieces_take_the_colours_of_changing_labels():
    run = make(1, count=3, frames=4)
    labels = np.array([[0, 1, 2], [0, 1, 1], [0, 0, 0], [0, 0, 0]])
    collection = view.kymograph(run, labels=labels).collections[0]
    expected = view.style.palette(3)[labels[1:].ravel()]
    np.testing.assert_allclose(collection.get_colors()[:, :3], expected)
    with pytest.raises(ShapeError, match="labels"):
        view.kymograph(run, labels=np.zeros(5, int))


def test_huge_label_numbers_are_renumbered():
    run = make(2, count=4, frames=2)
    colors = view.snapshot(run, labels=np.array([[10**9, -7, 5, 5], [5, 5, 10**9, -7]])).collections[0].get_facecolors()
    grey = to_rgb(view.style.current().muted)
    expected = [view.style.palette(2)[0], view.style.palette(2)[0], view.style.palette(2)[1], grey]
    np.testing.assert_allclose(colors[:, :3], expected)


def test_paths_start_and_end_where_particles_do():
    run = make(2, count=1, frames=5)
    pieces = np.array(view.paths(run).collections[1].get_segments())
    np.testing.assert_allclose(pieces[:, 0], run.points[:-1, 0])
    np.testing.assert_allclose(pieces[:, 1], run.points[1:, 0])
    with pytest.raises(ArgumentError, match="kymograph"):
        view.paths(make(1))


def test_energy_line_and_ensemble_band():
    run = make(2)
    np.testing.assert_allclose(view.energy(run).lines[0].get_ydata(), run.observables["energy"])
    ensemble = make(2, runs=11)
    ax = view.energy(ensemble)
    energies = np.asarray(ensemble.observables["energy"])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 6 * np.linspace(0, 1, 7))
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(np.quantile(energies[-1], 0.9))
    with pytest.raises(ArgumentError, match="'entropy'"):
        view.observable(run, "entropy")


def test_staircase_has_log_time_counts_energy_and_shaded_plateaus():
    run = make(2, frames=9, log=True)
    counts = np.array([12, 12, 7, 4, 4, 4, 2, 2, 1])
    plateaus = [(run.times[3], run.times[5], 4), (run.times[6], run.times[7], 2)]
    ax = view.staircase(run, counts, plateaus=plateaus)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [*counts, counts[-1]])
    shown = np.maximum(run.times, run.times[1] / 2)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [shown[0], *(shown[1:] + shown[:-1]) / 2, shown[-1]])
    assert ax.lines[0].get_drawstyle() == "steps-post"
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in ax.patches]
    np.testing.assert_allclose(spans, [row[:2] for row in plateaus])
    assert [text.get_text() for text in ax.texts] == ["4", "2"]
    right = next(other for other in ax.figure.axes if other is not ax)
    np.testing.assert_allclose(right.lines[0].get_ydata(), run.observables["energy"])


def test_the_time_axis_of_a_staircase_is_spaced_like_the_frames():
    for log in (False, True):
        run = make(2, frames=9, log=log)
        assert view.staircase(run, np.arange(9, 0, -1)).get_xscale() == ("log" if log else "linear")
    decade = Trajectory.from_arrays(np.geomspace(1, 10, 20), np.zeros((20, 1, 2)))
    assert view.cluster_count(decade, np.ones(20)).get_xscale() == "log"


@pytest.mark.parametrize("theme", sorted(view.style.THEMES))
def test_names_of_plateaus_never_overlap_and_the_longest_is_always_there(theme):
    times = np.linspace(0, 1, 101)
    run = Trajectory.from_arrays(times, np.zeros((101, 1, 2)), metadata={})
    edges = np.concatenate([np.linspace(0, 0.3, 40), [0.8, 1.0]])
    plateaus = [(a, b, 1000 + k) for k, (a, b) in enumerate(pairwise(edges))]
    with view.style.use(theme):
        ax = view.cluster_count(run, np.full(101, 1500), plateaus=plateaus)
        ax.figure.canvas.draw()
        boxes = [text.get_window_extent() for text in ax.texts]
    assert "1039" in [text.get_text() for text in ax.texts]
    assert 4 <= len(boxes) < len(plateaus)
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:index])
        assert ax.get_window_extent().padded(1).containsx(box.x0)
        assert ax.get_window_extent().padded(1).containsx(box.x1)


@pytest.mark.parametrize("log", [False, True])
def test_frames_without_a_count_are_hatched_from_middle_to_middle(log):
    times = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
    run = Trajectory.from_arrays(times, np.zeros((8, 3, 1)))
    counts = np.array([9, 9, np.nan, np.nan, np.nan, 5, 4, 4])
    ax = view.cluster_count(run, counts, log=log)
    (band,) = [patch for patch in ax.patches if patch.get_hatch()]
    box = band.get_extents().transformed(ax.transData.inverted())
    np.testing.assert_allclose([box.x0, box.x1], [3.0, 24.0])
    (words,) = [text for text in ax.texts if text.get_text().split() == ["chains,", "not", "separated"]]
    assert 3.0 < words.get_position()[0] < 24.0
    assert np.isnan(ax.lines[0].get_ydata()).sum() == 3
    assert not [patch for patch in view.cluster_count(run, np.ones(8)).patches if patch.get_hatch()]
    assert view.cluster_count(run, np.full(8, np.nan)).get_ylim()[1] > 0


def test_staircase_needs_something_to_show():
    with pytest.raises(ArgumentError, match="give `counts`"):
        view.staircase(make(2, observables={}))
    with pytest.raises(ShapeError, match="counts"):
        view.staircase(make(2), np.ones(3))


def test_compare_draws_every_run_under_its_name():
    runs = {"first": make(2, seed=1), "$second": make(2, frames=9, seed=2)}
    ax = view.compare(runs)
    for line, run in zip(ax.lines, runs.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), run.observables["energy"])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["first", r"\$second"]
    counted = view.compare(list(runs.values()), counts=[np.arange(7) + 1, np.arange(9) + 1])
    np.testing.assert_array_equal(counted.lines[1].get_ydata()[:-1], np.arange(9) + 1)
    with pytest.raises(ArgumentError, match="empty"):
        view.compare({})


def test_gram_and_attention_matrices_are_those_of_the_points():
    run = make(2, sphere=True, count=10)
    points = np.asarray(run.points[-1])
    points = points[np.argsort(np.arctan2(points[:, 1], points[:, 0]))]
    np.testing.assert_allclose(view.gram(run).images[0].get_array(), points @ points.T, atol=1e-12)
    weights = np.exp(3 * points @ points.T)
    weights /= weights.sum(axis=1, keepdims=True)
    shown = view.attention(run, beta=3.0).images[0].get_array()
    np.testing.assert_allclose(shown, np.maximum(10 * weights, 1e-3), atol=1e-12)
    np.testing.assert_allclose(view.attention(weights).images[0].get_array(), shown)
    with pytest.raises(ArgumentError, match="beta"):
        view.attention(run)


def order_shown(run, shown):
    """Which particle each row of a Gram matrix is, by its squared norm."""
    norms = np.square(np.asarray(run.points[-1])).sum(axis=1)
    return np.abs(np.diag(shown)[:, None] - norms[None]).argmin(axis=1)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_matrices_are_ordered_by_cluster_and_then_by_label_as_their_axes_say(dimension):
    clusters = np.array([1, 0, 1, 0, 1, 0, 0, 1])
    words = np.array([3, 2, 2, 2, 3, 3, 2, 2])
    for own in (None, words):
        run = make(dimension, count=8, labels=own)
        ax = view.gram(run, labels=clusters)
        rows = order_shown(run, ax.images[0].get_array())
        assert sorted(rows) == list(range(8))
        assert np.count_nonzero(np.diff(clusters[rows])) == 1  # two blocks
        if own is not None:
            assert np.count_nonzero(np.diff(words[rows])) <= 3
            assert all(np.all(np.diff(words[rows][part]) >= 0) for part in (slice(4), slice(4, 8)))
        assert ax.get_xlabel().endswith("by cluster" if own is None else "by cluster, then by label")


def test_a_cluster_across_the_cut_of_the_circle_is_one_block_and_matrices_have_titles():
    angle = np.array([np.pi - 0.01, 0.0, -np.pi + 0.01, 0.01, np.pi - 0.02, 1.5])
    points = np.stack([np.cos(angle), np.sin(angle)], axis=-1)[None]
    run = Trajectory.from_arrays([2.5], points, metadata={"geometry": "sphere", "title": "Two"})
    ax = view.gram(run)
    near = np.asarray(ax.images[0].get_array()) > 0.999
    starts = [int(np.argmax(row)) for row in near]
    assert all(row[start : start + row.sum()].all() for row, start in zip(near, starts, strict=True))
    assert ax.get_title() == "Two, t = 2.50"
    assert view.attention(run, beta=1.0).get_title() == "Two, t = 2.50"


def test_phase_diagram_cells_grid_and_overlay():
    records = [
        {"beta": b, "t": t, "seed": s, "merged": 10 * b + t + s}
        for b in (1.0, 4.0)
        for t in (1, 10, 100)
        for s in (0, 2)
    ]
    x, y, values = view.sweep_grid(records, "t", "beta", "merged")
    np.testing.assert_allclose(values, [[12, 21, 111], [42, 51, 141]])
    ax = view.phase_diagram(x, y, values, x_label="$t", log_x=True, overlay=([1, 100], [1, 4]), overlay_label="theory")
    np.testing.assert_allclose(ax.collections[0].get_array(), values)
    np.testing.assert_allclose(ax.get_xlim(), [10**-0.5, 10**2.5])
    np.testing.assert_allclose(ax.get_ylim(), [-0.5, 5.5])
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 1], [100, 4]])
    assert ax.get_xlabel() == r"\$t"
    holes = view.sweep_grid(records[:-2], "t", "beta", "merged")[2]
    assert np.isnan(holes[1, 2])
    assert view.phase_diagram(x, y, holes).collections[0].get_array().mask[1, 2]
    for wrong, message in (
        (records, "must hold 'gamma', but record 0 holds 'beta', 't'"),
        ([{**each, "gamma": {"kind": "x"}} for each in records], "'gamma' .* in record 0 it is {'kind'"),
        ([], "at least one record"),
    ):
        with pytest.raises(ArgumentError, match=message):
            view.sweep_grid(wrong, "t", "gamma", "merged")
    with pytest.raises(ShapeError, match=r"\(2, 3\)"):
        view.phase_diagram(x, y, values.T)


def test_regression_draws_curve_data_weights_and_query():
    inputs, queries = np.linspace(0, 1, 9), np.linspace(0, 1, 50)
    weights = np.exp(-50 * (inputs - 0.5) ** 2)
    ax = view.regression(inputs, inputs**2, queries, queries**2, weights=weights / weights.sum(), at=0.5)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.column_stack([queries, queries**2]))
    np.testing.assert_allclose(np.asarray(ax.collections[0].get_offsets())[:, 1], inputs**2)
    sizes = ax.collections[1].get_sizes()
    np.testing.assert_allclose(np.sort(sizes), np.sort(8 + 90 * weights / weights.max()))
    ring = ax.lines[-1].get_xydata()[0]
    np.testing.assert_allclose(ring, [0.5, 0.25], atol=1e-3)
    with pytest.raises(ShapeError, match="inputs"):
        view.regression(inputs, inputs[1:], queries, queries)


def test_density_mesh_and_profiles():
    grid, times = np.linspace(-3, 3, 41), np.linspace(0, 2, 11)
    densities = np.exp(-(grid**2) / 2 / (1 + times[:, None])) / np.sqrt(2 * np.pi * (1 + times[:, None]))
    mesh = view.density(times, grid, densities).collections[0]
    np.testing.assert_allclose(mesh.get_array(), densities.T)
    ax = view.density_profiles(times, grid, densities, count=3)
    top = ax.lines[0].get_ydata()  # drawn from the last profile down
    np.testing.assert_allclose(top - 2, 2.2 * densities[-1] / densities.max())
    with pytest.raises(ShapeError, match="densities"):
        view.density(times, grid, densities.T)
