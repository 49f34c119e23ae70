"""Dobrushin's bound W₁(μ_t, ν_t) ≤ e^{Lt} W₁(μ_0, ν_0), and how fast particles come to the density they are drawn from.

Let X and Y start as an optimal coupling of μ_0 and ν_0 and follow v[μ] and v[ν]. Then

    d/dt d(X, Y) ≤ L_x d(X, Y) + |v[μ](Y) − v[ν](Y)|,    |v[μ](y) − v[ν](y)| ≤ L_μ W₁(μ, ν) ≤ L_μ E d(X, Y),

and Grönwall's lemma gives L = L_x + L_μ. L_x is the largest eigenvalue of the symmetric part of the derivative of v[μ],
covariant on a sphere, where d is the geodesic distance; L_μ the Lipschitz constant in y of what an atom at y adds.

Unit sphere, kernel K = e^{β⟨x,y⟩}. The derivative of the local mean m(x) is β times the covariance of a law on the unit
ball, at most β. The covariant derivative of P_x m along ξ is P_x(Dm ξ) − ⟨x, m⟩ξ, at most β + 1.
- softmax: v[μ](x) − v[ν](x) = (1/Z_μ) ∫ K P_x(y − m_ν) d(μ − ν), Z_μ ≥ e^{−β}, and K P_x(y − m_ν) changes along y by at
  most K(1 + β|P_x(y − m_ν)|) ≤ e^β (1 + 2β). Hence L = 1 + β + e^{2β}(1 + 2β).
- unnormalised: v[μ](x) = ∫ K P_x y dμ. Along ξ it changes by at most K(β + 1), and so does K P_x y along y.
  Hence L = 2e^β(1 + β).

MeanShift v = m(x) − x, K = e^{−β|x−y|²/2}, in a ball of radius R, which hulls do not leave: Dv = β Cov − 1 ≤ βR² − 1.
K(y − m_ν) changes by at most K(1 + β|x − y||y − m_ν|) ≤ 1 + 2R√(β/e), as K β|x − y| ≤ √(β/e), and Z ≥ e^{−2βR²}.
Hence L = βR² − 1 + e^{2βR²}(1 + 2R√(β/e)).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
import volumes_oracles as volumes
from particleflow import kernels
from particleflow.analysis import wasserstein1
from particleflow.discretization import FiniteVolumes
from particleflow.dynamics.initial import UniformCircle

RADIUS = 0.6


def attention(beta: float, normalization: Any) -> pf.Flow:
    return pf.Flow(pf.Attend(kernels.Attention(beta), normalization=normalization), pf.Sphere())


# The flow, the dimension, and L.
BOUNDS: dict[str, Any] = {
    "kuramoto": (attention(0.0, "row"), 2, 2.0),
    "softmax": (attention(0.5, "row"), 3, 1.5 + 2 * np.e),
    "unnormalised": (attention(0.5, "none"), 2, 3 * np.exp(0.5)),
    "mean shift": (
        pf.Flow(pf.MeanShift(kernels.Gaussian(1.0))), 2,
        RADIUS**2 - 1 + np.exp(2 * RADIUS**2) * (1 + 2 * RADIUS * np.exp(-0.5)),
    ),
}  # fmt: skip
TIMES = np.array([0.0, 0.1, 0.4, 1.0])


def random_measures(seed: int, count: int, dimension: int, round_: bool, runs: int) -> list[pf.Measure]:
    """Clouds of random places and weights, wide and narrow ones, near each other in pairs or far apart."""
    random = np.random.default_rng(seed)
    found = []
    for run in range(runs):
        points = random.normal(size=(count, dimension)) * random.choice([0.2, 1.0]) + random.normal(size=dimension)
        if run % 4 == 1:  # a small change of the cloud before
            points = np.asarray(found[-1].points) + 1e-3 * random.normal(size=points.shape)
        length = np.linalg.norm(points, axis=1, keepdims=True)
        points = points / length if round_ else points * np.minimum(1, RADIUS / length)
        found.append(pf.Measure.weighted(jnp.asarray(points), jnp.asarray(random.dirichlet(np.full(count, 0.5)))))
    return found


def distances(flow: pf.Flow, measures: list[pf.Measure]) -> np.ndarray:
    """W₁ at all times between each even run and the odd one after it, (pairs, T)."""
    run = pf.simulate(flow, measures, TIMES, rtol=1e-8, atol=1e-10)
    points, weights = np.asarray(run.points), np.exp([np.asarray(each.log_weights) for each in measures])
    metric = "geodesic" if flow.geometry.facts(2).kind == "sphere" else "chordal"
    return np.array(
        [
            [
                wasserstein1(frame[k], frame[k + 1], x_weights=weights[k], y_weights=weights[k + 1], metric=metric)
                for frame in points
            ]
            for k in range(0, len(measures), 2)
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_measures_part_no_faster_than_dobrushin_says(name):
    flow, dimension, rate = BOUNDS[name]
    for seed in range(1 if name == "softmax" else 4):
        found = distances(flow, random_measures(seed, 6, dimension, flow.geometry.name == "sphere", 24))
        assert found.min() > 0
        assert np.all(found <= np.exp(rate * TIMES) * found[:, :1] * (1 + 1e-6))
        assert np.max(found[:, -1] / found[:, 0]) > 0.3  # not all of them come together


@pytest.mark.slow
def test_the_bound_is_sharp():
    """β = 0: W₁ of these two clouds is multiplied by 2e^t − 1, which begins like e^{2t}, and L = 2.

    A small mass w beside the antipode of all else leaves it at the rate 1, and draws all else along by w as much.
    """
    clouds = [
        pf.Measure.weighted(oracle.circle(np.array([0.0, np.pi + turn])), np.array([1 - 1e-4, 1e-4]))
        for turn in (1e-5, 3e-5)
    ]
    found = distances(BOUNDS["kuramoto"][0], clouds)[0]
    assert np.max(np.abs(found / found[0] / (2 * np.exp(TIMES) - 1) - 1)) < 1e-3


@pytest.mark.slow
def test_quantiles_come_nearer_to_the_density_than_random_particles_do():
    """W₁ between N particles and the density at t = 1: slope −½ in N for random starts, −1 for quantiles of the law."""
    flow, counts = attention(2.0, "row"), [50, 200, 800]
    how = FiniteVolumes(1024)
    density = pf.evolve(flow, volumes.poisson(0.3), 1.0, discretization=how, rtol=1e-6, atol=1e-9)
    masses = np.exp(np.asarray(density.log_weights))
    # each cell as many atoms, so that its mass is spread over it
    parts = (np.arange(16) - 7.5) / 16
    angles = 2 * np.pi * (np.arange(1024)[:, None] + parts).ravel() / 1024
    fine = {"y": oracle.circle(angles), "y_weights": np.repeat(masses / 16, 16), "metric": "geodesic"}
    starts = {
        count: np.asarray(UniformCircle(spacing="equispaced", order=0.3).sample(pf.key_for(0, "initial"), count))
        for count in counts
    }
    ends = [np.asarray(pf.evolve(flow, start, 1.0, rtol=1e-8, atol=1e-10).points) for start in starts.values()]
    found = [wasserstein1(end, **fine) for end in ends]
    slope = np.polyfit(np.log(counts), np.log(found), 1)[0]
    assert -1.1 < slope < -0.9, (slope, found)
