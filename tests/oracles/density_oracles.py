"""Densities that are known: bumps that grow out of an even density, on a circle, a line, a lattice and a sphere."""

from typing import Any

import numpy as np
from scipy.spatial import SphericalVoronoi

from particleflow.trajectory.trajectory import Trajectory

KINDS = ("circle", "line", "plane", "sphere")
RADIUS = 2.0  # of circle and sphere
BOX = 3.0
SHARES = (0.6, 0.4)  # of the two bumps
EVEN = {"circle": 2 * np.pi * RADIUS, "line": 2 * BOX, "plane": 4 * BOX**2, "sphere": 4 * np.pi * RADIUS**2}


def places(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Points (N, d) and the length or area of the cells around them, by formulas of their own."""
    if kind == "circle":
        turn = 2 * np.pi * np.arange(96) / 96
        return RADIUS * np.column_stack([np.cos(turn), np.sin(turn)]), np.full(96, 2 * np.pi * RADIUS / 96)
    side = np.linspace(-BOX, BOX, 41)
    middle = (side[1:] + side[:-1]) / 2
    if kind == "line":
        return middle[:, None], np.full(40, 0.15)
    if kind == "plane":
        return np.stack(np.meshgrid(middle, middle[::2], indexing="ij"), -1).reshape(-1, 2), np.full(800, 0.15 * 0.3)
    units = np.random.default_rng(3).normal(size=(300, 3))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    return RADIUS * units, RADIUS**2 * SphericalVoronoi(units).calculate_areas()


def centres(kind: str) -> np.ndarray:
    """Where the two bumps are."""
    if kind == "line":
        return np.array([[-1.4], [1.6]])
    if kind == "plane":
        return np.array([[-1.4, -1.0], [1.6, 1.2]])
    axes = np.eye(2 if kind == "circle" else 3)
    return RADIUS * np.stack([axes[0], -axes[0]])


def density_of(kind: str, points: np.ndarray, sharpness: float) -> np.ndarray:
    """Two bumps exp(−sharpness |x − c|²/2) of the shares 0.6 and 0.4, not normalised together with their cells."""
    away = np.square(points[:, None] - centres(kind)[None]).sum(axis=-1)
    bumps = np.exp(-sharpness * away / 2)
    return bumps @ np.array(SHARES)


def make(kind: str, *, frames: int = 6, runs: int | None = None, shuffled: bool = False, **options: Any) -> Trajectory:
    """A run of that density, from even to sharp."""
    points, volumes = places(kind)
    order = np.random.default_rng(1).permutation(len(points)) if shuffled else np.arange(len(points))
    rows = [density_of(kind, points, 8.0 * frame / 5) * volumes for frame in range(frames)]
    masses = np.stack([row / row.sum() for row in rows])[:, order]
    where = np.broadcast_to(points[order], (frames, *points.shape))
    if runs is not None:
        masses = np.repeat(masses[:, None], runs, axis=1)
        where = np.broadcast_to(points[order], (frames, runs, *points.shape))
    round_one = kind in ("circle", "sphere")
    space = {"kind": "sphere", "radius": RADIUS} if round_one else {"kind": "flat"}
    energy = np.linspace(0, 1, frames)
    metadata = {"title": f"A density ({kind})", "geometry": "sphere" if round_one else "euclidean", "space": space}
    contents: dict[str, Any] = {"observables": {"energy": energy if runs is None else energy[:, None] * np.ones(runs)}}
    contents |= {"fields": {"masses": masses}, "metadata": metadata}
    return Trajectory.from_arrays(0.5 * np.arange(frames), where, **(contents | options))


def scattered(frames: int = 4) -> Trajectory:
    """Masses on scattered points of the plane, which have no cells."""
    generator = np.random.default_rng(0)
    masses = generator.dirichlet(np.ones(30), frames)
    points = np.broadcast_to(generator.normal(size=(30, 2)), (frames, 30, 2))
    return Trajectory.from_arrays(np.arange(float(frames)), points, fields={"masses": masses}, metadata={})


def peaks_in_a_row(density: np.ndarray, contrast: float) -> int:
    """How many maxima of a row of cells stand out, one by one; a pass is on the better of two ways to a higher one."""
    found = 0
    for place, height in enumerate(density):
        beside = [density[k] for k in (place - 1, place + 1) if 0 <= k < len(density)]
        if any(other > height for other in beside):
            continue
        passes = []
        for way in (density[place::-1], density[place:]):
            higher = np.flatnonzero(way > height)
            if higher.size:
                passes.append(way[: higher[0]].min())
        found += height >= contrast * (max(passes) if passes else density.min())
    return found


def watershed(cells: Any, density: np.ndarray, contrast: float, least: float) -> dict[int, list[int]]:
    """The peaks of a density by brute force: the cells of each, by its top. One cell at a time, with sets and loops.

    First the tops: every cell walks up to its maximum; then water is lowered cell by cell. Then the cells: again and
    again the highest one that touches a cell with an owner gets the owner of its highest such neighbour.
    """
    mass = density * cells.volumes / (density @ cells.volumes)
    near = [set(row) - {place} for place, row in enumerate(cells.neighbours.tolist())]
    if density.max() < contrast * density.min() or density.max() <= density.min() * (1 + 1e-9):
        return {}
    key = {place: (density[place], place) for place in range(len(density))}
    basin = {}
    for place in key:
        top = place
        while key[best := max(near[top], key=key.__getitem__)] > key[top]:
            top = best
        basin[place] = top
    held = {top: sum(mass[place] for place in key if basin[place] == top) for top in set(basin.values())}
    heir: dict[int, Any] = dict.fromkeys(held)  # of a maximum that is no peak

    def peak_of(top: int) -> int:
        return top if heir[top] is None else peak_of(heir[top])

    lakes = {top: {top} for top in held}  # the basins below one water, by their highest maximum
    for place in sorted(key, key=key.__getitem__, reverse=True):
        for other in sorted(near[place], key=key.__getitem__, reverse=True):
            if key[other] < key[place]:
                continue
            mine, theirs = (next(top for top, lake in lakes.items() if basin[each] in lake) for each in (place, other))
            if mine == theirs:
                continue
            low, across = (mine, other) if key[mine] < key[theirs] else (theirs, place)
            lakes[max(mine, theirs, key=key.__getitem__)] |= lakes.pop(low)
            if (
                density[low] <= density[place] * (1 + 1e-9)
                or density[low] < contrast * density[place]
                or held[low] < least
            ):
                heir[low] = peak_of(basin[across])
                held[heir[low]] += held[low]
    owner = {top: top for top in held if heir[top] is None and held[top] >= least}
    tops = np.array(list(owner))
    away = np.round(np.stack([_apart(cells, place, tops).min() for place in key]), 7)
    order = {place: (float(f"{density[place]:.9e}"), -away[place], place) for place in key}
    while len(owner) < len(key):
        touching = [place for place in key if place not in owner and near[place] & owner.keys()]
        place = max(touching, key=order.__getitem__)
        owner[place] = owner[max(near[place] & owner.keys(), key=order.__getitem__)]
    return {int(top): [place for place in key if owner[place] == top] for top in tops}


def _apart(cells: Any, place: int, others: np.ndarray) -> np.ndarray:
    """Distances of one cell's point from others; the shortest way around a box whose ends meet."""
    apart = np.abs(cells.points[others] - cells.points[place])
    if cells.closed:
        lengths = np.array([edge[-1] - edge[0] for edge in cells.edges])
        apart = np.minimum(apart, lengths - apart)
    return np.sqrt(np.square(apart).sum(axis=1))
