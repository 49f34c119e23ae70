"""Labels that spread, against the closed forms of their fixed points."""

from typing import Any

import equinox as eqx
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons

import particleflow as pf
from particleflow import kernels as k
from particleflow.models import LabelPropagation, LinearNeighbourhoodPropagation


def moons() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two half circles, five labels on each, and the classes of all."""
    points, classes = (np.asarray(each) for each in make_moons(160, noise=0.06, random_state=0))
    labels = np.full(len(points), -1)
    chosen = np.concatenate([np.flatnonzero(classes == each)[::16] for each in (0, 1)])
    labels[chosen] = classes[chosen]
    return points, labels, classes


def transitions(points: np.ndarray, width: float) -> np.ndarray:
    pull = np.exp(-((points[:, None] - points[None]) ** 2).sum(-1) / (2 * width**2))
    return pull / pull.sum(axis=1, keepdims=True)


def one_hot(labels: np.ndarray) -> np.ndarray:
    return np.where(labels[:, None] == np.arange(2)[None, :], 1.0, 0.0)


def test_held_labels_end_in_the_harmonic_function():
    """F_u = (I − P_uu)⁻¹ P_ul Y_l."""
    points, labels, classes = moons()
    found = LabelPropagation(bandwidth=0.15, max_iter=20_000, tolerance=1e-13).fit(points, labels)
    known = labels >= 0
    P = transitions(points, 0.15)
    free, held = np.ix_(~known, ~known), np.ix_(~known, known)
    expected = np.linalg.solve(np.eye((~known).sum()) - P[free], P[held] @ one_hot(labels[known]))
    np.testing.assert_allclose(found.label_distributions_[~known], expected, atol=1e-9)
    np.testing.assert_array_equal(found.label_distributions_[known], one_hot(labels[known]))
    assert np.mean(found.transduction_ == classes) > 0.97


def test_labels_with_a_memory_end_in_the_resolvent():
    """(1 − α)(I − αP)⁻¹ Y, as shares."""
    points, labels, _ = moons()
    found = LabelPropagation(bandwidth=0.15, alpha=0.9, tolerance=1e-13).fit(points, labels)
    plain = 0.1 * np.linalg.solve(np.eye(len(points)) - 0.9 * transitions(points, 0.15), one_hot(labels))
    np.testing.assert_allclose(np.asarray(found.measure_.carried), plain, atol=1e-11)
    np.testing.assert_allclose(found.label_distributions_, plain / plain.sum(axis=1, keepdims=True), atol=1e-9)


@pytest.mark.parametrize(
    "model", [LabelPropagation(bandwidth=0.3, alpha=0.9), LinearNeighbourhoodPropagation(5)], ids=["kernel", "linear"]
)
def test_plus_and_minus_one_are_two_classes(model: Any):
    """As 0 and 1 are; beside a third label −1 is none."""
    points, _, classes = moons()

    def fitted(labels: np.ndarray) -> Any:
        fresh: Any = clone(model)
        return fresh.fit(points, labels)

    signs, numbers = fitted(2 * classes - 1), fitted(classes)
    np.testing.assert_array_equal(signs.classes_, [-1, 1])
    np.testing.assert_array_equal(signs.label_distributions_, numbers.label_distributions_)
    some = np.where(np.arange(len(points)) % 4 == 0, classes + 1, -1)
    np.testing.assert_array_equal(fitted(some).classes_, [1, 2])


def test_new_points_take_the_local_mean():
    points, labels, _ = moons()
    found = LabelPropagation(bandwidth=0.15).fit(points, labels)
    at = points[:7] + 0.01
    pull = np.exp(-((at[:, None] - points[None]) ** 2).sum(-1) / (2 * 0.15**2))
    values = pull @ np.asarray(found.measure_.carried)
    np.testing.assert_allclose(found.predict_proba(at), values / values.sum(axis=1, keepdims=True), rtol=1e-11)


def test_spreading_is_mean_shift_of_values_on_a_graph():
    """Points of a flow are the values, and a kernel of positions is the graph: its hard steps."""
    points, labels, _ = moons()
    flow = pf.Flow(pf.MeanShift(k.PositionMatrix(np.log(transitions(points, 0.15)))))
    measure = pf.Measure.uniform(one_hot(labels), positions=np.arange(len(points), dtype=float))
    layer = eqx.filter_jit(lambda measure: measure.with_points(flow.step(0.0, measure.points, measure, 1.0)))
    for _ in range(3):
        measure = layer(measure)
    expected = np.linalg.matrix_power(transitions(points, 0.15), 3) @ one_hot(labels)
    np.testing.assert_allclose(measure.points, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"alpha": 1.5}, "alpha"), ({"max_iter": 0}, "max_iter"), ({"tolerance": -1.0}, "tolerance")],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], said: str):
    points, labels, _ = moons()
    with pytest.raises(ValueError, match=said):
        LabelPropagation(**settings).fit(points, labels)
    with pytest.raises(ValueError, match="at least one"):
        LabelPropagation().fit(points, np.full(len(points), -1))
