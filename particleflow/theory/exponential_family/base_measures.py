"""Base measures as weighted points: quadratures of Lebesgue measure, and all points of a finite space.

∫ f dx ≈ Σ_j w_j f(x_j). Draws are base measures, too: `Measure.uniform(draws)` approximates the law that they are drawn
from, with an error of order n^{−1/2}.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from particleflow.errors import ArgumentError, whole_number
from particleflow.measure import Measure

_MOST_POINTS = 2**20


def box(low: Any, high: Any, nodes: int, dtype: Any = float) -> Measure:
    """Lebesgue measure of the box [low, high], by Gauss–Legendre quadrature with `nodes` points a direction.

    Parameters: `low` and `high`, numbers for an interval or lists with one number a dimension; `nodes` a direction;
    `dtype`. Functions that are smooth on the scale of the distance between nodes are integrated to rounding; the mass
    outside the box is lost.
    """
    ends = np.atleast_1d(np.asarray(low, float)), np.atleast_1d(np.asarray(high, float))
    if ends[0].shape != ends[1].shape or ends[0].ndim != 1 or not np.isfinite(ends).all() or (ends[0] >= ends[1]).any():
        raise ArgumentError(f"Arguments `low` and `high` must be the ends of a box, but are {low} and {high}.")
    _check_count(nodes, "nodes", float(nodes) ** len(ends[0]) if isinstance(nodes, int) else 0.0)
    places, weights = np.polynomial.legendre.leggauss(nodes)
    halves = 0.5 * (ends[1] - ends[0])
    axes = [a + h * (1 + places) for a, h in zip(ends[0], halves, strict=True)]
    points = np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=1)
    logs = np.meshgrid(*(np.log(h * weights) for h in halves), indexing="ij")
    return Measure(jnp.asarray(points, dtype), jnp.asarray(np.sum(logs, axis=0).ravel(), dtype))


def circle(nodes: int, dtype: Any = float) -> Measure:
    """Arc length on the unit circle, of mass 2π, by equally spaced points: exact for Fourier modes below `nodes`."""
    _check_count(nodes, "nodes", float(nodes) if isinstance(nodes, int) else 0.0)
    angles = 2 * np.pi * np.arange(nodes) / nodes
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return Measure(jnp.asarray(points, dtype), jnp.full(nodes, np.log(2 * np.pi / nodes), dtype))


def hypercube(dimension: int, values: tuple[float, float] = (0.0, 1.0), dtype: Any = float) -> Measure:
    """Counting measure of all vectors whose coordinates take one of two values: 2^d points of mass one."""
    _check_count(dimension, "dimension", 2.0**dimension if isinstance(dimension, int) and dimension < 64 else 1e30)
    bits = (np.arange(2**dimension)[:, None] >> np.arange(dimension)[None, ::-1]) & 1
    return Measure(jnp.asarray(np.asarray(values)[bits], dtype), jnp.zeros(2**dimension, dtype))


def _check_count(number: Any, name: str, points: float) -> None:
    """Raise unless a number is a positive integer that makes at most `_MOST_POINTS` points."""
    whole_number(number, name)
    if points > _MOST_POINTS:
        raise ArgumentError(
            f"Argument `{name}` is {number}, which makes {points:.3g} points, but at most {_MOST_POINTS} are summed "
            "one by one; take fewer, or draws of the base measure."
        )
