"""Random queries and measures for the brute-force answers: with weights, positions and values, in several spaces."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from particleflow.measure import Measure, Sites

LETTERS = 5


class Site(NamedTuple):
    """One point with its position and its value, in float64."""

    point: np.ndarray
    position: float
    value: np.ndarray


class Cloud(NamedTuple):
    """Queries and a weighted measure; everything has positions and values."""

    queries: Sites
    measure: Measure


def cloud(space: str, dtype: Any, queries: int, points: int, seed: int = 0) -> Cloud:
    """Random queries and a random measure; one point has weight zero, and one query coincides with a point."""
    rng = np.random.default_rng(seed)
    if space == "letters":
        xs, ys = (rng.integers(0, LETTERS, size=(count, 1)).astype(float) for count in (queries, points))
    else:
        xs, ys = rng.normal(size=(queries, 3 if space == "vectors" else 2)), rng.normal(size=(points, 3))
        if space in ("rules", "fuzzy inputs"):
            ys = np.concatenate([ys[:, :2], rng.uniform(0.5, 2.0, size=(points, 2))], axis=1)
        if space == "fuzzy inputs":
            xs = np.concatenate([xs, rng.uniform(0.0, 1.0, size=xs.shape)], axis=1)
        if space == "gaps":
            xs, ys = (_with_gaps(rng, each) for each in (rng.normal(size=(queries, 3)), ys))
        if space == "vectors":
            xs[0] = ys[0]
    log_weights = rng.normal(size=points)
    if points > 1:
        log_weights[points // 2] = -np.inf
    at = Sites(
        jnp.asarray(xs, dtype),
        jnp.asarray(np.arange(queries) % max(points, 2), dtype),
        jnp.asarray(rng.normal(size=(queries, 2)), dtype),
    )
    values, positions = jnp.asarray(rng.normal(size=(points, 2)), dtype), jnp.asarray(rng.permutation(points), dtype)
    return Cloud(at, Measure(jnp.asarray(ys, dtype), jnp.asarray(log_weights, dtype), values, positions))


def _with_gaps(rng: np.random.Generator, points: np.ndarray) -> np.ndarray:
    known = (rng.uniform(size=points.shape) < 0.6).astype(float)
    return np.concatenate([points * known, known], axis=1)


def sites_of(sites: Sites) -> list[Site]:
    """The sites one by one, in float64."""
    points, positions, values = (np.asarray(leaf, dtype=np.float64) for leaf in sites)
    return [Site(points[i], float(positions[i]), values[i]) for i in range(len(points))]
