"""Compiled programs that outlive their process: who decides about them, and that a second process reads them back."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax._src import lru_cache
from jax.experimental.compilation_cache import compilation_cache

import particleflow as pf
from particleflow import compilation_cache as cache

SETTINGS = ("jax_enable_compilation_cache", "jax_compilation_cache_dir", "jax_disable_most_optimizations")
SETTINGS += ("jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes")


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """The settings of JAX as a program finds them that has decided nothing, put back in the end."""
    before = {name: jax.config.values[name] for name in SETTINGS}
    monkeypatch.setattr(cache, "_decided", [])
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", None)
    yield lambda: dict(jax.config.values)
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_by_default_programs_are_kept_in_the_platforms_folder(settings, tmp_path):
    cache.use_cache_unless_decided()
    if sys.platform.startswith("linux"):
        assert settings()["jax_compilation_cache_dir"] == str(tmp_path / "particleflow" / "jax")
    assert settings()["jax_persistent_cache_min_compile_time_secs"] == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_compilation_cache_dir", "my/own"),
        ("jax_enable_compilation_cache", False),
        ("jax_disable_most_optimizations", True),
    ],
)
def test_what_the_user_has_decided_stays(name, value, settings):
    jax.config.update(name, value)
    before = settings()
    cache.use_cache_unless_decided()
    assert settings() == before


def test_a_folder_of_ones_own_and_none(settings, tmp_path):
    assert pf.use_cache(tmp_path / "deep" / "mine") == tmp_path / "deep" / "mine"
    assert settings()["jax_compilation_cache_dir"] == str(tmp_path / "deep" / "mine")
    assert pf.use_cache(False) is None
    assert settings()["jax_compilation_cache_dir"] is None
    cache.use_cache_unless_decided()
    assert settings()["jax_compilation_cache_dir"] is None
    assert not settings()["jax_enable_compilation_cache"]
    (tmp_path / "file").write_text("")
    assert pf.use_cache(tmp_path / "file" / "below") is None


def test_the_folder_can_be_changed_after_programs_were_compiled(settings, tmp_path):
    def kept(factor):
        jax.jit(lambda value: value * factor)(jnp.asarray(1.0))
        return [len(list((tmp_path / name).glob("*-cache"))) for name in ("first", "second")]

    pf.use_cache(tmp_path / "first")
    begun = kept(1.25)
    assert begun[0] > 0
    pf.use_cache(tmp_path / "second")
    changed = kept(2.25)
    assert changed[0] == begun[0]
    assert changed[1] > 0
    pf.use_cache(False)
    assert kept(3.25) == changed


def test_an_entry_is_whole_or_not_there(settings, tmp_path):
    """A disk that is full in the middle of an entry, here a limit to the size of files, leaves no half of it."""
    resource = pytest.importorskip("resource")
    pf.use_cache(tmp_path)
    entries = lru_cache.LRUCache(str(tmp_path), max_size=-1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            entries.put("program", bytes(1 << 21))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    entries.put("program", b"whole")
    assert entries.get("program") == b"whole"
    entries.put("program", b"of another process")
    assert entries.get("program") == b"whole"
    assert [each.name for each in tmp_path.iterdir()] == ["program-cache"]


@pytest.mark.parametrize(("found", "level"), [(None, "3"), ("1", "3"), ("0", "0")])
def test_the_compiler_is_silenced_before_it_is_loaded_unless_the_user_listens(found, level, monkeypatch):
    monkeypatch.delenv(cache._VERBOSITY, raising=False)
    if found is not None:
        monkeypatch.setenv(cache._VERBOSITY, found)
    monkeypatch.delitem(sys.modules, "jaxlib")
    cache.silence_compiler()
    assert os.environ[cache._VERBOSITY] == level


def test_cycles_are_looked_for_again_unless_the_user_does_not_want_it():
    with cache.collector_at_rest():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with cache.collector_at_rest():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


class _Node:
    """What can hold itself."""

    def __init__(self):
        self.itself = self


def test_what_was_made_meanwhile_counts_as_old_and_is_still_found():
    """The young are not looked through when it ends, cycles are freed when everything is, what is put aside stays."""
    with cache.collector_at_rest():
        gone = weakref.ref(_Node())
        made = [[] for _ in range(5000)]
    assert len(gc.get_objects(generation=0)) < len(made)
    assert gone() is not None
    gc.collect()
    assert gone() is None
    gc.freeze()
    try:
        aside = gc.get_freeze_count()
        with cache.collector_at_rest():
            pass
        assert aside >= gc.get_freeze_count() > 0.9 * aside > 0
    finally:
        gc.unfreeze()


@pytest.mark.slow
def test_no_cycles_are_looked_for_while_the_first_window_is_traced():
    looked: list[bool] = []

    class Watched(pf.drifts.AbstractDrift):
        def __call__(self, time, queries, measure):
            looked.append(gc.isenabled())
            return -queries.points

    run = pf.stream(pf.Flow(Watched()), jnp.ones((2, 1)), [0.0, 0.5, 1.0], step=0.25, solver="map", window=1)
    next(run)
    assert looked[-1] is False
    assert gc.isenabled()


def checked(value):
    return eqx.error_if(value, value > 1.0, "too large")


def test_checks_raise_again_after_a_run():
    """What is traced inside has none that call back; what the user traces after it raises as before."""
    with cache.without_callbacks():
        inside = str(jax.make_jaxpr(checked)(jnp.asarray(2.0)))
    assert "callback" not in inside
    assert "callback" in str(jax.make_jaxpr(lambda value: eqx.error_if(value, value > 2.0, "again"))(jnp.asarray(2.0)))
    with cache.without_callbacks(active=False):
        assert "callback" in str(jax.make_jaxpr(lambda value: eqx.error_if(value, value > 3.0, "on"))(jnp.asarray(2.0)))


def test_checks_in_code_of_ones_own_still_raise_inside_a_run():
    class Checked(pf.drifts.AbstractDrift):
        def __call__(self, time, queries, measure):
            return eqx.error_if(queries.points, queries.points > 1.5, "beyond my field")

    with pytest.raises(eqx.EquinoxRuntimeError, match="beyond my field"):
        pf.simulate(pf.Flow(Checked()), jnp.ones((2, 1)), [0.0, 1.0], step=0.25, solver="map")


SCRIPT = """
import particleflow as pf, jax.numpy as jnp
flow = pf.Flow(pf.Attend(pf.kernels.Attention(beta=4.0)), geometry=pf.Sphere())
tokens = pf.initial.UniformSphere(dim=3).sample(pf.key_for(0, "initial"), 16)
run = pf.simulate(flow, tokens, jnp.linspace(0, 1, 5), rtol=1e-6, atol=1e-8, observe=[pf.observables.energy])
print(float(run.observables["energy"][-1]).hex())
for frames in pf.stream(flow, tokens[:8], jnp.linspace(0, 1, 5), rtol=1e-6, atol=1e-8, window=4):
    print(float(frames.points[-1, 0, 0]).hex())
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["particleflow", "jax"])
def test_a_second_process_reads_back_what_the_first_has_compiled(first, tmp_path):
    unset = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "TF_CPP_MIN_LOG_LEVEL", "JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(Path(pf.__file__).parents[1])}
    said, kept = [], []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", f"import {first}\n{SCRIPT}"],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        said.append(run)
        kept.append({path.name for path in tmp_path.rglob("*-cache")})
    assert said[0].stdout == said[1].stdout
    windows = {name for name in kept[0] if name.startswith("jit_solve_window-") and name.endswith("-cache")}
    assert len(windows) >= 2  # of `simulate` and of `stream`
    assert kept[0] == kept[1]
    assert said[0].stderr == said[1].stderr == ""
