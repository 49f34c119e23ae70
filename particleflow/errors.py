"""Errors a user can act on: each says what was expected, what was found and, where it can, what to do.

The command line turns `UserError` into exit code 2 (the user got something wrong) and every other
`ParticleflowError` into exit code 1 (something failed while running).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory


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


class StoreError(ParticleflowError):
    """A trajectory file or run folder cannot be read or written."""


class RunError(ParticleflowError):
    """A simulation could not go on; every frame before the failure is kept, in `trajectory` if it was in memory."""

    trajectory: "Trajectory | None" = None


class ResumedElsewhere(UserWarning):
    """A run goes on with other versions or on another machine than it began with: the last digits may differ."""


class ComputedAgain(UserWarning):
    """A run goes on from before its last stored frame, because a checkpoint cannot be used; no frame is lost by it."""
