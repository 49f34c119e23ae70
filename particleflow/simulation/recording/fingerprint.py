"""The fingerprint of a run: a hash of every argument that affects the content of its file.

Objects are described by family and kind, their fields and the bytes of their arrays, so that a Gaussian and a Laplace
kernel of one width are as different as two widths. Family and kind are those of a scenario (kernel, gaussian), not the
module in which a class is defined: moving a class keeps every hash. Nothing depends on the process: a function is its
name and the numbers it carries along (defaults, what it closes over, what `partial` has filled in). What the user's own
functions do is hashed apart from that, because it can be compared within one version of Python only.
"""

import functools
import hashlib
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from particleflow._support.arrays import remembered
from particleflow._support.text import kind_of, snake_case
from particleflow._support.user_code import PYTHON, code_of
from particleflow.simulation.observables import name_of
from particleflow.simulation.plan import Plan


def fingerprints(plan: Plan, **recorded: Any) -> dict[str, str]:
    """A hash of every argument of `simulate` that affects the content of the file, by name.

    Parameters: `plan`; `recorded`, the arguments that select what is kept, by name. `max_steps` is left out: a run that
    stays below this limit has the same bits. A `key` is hashed only where there is noise.
    """
    return hashes_of(_decisive(plan) | recorded)


def code_fingerprints(plan: Plan) -> dict[str, str]:
    """A hash of the user's own code in every argument of `simulate` that has some, and the Python it is valid for."""
    return code_hashes_of(_decisive(plan))


def hashes_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """A hash of every argument of any long work, by name: its kind, fields, numbers and functions."""
    return {name: _hash(described(value)) for name, value in arguments.items()}


def code_hashes_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """A hash of the user's own code in every argument that has some, by name, and the Python it is valid for."""
    codes = {name: list(code_of(within(value))) for name, value in arguments.items()}
    return {"python": PYTHON} | {name: _hash(code) for name, code in codes.items() if code}


def brings_code(plan: Plan) -> bool:
    """Whether a run uses functions or classes of the user's own, memoised for objects of one structure."""
    return remembered(_has_code, type(plan.start), plan.flow, plan.discretization, plan.observe, plan.event)


def _has_code(*values: Any) -> bool:
    """Whether code of the user's own is found anywhere within these objects."""
    return any(True for _ in code_of(within(values)))


def _decisive(plan: Plan) -> dict[str, Any]:
    """What affects the numbers of a run, by the argument of `simulate` that it comes from."""
    numbers = plan.numbers
    return {
        "flow": plan.flow,
        "start": (plan.start, plan.runs),
        "times": plan.times,
        "discretization": plan.discretization,
        "rtol": numbers.rtol,
        "atol": numbers.atol,
        "step": (numbers.step, plan.method.adaptive),
        "solver": plan.method.solver,
        "observe": [(name_of(each), each) for each in plan.observe],
        "event": plan.event,
        "key": numbers.key if plan.method.noisy else None,
        "window": (plan.window, plan.growing, *([] if plan.passing is None else [plan.passing])),
    }


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of the arguments whose hashes differ."""
    return [name for name in now if before.get(name) != now[name]]


def _hash(parts: Iterable[bytes]) -> str:
    """SHA-256 of parts, each with its length before it, so that different lists of parts never have the same bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


def described(value: Any, above: tuple[int, ...] = ()) -> Iterator[bytes]:
    """An object as a stream of bytes that is the same in every process.

    `above` holds the identities of the objects that contain it: recursion ends where an object contains itself.
    """
    if _is_array(value):
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        numbers = np.asarray(jax.random.key_data(jnp.asarray(value)) if is_key else value)
        yield f"array {numbers.shape} {numbers.dtype}".encode()
        yield np.ascontiguousarray(numbers).tobytes()
    elif _is_plain(value):
        yield f"{type(value).__name__} {value!r}".encode()
    elif id(value) in above:
        yield b"itself"
    else:
        title, parts = _parts(value)
        yield title
        for name, part in parts.items():
            yield str(name).encode()
            yield from described(part, (*above, id(value)))


def within(value: Any, above: tuple[int, ...] = ()) -> Iterator[Any]:
    """An object and all objects inside it, without arrays and plain values."""
    if _is_array(value) or _is_plain(value) or id(value) in above:
        return
    yield value
    for part in _parts(value)[1].values():
        yield from within(part, (*above, id(value)))


def _is_array(value: Any) -> bool:
    """Whether a value is described by its shape, precision and bytes."""
    return eqx.is_array(value) or isinstance(value, np.ndarray | np.generic)


def _is_plain(value: Any) -> bool:
    """Whether a value is described by its type and its `repr`."""
    return value is None or isinstance(value, str | int | float | complex | bytes | np.dtype | PurePath)


def _parts(value: Any) -> tuple[bytes, dict[Any, Any]]:
    """The name of an object that contains others, and what it contains, in a fixed order."""
    if isinstance(value, Mapping):
        return f"mapping {len(value)}".encode(), {str(key): value[key] for key in sorted(value, key=str)}
    if isinstance(value, list | tuple | set | frozenset):
        title = f"{type(value).__name__} {len(value)}".encode()
        return title, dict(enumerate(value if isinstance(value, list | tuple) else sorted(value, key=repr)))
    return _name(value if callable(value) and hasattr(value, "__qualname__") else type(value)), _carried(value)


def _carried(value: Any) -> dict[str, Any]:
    """What an object carries along: fields; defaults and closure of a function; arguments of a partial one."""
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        return {}
    if is_dataclass(value):
        return {each.name: getattr(value, each.name, None) for each in fields(value)}
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, types.MethodType):
        return {"self": value.__self__, "func": value.__func__}
    if isinstance(value, types.FunctionType):
        held = {"defaults": value.__defaults__, "keyword defaults": value.__kwdefaults__}
        return held | _closure(value)
    if hasattr(value, "__wrapped__"):  # a compiled function
        return {"wrapped": value.__wrapped__}
    return {name: vars(value)[name] for name in sorted(vars(value))} if hasattr(value, "__dict__") else {}


def _closure(function: types.FunctionType) -> dict[str, Any]:
    """The variables that a function takes from the function around it; none while one of them is not set yet."""
    try:
        return dict(inspect.getclosurevars(function).nonlocals)
    except ValueError:
        return {}


def _name(value: Any) -> bytes:
    """Family and kind of an object of this package, wherever it is defined; module and name of any other."""
    module, name = str(getattr(value, "__module__", "")), getattr(value, "__qualname__", type(value).__name__)
    if not _is_ours(value):
        return f"{module}.{name}".encode()
    kind = kind_of(value) if isinstance(value, type) else snake_case(name)
    return f"particleflow {_family(value)} {kind}".encode()


def _family(value: Any) -> str:
    """The root of a class's chain of first bases inside this package: AbstractKernel for every kernel."""
    if not isinstance(value, type):
        return "function"
    base = value
    while base.__bases__ and _is_ours(base.__bases__[0]):
        base = base.__bases__[0]
    return base.__name__


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "particleflow"
