"""The code of the functions and classes that a user brings: where it is found, what it does, whose errors are its own.

`code_of` gives it as bytes that another process would write the same way.
What a function does is its bytecode with the constants, names and inner functions it uses, the helpers and numbers that
it finds beside itself in its module, and the methods of a class. Where it stands in a file, what its variables are
called and its documentation do not count. Bytecode belongs to one version of Python: compare it within `PYTHON` only.
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

# What particleflow is made of, none of it the user's; a run keeps the versions of those that decide its numbers.
_NUMBERS = {
    "particleflow",
    "jax",
    "jaxlib",
    "jaxtyping",
    "diffrax",
    "equinox",
    "lineax",
    "optimistix",
    "numpy",
    "scipy",
}
_DOORS = {"h5py", "matplotlib", "PIL", "pydantic", "pydantic_core", "cyclopts", "rich", "lazy_loader", "tomlkit"}
_KNOWN = (_NUMBERS | _DOORS | sys.stdlib_module_names) - {"__main__"}
_MADE = "<string>"  # where code was made, not written: the methods of a dataclass
_HAS_DOCUMENTATION = 0x4000000  # told by code since Python 3.13


def code_of(values: Iterable[Any]) -> Iterator[bytes]:
    """The code of the user's functions and classes among some objects, each once; nothing for those of others."""
    seen: set[int] = set()
    for value in values:
        target = value if isinstance(value, types.FunctionType | type) else type(value)
        yield from _described(target, seen)


def blamed(error: BaseException) -> str | None:
    """What to say of an error that was raised by code of the user's, or by what that code called; None of others."""
    frames = traceback.walk_tb(error.__traceback__)
    own = [(frame.f_code, line) for frame, line in frames if _top(frame.f_globals.get("__name__")) not in _KNOWN]
    if not own:
        return None
    code, line = own[-1]
    place = f"{Path(code.co_filename).name}, line {line}, in {code.co_name}"
    return f"your code ({place}) raised {type(error).__name__}: {str(error)[:300]}"


def _described(target: Any, seen: set[int]) -> Iterator[bytes]:
    if id(target) in seen or _package(target) in _KNOWN:
        return
    seen.add(id(target))
    if isinstance(target, types.FunctionType):
        if target.__code__.co_filename != _MADE:
            yield target.__qualname__.encode()
            yield from _of_code(target.__code__)
            yield from _beside(target, seen)
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
    yield code.co_code
    yield repr((code.co_names, code.co_argcount, code.co_kwonlyargcount, code.co_flags)).encode()
    for constant in code.co_consts[1 if _is_documented(code) else 0 :]:
        if isinstance(constant, types.CodeType):
            yield from _of_code(constant)
        else:
            yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant).encode()


def _is_documented(code: types.CodeType) -> bool:
    """Whether the first constant is a documentation; before Python 3.13 a text in its place is one."""
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & _HAS_DOCUMENTATION)
    return not code.co_name.startswith("<") and isinstance(code.co_consts[0], str)


def _beside(function: types.FunctionType, seen: set[int]) -> Iterator[bytes]:
    """What a function finds in its own module: functions and classes of its own package, and plain numbers."""
    for name in sorted(_names(function.__code__) & function.__globals__.keys()):
        found = function.__globals__[name]
        if isinstance(found, int | float | complex | str):
            yield f"{name} = {found!r}".encode()
        elif _package(found) == _package(function):
            yield from _described(inspect.unwrap(found) if callable(found) else found, seen)


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inner)


@contextlib.contextmanager
def importable(folder: Path, *, active: bool) -> Iterator[None]:
    """While active, modules in a folder and in the current one can be imported (after all others)."""
    wanted = [str(folder.resolve()), str(Path.cwd())] if active else []
    added = [path for path in dict.fromkeys(wanted) if path not in sys.path]
    sys.path.extend(added)
    try:
        yield
    finally:
        for path in added:
            sys.path.remove(path)
