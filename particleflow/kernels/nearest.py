"""Neighbourhoods of the k nearest points: a kernel that depends on the measure it is summed over.

A kernel is a function of two sites, but which points are the k nearest of x depends on all points. So a kernel is bound
to the measure before it is summed (`AbstractKernel.bind`), and the bound kernel is an ordinary one, K(x, y) = 1 where
|x − y| ≤ r_k(x). Points are counted, not masses: a measure that stands for a density has no k-th point, and
discretizations that carry one refuse such a kernel.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.errors import ArgumentError, whole_number
from particleflow.kernels.base import AbstractKernel, AbstractMatrixKernel, points_of, squared_distances
from particleflow.kernels.capabilities import CountsPoints
from particleflow.measure import Measure

# Squared distances that differ by so many units of rounding (eps) count as equal: a sum may be rounded in two ways.
EQUAL_DISTANCE_ULPS = 16.0


class Nearest(CountsPoints, AbstractMatrixKernel):
    """K(x, y) = 1 where y is among the `count` nearest points of the measure to x, else 0.

    That is |x − y| ≤ r(x), r(x) the distance to the `count`-th nearest point, points of weight zero left out; a point
    of the measure is its own nearest. All points at the distance r(x), up to rounding, are neighbours: there may be
    more than `count`, and their order does not matter. Where fewer points have weight, all of them are neighbours.

    Times `Gaussian(width)` it is a Gaussian cut at the neighbours, times `Others()` the `count` − 1 nearest others;
    `Symmetrised` it joins pairs of which one is near to the other (arithmetic mean) or each to the other (geometric
    mean). Every query needs its distances to all points: O(m n), rows as a whole.
    """

    count: int = eqx.field(static=True)
    points: Float[Array, "n d"] | None
    log_weights: Float[Array, " n"] | None

    def __init__(self, count: int):
        self.count = count
        self.points = None
        self.log_weights = None

    def __check_init__(self):
        whole_number(self.count, "count")

    def bind(self, measure: Measure) -> AbstractKernel:
        """The neighbourhoods among the points of a measure that have weight."""
        if self.count > measure.count:
            raise ArgumentError(
                f"Argument `count` asks for the {self.count} nearest points, but the measure has {measure.count}."
            )
        return eqx.tree_at(
            lambda kernel: (kernel.points, kernel.log_weights),
            self,
            (measure.points, measure.log_weights),
            is_leaf=lambda leaf: leaf is None,
        )

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of 0 where |x_i − y_j| ≤ r(x_i), else −∞."""
        queries = points_of(xs)
        squares = squared_distances(queries, points_of(ys))
        slack = 1 + EQUAL_DISTANCE_ULPS * float(jnp.finfo(squares.dtype).eps)
        near = squares <= slack * self._squared_radii(queries)[:, None]
        return jnp.where(near, jnp.zeros_like(squares), -jnp.inf)

    def __repr__(self) -> str:
        return f"Nearest(count={self.count})"

    def _squared_radii(self, queries: Float[Array, "m d"]) -> Float[Array, " m"]:
        """r(x)² of every query; they jump, and have no derivative."""
        if self.points is None or self.log_weights is None:
            raise ArgumentError(
                "The kernel Nearest depends on all points of a measure: read it with `local_mean` and its relatives, "
                "or write kernel.bind(measure)."
            )
        away = squared_distances(queries, self.points)
        away = jnp.where(jnp.isneginf(self.log_weights)[None, :], jnp.inf, away)
        return jax.lax.stop_gradient(-jax.lax.top_k(-away, self.count)[0][:, -1])
