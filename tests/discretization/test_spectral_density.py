"""A density by its harmonics: transforms against SciPy, closed forms, growth rates, and a run like any other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import lpmv

import particleflow as pf
from particleflow import discretization, events, geometry, kernels, observables, scenario, stability
from particleflow.discretization.density.spectral.harmonics import harmonics_of
from particleflow.errors import ArgumentError, RunError, UserError
from shares import by_default

TIMES = np.linspace(0.0, 1.0, 5)
NORMALIZATIONS = ["none", "row", "sinkhorn"]


def attention(beta, normalization: Any = "row", value=1.0, radius=1.0, temperature=0.0):
    drift = pf.Attend(kernels.Attention(beta=beta), value, normalization)
    return pf.Flow(drift, pf.Sphere(radius), temperature)


def poisson(order):
    """2π times Poisson's density (1 − r²)/(1 − 2r cos θ + r²)."""
    return lambda points: (1 - order**2) / (1 - 2 * order * points[:, 0] + order**2)


def kuramoto_order(initial, time):
    return initial * np.exp(time / 2) / np.sqrt(1 - initial**2 + initial**2 * np.exp(time))


# One program serves every run on the circle below: the same shapes, observables and steps.
MODES = discretization.Spectral(32)
OPTIONS: dict[str, Any] = {
    "discretization": MODES, "rtol": 1e-12, "atol": 1e-13, "solver": "tsit5", "window": 2,
    "observe": [observables.order_parameter],
}  # fmt: skip


def options(**changes: Any) -> dict[str, Any]:
    return OPTIONS | changes


def scipy_harmonics(modes, points):
    """The real harmonics at any points (n, m), from SciPy's Legendre functions, in the order of the coefficients."""
    if points.shape[1] == 2:
        angles = np.arctan2(points[:, 1], points[:, 0])[:, None] * np.arange(1, modes + 1)
        return np.hstack([np.ones((len(points), 1)), np.sqrt(2) * np.cos(angles), np.sqrt(2) * np.sin(angles)])
    turns, columns = np.arctan2(points[:, 1], points[:, 0]), []
    for wave in (np.cos, np.sin):
        for order in range(modes + 1):
            for degree in range(max(order, 0 if wave is np.cos else 1), modes + 1):
                if wave is np.sin and order == 0:
                    continue
                square = (2 * degree + 1) / np.prod(np.arange(degree - order + 1.0, degree + order + 1))
                size = np.sqrt(square * (1 if order == 0 else 2)) * (-1) ** order
                columns.append(size * lpmv(order, degree, points[:, 2]) * wave(order * turns))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(("dimension", "modes"), [(2, 7), pytest.param(3, 6, marks=pytest.mark.slow)])
def test_transforms(dimension, modes):
    basis, rng = harmonics_of(modes, dimension), np.random.default_rng(0)
    table = scipy_harmonics(modes, basis.points)
    values = jax.jit(jax.vmap(basis.values))(np.eye(table.shape[1]))
    assert np.max(np.abs(np.asarray(values).T - table)) < 1e-13
    found = np.asarray(jax.jit(jax.vmap(basis.coefficients))(table.T))
    assert np.max(np.abs(found - np.eye(table.shape[1]))) < 1e-13
    symmetric = rng.normal(size=(dimension, dimension))
    symmetric = symmetric + symmetric.T
    slopes = 2 * basis.points @ symmetric
    slopes -= np.sum(slopes * basis.points, axis=1, keepdims=True) * basis.points
    heights = np.sum(basis.points @ symmetric * basis.points, axis=1)
    expected = basis.eigenvalues * np.asarray(basis.coefficients(jnp.asarray(heights)))
    assert np.max(np.abs(np.asarray(basis.pulled(jnp.asarray(slopes))) - expected)) < 1e-12
    if dimension == 3:  # what turns around has no sources
        assert np.max(np.abs(basis.pulled(jnp.asarray(np.cross(basis.points, slopes))))) < 1e-12


@pytest.mark.slow
def test_a_poisson_density_stays_one():
    """β = 0 moves a Poisson density by Möbius maps: r(t) is Kuramoto's."""
    run = pf.simulate(attention(0.0), MODES.measure_of(poisson(0.3)), TIMES, **OPTIONS)
    orders = kuramoto_order(0.3, TIMES)
    assert np.max(np.abs(np.asarray(run.observables["order_parameter"]) - orders)) < 1e-11
    for order, points, masses in zip(orders, run.points, np.asarray(run.masses), strict=True):
        assert np.max(np.abs(masses * len(masses) - poisson(order)(points))) < 1e-10
        assert abs(masses.sum() - 1) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["row", "none"])
def test_the_fastest_mode_leads_in_a_run(normalization):
    """β = 5, all modes perturbed alike by 1e-7: the third grows fastest, each at its published rate."""
    rng, flow = np.random.default_rng(4), attention(5.0, normalization)
    phases = rng.uniform(0, 2 * np.pi, 8)

    def density(points):
        angles = np.arctan2(points[:, 1], points[:, 0])[:, None]
        return 1 + 1e-7 * np.sum(np.cos(np.arange(1, 9) * angles + phases), axis=1)

    end = 4.0 if normalization == "row" else 0.2
    run = pf.simulate(flow, MODES.measure_of(density), end * TIMES, **options(rtol=1e-10, atol=1e-18))
    waves = np.abs(np.fft.rfft(np.asarray(run.masses), axis=1))[:, 1:9]
    rates = np.log(waves[-1] / waves[0]) / end
    assert np.max(np.abs(rates - stability.growth_rates(flow, np.arange(1, 9)))) < 1e-5 * rates[2]
    assert np.argmax(waves[-1]) + 1 == stability.fastest_mode(flow) == 3
    assert abs(rates[2] / {"row": 0.68267833, "none": 18.59607030}[normalization] - 1) < 1e-6


DECAYS = [(2, 1.0), (3, 1.0), (2, 2.0)]


@pytest.mark.slow
@pytest.mark.parametrize("case", by_default(DECAYS, [(2, 1.0)]))
def test_modes_decay_by_noise_alone(case):
    (dimension, radius), temperature = case, 0.3
    how, rng = discretization.Spectral(32 if dimension == 2 else 5), np.random.default_rng(1)
    flow = attention(1.0, value=0.0, radius=radius, temperature=temperature)
    start = rng.normal(size=len(harmonics_of(5, dimension).degrees)) / 60
    start[0] = 1.0
    begun = how.measure_of(lambda points: scipy_harmonics(5, points / radius) @ start, dimension, radius)
    run = pf.simulate(flow, begun, TIMES, **options(discretization=how))
    degrees = harmonics_of(5, dimension).degrees
    decay = np.exp(-degrees * (degrees + dimension - 2) * temperature / radius**2 * TIMES[:, None])
    expected = (decay * start) @ scipy_harmonics(5, np.asarray(begun.points) / radius).T
    shares = harmonics_of(how.modes, dimension).shares
    assert np.max(np.abs(np.asarray(run.masses) / shares - expected)) < 1e-10
    assert np.max(np.abs(np.asarray(run.masses).sum(axis=1) - 1)) < 1e-12


LINEAR = [(dimension, normalization) for dimension in (2, 3) for normalization in NORMALIZATIONS]


@pytest.mark.slow
@pytest.mark.parametrize("case", LINEAR)
def test_the_jacobian_at_the_uniform_state_is_the_growth_rates(case):
    """Two independent ways: the derivative of the discretized equation, and the coefficients of the kernel."""
    (dimension, normalization), (modes, seen) = case, ((24, 12) if case[0] == 2 else (10, 5))
    flow = attention(2.0, normalization, 0.8, 1.2, 0.05)
    how = discretization.Spectral(modes)
    state = how.begin(flow, how.measure_of(lambda points: np.ones(len(points)), dimension, 1.2))

    def rate(coefficients):
        return how.velocity(flow, 0.0, {"coefficients": coefficients[:, None]})["coefficients"][:, 0]

    degrees = harmonics_of(modes, dimension).degrees
    known = np.flatnonzero(degrees <= seen)
    waves = jnp.asarray(np.eye(len(degrees))[known])
    found = jax.jit(jax.vmap(lambda wave: jax.jvp(rate, (state["coefficients"][:, 0],), (wave,))[1]))(waves)
    rates = np.concatenate([[0.0], stability.growth_rates(flow, np.arange(1, seen + 1), dimension)])
    expected = rates[degrees[known]][:, None] * np.asarray(waves)
    assert np.max(np.abs(np.asarray(found)[:, known] - expected[:, known])) < 1e-10


@pytest.mark.slow
def test_a_turned_density_moves_as_the_density_turned():
    rng, how, flow = np.random.default_rng(2), discretization.Spectral(12), attention(1.5, temperature=0.1)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    centre = np.array([0.6, -0.8, 0.0])

    def rate(axis):
        state = how.begin(flow, how.measure_of(lambda points: np.exp(0.7 * points @ axis), 3))
        return np.asarray(how.velocity(flow, 0.0, state)["coefficients"][:, 0])

    places = rng.normal(size=(40, 3))
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    here = scipy_harmonics(12, places) @ rate(centre)
    there = scipy_harmonics(12, places @ turn.T) @ rate(turn @ centre)
    assert np.max(np.abs(here - there)) < 1e-10
    assert np.max(np.abs(here)) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["row", "none"])
def test_energy_dissipates_as_the_density_moves(normalization):
    """dE/dt along the equation is ∫ |v|² dμ for unnormalised attention and ∫ Z |v|² dμ for softmax."""
    how, flow = MODES, attention(2.0, normalization)

    def energy(state):
        return observables.energy(pf.Present(flow, how, jnp.zeros(()), state))

    @jax.jit
    def both(state):
        rate = how.velocity(flow, 0.0, state)
        lost = observables.dissipation(pf.Present(flow, how, jnp.zeros(()), state))
        return jax.jvp(energy, (state,), (rate,))[1], lost

    change, expected = map(float, both(how.begin(flow, how.measure_of(poisson(0.3)))))
    assert abs(change / expected - 1) < 1e-10


# A run like any other.

FLOW, START = attention(1.0, temperature=0.1), MODES.measure_of(poisson(0.3))


@pytest.mark.slow
def test_in_memory_in_a_file_in_a_stream_and_resumed(tmp_path):
    whole = pf.simulate(FLOW, START, TIMES, **OPTIONS)
    assert whole.metadata["discretization"] == "spectral"
    frames = list(pf.stream(FLOW, START, TIMES, **OPTIONS))
    assert np.array_equal(np.concatenate([each.fields["masses"] for each in frames]), np.asarray(whole.masses))
    seen = []

    def stop(frames):
        seen.append(frames)
        if len(seen) == 2:
            raise KeyboardInterrupt

    store = tmp_path / "density.h5"
    with pytest.raises(KeyboardInterrupt):
        pf.simulate(FLOW, START, TIMES, **OPTIONS, store=store, progress=stop)
    resumed = pf.simulate(FLOW, START, TIMES, **OPTIONS, store=store, resume=True)
    assert resumed.status == "finished"
    assert np.array_equal(np.asarray(resumed.masses), np.asarray(whole.masses))
    assert np.array_equal(resumed.observables["order_parameter"], whole.observables["order_parameter"])
    again = pf.initial.FromFile(store).start(jax.random.key(0)).measure
    assert np.max(np.abs(np.exp(again.log_weights) - np.asarray(whole.masses)[-1])) < 1e-15
    on = pf.simulate(FLOW, again, TIMES[:2], **OPTIONS)  # the last frame of a run begins another one
    assert np.max(np.abs(np.asarray(on.masses)[0] - np.asarray(whole.masses)[-1])) < 1e-15


@pytest.mark.slow
def test_ensembles_and_events():
    event = events.Reached(observables.order_parameter, 0.35)
    single = pf.simulate(FLOW, START, TIMES, **OPTIONS, event=event)
    assert single.status == "stopped by event"
    assert abs(single.observables["order_parameter"][-1] - 0.35) < 1e-7
    flows = [FLOW, attention(1.0, temperature=0.3)]
    both = pf.simulate(flows, [START, MODES.measure_of(poisson(0.2))], TIMES, **OPTIONS)
    whole = pf.simulate(FLOW, START, TIMES, **OPTIONS)
    assert np.max(np.abs(np.asarray(both.run(0).masses) - np.asarray(whole.masses))) < 1e-7
    assert abs(both.run(1).observables["order_parameter"][0] - 0.2) < 1e-12


@pytest.mark.slow
def test_an_implicit_solver_agrees():
    whole = pf.simulate(FLOW, START, TIMES, **options(rtol=1e-8, atol=1e-10))
    implicit = pf.simulate(FLOW, START, TIMES, **options(rtol=1e-8, atol=1e-10, solver="kvaerno5"))
    assert np.max(np.abs(np.asarray(implicit.masses) - np.asarray(whole.masses))) < 1e-8


@pytest.mark.slow
def test_derivatives():
    def order(beta):
        flow = pf.Flow(pf.Attend(kernels.Attention(beta=beta)), pf.Sphere())
        end = pf.evolve(flow, START, 0.5, discretization=MODES, step=0.125, solver="tsit5")
        return observables.order_parameter(flow, 0.5, end)

    slope = float(jax.jit(jax.grad(order))(1.0))
    ends = [float(jax.jit(order)(1.0 + step)) for step in (-1e-4, 1e-4)]
    assert abs(slope - (ends[1] - ends[0]) / 2e-4) < 1e-7
    assert abs(slope) > 1e-3


@pytest.mark.slow
def test_single_precision():
    begun = MODES.measure_of(poisson(0.3), dtype=jnp.float32)
    flow = jax.tree_util.tree_map(lambda leaf: leaf.astype(jnp.float32), FLOW)
    run = pf.simulate(flow, begun, TIMES[:2], **options(rtol=1e-4, atol=1e-5))
    assert run.masses[0].dtype == np.float32
    assert np.max(np.abs(np.asarray(run.masses).sum(axis=1) - 1)) < 1e-6


@pytest.mark.slow
def test_a_density_that_is_not_resolved_any_more_says_so():
    with pytest.raises(RunError, match=r"below zero, because 32 modes do not resolve it; use more `modes`") as caught:
        pf.simulate(attention(4.0), START, 20 * TIMES, **OPTIONS)
    assert caught.value.trajectory is not None
    assert np.asarray(caught.value.trajectory.masses).min() >= 0


def flow_with(**changes: Any) -> pf.Flow:
    drift = pf.Attend(kernels.Attention(1.0), positional=changes.pop("positional", None))
    return pf.Flow(drift, changes.pop("geometry", pf.Sphere()), **changes)


REFUSED: dict[str, tuple[pf.Flow, Any, str]] = {
    "particles": (FLOW, np.array([[1.0, 0.0], [0.0, 1.0]]), "grid of 97 points, but the start has 2 others"),
    "fewer modes": (FLOW, discretization.Spectral(6).measure_of(poisson(0.1)), "the start has 19 others"),
    "radius": (flow_with(geometry=pf.Sphere(2.0)), START, "must be on the geometry Sphere"),
    "flat": (flow_with(geometry=pf.Euclidean()), START, "live on a sphere"),
    "pace": (flow_with(geometry=geometry.Ngpt(1.0)), START, "moves points in another way"),
    "mass": (FLOW, START.tilted(jnp.full(START.count, 0.1)), "must have the mass one, but has 1.105"),
    "too sharp": (FLOW, MODES.measure_of(poisson(0.97)), "32 modes do not resolve it"),
    "positional": (flow_with(positional=kernels.Causal()), START, "has no places in a sequence"),
    "common noise": (flow_with(common_temperature=0.1), START, "`common_temperature` must be 0"),
    "dimension": (FLOW, np.eye(4), "but d is 4"),
    "values": (FLOW, START.with_values(jnp.ones(START.count)), "`values` of its own"),
    "negative": (
        FLOW,
        pf.initial.DensityFunction(lambda points: points[:, 0], 2),
        "must not be negative, but is -0.99",
    ),
    "not one": (FLOW, pf.initial.DensityFunction(lambda points: np.ones(len(points)), 2), "sum to one .* sums to 6.28"),
    "flat density": (FLOW, pf.initial.Gaussian(2), "in flat space, but the geometry of the flow is sphere"),
    "flat both": (flow_with(geometry=pf.Euclidean()), pf.initial.Gaussian(2), "live on a sphere"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_spectrum_cannot_carry_says_why(name):
    flow, start, reason = REFUSED[name]
    with pytest.raises(ArgumentError, match=reason):
        pf.simulate(flow, start, TIMES, **OPTIONS)


def test_arguments_that_make_no_sense():
    with pytest.raises(ArgumentError, match="`modes` must be a positive integer"):
        discretization.Spectral(0)
    with pytest.raises(ArgumentError, match=r"must not be negative, but is -0.999 at \(-0.9995, "):
        MODES.measure_of(lambda points: points[:, 0])
    with pytest.raises(ArgumentError, match="one finite number for each of 97 points"):
        MODES.measure_of(lambda points: np.ones(3))
    with pytest.raises(ArgumentError, match="Explicit layers"):
        pf.simulate(attention(1.0), START, TIMES, discretization=MODES, step=0.25, solver="map")


# Scenarios.

TEXT = """
initial = { kind = "uniform_circle", order = 0.3, mode = 2, amplitude = 0.2 }
geometry = { kind = "sphere", radius = 1.5 }
temperature = 0.1
discretization = { kind = "spectral", modes = 24 }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 1.0 }
[time]
end = 1.0
frames = 3
rtol = 1e-8
atol = 1e-10
"""


@pytest.mark.slow
def test_a_scenario_begins_with_the_density_of_its_initial_kind(tmp_path):
    path = tmp_path / "density.toml"
    path.write_text(TEXT)
    setup = scenario.load(path).build()
    density: Any = pf.initial.UniformCircle(order=0.3, mode=2, amplitude=0.2).density(jax.random.key(0))
    points = np.asarray(setup.start.points) / 1.5
    assert np.max(np.abs(np.exp(setup.start.log_weights) - density.values(points) * 2 * np.pi / 73)) < 1e-10
    single = scenario.load(path, ["precision='float32'", "discretization.modes=8", "time.rtol=1e-4"]).build()
    assert (single.start.count, single.start.points.dtype) == (25, np.float32)
    with pytest.raises(UserError, match="do not resolve it"):
        scenario.load(path, ["discretization.modes=3", "initial.order=0.8"]).build()
    path.write_text(TEXT.replace('kind = "uniform_circle", order = 0.3, mode = 2, amplitude = 0.2', 'kind = "moons"'))
    with pytest.raises(UserError, match="density in flat space, but the geometry of the flow is sphere"):
        scenario.load(path).build()
    path.write_text(TEXT.replace('discretization = { kind = "spectral", modes = 24 }', ""))
    with pytest.raises(UserError, match=r"initial\.count"):
        scenario.load(path)


@pytest.mark.slow
def test_densities_of_initial_kinds():
    """The share of points below an angle is that of the angles they came from."""
    cloud = pf.initial.UniformCircle(order=0.3, mode=2, amplitude=0.3, spacing="equispaced")
    density: Any = cloud.density(jax.random.key(0))
    points = np.asarray(cloud.sample(jax.random.key(0), 16))
    angles = np.unwrap(np.arctan2(points[:, 1], points[:, 0]))

    def at(angle):
        return density.values(np.array([[np.cos(angle), np.sin(angle)]]))[0]

    for index in (3, 9, 14):
        assert abs(quad(at, 0, angles[index], epsabs=1e-12)[0] - index / 16) < 1e-10
    assert pf.initial.UniformCircle(mode=5, amplitude=0.2).density(jax.random.key(0)) is None
    sphere: Any = pf.initial.UniformSphere(3).density(jax.random.key(0))
    assert np.allclose(sphere.values(points[:, [0, 1, 1]]), 1 / (4 * np.pi), atol=0)
