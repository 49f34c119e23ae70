"""Estimators against scikit-learn, statsmodels and closed forms, and in scikit-learn's own conventions."""

import ast
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import cluster, neighbors
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import particleflow as pf
from particleflow import kernels as k
from particleflow.kernels.capabilities import log_integral
from particleflow.models import (
    Denoiser,
    FuzzyRules,
    Hopfield,
    KernelClassifier,
    KernelDensity,
    KernelRegression,
    LabelPropagation,
    LinearNeighbourhoodPropagation,
    LocalAutoregression,
    LocalEstimator,
    LocalImputer,
    LocalLinearRegression,
    MeanShiftClustering,
    estimate_bandwidth,
)

ESTIMATORS = {
    "regression": KernelRegression(),
    "local linear": LocalLinearRegression(),
    "local quadratic": LocalLinearRegression(bandwidth=3.0, degree=2),
    "classifier": KernelClassifier(),
    "density": KernelDensity(),
    "mean shift": MeanShiftClustering(),
    "blurring mean shift": MeanShiftClustering(kernel="gaussian", blurring=True, step=0.9),
    "memory": Hopfield(beta=1.0, steps=3),
    "propagation": LabelPropagation(),
    "spreading": LabelPropagation(alpha=0.5),
    "linear neighbourhoods": LinearNeighbourhoodPropagation(n_neighbors=3, alpha=0.5),
    "autoregression": LocalAutoregression(),
    "rules": FuzzyRules(rules=3, random_state=0),
    "gaps": LocalImputer(),
    "noise": Denoiser(),
    "localized": LocalEstimator(),
}


def samples(count: int = 60, dimension: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, dimension))
    return X, np.sin(2 * X[:, 0]) + X[:, -1] ** 2 + 0.1 * rng.normal(size=count), rng.normal(size=(17, dimension))


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_scikit_learns_own_checks(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)  # array-API inputs, which need a switch of SciPy's
        check_estimator(clone(ESTIMATORS[name]))


def test_every_estimator_is_checked():
    public = {getattr(pf.models, name) for name in pf.models.__all__}
    estimators = {each for each in public if isinstance(each, type) and issubclass(each, BaseEstimator)}
    assert estimators == {type(each) for each in ESTIMATORS.values()}


@pytest.mark.parametrize(("weighted", "outputs"), [(False, 1), (True, 3)])
def test_kernel_regression_is_nadaraya_watson(weighted, outputs):
    X, y, at = samples()
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.1, 2.0, size=len(X)) if weighted else None
    targets = y if outputs == 1 else np.stack([y, y**2, np.cos(y)], axis=1)
    pull = np.exp(-((at[:, None] - X[None]) ** 2).sum(-1) / (2 * 0.4**2)) * (1 if weights is None else weights)
    expected = pull @ targets / (pull.sum(axis=1) if outputs == 1 else pull.sum(axis=1, keepdims=True))
    model = KernelRegression(bandwidth=0.4).fit(X, targets, sample_weight=weights)
    np.testing.assert_allclose(model.predict(at), expected, rtol=1e-12)
    np.testing.assert_allclose(model.attention(at), pull / pull.sum(axis=1, keepdims=True), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize(("model", "kind"), [(KernelRegression, "lc"), (LocalLinearRegression, "ll")])
def test_regressions_agree_with_statsmodels(model, kind):
    from statsmodels.nonparametric.kernel_regression import KernelReg

    X, y, at = samples()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of its random numbers, which are not used here
        widths: Any = np.array([0.7, 0.7])
        theirs = KernelReg(y, X, var_type="cc", reg_type=kind, bw=widths).fit(at)[0]
    np.testing.assert_allclose(model(bandwidth=0.7).fit(X, y).predict(at), theirs, rtol=1e-8, atol=1e-10)


def test_local_polynomials_reproduce_polynomials():
    X, _, at = samples()
    affine = X @ [2.0, -3.0] + 1.0
    np.testing.assert_allclose(
        LocalLinearRegression(bandwidth=0.5).fit(X, affine).predict(at), at @ [2.0, -3.0] + 1.0, rtol=1e-11, atol=1e-12
    )
    quadratic = X[:, 0] ** 2 - X[:, 0] * X[:, 1] + 2
    found = LocalLinearRegression(bandwidth=0.8, degree=2).fit(X, quadratic).predict(at)
    np.testing.assert_allclose(found, at[:, 0] ** 2 - at[:, 0] * at[:, 1] + 2, rtol=1e-9, atol=1e-10)


def test_on_a_dense_line_the_local_mean_of_squares_is_shifted_by_the_variance():
    line = np.linspace(-8, 8, 4001)[:, None]
    at = np.array([[-1.0], [0.0], [0.7]])
    found = KernelRegression(bandwidth=0.5).fit(line, line[:, 0] ** 2).predict(at)
    np.testing.assert_allclose(found, at[:, 0] ** 2 + 0.25, rtol=1e-12)


def test_leaving_one_out_is_the_closed_form():
    X, y, _ = samples()
    model = KernelRegression(bandwidth=0.4).fit(X, y)
    own = np.diag(model.attention(X))
    np.testing.assert_allclose(y - model.leave_one_out(), (y - model.predict(X)) / (1 - own), rtol=1e-12, atol=1e-12)


def test_where_nothing_is_seen_nothing_is_predicted():
    X, y, _ = samples()
    far = np.array([[50.0, 50.0]])
    assert np.isnan(KernelRegression("flat", 0.5).fit(X, y).predict(far)).all()
    assert np.isnan(LocalLinearRegression("epanechnikov", 0.5).fit(X, y).predict(far)).all()
    assert KernelDensity("triangle", 0.5).fit(X).score_samples(far)[0] == -np.inf
    labels = (y > 0).astype(int)
    shares = KernelClassifier("flat", 0.5).fit(X, labels).predict_proba(far)
    np.testing.assert_allclose(shares, [[1 - labels.mean(), labels.mean()]], rtol=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
def test_classes_are_local_modes(classes):
    X, centre_of = clouds(200, classes, 1.5, 0)
    names = np.array(["oak", "elm", "ash", "fir"])[centre_of]
    at = X[:20] + 0.1
    model = KernelClassifier(bandwidth=0.5).fit(X, names)
    pull = np.exp(-((at[:, None] - X[None]) ** 2).sum(-1) / (2 * 0.5**2))
    shares = np.stack([pull[:, names == each].sum(axis=1) for each in model.classes_], axis=1) / pull.sum(1)[:, None]
    np.testing.assert_allclose(model.predict_proba(at), shares, rtol=1e-11, atol=1e-14)
    np.testing.assert_array_equal(model.predict(at), model.classes_[shares.argmax(axis=1)])
    if classes == 2:
        signs = np.where(names == model.classes_[1], 1.0, -1.0)
        np.testing.assert_allclose(model.decision_function(at), pull @ signs / pull.sum(1), rtol=1e-9, atol=1e-12)
        plain = KernelRegression(bandwidth=0.5).fit(X, signs).predict(at)
        np.testing.assert_array_equal(model.predict(at), model.classes_[(np.sign(plain) > 0).astype(int)])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("gaussian", "gaussian"),
        ("flat", "tophat"),
        ("epanechnikov", "epanechnikov"),
        ("laplace", "exponential"),
        ("triangle", "linear"),
    ],
)
@pytest.mark.parametrize("dimension", [1, 3])
def test_densities_agree_with_scikit_learn(ours, theirs, dimension):
    X, _, at = samples(dimension=dimension)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, size=len(X))
    expected = neighbors.KernelDensity(kernel=theirs, bandwidth=0.8).fit(X, sample_weight=weights).score_samples(at)
    found = KernelDensity(ours, 0.8).fit(X, sample_weight=weights).score_samples(at)
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
    seen = np.isfinite(expected)
    np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-8, atol=1e-10)


def test_integrals_of_kernels():
    """Student's t against its one-dimensional integral; a multiple has the multiple of an integral."""
    from scipy.integrate import quad

    kernel = k.StudentT(0.7, 2.5)
    whole = quad(lambda x: (1 + x**2 / (2.5 * 0.49)) ** (-3.5 / 2), -np.inf, np.inf)[0]
    assert abs(float(log_integral(kernel, 1)) - np.log(whole)) < 1e-8  # pyright: ignore[reportArgumentType]
    assert abs(float(log_integral(3.0 * kernel, 1)) - np.log(3 * whole)) < 1e-8  # pyright: ignore
    assert log_integral(k.Cauchy(1.0), 2) is None
    assert log_integral(k.Attention(1.0), 2) is None


@pytest.mark.parametrize("kernel", ["gaussian", "flat"])
def test_draws_of_a_density_have_its_spread(kernel):
    X = np.zeros((1, 2))
    drawn = KernelDensity(kernel, 0.5).fit(X).sample(20_000, random_state=0)
    variance = 0.25 if kernel == "gaussian" else 0.25 / 4  # of a coordinate; a uniform disk of radius r has r²/4
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.05)
    np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=0.02)


def clouds(count: int, centers: Any, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    points, numbers, *_ = make_blobs(count, centers=centers, cluster_std=spread, random_state=seed)
    return np.asarray(points), np.asarray(numbers)


def blobs() -> np.ndarray:
    return clouds(300, [[0, 0], [6, 0], [0, 6]], 0.7, 3)[0]


def test_flat_mean_shift_finds_the_centres_of_scikit_learn():
    X = blobs()
    theirs = cluster.MeanShift(bandwidth=2.0).fit(X)
    ours = MeanShiftClustering(bandwidth=2.0).fit(X)
    order = [int(np.argmin(np.linalg.norm(ours.cluster_centers_ - each, axis=1))) for each in theirs.cluster_centers_]
    assert sorted(order) == list(range(len(ours.cluster_centers_)))
    np.testing.assert_allclose(ours.cluster_centers_[order], theirs.cluster_centers_, atol=2e-3 * 2.0)
    assert adjusted_rand_score(ours.labels_, theirs.labels_) == 1.0
    np.testing.assert_array_equal(ours.predict(X), ours.labels_)


@pytest.mark.parametrize("settings", [{"blurring": True}, {"step": 0.5}, {"kernel": "gaussian", "bandwidth": 1.0}])
def test_every_way_of_shifting_finds_the_blobs(settings):
    X = blobs()
    truth = clouds(300, [[0, 0], [6, 0], [0, 6]], 0.7, 3)[1]
    found = MeanShiftClustering(**({"bandwidth": 2.0} | settings)).fit(X)
    assert len(found.cluster_centers_) == 3
    assert adjusted_rand_score(found.labels_, truth) > 0.98


def test_a_mode_is_a_zero_of_the_gradient_of_the_density():
    X = blobs()
    model = MeanShiftClustering(bandwidth=1.0, kernel="gaussian", tolerance=1e-9, max_iter=3000).fit(X)
    density = KernelDensity("gaussian", 1.0).fit(X)
    for mode in model.cluster_centers_:
        around = mode + 1e-4 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
        values = density.score_samples(around)
        np.testing.assert_allclose([values[0] - values[1], values[2] - values[3]], 0, atol=1e-10)


def test_the_estimated_bandwidth_is_that_of_scikit_learn():
    X = blobs()
    assert abs(estimate_bandwidth(X) / cluster.estimate_bandwidth(X) - 1) < 1e-10
    assert MeanShiftClustering().fit(np.ones((5, 2))).cluster_centers_.shape == (1, 2)


def test_pipelines_grids_and_clones():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), KernelClassifier(bandwidth=0.3))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.9
    search = GridSearchCV(pipeline, {"kernelclassifier__bandwidth": [0.01, 0.3, 30.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"kernelclassifier__bandwidth": 0.3}
    copy: Any = clone(KernelRegression(k.Laplace(0.4), summation=pf.summation.Dense()))
    assert isinstance(copy.kernel, k.Laplace)


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (KernelRegression("cosine"), "kernel"),
        (KernelRegression(bandwidth=-1.0), "bandwidth"),
        (KernelRegression(bandwidth="wide"), "bandwidth"),
        (KernelRegression(3.0), "kernel"),
        (LocalLinearRegression(degree=0), "degree"),
        (KernelDensity("cauchy"), "integral"),
        (MeanShiftClustering(step=0.0), "step"),
        (MeanShiftClustering(max_iter=0), "max_iter"),
        (MeanShiftClustering(tolerance=2.0), "tolerance"),
        (MeanShiftClustering(bandwidth=0.1, seeds=[[1e3, 1e3]]), "seed"),
        (MeanShiftClustering(bandwidth=0.1, seeds=[[1.0, 1.0]], blurring=True), "means nothing under blurring"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(estimator: Any, said: str):
    X, y, _ = samples()
    with pytest.raises(ValueError, match=said) as caught:
        estimator.fit(X, y)
    assert str(caught.value).endswith(".")


def test_what_scikit_learn_refuses_is_refused_as_it_does():
    X, y, at = samples()
    with pytest.raises(NotFittedError):
        KernelRegression().predict(at)
    for model in (LocalAutoregression(), FuzzyRules(rules=2), LinearNeighbourhoodPropagation()):
        with pytest.raises(ValueError, match="NaN"):
            model.fit(np.where(X > 2, np.nan, X), np.arange(len(y)) % 2)
    for act in (lambda: FuzzyRules().predict(at), lambda: LocalImputer().transform(at), LocalAutoregression().forecast):
        with pytest.raises(NotFittedError):
            act()
    with pytest.raises(ValueError, match="features"):
        FuzzyRules(rules=2).fit(X, y).predict(at[:, :1])
    assert np.isfinite(FuzzyRules().fit(np.ones((5, 2)), y[:5]).predict(at)).all()
    with pytest.raises(ValueError, match="NaN"):
        KernelRegression().fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="features"):
        KernelRegression().fit(X, y).predict(at[:, :1])
    for seeds, said in (([[1.0, 2.0, 3.0]], "features"), ([[np.nan, 1.0]], "NaN")):
        with pytest.raises(ValueError, match=said):
            MeanShiftClustering(seeds=seeds).fit(X)
    assert KernelRegression().fit(X[:1], y[:1]).predict(at)[0] == y[0]
    assert np.isfinite(LocalLinearRegression().fit(np.ones((5, 2)), y[:5]).predict(at)).all()


def test_no_model_sums_a_kernel_itself():
    """Softmax, exponentials and matrices of a kernel belong to the operator: models read it."""
    forbidden = {"softmax", "logsumexp", "log_matrix", "log_pair", "exp"}
    for path in Path(pf.models.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        found = used & forbidden
        assert found <= {"exp"}, f"{path.name}: {found}"
        for node in ast.walk(tree):  # weights of a measure are logarithms; nothing else is exponentiated
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "exp":
                assert "log_weights" in ast.unparse(node), f"{path.name}: {ast.unparse(node)}"
