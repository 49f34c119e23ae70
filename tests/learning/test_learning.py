"""Learned kernels and flows against fine grids, scikit-learn and the parameters that made the data."""

from typing import Any

import equinox as eqx
import numpy as np
import optax
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import ArgumentError
from particleflow.learning import (
    Contrast,
    Evidence,
    LeaveOneOut,
    LeaveOneOutLikelihood,
    Observed,
    Reconstruction,
    fit,
    learn,
)


def line(count: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """2 sin x + x^0.8 with errors, as in the example of attention pooling."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 5, size=count))
    return x[:, None], 2 * np.sin(x) + x**0.8 + 0.5 * rng.normal(size=count)


def without_oneself(points: np.ndarray, width: float) -> np.ndarray:
    weights = np.exp(-((points[:, None] - points[None]) ** 2).sum(-1) / (2 * width**2))
    np.fill_diagonal(weights, 0)
    return weights


def left_out(points: np.ndarray, targets: np.ndarray, width: float) -> float:
    weights = without_oneself(points, width)
    found = weights @ targets / weights.sum(axis=1).reshape(-1, *(1,) * (targets.ndim - 1))
    return float(np.mean(np.sum((targets - found).reshape(len(points), -1) ** 2, axis=1)))


def test_the_learned_bandwidth_is_the_optimum_of_a_fine_grid():
    X, y = line()
    grid = np.geomspace(0.12, 3.0, 20_001)
    losses = np.array([left_out(X, y, width) for width in grid[::20]])
    place = 20 * int(np.argmin(losses))
    near = grid[max(place - 40, 0) : place + 41]
    best = near[int(np.argmin([left_out(X, y, width) for width in near]))]
    learned = learn(k.Gaussian(1.0), LeaveOneOut(X, y), "width")
    assert abs(learned.loss - left_out(X, y, float(learned.model.width))) < 1e-12
    assert abs(float(learned.model.width) / best - 1) < 2 * np.log(grid[1] / grid[0])
    assert learned.losses[0] == pytest.approx(left_out(X, y, 1.0), rel=1e-12)
    assert (np.diff(learned.losses) <= 1e-15).all()
    assert "no better" in learned.reason or "no way down" in learned.reason


@pytest.mark.slow
def test_with_oneself_nothing_is_learned_and_without_there_is_a_width():
    """‖X − K̃X‖² falls to 0 with the width unless K̃_ii = 0."""
    X = np.random.default_rng(3).normal(size=(40, 2))
    measure = pf.Measure.uniform(X)

    def trivial(width: float) -> float:
        return float(np.sum((X - np.asarray(pf.local_mean(k.Gaussian(width), measure, X))) ** 2))

    assert trivial(0.01) < 1e-12
    learned = learn(k.Gaussian(0.5), Reconstruction(X), "width")
    widths = np.geomspace(0.2, 5, 400)
    assert learned.loss <= min(left_out(X, X, width) for width in widths) + 1e-9
    assert 0.1 < float(learned.model.width) < 2


def test_likelihoods_agree_with_brute_force():
    X, y = line()
    covariance: Any = np.exp(-((X - X.T) ** 2) / (2 * 0.7**2)) + 0.3**2 * np.eye(len(X))
    expected = -multivariate_normal.logpdf(y, np.zeros(len(X)), covariance) / len(X)
    assert abs(float(eqx.filter_jit(Evidence(X, y))(Observed(k.Gaussian(0.7), 0.3))) - expected) < 1e-10
    loss = eqx.filter_jit(LeaveOneOutLikelihood(X))
    density = without_oneself(X, 0.3).sum(axis=1) / ((len(X) - 1) * np.sqrt(2 * np.pi) * 0.3)
    assert abs(float(loss(k.Gaussian(0.3))) + np.mean(np.log(density))) < 1e-12
    two = k.Mixture((k.Gaussian(0.3), k.Gaussian(1.0)), (1.0, 1.0))
    parts = [without_oneself(X, width).sum(axis=1) for width in (0.3, 1.0)]
    whole = np.sum(parts, axis=0) / ((len(X) - 1) * np.sqrt(2 * np.pi) * 1.3)
    assert abs(float(loss(two)) + np.mean(np.log(whole))) < 1e-12


@pytest.mark.slow
def test_the_largest_evidence_is_that_of_scikit_learn():
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    X, y = line()
    theirs: Any = GaussianProcessRegressor(ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.25), alpha=0.0)
    theirs = theirs.fit(X, y - y.mean())
    learned = learn(
        Observed(1.0 * k.Gaussian(1.0), 0.5),
        Evidence(X, y - y.mean()),
        ["kernel.kernel.width", "kernel.factor", "noise"],
    )
    amount, white = theirs.kernel_.k1, theirs.kernel_.k2
    assert abs(-learned.loss * len(X) - theirs.log_marginal_likelihood_value_) < 1e-6
    np.testing.assert_allclose(float(learned.model.kernel.kernel.width), amount.k2.length_scale, rtol=1e-3)
    np.testing.assert_allclose(float(learned.model.kernel.factor), amount.k1.constant_value, rtol=2e-3)
    np.testing.assert_allclose(float(learned.model.noise) ** 2, white.noise_level, rtol=1e-3)


@pytest.mark.slow
def test_relevance_of_coordinates():
    """A metric Q = K that is learned as one diagonal finds which coordinate matters."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 2))
    y = np.sin(3 * X[:, 0])
    kernel = k.SquaredDistanceAttention(0.5, query=np.ones(2), key=np.ones(2))
    learned = learn(kernel, LeaveOneOut(X, y), [("query", "key")])
    np.testing.assert_array_equal(learned.model.query, learned.model.key)
    scales = np.abs(np.asarray(learned.model.query))
    assert scales[0] > 20 * scales[1]

    def by_hand(scale: np.ndarray) -> float:
        return left_out(X * scale, y, 1.0)

    theirs = minimize(by_hand, [1.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    assert learned.loss <= theirs.fun * (1 + 1e-6)


@pytest.mark.slow
def test_letters_are_embedded():
    """Six letters of two classes: a table of embeddings finds who predicts whom."""
    rng = np.random.default_rng(5)
    letters = rng.integers(6, size=90)
    classes = np.eye(2)[letters % 2]
    points = letters[:, None].astype(float)
    kernel = k.Embedded(0.1 * rng.normal(size=(6, 2)), 0.1 * rng.normal(size=(6, 2)))
    learned = learn(kernel, LeaveOneOut(points, classes, "log"), ["query_table", "key_table"], steps=40)
    table = np.asarray(learned.model.log_matrix(np.arange(6.0)[:, None], np.arange(6.0)[:, None]))
    shares = np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)
    own = shares[:, ::2].sum(axis=1) * (np.arange(6) % 2 == 0) + shares[:, 1::2].sum(axis=1) * (np.arange(6) % 2 == 1)
    assert learned.losses[0] > 0.6
    assert learned.loss < 0.02
    assert own.min() > 0.95


@pytest.mark.slow
def test_weights_of_a_mixture():
    X, y = line()
    parts = (k.Gaussian(0.2), k.Gaussian(2.0))
    learned = learn(k.Mixture(parts, (1.0, 1.0)), LeaveOneOut(X, y), "weights.1")

    def by_hand(share: float) -> float:
        weights = without_oneself(X, 0.2) + share * without_oneself(X, 2.0)
        return float(np.mean((y - weights @ y / weights.sum(axis=1)) ** 2))

    shares = np.geomspace(1e-6, 10, 2001)
    assert learned.loss <= min(map(by_hand, shares)) + 1e-9
    assert abs(learned.loss - by_hand(float(learned.model.weights[1]))) < 1e-12


def pairs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys that are the queries turned by a right angle, a little off, and the turn."""
    rng = np.random.default_rng(6)
    X, turn = rng.normal(size=(40, 2)), np.array([[0.0, -1.0], [1.0, 0.0]])
    return X, X @ turn.T + 0.05 * rng.normal(size=X.shape), turn


def test_contrast_is_cross_entropy():
    """InfoNCE: the log-normalizer less the exponent of one's own key."""
    X, Y, _ = pairs()
    scores = 1.5 * X @ Y.T
    expected = np.mean(np.asarray(logsumexp(scores, axis=1)) - np.diag(scores))
    assert abs(float(Contrast(X, Y)(k.Attention(1.5, query=np.eye(2)))) - expected) < 1e-12


@pytest.mark.slow
def test_contrast_finds_what_pairs_have_in_common():
    X, Y, turn = pairs()
    learned = learn(k.Attention(1.5, query=np.eye(2)), Contrast(X, Y), "query", steps=30)
    found = np.asarray(learned.model.query)

    def surprise(query: np.ndarray) -> float:
        scores = 1.5 * X @ query.reshape(2, 2).T @ Y.T
        return float(np.mean(np.asarray(logsumexp(scores, axis=1)) - np.diag(scores)))

    least = minimize(surprise, np.eye(2).ravel(), tol=1e-10)  # it is convex in Q
    assert abs(learned.loss - least.fun) < 1e-10
    np.testing.assert_allclose(found.ravel(), least.x, atol=1e-4)
    assert np.trace(found @ turn.T) / (np.linalg.norm(found) * np.sqrt(2)) > 0.95  # Q is nearly a multiple of the turn


QUERY = np.array([[1.2, 0.3], [-0.2, 0.8]])
VALUE = np.array([[-0.6, 0.5], [-0.4, -0.9]])


def observed() -> pf.Trajectory:
    start = np.random.default_rng(0).normal(size=(6, 2))
    flow = pf.Flow(pf.Attend(k.Attention(1.3, query=QUERY), value=VALUE))
    return pf.simulate(flow, start, np.linspace(0, 2, 5), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_what_moved_a_trajectory_is_found(tmp_path):
    """Q and V, and β beside them: β and Q act by their product, the others are found themselves."""
    run = observed()
    guess = pf.Flow(pf.Attend(k.Attention(1.0, query=np.eye(2)), value=-np.eye(2)))
    told = []
    learned = fit(
        guess,
        run,
        ["drift.kernel.beta", "drift.kernel.query", "drift.value"],
        progress=lambda step, loss: told.append((step, loss)),
        tolerance=1e-3,
        rtol=1e-6,
        atol=1e-8,
        solver="tsit5",
    )
    drift = learned.model.drift
    np.testing.assert_allclose(drift.kernel.beta * drift.kernel.query, 1.3 * QUERY, atol=1e-3)
    np.testing.assert_allclose(drift.value, VALUE, atol=1e-3)
    assert [loss for _, loss in told] == list(learned.losses)
    assert learned.loss < 1e-10

    path = pf.scenario.save_scenario(learned.model, tmp_path / "learned.toml", start=run.points[0], end=2.0, frames=5)
    setup: Any = pf.scenario.load(path).build()
    np.testing.assert_array_equal(setup.flow.drift.value, drift.value)
    again = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
    np.testing.assert_allclose(again.points, run.points, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("kind", ["sphere", "ensemble", "weighted", "float32"])
def test_fits_of_every_kind(kind, restart):
    rng = np.random.default_rng(1)
    geometry = pf.Sphere() if kind == "sphere" else None
    dtype = np.float32 if kind == "float32" else np.float64
    start: Any = rng.normal(size=(2, 5, 3) if kind == "ensemble" else (5, 3)).astype(dtype)
    start = start / np.linalg.norm(start, axis=-1, keepdims=True)
    if kind == "weighted":
        start = pf.Measure.weighted(start, rng.uniform(0.2, 1.0, size=5))
    true = pf.Flow(pf.Attend(k.Attention(2.0), value=-0.7), geometry)
    tolerances: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6} if kind == "float32" else {"rtol": 1e-9, "atol": 1e-11}
    run = pf.simulate(true, start, np.linspace(0, 1, 4), **tolerances)
    guess = pf.Flow(pf.Attend(k.Attention(1.0), value=-1.0), geometry)
    learned = fit(guess, run, ["drift.kernel.beta", "drift.value"], restart=restart, **tolerances)
    np.testing.assert_allclose(learned.model.drift.kernel.beta, 2.0, rtol=2e-2 if kind == "float32" else 1e-3)
    np.testing.assert_allclose(learned.model.drift.value, -0.7, rtol=2e-2 if kind == "float32" else 1e-3)


@pytest.mark.slow
def test_early_stopping_keeps_what_is_best_on_held_back_data():
    X, y = line()
    held = LeaveOneOut(X[::2], y[::2])
    learned = learn(
        k.Gaussian(2.0), LeaveOneOut(X[1::2], y[1::2]), "width", validate=held, optimizer=optax.adam(0.1), steps=60
    )
    assert learned.validation is not None
    assert learned.loss == learned.validation.min()
    assert abs(float(held(learned.model)) - learned.loss) < 1e-12
    assert len(learned.validation) == learned.steps + 1


@pytest.mark.parametrize(("held_back", "steps"), [(lambda kernel: kernel.width**2, 3), (lambda _: np.nan, 2)])
def test_the_search_ends_after_as_many_steps_without_gain_as_are_allowed(held_back, steps):
    """Held-back data of which the loss grows from the first step on, or is not even a number at the start."""
    learned = learn(
        k.Gaussian(1.0), lambda kernel: (kernel.width - 3.0) ** 2, "width",
        validate=held_back, optimizer=optax.sgd(1e-3), patience=3, steps=20,
    )  # fmt: skip
    assert (learned.steps, learned.reason) == (steps, "no better for 3 steps")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("wide", "names 'wide' of Gaussian, which has width"),
        ([], "is empty"),
        (["width", "width"], "twice"),
        (3.0, "parameters"),
        ("width.0", "no parts"),
    ],
)
def test_what_cannot_be_learned_is_a_sentence(parameters, said):
    X, y = line()
    with pytest.raises((ArgumentError, TypeError), match=said):
        learn(k.Gaussian(1.0), LeaveOneOut(X, y), parameters)


def test_what_cannot_be_met_or_saved_is_a_sentence(tmp_path):
    X, y = line()
    flow = pf.Flow(pf.Attend(k.Attention(1.0)), temperature=0.1)
    still = pf.Trajectory.from_arrays([0.0, 1.0], np.zeros((2, 3, 2)))
    with pytest.raises(ArgumentError, match="noise"):
        fit(flow, still, "drift.kernel.beta")
    with pytest.raises(ArgumentError, match="two frames"):
        fit(pf.Flow(flow.drift), still[:1], "drift.kernel.beta")
    with pytest.raises(ArgumentError, match="at the start"):
        learn(k.Gaussian(1.0), lambda kernel: kernel.width * np.nan, "width")
    with pytest.raises(ArgumentError, match="begins at 0"):
        learn(k.Mixture((k.Gaussian(1.0), k.Gaussian(2.0)), (1.0, 0.0)), LeaveOneOut(X, y), "weights.1")
    with pytest.raises(ArgumentError, match="integral"):
        learn(k.Cauchy(1.0), LeaveOneOutLikelihood(X), "width")
    own = pf.Flow(pf.MeanShift(k.FeatureExponential(lambda x: x, lambda y: y)))
    with pytest.raises(ArgumentError, match="scenario"):
        pf.scenario.save_scenario(own, tmp_path / "own.toml", start=X, end=1.0)
    with pytest.raises(ArgumentError, match=r"\.toml"):
        pf.scenario.save_scenario(own, tmp_path / "own.txt", start=X, end=1.0)


@pytest.mark.parametrize(
    "flow",
    [
        pf.Flow(pf.MeanShift(k.Gaussian(0.3), data=pf.Measure.uniform(np.random.default_rng(0).normal(size=(9, 2))))),
        pf.Flow(
            [pf.Attend(k.Attention(2.0, key=np.random.default_rng(1).normal(size=(12, 12)))), pf.drifts.Linear(-0.1)]
        ),
        pf.Flow(pf.Attend(k.Gaussian(0.5) * k.Window(2.5), normalization="none"), pf.Sphere(), temperature=0.01),
    ],
    ids=["data", "two drifts and a large matrix", "product, noise"],
)
def test_flows_come_back_from_their_files(flow, tmp_path):
    dimension = 12 if "Linear" in repr(flow) else 2
    start = np.random.default_rng(2).normal(size=(4, dimension))
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    path = pf.scenario.save_scenario(flow, tmp_path / "flow.toml", start=start, end=1.0)
    setup = pf.scenario.load(path).build(check=False)
    np.testing.assert_array_equal(setup.start.points, start)
    assert repr(setup.flow) == repr(flow) or type(setup.flow.drift) is type(flow.drift)
