"""What kind of run this is: noise, repulsion, attention, layers, a schedule, a picture. Figures are chosen by it.

Beside the tables that `facts` reads, a simulation stores

    closed form         whether the points stand for a normal law, whose mean and covariance are all that moves
    interacts only      whether nothing but its interactions moves the particles, no constraint either
    temperature         of the noise that every particle has for itself
    common temperature  of the noise that all share
    count               how many particles move, of which some may be stored
    changes             [times at which the field jumps: layer boundaries, kinks of a schedule]
    schedule            {name, times, values} of a parameter that changes with time, such as β
    picture             [rows, columns] of the patches of an image

Nothing of it is trusted, and what a file does not say is unknown: an old run is shown like any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from particleflow.analysis.facts import (
    Interaction,
    LinearMap,
    interactions_of,
    interacts_only,
    numbers_in,
    space_of,
)
from particleflow.analysis.positions import factors_of, position_kernel

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory


_SCALES = ("width", "radius")


@dataclass(frozen=True)
class Schedule:
    """A parameter `name` with `values` at `times`; in between it is a straight line."""

    name: str
    times: NDArray[np.float64]
    values: NDArray[np.float64]

    def __call__(self, time: float) -> float:
        """The value at a time."""
        return float(np.interp(time, self.times, self.values))


@dataclass(frozen=True)
class Character:
    """What is known of a run: see the module's first lines.

    `is_signal`: the points are values at times, and no kernel looks at them. `follows`: to the end the particles are
    sent on by the values of data, such as what came next in a series. `betas` are all inverse temperatures
    of its kernels, `scales` (name, length) their widths and radii.
    """

    interacts_only: bool
    is_law: bool
    temperature: float
    common_temperature: float
    count: int
    repels: bool
    is_signal: bool
    follows: bool
    betas: tuple[float, ...]
    scales: tuple[tuple[str, float], ...]
    attention: Interaction | None
    schedule: Schedule | None
    changes: tuple[float, ...]
    picture: tuple[int, int] | None

    @property
    def gathers(self) -> bool:
        """Whether clusters are to be expected: nothing is known that keeps the particles apart."""
        return self.apart is None

    @property
    def apart(self) -> str | None:
        """What keeps the particles apart, if anything is known to."""
        if self.is_law:
            return "the Gaussian law that they stand for"
        if self.temperature > 0:
            return "noise"
        if self.is_signal:
            return "the times of the signal whose values they are"
        if self.follows:
            return "the rule that they follow, which data teach"
        return "repulsion" if self.repels else None

    def attention_at(self, time: float) -> Interaction | None:
        """The attention at a time, with the β of the schedule if that changes."""
        from dataclasses import replace

        if self.attention is None or self.schedule is None or self.schedule.name != "beta":
            return self.attention
        return replace(self.attention, beta=self.schedule(time))


def character_of(trajectory: "Trajectory") -> Character:
    """Return what is known of the kind of a run; of an ensemble, of all of its runs together."""
    metadata: Any = trajectory.metadata
    table = metadata if isinstance(metadata, Mapping) else {}
    interactions = interactions_of(trajectory)
    values = [each.value for each in interactions]
    picture, count = numbers_in(table.get("picture")), numbers_in(table.get("count"))
    whole_cloud = trajectory.particles is None
    whole = picture.size == 2 and (picture == np.floor(picture)).all() and picture.prod() == trajectory.count
    changes = np.unique(numbers_in(table.get("changes")))
    return Character(
        interacts_only=interacts_only(trajectory),
        is_law=table.get("closed form") is True,
        temperature=float(numbers_in(table.get("temperature")).max(initial=0.0)),
        common_temperature=float(numbers_in(table.get("common temperature")).max(initial=0.0)),
        count=trajectory.count if whole_cloud or count.size != 1 else int(count[0]),
        is_signal=_is_signal(_kernels_of(table)),
        follows=bool(interactions) and all(each.taught for each in interactions) and _moves_on(trajectory),
        repels=bool(values) and all(is_negative(value) for value in values),
        betas=_of_kernels(trajectory, "beta"),
        scales=tuple((name, each) for name in _SCALES for each in _of_kernels(trajectory, name)),
        attention=_attention(trajectory, interactions),
        schedule=_schedule(table.get("schedule")),
        changes=tuple(changes.tolist()),
        picture=(int(picture[0]), int(picture[1])) if whole else None,
    )


def places_of(trajectory: "Trajectory") -> NDArray[np.float64] | None:
    """Return where the particles of a run are (n, p), if their points are values that move on places that stay.

    It is so where every kernel has a factor of `placed`, whose places they are, or looks at positions alone, as at the
    times of a signal; then places are positions. None for all else, and where a file does not say it.
    """
    kernels, positions = _kernels_of(trajectory.metadata), trajectory.positions
    if trajectory.particles is not None or trajectory.runs is not None or not kernels:
        return None
    placed = [next((each for each in factors_of(table) if _kind_of(each) == "placed"), None) for table in kernels]
    where = np.arange(trajectory.count, dtype=np.float64) if positions is None else np.asarray(positions, np.float64)
    if all(each is not None for each in placed):
        known = placed[0] if isinstance(placed[0], Mapping) else {}
        return _rows_at(known.get("places"), where)
    return where[:, None] if _is_signal(kernels) else None


def _moves_on(trajectory: "Trajectory") -> bool:
    """Whether the particles still go from place to place in the last frame, by 1 % of their spread or more."""
    if len(trajectory) < 2:
        return False
    before, after = (np.asarray(trajectory[frame].points, np.float64) for frame in (-2, -1))
    spread = np.sqrt(np.square(after - after.mean(axis=-2, keepdims=True)).mean())
    return bool(np.sqrt(np.square(after - before).mean()) >= 0.01 * spread > 0)


def _kernels_of(metadata: Mapping[str, Any]) -> list[Any]:
    """The descriptions of the kernels of a run, one for each interaction; without any where a file has no such list."""
    rows = metadata.get("interactions")
    return (
        [row.get("kernel") if isinstance(row, Mapping) else {} for row in rows]
        if isinstance(rows, list | tuple)
        else []
    )


def _is_signal(kernels: list[Any]) -> bool:
    """Whether every kernel looks at how far positions are apart, and at nothing else."""
    known = [position_kernel(table) for table in kernels]
    return bool(known) and all(each is not None and each.is_of_distance for each in known)


def _kind_of(table: Any) -> Any:
    return table.get("kind") if isinstance(table, Mapping) else None


def _rows_at(table: Any, where: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The rows of a stored table at the positions of the particles, None where it is no table or has no such row."""
    rows = len(table) if isinstance(table, list | tuple) else 0
    numbers = numbers_in(table)
    within = (where == np.floor(where)) & (where >= 0) & (where < rows)
    if not rows or numbers.size == 0 or numbers.size % rows or not within.all():
        return None
    return numbers.reshape(rows, -1)[where.astype(int)]


def is_negative(value: LinearMap | None) -> bool:
    """Whether ⟨x, Vx⟩ < 0 for all x ≠ 0, of a number, a diagonal or a matrix V; of an unknown one, no."""
    if value is None:
        return False
    array = np.asarray(value, dtype=np.float64)
    if array.ndim < 2:
        return bool((array < 0).all())
    if array.shape[0] != array.shape[1]:
        return False
    return bool(np.linalg.eigvalsh((array + array.T) / 2).max() < 0)


def _attention(trajectory: "Trajectory", interactions: tuple[Interaction, ...]) -> Interaction | None:
    """The first attention of the particles to each other that can be computed from the stored points, if all are."""
    if not space_of(trajectory).sees_stored or trajectory.particles is not None:
        return None
    known = (each for each in interactions if each.is_attention and each.positions is not None)
    return next(known, None)


def _of_kernels(trajectory: "Trajectory", name: str) -> tuple[float, ...]:
    """Every number of this name that the kernels of a run, or of the runs of an ensemble, have, in increasing order."""
    tables = _kernels_of(trajectory.metadata)
    stored = [numbers_in(table.get(name)) for table in tables if isinstance(table, Mapping)]
    read = [each.beta for each in interactions_of(trajectory) if name == "beta" and each.beta is not None]
    return tuple(np.unique(np.concatenate([*stored, np.asarray(read, float)])).tolist())


def _schedule(table: Any) -> Schedule | None:
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        return None
    times, values = numbers_in(table.get("times")), numbers_in(table.get("values"))
    if times.size < 2 or times.shape != values.shape or (np.diff(times) <= 0).any():
        return None
    return Schedule(str(table["name"]), times, values)
