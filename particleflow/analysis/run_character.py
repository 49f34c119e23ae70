"""What kind of run this is: what keeps its particles apart, if anything, and which attention can be drawn.

`Trajectory.facts` hold what the metadata state; here they are combined with the frames: which particles are stored, and
whether they still move at the end. What a file does not state is unknown, and such a run is shown like any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from particleflow.analysis.gaussian_tokens import gaussian_rate
from particleflow.trajectory.facts import RunFacts, StoredInteraction, numbers_in
from particleflow.trajectory.position_kernels import factors_of, is_of_positions

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory


@dataclass(frozen=True, eq=False)
class Character(RunFacts):
    """What is known of a run: its `RunFacts`, and what they mean for its frames.

    `count` is never None: how many particles move, of which some may be stored; `picture` is None unless every particle
    is a patch of it. `follows`: all interactions move particles to values carried by data, such as the next state of a
    series, and they still move at the end; `on_places`: the points are values at places that stay, which alone decide
    who sees whom; `blows_up`: they are Gaussian tokens, whose variance has a pole; `attention`: the first attention of
    the particles to each other that can be computed from the stored points, if all particles are stored.
    """

    follows: bool = False
    on_places: bool = False
    blows_up: bool = False
    attention: StoredInteraction | None = None

    @property
    def gathers(self) -> bool:
        """Whether clusters are to be expected: nothing is known that keeps the particles apart."""
        return self.apart is None

    @property
    def apart(self) -> str | None:
        """What keeps the particles apart, in words; None if nothing is known to."""
        if self.is_law:
            return "the Gaussian law that they represent"
        if self.temperature > 0:
            return "noise"
        if self.is_signal:
            return "their times in a signal"
        if self.follows:
            return "a rule learned from data"
        if self.on_places:
            return "the places that they are values of"
        if self.blows_up:
            return "attention that drives them to infinity"
        return "repulsion" if self.repels else None

    def attention_at(self, time: float) -> StoredInteraction | None:
        """The attention at a time, with the β of the schedule if that changes."""
        if self.attention is None or self.schedule is None or self.schedule.name != "beta":
            return self.attention
        return replace(self.attention, beta=self.schedule(time))


def character_of(trajectory: "Trajectory") -> Character:
    """Return the run's facts with what follows from its frames; for an ensemble, for all of its runs together."""
    facts, whole_cloud = trajectory.facts, trajectory.particles is None
    taught = bool(facts.interactions) and all(each.taught for each in facts.interactions)
    known = (each for each in facts.interactions if each.is_attention and each.positions is not None)
    patches = facts.picture is not None and facts.picture[0] * facts.picture[1] == trajectory.count
    seen: dict[str, Any] = {
        "count": trajectory.count if whole_cloud or facts.count is None else facts.count,
        "picture": facts.picture if patches else None,
        "follows": taught and _still_moves(trajectory),
        "on_places": bool(facts.kernels) and all(_is_of_places(table) for table in facts.kernels),
        "blows_up": _blows_up(trajectory),
        "attention": next(known, None) if whole_cloud and facts.space.sees_stored else None,
    }
    return Character(**vars(facts) | seen)


def places_of(trajectory: "Trajectory") -> NDArray[np.float64] | None:
    """Return the fixed places (n, p) of particles whose points are values at them, such as pixels; None for others.

    They are the places of the factor `placed` that every kernel has, or the positions where every kernel depends on
    positions alone (the times of a signal). None also where the file does not state them.
    """
    kernels, positions = trajectory.facts.kernels, trajectory.positions
    if trajectory.particles is not None or trajectory.runs is not None or not kernels:
        return None
    placed = [next((each for each in factors_of(table) if _kind_of(each) == "placed"), None) for table in kernels]
    where = np.arange(trajectory.count, dtype=np.float64) if positions is None else np.asarray(positions, np.float64)
    if all(each is not None for each in placed):
        known = placed[0] if isinstance(placed[0], Mapping) else {}
        return _rows_at(known.get("places"), where)
    return where[:, None] if trajectory.facts.is_signal else None


def _is_of_places(table: Any) -> bool:
    """Whether a kernel depends on positions alone, and one of its factors on the places of these."""
    factors = factors_of(table)
    return any(_kind_of(each) == "placed" for each in factors) and all(is_of_positions(each) for each in factors)


def _blows_up(trajectory: "Trajectory") -> bool:
    """Whether the law of Gaussian tokens holds for the (first) run, with a variance that grows to a pole."""
    run = trajectory if trajectory.runs is None else trajectory.run(0)
    if len(run) == 0 or not np.isfinite(np.asarray(run.points[0], np.float64)).all():
        return False
    return (gaussian_rate(run) or 0.0) > 0


def _still_moves(trajectory: "Trajectory") -> bool:
    """Whether the particles still go from place to place in the last frame, by 1 % of their spread or more."""
    if len(trajectory) < 2:
        return False
    before, after = (np.asarray(trajectory[frame].points, np.float64) for frame in (-2, -1))
    spread = np.sqrt(np.square(after - after.mean(axis=-2, keepdims=True)).mean())
    return bool(np.sqrt(np.square(after - before).mean()) >= 0.01 * spread > 0)


def _kind_of(table: Any) -> Any:
    """The kind in a description, None for what is no table."""
    return table.get("kind") if isinstance(table, Mapping) else None


def _rows_at(table: Any, where: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The rows of a stored table at the positions of the particles, None where it is no table or has no such row."""
    rows = len(table) if isinstance(table, list | tuple) else 0
    numbers = numbers_in(table)
    within = (where == np.floor(where)) & (where >= 0) & (where < rows)
    if not rows or numbers.size == 0 or numbers.size % rows or not within.all():
        return None
    return numbers.reshape(rows, -1)[where.astype(int)]
