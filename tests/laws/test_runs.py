"""Energies of wrapped drifts, doubly stochastic attention, events, ensembles and continuations, with weights.

One particle has no weight and stands where it would change the answer if it counted.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

import particleflow as pf
import system_oracles as oracle
from flows_oracles import root, solve
from particleflow import drifts, events, geometry, kernels, observables
from shares import by_default

BETA, TIMES = 1.3, np.array([0.0, 0.2, 0.5, 0.9])
TIGHT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
WEIGHTS = np.array([0.3, 0.15, 0.25, 0.1, 0.2, 0.0])
ALIVE = WEIGHTS > 0
START = oracle.unit(np.random.default_rng(51).normal(size=(6, 3)) + np.array([0.8, 0.0, 0.0]))
START[5] = -oracle.unit(START[:5].sum(axis=0))
MEASURE = pf.Measure.weighted(START, WEIGHTS)
SPHERE, FLAT = oracle.spaces(3)["sphere"], oracle.spaces(3)["euclidean"]


def attend(beta: float = BETA) -> pf.Attend:
    return pf.Attend(kernels.Attention(beta=beta))


def energy(points: np.ndarray, beta: float = BETA) -> float:
    """(1/2β) ΣΣ w_i w_j e^{β⟨x_i, x_j⟩}."""
    return float(WEIGHTS @ np.exp(beta * points @ points.T) @ WEIGHTS / (2 * beta))


WRAPPED: dict[str, tuple[drifts.AbstractDrift, Callable[[float], float]]] = {
    "half of it": (0.5 * attend(), lambda t: BETA),
    "varying": (
        drifts.Varying(attend(), drifts.Ramp(1.0, 4.0, end=1.0), "kernel.beta"),
        lambda t: 1.0 + 3.0 * min(t, 1.0),
    ),
    "layers": (
        drifts.Layers([attend(0.5), attend(2.0), attend(1.0)], duration=0.4),
        lambda t: [0.5, 2.0, 1.0][int(t / 0.4)],
    ),
    "beside a confinement": (attend() + drifts.Confinement(0.5), lambda t: BETA),
    "after a confinement": (drifts.Confinement(0.5) + attend(), lambda t: BETA),
}


@pytest.mark.parametrize("name", by_default(WRAPPED, ["varying", "layers"]))
def test_energy_of_a_wrapped_attend_is_that_of_the_attend(name):
    drift, beta_at = WRAPPED[name]
    flow = pf.Flow(drift, geometry=pf.Sphere())
    for time in TIMES:
        asked = observables.energy(pf.Present.of(flow, MEASURE, time))
        assert abs(float(asked) - energy(START, beta_at(time))) < 1e-13


@pytest.mark.slow
def test_energy_inside_of_a_run_follows_its_schedule():
    drift, beta_at = WRAPPED["varying"]
    flow = pf.Flow(0.5 * drift + drifts.Confinement(0.5), geometry=pf.Sphere())
    run = pf.simulate(flow, MEASURE, TIMES, observe=[observables.energy], **TIGHT)
    wanted = [energy(frame.points, beta_at(frame.time)) for frame in run]
    assert np.max(np.abs(np.asarray(run.observables["energy"]) - wanted)) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("beta", by_default([1.0, 6.0], [1.0]))
def test_sinkhorn_attention_is_the_transport_plan_of_pot(beta):
    """w_i A_ij is the entropic plan from the weights to themselves at cost −⟨x, y⟩ and temperature 1/β."""
    import ot  # takes most of a second

    flow = pf.Flow(pf.Attend(kernels.Attention(beta=beta), normalization="sinkhorn"), geometry=pf.Sphere())
    present = pf.Present.of(flow, MEASURE)
    points, weights = START[ALIVE], WEIGHTS[ALIVE]
    plan = ot.sinkhorn(weights, weights, -points @ points.T, 1 / beta, stopThr=1e-14, numItermax=100_000)
    rows = plan / weights[:, None]
    found = np.asarray(present.interaction.attention(present.observed))
    assert np.max(np.abs(found[np.ix_(ALIVE, ALIVE)] - rows)) < 1e-12
    assert np.max(np.abs(found[:, ~ALIVE])) == 0.0
    wanted = weights @ np.array([oracle.entropy(row) for row in rows])
    assert abs(float(observables.attention_entropy(present)) - wanted) < 1e-12
    singular = np.linalg.svd(rows, compute_uv=False)
    assert float(observables.attention_rank(present)) == np.sum(singular > 1e-6 * singular[0])
    # The energy knows nothing of the tilt.
    assert abs(float(observables.energy(present)) - energy(START, beta)) < 1e-13


def attention_field(space: oracle.Space, beta: float = BETA) -> Callable[[float, np.ndarray], np.ndarray]:
    def field(time: float, state: np.ndarray) -> np.ndarray:
        seen = space.seen(state, time)
        return space.move(state, oracle.shares(beta * seen @ seen.T, WEIGHTS) @ seen, time)

    return field


def at(space: oracle.Space, start: np.ndarray, time: float) -> np.ndarray:
    """The points that have weight, by SciPy."""
    return space.retract(solve(attention_field(space), start, [0.0, time])[-1])[ALIVE]


def velocity_of(points: np.ndarray) -> np.ndarray:
    return SPHERE.move(points, oracle.shares(BETA * points @ points.T, WEIGHTS[ALIVE]) @ points, 0.0)


def edges(points: np.ndarray) -> np.ndarray:
    return np.sort(minimum_spanning_tree(squareform(pdist(points))).data)


def energy_of(points: np.ndarray) -> float:
    return float(WEIGHTS[ALIVE] @ np.exp(BETA * points @ points.T) @ WEIGHTS[ALIVE] / (2 * BETA))


EVENTS: dict[str, tuple[events.AbstractEvent, Callable[[np.ndarray], float]]] = {
    "clustered": (events.Clustered(0.5), lambda x: float(pdist(x).max() - 0.5)),
    "second merge": (events.Merged(2, 0.1), lambda x: float(edges(x)[1] - 0.1)),
    "last merge": (events.Merged(4, 0.1), lambda x: float(edges(x)[3] - 0.1)),
    "energy": (events.EnergyReached(1.3), lambda x: energy_of(x) - 1.3),
    "speed": (
        events.Reached(observables.speed, 0.05),
        lambda x: float(oracle.of_velocity(velocity_of(x), WEIGHTS[ALIVE])["speed"] - 0.05),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", by_default(["second merge", "speed", "clustered", "last merge", "energy"], ["speed"]))
def test_events_are_located_among_the_particles_that_have_weight(name):
    event, level = EVENTS[name]
    flow = pf.Flow(attend(), geometry=pf.Sphere())
    run = pf.simulate(flow, MEASURE, [0.0, 40.0], event=event, **TIGHT)
    assert run.status == "stopped by event"
    end = float(run.times[-1])
    assert end > 0.05
    assert abs(end - root(lambda time: level(at(SPHERE, START, time)), end - 0.02, end + 0.02)) < 1e-6


@pytest.mark.slow
def test_blow_up_is_located_among_the_particles_that_have_weight():
    """The particle without weight is outside from the start."""
    start = np.concatenate([START[:5], 30 * START[5:]])
    flow = pf.Flow(attend())
    run = pf.simulate(flow, pf.Measure.weighted(start, WEIGHTS), [0.0, 10.0], event=events.BlewUp(3.0), **TIGHT)
    end = float(run.times[-1])
    assert run.status == "stopped by event"

    def excess(time: float) -> float:
        return float(np.max(np.linalg.norm(at(FLAT, start, time), axis=1)) - 3.0)

    assert abs(end - root(excess, end - 0.02, end + 0.02)) < 1e-7


@pytest.mark.slow
def test_an_ensemble_of_other_weights_is_its_single_runs():
    others = np.array([0.0, 0.4, 0.1, 0.6, 0.2, 0.3])
    starts = [MEASURE, pf.Measure.weighted(START, others)]
    seen = [observables.energy, observables.speed, observables.mean_similarity]
    flow = pf.Flow(attend(), geometry=geometry.PreNorm())
    both = pf.simulate(flow, starts, TIMES, observe=seen, **TIGHT)
    for index, (start, weights) in enumerate(zip(starts, (WEIGHTS, others), strict=True)):
        alone, inside = pf.simulate(flow, start, TIMES, observe=seen, **TIGHT), both.run(index)
        assert np.max(np.abs(inside.weights - weights / weights.sum())) < 1e-15
        assert np.max(np.abs(alone.weights - inside.weights)) == 0.0
        assert np.max(np.abs(np.asarray(alone.points) - np.asarray(inside.points))) < 1e-10
        assert alone.observables.keys() == inside.observables.keys()
        for name in alone.observables:
            assert np.max(np.abs(np.asarray(alone.observables[name]) - inside.observables[name])) < 1e-9, (index, name)
        norms = [np.asarray(each.fields["residual_norm"]) for each in (alone, inside)]
        assert np.max(np.abs(norms[0] - norms[1])) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("name", oracle.spaces(3))
def test_evolving_twice_is_evolving_once(name):
    space, tolerance = oracle.spaces(3)[name].given(WEIGHTS), 1e-8
    flow = pf.Flow(attend(0.6), geometry=space.build())
    start = pf.Measure.weighted(space.retract(START), WEIGHTS)
    half, whole = (pf.evolve(flow, start, end, rtol=tolerance, atol=tolerance) for end in (0.4, 1.0))
    on = pf.evolve(flow, half, 1.0, begin=0.4, rtol=tolerance, atol=tolerance)
    limit = 10 * tolerance * (1 + np.max(np.abs(np.asarray(whole.points))))
    assert np.max(np.abs(np.asarray(on.points - whole.points))) < limit
    assert on.fields.keys() == whole.fields.keys()
    for field, values in on.fields.items():
        assert np.max(np.abs(np.asarray(values - whole.fields[field]))) < limit, field
    assert bool(on.fields) == space.carries


@pytest.mark.slow
def test_the_norm_of_the_residual_stream_slows_a_particle_down():
    """θ' = P A/r and r' = ⟨θ, A⟩, from norms that are set by hand."""
    norms = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 1.0])
    flow = pf.Flow(attend(), geometry=geometry.PreNorm())
    run = pf.simulate(flow, MEASURE.with_fields({"residual_norm": norms}), TIMES, **TIGHT)

    def field(time: float, state: np.ndarray) -> np.ndarray:
        directions, radius = state[:, :3], state[:, 3:]
        said = oracle.shares(BETA * directions @ directions.T, WEIGHTS) @ directions
        along = np.sum(directions * said, axis=1, keepdims=True)
        return np.concatenate([(said - along * directions) / radius, along], axis=1)

    exact = solve(field, np.concatenate([START, norms[:, None]], axis=1), TIMES)
    assert np.max(np.abs(run.points - exact[:, :, :3])) < 1e-8
    assert np.max(np.abs(run.fields["residual_norm"] - exact[:, :, 3])) < 1e-8


def carrying() -> tuple[pf.Flow, pf.Measure]:
    """Particles that carry values other than themselves, see the past alone, and stand in another order."""
    values = np.random.default_rng(52).normal(size=(6, 3))
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA), positional=kernels.Causal()), geometry=geometry.PreNorm())
    return flow, pf.Measure.weighted(START, WEIGHTS, values, np.array([3.0, 0.0, 5.0, 1.0, 4.0, 2.0]))


@pytest.mark.slow
def test_values_positions_and_fields_go_on_with_a_run():
    flow, start = carrying()
    whole = pf.simulate(flow, start, TIMES, **TIGHT)
    half = whole[2]
    begun = pf.Measure(half.points, whole.log_weights, start.values, whole.positions, half.fields)
    on = pf.simulate(flow, begun, np.linspace(0.5, 0.9, 4), **TIGHT)
    assert np.max(np.abs(on.points[-1] - whole.points[-1])) < 1e-9
    assert np.max(np.abs(on.fields["residual_norm"][-1] - whole.fields["residual_norm"][-1])) < 1e-9


@pytest.mark.slow
def test_values_go_on_from_a_file(tmp_path):
    flow, start = carrying()
    whole = pf.simulate(flow, start, TIMES, **TIGHT)
    pf.simulate(flow, start, np.linspace(0.0, 0.5, 4), store=tmp_path / "half.h5", **TIGHT)
    begun = pf.initial.FromFile(tmp_path / "half.h5").start(jax.random.key(0)).measure
    on = pf.simulate(flow, begun, np.linspace(0.5, 0.9, 4), **TIGHT)
    assert np.max(np.abs(on.points[-1] - whole.points[-1])) < 1e-9
