"""Self-attention as a velocity field, and its two limits.

Write G(x) = log ∫ K(x, y) dμ(y) and m(x) for the local mean. With K = exp β⟨Qx, Ky⟩:

    SA (softmax)        v = O V m(x)                      one head of a transformer
    USA                 v = O V e^{G(x)} m(x)             the gradient flow of (1/2β) ∬ K dμ dμ on the sphere, V = 1
    doubly stochastic   v = O V m(x) under a tilted μ     Sinkhorn attention
    β → ∞               v = V · (mean of the leaders)     hardmax
    β → 0, first order  v = V ∫ ⟨Qx, Ky⟩ y dμ(y)          linear attention

The sum runs over all particles, that at x included; weights of the measure stand for the 1/n of a cloud.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import (
    Nonnegative,
    apply_linear_map,
    as_float_array,
    as_linear_map,
    as_nonnegative,
    plus,
)
from particleflow.dynamics.drifts.base import (
    AbstractDrift,
    Chooser,
    Interaction,
    Normalization,
    check_balanced,
    check_interacting,
    with_summation,
)
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.kernels.inner_product import Attention
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation, lifted, value_columns

_NORMALIZATIONS = ("row", "none", "sinkhorn")


class Attend(AbstractDrift):
    """Self-attention, v(x) = O V m(x) for m the local mean under the kernel K₁(x, y) K₂(t, s).

    `normalization`: "row" divides by ∫ K dμ (softmax, SA); "none" does not (USA, with the 1/n in the measure):
    v = O V e^{G} m; "sinkhorn" tilts the measure of the particles until the weights are doubly stochastic.

    Parameters: `kernel` K₁; `value` V and `output` O, each a number, a diagonal or a matrix; `positional` K₂, left
    out for none; `summation`, how the mean is summed; `data`, another measure to sum over, the particles themselves if
    left out (cross attention: what a decoder reads of its encoder), not with "sinkhorn"; `value_bias` and `output_bias`
    b and c of O (V m + b) + c, as trained heads have them. Several heads are a sum of attends, or a `MultiHead`, which
    is faster.
    """

    kernel: AbstractKernel
    value: Float[Array, "..."]
    normalization: Normalization = eqx.field(static=True)
    positional: AbstractKernel | None
    output: Float[Array, "..."]
    summation: AbstractSummation
    data: Measure | None
    value_bias: Float[Array, "..."] | None
    output_bias: Float[Array, "..."] | None

    def __init__(
        self,
        kernel: AbstractKernel,
        value: Any = 1.0,
        normalization: Normalization = "row",
        positional: AbstractKernel | None = None,
        output: Any = 1.0,
        summation: AbstractSummation | None = None,
        data: Measure | None = None,
        value_bias: Any = None,
        output_bias: Any = None,
    ):
        self.kernel = kernel
        self.value = as_linear_map(value, "value")
        self.normalization = normalization
        self.positional = positional
        self.output = as_linear_map(output, "output")
        self.summation = summation or Auto()
        self.data = data
        self.value_bias = None if value_bias is None else as_float_array(value_bias, "value_bias")
        self.output_bias = None if output_bias is None else as_float_array(output_bias, "output_bias")

    def __check_init__(self):
        check_interacting(self.kernel, self.summation, self.positional, self.data)
        if self.normalization not in _NORMALIZATIONS:
            choices = ", ".join(repr(name) for name in _NORMALIZATIONS)
            raise ArgumentError(f"Argument `normalization` must be one of {choices}, but is {self.normalization!r}.")
        check_balanced(self.normalization, self.data)

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The one kernel of this head."""
        maps = {"value": self.value, "output": self.output}
        return (Interaction(self.kernel, self.normalization, self.positional, self.summation, self.data, **maps),)

    def interacts_only(self, time: Any) -> bool:
        """Whether no bias is added: then the velocity is that of the kernel alone."""
        return self.value_bias is None and self.output_bias is None

    def resummed(self, time: Any, choose: Chooser) -> "Attend":
        """The same drift with the summation that `choose` names for its kernel."""
        return with_summation(self, time, choose)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """O V m(x), times e^{G(x)} without normalisation."""
        velocity = apply_linear_map(self.output, self.read(time, queries, measure), "output")
        return velocity if self.output_bias is None else plus(velocity, self.output_bias, "output_bias")

    def read(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m k"]:
        """V m(x) + b, times e^{G(x)} without normalisation: what a head has read, before its output map.

        V m is the local mean of V z. So where V leads into fewer dimensions, or a bias is added, values are mapped
        before they are summed; a query that sees nothing reads 0.
        """
        narrow = self.value.ndim == 2 and self.value.shape[0] < self.value.shape[1]
        values = None
        if narrow or self.value_bias is not None:
            values = apply_linear_map(self.value, value_columns(self.data or measure), "value")
            values = values if self.value_bias is None else plus(values, self.value_bias, "value_bias")
        moments = self.interactions(time)[0].moments(queries, measure, values)
        found = moments.mean
        if self.normalization == "none":
            found = jnp.exp(moments.log_mass)[:, None] * found
        return apply_linear_map(self.value, found, "value") if values is None else found

    def affine(self, time: Any, law: Normal) -> Affine:
        """O V m(x): affine with softmax and Sinkhorn weights; the nearest affine field to O V e^{G} m."""
        if not self.interacts_only(time):
            raise ArgumentError("A Gaussian is not moved by an attend with biases. Use particles.")
        return self.interactions(time)[0].affine(law).mapped(self.value, "value").mapped(self.output, "output")


class Hardmax(AbstractDrift):
    """The limit β → ∞: v(x) = V · (mean of the leaders) − pull · x.

    Softmax weights at inverse temperature β concentrate on the maximisers of ⟨Qx, Ky⟩ at the rate e^{−β gap}, so this
    is what attention tends to wherever the gap is not zero. Leaders of x are the points whose ⟨Qx, Ky⟩ is within
    `tolerance` of the largest: ties are decided by distance from the maximum, never by equality of floats. A point
    without weight is no leader, nor is one that a positional kernel hides; a point without any leader stays where
    it is. With `pull` = 1 and V = 1 an explicit step of size α/(1 + α) is the map x ← (x + α · leader)/(1 + α).
    """

    query: Float[Array, "..."]
    key: Float[Array, "..."]
    value: Float[Array, "..."]
    tolerance: Nonnegative
    pull: Nonnegative
    positional: AbstractKernel | None

    def __init__(
        self,
        query: Any = 1.0,
        key: Any = 1.0,
        value: Any = 1.0,
        tolerance: Any = 1e-9,
        pull: Any = 0.0,
        positional: AbstractKernel | None = None,
    ):
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")
        self.value = as_linear_map(value, "value")
        self.tolerance = as_nonnegative(tolerance, "tolerance")
        self.pull = as_nonnegative(pull, "pull")
        self.positional = positional

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """V · (mean of the leaders) − pull · x."""
        score = Attention(1.0, self.query, self.key)
        values, weights = value_columns(measure), jnp.exp(measure.log_weights)
        positional = None if self.positional is None else self.positional.bind(measure)

        def velocity(site: Sites) -> Array:
            query = lifted(site)
            scores = score.log_matrix(query, measure.sites)[0]
            if positional is not None:
                scores = scores + positional.log_matrix(query, measure.sites)[0]
            scores = jnp.where(weights > 0, scores, -jnp.inf)
            visible = scores > -jnp.inf
            leading = jnp.where(visible & (scores >= jnp.max(scores) - self.tolerance), weights, 0.0)
            mean = leading @ values / jnp.where(jnp.any(visible), jnp.sum(leading), 1.0)
            moved = apply_linear_map(self.value, mean[None], "value")[0] - self.pull * site.points
            return jnp.where(jnp.any(visible), moved, 0.0)

        return jax.lax.map(velocity, queries, batch_size=64)


class LinearAttention(AbstractDrift):
    """v(x) = V ∫ ⟨Qx, Ky⟩ y dμ(y): attention without the exponential, in one d×d matrix.

    The memory M = ∫ Ky ⊗ z dμ(y) is summed once, so the cost is n·d² instead of n²·d. It has no kernel K ≥ 0 and hence
    no interaction energy of that kind.
    """

    query: Float[Array, "..."]
    key: Float[Array, "..."]
    value: Float[Array, "..."]

    def __init__(self, query: Any = 1.0, key: Any = 1.0, value: Any = 1.0):
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")
        self.value = as_linear_map(value, "value")

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """V (Σ_j w_j y_j (K y_j)ᵀ) Q x."""
        keys = apply_linear_map(self.key, measure.points, "key")
        memory = (jnp.exp(measure.log_weights)[:, None] * keys).T @ value_columns(measure)
        read = apply_linear_map(self.query, queries.points, "query") @ memory
        return apply_linear_map(self.value, read, "value")

    def affine(self, time: Any, law: Normal) -> Affine:
        """V (∫ y (Ky)ᵀ dN) Q x: the memory is a second moment, which a cloud of 2d points has."""
        cloud = law.cloud()
        return Affine.of(lambda points: self(time, Sites(points), cloud), law.mean)
