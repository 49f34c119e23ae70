"""Particles that have come together are carried by one point: the same run, within the bound that its card states."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import flows_oracles as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, pdist
from shares import by_default

import particleflow as pf
from particleflow import drifts, events, geometry, kernels, observables, scenario
from particleflow.discretization.coalescing import _near_groups, bucket
from particleflow.errors import ArgumentError
from particleflow.integrate import compiled_frame
from particleflow.plan import make_plan

COUNT, EPSILON = 40, 1e-4
TIMES = np.linspace(0.0, 16.0, 17)
OPTIONS: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-10, "window": 2}
TRACED: list[int] = []


def watched(present: Any) -> Any:
    """log E, noting the size of the arrays that a program is made for."""
    TRACED.append(present.state.moving.shape[0])
    return observables.log_energy(present)


OBSERVED = [watched, observables.mean_similarity]


def cloud(seed: int, dimension: int) -> np.ndarray:
    """Three loose heaps, of which no two meet within the runs below."""
    rng = np.random.default_rng(seed)
    heaps = 3.0 * np.eye(3)[:, :dimension] if dimension == 3 else 3.0 * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    return heaps[np.arange(COUNT) % 3] + 0.4 * rng.normal(size=(COUNT, dimension))


ROUND = oracle.on_sphere(cloud(1, 3))
WEIGHTS = np.where(np.arange(COUNT) % 9 == 4, 0.0, 10.0 ** np.random.default_rng(2).uniform(-5, 0, COUNT))
SPHERE = pf.Flow(pf.Attend(kernels.Attention(beta=8.0)), geometry=pf.Sphere())
PLANE = pf.Flow(pf.MeanShift(kernels.Gaussian(0.7)))
HEAVY = pf.Measure.weighted(cloud(3, 2), WEIGHTS)


def weighted_field(beta: float, weights: np.ndarray, *, sphere: bool) -> oracle.Field:
    """P_x m(x) on the sphere, m(x) − x in the plane, both with weights w_j e^{−β|x_i − x_j|²/2}."""

    def field(time: float, points: np.ndarray) -> np.ndarray:
        points = oracle.on_sphere(points) if sphere else points
        shares = weights * np.exp(-0.5 * beta * cdist(points, points, "sqeuclidean"))
        means = shares @ points / shares.sum(axis=1, keepdims=True)
        return oracle.tangent(points, means) if sphere else means - points

    return field


def log_energy(points: np.ndarray, beta: float, weights: np.ndarray, *, sphere: bool) -> np.ndarray:
    """log (1/2β) ΣΣ w_i w_j K(x_i, x_j) of every frame."""
    products = [p @ p.T if sphere else -0.5 * cdist(p, p, "sqeuclidean") for p in points]
    return np.array([np.log(weights @ np.exp(beta * each) @ weights / (2 * beta)) for each in products])


EQUAL = np.full(COUNT, 1 / COUNT)
SYSTEMS = {
    "sphere": (SPHERE, ROUND, 8.0, EQUAL, True),
    "plane": (PLANE, HEAVY, 1 / 0.49, WEIGHTS, False),
    "weighted sphere": (SPHERE, pf.Measure.weighted(ROUND, WEIGHTS), 8.0, WEIGHTS, True),
    "uniform plane": (PLANE, cloud(3, 2), 1 / 0.49, EQUAL, False),
}


@pytest.mark.parametrize("name", by_default(SYSTEMS, ["sphere", "plane"]))
def test_a_run_stays_within_its_bound_and_shows_every_particle(name, tmp_path):
    flow, start, beta, weights, sphere = SYSTEMS[name]
    TRACED.clear()
    how = pf.Particles(coalesce=EPSILON)
    run = pf.simulate(flow, start, TIMES, **OPTIONS, discretization=how, observe=OBSERVED, store=tmp_path / "run.h5")
    said = run.metadata["statistics"]
    points = np.asarray(run.points)
    assert points.shape == (17, *np.shape(getattr(start, "points", start)))
    assert said["points left"] == oracle.cluster_count(points[-1], 1e-2)
    assert said["particles merged"] == COUNT - said["points left"] > COUNT // 2
    assert 0 < said["moved by merging"] < 10 * EPSILON
    assert "points left" in str(run)
    # One program for each of the few sizes, for which diffrax asks three times; before it the shape is looked at.
    assert set(TRACED) <= {40, 32, 16}
    assert len(TRACED) <= 3 + 3 * 3
    exact = oracle.solve(weighted_field(beta, weights, sphere=sphere), points[0], TIMES)
    exact = oracle.on_sphere(exact) if sphere else exact
    assert np.max(np.abs(points - exact)) < said["moved by merging"]
    bound, energy = said["log-energy bound of merging"], log_energy(exact, beta, weights, sphere=sphere)
    assert bound < 0.1
    assert np.max(np.abs(np.asarray(run.observables["watched"]) - energy)) < bound
    assert np.max(np.abs(log_energy(points, beta, weights, sphere=sphere) - energy)) < bound
    pairs = np.outer(weights, weights) * (1 - np.eye(COUNT))
    units = [p / np.linalg.norm(p, axis=1, keepdims=True) for p in points]
    similar = [np.sum(pairs * (u @ u.T)) / pairs.sum() for u in units]
    assert np.max(np.abs(np.asarray(run.observables["mean_similarity"]) - similar)) < 1e-12
    track = pf.analysis.track_clusters(run, threshold=1e-2)
    assert track.counts[-1] == said["points left"]


def run_and_die(path: str, merged: int) -> None:
    """Begin the run on the sphere, and be killed when so many particles have merged."""

    def die(frames: Any) -> None:
        if COUNT - int(frames.progress.state.carrying[0]) >= merged:
            os.kill(os.getpid(), signal.SIGKILL)

    resume = Path(path).exists()
    how = pf.Particles(coalesce=EPSILON)
    pf.simulate(SPHERE, ROUND, TIMES, **OPTIONS, discretization=how, store=path, progress=die, resume=resume)


@pytest.mark.parametrize("kills", by_default([(1,), (1, 30)], [(1,)]))
def test_a_killed_run_goes_on_bit_for_bit_across_merges(tmp_path, kills):
    path = tmp_path / "killed.h5"
    here = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_coalesce as t; "
    for merged in kills:
        code = here + f"t.run_and_die({str(path)!r}, {merged})"
        killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert killed.returncode == -9, killed.stderr
        assert pf.Trajectory.open(path).status == "killed"
    options: dict[str, Any] = {**OPTIONS, "discretization": pf.Particles(coalesce=EPSILON)}
    resumed = pf.simulate(SPHERE, ROUND, TIMES, **options, store=path, resume=True)
    whole = pf.simulate(SPHERE, ROUND, TIMES, **options)
    assert resumed.status == "finished"
    assert np.array_equal(np.asarray(resumed.points), np.asarray(whole.points))
    for name in ("points left", "moved by merging", "log-energy bound of merging", "field evaluations"):
        assert resumed.metadata["statistics"][name] == whole.metadata["statistics"][name]


class Pinned(drifts.AbstractDrift):
    """Every particle is pulled to a place of its own."""

    places: jax.Array

    def __call__(self, time: Any, queries: Any, measure: Any) -> Any:
        return self.places - queries.points


ATTEND = pf.Attend(kernels.Attention(2.0))
PAIRS = np.repeat(oracle.random_sphere(5, 4, 3), 2, axis=0)
REFUSED = {
    "positional": (pf.Flow(pf.Attend(kernels.Attention(2.0), positional=kernels.Causal())), PAIRS, "positions"),
    "inside": (pf.Flow(pf.Attend(kernels.Attention(2.0) * kernels.Window(2.0))), PAIRS, "by position or number"),
    "values": (pf.Flow(ATTEND), pf.Measure.uniform(PAIRS, values=PAIRS), "a value of its own"),
    "noise": (pf.Flow(ATTEND, temperature=0.1), PAIRS, "noise of its own"),
    "number": (pf.Flow(Pinned(jnp.asarray(PAIRS))), PAIRS, "by position or number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_particles_that_differ_do_not_become_one(name):
    flow, start, reason = REFUSED[name]
    how = pf.Particles(coalesce=EPSILON)
    steps = {"step": 0.1, "key": jax.random.key(0)} if name == "noise" else {"rtol": 1e-6, "atol": 1e-8}
    with pytest.raises(ArgumentError, match=f"cannot become one.*{reason}"):
        pf.simulate(flow, start, [0.0, 1.0], **steps, discretization=how)
    with pytest.raises(ArgumentError, match="cannot become one"):
        pf.simulate([flow, flow], start, [0.0, 1.0], **steps, discretization=how)


def test_other_refusals():
    how: dict[str, Any] = {"discretization": pf.Particles(coalesce=1e-3)}
    for wrong in (0.0, -1.0, float("nan"), True, "near"):
        with pytest.raises(ArgumentError, match="`coalesce` must be"):
            pf.Particles(coalesce=wrong)
    with pytest.raises(ArgumentError, match=r"distances of 0.0005, but particles within 0.001"):
        pf.simulate(SPHERE, ROUND, TIMES, **OPTIONS, **how, event=events.Clustered(5e-4))
    with pytest.raises(ArgumentError, match="`evolve` has not"):
        pf.evolve(SPHERE, ROUND, 1.0, rtol=1e-6, atol=1e-8, **how)


# One state, merged by hand, and what is said of it.


def merged(flow: pf.Flow, measure: Any, epsilon: float = EPSILON, layer: float | None = None) -> tuple[Any, Any]:
    """The presents of particles before and after they have merged."""
    how, time = pf.Particles(coalesce=epsilon), jnp.zeros(())
    state = jax.tree.map(np.asarray, how.begin(flow, measure))
    after = how.alike([how.between(flow, time, state, layer)])[0]
    return tuple(pf.Present(flow, how, time, jax.tree.map(jnp.asarray, each)) for each in (state, after))


def close(seed: int, spread: float, count: int = 36, places: int = 5) -> np.ndarray:
    """Points on the sphere in a few places, each scattered by `spread`."""
    rng = np.random.default_rng(seed)
    centres = oracle.random_sphere(seed, places, 3)
    return oracle.on_sphere(centres[np.arange(count) % places] + spread * rng.normal(size=(count, 3)))


def test_a_merge_adds_weights_at_the_mean():
    points, weights = close(4, 1e-6), np.random.default_rng(4).uniform(0.1, 1, 36)
    before, after = merged(SPHERE, pf.Measure.weighted(points, weights))
    assert int(after.state.carrying) == 5
    assert after.state.moving.shape == (16, 3)
    places = np.asarray(after.state.moving)[:5]
    for place in range(5):
        mine = np.arange(36) % 5 == place
        mean = oracle.on_sphere((weights[mine] @ points[mine])[None])[0]
        assert np.max(np.abs(places[place] - mean)) < 1e-15
        assert abs(np.exp(after.state.log_masses[place]) - weights[mine].sum()) < 1e-14
        shown = np.asarray(after.measure.points)[mine]
        assert np.max(np.abs(shown - mean)) < 1e-15
        assert np.array_equal(shown, np.tile(shown[0], (len(shown), 1)))
    assert np.array_equal(after.measure.log_weights, before.measure.log_weights)
    shift = np.max(np.linalg.norm(np.asarray(after.measure.points) - points, axis=1))
    assert abs(float(jnp.max(after.state.displacement)) - shift) < 1e-15
    assert (
        abs(float(after.state.log_energy_bound) / (2 * 8.0 * np.sqrt(3) * shift) - 1) < 1e-6
    )  # |DQ| of the identity: √d


def test_observables_and_events_do_not_see_the_difference():
    """On points that are equal, merging changes nothing at all that is measured."""
    points, weights = close(6, 0.0), np.where(np.arange(36) % 7 == 3, 0.0, 1.0 + np.arange(36) % 4)
    before, after = merged(SPHERE, pf.Measure.weighted(points, weights))
    assert int(after.state.carrying) == 5
    assert float(after.state.log_energy_bound) == 0
    everything = (
        observables.energy, observables.log_energy, observables.dissipation, observables.order_parameter,
        observables.centre, observables.covariance, observables.mean_similarity, observables.diameter,
        observables.speed, observables.effective_rank, observables.attention_entropy, observables.attention_rank,
        observables.SimilarityQuantiles(), observables.PairFraction(),
    )  # fmt: skip
    found = [compiled_frame(everything, present) for present in (before, after)]
    for name in found[0][1]:
        assert np.allclose(found[0][1][name], found[1][1][name], rtol=1e-12, atol=1e-12), name
    heavy = points[weights > 0]
    edges = np.sort(linkage(heavy, "single")[:, 2])
    for merges in (1, len(heavy) - 5, len(heavy) - 4, len(heavy) - 1):
        level = float(events.Merged(merges, 0.1).level(after))
        assert abs(level - (edges[merges - 1] - 0.1)) < 1e-12, merges
    assert np.isposinf(events.Merged(len(heavy), 0.1).level(after))
    assert abs(float(events.Clustered(0.1).level(after)) - (pdist(heavy).max() - 0.1)) < 1e-12


def test_those_that_part_or_differ_stay_apart():
    points = close(7, 1e-6)
    parting = pf.Flow(pf.Attend(kernels.Attention(8.0), value=-1.0), geometry=pf.Sphere())
    for flow, left in ((SPHERE, 5), (parting, 36)):
        assert int(merged(flow, pf.Measure.uniform(points))[1].state.carrying) == left
    # Of one direction, but of three norms: those of equal norm become one.
    stream = pf.Flow(ATTEND, geometry=geometry.PreNorm())
    norms = np.tile([1.0, 1.0, 2.0], 12)
    before, after = merged(stream, pf.Measure.uniform(close(8, 0.0)).with_fields({"residual_norm": norms}))
    assert int(after.state.carrying) == 10
    for name, rows in before.frame().items():
        assert np.max(np.abs(np.asarray(after.frame()[name] - rows))) < 1e-15
    # The frame z = e^{−t} x hides how far apart drifts see two particles.
    late, how = pf.Flow(ATTEND, geometry=geometry.Rescaled()), pf.Particles(coalesce=EPSILON)
    state = jax.tree.map(np.asarray, how.begin(late, pf.Measure.uniform(1e-6 * points[:8])))
    for time, left in ((0.0, 1), (5.0, 8)):
        assert int(how.between(late, jnp.asarray(time), state, None).carrying) == left
    # A layer that overshoots: x ← x + h(m − x) brings particles nearer for h < 2.
    shift = pf.Flow(pf.MeanShift(kernels.Gaussian(1.0)))
    pair = pf.Measure.uniform(np.array([[0.0, 0.0], [1e-6, 0.0], [9.0, 0.0]]))
    for size, left in ((1.5, 2), (2.5, 3)):
        assert int(merged(shift, pair, layer=size)[1].state.carrying) == left


@pytest.mark.parametrize("dimension", [1, 2, 9])
def test_groups_are_no_wider_than_epsilon(dimension):
    rng = np.random.default_rng(dimension)
    chain = np.linspace(0, 3, 40)[:, None] * np.eye(dimension)[:1]
    places = 10.0 * rng.integers(1, 9, (200, 1))
    heaps = places + rng.normal(size=(200, dimension)) * 10.0 ** rng.uniform(-8, 0, (200, 1))
    points = np.concatenate([heaps, heaps[:50], chain])
    groups = _near_groups(points, 0.1)
    for group in range(groups.max() + 1):
        assert cdist(points[groups == group], points[groups == group]).max() <= 0.1
    assert np.array_equal(groups[:50], groups[200:250])
    assert len(np.unique(groups)) < len(points) - 50  # more than the equal ones


def test_sizes_come_in_few():
    assert [bucket(count, 1000) for count in (1, 16, 17, 100, 512, 513, 1000)] == [16, 16, 32, 128, 512, 1000, 1000]
    assert bucket(3, 10) == 10


def test_an_ensemble_has_one_size_and_every_run_is_its_own():
    starts = np.stack([ROUND, oracle.random_sphere(9, COUNT, 3)])
    options: dict[str, Any] = {**OPTIONS, "discretization": pf.Particles(coalesce=EPSILON)}
    last: list[Any] = []
    flows = [SPHERE, pf.Flow(pf.Attend(kernels.Attention(beta=1.0)), geometry=pf.Sphere())]
    both = pf.simulate(flows, starts, TIMES, **options, event=events.Clustered(0.01), progress=last.append)
    state = last[-1].progress.state
    single = pf.simulate(SPHERE, ROUND, TIMES, **options)
    assert int(state.carrying[0]) == single.metadata["statistics"]["points left"]
    # The other run has met its event, and stands still with the points that it had.
    assert np.isfinite(last[-1].progress.ended[1])
    assert state.moving.shape[1] == bucket(int(state.carrying.max()), COUNT)
    assert np.max(np.abs(np.asarray(both.run(0).points) - np.asarray(single.points))) < 1e-9
    end = float(both.observables["event_time"][-1, 1])
    exact = oracle.solve(weighted_field(1.0, EQUAL, sphere=True), starts[1], [0.0, end])[-1]
    assert abs(pdist(oracle.on_sphere(exact)).max() - 0.01) < 1e-6


def test_an_event_is_not_stepped_over_by_a_merge():
    """Two particles that merging would bring within the event's distance of a third wait until they are seen there."""
    points = np.array([[-0.45, 0.0], [0.45, 0.0], [0.0, np.sqrt(2.0001**2 - 0.45**2)]]) * 1e-3
    flow = pf.Flow(drifts.Linear(-0.01))
    how = pf.Particles(coalesce=1e-3)
    event = events.Merged(2, 2e-3)
    times = np.concatenate([[0.0], 1e-3 + np.linspace(0.0, 1.0, 5)])
    run = pf.simulate(flow, points, times, rtol=1e-10, atol=1e-14, window=2, discretization=how, event=event)
    assert run.status == "stopped by event"
    assert abs(float(run.times[-1]) - np.log(2.0001 / 2.0) / 0.01) < 1e-6


def test_explicit_layers_in_single_precision():
    """x ← N(x + h m(x)), against the same in NumPy."""
    flow = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), SPHERE)
    how = pf.Particles(coalesce=1e-3)
    run = pf.simulate(
        flow, ROUND.astype(np.float32), TIMES, solver="map", step=0.5, window=8, discretization=how
    )  # fmt: skip
    exact = [ROUND]
    for _ in range(32):
        mean = oracle.attention_weights(exact[-1], 8.0, 1.0, 1.0) @ exact[-1]
        exact.append(oracle.on_sphere(exact[-1] + 0.5 * mean))
    said = run.metadata["statistics"]
    assert said["points left"] <= 8
    assert np.asarray(run.points).dtype == np.float32
    assert np.max(np.abs(np.asarray(run.points) - np.stack(exact)[::2])) < said["moved by merging"] < 3e-3


@pytest.mark.slow
def test_noise_that_all_share_does_not_part_them():
    flow = pf.Flow(SPHERE.drift, pf.Sphere(), common_temperature=0.02)
    options: dict[str, Any] = {"step": 0.05, "key": jax.random.key(3), "window": 4}
    every, few = (
        pf.simulate(flow, ROUND, TIMES, **options, discretization=how) for how in (None, pf.Particles(coalesce=EPSILON))
    )
    assert few.metadata["statistics"]["points left"] <= 8
    assert np.max(np.abs(np.asarray(every.points) - np.asarray(few.points))) < 10 * EPSILON


TOML = """
# Clusters become single particles.
initial = { kind = "uniform_sphere", dim = 2, count = 200 }
geometry = "sphere"
discretization = { kind = "particles", coalesce = 1e-9 }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 30.0 }
[time]
end = 1e12
frames = 60
spacing = "log"
first = 0.1
[record]
observables = ["energy"]
"""


def test_a_scenario_says_it(tmp_path):
    path = tmp_path / "long.toml"
    path.write_text(TOML, encoding="utf-8")
    setup = scenario.load(path).build()
    assert repr(setup.arguments["discretization"]) == "Particles(coalesce=1e-09)"
    plan = make_plan(setup.flow, setup.start, setup.times, **setup.arguments)
    assert plan.choices["solver"] == "kvaerno5"
    plan = make_plan(setup.flow, np.tile(setup.start.points, (4, 1)), setup.times, **setup.arguments)
    assert plan.choices["solver"] == "tsit5, kvaerno5 for the last 32 points"
    assert plan.window == 4


@pytest.mark.slow
def test_a_long_run_with_all_its_products(tmp_path):
    path = tmp_path / "long.toml"
    path.write_text(TOML, encoding="utf-8")
    run = pf.run(path, set={"initial.count": 800}, output=tmp_path / "run", movie=False)
    said = run.metadata["statistics"]
    assert run.status == "finished"
    assert said["points left"] < 8
    assert said["field evaluations"] < 20_000  # explicit steps alone would take 10¹² of them
    assert np.all(np.diff(np.asarray(run.observables["energy"])) > -1e-9 * run.observables["energy"][-1])
    assert {each.name for each in (tmp_path / "run").iterdir()} >= {"summary.json", "figures", "viewer.html"}
    again = pf.Trajectory.open(tmp_path / "run")
    assert np.array_equal(np.asarray(again.points), np.asarray(run.points))
    assert oracle.cluster_count(np.asarray(run.points[-1]), 1e-3) == said["points left"]
