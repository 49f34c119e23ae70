"""loc(M): its laws as far as they are true, and counterexamples where they are not; equivalent kernels."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import UserError
from particleflow.models import KernelRegression, LocalEstimator, Localization, LocalLinearRegression, equivalent_kernel
from particleflow.summation.nested_mean import Composed
from shares import by_default

_RNG = np.random.default_rng(7)
X = _RNG.uniform(-2, 2, size=(40, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * _RNG.normal(size=40)
AT = _RNG.uniform(-1.5, 1.5, size=(6, 2))


def gaussian(x: np.ndarray, y: np.ndarray, width: float) -> np.ndarray:
    return np.exp(-((x[:, None] - y[None]) ** 2).sum(-1) / (2 * width**2))


def ridge_of(penalty: Any) -> KernelRidge:
    return KernelRidge(alpha=penalty, kernel="rbf", gamma=1 / (2 * 0.4**2))


def square(point: Any, value: Any, theta: Any) -> Any:
    return jnp.square(value - theta[0] - theta[1:] @ point)


# --- what it is ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_localized_estimators_are_those_of_the_house():
    """loc of the mean is the local mean, loc of a line local linear regression, loc of ridge is weighted ridge."""
    local = Localization(k.Gaussian(0.7))
    mean, line = (local(model).fit(X, Y).predict(AT) for model in (DummyRegressor(), LinearRegression()))
    pull = gaussian(AT, X, 0.7)
    np.testing.assert_allclose(mean, pull @ Y / pull.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(line, LocalLinearRegression(bandwidth=0.7).fit(X, Y).predict(AT), rtol=1e-10)
    fitted = local(square).fit(pf.Measure.uniform(X, Y), AT, np.zeros(3)).parameters
    np.testing.assert_allclose(line, fitted[:, 0] + (np.asarray(fitted)[:, 1:] * AT).sum(axis=1), rtol=1e-9)
    ridge = local(Ridge(alpha=0.5)).fit(X, Y).predict(AT[:1])
    weights, design = np.diag(40 * pull[0] / pull[0].sum()), np.column_stack([np.ones(40), X])
    beta = np.linalg.solve(design.T @ weights @ design + np.diag([0, 0.5, 0.5]), design.T @ weights @ Y)
    np.testing.assert_allclose(ridge, [beta[0] + AT[0] @ beta[1:]], rtol=1e-10)


# --- law 1: loc(loc(M)) ≃ loc(M) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", by_default(["loss", "estimator"], ["estimator"]))
def test_localizations_compose_like_their_kernels(model):
    """loc_K(loc_L(M)) = loc_KL(M) at every query, in either order, and loc of the constant kernel is M itself."""
    one, two = Localization(k.Gaussian(0.9)), Localization(k.Laplace(0.8))
    measure = pf.Measure.uniform(X, Y)

    def read(local: Any) -> np.ndarray:
        if model == "estimator":
            return local.fit(X, Y).predict(AT)
        return np.asarray(local.fit(measure, AT, np.zeros(3)).parameters)

    base = LinearRegression() if model == "estimator" else square
    expected = read(Localization(k.Gaussian(0.9) * k.Laplace(0.8))(base))
    for both in (one(two(base)), two(one(base)), (one @ two)(base)):
        np.testing.assert_allclose(read(both), expected, rtol=1e-9, atol=1e-12)
    if model == "estimator":
        plain = LinearRegression().fit(X, Y).predict(AT)
        np.testing.assert_allclose(read(Localization(k.Constant())(base)), plain, rtol=1e-12)


@pytest.mark.slow
def test_localizing_twice_is_once_for_kernels_of_zero_and_one_alone():
    """K² = K is exact for balls; a Gaussian becomes narrower by √2, which is another model."""
    ball, bell = Localization(k.Ball(1.1)), Localization(k.Gaussian(0.9))
    mean = DummyRegressor()
    once, twice = (local.fit(X, Y).predict(AT) for local in (ball(mean), ball(ball(mean))))
    np.testing.assert_allclose(twice, once, rtol=1e-14)
    once, twice = (local.fit(X, Y).predict(AT) for local in (bell(mean), bell(bell(mean))))
    np.testing.assert_allclose(twice, KernelRegression(bandwidth=0.9 / np.sqrt(2)).fit(X, Y).predict(AT), rtol=1e-11)
    assert np.abs(twice - once).max() > 0.1


@pytest.mark.slow
def test_a_local_fit_of_local_fits_is_the_one_of_the_composed_kernel():
    """With fitted values in place of targets, equivalent kernels are multiplied as matrices."""
    inner, outer = LocalLinearRegression(bandwidth=0.8).fit(X, Y), LocalLinearRegression(bandwidth=1.1)
    values = inner.predict(X)
    found = outer.fit(X, values).predict(AT)
    both = outer.equivalent_kernel(AT) @ inner.equivalent_kernel(X)
    np.testing.assert_allclose(found, both @ Y, atol=1e-12)
    measure = pf.Measure.uniform(X, Y)
    composed = Composed(k.Gaussian(0.9), k.Gaussian(0.5), measure)
    means = pf.hierarchical_mean([k.Gaussian(0.5), k.Gaussian(0.9)], measure, AT)
    np.testing.assert_allclose(pf.local_mean(composed, measure, AT), means, atol=1e-12)


# --- law 2: loc(M) is richer than a linear M ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("degree", [1, 2])
def test_a_localized_linear_model_has_at_least_the_freedom_of_the_model(degree):
    """tr S ≥ p where K(x, x) ≥ K(x, y), tends to p for wide kernels, and rises to n for narrow ones."""
    freedom = [
        np.trace(LocalLinearRegression(bandwidth=width, degree=degree).fit(X, Y).equivalent_kernel(X))
        for width in (1e4, 3.0, 1.2, 0.8)
    ]
    parameters = {1: 3, 2: 6}[degree]
    assert abs(freedom[0] - parameters) < 1e-5
    assert parameters < freedom[1] < freedom[2] < freedom[3] < 40


@pytest.mark.slow
def test_where_a_point_is_not_nearest_to_itself_there_is_less():
    """Leave-one-out has tr S = 0 < 1, and loc of a tree that fits every sample is that tree on the samples."""
    measure = pf.Measure.uniform(X, Y, np.arange(40.0))
    others = np.asarray(pf.attention_weights(k.Gaussian(0.5) * k.Others(), measure, measure))
    assert np.trace(others) == 0
    tree = DecisionTreeRegressor(random_state=0)
    local = Localization(k.Gaussian(1.0))(tree).fit(X, Y)
    np.testing.assert_allclose(local.predict(X[:5]), tree.fit(X, Y).predict(X[:5]))


# --- law 3: loc(M) is universal -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_even_the_mean_becomes_universal_if_the_kernel_narrows_and_only_then():
    """The largest error of loc of the mean for a kink, |x|: at a fixed width it stays, at a width n^{-1/3} it falls."""
    asked = np.linspace(-1, 1, 41)[:, None]

    def error(count: int, width: float) -> float:
        line = np.linspace(-1.5, 1.5, count)[:, None]
        model = KernelRegression(bandwidth=width).fit(line, np.abs(line[:, 0]))
        return float(np.abs(model.predict(asked) - np.abs(asked[:, 0])).max())

    fixed = [error(count, 0.3) for count in (50, 400, 3200)]
    narrowing = [error(count, 0.3 * (count / 50) ** (-1 / 3)) for count in (50, 400, 3200)]
    assert abs(fixed[2] - 0.3 * np.sqrt(2 / np.pi)) < 2e-3  # E|N(0, h²)|: the bias, whatever the number of samples
    np.testing.assert_allclose(narrowing[2], 0.075 * np.sqrt(2 / np.pi), rtol=0.02)


# --- equivalent kernels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", by_default([1, 2], [1]))
def test_the_equivalent_kernel_of_local_polynomials(degree):
    """ŷ = Σ l_j y_j for any targets, Σ l_j (x_j − x)^a = 0 but for the constant, and l from NumPy's least squares."""
    model = LocalLinearRegression(bandwidth=0.9, degree=degree).fit(X, np.column_stack([Y, Y**2]), np.arange(1.0, 41))
    found = model.equivalent_kernel(AT)
    np.testing.assert_allclose(found @ np.column_stack([Y, Y**2]), model.predict(AT), atol=1e-11)
    for row, x in zip(found, AT, strict=True):
        apart = X - x
        powers = [np.ones(40), *apart.T]
        powers += [apart[:, 0] ** 2, apart[:, 0] * apart[:, 1], apart[:, 1] ** 2] if degree == 2 else []
        np.testing.assert_allclose(row @ np.array(powers).T, np.eye(len(powers))[0], atol=1e-12)
        root = np.sqrt(gaussian(x[None], X, 0.9)[0] * np.arange(1.0, 41))
        best = np.linalg.pinv(np.array(powers).T * root[:, None])[0] * root
        np.testing.assert_allclose(row, best, atol=1e-10)
    assert found.min() < -1e-3  # not the weights of a mean over a law: some are negative


def test_every_linear_smoother_has_one_and_no_other_model_does():
    """By scikit-learn's own fits: of ridge (K + λI)⁻¹ k, of a Gaussian process the same, of a tree none."""
    line = X[:, :1]
    ridge = equivalent_kernel(ridge_of(0.3), line, AT[:, :1])
    matrix, pull = gaussian(line, line, 0.4), gaussian(AT[:, :1], line, 0.4)
    np.testing.assert_allclose(ridge, np.linalg.solve(matrix + 0.3 * np.eye(40), pull.T).T, atol=1e-11)
    settings: dict[str, Any] = {"alpha": 0.3, "optimizer": None}
    process = GaussianProcessRegressor(RBF(0.4, "fixed"), **settings)
    np.testing.assert_allclose(equivalent_kernel(process, line, AT[:, :1]), ridge, atol=1e-11)
    own = KernelRegression(bandwidth=0.4)
    np.testing.assert_allclose(
        equivalent_kernel(own, line, AT[:, :1]), pull / pull.sum(axis=1, keepdims=True), atol=1e-13
    )
    with pytest.raises(UserError, match="linear in its targets"):
        equivalent_kernel(DecisionTreeRegressor(max_depth=2, random_state=0), line, AT[:, :1])


@pytest.mark.slow
def test_ridge_becomes_the_local_mean_as_its_penalty_grows_and_is_a_series_of_local_sums():
    """λ l(x) → k(x), so that l / Σ l → k / Σ k; and its coefficients are found by repeated sums of what is missing."""
    line, y = X[:, :1], Y
    matrix, pull = gaussian(line, line, 0.4), gaussian(AT[:, :1], line, 0.4)
    weights = equivalent_kernel(ridge_of(1e8), line, AT[:, :1])
    mean = pull / pull.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights / weights.sum(axis=1, keepdims=True), mean, rtol=1e-5, atol=1e-8)
    penalty, step = 5.0, 1 / (np.linalg.norm(matrix, 2) + 5.0)
    shares = np.zeros(40)
    for _ in range(400):
        shares += step * (y - matrix @ shares - penalty * shares)
    ridge = ridge_of(penalty).fit(line, y)
    np.testing.assert_allclose(pull @ shares, ridge.predict(AT[:, :1]), atol=1e-10)


def test_what_cannot_be_made_local_is_refused():
    with pytest.raises(UserError, match="sample_weight"):
        LocalEstimator(KNeighborsRegressor()).fit(X, Y)
    with pytest.raises(UserError, match="kernel"):
        Localization("gaussian")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="loss"):
        Localization(k.Gaussian(1.0))(3.0)
    unseen = LocalEstimator(kernel="flat", bandwidth=0.1).fit(X, Y)
    assert np.isnan(unseen.predict([[9.0, 9.0]])).all()
