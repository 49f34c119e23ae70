"""Which numbers of a kernel or flow are learned, and how they stay in their admissible range.

A parameter is a dotted path through fields, such as "width", "drift.kernel.beta" or "weights.0"; several paths together
are one number, or one array, in several places (Q and K of a metric). Numbers that must not be negative are learned by
their logarithm,

    p = e^u,    u free,

so that they stay positive; a class declares its own as `Nonnegative`. The numbers of stacked heads and layers are
arrays with a leading axis, and are learned as such.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._support.arrays import default_dtype, is_nonnegative, strong_leaves
from particleflow.errors import ArgumentError
from particleflow.measure import Measure

Paths = str | Sequence[str]


class LearnedParameter(NamedTuple):
    """One learned number or array: its `places` in the model, and whether it is learned by its logarithm."""

    places: tuple[tuple[str | int, ...], ...]
    by_logarithm: bool

    def read(self, model: Any) -> Array:
        """The value of the parameter in a model."""
        return _value_at(model, self.places[0])


def parameters_of(model: Any, names: Paths | Sequence[Paths]) -> tuple[LearnedParameter, ...]:
    """The parameters of a model that dotted paths name; a tuple of paths is one parameter in several places."""
    if not isinstance(names, str | list | tuple):
        raise ArgumentError(f"Argument `parameters` must hold paths such as 'drift.kernel.beta', but is {names!r}.")
    wanted = [names] if isinstance(names, str) else list(names)
    if not wanted:
        raise ArgumentError("Argument `parameters` must name at least one number, such as 'width', but is empty.")
    found = tuple(_parameter(model, each) for each in wanted)
    places = [place for each in found for place in each.places]
    if len(set(places)) < len(places):
        raise ArgumentError(f"Argument `parameters` names a number twice: {names!r}.")
    return found


def learnable(model: Any) -> list[str]:
    """The paths of all arrays of a model that `train` changes if no parameters are named.

    Left out are single numbers, also where heads or layers have one each (β); what is declared never to be negative
    (widths, durations, the ε of norms), since these are choices of an architecture; and fixed data (measures). Any of
    them can be named.
    """
    return [".".join(map(str, place)) for place in _arrays(model, ()) if not _is_positive(model, place)]


def _arrays(node: Any, place: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """The places of all floating-point arrays with an axis, outside of measures; numbers, weakly typed, are none."""
    if eqx.is_inexact_array(node):
        if node.ndim > 0 and not node.weak_type:
            yield place
    elif not isinstance(node, Measure):
        for step in _names(node):
            yield from _arrays(_value_at(node, (step,)), (*place, step))


def free_values(model: Any, parameters: tuple[LearnedParameter, ...], *others: Any) -> tuple[Array, ...]:
    """The free numbers u of a model, in the precision of its arrays and of those of the `others`."""
    strong = strong_leaves((model, *others))
    dtype = strong[0].dtype if strong else default_dtype()
    values = [jnp.asarray(each.read(model), dtype) for each in parameters]
    return tuple(jnp.log(value) if each.by_logarithm else value for each, value in zip(parameters, values, strict=True))


def with_values(model: Any, parameters: tuple[LearnedParameter, ...], free: tuple[Array, ...]) -> Any:
    """The model with parameters computed from free numbers u, p = e^u or p = u, in all their places."""
    values = [jnp.exp(value) if each.by_logarithm else value for each, value in zip(parameters, free, strict=True)]
    places = [place for each in parameters for place in each.places]
    filled = [value for each, value in zip(parameters, values, strict=True) for _ in each.places]
    return eqx.tree_at(lambda tree: [_value_at(tree, place) for place in places], model, filled)


def _parameter(model: Any, names: Paths) -> LearnedParameter:
    """One parameter of one or several paths, which must have one shape and, if positive, a positive start."""
    each = (names,) if isinstance(names, str) else tuple(names)
    places = tuple(_place(model, name) for name in each)
    values = [np.asarray(_value_at(model, place)) for place in places]
    if any(value.shape != values[0].shape for value in values):
        raise ArgumentError(f"The parameters {each} are to be one, but have shapes {[v.shape for v in values]}.")
    positive = any(_is_positive(model, place) for place in places)
    if positive and not np.all(values[0] > 0):
        raise ArgumentError(
            f"The parameter {each[0]!r} must not be negative and is learned by its logarithm, but begins at "
            f"{values[0].min():g}; begin with a positive number."
        )
    return LearnedParameter(places, positive)


def _place(model: Any, name: str) -> tuple[str | int, ...]:
    """A dotted path as its parts, checked to lead to floating-point numbers."""
    if not isinstance(name, str):
        raise ArgumentError(f"Argument `parameters` must hold paths such as 'drift.kernel.beta', but holds {name!r}.")
    place, node = [], model
    for part in name.split("."):
        step = int(part) if part.isdigit() else part
        known = _names(node)
        if step not in known:
            choices = ", ".join(map(str, known)) or "no parts"
            raise ArgumentError(f"The parameter {name!r} names {part!r} of {type(node).__name__}, which has {choices}.")
        place.append(step)
        node = _value_at(node, (step,))
    if not eqx.is_inexact_array(node):
        raise ArgumentError(
            f"The parameter {name!r} must be a number or an array of them, but is {type(node).__name__}."
        )
    return tuple(place)


def _names(node: Any) -> list[str | int]:
    """The parts of a path that can follow a node: fields of a module or of a named tuple, indices of a list."""
    if isinstance(node, tuple | list):
        return list(getattr(node, "_fields", range(len(node))))
    return [field.name for field in fields(node)] if isinstance(node, eqx.Module) else []


def _value_at(node: Any, place: tuple[str | int, ...]) -> Any:
    """The value at a place, part by part."""
    for step in place:
        node = node[step] if isinstance(step, int) else getattr(node, step)
    return node


def _is_positive(model: Any, place: tuple[str | int, ...]) -> bool:
    """Whether the field that holds a number, or an array of them, is declared never to be negative."""
    last = max(index for index, step in enumerate(place) if isinstance(step, str))
    owner, name = _value_at(model, place[:last]), str(place[last])
    return isinstance(owner, eqx.Module) and is_nonnegative(owner, name)
