"""What is computed once, or only when it is asked for: nobody is served the answer to another question."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special

import particleflow as pf
from particleflow import kernels
from particleflow._support.arrays import as_float_array, as_number, progression, remembered, shapes_of
from particleflow.simulation.plan import Stepping, make_plan
from particleflow.simulation.recording import recorder as recorders
from particleflow.simulation.recording.fingerprint import brings_code
from particleflow.simulation.recording.recording import Recording
from particleflow.summation import Auto
from particleflow.summation.native.build import SWITCH

POINTS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.6, 0.8], [0.0, 0.0, 1.0]])
FLOW = pf.Flow(pf.Attend(kernels.Attention(4.0)), geometry=pf.Sphere())
TOLERANCES = {"rtol": 1e-6, "atol": 1e-8}


def run(flow: Any = FLOW, start: Any = POINTS, times: Any = (0.0, 0.5), **options: Any) -> pf.Trajectory:
    return pf.simulate(flow, start, list(times), **TOLERANCES, **options)


# What is remembered by structure.

asked: list[Any] = []


def noted(*operands: Any) -> int:
    asked.append(operands)
    return len(asked)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ((kernels.Attention(1.0),), (kernels.Attention(2.0),), True),  # numbers alone
        ((kernels.Attention(1.0),), (kernels.Cosine(1.0),), False),
        ((kernels.Attention(1.0),), (kernels.Attention(1.0, query=np.ones(3)),), False),
        ((np.zeros(3),), (jnp.ones(3),), True),
        ((np.zeros(3),), (np.zeros(4),), False),
        ((np.zeros(3),), (np.zeros(3, np.float32),), False),
        ((pf.Particles(),), (pf.Particles(coalesce=1e-9),), False),
        ((Auto(),), (Auto(dense_bytes=1),), False),
        ((None, 1), (None, 2), False),
        (("one",), ("other",), False),
        ((sum,), (max,), False),
        (([],), ({},), False),
    ],
)
def test_an_answer_is_remembered_for_operands_of_one_structure(first, second, same):
    assert remembered(noted, *first) == remembered(noted, *first)
    assert (remembered(noted, *first) == remembered(noted, *second)) is same


def test_what_cannot_be_compared_is_asked_every_time():
    odd = eqx.tree_at(lambda kernel: kernel.beta, kernels.Attention(1.0), {1, 2})
    assert remembered(noted, odd) != remembered(noted, odd)


def test_none_is_an_answer():
    calls = []

    def nothing(operand: Any) -> None:
        calls.append(operand)

    assert remembered(nothing, POINTS) is remembered(nothing, POINTS) is None
    assert len(calls) == 1


def test_shapes_and_answers_of_one_function_are_kept_apart():
    def doubled(array: Any) -> Any:
        return 2 * array

    assert isinstance(remembered(doubled, POINTS), np.ndarray)
    assert shapes_of(doubled, POINTS) == jax.ShapeDtypeStruct(POINTS.shape, POINTS.dtype)


def test_the_choice_of_a_sum_follows_kernel_shapes_limits_and_switch(monkeypatch):
    def chosen(kernel: Any, count: int, **limits: Any) -> str:
        measure = pf.Measure.uniform(jnp.asarray(np.resize(POINTS, (count, 3))))
        return str(Auto(**limits).select(kernel, measure, measure))

    attention = kernels.Attention(1.0)
    assert chosen(attention, 8) == chosen(kernels.Attention(2.0), 8)
    assert "16 × 16" in chosen(attention, 16)
    assert "16 × 16" not in chosen(attention, 8)
    assert chosen(kernels.Rectified(1.0), 8).startswith("Dense")
    assert chosen(kernels.Rectified(1.0), 8, dense_bytes=8).startswith("Blockwise")
    before = chosen(attention, 8)
    monkeypatch.setenv(SWITCH, "0")
    assert f"turned off by {SWITCH}=0" in chosen(attention, 8)
    monkeypatch.delenv(SWITCH)
    assert chosen(attention, 8) == before


# Numbers that come again.


def test_numbers_keep_value_and_precision():
    for value, dtype in ((1.5, float), (1.5, np.float32), (2, float), (np.float64(0.1), np.float32)):
        number = as_number(value, dtype)
        assert (number.dtype, number.weak_type) == (np.dtype(dtype), False)
        assert number == np.asarray(value, dtype)
    assert jax.jit(as_number)(1.5) == 1.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 7, 20_000])
def test_progressions(count, dtype):
    assert np.array_equal(progression(0.0, 1.0, count, dtype), np.arange(count, dtype=dtype))
    assert np.array_equal(progression(-2.5, 0.0, count, dtype), np.full(count, -2.5, dtype))
    assert progression(0.0, 1.0, count, dtype).dtype == dtype


def by_scipy(beta: float, weights: np.ndarray, length: float) -> np.ndarray:
    def field(_: float, flat: np.ndarray) -> np.ndarray:
        x = flat.reshape(POINTS.shape)
        pull = scipy.special.softmax(beta * x @ x.T + np.log(weights), axis=1) @ x
        return (pull - np.sum(pull * x, axis=1, keepdims=True) * x).ravel()

    found = scipy.integrate.solve_ivp(field, (0.0, length), POINTS.ravel(), rtol=1e-10, atol=1e-12)
    return found.y[:, -1].reshape(POINTS.shape)


@pytest.mark.slow
def test_runs_after_each_other_keep_their_own_arguments():
    """Runs that share one program and all that is remembered, twice through, each against SciPy."""
    equal, unequal = np.full(4, 0.25), np.array([0.1, 0.2, 0.3, 0.4])
    hot = pf.Flow(pf.Attend(kernels.Attention(9.0)), geometry=pf.Sphere())
    weighted = pf.Measure.weighted(POINTS, unequal)
    cases = [
        ((FLOW, POINTS, (0.0, 0.5)), (4.0, equal, 0.5)),
        ((hot, POINTS, (0.0, 0.5)), (9.0, equal, 0.5)),
        ((FLOW, weighted, (0.0, 0.5)), (4.0, unequal, 0.5)),
        ((FLOW, POINTS, (0.1, 0.9)), (4.0, equal, 0.8)),
    ]
    for arguments, expected in 2 * cases:
        found = run(*arguments)
        assert np.allclose(found.points[-1], by_scipy(*expected), atol=1e-6)
        assert found.times.tolist() == list(arguments[2])
    ends = [by_scipy(*expected) for _, expected in cases]
    assert all(np.abs(one - other).max() > 1e-3 for place, one in enumerate(ends) for other in ends[:place])


def test_an_array_that_changes_later_changes_nothing():
    """JAX looks at the memory of some arrays of NumPy, those that begin where it likes: here it has a copy."""
    matrix, points = np.eye(3), np.resize(POINTS, (256, 3))
    kernel, measure = kernels.Attention(1.0, query=matrix), pf.Measure.uniform(points)
    copies = [as_float_array(each, "each") for each in (matrix, points)]
    matrix[:], points[:] = 7.0, 7.0
    assert np.array_equal(kernel.query, np.eye(3))
    assert np.array_equal(measure.points, np.resize(POINTS, (256, 3)))
    assert all(not np.any(np.asarray(each) == 7.0) for each in copies)


# What is said of a run only when somebody asks.


def test_metadata_are_found_out_once():
    asked: list[int] = []
    made = pf.Trajectory.from_arrays([0.0], POINTS[None], metadata=lambda: asked.append(1) or {"title": "found"})
    part = made[:1]
    assert not asked
    assert made.metadata == made.metadata == {"title": "found"}
    assert asked == [1]
    made.metadata["title"] = "changed"
    assert (made.metadata["title"], part.metadata["title"]) == ("changed", "changed")  # slices share it


@pytest.mark.slow
def test_a_run_in_memory_is_described_when_asked_and_as_a_stored_one(monkeypatch, tmp_path):
    described: list[int] = []
    plain = recorders.describe
    monkeypatch.setattr(recorders, "describe", lambda plan: described.append(1) or plain(plan))
    hot = pf.Flow(pf.Attend(kernels.Attention(9.0)), geometry=pf.Sphere())
    first, second = run(provenance={"title": "first", "solver": "as told"}), run(hot)
    assert not described
    stored = run(store=tmp_path / "run.h5", provenance={"title": "first", "solver": "as told"})
    assert described == [1]  # the stored one
    assert first.metadata["statistics"]["accepted steps"] > 0
    assert (first.status, first.metadata["title"], first.metadata["solver"]) == ("finished", "first", "as told")
    assert first.metadata["interactions"][0]["kernel"]["beta"] == 4.0
    assert second.metadata["interactions"][0]["kernel"]["beta"] == 9.0
    assert described == [1, 1, 1]
    changing = {"statistics", "status", "message"}
    kept = {name: value for name, value in first.metadata.items() if name not in changing}
    assert kept == {name: value for name, value in stored.metadata.items() if name in kept}
    hashes = first.metadata["fingerprint"], second.metadata["fingerprint"]
    assert [name for name in hashes[0] if hashes[0][name] != hashes[1][name]] == ["flow"]


def own_observable(flow: Any, time: Any, measure: Any) -> Any:
    return jnp.sum(measure.points)


def recorder(*observe: Any) -> Any:
    return recorders.Recorder(
        make_plan(FLOW, POINTS, [0.0, 0.5], Stepping(rtol=1e-6, atol=1e-8), observe=observe), Recording()
    )


def test_code_of_the_users_own_is_seen_and_described_at_once():
    for _ in range(2):
        theirs, mine = recorder(pf.observables.energy), recorder(own_observable)
        assert (brings_code(theirs.plan), brings_code(mine.plan)) == (False, True)
        assert (len(theirs.provenance["code"]), len(mine.provenance["code"])) == (1, 2)
