"""Clouds drawn at random."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import apply_linear_map, as_float_array, as_linear_map, as_nonnegative, default_dtype
from particleflow.dynamics.initial.base import AbstractInitial, Start, check_affine, check_count
from particleflow.dynamics.initial.density import Density, normal_density, sphere_area
from particleflow.dynamics.initial.sphere_sampling import sample_uniform_sphere
from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.measure import Measure

_NODES_A_WIDTH = 4  # of a sum over a curve, per standard deviation of the noise: the error is far below rounding


class UniformSphere(AbstractInitial):
    """Independent uniform points on the unit sphere S^{dim−1}."""

    dim: int

    def __init__(self, dim: int):
        self.dim = whole_number(dim, "dim")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure."""
        points = sample_uniform_sphere(key, self.dim, check_count(count, self.dim))
        return Start(Measure.uniform(points))

    def density(self, key: Array) -> Density:
        """One over the area."""
        return Density("sphere", self.dim, lambda points: np.full(len(points), 1 / sphere_area(self.dim)))


class NormalCloud(AbstractInitial):
    """Independent points x = centre + scale ξ with ξ standard normal in R^dim.

    Parameters: `dim`; `scale`, a number, a diagonal or a matrix; `centre`, a number or a vector.
    """

    kind: ClassVar[str] = "gaussian"

    dim: int
    scale: Float[Array, "..."]
    centre: Float[Array, "..."]

    def __init__(self, dim: int, scale: Any = 1.0, centre: Any = 0.0):
        self.dim = whole_number(dim, "dim")
        self.scale = as_linear_map(scale, "scale")
        self.centre = as_float_array(centre, "centre")

    def __check_init__(self):
        check_affine(self.scale, self.centre, self.dim)

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure."""
        normal = jax.random.normal(key, (check_count(count, self.dim), self.dim), default_dtype())
        centre = jnp.broadcast_to(self.centre, (self.dim,))
        return Start(Measure.uniform(centre[None, :] + apply_linear_map(self.scale, normal, "scale")))

    def density(self, key: Array) -> Density:
        """That of N(centre, scale scaleᵀ)."""
        centre, scale = np.asarray(self.centre), np.asarray(self.scale)
        return Density("flat", self.dim, lambda points: normal_density(points, centre, scale))


class NormalMixture(AbstractInitial):
    """Gaussian blobs, x = c_l + width ξ with blob l drawn with probability ∝ weights_l; the labels are the blobs.

    The centres c_l are `centres`, one row each, or `components` normal points of standard deviation `spread` in R^dim.
    """

    kind: ClassVar[str] = "mixture"

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
        self.components = whole_number(components, "components") if self.centres is None else self.centres.shape[0]
        self.dim = whole_number(dim, "dim") if self.centres is None else self.centres.shape[1]
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
        centres = self._drawn_centres(key_centres)
        weights = jnp.ones(self.components) if self.weights is None else self.weights
        labels = jax.random.choice(key_labels, self.components, (number,), p=weights / jnp.sum(weights))
        normal = jax.random.normal(key_points, (number, self.dim), default_dtype())
        return Start(Measure.uniform(centres[labels] + self.width * normal), np.asarray(labels))

    def density(self, key: Array) -> Density | None:
        """Σ_l p_l N(c_l, width²), with the centres that `start` draws with this key; none for blobs of no width."""
        if not float(self.width) > 0:
            return None
        centres = np.asarray(self._drawn_centres(jax.random.split(key, 3)[0]))
        weights = np.ones(self.components) if self.weights is None else np.asarray(self.weights)
        shares, width = weights / weights.sum(), np.asarray(self.width)

        def values(points: np.ndarray) -> np.ndarray:
            return sum(
                (share * normal_density(points, each, width) for share, each in zip(shares, centres, strict=True)),
                start=np.zeros(len(points)),
            )

        return Density("flat", self.dim, values)

    def _drawn_centres(self, key: Array) -> Float[Array, "l d"]:
        if self.centres is not None:
            return self.centres
        return self.spread * jax.random.normal(key, (self.components, self.dim), default_dtype())


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

    def density(self, key: Array) -> Density | None:
        """The mean of N(x, noise²) over both half circles, by the trapezoidal rule; none for moons of no width."""
        noise = np.asarray(self.noise)
        if not float(noise) > 0:
            return None
        angles = np.linspace(0, np.pi, 1 + int(np.ceil(_NODES_A_WIDTH * np.pi / float(noise))))
        weights = np.full(len(angles), 1 / (len(angles) - 1))
        weights[[0, -1]] *= 0.5
        upper = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        centres = np.concatenate([upper, np.array([1, 0.5]) - upper])

        def values(points: np.ndarray) -> np.ndarray:
            total = np.zeros(len(points))
            for weight, centre in zip(np.tile(0.5 * weights, 2), centres, strict=True):
                total += weight * normal_density(points, centre, noise)
            return total

        return Density("flat", 2, values)


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

    def density(self, key: Array) -> Density | None:
        """The mean over rings of e^{−(|x|² + R²)/(2σ²)} I_0(|x|R/σ²)/(2πσ²), σ the noise; none without noise."""
        width = float(self.noise)
        if not width > 0:
            return None

        def values(points: np.ndarray) -> np.ndarray:
            from scipy.special import ive

            lengths = np.linalg.norm(points, axis=1)[:, None]
            radii = np.asarray(self.radii, float)[None, :]
            around = ive(0, np.abs(lengths * radii) / width**2) * np.exp(
                -0.5 * ((lengths - np.abs(radii)) / width) ** 2
            )
            return np.mean(around, axis=1) / (2 * np.pi * width**2)

        return Density("flat", 2, values)


# Their names for users: `pf.initial.Gaussian`, `pf.initial.Mixture`.
Gaussian, Mixture = NormalCloud, NormalMixture
