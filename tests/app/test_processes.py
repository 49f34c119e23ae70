"""How the processes of one run find each other: options, the environment of srun and mpirun, and what goes wrong."""

import socket
import threading

import pytest

from particleflow.app.cli import main
from particleflow.app.processes import joining
from particleflow.app.processes.joining import ProcessGroup, find_group
from particleflow.errors import RunError, UserError

SCHEDULERS = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_SIZE")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in SCHEDULERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(joining, "CONNECT_SECONDS", 0.5)


@pytest.fixture
def port():
    with socket.create_server(("", 0)) as free:
        return free.getsockname()[1]


def test_a_group_is_given_by_options_or_there_is_none():
    assert find_group(None, None, None) is None
    assert find_group("node1:7373", 4, 3) == ProcessGroup(4, 3, "node1", 7373)
    assert find_group("[::1]:7373", 2, 0) == ProcessGroup(2, 0, "[::1]", 7373)


@pytest.mark.parametrize(
    ("nodes", "first"), [("n[07-09,12],gpu1", "n07"), ("login", "login"), ("a1,b[2-3]", "a1"), ("c[5]", "c5")]
)
def test_slurm_names_tasks_and_nodes(monkeypatch, nodes, first):
    values = {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "2", "SLURM_STEP_NODELIST": nodes, "SLURM_JOB_ID": "17"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    group = find_group(None, None, None)
    assert group is not None
    assert (group.count, group.index, group.host) == (3, 2, first)
    assert 49152 <= group.port < 65536
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    other = find_group(None, None, None)
    assert other is not None
    assert other.port != group.port
    assert find_group("elsewhere:99", None, None) == ProcessGroup(3, 2, "elsewhere", 99)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert find_group(None, None, None) is None


def test_mpirun_on_one_machine_is_found_and_on_many_needs_an_address(monkeypatch):
    for name, value in {"SIZE": "2", "RANK": "1", "LOCAL_SIZE": "2"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    group = find_group(None, None, None)
    assert group is not None
    assert (group.count, group.index, group.host) == (2, 1, "127.0.0.1")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1")
    with pytest.raises(UserError, match="Open MPI does not say on which machine task 0 is: add --coordinator"):
        find_group(None, None, None)
    assert find_group("n1:5000", None, None) == ProcessGroup(2, 1, "n1", 5000)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--processes", "2"], "Options --processes and --process belong together"),
        (["--processes", "2", "--process", "0"], "Option --coordinator is missing: HOST:PORT"),
        (["--coordinator", "a:1", "--processes", "2", "--process", "2"], "must be a number from 0 to 1"),
        (["--coordinator", "a", "--processes", "2", "--process", "1"], "must be HOST:PORT, such as node1:7373"),
        (["--coordinator", "a:1"], "needs --processes and --process, or srun or mpirun"),
        (
            ["--coordinator", "no.such.host.invalid:99", "--processes", "2", "--process", "1"],
            "The coordinator's host 'no.such.host.invalid' is not known",
        ),
    ],
)
def test_wrong_options_are_said_before_anything_is_made(tmp_path, capsys, options, said):
    assert main(["run", "alibi", "--output", str(tmp_path / "out"), *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_coordinator_that_is_not_there_is_said_in_time(port):
    with pytest.raises(RunError, match=rf"No process answers at 127.0.0.1:{port} .*0.5 s after this one began"):
        joining.meet_first(ProcessGroup(2, 1, "127.0.0.1", port))


def test_processes_that_do_not_come_are_named_in_time(port):
    with pytest.raises(RunError, match=r"Process 1 and 2 of 3 did not come to 127.0.0.1:\d+ within 0.5 s"):
        joining.meet_all(ProcessGroup(3, 0, "127.0.0.1", port))


def test_a_port_that_is_taken_is_said():
    with socket.create_server(("", 0)) as taken, pytest.raises(UserError, match="Process 0 cannot listen at port"):
        joining.meet_all(ProcessGroup(2, 0, "127.0.0.1", taken.getsockname()[1]))


def test_all_are_told_one_address_and_strangers_are_ignored(port):
    found = {}

    def meet(index):
        meet_others = joining.meet_first if index else joining.meet_all
        lines, found[index] = meet_others(ProcessGroup(3, index, "127.0.0.1", port))
        for line in lines:
            line.connection.close()

    others = [threading.Thread(target=meet, args=(index,)) for index in (1, 2)]
    first = threading.Thread(target=meet, args=(0,))
    first.start()
    stranger = None
    while stranger is None:
        try:
            stranger = socket.create_connection(("127.0.0.1", port))
        except OSError:
            continue
    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    for each in others:
        each.start()
    for each in (*others, first):
        each.join()
    stranger.close()
    assert len(set(found.values())) == 1
    assert sorted(found) == [0, 1, 2]


def test_two_processes_with_one_number_are_refused(port):
    errors = []

    def meet_all():
        try:
            joining.meet_all(ProcessGroup(3, 0, "127.0.0.1", port))
        except UserError as error:
            errors.append(str(error))

    first = threading.Thread(target=meet_all)
    first.start()
    said = []

    def meet():
        try:
            joining.meet_first(ProcessGroup(3, 1, "127.0.0.1", port))
        except RunError as error:
            said.append(str(error))

    others = [threading.Thread(target=meet) for _ in range(2)]
    for each in others:
        each.start()
    for each in (*others, first):
        each.join()
    assert len(errors) == 1
    assert "A process has come as number 1 of 3, to process 0 of 3" in errors[0]


@pytest.mark.parametrize(
    ("host", "listened"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("192.0.2.7", "")]
)
def test_a_group_of_one_machine_listens_to_that_machine_alone(host, listened):
    assert joining._listened_at(ProcessGroup(2, 0, host, 7373)) == listened
