"""The kernel of what two points have in common: the probability that draws from both agree.

    K(x, y) = ∫ p(z|x) p(z|y) dz

For p(z|x) = N(x, s²) on all of R^d it is (4π s²)^{−d/2} exp(−|x − y|²/(4 s²)): a Gaussian of width √2 s. Where p is the
transition of a symmetric walk for a time t, such as heat, it is the transition for the time 2t. Here z runs over nodes
with weights, those of a quadrature or all values of a discrete feature.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow.errors import ShapeError, check_kind
from particleflow.kernels.base import AbstractKernel, safe_log
from particleflow.kernels.capabilities import Composite, counts_points
from particleflow.measure import Measure


class Overlap(Composite):
    """K(x, y) = Σ_k w_k p(z_k|x) p(z_k|y) with p(z_k|x) = k(x, z_k) / Σ_l w_l k(x, z_l).

    A symmetric positive definite kernel for any k ≥ 0, symmetric or not. All logarithms: points that have hardly
    anything in common keep their digits. Every pair costs a sum over all nodes; where nothing underflows, features √w p
    (`FeatureProduct`) make the same kernel, whose sums cost O((m + n) q).

    Parameters: `kernel` k, up to a factor the conditional law of z; `nodes` z (q, e); `log_weights` log w (q,), those
    of a quadrature, 0 if left out.
    """

    kernel: AbstractKernel
    nodes: Float[Array, "q e"]
    log_weights: Float[Array, " q"]

    def __init__(self, kernel: AbstractKernel, nodes: Any, log_weights: Any = None):
        self.kernel = kernel
        self.nodes = as_float_array(nodes, "nodes")
        zeros = jnp.zeros(self.nodes.shape[:1], self.nodes.dtype)
        self.log_weights = zeros if log_weights is None else as_float_array(log_weights, "log_weights")

    def __check_init__(self):
        check_kind(self.kernel, AbstractKernel, "kernel", "a kernel, such as kernels.Gaussian(0.3)")
        if self.nodes.ndim != 2 or 0 in self.nodes.shape or self.log_weights.shape != self.nodes.shape[:1]:
            raise ShapeError(
                "Arguments `nodes` and `log_weights` must have shapes (q, e) and (q,), but have "
                f"{self.nodes.shape} and {self.log_weights.shape}."
            )

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log Σ_k w_k p(z_k|x_i) p(z_k|y_j)."""
        return _log_products(self._log_law(xs), self._log_law(ys), self.log_weights)

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernel of the conditional law."""
        return (self.kernel,)

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """Another conditional law on the same nodes."""
        return Overlap(parts[0], self.nodes, self.log_weights)

    def adds_logarithms(self) -> bool:
        """No: the logarithm of a sum over nodes is no sum of logarithms."""
        return False

    def bind(self, measure: Measure) -> AbstractKernel:
        """The conditional law bound to its nodes, among which it counts neighbours, if it counts any."""
        if not counts_points(self.kernel):
            return self
        return self.with_parts((self.kernel.bind(Measure(self.nodes, self.log_weights)),))

    def inverse_temperature(self) -> Float[Array, ""] | None:
        """None: the width of the overlap is not that of its law, but √2 of it for a Gaussian."""
        return None

    def _log_law(self, sites: Any) -> Float[Array, "m q"]:
        """log p(z_k|x_i); −∞ in the row of a point that sees no node."""
        pulls = self.kernel.log_matrix(sites, self.nodes)
        mass = _log_sums(pulls + self.log_weights[None, :])[:, None]
        nothing = jnp.isneginf(mass)
        return jnp.where(nothing, -jnp.inf, pulls - jnp.where(nothing, 0.0, mass))


def _log_sums(terms: Float[Array, "m q"]) -> Float[Array, " m"]:
    """log Σ exp of every row; −∞, with gradient 0, for a row of −∞."""
    highest = jax.lax.stop_gradient(jnp.max(terms, axis=1))
    highest = jnp.where(jnp.isneginf(highest), 0.0, highest)
    return safe_log(jnp.sum(jnp.exp(terms - highest[:, None]), axis=1)) + highest


@jax.jit  # a loop outside `jit` would be compiled again at every call
def _log_products(
    queries: Float[Array, "m q"], keys: Float[Array, "n q"], log_weights: Float[Array, " q"]
) -> Float[Array, "m n"]:
    """log Σ_k w_k e^{queries_ik + keys_jk}, one query after another: the m × n × q terms are never stored."""
    weighted = keys + log_weights[None, :]
    return jax.lax.map(lambda row: _log_sums(weighted + row[None, :]), queries)
