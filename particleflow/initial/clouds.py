"""Clouds drawn at random."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._arrays import apply_linear_map, as_float_array, as_linear_map, as_nonnegative, default_dtype
from particleflow.errors import ArgumentError, ShapeError
from particleflow.initial.base import AbstractInitial, Start, check_affine, check_count, whole
from particleflow.initial.densities import Density, sphere_area
from particleflow.measure import Measure
from particleflow.sphere_sampling import sample_uniform_sphere


class UniformSphere(AbstractInitial):
    """Independent uniform points on the unit sphere S^{dim−1}."""

    dim: int

    def __init__(self, dim: int):
        self.dim = whole(dim, "dim")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure."""
        points = sample_uniform_sphere(key, self.dim, check_count(count, self.dim))
        return Start(Measure.uniform(points))

    def density(self, key: Array) -> Density:
        """The same everywhere."""
        return Density("sphere", self.dim, lambda points: np.full(len(points), 1 / sphere_area(self.dim)))


class Gaussian(AbstractInitial):
    """Independent points x = centre + scale ξ with ξ standard normal in R^dim.

    Parameters: `dim`; `scale`, a number, a diagonal or a matrix; `centre`, a number or a vector.
    """

    dim: int
    scale: Float[Array, "..."]
    centre: Float[Array, "..."]

    def __init__(self, dim: int, scale: Any = 1.0, centre: Any = 0.0):
        self.dim = whole(dim, "dim")
        self.scale = as_linear_map(scale, "scale")
        self.centre = as_float_array(centre, "centre")

    def __check_init__(self):
        check_affine(self.scale, self.centre, self.dim)

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure."""
        normal = jax.random.normal(key, (check_count(count, self.dim), self.dim), default_dtype())
        centre = jnp.broadcast_to(self.centre, (self.dim,))
        return Start(Measure.uniform(centre[None, :] + apply_linear_map(self.scale, normal, "scale")))


class Mixture(AbstractInitial):
    """Gaussian blobs, x = c_l + width ξ with blob l drawn with probability ∝ weights_l; the labels are the blobs.

    The centres c_l are `centres`, one row each, or `components` normal points of standard deviation `spread` in R^dim.
    """

    components: int
    dim: int
    spread: Float[Array, ""]
    width: Float[Array, ""]
    centres: Float[Array, "l d"] | None
    weights: Float[Array, " l"] | None

    def __init__(
        self,
        components: int = 4,
        dim: int = 2,
        spread: Any = 1.0,
        width: Any = 0.1,
        centres: Any = None,
        weights: Any = None,
    ):
        self.centres = None if centres is None else as_float_array(centres, "centres")
        if self.centres is not None and self.centres.ndim != 2:
            raise ShapeError(f"Argument `centres` must be a matrix, but has shape {self.centres.shape}.")
        self.components = whole(components, "components") if self.centres is None else self.centres.shape[0]
        self.dim = whole(dim, "dim") if self.centres is None else self.centres.shape[1]
        self.spread = as_nonnegative(spread, "spread")
        self.width = as_nonnegative(width, "width")
        self.weights = None if weights is None else as_float_array(weights, "weights")

    def __check_init__(self):
        check_count(self.components, self.dim)
        if self.weights is None:
            return
        if self.weights.shape != (self.components,):
            raise ShapeError(
                f"Argument `weights` must hold {self.components} numbers, but has shape {self.weights.shape}."
            )
        numbers = np.asarray(self.weights)
        if (numbers < 0).any() or not numbers.any():
            raise ArgumentError("Argument `weights` must not be negative nor all zero, but is.")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure, with the blob of every particle."""
        number = check_count(count, self.dim)
        key_centres, key_labels, key_points = jax.random.split(key, 3)
        centres = self.centres
        if centres is None:
            centres = self.spread * jax.random.normal(key_centres, (self.components, self.dim), default_dtype())
        weights = jnp.ones(self.components) if self.weights is None else self.weights
        labels = jax.random.choice(key_labels, self.components, (number,), p=weights / jnp.sum(weights))
        normal = jax.random.normal(key_points, (number, self.dim), default_dtype())
        return Start(Measure.uniform(centres[labels] + self.width * normal), np.asarray(labels))


class Moons(AbstractInitial):
    """Two interlocked half circles of radius 1 in the plane, with normal `noise`; the labels are the moons."""

    noise: Float[Array, ""]

    def __init__(self, noise: Any = 0.05):
        self.noise = as_nonnegative(noise, "noise")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure, with the moon of every particle."""
        number = check_count(count, 2)
        key_angles, key_noise = jax.random.split(key)
        angles = jnp.pi * jax.random.uniform(key_angles, (number,), default_dtype())
        labels = np.arange(number) % 2
        upper = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
        lower = jnp.stack([1 - jnp.cos(angles), 0.5 - jnp.sin(angles)], axis=1)
        points = jnp.where(jnp.asarray(labels == 0)[:, None], upper, lower)
        noise = self.noise * jax.random.normal(key_noise, (number, 2), default_dtype())
        return Start(Measure.uniform(points + noise), labels)


class Rings(AbstractInitial):
    """Concentric circles of the given `radii` in the plane, with normal `noise`; the labels are the rings."""

    radii: Float[Array, " l"]
    noise: Float[Array, ""]

    def __init__(self, radii: Any = (1.0, 2.0), noise: Any = 0.05):
        self.radii = as_float_array(radii, "radii")
        self.noise = as_nonnegative(noise, "noise")

    def __check_init__(self):
        if self.radii.ndim != 1 or self.radii.size == 0:
            raise ShapeError(f"Argument `radii` must be a list of numbers, but has shape {self.radii.shape}.")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure, with the ring of every particle."""
        number = check_count(count, 2)
        key_angles, key_noise = jax.random.split(key)
        angles = 2 * jnp.pi * jax.random.uniform(key_angles, (number,), default_dtype())
        labels = np.arange(number) % self.radii.size
        directions = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
        noise = self.noise * jax.random.normal(key_noise, (number, 2), default_dtype())
        return Start(Measure.uniform(self.radii[labels][:, None] * directions + noise), labels)
