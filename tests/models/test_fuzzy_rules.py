"""Fuzzy rules and other queries: what is a local mean, and what is none."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import UserError
from particleflow.models import FuzzyRules
from shares import by_default

_RNG = np.random.default_rng(2)
X = _RNG.uniform(-2, 2, size=(80, 2))
Y = np.stack([np.sin(X[:, 0]) + X[:, 1], X[:, 0] * X[:, 1]], axis=1)
AT = _RNG.uniform(-2, 2, size=(9, 2))
CENTRES = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
WIDTHS = np.array([[0.8, 0.5], [0.6, 0.9], [1.0, 0.7], [0.5, 0.5]])


def strengths(points: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * (((points[:, None] - CENTRES[None]) / WIDTHS[None]) ** 2).sum(-1))


@pytest.mark.parametrize("affine", by_default([True, False], [True]))
def test_takagi_sugeno_is_the_formula(affine):
    """Σ_i w_i (a_i + b_i·x)/Σ_i w_i, with consequents from the least squares of NumPy."""
    model = FuzzyRules(CENTRES, WIDTHS, affine=affine).fit(X, Y)
    shares = strengths(AT) / strengths(AT).sum(axis=1, keepdims=True)
    inputs = np.concatenate([np.ones((9, 1)), AT], axis=1) if affine else np.ones((9, 1))
    expected = np.einsum("mr,roi,mi->mo", shares, model.consequents_, inputs)
    np.testing.assert_allclose(model.predict(AT), expected, rtol=1e-11)
    np.testing.assert_allclose(model.memberships(AT), shares, rtol=1e-11)
    own = strengths(X) / strengths(X).sum(axis=1, keepdims=True)
    terms = np.concatenate([np.ones((80, 1)), X], axis=1) if affine else np.ones((80, 1))
    design = (own[:, :, None] * terms[:, None]).reshape(80, -1)
    best = design @ np.linalg.pinv(design) @ Y
    np.testing.assert_allclose(model.predict(X), best, atol=1e-10)


@pytest.mark.slow
def test_rules_that_say_one_plane_say_it_everywhere():
    plane = X @ [2.0, -1.0] + 0.5
    found = FuzzyRules(rules=3, widths=0.7, random_state=0).fit(X, plane).predict(AT)
    np.testing.assert_allclose(found, AT @ [2.0, -1.0] + 0.5, atol=1e-10)


def rules(values: Any) -> pf.Measure:
    """Rules of weight one, so that matches are memberships."""
    return pf.Measure(np.concatenate([CENTRES, WIDTHS], axis=1), np.zeros(4), np.asarray(values, float))


def additive(matches: Any, values: Any) -> Any:
    return matches @ values / jnp.sum(matches)


def max_min(matches: Any, values: Any) -> Any:
    """Mamdani: the centroid of max_i min(match_i, triangle of half-width 1 around value_i)."""
    grid = jnp.linspace(-6.0, 6.0, 601)
    consequents = jnp.maximum(0.0, 1 - jnp.abs(grid[None, :] - values[:, None]))
    conclusion = jnp.max(jnp.minimum(matches[:, None], consequents), axis=0)
    return conclusion @ grid / jnp.sum(conclusion)


@pytest.mark.slow
def test_a_linear_query_is_the_local_mean_and_max_min_is_none():
    """What additive rules conclude is linear in what each says; max–min is not, so no weights make it a mean."""
    one, two = _RNG.uniform(-2, 2, size=(2, 4))

    def asked(operator: Any, values: Any) -> np.ndarray:
        return np.asarray(pf.local_query(k.Membership(), rules(values), AT, operator))

    first = asked(additive, one)
    np.testing.assert_allclose(first, pf.local_mean(k.Membership(), rules(one), AT), rtol=1e-12)
    np.testing.assert_allclose(first + asked(additive, two), asked(additive, one + two), rtol=1e-10)
    centroid = asked(max_min, one)
    gap = np.abs(centroid + asked(max_min, two) - asked(max_min, one + two))
    assert gap.max() > 0.05
    with np.errstate(over="ignore"):
        grid = np.linspace(-6, 6, 601)
        triangle = np.maximum(0, 1 - np.abs(grid[None] - one[:, None]))
        whole = np.minimum(strengths(AT)[:, :, None], triangle[None]).max(axis=1)
    np.testing.assert_allclose(centroid, whole @ grid / whole.sum(axis=1), rtol=1e-10)


@pytest.mark.slow
def test_a_local_median_is_a_query():
    values = _RNG.normal(size=80)

    def median(matches: Any, given: Any) -> Any:
        order = jnp.argsort(given)
        below = jnp.cumsum(matches[order])
        return given[order][jnp.searchsorted(below, 0.5 * below[-1])]

    found = pf.local_query(k.Nearest(7), pf.Measure.uniform(X, values), AT, median)
    near = np.argsort(np.linalg.norm(AT[:, None] - X[None], axis=2), axis=1)[:, :7]
    np.testing.assert_allclose(found, np.median(values[near], axis=1))
    one = pf.local_query(k.Nearest(7), pf.Measure.uniform(X, values), AT[0], median)
    assert float(one) == float(found[0])


@pytest.mark.parametrize("affine", by_default([True, False], [True]))
def test_fuzzy_inputs_are_integrals_over_what_the_input_may_be(affine):
    """∫ p K (a + b·x) dx / ∫ p K dx by Gauss–Hermite nodes in NumPy, and of point inputs the prediction itself."""
    model = FuzzyRules(CENTRES, WIDTHS, affine=affine).fit(X, Y)
    spreads = np.array([0.4, 0.7])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    law = np.outer(weights, weights).ravel() / weights.sum() ** 2
    found = model.predict_fuzzy(AT[:3], spreads)
    for x, each in zip(AT[:3], found, strict=True):
        places = x + spreads * grid
        terms = np.concatenate([np.ones((3600, 1)), places], axis=1) if affine else np.ones((3600, 1))
        heard = law[:, None] * strengths(places)
        expected = np.einsum("kr,roi,ki->o", heard, model.consequents_, terms) / heard.sum()
        np.testing.assert_allclose(each, expected, rtol=1e-9)
    np.testing.assert_allclose(model.predict_law(AT[0] + spreads * grid, law), found[0], rtol=1e-9)
    np.testing.assert_allclose(model.predict_fuzzy(AT, 0.0), model.predict(AT), rtol=1e-11)
    plain = law @ model.predict(AT[0] + spreads * grid)  # the mean of predictions is another number
    assert np.abs(plain - found[0]).max() > 1e-3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rules": 0}, "rules"),
        ({"rules": np.zeros((2, 5))}, "centres"),
        ({"widths": 0.0}, "positive"),
        ({"widths": np.ones(7)}, "shape"),
    ],
)
def test_what_cannot_be_is_refused(settings, said):
    with pytest.raises(UserError, match=said):
        FuzzyRules(**settings).fit(X, Y)
    with pytest.raises(UserError, match="centres and widths"):
        k.Membership().log_matrix(X, CENTRES)
    with pytest.raises(UserError, match="spreads"):
        k.FuzzyMembership().log_matrix(X, np.concatenate([CENTRES, WIDTHS], axis=1))


@pytest.mark.slow
def test_fuzzy_inputs_that_cannot_be_are_refused():
    model = FuzzyRules(CENTRES, WIDTHS).fit(X, Y)
    for wrong, said in ((-0.1, "negative"), (np.ones(5), "shape")):
        with pytest.raises(UserError, match=said):
            model.predict_fuzzy(AT, wrong)
    with pytest.raises(UserError, match="mass"):
        model.predict_law(AT, np.zeros(9))
