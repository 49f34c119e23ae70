"""Words in figures and movie: names tell the truth, lie on nothing, and stay away where there are too many."""

from itertools import combinations, groupby, pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from figure_oracles import make

mpl.use("Agg")

import particleflow
from particleflow.trajectory.trajectory import Trajectory
from particleflow.trajectory.words import named
from particleflow.view import style
from particleflow.view.label_placement import MOST_NAMES, find_groups, place_names
from particleflow.view.movie.movie import Movie
from particleflow.view.movie.word_sprites import WordWriter
from particleflow.view.plots.word_artist import Words
from shares import by_default

view: Any = particleflow.view
KINDS = [(1, False), (2, False), (2, True), (3, False), (3, True), (8, False)]
VOCABULARY = ["the", "cat", "sat", "on", "mat"]
BOUNDS = (0.0, 0.0, 300.0, 200.0)


def apart(one: Any, other: Any) -> bool:
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def measure(text: str) -> tuple[float, float]:
    return 6.0 * len(text), 10.0


@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 24), st.just(2)), elements=st.floats(-20, 320)),
    st.integers(0, 2**31),
)
def test_names_never_lie_on_each_other_nor_on_other_markers(places, seed):
    rng = np.random.default_rng(seed)
    words = rng.choice(VOCABULARY, len(places))
    weights = rng.uniform(0.1, 1.0, len(places))
    groups = find_groups(places, weights, 8.0)
    owner = connected_components(cdist(places, places) <= 8.0)[1]
    whole = [set(np.flatnonzero(owner == each).tolist()) for each in range(owner.max() + 1)]
    assert all(set(group.members.tolist()) in whole for group in groups)
    names = place_names(groups, words, lambda group: 5.0, measure, BOUNDS)
    assert [name.box for name in place_names(groups, words, lambda group: 5.0, measure, BOUNDS)] == [
        name.box for name in names
    ]
    for name in names:
        assert BOUNDS[0] <= name.box[0]
        assert BOUNDS[1] <= name.box[1]
        assert name.box[2] <= BOUNDS[2]
        assert name.box[3] <= BOUNDS[3]
        assert name.text in {named(words[name.group.members].tolist(), most) for most in (1, 2, 3)}
        for group in groups:
            (x, y), reach = group.place, 5.0 + group.spread
            if group is not name.group:
                assert apart(name.box, (x - reach, y - reach, x + reach, y + reach))
    assert all(apart(one.box, other.box) for one, other in combinations(names, 2))


def test_the_heaviest_group_is_named_first_and_a_far_one_is_not_joined():
    places = np.array([[100.0, 100.0], [103.0, 100.0], [160.0, 100.0], [100.0, 101.0], [np.nan, 0.0]])
    weights = np.array([0.1, 0.1, 0.5, 0.3, 0.2])
    found = [group.members.tolist() for group in find_groups(places, weights, 8.0)]
    assert found == [[0, 1, 3], [2]]  # of equal masses the one that comes first
    in_space = find_groups(places, weights, 8.0, depth=np.array([50.0, 50.0, 0.0, -50.0, 0.0]))
    assert [group.members.tolist() for group in in_space] == [[2], [0, 1], [3]]
    assert [group.behind for group in in_space] == [False, False, True]
    assert find_groups(places[4:], weights[4:], 8.0) == []


def test_a_crowd_is_named_by_its_clusters_alone_and_a_cloud_not_at_all():
    rng = np.random.default_rng(0)
    weights = np.full(3000, 1 / 3000)
    cloud = rng.uniform(0, 1000, (3000, 2))
    assert find_groups(cloud, weights, 8.0) == []
    gathered = rng.choice(cloud[:5], 3000) + rng.normal(size=(3000, 2)) * 0.1
    gathered[:100] = cloud[:100]
    assert sorted(len(group.members) for group in find_groups(gathered, weights, 8.0))[0] > 400
    few = rng.uniform(0, 5000, (150, 2))
    assert len(find_groups(few, np.full(150, 1 / 150), 8.0)) == MOST_NAMES


def names_in(figure: Any) -> list[list[Any]]:
    """The names on every axes of a figure when it is drawn, each inside and over no other."""
    figure.canvas.draw()
    found = []
    for ax in figure.axes:
        (artist,) = [each for each in ax.get_children() if isinstance(each, Words)]
        box = ax.get_window_extent()
        for name in artist.names:
            assert box.x0 <= name.box[0] < name.box[2] <= box.x1
            assert box.y0 <= name.box[1] < name.box[3] <= box.y1
        assert all(apart(one.box, other.box) for one, other in combinations(artist.names, 2))
        found.append(artist.names)
    return found


@pytest.mark.parametrize("kind", by_default(KINDS, [(1, False), (3, True)]))
def test_particles_of_every_picture_are_named_by_their_words(kind):
    dimension, sphere = kind
    words = np.array(VOCABULARY * 2 + ["$x^2$", "\x1b[31m"])
    run = make(dimension, sphere=sphere, words=words)
    figure = Figure(figsize=(9, 3))
    FigureCanvasAgg(figure)
    first, second = figure.subplots(1, 2)
    view.snapshot(run, 0, ax=first)
    (view.paths if dimension > 1 else view.snapshot)(run, ax=second)
    for names in names_in(figure):
        assert names
        for name in names:
            shown = name.text.split(" +")[0].split(", ")
            assert set(shown) <= set(VOCABULARY) | {"$x^2$", "[31m"}
    bare = view.snapshot(make(dimension, sphere=sphere))
    assert not [each for each in bare.get_children() if isinstance(each, Words)]


def test_an_ensemble_shows_the_words_of_its_first_run():
    rows = np.array([["a"] * 12, ["b"] * 12])
    (names,) = names_in(view.snapshot(make(2, runs=2, words=rows)).figure)
    assert {name.text for name in names} == {"a"}


def clustered(count: int, words: Any, **options: Any) -> Trajectory:
    """A run on the circle whose last frame has three places, particles in turn at each."""
    angles = np.stack([np.linspace(0, 6, count), 2.0 * (np.arange(count) % 3)])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    interactions = [{"kernel": {"kind": "attention", "form": "inner", "beta": 2.0}, "normalization": "row"} | options]
    space = {"kind": "sphere", "radius": 1.0, "sees_stored": True}
    metadata = {"geometry": "sphere", "space": space, "interactions": interactions}
    return Trajectory.from_arrays([0.0, 1.0], points, words=words, metadata=metadata)


def ticks(ax: Any, side: str) -> list[tuple[float, str]]:
    """Places and texts of the names along an axis, which do not touch each other."""
    ax.figure.canvas.draw()
    axis = getattr(ax, f"{side}axis")
    found = [(place, label) for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)]
    boxes = [label.get_window_extent() for _, label in found]
    ends = sorted((box.x0, box.x1) if side == "x" else (box.y0, box.y1) for box in boxes)
    assert all(before[1] <= after[0] + 0.5 for before, after in pairwise(ends))
    return [(float(place), label.get_text()) for place, label in found]


@pytest.mark.parametrize("draw", by_default(["gram", "attention"], ["attention"]))
def test_matrices_have_words_in_the_order_shown(draw):
    """Three clusters of eight tokens, four words in each: a cluster's equal words stand together and share a name."""
    words = [f"{'abc'[place % 3]}{place // 3 % 4}" for place in range(24)]
    ax = getattr(view, draw)(clustered(24, words))
    found = ticks(ax, "y")
    assert found == ticks(ax, "x")
    assert [place for place, _ in found] == [2 * place + 0.5 for place in range(12)]
    for letter, block in groupby([text for _, text in found], key=lambda text: text[0]):
        assert list(block) == [f"{letter}{number}" for number in range(4)]
    image = np.asarray(ax.images[0].get_array())
    assert image.shape == (24, 24)
    rows = np.repeat([text[0] for _, text in found], 2)
    same = rows[:, None] == rows[None]
    assert image[same].min() > image[~same].max()


def test_matrices_of_a_sequence_have_its_words_in_sequence():
    words = [f"w{place}" for place in range(20)]
    ax = view.attention(clustered(20, words, positional={"kind": "causal"}))
    assert [text for _, text in ticks(ax, "x")] == words


def test_what_does_not_fit_is_named_by_clusters_or_not_at_all():
    words = [f"{'abc'[place % 3]}{place}" for place in range(300)]
    found = ticks(view.gram(clustered(300, words)), "y")
    assert [text[0] for _, text in found] in (list(order) for order in ("abc", "acb", "bac", "bca", "cab", "cba"))
    assert all(text.endswith("+98") for _, text in found)
    assert [place for place, _ in found] == [49.5, 149.5, 249.5]
    numbers = view.attention(clustered(300, words, positional={"kind": "causal"}))
    assert ticks(numbers, "x")[0][1].replace("−", "-").lstrip("-").isdecimal()


@pytest.mark.parametrize("vertical", by_default([True, False], [True]))
def test_leaves_of_a_tree_carry_their_words(vertical):
    """Two pairs merge, then everything: leaves are in an order without crossings, equal words side by side once."""
    points = np.array([[0, 1, 10, 11, 20], [0.5, 0.5, 10.5, 10.5, 20], [9, 9, 9, 9, 9]], float)[..., None]
    run = Trajectory.from_arrays([0.0, 1.0, 2.0], points, words=["a", "a", "b", "c", "d"])
    track = particleflow.analysis.track_clusters(run, 0.1)
    ax = view.merge_tree(run, track.tree, labels=track.labels, vertical=vertical)
    assert ticks(ax, "x" if vertical else "y") == [(0.5, "a"), (2.0, "b"), (3.0, "c"), (4.0, "d")]
    by_particle = view.merge_tree(run, [(0, 1, 0.9, 2), (2, 3, 0.9, 2)])
    assert [text for _, text in ticks(by_particle, "x")] == ["a", "b", "c", "d"]


def test_a_movie_names_its_particles():
    """The names are drawn into the frame beside the dots; the same run without words has the same frame elsewhere."""
    words = ["the", "$x$", "\x1b[31m", "mat", "the", "on"]
    frames = []
    for kept in (words, None):
        with style.use("dark"):
            movie = Movie(make(2, count=6, words=kept), 4, "linear", (640, 368))
            frames.append(np.asarray(movie.frame(2).convert("RGB")).astype(int))
    changed = np.argwhere(np.abs(frames[0] - frames[1]).max(axis=-1) > 40)
    box = movie.stage.main.get_window_extent()
    assert len(changed) > 100
    assert changed[:, 1].min() >= box.x0 - 3
    assert changed[:, 1].max() <= box.x1 + 3
    assert changed[:, 0].min() >= 368 - box.y1 - 3


def test_a_writer_tells_what_it_wrote():
    from PIL import Image

    image = Image.new("RGBA", (300, 200))
    places, weights = np.array([[50.0, 50.0], [52.0, 50.0], [200.0, 100.0]]), np.full(3, 1 / 3)
    writer = WordWriter(np.array(["river", "bank", "<b>"]), 1.0)
    assert writer.write(image, places, weights, None, BOUNDS, lambda group: 4.0) == ["river, bank", "<b>"]
    assert np.asarray(image)[40:60, 60:140, :3].any()


@pytest.mark.parametrize("size", [(6.4, 4.0), (3.4, 2.4)])
def test_names_of_lines_and_leaves_touch_no_other_and_stay_in_the_picture(size):
    """Twelve words of two letters, six in one place, six apart; measured after the layout."""
    begins = np.concatenate([np.zeros(6), np.arange(1.0, 7.0)])
    words = [f"{letter}{letter}" for letter in "abcdefghijkl"]
    run = Trajectory.from_arrays([0.0, 1.0], np.stack([begins, 0 * begins])[..., None], words=words)
    merges = [(0, k, 1.0, k + 1) for k in range(1, 12)]
    with style.use(style.sized("light", size, None)):
        lines, tree = view.kymograph(run), view.merge_tree(run, merges, vertical=False)
    for ax, texts in ((lines, lambda: lines.texts), (tree, tree.get_yticklabels)):
        ax.figure.canvas.draw()
        boxes = [text.get_window_extent() for text in texts() if text.get_text()]
        assert len(boxes) > 0
        assert all(apart(one.extents, other.extents) for one, other in combinations(boxes, 2))
        assert all(box.x0 >= 0 and box.y0 >= 0 and box.y1 <= ax.figure.bbox.y1 for box in boxes)
        axis = ax.get_window_extent()
        assert all(axis.y0 - 2 <= box.y0 and box.y1 <= axis.y1 + 2 for box in boxes)
    leaders = [line.get_ydata()[-1] for line in lines.lines]
    assert set(np.round(leaders, 6)) == set(begins)
