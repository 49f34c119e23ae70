"""Movies read back: size, length, what moves, and that a failure leaves nothing behind."""

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

import particleflow
from movie_oracles import CASES, make
from particleflow._support.files import written
from particleflow.errors import ArgumentError, StoreError, UserError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.movie.movie_file import common_palette
from shares import by_default

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know
SMALL = (320, 192)


def read(path):
    """All frames of an mp4, (frames, height, width, 3), and what the decoder says of the file."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True)
    facts = decoded.stderr.decode().split("Output #0")[0]
    found = re.search(r"Video: .*?, (\d{2,})x(\d{2,})", facts)
    assert found is not None
    width, height = int(found[1]), int(found[2])
    return np.frombuffer(decoded.stdout, np.uint8).reshape(-1, height, width, 3), facts


@pytest.mark.parametrize("case", by_default(CASES, CASES[::6]), ids=str)
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


@pytest.mark.parametrize("theme", by_default(sorted(style.THEMES), ["print"]))
def test_movie_without_energy_or_counts_in_every_theme(tmp_path, theme):
    path = view.animate(make(2, energy=False), tmp_path / "m.mp4", frames=3, size=SMALL, theme=theme)
    assert read(path)[0].shape[0] == 3


def test_default_size_is_720p(tmp_path):
    assert read(view.animate(make(2), tmp_path / "m.mp4", frames=2))[0].shape[1:3] == (720, 1280)


FORMS = [(1, 12, None), (20, 1, None), (1, 1, None), (4, 5, 3)]  # particles, frames, runs
CROSSED = [(*case, *form) for case in CASES for form in FORMS]


@pytest.mark.parametrize("shape", by_default(CROSSED, [CROSSED[2], CROSSED[-1]]), ids=str)
def test_single_particles_single_frames_and_ensembles(tmp_path, shape):
    dimension, sphere, count, frames, runs = shape
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
        ({"trail": -1.0}, "trail"),
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
from particleflow.trajectory.trajectory import Trajectory
import particleflow
run = Trajectory.from_arrays(np.arange(4.0), np.random.default_rng(0).normal(size=(4, 9, 2)))
report = lambda done, total: print(done, flush=True)
particleflow.view.animate(run, sys.argv[1], frames=100000, size=(320, 192), progress=report)
"""


@pytest.mark.slow
def test_a_killed_encode_leaves_the_target_alone(tmp_path):
    path = tmp_path / "m.mp4"
    path.write_bytes(b"old")
    with subprocess.Popen([sys.executable, "-c", ENCODE, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        while child.stdout.readline().strip() != "5":
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
    """The figures and the movie of a run whose energy overflows show the finite part of it."""
    run = make(frames=8)
    energy = np.array([1.0, 1e3, 1e40, 1e120, 1e240, 1e300, np.inf, np.nan])
    run = Trajectory.from_arrays(run.times, run.points, observables={"energy": energy}, metadata=run.metadata)
    ax = view.energy(run)
    assert ax.get_yscale() == "log"
    drawn = ax.lines[0].get_ydata()
    np.testing.assert_array_equal(drawn[:5], energy[:5])
    assert np.isnan(drawn[5:]).all()
    counts = np.full(8, 3)
    view.staircase(run, counts).figure.canvas.draw()
    view.animate(run, tmp_path / "movie.mp4", frames=3, size=SMALL, counts=counts)
    frames, _ = read(tmp_path / "movie.mp4")
    assert len(frames) == 3
