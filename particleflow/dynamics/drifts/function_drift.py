"""A drift that is a function of the user's: for what needs no class of its own.

    FunctionDrift(lambda t, x, mu: -x)    ẋ = f(t, x, μ)

A class below `AbstractDrift` can do more: it has parameters, of which JAX takes derivatives and in which the runs of an
ensemble differ, and it can say which kernels act and how a normal law moves.
"""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.dynamics.drifts.base import AbstractDrift
from particleflow.errors import ArgumentError, KindError, ShapeError
from particleflow.measure import Measure, Sites

_CALL = "a function f(t, x, mu) of the time, points x (m, d) and a measure"


class FunctionDrift(AbstractDrift):
    """ẋ = f(t, x, μ): the velocities (m, d) that a function gives the points x (m, d), for the measure μ of all.

    Parameters: `function` f, of the time, the points and the `Measure`, whose `points` and `log_weights` it may read.
    It is traced by JAX and must be pure. It counts as code, not as a parameter: numbers that it closes over are
    constants. Whether a Gaussian stays one under it is not known.
    """

    function: Callable[[Any, Array, Measure], Any] = eqx.field(static=True)

    def __init__(self, function: Callable[[Any, Array, Measure], Any]):
        _check_function(function)
        self.function = function

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The value of the function, refused unless it is one velocity a point."""
        velocity = jnp.asarray(self.function(time, queries.points, measure))
        if velocity.shape != queries.points.shape:
            raise ShapeError(
                f"Argument `function` must return one velocity a point, of shape {queries.points.shape}, but returns "
                f"shape {velocity.shape}."
            )
        return velocity


def _check_function(function: Any) -> None:
    """Raise unless an object can be called with a time, points and a measure, and is not a drift already."""
    if isinstance(function, type | AbstractDrift) or not callable(function):
        raise KindError(f"Argument `function` must be {_CALL}, but is {function!r}.")
    try:
        inspect.signature(function).bind(0.0, None, None)
    except TypeError as error:
        raise ArgumentError(f"Argument `function` must be {_CALL}, but cannot be called so: {error}.") from error
    except ValueError:  # a built-in may have no signature
        return
