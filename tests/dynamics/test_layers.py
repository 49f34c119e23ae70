"""Layers in time and blocks of sub-layers: which one acts when, how often they are traced, and their formulas."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, geometry, kernels
from particleflow.errors import ArgumentError
from shares import by_default

TOLERANCES: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}


@pytest.mark.parametrize("duration", by_default([0.3, 0.1, 0.7], [0.3]))
@pytest.mark.parametrize("dtype", by_default([np.float32, np.float64], [np.float32]))
def test_layers_change_on_time(duration, dtype):
    layers = drifts.Layers([drifts.Linear(float(k)) for k in range(60)], duration)
    one = pf.Measure.uniform(jnp.ones((1, 1), dtype))
    moved = eqx.filter_jit(layers)
    for k in range(60):
        for time in (dtype(duration * k), dtype(k) * dtype(duration), dtype(np.round(duration * k, 6))):
            assert float(moved(time, one.sites, one)[0, 0]) == k, (k, time)
        assert float(moved(dtype(duration * (k + 0.99)), one.sites, one)[0, 0]) == k


@pytest.mark.slow
def test_adaptive_steps_end_where_layers_change():
    """Twelve layers of an adaptive run are twelve runs one after the other, at the tolerance of a smooth field."""
    rng = np.random.default_rng(4)
    heads = [pf.Attend(kernels.Attention(beta=b), value=rng.normal(size=(3, 3))) for b in rng.uniform(1, 6, 12)]
    start = oracle.random_sphere(3, 6, 3)
    now = pf.Measure.uniform(start)
    for head in heads:
        now = pf.evolve(pf.Flow(head, geometry=pf.Sphere()), now, 0.3, rtol=1e-12, atol=1e-13)
    for solver in ("tsit5", "kvaerno5"):
        layers = pf.Flow(drifts.Layers(heads, 0.3), geometry=pf.Sphere())
        run = pf.simulate(layers, start, np.linspace(0, 3.6, 4), **TOLERANCES, solver=solver)
        assert np.max(np.abs(np.asarray(run.points)[-1] - np.asarray(now.points))) < 1e-7, solver
        if solver == "tsit5":  # a step across a jump is rejected a dozen times; a step that ends there, now and then
            assert run.metadata["statistics"]["rejected steps"] <= 3 * len(heads)


@pytest.mark.slow
def test_one_layer_is_its_drift():
    """It never gives way to another: adaptive steps have nothing to end at."""
    start, times = np.ones((2, 1)), np.linspace(0.0, 1.0, 3)
    run = pf.simulate(pf.Flow(drifts.Layers([drifts.Linear(-1.0)])), start, times, **TOLERANCES)
    np.testing.assert_allclose(run.points[:, 0, 0], np.exp(-times), rtol=1e-8)


@pytest.mark.slow
def test_twelve_layers_are_traced_like_two_and_computed_one_at_a_time():
    traces, evaluations = [], []

    class Noting(kernels.AbstractMatrixKernel):
        inner: kernels.Attention

        def log_matrix(self, xs, ys):
            traces.append(1)
            jax.debug.callback(lambda: evaluations.append(1))
            return self.inner.log_matrix(xs, ys)

    def run(count, *, runs=None):
        traces.clear(), evaluations.clear()
        layers = drifts.Layers([pf.Attend(Noting(kernels.Attention(beta=1.0 + k))) for k in range(count)], 0.25)
        flow, start = pf.Flow(layers, geometry=pf.Sphere()), oracle.random_sphere(3, 5, 3)
        flows = flow if runs is None else [flow] * runs
        made = pf.simulate(flows, start, [0.0, 0.5], step=0.25, solver="map")
        jax.effects_barrier()
        return len(traces), len(evaluations), made.metadata["statistics"]["field evaluations"]

    two, twelve = run(2), run(12)
    assert twelve[0] == two[0]
    assert twelve[1] == two[1]
    # Three runs of two layers each: one evaluation a run and step, whichever layer it is in.
    together = run(12, runs=3)
    assert together[2] == 6
    assert together[1] <= 3 * twelve[1]


@pytest.mark.slow
def test_a_block_is_its_parts_one_after_the_other():
    start = np.random.default_rng(1).normal(size=(5, 4))
    gain, bias = np.array([1.2, 0.7, 1.0, 0.9]), np.array([0.1, 0.0, -0.2, 0.3])
    layer = drifts.FeedForward.random(jax.random.key(0), 4, 8, "gelu_exact")
    heads = pf.Attend(kernels.Attention(beta=0.7))

    def norm(x):
        centred = x - x.mean(axis=1, keepdims=True)
        return gain * centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) + bias

    def attended(x):
        return oracle.attention_weights(x, 0.7, 1.0, 1.0) @ x

    def fed(x):
        return np.asarray(layer(0.0, pf.Sites(jnp.asarray(x)), pf.Measure.uniform(x)))

    space = geometry.LayerNorm(gain, bias, 1e-5)
    cases = {
        "post": (geometry.PostNorm(space), lambda x: norm(norm(x + attended(x)) + fed(norm(x + attended(x))))),
        "pre": (geometry.PreNorm(space), lambda x: (y := x + attended(norm(x))) + fed(norm(y))),
        "peri": (geometry.PeriNorm(space), lambda x: (y := x + norm(attended(norm(x)))) + norm(fed(norm(y)))),
    }
    for name, (where, formula) in cases.items():
        flow = pf.Flow(drifts.Block([heads, layer], [where, where]), geometry=pf.Euclidean())
        run = pf.simulate(flow, start, [0.0, 1.0], step=1.0, solver="map")
        assert np.max(np.abs(np.asarray(run.points)[-1] - formula(start))) < 1e-13, name
    with pytest.raises(ArgumentError, match="a map without a limit in depth"):
        pf.simulate(pf.Flow(heads, geometry=geometry.PostNorm(space)), start, [0.0, 1.0], **TOLERANCES)
    with pytest.raises(ArgumentError, match="block cannot be added"):
        drifts.Block([heads, layer]) + heads


def test_blocks_act_one_after_the_other_or_not_at_all():
    """A blend, and layers of several structures, apply their drifts at once, on the geometry of the flow."""
    head, layer = pf.Attend(kernels.Attention()), drifts.Linear(-1.0)
    placed = drifts.Block([head], [geometry.PreNorm()])
    for block in (drifts.Block([head, layer]), placed):
        with pytest.raises(ArgumentError, match="block cannot be added"):
            drifts.Blend([block, layer], [1.0, 2.0])
    with pytest.raises(ArgumentError, match="layers that are blocks"):
        drifts.Layers([placed, layer])
    assert len(drifts.Layers([placed, placed]).stages(0.0)) == 1
