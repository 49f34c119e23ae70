"""Densities in cells through every door: runs, files, events, ensembles, scenarios; and what is refused, with why."""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalSubscript=false

import re
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import find_peaks

import particleflow as pf
import volumes_oracles as oracle
from particleflow import drifts, events, geometry, kernels, observables, scenario
from particleflow.analysis import wasserstein1
from particleflow.app.cli import main
from particleflow.discretization import FiniteVolumes
from particleflow.dynamics.initial import (
    CircleWave,
    Density,
    DensityFunction,
    Gaussian,
    Grid,
    UniformBox,
    UniformCircle,
)
from particleflow.errors import ArgumentError, ParticleflowError, RunError, UserError

CELLS = FiniteVolumes(64)
TIMES = np.linspace(0.0, 0.4, 5)
OBSERVED = [
    observables.energy, observables.dissipation, observables.entropy, observables.order_parameter,
    observables.mean_similarity, observables.speed,
]  # fmt: skip
OPTIONS: dict[str, Any] = {"discretization": CELLS, "rtol": 1e-4, "atol": 1e-6, "window": 3}


def usa(beta: float) -> pf.Flow:
    return pf.Flow(pf.Attend(kernels.Attention(beta=beta), normalization="none"), geometry=pf.Sphere())


@pytest.fixture(scope="module")
def run() -> pf.Trajectory:
    return pf.simulate(usa(3.0), CircleWave(1, 0.5), TIMES, **OPTIONS)


@pytest.mark.slow
def test_a_density_is_kept_in_memory_and_in_a_file(run, tmp_path):
    stored = pf.simulate(usa(3.0), CircleWave(1, 0.5), TIMES, **OPTIONS, store=tmp_path / "density.h5")
    masses = np.asarray(run.masses)
    assert masses.shape == (5, 64)
    assert masses.min() >= 0
    assert np.max(np.abs(masses.sum(axis=1) - 1)) < 1e-12
    assert np.array_equal(masses, np.asarray(stored.masses))
    assert np.allclose(run.points[2], np.asarray(CELLS.mesh(usa(3.0), 2).cells.centres), atol=1e-15)
    assert run.metadata["discretization"] == "finite_volumes"
    assert run.metadata["statistics"]["cells"] == 64
    with h5py.File(tmp_path / "density.h5") as file:
        group: Any = file["particles/trajectory"]
        assert group["position"].shape == (64, 2)
        assert group["mass/value"].shape == (5, 64)
    again = pf.initial.FromFile(tmp_path / "density.h5").start(jax.random.key(0)).measure
    laid = np.exp(np.asarray(CELLS.project(usa(3.0), again).log_weights))
    assert np.max(np.abs(laid - masses[-1])) < 1e-15


@jax.jit
def asked(points, masses):
    """All observables of a stored frame, in one program."""
    measure = pf.Measure(points, jnp.log(masses))
    found = pf.Present(usa(3.0), CELLS, 0.0, CELLS.begin(usa(3.0), measure))
    return {observables.name_of(each): each(found) for each in OBSERVED}


def test_observables_of_a_density_are_their_formulas(run):
    for frame in (0, -1):
        found = asked(run.points[frame], np.asarray(run.masses)[frame])
        weights, points = np.asarray(run.masses)[frame], np.asarray(run.points[frame])
        products = np.exp(3.0 * points @ points.T)
        pull = (products * weights) @ points
        velocity = pull - np.sum(pull * points, axis=1, keepdims=True) * points
        squares = weights @ np.sum(velocity**2, axis=1)
        expected = {
            "energy": weights @ products @ weights / 6,
            "dissipation": squares,
            "speed": np.sqrt(squares),
            "entropy": -weights @ np.log(weights * 64 / (2 * np.pi)),
            "order_parameter": np.linalg.norm(weights @ points),
            "mean_similarity": np.sum((weights @ points) ** 2),
        }
        for name, value in expected.items():
            assert abs(float(found[name]) - value) < 1e-11 * max(1.0, abs(value)), name


def test_energy_grows_by_what_is_dissipated(run):
    """dE/dt = ∫ |v|² dμ of unnormalised attention, to the order of the scheme."""
    frames = [asked(points, masses) for points, masses in zip(run.points, np.asarray(run.masses), strict=True)]
    energy, rate = (np.array([float(each[name]) for each in frames]) for name in ("energy", "dissipation"))
    assert (np.diff(energy) > 0).all()
    # Simpson's rule over the first two and the last two intervals
    gained = 0.1 / 3 * np.array([rate[0] + 4 * rate[1] + rate[2], rate[2] + 4 * rate[3] + rate[4]])
    assert np.allclose(gained, [energy[2] - energy[0], energy[4] - energy[2]], rtol=2e-2)


def test_points_are_counted_into_cells_and_an_empty_cell_stays_positive():
    points = np.asarray(UniformCircle().sample(jax.random.key(1), 5))
    rough = pf.simulate(usa(3.0), points, TIMES, **OPTIONS)
    masses = np.asarray(rough.masses)
    assert np.count_nonzero(masses[0]) == 5
    assert np.allclose(masses[0][masses[0] > 0], 0.2, atol=1e-15)
    assert masses.min() >= 0
    assert np.max(np.abs(masses.sum(axis=1) - 1)) < 1e-12


def present() -> pf.Present:
    laid = CELLS.project(usa(3.0), CircleWave())
    return pf.Present(usa(3.0), CELLS, jnp.asarray(0.0), CELLS.begin(usa(3.0), laid))


@pytest.mark.slow
def test_pairs_of_a_density_are_independent_draws():
    asked = present()
    weights = np.exp(np.asarray(asked.measure.log_weights))
    points = np.asarray(asked.measure.points)
    close = weights @ (points @ points.T > 0.9) @ weights
    assert abs(float(observables.PairFraction(0.9)(asked)) - close) < 1e-14
    levels = np.asarray(observables.SimilarityQuantiles((0.1, 0.5))(asked))
    order = np.argsort((points @ points.T).ravel())
    reached = np.cumsum(np.outer(weights, weights).ravel()[order])
    expected = (points @ points.T).ravel()[order][np.searchsorted(reached, [0.1, 0.5])]
    assert np.allclose(levels, expected, atol=0.02)


def test_what_counts_particles_is_refused_of_a_density():
    asked = present()
    for counted in (observables.diameter, observables.attention_entropy, observables.attention_rank):
        with pytest.raises(ArgumentError, match="no particles"):
            counted(asked)
    for event in (events.Clustered(0.1), events.Merged(1, 0.1), events.BlewUp(2.0)):
        with pytest.raises(ArgumentError, match="no particles"):
            event.level(asked)


WAVE = CircleWave(1, 0.5)
REFUSED: dict[str, tuple[Any, Any, Any, dict[str, Any], str]] = {
    "negative": (
        usa(1.0), DensityFunction(lambda points: points[:, 0], 2), CELLS, {}, "must not be negative, but is -",
    ),
    "not one": (
        usa(1.0), DensityFunction(lambda points: np.ones(len(points)), 2), CELLS, {}, "must sum to one .* sums to 6.28",
    ),
    "not one as a measure": (usa(1.0), pf.Measure(np.eye(2), np.zeros(2)), CELLS, {}, "mass one, but has 2"),
    "another geometry": (usa(1.0), Gaussian(2), CELLS, {}, "in flat space, but the geometry of the flow is sphere"),
    "off the geometry": (usa(1.0), 2 * np.eye(2), CELLS, {}, "must be on the geometry"),
    "no density": (usa(1.0), Grid([2, 2]), CELLS, {}, "has no known density"),
    "no box": (pf.Flow(drifts.Linear(1.0)), Gaussian(1), CELLS, {}, "`low` and `high` must be given"),
    "narrow box": (pf.Flow(drifts.Linear(1.0)), Gaussian(1), FiniteVolumes(64, -1.0, 1.0), {}, "sums to 0.68"),
    "outside": (pf.Flow(drifts.Linear(1.0)), np.eye(1) * 3, FiniteVolumes(64, -1.0, 1.0), {}, "outside of the box"),
    "box on a sphere": (usa(1.0), WAVE, FiniteVolumes(64, -1.0, 1.0), {}, "are for boxes"),
    "dimension": (usa(1.0), np.eye(4), CELLS, {}, "dimension 4"),
    "values": (usa(1.0), pf.Measure.uniform(np.eye(2), values=np.ones(2)), CELLS, {}, "`values`"),
    "common noise": (
        pf.Flow(drifts.Linear(1.0), pf.Sphere(), common_temperature=0.1), WAVE, CELLS, {}, "all particles share",
    ),
    "positions": (
        pf.Flow(pf.Attend(kernels.Attention(), positional=kernels.Causal()), pf.Sphere()), WAVE, CELLS, {}, "positions",
    ),
    "residual norm": (pf.Flow(drifts.Linear(1.0), geometry.PreNorm()), WAVE, CELLS, {}, "carries residual_norm"),
    "layer norm": (
        pf.Flow(drifts.Linear(1.0), geometry.LayerNorm()), np.array([[1.0, -1.0]]), CELLS, {}, "be on the geometry",
    ),
    "not periodic": (
        pf.Flow(drifts.Linear(1.0)), UniformBox([0.2], [0.8]), FiniteVolumes(64, 0.0, 1.0, True), {},
        "the velocity is not: at its ends it differs by 1",
    ),
    "own geometries": (
        pf.Flow(drifts.Block([drifts.Linear(1.0)], [geometry.PreNorm()]), pf.Sphere()), WAVE, CELLS, {}, "sub-layers",
    ),
    "solver": (usa(1.0), WAVE, CELLS, {"solver": "tsit5"}, "does not lead from densities"),
    "map": (usa(1.0), WAVE, CELLS, {"rtol": None, "atol": None, "step": 0.1, "solver": "map"}, "does not lead"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_density_cannot_be_is_refused_with_the_reason(name):
    flow, start, how, options, words = REFUSED[name]
    with pytest.raises(ParticleflowError, match=words):
        pf.simulate(flow, start, TIMES, **{**OPTIONS, "discretization": how, "observe": (), **options})


@pytest.mark.parametrize("arguments", [{"cells": 3}, {"cells": 64, "low": 1.0}, {"cells": 64, "low": 1.0, "high": 0.0}])
def test_cells_that_cannot_be_are_refused(arguments):
    with pytest.raises(ArgumentError, match=r"cells|low"):
        FiniteVolumes(**arguments)


SCENARIO: dict[str, Any] = {
    "initial": {"kind": "circle_wave", "mode": 2, "amplitude": 0.1},
    "geometry": {"kind": "sphere"},
    "discretization": {"kind": "finite_volumes", "cells": 64},
    "drift": [{"kind": "attend", "kernel": {"kind": "attention", "beta": 2.0}}],
    "time": {"end": 0.1, "frames": 3, "rtol": 1e-4},
}


def test_a_scenario_begins_with_the_density_or_with_counted_points(tmp_path):
    def masses(**initial: Any) -> np.ndarray:
        raw = {**SCENARIO, "initial": {**SCENARIO["initial"], **initial}}
        return np.exp(np.asarray(scenario.from_document(raw, "wave.toml", tmp_path).build().start.log_weights))

    angles = 2 * np.pi * np.arange(64) / 64
    arc = np.sin(2 * np.pi / 64) / (2 * np.pi / 64)  # the mean of cos 2θ over an arc, in parts of its middle
    assert np.allclose(masses(), (1 + 0.1 * arc * np.cos(2 * angles)) / 64, atol=1e-15)
    assert len(masses(count=4)) == 4  # particles, which the run counts into cells
    without = {name: table for name, table in SCENARIO.items() if name != "discretization"}
    with pytest.raises(UserError, match=r"initial.count: is missing"):
        scenario.from_document(without, "wave.toml", tmp_path)
    raw = {**SCENARIO, "initial": {"kind": "equiangular"}}
    with pytest.raises(UserError, match=r"initial.count is missing: the kind 'equiangular' has no density"):
        scenario.from_document(raw, "wave.toml", tmp_path).build()
    noisy = {**SCENARIO, "temperature": 0.1, "time": {"end": 0.1}}  # noise is diffusion: steps may adapt
    assert scenario.from_document(noisy, "wave.toml", tmp_path).document.chosen["time.rtol"] == 1e-6


KINDS = """
import numpy as np
from particleflow.dynamics.initial import AbstractInitial, Density


class Heights(AbstractInitial):
    least: float
    whole: float

    def start(self, key, count=None):
        raise ValueError("no points")

    def density(self, key):
        def values(points):
            return (self.least + (1 - self.least) * points[:, 0] ** 2) * self.whole / (np.pi * (1 + self.least))

        return Density("sphere", 2, values)
"""
WRONG_STARTS: dict[str, tuple[str, str]] = {
    "negative": ("kind = 'heights_kind:Heights', least = -0.5, whole = 1.0", "must not be negative, but is -0.31"),
    "not one": (
        "kind = 'heights_kind:Heights', least = 0.5, whole = 2.0",
        "must sum to one over [a-z ]*, but sums to 2",
    ),
    "another geometry": ("kind = 'gaussian', dim = 2", "in flat space, but the geometry of the flow is sphere"),
    "no density": ("kind = 'equiangular'", "initial.count is missing"),
}


@pytest.mark.parametrize("carried", ['kind = "finite_volumes", cells = 32', 'kind = "spectral", modes = 8'])
@pytest.mark.parametrize("name", WRONG_STARTS)
def test_a_scenario_with_a_wrong_density_is_refused_with_code_2(name, carried, tmp_path, monkeypatch, capsys):
    initial, words = WRONG_STARTS[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "heights_kind.py").write_text(KINDS)
    text = f"""
initial = {{ {initial} }}
geometry = "sphere"
discretization = {{ {carried} }}
drift = [{{ kind = "linear", matrix = 1.0 }}]
time = {{ end = 0.1, frames = 2, rtol = 1e-4 }}
"""
    (tmp_path / "wrong.toml").write_text(text)
    command = ["run", "wrong.toml", "--allow-code", "--quiet", "--output", str(tmp_path / "out")]
    assert main(command) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(words, said), said
    assert "Traceback" not in said
    assert not (tmp_path / "out" / "trajectory.h5").exists()


@pytest.mark.slow
def test_a_density_in_single_precision(tmp_path):
    setup = scenario.from_document({**SCENARIO, "precision": "float32"}, "wave.toml", tmp_path).build()
    run = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
    assert np.asarray(run.masses).dtype == np.float32
    assert np.max(np.abs(np.asarray(run.masses, float).sum(axis=1) - 1)) < 1e-5
    assert np.asarray(run.masses).min() >= 0


@pytest.mark.slow
def test_a_density_stops_at_an_event_and_an_ensemble_is_its_runs(run):
    options = OPTIONS | {"observe": OBSERVED}
    orders = np.linalg.norm([each.T @ run.points[0] for each in np.asarray(run.masses)], axis=1)
    level = float(np.mean(orders[2:4]))
    event = events.Reached(observables.order_parameter, level)
    stopped = pf.simulate(usa(3.0), CircleWave(1, 0.5), TIMES, **options, event=event)
    assert stopped.status == "stopped by event"
    for name, value in asked(stopped.points[-1], np.asarray(stopped.masses)[-1]).items():
        assert abs(stopped.observables[name][-1] - float(value)) < 1e-11 * max(1.0, abs(float(value))), name
    assert TIMES[2] < stopped.times[-1] < TIMES[3]
    assert abs(stopped.observables["order_parameter"][-1] - level) < 1e-6
    both = pf.simulate([usa(3.0), usa(1.0)], CircleWave(1, 0.5), TIMES, **OPTIONS)
    assert np.max(np.abs(np.asarray(both.run(0).masses) - np.asarray(run.masses))) < 1e-6
    starts = pf.simulate(usa(3.0), [CircleWave(1, 0.5), CircleWave(2, 0.5)], TIMES, **OPTIONS)
    assert np.max(np.abs(np.asarray(starts.run(0).masses) - np.asarray(run.masses))) < 1e-9
    assert np.asarray(starts.run(1).masses).min() >= 0


@pytest.mark.slow
def test_fixed_steps_and_evolve_and_a_step_that_is_too_long(run):
    options = {"discretization": CELLS, "step": 1e-3}
    fixed = pf.simulate(usa(3.0), CircleWave(1, 0.5), TIMES, **options)
    assert np.max(np.abs(np.asarray(fixed.masses) - np.asarray(run.masses))) < 5e-5
    end = pf.evolve(usa(3.0), CircleWave(1, 0.5), 0.4, discretization=CELLS, rtol=1e-4, atol=1e-6)
    assert np.max(np.abs(np.exp(np.asarray(end.log_weights)) - np.asarray(run.masses)[-1])) < 5e-5
    with pytest.raises(RunError, match="positive, and the scheme stable, only in steps well below 0"):
        pf.simulate(usa(3.0), CircleWave(1, 0.5), TIMES, **{**options, "step": 0.1})


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["row", "none", "sinkhorn"])
def test_jumps_and_vacuum_stay_positive_on_every_mesh(normalization):
    """A density that jumps, is drawn together, pushed apart and diffuses: nowhere negative, all of its mass there."""
    box = UniformBox([-1.0, -0.5], [0.5, 1.0])
    layers = drifts.Layers([pf.Attend(kernels.Gaussian(1.0), sign, normalization) for sign in (2.0, -2.0)], 0.2)
    plane = pf.Flow(layers, temperature=1e-3), FiniteVolumes(20**2, -3.0, 3.0), box
    cap = DensityFunction(lambda points: (points[:, 2] > 0.5) / np.pi, 3)
    heads = pf.Attend(kernels.Attention(beta=4.0), 1.0, normalization) + 0.5 * drifts.Linear(np.diag([1.0, -1.0, 0.5]))
    sphere = pf.Flow(heads, geometry=pf.Sphere(1.3)), FiniteVolumes(300), cap
    for flow, how, start in (plane, sphere):
        run = pf.simulate(flow, start, np.linspace(0, 0.4, 9), discretization=how, rtol=1e-2, atol=1e-4)
        masses = np.asarray(run.masses)
        assert masses.min() >= 0
        assert np.max(np.abs(masses.sum(axis=1) - 1)) < 1e-12
        assert np.max(np.abs(masses[-1] - masses[0])) > 1e-4


@pytest.mark.slow
def test_the_identity_of_energy_and_dissipation_converges():
    """E(t) − E(0) − ∫ ∫ Z|v|² dμ dt of softmax attention vanishes like the square of the cells' size."""
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=3.0)), geometry=pf.Sphere())
    times, errors = np.linspace(0, 1.0, 41), []
    for cells in (64, 128):
        run = pf.simulate(
            flow, CircleWave(1, 0.5), times, discretization=FiniteVolumes(cells), rtol=1e-6, atol=1e-9,
            observe=OBSERVED[:2],
        )  # fmt: skip
        from scipy.integrate import simpson

        gained = simpson(run.observables["dissipation"], x=times)
        errors.append(abs(run.observables["energy"][-1] - run.observables["energy"][0] - gained))
    assert oracle.order_of(errors) > 1.8
    assert errors[-1] < 1e-3


@pytest.mark.slow
def test_three_clusters_grow_out_of_the_uniform_circle():
    """At β = 5 a random ripple becomes three clusters, and the third mode ramps up at a rate of about 18."""
    random = np.random.default_rng(3)
    phases, sizes = random.uniform(0, 2 * np.pi, 8), np.full(8, 1e-6)

    def ripple(points: np.ndarray) -> np.ndarray:
        angles = np.arctan2(points[:, 1], points[:, 0])
        waves = np.cos(np.arange(1, 9)[:, None] * angles + phases[:, None])
        return (1 + sizes @ waves) / (2 * np.pi)

    times = np.linspace(0, 1.0, 101)
    run = pf.simulate(
        usa(5.0), DensityFunction(ripple, 2), times, discretization=FiniteVolumes(256), rtol=1e-4, atol=1e-6
    )
    masses = np.asarray(run.masses)
    third = np.abs(np.fft.rfft(masses, axis=1)[:, 3])
    ramp = (third > 1e-5) & (third < 3e-2)
    assert 17 < np.polyfit(times[ramp], np.log(third[ramp]), 1)[0] < 19
    standing = int(np.argmax(masses.max(axis=1) > 10 / 256))  # when clusters have come up first
    peaks = find_peaks(np.tile(masses[standing], 2), height=2 / 256)[0]
    assert np.unique(peaks % 256).size == 3
    assert masses.min() >= 0


@pytest.mark.slow
def test_particles_come_near_the_density_like_one_over_the_root_of_their_number():
    """Mean W1 on the circle between N random particles and the density at one time: a slope of −½ in N."""
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=2.0)), geometry=pf.Sphere())
    volumes = FiniteVolumes(512)
    density = pf.evolve(flow, oracle.poisson(0.3), 1.0, discretization=volumes, rtol=1e-6, atol=1e-9)
    weights, distances, counts = np.exp(np.asarray(density.log_weights)), [], [50, 200, 800]
    law = UniformCircle(order=0.3)
    for count in counts:
        starts = jnp.stack([law.sample(jax.random.key(seed), count) for seed in range(40)])
        runs = np.asarray(pf.simulate(flow, starts, [0.0, 1.0], rtol=1e-6, atol=1e-8).points)[-1]
        found = [wasserstein1(each, density.points, y_weights=weights, metric="geodesic") for each in runs]
        distances.append(np.mean(found))
    assert abs(np.polyfit(np.log(counts), np.log(distances), 1)[0] + 0.5) < 0.1


def test_a_density_of_ones_own_gives_no_points():
    with pytest.raises(ArgumentError, match="gives no points"):
        DensityFunction(lambda points: points[:, 0], 2).sample(jax.random.key(0))
    assert isinstance(oracle.poisson(0.5), Density)
