"""A product is there whole or not at all: what a full disk stops leaves the old one, a sentence and exit code 1."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

import particleflow as pf
from full_disk import largest_file
from particleflow.app.cli import main
from particleflow.errors import StoreError
from particleflow.trajectory.store import TrajectoryWriter
from particleflow.view import animate
from particleflow.view.movie import encoder

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")

COMMANDS = {
    "analyze": (["analyze", "RUN"], "summary.json"),
    "plot": (["plot", "RUN"], "figures/snapshots.png"),
    "view": (["view", "RUN", "--no-open"], "viewer.html"),
    "animate": (["animate", "RUN", "--frames", "3"], "movie.mp4"),
    "animate gif": (["animate", "RUN", "--frames", "3", "--output", "RUN/movie.gif"], "movie.gif"),
    "export npz": (["export", "RUN", "--to", "npz"], "trajectory.npz"),
    "export xyz": (["export", "RUN", "--to", "xyz"], "trajectory.xyz"),
    "export h5md": (["export", "RUN", "--to", "h5md"], "trajectory.h5md"),
}
SLOW = {"plot", "animate", "animate gif", "export npz", "export xyz"}


def rows():
    """Every command, those that tell little new among the slow tests."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in COMMANDS]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run folder whose points need no simulation."""
    folder = tmp_path_factory.mktemp("run")
    angles = np.linspace(0, 2, 40)[None] * np.linspace(1, 0.2, 5)[:, None]
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    writer = TrajectoryWriter.create(
        folder / "trajectory.h5", count=40, dimension=2, dtype="float64", provenance={"title": "A small run"}
    )
    writer.append(np.arange(5.0), np.arange(5), points, {}, {})
    writer.set_status("finished", None, {})
    writer.close()
    return folder


@pytest.fixture
def run(made, tmp_path) -> Path:
    (tmp_path / "trajectory.h5").write_bytes((made / "trajectory.h5").read_bytes())
    return tmp_path


def called(name, run):
    return main([each.replace("RUN", str(run)) for each in COMMANDS[name][0]])


@pytest.mark.parametrize("name", rows())
def test_a_full_disk_leaves_the_old_product_and_says_so(name, run, capsys):
    product = run / COMMANDS[name][1]
    product.parent.mkdir(exist_ok=True)
    product.write_text("the old one")
    with largest_file(100):
        assert called(name, run) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "space" in captured.err or "disk" in captured.err
    assert str(product.parent) in captured.err
    assert "fault" not in captured.err
    assert "Traceback" not in captured.err
    assert product.read_text() == "the old one"
    assert {path.name for path in run.rglob("*")} <= {"trajectory.h5", product.name, "figures"}
    assert called(name, run) == 0
    assert product.read_bytes() != b"the old one"


@pytest.mark.parametrize("name", ["analyze", "plot", "view", "animate", "export xyz"])
@pytest.mark.parametrize("reason", [errno.EROFS, pytest.param(errno.EACCES, marks=pytest.mark.slow)])
def test_a_folder_that_cannot_be_written_to_is_named(name, reason, run, capsys, monkeypatch):
    """Permissions do not bind root, who may run the tests, so that what makes folders and files refuses by itself."""

    def refused(path, *_, **__):
        raise OSError(reason, os.strerror(reason), str(path))

    monkeypatch.setattr(Path, "replace", refused)
    monkeypatch.setattr(Path, "mkdir", lambda path, *given, **named: None if path.is_dir() else refused(path))
    assert called(name, run) == 1
    said = capsys.readouterr().err
    assert os.strerror(reason) in said
    assert str(run) in said
    assert "folder" in said.split(os.strerror(reason))[1]  # what to do
    assert "fault" not in said
    assert [path.name for path in run.rglob("*")] == ["trajectory.h5"]


@pytest.fixture
def small():
    points = np.random.default_rng(0).normal(size=(3, 4, 2))
    return pf.Trajectory.from_arrays(np.arange(3.0), points)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("cat > /dev/null; for last; do :; done; head -c 500 {movie} > $last", "not complete"),
        ("cat > /dev/null; for last; do :; done; echo 'disk quota exceeded' >&2; cp {movie} $last; exit 1", "quota"),
        ("cat > /dev/null", "not complete"),
        ("echo 'unknown encoder' >&2; exit 3", "unknown encoder"),
    ],
)
def test_the_word_of_the_encoder_is_not_taken_for_it(script, reason, small, tmp_path, monkeypatch):
    movie = animate(small, tmp_path / "good.mp4", frames=3, size=(64, 64))
    assert encoder.is_whole(movie)
    fake = tmp_path / "ffmpeg"
    fake.write_text(f"#!/bin/sh\n{script.format(movie=movie)}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(encoder, "find_ffmpeg", lambda: str(fake))
    before = movie.read_bytes()
    with pytest.raises(StoreError, match=reason):
        animate(small, movie, frames=3, size=(64, 64))
    assert movie.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"good.mp4", "ffmpeg"}


def test_only_whole_movies_pass(small, tmp_path):
    """ffmpeg itself reads what passes to the end, and every part of a movie that is missing shows."""
    movie = animate(small, tmp_path / "good.mp4", frames=3, size=(64, 64))
    assert imageio_ffmpeg.count_frames_and_secs(str(movie))[0] == 3
    content, cut = movie.read_bytes(), tmp_path / "cut.mp4"
    for size in (0, 3, 40, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:size])
        assert not encoder.is_whole(cut)
    cut.write_bytes(content.replace(b"moov", b"free"))
    assert not encoder.is_whole(cut)
    assert not encoder.is_whole(tmp_path / "nowhere.mp4")


@pytest.mark.slow
def test_products_of_a_run_that_the_disk_stops_are_noted(run):
    from particleflow.app.runs.run_outputs import Outcome, make_products

    outcome = Outcome(run, "finished")
    with pf.Trajectory.open(run) as trajectory, largest_file(100):
        make_products(run, trajectory, {}, outcome)
    assert outcome.products == {}
    assert set(outcome.failures) == {"summary", "figures", "movie", "page"}
    assert all("space" in reason or "disk" in reason for reason in outcome.failures.values())
    assert [path.name for path in run.iterdir()] == ["trajectory.h5"]
