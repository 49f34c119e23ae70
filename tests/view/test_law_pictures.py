"""A normal law is drawn by its mean and covariance, on equal scales; the nodes that carry it are no particles."""

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

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know
MEAN, ANGLE = np.array([3.0, -1.0]), 0.4
TURN = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])
SPREADS = np.array([10.0, 0.58])


def law_run(factors, mean, nodes=6):
    """A run of normal laws N(mean, F Fᵀ), one a frame, by the nodes and weights of Gauss and Hermite."""
    places, masses = np.polynomial.hermite_e.hermegauss(nodes)
    dimension = len(mean)
    grid = np.stack(np.meshgrid(*[places] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    weights = np.prod(np.stack(np.meshgrid(*[masses] * dimension, indexing="ij"), axis=-1), axis=-1).ravel()
    points = np.stack([mean + grid @ factor.T for factor in factors])
    metadata = {"geometry": "euclidean", "closed form": True, "space": {"kind": "flat"}, "title": "A law"}
    times = np.arange(float(len(factors)))
    return Trajectory.from_arrays(times, points, log_weights=np.log(weights / weights.sum()), metadata=metadata)


PLANE = law_run([TURN * [1.0, 0.5], TURN * SPREADS], MEAN)


def half_axes(curve):
    """The centre, and the longest and shortest distance from it, of a closed curve."""
    centre = (curve[:-1]).mean(axis=0)
    away = np.linalg.norm(curve - centre, axis=1)
    return centre, away.max(), away.min()


def test_the_drawn_ellipse_has_the_axes_of_the_covariance_on_the_page():
    ax = view.snapshot(PLANE, -1)
    assert not ax.collections  # no dots
    ax.figure.canvas.draw()
    unit = np.linalg.norm(ax.transData.transform([1.0, 0.0]) - ax.transData.transform([0.0, 0.0]))
    for line, deviations in zip(ax.lines, (1, 2), strict=True):
        centre, longest, shortest = half_axes(ax.transData.transform(line.get_xydata()))
        np.testing.assert_allclose(centre, ax.transData.transform(MEAN), atol=1e-6)
        np.testing.assert_allclose([longest / unit, shortest / unit], deviations * SPREADS, rtol=1e-3)
    assert ax.get_xlim()[0] < MEAN[0] - 2 * SPREADS[0] * np.cos(ANGLE)
    assert ax.get_xlim()[1] - ax.get_xlim()[0] < 5 * SPREADS[0]  # where the law is, not where its outermost nodes are
    for word in ("36 nodes", "1 and 2 standard deviations"):
        assert word in ax.figure._supxlabel.get_text()


@pytest.mark.parametrize("dimension", [3, 5])
def test_ellipses_of_a_law_in_space_lie_on_its_surface(dimension):
    """In space seen by a camera, in more dimensions by two components: the outline of the projected covariance."""
    factor = np.diag([4.0, 2.0, 1.0, 0.5, 0.25][:dimension])
    run = law_run([0.5 * factor, factor], np.zeros(dimension), nodes=3)
    ax = view.snapshot(run, -1)
    assert not ax.collections
    outer = ax.lines[-1].get_xydata()
    reach = np.nanmax(np.linalg.norm(outer, axis=1))
    inner = np.nanmax(np.linalg.norm(ax.lines[-2].get_xydata(), axis=1))
    assert reach == pytest.approx(2 * inner)
    if dimension == 5:
        assert reach == pytest.approx(8.0, rel=1e-3)


def test_a_movie_of_a_law_shows_its_ellipses_and_no_nodes():
    with style.use("light"):
        movie = Movie(PLANE, 3, "linear", (1280, 720))
        pixels = np.asarray(movie.frame(2))[..., :3] / 255.0
    ink = np.abs(pixels - to_rgb(style.THEMES["light"].categories[0])).max(axis=-1) < 0.35
    box = movie.stage.main.get_window_extent()
    rows, columns = np.nonzero(ink)
    inside = (np.abs(columns - (box.x0 + box.x1) / 2) < box.width / 2 - 4) & (720 - rows > box.y0 + 4)
    rows, columns = rows[inside & (720 - rows < box.y1)], columns[inside & (720 - rows < box.y1)]
    across, up = movie.stage.main.transData.inverted().transform(np.column_stack([columns, 720.0 - rows])).T
    turned = (np.column_stack([across, up]) - MEAN) @ TURN
    np.testing.assert_allclose(np.abs(turned).max(axis=0), 2 * SPREADS, atol=0.25)
    inside = (np.square(turned / SPREADS).sum(axis=1) < 0.5) & (np.abs(turned[:, 0]) < 5)
    assert not inside.any()  # the middle is empty, where the heaviest nodes are


def test_a_law_on_a_line_is_its_density_and_its_deviations_over_time():
    run = law_run([np.array([[0.5]]), np.array([[2.0]])], np.array([1.0]))
    ax = view.snapshot(run, -1)
    places, heights = ax.lines[0].get_xydata().T
    np.testing.assert_allclose(heights, np.exp(-((places - 1) ** 2) / 8) / np.sqrt(8 * np.pi))
    assert len({ax.get_ylim() for ax in view.snapshots(run, [0, 1])}) == 1
    lines = np.array(view.kymograph(run).collections[0].get_segments())
    np.testing.assert_allclose(lines[:, :, 1], 1.0 + np.outer([-2, -1, 0, 1, 2], [0.5, 2.0]), atol=1e-12)
