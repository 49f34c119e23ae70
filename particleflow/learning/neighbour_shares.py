"""The discrete loss of neighbourhoods: how much of every sample's softmax lies on samples of its own class.

    share_i = Σ_{j≠i, c_j = c_i} K(x_i, x_j) / Σ_{j≠i} K(x_i, x_j)

It is the leave-one-out local mean of one-hot classes, read at the sample's own class: the probability that a neighbour
drawn with softmax weights has the right class, so that the sum over i is the expected number of samples classified
rightly. Under K = exp −|A(x − y)|² maximising it over A is neighbourhood components analysis, a learned metric.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels import AbstractKernel, Others
from particleflow.measure import Measure
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.local_mean import local_moments


class NeighbourShares(eqx.Module):
    """1 − mean_i share_i: the expected share of samples that a drawn neighbour classifies wrongly.

    A sample that the kernel relates to no other has share 0. With K(x, y) = exp⟨φ(x), ψ(y)⟩, as in `Attention` and
    `Embedded`, queries and keys are learned; with `SquaredDistanceAttention(1.0, query=A, key=A)` and ("query", "key")
    as one parameter, a metric. Unlike the cross-entropy of `LeaveOneOut(..., "log")` it lets single samples stay wrong.
    Source: Goldberger, Roweis, Hinton and Salakhutdinov, Neighbourhood components analysis (2004), whose objective is
    n (1 − loss).

    Parameters: `points` (n, d); `classes` (n,), labels of any kind; `summation`.
    """

    measure: Measure
    summation: AbstractSummation

    def __init__(self, points: Any, classes: Any, summation: AbstractSummation | None = None):
        points, labels = as_float_array(points, "points"), np.asarray(classes)
        if points.ndim != 2 or labels.shape != points.shape[:1] or len(labels) < 2:
            raise ShapeError(
                "Arguments `points` and `classes` must have shapes (n, d) and (n,) with at least two rows, but have "
                f"{points.shape} and {labels.shape}."
            )
        names, numbers = np.unique(labels, return_inverse=True)
        if len(names) < 2:
            raise ArgumentError(f"Argument `classes` must hold at least two classes, but holds only {names[0]!r}.")
        one_hot = jnp.asarray(np.eye(len(names))[numbers], points.dtype)
        self.measure = Measure.uniform(points, one_hot, jnp.arange(len(points), dtype=points.dtype))
        self.summation = summation or Auto()

    def shares(self, kernel: AbstractKernel) -> Float[Array, " n"]:
        """The share of its own class in the softmax of every sample over all others."""
        moments = local_moments(kernel * Others(), self.measure, self.measure, summation=self.summation)
        own = jnp.sum(self.measure.carried * moments.mean, axis=1)
        return jnp.where(jnp.isneginf(moments.log_mass), 0.0, own)

    def __call__(self, kernel: AbstractKernel) -> Float[Array, ""]:
        """1 − mean_i share_i."""
        return 1 - jnp.mean(self.shares(kernel))
