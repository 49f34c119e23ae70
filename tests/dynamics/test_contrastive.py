"""Contrastive learning as a flow: its gradient by differences, and the configurations that are known to be best."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.special import logsumexp

import particleflow as pf
from particleflow import drifts, kernels, observables
from particleflow.errors import ArgumentError
from particleflow.learning import Contrast
from shares import by_default

BETA = 1.7
POINTS = np.random.default_rng(3).normal(size=(12, 3))
POINTS /= np.linalg.norm(POINTS, axis=1, keepdims=True)


def loss(points: np.ndarray, beta: float, views: int = 2) -> float:
    """mean_i [−β⟨x_i, p_i⟩ + log Σ_{j≠i} e^{β⟨x_i, x_j⟩}], views of a sample one after the other."""
    gram = beta * points @ points.T
    sample = np.arange(len(points)) // views
    same = (sample[:, None] == sample) & ~np.eye(len(points), dtype=bool)
    aligned = (same * gram).sum(axis=1) / (views - 1)
    return float(np.mean(logsumexp(np.where(np.eye(len(points), dtype=bool), -np.inf, gram), axis=1) - aligned))


@pytest.mark.parametrize("views", by_default([2, 3], [3]))
def test_the_velocity_is_the_gradient_of_the_loss(views):
    """−(n/β) ∂L/∂x by differences of fourth order."""
    drift, measure = drifts.Contrastive(BETA, views), pf.Measure.uniform(POINTS, positions=np.arange(12.0))
    found = np.asarray(drift(0.0, measure.sites, measure))
    slopes = np.zeros_like(POINTS)
    for place in np.ndindex(*POINTS.shape):
        step = np.zeros_like(POINTS)
        step[place] = 1e-3
        ahead, far = ([loss(POINTS + k * sign * step, BETA, views) for sign in (1, -1)] for k in (1, 2))
        slopes[place] = (8 * (ahead[0] - ahead[1]) - (far[0] - far[1])) / 12e-3
    np.testing.assert_allclose(found, -len(POINTS) / BETA * slopes, atol=1e-9)


@pytest.mark.slow
def test_one_side_is_two_attentions():
    """Held keys: what is left is attention to the partner with V = 1 and to all others with V = −1, on the sphere."""
    partner = np.full((12, 12), -np.inf)
    partner[np.arange(12), np.arange(12) ^ 1] = 0.0
    two = pf.Attend(kernels.PositionMatrix(partner)) + pf.Attend(
        kernels.Attention(BETA), value=-1.0, positional=kernels.Others()
    )
    runs = [
        pf.evolve(pf.Flow(each, pf.Sphere()), POINTS, 2.0, rtol=1e-10, atol=1e-12).points
        for each in (drifts.Contrastive(BETA, both_sides=False), two)
    ]
    assert np.max(np.abs(np.asarray(runs[0]) - runs[1])) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tetrahedron", "octahedron"])
def test_it_ends_in_the_best_configuration(name):
    """Views agree and samples sit on the corners: L = −β + log(e^β + 2 Σ e^{β t}) over the products t of two corners.

    For the tetrahedron t = −1/3, three times (the simplex is the least loss: Lu and Steinerberger 2022); for the
    octahedron 0, four times, and −1. Both are universal optima (Cohn and Kumar 2007), least for the energy of e^{βt},
    too. No start comes below; some may end in another minimum.
    """
    products = {"tetrahedron": [-1 / 3] * 3, "octahedron": [0.0] * 4 + [-1.0]}[name]
    samples, beta = len(products) + 1, 2.0
    least = -beta + np.log(np.exp(beta) + 2 * np.sum(np.exp(beta * np.array(products))))
    flow = pf.Flow(drifts.Contrastive(beta), pf.Sphere())
    starts = np.random.default_rng(0).normal(size=(3, 2 * samples, 3))
    starts /= np.linalg.norm(starts, axis=2, keepdims=True)
    recorded = [observables.Alignment(), observables.Uniformity()]
    run = pf.simulate(flow, starts, [0.0, 150.0], rtol=1e-9, atol=1e-11, observe=recorded)
    losses = [loss(run.run(number).points[-1], beta) for number in range(3)]
    assert min(losses) > least - 1e-12
    best = int(np.argmin(losses))
    assert losses[best] < least + 1e-9
    corners = run.run(best).points[-1][::2]
    energy = np.sum(np.exp(beta * corners @ corners.T)) / (2 * beta * samples**2)
    sharp = (np.exp(beta) + np.sum(np.exp(beta * np.array(products)))) / (2 * beta * samples)
    assert abs(energy / sharp - 1) < 1e-9
    assert float(run.run(best).observables["alignment"][-1]) < 1e-12


def test_alignment_and_uniformity_by_hand():
    weights = np.array([1, 1, 2, 2, 0.5, 0.5, 0, 0, 1, 1, 3, 3]) / 15
    measure = pf.Measure.weighted(POINTS, weights, positions=np.arange(12.0))
    present = pf.Present.of(pf.Flow(drifts.Contrastive()), measure)
    pairs = (weights[::2] * weights[1::2], np.sum((POINTS[::2] - POINTS[1::2]) ** 2, axis=1))
    assert abs(float(observables.Alignment()(present)) - pairs[0] @ pairs[1] / pairs[0].sum()) < 1e-14
    both = np.array([weights[i] * weights[j] for i in range(12) for j in range(i + 1, 12)])
    spread = np.log(both @ np.exp(-3 * pdist(POINTS) ** 2) / both.sum())
    assert abs(float(observables.Uniformity(3.0)(present)) - spread) < 1e-13
    with pytest.raises(ArgumentError, match="views"):
        drifts.Contrastive(views=1)
    bare = pf.Measure.uniform(POINTS)
    with pytest.raises(ArgumentError, match="by positions"):
        drifts.Contrastive()(0.0, bare.sites, bare)


@pytest.mark.slow
def test_uniform_points_have_the_uniformity_of_the_sphere():
    """log((1 − e^{−4t})/(4t)) for S² at rate t; 2,000 draws leave 1 %."""
    draws = pf.initial.UniformSphere(dim=3).sample(jax.random.key(0), 2000)
    present = pf.Present.of(pf.Flow(drifts.Contrastive()), draws)
    assert abs(float(observables.Uniformity()(present)) - np.log(-np.expm1(-8.0) / 8)) < 0.02


def test_cosine_similarity_is_a_projection_to_the_sphere():
    """The gradient of InfoNCE under exp β cos has no radial part: it is that on the sphere, over the length."""
    queries, keys = 2.5 * POINTS[::2], POINTS[1::2]

    def of(points: Any, kernel: Any) -> Any:
        return Contrast(points, keys)(kernel)

    @jax.jit
    def slopes(points: Any) -> tuple[Any, Any]:
        return jax.grad(of)(points, kernels.Cosine(BETA)), jax.grad(of)(points / 2.5, kernels.Attention(BETA))

    cosine, plain = (np.asarray(each) for each in slopes(jnp.asarray(queries)))
    units = POINTS[::2]
    assert np.max(np.abs(np.sum(cosine * units, axis=1))) < 1e-15
    tangent = plain - np.sum(plain * units, axis=1, keepdims=True) * units
    np.testing.assert_allclose(2.5 * cosine, tangent, atol=1e-14)
