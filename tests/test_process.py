"""Importing and running particleflow leaves the process of the user as it was, but for JAX's 64 bits."""

import gc
import json
import locale
import logging
import os
import signal
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest

import particleflow
from process_state import differences, snapshot
from shares import by_default

SCENARIO = """
title = "A few tokens"
initial = { kind = "uniform_sphere", dim = 3, count = 8 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 4.0 }
[time]
end = 1.0
frames = 4
rtol = 1e-3
atol = 1e-3
[record]
observables = ["energy"]
"""

# Everything is loaded before particleflow is, so that only what particleflow does is seen.
SCRIPT = """
import io, json
import diffrax, equinox, h5py, imageio_ffmpeg, jax, jax.numpy as jnp, lineax, matplotlib as mpl, optimistix, scipy
import optax, sklearn, multiprocessing, webbrowser
mpl.use("Agg")
from matplotlib.figure import Figure
axes = Figure().add_subplot(title="$x$")
axes.scatter(range(2), range(2)), axes.bar(range(2), range(2))
axes.figure.savefig(io.BytesIO())
jnp.ones(2).block_until_ready()
from process_state import differences, snapshot

seen, before = {}, snapshot()

def look(step):
    global before
    after = snapshot()
    seen[step], before = differences(before, after), after

import particleflow as pf
look("import")
for name in pf.__all__:
    getattr(pf, name)
look("names")
flow = pf.Flow(pf.Attend(pf.kernels.Attention(beta=4.0)), geometry=pf.Sphere())
tokens = pf.initial.UniformSphere(dim=3).sample(pf.key_for(0, "initial"), 8)
pf.simulate(flow, tokens, [0.0, 1.0], store="stored.h5", step=0.5, observe=[pf.observables.energy])
look("simulate")
run = pf.run("scenario.toml", output="run", figures=False, movie=False)
look("run")
pf.view.figures(run, "figures", dpi=40)
look("figures")
pf.view.animate(run, "movie.mp4", frames=2, size=(64, 64))
look("movie")
print(json.dumps(seen))
"""


def run_python(code: str, folder: Path, **environment: str) -> str:
    """What a new Python process prints, in whose environment the tests have set nothing."""
    ours = ("JAX", "XLA", "EQX", "TF_CPP", "MPL", "OPENBLAS", "PYTHONWARNINGS")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    plain["PYTHONPATH"] = os.pathsep.join([str(Path(particleflow.__file__).parents[1]), plain["PYTHONPATH"]])
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder, env=plain | environment
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """What every step of a program has changed, by the name of the step."""
    folder = tmp_path_factory.mktemp("process")
    (folder / "scenario.toml").write_text(SCENARIO)
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    return json.loads(run_python(SCRIPT, folder, **quick))


STEPS = {"import": ["jax.config.jax_enable_x64"], "names": [], "simulate": [], "run": [], "figures": [], "movie": []}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_changes_nothing_but_what_is_announced(step, changed):
    assert changed[step] == STEPS[step]


def test_importing_sets_one_variable_where_jax_is_not_loaded(tmp_path):
    """JAX reads it when it is loaded. The command line is imported like all else, and sets nothing by that."""
    code = """
import os, multiprocessing, rich, cyclopts
from process_state import differences, snapshot
before = snapshot()
import particleflow, particleflow.app.cli
print(differences(before, snapshot()), set(os.environ) - set(before["environ"]))
"""
    assert run_python(code, tmp_path).split() == ["['environ']", "{'JAX_ENABLE_X64'}"]


def test_the_command_line_called_from_python_leaves_the_environment(tmp_path):
    from particleflow.app.cli import main

    (tmp_path / "scenario.toml").write_text(SCENARIO)
    before = snapshot()
    assert main(["check", str(tmp_path / "scenario.toml"), "--quiet"]) == 0
    assert main(["list"]) == 0
    after = snapshot()
    # What pytest collected is frozen (see conftest.py), and some of it may have gone; more may not have come.
    assert after.pop("gc.frozen") <= before.pop("gc.frozen")
    assert [name for name in differences(before, after) if not name.startswith("jax._src")] == []


def test_checks_in_code_of_ones_own_still_raise_inside_a_run():
    class Checked(particleflow.drifts.AbstractDrift):
        def __call__(self, time, queries, measure):
            return eqx.error_if(queries.points, queries.points > 1.5, "beyond my field")

    flow = particleflow.Flow(Checked())
    with pytest.raises(eqx.EquinoxRuntimeError, match="beyond my field"):
        particleflow.simulate(flow, jnp.ones((2, 1)), [0.0, 1.0], step=0.25, solver="map")


def patched_cache(monkeypatch):
    monkeypatch.setattr(import_module("jax._src.lru_cache").LRUCache, "put", lambda *_: None)


def patched_integrator(monkeypatch):
    monkeypatch.setattr(import_module("diffrax._integrate"), "eqxi", object())


def patched_constant(monkeypatch):
    monkeypatch.setattr(import_module("equinox._errors"), "EQX_ON_ERROR", "nan")


def patched_artist(monkeypatch):
    from matplotlib.artist import Artist

    monkeypatch.setattr(Artist, "_update_set_signature_and_docstring", classmethod(lambda cls: None))


def stopped_collector(monkeypatch):
    gc.disable()


def other_thresholds(monkeypatch):
    gc.set_threshold(100_000, 20, 20)


def set_variable(monkeypatch):
    monkeypatch.setenv("PATH", "")


def new_variable(monkeypatch):
    monkeypatch.setenv("PARTICLEFLOW_TEST", "1")


def other_parameter(monkeypatch):
    monkeypatch.setitem(mpl.rcParams, "axes.titlesize", 31.0)


def ignored_warning(monkeypatch):
    warnings.simplefilter("ignore")  # pytest gives the filters back after every test


def other_handler(monkeypatch):
    signal.signal(signal.SIGTERM, lambda *_: None)


def other_config(monkeypatch):
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 17.0)


def other_level(monkeypatch):
    monkeypatch.setattr(logging.getLogger("jax"), "level", 37)


def other_numpy(monkeypatch):
    np.seterr(under="raise")


def other_locale(monkeypatch):
    locale.setlocale(locale.LC_ALL, "C" if locale.setlocale(locale.LC_ALL) != "C" else "C.UTF-8")


PATCHES = {
    patched_cache: "jax._src.lru_cache.LRUCache.put",
    patched_integrator: "diffrax._integrate.eqxi",
    patched_constant: "equinox._errors.EQX_ON_ERROR",
    patched_artist: "matplotlib.artist.Artist._update_set_signature_and_docstring",
    stopped_collector: "gc.isenabled",
    other_thresholds: "gc.threshold",
    set_variable: "environ.PATH",
    new_variable: "environ",
    other_parameter: "rcParams.axes.titlesize",
    ignored_warning: "warnings",
    other_handler: "signal.SIGTERM",
    other_config: "jax.config.jax_persistent_cache_min_compile_time_secs",
    other_level: "logging.jax",
    other_numpy: "numpy.err",
    other_locale: "locale",
}


@pytest.fixture
def restored():
    """What the patches below change that monkeypatch does not give back."""
    threshold, handler, numbers = gc.get_threshold(), signal.getsignal(signal.SIGTERM), np.geterr()
    place, kept = locale.setlocale(locale.LC_ALL), jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    yield
    gc.enable()
    gc.set_threshold(*threshold)
    signal.signal(signal.SIGTERM, handler)
    np.seterr(**numbers)
    locale.setlocale(locale.LC_ALL, place)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", kept)


# An entry of another package's class.
SEEN_BY_DEFAULT = [patched_cache]


@pytest.mark.parametrize("patch", by_default(PATCHES, SEEN_BY_DEFAULT), ids=lambda patch: patch.__name__)
def test_what_is_patched_is_seen(patch, monkeypatch, restored):
    """The comparison finds every deliberate change."""
    for name in ("diffrax._integrate", "equinox._errors", "jax._src.lru_cache"):
        import_module(name)
    before = snapshot()
    assert differences(before, snapshot()) == []
    patch(monkeypatch)
    assert PATCHES[patch] in differences(before, snapshot())
