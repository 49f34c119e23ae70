"""Every discretization × every law of a run: files, resuming, precision, ensembles, events, observables, noise, layers.

A system is a flow of attention that one discretization carries. What it cannot do is refused, with a sentence that the
table has. Observables are compared with NumPy at the stored frames: points, weights, and the field of the formulas.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import particleflow as pf
import system_oracles as oracle
from particleflow import drifts, events, kernels, observables
from particleflow.discretization import Characteristics, FiniteVolumes, Gaussian, Particles, Spectral
from particleflow.dynamics.initial import CircleWave, Quantiles, VonMisesFisher
from particleflow.errors import ArgumentError

TIMES, BETA, LEVELS, THRESHOLD = np.linspace(0.0, 0.4, 5), 0.8, (0.1, 0.5, 0.9), 0.3
RNG = np.random.default_rng(17)
WEIGHTS = np.array([0.25, 0.1, 0.2, 0.15, 0.3, 0.0])
CLOUDS = 0.5 * RNG.normal(size=(2, 6, 3))  # a law as wide as this is infinite only after t = 1
TIGHT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}
CELLS: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-7}


class Carried(NamedTuple):
    """How a measure is carried, and two starts; `space` has the formulas of the geometry for these weights.

    `volumes` of the points where they are places of a density; `noise`, `layers`: "" where there are such, or the
    sentence with which they are refused.
    """

    how: Any
    space: oracle.Space
    starts: tuple[Any, Any]
    options: dict[str, Any]
    volumes: Any = None
    noise: str = ""
    layers: str = ""

    def flow(self, beta: float = BETA, drift: Any = None, **options: Any) -> pf.Flow:
        """Attention on the geometry."""
        return pf.Flow(drift or pf.Attend(kernels.Attention(beta=beta)), self.space.build(), **options)

    def run(self, start: int = 0, flow: Any = None, **options: Any) -> pf.Trajectory:
        """A run from one of the starts, in windows of two frames."""
        given = {"discretization": self.how, "window": 2, **self.options, **options}
        return pf.simulate(flow or self.flow(), self.starts[start], given.pop("times", TIMES), **given)


def on(space: oracle.Space, cloud: np.ndarray, *, known: bool = False) -> pf.Measure:
    """A weighted cloud on a geometry, with a log-density if it is known."""
    points = space.given(WEIGHTS).retract(cloud)
    measure = pf.Measure.weighted(points, WEIGHTS)
    return measure.with_fields({"log_density": jnp.asarray(-np.sum(points**2, axis=1))}) if known else measure


def carried(how: Any, space: oracle.Space, *, known: bool = False, **refusals: str) -> Carried:
    """Particles, or what begins as particles."""
    first, second = (on(space, cloud, known=known) for cloud in CLOUDS)
    return Carried(how, space.given(WEIGHTS), (first, second), TIGHT, None, **refusals)


def density(how: Any, name: str, dimension: int, starts: tuple[Any, Any], options: dict[str, Any]) -> Carried:
    """A density, with the volumes that its points stand for, from the quadrature or the mesh itself."""
    space = oracle.spaces(dimension)[name]
    flow = pf.Flow(drifts.Linear(0.0), space.build())
    weights = np.exp(np.asarray(how.project(flow, starts[0]).log_weights))
    if isinstance(how, FiniteVolumes):
        volumes = np.asarray(how.mesh(flow, dimension).cells.volumes)
    else:  # masses of the uniform density are areas
        whole = {2: 2 * np.pi, 3: 4 * np.pi}[dimension]
        uniform = how.measure_of(lambda points: np.ones(len(points)), dimension)
        volumes = whole * np.exp(np.asarray(uniform.log_weights))
    layers = "does not lead from densities" if isinstance(how, FiniteVolumes) else "Explicit layers"
    return Carried(how, space.given(weights), starts, options, volumes, layers=layers)


SPHERE, SET, FLAT = (oracle.spaces(3)[name] for name in ("sphere", "set_norm", "euclidean"))
WAVES, CAPS = (
    (CircleWave(1, 0.5), CircleWave(2, 0.4)),
    (VonMisesFisher([0.0, 0.6, 0.8], 1.5), VonMisesFisher([1, 0, 0])),
)
ON_LINE = Quantiles("gaussian"), Quantiles("gaussian", 0.05, 1.02)
ALONG, STEPS = "With noise the density does not move along", "takes explicit layers"
SYSTEMS: dict[str, Callable[[], Carried]] = {
    "particles": lambda: carried(Particles(), SPHERE),
    "particles of a set": lambda: carried(Particles(), SET),
    "coalescing": lambda: carried(Particles(coalesce=1e-6), SPHERE, noise="each has noise of its own"),
    "characteristics": lambda: carried(Characteristics(), SPHERE, known=True, noise=ALONG, layers=STEPS),
    "characteristics of a set": lambda: carried(Characteristics(), SET, known=True, noise=ALONG, layers=STEPS),
    "gaussian": lambda: carried(Gaussian(), FLAT),
    "gaussian of a set": lambda: carried(Gaussian(), SET),
    "cells of the circle": lambda: density(FiniteVolumes(48), "sphere", 2, WAVES, CELLS),
    "cells of the sphere": lambda: density(FiniteVolumes(120), "sphere", 3, CAPS, CELLS),
    "cells of a line": lambda: density(FiniteVolumes(48, -6.0, 6.0), "euclidean", 1, ON_LINE, CELLS),
    "cells of a set": lambda: density(FiniteVolumes(48, -6.0, 6.0), "set_norm", 1, ON_LINE, CELLS),
    "harmonics of the circle": lambda: density(Spectral(16), "sphere", 2, WAVES, TIGHT),
    "harmonics of the sphere": lambda: density(Spectral(8), "sphere", 3, CAPS, TIGHT),
}


@cache
def system(name: str) -> Carried:
    return SYSTEMS[name]()


@cache
def whole(name: str) -> pf.Trajectory:
    return system(name).run(observe=[spread])


def spread(present: pf.Present) -> Any:
    """∫ x₁² + x₁ dμ, which changes in every system that is not held still."""
    first = present.measure.points[:, 0]
    return jnp.exp(present.measure.log_weights) @ (jnp.square(first) + first)


def stored(run: pf.Trajectory) -> dict[str, np.ndarray]:
    """All that frames hold."""
    return {name: np.asarray(array) for name, array in {"points": run.points, **run.fields, **run.observables}.items()}


def assert_near(found: pf.Trajectory, wanted: pf.Trajectory, error: float) -> None:
    """Every array within an error, relative to its largest number where that is above one."""
    ours, theirs = stored(found), stored(wanted)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert np.max(np.abs(ours[name] - array)) <= error * max(1.0, np.max(np.abs(array))), name


class StopError(Exception):
    """Ends a run between two windows."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_run_in_a_file_and_one_that_was_stopped_have_the_same_bits(name, tmp_path):
    def stop(frames: Any) -> None:
        raise StopError

    in_file = system(name).run(observe=[spread], store=tmp_path / "whole.h5")
    with pytest.raises(StopError):
        system(name).run(observe=[spread], store=tmp_path / "cut.h5", progress=stop)
    resumed = system(name).run(observe=[spread], store=tmp_path / "cut.h5", resume=True)
    assert resumed.status == "finished"
    for run in (in_file, resumed):
        for key, array in stored(whole(name)).items():
            assert np.array_equal(stored(run)[key], array), key


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_run_goes_on_from_its_file(name, tmp_path):
    case = system(name)
    case.run(times=TIMES[:3], store=tmp_path / "half.h5")
    begun = pf.initial.FromFile(tmp_path / "half.h5").start(jax.random.key(0)).measure
    on = case._replace(starts=(begun, begun)).run(times=TIMES[2:])
    for key in on.fields.keys() | {"points"}:
        found, wanted = stored(on)[key][-1], stored(whole(name))[key][-1]
        assert np.max(np.abs(found - wanted)) < 100 * case.options["rtol"] * max(1.0, np.max(np.abs(wanted))), key


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_single_precision_is_double_precision_to_rounding(name):
    case = system(name)
    flow, how = case.flow(), case.how
    start = case.starts[0] if isinstance(case.starts[0], pf.Measure) else how.project(flow, case.starts[0])
    flow, start = (
        jax.tree.map(lambda leaf: leaf.astype(np.float32) if eqx.is_inexact_array(leaf) else leaf, each)
        for each in (flow, start)
    )
    run = pf.simulate(flow, start, TIMES, discretization=how, rtol=1e-5, atol=1e-6, observe=[spread])
    assert {array.dtype for array in stored(run).values()} == {np.dtype(np.float32)}
    assert_near(run, whole(name), 2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_an_ensemble_is_its_single_runs(name):
    case = system(name)
    flows = [case.flow(), case.flow(0.4)]
    both = pf.simulate(
        flows, list(case.starts), TIMES, discretization=case.how, window=2, observe=[spread], **case.options
    )
    for number, flow in enumerate(flows):
        assert_near(both.run(number), case.run(number, flow, observe=[spread]), 100 * case.options["rtol"])


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_an_event_is_where_its_level_is_crossed(name):
    """A run without the event, up to the time at which it was found, has the level there."""
    case, values = system(name), np.asarray(whole(name).observables["spread"])
    if np.ptp(values) < 1e-6:  # a set that is held at its covariance: a level that it never reaches stops nothing
        assert case.space.name.startswith("set_norm")
        assert case.run(event=events.Reached(spread, 1.1 * float(values[0])), observe=[spread]).status == "finished"
        return
    level = float(values[2:4].mean())
    stopped = case.run(event=events.Reached(spread, level), observe=[spread])
    assert stopped.status == "stopped by event"
    assert TIMES[2] < stopped.times[-1] < TIMES[3]
    again = case.run(times=np.array([0.0, float(stopped.times[-1])]), observe=[spread])
    assert abs(float(again.observables["spread"][-1]) - level) < 20 * case.options["rtol"]


COUNTED = ("diameter", "attention_entropy", "attention_rank")
OBSERVED = [
    observables.energy, observables.log_energy, observables.dissipation, observables.order_parameter,
    observables.centre, observables.covariance, observables.mean_similarity, observables.diameter, observables.speed,
    observables.effective_rank, observables.attention_entropy, observables.attention_rank,
    observables.SimilarityQuantiles(LEVELS), observables.PairFraction(THRESHOLD), observables.entropy,
    observables.largest_variance, observables.blow_up_time, observables.excess_kurtosis, observables.gaussian_distance,
]  # fmt: skip


def frame_of(name: str, frame: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Points, weights and fields of a stored frame, those without weight left out."""
    run = whole(name)
    weights = np.asarray(run.masses[frame], float)
    some = weights > 0
    return (
        np.asarray(run.points[frame])[some],
        weights[some],
        {k: np.asarray(v[frame])[some] for k, v in run.fields.items()},
    )


def velocity(case: Carried, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Softmax attention as the geometry moves it; of a Gaussian the mean a + β S x of the tilted law."""
    space = case.space.given(weights)
    if isinstance(case.how, Gaussian):
        centre = weights @ points
        covariance = (points - centre).T @ (weights[:, None] * (points - centre))
        return space.move(points, centre + BETA * points @ covariance, 0.0)
    return space.move(points, oracle.shares(BETA * points @ points.T, weights) @ points, 0.0)


def of_pairs(points: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    """Of a density pairs are independent draws: a place is paired with itself, too."""
    units = oracle.unit(points)
    cosines, pairs = (units @ units.T).ravel(), np.outer(weights, weights).ravel()
    close = pairs @ (cosines > THRESHOLD)
    first, second = np.triu_indices(len(points))
    each = np.where(first == second, 0.5, 1.0) * weights[first] * weights[second]
    quantiles = oracle.weighted_quantiles((units @ units.T)[first, second], each / each.sum(), LEVELS)
    return {"mean_similarity": pairs @ cosines, "pair_fraction": close, "similarity_quantiles": quantiles}


def of_shape(points: np.ndarray, weights: np.ndarray, moving: np.ndarray, time: float) -> dict[str, Any]:
    """Variances and their growth, kurtosis, and the distance to a normal law by sorting."""
    centre, dimension = weights @ points, points.shape[1]
    covariance = (points - centre).T @ (weights[:, None] * (points - centre))
    values, axes = np.linalg.eigh(covariance)
    along = (points - centre) @ axes[:, -1]
    standard = (points - centre) @ (axes / np.sqrt(values)) @ axes.T
    ways = np.ones((1, 1))
    if dimension > 1:
        ways = np.random.default_rng(0).normal(size=(64, dimension))
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    squares = []
    for way in ways:
        numbers = standard @ way
        order = np.argsort(numbers)
        ends = stats.norm.ppf(np.clip(np.r_[0.0, np.cumsum(weights[order])[:-1], 1.0], 0.0, 1.0))
        moments = stats.norm.pdf(ends[:-1]) - stats.norm.pdf(ends[1:])
        squares.append(1 + weights @ numbers**2 - 2 * numbers[order] @ moments)
    return {
        "largest_variance": values[-1],
        "blow_up_time": time + values[-1] / (2 * weights @ (along * (moving @ axes[:, -1]))),
        "excess_kurtosis": weights @ np.sum(standard**2, axis=1) ** 2 - dimension * (dimension + 2),
        "gaussian_distance": np.sqrt(np.mean(squares)),
    }


def entropy(case: Carried, points: np.ndarray, weights: np.ndarray, fields: dict[str, np.ndarray]) -> float | None:
    """−∫ log ρ dμ, None where nobody knows ρ."""
    if case.volumes is not None:
        return float(-weights @ np.log(weights / case.volumes))
    if "log_density" in fields:
        return float(-weights @ fields["log_density"])
    if isinstance(case.how, Gaussian):
        covariance = np.cov(points.T, aweights=weights, ddof=0)
        return float(0.5 * np.linalg.slogdet(2 * np.pi * np.e * np.atleast_2d(covariance))[1])
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_observable_is_right_or_refused(name):
    case, frame = system(name), 3
    points, weights, fields = frame_of(name, frame)
    moving, logits = velocity(case, points, weights), BETA * points @ points.T
    masses = np.exp(oracle.log_mass(logits, weights))
    wanted: dict[str, Any] = {
        **oracle.of_points(points, weights, LEVELS, THRESHOLD),
        **oracle.of_interaction(logits, weights, 2 * BETA),
        **oracle.of_velocity(moving, weights, masses),
        **of_shape(points, weights, moving, float(TIMES[frame])),
        "entropy": entropy(case, points, weights, fields),
    }
    refused = {"entropy": "needs a density"} if wanted["entropy"] is None else {}
    if case.volumes is not None:
        wanted |= of_pairs(points, weights)
        refused |= dict.fromkeys(COUNTED, "no particles")
    if case.space.name == "set_norm":  # dS/dt = E[v ξᵀ] + E[ξ vᵀ] − A S − S Aᵀ = 0: the variance never blows up
        assert abs(wanted.pop("blow_up_time")) > 1e14
        assert np.isposinf(np.asarray(case.run(observe=[observables.blow_up_time]).observables["blow_up_time"])).all()
    allowed = [each for each in OBSERVED if observables.name_of(each) in wanted.keys() - refused.keys()]
    run = case.run(observe=allowed, times=TIMES[[0, frame]])
    for each in allowed:
        key = observables.name_of(each)
        error = np.max(np.abs(run.observables[key][-1] - wanted[key])) / max(1.0, np.max(np.abs(wanted[key])))
        # places that an observable jumps or is steep at make the most of what two runs differ by
        assert error < (30 if key == "blow_up_time" else 3) * max(1e-7, 10 * case.options["rtol"]), key
    for each in OBSERVED:
        if observables.name_of(each) in refused:
            with pytest.raises(ArgumentError, match=refused[observables.name_of(each)]):
                case.run(observe=[each])


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_noise_alone_is_heat_or_refused(name):
    """In flat space variances grow by 2Tt; on spheres ∫ x dμ falls by e^{−(d−1)Tt}; a set keeps its covariance."""
    case, temperature, time = system(name), 0.1, float(TIMES[-1])
    free = case.flow(drift=drifts.Linear(0.0), temperature=temperature)
    driven = isinstance(case.how, Particles | Characteristics)
    options: dict[str, Any] = {"step": 0.02, "rtol": None, "atol": None, "key": jax.random.key(5)} if driven else {}
    seen = [observables.centre, observables.covariance]
    if case.noise:
        with pytest.raises(ArgumentError, match=case.noise):
            case.run(flow=free, **options)
        return
    if isinstance(case.how, Particles):  # many of them, whose displacements have the law of Brownian motion
        cloud = np.random.default_rng(3).normal(size=(4000, 3))
        case = case._replace(starts=(case.space.given(np.ones(4000)).retract(cloud),) * 2)
    run = case.run(flow=free, observe=seen, **options)
    centres, spreads = (np.asarray(run.observables[each])[[0, -1]] for each in ("centre", "covariance"))
    allowed = 5e-3 if case.volumes is None or isinstance(case.how, FiniteVolumes) else 1e-8
    if case.space.name.startswith("set_norm"):
        assert np.max(np.abs(spreads[1] - spreads[0])) < allowed
    elif case.space.name == "euclidean":
        growth = 2 * temperature * time * np.eye(len(centres[0]))
        assert np.max(np.abs(spreads[1] - spreads[0] - growth)) < allowed
    else:
        points = np.asarray(run.points)
        fall = np.exp(-(points.shape[-1] - 1) * temperature * time)
        if isinstance(case.how, Particles):
            assert abs(np.mean(np.sum(points[0] * points[-1], axis=1)) - fall) < 0.02
        else:
            assert np.max(np.abs(centres[1] - fall * centres[0])) < allowed


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_explicit_layers_are_their_formula_or_refused(name):
    """x ← N(x + h v(x)), twice; of a Gaussian the affine field that its law has."""
    case, size = system(name), 0.1
    options: dict[str, Any] = {"step": size, "solver": "map", "rtol": None, "atol": None}
    if case.layers:
        with pytest.raises(ArgumentError, match=case.layers):
            case.run(**options)
        return
    run = case.run(times=np.array([0.0, size, 2 * size]), **options)
    points, some = np.asarray(run.points), WEIGHTS > 0
    here, weights = points[0][some], WEIGHTS[some]
    for found in points[1:]:
        here = case.space.given(weights).retract(here + size * moved(case, here, weights))
        assert np.max(np.abs(found[some] - here)) < 1e-12


def moved(case: Carried, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What a drift says, before a geometry makes it tangent."""
    free = case._replace(space=FLAT)
    return velocity(free, points, weights)
