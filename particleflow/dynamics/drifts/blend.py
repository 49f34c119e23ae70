"""Several drifts, blended with positive weights that can be learned: near field and far field of one attention.

    v(x) = Σ_l e^{a_l} v_l(x)

Learning moves the a_l, so the weights stay positive. With softmax attention inside a band of positions and a few
linearised attentions, each with features of its own, it is the FMMformer (Nguyen et al. 2021): the near field is exact,
the far field has low rank, and both cost O(N).
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, is_concrete
from particleflow.dynamics.drifts.attend import Attend
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction, Sum, added, check_summands
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels.base import AbstractKernel
from particleflow.kernels.inner_product import Attention
from particleflow.kernels.linearised import FeatureMap, LinearisedAttention
from particleflow.kernels.positional import Window
from particleflow.measure import Measure, Sites


class Blend(AbstractDrift):
    """Σ_l e^{a_l} drift_l, with positive weights e^{a_l}.

    Parameters: `drifts`; `weights`, one positive number each, of which the logarithms a_l are kept and learned.
    """

    drifts: tuple[AbstractDrift, ...]
    log_weights: Float[Array, " l"]

    def __init__(self, drifts: Sequence[AbstractDrift], weights: Float[Array, " l"] | list[float]):
        self.drifts = tuple(drifts)
        given = as_float_array(weights, "weights")
        if given.shape != (len(self.drifts),):
            raise ShapeError(
                f"Argument `weights` must hold a number for each of {len(self.drifts)} drifts, but has shape "
                f"{given.shape}."
            )
        if is_concrete(given) and not bool(jnp.all(given > 0)):
            raise ArgumentError(f"Argument `weights` must be positive, but is {given.tolist()}.")
        self.log_weights = jnp.log(given)

    def __check_init__(self):
        check_summands(self.drifts)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The weighted sum of the velocities."""
        return functools.reduce(jnp.add, self._multiples(lambda drift: drift(time, queries, measure)))

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """Those of all drifts, whose outputs are multiplied, too."""
        weighted = (weight * drift for weight, drift in zip(jnp.exp(self.log_weights), self.drifts, strict=True))
        return tuple(each for drift in weighted for each in drift.interactions(time))

    def interacts_only(self, time: Any) -> bool:
        """Whether all drifts do nothing else."""
        return all(drift.interacts_only(time) for drift in self.drifts)

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """Those of all drifts."""
        return tuple(each for drift in self.drifts for each in drift.changes())

    def resummed(self, time: Any, choose: Chooser) -> "Blend":
        """The same blend of drifts with the summations that `choose` names."""
        return Blend([drift.resummed(time, choose) for drift in self.drifts], jnp.exp(self.log_weights))

    def affine(self, time: Any, law: Normal) -> Affine:
        """The weighted sum of the fields."""
        pairs = zip(jnp.exp(self.log_weights), self.drifts, strict=True)
        return added(drift.affine(time, law).times(weight) for weight, drift in pairs)

    def _multiples(self, read: Any) -> list[Any]:
        return [weight * read(drift) for weight, drift in zip(jnp.exp(self.log_weights), self.drifts, strict=True)]


def near_and_far(
    radius: Any,
    features: Sequence[FeatureMap] = ("elu", "elu_reversed"),
    beta: Any = 1.0,
    query: Any = 1.0,
    key: Any = 1.0,
    value: Any = 1.0,
    weights: Any = (1.0, 1.0),
    positional: AbstractKernel | None = None,
) -> Blend:
    """The FMMformer: w₁ times softmax attention where |t − s| < radius, w₂ times linearised attention for each map.

    Parameters: `radius` of the band; `features`, as many as the rank of the far field; `beta`, `query`, `key` and
    `value` of both; the two `weights`; `positional`, a causal mask for the causal form.
    """
    band = Window(radius) if positional is None else Window(radius) * positional
    near = Attend(Attention(beta, query, key), value, "row", band)
    far = Sum(Attend(LinearisedAttention(each, query, key), value, "row", positional) for each in features)
    return Blend([near, far], jnp.asarray(weights, float))
