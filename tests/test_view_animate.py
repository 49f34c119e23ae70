"""Movies read back: size, length, what moves, what is drawn where, and that a failure leaves nothing behind."""

import os
import re
import subprocess
import sys

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from shares import by_default

import particleflow
from particleflow._files import written
from particleflow.errors import ArgumentError, ShapeError, StoreError, UserError
from particleflow.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.animation.clock import Clock
from particleflow.view.animation.movie import Movie
from particleflow.view.animation.sprites import SpriteBank, _last_of_equals
from particleflow.view.animation.write import common_palette
from particleflow.view.drawing.base import format_time
from particleflow.view.drawing.camera import rotation

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know
SMALL = (320, 192)


def make(dimension=2, *, sphere=False, count=20, frames=12, energy=True, log=False, runs=None, title="A run"):
    generator = np.random.default_rng(5)
    times = (
        np.concatenate([[0.0], np.geomspace(1e-2, 1e4, frames - 1)]) if log and frames > 1 else np.arange(frames) * 0.5
    )
    start = generator.normal(size=(count, dimension) if runs is None else (runs, count, dimension))
    shrink = np.linspace(1, 0.2, frames).reshape(-1, *[1] * start.ndim)
    points = start * shrink + 0.5 * (1 - shrink)
    if sphere:
        points /= np.linalg.norm(points, axis=-1, keepdims=True)
    values = np.linspace(0, 1, frames) if runs is None else np.linspace(0, 1, frames)[:, None] * np.ones(runs)
    metadata = {"geometry": "sphere" if sphere else "euclidean", "title": title}
    return Trajectory.from_arrays(times, points, observables={"energy": values} if energy else {}, metadata=metadata)


def read(path):
    """All frames of an mp4, (frames, height, width, 3), and what the decoder says of the file."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True)
    facts = decoded.stderr.decode().split("Output #0")[0]
    found = re.search(r"Video: .*?, (\d{2,})x(\d{2,})", facts)
    assert found is not None
    width, height = int(found[1]), int(found[2])
    return np.frombuffer(decoded.stdout, np.uint8).reshape(-1, height, width, 3), facts


CASES = [(1, False), (2, False), (2, True), (3, False), (3, True), (8, False), (8, True)]


@pytest.mark.parametrize("case", by_default(CASES, CASES[::3]), ids=str)
def test_movie_has_the_asked_size_and_length_and_moves(tmp_path, case):
    dimension, sphere = case
    run = make(dimension, sphere=sphere)
    calls = []
    path = view.animate(
        run, tmp_path / "movie.mp4", frames=10, fps=25, size=SMALL, counts=np.arange(12, 0, -1),
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    frames, facts = read(path)
    assert frames.shape == (10, 192, 320, 3)
    assert "25 fps" in facts
    assert "Video: h264" in facts
    assert "yuv420p" in facts
    assert calls == [(index + 1, 10) for index in range(10)]
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 60
    background = np.array(to_rgb(style.find("dark").background)) * 255
    np.testing.assert_allclose(frames[0][2, 2], background, atol=6)
    assert [entry.name for entry in tmp_path.iterdir()] == ["movie.mp4"]


@pytest.mark.parametrize("theme", sorted(style.THEMES))
def test_movie_without_energy_or_counts_in_every_theme(tmp_path, theme):
    path = view.animate(make(2, energy=False), tmp_path / "m.mp4", frames=3, size=SMALL, theme=theme)
    assert read(path)[0].shape[0] == 3


def test_default_size_is_720p(tmp_path):
    assert read(view.animate(make(2), tmp_path / "m.mp4", frames=2))[0].shape[1:3] == (720, 1280)


@pytest.mark.parametrize(
    "cases", [pytest.param(CASES[::3], id="some"), pytest.param(CASES, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("count", "frames", "runs"), [(1, 12, None), (20, 1, None), (1, 1, None), (4, 5, 3)])
def test_single_particles_single_frames_and_ensembles(tmp_path, count, frames, runs, cases):
    for dimension, sphere in cases:
        run = make(dimension, sphere=sphere, count=count, frames=frames, runs=runs)
        path = view.animate(run, tmp_path / "m.mp4", frames=2, size=SMALL, counts=np.ones(frames))
        assert read(path)[0].shape[0] == 2


def test_gif_has_frames_loop_and_duration(tmp_path):
    path = view.animate(make(2), tmp_path / "movie.gif", frames=9, fps=30, size=SMALL)
    with Image.open(path) as gif:
        assert gif.size == SMALL
        assert getattr(gif, "n_frames", 1) == 9
        assert gif.info["loop"] == 0
        durations = []
        for index in range(9):
            gif.seek(index)
            durations.append(gif.info["duration"])
        last = np.asarray(gif.convert("RGB")).astype(int)
        gif.seek(0)
        first = np.asarray(gif.convert("RGB")).astype(int)
    assert sum(durations) == 300
    assert np.abs(first - last).max() > 60


def test_gif_keeps_the_colour_of_the_page(tmp_path):
    path = view.animate(make(2), tmp_path / "movie.gif", frames=3, size=SMALL, theme="light")
    with Image.open(path) as gif:
        assert gif.convert("RGB").getpixel((1, 1)) == (255, 255, 255)


def test_common_palette_keeps_rare_colours():
    pixels = np.full((100, 100, 3), 250, np.uint8)
    pixels += np.arange(6, dtype=np.uint8)[np.arange(100) % 6][None, :, None]
    pixels[5, 5] = (255, 0, 0)
    pixels[50, 60] = (0, 0, 255)
    image = Image.fromarray(pixels)
    quantised = np.asarray(image.quantize(palette=common_palette([image]), dither=Image.Dither.NONE).convert("RGB"))
    np.testing.assert_allclose(quantised[5, 5], [255, 0, 0], atol=8)
    np.testing.assert_allclose(quantised[50, 60], [0, 0, 255], atol=8)


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
    expected = movie.stage.main.transData.transform(seen[:, :2])
    np.testing.assert_allclose(places[:, 0], expected[:, 0] - 0.5, atol=1e-6)


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
        clock = Clock(times, 190.0, 30.0, 20.0)
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
    assert clock.texts == [f"t = {format_time(time)}" for time in times]


@pytest.mark.parametrize("case", by_default(SCALED, SCALED[::2]), ids=str)
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


def test_a_frame_and_its_pixels_are_one():
    """The encoder takes the array that the frame was drawn into: dots pasted later must be in it."""
    movie = movie_of(make(3, sphere=True, count=50), frames=3)
    image = movie.frame(1)
    np.testing.assert_array_equal(np.asarray(image), image.info["pixels"])
    assert np.frombuffer(image.tobytes(), np.uint8).tobytes() == image.info["pixels"].tobytes()
    places, _, colors = movie.sprites(1, rotation(float(movie.azimuths[1]), movie.elevation))
    column, row = np.round(places[-1]).astype(int)
    assert np.abs(image.info["pixels"][row, column, :3] / 255 - colors[-1]).max() < 0.15  # opacity 0.92


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
    for index in range(3):
        lower = movie.instants.lower[index]
        np.testing.assert_allclose(movie.sprites(index, np.eye(3))[2], style.palette(4)[labels[lower]])
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


def test_hostile_title_is_drawn(tmp_path):
    run = make(2, title="$\\frac{1}{0$ <script> \x00" + "x" * 500)
    assert view.animate(run, tmp_path / "m.mp4", frames=1, size=SMALL).stat().st_size > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (321, 192)}, r"use \(320, 192\)"),
        ({"fps": 0}, "fps"),
        ({"spacing": "cubic"}, "'cubic'"),
        ({"theme": "sepia"}, "'sepia'"),
        ({"frames": 0}, "at least 1"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(ArgumentError, match=message):
        view.animate(make(2), tmp_path / "m.mp4", **options)
    assert list(tmp_path.iterdir()) == []


def test_wrong_targets(tmp_path):
    with pytest.raises(ArgumentError, match=r"\.mp4 or \.gif"):
        view.animate(make(2), tmp_path / "m.avi")
    with pytest.raises(StoreError, match="create it first"):
        view.animate(make(2), tmp_path / "nowhere" / "m.mp4")


def test_a_failure_keeps_the_old_movie_and_leaves_nothing(tmp_path):
    path = tmp_path / "m.mp4"
    path.write_bytes(b"old")

    def fail(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        view.animate(make(2), path, frames=5, size=SMALL, progress=fail)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.mp4"]
    assert path.read_bytes() == b"old"


def test_remains_of_a_dead_process_are_swept_and_those_of_a_live_one_kept(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    dead = tmp_path / f".m.partial-{child.pid}.mp4"
    alive = tmp_path / f".m.partial-{os.getppid()}.mp4"
    other = tmp_path / f".n.partial-{child.pid}.mp4"
    for entry in (dead, alive, other):
        entry.write_bytes(b"half")
    with written(tmp_path / "m.mp4") as partial:
        partial.write_bytes(b"whole")
    assert {entry.name for entry in tmp_path.iterdir()} == {"m.mp4", alive.name, other.name}
    assert (tmp_path / "m.mp4").read_bytes() == b"whole"


ENCODE = """
import sys, numpy as np
from particleflow.trajectory import Trajectory
import particleflow
run = Trajectory.from_arrays(np.arange(4.0), np.random.default_rng(0).normal(size=(4, 9, 2)))
report = lambda done, total: print(done, flush=True)
particleflow.view.animate(run, sys.argv[1], frames=100000, size=(320, 192), progress=report)
"""


def test_a_killed_encode_leaves_the_target_alone(tmp_path):
    path = tmp_path / "m.mp4"
    path.write_bytes(b"old")
    with subprocess.Popen([sys.executable, "-c", ENCODE, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        while child.stdout.readline().strip() != "20":
            assert child.poll() is None
        child.kill()
    assert path.read_bytes() == b"old"
    view.animate(make(2), path, frames=2, size=SMALL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.mp4"]
    assert read(path)[0].shape[0] == 2


def test_without_ffmpeg_the_error_says_what_to_install_and_gif_works(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match=r"pip install particleflow\[video\]"):
        view.animate(make(2), tmp_path / "m.mp4")
    assert view.animate(make(2), tmp_path / "m.gif", frames=2, size=SMALL).exists()


def test_an_energy_that_overflows_leaves_a_gap(tmp_path):
    """The figures and the movie of a run whose energy outgrows the numbers show what is known of it."""
    run = make(frames=8)
    energy = np.array([1.0, 1e3, 1e40, 1e120, 1e240, 1e300, np.inf, np.nan])
    run = Trajectory.from_arrays(run.times, run.points, observables={"energy": energy}, metadata=run.metadata)
    ax = view.energy(run)
    assert ax.get_yscale() == "log"
    drawn = ax.lines[0].get_ydata()
    np.testing.assert_array_equal(drawn[:5], energy[:5])
    assert np.isnan(drawn[5:]).all()
    counts = np.full(8, 3)
    view.figures(run, tmp_path / "figures", analysis={"counts": counts})
    assert (tmp_path / "figures" / "staircase.png").exists()
    view.animate(run, tmp_path / "movie.mp4", frames=8, size=SMALL, counts=counts)
    frames, _ = read(tmp_path / "movie.mp4")
    assert len(frames) == 8
