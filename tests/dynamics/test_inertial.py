"""Particles with inertia against SciPy, Bessel functions and their energy: flows, layers, and runs."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import j1

import particleflow as pf
from particleflow import drifts, events, geometry, kernels, observables
from particleflow.discretization import Characteristics, FiniteVolumes, Gaussian, Particles
from particleflow.errors import ArgumentError, ShapeError
from shares import by_default

COUNT, BETA, FRICTION = 5, 1.3, 0.4
RAW = np.random.default_rng(0).normal(size=(2, COUNT, 3))
TIMES = np.linspace(0.0, 3.0, 7)
TIGHT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
ROOT = float(np.sqrt(3))

# Each space with its radius, and whether it takes off the mean of the coordinates.
SPACES: dict[str, tuple[geometry.AbstractGeometry, float | None, bool]] = {
    "euclidean": (geometry.Euclidean(), None, False),
    "sphere": (geometry.Sphere(), 1.0, False),
    "sphere_2.5": (geometry.Sphere(2.5), 2.5, False),
    "layer_norm": (geometry.LayerNorm(), ROOT, True),
    "rms_norm": (geometry.RmsNorm(), ROOT, False),
}
by_space = pytest.mark.parametrize("name", by_default(SPACES, ["sphere"]))


class System:
    """Unnormalised attention with inertia in NumPy: force, equation, energy."""

    def __init__(self, name: str):
        self.space, self.radius, self.centres = SPACES[name]
        points, moving = self.flat(RAW[0]), self.flat(RAW[1])
        self.start = 0.4 * points if self.radius is None else self.radius * points / lengths(points)
        self.moving = 0.5 * self.along(self.start, moving)
        self.beta = BETA / (1.0 if self.radius is None else self.radius**2)  # the same attention on every sphere

    def flat(self, vectors: np.ndarray) -> np.ndarray:
        return vectors - vectors.mean(axis=-1, keepdims=True) if self.centres else vectors

    def along(self, x: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        if self.radius is None:
            return vectors
        vectors = self.flat(vectors)
        return vectors - np.sum(x * vectors, axis=1, keepdims=True) * x / self.radius**2

    def force(self, x: np.ndarray) -> np.ndarray:
        return self.along(x, np.exp(self.beta * x @ x.T) @ x / len(x) - 4.0 * x)

    def rate(self, friction: Callable[[float], float]) -> Callable[[float, np.ndarray], np.ndarray]:
        def rate(time: float, y: np.ndarray) -> np.ndarray:
            x, w = y.reshape(2, COUNT, 3)
            turned = 0.0 if self.radius is None else np.sum(w**2, axis=1, keepdims=True) * x / self.radius**2
            return np.concatenate([w, self.force(x) - friction(time) * w - turned]).ravel()

        return rate

    def solved(self, friction: Callable[[float], float], times: np.ndarray = TIMES) -> np.ndarray:
        begun = np.concatenate([self.start, self.moving]).ravel()
        found = solve_ivp(self.rate(friction), times[[0, -1]], begun, "DOP853", t_eval=times, rtol=1e-12, atol=1e-13)
        return found.y.T.reshape(-1, 2, COUNT, 3)

    def flow(self, **inertia: Any) -> pf.Flow:
        """The attention of the oracle, confined so that it stays bounded in flat space."""
        attend = pf.Attend(kernels.Attention(self.beta), normalization="none")
        return pf.Flow([attend, drifts.Confinement(4.0)], geometry.Inertial(self.space, **inertia))

    @property
    def measure(self) -> pf.Measure:
        return pf.Measure.uniform(self.start).with_fields({"velocity": jnp.asarray(self.moving)})


def lengths(rows: np.ndarray) -> np.ndarray:
    return np.linalg.norm(rows, axis=-1, keepdims=True)


@by_space
def test_the_flow_is_that_of_scipy(name):
    system = System(name)
    run: Any = pf.simulate(system.flow(friction=FRICTION), system.measure, TIMES, **TIGHT)
    exact = system.solved(lambda time: FRICTION)
    assert np.max(np.abs(run.points - exact[:, 0])) < 1e-8
    assert np.max(np.abs(run.fields["velocity"] - exact[:, 1])) < 1e-8
    if system.radius is not None:
        assert np.max(np.abs(lengths(run.points) - system.radius)) < 1e-14
        assert np.max(np.abs(np.sum(run.points * run.fields["velocity"], axis=2))) < 1e-13


@by_space
def test_the_energy_falls_by_what_friction_takes(name):
    """dH/dt = −γ ∫|w|² dμ along the field itself, H = ½∫|w|² dμ + ∫U dμ − (1/2β)∬ e^{β⟨x, y⟩} dμ dμ."""
    system = System(name)
    flow = system.flow(friction=FRICTION)

    def energy(state: Any) -> Any:
        measure = Particles().measure(flow, 0.0, state)
        x, w = measure.points, measure.fields["velocity"]
        pairs = jnp.mean(jnp.exp(system.beta * x @ x.T)) / (2 * system.beta)
        return 0.5 * jnp.mean(jnp.sum(w**2, axis=1)) + 2.0 * jnp.mean(jnp.sum(x**2, axis=1)) - pairs

    @eqx.filter_jit
    def slope(state: Any) -> Any:
        rate = Particles().velocity(flow, 0.0, state).moving
        return jax.jvp(lambda moving: energy(state.moved(moving)), (state.moving,), (rate,))[1]

    expected = -FRICTION * np.mean(np.sum(system.moving**2, axis=1))
    assert abs(float(slope(Particles().begin(flow, system.measure))) - expected) < 1e-9


@pytest.mark.slow
def test_a_particle_without_force_follows_a_great_circle():
    """x(t) = x cos|w|t + w/|w| sin|w|t; with friction the angle is |w|(1 − e^{−γt})/γ."""
    system, times = System("sphere"), np.array([0.0, 5.0, 40.0])
    pace = lengths(system.moving)
    for friction in (0.0, 0.3):
        flow = pf.Flow(drifts.Linear(0.0), geometry.Inertial(pf.Sphere(), friction))
        run: Any = pf.simulate(flow, system.measure, times, **TIGHT)
        angle = pace * (
            times[:, None, None] if not friction else -np.expm1(-friction * times[:, None, None]) / friction
        )
        exact = system.start * np.cos(angle) + system.moving / pace * np.sin(angle)
        assert np.max(np.abs(run.points - exact)) < 1e-7


@pytest.mark.slow
def test_nesterov_in_a_parabola_is_a_bessel_function():
    """x'' + (3/t) x' + x = 0 from rest: x(t) = 2 J₁(t)/t x(0); under a later start SciPy's solution."""
    flow = pf.Flow(drifts.Linear(-1.0), geometry.Inertial(friction=3.0, vanishing=True))
    run: Any = pf.simulate(flow, RAW[0], TIMES, **TIGHT)
    exact = np.append(1.0, 2 * j1(TIMES[1:]) / TIMES[1:])
    assert np.max(np.abs(run.points - exact[:, None, None] * RAW[0])) < 1e-8
    later = pf.simulate(flow, pf.Measure.uniform(run.points[2]).with_fields({"velocity": run.fields["velocity"][2]}),
                        TIMES[2:], **TIGHT)  # fmt: skip
    assert np.max(np.abs(later.points - run.points[2:])) < 1e-8


@pytest.mark.slow
def test_a_vanishing_friction_on_the_sphere():
    system, times = System("sphere"), TIMES + 0.5
    run: Any = pf.simulate(system.flow(friction=3.0, vanishing=True), system.measure, times, **TIGHT)
    exact = system.solved(lambda time: 3.0 / time, times)
    assert np.max(np.abs(run.points - exact[:, 0])) < 1e-8


@pytest.mark.slow
def test_large_friction_is_the_flow_of_first_order():
    """In times of order γ the points are those of ẋ = v up to O(1/γ²), the inertia that is left."""
    start = System("sphere").start
    attend, times = pf.Attend(kernels.Attention(BETA)), np.array([0.0, 1.0, 2.0])
    slow: Any = pf.simulate(pf.Flow(attend, pf.Sphere()), start, times, **TIGHT)
    apart = []
    for friction in (20.0, 40.0):
        flow = pf.Flow(attend, geometry.Inertial(pf.Sphere(), friction))
        run: Any = pf.simulate(flow, start, friction * times, **TIGHT)
        apart.append(np.max(np.abs(run.points - slow.points)))
    assert apart[0] < 0.01
    assert 3.5 < apart[0] / apart[1] < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("vanishing", [False, True])
def test_layers_with_momentum(name, vanishing):
    """w ← w/(1 + hγ) + h v, x ← N(x + h w): on flat space x − x_before is passed on, with Nesterov's k/(k + 3)."""
    system, size, friction = System(name), 0.1, 3.0
    flow = system.flow(friction=friction, vanishing=vanishing)
    run: Any = pf.simulate(flow, system.measure, size * np.arange(5), solver="map", step=size)
    x, w = system.start, system.moving
    for layer in range(4):
        w = (layer / (layer + friction) if vanishing else 1 / (1 + size * friction)) * w + size * system.force(x)
        x = system.flat(x + size * w)
        x = x if system.radius is None else system.radius * x / lengths(x)
        w = system.along(x, w)
        np.testing.assert_allclose(run.points[layer + 1], x, atol=1e-13)
        np.testing.assert_allclose(run.fields["velocity"][layer + 1], w, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["euclidean", "sphere"])
def test_runs_end_resume_and_stay_single(name, tmp_path):
    """An ensemble is its single runs; a stored run goes on with its velocities; float32 stays float32; an event."""
    system = System(name)
    flows = [system.flow(friction=friction) for friction in (0.2, 1.0)]
    both: Any = pf.simulate(flows, system.start, TIMES, **TIGHT)
    alone: Any = pf.simulate(flows[1], system.start, TIMES, **TIGHT, store=tmp_path / "alone.h5")
    assert np.max(np.abs(both.run(1).points - alone.points)) < 1e-8
    frame = pf.Trajectory.open(tmp_path / "alone.h5")[3]
    begun = pf.Measure.uniform(frame.points).with_fields(frame.fields)
    on: Any = pf.simulate(flows[1], begun, TIMES[3:], **TIGHT)
    assert np.max(np.abs(on.points - alone.points[3:])) < 1e-8
    halved = jax.tree.map(lambda leaf: leaf.astype(np.float32), flows[1])
    single: Any = pf.simulate(halved, system.start.astype(np.float32), TIMES, rtol=1e-5, atol=1e-6)
    assert single.points.dtype == np.asarray(single.fields["velocity"]).dtype == np.float32
    assert np.max(np.abs(single.points - alone.points)) < 1e-3
    level = 0.5 * float(pf.simulate(flows[1], system.start, [0, 0.5], **TIGHT, observe=[observables.speed])
                        .observables["speed"][-1])  # fmt: skip
    stopped: Any = pf.simulate(flows[1], system.start, TIMES, **TIGHT, event=events.Reached(observables.speed, level))
    assert stopped.status == "stopped by event"
    assert abs(np.sqrt(np.mean(np.sum(np.square(stopped.fields["velocity"][-1]), axis=1))) - level) < 1e-6


@pytest.mark.slow
def test_fixed_points_are_those_of_the_force_at_rest():
    """x'' = −x − γx' has the eigenvalues −γ/2 ± i√(1 − γ²/4), of each of six coordinates."""
    flow = pf.Flow(drifts.Linear(-1.0), geometry.Inertial(friction=0.4))
    (point,) = pf.fixed_points(flow, 0.3 * RAW[0][:2])
    np.testing.assert_allclose(point.points, 0.0, atol=1e-9)
    eigenvalues: Any = np.asarray(point.eigenvalues)
    np.testing.assert_allclose(eigenvalues.real, -0.2, atol=1e-9)
    np.testing.assert_allclose(np.abs(eigenvalues.imag), np.sqrt(1 - 0.04), atol=1e-9)


def test_what_has_no_inertia_is_refused_with_a_reason():
    system = System("sphere")
    flow = system.flow(friction=FRICTION)
    for space in (geometry.PreNorm(), geometry.SetNorm(), geometry.Rescaled(1.0), geometry.Inertial()):
        with pytest.raises(ArgumentError, match="no acceleration is defined"):
            geometry.Inertial(space)
    with pytest.raises(ArgumentError, match="friction"):
        geometry.Inertial(friction=-1.0)
    noisy = pf.Flow(flow.drift, flow.geometry, temperature=0.1)
    with pytest.raises(ArgumentError, match="temperature has no meaning"):
        pf.simulate(noisy, system.start, [0.0, 1.0], step=0.1, key=jax.random.key(0))
    with pytest.raises(ShapeError, match="velocity"):
        pf.evolve(flow, pf.Measure.uniform(system.start).with_fields({"velocity": jnp.ones(COUNT)}), 1.0, **TIGHT)
    with pytest.raises(ArgumentError, match="off it by"):
        pf.evolve(flow, RAW[0], 1.0, **TIGHT)
    with pytest.raises(ArgumentError, match="carries velocity along"):
        pf.stability.growth_rates(pf.Flow(pf.Attend(kernels.Attention(1.0)), flow.geometry), [1], dimension=3)
    line = pf.Flow(pf.Attend(kernels.Gaussian(1.0)), geometry.Inertial())
    cloud = pf.Measure.uniform(RAW[0][:, :1]).with_fields({"log_density": jnp.zeros(COUNT)})
    normal = pf.initial.Gaussian(dim=1)
    for how, start, reason in (
        (FiniteVolumes(cells=16, low=-4.0, high=4.0), normal, "carries velocity along"),
        (Characteristics(), cloud, "not all that moves .velocity."),
        (Gaussian(), cloud.with_fields({}), "flat space"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            pf.simulate(line, start, [0.0, 0.1], discretization=how, **TIGHT)
