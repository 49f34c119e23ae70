"""Fixed points of random systems, geometries, precisions and discretizations, against formulas in NumPy."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from test_fixed_points import assert_spectrum, attention, circle, only

import particleflow as pf
from particleflow import drifts, geometry, kernels
from particleflow.discretization import AbstractDiscretization
from particleflow.errors import ArgumentError
from random_systems import SEEDS, System, draw

pytestmark = pytest.mark.slow

# Systems that may rest, but where searches from these guesses end at minima of |F|.
MINIMA = (0, 4)


def differences(field, place: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The Jacobian of a field of arrays by central differences."""
    units = np.eye(place.size).reshape(place.size, *place.shape)
    columns = [(field(place + step * unit) - field(place - step * unit)).ravel() / (2 * step) for unit in units]
    return np.stack(columns, axis=1)


def guesses(system: System, seed: int) -> list[pf.Measure]:
    """The start of a system, and clouds of four sizes: a search may end where |F| has a minimum that is no zero."""
    random, found = np.random.default_rng(seed), [system.start]
    for size in (0.5, 1.0, 1.5, 2.0):
        cloud = system.space.retract(size * random.normal(size=system.start.points.shape))
        found.append(system.start.with_points(jnp.asarray(cloud)))
    return found


def rests_nowhere(system: System) -> bool:
    """A residual stream grows wherever drifts say something; where the whole covariance of a set is held, the
    antisymmetric part of a matrix V turns it on and on."""
    return system.space.carries or system.space.name in ("residual_stream", "set_norm")


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: draw(seed).name)
def test_fixed_points_of_random_systems(seed):
    """Where a search says so the field of the formulas is zero, with these eigenvalues; else it is what it says."""
    system = draw(seed)
    points = pf.fixed_points(system.flow, guesses(system, seed))
    found = any(point.found for point in points)
    assert not (found and rests_nowhere(system))
    assert found or rests_nowhere(system) or seed in MINIMA
    for point in points:
        state = system.space.state(point.points, point.fields)
        moving = np.max(np.abs(system.field(0.0, state)))
        if point.found:
            assert moving < 1e-8
        else:
            assert point.residual > 1e-5
            assert abs(moving - point.residual) < 1e-6 * point.residual
        if point.found and point.smooth:
            check_eigenvalues(system, point, state)


def check_eigenvalues(system: System, point: pf.FixedPoint, state: np.ndarray) -> None:
    """Those of the Jacobian of the formulas, by differences, but for directions of which nothing depends."""

    def field(place: np.ndarray) -> np.ndarray:
        return system.field(0.0, place if system.space.carries else system.space.retract(place))

    values = np.linalg.eigvals(differences(field, state))
    forgotten = len(values) - len(point.eigenvalues)  # lengths, means and covariances
    kept = values[np.argsort(-np.abs(values))][: len(values) - forgotten]
    scale = max(1.0, float(np.abs(values).max()))
    assert np.abs(values).min(initial=1.0) < 1e-6 * scale or not forgotten
    # Ties of |λ| = 0 may leave another zero than ours: the numbers are the same.
    assert_spectrum(point.eigenvalues, kept, 1e-4 * scale)


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_a_simplex_on_the_sphere(value):
    """Equiangular tokens at ρ = −1/(n − 1): lifting all out of their plane changes ρ in second order, so at
    twice the rate, which is half the derivative of ρ' there."""
    beta, count, rho = 1.3, 3, -0.5
    points = np.concatenate([circle(2 * np.pi * np.arange(3) / 3 + 0.2), np.zeros((3, 1))], axis=1)
    point = only(pf.fixed_points(attention(beta, value), points))
    rate = np.exp(beta * rho) * (1 - rho) * (count - 1) / (np.exp(beta) + (count - 1) * np.exp(beta * rho))
    assert np.abs(point.eigenvalues - value * rate).min() < 1e-12
    assert point.nature.rotations == 3
    assert point.nature.kind == ("stable" if value < 0 else "unstable")
    assert point.nature.neutral == 3


def test_single_precision():
    points = circle(2 * np.pi * np.arange(6) / 6).astype(np.float32)
    point = only(pf.fixed_points(attention(2.0), points))
    exact = only(pf.fixed_points(attention(2.0), circle(2 * np.pi * np.arange(6) / 6)))
    assert_spectrum(point.eigenvalues, exact.eigenvalues, 1e-5)
    assert (point.nature.unstable, point.nature.rotations) == (exact.nature.unstable, 1)


@pytest.mark.parametrize("layer", [None, 0.3])
@pytest.mark.parametrize("normalization", ["row", "none", "sinkhorn"])
@pytest.mark.parametrize("space", [pf.Sphere(), pf.LayerNorm(gain=1.2)], ids=["sphere", "layer_norm"])
def test_clusters_of_weighted_tokens_taken_together(space, normalization, layer):
    """Particles at three places, one of them without weight: all eigenvalues are those of the whole Jacobian."""
    flow = pf.Flow(pf.Attend(kernels.Attention(0.8), normalization=normalization), geometry=space)
    three = np.asarray(space.retract(jnp.asarray(np.random.default_rng(7).normal(size=(3, 4)))))
    weights = np.array([0.2, 0.1, 0.15, 0.05, 0.3, 0.2, 0.0])
    members = np.array([0, 0, 1, 1, 2, 0, 2])
    guess = pf.Measure.weighted(three[members], weights)
    merged = only(pf.fixed_points(flow, guess, merge=1e-6, layer=layer))
    there = pf.Measure.weighted(merged.points, weights)
    dense = only(pf.fixed_points(flow, there, layer=layer))
    assert merged.sizes.tolist() == [3, 2, 2]
    assert np.max(np.abs(dense.points - merged.points)) < 1e-8
    assert_spectrum(merged.spectrum, dense.spectrum, 1e-7)


def test_where_a_field_bends_or_jumps_there_are_no_eigenvalues():
    hard = only(pf.fixed_points(pf.Flow(drifts.Hardmax(pull=1.0)), np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])))
    assert not hard.smooth
    assert hard.nature is None
    assert "bends or jumps" in str(hard)
    bent = pf.Flow([drifts.FeedForward(np.eye(2), activation="relu"), drifts.Linear(-0.5)])
    assert not only(pf.fixed_points(bent, np.zeros((3, 2)))).smooth


def test_a_stream_that_grows_has_no_fixed_point():
    points = circle(np.array([0.1, 0.4, 0.9]))
    (point,) = pf.fixed_points(pf.Flow(pf.Attend(kernels.Attention(2.0)), geometry=geometry.PreNorm()), points)
    assert not point.found
    assert point.eigenvalues.size == 0
    assert point.residual > 0.1
    assert str(point).startswith("No fixed point was found")


def test_a_field_that_changes_with_time_is_asked_at_a_time():
    beta = drifts.Ramp(1.0, 3.0, end=10.0)
    flow = pf.Flow(drifts.Varying(pf.Attend(kernels.Attention(1.0)), beta, "kernel.beta"), geometry=pf.Sphere())
    points = circle(2 * np.pi * np.arange(4) / 4)
    moving, still = (only(pf.fixed_points(each, points, time=5.0)) for each in (flow, attention(2.0)))
    assert_spectrum(moving.eigenvalues, still.eigenvalues, 1e-12)
    assert (moving.timeless, still.timeless) == (False, True)
    assert "at t = 5 only" in str(moving)


def test_blurring_particles_in_one_place_can_be_moved_together():
    point = only(pf.fixed_points(pf.Flow(pf.MeanShift(kernels.Gaussian(0.7))), np.ones((4, 3))))
    assert_spectrum(point.eigenvalues, [0.0] * 3 + [-1.0] * 9, 1e-12)
    assert (point.nature.translations, point.nature.rotations, point.nature.kind) == (3, 0, "stable")


class Growing(AbstractDiscretization):
    """d log w_i/dt = r_i − Σ_j A_ij w_j on fixed points: competing species, with r and A from the drift's matrix."""

    def begin(self, flow: pf.Flow, measure: pf.Measure) -> Any:
        return {"log_weights": measure.log_weights, "points": measure.points}

    def measure(self, flow: pf.Flow, time: Any, state: Any) -> pf.Measure:
        return pf.Measure(state["points"], state["log_weights"])

    def velocity(self, flow: pf.Flow, time: Any, state: Any) -> Any:
        weights = jnp.exp(state["log_weights"])
        return {"log_weights": 1 - COMPETITION @ weights, "points": None}

    def fields(self, flow: pf.Flow, time: Any, state: Any) -> dict[str, Any]:
        return {"masses": jnp.exp(state["log_weights"])}


COMPETITION = jnp.asarray([[2.0, 0.3, 0.1], [0.2, 1.5, 0.4], [0.1, 0.5, 1.8]])


def test_a_discretization_of_another_kind():
    """Species that compete stand still at w = A⁻¹ r, with the eigenvalues of −A diag(w)."""
    start = pf.Measure.uniform(np.arange(3.0)[:, None])
    point = only(pf.fixed_points(pf.Flow(drifts.Linear(0.0)), start, discretization=Growing()))
    weights = np.linalg.solve(COMPETITION, np.ones(3))
    np.testing.assert_allclose(point.fields["masses"], weights, rtol=1e-10)
    assert_spectrum(point.eigenvalues, np.linalg.eigvals(-np.asarray(COMPETITION) * weights), 1e-10)
    assert point.moved == 0
    assert point.nature.kind == "stable"
    with pytest.raises(ArgumentError, match="merge"):
        pf.fixed_points(pf.Flow(drifts.Linear(0.0)), start, discretization=Growing(), merge=0.1)


def test_the_layers_of_a_trained_network():
    """x ← N(x + h A x) with gain, bias and ε of N inside the stream, against its Jacobian by differences."""
    gain, bias, matrix = (
        np.array([1.2, 0.7, -0.9]),
        np.array([0.3, -0.2, 0.1]),
        np.random.default_rng(9).normal(size=(3, 3)),
    )
    flow = pf.Flow(drifts.Linear(matrix), geometry=geometry.PostNorm(pf.LayerNorm(gain, bias, 0.1)))

    def layer(x: np.ndarray) -> np.ndarray:
        y = x + 0.4 * x @ matrix.T
        y = y - y.mean(axis=1, keepdims=True)
        return gain * y / np.sqrt(np.mean(y**2, axis=1, keepdims=True) + 0.1) + bias

    found = pf.fixed_points(flow, np.random.default_rng(8).normal(size=(4, 1, 3)), layer=0.4)
    assert any(point.found for point in found)
    for point in found:
        if point.found:
            assert np.max(np.abs(layer(point.points) - point.points)) < 1e-10
            assert_spectrum(point.eigenvalues, np.linalg.eigvals(differences(layer, point.points)), 1e-6)


def test_a_weighted_set_that_is_normalised_as_a_whole_rests():
    """At the fixed point v(x_i) = E[v] + C (x_i − E[x]) with C = E[v (x − E[x])] over the weights, by NumPy."""
    weights = np.linspace(1.0, 2.0, 12) / 18
    flow = pf.Flow(pf.Attend(kernels.Attention(0.5)), geometry=geometry.SetNorm())
    measure = pf.Measure.weighted(np.linspace(-2.0, 1.5, 12)[:, None] ** 3, weights)
    start = measure.with_points(pf.geometry.for_weights(flow.geometry, measure.log_weights).retract(measure.points))
    found = pf.fixed_points(flow, start)[0]
    points = found.points[:, 0]
    assert found.found
    assert abs(weights @ points) < 1e-12
    assert abs(weights @ points**2 - 1) < 1e-12
    attention = weights * np.exp(0.5 * points[:, None] * points)
    velocity = attention @ points / attention.sum(axis=1)
    assert np.abs(velocity - weights @ velocity - (weights @ (velocity * points)) * points).max() < 1e-11
