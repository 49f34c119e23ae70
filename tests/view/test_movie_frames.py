"""The frames of a movie as they are drawn: particles, camera, graticule, clock, labels, cursor and dots."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from movie_oracles import CASES, make
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.movie.clock import Clock
from particleflow.view.movie.movie import Movie
from particleflow.view.movie.sprites import SpriteBank, _last_of_equals
from particleflow.view.plots.base import format_time
from particleflow.view.plots.camera import rotation
from shares import by_default


def movie_of(run, frames=5, spacing="linear", size=(640, 368), **options):
    with style.use("light"):
        return Movie(run, frames, spacing, size, **options)


def test_particles_are_drawn_where_the_axes_put_them():
    run = make(2, count=3)
    movie = movie_of(run, frames=12)
    places, _, colors = movie.sprites(4, np.eye(3))
    expected = movie.stage.main.transData.transform(np.asarray(run.points[4]))
    np.testing.assert_allclose(places, np.column_stack([expected[:, 0], 368 - expected[:, 1]]) - 0.5, atol=1e-6)
    image = np.asarray(movie.frame(4))
    for (column, row), color in zip(places.round().astype(int), colors, strict=True):
        np.testing.assert_allclose(image[row, column, :3] / 255, 0.92 * color + 0.08, atol=0.04)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])
def test_particles_on_a_line_are_as_large_in_every_unit(unit):
    """Thirty at even distances and two at one place: the two are larger than others by the root of their mass."""
    places = np.append(np.linspace(0.0, 1.0, 30), 1.0)
    run = Trajectory.from_arrays([0.0, 1.0], unit * np.stack([places, places])[..., None])
    radii = movie_of(run).sprites(0, np.eye(3))[1]
    assert radii[:-2].max() == radii.min()
    np.testing.assert_allclose(radii[-2:], 24.0 * np.sqrt(2 / 31) * 368 / 720)


def test_instants_between_frames_are_interpolated():
    run = make(3, sphere=True, frames=3)
    movie = movie_of(run, frames=5)
    middle = np.asarray(run.points[0]) + np.asarray(run.points[1])
    np.testing.assert_allclose(
        movie.coordinates(1), middle / np.linalg.norm(middle, axis=-1, keepdims=True), atol=1e-12
    )
    np.testing.assert_allclose(movie.coordinates(2), run.points[1], atol=1e-12)


def test_sphere_turns_and_draws_near_particles_last():
    run = make(3, sphere=True, count=50)
    movie = movie_of(run, frames=7, turn=90.0)
    np.testing.assert_allclose(np.diff(movie.azimuths), 90.0 / 7)
    angle, tilt = np.radians(movie.azimuths[2]), np.radians(movie.elevation)
    toward = np.array([np.cos(tilt) * np.cos(angle), np.cos(tilt) * np.sin(angle), np.sin(tilt)])
    camera = rotation(float(movie.azimuths[2]), movie.elevation)
    np.testing.assert_allclose(camera[2], toward)
    places, _, _ = movie.sprites(2, camera)
    seen = movie.coordinates(2) @ camera.T
    seen = seen[np.argsort(seen[:, 2], kind="stable")]
    seen = np.repeat(seen, np.where(seen[:, 2] < 0, 2, 1), axis=0)  # an open dot is a rim and a fill
    expected = movie.stage.main.transData.transform(seen[:, :2])
    np.testing.assert_allclose(places[:, 0], expected[:, 0] - 0.5, atol=1e-6)


def test_the_line_of_progress_is_bright_up_to_the_time_of_the_frame():
    """Steady motion at times saved evenly: the k-th of n frames is k / (n − 1) of the way along the line."""
    run = make(2, frames=12)
    movie = movie_of(run, frames=5, spacing="linear")
    muted, ahead = (np.array(to_rgb(getattr(style.find("light"), name))) * 255 for name in ("muted", "grid"))
    left, right = 0.62 * 640, 0.965 * 640
    line = movie.stage.progress
    assert line is not None
    for index in range(5):
        row = np.asarray(movie.frame(index))[line.box[1], round(left) : round(right), :3].astype(float)
        bright = np.abs(row - np.rint(muted)).max(axis=-1) < 2
        assert bright.sum() == pytest.approx(max(index / 4 * (right - left), 1), abs=1)
        assert bright[: bright.sum()].all()
        np.testing.assert_allclose(row[~bright], np.broadcast_to(np.rint(ahead), row[~bright].shape), atol=1)


@pytest.mark.slow
@pytest.mark.parametrize("trail", by_default([0, 3], [3]))
def test_trails_lie_where_particles_were_in_the_last_frames_and_nowhere_else(trail):
    """One particle goes right by a tenth of the axes a frame: its trail is that many frames long, and fades."""
    moving, still = np.stack([np.arange(11.0), np.zeros(11)], axis=-1), np.full((11, 2), [0.0, 10.0])
    run = Trajectory.from_arrays(np.arange(11.0), np.stack([moving, still], axis=1))
    movie = movie_of(run, frames=11, trail=trail, turn=0.0)
    plain = movie_of(run, frames=11, turn=0.0)
    changed = np.abs(np.asarray(movie.frame(8)).astype(int) - np.asarray(plain.frame(8))).max(axis=-1)
    where = movie.stage.main.transData.transform(np.asarray(run.points[:, 0]))
    if trail == 0:
        assert changed.max() == 0
        return
    rows, columns = np.nonzero(changed > 8)
    assert columns.min() == pytest.approx(where[5, 0], abs=2)
    assert columns.max() <= where[8, 0]
    assert np.abs(rows - (368 - where[8, 1])).max() <= 2
    old, new = (changed[:, int((where[k, 0] + where[k + 1, 0]) / 2)].max() for k in (5, 6))
    assert 0 < old < new
    assert np.asarray(movie.frame(0)).tolist() == np.asarray(plain.frame(0)).tolist()


SCALED = [(*case, scale) for scale in (1.0, 1e-6, 3e9) for case in CASES]


def test_a_graticule_that_was_drawn_before_is_the_one_that_would_be_drawn():
    """Lines every 30 degrees and 15 degrees a frame: every second frame sees the same ones."""
    run = make(3, sphere=True, count=4)
    movie, other = (movie_of(run, frames=12, turn=180.0) for _ in range(2))
    for index in (3, 5, 7):
        again = np.asarray(movie.frame(index))
        other.stage.drawn.clear()
        difference = np.abs(again.astype(int) - np.asarray(other.frame(index)))
        assert difference.max() <= 8  # the lines begin at other corners
    assert len(movie.stage.drawn) == 1
    movie.frame(4)
    assert len(movie.stage.drawn) == 2


@pytest.mark.parametrize("theme", ["dark", "print"])
@pytest.mark.parametrize("times", [(0.0, 12.5, 3000.0), (1e-9, 2.0, 4e15)])
def test_the_clock_ends_at_its_place_whatever_the_time(theme, times):
    with style.use(theme):
        clock = Clock([f"t = {format_time(time)}" for time in times], 190.0, 30.0, 20.0)
        paper = [Image.new("RGBA", (200, 40), style.find(theme).background) for _ in times]
    ends = []
    for index, image in enumerate(paper):
        blank = np.asarray(image).copy()
        clock.write(image, index)
        rows, columns = np.nonzero((np.asarray(image) != blank).any(axis=-1))
        assert rows.min() >= 8
        assert rows.max() <= 31  # digits stand on the line
        ends.append(columns.max())
    assert max(ends) <= 191
    assert min(ends) >= 180


@pytest.mark.parametrize("case", by_default(SCALED, [SCALED[11]]), ids=str)
def test_no_label_of_a_movie_is_cut_off_or_lies_on_another_picture(case):
    """Numbers as wide as they come: every text is on the canvas, and panels keep off the main picture."""
    dimension, sphere, scale = case
    plain = make(dimension, sphere=sphere)
    points = plain.points if sphere else scale * plain.points
    energy = scale * (1 + 1e-3 * np.linspace(0, 1, 12))
    run = Trajectory.from_arrays(plain.times, points, observables={"energy": energy}, metadata=plain.metadata)
    with style.use("dark"):
        stage = Movie(run, 3, "linear", (1280, 720), counts=np.full(12, 54321)).stage
    renderer = stage.canvas.get_renderer()
    edges = stage.main.get_tightbbox(renderer), [panel.axes.get_tightbbox(renderer) for panel in stage.panels]
    for box in (edges[0], *edges[1]):
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= 1280
        assert box.y1 <= 720
    for panel, box in zip(stage.panels, edges[1], strict=True):
        assert panel.axes is stage.main or box.x0 >= stage.main.get_window_extent().x1


def test_equal_dots_are_pasted_at_most_three_times_and_look_the_same():
    rng = np.random.default_rng(0)
    places = np.repeat(rng.uniform(20, 80, (4, 2)), [50, 1, 2, 9], axis=0)
    colors = np.repeat(rng.uniform(0, 1, (4, 3)), [50, 1, 2, 9], axis=0)
    order = rng.permutation(62)
    few, all_of_them = (Image.new("RGBA", (100, 100), (0, 0, 0, 255)) for _ in range(2))
    SpriteBank().paste(few, places[order], np.full(62, 6.0), colors[order])
    for index in order:
        SpriteBank().paste(all_of_them, places[[index]], np.full(1, 6.0), colors[[index]])
    rows, columns = np.mgrid[:100, :100]
    away = np.hypot(columns[..., None] - places[:, 0], rows[..., None] - places[:, 1])
    clear = ((away < 5) | (away > 8)).all(axis=-1)  # rims fill up with more dots than three, and are smoother without
    difference = np.abs(np.asarray(few).astype(int) - np.asarray(all_of_them))
    assert difference[clear].max() <= 2
    calls = _last_of_equals(np.column_stack([places, colors])[order].round(3))
    assert len(calls) == 3 + 1 + 2 + 3


def test_cursor_is_at_the_time_and_reveals_the_past():
    run = make(2, log=True, frames=30)
    movie = movie_of(run, frames=11, spacing="log")
    panel = movie.stage.panels[-1]
    left, top, right, bottom = panel.box
    # t = 0 has no place on a log axis: the cursor waits at the left edge and is even from the first positive time on
    np.testing.assert_allclose(np.diff(panel.columns[1:]), (panel.columns[-1] - panel.columns[1]) / 9, atol=1e-6)
    half = np.asarray(movie.frame(5)).astype(int)
    whole = np.asarray(movie.stage.past).astype(int)
    cursor = int(panel.columns[5])
    # well to the left of the dot and the cursor the curve is as strong as at the end; to the right it is fainter
    np.testing.assert_array_equal(half[top:bottom, left : cursor - 8], whole[top:bottom, left : cursor - 8])
    ink = 255 * 3 - half[top:bottom, cursor + 8 : right, :3].sum(axis=-1)
    strong = 255 * 3 - whole[top:bottom, cursor + 8 : right, :3].sum(axis=-1)
    assert ink.max() < 0.7 * strong.max()
    muted = np.array(to_rgb(style.find("light").muted)) * 255
    np.testing.assert_allclose(half[top + 3, cursor, :3], muted, atol=1)


def test_labels_colour_particles_by_frame():
    run = make(2, count=4, frames=3)
    labels = np.array([[0, 1, 2, 3], [0, 0, 2, 2], [0, 0, 0, 0]])
    movie = movie_of(run, frames=3, colors=labels)
    for index in range(3):  # three instants of three frames: the last one is the last frame's
        np.testing.assert_allclose(movie.sprites(index, np.eye(3))[2], style.palette(4)[labels[index]])
    own = np.random.default_rng(0).random((4, 3))
    np.testing.assert_allclose(movie_of(run, colors=own).sprites(0, np.eye(3))[2], own)
    with pytest.raises(ArgumentError, match="colors"):
        movie_of(run, colors=own[:2])
    with pytest.raises(ShapeError, match="labels"):
        movie_of(run, colors=[0, 1])


def test_sprites_equal_ordinary_pasting():
    bank = SpriteBank(opacity=1.0)
    places = np.array([[10.25, 12.5], [13.0, 12.0], [0.0, 0.0], [40.0, 31.75]])
    radii, colors = np.array([3.0, 2.5, 4.0, 5.0]), np.eye(4)[:, :3]
    fast = Image.new("RGBA", (41, 32), "white")
    bank.paste(fast, places, radii, colors)
    rows, columns = np.mgrid[:32, :41]
    slow = np.full((32, 41, 3), 255.0)
    for place, radius, color in zip(places, radii, colors, strict=True):
        cover = np.clip(radius + 0.5 - np.hypot(columns - place[0], rows - place[1]), 0, 1)[..., None]
        slow = (1 - cover) * slow + cover * 255 * color
    np.testing.assert_allclose(np.asarray(fast)[..., :3], slow, atol=2.5)
    # the area of a disc is that of a circle
    disc = Image.new("RGBA", (64, 64), "black")
    bank.paste(disc, np.array([[31.5, 31.25]]), np.array([20.0]), np.array([[1.0, 1.0, 1.0]]))
    assert np.asarray(disc)[..., 0].sum() / 255 == pytest.approx(np.pi * 20**2, rel=2e-3)
