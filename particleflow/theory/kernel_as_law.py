"""A kernel as the joint law of two indices: what follows for marginals, conditionals and what one tells of the other.

    p_ij = K(x_i, y_j) μ_i ν_j / Σ_kl K(x_k, y_l) μ_k ν_l

Its conditional p(j|i) is the row of attention weights of query x_i under ν, whatever μ is: a local mean is the
conditional expectation E[z_J | I = i]. Its marginals are μ and ν reweighted by the masses that they see, and are μ and
ν themselves for a Sinkhorn-normalised kernel.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import is_concrete
from particleflow.errors import ArgumentError, check_kind
from particleflow.kernels import AbstractKernel
from particleflow.kernels.base import safe_log
from particleflow.measure import Measure


class JointLaw(NamedTuple):
    """The joint law p (m, n) of a query I and a point J, of sum one, as `joint_law` returns it."""

    probabilities: Float[Array, "m n"]

    @property
    def of_query(self) -> Float[Array, " m"]:
        """The marginal p(i) = Σ_j p_ij."""
        return jnp.sum(self.probabilities, axis=1)

    @property
    def of_point(self) -> Float[Array, " n"]:
        """The marginal p(j) = Σ_i p_ij: how much attention point j receives."""
        return jnp.sum(self.probabilities, axis=0)

    @property
    def point_given_query(self) -> Float[Array, "m n"]:
        """p(j|i) = p_ij / p(i): the attention weights; 0 in the row of a query that sees nothing."""
        return _shares(self.probabilities)

    @property
    def query_given_point(self) -> Float[Array, "m n"]:
        """p(i|j) = p_ij / p(j): where the attention to point j comes from; 0 for a point that no query sees."""
        return _shares(self.probabilities.T).T

    @property
    def mutual_information(self) -> Float[Array, ""]:
        """I = Σ_ij p_ij log(p_ij / p(i) p(j)) in nats: 0 for a constant kernel, log n for n points that see themselves.

        No more than the rank of the kernel matrix allows: I ≤ log r if p is a sum of r products of functions ≥ 0.
        """
        product = self.of_query[:, None] * self.of_point[None, :]
        return jnp.sum(self.probabilities * _finite(safe_log(self.probabilities) - safe_log(product)))


def joint_law(kernel: AbstractKernel, queries: Measure, points: Measure) -> JointLaw:
    """The kernel as the joint law p_ij ∝ K(x_i, y_j) μ_i ν_j of a query and a point. All m × n of them are stored.

    Parameters: `kernel` K; `queries` μ and `points` ν, measures whose weights are the law that K tilts, which need not
    be one measure.
    """
    check_kind(kernel, AbstractKernel, "kernel", "a kernel, such as kernels.Gaussian(0.3)")
    for measure, name in ((queries, "queries"), (points, "points")):
        check_kind(measure, Measure, name, "a measure, such as Measure.uniform(points)")
    logits = kernel.bind(points).log_matrix(queries.sites, points.sites)
    logits = logits + queries.log_weights[:, None] + points.log_weights[None, :]
    highest = jax.lax.stop_gradient(jnp.max(logits))
    if is_concrete(highest) and bool(jnp.isneginf(highest)):
        raise ArgumentError("The kernel gives the pairs no mass: K vanishes at all of them.")
    pulls = jnp.exp(logits - highest)
    return JointLaw(pulls / jnp.sum(pulls))


def _shares(rows: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """Rows divided by their sums; 0 where a row is 0."""
    whole = jnp.sum(rows, axis=1, keepdims=True)
    return jnp.where(whole > 0, rows / jnp.where(whole > 0, whole, 1.0), 0.0)


def _finite(logarithms: Array) -> Array:
    """Logarithms of ratios, 0 where both numbers are 0."""
    return jnp.where(jnp.isfinite(logarithms), logarithms, 0.0)
