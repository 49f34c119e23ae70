"""A run that several processes make together: what each of them must know of the others.

Every process runs the same loop over windows, on the same numbers. Process 0 alone has the file; frames come to it one
by one. What process 0 has read from it (a checkpoint), and a wish of any process to stop, are told to all. They gather
and never reduce: a gather that waits for a lost process ends with it, whatever carries the messages.
"""

import io
import json
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from particleflow.errors import UserError
from particleflow.simulation.summation_choice import Summed
from particleflow.simulation.window_loop import RunProgress
from particleflow.trajectory.status import Status

if TYPE_CHECKING:
    from particleflow.simulation.plan import Plan

_STATE, _REST = "state.", "rest"  # names of what is sent


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


def condition_of_first(plan: "Plan", condition: bool) -> bool:
    """Whether a condition holds on process 0."""
    return bool(int(_bytes_of_first(plan, b"1" if condition else b"0")))


def progress_of_first(plan: "Plan", progress: RunProgress | None) -> RunProgress | None:
    """The progress that a run goes on from, which process 0 has read, on every process of a plan; None at its start."""
    if not spans_processes(plan):
        return progress
    sent = _bytes_of_first(plan, b"" if progress is None else _packed(progress))
    return _unpacked(plan, sent) if sent else None


def _packed(progress: RunProgress) -> bytes:
    """A progress as the bytes of arrays by name, with the rest as JSON."""
    arrays = {name: value for name, value in progress._asdict().items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in progress._asdict().items() if name not in (*arrays, "state")}
    leaves = jax.tree_util.tree_leaves(progress.state)
    state = {f"{_STATE}{index}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays, **state, **{_REST: np.frombuffer(json.dumps(rest).encode(), np.uint8)})
    return file.getvalue()


def _unpacked(plan: "Plan", sent: bytes) -> RunProgress:
    """The progress whose bytes these are."""
    with np.load(io.BytesIO(sent), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    rest = json.loads(bytes(arrays.pop(_REST)))
    structure = jax.tree_util.tree_structure(plan.begin())
    leaves = [arrays.pop(f"{_STATE}{index}") for index in range(structure.num_leaves)]
    rest |= {
        "status": Status(rest["status"]),
        "sums": tuple(Summed(*each) for each in rest["sums"]),
        "solvers": tuple((name, count) for name, count in rest["solvers"]),
    }
    return RunProgress(state=jax.tree_util.tree_unflatten(structure, leaves), **arrays, **rest)


def _bytes_of_first(plan: "Plan", given: bytes) -> bytes:
    """The bytes that process 0 gives, on every process of a plan."""
    if not spans_processes(plan):
        return given
    from jax.experimental import multihost_utils

    size = int(multihost_utils.broadcast_one_to_all(np.asarray(len(given))))
    if size == 0:
        return b""
    mine = np.frombuffer(given, np.uint8) if is_first() else np.zeros(size, np.uint8)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(mine)))


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

    mine = json.dumps(description).encode()
    longest = int(np.max(multihost_utils.process_allgather(np.asarray(len(mine)))))
    every = multihost_utils.process_allgather(np.frombuffer(mine.ljust(longest), np.uint8))
    return [json.loads(bytes(row)) for row in np.asarray(every).reshape(-1, longest)]
