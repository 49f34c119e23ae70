"""Sums of a power law over pairs, in near-linear time, as functions of arrays that JAX can transform.

    sums f_ik = Σ_j K(x_i − y_j) c_jk     gradients ∂f_ik/∂x_i     dipoles Σ_j ⟨c_jk, ∂/∂y_j⟩ K(x_i − y_j)

with K(r) = (|r|² + s²)^{−p}. The three are linear in the charges c and are each other's derivatives and transposes: a
step of the sources is a sum of dipoles, and what is pulled back to charges is the same sum with both sides swapped. So
first derivatives, forward and backward, take near-linear time; second ones go over all pairs, by XLA.
"""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from particleflow.summation.native.build import target

Kind = Literal["sums", "gradients", "dipoles"]
_KINDS: dict[Kind, int] = {"sums": 0, "gradients": 1, "dipoles": 2}
_TRANSPOSED: dict[Kind, Kind] = {"sums": "sums", "gradients": "dipoles", "dipoles": "gradients"}
_QUERY_BLOCK = 256  # queries of a block of XLA's sums


def far_sums(
    queries: Float[Array, "m d"],
    keys: Float[Array, "n d"],
    charges: Float[Array, "n k"],
    numbers: Float[Array, " 2"],
    error: float,
    library: str,
) -> Float[Array, "m k"]:
    """Σ_j K(x_i − y_j) c_j for the (p, s²) of `numbers`, each pair to a relative `error`; exact without a `library`."""
    return _far.bind(queries, keys, charges, numbers, kind="sums", logarithmic=False, error=error, library=library)


def far_gradients(
    queries: Float[Array, "m d"],
    keys: Float[Array, "n d"],
    charges: Float[Array, "n k"],
    numbers: Float[Array, " 2"],
    error: float,
    library: str,
) -> Float[Array, "m k d"]:
    """The derivatives of `far_sums` by the queries; a pair at the same place has none."""
    return _far.bind(queries, keys, charges, numbers, kind="gradients", logarithmic=False, error=error, library=library)


_far = Primitive("particleflow_far_sums")


def _implemented(*operands: Array, **settings: Any) -> Array:
    return _natively(*operands, **settings) if settings["library"] else pairwise(*operands, **settings)


def _natively(
    queries: Array,
    keys: Array,
    charges: Array,
    numbers: Array,
    *,
    kind: Kind,
    logarithmic: bool,
    error: float,
    library: str,
) -> Array:
    shape = _result_shape(kind, queries.shape, charges.shape)
    flat = jax.ShapeDtypeStruct((shape[0], int(np.prod(shape[1:]))), jnp.float64)
    call = jax.ffi.ffi_call(target("far", library), flat)
    attributes = {"kind": np.int64(_KINDS[kind]), "logarithmic": logarithmic, "error": np.float64(error)}
    return call(queries, keys, charges.reshape(charges.shape[0], -1), numbers, **attributes).reshape(shape)


def _result_shape(kind: Kind, queries: tuple[int, ...], charges: tuple[int, ...]) -> tuple[int, ...]:
    rows, columns = queries[0], charges[1]
    return (rows, columns, queries[1]) if kind == "gradients" else (rows, columns)


def pairwise(
    queries: Array, keys: Array, charges: Array, numbers: Array, *, kind: Kind, logarithmic: bool, **_: Any
) -> Array:
    """The same over all pairs, by XLA, a block of queries after the other."""

    @jax.checkpoint
    def one(point: Array) -> Array:
        power, square = numbers
        steps = point[None] - keys
        given = jnp.sum(jnp.square(steps), axis=1) + square
        limits = jnp.finfo(given.dtype)
        highest = 0.9 * float(np.log(limits.max))  # of the logarithm of the kernel, which would be infinite on a point
        least = jnp.maximum(limits.tiny, jnp.exp(-highest / (power if kind == "sums" else power + 1)))
        apart = given > least
        base = jax.lax.select(apart, given, jnp.broadcast_to(least, given.shape))
        if kind == "sums":
            kernel = jnp.exp(-power * jnp.log(base))
            return (-kernel * jnp.log(base) if logarithmic else kernel) @ charges
        slope = -2 * power * jnp.exp(-(power + 1) * jnp.log(base))
        steep = jax.lax.select(apart, slope, jnp.zeros_like(slope))
        slopes = steep[:, None] * steps
        return charges.T @ slopes if kind == "gradients" else -jnp.einsum("jd,jkd->k", slopes, charges)

    return jax.lax.map(one, queries, batch_size=_QUERY_BLOCK)


def _shapes(queries: Any, keys: Any, charges: Any, numbers: Any, *, kind: Kind, **_: Any) -> ShapedArray:
    return ShapedArray(_result_shape(kind, queries.shape, charges.shape), queries.dtype)


def _moved(primals: Any, tangents: Any, **settings: Any) -> tuple[Array, Array]:
    """The derivative along a step of everything: of sums by tree sums, else over all pairs."""
    result = _far.bind(*primals, **settings)
    if settings["kind"] != "sums" or settings["logarithmic"]:
        over_pairs = partial(pairwise, **settings)
        *places, charges, numbers = (ad.instantiate_zeros(each) for each in tangents)
        change = jax.jvp(
            lambda *rest: over_pairs(*rest[:2], primals[2], rest[2]), (*primals[:2], primals[3]), (*places, numbers)
        )
        return result, change[1] + _far.bind(*primals[:2], charges, primals[3], **settings)
    parts = [
        part(primals, tangent, settings)
        for part, tangent in zip((_by_queries, _by_keys, _by_charges, _by_numbers), tangents, strict=True)
        if type(tangent) is not ad.Zero
    ]
    return result, sum(parts[1:], start=parts[0])


def _by_queries(primals: Any, step: Array, settings: Any) -> Array:
    gradients = _far.bind(*primals, **settings | {"kind": "gradients"})
    return jnp.einsum("mkd,md->mk", gradients, step)


def _by_keys(primals: Any, step: Array, settings: Any) -> Array:
    queries, keys, charges, numbers = primals
    moments = charges[:, :, None] * step[:, None, :]
    return _far.bind(queries, keys, moments, numbers, **settings | {"kind": "dipoles"})


def _by_charges(primals: Any, step: Array, settings: Any) -> Array:
    queries, keys, _, numbers = primals
    return _far.bind(queries, keys, step, numbers, **settings)


def _by_numbers(primals: Any, step: Array, settings: Any) -> Array:
    """∂K/∂p = −K log(r² + s²) and ∂K/∂s² = −p (r² + s²)^{−p−1}."""
    queries, keys, charges, numbers = primals
    logarithms = _far.bind(queries, keys, charges, numbers, **settings | {"logarithmic": True})
    steeper = _far.bind(queries, keys, charges, numbers.at[0].add(1.0), **settings)
    return step[0] * logarithms - step[1] * numbers[0] * steeper


def _transposed(cotangent: Any, queries: Any, keys: Any, charges: Any, numbers: Any, **settings: Any) -> list[Any]:
    """Charges are the one operand that sums are linear in: both sides swap."""
    assert ad.is_undefined_primal(charges)
    if type(cotangent) is ad.Zero:
        return [None, None, ad.Zero(charges.aval), None]
    back = _far.bind(keys, queries, cotangent, numbers, **settings | {"kind": _TRANSPOSED[settings["kind"]]})
    return [None, None, back, None]


def _batched(operands: Any, places: Any, **settings: Any) -> tuple[Array, int]:
    """One sum after the other; what all share is not copied."""
    moving = [i for i, place in enumerate(places) if place is not batching.not_mapped]
    stacked = [jnp.moveaxis(operands[i], places[i], 0) for i in moving]

    def one(own: Any) -> Array:
        given = list(operands)
        for i, each in zip(moving, own, strict=True):
            given[i] = each
        return _far.bind(*given, **settings)

    return jax.lax.map(one, stacked), 0


_far.def_abstract_eval(_shapes)
_far.def_impl(jax.jit(_implemented, static_argnames=("kind", "logarithmic", "error", "library")))
mlir.register_lowering(_far, mlir.lower_fun(_implemented, multiple_results=False))
batching.primitive_batchers[_far] = _batched
ad.primitive_jvps[_far] = _moved
ad.primitive_transposes[_far] = _transposed
