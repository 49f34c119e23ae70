"""Particles in one place as one point, and how they would move apart.

Let particles of weights w_i stand at the points y_g of a measure μ. A perturbation δx is the sum of two kinds:

    together   δx_i = ξ_g for every particle i at y_g: the points y_g move, with their masses W_g = Σ w_i;
    apart      Σ_i w_i δx_i = 0 over the particles at every y_g: μ changes to second order only, and every particle
               moves as a weightless one would, δẋ_i = ∂ₓv(y_g, μ) δx_i.

So the linear motion of all particles is that of the points, and beside it, n_g − 1 times for a point of n_g particles,
the motion of a weightless particle at y_g. `MergedPoints` has both: the points, and a weightless copy of each.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from particleflow._support.single_linkage import components
from particleflow.discretization.particles.cloud_states import Cloud
from particleflow.discretization.particles.coalescing import group_means, group_shares, log_sums


class MergedPoints(NamedTuple):
    """Particles as fewer points: their `state`, and in `members` the point of every particle.

    `with_copies` is the same state followed by a weightless copy of every point.
    """

    state: Any
    members: np.ndarray
    with_copies: Any


def merged_points(cloud: Cloud, distance: float) -> MergedPoints:
    """Particles linked by distances of at most `distance` at their weighted means; of particles without weight, means.

    Works on NumPy arrays, outside of compiled programs, in the order of the particles.
    """
    rows, log_weights = np.asarray(cloud.moving), np.asarray(cloud.log_weights)
    members = components(rows.astype(float), distance)
    means = group_means(rows, members, group_shares(log_weights, members))
    alone = np.bincount(members) == 1
    means[members[alone[members]]] = rows[alone[members]]  # a particle by itself keeps its bits
    points = Cloud(jnp.asarray(means, rows.dtype), jnp.asarray(log_sums(log_weights, members), rows.dtype))
    return MergedPoints(points, members, with_weightless_copies(points))


def with_weightless_copies(cloud: Cloud) -> Cloud:
    """The particles, followed by a weightless copy of each."""
    log_weights = jnp.asarray(cloud.log_weights)
    twice = jnp.concatenate([cloud.moving, cloud.moving])
    return replace(
        cloud, moving=twice, log_weights=jnp.concatenate([log_weights, jnp.full_like(log_weights, -jnp.inf)])
    )
