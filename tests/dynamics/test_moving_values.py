"""Values that move on fixed places: flows against loops and closed forms in NumPy, and against their estimators."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import make_moons

import particleflow as pf
from particleflow import drifts
from particleflow import kernels as k
from particleflow.dynamics.drifts.moving_values import on_simplex
from particleflow.errors import UserError
from particleflow.models import KernelRegression
from particleflow.models.neighbourhoods import LinearNeighbourhoodPropagation, reconstruction_weights, weight_kernel
from shares import by_default

UNKNOWN: Any = "sum"  # what nobody takes
_RNG = np.random.default_rng(5)
PLACES = _RNG.uniform(-1, 1, size=(30, 2))


def transitions(width: float = 0.3, weights: Any = 1.0) -> np.ndarray:
    pull = np.exp(-((PLACES[:, None] - PLACES[None]) ** 2).sum(-1) / (2 * width**2)) * weights
    return pull / pull.sum(axis=1, keepdims=True)


def placed(width: float = 0.3) -> k.Placed:
    return k.Placed(k.Gaussian(width), PLACES)


def cloud(values: np.ndarray, weights: Any = None) -> pf.Measure:
    equal = np.full(len(values), 1 / len(values))
    return pf.Measure.weighted(values, equal if weights is None else weights, positions=np.arange(float(len(values))))


def steps(drift: Any, values: np.ndarray, count: int, weights: Any = None) -> np.ndarray:
    """The values after explicit steps of size 1."""
    for _ in range(count):
        measure = cloud(values, weights)
        values = values + np.asarray(eqx.filter_jit(drift)(0.0, measure.sites, measure))
    return values


def test_a_lazy_mapping_is_mean_shift_of_values():
    values = _RNG.normal(size=(30, 1))
    expected = np.linalg.matrix_power(transitions(), 4) @ values
    np.testing.assert_allclose(steps(pf.MeanShift(placed()), values, 4), expected, rtol=1e-12)


def test_self_localization_looks_at_values_too():
    """f ← ∫ K₁(x, y) K₂(f(x), f(y)) f(y) dy / ∫ …, three times, with weights."""
    weights = _RNG.uniform(0.1, 1.0, size=30)
    values = _RNG.normal(size=(30, 1))
    found = steps(pf.MeanShift(placed(0.5) * k.Gaussian(0.4)), values, 3, weights)
    for _ in range(3):
        pull = transitions(0.5, weights) * np.exp(-((values - values.T) ** 2) / (2 * 0.4**2))
        values = pull @ values / pull.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, values, rtol=1e-11)


@pytest.mark.parametrize("share", by_default(["one for all", "held"], ["held"]))
def test_propagation_ends_in_its_closed_form(share):
    """(1 − α)(I − αP)⁻¹ y; with α = 0 where labels are held and 1 elsewhere, (I − P_uu)⁻¹ P_ul y_l."""
    memory = np.zeros((30, 2))
    memory[0, 0] = memory[1, 1] = memory[2, 1] = 1.0
    known, P = memory.any(axis=1), transitions()
    alpha = np.where(known, 0.0, 1.0) if share == "held" else np.full(30, 0.8)
    drift = drifts.Propagate(placed(), memory, alpha if share == "held" else 0.8)
    expected = np.linalg.solve(np.eye(30) - alpha[:, None] * P, (1 - alpha[:, None]) * memory)
    if share == "held":
        free = np.linalg.solve(np.eye(27) - P[3:, 3:], P[3:, :3] @ memory[:3])
        np.testing.assert_allclose(expected[3:], free, rtol=1e-12)
    np.testing.assert_allclose(steps(drift, expected, 1), expected, atol=1e-14)
    after = alpha[:, None] * (P @ memory) + (1 - alpha[:, None]) * memory
    np.testing.assert_allclose(steps(drift, memory, 1), after, atol=1e-14)


@pytest.mark.slow
def test_who_sees_nobody_keeps_its_memory():
    lonely = k.Placed(k.Ball(1e-6), PLACES) * k.Others()
    memory = _RNG.uniform(size=(30, 2))
    np.testing.assert_allclose(steps(drifts.Propagate(lonely, memory, 0.9), np.zeros((30, 2)), 1), memory)


@pytest.mark.slow
def test_the_flow_ends_there_and_is_stored_as_any_run(tmp_path):
    memory = np.where(np.arange(30)[:, None] == np.arange(2)[None, :], 1.0, 0.0)
    flow = pf.Flow(drifts.Propagate(placed(), memory, 0.7))
    run = pf.simulate(flow, cloud(memory), [0.0, 1.0, 120.0], rtol=1e-8, atol=1e-10, store=tmp_path / "run.h5")
    expected = 0.3 * np.linalg.solve(np.eye(30) - 0.7 * transitions(), memory)
    np.testing.assert_allclose(run.points[-1], expected, atol=1e-8)
    again = pf.Trajectory.open(tmp_path / "run.h5")
    np.testing.assert_array_equal(again.points[-1], run.points[-1])


@pytest.mark.slow
def test_its_fixed_point_attracts():
    memory = np.where(np.arange(30)[:, None] == np.arange(2)[None, :], 1.0, 0.0)
    (point,) = pf.fixed_points(pf.Flow(drifts.Propagate(placed(), memory, 0.7)), cloud(memory))
    expected = 0.3 * np.linalg.solve(np.eye(30) - 0.7 * transitions(), memory)
    np.testing.assert_allclose(point.points, expected, atol=1e-9)
    slowest = 0.7 * np.sort(np.real(np.linalg.eigvals(transitions())))[-1] - 1
    np.testing.assert_allclose(np.real(point.eigenvalues).max(), slowest, atol=1e-8)


def neighbours_support(shares: np.ndarray, compatibility: np.ndarray) -> np.ndarray:
    return transitions() @ shares @ compatibility.T


def test_relaxation_by_products_is_the_rule_of_1976():
    compatibility = np.array([[0.9, -0.3, 0.1], [-0.2, 0.8, 0.0], [0.3, 0.1, 0.7]])
    shares = _RNG.dirichlet(np.ones(3), size=30)
    found = steps(drifts.RelaxationLabelling(placed(), compatibility, update="product"), shares, 5)
    for _ in range(5):
        grown = shares * (1 + neighbours_support(shares, compatibility))
        shares = grown / grown.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, shares, rtol=1e-11)


def nearest_shares(row: np.ndarray) -> np.ndarray:
    """The nearest point of the simplex, by a general solver."""
    size = len(row)
    constraint = {"type": "eq", "fun": lambda q: q.sum() - 1}
    bounds = [(0, 1)] * size
    found = minimize(lambda q: np.sum((q - row) ** 2), np.full(size, 1 / size), bounds=bounds, constraints=[constraint],
                     tol=1e-14)  # fmt: skip
    return found.x


def test_the_projection_is_the_nearest_point_of_the_simplex():
    rows = 2 * _RNG.normal(size=(12, 4))
    found = np.asarray(on_simplex(jnp.asarray(rows)))
    np.testing.assert_allclose(found, [nearest_shares(row) for row in rows], atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-14)


@pytest.mark.slow
def test_projected_relaxation_climbs_and_ends_in_a_consistent_labelling():
    """⟨s, q − p⟩ ≤ 0 for all shares q, and Σ_i w_i ⟨p_i, s_i⟩ never falls where the couplings are symmetric."""
    couplings = np.exp(-((PLACES[:, None] - PLACES[None]) ** 2).sum(-1) / (2 * 0.3**2))
    degrees = couplings.sum(axis=1)
    compatibility, shares = np.array([[1.0, -0.2], [-0.2, 1.0]]), _RNG.dirichlet(np.ones(2), size=30)
    flow = pf.Flow(drifts.RelaxationLabelling(placed(), compatibility))
    run = pf.simulate(flow, cloud(shares), np.linspace(0, 60, 61), step=0.2, solver="euler")
    found = np.asarray(run.points)
    assert found.min() > -1e-14
    np.testing.assert_allclose(found.sum(axis=2), 1, rtol=1e-12)
    average = [degrees @ (p * neighbours_support(p, compatibility)).sum(axis=1) for p in found]
    assert np.min(np.diff(average)) > -1e-12 * average[-1]
    last = found[-1]
    support = neighbours_support(last, compatibility)
    assert np.max(support.max(axis=1) - (last * support).sum(axis=1)) < 1e-3


def moons() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    points, classes = (np.asarray(each) for each in make_moons(120, noise=0.05, random_state=0))
    labels = np.full(len(points), -1)
    for each in (0, 1):
        labels[np.flatnonzero(classes == each)[:2]] = each
    return points, labels, classes


def test_reconstruction_weights_are_the_constrained_least_squares():
    points = _RNG.normal(size=(12, 8))  # more coordinates than neighbours: one answer
    found = reconstruction_weights(points, n_neighbors=5)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-13)
    assert found.min() >= 0
    assert not np.diag(found).any()
    for row in range(3):
        away = np.linalg.norm(points - points[row], axis=1)
        others = np.argsort(away)[1:6]
        gram = (points[others] - points[row]) @ (points[others] - points[row]).T
        constraint = {"type": "eq", "fun": lambda w: w.sum() - 1}
        best = minimize(lambda w, gram=gram: w @ gram @ w, np.full(5, 0.2), bounds=[(0, 1)] * 5,
                        constraints=[constraint], tol=1e-15)  # fmt: skip
        np.testing.assert_allclose(found[row, others], best.x, atol=2e-5)


@pytest.mark.slow
def test_linear_neighbourhoods_end_in_their_closed_form():
    """(1 − α)(I − αW)⁻¹ Y, by the estimator and by the flow; two labels a moon are enough."""
    points, labels, classes = moons()
    model = LinearNeighbourhoodPropagation(n_neighbors=6, alpha=0.95, tolerance=1e-13).fit(points, labels)
    start = np.where(labels[:, None] == np.arange(2)[None, :], 1.0, 0.0)
    W = reconstruction_weights(points, n_neighbors=6)
    expected = 0.05 * np.linalg.solve(np.eye(120) - 0.95 * W, start)
    np.testing.assert_allclose(np.asarray(model.measure_.carried), expected, atol=1e-11)
    assert np.mean(model.transduction_ == classes) > 0.97
    assert np.mean(model.predict(points + 0.01) == classes) > 0.95
    drift = drifts.Propagate(weight_kernel(W), start, 0.95)
    np.testing.assert_allclose(steps(drift, expected, 1), expected, atol=1e-14)
    np.testing.assert_allclose(steps(drift, start, 1), 0.95 * W @ start + 0.05 * start, atol=1e-14)


def asked(drift: Any, values: np.ndarray) -> Any:
    """A velocity outside of any compiled program, where positions can be read."""
    measure = cloud(values)
    return drift(0.0, measure.sites, measure)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: drifts.Propagate(placed(), np.zeros(30)), "memory"),
        (lambda: drifts.Propagate(placed(), np.zeros((30, 2)), 1.5), "between 0 and 1"),
        (lambda: drifts.Propagate(placed(), np.zeros((30, 2)), np.zeros(7)), "share"),
        (lambda: asked(drifts.Propagate(placed(), np.zeros((30, 3))), np.zeros((30, 2))), "columns"),
        (lambda: asked(drifts.Propagate(placed(), np.zeros((4, 2))), np.zeros((30, 2))), "whole numbers"),
        (lambda: drifts.RelaxationLabelling(placed(), update=UNKNOWN), "update"),
        (lambda: drifts.RelaxationLabelling(placed(), -1.0, update="product"), "compatibility"),
        (lambda: k.Placed(k.Gaussian(1.0), np.zeros(3)), "places"),
        (lambda: reconstruction_weights(PLACES, n_neighbors=30), "n_neighbors"),
        (lambda: LinearNeighbourhoodPropagation(alpha=1.0).fit(PLACES, np.arange(30) % 2), "alpha"),
    ],
)
def test_what_cannot_be_is_refused(act: Any, said: str):
    with pytest.raises(UserError, match=said):
        act()


@pytest.mark.slow
def test_the_first_layer_of_the_shipped_regression_is_the_estimator(tmp_path):
    folder = pf.scenario.shipped()["kernel_regression"].parent / "data"
    inputs, targets = np.load(folder / "line_places.npy"), np.load(folder / "line_targets.npz")["points"][:, 0]
    run = pf.run("kernel_regression", output=tmp_path / "run", summary=False, figures=False, movie=False, page=False)
    expected = KernelRegression(bandwidth=0.3).fit(inputs, targets).predict(inputs)
    np.testing.assert_allclose(run.points[1][:, 0], expected, rtol=1e-11)


@pytest.mark.slow
def test_labels_of_the_shipped_moons_end_in_the_harmonic_function(tmp_path):
    folder = pf.scenario.shipped()["label_propagation"].parent / "data"
    places, memory = np.load(folder / "moons_places.npy"), np.load(folder / "moons_memory.npy")
    run = pf.run("label_propagation", output=tmp_path / "run", summary=False, figures=False, movie=False, page=False)
    known = memory.any(axis=1)
    pull = np.exp(-((places[:, None] - places[None]) ** 2).sum(-1) / (2 * 0.1**2))
    P = pull / pull.sum(axis=1, keepdims=True)
    free, held = np.ix_(~known, ~known), np.ix_(~known, known)
    expected = np.linalg.solve(np.eye((~known).sum()) - P[free], P[held] @ memory[known])
    np.testing.assert_allclose(np.asarray(run.points[-1])[~known], expected, atol=1e-3)
