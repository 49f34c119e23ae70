"""Sums within a tolerance: what is chosen, looked at, passed over and told, by approximations whose error is known."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow.simulation.summation_choice import Summed, joined, told
from particleflow.summation import Auto, Dense, auto
from particleflow.summation.base import Choice
from particleflow.summation.candidates import Approximation
from particleflow.summation.moments import Moments

TIMES = np.linspace(0.0, 2.0, 9)
SLOW = pytest.mark.slow
SETTINGS: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-10, "window": 2, "solver": "tsit5"}


class Planted(Approximation):
    """The exact moments, off by `error` where the particles are closer than `close` to their mean, else by nothing."""

    error: float = eqx.field(static=True)
    close: float = eqx.field(static=True)
    promised: float = eqx.field(static=True)
    what: str = eqx.field(static=True, default="mean")

    def summed(self, prepared, values=None):
        exact, measure = Dense().summed(prepared, values), prepared.measure
        spread = jnp.max(jnp.abs(measure.points - jnp.mean(measure.points, axis=0, keepdims=True)))
        off = jnp.where(spread < self.close, self.error, 0.0).astype(exact.mean.dtype)
        if self.what == "mean":
            return Moments(exact.log_mass, exact.mean + off)
        return Moments(exact.log_mass + off, exact.mean)

    def cost_bounds(self, prepared, limits):
        yield 0.0

    def promise(self, prepared, limits):
        if limits.tolerance is None or self.promised > limits.tolerance:
            return None
        return Choice(self, "planted", error=self.promised, cost=self.promised)


def flow(tolerance: Any = 1e-6, normalization: Any = "row", wrapped: Any = lambda drift: drift):
    drift = pf.Attend(pf.kernels.Attention(2.0), normalization=normalization, summation=Auto(tolerance=tolerance))
    return pf.Flow(wrapped(drift), geometry=pf.Sphere())


@pytest.fixture(scope="module")
def start():
    return pf.geometry.retracted(pf.Sphere(), jax.random.normal(jax.random.key(3), (20, 3)) + 1.0)


@pytest.fixture
def candidates(monkeypatch):
    """Puts approximations in the place of those that there are."""
    return lambda *planted: monkeypatch.setattr(auto, "_approximations", lambda: planted)


def exact_run(start, **others) -> Any:
    return pf.simulate(flow(tolerance=None, **others), start, TIMES, **SETTINGS)


@pytest.mark.parametrize("normalization", ["row", *(pytest.param(name, marks=SLOW) for name in ("none", "sinkhorn"))])
@pytest.mark.slow
def test_a_method_that_keeps_its_promise_stays_to_the_end(normalization, start, candidates):
    """An error of 1e-7 in the mean shows in the points, and is told: 1e-7 / max |z|."""
    candidates(Planted(1e-7, 10.0, 1.2e-7))
    run = pf.simulate(flow(normalization=normalization), start, TIMES, **SETTINGS)
    said = run.metadata["statistics"]["chosen summation"]
    assert said.startswith("Planted: planted; with an error of at most 1.2e-07")
    assert "from t" not in said
    assert 0.99e-7 < float(said.split("at most ")[-1].split(" seen")[0]) < 2e-7
    away = np.max(np.abs(run.points[-1] - exact_run(start, normalization=normalization).points[-1]))
    assert 0.0 < away < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "wrapped"),
    [
        ("mean", lambda drift: drift),  # the program of a run that is interrupted, below
        pytest.param("log-mass", lambda drift: drift, marks=SLOW),
        pytest.param("mean", lambda drift: 0.5 * drift + 0.5 * drift, marks=SLOW),
        pytest.param("mean", lambda drift: pf.drifts.Block([drift]), marks=SLOW),
    ],
)
def test_one_that_breaks_its_promise_on_the_way_is_passed_over_for_the_next(what, wrapped, start, candidates):
    """The particles gather, so the first method goes wrong at some time; that window is solved again, exactly."""
    candidates(Planted(1e-2, 0.5, 1e-7, what))
    run = pf.simulate(flow(wrapped=wrapped), start, TIMES, **SETTINGS)
    said = run.metadata["statistics"]["chosen summation"]
    assert said.startswith("Planted")
    assert "; from t = " in said
    assert np.max(np.abs(np.asarray(run.points) - exact_run(start, wrapped=wrapped).points)) < 1e-6


@pytest.mark.slow
def test_the_next_method_is_the_next_in_cost_and_may_be_an_approximation(start, candidates):
    candidates(Planted(1e-7, 0.5, 2e-7), Planted(1e-2, 0.5, 1e-7))
    run = pf.simulate(flow(), start, TIMES, **SETTINGS)
    said = run.metadata["statistics"]["chosen summation"]
    assert said.count("Planted") == 1  # the same kind of method with another setting is the same method
    assert 0.99e-7 < float(said.split("at most ")[-1].split(" seen")[0]) < 2e-7


@pytest.mark.slow
def test_one_that_is_wrong_from_the_start_is_never_used(start, candidates):
    candidates(Planted(1e-2, 10.0, 1e-7))
    run = pf.simulate(flow(), start, TIMES, **SETTINGS)
    assert not run.metadata["statistics"]["chosen summation"].startswith("Planted")
    np.testing.assert_array_equal(run.points, exact_run(start).points)


@pytest.mark.slow
def test_what_promises_too_little_or_is_not_asked_for_is_not_used(start, candidates):
    candidates(Planted(1e-7, 10.0, 1e-5))
    for tolerance in (1e-6, None):
        run = pf.simulate(flow(tolerance), start, TIMES, **SETTINGS)
        np.testing.assert_array_equal(run.points, exact_run(start).points)
        assert "Planted" not in run.metadata["statistics"]["chosen summation"]


@pytest.mark.slow
def test_sinkhorn_asks_for_eight_times_less(start, candidates):
    candidates(Planted(1e-7, 10.0, 2e-7))
    said = {}
    for normalization in ("row", "sinkhorn"):
        run = pf.simulate(flow(normalization=normalization), start, TIMES[:3], **SETTINGS)
        said[normalization] = run.metadata["statistics"]["chosen summation"]
    assert said["row"].startswith("Planted")
    assert not said["sinkhorn"].startswith("Planted")


@pytest.mark.parametrize("close", [10.0, pytest.param(0.5, marks=SLOW)], ids=["at once", "on the way"])
def test_nan_is_no_kept_promise(close, start, candidates):
    candidates(Planted(np.nan, close, 1e-7))
    run = pf.simulate(flow(), start, TIMES, **SETTINGS)
    assert run.status == "finished"
    assert np.max(np.abs(np.asarray(run.points) - exact_run(start).points)) < 1e-6


@pytest.mark.slow
def test_a_schedule_is_looked_at_with_the_number_of_its_time(start, candidates):
    candidates(Planted(1e-7, 10.0, 1.2e-7))
    ramp = pf.drifts.Ramp(1.0, 4.0, end=2.0)
    run = pf.simulate(
        flow(wrapped=lambda drift: pf.drifts.Varying(drift, ramp, "kernel.beta")), start, TIMES, **SETTINGS
    )
    assert run.metadata["statistics"]["chosen summation"].startswith("Planted")


@pytest.mark.slow
def test_all_runs_of_an_ensemble_are_summed_exactly_and_the_card_says_so(start, candidates):
    candidates(Planted(1e-7, 10.0, 1e-7))
    starts = jnp.stack([start, start[::-1]])
    run = pf.simulate(flow(), starts, TIMES, **SETTINGS)
    np.testing.assert_array_equal(run.points, pf.simulate(flow(None), starts, TIMES, **SETTINGS).points)
    assert run.metadata["statistics"]["chosen summation"].endswith("all runs of an ensemble are summed exactly")


@pytest.mark.slow
def test_a_run_that_is_interrupted_makes_the_same_choices_when_it_goes_on(start, candidates, tmp_path):
    candidates(Planted(1e-2, 0.5, 1e-7))
    whole = pf.simulate(flow(), start, TIMES, **SETTINGS, store=tmp_path / "whole.h5")
    for cut in (1, 3):
        path = tmp_path / f"cut{cut}.h5"
        with pytest.raises(KeyboardInterrupt):
            pf.simulate(flow(), start, TIMES, **SETTINGS, store=path, progress=_stopping_after(cut))
        again = pf.simulate(flow(), start, TIMES, **SETTINGS, store=path, resume=True)
        np.testing.assert_array_equal(again.points[:], whole.points[:])
        assert again.metadata["statistics"]["chosen summation"] == whole.metadata["statistics"]["chosen summation"]


def _stopping_after(windows):
    seen = []

    def stop(*_):
        seen.append(1)
        if len(seen) == windows:
            raise KeyboardInterrupt

    return stop


def test_history_joins_windows_of_one_method():
    first = Summed(0.0, "A", "why", 1e-9)
    history = joined(joined((), first), Summed(1.0, "A", "why", 3e-9))
    assert history == (Summed(0.0, "A", "why", 3e-9),)
    assert joined(history, None) == history
    history = joined(history, Summed(2.0, "B", "else", 0.0))
    assert told(history) == "A: why; at most 3e-09 seen on samples; from t = 2 on B: else"


WITH = {
    "noise": ({"temperature": 0.01}, {}, {"step": 0.05, "key": jax.random.key(1)}, "Spectral"),
    "coalesce": ({}, {}, {"rtol": 1e-6, "atol": 1e-8, "discretization": pf.Particles(coalesce=1e-4)}, "Spectral"),
    "event": ({}, {}, {"rtol": 1e-6, "atol": 1e-8, "event": pf.events.Clustered(0.5)}, "Spectral"),
    "causal": ({}, {"positional": pf.kernels.Causal()}, {"rtol": 1e-6, "atol": 1e-8}, "Native"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH)
def test_real_methods_with_everything_else_a_run_has(name):
    """3,000 particles on the circle: within the tolerance of the exact run, by a method that knows the kernel."""
    noise, positions, settings, method = WITH[name]
    points = pf.initial.UniformSphere(dim=2).sample(jax.random.key(0), 3000)
    ends: list[Any] = []
    for tolerance in (1e-5, None):
        drift = pf.Attend(pf.kernels.Attention(9.0), summation=Auto(tolerance=tolerance), **positions)
        run = pf.simulate(pf.Flow(drift, geometry=pf.Sphere(), **noise), points, [0.0, 0.1, 0.2], **settings)
        ends.append((np.asarray(run.points[-1]), run.metadata["statistics"]["chosen summation"]))
    assert ends[0][1].startswith(method)
    assert np.max(np.abs(ends[0][0] - ends[1][0])) < 1e-5


class Bidder(Approximation):
    """Costs at least `least`, at a glance at least `likely`, and in the end `cost`; notes what was looked at."""

    name: str = eqx.field(static=True)
    least: float = eqx.field(static=True)
    likely: float = eqx.field(static=True)
    cost: float = eqx.field(static=True)
    asked: Any = eqx.field(static=True)

    def summed(self, prepared, values=None):
        return Dense().summed(prepared, values)

    def cost_bounds(self, prepared, limits):
        yield self.least
        self.asked.append(f"glance at {self.name}")
        yield self.likely

    def promise(self, prepared, limits):
        self.asked.append(self.name)
        return None if np.isinf(self.cost) else Choice(self, self.name, error=1e-9, cost=self.cost)


def test_no_promise_is_sought_of_a_sum_that_seems_to_cost_more_than_another(start, candidates):
    asked: list[str] = []
    candidates(
        Bidder("a", 4, 4, 40, asked), Bidder("b", 5, 30, 35, asked), Bidder("c", 6, 50, 60, asked),
        Bidder("d", 45, 45, 45, asked), Bidder("none", 1, 1, np.inf, asked),
    )  # fmt: skip
    measure = pf.Measure.uniform(start)
    choices = Auto(tolerance=1e-6).choices(pf.kernels.Attention(2.0), measure, measure)
    first = ["glance at none", "none", "glance at a", "a", "glance at b", "glance at c", "b"]
    for name, then in {"b": first, "a": [], "d": ["glance at d", "d"], "c": ["c"]}.items():
        asked.clear()
        assert next(choices).reason.startswith(name)
        assert asked == then
    assert next(choices).error == 0  # the exact sum is the last
    assert next(choices, None) is None


def test_while_a_program_is_recorded_no_promise_is_sought(start, candidates):
    """Also not for points that are known there: what was asked would be part of the program."""
    asked: list[str] = []
    candidates(Bidder("a", 1, 1, 1, asked))
    measure = pf.Measure.uniform(start)
    jax.eval_shape(lambda: Auto(tolerance=1e-6).moments(pf.kernels.Gaussian(0.3), measure, measure))
    assert asked == []


@pytest.mark.slow
def test_mean_shift_in_the_plane_within_a_tolerance():
    """Five blobs of 3,000 particles, every real method asked: within the tolerance of the exact run."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, size=(5, 2))[rng.integers(0, 5, 3000)] + 0.3 * rng.normal(size=(3000, 2))
    ends: list[Any] = []
    for tolerance in (1e-5, None):
        flow = pf.Flow(pf.MeanShift(pf.kernels.Gaussian(0.3), summation=Auto(tolerance=tolerance)))
        run = pf.simulate(flow, points, [0.0, 0.2, 0.4], rtol=1e-6, atol=1e-8)
        ends.append((np.asarray(run.points[-1]), run.metadata["statistics"]["chosen summation"]))
    assert ends[0][1].startswith("Spectral")
    assert np.max(np.abs(ends[0][0] - ends[1][0])) < 1e-5
