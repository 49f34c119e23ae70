"""The group of processes that make one run together, and how a process joins it.

A group is given by options, or found in the environment that `srun` and `mpirun` give to the tasks they start. Process
0 listens at the coordinator's address. When all others have come it tells them where JAX's service will be, and JAX
connects them; the connections to process 0 stay, for signs of life (`watch`). So a process that does not come, or a
coordinator that is not there, is known before JAX waits for it, which cannot be interrupted.
"""

import contextlib
import ipaddress
import os
import re
import socket
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from particleflow.app.processes.watch import Line, Watch
from particleflow.errors import ParticleflowError, RunError, UserError

CONNECT_SECONDS = 60.0  # in which all processes must have come
_RETRY_SECONDS = 0.2
_FIRST_LINE_SECONDS = 5.0  # for a process that has come to say its number
_FIRST_PORT, _PORTS = 49152, 16384  # ports that no service has by convention
_JAX_SECONDS = 90  # of silence after which JAX ends a process; the watch of this package does so sooner
_LONGEST = 64  # bytes of a line


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of one run: their `count`, the `index` of this one, and where process 0 listens."""

    count: int
    index: int
    host: str
    port: int


def find_group(coordinator: str | None, processes: int | None, process: int | None) -> ProcessGroup | None:
    """The group that this process belongs to, by its options or its scheduler; None where it is alone."""
    if (processes is None) != (process is None):
        raise UserError("Options --processes and --process belong together, but one of them is missing.")
    if processes is not None and process is not None:
        if coordinator is None:
            raise UserError("Option --coordinator is missing: HOST:PORT of the process with --process 0.")
        if processes < 1 or not 0 <= process < processes:
            raise UserError(
                f"Option --process must be a number from 0 to {processes - 1}, with --processes {processes}, but is "
                f"{process}."
            )
        return ProcessGroup(processes, process, *_address(coordinator))
    for tasks, task, where in (
        ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", _slurm_address),
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", _mpi_address),
    ):
        count, index = os.environ.get(tasks, ""), os.environ.get(task, "")
        if count.isdecimal() and index.isdecimal() and int(count) > 1:
            host, port = where() if coordinator is None else _address(coordinator)
            return ProcessGroup(int(count), int(index), host, port)
    if coordinator is not None:
        raise UserError("Option --coordinator needs --processes and --process, or srun or mpirun, which count tasks.")
    return None


def _address(coordinator: str) -> tuple[str, int]:
    """Host and port of a coordinator."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"Option --coordinator must be HOST:PORT, such as node1:7373, but is {coordinator!r}.")
    return host, int(port)


def _slurm_address() -> tuple[str, int]:
    """The first node of a Slurm step, such as "n[07-09,12],gpu1", and a port that follows from job and step."""
    nodes = os.environ.get("SLURM_STEP_NODELIST", "")
    found = re.match(r"([^,\[]+)(?:\[([^,\-\]]+))?", nodes)
    if found is None:
        raise UserError(
            "Slurm does not name the nodes of this step (SLURM_STEP_NODELIST): add --coordinator HOST:PORT."
        )
    job, step = (os.environ.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return found[1] + (found[2] or ""), _port_of(f"{job}.{step}")


def _mpi_address() -> tuple[str, int]:
    """This machine, if all tasks of mpirun are on it, and a port that follows from the job."""
    if os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") != os.environ.get("OMPI_COMM_WORLD_SIZE"):
        raise UserError("Open MPI does not say on which machine task 0 is: add --coordinator HOST:PORT.")
    job = os.environ.get("PMIX_NAMESPACE", "")
    return "127.0.0.1", _port_of(job)


def _port_of(job: str) -> int:
    """A port that all tasks of a job find."""
    return _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS


@contextlib.contextmanager
def joined(group: ProcessGroup) -> Iterator[Watch]:
    """Connect this process to its group for a block, and watch the others.

    At the end of the block all processes let each other go. What is written to stdout meanwhile goes to stderr: the
    library that connects processors says there that it has.
    """
    with _stdout_to_stderr():
        lines, service = meet_all(group) if group.index == 0 else meet_first(group)
        watch = Watch(group.index, lines)
        with _closing(lines), _ending(watch):
            import jax

            # its handler of SIGTERM would take the place of ours
            jax.config.update("jax_enable_preemption_service", False)
            at, port = _listened_at(group), service.rpartition(":")[2]
            jax.distributed.initialize(
                service, group.count, group.index, coordinator_bind_address=f"{at}:{port}" if at else None,
                initialization_timeout=int(CONNECT_SECONDS), heartbeat_timeout_seconds=_JAX_SECONDS,
            )  # fmt: skip
            yield watch


@contextlib.contextmanager
def _closing(lines: list[Line]) -> Iterator[None]:
    """Close connections at the end of a block."""
    try:
        yield
    finally:
        for line in lines:
            line.connection.close()


@contextlib.contextmanager
def _ending(watch: Watch) -> Iterator[None]:
    """Part from the other processes at the end of a block, or tell them why this one has failed."""
    import jax

    from particleflow.simulation.processes import ProcessesDifferError

    try:
        yield
    except BaseException as error:
        alike = isinstance(error, RunError | ProcessesDifferError)  # which all processes raise by themselves
        if alike and watch.end():
            jax.distributed.shutdown()
            raise
        watch.fail(str(error) or type(error).__name__)
        if isinstance(error, ParticleflowError):
            error.hard_exit = True  # pyright: ignore[reportAttributeAccessIssue] - JAX would wait for the others
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


def meet_all(group: ProcessGroup) -> tuple[list[Line], str]:
    """Wait for all other processes; the connections to them, and where JAX's service will be."""
    try:
        server = socket.create_server((_listened_at(group), group.port), backlog=group.count)
    except OSError as error:
        raise UserError(
            f"Process 0 cannot listen at port {group.port}: {error.strerror or error}. Give all processes a "
            "--coordinator with another port."
        ) from error
    end, lines = time.monotonic() + CONNECT_SECONDS, dict[int, Line]()
    with server, contextlib.ExitStack() as opened:
        while len(lines) < group.count - 1:
            server.settimeout(max(0.01, end - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = [str(index) for index in range(1, group.count) if index not in lines]
                raise RunError(
                    f"Process {' and '.join(missing)} of {group.count} did not come to {group.host}:{group.port} "
                    f"within {CONNECT_SECONDS:g} s."
                ) from None
            connection.settimeout(_FIRST_LINE_SECONDS)
            said = _line(connection).split()
            if len(said) != 2 or not all(map(str.isdecimal, said)):  # a stranger
                connection.close()
            else:
                opened.enter_context(connection)
                _check_number(group, int(said[0]), int(said[1]), lines)
                lines[int(said[0])] = Line(int(said[0]), connection)
        opened.pop_all()
    with socket.create_server((_listened_at(group), 0)) as free:
        port = free.getsockname()[1]
    for line in lines.values():
        line.connection.sendall(f"{port}\n".encode())
    return [lines[index] for index in sorted(lines)], f"{group.host}:{port}"


def _listened_at(group: ProcessGroup) -> str:
    """The address that process 0 listens at: this machine alone where the coordinator's is one of its own, else any."""
    try:
        address = ipaddress.ip_address(socket.gethostbyname(group.host))
    except (OSError, ValueError):
        return ""
    return str(address) if address.is_loopback else ""


def _check_number(group: ProcessGroup, index: int, count: int, lines: dict[int, Line]) -> None:
    """Raise unless a process that has come is one of this group, and the first with its number."""
    if count != group.count or not 0 < index < count or index in lines:
        raise UserError(
            f"A process has come as number {index} of {count}, to process 0 of {group.count}: each must have a number "
            "of its own, from 0 on, and the same --processes."
        )


def meet_first(group: ProcessGroup) -> tuple[list[Line], str]:
    """Connect to process 0 and wait for all others; the connection, and where JAX's service will be."""
    place, end, reason = f"{group.host}:{group.port}", time.monotonic() + CONNECT_SECONDS, ""
    while time.monotonic() < end:
        try:
            connection = socket.create_connection((group.host, group.port), timeout=5)
        except socket.gaierror as error:
            raise UserError(f"The coordinator's host {group.host!r} is not known: {error.strerror}.") from error
        except OSError as error:
            reason = error.strerror or str(error)
            time.sleep(_RETRY_SECONDS)
            continue
        connection.sendall(f"{group.index} {group.count}\n".encode())
        connection.settimeout(2 * CONNECT_SECONDS)
        if not (port := _line(connection)).isdecimal():
            connection.close()
            raise RunError(f"Process 0 at {place} has ended before all {group.count} processes had come to it.")
        return [Line(0, connection)], f"{group.host}:{port}"
    raise RunError(
        f"No process answers at {place} ({reason}), {CONNECT_SECONDS:g} s after this one began: start the one with "
        "--process 0 there, and let its ports through firewalls."
    )


def _line(connection: socket.socket) -> str:
    """The first line that comes from a connection, as far as it came."""
    said = b""
    with contextlib.suppress(OSError):
        while b"\n" not in said and len(said) < _LONGEST and (more := connection.recv(1)):
            said += more
    return said.decode(errors="replace").strip()
