"""Values that move on places that stay: propagation and relaxation labelling.

The points of such a flow are values f_i (shares of labels, a signal), and a kernel of positions, `Placed` or
`PositionMatrix`, decides which places are near each other; so they are stored, stopped and shown as any run. Their
explicit step of size 1 is the classical iteration:

    self-localization, lazy mapping   f ← K̃f                          `MeanShift`, whose velocity is K̃f − f
    propagation                       f ← α K̃f + (1 − α) y            `Propagate`
    relaxation labelling              p ← Π(p + R K̃p)                 `RelaxationLabelling`
"""

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import apply_linear_map, as_float_array, as_linear_map, is_concrete
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction, check_interacting, with_summation
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels.base import AbstractKernel, positions_of, rows_at
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation


class Propagate(AbstractDrift):
    """ḟ = α m(f) + (1 − α) y − f: values take the mean of their neighbours, with a memory y of where they began.

    With α = 0 on those that are known and 1 on all others it is label propagation (Zhu and Ghahramani 2002), which
    ends in F_u = (I − P_uu)⁻¹ P_ul Y_l; with one α < 1 it ends in (1 − α)(I − αP)⁻¹ Y (Zhou et al. 2004), with the
    weights of local reconstructions in a `PositionMatrix` in linear neighbourhood propagation (Wang and Zhang 2006).
    A value without neighbours tends to its memory.

    Parameters: `kernel`, of positions as a rule; `memory` y, one row a position; `share` α, a number or one a position,
    from 0 to 1; `summation`.
    """

    kernel: AbstractKernel
    memory: Float[Array, "n k"]
    share: Float[Array, "..."]
    summation: AbstractSummation

    def __init__(
        self, kernel: AbstractKernel, memory: Any, share: Any = 0.9, summation: AbstractSummation | None = None
    ):
        self.kernel = kernel
        self.memory = as_float_array(memory, "memory")
        self.share = as_float_array(share, "share")
        self.summation = summation or Auto()

    def __check_init__(self):
        check_interacting(self.kernel, self.summation)
        if self.memory.ndim != 2 or 0 in self.memory.shape:
            raise ShapeError(f"Argument `memory` must have one row a position, but has shape {self.memory.shape}.")
        if self.share.ndim > 1 or (self.share.ndim == 1 and self.share.shape != self.memory.shape[:1]):
            raise ShapeError(
                f"Argument `share` must be a number, or one for each of the {self.memory.shape[0]} rows of `memory`, "
                f"but has shape {self.share.shape}."
            )
        if is_concrete(self.share) and not np.all((np.asarray(self.share) >= 0) & (np.asarray(self.share) <= 1)):
            raise ArgumentError("Argument `share` must lie between 0 and 1.")

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The one kernel, normalised by rows."""
        return (Interaction(self.kernel, "row", None, self.summation, None),)

    def resummed(self, time: Any, choose: Chooser) -> "Propagate":
        """The same drift with the summation that `choose` names for its kernel."""
        return with_summation(self, time, choose)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """α m(f) + (1 − α) y − f."""
        if self.memory.shape[1] != queries.points.shape[1]:
            raise ShapeError(
                f"Argument `memory` must have {queries.points.shape[1]} columns, one a coordinate of the values, but "
                f"has {self.memory.shape[1]}."
            )
        moments = self.interactions(time)[0].moments(queries, measure)
        places, what = positions_of(queries, "query"), "The positions of the values"
        begun = rows_at(self.memory, places, what)
        shares = jnp.broadcast_to(self.share, self.memory.shape[:1])[:, None]
        taken = jnp.where(jnp.isneginf(moments.log_mass)[:, None], 0.0, rows_at(shares, places, what))
        return taken * moments.mean + (1 - taken) * begun - queries.points


class RelaxationLabelling(AbstractDrift):
    """Shares of labels p_i that support each other (Hummel and Zucker 1983): s = R m(p) is that of the neighbours.

    `update`: "projected", v = Π(p + s) − p with Π the nearest point of the simplex, rests exactly where ⟨s, q − p⟩ ≤ 0
    for all shares q: their definition of a consistent labelling. "product", v = p (s − ⟨p, s⟩)/(1 + ⟨p, s⟩), is the
    step p ← p (1 + s)/⟨p, 1 + s⟩ of Rosenfeld, Hummel and Zucker (1976); a label whose share is 0 stays out. Steps of
    size at most 1 lead from shares to shares. If the weights of all pairs with R are symmetric, the projected flow
    climbs the average consistency Σ_i ⟨p_i, s_i⟩.

    Parameters: `kernel`, of positions as a rule; `compatibility` R, a number, a diagonal or a matrix whose entry (a, b)
    is how well label a goes with a neighbour's label b (above −1 for products); `update`; `summation`.
    """

    kernel: AbstractKernel
    compatibility: Float[Array, "..."]
    update: Literal["projected", "product"] = eqx.field(static=True)
    summation: AbstractSummation

    def __init__(
        self,
        kernel: AbstractKernel,
        compatibility: Any = 1.0,
        update: Literal["projected", "product"] = "projected",
        summation: AbstractSummation | None = None,
    ):
        self.kernel = kernel
        self.compatibility = as_linear_map(compatibility, "compatibility")
        self.update = update
        self.summation = summation or Auto()

    def __check_init__(self):
        check_interacting(self.kernel, self.summation)
        if self.update not in ("projected", "product"):
            raise ArgumentError(f"Argument `update` must be 'projected' or 'product', but is {self.update!r}.")
        known = is_concrete(self.compatibility)
        if self.update == "product" and known and not np.all(np.asarray(self.compatibility) > -1):
            raise ArgumentError("Argument `compatibility` must be above −1 for products, or shares become negative.")

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The one kernel, normalised by rows."""
        return (Interaction(self.kernel, "row", None, self.summation, None),)

    def resummed(self, time: Any, choose: Chooser) -> "RelaxationLabelling":
        """The same drift with the summation that `choose` names for its kernel."""
        return with_summation(self, time, choose)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """Π(p + s) − p, or p (s − ⟨p, s⟩)/(1 + ⟨p, s⟩), of the support s = R m(p)."""
        means = self.interactions(time)[0].moments(queries, measure).mean
        support, shares = apply_linear_map(self.compatibility, means, "compatibility"), queries.points
        if self.update == "projected":
            return on_simplex(shares + support) - shares
        average = jnp.sum(shares * support, axis=1, keepdims=True)
        return shares * (support - average) / (1 + average)


def on_simplex(rows: Float[Array, "m k"]) -> Float[Array, "m k"]:
    """The nearest point of the simplex {p ≥ 0, Σ p = 1} to every row: max(row − τ, 0), τ such that the sum is one.

    τ comes from the r largest entries that stay positive (Held, Wolfe and Crowder 1974).
    """
    ordered = -jnp.sort(-rows, axis=1)
    ranks = jnp.arange(1, rows.shape[1] + 1).astype(rows.dtype)[None, :]
    candidates = (jnp.cumsum(ordered, axis=1) - 1) / ranks
    positive = jnp.sum(ordered > candidates, axis=1, keepdims=True)
    threshold = jnp.take_along_axis(candidates, positive - 1, axis=1)
    return jnp.maximum(rows - threshold, 0.0)
