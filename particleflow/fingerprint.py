"""The identity of a run: a hash of everything that decides its numbers.

Objects are described by their class, their fields and the bytes of their arrays, so that a Gaussian and a Laplace
kernel of one width are as different as two widths. Nothing in it depends on the process: a function is its name.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from particleflow.observables import name_of
from particleflow.plan import Plan


def fingerprint(plan: Plan) -> str:
    """A hash of start, flow, discretization, times, method, observables, event and window."""
    digest = hashlib.sha256()
    decisive = (
        plan.start, plan.flow, plan.discretization, plan.event, plan.numbers, plan.method, plan.window, plan.runs,
        plan.times, [(name_of(each), each) for each in plan.observe],
    )  # fmt: skip
    for part in described(decisive):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def described(value: Any) -> Iterator[bytes]:
    """An object as a stream of bytes that another process would write the same way."""
    if eqx.is_array(value) or isinstance(value, np.ndarray | np.generic):
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        numbers = np.asarray(jax.random.key_data(jnp.asarray(value)) if is_key else value)
        yield f"array {numbers.shape} {numbers.dtype}".encode()
        yield np.ascontiguousarray(numbers).tobytes()
    elif is_dataclass(value) and not isinstance(value, type):
        yield _name(type(value))
        for each in fields(value):
            yield each.name.encode()
            yield from described(getattr(value, each.name, None))
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from described(value[key])
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} {len(value)}".encode()
        for item in value:
            yield from described(item)
    elif isinstance(value, jax.tree_util.Partial):
        yield b"partial"
        yield from described((value.func, value.args, value.keywords))
    elif value is None or isinstance(value, str | int | float | complex | bytes):
        yield f"{type(value).__name__} {value!r}".encode()
    else:
        yield _name(value if callable(value) else type(value))


def _name(value: Any) -> bytes:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}".encode()
