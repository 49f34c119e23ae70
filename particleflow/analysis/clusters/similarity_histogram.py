"""Histograms of pairwise similarity through time: the share of pairs at every similarity, one row a frame."""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.clusters.clusters import unit_directions
from particleflow.analysis.reading import FloatArray, IntArray, first_run
from particleflow.analysis.samples import gather, sampled_radius, thinned

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

MOST_PAIRED = 200  # particles of which all pairs are counted
_FRAMES_FOR_THE_RANGE = 12


def similarity_histogram(
    trajectory: "Trajectory", bins: int = 120, frames: int = 200, particles: int = MOST_PAIRED
) -> tuple[IntArray, FloatArray, FloatArray]:
    """The share of pairs in each bin of similarity: frame indices (T',), bin edges (bins + 1,), shares (T', bins).

    On a sphere, and of a network, the similarity is the cosine in [−1, 1], elsewhere the distance, up to the longest in
    twelve frames. At most `frames` frames and `particles` particles, evenly chosen, are read. An ensemble is measured
    by its run 0.
    """
    run = first_run(trajectory)
    network = run.facts.is_network
    radius = 1.0 if network else sampled_radius(run)
    chosen, shown = thinned(run.count, particles), thinned(len(run), frames)
    edges = (
        np.linspace(0.0, _longest_distance(run, chosen), bins + 1) if radius is None else np.linspace(-1, 1, bins + 1)
    )
    shares = np.zeros((len(shown), bins))
    for row, frame in enumerate(shown):
        points = gather(run, frame[None], chosen)[0]
        values = pair_values(unit_directions(points) if network else points, radius)
        values = np.clip(values[np.isfinite(values)], edges[0], edges[-1])
        shares[row] = np.histogram(values, bins, (edges[0], edges[-1]))[0] / max(values.size, 1)
    return shown, edges, shares


def pair_values(points: FloatArray, radius: float | None) -> FloatArray:
    """The cosines ⟨x_i, x_j⟩/R² of points on a sphere of radius R, else the distances |x_i − x_j|; each pair once."""
    rows, columns = _pairs(len(points))
    if radius is not None:
        return ((points @ points.T) / radius**2)[rows, columns]
    return np.linalg.norm(points[rows] - points[columns], axis=-1)


@lru_cache(1)
def _pairs(count: int) -> tuple[IntArray, IntArray]:
    """The numbers (i, j), i < j, of all pairs; kept, because every frame has the same ones."""
    return np.triu_indices(count, k=1)


def _longest_distance(run: "Trajectory", chosen: IntArray) -> float:
    """The longest distance between chosen particles in twelve frames, evenly spread; 1 where all are at one place."""
    longest = 0.0
    for points in gather(run, thinned(len(run), _FRAMES_FOR_THE_RANGE), chosen):
        finite = points[np.isfinite(points).all(axis=-1)]
        longest = max(longest, float(pair_values(finite, None).max(initial=0.0)))
    return longest or 1.0
