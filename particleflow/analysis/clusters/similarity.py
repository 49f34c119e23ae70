"""Pairwise similarity through time: quantiles over pairs, and the fraction of pairs that have become one.

Pairs are i < j, each with the mass w_i w_j / Σ_{k<l} w_k w_l. The similarity of a pair is the cosine
⟨x_i, x_j⟩ / (|x_i| |x_j|), which does not see the radius of a sphere, or the distance |x_i − x_j|; the quantile at p is
the least value s such that the pairs of similarity ≤ s have mass ≥ p. Up to a limit all pairs are taken; beyond it a
fixed random sample of pairs, the same in every frame, drawn with the weights from a stated seed. Where fewer than two
particles have mass there is no pair, and every number is NaN.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.clusters.clusters import DEFAULT_INNER
from particleflow.analysis.reading import (
    FloatArray,
    IntArray,
    Progress,
    as_frames,
    fixed_weights,
    is_spherical,
    iterate,
    single_run,
)
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_DOMINANT = 0.5  # with a larger share, two independent particles are more often the same than not
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class PairSimilarities:
    """Quantiles over pairs in every frame.

    measure: "cosine" ⟨x, y⟩ / |x||y|, or "distance" |x − y|; probabilities: (K,); values: (T, K); mean: (T,);
    close: (T,) the fraction of pairs with cosine > 0.999 (None for distances); pairs: how many; sampled: at random.
    """

    measure: str
    times: FloatArray
    probabilities: FloatArray
    values: FloatArray
    mean: FloatArray
    close: FloatArray | None
    pairs: int
    sampled: bool
    seed: int


def similarity_quantiles(
    trajectory: "Trajectory",
    *,
    probabilities: ArrayLike = _QUANTILES,
    measure: str = "auto",
    maximum_pairs: int = 100_000,
    seed: int = 0,
    frames: ArrayLike | None = None,
    progress: Progress | None = None,
) -> PairSimilarities:
    """Return quantiles of the pairwise similarity in every frame.

    measure: "cosine", "distance", or "auto" (cosine on spheres and of hidden states of a network, otherwise distance).
    maximum_pairs: beyond it pairs are sampled; a sampled quantile at probability p then is the quantile at p ± √(p(1−p)
    / maximum_pairs). frames: the indices of the frames to use, by default all. probabilities: (K,) between 0 and 1;
    seed: of the sample of pairs.
    """
    trajectory = single_run(trajectory)
    if measure not in ("auto", "cosine", "distance"):
        raise ArgumentError(f'Argument `measure` must be "auto", "cosine" or "distance", but is {measure!r}.')
    if measure == "auto":
        measure = "cosine" if is_spherical(trajectory) or trajectory.facts.is_network else "distance"
    levels = np.asarray(probabilities, dtype=np.float64).reshape(-1)
    if levels.size == 0 or (levels < 0).any() or (levels > 1).any():
        raise ArgumentError("`probabilities` must lie between 0 and 1.")
    first, second, mass, sampled = choose_pairs(fixed_weights(trajectory), maximum_pairs, seed)
    chosen = as_frames(frames, len(trajectory))
    values, mean, close = np.empty((chosen.size, levels.size)), np.empty(chosen.size), np.empty(chosen.size)
    for index, points in iterate(trajectory, progress, None if frames is None else chosen):
        if first.size == 0:
            values[index], mean[index], close[index] = np.nan, np.nan, np.nan
            continue
        similarity = pair_similarity(points, first, second, measure)
        order = np.argsort(similarity)
        values[index] = _quantiles(similarity[order], mass[order], levels)
        mean[index] = mass @ similarity
        close[index] = mass @ (similarity > DEFAULT_INNER)
    near = close if measure == "cosine" else None
    times = np.asarray(trajectory.times, dtype=np.float64)[chosen]
    return PairSimilarities(measure, times, levels, values, mean, near, first.size, sampled, seed)


def choose_pairs(weights: FloatArray, maximum: int, seed: int) -> tuple[IntArray, IntArray, FloatArray, bool]:
    """Return pairs i < j of particles with mass, the pairs' masses (summing to one), and whether they were sampled.

    Sampled pairs have the probabilities P(i, j) = w_i w_j / Σ_{k<l} w_k w_l, and all of them count alike.
    """
    alive = np.flatnonzero(weights > 0)
    if maximum < 1:
        raise ArgumentError(f"Argument `maximum_pairs` must be at least 1, but is {maximum}.")
    if alive.size * (alive.size - 1) // 2 <= maximum:
        first, second = np.triu_indices(alive.size, k=1)
        mass = weights[alive[first]] * weights[alive[second]]
        return alive[first], alive[second], mass / mass.sum() if mass.size else mass, False
    generator = np.random.default_rng(seed)
    share = weights[alive] / weights[alive].sum()
    draw = _draw_two if share.max() <= _DOMINANT else _draw_one_of_others
    first, second = np.sort(alive[draw(share, maximum, generator)], axis=0)
    return first, second, np.full(maximum, 1.0 / maximum), True


def _draw_two(share: FloatArray, count: int, generator: np.random.Generator) -> IntArray:
    """Draw pairs (2, count) as two independent particles, again where they are the same."""
    kept = np.empty((2, 0), dtype=np.int64)
    while kept.shape[1] < count:
        drawn = generator.choice(share.size, size=(2, count), p=share)
        kept = np.concatenate([kept, drawn[:, drawn[0] != drawn[1]]], axis=1)
    return kept[:, :count]


def _draw_one_of_others(share: FloatArray, count: int, generator: np.random.Generator) -> IntArray:
    """Draw pairs (2, count) as a particle i, of probability ∝ w_i (1 − w_i), and one of the others.

    None is drawn again, which would hardly end where one particle has almost all mass. That particle comes last in the
    sums, so that the weights of the others are not lost beside it.
    """
    order = np.argsort(share, kind="stable")
    mass = share[order]
    below = np.cumsum(mass)
    others = np.append(below[-1] - mass[:-1], below[-2])
    chance = mass * others
    first = generator.choice(mass.size, size=count, p=chance / chance.sum())
    # A place among the others, laid end to end: those behind the first particle are further on by its weight.
    place = np.minimum(generator.random(count) * others[first], np.nextafter(others[first], 0.0))
    before = np.append(0.0, below[:-1])[first]
    second = np.searchsorted(below[:-1], np.where(place < before, place, place + mass[first]), side="right")
    return order[np.stack([first, second])]


def pair_similarity(points: FloatArray, first: IntArray, second: IntArray, measure: str) -> FloatArray:
    """Return the cosine ⟨x, y⟩ / (|x| |y|) or the distance |x − y| of given pairs.

    In chunks that keep the copies of points small; a point at the origin is orthogonal to everything.
    """
    if measure == "cosine":
        norms = np.linalg.norm(points, axis=1, keepdims=True)
        points = points / np.where(norms > 0, norms, 1.0)
    result = np.empty(first.size)
    chunk = max(1, (1 << 20) // points.shape[1])
    for start in range(0, first.size, chunk):
        place = slice(start, start + chunk)
        left, right = points[first[place]], points[second[place]]
        if measure == "cosine":
            result[place] = np.clip(np.einsum("ij,ij->i", left, right), -1.0, 1.0)
        else:
            result[place] = np.linalg.norm(left - right, axis=1)
    return result


def _quantiles(values: FloatArray, mass: FloatArray, levels: FloatArray) -> FloatArray:
    """Invert the weighted distribution function F(s) = Σ_{s_k ≤ s} m_k: the least value s with F(s) ≥ level.

    The values come sorted; a level that rounding puts just above a sum of masses still counts as reached.
    """
    cumulated = np.cumsum(mass)
    place = np.searchsorted(cumulated, levels * cumulated[-1] * (1 - 1e-12))
    return values[np.minimum(place, values.size - 1)]
