"""Particles that have merged: how much mass lies at one place, how large it is drawn, and in which colours.

Particles of several categories (labels, clusters) at one place are drawn as rings: discs one inside the other, the
heaviest category outermost, such that the area of each ring is the share of its category. A mean of their colours could
be that of a category that is not there; it is used only for colours that are no categories, those of first places.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.reading import frame_weights

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

WHOLE_AREA = 480.0  # points² of a marker that holds all of the mass
LEAST_AREA = (6.5, 16.0)  # of a particle by itself, smaller the more there are
LEAST_SUM = 4000.0
SHARES_NOTE = "rings of a dot: shares of the labels there"
MET_NOTE = "rings of a dot: shares of the clusters that met there"


def _crowds(coordinates: np.ndarray, cell: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For two grids, one shifted by half a cell: the number of each particle's cell, (N,), and the cells' counts."""
    scaled = np.clip(np.nan_to_num(coordinates / cell), -(2.0**20) + 1, 2.0**20 - 1)
    for shift in (0.0, 0.5):
        cells = np.floor(scaled + shift).astype(np.int64) + 2**20
        keys = cells @ (np.int64(2) ** (21 * np.arange(cells.shape[1])))  # up to three coordinates of 21 bits
        _, inverse, found = np.unique(keys, return_inverse=True, return_counts=True)
        yield inverse, found


@dataclass(frozen=True)
class Crowds:
    """For every particle: the `place` that it lies at, the `mass` there, and the `share` of its disc, (n,) each.

    The disc of a particle covers `share` of the area of the disc of its place: 1 where all particles have one colour.
    """

    place: np.ndarray
    mass: np.ndarray
    share: np.ndarray

    def order(self, depth: np.ndarray | None = None) -> np.ndarray:
        """The drawing order (n,): places from far to near, or by their last particle; inner discs of a place last."""
        depth = np.arange(len(self.place), dtype=float) if depth is None else depth
        nearest = np.full(int(self.place.max(initial=-1)) + 1, -np.inf)
        np.maximum.at(nearest, self.place, depth)
        return np.lexsort((-self.share, nearest[self.place]))


def find_crowds(
    coordinates: np.ndarray, weights: np.ndarray, colors: np.ndarray | None = None, cell: float = 0.01
) -> Crowds:
    """The crowds that particles are drawn in; without colours all shares are 1.

    The place is a cell of a grid; of two grids, one shifted by half a cell, the fuller cell counts. Merged particles
    hide each other: drawn by the mass of its place, a cluster shows what it weighs.
    """
    weights = np.asarray(weights, float)
    place, mass = np.arange(len(weights)), weights.copy()
    for grid, (inverse, _) in enumerate(_crowds(coordinates, cell), start=1):
        whole = np.bincount(inverse, weights)[inverse]
        fuller = whole > mass
        place[fuller], mass[fuller] = grid * len(weights) + inverse[fuller], whole[fuller]
    return Crowds(place, mass, np.ones(len(weights)) if colors is None else nested_shares(place, colors, weights))


def nested_shares(groups: np.ndarray, colors: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The share (n,) of its group that lies in a particle's colour or in colours of less mass; 1 for the heaviest.

    Discs of these shares of an area, in these colours and the largest first, leave of every colour a ring of its share
    of the group's mass.
    """
    tones = np.rint(255 * np.asarray(colors, float)).astype(np.int64) @ np.array([65536, 256, 1])
    _, tone = np.unique(tones, return_inverse=True)
    pairs, pair = np.unique(groups * np.int64(tone.max(initial=0) + 1) + tone, return_inverse=True)
    held, group = np.bincount(pair, mass), pairs // (tone.max(initial=0) + 1)
    order = np.lexsort((held, group))
    summed = np.cumsum(held[order])
    first, last = (np.searchsorted(group[order], group[order], side) for side in ("left", "right"))
    before = (summed - held[order])[first]
    inside, whole = summed - before, summed[last - 1] - before
    share = np.ones(len(pairs))
    np.divide(inside, whole, out=inside, where=whole > 0)
    share[order] = np.where(whole > 0, inside, 1.0)
    return share[pair]


def crowd_mass(coordinates: np.ndarray, weights: np.ndarray, cell: float = 0.01) -> np.ndarray:
    """The mass Σ w at a particle's place, (n,): its own weight if it is alone, all of it if all are there."""
    return find_crowds(coordinates, weights, cell=cell).mass


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
