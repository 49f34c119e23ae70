"""Errors a user can act on: each says what was expected, what was found and, where it can, what to do.

All have one form: they name the argument and end with what was found:

    Argument `beta` must be positive, but is -1.0.
    Argument `geometry` must be a geometry, but is the class Sphere: write Sphere(...).

The command line turns `UserError` into exit code 2 (the user got something wrong) and every other
`ParticleflowError` into exit code 1 (something failed while running).
"""

from numbers import Integral
from typing import Any


class ParticleflowError(Exception):
    """Base of every error that particleflow raises on purpose."""


class UserError(ParticleflowError):
    """Something handed to particleflow is wrong; nothing has been computed yet."""


class ArgumentError(UserError, ValueError):
    """An argument has a value that cannot be used."""


class ShapeError(ArgumentError):
    """An array has the wrong shape, or two arrays do not fit each other."""


class DtypeError(ArgumentError, TypeError):
    """An array has the wrong number type, or two arrays of different precision meet."""


class KindError(ArgumentError, TypeError):
    """An argument is an object of another kind than is needed, or a class in place of an object."""


class StoreError(ParticleflowError):
    """A trajectory file or run folder cannot be read or written."""


class RunError(ParticleflowError):
    """A simulation could not go on; every frame before the failure is kept.

    `trajectory` is the `Trajectory` up to there if it was in memory; None if it is in a file.
    """

    trajectory: Any = None


class ResumedElsewhere(UserWarning):
    """A run is resumed with other versions or on another machine than it began with: the last digits may differ."""


class ComputedAgain(UserWarning):
    """A run is resumed from before its last stored frame, because a checkpoint cannot be used; no frame is lost."""


class StartMoved(UserWarning):
    """Points that a scenario reads from a file are not on its geometry, and have been moved onto it."""


class ProductMissing(UserWarning):
    """A run is complete, but a summary, figures, a movie or a page of it could not be made."""


def check_kind(value: Any, kind: type | tuple[type, ...], name: str, expected: str) -> None:
    """Raise unless an argument is an object of a kind; a class in place of an object gets a message of its own.

    Parameters: `value` of the argument `name`; `kind`, the class or classes that will do, of which an abstract one is
    named as what to subclass, with its `alternative` if it has one; `expected`, in words.
    """
    if isinstance(value, kind):
        return
    if isinstance(value, type):
        made = f"{value.__name__}(...)"
        raise KindError(f"Argument `{name}` must be {expected}, but is the class {value.__name__}: write {made}.")
    text = repr(value)
    found = text if len(text) <= 100 and "\n" not in text else f"a {type(value).__name__}"
    raise KindError(f"Argument `{name}` must be {expected}, but is {found}.{subclass_hint(kind)}")


def subclass_hint(kind: Any) -> str:
    """A sentence that says how an object of one's own is made for an abstract class; nothing for any other class."""
    if not getattr(kind, "__name__", "").startswith("Abstract"):
        return ""
    other = f", or {kind.alternative}" if hasattr(kind, "alternative") else ""
    return f" One of your own is a subclass of {kind.__name__}{other}."


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """Check that an argument is a whole number that is large enough, and return it as an int.

    Parameters: `value` of the argument `name`, a Python or NumPy integer but no bool; `least`, the smallest allowed.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        expected = "a positive integer" if least == 1 else f"a whole number of at least {least}"
        raise ArgumentError(f"Argument `{name}` must be {expected}, but is {value!r}.")
    return int(value)
