"""Parameters that change with time: a schedule λ(t), and a drift with one of its numbers on it.

ẋ = drift_{λ(t)}(t, x, μ),    for example annealing, β(t) from 1 to 9.
"""

import abc
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import Nonnegative, as_float_array, as_positive, as_scalar, is_concrete
from particleflow._support.representation import shown
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction
from particleflow.dynamics.drifts.layers import Stages, boundaries, layer_index
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError, ShapeError
from particleflow.measure import Measure, Sites


class AbstractSchedule(eqx.Module):
    """A number that depends on time."""

    @abc.abstractmethod
    def __call__(self, time: Any) -> Float[Array, ""]:
        """The number at this time."""

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """The times at which it jumps or bends; none for one that is smooth."""
        return ()

    def __repr__(self) -> str:
        return shown(self)


class Ramp(AbstractSchedule):
    """From `first` at time `begin` to `last` at time `end`, in a straight line, or in a straight line of logarithms."""

    first: Float[Array, ""]
    last: Float[Array, ""]
    begin: Float[Array, ""]
    end: Float[Array, ""]
    scale: Literal["linear", "log"] = eqx.field(static=True)

    def __init__(self, first: Any, last: Any, end: Any, begin: Any = 0.0, scale: Literal["linear", "log"] = "linear"):
        self.first, self.last = as_scalar(first, "first"), as_scalar(last, "last")
        self.begin, self.end = as_scalar(begin, "begin"), as_scalar(end, "end")
        self.scale = scale

    def __check_init__(self):
        if self.scale not in ("linear", "log"):
            raise ArgumentError(f"Argument `scale` must be 'linear' or 'log', but is {self.scale!r}.")
        if is_concrete(self.begin) and is_concrete(self.end) and float(self.begin) >= float(self.end):
            raise ArgumentError(
                f"Argument `end` must be later than `begin`, at {float(self.begin)}, but is {float(self.end)}."
            )
        known = is_concrete(self.first) and is_concrete(self.last)
        if self.scale == "log" and known and np.sign(float(self.first)) * np.sign(float(self.last)) <= 0:
            raise ArgumentError(
                "Arguments `first` and `last` must be of one sign and not zero for scale = 'log', but are "
                f"{float(self.first)} and {float(self.last)}; take scale = 'linear'."
            )

    def __call__(self, time: Any) -> Float[Array, ""]:
        """The interpolated number; constant outside [begin, end]."""
        part = jnp.clip((time - self.begin) / (self.end - self.begin), 0.0, 1.0)
        if self.scale == "log":
            return self.first * (self.last / self.first) ** part
        return self.first + part * (self.last - self.first)

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """The kinks at both ends."""
        return (jnp.stack([self.begin, self.end]),)


class Steps(AbstractSchedule):
    """Piecewise constant: `values[k]` while `duration` · k ≤ t < `duration` · (k + 1); the last value stays."""

    values: Float[Array, " l"]
    duration: Nonnegative

    def __init__(self, values: Any, duration: Any = 1.0):
        self.values = as_float_array(values, "values")
        self.duration = as_positive(duration, "duration")

    def __check_init__(self):
        if self.values.ndim != 1 or self.values.size == 0:
            raise ShapeError(f"Argument `values` must be a list of numbers, but has shape {self.values.shape}.")

    def __call__(self, time: Any) -> Float[Array, ""]:
        """The value of the current piece."""
        return self.values[layer_index(time, self.duration, self.values.size)]

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """The ends duration · k of all pieces but the last."""
        return (boundaries(self.duration, self.values.size),)


class Decay(AbstractSchedule):
    """first · (1 + t/duration)^{−power}: with power ½ the 1/√(t + 1) of depth-scaled residual networks."""

    first: Float[Array, ""]
    duration: Nonnegative
    power: Float[Array, ""]

    def __init__(self, first: Any = 1.0, duration: Any = 1.0, power: Any = 0.5):
        self.first = as_scalar(first, "first")
        self.duration = as_positive(duration, "duration")
        self.power = as_scalar(power, "power")

    def __call__(self, time: Any) -> Float[Array, ""]:
        """The decayed number."""
        return self.first * (1 + time / self.duration) ** -self.power


class Varying(AbstractDrift):
    """A drift with one scalar parameter on a schedule, such as `parameter = "kernel.beta"`.

    The path leads through the fields of the drift; what it names must be one number. Energies and entropies are those
    of the parameter at their own time.
    """

    drift: AbstractDrift
    schedule: AbstractSchedule
    parameter: str = eqx.field(static=True)

    def __check_init__(self):
        current = self._read(self.drift)
        if not eqx.is_array(current):
            raise ArgumentError(
                f"Argument `parameter` must name a number that can change with time, but {self.parameter!r} is "
                f"{current!r}, which is fixed."
            )
        if current.ndim != 0:
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

    def at(self, time: Any) -> AbstractDrift:
        """The drift with the parameter of this time, in the precision of the parameter it replaces."""
        before = self._read(self.drift)
        now = jnp.asarray(self.schedule(time))
        return eqx.tree_at(self._read, self.drift, now if before.weak_type else now.astype(before.dtype))

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The velocity with the parameter of this time."""
        return self.at(time)(time, queries, measure)

    def affine(self, time: Any, law: Normal) -> Affine:
        """The field with the parameter of this time."""
        return self.at(time).affine(time, law)

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """Those of the drift, with the parameter of this time."""
        return self.at(time).interactions(time)

    def interacts_only(self, time: Any) -> bool:
        """Whether the drift that varies does nothing else."""
        return self.drift.interacts_only(time)

    def stages(self, time: Any) -> Stages:
        """Those of the drift, with the parameter of this time."""
        return self.at(time).stages(time)

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """Those of the drift and of the schedule."""
        return (*self.drift.changes(), *self.schedule.changes())

    def resummed(self, time: Any, choose: Chooser) -> "Varying":
        """The drift with what is chosen for the parameter of this time."""
        chosen = iter([choose(each) for each in self.interactions(time)])
        return Varying(self.drift.resummed(time, lambda _: next(chosen)), self.schedule, self.parameter)
