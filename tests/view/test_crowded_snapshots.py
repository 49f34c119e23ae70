"""Snapshots of many particles that stay apart: a curve of their density around the ring, a histogram on the line."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import particleflow
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.plots.density.histograms import cell_count
from particleflow.view.plots.space.ring import curve_width, smooth_density

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know
RANDOM = np.random.default_rng(4)


def on_circle(count: int, **metadata: Any) -> Trajectory:
    angles = RANDOM.normal(0.5, 0.6, (3, count))
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return Trajectory.from_arrays(np.arange(3.0), points, metadata={"geometry": "sphere", **metadata})


def test_the_smoothed_density_is_a_sum_of_wrapped_gaussians():
    theta, weights = RANDOM.uniform(-np.pi, np.pi, 40), RANDOM.dirichlet(np.ones(40))
    middles, density = smooth_density(theta, weights, 0.2)
    apart = middles[:, None] - theta[None] + 2 * np.pi * np.arange(-2, 3)[:, None, None]
    expected = (norm.pdf(apart, scale=0.2).sum(axis=0) * weights).sum(axis=1)
    assert np.abs(density - expected).max() < 0.02 * expected.max()  # places are rounded to cells of one degree
    assert density.mean() * 2 * np.pi == pytest.approx(1.0)
    assert density.min() >= 0


def test_a_noisy_cloud_on_the_circle_has_a_curve_of_the_stated_width():
    run = on_circle(100, temperature=0.25)
    ax = view.snapshot(run, 1)
    curve = next(line for line in ax.lines if len(line.get_xdata()) == 361 and np.hypot(*line.get_data()).max() > 1.01)
    heights = np.hypot(*curve.get_data())[:-1] - 1
    theta = np.arctan2(run.points[1, :, 1], run.points[1, :, 0])
    _, density = smooth_density(theta, np.full(100, 0.01), curve_width(100))
    np.testing.assert_allclose(np.square(heights), 0.12**2 * 2 * np.pi * density, atol=1e-12)
    assert curve_width(100) == pytest.approx(2 * np.pi / 20)
    assert len(ax.collections[-1].get_offsets()) == 100  # the points are there, too
    for other in (on_circle(100), on_circle(30, temperature=0.25)):  # one gathers, one has few points
        drawn = view.snapshot(other, 1)
        assert not any(np.hypot(*line.get_data()).max() > 1.01 for line in drawn.lines)


@pytest.mark.parametrize("labels", [None, np.arange(600) % 3])
def test_many_particles_on_a_line_are_a_histogram(labels):
    places = np.concatenate([RANDOM.normal(-1, 0.4, 400), RANDOM.normal(1.5, 0.2, 200)])
    run = Trajectory.from_arrays([0.0, 1.0], np.stack([places, 0.5 * places])[..., None])
    ax = view.snapshot(run, 1, labels=labels)
    bars = np.array([(bar.get_x(), bar.get_width(), bar.get_height()) for bar in ax.patches])
    low, high = ax.get_xlim()
    edges = np.linspace(low, high, cell_count(600) + 1)
    expected, _ = np.histogram(0.5 * places, edges, density=True)
    found = [bars[np.abs(bars[:, 0] - edge) < 1e-9, 2].sum() for edge in edges[:-1]]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert ax.get_ylabel() == "density"
    if labels is not None:
        assert len({bar.get_facecolor() for bar in ax.patches}) == 3
    few = Trajectory.from_arrays([0.0], places[None, :150, None])
    assert view.snapshot(few, 0).get_ylabel() == "particle"
