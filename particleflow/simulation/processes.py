"""A run that several processes make together: what each of them must know of the others.

Every process runs the same loop over windows, on the same numbers. Process 0 alone has the file; frames come to it one
by one. What process 0 has read from it (a checkpoint), and a wish of any process to stop, are told to all. They gather
and never reduce: a gather that waits for a lost process ends with it, whatever carries the messages.
"""

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.simulation.plan import Plan


def is_first() -> bool:
    """Whether this is process 0, or the only one."""
    return jax.process_index() == 0


def spans_processes(plan: "Plan") -> bool:
    """Whether the devices of a plan belong to several processes."""
    return plan.devices is not None and len({device.process_index for device in plan.devices}) > 1


def any_process(plan: "Plan", condition: bool) -> bool:
    """Whether a condition holds on any process of a plan."""
    if not spans_processes(plan):
        return condition
    from jax.experimental import multihost_utils

    return bool(np.any(multihost_utils.process_allgather(np.asarray(condition))))


def from_first(plan: "Plan", value: Any) -> Any:
    """The value that process 0 has, on every process of a plan."""
    if not spans_processes(plan):
        return value
    from jax.experimental import multihost_utils

    given = pickle.dumps(value) if is_first() else b""
    size = int(multihost_utils.broadcast_one_to_all(np.asarray(len(given))))
    sent = np.frombuffer(given.ljust(size, b"\0"), np.uint8)
    return pickle.loads(bytes(np.asarray(multihost_utils.broadcast_one_to_all(sent))))


class ProcessesDifferError(UserError):
    """The processes that should make one run together were given different ones; all of them raise it."""


def check_alike(plan: "Plan") -> None:
    """Raise on every process unless all make the same run, with the same versions and as many devices each."""
    from particleflow.simulation.recording.fingerprint import code_fingerprints, fingerprints
    from particleflow.simulation.recording.provenance import surroundings

    assert plan.devices is not None
    around = surroundings(plan.devices[0])
    description = {f"`{name}`": each for name, each in fingerprints(plan).items()} | {
        "the code of the run": str(code_fingerprints(plan)),
        "the versions of packages": str(around["versions"]),
        "the native sum": around["native sum"],
        "the number of devices": str(len(plan.devices)),
    }
    others = [each for each in _described_by_all(description) if each != description]
    if others:
        names = sorted(name for name in description if any(each.get(name) != description[name] for each in others))
        differ = "differs" if len(names) == 1 else "differ"
        raise ProcessesDifferError(
            f"The processes of this run do not agree: {' and '.join(names)} {differ} among them. Give all of them the "
            "same scenario, options and versions."
        )


def _described_by_all(description: dict[str, Any]) -> list[dict[str, Any]]:
    """The descriptions of all processes."""
    from jax.experimental import multihost_utils

    mine = pickle.dumps(description)
    longest = int(np.max(multihost_utils.process_allgather(np.asarray(len(mine)))))
    every = multihost_utils.process_allgather(np.frombuffer(mine.ljust(longest, b"\0"), np.uint8))
    return [pickle.loads(bytes(row)) for row in np.asarray(every).reshape(-1, longest)]


def frames_at_first(values: jax.Array, count: int, replicate: Callable[[jax.Array, Any], jax.Array]) -> np.ndarray:
    """Frames whose rows lie on many devices, as an array on process 0; elsewhere each is 0, or NaN if not finite.

    Parameters: `values`, (frames, rows, …); `count`, the rows that stand for particles; `replicate(values, index)`,
    one frame on every device. No process but the first holds more than one frame.
    """
    shape = (values.shape[0], count, *values.shape[2:])
    first = is_first()
    kept = np.empty(shape if first else shape[:1], values.dtype)
    for index in range(len(kept)):
        frame = np.asarray(replicate(values, np.asarray(index)))[:count]
        kept[index] = frame if first else np.sum(0 * frame)
    return kept if first else np.broadcast_to(kept.reshape(-1, *(1,) * (len(shape) - 1)), shape)
