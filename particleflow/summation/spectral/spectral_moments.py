"""Moments by spectral sums, each with a bound of its own error.

Weights and weighted values are columns of one convolution. Its error at a query is a multiple of the whole weight W,
not of the mass S(x) that the query sees: with δ the error of the periodic kernel and of the transforms together,

    |S̃(x) − S(x)| ≤ δ W,    so that log-mass and mean err by at most 2δ W / S(x), the mean relative to max |z|.

S̃(x) itself shows how large that is. A query that sees a share S/W of the weight of less than δ sees noise.
"""

from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.moments import Moments, Sums, finite_maximum
from particleflow.summation.spectral.convolution_form import Convolution
from particleflow.summation.spectral.nonuniform_fft import Torus, transform_noise
from particleflow.summation.spectral.periodic_boxes import circle_torus, gaussian_torus, sampled_torus

Domain = Literal["box", "apart", "circle"]
ORIGINS = {"box": "shared", "apart": "own", "circle": "none"}


class Setting(NamedTuple):
    """The constants of a compiled sum: its domain, the modes of each coordinate, and the accuracy of its transforms.

    On the circle there are the modes of its series, and then those of the plane, which derivatives are taken in.
    """

    domain: Domain
    modes: tuple[int, ...]
    epsilon: float

    @property
    def grid(self) -> tuple[int, ...]:
        """The modes that are summed over."""
        return self.modes[:1] if self.domain == "circle" else self.modes

    def precision(self, dtype: Any) -> Any:
        """The precision that is summed in: that of the points, or double where it would round too much."""
        rounding = transform_noise(0.0, self.grid, dtype)
        return dtype if rounding <= self.epsilon or not jax.config.read("jax_enable_x64") else jnp.float64


class Certainty(NamedTuple):
    """The share S̃(x)/W of the weight that each query sees, the error δ of it, and an error relative to the sums."""

    share: Float[Array, " m"]
    error: Float[Array, ""]
    relative: Float[Array, ""]

    def bound(self) -> Float[Array, " m"]:
        """2 (δ W/S + relative error) for log-mass and mean; ∞ where nothing can be seen."""
        return 2 * (self.error / jnp.maximum(self.share - self.error, 0.0) + self.relative)


@eqx.filter_jit  # operation by operation, outside `jit`, many more arrays would come and go
def spectral_moments(
    setting: Setting, kernel: AbstractKernel, measure: Measure, queries: Sites, values: Float[Array, "n k"]
) -> tuple[Moments, Certainty]:
    """The moments seen from each query, and how certain they are.

    Values are moved and scaled to lie between −1 and 1 first, so that no column is lost in another's error.
    """
    dtype = setting.precision(measure.points.dtype)
    parts = Convolution.of(kernel, measure, queries, dtype, ORIGINS[setting.domain])
    values = values.astype(dtype)
    fixed = jax.lax.stop_gradient(values)
    highest, lowest = jnp.max(fixed, axis=0), jnp.min(fixed, axis=0)
    middle, half = 0.5 * (highest + lowest), 0.5 * (highest - lowest)
    half = jnp.where(half > 0, half, 1.0)
    shift = finite_maximum(parts.log_weights)
    weights = jnp.exp(parts.log_weights - shift)
    columns = weights[:, None] * jnp.pad((values - middle[None]) / half[None], ((0, 0), (0, 1)), constant_values=1.0)
    sums, error, relative = _convolved(setting, parts, columns)
    moments = Sums(shift + parts.query_offset, sums).moments()
    found = Moments(moments.log_mass, middle[None] + half[None] * moments.mean)
    cast = jax.tree_util.tree_map(lambda leaf: leaf.astype(measure.points.dtype), found)
    return cast, jax.lax.stop_gradient(Certainty(sums[:, -1] / jnp.sum(weights), error, relative))


def _convolved(setting: Setting, parts: Convolution, columns: Array) -> tuple[Array, Array, Array]:
    """The sums of all columns, their error relative to the whole weight, and that relative to themselves."""
    operands = (parts.queries, parts.sources, columns)
    if setting.domain == "circle":
        return _circle_sums(setting, *operands)
    if parts.profile is None:
        torus = gaussian_torus(parts.queries, parts.sources, setting.modes)
    else:
        torus = sampled_torus(parts.queries, parts.sources, setting.modes, parts.profile, setting.epsilon)
    return _sums_on(torus, setting, columns)


def _sums_on(torus: Torus, setting: Setting, columns: Array) -> tuple[Array, Array, Array]:
    noise = transform_noise(setting.epsilon, setting.grid, columns.dtype)
    absolute = torus.error + noise * jnp.sum(jnp.abs(torus.coefficients))
    return torus.convolved(columns, setting.epsilon), absolute, jnp.asarray(torus.relative_error, columns.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _circle_sums(setting: Setting, queries: Array, sources: Array, columns: Array) -> tuple[Array, Array, Array]:
    """Sums of e^{−½|u − v|²} over points of a circle, by its series."""
    return _sums_on(circle_torus(queries, sources, setting.modes[:1]), setting, columns)


@_circle_sums.defjvp
def _circle_tangents(setting: Setting, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    """Derivatives are those of the sum in the plane: the series is right on the circle only."""

    def in_the_plane(queries: Array, sources: Array, columns: Array) -> Array:
        return gaussian_torus(queries, sources, setting.modes[1:]).convolved(columns, setting.epsilon)

    sums, error, relative = _circle_sums(setting, *primals)
    change = jax.jvp(in_the_plane, primals, tangents)[1]
    return (sums, error, relative), (change, jnp.zeros_like(error), jnp.zeros_like(relative))
