"""What is said of a run, of which a part is found out only when somebody asks for it.

A description of flow and space takes longer to write than a short run of a few particles, and most runs in memory are
never asked for it. `Metadata` is a dict in every respect: whoever asks for an entry that is known gets it, and any
other question (all entries, their number, one that is not there) first finds out the rest.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

# Whatever looks at more than one entry, or must know that one is not there. Entries that are written are known.
_WHOLE = (
    *("__contains__", "__delitem__", "__eq__", "__iter__", "__len__", "__ne__", "__or__", "__repr__", "__reversed__"),
    *("__ror__", "clear", "copy", "items", "keys", "pop", "popitem", "setdefault", "values"),
)


class Metadata(dict[str, Any]):
    """A dict of what is `known`, and of what `find` adds to it when it is first needed; what is known stays.

    `find` must say later what it would say now: it may look at nothing that changes.
    """

    _find: Callable[[], Mapping[str, Any]] | None

    def __init__(self, known: Mapping[str, Any], find: Callable[[], Mapping[str, Any]]):
        dict.__init__(self, known)
        self._find = find

    def __missing__(self, key: str) -> Any:
        self._find_out()
        if not dict.__contains__(self, key):
            raise KeyError(key)
        return dict.__getitem__(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        """The entry of that name, or else `default`."""
        if not dict.__contains__(self, key):
            self._find_out()
        return dict.get(self, key, default)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process, and a copy, have a plain dict."""
        return dict, (dict(self),)

    def _find_out(self) -> None:
        if self._find is not None:
            found = self._find()
            for name, value in found.items():
                dict.setdefault(self, name, value)
            self._find = None


def _with_the_rest(name: str) -> Callable[..., Any]:
    plain = getattr(dict, name)

    @wraps(plain)
    def asked(self: Metadata, *arguments: Any) -> Any:
        self._find_out()
        return plain(self, *arguments)

    return asked


for _name in _WHOLE:
    setattr(Metadata, _name, _with_the_rest(_name))
