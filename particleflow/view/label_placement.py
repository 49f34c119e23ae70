"""Placement of words beside particles: those at one place of the picture share a name, and no name covers another.

Everything is in the units of the picture (pixels, or another unit of the renderer) and deterministic: the heaviest
group is placed first, and a name without a free place is shortened or left out. Figures and movie both use these
functions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from particleflow.analysis.clusters.clusters import label_active
from particleflow.trajectory.words import named

MOST_NAMES = 40
REACH = 0.9  # of the height of letters: particles so near to each other share a name
_FEW = 150  # particles, up to which each group may have a name
_SHARE = 1 / 60  # of the mass, the least that a group must hold to have a name among more particles
_LENGTHS = (3, 2, 1)  # words in a name, tried in this order
_NEAR = 3.5  # lines of text within which a name is not repeated
_WIDEST = 2.5  # links: a wider group has no one place
_GAP = 0.22  # of a line of text, between a marker and its name

Box = tuple[float, float, float, float]  # left, bottom, right, top
Measure = Callable[[str], tuple[float, float]]


@dataclass(frozen=True)
class Group:
    """Particles at one place: `members`, the middle (2,), half their `spread`, `mass`; whether they lie `behind`."""

    members: np.ndarray
    place: np.ndarray
    spread: float
    mass: float
    behind: bool = False


@dataclass(frozen=True)
class Name:
    """A text at a place: its lower left corner and its box."""

    text: str
    box: Box
    group: Group


def find_groups(
    places: np.ndarray, weights: np.ndarray, reach: float, *, depth: Any = None, axes: int = 2
) -> list[Group]:
    """The groups of particles that are linked at the distance `reach`, the heaviest first, at most `MOST_NAMES`.

    `places` (N, 2), whose first `axes` coordinates decide links and widths; `depth` (N,) of a picture of space,
    positive in front, in the same units, so that particles behind each other are not linked. A group wider than a few
    links has no one place, and gets no name.
    """
    active = np.isfinite(places).all(axis=-1) & (weights > 0)
    if not active.any():
        return []
    linked = places[:, :axes] if depth is None else np.column_stack([places, depth])
    labels = label_active(np.where(active[:, None], linked, 0.0), active, reach)
    order = np.argsort(labels, kind="stable")[np.count_nonzero(~active) :]
    mass = np.bincount(labels[order], weights[order])
    parts = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    least = 0.0 if len(order) <= _FEW else _SHARE * mass.sum()
    heavy = [number for number in np.argsort(-mass, kind="stable").tolist() if mass[number] >= least]
    return sorted(_gathered(places, parts, mass, heavy, reach, depth, axes), key=lambda group: group.behind)


def _gathered(
    places: np.ndarray, parts: list[np.ndarray], mass: np.ndarray, heavy: list[int], reach: float, depth: Any, axes: int
) -> Iterator[Group]:
    """The groups that are no wider than a few links."""
    for number in heavy[:MOST_NAMES]:
        members = parts[number]
        low, high = places[members].min(axis=0), places[members].max(axis=0)
        spread = float((high - low)[:axes].max()) / 2
        if spread <= _WIDEST * reach:
            behind = depth is not None and float(np.mean(depth[members])) < 0
            yield Group(members, (low + high) / 2, spread, float(mass[number]), behind)


def place_names(
    groups: Sequence[Group],
    words: np.ndarray,
    radius: Callable[[Group], float],
    measure: Measure,
    bounds: Box,
    taken: Sequence[Box] = (),
) -> list[Name]:
    """Names for as many groups as there is room for, beside their markers and inside of `bounds`.

    A name that is written nearby already is not repeated. `radius` is that of a group's marker, `measure` gives the
    width and height of a text, `taken` are boxes that must stay free of names. A name also keeps off the markers of all
    other groups, so that it cannot be taken for theirs.
    """
    reaches = [radius(group) + group.spread for group in groups]
    boxes = [*taken]
    names: list[Name] = []
    for place, group in enumerate(groups):
        texts = list(dict.fromkeys(named(words[group.members].tolist(), most) for most in _LENGTHS))
        near = _NEAR * measure(texts[0])[1]
        told = any(texts[0] == name.text and np.abs(name.group.place - group.place).max() < near for name in names)
        clear = 1.5 * _GAP * measure(texts[0])[1]
        others = [_around(each.place, reaches[k] + clear) for k, each in enumerate(groups) if k != place]
        free = _free(group, reaches[place], texts, measure, bounds, [*boxes, *others])
        found = None if told else next(free, None)
        if found is not None:
            names.append(found)
            boxes.append(found.box)
    return names


def _free(
    group: Group,
    radius: float,
    texts: Sequence[str],
    measure: Measure,
    bounds: Box,
    obstacles: list[Box],
) -> Iterator[Name]:
    """The places around a marker where a text, the longest first, touches nothing else."""
    for text in texts:
        for box in _beside(group.place, radius, *measure(text)):
            inside = box[0] >= bounds[0] and box[1] >= bounds[1] and box[2] <= bounds[2] and box[3] <= bounds[3]
            if inside and not any(_overlap(box, other) for other in obstacles):
                yield Name(text, box, group)


def _beside(place: np.ndarray, radius: float, width: float, height: float) -> Iterator[Box]:
    """Boxes of a text right, left, above and below of a marker, then at its corners."""
    gap, corner = _GAP * height, 0.71 * radius
    x, y = float(place[0]), float(place[1])
    for across, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
        away = (corner if across and up else radius) + gap
        left = x + across * away - width * (1 - across) / 2
        bottom = y + up * away - height * (1 - up) / 2
        yield left, bottom, left + width, bottom + height


def _around(place: np.ndarray, radius: float) -> Box:
    """The square around a marker."""
    x, y = float(place[0]), float(place[1])
    return x - radius, y - radius, x + radius, y + radius


def _overlap(one: Box, other: Box) -> bool:
    """Whether two boxes share more than an edge."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def spread_apart(places: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """The places (n,) nearest to given ones, in increasing order, that keep a `gap` and lie between two ends.

    The sum of squared moves is least: places less k gaps must not decrease, which is isotonic regression, by pooling
    neighbours that violate the order. Where n names have no room between the ends, the gap shrinks.
    """
    count = len(places)
    gap = min(gap, (high - low) / max(count - 1, 1))
    blocks: list[tuple[float, int]] = []
    for place in np.asarray(places, float) - gap * np.arange(count):
        mean, size = float(place), 1
        while blocks and blocks[-1][0] >= mean:
            before, members = blocks.pop()
            mean, size = (before * members + mean * size) / (members + size), members + size
        blocks.append((mean, size))
    pooled = np.repeat([mean for mean, _ in blocks], [size for _, size in blocks])
    return np.clip(pooled, low, high - gap * (count - 1)) + gap * np.arange(count)
