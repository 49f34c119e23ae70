"""Every observable at the saved points themselves, against its formula in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.special import logsumexp

import flows_oracles as oracle
import particleflow as pf
from particleflow import kernels, observables
from particleflow.errors import ArgumentError

BETA = 1.5
START = oracle.random_sphere(31, 7, 3)
WEIGHTS = np.random.default_rng(32).uniform(0.5, 1.5, 7)
WEIGHTS /= WEIGHTS.sum()


def third_coordinate(flow, time, measure):
    """A plain function of a user."""
    return measure.points[:, 2] + time


ALL = [
    observables.energy,
    observables.log_energy,
    observables.dissipation,
    observables.order_parameter,
    observables.centre,
    observables.covariance,
    observables.mean_similarity,
    observables.diameter,
    observables.speed,
    observables.effective_rank,
    observables.attention_entropy,
    observables.attention_rank,
    observables.SimilarityQuantiles((0.1, 0.5, 0.9)),
    observables.PairFraction(0.8),
    observables.PairFraction(0.0, name="same_side"),
    observables.SimilarityQuantiles((0.5,), name="median"),
    third_coordinate,
]


def weighted_quantiles(values, weights, levels):
    """Linear interpolation between the values in order, the l-th at the place (Σ_{k<l} w_k)/(1 − w_l)."""
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    places = np.concatenate([[0.0], np.cumsum(weights)[:-1]]) / (1 - weights)
    return np.interp(levels, places, values)


def formulas(points, time):
    """All of them, from the definitions."""
    pairs = np.exp(BETA * points @ points.T)
    masses = pairs @ WEIGHTS
    shares = pairs * WEIGHTS / masses[:, None]
    velocity = oracle.tangent(points, shares @ points)
    speeds = np.sum(velocity**2, axis=1)
    centre = WEIGHTS @ points
    spectrum = np.linalg.eigvalsh(points.T @ (WEIGHTS[:, None] * points))
    cosines = (points @ points.T)[np.triu_indices(7, 1)]
    pair_weights = np.outer(WEIGHTS, WEIGHTS)[np.triu_indices(7, 1)]
    pair_weights /= pair_weights.sum()
    singular = np.linalg.svd(shares, compute_uv=False)
    return {
        "energy": WEIGHTS @ masses / (2 * BETA),
        "log_energy": np.log(WEIGHTS @ masses / (2 * BETA)),
        "dissipation": WEIGHTS @ (masses * speeds),
        "order_parameter": np.linalg.norm(centre),
        "centre": centre,
        "covariance": np.cov(points.T, aweights=WEIGHTS, ddof=0),
        "mean_similarity": pair_weights @ cosines,
        "diameter": pdist(points).max(),
        "speed": np.sqrt(WEIGHTS @ speeds),
        "effective_rank": np.exp(-np.sum(spectrum / spectrum.sum() * np.log(spectrum / spectrum.sum()))),
        "attention_entropy": -WEIGHTS @ np.sum(shares * np.log(shares), axis=1),
        "attention_rank": np.sum(singular > 1e-6 * singular[0]),
        "similarity_quantiles": weighted_quantiles(cosines, pair_weights, [0.1, 0.5, 0.9]),
        "pair_fraction": pair_weights @ (cosines > 0.8),
        "same_side": pair_weights @ (cosines > 0.0),
        "median": weighted_quantiles(cosines, pair_weights, [0.5]),
        "third_coordinate": points[:, 2] + time,
    }


FEW = [observables.energy, observables.centre, *(each for each in ALL if isinstance(each, observables.PairFraction))]


@pytest.mark.slow
@pytest.mark.parametrize("asked", [pytest.param([*FEW, third_coordinate], id="some"), pytest.param(ALL, id="all")])
def test_every_observable_at_every_saved_frame(asked):
    """Some, and all; the formula of each is held against stored frames by `test_observables_on_geometries`, too."""
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA)), geometry=pf.Sphere())
    times = np.array([0.0, 0.37, 1.1, 2.0, 2.9])
    run = pf.simulate(flow, pf.Measure.weighted(START, WEIGHTS), times, rtol=1e-4, atol=1e-5, observe=asked, window=2)
    assert len(run.observables) == len(asked)
    for frame in run:
        expected_of = formulas(frame.points, frame.time)
        for name in run.observables:
            assert np.max(np.abs(frame.observables[name] - expected_of[name])) < 1e-11, name


@pytest.mark.slow
def test_energies_of_unnormalised_and_mean_shift_flows():
    measure = pf.Measure.uniform(START)
    pairs = np.exp(BETA * START @ START.T)
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA), normalization="none"), geometry=pf.Sphere())
    velocity = oracle.tangent(START, pairs @ START / 7)
    assert abs(observables.dissipation(pf.Present.of(flow, measure)) - np.mean(np.sum(velocity**2, axis=1))) < 1e-13
    shift = pf.Flow(pf.MeanShift(kernels.Gaussian(0.5)))
    squares = np.sum((START[:, None] - START[None]) ** 2, axis=2)
    assert abs(observables.energy(pf.Present.of(shift, measure)) - np.mean(np.exp(-2 * squares)) / 8) < 1e-13


@pytest.mark.parametrize("beta", [3.0, 800.0, 2000.0])
def test_log_energy_does_not_overflow_where_the_energy_does(beta):
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=beta)), geometry=pf.Sphere())
    present = pf.Present.of(flow, pf.Measure.weighted(START, WEIGHTS))
    expected = logsumexp(beta * START @ START.T, b=np.outer(WEIGHTS, WEIGHTS)) - np.log(2 * beta)
    assert abs(observables.log_energy(present) - expected) < 1e-9
    assert np.isinf(observables.energy(present)) == (beta > 700)


def test_consensus():
    points = jnp.asarray(np.tile(START[:1], (5, 1)))
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA)), geometry=pf.Sphere())
    measure = pf.Measure.uniform(points)
    expected = {
        "order_parameter": 1.0,
        "diameter": 0.0,
        "effective_rank": 1.0,
        "speed": 0.0,
        "attention_entropy": np.log(5),
    }
    asked = eqx.filter_jit(lambda present: {name: getattr(observables, name)(present) for name in expected})
    found = asked(pf.Present.of(flow, measure))
    for name, value in expected.items():
        assert abs(found[name] - value) < 1e-12, name


@pytest.mark.parametrize(("height", "rank"), [(0.0, 0.0), (3.0, 1.0)])
def test_the_effective_rank_of_equal_points_is_that_of_their_line(height, rank):
    """∫ x xᵀ dμ is a matrix of rank 0 or 1."""
    points = jnp.full((5, 3), height)
    measure = pf.Measure.uniform(points)
    assert np.isclose(observables.effective_rank(pf.Present.of(pf.Flow(pf.drifts.Linear(-1.0)), measure)), rank)
    depth = pf.analysis.along_depth([points, points])
    assert np.allclose(depth.effective_rank, rank)
    assert np.allclose(depth.collapse, 0.0, atol=1e-14)
    assert np.isnan(depth.cosines).all() == (height == 0)


def test_quantiles_without_a_pair_are_nan_with_one_more_particle_they_are_its_cosine():
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA)), geometry=pf.Sphere())
    quantiles = observables.SimilarityQuantiles((0.1, 0.9))
    asked = eqx.filter_jit(lambda measure: quantiles(pf.Present.of(flow, measure)))
    assert np.isnan(asked(pf.Measure.uniform(START[:1]))).all()
    assert np.isnan(asked(pf.Measure.weighted(START[:3], [1.0, 0.0, 0.0]))).all()
    cosine = START[0] @ START[2]  # both are unit vectors
    pair = asked(pf.Measure.weighted(START[:3], [0.5, 0.0, 0.5]))
    np.testing.assert_allclose(pair, [cosine, cosine], rtol=1e-12)


def phase(present):
    return jax.lax.complex(present.time, 2 * present.time)


def centre(present):
    return present.measure.points[0]


@pytest.mark.parametrize(
    ("observe", "words"),
    [
        (
            [observables.centre, centre],
            ["'centre'", "particleflow.simulation.observables.spread.centre", "test_observables.centre"],
        ),
        ([observables.PairFraction(0.5), observables.PairFraction(0.9)], ["'pair_fraction'", "PairFraction("]),
        ([phase], ["phase must be real, but is complex128", "z.imag"]),
    ],
    ids=["two functions", "two thresholds", "complex"],
)
def test_observables_that_would_lose_something_are_refused(observe, words):
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA)), geometry=pf.Sphere())
    with pytest.raises(ArgumentError) as caught:
        pf.simulate(flow, START, [0.0, 1.0], step=0.5, observe=observe)
    for word in words:
        assert word in str(caught.value)


def test_a_name_is_an_identifier():
    with pytest.raises(ArgumentError, match="needs a name that is an identifier"):
        observables.PairFraction(0.5, name="a b")
