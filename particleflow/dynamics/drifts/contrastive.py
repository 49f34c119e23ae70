"""Contrastive learning as a flow of the points themselves: each is drawn to views of its sample, and off all others.

Consecutive particles are views of one sample: with two views 0 and 1, 2 and 3, …. With p_i the mean of the other views
of its sample, the loss of all n points (InfoNCE; SimCLR, Chen et al. 2020) is

    L = (1/n) Σ_i [−β⟨x_i, p_i⟩ + log Σ_{j≠i} e^{β⟨x_i, x_j⟩}],    −(n/β) ∂L/∂x_k = 2 p_k − m_{−k}(x_k) − Σ_i A_ik x_i,

m_{−k} the local mean over all others and A_ik the share of x_i's softmax that lies on x_k. So a contrastive gradient is
attention with V = −1, twice: by what a point looks at, and by who looks at it; plus alignment. Cosine similarity makes
the points those of a sphere (`Sphere` as the geometry), without which alignment would draw them to infinity. Wang and
Isola, Understanding contrastive representation learning through alignment and uniformity on the hypersphere (2020).
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_linear_map, as_scalar
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction, check_interacting, with_summation
from particleflow.errors import ArgumentError, whole_number
from particleflow.kernels.inner_product import Attention
from particleflow.kernels.positional import Others
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation


class Contrastive(AbstractDrift):
    """ẋ_k = 2 p_k − m_{−k}(x_k) − Σ_i A_ik x_i: the gradient flow of InfoNCE, times n/β.

    Without `both_sides` every point follows its own term of the loss with all others held, ẋ_k = p_k − m_{−k}(x_k), as
    with keys that are kept from the gradient. Views of one sample should have one weight; then it is a gradient for
    weighted samples, too.

    Parameters: inverse temperature `beta`; the number of `views` of a sample, consecutive in their positions;
    `both_sides`, whether points follow the terms of all others, too; `summation`.
    """

    beta: Float[Array, ""]
    views: int = eqx.field(static=True)
    both_sides: bool = eqx.field(static=True)
    summation: AbstractSummation

    def __init__(
        self, beta: Any = 1.0, views: int = 2, both_sides: bool = True, summation: AbstractSummation | None = None
    ):
        self.beta = as_scalar(beta, "beta")
        self.views = whole_number(views, "views", 2)
        self.both_sides = both_sides
        self.summation = summation or Auto()

    def __check_init__(self):
        check_interacting(Attention(self.beta), self.summation)

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The attention of every point to all others, with the value −1."""
        maps = {"value": as_linear_map(-1.0, "value"), "output": as_linear_map(1.0, "output")}
        return (Interaction(Attention(self.beta), "row", Others(), self.summation, None, **maps),)

    def resummed(self, time: Any, choose: Chooser) -> "Contrastive":
        """The same drift with the summation that `choose` names for its kernel."""
        return with_summation(self, time, choose)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """2 p − m − (sum over those that look here), or p − m."""
        (interaction,) = self.interactions(time)
        own = self._other_views(queries, measure)
        seen = interaction.moments(queries, measure, measure.points).mean
        if not self.both_sides:
            return own - seen
        masses = interaction.moments(measure.sites, measure, measure.points).log_mass
        alone = jnp.isneginf(masses)
        tilt = jnp.where(alone, -jnp.inf, -jnp.where(alone, 0.0, masses))  # 1/Z_i of those that see anything
        looking = interaction.moments(queries, measure.tilted(tilt), measure.points)
        return 2 * own - seen - jnp.exp(looking.log_mass)[:, None] * looking.mean

    def _other_views(self, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """p, the mean of the other views of the sample of every query."""
        if queries.positions is None or measure.positions is None:
            raise ArgumentError("The drift contrastive finds the views of a sample by positions, but points have none.")
        sample, other = (jnp.floor(each / self.views) for each in (queries.positions, measure.positions))
        apart = queries.positions[:, None] != measure.positions[None, :]
        same = ((sample[:, None] == other[None, :]) & apart).astype(measure.points.dtype)
        return same @ measure.points / (self.views - 1)
