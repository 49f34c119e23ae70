"""Clouds drawn from densities: von Mises–Fisher, a wave on the circle, a box, and any density given as a function."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, as_nonnegative, as_scalar, default_dtype
from particleflow.dynamics.initial.base import AbstractInitial, Start, check_count
from particleflow.dynamics.initial.density import Density, sphere_area
from particleflow.dynamics.initial.sphere_sampling import sample_von_mises_fisher
from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.measure import Measure

_HALVINGS = 60  # of an interval by bisection, below rounding
_SERIES = 1e-8  # concentrations below it are uniform to rounding


class VonMisesFisher(AbstractInitial):
    """Independent points of the unit sphere with density ∝ exp(concentration ⟨mean, x⟩); von Mises on the circle.

    Parameters: `mean`, the direction in which it is largest, of any length; `concentration` ≥ 0.
    """

    mean: Float[Array, " d"]
    concentration: Float[Array, ""]

    def __init__(self, mean: Any, concentration: Any = 1.0):
        self.mean = as_float_array(mean, "mean")
        self.concentration = as_nonnegative(concentration, "concentration")

    def __check_init__(self):
        if self.mean.ndim != 1 or self.mean.size < 2:
            raise ShapeError(f"Argument `mean` must be a direction in R^d, d ≥ 2, but has shape {self.mean.shape}.")
        if not np.any(np.asarray(self.mean)):
            raise ArgumentError("Argument `mean` must be a direction, but is 0.")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure."""
        parameter = self.concentration * self.mean / jnp.linalg.norm(self.mean)
        return Start(Measure.uniform(sample_von_mises_fisher(key, parameter, check_count(count, self.mean.size))))

    def density(self, key: Array) -> Density:
        """κ^{ν} e^{κ⟨m, x⟩}/((2π)^{d/2} I_ν(κ)), ν = d/2 − 1."""
        from scipy.special import ive

        mean, strength = np.asarray(self.mean, float), float(self.concentration)
        dimension, order = len(mean), 0.5 * len(mean) - 1
        mean = mean / np.linalg.norm(mean)
        log_total = np.log(sphere_area(dimension))
        if strength > _SERIES:
            log_total = 0.5 * dimension * np.log(2 * np.pi) + np.log(ive(order, strength)) - order * np.log(strength)

        def values(points: np.ndarray) -> np.ndarray:
            shift = strength if strength > _SERIES else 0.0
            return np.exp(strength * (points @ mean) - shift - log_total)

        return Density("sphere", dimension, values)


class CircleWave(AbstractInitial):
    """Independent points of the unit circle with density (1 + amplitude · cos(mode · θ))/2π."""

    mode: int
    amplitude: Float[Array, ""]

    def __init__(self, mode: int = 1, amplitude: Any = 0.01):
        self.mode = whole_number(mode, "mode")
        self.amplitude = as_scalar(amplitude, "amplitude", lambda number: -1 <= number <= 1, "between −1 and 1")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure: angles with θ + amplitude · sin(mode · θ)/mode uniform, by bisection."""
        number, mode = check_count(count, 2), float(self.mode)
        target = 2 * jnp.pi * jax.random.uniform(key, (number,), default_dtype())

        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = 0.5 * (low + high)
            below = middle + self.amplitude * jnp.sin(mode * middle) / mode < target
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        ends = jnp.zeros_like(target), jnp.full_like(target, 2 * jnp.pi)
        angles = jax.lax.fori_loop(0, _HALVINGS, halve, ends)[0]
        return Start(Measure.uniform(jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)))

    def density(self, key: Array) -> Density:
        """(1 + amplitude · cos(mode · θ))/2π."""
        amplitude, mode = float(self.amplitude), self.mode

        def values(points: np.ndarray) -> np.ndarray:
            angles = np.arctan2(points[:, 1], points[:, 0])
            return (1 + amplitude * np.cos(mode * angles)) / (2 * np.pi)

        return Density("sphere", 2, values)


class UniformBox(AbstractInitial):
    """Independent uniform points in the box from `low` to `high`, one number for each axis."""

    low: Float[Array, " d"]
    high: Float[Array, " d"]

    def __init__(self, low: Any, high: Any):
        self.low, self.high = as_float_array(low, "low"), as_float_array(high, "high")

    def __check_init__(self):
        if self.low.ndim != 1 or self.low.shape != self.high.shape or self.low.size == 0:
            raise ShapeError(
                f"Arguments `low` and `high` must be lists of equally many numbers, but have shapes {self.low.shape} "
                f"and {self.high.shape}."
            )
        if not np.all(np.asarray(self.low) < np.asarray(self.high)):
            raise ArgumentError("Argument `low` must be below `high` along every axis, but is not.")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure."""
        shape = (check_count(count, self.low.size), self.low.size)
        shares = jax.random.uniform(key, shape, default_dtype())
        return Start(Measure.uniform(self.low[None, :] + (self.high - self.low)[None, :] * shares))

    def density(self, key: Array) -> Density:
        """One over the volume inside, 0 outside."""
        low, high = np.asarray(self.low, float), np.asarray(self.high, float)
        level = 1 / np.prod(high - low)

        def values(points: np.ndarray) -> np.ndarray:
            return np.where(((points >= low) & (points <= high)).all(axis=1), level, 0.0)

        return Density("flat", len(low), values)


class DensityFunction(AbstractInitial):
    """Any density given as a function, for discretizations that carry densities; points are not drawn from it.

    Parameters: `function`, from points (n, dim) as NumPy has them to n numbers; `dim`; `space`, the unit "sphere" in
    R^dim or "flat".
    """

    counted: ClassVar[bool] = False
    function: Callable = eqx.field(static=True)
    dim: int
    space: Literal["sphere", "flat"]

    def __init__(self, function: Callable, dim: int, space: Literal["sphere", "flat"] = "sphere"):
        self.function = function
        self.dim = whole_number(dim, "dim")
        self.space = space

    def __check_init__(self):
        if self.space not in ("sphere", "flat"):
            raise ArgumentError(f"Argument `space` must be 'sphere' or 'flat', but is {self.space!r}.")

    def start(self, key: Array, count: int | None = None) -> Start:
        """Refuse: a function is not drawn from."""
        raise ArgumentError(
            "A density function gives no points; use a discretization that carries densities (finite_volumes)."
        )

    def density(self, key: Array) -> Density:
        """The given function as a density of its space."""
        return Density(self.space, self.dim, self.function)
