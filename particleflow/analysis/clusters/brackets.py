"""When clusters change: the two saved times between which it happened.

Frames show that something changed between two of them, not when. Every time of a merge, of the end of a plateau or of a
collapse is therefore a `Bracket`, made here from the frame in which the change is first seen. Where one number is
needed (a line in a picture, a mean over runs), it is the middle of the bracket, off by at most the half width. All
changes between the same two frames share one bracket. What narrows it is said by `ChangeTimes`: a map changes at whole
times only, and a run that its event ended at a merge has that merge's time exactly, the time of its last frame.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_DIGITS = range(4, 18)  # significant digits of a bracket in words: four, or as many as tell its ends apart


class Bracket(NamedTuple):
    """The saved times around a change at an unknown time t: `before` < t ≤ `after`."""

    before: float
    after: float

    @property
    def middle(self) -> float:
        """The time that stands for the bracket, ½ (before + after)."""
        return self.before + self.half_width

    @property
    def half_width(self) -> float:
        """By how much the middle can be off, ½ (after − before)."""
        return 0.5 * (self.after - self.before)

    def __str__(self) -> str:
        """ "6589–6901"; one number where both are the same."""
        if self.before == self.after:
            return f"{self.after:.4g}"
        texts = ((f"{self.before:.{digits}g}", f"{self.after:.{digits}g}") for digits in _DIGITS)
        return "–".join(next(pair for pair in texts if pair[0] != pair[1]))

    def to_dict(self) -> dict[str, Any]:
        """Return the middle as `time`, the `half_width`, and both times as `between`, for JSON."""
        return {"time": self.middle, "half_width": self.half_width, "between": tuple(self)}


class ChangeTimes(NamedTuple):
    """What is known of the times of changes beside the frames around them.

    whole: changes are at whole numbers, the layers or steps of a map; exact_end: what is first seen in the last frame
    happened at its time.
    """

    whole: bool = False
    exact_end: bool = False


BETWEEN_FRAMES = ChangeTimes()


def bracket_of(times: ArrayLike, frame: int, changes: ChangeTimes = BETWEEN_FRAMES) -> Bracket:
    """Return the bracket of a change that is first seen in a frame: the times of the frame before and of this one.

    What is there in the first frame, or changes after the last one, has that frame's time twice.

    times: (T,) of all frames; frame: 0 … T; changes: what is known of when they happen.
    """
    clock = np.asarray(times, dtype=np.float64)
    if changes.exact_end and frame == clock.size - 1:
        return Bracket(float(clock[-1]), float(clock[-1]))
    before, after = float(clock[max(frame - 1, 0)]), float(clock[min(frame, clock.size - 1)])
    return Bracket(min(before + 1.0, after) if changes.whole else before, after)


def bracket_after(times: ArrayLike, holds: ArrayLike, changes: ChangeTimes = BETWEEN_FRAMES) -> Bracket | None:
    """Return the bracket of the change after which something never holds again; None if it holds in the last frame.

    times: (T,); holds: (T,), whether it holds in each frame; if in none, the first frame's time is returned twice;
    changes: as of `bracket_of`.
    """
    frames = np.flatnonzero(holds)
    first_without = int(frames[-1]) + 1 if frames.size else 0
    return None if first_without == np.size(times) else bracket_of(times, first_without, changes)
