"""The share of the own class among neighbours against NumPy and scikit-learn's neighbourhood components analysis."""

from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.datasets import load_iris, load_wine
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler

from particleflow import kernels as k
from particleflow.errors import ArgumentError, ShapeError
from particleflow.learning import NeighbourShares, learn


def shares_by_hand(points: np.ndarray, classes: np.ndarray, transform: np.ndarray) -> np.ndarray:
    """Σ_{j: same class} softmax_{j≠i}(−|A x_i − A x_j|²), one sample after the other."""
    moved, found = points @ transform.T, []
    for i in range(len(points)):
        squares = ((moved - moved[i]) ** 2).sum(axis=1)
        squares[i] = np.inf
        weights = np.exp(-(squares - squares.min()))
        found.append(weights[classes == classes[i]].sum() / weights.sum())
    return np.array(found)


def metric(transform: np.ndarray) -> k.SquaredDistanceAttention:
    return k.SquaredDistanceAttention(1.0, query=transform, key=transform)


def test_shares_and_their_gradient_by_hand():
    rng = np.random.default_rng(0)
    points, transform = rng.normal(size=(30, 4)), rng.normal(size=(2, 4))
    classes = np.array(["a", "b", "c"])[rng.integers(3, size=30)]
    loss = NeighbourShares(points, classes)
    expected = shares_by_hand(points, classes, transform)
    np.testing.assert_allclose(loss.shares(metric(transform)), expected, atol=1e-13)
    assert abs(float(loss(metric(transform))) - (1 - expected.mean())) < 1e-13

    @eqx.filter_jit
    def slope(entries: jax.Array) -> jax.Array:
        return jax.grad(lambda flat: loss(metric(flat.reshape(2, 4))))(entries)

    def by_hand(entries: np.ndarray) -> float:
        return 1 - float(shares_by_hand(points, classes, entries.reshape(2, 4)).mean())

    assert check_grad(by_hand, lambda flat: np.asarray(slope(flat)), transform.ravel(), epsilon=1e-7) < 1e-6


@pytest.mark.slow
def test_a_sample_out_of_reach_has_no_share():
    loss = NeighbourShares([[0.0], [0.1], [9.0]], [0, 0, 1])
    np.testing.assert_array_equal(loss.shares(k.Ball(1.0)), [1, 1, 0])
    with pytest.raises(ShapeError, match="classes"):
        NeighbourShares([[0.0], [1.0]], [0])
    with pytest.raises(ArgumentError, match="two classes"):
        NeighbourShares([[0.0], [1.0]], [3, 3])


@pytest.mark.slow
def test_the_objective_of_scikit_learn(capsys):
    """The value that scikit-learn prints in its first step, at the transform that it starts from, to its 7 digits."""
    points, classes = load_iris(return_X_y=True)
    start = np.random.default_rng(1).normal(size=(2, 4)) / 3
    theirs = NeighborhoodComponentsAnalysis(2, init=cast(Any, start), max_iter=1, verbose=1)
    with pytest.warns(UserWarning, match="did not converge"):
        theirs.fit(points, classes)
    printed = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("[Neigh")]
    value = next(float(row[2]) for row in printed if len(row) == 4 and row[1] == "1")
    assert abs(len(points) * (1 - float(NeighbourShares(points, classes)(metric(start)))) / value - 1) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_learning_it_is_neighbourhood_components_analysis(load):
    """Learned from one start: neighbours as good as scikit-learn's, and an optimum within two samples of theirs.

    The sum of shares has many optima, so that two ways down from one start may part.
    """
    points, classes = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(points))
    points, classes = StandardScaler().fit_transform(points)[order], classes[order]
    seen, new = slice(0, 2 * len(points) // 3), slice(2 * len(points) // 3, None)
    start = np.random.default_rng(2).normal(size=(2, points.shape[1])) / points.shape[1]
    theirs = NeighborhoodComponentsAnalysis(2, init=cast(Any, start), max_iter=300, tol=1e-9, random_state=0)
    theirs.fit(points[seen], classes[seen])
    loss = NeighbourShares(points[seen], classes[seen])
    learned = learn(metric(start), loss, [("query", "key")], steps=300)

    def right(transform: np.ndarray) -> float:
        near = KNeighborsClassifier(3).fit(points[seen] @ transform.T, classes[seen])
        return float(near.score(points[new] @ transform.T, classes[new]))

    assert float(learned.loss) <= float(loss(metric(theirs.components_))) + 2 / len(points[seen])
    assert right(np.asarray(learned.model.query)) >= right(theirs.components_) - 0.05
