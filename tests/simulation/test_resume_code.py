"""The code of a user's functions is part of a run: what changes what they do is told, what does not is not."""

import importlib.metadata
import importlib.util
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import particleflow as pf
from particleflow._support import user_code
from particleflow._support.user_code import code_of
from particleflow.errors import ArgumentError, ResumedElsewhere
from particleflow.simulation.recording.fingerprint import within

CODE = '''
import functools
import jax.numpy as jnp
import numpy as np
import particleflow as pf

SCALE = 2.0
ENDS = (0.0, 1.0)
TABLE = np.array([1.0, 2.0])
NAMES = {"a", "b"}


def halved(number):
    return number / 2


def scaled(number):
    return SCALE * number


@functools.lru_cache
def cached(number):
    return number + 3 + sum(ENDS) + TABLE[0] - 2.0


def spread(present):
    """How wide it is."""
    points = present.measure.points
    chosen = [name for name in ("a", "c") if name in {"a", "b"}]
    shift = lambda x: x - 1.0
    return scaled(halved(shift(jnp.max(points)))) + len(chosen) + cached(1)


class Push(pf.drifts.AbstractDrift):
    """Along the first axis."""

    strength: float = 1.0

    def __call__(self, time, queries, measure):
        return self.along(queries.points)

    def along(self, points):
        return self.strength * jnp.ones_like(points)


class Farther(Push):
    @property
    def height(self):
        return 1.0

    @staticmethod
    def level(points):
        return points > 2
'''

SAME = {
    "a comment and other lines": ("def halved", "# Half of it.\n\n\ndef halved"),
    "documentation": ("How wide it is.", "The width."),
    "documentation of a class": ("Along the first axis.", "Along an axis."),
    "the name of a variable": ("shift", "moved"),
    "what nobody uses": ('NAMES = {"a", "b"}', 'NAMES = {"b"}'),
}
OTHER = {
    "a constant": ("x - 1.0", "x - 1.5"),
    "an operator": ("x - 1.0", "x + 1.0"),
    "a called function": ("jnp.max", "jnp.min"),
    "a set": ('in {"a", "b"}]', 'in {"a", "c"}]'),
    "a helper": ("number / 2", "number / 3"),
    "a cached helper": ("number + 3", "number + 4"),
    "a number of the module": ("SCALE = 2.0", "SCALE = 2.5"),
    "a method": ("self.strength * jnp", "-self.strength * jnp"),
    "a property": ("        return 1.0", "        return 1.5"),
    "a static method": ("points > 2", "points > 3"),
    "an array of the module": ("[1.0, 2.0]", "[1.0, 3.0]"),
    "a tuple of the module": ("(0.0, 1.0)", "(0.0, 2.0)"),
}

numbers = itertools.count()


def module(folder: Path, text: str) -> ModuleType:
    """A user's module, each time read anew from a file of the same name."""
    path = folder / f"{next(numbers)}" / "mine.py"
    path.parent.mkdir()
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("mine", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def code(mine: ModuleType) -> list[bytes]:
    return list(code_of([mine.spread, *within(mine.Farther())]))


@pytest.mark.parametrize("change", SAME)
def test_what_does_not_change_a_function_is_not_told(tmp_path, change):
    assert SAME[change][0] in CODE
    assert code(module(tmp_path, CODE)) == code(module(tmp_path, CODE.replace(*SAME[change])))


@pytest.mark.parametrize("change", OTHER)
def test_what_changes_a_function_is_told(tmp_path, change):
    assert OTHER[change][0] in CODE
    assert code(module(tmp_path, CODE)) != code(module(tmp_path, CODE.replace(*OTHER[change])))


def test_the_code_of_known_packages_is_none_of_the_user():
    kernel = pf.kernels.Attention(beta=1.0)
    assert list(code_of([pf.observables.energy, np.mean, itertools.count(), *within(pf.Attend(kernel))])) == []


def test_errors_below_a_dependency_are_not_those_of_the_user():
    """Every package that the project declares, by the name it is imported by."""
    wanted = importlib.metadata.requires("particleflow") or []
    wanted = [each for each in wanted if "extra" not in each or "learn" in each.split("extra")[1]]
    names = {re.split(r"[^A-Za-z0-9_-]", each)[0].lower().replace("_", "-") for each in wanted}
    modules = {module for module, of in importlib.metadata.packages_distributions().items() if set(of) & names}
    assert {"jax", "h5py", "PIL", "sklearn", "optax", "jax_finufft"} <= modules
    assert {module for module in modules if not module.startswith("_")} - {"pylab", "mpl_toolkits"} <= user_code._KNOWN


@pytest.mark.slow
def test_other_processes_describe_a_function_in_the_same_bytes(tmp_path):
    """Sets and hashes have another order in each."""
    command = "import sys, pathlib, test_resume_code as case\n"
    command += "sys.stdout.buffer.write(b''.join(case.code(case.module(pathlib.Path(sys.argv[1]), case.CODE))))"
    (tmp_path / "other").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", command, str(tmp_path / "other")], capture_output=True, check=True,
        cwd=Path(__file__).parent, env={**os.environ, "PYTHONHASHSEED": "1", "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert ended.stdout == b"".join(code(module(tmp_path, CODE)))


def break_off(frames):
    raise KeyboardInterrupt


def run(mine: ModuleType, store: Path, **options) -> pf.Trajectory:
    times = 0.1 * np.arange(5)
    observe = [mine.spread]
    return pf.simulate(
        pf.Flow(mine.Push()), np.eye(2), times, step=0.1, solver="map", window=2, observe=observe, store=store,
        **options,
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_is_not_resumed_with_a_function_that_does_something_else(tmp_path, monkeypatch):
    store = tmp_path / "run.h5"
    with pytest.raises(KeyboardInterrupt):
        run(module(tmp_path, CODE), store, progress=break_off)
    before = store.read_bytes()
    for change, argument in (("an operator", "observe"), ("a method", "flow")):
        with pytest.raises(ArgumentError, match=f"a function of `{argument}` has changed"):
            run(module(tmp_path, CODE.replace(*OTHER[change])), store, resume=True)
    assert store.read_bytes() == before
    monkeypatch.setattr("particleflow.simulation.recording.fingerprint.PYTHON", "cpython-999")
    with pytest.warns(ResumedElsewhere, match=r"cpython-\d+, this is cpython-999.*cannot be checked"):
        resumed = run(module(tmp_path, CODE.replace(*SAME["documentation"])), store, resume=True)
    assert resumed.status == "finished"
    np.testing.assert_allclose(resumed.observables["spread"], 5 + 0.1 * np.arange(5))  # 2 · (max − 1)/2 + 1 + 4
