"""The native sum as a function of arrays that JAX can transform in every way.

    G_i = log Σ_j e^{ℓ_ij},   m_i = Σ_j e^{ℓ_ij} z_j / Σ_j e^{ℓ_ij},   ℓ_ij = ⟨q_i, s_j⟩ + k(|u_i − v_j|²) + band + b_j

`vmap` is one call for the whole batch; what all members share is passed once. Derivatives: the tangent is a linear
primitive of its own, whose transpose is again native (a pass over rows and one over columns) for inner products and
Gaussians. Everything else (tangents themselves, second derivatives, transposes of other profiles) is computed by XLA
from the same formula, block by block.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from particleflow.summation.device_axis import all_rows, first_row
from particleflow.summation.moments import Moments
from particleflow.summation.native.build import target
from particleflow.summation.native.near_boxes import moments_by_xla
from particleflow.summation.native.xla_reference import CURVES

# The places of the arrays of `Arrays`, and how many axes of each belong to one sum; more in front of them are a batch.
QUERIES, KEYS, VALUES, OFFSETS, QUERY_POSITIONS, KEY_POSITIONS, NUMBERS = range(7)
AXES = (2, 2, 2, 1, 1, 1, 1)
_MOMENTS_AXES = (1, 2)  # of a log-mass and a mean, or of their cotangents


class Arrays(NamedTuple):
    """The operands of a sum.

    Parameters: features q and s, inner products in their first columns and coordinates in the rest; values z; offsets
    b, weights included; positions of queries and sources, empty where there is no band; (power, least, most, slope,
    scale), the first and last of the curve of scale · |u − v|.
    """

    queries: Array
    keys: Array
    values: Array
    offsets: Array
    query_positions: Array
    key_positions: Array
    numbers: Array


class Form(NamedTuple):
    """The static settings of a sum: how many features are inner products, and the curve of the distances.

    With a `tolerance`, far sources are left out, in boxes of at most `block`: at most ½ tolerance of any mass. With
    `widen`, single-precision scores that spread too far are made in double precision. `library` is the key of the
    native library that sums.
    """

    inner: int
    curve: str | None
    tolerance: float | None = None
    block: int = 12
    widen: bool = True
    library: str = ""

    @property
    def attributes(self) -> dict[str, Any]:
        """The numbers that native code takes: how many inner products, which curve, and how to leave sources out."""
        tolerance = -1.0 if self.tolerance is None else self.tolerance
        numbers = {"inner": self.inner, "profile": CURVES[self.curve], "packet": self.block}
        return {name: np.int64(number) for name, number in numbers.items()} | {
            "tolerance": np.float64(tolerance),
            "widen": self.widen,
        }

    @property
    def has_native_transpose(self) -> bool:
        """Whether the transpose of the tangent is native: for inner products and Gaussians."""
        return self.curve in (None, "gaussian")


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def native_moments(form: Form, arrays: Arrays) -> Moments:
    """The log-mass G and mean m of every query, by the native library that the form names."""
    return _native_moments(form, arrays)


def _native_moments(form: Form, arrays: Arrays) -> Moments:
    count, columns, dtype = arrays.queries.shape[0], arrays.values.shape[1], arrays.queries.dtype
    shared = first_row(count) if form.tolerance is None else None
    rows = count
    if shared is not None:  # this device sums some of the queries
        first, rows = shared
        arrays = arrays._replace(numbers=jnp.append(arrays.numbers, first.astype(dtype)))
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((rows,), (rows,), (rows, columns))]
    call = jax.ffi.ffi_call(target("moments", form.library), shapes, vmap_method="expand_dims")
    found = call(*arrays, **form.attributes)
    mass, shift, mean = found if shared is None else all_rows(found, count)
    # The logarithm is XLA's, which drops it where the mass is not used.
    return Moments(jnp.log(mass) + shift, mean)


@partial(native_moments.defjvp, symbolic_zeros=True)
def _push(form: Form, primals: tuple[Arrays], tangents: tuple[Arrays]) -> tuple[Moments, Moments]:
    (arrays,), (moved,) = primals, tangents
    moments = native_moments(form, arrays)
    moving = tuple(i for i, each in enumerate(moved) if not isinstance(each, jax.custom_derivatives.SymbolicZero))
    known = (*arrays, moments.log_mass, moments.mean)
    log_mass, mean = _tangent.bind(*known, *(moved[i] for i in moving), form=form, moving=moving)
    return moments, Moments(log_mass, mean)


# The tangent (dG, dm) of the moments: linear in those arrays that move, given all arrays and the moments.
_tangent = Primitive("particleflow_moments_tangent")
_tangent.multiple_results = True
_KNOWN = (*AXES, *_MOMENTS_AXES)


def _tangent_by_xla(*operands: Array, form: Form, moving: tuple[int, ...]) -> list[Array]:
    """The derivative of the same moments, as XLA sums them."""
    arrays, moved = operands[: len(AXES)], operands[len(_KNOWN) :]
    directions = [jnp.zeros_like(each) for each in arrays]
    for index, direction in zip(moving, moved, strict=True):
        directions[index] = direction

    def moments(*arrays: Array) -> Moments:
        return moments_by_xla(form, Arrays(*arrays))

    _, tangent = jax.jvp(moments, arrays, tuple(directions))
    return [tangent.log_mass, tangent.mean]


def _batch_shape(operands: Any, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The leading axes that all operands broadcast to."""
    leading = [each.shape[: len(each.shape) - own] for each, own in zip(operands, axes, strict=True)]
    return tuple(max(lengths) for lengths in zip(*leading, strict=True))


def _over_batch(function: Any, operands: Any, axes: tuple[int, ...]) -> Any:
    """A function of single sums over leading axes; an operand of length 1 along one is shared by all along it."""
    batch = _batch_shape(operands, axes)
    if not batch:
        return function(*operands)
    shared = [each.shape[0] != batch[0] for each in operands]
    operands = [each[0] if alike else each for each, alike in zip(operands, shared, strict=True)]
    inner = partial(_over_leading, function, axes)
    return jax.vmap(inner, in_axes=[None if alike else 0 for alike in shared])(*operands)


def _over_leading(function: Any, axes: tuple[int, ...], *operands: Array) -> Any:
    return _over_batch(function, operands, axes)


def _operand_axes(moving: tuple[int, ...]) -> tuple[int, ...]:
    return (*_KNOWN, *(AXES[i] for i in moving))


def _tangent_rule(*operands: Array, form: Form, moving: tuple[int, ...]) -> list[Array]:
    """The tangent of a batch."""
    return _over_batch(partial(_tangent_by_xla, form=form, moving=moving), operands, _operand_axes(moving))


def _tangent_shapes(*operands: Any, form: Form, moving: tuple[int, ...]) -> list[Any]:
    batch = _batch_shape(operands, _operand_axes(moving))
    queries, values = operands[0], operands[2]
    rows, dtype = (*batch, queries.shape[-2]), queries.dtype
    return [ShapedArray(rows, dtype), ShapedArray((*rows, values.shape[-1]), dtype)]


def _tangent_of_tangent(primals: Any, tangents: Any, **settings: Any) -> Any:
    moved = [ad.instantiate_zeros(each) for each in tangents]
    return jax.jvp(partial(_tangent_rule, **settings), tuple(primals), tuple(moved))


def _tangent_batched(operands: Any, places: Any, **settings: Any) -> Any:
    moved = [
        each[None] if place is batching.not_mapped else jnp.moveaxis(each, place, 0)
        for each, place in zip(operands, places, strict=True)
    ]
    return _tangent.bind(*moved, **settings), [0, 0]


def _tangent_transposed(cotangents: Any, *operands: Any, form: Form, moving: tuple[int, ...]) -> list[Any]:
    """The derivatives with respect to what moves, summed over the axes along which it is shared."""
    known, moved = operands[: len(_KNOWN)], operands[len(_KNOWN) :]
    wanted = {i: each.aval.shape for i, each in zip(moving, moved, strict=True) if ad.is_undefined_primal(each)}
    given = (*known, *(ad.instantiate_zeros(each) for each in cotangents))
    found = dict(zip(wanted, _derivatives(form, tuple(wanted), given), strict=True))
    summed = [_summed_to(found[i], wanted[i], AXES[i]) if i in wanted else None for i in moving]
    return [None] * len(known) + summed


def _derivatives(form: Form, wanted: tuple[int, ...], operands: tuple[Array, ...]) -> list[Array]:
    """The derivatives with respect to some arrays, of a batch of sums: natively, but for positions and other curves."""
    if form.has_native_transpose and not set(wanted) & {QUERY_POSITIONS, KEY_POSITIONS}:
        return pulled(form, wanted, *operands)
    return _over_batch(partial(_pulled_by_xla, form, wanted), operands, (*_KNOWN, *_MOMENTS_AXES))


def _summed_to(array: Array, shape: tuple[int, ...], own: int) -> Array:
    """An array summed over the leading axes that are of length 1 in `shape`."""
    leading = len(shape) - own
    over = tuple(axis for axis in range(leading) if shape[axis] == 1 and array.shape[axis] != 1)
    return jnp.sum(array, axis=over, keepdims=True) if over else array


_tangent.def_abstract_eval(_tangent_shapes)
_tangent.def_impl(jax.jit(_tangent_rule, static_argnames=("form", "moving")))
mlir.register_lowering(_tangent, mlir.lower_fun(_tangent_rule, multiple_results=True))
batching.primitive_batchers[_tangent] = _tangent_batched
ad.primitive_jvps[_tangent] = _tangent_of_tangent
ad.primitive_transposes[_tangent] = _tangent_transposed


def _pulled_by_xla(form: Form, wanted: tuple[int, ...], *operands: Array) -> list[Array]:
    """The derivatives with respect to some arrays of one sum, as XLA computes them."""
    arrays, cotangents = list(operands[: len(AXES)]), operands[-2:]

    def moments(*chosen: Array) -> Moments:
        given = list(arrays)
        for index, each in zip(wanted, chosen, strict=True):
            given[index] = each
        return moments_by_xla(form, Arrays(*given))

    _, pull = jax.vjp(moments, *(arrays[i] for i in wanted))
    return list(pull(Moments(*cotangents)))


class _Pull(NamedTuple):
    """What both native passes read, of a batch of sums.

    Parameters: features of both sides, coordinates about one origin; −G_i, with −∞ for a query that sees nothing, so
    that all its weights are 0; the cotangents m̄_i; c_i = Ḡ_i − ⟨m̄_i, m_i⟩; and zeros, one a source.
    """

    queries: Array
    keys: Array
    minus_log_mass: Array
    mean_rates: Array
    own_rates: Array
    zeros: Array


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def pulled(form: Form, wanted: tuple[int, ...], *operands: Array) -> list[Array]:
    """The derivatives with respect to the wanted arrays, of a batch of sums.

    With P_ij = e^{ℓ_ij − G_i} and A_ij = P_ij (⟨m̄_i, z_j⟩ + c_i), c_i = Ḡ_i − ⟨m̄_i, m_i⟩, a pass over rows gives
    q̄_i = Σ_j A_ij s_j and ū_i = 2γ² Σ_j A_ij (v_j − u_i), γ the scale; one over columns gives s̄_j = Σ_i A_ij q_i,
    v̄_j = 2γ² Σ_i A_ij (u_i − v_j), b̄_j = Σ_i A_ij and z̄_j = Σ_i P_ij m̄_i. The slope has −Σ_ij A_ij |t_i − p_j|, the
    scale −2γ Σ_ij A_ij |u_i − v_j|².
    """
    arrays, (log_mass, mean, mass_rates, mean_rates) = Arrays(*operands[: len(AXES)]), operands[len(AXES) :]
    own_rates = mass_rates - jnp.sum(mean_rates * mean, axis=-1)
    minus_log_mass = jnp.where(jnp.isneginf(log_mass), -jnp.inf, -log_mass)
    zeros = jnp.zeros_like(arrays.offsets)
    about_origin = _about_origin(form, arrays.queries, arrays.keys)
    pull = _Pull(*about_origin, minus_log_mass, mean_rates, own_rates, zeros)
    found: dict[int, Array] = {}
    if {QUERIES, NUMBERS} & set(wanted):
        found |= _over_rows(form, arrays, pull)
    if {KEYS, VALUES, OFFSETS} & set(wanted):
        found |= _over_columns(form, arrays, pull)
    return [found[i] for i in wanted]


def _over_rows(form: Form, arrays: Arrays, pull: _Pull) -> dict[int, Array]:
    """The derivatives with respect to query features and to the numbers: Σ_j A_ij (…) for every query."""
    others = (pull.minus_log_mass, pull.mean_rates, pull.own_rates, pull.zeros, pull.keys)
    carried, total, _, lengths = _pass(form, False, *arrays, *others)
    scale = arrays.numbers[..., 4]
    slopes, scales = jnp.moveaxis(jnp.sum(lengths, axis=-2), -1, 0)
    none = jnp.zeros_like(slopes)
    numbers = jnp.stack([none, none, none, -slopes, -2 * scale * scales], axis=-1)
    return {QUERIES: _through_features(form, scale, pull.queries, carried, total), NUMBERS: numbers}


def _over_columns(form: Form, arrays: Arrays, pull: _Pull) -> dict[int, Array]:
    """The derivatives with respect to sources, their values and offsets: Σ_i A_ij (…), the same pass with sides swapped
    and lags of the other sign."""
    queries, keys, values, offsets, times, positions, numbers = arrays
    power, least, most, slope, scale = (numbers[..., i] for i in range(5))
    swapped = jnp.stack([power, -most, -least, slope, scale], axis=-1)
    sides = (keys, queries, pull.mean_rates, pull.minus_log_mass, positions, times, swapped)
    others = (offsets, values, pull.zeros, pull.own_rates, pull.queries)
    carried, total, weighted, _ = _pass(form, True, *sides, *others)
    return {KEYS: _through_features(form, scale, pull.keys, carried, total), VALUES: weighted, OFFSETS: total}


def _about_origin(form: Form, queries: Array, keys: Array) -> tuple[Array, Array]:
    """Features with coordinates about the middle of the keys: exact where they are far from 0."""
    centre = jnp.mean(keys, axis=-2, keepdims=True)
    centre = jnp.where(jnp.arange(keys.shape[-1]) < form.inner, 0.0, centre)
    return queries - centre, keys - centre


def _through_features(form: Form, scale: Array, own: Array, carried: Array, total: Array) -> Array:
    """Σ A y for inner products, 2γ² Σ A (y − x) for coordinates."""
    factor = 2 * jnp.square(scale)[..., None, None]
    distances = factor * (carried[..., form.inner :] - total[..., None] * own[..., form.inner :])
    return jnp.concatenate([carried[..., : form.inner], distances], axis=-1)


def _pass(form: Form, with_values: bool, *operands: Array) -> list[Array]:
    """One native pass over a batch: Σ A y, Σ A, Σ P g (for `with_values`), Σ A (|t − p|, |u − v|²)."""
    axes = (*AXES, 1, 2, 1, 1, 2)  # and of −G or offsets, rates g or values, rates of both sides, what is carried
    batch = _batch_shape(operands, axes)
    (count, features), columns, dtype = operands[0].shape[-2:], operands[2].shape[-1], operands[0].dtype
    rows = (*batch, count)
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((*rows, features), rows, (*rows, columns), (*rows, 2))]
    call = jax.ffi.ffi_call(target("adjoint", form.library), shapes, vmap_method="expand_dims")
    return list(call(*operands, with_values=with_values, **form.attributes))


@pulled.defjvp
def _pulled_tangent(form: Form, wanted: tuple[int, ...], primals: Any, tangents: Any) -> Any:
    """Second derivatives, by XLA."""

    def by_xla(*operands: Array) -> list[Array]:
        return _over_batch(partial(_pulled_by_xla, form, wanted), operands, (*_KNOWN, *_MOMENTS_AXES))

    return pulled(form, wanted, *primals), jax.jvp(by_xla, primals, tangents)[1]
