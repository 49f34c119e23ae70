"""The command line: exit codes, messages, folders, and what is (not) imported."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

import particleflow as pf
from particleflow._support.compilation_cache import cache_folder
from particleflow.app.cli import main
from particleflow.app.scenario.scenario import shipped
from shares import skip_without_extra

SMALL = """
# What to look for.
title = "A small run"
initial = { kind = "uniform_circle", count = 12 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 4.0 }
[time]
end = 2.0
frames = 8
rtol = 1e-6
atol = 1e-8
[record]
observables = ["energy"]
"""
NO_PRODUCTS = ("--no-summary", "--no-figures", "--no-movie", "--no-page")


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def call(*arguments, **environment):
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "particleflow", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(pf.__file__).parents[1]), **environment},
        timeout=300,
        check=False,
    )


def test_run_makes_a_folder_and_prints_it(small, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["run", str(small), "--output", str(folder), "--no-movie", "--set", "drift.0.kernel.beta=5"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{folder}\n"
    assert "cpu" in captured.err
    names = {each.name for each in folder.iterdir()}
    assert {"scenario.toml", "trajectory.h5", "summary.json", "figures", "viewer.html"} <= names
    assert "movie.mp4" not in names
    with pf.Trajectory.open(folder) as run:
        assert run.status == "finished"
        assert run.metadata["title"] == "A small run"
        assert np.allclose(run.times, np.linspace(0, 2, 8))
        assert "beta = 5" in run.metadata["scenario"]
    assert json.loads((folder / "summary.json").read_text())
    assert "beta = 5" in (folder / "scenario.toml").read_text()


def test_a_run_is_never_overwritten(small, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in ("001", "002"):
        assert main(["run", str(small), *NO_PRODUCTS, "--quiet"]) == 0
        assert capsys.readouterr().out.strip() == str(Path("outputs") / "small" / number)
    before = (tmp_path / "outputs/small/001/trajectory.h5").read_bytes()
    assert main(["run", str(small), "--output", "outputs/small/001"]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert (tmp_path / "outputs/small/001/trajectory.h5").read_bytes() == before


def test_json_is_all_there_is_on_stdout(small, tmp_path, capsys):
    assert main(["run", str(small), "--output", str(tmp_path / "run"), *NO_PRODUCTS, "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    facts = json.loads(captured.out)
    assert facts["status"] == "finished"
    assert facts["frames"] == 8
    assert main(["info", str(tmp_path / "run"), "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["particles"] == 12
    assert info["geometry"] == "sphere"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.toml"], "There is no scenario file"),
        (["run", "metastable_spher"], "Did you mean the shipped scenario 'metastable_sphere'?"),
        (["check", "SMALL", "--set", "drift.0.kernel.bta=1"], "did you mean 'beta'?"),
        (["check", "SMALL", "--set", "drift.9.kind=attend"], "has no place 9"),
        (["run", "SMALL", "--device", "abacus"], "There is no device 'abacus'"),
        (["run", "SMALL", "--set", "record.particles=99"], "record.particles is 99, but there are 12 particles"),
        (["run", "SMALL", "--set", "time.solver=euler"], "cannot adapt its steps"),
        (["info", "nowhere"], "There is no run at nowhere"),
        (["resume", "."], "nothing to resume"),
        (["sweep", "SMALL"], "has no [sweep] table"),
        (["recover", "nowhere"], "There is no run"),
        (["explode"], "explode"),
        (["run"], "scenario"),
        (["export", "nowhere", "--to", "xyz"], "There is no run"),
        (["run", "a\0b"], "NUL"),
        (["run", "x" * 5000], "cannot be opened"),
    ],
)
def test_what_the_user_got_wrong_is_exit_code_two(arguments, message, small, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([str(small) if each == "SMALL" else each for each in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message.lower() in " ".join(captured.err.lower().split())
    assert "Traceback" not in captured.err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_what_failed_while_running_is_exit_code_one(small, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["run", str(small), "--output", str(folder), "--set", "time.max_steps=2", "--quiet"]) == 1
    assert "needs more than 2 steps" in capsys.readouterr().err
    with pf.Trajectory.open(folder) as run:
        assert run.status == "failed"


@pytest.mark.slow
def test_products_of_a_run_that_is_there(small, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["run", str(small), "--output", str(folder), *NO_PRODUCTS, "--quiet"]) == 0
    assert main(["analyze", str(folder), "--json", "--quiet"]) == 0
    assert main(["plot", str(folder / "trajectory.h5"), "--format", "svg", "--quiet"]) == 0
    assert main(["view", str(folder), "--no-open", "--quiet"]) == 0
    assert main(["animate", str(folder), "--output", str(tmp_path / "m.gif"), "--frames", "3", "--quiet"]) == 0
    assert main(["export", str(folder), "--to", "xyz"]) == 0
    assert main(["export", str(folder), "--to", str(tmp_path / "out.npz")]) == 0
    assert main(["recover", str(folder)]) == 0
    capsys.readouterr()
    for path in ("summary.json", "figures/snapshots.svg", "viewer.html", "trajectory.xyz"):
        assert (folder / path).exists(), path
    with pf.Trajectory.open(folder) as run:
        assert np.array_equal(np.load(tmp_path / "out.npz")["points"], np.asarray(run.points))
    assert main(["export", str(folder), "--to", "abc"]) == 2


def test_resume_makes_what_is_missing(small, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["run", str(small), "--output", str(folder), *NO_PRODUCTS, "--quiet"]) == 0
    before = (folder / "trajectory.h5").read_bytes()
    # What was switched off stays off, until the scenario in the folder says otherwise.
    assert main(["resume", str(folder), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["products"] == {}
    text = (folder / "scenario.toml").read_text()
    assert "page = false" in text
    (folder / "scenario.toml").write_text(
        text.replace("summary = false", "summary = true").replace("page = false", "page = true")
    )
    assert main(["resume", str(folder), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["products"] == {
        "summary": "summary.json",
        "page": "viewer.html",
    }
    assert (folder / "trajectory.h5").read_bytes() == before


def test_a_run_needs_nothing_but_its_folder(tmp_path, capsys):
    """Files that a scenario reads are copied into the run, so that it can be resumed without them."""
    np.savetxt(tmp_path / "start.csv", np.random.default_rng(0).standard_normal((12, 2)), delimiter=",")
    text = SMALL.replace('{ kind = "uniform_circle", count = 12 }', '{ kind = "from_file", path = "start.csv" }')
    (tmp_path / "file.toml").write_text(text, encoding="utf-8")
    assert main(["run", str(tmp_path / "file.toml"), "--output", str(tmp_path / "run"), *NO_PRODUCTS, "--quiet"]) == 0
    (tmp_path / "start.csv").unlink()
    second = ["run", str(tmp_path / "run/scenario.toml"), "--output", str(tmp_path / "again"), *NO_PRODUCTS, "--quiet"]
    assert main(second) == 0
    capsys.readouterr()
    with pf.Trajectory.open(tmp_path / "run") as run, pf.Trajectory.open(tmp_path / "again") as again:
        assert np.array_equal(np.asarray(run.points), np.asarray(again.points))


def cut_off(number, folder, *arguments):
    """Start the command line and send it a signal as soon as it has saved a new checkpoint; returns code and errors."""
    before = set(folder.glob("trajectory.h5.checkpoints/*.npz"))
    log = folder.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "particleflow", *map(str, arguments)],
            stderr=file,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(pf.__file__).parents[1])},
        )
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
        if set(folder.glob("trajectory.h5.checkpoints/*.npz")) - before:
            process.send_signal(number)
            break
        time.sleep(0.002)
    process.wait(timeout=240)
    return process.returncode, log.read_text()


@pytest.mark.slow
def test_an_interrupted_and_then_killed_run_resumes_bit_for_bit(small, tmp_path):
    text = SMALL.replace("frames = 8", "frames = 400\nwindow = 4").replace("end = 2.0", "end = 25.0")
    small.write_text(text, encoding="utf-8")
    assert main(["run", str(small), "--output", str(tmp_path / "whole"), *NO_PRODUCTS]) == 0
    folder = tmp_path / "cut"
    code, errors = cut_off(signal.SIGINT, folder, "run", small, "--output", folder, *NO_PRODUCTS)
    assert code == 130
    assert f"particleflow resume {folder}" in errors
    assert "again to quit now" in errors
    assert "Traceback" not in errors
    with pf.Trajectory.open(folder) as cut:
        assert cut.status == "interrupted"
        assert 4 <= len(cut) < 400
    (folder / "scenario.toml").write_text(
        text + "[output]\nsummary = false\nfigures = false\nmovie = false\npage = false\n", encoding="utf-8"
    )
    assert cut_off(signal.SIGKILL, folder, "resume", folder, "--quiet")[0] == -signal.SIGKILL
    with pf.Trajectory.open(folder) as cut:
        assert cut.status == "killed"
    assert main(["resume", str(folder)]) == 0
    with pf.Trajectory.open(tmp_path / "whole") as first, pf.Trajectory.open(folder) as second:
        assert second.status == "finished"
        assert np.array_equal(first.times, second.times)
        assert np.array_equal(np.asarray(first.points), np.asarray(second.points))
        assert np.array_equal(np.asarray(first.observables["energy"]), np.asarray(second.observables["energy"]))


@pytest.mark.parametrize(
    "title",
    [
        "<script>alert('x')</script><img src=x onerror=alert(1)>",
        pytest.param("../../../etc/passwd", marks=pytest.mark.slow),
        pytest.param("nul \\u0000 in the middle", marks=pytest.mark.slow),
        pytest.param(
            "\U0001f600 \u202e\u001b".encode("unicode_escape").decode().replace("\\x1b", "\\u001b"),
            marks=pytest.mark.slow,
        ),
        pytest.param("x" * 10_000, marks=pytest.mark.slow),
        pytest.param("$\\\\frac{1}{0$ %s {} \\\\", marks=pytest.mark.slow),
    ],
)
def test_hostile_titles_do_no_harm(title, small, tmp_path, capsys):
    small.write_text(SMALL.replace("A small run", title), encoding="utf-8")
    folder = tmp_path / "run"
    products = ["--no-movie", *(["--no-figures"] if title.startswith("<script>") else [])]  # markup is a page's matter
    assert main(["run", str(small), "--output", str(folder), *products]) == 0
    errors = capsys.readouterr().err
    assert "\x1b" not in errors
    assert "\0" not in errors
    page = (folder / "viewer.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert main(["info", str(folder)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run", "small.toml"]


def test_a_hostile_file_name_stays_in_its_folder(small, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    strange = tmp_path / "..a b;$(touch x)\U0001f600.toml"
    strange.write_text(SMALL, encoding="utf-8")
    assert main(["run", str(strange), *NO_PRODUCTS, "--quiet"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder.resolve().is_relative_to(tmp_path / "outputs")
    assert folder.parent.name == "a_b___touch_x"


IMPORTS = """
import sys, time
begin = time.perf_counter()
from particleflow.app.cli import main
code = main(sys.argv[1:])
heavy = {"jax", "diffrax", "matplotlib", "scipy"} | ({"numpy", "h5py", "pydantic"} if "--help" in sys.argv else set())
heavy = sorted(heavy & set(sys.modules))
print(code, time.perf_counter() - begin, heavy, file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["list", "run --help"])
def test_cold_commands_do_not_import_jax(command):
    """Nor do `info` and `runs`: see `test_closing_lines`, where there are runs to show."""
    environment = {**os.environ, "PYTHONPATH": str(Path(pf.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *command.split()], capture_output=True, text=True, env=environment, check=True
    )
    code, _, rest = done.stderr.strip().splitlines()[-1].split(maxsplit=2)
    assert code == "0"
    assert rest == "[]"
    assert done.stdout


@pytest.mark.slow
def test_check_loads_no_room_that_it_does_not_need():
    """Neither pictures nor analyses, and transformers only where a scenario names one."""
    code = "import sys\nfrom particleflow.app.cli import main\nmain(['check', 'alibi'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "alibi.toml is fine" in done.stderr
    loaded = set(done.stdout.split())
    assert "particleflow.kernels" in loaded
    rooms = {"particleflow.view", "particleflow.analysis", "particleflow.transformer", "matplotlib"}
    assert not loaded & rooms


def test_list_shows_every_shipped_scenario_by_theme(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    themes = [line for line in lines if not line.startswith(" ")]
    assert 5 <= len(themes) == len(set(themes)) <= 12
    names = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert sorted(names) == sorted(shipped())
    assert len(names) >= 24
    place = next(index for index, line in enumerate(lines) if line.startswith("  metastable_sphere"))
    assert lines[place].endswith("Metastable clusters on the sphere")
    assert lines[place + 1].strip().startswith("Tokens first gather in a few clusters")
    assert "Clusters" in themes
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in found} == set(shipped())
    assert {each["theme"] for each in found} == set(themes)


def test_the_first_help_names_the_switches_of_products(capsys):
    assert main(["run", "--help"]) == 0
    first = "".join(capsys.readouterr().out.splitlines()[:2])
    assert all(f"[--no-{name}]" in first for name in ("movie", "page", "figures", "summary"))
    assert main(["--help"]) == 0
    assert "--no-movie" in capsys.readouterr().out


def test_schema_is_json(capsys):
    assert main(["schema"]) == 0
    assert "kernel" in json.loads(capsys.readouterr().out)["$defs"]


def test_no_arguments_print_help(capsys):
    assert main([]) == 0
    assert "resume" in capsys.readouterr().out


def test_the_compilation_cache_is_in_the_platforms_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert cache_folder() == tmp_path / "particleflow" / "jax"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in shipped() if name != "phase_diagram"])
def test_every_shipped_scenario_makes_a_complete_folder(name, tmp_path):
    skip_without_extra(name)
    fewer = ["--set", "initial.count=30000"] if name == "million_tokens" else []  # still a crowd, in less time
    done = call("run", name, *fewer, "--output", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["failures"] == {}
    asked = tomllib.loads(shipped()[name].read_text(encoding="utf-8")).get("output", {})
    assert set(facts["products"]) == {each for each in ("summary", "figures", "movie", "page") if asked.get(each, True)}
    for file in ("scenario.toml", "trajectory.h5", *facts["products"].values()):
        assert (tmp_path / "run" / file).exists()
    figures, drawn = asked.get("figures", True), {path.stem for path in (tmp_path / "run" / "figures").glob("*.png")}
    if isinstance(figures, list):
        assert drawn == set(figures)
    elif figures:
        assert len(drawn) >= 3


def test_completion_is_installed(tmp_path, monkeypatch, capsys):
    """What it does is loaded only when it is asked for; help names it all the same."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--install-completion", "--shell", "bash", "--output", str(tmp_path / "completion.sh")]) == 0
    assert "fixed-points" in (tmp_path / "completion.sh").read_text()
    assert "completion.sh" in (tmp_path / ".bashrc").read_text()
    capsys.readouterr()
    assert main(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out
