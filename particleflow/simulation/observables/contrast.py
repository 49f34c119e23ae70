"""What contrastive learning weighs against each other: alignment of views, and uniformity of all points.

Source: Wang and Isola, Understanding contrastive representation learning through alignment and uniformity on the
hypersphere (2020), whose losses these are, of points as they are stored (on the unit sphere there).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_positive
from particleflow._support.representation import shown
from particleflow.discretization import Present
from particleflow.errors import ArgumentError, whole_number
from particleflow.kernels.base import squared_distances
from particleflow.simulation.observables.base import shares_of


class Alignment(eqx.Module):
    """The mean of |x − y|² over pairs of views of one sample, consecutive in their positions: 0 where all agree.

    Parameters: the number of `views` of a sample; the `name` under which it is stored.
    """

    views: int = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(self, views: int = 2, name: str = "alignment"):
        self.views = whole_number(views, "views", 2)
        self.name = name

    def __call__(self, present: Present) -> Float[Array, ""]:
        """The mean over all pairs of views, weighted by the product of their shares."""
        present.of_particles("Views are particles of a sample")
        measure, shares = present.measure, shares_of(present.measure)
        if measure.positions is None:
            raise ArgumentError("Views of a sample are found by positions, but the points have none.")
        sample = jnp.floor(measure.positions / self.views)
        same = (sample[:, None] == sample[None, :]) & (measure.positions[:, None] != measure.positions[None, :])
        pairs = jnp.where(same, shares[:, None] * shares[None, :], 0.0)
        return jnp.sum(pairs * squared_distances(measure.points, measure.points)) / jnp.sum(pairs)

    def __repr__(self) -> str:
        return shown(self)


class Uniformity(eqx.Module):
    """log of the mean of e^{−rate |x − y|²} over pairs of different particles: the lower, the more evenly they spread.

    For independent uniform points on the sphere S² it is log((1 − e^{−4 rate})/(4 rate)), −2.08 at rate 2.

    Parameters: `rate`; the `name` under which it is stored.
    """

    rate: Float[Array, ""]
    name: str = eqx.field(static=True)

    def __init__(self, rate: Any = 2.0, name: str = "uniformity"):
        self.rate = as_positive(rate, "rate")
        self.name = name

    def __call__(self, present: Present) -> Float[Array, ""]:
        """The log-mean over all pairs i ≠ j, weighted by the product of their shares (forms the n×n matrix)."""
        present.of_particles("Pairs of different particles are counted")
        measure = present.measure
        logs = jnp.log(shares_of(measure))
        pairs = logs[:, None] + logs[None, :]
        pairs = jnp.where(jnp.eye(measure.count, dtype=bool), -jnp.inf, pairs)
        exponents = pairs - self.rate * squared_distances(measure.points, measure.points)
        return jax.nn.logsumexp(exponents) - jax.nn.logsumexp(pairs)

    def __repr__(self) -> str:
        return shown(self)
