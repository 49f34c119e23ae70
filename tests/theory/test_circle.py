"""Tokens on the circle: Kuramoto's order parameter, which mode grows, heat limits, causal tokens, metastability."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ive

import flows_oracles as oracle
import particleflow as pf
from particleflow import kernels, observables
from shares import by_default


def attention(beta, normalization: Any = "row", value=1.0, positional=None):
    drift = pf.Attend(kernels.Attention(beta=beta), normalization=normalization, value=value, positional=positional)
    return pf.Flow(drift, geometry=pf.Sphere())


def kuramoto_order(initial, time):
    """r(t) = r0 e^{t/2} / √(1 − r0² + r0² e^t)."""
    return initial * np.exp(time / 2) / np.sqrt(1 - initial**2 + initial**2 * np.exp(time))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "end"), [(100, 2.5), (1000, 5.0)])
def test_kuramoto_order_parameter(count, end):
    """A Möbius image of n equispaced phases keeps its form, so the order parameter is closed, up to r(t)^n."""
    phases = np.exp(2j * np.pi * np.arange(count) / count)
    image = (phases + 0.3) / (1 + 0.3 * phases)
    start = np.stack([image.real, image.imag], axis=1)
    times = np.array([0.0, 0.2, 0.5, 1.0]) * end
    run = pf.simulate(attention(0.0), start, times, rtol=1e-12, atol=1e-13, observe=[observables.order_parameter])
    order = np.asarray(run.observables["order_parameter"])
    assert np.max(np.abs(order - kuramoto_order(0.3, times))) < 1e-11
    if end == 5.0:
        assert abs(order[-1] - 0.96758321) < 6e-9
    assert oracle.norm_error(run.points) < 1e-9


def growth_rate(normalization, beta, mode, count=120, value=1.0):
    """The exact derivative of the field at the uniform circle in direction sin kθ, projected on sin kθ."""
    angles = 2 * np.pi * np.arange(count) / count
    start = jnp.asarray(oracle.circle(angles))
    around = np.stack([-np.sin(angles), np.cos(angles)], axis=1)
    wave = np.sin(mode * angles)
    flow = attention(beta, normalization, value)
    measure = pf.Measure.uniform(start)
    # Moving by ε sin kθ, a particle's angular velocity is ⟨v, e_θ⟩ at its new place.
    _, change = jax.jvp(
        lambda state: flow.velocity(0.0, state, measure), (start,), (jnp.asarray(wave[:, None] * around),)
    )
    return 2 / count * wave @ np.sum(np.asarray(change) * around, axis=1)


RATES = {"none": 18.59607030, "row": 0.68267833, "sinkhorn": 0.49495780}


@pytest.mark.slow
@pytest.mark.parametrize("normalization", RATES)
def test_rate_of_the_third_mode(normalization):
    """By default with the other published rates: test_stability."""
    assert abs(growth_rate(normalization, 5.0, 3) / RATES[normalization] - 1) < 2e-8


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["row", "none"])
def test_mode_grows_at_its_rate_in_a_run(normalization):
    angles = 2 * np.pi * np.arange(120) / 120
    start = oracle.circle(angles + 1e-6 * np.sin(3 * angles))
    end = 1.0 if normalization == "row" else 0.05
    run = pf.simulate(attention(5.0, normalization), start, [0.0, end], rtol=1e-13, atol=1e-15)
    moved = np.angle((run.points[-1] @ [1, 1j]) * np.exp(-1j * angles))
    amplitude = 2 / 120 * np.sin(3 * angles) @ moved
    assert abs(np.log(amplitude / 1e-6) / end / RATES[normalization] - 1) < 1e-6
    assert oracle.norm_error(run.points) < 1e-9


SWITCHES = [(1, 1.044457), (2, 3.165434), (3, 6.211298), (4, 10.228483)]


@pytest.mark.parametrize("switch", by_default(SWITCHES, [SWITCHES[2]]), ids=str)
@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["row", "none"])
def test_fastest_mode_switches(switch, normalization):
    """By default from the rates themselves: test_stability."""
    mode, beta = switch

    def lead(at):
        return growth_rate(normalization, at, mode + 1) - growth_rate(normalization, at, mode)

    assert lead(beta - 2e-6) < 0 < lead(beta + 2e-6)


@pytest.mark.slow
def test_repulsion_becomes_heat_flow():
    """With V = −1 and β large, mode k decays at k²/β under softmax attention and at half of it under Sinkhorn."""
    beta, mode, count = 400.0, 2, 240
    ratio = ive(mode, beta) / ive(0, beta)
    softmax = growth_rate("row", beta, mode, count, value=-1.0)
    assert abs(softmax / (-(mode**2) / beta * ratio) - 1) < 1e-9
    assert abs(softmax / (-(mode**2) / beta) - 1) < 0.51 * mode**2 / beta
    doubly = growth_rate("sinkhorn", beta, mode, count, value=-1.0)
    assert abs(doubly / (-(mode**2) / beta * ratio / (1 + ratio)) - 1) < 1e-8
    assert abs(doubly / (-(mode**2) / (2 * beta)) - 1) < 0.51 * mode**2 / beta


@pytest.mark.slow
def test_causal_tokens_come_to_the_first():
    start = oracle.random_sphere(5, 12, 3)
    flow = attention(1.0, positional=kernels.Causal())
    run = pf.simulate(flow, start, [0.0, 20.0, 400.0], rtol=1e-9, atol=1e-11)
    assert np.max(np.abs(run.points[:, 0] - start[0])) < 1e-14
    assert np.max(np.linalg.norm(run.points[-1] - start[0], axis=1)) < 1e-6
    assert oracle.norm_error(run.points) < 1e-9


@pytest.mark.slow
def test_causal_centres_are_a_parking():
    """Saturated parking with separation δ = 4β^{−1/2} has .7475979 · 2π/δ ≈ 9.4 centres; clusters agree to ±2."""
    beta, runs = 64.0, 8
    starts = np.stack([oracle.circle(np.random.default_rng(seed).uniform(0, 2 * np.pi, 200)) for seed in range(runs)])
    flow = attention(beta, positional=kernels.Causal())
    run = pf.simulate(flow, starts, [0.0, 30.0, 60.0, 120.0], rtol=1e-5, atol=1e-7)
    for points in run.points[1:]:
        counts = [oracle.cluster_count(points[r], 0.1) for r in range(runs)]
        assert abs(np.mean(counts) - 0.7475979 * 2 * np.pi / (4 / np.sqrt(beta))) < 2
    assert oracle.norm_error(run.points) < 1e-9


@pytest.mark.slow
def test_mean_field_error_falls_like_the_root_of_the_count():
    """Independent phases from the Möbius law: the error of r at t = 2 against the closed answer is ∝ N^{−1/2}."""
    counts, repetitions, end = [50, 100, 200, 400, 800, 1600, 3200], 50, 2.0
    exact, errors = kuramoto_order(0.3, end), []
    for count in counts:
        found = []
        for seed in range(repetitions):
            phases = np.exp(1j * np.random.default_rng(1000 * count + seed).uniform(0, 2 * np.pi, count))
            image = (phases + 0.3) / (1 + 0.3 * phases)
            run = pf.simulate(
                attention(0.0), np.stack([image.real, image.imag], 1), [0.0, end], rtol=1e-5, atol=1e-7,
                observe=[observables.order_parameter],
            )  # fmt: skip
            found.append(run.observables["order_parameter"][-1])
        errors.append(np.sqrt(np.mean((np.asarray(found) - exact) ** 2)))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert -0.58 < slope < -0.42


STAIRS = oracle.circle(np.random.default_rng(0).uniform(0, 2 * np.pi, 32))
STAIR_TIMES = np.concatenate([[0.0], np.geomspace(0.1, 1e12, 60)])


@pytest.mark.slow
def test_metastable_staircase_by_an_explicit_method():
    """The merges happen when an explicit method with tight tolerances says so."""
    early = STAIR_TIMES[STAIR_TIMES < 8e3]
    run = pf.simulate(attention(9.0), STAIRS, early, rtol=1e-8, atol=1e-10)
    tight = pf.simulate(attention(9.0), STAIRS, early, rtol=1e-10, atol=1e-12, solver="tsit5")
    assert np.max(np.abs(np.asarray(run.points) - tight.points)) < 5e-7


@pytest.mark.slow
def test_eight_tokens_to_the_end_of_time():
    """β = 9, n = 8: merges one after the other, then nothing happens until 1e12."""
    run = pf.simulate(attention(9.0), STAIRS[:8], STAIR_TIMES[::4], rtol=1e-8, atol=1e-10)
    counts = [oracle.cluster_count(points, 1e-2) for points in run.points]
    assert run.status == "finished"
    assert (counts[0], counts[-1]) == (8, 1)
    assert (np.diff(counts) <= 0).all()
    assert oracle.norm_error(run.points) < 1e-9


@pytest.mark.slow
def test_metastable_staircase_to_the_end_of_time():
    """β = 9, n = 32: clusters wait on plateaus and merge one after the other; then nothing happens until 1e12."""
    times = STAIR_TIMES
    run = pf.simulate(attention(9.0), STAIRS, times, rtol=1e-8, atol=1e-10)
    counts = [oracle.cluster_count(points, 1e-2) for points in run.points]
    assert run.status == "finished"
    assert len(run) == 61
    assert (np.diff(counts) <= 0).all()
    assert counts[0] == 31
    assert counts[-1] == 1
    # Plateaus: three clusters for more than a decade of time, then two for more than a decade.
    for level in (3, 2):
        stay = times[np.asarray(counts) == level]
        assert stay[-1] > 10 * stay[0]
    assert oracle.norm_error(run.points) < 1e-9
    statistics = run.metadata["statistics"]
    assert statistics["accepted steps"] < 2000
    assert statistics["field evaluations"] > statistics["accepted steps"]
    assert f"field evaluations  {statistics['field evaluations']}" in str(run)
