"""Shorter programs: what diffrax asks for in every solve, in fewer operations, and not what has been looked at before.

diffrax lets a step that ends within a hundred units in the last place of t₁ end there. It finds that place by a hundred
`nextafter` one after the other, some twenty operations each: half of a small program, and a quarter of the time that it
takes to make one. Rounded to nearest, and whether or not product and difference are fused, the number before x is

    x − max(φ|x|, η),    φ = u(1 + 2u),    u = ε/2

for every x that is 0 or larger than η/φ, η the smallest normal number (Rump, Zimmermann, Boldo and Melquiond, 2009).
Those are all times that there are, so that not a bit of any run depends on the way.

That saved times are in order, and within the time of a solve, is known of a window before it is made. And what diffrax
finds by tracing a step two times more, that it may fail and whether it may end on a jump of the field, is known to the
controllers of this package.
"""

import abc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import diffrax
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

_times_are_known: ContextVar[bool] = ContextVar("times_are_known", default=False)


@jax.jit
def predecessor(x: Array) -> Array:
    """The number before x; of 0 the largest normal number below it, since smaller ones count as 0."""
    numbers = jnp.finfo(x.dtype)
    unit = 0.5 * float(numbers.eps)
    half = lax.mul(lax.full_like(x, unit * (1 + 2 * unit)), lax.abs(x))
    return lax.sub(x, lax.max(half, lax.full_like(x, float(numbers.tiny))))


@contextmanager
def known_times(*, active: bool = True) -> Iterator[None]:
    """While active, diffrax does not look at the times and the first step that a solve is given."""
    before = _times_are_known.set(active)
    try:
        yield
    finally:
        _times_are_known.reset(before)


def _error_if(x: Any, fails: Any, message: str) -> Any:
    """diffrax's check of what it is given, for those who have not looked at it themselves."""
    return x if _times_are_known.get() else eqxi.error_if(x, fails, message)


class AbstractForeseeing(diffrax.AbstractStepSizeController):
    """A controller whose steps may fail, as is seen only when they run, and that knows before whether they may jump."""

    @abc.abstractmethod
    def may_jump(self) -> bool:
        """Whether a step may end on a jump of the field."""


def controller_of(function: Any) -> AbstractForeseeing | None:
    """The controller of the steps that diffrax repeats, if this is such a step and they can be foreseen."""
    if getattr(function, "__qualname__", "") != "loop.<locals>.body_fun_aux":
        return None
    around = zip(function.__code__.co_freevars, function.__closure__, strict=True)
    controller = next((cell.cell_contents for name, cell in around if name == "stepsize_controller"), None)
    return controller if isinstance(controller, AbstractForeseeing) else None


def shape_of(function: Any, *arguments: Any, **named: Any) -> Any:
    """What a function gives; of a step that can be foreseen: a state, whether it may jump, and that it may fail."""
    controller = controller_of(function)
    if controller is None:
        return eqx.filter_eval_shape(function, *arguments, **named)
    return None, controller.may_jump(), True


def shorten_programs() -> None:
    """Let diffrax solve by what stands here; where its private names have changed, nothing happens."""
    with suppress(ImportError, AttributeError):
        solving: Any = import_module("diffrax._integrate")
        if solving.eqxi is eqxi and solving.eqx is eqx:
            solving.eqxi = SimpleNamespace(**vars(eqxi) | {"prevbefore": predecessor, "error_if": _error_if})
            solving.eqx = SimpleNamespace(**vars(eqx) | {"filter_eval_shape": shape_of})
