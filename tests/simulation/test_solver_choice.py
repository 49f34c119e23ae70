"""The solver of a window of a long run: explicit while its steps are few, implicit where they would be many."""

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts
from particleflow.simulation.plan import Stepping, make_plan

COUNT, FAST = 40, 3.0
TIMES = np.array([0.0, 2.0, 4.0, 10.0, 2e4])
START = np.random.default_rng(2).uniform(0.5, 1.5, (COUNT, 1))
TOLERANCES: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8}


def chased(time: Any, points: Any, measure: Any) -> Any:
    """ẋ = 3 (s − x) with s = t/1000: stiff, for the solution moves on for ever."""
    return FAST * (1e-3 * time - points)


FLOW = pf.Flow(drifts.FunctionDrift(chased))


def exact(times: np.ndarray) -> np.ndarray:
    """x(t) = s(t) − 10⁻³/3 + (x₀ + 10⁻³/3) e^{−3t}."""
    lag = 1e-3 / FAST
    return 1e-3 * times[:, None, None] - lag + (START + lag) * np.exp(-FAST * times)[:, None, None]


def run(**options: Any) -> pf.Trajectory:
    return pf.simulate(FLOW, START, TIMES, **TOLERANCES, **options)


@pytest.fixture(scope="module")
def whole() -> pf.Trajectory:
    return run()


@pytest.mark.slow
def test_stiff_windows_go_to_the_implicit_solver_and_others_do_not(whole):
    """With steps of at most 1.2, explicit ones would be 17,000; the window before the last takes a few."""
    found = whole.metadata["statistics"]
    assert found["chosen solver"].startswith("tsit5 in 2 windows, kvaerno5 in 1 window: ")
    assert found["accepted steps"] < 200
    budget = 10 * len(TIMES)  # steps that the explicit solver may try
    assert budget <= found["rejected steps"] < budget + 30
    assert np.max(np.abs(whole.points - exact(TIMES)) / np.maximum(1, exact(TIMES))) < 5e-6


@pytest.mark.slow
def test_a_run_stopped_before_or_after_the_switch_is_resumed_bit_for_bit(tmp_path, whole):
    for windows in (1, 2):
        seen: list[int] = []

        def stop(frames: Any, seen: list[int] = seen, windows: int = windows) -> None:
            seen.append(frames.progress.frames)
            if len(seen) == windows:
                raise KeyboardInterrupt

        path = tmp_path / f"{windows}.h5"
        with pytest.raises(KeyboardInterrupt):
            run(store=path, progress=stop)
        with run(store=path, resume=True) as resumed:
            assert (np.asarray(resumed.points) == np.asarray(whole.points)).all()
            ours, theirs = (each.metadata["statistics"] for each in (resumed, whole))
            names = ("accepted steps", "rejected steps", "field evaluations", "chosen solver")
            assert [ours[name] for name in names] == [theirs[name] for name in names]


@pytest.mark.slow
def test_a_solver_that_is_named_is_kept():
    found = run(solver="tsit5").metadata["statistics"]
    assert found["accepted steps"] > 10_000
    assert found["chosen solver"] == "tsit5"


@pytest.mark.parametrize(
    ("count", "dimension", "end", "runs", "expected"),
    [
        (32, 2, 2e4, None, "kvaerno5"),  # few points: implicit from the start
        (33, 2, 2e4, None, "tsit5, kvaerno5 in windows of many steps"),
        (512, 2, 2e4, None, "tsit5, kvaerno5 in windows of many steps"),
        (513, 2, 2e4, None, "tsit5"),  # Newton's matrices would be too large
        (33, 2, 1e4, None, "tsit5"),
        (33, 2, 2e4, 2, "kvaerno5"),  # an ensemble takes one solver for all runs
        (513, 2, 2e4, 2, "tsit5"),
    ],
)
def test_the_plan_says_which_solvers_may_run(count, dimension, end, runs, expected):
    points = np.resize(oracle.random_sphere(1, 7, dimension), (count, dimension))
    start = points if runs is None else np.stack([points] * runs)
    plan = make_plan(pf.Flow(drifts.Linear(-1.0)), start, [0.0, end], Stepping(**TOLERANCES))
    assert plan.choices["solver"] == expected
    named = make_plan(pf.Flow(drifts.Linear(-1.0)), start, [0.0, end], Stepping(**TOLERANCES, solver="dopri8"))
    assert named.choices["solver"] == "dopri8"
    assert named.late_method is None


@pytest.mark.slow
def test_a_staircase_that_coalesces_takes_explicit_steps_first_and_few_in_all():
    """200 points on the circle until four clusters are left: the merges are those of dopri8 at a tight tolerance."""
    angles = np.random.default_rng(4).uniform(0, 2 * np.pi, 200)
    flow = pf.Flow(pf.Attend(pf.kernels.Attention(16.0)), pf.Sphere())
    times = np.concatenate([[0.0], np.geomspace(0.01, 1e5, 150)])
    options: dict[str, Any] = {"discretization": pf.Particles(coalesce=1e-9)}
    found = pf.simulate(flow, oracle.circle(angles), times, rtol=1e-7, atol=1e-9, **options)
    tight = pf.simulate(flow, oracle.circle(angles), times, rtol=1e-10, atol=1e-12, solver="dopri8", **options)
    assert found.metadata["statistics"]["chosen solver"].startswith("tsit5 in ")
    assert found.metadata["statistics"]["field evaluations"] < 20_000
    assert found.metadata["statistics"]["points left"] == tight.metadata["statistics"]["points left"]
    assert np.max(np.abs(found.points[-1] - tight.points[-1])) < 1e-4


@pytest.mark.slow
def test_clusters_that_have_formed_do_not_hold_up_a_run_without_coalescing():
    """Three clusters of tokens, coincident to rounding, up to t = 10⁸: SciPy agrees on three weighted points."""
    beta, centres, sizes = 16.0, np.array([0.0, 1.15, 3.4]), np.array([30, 20, 14])
    angles = np.repeat(centres, sizes) + 0.3 * np.random.default_rng(1).uniform(-1, 1, sizes.sum())
    flow = pf.Flow(pf.Attend(pf.kernels.Attention(beta)), pf.Sphere())
    times = np.concatenate([[0.0], np.geomspace(1.0, 1e8, 100)])
    found = pf.simulate(flow, oracle.circle(angles), times, rtol=1e-7, atol=1e-9)
    said = found.metadata["statistics"]
    assert "kvaerno5 in" in said["chosen solver"]
    assert said["accepted steps"] < 10_000  # explicit steps alone would be 3·10⁷
    begin = 30  # by then each cluster is one point
    turned = np.arctan2(*np.moveaxis(np.asarray(found.points), -1, 0)[::-1])[begin:]
    firsts = np.cumsum(sizes) - sizes
    shares = sizes / sizes.sum()

    def rate(_: float, at: np.ndarray) -> np.ndarray:
        apart = at[None] - at[:, None]
        pull = shares * np.exp(beta * (np.cos(apart) - 1))
        return (pull * np.sin(apart)).sum(1) / pull.sum(1)

    span = (times[begin], times[-1])
    exact = solve_ivp(rate, span, turned[0, firsts], method="Radau", rtol=1e-10, atol=1e-12, t_eval=times[begin:])
    off = turned - np.repeat(exact.y.T, sizes, axis=1)
    assert np.max(np.abs(np.angle(np.exp(1j * off)))) < 1e-5
    assert oracle.cluster_count(np.asarray(found.points[begin]), 1e-2) == 3
    assert oracle.cluster_count(np.asarray(found.points[-1]), 1e-2) == 2
