"""Neighbourhoods of the k nearest points, against scikit-learn and brute force; where they cannot be, and why."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import ArgumentError
from particleflow.kernels.capabilities import counts_points
from particleflow.models import KernelClassifier, KernelRegression
from shares import by_default

_RNG = np.random.default_rng(7)
X, Y = _RNG.normal(size=(40, 3)), _RNG.normal(size=40)
AT = _RNG.normal(size=(11, 3))


def neighbours(queries: np.ndarray, points: np.ndarray, count: int) -> np.ndarray:
    """1 where a point is no further than the nearest number `count`, from all distances, in NumPy."""
    away = np.linalg.norm(queries[:, None] - points[None], axis=2)
    return (away <= np.sort(away, axis=1)[:, count - 1 : count] * (1 + 1e-12)).astype(float)


def shares(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("count", by_default([1, 5, 40], [5]))
def test_the_local_mean_is_the_regression_of_scikit_learn(count):
    expected = KNeighborsRegressor(count, algorithm="brute").fit(X, Y).predict(AT)
    np.testing.assert_allclose(KernelRegression(k.Nearest(count)).fit(X, Y).predict(AT), expected, rtol=1e-12)


@pytest.mark.slow
def test_so_are_its_classes_and_the_product_with_a_gaussian():
    classes = (Y > 0).astype(int)
    theirs = KNeighborsClassifier(7, algorithm="brute").fit(X, classes).predict_proba(AT)
    np.testing.assert_allclose(KernelClassifier(k.Nearest(7)).fit(X, classes).predict_proba(AT), theirs, atol=1e-13)

    def gaussian(distances: np.ndarray) -> np.ndarray:
        return np.exp(-(distances**2) / (2 * 0.6**2))

    neighbours: Any = KNeighborsRegressor
    cut = neighbours(7, weights=gaussian, algorithm="brute").fit(X, Y).predict(AT)
    found = KernelRegression(k.Nearest(7) * k.Gaussian(0.6)).fit(X, Y).predict(AT)
    np.testing.assert_allclose(found, cut, rtol=1e-11)


def test_points_count_and_weights_weigh():
    """A point without weight is no neighbour; other weights change means, never neighbourhoods."""
    weights = _RNG.uniform(0.1, 3.0, size=40)
    weights[::5] = 0.0
    alive = weights > 0
    pull = shares(neighbours(AT, X[alive], 6) * weights[alive])
    read = jax.jit(pf.local_mean)
    found = read(k.Nearest(6), pf.Measure.weighted(X, weights, Y), AT)
    np.testing.assert_allclose(found, pull @ Y[alive], rtol=1e-12)
    few = np.zeros(40)
    few[:4] = 0.25
    np.testing.assert_allclose(read(k.Nearest(6), pf.Measure.weighted(X, few, Y), AT), Y[:4].mean())


def test_ties_are_all_neighbours():
    """On a lattice the second nearest of a node are four, in whatever order the points are."""
    lattice = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2) / 3
    for order in (np.arange(25), _RNG.permutation(25)):
        row = jax.jit(pf.attention_weights)(k.Nearest(2), pf.Measure.uniform(lattice[order]), lattice[12][None])[0]
        near = np.linalg.norm(lattice[order] - lattice[12], axis=1) < 0.34
        np.testing.assert_allclose(row, near / 5, atol=1e-15)


def composed() -> dict[str, tuple[k.AbstractKernel, np.ndarray]]:
    """Kernels made of neighbourhoods, and their matrices at the points themselves."""
    near, values = neighbours(X, X, 4), np.stack([Y, Y**2], axis=1)
    gauss = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 2)
    encoded = X + np.asarray(k.Sinusoidal(0.5).vectors(jnp.arange(40.0), 3))
    return {
        "mixture": (k.Nearest(4) + 0.5 * k.Gaussian(1.0), near + 0.5 * gauss),
        "others": (k.Nearest(4) * k.Others(), near - np.eye(40)),
        "seen by whom": (k.Transposed(k.Nearest(4)), near.T),
        "either": (k.Symmetrised(k.Nearest(4)), (near + near.T) / 2),
        "both": (k.Symmetrised(k.Nearest(4), "geometric"), near * near.T),
        "images": (k.Pullback(k.Nearest(4), jnp.tanh, jnp.tanh), neighbours(np.tanh(X), np.tanh(X), 4)),
        "encoded": (k.Encoded(k.Nearest(4), k.Sinusoidal(0.5)), neighbours(encoded, encoded, 4)),
        "values": (k.OnValues(k.Nearest(4)), neighbours(values, values, 4)),
    }


@pytest.mark.parametrize("name", by_default(composed(), ["others"]))
def test_composed_kernels_hand_the_measure_on(name):
    kernel, matrix = composed()[name]
    measure = pf.Measure.uniform(X, np.stack([Y, Y**2], axis=1), np.arange(40.0))
    assert counts_points(kernel)
    found = jax.jit(pf.attention_weights)(kernel, measure, measure)
    np.testing.assert_allclose(found, shares(matrix), atol=1e-13)


SUMS = [pf.Dense(), pf.Blockwise(8, 8), pf.Auto(dense_bytes=2000)]


@pytest.mark.slow
@pytest.mark.parametrize("how", SUMS, ids=repr)
def test_every_exact_sum_agrees(how):
    measure = pf.Measure.uniform(X, Y)
    found = pf.local_moments(k.Nearest(6), measure, AT, summation=how)
    np.testing.assert_allclose(found.mean, shares(neighbours(AT, X, 6)) @ Y, rtol=1e-12)
    np.testing.assert_allclose(np.exp(found.log_mass), 6 / 40, rtol=1e-13)
    choice = pf.Auto(dense_bytes=2000).select(k.Nearest(6), measure, AT).summation
    assert choice == pf.Blockwise(6, 40)


@pytest.mark.slow
def test_single_precision_and_gradients():
    single = pf.Measure.uniform(jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32))
    found = pf.local_mean(k.Nearest(6), single, jnp.asarray(AT, jnp.float32))
    np.testing.assert_allclose(found, shares(neighbours(AT, X, 6)) @ Y, rtol=2e-6)
    slope = jax.grad(lambda at: pf.local_mean(k.Nearest(6) * k.Gaussian(0.7), pf.Measure.uniform(X, Y), at).sum())
    step = 1e-6 * np.eye(3)[0]
    kernel = k.Nearest(6) * k.Gaussian(0.7)
    ends = [np.asarray(pf.local_mean(kernel, pf.Measure.uniform(X, Y), AT + sign * step)).sum() for sign in (1, -1)]
    np.testing.assert_allclose(slope(jnp.asarray(AT))[:, 0].sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-7)


@pytest.mark.slow
def test_a_flow_of_neighbours_is_the_loop_in_numpy():
    flow = pf.Flow(pf.MeanShift(k.Nearest(6)))
    run = pf.simulate(flow, X, np.arange(4.0), step=1.0, solver="map")
    points = X
    for _ in range(3):
        points = shares(neighbours(points, points, 6)) @ points
    np.testing.assert_allclose(run.points[-1], points, rtol=1e-12, atol=1e-13)
    seekers = pf.Flow(pf.MeanShift(k.Nearest(6), pf.Measure.uniform(X)))
    ends = pf.simulate(seekers, AT, [0.0, 1.0], step=1.0, solver="map").points[-1]
    np.testing.assert_allclose(ends, shares(neighbours(AT, X, 6)) @ X, rtol=1e-12, atol=1e-13)


def refusals() -> dict[str, tuple[Any, str]]:
    flow, measure = pf.Flow(pf.Attend(k.Nearest(3))), pf.Measure.uniform(X[:, :2])
    circle = pf.Flow(pf.Attend(k.Nearest(3)), pf.Sphere())
    cells, modes = pf.discretization.FiniteVolumes(cells=8), pf.discretization.Spectral(modes=4)
    density = pf.initial.CircleWave()

    def run(flow: pf.Flow, start: Any, how: Any) -> Any:
        return pf.simulate(flow, start, [0.0, 1.0], step=0.5, discretization=how)

    return {
        "no measure": (lambda: k.Nearest(3).log_matrix(X, X), "kernel.bind"),
        "too few": (lambda: pf.local_mean(k.Nearest(41), measure, X[:, :2]), "41 nearest"),
        "none": (lambda: k.Nearest(0), "positive"),
        "a share": (lambda: k.Nearest(0.5), "positive"),  # pyright: ignore[reportArgumentType]
        "merging": (lambda: run(flow, measure, pf.Particles(coalesce=1e-3)), "counts points"),
        "cells": (lambda: run(circle, density, cells), "counts the nearest"),
        "modes": (lambda: run(circle, density, modes), "counts them"),
        "sums of near pairs": (
            lambda: pf.local_mean(k.Nearest(3), measure, X[:, :2], summation=pf.summation.NearFar()), "NearFar"
        ),
        "sinkhorn": (lambda: run(pf.Flow(pf.Attend(k.Nearest(3), normalization="sinkhorn")), measure, pf.Particles()),
                     "Sinkhorn"),
    }  # fmt: skip


@pytest.mark.parametrize("name", by_default(refusals(), ["no measure", "too few", "none", "a share"]))
def test_what_cannot_be_is_refused_with_its_reason(name):
    act, reason = refusals()[name]
    with pytest.raises(ArgumentError, match=reason):
        act()
