"""The localization trick against closed forms: local means, local lines, logistic regression, leave-one-out."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import UserError
from particleflow.models import KernelRegression, LocalLinearRegression

NUMBER: Any = 0.3  # what nobody takes
_RNG = np.random.default_rng(3)
X = _RNG.uniform(-2, 2, size=(50, 1))
Y = np.sin(2 * X[:, 0]) + 0.1 * _RNG.normal(size=50)
AT = np.linspace(-1.5, 1.5, 7)[:, None]
MEASURE = pf.Measure.uniform(X, Y)


def squared(point: Any, value: Any, theta: Any) -> Any:
    return jnp.square(value - theta[0])


def affine(point: Any, value: Any, theta: Any) -> Any:
    return jnp.square(value - theta[0] - theta[1] * point[0])


def logistic(point: Any, value: Any, theta: Any) -> Any:
    return jax.nn.softplus(-value * (theta[0] + theta[1] * point[0]))


def gaussian(queries: np.ndarray, width: float) -> np.ndarray:
    return np.exp(-((queries - X.T) ** 2) / (2 * width**2))


def test_the_square_localizes_to_the_local_mean():
    found = pf.localize(squared, k.Gaussian(0.3)).fit(MEASURE, AT, [0.0])
    np.testing.assert_allclose(found.parameters[:, 0], jax.jit(pf.local_mean)(k.Gaussian(0.3), MEASURE, AT), rtol=1e-13)
    np.testing.assert_allclose(found.slope, 0, atol=1e-14)
    spread = jax.jit(pf.local_covariance)(k.Gaussian(0.3), MEASURE, AT)
    np.testing.assert_allclose(found.loss, spread, rtol=1e-12)
    one = pf.localize(squared, k.Gaussian(0.3)).fit(MEASURE, AT[2], [0.0])
    np.testing.assert_allclose(one.parameters, found.parameters[2])


@pytest.mark.slow
def test_the_square_of_a_line_localizes_to_local_linear_regression():
    theta = pf.localize(affine, k.Gaussian(0.4)).fit(MEASURE, AT, [0.0, 0.0]).parameters
    expected = LocalLinearRegression(bandwidth=0.4).fit(X, Y).predict(AT)
    np.testing.assert_allclose(theta[:, 0] + theta[:, 1] * AT[:, 0], expected, rtol=1e-10)


@pytest.mark.slow
def test_logistic_loss_is_that_of_scikit_learn_with_the_weights_of_the_kernel():
    signs = np.where(Y + 0.3 * _RNG.normal(size=50) > 0, 1.0, -1.0)
    found = pf.localize(logistic, k.Gaussian(0.8)).fit(pf.Measure.uniform(X, signs), AT[3:4], [0.0, 0.0])
    theirs: Any = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000)
    theirs.fit(X, signs, sample_weight=gaussian(AT[3:4], 0.8)[0])
    np.testing.assert_allclose(found.parameters[0], [theirs.intercept_[0], theirs.coef_[0, 0]], rtol=1e-5)
    assert found.slope[0] < 1e-12


@pytest.mark.slow
def test_a_saddle_is_left_and_a_constant_feature_keeps_its_parameter():
    def double_well(point: Any, value: Any, theta: Any) -> Any:
        return jnp.square(jnp.square(theta[0]) - 1) + 0.0 * theta[1]

    found = pf.localize(double_well, k.Gaussian(0.5)).fit(MEASURE, AT[:1], [0.01, 7.0])
    np.testing.assert_allclose(found.parameters[0], [1.0, 7.0], atol=1e-9)

    def absolute(point: Any, value: Any, theta: Any) -> Any:
        return jnp.abs(value - theta[0])

    assert pf.localize(absolute, k.Gaussian(0.5)).fit(MEASURE, AT[:1], [5.0]).slope[0] == 1.0


@pytest.mark.slow
def test_total_loss_with_and_without_oneself():
    """Σ_i (y_i − ŷ_i)²/n, and with oneself left out the residuals divided by 1 − S_ii."""
    model, local = KernelRegression(bandwidth=0.3).fit(X, Y), pf.localize(squared, k.Gaussian(0.3))
    total_loss = eqx.filter_jit(local.total_loss)
    residuals, own = Y - model.predict(X), np.diag(model.attention(X))
    np.testing.assert_allclose(total_loss(MEASURE, [0.0]), np.mean(residuals**2), rtol=1e-12)
    left = total_loss(MEASURE, [0.0], leave_out=True)
    np.testing.assert_allclose(left, np.mean((residuals / (1 - own)) ** 2), rtol=1e-12)
    weights = _RNG.uniform(0.1, 1.0, size=50)
    found = total_loss(pf.Measure.weighted(X, weights, Y), [0.0])
    pull = gaussian(X, 0.3) * weights
    expected = weights @ (Y - pull @ Y / pull.sum(1)) ** 2 / weights.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
def test_the_derivative_of_the_total_loss_is_that_of_the_minimum():
    def left(width: Any) -> Any:
        return pf.localize(affine, k.Gaussian(width)).total_loss(MEASURE, [0.0, 0.0], leave_out=True)

    found = jax.grad(left)(0.5)
    np.testing.assert_allclose(found, (left(0.5 + 1e-5) - left(0.5 - 1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.slow
def test_those_who_see_nobody_are_left_out():
    points = np.concatenate([X, [[50.0]]])
    measure = pf.Measure.uniform(points, np.append(Y, 9.0))
    local = pf.localize(squared, k.Ball(0.5))
    assert np.isnan(local.fit(measure, np.array([[20.0]]), [0.0]).parameters).all()
    some = local.total_loss(measure, [0.0], leave_out=True)
    np.testing.assert_allclose(some, local.total_loss(MEASURE, [0.0], leave_out=True), rtol=1e-12)


@pytest.mark.slow
def test_drawn_points_tend_to_the_kernel():
    local, key = pf.localize(squared, k.Gaussian(0.3)), jax.random.key(0)
    exact = local.fit(MEASURE, AT, [0.0]).parameters[:, 0]
    errors = []
    for draws in (30, 1000):
        found = local.resampled_fit(key, MEASURE, AT, [0.0], draws=draws).parameters[:, 0]
        spread = np.sqrt(np.asarray(pf.local_covariance(k.Gaussian(0.3), MEASURE, AT)) / draws)
        assert np.max(np.abs(found - exact) / spread) < 3.5
        errors.append(float(np.sqrt(np.mean((found - exact) ** 2))))
    assert errors[1] < 0.4 * errors[0]
    total = local.resampled_total_loss(key, MEASURE, [0.0], draws=1000, leave_out=True)
    np.testing.assert_allclose(total, local.total_loss(MEASURE, [0.0], leave_out=True), rtol=0.05)
    one = local.resampled_fit(key, MEASURE, AT, [0.0], draws=1).parameters[:, 0]
    assert all(np.min(np.abs(Y - float(each))) < 1e-14 for each in one)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: pf.localize(NUMBER, k.Gaussian(1.0)), "loss"),
        (lambda: pf.localize(squared, NUMBER), "kernel"),
        (lambda: pf.localize(squared, k.Gaussian(1.0), steps=0), "steps"),
        (lambda: pf.localize(squared, k.Gaussian(1.0)).fit(MEASURE, AT, 0.0), "initial"),
        (lambda: pf.localize(lambda x, y, t: x - t, k.Gaussian(1.0)).fit(MEASURE, AT, [0.0]), "one number"),
        (
            lambda: pf.localize(squared, k.Gaussian(1.0)).resampled_fit(jax.random.key(0), MEASURE, AT, [0.0], draws=0),
            "draws",
        ),
    ],
)
def test_what_cannot_be_is_refused(act: Any, said: str):
    with pytest.raises(UserError, match=said):
        act()
