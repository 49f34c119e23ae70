"""Products older than their run: they say what they were made of, `info` says so, `resume` makes them again."""

import json
import re
import subprocess

import numpy as np
import pytest
from PIL import Image

import particleflow as pf
from folders_oracles import merging_points, save_run
from particleflow.app.cli import main
from particleflow.app.runs.folder_contents import older_files, product_notes
from particleflow.app.runs.run_outputs import Outcome, make_products
from particleflow.view.made_of import MadeOf, read_made_of

pytest.importorskip("matplotlib").use("Agg")

LAYERS = """
title = "Layers"
initial = { kind = "grid", sides = [1], low = 1.0, high = 3.0 }
[[drift]]
kind = "linear"
matrix = -0.5
[time]
end = 4.0
frames = 5
step = 1.0
solver = "map"
[output]
movie = false
figures = false
page = false
"""


@pytest.fixture
def planted():
    """Nine particles on a line in nine frames, of which some meet."""
    return pf.Trajectory.from_arrays(np.arange(9.0), merging_points(), metadata={"geometry": "euclidean"})


@pytest.mark.slow
def test_every_format_holds_the_frames_and_the_threshold_in_its_own_metadata(planted, tmp_path):
    run = planted[:1]  # which has few figures
    track, line = pf.analysis.track_clusters(run, 0.125), "made by particleflow, frames=1, threshold=0.125"
    page = pf.view.page(run, tmp_path / "viewer.html", analysis=track)
    gif = pf.view.animate(run, tmp_path / "movie.gif", frames=2, size=(160, 96), threshold=0.125)
    figures = [pf.view.figures(run, tmp_path, analysis=track, format=format)[0] for format in ("png", "svg", "pdf")]
    assert all(read_made_of(path) == MadeOf(1, 0.125) for path in (page, gif))
    assert all(read_made_of(path) == MadeOf(1, 0.125, path.stem) for path in figures)
    with Image.open(figures[0]) as png, Image.open(gif) as moving:
        assert png.info["Comment"] == f"{line}, figure=snapshots"
        assert moving.info["comment"].decode() == line
    assert f"<dc:description>{line}, figure=snapshots</dc:description>" in figures[1].read_text(encoding="utf-8")
    assert f"/Subject ({line}, figure=snapshots)".encode() in figures[2].read_bytes()
    assert f'<meta name="generator" content="{line}">' in page.read_text(encoding="utf-8")


def test_a_movie_holds_the_frames_in_its_comment(planted, tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    path = pf.view.animate(planted, tmp_path / "movie.mp4", frames=2, size=(160, 96))
    assert read_made_of(path) == MadeOf(9)
    told = subprocess.run([ffmpeg, "-i", path], capture_output=True, text=True, check=False).stderr
    assert re.search(r"comment +: made by particleflow, frames=9\n", told)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", None),
        (b"a picture of somebody else", None),
        (b"made by particleflow, frames=-3", None),
        (b"made by particleflow, frames=3, threshold=1e1e1", None),
        (b"\0made by particleflow, frames=3, threshold=evil", MadeOf(3)),
        (b"\xff" * 5000 + b"made by particleflow, frames=3, threshold=1e-3\0", MadeOf(3, 0.001)),
    ],
)
def test_what_a_file_says_is_read_with_care(content, found, tmp_path):
    (tmp_path / "file").write_bytes(content)
    assert read_made_of(tmp_path / "file") == found
    assert read_made_of(tmp_path / "no file") is None


def test_info_names_products_that_are_older_or_at_another_distance(planted, tmp_path, capsys):
    folder = save_run(tmp_path / "run")
    pf.analysis.write_summary(planted, folder)
    pf.view.figures(planted[:1], folder / "figures")
    pf.view.page(planted, folder / "viewer.html", analysis=pf.analysis.track_clusters(planted, 0.125))
    (folder / "movie.mp4").write_bytes(b"of somebody else")
    assert main(["info", str(folder)]) == 0
    products = next(line for line in capsys.readouterr().out.splitlines() if line.split()[0] == "products")
    assert products.split(maxsplit=1)[1] == (
        "summary.json, figures (older than the run), movie.mp4, viewer.html (at another distance)"
    )
    assert main(["info", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["product_notes"] == {"figures": "older than the run", "page": "at another distance"}
    pf.analysis.write_summary(planted[:5], folder)
    assert product_notes(folder, 9)["summary"] == "older than the run"


@pytest.mark.slow
def test_resume_makes_older_products_again_and_leaves_the_others(tmp_path, capsys):
    """The figures, a summary at a chosen distance and a page are of the first two frames, the run has five."""
    (tmp_path / "map.toml").write_text(LAYERS, encoding="utf-8")
    folder = tmp_path / "run"
    assert main(["run", str(tmp_path / "map.toml"), "--output", str(folder), "--quiet"]) == 0
    figures = folder / "figures"
    with pf.Trajectory.open(folder / "trajectory.h5") as run:
        pf.analysis.write_summary(run[:2], folder, threshold=0.25)
        pf.view.figures(run[:2], figures, format="svg")
        pf.view.page(run[:2], folder / "viewer.html")
        (figures / "snapshots.svg").rename(figures / "copy.svg")
        text = (figures / "copy.svg").read_text(encoding="utf-8")  # and a figure that does not suit the run any more
        (figures / "gone.svg").write_text(text.replace("figure=snapshots", "figure=gone"), encoding="utf-8")
        (figures / "mine.svg").write_text("mine", encoding="utf-8")
    assert set(older_files(folder, 5)) == {"summary", "figures", "page"}
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert older_files(folder, 5) == product_notes(folder, 5) == {}
    assert (figures / "mine.svg").read_text(encoding="utf-8") == "mine"
    assert (figures / "snapshots.svg").is_file()
    assert not (figures / "gone.svg").exists()
    assert (figures / "copy.svg").read_text(encoding="utf-8") == text
    assert {path.suffix for path in figures.iterdir()} == {".svg"}
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert (summary["frames"], summary["thresholds"]["cluster_distance"]) == (5, 0.25)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")}
    assert main(["resume", str(folder), "--quiet"]) == 0  # nothing is old, so nothing is made
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")} == before
    capsys.readouterr()


def test_an_older_gif_is_made_again_as_a_gif(planted, tmp_path, monkeypatch):
    folder = save_run(tmp_path / "run")
    pf.view.animate(planted[:3], folder / "movie.gif", frames=2, size=(160, 96))
    animate, only = pf.view.animate, {"summary": False, "figures": False, "page": False}
    monkeypatch.setattr(pf.view, "animate", lambda *args, **options: animate(*args, frames=2, **options))
    outcome = Outcome(folder, "finished")
    with pf.Trajectory.open(folder / "trajectory.h5") as run:
        make_products(folder, run, only, outcome)
    assert outcome.products == {"movie": "movie.gif"}
    made = read_made_of(folder / "movie.gif")
    assert made is not None
    assert (made.frames, made.threshold) == (9, pytest.approx(0.002**0.5 * np.sqrt(merging_points()[0].var())))
