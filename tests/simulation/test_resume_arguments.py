"""Resuming, one argument at a time: what changes the file of a run is refused by name, what does not is taken.

The runs are maps of five particles, so that one compiled program serves the whole table.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow.errors import ArgumentError, RunError
from particleflow.simulation.recording.fingerprint import described

POINTS = np.random.default_rng(0).normal(size=(5, 2))
TIMES = 0.1 * np.arange(9)


def flow(beta: float = 2.0, temperature: float = 0.0) -> pf.Flow:
    return pf.Flow(pf.Attend(pf.kernels.Attention(beta=beta)), temperature=temperature)


def powers(exponent: float) -> Callable[[Any], Any]:
    """An observable that closes over its parameter."""

    def moment(present):
        return jnp.mean(jnp.abs(present.measure.points) ** exponent)

    return moment


class Level:
    """An observable that keeps its parameter as any object does."""

    name = "level"

    def __init__(self, height: float):
        self.height = height

    def __call__(self, present):
        return jnp.max(present.measure.points) - self.height


def quantile(level: float) -> pf.observables.SimilarityQuantiles:
    return pf.observables.SimilarityQuantiles([level])


def above(present, *, height=0.0):
    return jnp.sum(present.measure.points > height).astype(float)


ARGUMENTS: dict[str, Any] = {
    "flow": flow(), "start": POINTS, "times": TIMES, "discretization": None, "rtol": None, "atol": None, "step": 0.1,
    "solver": "map", "observe": [pf.observables.diameter], "event": None, "key": None, "window": 4,
    "max_steps": 1000, "storage": None, "particles": [0, 1, 2], "labels": [0, 0, 1, 1, 1], "fsync": True,
    "words": list("abcde"), "provenance": {"title": "one"},
}  # fmt: skip

# Argument → values that make another file.
REFUSED: dict[str, list[Any]] = {
    "flow": [flow(2.5), pf.Flow(pf.MeanShift(pf.kernels.Gaussian(1.0)))],
    "start": [POINTS + 1e-9, POINTS[:, ::-1].copy(), pf.Measure.weighted(POINTS, [1.0, 1, 1, 1, 2])],
    "times": [0.1 * np.arange(10), np.append(TIMES[:-1], 0.9)],
    "discretization": [pf.Particles(coalesce=1e-6)],
    "step": [0.05],
    "solver": ["euler", "heun"],
    "observe": [[], [pf.observables.speed], [pf.observables.diameter, pf.observables.speed]],
    "event": [pf.events.Clustered(1e-3)],
    "window": [3, None],
    "storage": ["float32"],
    "particles": [[0, 1, 3], [2, 1, 0], [0, 1], None],
    "labels": [[0, 0, 1, 1, 2], None],
    "words": [list("abcdf"), None],  # the words of a file cannot change, so that others would be silently lost
}
# Argument → values that leave every bit as it is.
ACCEPTED: dict[str, list[Any]] = {
    "max_steps": [200_000],
    "solver": ["map"],
    "storage": ["float64"],
    "labels": [np.array([0, 0, 1, 1, 1], np.int32)],
    "words": [np.array(list("abcde"), "<U9"), tuple("abcde")],
    "particles": [np.array([0, 1, 2], np.uint8)],
    "discretization": [pf.Particles()],
    "key": [jax.random.key(7)],  # there is no noise
    "fsync": [False],
    "provenance": [{"title": "another"}],
    "progress": [lambda frames: None],
}
# What has a test of its own below (devices: in `test_over_devices`), or says where the file is.
ELSEWHERE = {"devices", "title", "overwrite", "rtol", "atol", "key", "store", "resume", "discretization"}


def break_off(frames: Any) -> None:
    """Stop a run after its first window."""
    raise KeyboardInterrupt


def run(store: Any, **changed: Any) -> Any:
    arguments = ARGUMENTS | changed
    first = [arguments.pop(name) for name in ("flow", "start", "times")]
    return pf.simulate(*first, store=store, **arguments)


def broken(store: Any, **changed: Any) -> Any:
    """The file of a run that was cut short after its first window."""
    with pytest.raises(KeyboardInterrupt):
        run(store, progress=break_off, **changed)
    return store


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run cut short, on which refusals leave no trace."""
    return broken(tmp_path_factory.mktemp("begun") / "run.h5")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The points of the run that nobody disturbs."""
    return np.asarray(run(tmp_path_factory.mktemp("whole") / "run.h5").points)


def test_the_tables_name_every_argument():
    named = set(REFUSED) | set(ACCEPTED) | ELSEWHERE
    assert named == set(inspect.signature(pf.simulate).parameters)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_an_argument_that_changes_the_run_is_refused_by_name(begun, name, value):
    with pytest.raises(ArgumentError, match=f"with these: `{name}` differs"):
        run(begun, resume=True, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # These two compile the run once more.
        pytest.param(name, value, marks=[pytest.mark.slow] if name in ("max_steps", "key") else [])
        for name, values in ACCEPTED.items()
        for value in values
    ],
)
def test_an_argument_that_changes_no_bit_is_taken(tmp_path, whole, name, value):
    resumed = run(broken(tmp_path / "run.h5"), resume=True, **{name: value})
    assert resumed.status == "finished"
    np.testing.assert_array_equal(np.asarray(resumed.points), whole)


def test_a_run_begun_before_words_were_kept_goes_on_without_them(tmp_path, monkeypatch, whole):
    """The fingerprints of its file and its checkpoints do not know of words, and its file has no place for them."""
    from particleflow.simulation.recording import recorder as recording

    def older(plan, **recorded):
        return {name: value for name, value in fingerprints(plan, **recorded).items() if name != "words"}

    fingerprints = recording.fingerprints
    with monkeypatch.context() as patch:
        patch.setattr(recording, "fingerprints", older)
        store = broken(tmp_path / "run.h5", words=None)
    resumed = run(store, resume=True)
    assert (resumed.status, resumed.words) == ("finished", None)
    np.testing.assert_array_equal(np.asarray(resumed.points), whole)


@pytest.mark.parametrize(
    "make",
    [
        powers,
        Level,
        quantile,
        lambda number: functools.partial(above, height=number),
        lambda number: jax.tree_util.Partial(above, height=number),
        lambda number: jax.jit(powers(number)),
        lambda number: eqx.filter_jit(powers(number)),
        lambda number: Level(number).__call__,
        lambda number: {"a": [powers(number)], "b": {number}},
    ],
    ids=["closure", "object", "module", "partial", "tree partial", "jit", "filter_jit", "method", "nested"],
)
def test_functions_are_told_apart_by_their_parameters(make):
    assert list(described(make(0.25))) == list(described(make(0.25)))
    assert list(described(make(0.25))) != list(described(make(0.75)))


def test_several_arguments_that_differ_are_all_named(begun):
    with pytest.raises(ArgumentError, match="`step` and `particles` differ"):
        run(begun, resume=True, step=0.05, particles=[0, 1, 4])


NOISY = {"flow": flow(temperature=0.1), "solver": "euler", "key": jax.random.key(0)}
ADAPTIVE = {"step": None, "solver": "tsit5", "rtol": 1e-4, "atol": 1e-6}


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        (NOISY, "key", jax.random.key(1)),
        (ADAPTIVE, "rtol", 1e-5),
        (ADAPTIVE, "atol", 1e-5),
        ({"observe": [powers(0.25)]}, "observe", [powers(0.75)]),
        ({"observe": [Level(0.25)]}, "observe", [Level(0.75)]),
        ({}, "particles", [2, 3, 4]),
    ],
    ids=["key", "rtol", "atol", "closure", "object", "particles"],
)
def test_a_run_killed_before_its_first_window_is_compared_with_its_file(tmp_path, monkeypatch, settings, name, value):
    def killed(plan, resumed):
        raise KeyboardInterrupt

    monkeypatch.setattr("particleflow.simulation.simulate.run_plan", killed)
    store = tmp_path / "run.h5"
    with pytest.raises(KeyboardInterrupt):
        run(store, **settings)
    with pytest.raises(ArgumentError, match=f"with these: `{name}` differs"):
        run(store, resume=True, **(settings | {name: value}))
    with pytest.raises(KeyboardInterrupt):  # the same settings reach the run itself
        run(store, resume=True, **settings)


@pytest.mark.slow
def test_a_run_that_ran_out_of_steps_goes_on_with_more_of_them(tmp_path):
    """As its own message recommends, and in the bits of a run that had enough from the beginning."""
    late = np.append(0.01 * np.arange(8), 100.0)
    adaptive: dict[str, Any] = {"step": None, "rtol": 1e-4, "atol": 1e-6, "solver": "tsit5", "times": late}
    spring = {"flow": pf.Flow(pf.drifts.Linear(-30.0)), "observe": []}
    store = tmp_path / "run.h5"
    with pytest.raises(RunError, match="raise max_steps"):
        run(store, **adaptive, **spring, max_steps=50)
    resumed = run(store, resume=True, **adaptive, **spring, max_steps=100_000)
    undisturbed = run(tmp_path / "other.h5", **adaptive, **spring, max_steps=100_000)
    assert resumed.status == "finished"
    np.testing.assert_array_equal(np.asarray(resumed.points), np.asarray(undisturbed.points))


@pytest.mark.parametrize("particles", [[0, 5], [-1, 2], [1, 1], [True, False], [0.0], [[0, 1]], []])
def test_particles_must_be_different_indices(tmp_path, particles):
    with pytest.raises(ArgumentError, match="`particles` must hold different indices from 0 to 4"):
        run(tmp_path / "run.h5", particles=particles)


def test_a_function_that_closes_over_itself_has_a_description():
    def recursive(present):
        return recursive if present is None else present

    assert list(described(recursive)) == list(described(recursive))


@pytest.mark.parametrize("made", [pf.kernels.Gaussian(0.5), pf.Particles(), pf.observables.energy, flow()])
def test_moving_a_class_keeps_its_fingerprint(made, monkeypatch):
    """Family and kind count, not the module: a later version may keep its classes elsewhere."""
    before = list(described(made))
    kind = made if inspect.isfunction(made) else type(made)
    monkeypatch.setattr(kind, "__module__", "particleflow.elsewhere")
    assert list(described(made)) == before
    monkeypatch.setattr(kind, "__module__", "another_package")
    assert list(described(made)) != before


def test_kinds_of_one_name_in_two_families_differ():
    first, second = pf.kernels.Gaussian(0.5), pf.discretization.Gaussian()
    assert next(iter(described(first))) != next(iter(described(second)))
