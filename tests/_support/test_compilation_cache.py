"""Compiled programs that outlive their process: where they are kept, and that a second process reads them back."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

import particleflow as pf
from particleflow._support import own_process

SETTINGS = ("jax_enable_compilation_cache", "jax_compilation_cache_dir", "jax_disable_most_optimizations")
SETTINGS += ("jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes")


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """The settings of JAX as a program finds them that has decided nothing, put back in the end."""
    before = {name: jax.config.values[name] for name in SETTINGS}
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", None)
    yield lambda: dict(jax.config.values)
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_the_folder_is_the_platforms_unless_it_is_named(settings, tmp_path):
    if sys.platform.startswith("linux"):
        assert pf.use_cache() == tmp_path / "particleflow" / "jax"
        assert settings()["jax_compilation_cache_dir"] == str(tmp_path / "particleflow" / "jax")
    assert settings()["jax_persistent_cache_min_compile_time_secs"] == 0.0


@pytest.mark.parametrize(("found", "level"), [(None, "3"), ("1", "3"), ("0", "0")])
def test_the_command_line_sets_what_libraries_read_and_keeps_what_the_user_has_set(found, level, monkeypatch, tmp_path):
    names = ("TF_CPP_MIN_LOG_LEVEL", "EQX_ON_ERROR", "OPENBLAS_NUM_THREADS", "JAX_COMPILATION_CACHE_DIR")
    for name in (*names, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"):
        monkeypatch.setenv(name, "")  # given back in the end, whatever is set meanwhile
        monkeypatch.delenv(name)
    monkeypatch.setattr(own_process, "_configured", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    if found is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", found)
    assert not own_process.is_command_line()
    own_process.configure_process()
    assert own_process.is_command_line()
    place = str(tmp_path / "particleflow" / "jax") if sys.platform.startswith("linux") else os.environ[names[-1]]
    assert [os.environ[name] for name in names] == [level, "nan", "2", place]
    assert os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] == "-1"


def test_a_folder_of_ones_own_and_none(settings, tmp_path):
    assert pf.use_cache(tmp_path / "deep" / "mine") == tmp_path / "deep" / "mine"
    assert settings()["jax_compilation_cache_dir"] == str(tmp_path / "deep" / "mine")
    assert pf.use_cache(False) is None
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


SCRIPT = """
import particleflow as pf, jax.numpy as jnp
pf.use_cache()
flow = pf.Flow(pf.Attend(pf.kernels.Attention(beta=4.0)), geometry=pf.Sphere())
tokens = pf.initial.UniformSphere(dim=3).sample(pf.key_for(0, "initial"), 16)
run = pf.simulate(flow, tokens, jnp.linspace(0, 1, 5), rtol=1e-6, atol=1e-8, observe=[pf.observables.energy])
print(float(run.observables["energy"][-1]).hex())
for frames in pf.stream(flow, tokens[:8], jnp.linspace(0, 1, 5), rtol=1e-6, atol=1e-8, window=4):
    print(float(frames.points[-1, 0, 0]).hex())
"""


@pytest.mark.slow
@pytest.mark.parametrize("checks", ["raise", "nan"])
def test_a_second_process_reads_back_what_the_first_has_compiled(checks, tmp_path):
    """With checks that call back into Python, all but the programs that have some, such as a window."""
    unset = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(Path(pf.__file__).parents[1])}
    # On some processors XLA logs, as an error, that programs were compiled for features it does not report.
    environment |= {"EQX_ON_ERROR": checks, "TF_CPP_MIN_LOG_LEVEL": "3"}
    said, kept = [], []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment
        )
        said.append(run)
        kept.append({path.name for path in tmp_path.rglob("*-cache")})
    assert said[0].stdout == said[1].stdout
    windows = {name for name in kept[0] if name.startswith("jit_solve_window-")}
    assert (len(windows) >= 2) == (checks == "nan")  # of `simulate` and of `stream`
    assert len(kept[0]) > 5
    assert kept[0] == kept[1]
    assert said[0].stderr == said[1].stderr == ""
