"""Hardmax and Sinkhorn attention where they are hard: nobody to follow, and queries that differ from keys."""

import numpy as np

import particleflow as pf
from particleflow import drifts, kernels

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
    measure = pf.Measure.uniform(POINTS).with_positions(np.arange(5.0))
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
