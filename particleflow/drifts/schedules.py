"""Parameters that change with time: schedules, and layers that take turns."""

import abc
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._arrays import as_float_array, as_positive, as_scalar
from particleflow.drifts.base import AbstractDrift
from particleflow.errors import ArgumentError, ShapeError
from particleflow.measure import Measure, Sites


class AbstractSchedule(eqx.Module):
    """A number that depends on time."""

    @abc.abstractmethod
    def __call__(self, time: Any) -> Float[Array, ""]:
        """The number at this time."""


class Ramp(AbstractSchedule):
    """From `first` at time `begin` to `last` at time `end`, in a straight line, or in a straight line of logarithms."""

    first: Float[Array, ""]
    last: Float[Array, ""]
    begin: Float[Array, ""]
    end: Float[Array, ""]
    scale: Literal["linear", "log"]

    def __init__(self, first: Any, last: Any, end: Any, begin: Any = 0.0, scale: Literal["linear", "log"] = "linear"):
        self.first, self.last = as_scalar(first, "first"), as_scalar(last, "last")
        self.begin, self.end = as_scalar(begin, "begin"), as_scalar(end, "end")
        self.scale = scale

    def __check_init__(self):
        if self.scale not in ("linear", "log"):
            raise ArgumentError(f"Argument `scale` must be 'linear' or 'log', but is {self.scale!r}.")

    def __call__(self, time: Any) -> Float[Array, ""]:
        """The interpolated number; constant outside [begin, end]."""
        part = jnp.clip((time - self.begin) / (self.end - self.begin), 0.0, 1.0)
        if self.scale == "log":
            return self.first * (self.last / self.first) ** part
        return self.first + part * (self.last - self.first)


class Steps(AbstractSchedule):
    """Piecewise constant: `values[k]` while `duration` · k ≤ t < `duration` · (k + 1); the last value stays."""

    values: Float[Array, " l"]
    duration: Float[Array, ""]

    def __init__(self, values: Any, duration: Any = 1.0):
        self.values = as_float_array(values, "values")
        self.duration = as_positive(duration, "duration")

    def __check_init__(self):
        if self.values.ndim != 1 or self.values.size == 0:
            raise ShapeError(f"Argument `values` must be a list of numbers, but has shape {self.values.shape}.")

    def __call__(self, time: Any) -> Float[Array, ""]:
        """The value of the current piece."""
        return self.values[layer_index(time, self.duration, self.values.size)]


class Decay(AbstractSchedule):
    """first · (1 + t/duration)^{−power}."""

    first: Float[Array, ""]
    duration: Float[Array, ""]
    power: Float[Array, ""]

    def __init__(self, first: Any = 1.0, duration: Any = 1.0, power: Any = 0.5):
        self.first = as_scalar(first, "first")
        self.duration = as_positive(duration, "duration")
        self.power = as_scalar(power, "power")

    def __call__(self, time: Any) -> Float[Array, ""]:
        """The decayed number."""
        return self.first * (1 + time / self.duration) ** -self.power


class Varying(AbstractDrift):
    """A drift with one scalar parameter on a schedule, such as `parameter = "kernel.beta"`."""

    drift: AbstractDrift
    schedule: AbstractSchedule
    parameter: str

    def __check_init__(self):
        current = self._read(self.drift)
        if jnp.ndim(current) != 0:
            raise ShapeError(f"Argument `parameter` must name one number, but {self.parameter!r} is an array.")

    def _read(self, drift: AbstractDrift) -> Any:
        node: Any = drift
        for part in self.parameter.split("."):
            if part.startswith("_") or not hasattr(node, part):
                raise ArgumentError(
                    f"Argument `parameter` must be a path such as 'kernel.beta', but {self.parameter!r} "
                    f"asks {type(node).__name__} for {part!r}."
                )
            node = getattr(node, part)
        return node

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The velocity with the parameter of this time."""
        now = jnp.asarray(self.schedule(time)).astype(queries.points.dtype)
        return eqx.tree_at(self._read, self.drift, now)(time, queries, measure)


class Layers(AbstractDrift):
    """Drifts that take turns, each for `duration`: piecewise constant parameters θ_t; the last one stays.

    With explicit steps of size `duration` this is a stack of different layers.
    """

    drifts: tuple[AbstractDrift, ...]
    duration: Float[Array, ""]

    def __init__(self, drifts: Any, duration: Any = 1.0):
        self.drifts = tuple(drifts)
        self.duration = as_positive(duration, "duration")

    def __check_init__(self):
        if not self.drifts:
            raise ArgumentError("Argument `drifts` must name at least one drift, but is empty.")

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The velocity of the current layer."""
        index = layer_index(time, self.duration, len(self.drifts))
        return jax.lax.switch(index, [lambda *a, d=drift: d(*a) for drift in self.drifts], time, queries, measure)


def layer_index(time: Any, duration: Array, count: int) -> Array:
    """⌊t/duration⌋, at most count − 1; times a rounding error below a boundary belong to the next layer."""
    index = jnp.floor(time / duration * (1 + 1e-12) + 1e-12)
    return jnp.clip(index, 0, count - 1).astype(jnp.int32)
