"""Clouds laid out by a rule: circles, grids, simplices, quantiles."""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import (
    apply_linear_map,
    as_float_array,
    as_linear_map,
    as_positive,
    as_scalar,
    default_dtype,
)
from particleflow.dynamics.initial.base import AbstractInitial, Start, check_affine, check_count, check_own_count
from particleflow.dynamics.initial.density import Density, circle_density, normal_density
from particleflow.errors import ArgumentError, whole_number
from particleflow.measure import Measure

_MOST_NODES = 128  # the outermost weights of more nodes are below the smallest number


class UniformCircle(AbstractInitial):
    """Points on the unit circle at angles θ_j, random or equispaced (θ_j = 2πj/n), then perturbed and transformed.

    θ_j ← θ_j + amplitude · sin(mode · θ_j);  z ← (z + order)/(1 + order · z) for z = e^{iθ}, the Möbius map under which
    a uniform circle takes the order parameter |∫ z dμ| = order.
    """

    spacing: Literal["random", "equispaced"]
    mode: int
    amplitude: Float[Array, ""]
    order: Float[Array, ""]

    def __init__(
        self,
        spacing: Literal["random", "equispaced"] = "random",
        mode: int = 1,
        amplitude: Any = 0.0,
        order: Any = 0.0,
    ):
        self.spacing = spacing
        self.mode = whole_number(mode, "mode", 0)
        self.amplitude = as_scalar(amplitude, "amplitude")
        self.order = as_scalar(order, "order", lambda number: 0 <= number < 1, "at least 0 and below 1")

    def __check_init__(self):
        if self.spacing not in ("random", "equispaced"):
            raise ArgumentError(f"Argument `spacing` must be 'random' or 'equispaced', but is {self.spacing!r}.")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure."""
        number = check_count(count, 2)
        angles = 2 * jnp.pi * jnp.arange(number, dtype=default_dtype()) / number
        if self.spacing == "random":
            angles = 2 * jnp.pi * jax.random.uniform(key, (number,), default_dtype())
        angles = angles + self.amplitude * jnp.sin(float(self.mode) * angles)
        cosine, sine = jnp.cos(angles), jnp.sin(angles)
        square = jnp.square(self.order)
        length = 1 + 2 * self.order * cosine + square  # |1 + order · z|²
        real, imaginary = (cosine * (1 + square) + 2 * self.order) / length, sine * (1 - square) / length
        return Start(Measure.uniform(jnp.stack([real, imaginary], axis=1)))

    def density(self, key: Array) -> Density | None:
        """The density of such points, for both spacings; None where the perturbation folds the circle."""
        if abs(self.mode * float(self.amplitude)) >= 1:
            return None
        law = self.mode, float(self.amplitude), float(self.order)
        return Density("sphere", 2, lambda points: circle_density(points, *law))


class Grid(AbstractInitial):
    """The regular grid with `sides[a]` points along axis a, from `low` to `high` on each."""

    counted: ClassVar[bool] = False
    sides: tuple[int, ...]
    low: Float[Array, ""]
    high: Float[Array, ""]

    def __init__(self, sides: list[int] | tuple[int, ...], low: Any = -1.0, high: Any = 1.0):
        self.sides = tuple(whole_number(side, f"sides[{axis}]") for axis, side in enumerate(sides))
        self.low = as_scalar(low, "low")
        self.high = as_scalar(high, "high")

    def __check_init__(self):
        if not self.sides:
            raise ArgumentError("Argument `sides` must give the number of points along each axis, but is empty.")
        check_count(int(np.prod([float(side) for side in self.sides])), len(self.sides))

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure, the last axis running fastest."""
        check_own_count(count, int(np.prod(self.sides)))
        axes = [jnp.linspace(self.low, self.high, side, dtype=default_dtype()) for side in self.sides]
        return Start(Measure.uniform(jnp.stack([axis.ravel() for axis in jnp.meshgrid(*axes, indexing="ij")], axis=1)))


class Equiangular(AbstractInitial):
    """n unit vectors with ⟨x_i, x_j⟩ = ρ for all i ≠ j, in R^dim with dim ≥ n (n if left out).

    x_i = a e_i + b Σ_j e_j with a = √(1 − ρ), b = (√(1 − ρ + nρ) − a)/n; possible for −1/(n − 1) ≤ ρ ≤ 1.
    """

    rho: Float[Array, ""]
    dim: int | None

    def __init__(self, rho: Any = 0.0, dim: int | None = None):
        self.rho = as_scalar(rho, "rho", lambda number: -1 <= number <= 1, "between −1 and 1")
        self.dim = None if dim is None else whole_number(dim, "dim")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure."""
        number = check_count(count, self.dim or 1)
        dimension = number if self.dim is None else self.dim
        check_count(number, dimension)
        if dimension < number:
            raise ArgumentError(f"Argument `dim` is {dimension}, but {number} equiangular tokens need {number}.")
        if float(1 - self.rho + number * self.rho) < 0:
            raise ArgumentError(
                f"Argument `rho` is {float(self.rho):g}, but {number} vectors cannot all be at an inner product "
                f"below {-1 / (number - 1):g}."
            )
        own = jnp.sqrt(1 - self.rho)
        common = (jnp.sqrt(1 - self.rho + number * self.rho) - own) / number
        simplex = own * jnp.eye(number, dtype=default_dtype()) + common
        return Start(Measure.uniform(jnp.pad(simplex, ((0, 0), (0, dimension - number)))))


class GaussHermite(AbstractInitial):
    """The normal law of mean `centre` and covariance `scale` scaleᵀ as a weighted grid: Gauss and Hermite's quadrature.

    Every polynomial of degree up to 2 · nodes − 1 in each coordinate has the integral of the law: a Gaussian without
    sampling noise, in few dimensions.
    Parameters: `dim`; `nodes` along each axis; `scale`, a number, a diagonal or a matrix; `centre`, a number or vector.
    """

    counted: ClassVar[bool] = False
    dim: int
    nodes: int
    scale: Float[Array, "..."]
    centre: Float[Array, "..."]

    def __init__(self, dim: int = 1, nodes: int = 16, scale: Any = 1.0, centre: Any = 0.0):
        self.dim = whole_number(dim, "dim")
        self.nodes = whole_number(nodes, "nodes")
        self.scale = as_linear_map(scale, "scale")
        self.centre = as_float_array(centre, "centre")

    def __check_init__(self):
        if self.nodes > _MOST_NODES:
            raise ArgumentError(f"Argument `nodes` must be at most {_MOST_NODES}, but is {self.nodes}.")
        check_count(int(min(float(self.nodes) ** self.dim, 1e18)), self.dim)
        check_affine(self.scale, self.centre, self.dim)

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a weighted measure, the last axis running fastest."""
        check_own_count(count, self.nodes**self.dim)
        places, weights = np.polynomial.hermite_e.hermegauss(self.nodes)
        log_weights = np.log(weights / weights.sum())
        grid = np.stack([axis.ravel() for axis in np.meshgrid(*[places] * self.dim, indexing="ij")], axis=1)
        logs = np.sum([axis.ravel() for axis in np.meshgrid(*[log_weights] * self.dim, indexing="ij")], axis=0)
        standard = jnp.asarray(grid, default_dtype())
        centre = jnp.broadcast_to(self.centre, (self.dim,))
        points = centre[None, :] + apply_linear_map(self.scale, standard, "scale")
        return Start(Measure(points, jnp.asarray(logs, default_dtype())))

    def density(self, key: Array) -> Density:
        """That of the normal law."""
        centre, scale = np.asarray(self.centre), np.asarray(self.scale)
        return Density("flat", self.dim, lambda points: normal_density(points, centre, scale))


class Quantiles(AbstractInitial):
    """Points x_j = F^{−1}((j + ½)/n) on the line for a law F of mean `mean`: a cloud without sampling noise.

    `law` "gaussian" has standard deviation `scale`, "uniform" the interval [mean − scale, mean + scale].
    """

    law: Literal["gaussian", "uniform"]
    mean: Float[Array, ""]
    scale: Float[Array, ""]

    def __init__(self, law: Literal["gaussian", "uniform"] = "gaussian", mean: Any = 0.0, scale: Any = 1.0):
        self.law = law
        self.mean = as_scalar(mean, "mean")
        self.scale = as_positive(scale, "scale")

    def __check_init__(self):
        if self.law not in ("gaussian", "uniform"):
            raise ArgumentError(f"Argument `law` must be 'gaussian' or 'uniform', but is {self.law!r}.")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure."""
        number = check_count(count)
        levels = (jnp.arange(number, dtype=default_dtype()) + 0.5) / number
        standard = jax.scipy.special.ndtri(levels) if self.law == "gaussian" else 2 * levels - 1
        return Start(Measure.uniform((self.mean + self.scale * standard)[:, None]))

    def density(self, key: Array) -> Density:
        """That of the law F."""
        mean, scale = float(self.mean), float(self.scale)

        def values(points: np.ndarray) -> np.ndarray:
            standard = (points[:, 0] - mean) / scale
            if self.law == "gaussian":
                return np.exp(-0.5 * standard**2) / (scale * np.sqrt(2 * np.pi))
            return np.where(np.abs(standard) <= 1, 0.5 / scale, 0.0)

        return Density("flat", 1, values)
