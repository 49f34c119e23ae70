"""Particles that have merged: how much mass lies at one place, how large it is drawn, and in which colour."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.reading import frame_weights

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

WHOLE_AREA = 480.0  # points² of a marker that holds all of the mass
LEAST_AREA = (6.5, 16.0)  # of a particle by itself, smaller the more there are
LEAST_SUM = 4000.0


def _crowds(coordinates: np.ndarray, cell: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For two grids, one shifted by half a cell: the number of each particle's cell, (N,), and the cells' counts."""
    scaled = np.clip(np.nan_to_num(coordinates / cell), -(2.0**20) + 1, 2.0**20 - 1)
    for shift in (0.0, 0.5):
        cells = np.floor(scaled + shift).astype(np.int64) + 2**20
        keys = cells @ (np.int64(2) ** (21 * np.arange(cells.shape[1])))  # up to three coordinates of 21 bits
        _, inverse, found = np.unique(keys, return_inverse=True, return_counts=True)
        yield inverse, found


def crowd_mass(coordinates: np.ndarray, weights: np.ndarray, cell: float = 0.01) -> np.ndarray:
    """The mass Σ w at a particle's place, (N,): its own weight if it is alone, all of it if all are there.

    The place is a cell of a grid; of two grids, one shifted by half a cell, the fuller cell counts. Merged particles
    hide each other: drawn by this mass, a cluster shows what it weighs.
    """
    mass = np.asarray(weights, float)
    found = mass.copy()
    for inverse, _ in _crowds(coordinates, cell):
        found = np.maximum(found, np.bincount(inverse, mass)[inverse])
    return found


def shown_weights(run: "Trajectory", frame: int, particles: Any = slice(None)) -> np.ndarray:
    """The weights of the particles that are shown, as shares of what is shown."""
    mass = frame_weights(run, frame)[particles]
    return mass / (mass.sum() or 1.0)


def marker_areas(mass: np.ndarray) -> np.ndarray:
    """Marker areas in points², proportional to mass, but at least large enough to be seen."""
    return np.maximum(np.clip(LEAST_SUM / max(len(mass), 1), *LEAST_AREA), WHOLE_AREA * mass)


def crowd_colors(coordinates: np.ndarray, colors: np.ndarray, cell: float = 0.01) -> np.ndarray:
    """Colours (N, 3) in which particles at one place share their mean: a cluster shows where its members come from."""
    blended, counts = colors.copy(), np.ones(len(coordinates), int)
    for inverse, found in _crowds(coordinates, cell):
        means = np.column_stack([np.bincount(inverse, channel) for channel in colors.T]) / found[:, None]
        fuller = found[inverse] > counts
        blended[fuller], counts[fuller] = means[inverse[fuller]], found[inverse[fuller]]
    return blended
