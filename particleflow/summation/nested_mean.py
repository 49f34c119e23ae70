"""Local means of local means, and sums over pairs of points.

    hierarchy   m(x) = ∫ K̃₁(x, u) f(∫ K̃₂(u, y) z(y) dμ(y)) dμ(u)
    composed    K̃₁K̃₂(x, y) = ∫ K̃₁(x, u) K̃₂(u, y) dμ(u)
    pairs       m(x) = ∬ K(x, y, y') v(z, z') dμ dν / ∬ K(x, y, y') dμ dν

Without a nonlinearity f between, a localization of a localization is one, that of the composed kernel; f = max(0, ·) or
tanh, say, makes it a network. A kernel of three points is an ordinary one on the product measure μ ⊗ ν.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.errors import ArgumentError, check_kind
from particleflow.kernels import AbstractKernel, AbstractMatrixKernel
from particleflow.kernels.base import safe_log
from particleflow.measure import Measure
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.local_mean import Normalised, local_mean

__all__ = ["Composed", "hierarchical_mean", "paired"]


class Composed(AbstractMatrixKernel):
    """K(x, y) = ∫ K̃₁(x, u) K̃₂(u, y) dμ(u): two steps of a walk, the first by `outer`, the second by `inner`.

    It is normalised, ∫ K(x, y) dμ(y) = 1 wherever both see something, so that its local mean is the local mean of local
    means. Entries are local means themselves, of the columns of K̃₂; each is found within rounding of its largest term.
    """

    outer: AbstractKernel
    inner: AbstractKernel
    measure: Measure
    summation: AbstractSummation = Auto()

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The logarithm of the local mean of K̃₂(u, y_j) at x_i."""
        measure = self.measure
        second = Normalised(self.inner, measure, self.summation).log_matrix(measure.sites, ys)
        highest = jax.lax.stop_gradient(jnp.max(second, axis=0, keepdims=True))
        highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
        moments = self.summation.moments(self.outer.bind(measure), measure, xs, values=jnp.exp(second - highest))
        return safe_log(moments.mean) + highest

    def vanishes(self) -> bool:
        """Whether one of the two kernels may vanish."""
        return self.outer.vanishes() or self.inner.vanishes()


def hierarchical_mean(
    kernels: Sequence[AbstractKernel],
    measure: Measure,
    queries: Any,
    *,
    between: Callable[[Array], Array] | None = None,
    summation: AbstractSummation | None = None,
) -> Array:
    """The local mean, at the queries, of local means at the points of the measure, of local means, …

    Parameters: `kernels`, the first acts on the values of the measure, the last is evaluated at the queries;
    `between`, a function of the values (n,) or (n, k) between two of them, the identity if left out; `measure`,
    `queries` and `summation` as for `local_mean`.
    """
    if not kernels:
        raise ArgumentError("Argument `kernels` must name at least one kernel, but is empty.")
    for index, kernel in enumerate(kernels):
        check_kind(kernel, AbstractKernel, f"kernels[{index}]", "a kernel")
    *inside, last = kernels
    for kernel in inside:
        means = local_mean(kernel, measure, measure, summation=summation)
        measure = measure.with_values(means if between is None else between(means))
    return local_mean(last, measure, queries, summation=summation)


def paired(first: Measure, second: Measure, value: Callable[[Array, Array], Array] | None = None) -> Measure:
    """The product μ ⊗ ν: points (y, y') side by side, weights multiplied, n·n' of them.

    Parameters: `value` v(z, z') of the values of both points, a number or a vector; those of the first if left out. For
    kernels of three points, `kernels.HigherOrder`.
    """
    count, others = first.count, second.count
    rows, columns = (index.ravel() for index in jnp.meshgrid(jnp.arange(count), jnp.arange(others), indexing="ij"))
    points = jnp.concatenate([first.points[rows], second.points[columns]], axis=1)
    values = first.carried[rows]
    if value is not None:
        values = jax.vmap(value)(values, second.carried[columns])
    return Measure(points, first.log_weights[rows] + second.log_weights[columns], values)


def __dir__() -> list[str]:
    return __all__
