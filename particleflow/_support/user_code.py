"""The user's own functions and classes: importing them, comparing their code, and recognising their errors.

A run is resumed only with the code that it began with. `code_of` describes code as bytes that are the same in every
process: the bytecode of a function with the constants, names and inner functions that it uses, the helpers and numbers
of its own module that it refers to, and the methods of a class. Line numbers, names of variables and documentation do
not count. Bytecode belongs to one version of Python: compare it within `PYTHON` only.

The source text would be simpler to hash, but `inspect.getsource` reads the file as it is now. If a module was edited
after it was imported, it shows the new text of a function while the old one still runs: a run of x + 1 would be stored
as one of x + 2, and the next process would silently continue it with x + 2.
"""

import contextlib
import inspect
import sys
import traceback
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PYTHON = str(sys.implementation.cache_tag)

# The packages that particleflow is made of, none of which is the user's: those that compute, and those that read, write
# and show.
_NUMBERS = {
    "particleflow",
    "jax",
    "jaxlib",
    "jaxtyping",
    "jax_finufft",
    "ml_dtypes",
    "diffrax",
    "equinox",
    "lineax",
    "optimistix",
    "numpy",
    "scipy",
}
_DOORS = {
    "h5py", "matplotlib", "PIL", "pydantic", "pydantic_core", "cyclopts", "rich", "lazy_loader", "tomlkit",
    "optax", "sklearn", "wadler_lindig",
}  # fmt: skip
_KNOWN = (_NUMBERS | _DOORS | sys.stdlib_module_names) - {"__main__"}
_GENERATED = "<string>"  # the file name of generated code, such as the methods of a dataclass
_HAS_DOCUMENTATION = 0x4000000  # the flag CO_HAS_DOCSTRING, which code has since Python 3.13


def code_of(values: Iterable[Any]) -> Iterator[bytes]:
    """The code of the user's functions and classes among some objects, each once; nothing for those of packages."""
    seen: set[int] = set()
    for value in values:
        target = value if isinstance(value, types.FunctionType | type) else type(value)
        yield from _described(target, seen)


def blamed(error: BaseException) -> str | None:
    """A sentence about an error that was raised in, or below, the user's code; None for other errors.

    It names the innermost line of the user's code.
    """
    frames = traceback.walk_tb(error.__traceback__)
    own = [(frame.f_code, line) for frame, line in frames if _top(frame.f_globals.get("__name__")) not in _KNOWN]
    if not own:
        return None
    code, line = own[-1]
    place = f"{Path(code.co_filename).name}, line {line}, in {code.co_name}"
    return f"your code ({place}) raised {type(error).__name__}: {str(error)[:300]}"


def _described(target: Any, seen: set[int]) -> Iterator[bytes]:
    """The code of one function, or of a class with its bases and methods, unless it is in `seen` already."""
    if id(target) in seen or _package(target) in _KNOWN:
        return
    seen.add(id(target))
    if isinstance(target, types.FunctionType):
        if target.__code__.co_filename != _GENERATED:
            yield target.__qualname__.encode()
            yield from _of_code(target.__code__)
            yield from _referred(target, seen)
    elif isinstance(target, type):
        for base in target.__bases__:
            yield from _described(base, seen)
        for name in sorted(vars(target)):
            for method in _functions(vars(target)[name]):
                yield from _described(method, seen)


def _package(target: Any) -> str:
    return _top(getattr(target, "__module__", None))


def _top(module: str | None) -> str:
    return str(module or "").partition(".")[0]


def _functions(member: Any) -> list[Any]:
    """The functions behind a member of a class: a method, plain, static or of the class, or a property."""
    if isinstance(member, property):
        return [each for each in (member.fget, member.fset) if each is not None]
    return [inspect.unwrap(getattr(member, "__func__", member))]


def _of_code(code: types.CodeType) -> Iterator[bytes]:
    """Instructions, names and constants of a code object and of those inside it; sets in one order."""
    yield code.co_code
    yield repr((code.co_names, code.co_argcount, code.co_kwonlyargcount, code.co_flags)).encode()
    for constant in code.co_consts[1 if _is_documented(code) else 0 :]:
        if isinstance(constant, types.CodeType):
            yield from _of_code(constant)
        else:
            yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant).encode()


def _is_documented(code: types.CodeType) -> bool:
    """Whether the first constant is a docstring; before Python 3.13, whether it is a text."""
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & _HAS_DOCUMENTATION)
    return not code.co_name.startswith("<") and isinstance(code.co_consts[0], str)


def _referred(function: types.FunctionType, seen: set[int]) -> Iterator[bytes]:
    """What a function refers to in its own module: functions and classes of its package, numbers, texts, arrays."""
    import numpy as np

    for name in sorted(_names(function.__code__) & function.__globals__.keys()):
        found = function.__globals__[name]
        if isinstance(found, int | float | complex | str | bytes | tuple):
            yield f"{name} = {found!r}".encode()
        elif isinstance(getattr(found, "dtype", None), np.dtype):  # an array of NumPy or JAX, but no random key
            values = np.asarray(found)
            yield f"{name} = {values.dtype} {values.shape}".encode() + values.tobytes()
        elif _package(found) == _package(function):
            yield from _described(inspect.unwrap(found) if callable(found) else found, seen)


def _names(code: types.CodeType) -> set[str]:
    """The global names and attributes that a code object and those inside it use."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inner)


@contextlib.contextmanager
def importable(folder: Path, *, active: bool) -> Iterator[None]:
    """Let modules in a folder and in the current one be imported, after all others, while `active`."""
    wanted = [str(folder.resolve()), str(Path.cwd())] if active else []
    added = [path for path in dict.fromkeys(wanted) if path not in sys.path]
    sys.path.extend(added)
    try:
        yield
    finally:
        for path in added:
            sys.path.remove(path)
