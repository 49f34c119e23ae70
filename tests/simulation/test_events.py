"""Events are located to 1e-8 against independent answers; a blow-up keeps every frame before it."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform
from scipy.special import exp1

import flows_oracles as oracle
import particleflow as pf
from particleflow import events, kernels, observables
from particleflow.errors import RunError
from shares import by_default

BETA = 2.0
SPHERE = pf.Flow(pf.Attend(kernels.Attention(beta=BETA)), geometry=pf.Sphere())
PAIR = oracle.circle(np.array([0.3, 1.8]))
TIGHT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-13}


def chord(angle):
    return 2 * np.sin(angle / 2)


@pytest.mark.slow
def test_clustered_is_located():
    run = pf.simulate(SPHERE, PAIR, [0.0, 0.5, 20.0], **TIGHT, event=events.Clustered(chord(0.01)))
    assert run.status == "stopped by event"
    assert run.metadata["message"].startswith("all particles are within")
    assert abs(run.times[-1] - oracle.two_particle_time(BETA, 1.5, 0.01)) < 1e-8
    assert abs(np.linalg.norm(run.points[-1, 0] - run.points[-1, 1]) - chord(0.01)) < 1e-10
    assert run.times[:2].tolist() == [0.0, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize("window", [7, pytest.param(2, marks=pytest.mark.slow)])
def test_location_does_not_depend_on_windows(window):
    times = np.linspace(0.0, 20.0, 15)
    run = pf.simulate(SPHERE, PAIR, times, **TIGHT, event=events.Clustered(chord(0.01)), window=window)
    exact = oracle.two_particle_time(BETA, 1.5, 0.01)
    assert abs(run.times[-1] - exact) < 1e-8
    assert len(run) == np.sum(times < exact) + 1


def spanning_tree_edges(points):
    return np.sort(minimum_spanning_tree(squareform(pdist(points))).data)


@pytest.mark.slow
def test_spanning_edges_against_scipy():
    points = np.random.default_rng(3).normal(size=(23, 3))
    found = np.sort(np.asarray(events.spanning_edges(pf.Measure.uniform(points))))
    assert np.max(np.abs(found - spanning_tree_edges(points))) < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("merges", [1, 4])
def test_kth_merge_is_located(merges):
    start, distance = oracle.random_sphere(8, 6, 3), 0.05
    run = pf.simulate(SPHERE, start, [0.0, 50.0], **TIGHT, event=events.Merged(merges, distance))
    field = oracle.attention_field(BETA, sphere=True)

    end = run.times[-1]
    around = oracle.on_sphere(oracle.solve(field, start, [0.0, end - 1e-8, end + 1e-8]))
    before, after = (spanning_tree_edges(points)[merges - 1] for points in around[1:])
    assert run.status == "stopped by event"
    assert before > distance > after
    assert run.metadata["message"].startswith(f"merge number {merges}")


@pytest.mark.slow
def test_energy_level_is_located():
    """Equiangular tokens: E = (e^β + (n−1) e^{βρ})/(2βn), so the level gives ρ and ρ gives the time."""
    count, rho = 16, 0.6
    level = (np.exp(BETA) + (count - 1) * np.exp(BETA * rho)) / (2 * BETA * count)
    run = pf.simulate(SPHERE, oracle.equiangular(count), [0.0, 20.0], **TIGHT, event=events.EnergyReached(level))
    assert abs(run.times[-1] - oracle.equiangular_time(BETA, count, rho)) < 1e-8
    assert run.metadata["message"].startswith("the energy reached")


@pytest.mark.slow
def test_an_event_that_does_not_happen_lets_the_run_end():
    run = pf.simulate(SPHERE, PAIR, [0.0, 0.5, 1.0], **TIGHT, event=events.Clustered(chord(0.01)))
    assert run.status == "finished"
    assert run.times.tolist() == [0.0, 0.5, 1.0]


def test_an_event_that_has_already_happened_stops_at_once():
    run = pf.simulate(SPHERE, PAIR, [0.0, 0.5, 20.0], **TIGHT, event=events.Clustered(chord(1.6)))
    assert run.status == "stopped by event"
    assert run.times.tolist() == [0.0]
    assert np.max(np.abs(run.points[0] - PAIR)) < 1e-15


SELF = pf.Flow(pf.Attend(kernels.Attention(beta=1.0), normalization="none"))
BLOW_UP = 0.5 * exp1(0.25)  # ẋ = e^{x²} x from 0.5


@pytest.mark.slow
def test_blow_up_is_named_and_keeps_the_frames_before():
    times = np.linspace(0.0, 1.0, 41)
    frames = []
    windows = pf.stream(SELF, [[0.5]], times, rtol=1e-9, atol=1e-11, window=4)
    with pytest.raises(RunError, match=r"blew up at t = 0\.52\d+, particle 0: .* All frames before are kept") as caught:
        frames.extend(windows)
    named = float(str(caught.value).split("t = ")[1].split(",")[0])
    assert abs(named - BLOW_UP) < 1e-6
    saved = np.concatenate([window.times for window in frames])
    points = np.concatenate([window.points for window in frames])[:, 0, 0]
    assert saved.tolist() == times[times < BLOW_UP].tolist()
    for time, point in zip(saved, points, strict=True):
        assert abs(0.5 * (exp1(0.25) - exp1(point**2)) - time) < 1e-8
    assert frames[-1].progress.status == "failed"


@pytest.mark.slow
def test_blow_up_names_the_particle_that_runs_away():
    """Two heads-down particles and one far out: the far one goes first."""
    start = np.array([[0.1], [-0.2], [1.6]])
    with pytest.raises(RunError, match="particle 2"):
        pf.simulate(SELF, start, np.linspace(0.0, 10.0, 21), rtol=1e-8, atol=1e-10)


def test_blow_up_of_a_stored_run_keeps_its_frames(tmp_path):
    times = np.linspace(0.0, 1.0, 41)
    with pytest.raises(RunError, match="blew up"):
        pf.simulate(SELF, [[0.5]], times, rtol=1e-9, atol=1e-11, window=4, store=tmp_path / "run.h5")
    with pf.Trajectory.open(tmp_path / "run.h5") as run:
        assert run.status == "failed"
        assert run.times.tolist() == times[times < BLOW_UP].tolist()
        assert "blew up at t = 0.52" in run.metadata["message"]


def test_blow_up_in_memory_hands_over_the_frames():
    times = np.linspace(0.0, 1.0, 41)
    with pytest.raises(RunError, match="blew up") as caught:
        pf.simulate(SELF, [[0.5]], times, rtol=1e-9, atol=1e-11, window=4)
    kept = caught.value.trajectory
    assert kept is not None
    assert kept.times.tolist() == times[times < BLOW_UP].tolist()
    assert kept.status == "failed"
    assert abs(kept.metadata["statistics"]["end time"] - BLOW_UP) < 1e-6


@pytest.mark.parametrize("solver", by_default(["tsit5", "dopri5", "dopri8", "kvaerno5"], ["tsit5"]))
@pytest.mark.parametrize("window", by_default([1, 2, 4], [2]))
def test_no_step_to_a_state_that_is_not_finite_is_accepted(solver, window):
    """A step that overflows is repeated, shorter, until none is short enough, in windows of any length."""
    with pytest.raises(RunError, match=r"blew up at t = 0\.52\d+, .* and no step is small enough") as caught:
        pf.simulate(SELF, [[0.5]], np.linspace(0.0, 1.0, 9), rtol=1e-9, atol=1e-11, solver=solver, window=window)
    assert caught.value.trajectory is not None
    assert abs(caught.value.trajectory.metadata["statistics"]["end time"] - BLOW_UP) < 1e-6


@pytest.mark.slow
def test_reached_takes_any_observable():
    event = events.Reached(observables.diameter, chord(0.01))
    run = pf.simulate(SPHERE, PAIR, [0.0, 0.5, 20.0], **TIGHT, event=event)
    assert abs(run.times[-1] - oracle.two_particle_time(BETA, 1.5, 0.01)) < 1e-8
    assert run.metadata["message"].startswith("diameter reached")
