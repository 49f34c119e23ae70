"""Files are there whole or not at all, and what cannot be written is named."""

import os
import subprocess
import sys

import pytest

from particleflow._support.files import write_text, written, written_folder
from particleflow.errors import StoreError


def test_a_file_is_replaced_when_all_of_it_is_there(tmp_path):
    target = tmp_path / "a.b.txt"
    target.write_text("old")
    with written(target) as partial:
        assert partial.parent == tmp_path
        assert partial.suffix == ".txt"
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError, StoreError])
def test_what_goes_wrong_leaves_the_old_file_and_nothing_else(failure, tmp_path):
    target = tmp_path / "file"
    target.write_text("old")

    def interrupted():
        with written(target) as partial:
            partial.write_text("half")
            raise failure

    with pytest.raises(failure):
        interrupted()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_failures_name_the_file_the_reason_and_what_to_do(tmp_path):
    with pytest.raises(StoreError, match=r"Cannot write .*nowhere/x\.txt: No such file or directory\.$"):
        write_text(tmp_path / "nowhere" / "x.txt", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match=r"Cannot write .*folder: .*directory\."):
        write_text(tmp_path / "folder", "text")
    with (
        pytest.raises(StoreError, match=r"Cannot write .*y\.h5: full\. Free some space\.$"),
        written(tmp_path / "y.h5", "Free some space.", (RuntimeError,)),
    ):
        raise RuntimeError("full.\nmore lines")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_killed_processes_left_is_removed(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = tmp_path / f".x.partial-{ended.pid}.txt"
    alive = tmp_path / f".x.partial-{os.getppid()}.txt"
    other = tmp_path / f".y.partial-{ended.pid}.txt"
    for path in (dead, alive, other):
        path.write_text("half")
    write_text(tmp_path / "x.txt", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {alive.name, other.name, "x.txt"}
    assert (tmp_path / "x.txt").read_text() == "whole"


def test_a_folder_that_a_killed_process_left_is_removed(tmp_path):
    with written_folder(tmp_path / "a.b") as hidden:
        name = hidden.name
    (tmp_path / "a.b").rmdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / name.replace(str(os.getpid()), str(ended.pid))).mkdir()
    with written_folder(tmp_path / "a.b"):
        assert [path.name for path in tmp_path.iterdir()] == [name]
