"""Every figure in every shape, and the set of figures of a run: complete, harmless, repeatable."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

import particleflow
from figure_oracles import blank, make, offsets
from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.plots.base import format_time
from particleflow.view.plots.figure_set import _frame_of_blocks
from particleflow.view.plots.saving import save_figure
from shares import by_default

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know
HOSTILE = "$\\frac{1}{0$ <script>alert(1)</script> \x00\u202e" + "x" * 300


ONE_AX = {
    "snapshot": lambda run, ax: view.snapshot(run, ax=ax),
    "kymograph": lambda run, ax: view.kymograph(run, ax=ax),
    "energy": lambda run, ax: view.energy(run, ax=ax),
    "cluster_count": lambda run, ax: view.cluster_count(run, np.ones(len(run)), ax=ax),
    "staircase": lambda run, ax: view.staircase(run, np.ones(len(run)), ax=ax),
    "similarity": lambda run, ax: view.similarity(run, ax=ax),
    "gram": lambda run, ax: view.gram(run, ax=ax),
    "attention": lambda run, ax: view.attention(run, beta=1.0, ax=ax),
    "merge_tree": lambda run, ax: view.merge_tree(run, np.zeros((0, 4)), ax=ax),
    "compare": lambda run, ax: view.compare([run], ax=ax),
}


FORMS = [(12, 6, None), (1, 6, None), (5, 1, None), (1, 1, None), (4, 3, 2)]  # particles, frames, runs
CROSSED = [(dimension, sphere, *form) for dimension in (1, 2, 3, 8) for sphere in (False, True) for form in FORMS]
# every form; the other tests are of many particles on the circle
CHOSEN = [(1, False, 1, 1, None), (3, False, 4, 3, 2), (3, True, 5, 1, None), (8, False, 1, 6, None)]


@pytest.mark.parametrize("name", sorted(ONE_AX))
@pytest.mark.parametrize("shape", by_default(CROSSED, CHOSEN), ids=str)
def test_every_figure_draws_every_shape_on_the_given_axes(name, shape):
    dimension, sphere, count, frames, runs = shape
    run, ax = make(dimension, count=count, frames=frames, runs=runs, sphere=sphere), blank()
    assert ONE_AX[name](run, ax) is ax
    ax.figure.canvas.draw()


@pytest.mark.parametrize("name", by_default(sorted(ONE_AX), ["cluster_count", "gram", "snapshot"]))
def test_hostile_titles_are_harmless(name):
    metadata = {"title": HOSTILE, "geometry": "sphere"}
    run = make(2, sphere=True, metadata=metadata)
    ax = ONE_AX[name](run, None)
    ax.figure.canvas.draw()
    title, page = ax.get_title(loc="left"), ax.figure.bbox
    assert len(title.splitlines()) <= 4
    assert page.containsx(ax.title.get_window_extent().x1)
    assert title.count("$") == title.count(r"\$")


def test_points_that_are_not_finite_do_not_stop_a_figure():
    points = np.random.default_rng(0).normal(size=(5, 6, 2))
    points[3:, 2] = np.nan
    run = Trajectory.from_arrays(np.arange(5.0), points, metadata={"geometry": "euclidean"})
    for draw in (view.snapshot, view.kymograph, view.paths, view.similarity):
        draw(run).figure.canvas.draw()


def test_figures_writes_the_set_inside_the_folder(tmp_path):
    energy = np.linspace(0, 1, 7)
    observables = {"energy": energy, "../../escape $x": energy, "matrix": np.zeros((7, 2, 2))}
    run = make(2, sphere=True, observables=observables)
    folder = tmp_path / "deep" / "figures"
    analysis = {"counts": np.arange(7, 0, -1), "merge_tree": [(0, 1, 1.0, 2), (2, 3, 2.0, 2)]}
    told: list[tuple[int, int]] = []
    progress: Any = lambda done, total: told.append((done, total))  # noqa: E731
    written = view.figures(run, folder, only="all", theme="dark", analysis=analysis, progress=progress)
    assert told == [(done + 1, len(written)) for done in range(len(written))]
    names = {path.name for path in written}
    expected = {"snapshots", "kymograph", "staircase", "merge_tree", "similarity", "gram", "observable_______escape__x"}
    assert names == {f"{name}.png" for name in expected}
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(written)
    image = imread(folder / "kymograph.png")
    np.testing.assert_allclose(image[0, 0, :3], to_rgb(view.style.find("dark").background), atol=0.01)
    assert image.shape[1] == 1600
    assert [path.stem for path in written] == view.figure_names(run, analysis)


@pytest.mark.slow
@pytest.mark.parametrize("dpi", by_default([60, 160], [60]))
def test_a_figure_that_is_drawn_once_is_the_one_that_matplotlib_saves(tmp_path, dpi):
    """Titles, small print, colour bars and shared axes included."""
    run = make(2, sphere=True)
    for name, draw in {"row": view.snapshots, "bar": view.gram, "two": view.staircase}.items():
        ours = imread(save_figure(np.ravel(draw(run))[0].figure, tmp_path / f"{name}.png", dpi))
        np.ravel(draw(run))[0].figure.savefig(tmp_path / "theirs.png", dpi=dpi)
        theirs = imread(tmp_path / "theirs.png")
        assert (theirs[..., 3] == 1).all()
        np.testing.assert_array_equal(ours, theirs[..., :3])


@pytest.mark.slow
def test_a_run_opened_from_its_file_is_drawn_like_the_one_in_memory(tmp_path):
    run = make(3, sphere=True)
    run.save(tmp_path / "trajectory.h5")
    opened = Trajectory.open(tmp_path / "trajectory.h5")
    np.testing.assert_allclose(offsets(view.snapshot(opened, 4)), offsets(view.snapshot(run, 4)))
    written = [view.figures(one, tmp_path / name, format="svg") for one, name in ((run, "memory"), (opened, "file"))]
    assert [path.name for path in written[0]] == [path.name for path in written[1]]
    for one, other in zip(*written, strict=True):
        assert one.read_bytes() == other.read_bytes()


SHAPES = [(1, False), (2, False), (3, True), (3, False), (8, True)]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_figures_suit_every_dimension(tmp_path, shape):
    dimension, sphere = shape
    run = make(dimension, sphere=sphere, runs=2 if dimension == 2 else None)
    written = view.figures(run, tmp_path / "a", only="all", dpi=50)
    assert len(written) >= 5
    assert ("paths.png" in {path.name for path in written}) == (dimension > 1)


def test_a_format_that_is_none_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="'jpg'"):
        view.figures(make(2), tmp_path, format="jpg")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dimension", "sphere"),
    [(2, False), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, False), (3, True), (8, True)))],
)
def test_figures_repeat_exactly(tmp_path, dimension, sphere):
    run = make(dimension, sphere=sphere, runs=2 if dimension == 2 else None)
    first = view.figures(run, tmp_path / "a", format="svg")
    second = view.figures(run, tmp_path / "b", format="svg")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "0"),
        (0.5, "0.500"),
        (12.34, "12.3"),
        (250, "250"),
        (4321, "4321"),
        (3e15, "3.00·10¹⁵"),
        (2e-7, "2.00·10⁻⁷"),
    ],
)
def test_times_are_written_with_three_digits(time, text):
    assert format_time(time) == text


@pytest.mark.parametrize(
    ("counts", "frame"),
    [([5, 4, 4, 2, 2], -1), ([5, 3, 2, 2, 2, 1, 1], 3), ([2, 2, 2, 2, 1], 1), ([1, 1], -1), ([3, 1], 0), ([4], -1)],
)
def test_matrices_are_of_a_frame_that_has_blocks(counts, frame):
    """Where all particles end as one, of the middle of the tread before: 40 particles in equal clusters."""
    labels = np.array([np.arange(40) % count for count in counts])
    assert _frame_of_blocks(labels) == frame


def test_a_few_outliers_are_no_blocks():
    """One of 40 apart: two are of one cluster with chance (39² + 1)/40² = 0.951, so the tread of thirds is shown."""
    thirds, outlier = np.arange(40) % 3, np.arange(40) == 0
    assert _frame_of_blocks(np.array([thirds, thirds, thirds, outlier, outlier])) == 1
    assert _frame_of_blocks(None) == -1
    assert _frame_of_blocks(thirds) == -1
