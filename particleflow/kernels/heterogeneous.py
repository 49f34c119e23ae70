"""Kernels whose two sides are no points of one space: rules, points with gaps, and pairs of points.

A point of the measure holds the numbers of such a thing side by side: of a rule, its centre and its widths; of a point
with gaps, its coordinates and which of them are known; of a pair, its two points. These kernels have none of the forms
of fast methods, and are summed pair by pair.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.kernels.base import AbstractKernel, AbstractMatrixKernel, AbstractPairKernel, points_of
from particleflow.kernels.mapped import as_function


class Membership(AbstractPairKernel):
    """K(x, rule) = Π_a exp(−(x_a − c_a)²/(2 σ_a²)): how far x belongs to a rule, the product of its conditions.

    The point of a rule is (c, σ), twice as long as x: every rule has widths of its own.
    """

    def log_pair(self, x: Any, y: Any) -> Float[Array, ""]:
        """−½ Σ_a ((x_a − c_a)/σ_a)²."""
        point, rule = points_of(x), points_of(y)
        if rule.shape[0] != 2 * point.shape[0]:
            raise ShapeError(
                f"A rule for points of {point.shape[0]} coordinates is as many centres and widths, but has "
                f"{rule.shape[0]} numbers."
            )
        centre, width = jnp.split(rule, 2)
        return -0.5 * jnp.sum(jnp.square((point - centre) / width))

    def vanishes(self) -> bool:
        """Never: an exponential is positive."""
        return False


class FuzzyMembership(AbstractPairKernel):
    """K(x', rule) = ∫ p(x|x') Π_a exp(−(x_a − c_a)²/(2 σ_a²)) dx: how far a fuzzy input belongs to a rule.

    The coordinates of the input are normal about x' with spreads τ ≥ 0, so that this is the product over a of
    σ_a/√(σ_a² + τ_a²) · exp(−(x'_a − c_a)²/(2 (σ_a² + τ_a²))); with τ = 0 it is `Membership`. The point of an input is
    (x', τ), that of a rule (c, σ).
    """

    def log_pair(self, x: Any, y: Any) -> Float[Array, ""]:
        """Σ_a log σ_a − ½ log(σ_a² + τ_a²) − ½ (x'_a − c_a)²/(σ_a² + τ_a²)."""
        fuzzy, rule = points_of(x), points_of(y)
        if fuzzy.shape != rule.shape or rule.shape[0] % 2:
            raise ShapeError(
                "A fuzzy input is as many coordinates and spreads as a rule has centres and widths, but they have "
                f"{fuzzy.shape[0]} and {rule.shape[0]} numbers."
            )
        (place, spread), (centre, width) = jnp.split(fuzzy, 2), jnp.split(rule, 2)
        wider = jnp.square(width) + jnp.square(spread)
        return jnp.sum(jnp.log(width) - 0.5 * jnp.log(wider) - 0.5 * jnp.square(place - centre) / wider)

    def vanishes(self) -> bool:
        """Never: an exponential is positive."""
        return False


class PartlyObserved(AbstractMatrixKernel):
    """K(x, y) = kernel of the coordinates known of both x and y, their squared distance scaled up to all of them.

    |x − y|² ≈ (d/|O|) Σ_{a ∈ O} (x_a − y_a)² over the shared coordinates O, as for means over incomplete rows (Dixon
    1979); K is 0 for two points that share none. A point is (coordinates, known), twice d numbers: 0 and 0
    where a coordinate is missing, x_a and 1 where it is known (`observed`). The kernel must be radial, of the points
    themselves: a map of them, or of positions, says nothing of single coordinates.
    """

    kernel: AbstractKernel

    def __check_init__(self):
        form = self.kernel.radial()
        if form is None or not form.of_points:
            raise ArgumentError(
                "Argument `kernel` must be one of distances between the points themselves, such as Gaussian, but is "
                f"{self.kernel!r}."
            )

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The profile of the kernel at the distances that are known, scaled up."""
        form = self.kernel.radial()
        assert form is not None
        (points, known), (others, theirs) = (jnp.split(points_of(each), 2, axis=1) for each in (xs, ys))
        shared = known[:, None] * theirs[None]
        number = jnp.sum(shared, axis=2)
        squares = jnp.sum(shared * jnp.square(points[:, None] - others[None]), axis=2)
        dimension = points.shape[1]
        whole = squares * dimension / jnp.where(number > 0, number, 1.0)
        return jnp.where(number > 0, form.log_profile(whole, dimension), -jnp.inf)


def observed(points: Float[Array, "n d"], known: Any) -> Float[Array, "n e"]:
    """Points (coordinates, known) for `PartlyObserved`: both are 0 where a coordinate is missing."""
    mask = jnp.asarray(known, points.dtype)
    return jnp.concatenate([jnp.where(mask > 0, points, 0.0), mask], axis=1)


class HigherOrder(AbstractPairKernel):
    """K(x, y, z) from a function that returns its logarithm: a kernel of three points, on a measure of pairs (y, z).

    A pair is one point (y, z) of the product measure that `paired` makes; y has its first `dimension` coordinates. So
    the sum over both is one local mean (Clift et al., Logic and the 2-simplicial transformer, 2020).
    """

    log_function: Callable[[Array, Array, Array], Array] = eqx.field(converter=as_function)
    dimension: int = eqx.field(static=True)

    def __check_init__(self):
        whole_number(self.dimension, "dimension")

    def log_pair(self, x: Any, y: Any) -> Float[Array, ""]:
        """log K(x, y, z) of a point and a pair."""
        pair = points_of(y)
        if pair.shape[0] <= self.dimension:
            raise ShapeError(
                f"Argument `dimension` must be less than the {pair.shape[0]} coordinates of a pair, but is "
                f"{self.dimension}."
            )
        return self.log_function(points_of(x), pair[: self.dimension], pair[self.dimension :])
