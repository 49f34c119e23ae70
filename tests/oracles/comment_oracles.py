"""The first comment of a shipped scenario as sentences with numbers, its runs, and measures in NumPy and SciPy."""

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

import particleflow as pf
from particleflow.app.scenario.scenario import describe, load, shipped

WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "forty": 40, "sixty": 60, "million": 1_000_000,
}  # fmt: skip
DIGITS = r"[-+]?(?:\d[\d,]*\d|\d)(?:\.\d+)?|[-+]?\.\d+"
NUMBER = rf"({DIGITS}|(?i:{'|'.join(WORDS)}))"
PRODUCTS = ("summary", "figures", "movie", "page")


@dataclass(frozen=True)
class Stated:
    """A number as it is written: its value, and what rounding to its last digit allows."""

    text: str

    @property
    def value(self) -> float:
        """The number; a whole one also as a word."""
        word = WORDS.get(self.text.lower())
        return float(self.text.replace(",", "")) if word is None else float(word)

    @property
    def half(self) -> float:
        """Half of a unit of the last digit that is written, of the last but zeros in thousands; 0 for a word."""
        if self.text.lower() in WORDS:
            return 0.0
        whole, _, fraction = self.text.partition(".")
        zeros = len(whole) - len(whole.replace(",", "").rstrip("0")) - whole.count(",") if "," in whole else 0
        return 0.5 * 10.0 ** (zeros - len(fraction))

    @property
    def rounded(self) -> Any:
        """Equal to every number that would be written like this."""
        return pytest.approx(self.value, rel=1e-12, abs=self.half * (1 + 1e-9))


def numbers(text: str) -> list[str]:
    """The numbers of a text: digits, and words from two on."""
    return re.findall(rf"(?<![\w.]){NUMBER}(?!\w)", text)


@dataclass(frozen=True)
class Shipped:
    """A shipped scenario: its first comment, its tables, and its runs in new folders below `folder`."""

    name: str
    folder: Path

    @cached_property
    def comment(self) -> str:
        """The first comment, without the line of the theme."""
        return comment(self.name)

    @cached_property
    def table(self) -> dict[str, Any]:
        """The file, read without particleflow."""
        return tomllib.loads(shipped()[self.name].read_text(encoding="utf-8"))

    @property
    def data(self) -> Path:
        """Where the files lie that scenarios name."""
        return shipped()[self.name].parent / "data"

    def says(self, sentence: str) -> list[Stated]:
        """The numbers in a sentence of the comment, {} where each stands; the test fails where it is not said."""
        pattern = re.escape(sentence).replace(r"\{\}", NUMBER)
        found = re.search(pattern, self.comment)
        assert found is not None, f"the comment of {self.name} no longer says {sentence!r}: {self.comment}"
        return [Stated(text) for text in found.groups()]

    def overrides(self) -> dict[str, Any]:
        """The values behind `--set` in the comment."""
        found = re.search(r"--set((?: [\w.]+=[^\s,:;]+)+)", self.comment)
        assert found is not None, f"the comment of {self.name} has no --set"
        pairs = [pair.split("=") for pair in found[1].split()]
        return {key: tomllib.loads(f"value = {value}")["value"] for key, value in pairs}

    def run(self, **tables: Any) -> pf.Trajectory:
        """A run without products; `tables` holds other values by their dotted paths."""
        folder = next(path for number in count() if not (path := self.folder / f"{number}").exists())
        return pf.run(shipped()[self.name], set=tables, output=folder, progress=False, **dict.fromkeys(PRODUCTS, False))

    def at(self, *times: float) -> np.ndarray:
        """The points at some times, run for them alone."""
        kept = {key: value for key, value in self.table["time"].items() if key in ("rtol", "atol", "step", "solver")}
        return points(self.run(time={**kept, "times": [0.0, *times]}))[1:]

    def moment(self, said: Stated, happened: Callable[[np.ndarray], bool]) -> np.ndarray:
        """Check that something happens between the least and the largest time that would be written like this.

        Returns the points at both.
        """
        before, after = frames = self.at(said.value - said.half, said.value + said.half)
        assert not happened(before)
        assert happened(after)
        return frames


def comment(name: str) -> str:
    """The first comment of a shipped scenario, without the line of the theme."""
    return str(describe(shipped()[name])["look for"])


def drawn(name: str) -> Any:
    """The scenario built: its start, with labels and words."""
    return load(name).build()


def points(trajectory: pf.Trajectory) -> np.ndarray:
    """All points in double precision."""
    return np.asarray(trajectory.points, dtype=float)


def frame_at(trajectory: pf.Trajectory, time: float) -> np.ndarray:
    """The points of the frame that is nearest to a time."""
    return points(trajectory)[np.argmin(np.abs(np.asarray(trajectory.times) - time))]


def units(points: np.ndarray) -> np.ndarray:
    """Points divided by their lengths."""
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def cosines(points: np.ndarray) -> np.ndarray:
    """The cosines of all pairs."""
    return units(points) @ units(points).T


def mean_cosine(points: np.ndarray) -> float:
    """The mean cosine of pairs of different points."""
    return float(cosines(points)[np.triu_indices(len(points), 1)].mean())


def effective_rank(points: np.ndarray) -> float:
    """The exponential of the entropy of the shares of the squared singular values."""
    squares = np.linalg.svd(points, compute_uv=False) ** 2
    shares = squares[squares > 0] / squares.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def linked(points: np.ndarray, distance: float) -> np.ndarray:
    """The cluster of every point: connected components of the pairs at most a distance apart."""
    first, second = KDTree(points).query_pairs(distance, output_type="ndarray").T
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(len(points), len(points)))
    return connected_components(graph, directed=False)[1]


def clusters(points: np.ndarray, distance: float) -> int:
    """How many clusters there are."""
    return int(linked(points, distance).max()) + 1


def sizes(points: np.ndarray, distance: float) -> list[int]:
    """The sizes of clusters, the largest first."""
    return sorted(np.bincount(linked(points, distance)).tolist(), reverse=True)


def slope(x: Any, y: Any, low: float, high: float) -> float:
    """The slope of a least-squares line where x lies between two numbers."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    chosen = (x >= low) & (x <= high)
    assert chosen.sum() > 3
    return float(np.polynomial.Polynomial.fit(x[chosen], y[chosen], 1).convert().coef[1])


def excess_kurtosis(points: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Mardia's, E |S^(-1/2) (x - c)|^4 - d (d + 2); on a line the usual one."""
    masses = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=float)
    shares = masses / masses.sum()
    centred = points - shares @ points
    inverse = np.linalg.inv(centred.T @ (shares[:, None] * centred))
    squares = np.einsum("ni,ij,nj->n", centred, inverse, centred)
    dimension = points.shape[1]
    return float(shares @ squares**2 - dimension * (dimension + 2))


def reconstruction_weights(places: np.ndarray, neighbours: int) -> np.ndarray:
    """Nonnegative weights of sum 1 by which the nearest places make up each place best, by SciPy's nnls."""
    found = np.zeros((len(places), len(places)))
    heavy = 1e6  # of the row that says that they sum to 1
    for index, place in enumerate(places):
        nearest = np.argsort(np.linalg.norm(places - place, axis=1))[1 : neighbours + 1]
        matrix = np.vstack([places[nearest].T, np.full(neighbours, heavy)])
        weights, _ = nnls(matrix, np.append(place, heavy))
        found[index, nearest] = weights
    return found


def peaks(values: Sequence[float] | np.ndarray, *, above: float, ring: bool = False) -> np.ndarray:
    """The indices of local maxima above a level, of a ring or of a line."""
    values = np.asarray(values)
    before, after = np.roll(values, 1), np.roll(values, -1)
    if not ring:
        before[0] = after[-1] = np.inf
    return np.flatnonzero((values > before) & (values >= after) & (values > above))
