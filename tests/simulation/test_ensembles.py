"""Ensembles: every run is its single run, a sweep compiles once, and one run's end does not disturb the others."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, events, kernels, observables
from particleflow.errors import ShapeError
from particleflow.simulation import ensemble

BETAS = [0.5, 2.0, 6.0]
STARTS = np.stack([oracle.random_sphere(seed, 6, 3) for seed in range(3)])
TIMES = np.linspace(0.0, 2.0, 5)
TOLERANCES: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11, "solver": "tsit5"}
LAYERS: dict[str, Any] = {"step": 0.5, "solver": "map"}


def sphere_flow(beta):
    return pf.Flow(pf.Attend(kernels.Attention(beta=beta)), geometry=pf.Sphere())


@pytest.mark.slow
def test_each_run_is_its_single_run():
    flows = [sphere_flow(beta) for beta in BETAS]
    both = pf.simulate(flows, STARTS, TIMES, **TOLERANCES, observe=[observables.energy, observables.centre])
    assert both.points.shape == (5, 3, 6, 3)
    assert both.runs == 3
    assert both.observables["energy"].shape == (5, 3)
    assert both.observables["centre"].shape == (5, 3, 3)
    for run, beta in enumerate(BETAS):
        field = oracle.attention_field(beta, sphere=True)
        expected = oracle.on_sphere(oracle.solve(field, STARTS[run], TIMES))
        assert np.max(np.abs(both.run(run).points - expected)) < 1e-7
        single = pf.simulate(sphere_flow(beta), STARTS[run], TIMES, **TOLERANCES)
        assert np.max(np.abs(np.asarray(both.run(run).points) - single.points)) < 1e-10
        energy = [np.mean(np.exp(beta * p @ p.T)) / (2 * beta) for p in both.run(run).points]
        assert np.max(np.abs(np.asarray(both.observables["energy"])[:, run] - energy)) < 1e-10 * np.max(energy)
    assert oracle.norm_error(both.points) < 1e-9


@pytest.mark.slow
def test_many_flows_from_one_start_and_one_flow_from_many_starts():
    flows = pf.simulate([sphere_flow(beta) for beta in BETAS], STARTS[0], TIMES, **TOLERANCES)
    starts = pf.simulate(sphere_flow(2.0), STARTS, TIMES, **TOLERANCES)
    assert np.max(np.abs(np.asarray(flows.run(1).points) - starts.run(0).points)) < 1e-10


@pytest.mark.slow
def test_a_vmapped_flow_is_an_ensemble():
    observe = [observables.energy, observables.centre]  # the program of the test above
    listed = pf.simulate([sphere_flow(beta) for beta in BETAS], STARTS, TIMES, **TOLERANCES, observe=observe)
    mapped = pf.simulate(eqx.filter_vmap(sphere_flow)(np.array(BETAS)), STARTS, TIMES, **TOLERANCES, observe=observe)
    assert np.array_equal(listed.points, mapped.points)
    with pytest.raises(ShapeError, match="2 flows, but 3 starts"):
        pf.simulate(eqx.filter_vmap(sphere_flow)(np.array(BETAS[:2])), STARTS, TIMES, **TOLERANCES)


@pytest.mark.slow
def test_a_vmapped_flow_in_single_precision():
    double = pf.simulate([sphere_flow(beta) for beta in BETAS], STARTS, TIMES, **TOLERANCES)
    flows, starts = eqx.filter_vmap(sphere_flow)(np.array(BETAS, np.float32)), STARTS.astype(np.float32)
    mapped = pf.simulate(flows, starts, TIMES, rtol=1e-5, atol=1e-6)
    assert mapped.points.dtype == np.float32
    assert np.max(np.abs(np.asarray(mapped.points) - double.points)) < 1e-3


@pytest.mark.slow
def test_groups_of_runs_change_no_bit(monkeypatch):
    """Seven runs as one batch, and as groups of two, the last one filled up."""
    betas, starts = np.linspace(0.5, 6.0, 7), np.stack([oracle.random_sphere(seed, 6, 3) for seed in range(7)])

    def run():
        flows = [sphere_flow(beta) for beta in betas]
        return pf.simulate(flows, starts, TIMES, **TOLERANCES, observe=[observables.energy], window=2)

    whole = run()
    monkeypatch.setattr(ensemble, "_GROUP_BYTES", 2 * 6 * 6 * 8)
    grouped = run()
    assert np.array_equal(whole.points, grouped.points)
    assert np.array_equal(whole.observables["energy"], grouped.observables["energy"])
    assert whole.metadata["statistics"]["accepted steps"] == grouped.metadata["statistics"]["accepted steps"]


@pytest.mark.parametrize("runs", ["together", pytest.param("one by one", marks=pytest.mark.slow)])
def test_a_sweep_of_beta_compiles_once(runs):
    traces = []

    class Noting(kernels.AbstractMatrixKernel):
        inner: kernels.Attention

        def log_matrix(self, xs, ys):
            traces.append(1)
            return self.inner.log_matrix(xs, ys)

    def flow(beta):
        return pf.Flow(pf.Attend(Noting(kernels.Attention(beta=beta))), geometry=pf.Sphere())

    def count_of(simulate):
        traces.clear()
        simulate()
        return len(traces)

    def sweep(betas):
        if runs == "together":
            return [count_of(lambda: pf.simulate([flow(beta) for beta in betas], STARTS, TIMES, **LAYERS))]
        return [count_of(lambda b=b: pf.simulate(flow(b), STARTS[0], TIMES, **LAYERS)) for b in betas]

    first, *others = [*sweep(BETAS), *sweep([1.0, 3.0, 9.0])]
    assert first > 1
    assert set(others) == {0}  # nothing is traced again


@pytest.mark.slow
def test_windows_and_time_lists_share_a_compilation():
    """Seven frames in windows of three, then other times: neither the short last window nor they compile again."""
    traces = []

    def noting(flow, time, measure):
        traces.append(1)
        return time

    def count_of(times):
        traces.clear()
        pf.simulate(sphere_flow(2.0), STARTS[0], times, **TOLERANCES, observe=[noting], window=3)
        return len(traces)

    one_window = count_of(np.linspace(0, 1, 3))
    assert one_window > 1
    assert count_of(np.linspace(0, 2, 7)) == 1
    assert count_of(np.geomspace(1, 9, 11)) == 1


@pytest.mark.slow
def test_a_run_that_meets_its_event_stands_still():
    event = events.Clustered(0.5)
    times = np.linspace(0.0, 8.0, 17)
    both = pf.simulate([sphere_flow(beta) for beta in BETAS], STARTS, times, **TOLERANCES, event=event, window=4)
    assert len(both) == 17
    for run, beta in enumerate(BETAS):
        single = pf.simulate(sphere_flow(beta), STARTS[run], times, **TOLERANCES, event=event, window=4)
        points = np.asarray(both.run(run).points)
        before = len(single) - 1 if single.status == "stopped by event" else len(single)
        assert np.max(np.abs(points[:before] - single.points[:before])) < 1e-9
        since = np.asarray(both.run(run).observables["event_time"])
        assert np.isnan(since[:before]).all()
        if single.status == "stopped by event":
            assert np.max(np.abs(points[before:] - single.points[-1])) < 1e-7
            assert np.max(np.abs(since[before:] - single.times[-1])) < 1e-8
    assert oracle.norm_error(both.points) < 1e-9


@pytest.mark.slow
def test_a_run_that_blows_up_leaves_the_others_alone():
    """ẋ = e^{x²} x from 0.5 blows up at 0.522; from 0.1 it does not until 2.02."""
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=1.0), normalization="none"))
    times = np.linspace(0.0, 1.0, 9)
    starts = np.array([[[0.5]], [[0.1]]])
    both = pf.simulate(flow, starts, times, **TOLERANCES, window=2)
    lost, kept = (np.asarray(both.run(run).points)[:, 0, 0] for run in (0, 1))
    assert np.isfinite(lost[times < 0.522]).all()
    assert np.isnan(lost[times > 0.523]).all()
    field = oracle.attention_field(1.0, normalization="none")
    assert np.max(np.abs(kept - oracle.solve(field, starts[1], times)[:, 0, 0])) < 1e-7
    expected = oracle.solve(field, starts[0], times[times < 0.522])[:, 0, 0]
    assert np.max(np.abs(lost[times < 0.522] / expected - 1)) < 1e-6


@pytest.mark.slow
def test_the_ensemble_tells_which_run_failed_and_when():
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=1.0), normalization="none"))
    both = pf.simulate(flow, np.array([[[0.5]], [[0.1]]]), np.linspace(0.0, 1.0, 9), **TOLERANCES, window=2)
    assert "run 0" in str(both.metadata["message"])
    assert "0.52" in str(both.metadata["message"])


@pytest.mark.slow
def test_noise_of_an_ensemble_is_independent_and_reproducible():
    flow = pf.Flow(drifts.Linear(-1.0), temperature=0.5)
    key = jax.random.key(3)
    starts = np.zeros((2, 3000, 1))
    one, two = (pf.simulate(flow, starts, [0.0, 1.0], step=0.1, key=key) for _ in range(2))
    assert (np.asarray(one.points) == np.asarray(two.points)).all()
    last = one.points[-1][:, :, 0]
    assert abs(np.corrcoef(last)[0, 1]) < 4.5 / np.sqrt(3000)
    single = pf.simulate(flow, starts[1], [0.0, 1.0], step=0.1, key=jax.random.split(key, 2)[1])
    assert np.max(np.abs(single.points[-1][:, 0] - last[1])) < 1e-12


@pytest.mark.slow
def test_temperatures_may_differ_between_runs():
    """A quiet first run does not silence the second."""
    flows = [pf.Flow(drifts.Linear(-1.0), temperature=temperature) for temperature in (0.0, 0.5)]
    run = pf.simulate(flows, np.ones((3000, 1)), [0.0, 1.0], step=0.05, key=jax.random.key(3))
    assert run.points[-1][0].std() < 1e-12
    assert abs(run.points[-1][1].var() / (0.5 * (1 - np.exp(-2.0))) - 1) < 0.15


def test_every_radius_of_an_ensemble_is_checked():
    import pytest

    from particleflow.errors import ArgumentError

    flows = [pf.Flow(drifts.Linear(0.0), geometry=pf.Sphere(radius)) for radius in (1.0, 2.0)]
    with pytest.raises(ArgumentError, match="is off it by"):
        pf.simulate(flows, STARTS[0], TIMES, **TOLERANCES)
