"""The definition of observables, their evaluation, and what they share.

An observable is a function f(present) of the `Present` of a run that returns an array, stored for every frame, or a
function of three arguments, f(flow, time, measure). Means are over the shares w_i / Σ_j w_j of the measure's points,
entropies are in nats, H = −Σ_i s_i log s_i, with 0 log 0 = 0.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.discretization import Present
from particleflow.errors import ArgumentError
from particleflow.measure import Measure

Observable = Callable[..., Any]


def name_of(observable: Any) -> str:
    """The name under which an observable is stored."""
    name = getattr(observable, "name", None) or getattr(observable, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(
            f"An observable needs a name that is an identifier, but {observable!r} has {name!r}. One of your own is a "
            "function of the present, `def spread(present): …`."
        )
    return name


def measured(observable: Observable, present: Present) -> Array:
    """The value of an observable at present."""
    try:
        required = [
            each
            for each in inspect.signature(observable).parameters.values()
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
        ]
    except (TypeError, ValueError):  # a built-in may have no signature
        required = [None]
    if len(required) == 1:
        return jnp.asarray(observable(present))
    if len(required) == 3:
        return jnp.asarray(observable(present.flow, present.time, present.measure))
    raise ArgumentError(
        f"The observable {name_of(observable)} must be a function of the present, or of flow, time and measure, "
        f"but takes {len(required)} arguments."
    )


def observable(function: Callable[[Present], Array]) -> Callable[..., Array]:
    """Make a function of the present callable without a run, too, as f(flow, time, measure)."""

    @wraps(function)
    def asked(*given: Any) -> Array:
        if len(given) == 1:
            return function(given[0])
        flow, time, measure = given
        return function(Present.of(flow, measure, time))

    return asked


def shares_of(measure: Measure) -> Float[Array, " n"]:
    """The weights, normalised to sum to one."""
    return jnp.exp(measure.log_weights - measure.log_mass)


def entropy_of(shares: Float[Array, " n"]) -> Float[Array, ""]:
    """−Σ s_i log s_i of numbers that sum to one."""
    return -jnp.sum(jnp.where(shares > 0, shares * jnp.log(jnp.where(shares > 0, shares, 1.0)), 0.0))
