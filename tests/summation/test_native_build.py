"""How the native sum is built and kept, and that a machine without it runs all the same."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import particleflow as pf
from particleflow.app.cli import main
from particleflow.summation import Auto, Dense, Native
from particleflow.summation.native import build

COMPILER = build._compiler()
SOURCES = Path(build.__file__).parent
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")


@pytest.fixture
def machine(monkeypatch, tmp_path: Path) -> Path:
    """A process that has not looked for the library yet, with an empty cache folder."""
    monkeypatch.setattr(build, "_found", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(build.SWITCH, raising=False)
    (tmp_path / "cache").mkdir()
    return tmp_path


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def run_of_six_points() -> Any:
    points = np.eye(6, 3) + 0.1
    return pf.simulate(pf.Flow(pf.Attend(pf.kernels.Attention(1.0))), points, [0.0, 0.5], rtol=1e-6, atol=1e-8)


def refused(reason: str) -> None:
    """There is no library, for this reason; a run goes by XLA, and its card says so."""
    found = build.library()
    assert found.path is None
    assert reason in found.reason
    measure = pf.Measure.uniform(np.eye(6, 3))
    asked = Native().select(pf.kernels.Attention(1.0), measure, measure)
    assert isinstance(asked.summation, Dense)
    assert reason in asked.reason
    assert isinstance(Auto().select(pf.kernels.Attention(1.0), measure, measure).summation, Dense)


@pytest.mark.slow
def test_without_a_compiler_a_run_goes_by_xla_and_its_card_says_why(machine, monkeypatch):
    monkeypatch.setenv("PATH", str(machine))
    monkeypatch.delenv("CXX", raising=False)
    refused("no C++ compiler found")
    card = str(run_of_six_points())
    assert "Dense" in card
    assert "no C++ compiler found" in card


def test_a_broken_compiler_is_asked_once_and_its_words_are_kept(machine, monkeypatch):
    broken = script(machine / "bin" / "c++", 'echo "$@" >> "$0.log"; echo "x.cc:1: error: cannot spell" >&2; exit 1')
    monkeypatch.setenv("CXX", str(broken))
    refused("could not build it: x.cc:1: error: cannot spell")
    asked = (broken.parent / "c++.log").read_text(encoding="utf-8").count(" -c ")
    monkeypatch.setattr(build, "_found", [])
    refused("to try again")
    assert (broken.parent / "c++.log").read_text(encoding="utf-8").count(" -c ") == asked == 4
    assert not list((machine / "cache").rglob("*.so"))
    assert not list((machine / "cache").rglob("building-*"))


def test_a_silent_failure_and_a_library_that_is_none_are_told(machine, monkeypatch):
    silent = script(machine / "bin" / "c++", "exit 3")
    monkeypatch.setenv("CXX", str(silent))
    refused("could not build it: it failed without a word")
    liar = script(machine / "bin" / "g++", 'for last; do :; done; while [ "$1" != -o ]; do shift; done; echo no > "$2"')
    monkeypatch.setenv("CXX", str(liar))
    monkeypatch.setattr(build, "_found", [])
    refused("cannot be loaded")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_is_told(machine):
    (machine / "cache").chmod(0o500)
    refused("Permission denied")


@needs_compiler
def test_a_cache_that_is_no_folder_is_told(machine, monkeypatch):
    (machine / "cache" / "particleflow").write_text("in the way", encoding="utf-8")
    refused("File exists")


@needs_compiler
@pytest.mark.parametrize("planted", ["folder for all", "link", "parent for all"])
def test_nothing_is_loaded_from_where_others_can_write(machine, planted):
    place = build.folder()
    place.parent.mkdir()
    if planted == "link":
        (machine / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(machine / "elsewhere")
    else:
        place.mkdir()
        (place if planted == "folder for all" else place.parent).chmod(0o777)
    refused("write" if planted == "parent for all" else "others may have written")


@needs_compiler
def test_a_planted_library_is_not_loaded(machine):
    place = build.folder()
    place.mkdir(parents=True, mode=0o700)
    planted = place / f"moments-{build._key(str(COMPILER))}.so"
    planted.write_bytes(b"not ours")
    planted.chmod(0o666)
    refused("others may have written")


def test_it_can_be_turned_off_at_any_time(monkeypatch, capsys):
    monkeypatch.setenv(build.SWITCH, "off")
    refused("turned off by PARTICLEFLOW_NATIVE=off")
    assert main(["info", "--system"]) == 0
    shown = capsys.readouterr().out
    assert "turned off by PARTICLEFLOW_NATIVE=off" in shown


def test_info_is_about_a_run_or_about_the_system(capsys, tmp_path):
    assert main(["info"]) == 2
    assert main(["info", str(tmp_path), "--system"]) == 2
    assert "one of the two" in capsys.readouterr().err


@needs_compiler
@pytest.mark.slow
def test_two_processes_build_it_once_and_say_so(tmp_path):
    """Both find the same file; one of them says that it builds; nobody else may write to what is there."""
    code = "from particleflow.summation.native.build import library; found = library(print)"
    code += "; print(found.path, found.reason)"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    said = [each.communicate(timeout=300)[0].splitlines() for each in running]
    assert sorted(len(lines) for lines in said) == [1, 2]
    assert sum("building the native sum, once" in lines for lines in said) == 1
    (path,) = {lines[-1].split()[0] for lines in said}
    assert [each.name for each in sorted(Path(path).parent.iterdir())] == ["lock", Path(path).name]
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o500
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700


TARGETS = {"this processor": [], "AVX2": ["-march=haswell"], "baseline": ["-march=x86-64"]}


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_odd_shapes_under_sanitizers(tmp_path, target):
    """m, n, d and k from 0 to 70, some n larger, in arrays of exactly their length, against long double."""
    if target != "this processor" and os.uname().machine != "x86_64":
        pytest.skip("a processor of another kind")
    tuned = TARGETS[target] or [flag for flag in build._flags() if flag.startswith("-m")]
    flags = [flag for flag in build._flags() if not flag.startswith("-m")]
    flags += [*tuned, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", f"-I{SOURCES}"]
    assert COMPILER is not None
    for precision in ("float", "double"):
        part = [f"-DPRECISION={precision}", "-c", str(SOURCES / "precision.cc"), "-o", str(tmp_path / f"{precision}.o")]
        subprocess.run([COMPILER, *flags, *part], check=True, timeout=600)
    program = tmp_path / "shapes"
    objects = [str(tmp_path / f"{precision}.o") for precision in ("float", "double")]
    main_file = str(Path(__file__).parents[1] / "helpers" / "native_shapes.cc")
    subprocess.run([COMPILER, *flags, main_file, *objects, "-o", str(program)], check=True, timeout=600)
    done = subprocess.run([str(program), "1500"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_compiler
@pytest.mark.slow
def test_clang_builds_it_too(tmp_path):
    clang = shutil.which("clang++")
    if clang is None:
        pytest.skip("no clang++ here")
    build._compile(clang, tmp_path / "moments.so", tmp_path / "failed")
    assert (tmp_path / "moments.so").stat().st_size > 10_000
