"""A kernel as a convolution: what spectral sums can sum.

    K(x, y) = e^{a(x) + b(y)} κ(|u(x) − v(y)|)      with u, v in a space of at most three dimensions

Kernels of a distance have this form. A bilinear exponent becomes a Gaussian by completing the square, in features that
are scaled by c and moved to origins p, q of their own:

    ⟨θ, s⟩ = −½|u − v|² + ½|u|² + ⟨u, q⟩ + ½|v|² + ⟨p, v⟩ + ⟨p, q⟩,      u = cθ − p,    v = s/c − q.

The squares tilt the weights. On a sphere they are constant; elsewhere they spread the weights over many orders of
magnitude, of which transforms keep only those near the largest. Whether that hurts is a question of numbers, not of
forms: see `Spectral`. With p = q the distance is that of cθ and s/c; with the centre of each cloud as its origin the
two clouds overlap, which helps where they are apart: repulsion on a sphere, when clusters have formed.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.default_device import computing_platform
from particleflow.kernels.base import AbstractKernel, check_same_dimension
from particleflow.kernels.forms import Bilinear, Radial
from particleflow.measure import Measure, Sites
from particleflow.summation.spectral.nonuniform_fft import translated
from particleflow.summation.spectral.periodic_boxes import Profile

MOST_DIMENSIONS = 3


class Convolution(NamedTuple):
    """Coordinates u (m, d) and v (n, d), log-weights with b (n,), offsets a (m,) with constants, and κ as e^{−½r²} or
    as a profile of r²."""

    queries: Float[Array, "m d"]
    sources: Float[Array, "n d"]
    log_weights: Float[Array, " n"]
    query_offset: Float[Array, " m"]
    profile: Profile | None = None

    @staticmethod
    def of(
        kernel: AbstractKernel, measure: Measure, queries: Sites, dtype: Any, origins: str = "shared"
    ) -> "Convolution":
        """The convolution that a kernel is, in some precision; `origins` are "none", "shared" or each cloud's "own"."""
        radial, bilinear = kernel.radial(), kernel.bilinear()
        if radial is not None:
            return _of_distances(radial, measure, queries, dtype, origins)
        assert bilinear is not None
        return _of_features(bilinear, measure, queries, dtype, origins)


def obstacle(kernel: AbstractKernel, measure: Measure) -> str | None:
    """Why a kernel cannot be summed as a convolution of few dimensions, None if it can."""
    form = kernel.radial() or kernel.bilinear()
    if form is None:
        return "it is neither bilinear nor a function of a distance"
    dimension = feature_dimension(kernel, measure)
    if dimension > MOST_DIMENSIONS:
        return f"its features have {dimension} dimensions, and non-uniform Fourier transforms at most {MOST_DIMENSIONS}"
    if not translated(computing_platform()):
        return f"the installed jax_finufft has no non-uniform Fourier transforms for {computing_platform()}"
    return None


def feature_dimension(kernel: AbstractKernel, measure: Measure) -> int:
    """The dimension of the space that a radial or bilinear kernel maps points into; at least 1."""
    radial, bilinear = kernel.radial(), kernel.bilinear()
    features = radial.key_map if radial is not None else bilinear and bilinear.key_features
    assert features is not None
    return max(1, jax.eval_shape(lambda: features(measure.sites)).shape[1])


def _of_distances(form: Radial, measure: Measure, queries: Sites, dtype: Any, origins: str) -> Convolution:
    """Coordinates from one origin; a Gaussian in units of its width, another profile as it is, divided by κ(0)."""
    ours, theirs = (each.astype(dtype) for each in (form.query_map(queries), form.key_map(measure.sites)))
    check_same_dimension(ours, theirs)
    dimension = theirs.shape[1]
    origin = jnp.zeros(dimension, dtype) if origins == "none" else _centre(theirs)
    ours, theirs = ours - origin[None], theirs - origin[None]
    nowhere = jnp.zeros(ours.shape[0], dtype)
    shape = form.shape(dimension)
    if shape is not None and shape.curve == "gaussian":
        scale = jnp.asarray(2**0.5 * shape.scale, dtype)
        weights = (measure.log_weights + shape.log_factor).astype(dtype)
        return Convolution(scale * ours, scale * theirs, weights, nowhere)
    profile, level = _profile(form, dimension, measure.points.dtype, dtype)
    return Convolution(ours, theirs, (measure.log_weights + level).astype(dtype), nowhere, profile)


def profile_of(kernel: AbstractKernel, dimension: int, given: Any, dtype: Any) -> Profile | None:
    """κ as a profile of r², None where it is a Gaussian; `given` is the precision of the points."""
    form = kernel.radial()
    shape = form and form.shape(dimension)
    if form is None or (shape is not None and shape.curve == "gaussian"):
        return None
    return _profile(form, dimension, given, dtype)[0]


def _profile(form: Radial, dimension: int, given: Any, dtype: Any) -> tuple[Profile, Array]:
    """A profile divided by its value at 0, and the logarithm of that."""
    level = form.log_profile(jnp.zeros(1, given), dimension)[0]

    def profile(squares: Array) -> Array:
        return jnp.exp(form.log_profile(squares.astype(level.dtype), dimension) - level).astype(dtype)

    return profile, level


def _of_features(form: Bilinear, measure: Measure, queries: Sites, dtype: Any, origins: str) -> Convolution:
    """Features scaled to one size on both sides, moved to their origins, and the tilts that this leaves."""
    ours, theirs = (
        _columns(each).astype(dtype) for each in (form.query_features(queries), form.key_features(measure.sites))
    )
    check_same_dimension(ours, theirs)
    own = origins == "own"
    sizes = [_size(each - _centre(each)[None] if own else each) for each in (ours, theirs)]
    usual = (sizes[0] > 0) & (sizes[1] > 0)
    scale = jnp.sqrt(jnp.where(usual, sizes[1], 1.0) / jnp.where(usual, sizes[0], 1.0))
    ours, theirs = scale * ours, theirs / scale
    q = jnp.zeros_like(theirs[0]) if origins == "none" else _centre(theirs)
    p = _centre(ours) if own else q
    u, v = ours - p[None], theirs - q[None]
    tilt = measure.log_weights + form.key_offset(measure.sites)
    log_weights = tilt.astype(dtype) + jnp.sum(0.5 * jnp.square(v) + p[None] * v, axis=1)
    offset = form.query_offset(queries).astype(dtype) + jnp.sum(0.5 * jnp.square(u) + q[None] * u, axis=1)
    return Convolution(u, v, log_weights, offset + jnp.dot(p, q))


def _columns(features: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """The features, or a column of zeros where a kernel has none."""
    return features if features.shape[1] > 0 else jnp.zeros((features.shape[0], 1), features.dtype)


def _centre(points: Float[Array, "n d"]) -> Float[Array, " d"]:
    """The middle of the box around some points, without derivative: sums do not depend on it."""
    fixed = jax.lax.stop_gradient(points)
    return 0.5 * (jnp.max(fixed, axis=0) + jnp.min(fixed, axis=0))


def _size(points: Float[Array, "n d"]) -> Float[Array, ""]:
    """The largest length, without derivative."""
    return jnp.sqrt(jnp.max(jnp.sum(jnp.square(jax.lax.stop_gradient(points)), axis=1)))
