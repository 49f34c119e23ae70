"""Checked conversion of what a user hands over into JAX arrays.

Numbers become weakly typed scalars, so that they take the precision of the arrays they meet; arrays
keep the precision they came with. Nothing is cast or broadcast silently: integers, NaN, wrong shapes and
mixed precisions raise an error that names the argument, what was expected and what was found.

Importing the package has switched JAX to 64 bits, unless the environment variable JAX_ENABLE_X64 says otherwise
(`_support.precision`).
"""

from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import lru_cache
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from particleflow.errors import ArgumentError, DtypeError, ShapeError

# Marks fields whose numbers are never negative, which are learned by their logarithm.
NONNEGATIVE = "never negative"
Nonnegative = Annotated[Float[Array, ""], NONNEGATIVE]


def default_dtype() -> Any:
    """The precision of new arrays: float64, unless the environment asked for 32 bits."""
    return jax.dtypes.canonicalize_dtype(float)


def is_concrete(array: Any) -> bool:
    """Whether the numbers are known now (inside `jit`, `grad` and `vmap` they are not)."""
    return not isinstance(array, Tracer)


def is_traced() -> bool:
    """Whether a program is being traced (inside `jit`), in which even the sum of two known numbers is not known."""
    return isinstance(jnp.add(0.0, 0.0), Tracer)


def as_float_array(value: Any, name: str, *, finite: bool = True) -> Array:
    """A floating-point JAX array of unchanged precision; NaN and ∞ are refused, and with `finite` −∞, too."""
    if isinstance(value, bool):
        raise DtypeError(f"Argument `{name}` must be a number or an array of them, but is {value}.")
    if isinstance(value, int | float):
        value = _number(float(value))
    elif isinstance(value, list | tuple):
        value = _from_list(value, name)
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise DtypeError(
            f"Argument `{name}` must be an array of floating-point numbers, but is {type(value).__name__}."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise DtypeError(
            f"Argument `{name}` must hold floating-point numbers, but has dtype {value.dtype}; "
            f"convert it, for example with {name}.astype(float)."
        )
    # A copy: on a CPU JAX may share the caller's memory, which may change after all checks.
    array = value if isinstance(value, jax.Array) else jnp.array(value)
    if array.dtype != value.dtype:
        raise DtypeError(f"Argument `{name}` is {value.dtype}, but JAX runs in 32 bits; set JAX_ENABLE_X64=1.")
    if is_concrete(array):
        _check_numbers(np.asarray(array), name, finite)
    return array


@lru_cache(maxsize=4096)
def _number(value: float) -> Array:
    """A number as a weakly typed array, cached, because each new array costs a transfer."""
    with jax.ensure_compile_time_eval():
        return jnp.asarray(value)


def as_number(value: Any, dtype: Any = float) -> Array:
    """A number as a strongly typed array, in 64 bits where JAX has them and nothing else is asked for."""
    if isinstance(value, int | float):
        return _strong_number(float(value), jax.dtypes.canonicalize_dtype(dtype))
    return jnp.asarray(value, dtype)


@lru_cache(maxsize=1024)
def _strong_number(value: float, dtype: Any) -> Array:
    with jax.ensure_compile_time_eval():
        return jnp.asarray(np.asarray(value, dtype))  # NumPy's: nothing is compiled for it


def progression(first: float, step: float, count: int, dtype: Any) -> Array:
    """The numbers first, first + step, first + 2 step, …: equal weights, positions in order."""
    return (_short_progression if count <= _SHORT else _progression)(first, step, count, dtype)


_SHORT = 2**14  # up to so many numbers are cached: a transfer takes longer than a step of so few particles


def _progression(first: float, step: float, count: int, dtype: Any) -> Array:
    with jax.ensure_compile_time_eval():
        return jnp.asarray((first + step * np.arange(count)).astype(dtype))


_short_progression = lru_cache(maxsize=64)(_progression)


def _from_list(numbers: list | tuple, name: str) -> np.ndarray:
    """A list of numbers as an array; whole numbers in it become floating-point numbers."""
    try:
        array = np.asarray(numbers)
    except ValueError as error:
        raise ShapeError(f"Argument `{name}` must be a list of equally long rows, but is not: {error}") from error
    return array.astype(float) if array.dtype.kind in "iu" else array


def _check_numbers(numbers: np.ndarray, name: str, finite: bool) -> None:
    bad = ~np.isfinite(numbers) if finite else (np.isnan(numbers) | np.isposinf(numbers))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f" at index {list(where)}" if where else ""
        raise ArgumentError(f"Argument `{name}` must be finite, but holds {numbers[where]}{place}.")


def as_scalar(value: Any, name: str, check: Callable[[float], bool] | None = None, expected: str = "") -> Array:
    """A scalar parameter, checked by `check` when its number is known; `expected` describes the check."""
    scalar = as_float_array(value, name)
    if scalar.shape != ():
        raise ShapeError(f"Argument `{name}` must be one number, but has shape {scalar.shape}.")
    if check is not None and is_concrete(scalar) and not check(float(scalar)):
        raise ArgumentError(f"Argument `{name}` must be {expected}, but is {float(scalar)}.")
    return scalar


def is_nonnegative(module: Any, name: str) -> bool:
    """Whether a field of a module is declared never to be negative, by `Nonnegative` or an annotation of its own."""
    return any(each.name == name and NONNEGATIVE in getattr(each.type, "__metadata__", ()) for each in fields(module))


def as_positive(value: Any, name: str) -> Array:
    """A scalar parameter that must be positive."""
    return as_scalar(value, name, lambda number: number > 0, "positive")


def as_nonnegative(value: Any, name: str) -> Array:
    """A scalar parameter that must not be negative."""
    return as_scalar(value, name, lambda number: number >= 0, "zero or positive")


def as_linear_map(value: Any, name: str) -> Array:
    """A linear map given as a number (multiple of the identity), a vector (diagonal) or a matrix."""
    array = as_float_array(value, name)
    if array.ndim > 2 or 0 in array.shape:
        raise ShapeError(f"Argument `{name}` must be a number, a diagonal or a matrix, but has shape {array.shape}.")
    return array


def apply_linear_map(linear_map: Array, vectors: Array, name: str) -> Array:
    """A x for every row x of `vectors`, where A is a number, a diagonal or a matrix."""
    dimension = vectors.shape[-1]
    if linear_map.ndim == 0:
        return linear_map * vectors
    if linear_map.shape[-1] != dimension:
        raise ShapeError(
            f"Argument `{name}` has shape {linear_map.shape}, which does not act on vectors of dimension {dimension}."
        )
    if linear_map.ndim == 1:
        return vectors * jnp.expand_dims(linear_map, tuple(range(vectors.ndim - 1)))
    return vectors @ linear_map.T


def plus(rows: Array, vector: Array, name: str) -> Array:
    """x + b for every row x, where b is a number or a vector."""
    if vector.ndim == 0:
        return rows + vector
    if vector.shape != rows.shape[1:]:
        raise ShapeError(f"Argument `{name}` must have shape {rows.shape[1:]}, but has {vector.shape}.")
    return rows + vector[None, :]


def check_same_dtype(**arrays: Array | None) -> None:
    """Raise if two of the named arrays have different precisions; weakly typed numbers fit everywhere."""
    strong = {name: a.dtype for name, a in arrays.items() if a is not None and not getattr(a, "weak_type", False)}
    if len(set(strong.values())) > 1:
        found = ", ".join(f"`{name}` is {dtype}" for name, dtype in strong.items())
        raise DtypeError(f"All arrays must have one precision, but {found}.")


def strong_dtype_leaves(tree: Any) -> dict[str, Array]:
    """The strongly typed floating-point arrays inside a pytree, by their path: what must match the points."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves if _is_strong(leaf)}


def strong_leaves(tree: Any) -> list[Array]:
    """The strongly typed floating-point arrays inside a pytree, without their paths, which take long to build."""
    return [leaf for leaf in jax.tree_util.tree_leaves(tree) if _is_strong(leaf)]


def _is_strong(leaf: Any) -> bool:
    floating = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
    return floating and not getattr(leaf, "weak_type", False)


def signature(tree: Any) -> Hashable:
    """What a program for this pytree depends on: structure, shapes and dtypes of its arrays, and all other leaves.

    None where a leaf is neither an array nor hashable.
    """
    leaves, structure = jax.tree_util.tree_flatten(tree)
    found = (structure, tuple(jax.typeof(leaf) if _is_array(leaf) else leaf for leaf in leaves))
    try:
        hash(found)
    except TypeError:
        return None
    return found


def shapes_of(function: Callable[..., Any], *operands: Any) -> Any:
    """Memoised `jax.eval_shape` of a function of modules: tracing takes as long as a run of a few particles."""

    def shapes(*operands: Any) -> Any:
        return jax.eval_shape(lambda: function(*operands))

    return _looked_up((function, "shapes"), shapes, operands)


def remembered(function: Callable[..., Any], *operands: Any) -> Any:
    """Memoise a function of tree structure, shapes and dtypes: one result for all operands of one `signature`.

    Parameters: `function`, which must not depend on the numbers in arrays, defined in a module and not for this call.
    """
    return _looked_up(function, function, operands)


def _looked_up(name: Hashable, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """The result cached under this name and the signature of the operands; computed and cached if there is none."""
    key = signature(operands)
    result = _MISSING if key is None else _results.get((name, key), _MISSING)
    if result is _MISSING:
        result = function(*operands)
        if len(_results) >= _MOST_RESULTS:
            _results.clear()
        if key is not None:
            _results[name, key] = result
    return result


_MISSING = object()  # None may be a result
_MOST_RESULTS = 1024
_results: dict[Any, Any] = {}


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)
