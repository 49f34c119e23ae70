"""The group of processes that make one run together, and how a process joins it.

A group is given by options, or found in the environment that `srun` and `mpirun` give to the tasks they start. JAX
connects its processes; what goes wrong while it does becomes a sentence, in time.
"""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from particleflow.app.processes.watch import Watch
from particleflow.errors import RunError, UserError

CONNECT_SECONDS = 60  # in which all processes must have come
_RETRY_SECONDS = 0.2
_JAX_SECONDS = 90  # of silence after which JAX ends a process; the watch of this package does so sooner
# Numbers of tasks and of this task, as srun and mpirun set them for each task that they start.
_TASKS = (("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))


@dataclass(frozen=True)
class Group:
    """The processes of one run: their `count`, the `index` of this one, and the `coordinator` HOST:PORT of process 0.

    `coordinator` is None where JAX finds it in the environment of a scheduler.
    """

    count: int
    index: int
    coordinator: str | None


def find_group(coordinator: str | None, processes: int | None, process: int | None) -> Group | None:
    """The group that this process belongs to, by its options or its scheduler; None where it is alone."""
    given = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    missing = [name for name, value in given.items() if value is None]
    if not missing:
        assert coordinator is not None
        assert processes is not None
        assert process is not None
        return _given(coordinator, processes, process)
    if len(missing) < len(given):
        raise UserError(
            "Options --coordinator, --processes and --process belong together, but "
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing."
        )
    for tasks, task in _TASKS:
        count, index = os.environ.get(tasks, ""), os.environ.get(task, "")
        if count.isdecimal() and index.isdecimal() and int(count) > 1:
            return Group(int(count), int(index), None)
    return None


def _given(coordinator: str, processes: int, process: int) -> Group:
    """The group of three options, checked."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"Option --coordinator must be HOST:PORT, such as node1:7373, but is {coordinator!r}.")
    if processes < 1 or not 0 <= process < processes:
        raise UserError(
            f"Option --process must be a number from 0 to {processes - 1}, with --processes {processes}, but is "
            f"{process}."
        )
    return Group(processes, process, coordinator)


@contextlib.contextmanager
def joined(group: Group) -> Iterator[Watch]:
    """Connect this process to its group for a block, and watch the others.

    At the end of the block all processes let each other go. What is written to stdout meanwhile goes to stderr: the
    library that connects processors says there that it has.
    """
    with _stdout_to_stderr():
        _connect(group)
        watch = Watch.begun(group.count, group.index)
        with _ending(watch):
            yield watch


@contextlib.contextmanager
def _ending(watch: Watch) -> Iterator[None]:
    """Part from the other processes at the end of a block, or tell them why this one has failed."""
    import jax

    from particleflow.simulation.processes import ProcessesDifferError

    try:
        yield
    except (RunError, ProcessesDifferError) as error:  # which all processes raise by themselves
        if not watch.end():
            watch.fail(str(error))
        raise
    except BaseException as error:
        watch.fail(str(error) or type(error).__name__)
        raise
    watch.end()
    jax.distributed.shutdown()


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Write what the process writes to stdout, in whatever language, to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _connect(group: Group) -> None:
    """Connect this process to its group, by JAX."""
    import jax

    if group.coordinator is not None and group.index > 0:
        _wait_for(group.coordinator)
    named = group.coordinator is not None
    try:
        jax.distributed.initialize(
            group.coordinator, group.count if named else None, group.index if named else None,
            initialization_timeout=CONNECT_SECONDS, heartbeat_timeout_seconds=_JAX_SECONDS,
        )  # fmt: skip
    except (RuntimeError, ValueError) as error:
        place = group.coordinator or "the address that the scheduler gives"
        raise RunError(
            f"Process {group.index} of {group.count} has not found all others within {CONNECT_SECONDS} s at {place}: "
            f"{str(error).splitlines()[0][:200]}"
        ) from error


def _wait_for(coordinator: str) -> None:
    """Return when process 0 answers at its address; an error if it does not in time."""
    host, _, port = coordinator.rpartition(":")
    end, reason = time.monotonic() + CONNECT_SECONDS, ""
    while time.monotonic() < end:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except socket.gaierror as error:
            raise UserError(f"Option --coordinator names the host {host!r}, which is not known: {error}.") from error
        except OSError as error:
            reason = error.strerror or str(error)
            time.sleep(_RETRY_SECONDS)
        else:
            return
    raise RunError(
        f"No process answers at {coordinator} ({reason}), {CONNECT_SECONDS} s after this one began: start the one with "
        "--process 0 there, and let its port through firewalls."
    )
