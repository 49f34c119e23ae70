"""Self-local means and modes, and lazy mappings: what each is a case of, and what is not true of them."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import kernels as k

_RNG = np.random.default_rng(4)
X, Y = _RNG.normal(size=(15, 2)), _RNG.normal(size=(15, 3))
AT = _RNG.normal(size=(5, 2))


def first_two(point: Any) -> Any:
    return point[:2]


def shares(x: np.ndarray, y: np.ndarray, width: float) -> np.ndarray:
    pull = np.exp(-((x[:, None] - y[None]) ** 2).sum(-1) / (2 * width**2))
    return pull / pull.sum(axis=1, keepdims=True)


def test_the_local_mean_is_a_self_local_mean_of_pairs():
    """On X × Y, under a kernel of x alone, m(x, y) = (m(x), ŷ(x)): what y a query has does not matter."""
    pairs = pf.Measure.uniform(np.concatenate([X, Y], axis=1))
    kernel = k.Pullback(k.Gaussian(0.6), first_two, first_two)
    asked = np.concatenate([AT, 100 * _RNG.normal(size=(5, 3))], axis=1)
    found = np.asarray(pf.local_mean(kernel, pairs, asked))
    np.testing.assert_allclose(found[:, 2:], shares(AT, X, 0.6) @ Y, rtol=1e-12)
    np.testing.assert_allclose(found[:, :2], shares(AT, X, 0.6) @ X, rtol=1e-12)
    values = pf.local_mean(k.Gaussian(0.6), pf.Measure.uniform(X, Y), AT)
    np.testing.assert_allclose(found[:, 2:], values, rtol=1e-12)


@pytest.mark.slow
def test_the_self_local_mode_of_a_sequence_is_the_symbol_of_most_weight():
    """argmax_x Σ_{x_s = x} K(x_t, t, x_s, s) over the past, with times decay and an alphabet's table as K."""
    letters, table = _RNG.integers(0, 4, size=20), _RNG.normal(size=(4, 4))
    measure = pf.Measure.of_symbols(letters, positions=np.arange(20.0)).with_values(jnp.eye(4)[letters])
    found = np.asarray(pf.local_mode(k.Discrete(table) * k.Alibi(0.3) * k.Causal(), measure, measure))
    for place in range(20):
        votes = np.zeros(4)
        for past in range(place + 1):
            votes[letters[past]] += np.exp(table[letters[place], letters[past]] - 0.3 * (place - past))
        assert found[place] == votes.argmax()


@pytest.mark.slow
def test_there_is_a_linear_self_local_mean():
    """K = 1 + ⟨x, y⟩ of a centred sample in the unit ball has the mass 1 everywhere, and m(x) = C x."""
    sample = X - X.mean(axis=0)
    sample /= 1.01 * np.linalg.norm(sample, axis=1).max()
    kernel = k.FeatureProduct(lambda x: jnp.append(x, 1.0), lambda y: jnp.append(y, 1.0))
    asked = 0.9 * AT / np.linalg.norm(AT, axis=1, keepdims=True)
    moments = pf.local_moments(kernel, pf.Measure.uniform(sample), asked)
    np.testing.assert_allclose(moments.mean, asked @ (sample.T @ sample / 15), atol=1e-14)
    np.testing.assert_allclose(moments.log_mass, 0.0, atol=1e-14)


@pytest.mark.slow
def test_a_lazy_mapping_iterated_is_a_flow_of_values_and_its_matrix_a_power():
    """Y ↦ T(x_i; X, Y) = K̃ Y: six times it is K̃⁶ Y, as `Placed` MeanShift of the values computes it."""
    matrix = shares(X, X, 0.6)
    start = pf.Measure.uniform(Y, positions=np.arange(15.0))
    flow = pf.Flow(pf.MeanShift(k.Placed(k.Gaussian(0.6), X)))
    run = pf.simulate(flow, start, np.arange(7.0), step=1.0, solver="map")
    np.testing.assert_allclose(run.points[-1], np.linalg.matrix_power(matrix, 6) @ Y, atol=1e-12)


@pytest.mark.slow
def test_what_is_not_normalisable_is_a_difference_and_sharpens():
    """A de-smoothing kernel has ∫ K(x, y) dμ(y) = 0: of a constant nothing is left, of a line in the inside hardly."""
    line = np.linspace(-3, 3, 601)[:, None]
    values = np.concatenate([np.ones_like(line), line, line**2], axis=1)
    measure = pf.Measure.uniform(line, values)
    smooth = pf.operators.laplacian(k.Gaussian(0.1), measure, normalised=True)
    np.testing.assert_allclose(smooth[:, 0], 0.0, atol=1e-13)
    np.testing.assert_allclose(smooth[100:500, 1], 0.0, atol=1e-12)
    np.testing.assert_allclose(smooth[100:500, 2], -(0.1**2), rtol=1e-6)  # −½ σ² u''
