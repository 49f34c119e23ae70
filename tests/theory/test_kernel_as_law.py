"""A kernel as a joint law, against NumPy, scikit-learn's mutual information and that of normal laws."""

import jax
import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import UserError
from shares import by_default

_RNG = np.random.default_rng(0)
X, Y = _RNG.normal(size=(7, 2)), _RNG.normal(size=(9, 2))
MU, NU = _RNG.uniform(0.1, 1.0, size=7), _RNG.uniform(0.1, 1.0, size=9)
QUERIES, POINTS = pf.Measure.weighted(X, MU), pf.Measure.weighted(Y, NU, _RNG.normal(size=9))


def brute(kernel: np.ndarray) -> np.ndarray:
    law = kernel * MU[:, None] * NU[None]
    return law / law.sum()


@pytest.mark.parametrize("radius", by_default([None, 1.2], [None]))
def test_marginals_conditionals_and_what_one_tells_of_the_other(radius):
    squares = ((X[:, None] - Y[None]) ** 2).sum(-1)
    kernel = k.Gaussian(0.7) if radius is None else k.Ball(radius)
    p = brute(np.exp(-squares / (2 * 0.49)) if radius is None else (squares < radius**2).astype(float))
    law = pf.joint_law(kernel, QUERIES, POINTS)
    np.testing.assert_allclose(law.probabilities, p, rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(law.of_query, p.sum(axis=1), rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(law.of_point, p.sum(axis=0), rtol=1e-13, atol=1e-16)
    product = np.outer(p.sum(axis=1), p.sum(axis=0))[p > 0]
    np.testing.assert_allclose(law.mutual_information, np.sum(p[p > 0] * np.log(p[p > 0] / product)), rtol=1e-12)
    np.testing.assert_allclose(law.point_given_query, pf.attention_weights(kernel, POINTS, X), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(np.asarray(law.query_given_point) * np.asarray(law.of_point), p, rtol=1e-13, atol=1e-16)
    mean = law.point_given_query @ POINTS.carried
    np.testing.assert_allclose(mean, pf.local_mean(kernel, POINTS, X), rtol=1e-12)


@pytest.mark.slow
def test_of_counts_it_is_the_information_of_scikit_learn():
    """A table of counts as the kernel of two alphabets, zeros among them."""
    counts = _RNG.integers(0, 9, size=(5, 4))
    with np.errstate(divide="ignore"):
        kernel = k.Discrete(np.log(counts.astype(float)))
    law = pf.joint_law(kernel, pf.Measure.of_symbols(range(5)), pf.Measure.of_symbols(range(4)))
    expected = mutual_info_score(None, None, contingency=counts)
    np.testing.assert_allclose(law.mutual_information, expected, rtol=1e-12)


@pytest.mark.slow
def test_a_gaussian_kernel_between_normal_measures_is_a_normal_law():
    """Correlation ρ = s²/(s² + h²), I = −½ log(1 − ρ²): Gauss–Hermite nodes carry both measures."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    keep = weights > 1e-30
    measure = pf.Measure.weighted(0.8 * nodes[keep][:, None], weights[keep])
    correlation = 0.8**2 / (0.8**2 + 0.5**2)
    found = float(pf.joint_law(k.Gaussian(0.5), measure, measure).mutual_information)
    assert abs(found + 0.5 * np.log(1 - correlation**2)) < 1e-9


@pytest.mark.slow
def test_the_two_ends_and_the_rank():
    """A constant kernel tells nothing, the nearest tells log n, r features at most log r; a gradient is finite."""
    cloud = pf.Measure.uniform(X)
    assert abs(float(pf.joint_law(k.Constant(), cloud, cloud).mutual_information)) < 1e-15
    assert abs(float(pf.joint_law(k.Nearest(1), cloud, cloud).mutual_information) - np.log(7)) < 1e-13
    wide = pf.Measure.uniform(6 * _RNG.normal(size=(300, 2)))
    low_rank = pf.joint_law(k.LinearisedAttention("softplus"), wide, wide)
    assert 0.05 < float(low_rank.mutual_information) <= np.log(2)
    slope = jax.grad(lambda width: pf.joint_law(k.Gaussian(width), cloud, cloud).mutual_information)(0.7)
    step = [float(pf.joint_law(k.Gaussian(0.7 + d), cloud, cloud).mutual_information) for d in (1e-5, -1e-5)]
    assert abs(float(slope) - (step[0] - step[1]) / 2e-5) < 1e-8
    with pytest.raises(UserError, match="no mass"):
        pf.joint_law(k.Ball(1e-3), cloud, pf.Measure.uniform(X + 5))
