"""Weights drawn anew along depth: random layers as noise.

    v(x) = V_k m(x)    while k h ≤ t < (k + 1) h,    V_k = value · 1 + spread ξ_k/√h,    ξ_k independent normal entries

An explicit layer of size h is x ← x + h · value · m(x) + √h · spread · ξ_k m(x). As h → 0 its limit is an equation with
noise that all tokens share,

    dX = value · m(X) dt + spread · dB m(X),    B a matrix of independent Brownian motions,

in the sense of Itô for explicit layers of size h in flat space, of Stratonovich where each layer is a flow of its own.
Without the factor 1/√h the noise averages out, at a rate of √h, and the limit is the flow of the mean matrix alone. So
depth averages weights of a fixed size, and keeps those of a size 1/√h: the two scalings of random residual networks
(Cohen, Cont, Rossier and Xu, Scaling properties of deep residual networks, 2021).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import Nonnegative, as_positive, as_scalar
from particleflow.dynamics.drifts.attend import Attend
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction, check_interacting, with_summation
from particleflow.dynamics.drifts.layers import boundaries, layer_index
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import whole_number
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation


class RedrawnValues(AbstractDrift):
    """Attention V_k m(x) whose value matrix V_k is drawn anew for each of `count` layers of length h; the last stays.

    Parameters: `kernel`; the `dimension` of the points; the `count` of layers and their `duration` h; the mean `value`,
    a number; the `spread` of the entries; `scaled`, whether they are divided by √h, so that small layers are noise, or
    not, so that they average out; the `seed` of all draws; `summation`.
    """

    kernel: AbstractKernel
    values: Float[Array, "k d d"]
    duration: Nonnegative
    summation: AbstractSummation

    def __init__(
        self,
        kernel: AbstractKernel,
        dimension: int,
        count: int,
        duration: Any = 0.01,
        value: Any = 0.0,
        spread: Any = 1.0,
        scaled: bool = True,
        seed: int = 0,
        summation: AbstractSummation | None = None,
    ):
        shape = (whole_number(count, "count"), *(whole_number(dimension, "dimension"),) * 2)
        self.kernel = kernel
        self.duration = as_positive(duration, "duration")
        size = as_scalar(spread, "spread", lambda number: number >= 0, "at least 0")
        size = size / (jnp.sqrt(jnp.asarray(self.duration)) if scaled else 1.0)
        mean = as_scalar(value, "value") * jnp.eye(dimension)
        self.values = mean[None] + size * jax.random.normal(jax.random.key(seed), shape)
        self.summation = summation or Auto()

    def __check_init__(self):
        check_interacting(self.kernel, self.summation)

    def at(self, time: Any) -> Attend:
        """The attention of the current layer."""
        layer = layer_index(time, jnp.asarray(self.duration), self.values.shape[0])
        return Attend(self.kernel, self.values[layer], summation=self.summation)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """V_k m(x) of the current layer."""
        return self.at(time)(time, queries, measure)

    def affine(self, time: Any, law: Normal) -> Affine:
        """The field of the current layer."""
        return self.at(time).affine(time, law)

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The attention of the current layer."""
        return self.at(time).interactions(time)

    def interacts_only(self, time: Any) -> bool:
        """Whether the velocity is that of the attention alone, as it is."""
        return True

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """The times at which a new matrix acts."""
        count = self.values.shape[0]
        return (boundaries(jnp.asarray(self.duration), count),) if count > 1 else ()

    def resummed(self, time: Any, choose: Chooser) -> "RedrawnValues":
        """The same drift with the summation that `choose` names for its kernel."""
        return with_summation(self, time, choose)
