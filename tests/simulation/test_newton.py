"""Newton's method of implicit steps: its solutions against closed forms and SciPy, and when it computes a matrix."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from scipy.optimize import root

import particleflow as pf
from particleflow import drifts
from particleflow.simulation.stepping.newton import KeptNewton, factored, no_factors

START = jnp.asarray([1.0, -0.5, 2.0])
STRENGTH = np.array([[2.0, 0.3, 0.0], [0.1, 3.0, 0.2], [0.0, 0.4, 4.0]])


def equation(z: Any, _: Any = None) -> Any:
    """A smooth monotone system."""
    return STRENGTH @ z + 0.5 * jnp.tanh(z) - jnp.asarray([1.0, 2.0, 3.0])


def solve(factors: Any, known: bool, function: Any = equation, start: Any = START) -> Any:
    options = {"factors": factors, "known": jnp.asarray(known), "rounding": jnp.asarray(0.0)}
    finder = KeptNewton(1e-10, 1e-10)
    return optx.root_find(function, finder, start, options=options, throw=False, max_steps=20)


def test_the_solution_is_that_of_scipy_whatever_matrix_it_begins_with():
    exact = root(lambda z: np.asarray(equation(jnp.asarray(z))), np.zeros(3), tol=1e-13).x
    useless = factored(lambda z: -0.1 * z, START)  # corrections by this matrix grow
    for found in (solve(no_factors(START), False), solve(useless, True)):
        assert found.result == optx.RESULTS.successful
        assert np.max(np.abs(found.value - exact)) < 1e-12


def test_a_matrix_that_serves_is_kept_and_another_one_is_not():
    good = factored(equation, START)
    assert np.array_equal(solve(good, True).state.factors[0], good[0])
    poor = factored(lambda z: -0.1 * z, START)
    assert not np.array_equal(solve(poor, True).state.factors[0], poor[0])


def test_numbers_that_are_not_finite_end_the_search():
    found = solve(no_factors(START), False, lambda z, _: jnp.log(z - 3.0), START)
    assert found.result != optx.RESULTS.successful
    assert found.stats["num_steps"] == 1


def test_a_function_that_cannot_be_transposed_has_a_matrix_too():
    """z ↦ z³ by a loop whose length is known when it runs."""

    def cubed(z: Any) -> Any:
        return jax.lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * z, s[1] + 1), (jnp.ones_like(z), 0))[0]

    triangle, order = factored(cubed, START)
    assert np.allclose(np.diag(np.asarray(triangle)), 3 * np.asarray(START) ** 2, rtol=1e-14)
    assert list(order) == [0, 1, 2]


@pytest.mark.slow
def test_a_stiff_field_with_such_a_loop_is_solved_by_implicit_steps():
    """ẋ = −1000 (x − cos t) − sin t from 1 is cos t."""

    def chased(time: Any, points: Any, measure: Any) -> Any:
        halved = jax.lax.while_loop(lambda s: s[1] < 1, lambda s: (s[0] * 1000, s[1] + 1), (points - jnp.cos(time), 0))
        return -halved[0] - jnp.sin(time)

    times = np.linspace(0.0, 3.0, 7)
    run = pf.simulate(
        pf.Flow(drifts.FunctionDrift(chased)), np.ones((4, 1)), times, rtol=1e-8, atol=1e-10, solver="kvaerno5"
    )
    assert np.max(np.abs(run.points - np.cos(times)[:, None, None])) < 1e-7
    assert run.metadata["statistics"]["accepted steps"] < 1000


@pytest.mark.slow
def test_an_ensemble_of_implicit_runs_is_its_members():
    """Runs of a batch compute their matrices together."""
    starts = np.asarray(pf.Sphere().retract(jnp.asarray(np.random.default_rng(1).normal(size=(3, 6, 2)))))
    flow = pf.Flow(pf.Attend(pf.kernels.Attention(4.0)), pf.Sphere())
    times, options = [0.0, 1.0, 50.0], {"rtol": 1e-8, "atol": 1e-10, "solver": "kvaerno5"}
    together = pf.simulate(flow, starts, times, **options)  # pyright: ignore[reportArgumentType]
    for run, start in enumerate(starts):
        alone = pf.simulate(flow, start, times, **options)  # pyright: ignore[reportArgumentType]
        assert np.max(np.abs(np.asarray(together.points)[:, run] - np.asarray(alone.points))) < 1e-8


@pytest.mark.slow
def test_derivatives_through_implicit_steps_are_those_of_differences():
    start = pf.Sphere().retract(jnp.asarray(np.random.default_rng(0).normal(size=(6, 2))))

    def end(beta: Any) -> Any:
        flow = pf.Flow(pf.Attend(pf.kernels.Attention(beta)), pf.Sphere())
        reached = pf.evolve(flow, start, 1.5, rtol=1e-9, atol=1e-11, solver="kvaerno5", max_steps=256)
        return jnp.sum(jnp.sin(3 * reached.points))

    assert float(jax.grad(end)(2.0)) == pytest.approx(float(end(2.0001) - end(1.9999)) / 2e-4, rel=1e-6)
