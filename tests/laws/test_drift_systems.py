"""Drifts of signed kernels, of values on places, of several heads, and functions, as whole systems against DOP853.

Weights × geometries × precisions × ensembles × resuming × events × noise, as `test_random_systems` does for attention.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
import system_oracles as oracle
from flows_oracles import root, solve
from particleflow import discretization, drifts, events, kernels, observables
from particleflow.dynamics.normal_law import Normal
from particleflow.errors import UserError
from random_systems import (
    COUNT,
    DIMENSION,
    DOUBLE,
    SINGLE,
    SPACES,
    Part,
    System,
    applied,
    assert_agrees,
    cast,
    draw_weights,
)
from shares import by_default

TIGHT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
TIMES = np.array([0.0, 0.2, 0.4, 0.6])
NAMES = [
    "laplacian", "laplacian none", "difference", "difference none", "derivative", "derivative of student_t",
    "propagate", "propagate held", "relaxation projected", "relaxation product", "multi_head", "blend", "function",
    "contrastive", "contrastive one-sided", "redrawn", "pair force",
]  # fmt: skip


def on_simplex(rows: np.ndarray) -> np.ndarray:
    """The nearest shares: max(row − τ, 0), τ by bisection."""
    low, high = rows.min(axis=1) - 1.0, rows.max(axis=1)
    for _ in range(80):
        middle = (low + high) / 2
        above = np.maximum(rows - middle[:, None], 0).sum(axis=1) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.maximum(rows - ((low + high) / 2)[:, None], 0)


def signed(name: str, rng: np.random.Generator, weights: np.ndarray) -> Part:
    """Differences and derivatives of local means."""
    narrow, wide = rng.uniform(0.4, 0.7), rng.uniform(0.9, 1.4)

    def masses(x: np.ndarray, width: float) -> np.ndarray:
        return np.exp(-oracle.squares(x, x) / (2 * width**2)) * weights

    def mean(x: np.ndarray, width: float) -> np.ndarray:
        return oracle.shares(-oracle.squares(x, x) / (2 * width**2), weights) @ x

    def covariance(x: np.ndarray) -> np.ndarray:
        shares = oracle.shares(-oracle.squares(x, x) / (2 * wide**2), weights)
        about = oracle.squares(x, x) - np.sum(shares * oracle.squares(x, x), axis=1, keepdims=True)
        return -(shares * about) @ x / wide**3

    def student(x: np.ndarray) -> np.ndarray:
        """By differences of fourth order: −∂m/∂ν."""

        def at(freedom: float) -> np.ndarray:
            logits = -(freedom + DIMENSION) / 2 * np.log1p(oracle.squares(x, x) / (freedom * wide**2))
            return oracle.shares(logits, weights) @ x

        return -oracle.slope(np.stack([at(2.5 + k * 1e-3) for k in (-2, -1, 0, 1, 2)]), 1e-3)

    first, second = kernels.Gaussian(narrow), kernels.Gaussian(wide)
    difference = drifts.KernelDifference
    freedom = drifts.KernelDerivative(kernels.StudentT(wide, 2.5), "freedom")
    return {
        "laplacian": Part(name, difference(second), lambda x: x - mean(x, wide)),
        "laplacian none": Part(
            name,
            difference(second, normalization="none"),
            lambda x: masses(x, wide).sum(axis=1, keepdims=True) * x - masses(x, wide) @ x,
        ),
        "difference": Part(name, difference(second, first), lambda x: mean(x, narrow) - mean(x, wide)),
        "difference none": Part(
            name, difference(second, first, "none"), lambda x: (masses(x, narrow) - masses(x, wide)) @ x
        ),
        "pair force": Part(
            name,
            drifts.PairForce(second),
            lambda x: masses(x, wide) @ x - masses(x, wide).sum(axis=1, keepdims=True) * x,
        ),
        "derivative": Part(name, drifts.KernelDerivative(second), covariance),
        "derivative of student_t": Part(name, freedom, student),
    }[name]


def placed(name: str, rng: np.random.Generator, weights: np.ndarray, positions: np.ndarray) -> Part:
    """Values that move on places: what each remembers, and what neighbours support."""
    places, memory = rng.normal(size=(COUNT, 2)), rng.uniform(size=(COUNT, DIMENSION))
    held = rng.uniform(size=COUNT) * (rng.uniform(size=COUNT) > 0.4)
    rule = 0.4 * rng.uniform(-1, 1, size=(DIMENSION, DIMENSION))
    kernel, order = kernels.Placed(kernels.Gaussian(0.8), places), positions.astype(int)
    rows = oracle.shares(-oracle.squares(places[order], places[order]) / (2 * 0.8**2), weights)

    def propagated(share: Any) -> Any:
        alpha = np.broadcast_to(share, COUNT)[order][:, None]
        return lambda f: alpha * (rows @ f) + (1 - alpha) * memory[order] - f

    def product(p: np.ndarray) -> np.ndarray:
        support = rows @ p @ rule.T
        average = np.sum(p * support, axis=1, keepdims=True)
        return p * (support - average) / (1 + average)

    relaxed = drifts.RelaxationLabelling
    return {
        "propagate": Part(name, drifts.Propagate(kernel, memory, 0.7), propagated(0.7)),
        "propagate held": Part(name, drifts.Propagate(kernel, memory, held), propagated(held)),
        "relaxation projected": Part(name, relaxed(kernel, rule), lambda p: on_simplex(p + rows @ p @ rule.T) - p),
        "relaxation product": Part(name, relaxed(kernel, rule, "product"), product),
    }[name]


def several(name: str, rng: np.random.Generator, weights: np.ndarray) -> Part:
    """Two heads in one drift, with narrow values; two drifts blended."""
    beta, bias = rng.uniform(0.3, 0.9), rng.normal(size=DIMENSION)
    query, key = 0.7 * rng.normal(size=(2, 2, 2, DIMENSION))
    value, output = rng.normal(size=(2, 2, DIMENSION)), 0.5 * rng.normal(size=(2, DIMENSION, 2))
    heads = [pf.Attend(kernels.Attention(beta, query[h], key[h]), value[h], output=output[h]) for h in range(2)]
    amounts = rng.uniform(0.3, 1.5, size=2)

    def head(h: int, x: np.ndarray) -> np.ndarray:
        shares = oracle.shares(beta * (x @ query[h].T) @ (x @ key[h].T).T, weights)
        return applied(output[h], applied(value[h], shares @ x))

    return {
        "multi_head": Part(name, drifts.MultiHead(heads, bias), lambda x: head(0, x) + head(1, x) + bias),
        "blend": Part(
            name,
            drifts.Blend([heads[0], drifts.Linear(-0.3)], list(amounts)),
            lambda x: amounts[0] * head(0, x) - 0.3 * amounts[1] * x,
        ),
    }[name]


def redrawn(name: str, rng: np.random.Generator, weights: np.ndarray) -> Part:
    """Attention with one matrix of random values for all of the run: its formula has no time."""
    drift = drifts.RedrawnValues(kernels.Attention(0.8), DIMENSION, 1, duration=1.0, value=0.3, spread=0.4, seed=5)
    matrix = np.asarray(drift.values[0])
    return Part(name, drift, lambda x: oracle.shares(0.8 * x @ x.T, weights) @ x @ matrix.T)


def function(name: str, rng: np.random.Generator, weights: np.ndarray) -> Part:
    """A function of time, points and measure: towards the mean, and turned in a plane."""
    rate = rng.uniform(0.3, 0.9)
    turn = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])

    def built(time: Any, x: Any, mu: pf.Measure) -> Any:
        mean = jnp.exp(mu.log_weights - mu.log_mass) @ mu.points
        return (rate * (mean[None] - x) + x @ jnp.asarray(turn, x.dtype)).astype(x.dtype)

    return Part(name, drifts.FunctionDrift(built), lambda x: rate * (weights @ x / weights.sum() - x) + x @ turn)


def contrasted(name: str, rng: np.random.Generator, weights: np.ndarray, positions: np.ndarray) -> Part:
    """Views of one sample, pairs by their positions, drawn together and pushed off all others."""
    beta, both = rng.uniform(0.4, 1.1), name == "contrastive"
    apart = ~np.eye(COUNT, dtype=bool)
    same = (positions[:, None] // 2 == positions[None] // 2) & apart

    def formula(x: np.ndarray) -> np.ndarray:
        kernel = np.where(apart, np.exp(beta * x @ x.T), 0.0)
        masses = kernel @ weights
        seen = (kernel * weights) @ x / masses[:, None]
        looked_at = kernel.T @ ((weights / masses)[:, None] * x)
        return 2 * same @ x - seen - looked_at if both else same @ x - seen

    return Part(name, drifts.Contrastive(beta, both_sides=both), formula)


def drawn(name: str, space_name: str, seed: int = 0, weighting: Any = None) -> System:
    """The system of a drift on a geometry, values on places beginning as shares."""
    rng = np.random.default_rng([NAMES.index(name), seed])
    said, weights = draw_weights(rng) if weighting is None else ("given", weighting)
    positions = rng.permutation(COUNT).astype(float)
    space = SPACES[space_name].given(weights)
    on_places = name.startswith(("propagate", "relaxation"))
    if on_places:
        part = placed(name, rng, weights, positions)
    else:
        makers = {"multi_head": several, "blend": several, "function": function, "redrawn": redrawn}
        placing = name.startswith("contrastive")
        part = contrasted(name, rng, weights, positions) if placing else makers.get(name, signed)(name, rng, weights)
    as_shares = on_places and "set_norm" not in space_name  # which has no normal form of values that sum to one
    begun = rng.dirichlet(np.ones(DIMENSION), COUNT) if as_shares else 0.5 * rng.normal(size=(COUNT, DIMENSION))
    start = pf.Measure.weighted(space.retract(begun), weights, positions=positions)
    if space.carries:
        start = start.with_fields({"residual_norm": rng.uniform(0.8, 2.0, COUNT)})
    flow = pf.Flow(part.built, geometry=space.build())
    return System(f"{name} on {space_name}, {said}", flow, start, space, part.formula, (name, space_name))


# Every drift meets three geometries, and every geometry two drifts or more.
CASES = [
    (name, list(SPACES)[(5 * place + 6 * turn) % len(SPACES)]) for place, name in enumerate(NAMES) for turn in range(3)
]


@pytest.mark.parametrize("case", by_default(CASES, CASES[::3]), ids=" on ".join)
def test_velocities_are_the_formulas(case):
    system = drawn(*case)
    moving = pf.geometry.lifted(system.flow.geometry, system.start.points, system.start.fields)
    found = eqx.filter_jit(system.flow.velocity)(0.0, moving, system.start.with_points(moving))
    wanted = system.field(0.0, system.begun())
    limit = 1e-9 if case[0] == "derivative of student_t" else 1e-11
    assert np.max(np.abs(found - wanted)) < limit * max(1.0, np.max(np.abs(wanted)))


@pytest.mark.slow
@pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=["double", "single"])
@pytest.mark.parametrize("case", CASES, ids=" on ".join)
def test_systems_agree_with_scipy(case, precision):
    assert_agrees(drawn(*case), precision)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_ensemble_of_other_weights_is_its_single_runs(name):
    system = drawn(name, "euclidean")
    others = np.array([0.3, 0.0, 0.2, 0.4, 0.1])
    starts = [system.start, pf.Measure.weighted(system.start.points, others, positions=system.start.positions)]
    both = pf.simulate(system.flow, starts, TIMES, **TIGHT)
    for number, start in enumerate(starts):
        alone = pf.simulate(system.flow, start, TIMES, **TIGHT)
        assert np.max(np.abs(np.asarray(alone.points) - both.run(number).points)) < 1e-9
    assert np.max(np.abs(both.run(0).points[-1] - both.run(1).points[-1])) > 1e-4


class StopError(Exception):
    """Ends a run between two windows."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_has_the_same_bits(name, tmp_path):
    system = drawn(name, "sphere" if name in ("multi_head", "blend") else "euclidean")
    options: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-10, "window": 2}

    def stop(frames: Any) -> None:
        raise StopError

    whole = pf.simulate(system.flow, system.start, TIMES, **options, store=tmp_path / "whole.h5")
    with pytest.raises(StopError):
        pf.simulate(system.flow, system.start, TIMES, **options, store=tmp_path / "cut.h5", progress=stop)
    on = pf.simulate(system.flow, system.start, TIMES, **options, store=tmp_path / "cut.h5", resume=True)
    assert on.status == "finished"
    assert np.array_equal(np.asarray(on.points), np.asarray(whole.points))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_event_is_located_in_double_and_in_single_precision(name):
    """The first time at which the speed of those that have weight is again, or is at last, what it is at t = 0.3."""
    system = drawn(name, "euclidean")
    weights = np.exp(np.asarray(system.start.log_weights))

    def speed(time: float) -> float:
        points = solve(system.field, system.begun(), [0.0, max(time, 1e-9)])[-1]
        return float(oracle.of_velocity(system.field(0.0, points), weights)["speed"])

    level, grid = speed(0.3), np.linspace(0.0, 0.32, 17)
    signs = np.sign([speed(time) - level for time in grid])
    place = int(np.flatnonzero(signs[1:] != signs[:-1])[0])
    exact = root(lambda time: speed(time) - level, grid[place], grid[place + 1])
    event = events.Reached(observables.speed, level)
    run = pf.simulate(system.flow, system.start, TIMES, **TIGHT, event=event)
    assert run.status == "stopped by event"
    assert abs(run.times[-1] - exact) < 1e-6
    flow, start = cast((system.flow, system.start), np.float32)
    run = pf.simulate(flow, start, TIMES, rtol=1e-5, atol=1e-6, event=event)
    assert abs(run.times[-1] - exact) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_noise_is_what_it_is_without_a_drift(name):
    """Over a short time x(T) − x(0) is √(2Tt) ξ, with the ξ of the key whatever the drift."""
    system = drawn(name, "euclidean")

    def ends(drift: Any, temperature: float) -> np.ndarray:
        flow = pf.Flow(drift, temperature=temperature)
        run = pf.simulate(flow, system.start, [0.0, 1e-3], step=2.5e-4, key=jax.random.key(3))
        return np.asarray(run.points[-1])

    moved = ends(system.flow.drift, 1e-6) - ends(system.flow.drift, 1e-300)
    bare = ends(drifts.Linear(0.0), 1e-6) - np.asarray(system.start.points)
    assert np.max(np.abs(moved - bare)) < 1e-2 * np.max(np.abs(bare))


COVARIANCE, MEAN = np.array([[1.3, 0.4], [0.4, 0.7]]), np.array([0.3, -0.5])


@pytest.mark.parametrize("name", by_default(["laplacian", "difference", "derivative"], ["difference"]))
def test_differences_of_gaussian_kernels_move_normal_laws_affinely(name):
    """m_h(a + ξ) = a + S(S + h²)⁻¹ξ, so that S((S + h₁²)⁻¹ − (S + h₂²)⁻¹), and 2h S(S + h²)⁻² for the derivative."""
    law = Normal(jnp.asarray(MEAN), jnp.linalg.cholesky(COVARIANCE), jnp.zeros(()))
    inverse = {h: np.linalg.inv(COVARIANCE + h**2 * np.eye(2)) for h in (0.6, 1.1)}
    drift, wanted = {
        "laplacian": (drifts.KernelDifference(kernels.Gaussian(1.1)), np.eye(2) - COVARIANCE @ inverse[1.1]),
        "difference": (
            drifts.KernelDifference(kernels.Gaussian(1.1), kernels.Gaussian(0.6)),
            COVARIANCE @ (inverse[0.6] - inverse[1.1]),
        ),
        "derivative": (
            drifts.KernelDerivative(kernels.Gaussian(1.1)),
            2 * 1.1 * COVARIANCE @ inverse[1.1] @ inverse[1.1],
        ),
    }[name]
    found = eqx.filter_jit(drift.affine)(0.0, law)
    np.testing.assert_allclose(found.matrix, wanted, atol=1e-13)
    np.testing.assert_allclose(found.offset, 0.0, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("laplacian none", discretization.Gaussian()),
        ("derivative of student_t", discretization.Gaussian()),
        ("function", discretization.Gaussian()),
        ("propagate", discretization.Gaussian()),
        ("relaxation projected", discretization.Gaussian()),
        ("propagate", pf.Particles(coalesce=1e-9)),
        ("relaxation product", pf.Particles(coalesce=1e-9)),
        ("contrastive", discretization.Gaussian()),
        ("contrastive", pf.Particles(coalesce=1e-9)),
    ],
)
def test_what_would_be_wrong_is_refused(name, how):
    """A law that does not stay normal; particles that are merged, though their places differ."""
    system = drawn(name, "euclidean", weighting=np.full(COUNT, 0.2))
    with pytest.raises(UserError, match=r"Gaussian|position"):
        pf.simulate(system.flow, system.start, [0.0, 0.1], rtol=1e-6, atol=1e-8, discretization=how)
