"""Equiangular tokens: the closed equation for their one inner product, the energy identity, normalisation schemes."""

from typing import Any

import equinox as eqx
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, events, geometry, kernels, observables
from shares import by_default


def attention(beta, normalization: Any = "row", value=1.0, where=None):
    drift = pf.Attend(kernels.Attention(beta=beta), normalization=normalization, value=value)
    return pf.Flow(drift, geometry=where or pf.Sphere())


@eqx.filter_jit
def _velocity(flow, measure):
    return flow.velocity(0.0, measure.points, measure)


SA_VALUES = [(1.0, 5, 0.72172447), (1.0, 10, 0.99300207), (5.0, 25, 0.98673050)]
# Runs of softmax attention here have equal shapes and options, and with them one program.
COUNT, FRAMES, OPTIONS = (
    16,
    26,
    {"rtol": 1e-12, "atol": 1e-13, "observe": [observables.energy, observables.dissipation]},
)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [1.0, 5.0])
def test_softmax_attention_follows_the_closed_equation(beta):
    times = np.linspace(0.0, 10.0, FRAMES)
    run = pf.simulate(attention(beta), oracle.equiangular(COUNT), times, **OPTIONS)
    expected = oracle.equiangular_path(beta, COUNT, times)
    for points, rho in zip(run.points, expected, strict=True):
        assert oracle.gram_deviation(points, rho) < 1e-8
    for of, frame, value in SA_VALUES:
        assert of != beta or abs(expected[frame] - value) < 6e-9
    assert oracle.norm_error(run.points) < 1e-9


@pytest.mark.slow
def test_unnormalised_attention_follows_the_closed_equation():
    times = np.array([0.0, 1.0, 2.0, 3.0])
    run = pf.simulate(attention(1.0, "none"), oracle.equiangular(16), times, rtol=1e-11, atol=1e-12)
    for points, rho in zip(run.points, oracle.equiangular_path(1.0, 16, times, "none"), strict=True):
        assert oracle.gram_deviation(points, rho) < 1e-8
    assert oracle.gram_deviation(run.points[1], 0.35543761) < 2e-8
    assert oracle.gram_deviation(run.points[2], 0.97736658) < 2e-8
    assert oracle.norm_error(run.points) < 1e-9


PUBLISHED_TIMES = {
    0.1: 5.192, 1.0: 5.270, 2.0: 5.458, 3.0: 5.898, 4.0: 6.954,
    5.0: 9.544, 6.0: 15.995, 7.0: 32.233, 8.0: 73.446, 9.0: 178.731,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("beta", by_default(PUBLISHED_TIMES, [5.0]))
def test_time_to_consensus(beta):
    event, published = events.Reached(observables.mean_similarity, 0.999), PUBLISHED_TIMES[beta]
    run = pf.simulate(attention(beta), oracle.equiangular(32), [0.0, 200.0], rtol=1e-11, atol=1e-12, event=event)
    assert run.status == "stopped by event"
    assert abs(run.times[-1] - published) < 6e-4
    assert abs(run.times[-1] - oracle.equiangular_time(beta, 32, 0.999)) < 1e-8 * published
    assert oracle.gram_deviation(run.points[-1], 0.999) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["row", "none"])
def test_energy_grows_exactly_by_its_dissipation(normalization):
    """E(T) − E(0) = ∫ dissipation dt with Gauss–Legendre times: an observable one step late would show at once."""
    beta, end = 2.0, 3.0 if normalization == "row" else 0.8
    nodes, weights = np.polynomial.legendre.leggauss(FRAMES - 2)
    times = np.concatenate([[0.0], end * (nodes + 1) / 2, [end]])
    start = oracle.random_sphere(3, COUNT, COUNT)
    run = pf.simulate(attention(beta, normalization), start, times, **OPTIONS)
    energy, dissipation = (np.asarray(run.observables[name]) for name in ("energy", "dissipation"))
    assert abs(energy[-1] - energy[0] - end / 2 * weights @ dissipation[1:-1]) < 1e-9
    assert (np.diff(energy) > 0).all()
    for points, found, rate in zip(run.points, energy, dissipation, strict=True):
        pairs = np.exp(beta * points @ points.T)
        velocity = oracle.attention_field(beta, normalization=normalization, sphere=True)(0.0, points)
        assert abs(found - np.mean(pairs) / (2 * beta)) < 1e-12
        # dE/dt by the chain rule: (1/n²) Σ_ij e^{β⟨x_i, x_j⟩} ⟨ẋ_i, x_j⟩
        assert abs(rate - np.mean(pairs * (velocity @ points.T))) < 1e-9
        masses = pairs.mean(axis=1) if normalization == "row" else 1.0
        assert abs(rate - np.mean(masses * np.sum(velocity**2, axis=1))) < 1e-9
    assert oracle.norm_error(run.points) < 1e-9


@pytest.mark.slow
def test_energy_ends_at_its_maximum():
    run = pf.simulate(
        attention(2.0), oracle.random_sphere(3, 10, 3), np.linspace(0.0, 60.0, 26), rtol=1e-9, atol=1e-11,
        observe=[observables.energy, observables.dissipation],
    )  # fmt: skip
    assert abs(run.observables["energy"][-1] - np.exp(2.0) / 4.0) < 1e-12


SCHEMES = {
    "post": (geometry.Sphere(), np.linspace(0.0, 12.0, 13)),
    "pre": (
        geometry.PreNorm(),
        np.array([0.0, 10.0, 20.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 98.0, 99.0, 100.0]),
    ),
    "peri": (
        geometry.PeriNorm(),
        np.array([0.0, 10.0, 20.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 98.0, 99.0, 100.0]),
    ),
    "ngpt": (geometry.Ngpt(1.0), np.linspace(0.0, 6.0, 13)),
    "sqrt": (geometry.SqrtScaled(), np.linspace(0.0, 24.0, 13)),
}


def one_minus_rho(points):
    """1 − ρ without cancellation, from the distances to the next token."""
    return np.mean(np.sum((points - np.roll(points, 1, axis=-2)) ** 2, axis=-1), axis=-1) / 2


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_normalisation_schemes(scheme):
    where, times = SCHEMES[scheme]
    run = pf.simulate(attention(2.0, where=where), oracle.equiangular(32), times, rtol=1e-11, atol=1e-13)
    expected = oracle.equiangular_scheme(scheme, 2.0, 32, times)
    for points, rho in zip(run.points, expected, strict=True):
        assert oracle.gram_deviation(points, rho) < 1e-8
    gaps = one_minus_rho(np.asarray(run.points))
    if scheme == "pre":
        assert abs(gaps[-1] / 1.788990e-4 - 1) < 1e-6
    if scheme == "peri":
        assert abs(gaps[-1] / 1.718883e-4 - 1) < 1e-6
    late = {"post": times, "pre": np.log(times[1:]), "peri": np.log(times[1:]), "ngpt": times, "sqrt": np.sqrt(times)}
    slope = np.diff(np.log(gaps[-2:])) / np.diff(late[scheme][-2:])
    assert abs(slope[0] / {"post": -2, "pre": -2, "peri": -2, "ngpt": -2, "sqrt": -4}[scheme] - 1) < 0.06
    assert oracle.norm_error(run.points) < 1e-9


@pytest.mark.parametrize(
    ("where", "rate"), [(geometry.Sphere(), 0.0520982), (geometry.PeriNorm(), 0.2161712), (geometry.Ngpt(), 0.2161712)]
)
def test_initial_rate_of_a_scheme(where, rate):
    start = oracle.equiangular(32)
    velocity = np.asarray(_velocity(attention(2.0, where=where), pf.Measure.uniform(start)))
    assert abs(velocity[0] @ start[1] + velocity[1] @ start[0] - rate) < 6e-8


@pytest.mark.slow
def test_ngpt_contracts_at_twice_its_step():
    times = np.linspace(0.0, 3.0, 13)
    run = pf.simulate(attention(2.0, where=geometry.Ngpt(2.0)), oracle.equiangular(32), times, rtol=1e-11, atol=1e-13)
    gaps = one_minus_rho(np.asarray(run.points))
    assert abs(np.log(gaps[-1] / gaps[-2]) / (times[-1] - times[-2]) + 4) < 0.1


@pytest.mark.slow
def test_repulsion_keeps_the_sphere():
    flow, start = attention(2.0, value=-1.0), oracle.random_sphere(1, COUNT, COUNT)
    windows = list(pf.stream(flow, start, np.linspace(0.0, 40.0, FRAMES), **OPTIONS))
    assert all(oracle.norm_error(frames.points) < 1e-9 for frames in windows)
    # The state that is integrated, before it is put back on the sphere, has no radial part that grows either.
    assert oracle.norm_error(windows[-1].progress.state.moving[0]) < 1e-6


def test_sum_of_heads_is_one_head_of_twice_the_value():
    head = drifts.Attend(kernels.Attention(beta=2.0))
    start = oracle.random_sphere(2, 9, 3)
    both = _velocity(pf.Flow(head + head, geometry=pf.Sphere()), pf.Measure.uniform(start))
    assert np.allclose(np.asarray(both), 2 * oracle.attention_field(2.0, sphere=True)(0.0, start), atol=1e-14)
