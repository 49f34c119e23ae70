"""A cluster of several labels is drawn in their shares: rings of a dot, stripes of a branch, parts of a bar."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import particleflow
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.movie.movie import Movie
from particleflow.view.plots.crowds import find_crowds, nested_shares
from particleflow.view.plots.space.ring import ring_bars
from particleflow.view.plots.time.tree_plot import find_leaves, tree_segments

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know
BLUE, ORANGE, GREEN = (np.array(to_rgb(color)) for color in style.THEMES["light"].categories[:3])


def mixture(dimension=2, *, sphere=True, counts=(13, 11), seed=0):
    """Particles of labels in given numbers, in any order, that end at one place; one of the third label stays apart."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.append(np.repeat(np.arange(len(counts)), counts), 2))
    pole = np.eye(dimension)[0]
    last = np.where((labels == 2)[:, None], -pole, pole)
    points = np.stack([generator.normal(size=last.shape), last])
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    return Trajectory.from_arrays(
        [0.0, 1.0], points, labels=labels, metadata={"geometry": "sphere" if sphere else "euclidean"}
    )


def visible(places, areas, colors):
    """The areas that stay visible at the first place, by colour, of discs painted one on another around one point."""
    order = np.flatnonzero(np.linalg.norm(places - places[0], axis=1) < 1e-9)
    seen = {}
    for number, index in enumerate(order):
        covered = max(areas[order[number + 1 :]], default=0.0)
        key = tuple(np.round(colors[index], 6))
        seen[key] = seen.get(key, 0.0) + max(areas[index] - covered, 0.0)
    return {key: area for key, area in seen.items() if area > 1e-9}


@pytest.mark.parametrize("shape", [(2, True), (2, False), (3, True), (3, False), (8, False)])
@pytest.mark.parametrize("counts", [(188, 3), (13, 11), (11, 11)])
def test_the_dot_of_a_mixed_cluster_shows_every_label_in_its_share(shape, counts):
    run = mixture(shape[0], sphere=shape[1], counts=counts)
    drawn = view.snapshot(run, azimuth=10.0).collections[-1]
    places, areas, colors = drawn.get_offsets(), drawn.get_sizes(), drawn.get_facecolors()[:, :3]
    where = np.linalg.norm(places - places[np.argmax(areas)], axis=1) < 1e-9
    seen = visible(places[where], areas[where], colors[where])
    assert len(seen) == 2
    shares = np.array(sorted(seen.values())) / sum(seen.values())
    np.testing.assert_allclose(shares, np.sort(counts) / sum(counts))
    if shape[0] != 3:  # in depth, colours fade
        assert np.allclose(max(seen, key=lambda color: seen[color]), BLUE, atol=1e-6) or counts == (11, 11)
        assert {tuple(np.round(color, 6)) for color in (BLUE, ORANGE)} == set(seen)


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_pixels_of_a_movie_show_every_label_in_its_share(dimension):
    run = mixture(dimension, sphere=False, counts=(150, 50))
    with style.use("light"):
        movie = Movie(run, 2, "linear", (1280, 720))
        pixels = np.asarray(movie.frame(1))[..., :3] / 255.0
    tones = np.abs(pixels[..., None, :] - np.stack([BLUE, ORANGE])).max(axis=-1)
    box = movie.stage.main.get_window_extent()
    inside = tones[:, int(box.x0) : int(box.x1)] < 0.12
    blue, orange = inside.sum(axis=(0, 1))
    assert orange / (blue + orange) == pytest.approx(0.25, abs=0.06)


def test_rings_of_a_movie_lie_inside_one_another_even_where_dots_have_their_least_size():
    run = mixture(3, counts=(1, 1))
    with style.use("light"):
        places, radii, _ = Movie(run, 2, "linear", (640, 368)).sprites(1, np.eye(3))
    pair = np.flatnonzero(np.linalg.norm(places - places[np.argmax(radii)], axis=1) < 1e-6)
    assert radii[pair[1]] ** 2 == pytest.approx(radii[pair[0]] ** 2 / 2)


def test_shares_are_nested_from_the_heaviest_colour_inwards():
    colors = np.stack([BLUE, BLUE, ORANGE, GREEN, BLUE, ORANGE])
    groups, mass = np.array([4, 4, 4, 4, 7, 7]), np.array([0.2, 0.1, 0.5, 0.2, 0.0, 0.4])
    np.testing.assert_allclose(nested_shares(groups, colors, mass), [0.5, 0.5, 1.0, 0.2, 0.0, 1.0])
    crowds = find_crowds(np.zeros((4, 2)), mass[:4], colors[:4])
    assert crowds.order().tolist() == [2, 0, 1, 3]
    np.testing.assert_allclose(crowds.mass, 1.0)


def test_branches_of_a_merge_tree_have_the_shares_of_their_labels():
    """Three particles of label 0 and one of label 1 end together: 3/4 of the branch, and no colour between the two."""
    labels = [0, 0, 1, 0]
    points = np.stack([np.arange(4.0), np.zeros(4), np.zeros(4)])[..., None] * [1.0, 0.0]
    run = Trajectory.from_arrays([0.0, 1.0, 2.0], points, labels=labels)
    clusters = np.array([[0, 1, 2, 3], [0, 0, 0, 0], [0, 0, 0, 0]])
    merges = np.array([[0, 1, 1.0, 2], [0, 2, 1.0, 3], [0, 3, 1.0, 4]])
    segments, colors, sizes, shares = tree_segments(merges, find_leaves(run, clusters), np.array([0.0, 1.0, 2.0]))
    assert {tuple(color) for color in np.round(colors, 6)} == {tuple(np.round(each, 6)) for each in (BLUE, ORANGE)}
    root = np.isclose(segments[:, 1, 0], 2.0)
    assert sizes[root].tolist() == [4, 4]
    np.testing.assert_allclose(shares[root], [1.0, 0.25])
    np.testing.assert_allclose(colors[root], [BLUE, ORANGE])
    with style.use("light"):
        ax = view.merge_tree(run, merges, labels=clusters)
    widths = np.array(ax.collections[0].get_linewidths())
    assert np.isclose(widths, widths.max() / 4).any()
    assert widths.min() >= 0.7  # narrower stripes would blur


def test_bars_of_a_crowd_are_divided_by_labels():
    angle = np.full(40, 0.3)
    points, colors = np.column_stack([np.cos(angle), np.sin(angle)]), np.repeat([BLUE, ORANGE], [30, 10], axis=0)
    corners, shades = ring_bars(points, colors, np.full(40, 1 / 40), cells=8, blended=False)
    heights = np.linalg.norm(corners[:, 1], axis=1) - 1
    np.testing.assert_allclose(heights[1] / heights[0], 0.25)
    np.testing.assert_allclose(shades, [BLUE, ORANGE])


def test_clusters_that_merge_keep_their_colours():
    """Two last clusters of 30 and 10 that meet in the last frame are rings of their colours, not their mean."""
    places = np.repeat([[0.0, 0.0], [1.0, 0.0]], [30, 10], axis=0)
    start = np.random.default_rng(0).normal(size=(40, 2))
    run = Trajectory.from_arrays([0.0, 1.0, 2.0], np.stack([start, places, 0 * places]), metadata={})
    before, after = (view.snapshot(run, frame).collections[-1] for frame in (1, 2))
    tones = {tuple(np.round(color[:3], 6)) for color in before.get_facecolors()}
    seen = visible(after.get_offsets(), after.get_sizes(), after.get_facecolors()[:, :3])
    assert set(seen) == tones
    np.testing.assert_allclose(sorted(np.array(list(seen.values())) / sum(seen.values())), [0.25, 0.75])


def test_small_print_speaks_of_rings_only_where_there_are_some():
    run = mixture(3)
    note = "rings of a dot"
    assert [note in view.snapshot(run, frame).figure.get_supxlabel() for frame in (0, 1)] == [False, True]
    assert [note in view.snapshots(run, frames)[0].figure.get_supxlabel() for frames in ([0], [0, 1])] == [False, True]
    merges = [(0, 1, 0.5, 24)]
    assert (
        "stripes"
        in view.merge_tree(run, merges, labels=np.repeat(np.asarray(run.labels)[None], 2, 0)).figure.get_supxlabel()
    )
    assert "stripes" not in view.merge_tree(run, np.zeros((0, 4))).figure.get_supxlabel()
