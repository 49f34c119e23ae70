"""Hardmax and Sinkhorn attention where they are hard: nobody to follow, and queries that differ from keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
import system_oracles as oracle
from particleflow import drifts, kernels
from particleflow.errors import ArgumentError, RunError
from shares import by_default

POINTS = np.random.default_rng(4).normal(size=(5, 2))


def hardmax(points: np.ndarray, weights: np.ndarray, visible: np.ndarray, pull: float = 0.0) -> np.ndarray:
    """Row by row: the visible point of positive weight that scores highest; zero where there is none."""
    velocity = np.zeros_like(points)
    for row, point in enumerate(points):
        seen = np.flatnonzero(visible[row] & (weights > 0))
        if len(seen):
            velocity[row] = points[seen[np.argmax(points[seen] @ point)]] - pull * point
    return velocity


def test_hardmax_of_the_first_token_under_a_strictly_causal_mask_is_zero():
    measure = pf.Measure.uniform(POINTS).with_positions(jnp.arange(5.0))
    drift = drifts.Hardmax(positional=kernels.StrictlyCausal(), pull=0.25)
    found = np.asarray(drift(0.0, measure.sites, measure))
    expected = hardmax(POINTS, np.ones(5), np.tri(5, k=-1, dtype=bool), pull=0.25)
    assert not found[0].any()
    assert np.max(np.abs(found - expected)) < 1e-15


def test_hardmax_follows_nobody_without_weight():
    leader = np.argmax(np.linalg.norm(POINTS, axis=1))
    weights = np.where(np.arange(5) == leader, 0.0, 0.25)
    with np.errstate(divide="ignore"):
        measure = pf.Measure(POINTS, np.log(weights))
    found = np.asarray(drifts.Hardmax()(0.0, measure.sites, measure))
    assert np.max(np.abs(found - hardmax(POINTS, weights, np.ones((5, 5), bool)))) < 1e-15


@pytest.mark.slow
@pytest.mark.parametrize("beta", by_default([5.0, 20.0, 50.0], [50.0]))
def test_sinkhorn_weights_with_queries_unlike_keys_are_doubly_stochastic(beta):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(16, 2))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    query, key = rng.normal(size=(2, 2, 2))
    kernel = kernels.Attention(beta, query=query, key=key)
    measure = pf.Measure.uniform(points)
    interaction = pf.Attend(kernel, normalization="sinkhorn").interactions(0.0)[0]
    weights = np.asarray(interaction.attention(measure))
    assert np.max(np.abs(weights.sum(axis=1) - 1)) < 1e-12
    assert np.max(np.abs(weights.sum(axis=0) - 1)) < 1e-11
    logits = beta * (points @ query.T) @ (points @ key.T).T
    scaled = np.exp(logits - logits.max(axis=1, keepdims=True)) * plan_columns(logits)
    assert np.max(np.abs(weights - scaled / scaled.sum(axis=1, keepdims=True))) < 1e-9


def plan_columns(logits: np.ndarray) -> np.ndarray:
    """e^{g}, by sweeps from a small inverse temperature up to the whole one and then Newton's method."""
    count = len(logits)
    return oracle.balancing(logits, np.full(count, 1 / count))


@pytest.mark.slow
def test_the_continuous_adjoint_of_sinkhorn_attention_is_that_of_differences():
    rng = np.random.default_rng(3)
    start = rng.normal(size=(4, 2))
    start /= np.linalg.norm(start, axis=1, keepdims=True)

    def ends(beta, adjoint="backsolve"):
        flow = pf.Flow(pf.Attend(kernels.Attention(beta=beta), normalization="sinkhorn"), geometry=pf.Sphere())
        run = pf.evolve(flow, start, 0.5, rtol=1e-8, atol=1e-10, adjoint=adjoint, max_steps=64)
        return jnp.sum(run.points[:, 0])

    difference = (ends(2.0 + 1e-4) - ends(2.0 - 1e-4)) / 2e-4
    assert abs(jax.grad(ends)(2.0) - difference) < 1e-6


def steep(beta: float, seed: int = 6, count: int = 16) -> tuple[pf.Attend, np.ndarray]:
    """Sinkhorn attention whose queries differ from its keys, and its points on the circle."""
    rng = np.random.default_rng(seed)
    query, key = rng.normal(size=(2, 2, 2))
    points = oracle.unit(rng.normal(size=(count, 2)))
    return pf.Attend(kernels.Attention(beta, query=query, key=key), normalization="sinkhorn"), points


@pytest.mark.slow
@pytest.mark.parametrize("seed", by_default([1, 2, 3], [2]))
def test_sinkhorn_weights_that_take_many_sweeps_are_doubly_stochastic(seed):
    """Sweeps bring nothing for a while there, and then go on."""
    drift, points = steep(200.0, seed)
    weights = np.asarray(drift.interactions(0.0)[0].attention(pf.Measure.uniform(points)))
    assert np.max(np.abs(weights.sum(axis=0) - 1)) < 1e-7


NOT_CONVERGED = (
    r"Sinkhorn normalisation has not converged: after \d+ sweeps a row or column .* only within \d.*\. Lower"
)


@pytest.mark.slow
def test_sinkhorn_that_does_not_converge_says_by_how_much():
    drift, points = steep(1e5)
    with pytest.raises(ArgumentError, match=NOT_CONVERGED):
        drift.interactions(0.0)[0].attention(pf.Measure.uniform(points))


@pytest.mark.slow
def test_a_run_whose_sinkhorn_does_not_converge_says_so():
    drift, points = steep(1e5)
    with pytest.raises(RunError, match=f"The run cannot go on at t = 0: {NOT_CONVERGED}"):
        pf.simulate(pf.Flow(drift, geometry=pf.Sphere()), points, [0.0, 0.1], step=0.1, solver="map")
