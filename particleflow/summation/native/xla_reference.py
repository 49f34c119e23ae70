"""The same moments as native code sums, written with the summations of XLA: for tangents and second derivatives."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.kernels.base import (
    AbstractMatrixKernel,
    inner_products,
    points_of,
    positions_of,
    safe_log,
    safe_root,
    squared_distances,
)
from particleflow.measure import Measure, Sites
from particleflow.summation.base import AbstractSummation
from particleflow.summation.exact.blockwise import Blockwise
from particleflow.summation.exact.dense import Dense
from particleflow.summation.moments import Moments

# The curves of `kernels.forms.Shape` as native code numbers them.
CURVES = {None: 0, "gaussian": 1, "exponential": 2, "power": 3, "inverse": 3, "ball": 4, "parabola": 5, "triangle": 6}
_DENSE_PAIRS = 2**21  # so many pairs at once; more go block by block


class FeatureKernel(AbstractMatrixKernel):
    """log K = ⟨q, s⟩ + k(|u − v|²) + band of features: q and s are their first columns, u and v the others.

    `numbers` are the power of the curve, least lag, most lag and slope of the band, and the scale of distances; with
    `banded` positions are used.
    """

    numbers: Float[Array, " 5"]
    inner: int = eqx.field(static=True)
    curve: str | None = eqx.field(static=True)
    banded: bool = eqx.field(static=True)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of the three terms."""
        queries, keys = points_of(xs), points_of(ys)
        power, least, most, slope, scale = self.numbers
        logits = inner_products(queries[:, : self.inner], keys[:, : self.inner])
        if self.curve is not None:
            squares = squared_distances(queries[:, self.inner :], keys[:, self.inner :])
            logits = logits + log_curve(self.curve, squares * jnp.square(scale), power)
        if self.banded:
            lags = positions_of(xs, "query")[:, None] - positions_of(ys, "measure")[None, :]
            seen = (lags > least) & (lags < most)
            logits = jax.lax.select(seen, logits - slope * jnp.abs(lags), jnp.full_like(logits, -jnp.inf))
        return logits


def log_curve(curve: str, squares: Array, power: Array | float) -> Array:
    """The logarithm of a curve at ρ², see `kernels.forms.Shape`."""
    if curve == "gaussian":
        return -squares
    if curve == "exponential":
        return -safe_root(squares)
    if curve in ("power", "inverse"):
        return -power * jnp.log1p(squares)
    if curve == "ball":
        return jnp.where(squares < power, jnp.zeros_like(squares), -jnp.inf)
    inside = squares if curve == "parabola" else safe_root(squares)
    return safe_log(jnp.maximum(1 - inside, 0.0))


def feature_kernel(form: Any, arrays: Any) -> tuple[FeatureKernel, bool]:
    """The kernel of `Arrays` under a `Form`, and whether there is a band of positions."""
    banded = arrays.key_positions.shape[0] > 0
    return FeatureKernel(arrays.numbers, form.inner, form.curve, banded), banded


def reference_moments(form: Any, arrays: Any) -> Moments:
    """The moments of `Arrays` under a `Form`, by XLA: all pairs at once, or block by block where they are many."""
    kernel, banded = feature_kernel(form, arrays)
    positions = (arrays.query_positions, arrays.key_positions) if banded else (None, None)
    measure = Measure(arrays.keys, arrays.offsets, arrays.values, positions[1])
    pairs = arrays.queries.shape[0] * arrays.keys.shape[0]
    how: AbstractSummation = Dense() if pairs <= _DENSE_PAIRS else Blockwise()
    return how.moments(kernel, measure, Sites(arrays.queries, positions[0]))
