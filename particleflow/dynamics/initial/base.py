"""The base of all initial clouds: a start drawn by a key, its density where that is known, and checks of counts."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.representation import shown
from particleflow._support.text import kind_of
from particleflow.dynamics.initial.density import Density
from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.measure import Measure

# A cloud of more numbers than this (2 GiB in float64) is taken for a typing error.
MAXIMUM_NUMBERS = 2**28


class Start(NamedTuple):
    """A measure to begin with, and what is known of its particles: labels, words, the places of patches in a picture.

    `picture` is (rows, columns) of a cloud that is an image, in reading order; `image` (rows, columns) or (rows,
    columns, channels) of the image that every point is, or begins with, such as a patch. `words` are not part of the
    measure: no computation uses them, and as static data every text would compile its own program.
    """

    measure: Measure
    labels: np.ndarray | None = None
    picture: tuple[int, ...] | None = None
    words: np.ndarray | None = None
    image: tuple[int, ...] | None = None


class AbstractInitial(eqx.Module):
    """A cloud to begin with; `counted` is true where the number of particles is an argument, not the cloud's own."""

    counted: ClassVar[bool] = True

    @abc.abstractmethod
    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure, with its labels."""

    def density(self, key: Array) -> Density | None:
        """The density that points are drawn from, None where there is none or it is unknown.

        Parameters: `key`, that of the scenario, for clouds whose law is drawn, too.
        """
        return None

    def sample(self, key: Array, count: int | None = None) -> Float[Array, "count d"]:
        """The points of the cloud alone."""
        return self.start(key, count).measure.points

    def __repr__(self) -> str:
        return shown(self)


def check_count(count: Any, dimension: int = 1) -> int:
    """The number of particles, refused where the cloud would not fit into memory."""
    if count is None:
        raise ArgumentError("Argument `count` is needed: how many particles the cloud has.")
    number = whole_number(count, "count")
    if number * dimension > MAXIMUM_NUMBERS:
        raise ArgumentError(
            f"Argument `count` is {number}: with dimension {dimension} the cloud holds more than "
            f"{MAXIMUM_NUMBERS} numbers; use fewer particles."
        )
    return number


def check_own_count(count: int | None, found: int) -> None:
    """Raise if `count` is given for a cloud whose size is fixed, and is another number."""
    if count is not None and count != found:
        raise ArgumentError(f"Argument `count` is {count}, but this cloud has {found} particles of its own.")


def check_affine(scale: Array, centre: Array, dimension: int) -> None:
    """Raise unless x = centre + scale ξ maps R^dimension into itself."""
    if centre.ndim > 1 or (centre.ndim == 1 and centre.shape != (dimension,)):
        raise ShapeError(f"Argument `centre` must be a number or {dimension} of them, but has shape {centre.shape}.")
    if scale.ndim and scale.shape[0] != dimension:
        raise ShapeError(f"Argument `scale` has shape {scale.shape}, but must map R^{dimension} into itself.")


def density_of(start: Any) -> Any:
    """The density of an initial kind, refused where it is unknown; any other start as it is."""
    if not isinstance(start, AbstractInitial):
        return start
    density = start.density(jax.random.key(0))
    if density is None:
        raise ArgumentError(
            f"The initial kind {kind_of(type(start))} has no known density; give points, drawn by "
            "`.sample(key, count)` (in a scenario: a `count`), where they can be counted into cells."
        )
    return density
