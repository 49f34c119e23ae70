"""What kind of run this is: noise, repulsion, attention, layers, a schedule, a picture. Figures are chosen by it.

Beside the tables that `facts` reads, a simulation stores

    drift         the kind of its drift, "attend", "sum", "layers", …
    temperature   of the noise that every particle has for itself
    changes       [times at which the field jumps: layer boundaries, kinks of a schedule]
    schedule      {name, times, values} of a parameter that changes with time, such as β
    picture       [rows, columns] of the patches of an image

Nothing of it is trusted, and what a file does not say is unknown: an old run is shown like any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from particleflow.analysis.facts import Interaction, LinearMap, interactions_of, numbers_in, space_of

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory


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
    """What is known of a run: see the module's first lines; `betas` are all inverse temperatures of its kernels."""

    drift: str | None
    temperature: float
    repels: bool
    betas: tuple[float, ...]
    attention: Interaction | None
    schedule: Schedule | None
    changes: tuple[float, ...]
    picture: tuple[int, int] | None

    @property
    def gathers(self) -> bool:
        """Whether clusters are to be expected: neither noise nor repulsion keeps the particles apart."""
        return self.temperature == 0 and not self.repels

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
    drift, picture = table.get("drift"), numbers_in(table.get("picture"))
    whole = picture.size == 2 and (picture == np.floor(picture)).all() and picture.prod() == trajectory.count
    changes = np.unique(numbers_in(table.get("changes")))
    return Character(
        drift=drift if isinstance(drift, str) else None,
        temperature=float(numbers_in(table.get("temperature")).max(initial=0.0)),
        repels=bool(values) and all(is_negative(value) for value in values),
        betas=_betas(trajectory),
        attention=_attention(trajectory, interactions),
        schedule=_schedule(table.get("schedule")),
        changes=tuple(changes.tolist()),
        picture=(int(picture[0]), int(picture[1])) if whole else None,
    )


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
    """The first attention of the particles to each other that can be computed from the stored points."""
    if not space_of(trajectory).sees_stored:
        return None
    known = (each for each in interactions if each.is_attention and each.positions is not None)
    return next(known, None)


def _betas(trajectory: "Trajectory") -> tuple[float, ...]:
    """Every β that a run or the runs of an ensemble have, in increasing order."""
    rows = trajectory.metadata.get("interactions")
    tables = [row.get("kernel") for row in rows if isinstance(row, Mapping)] if isinstance(rows, list | tuple) else []
    stored = [numbers_in(table.get("beta")) for table in tables if isinstance(table, Mapping)]
    read = [each.beta for each in interactions_of(trajectory) if each.beta is not None]
    return tuple(np.unique(np.concatenate([*stored, np.asarray(read, float)])).tolist())


def _schedule(table: Any) -> Schedule | None:
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        return None
    times, values = numbers_in(table.get("times")), numbers_in(table.get("values"))
    if times.size < 2 or times.shape != values.shape or (np.diff(times) <= 0).any():
        return None
    return Schedule(str(table["name"]), times, values)
