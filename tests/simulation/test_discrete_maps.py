"""Discrete maps: hard, soft and layered MeanShift, the residual transformer step, against plain NumPy loops."""

from typing import Any

import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, geometry, kernels
from shares import by_default

_RNG = np.random.default_rng(51)
START = _RNG.normal(size=(8, 3))
DATA = _RNG.normal(size=(11, 3))


def local_mean(queries, data, width):
    weights = np.exp(-np.sum((queries[:, None] - data[None]) ** 2, axis=2) / (2 * width**2))
    return weights @ data / weights.sum(axis=1, keepdims=True)


def layers(flow, start, count, step=1.0):
    return np.asarray(pf.simulate(flow, start, step * np.arange(count + 1), step=step, solver="map").points)


@pytest.mark.slow
def test_hard_mean_shift_is_the_local_mean():
    flow = pf.Flow(pf.MeanShift(kernels.Gaussian(0.7), data=pf.Measure.uniform(DATA)))
    expected = START
    for found in layers(flow, START, 4)[1:]:
        expected = local_mean(expected, DATA, 0.7)
        assert np.max(np.abs(found - expected)) < 1e-13


@pytest.mark.parametrize("alpha", by_default([0.3, 1.0], [0.3]))
def test_blurring_mean_shift_hard_and_soft(alpha):
    expected = START
    for found in layers(pf.Flow(pf.MeanShift(kernels.Gaussian(0.7))), START, 4, alpha)[1:]:
        expected = expected + alpha * (local_mean(expected, expected, 0.7) - expected)
        assert np.max(np.abs(found - expected)) < 1e-13


@pytest.mark.slow
def test_hierarchy_of_different_layers():
    """m^(3): three maps of different widths, one after the other; the last one stays."""
    widths = [1.5, 0.9, 0.4]
    shifts = [pf.MeanShift(kernels.Gaussian(width), data=pf.Measure.uniform(DATA)) for width in widths]
    found = layers(pf.Flow(drifts.Layers(shifts)), START, 4)
    expected = START
    for layer, width in enumerate([*widths, 0.4]):
        expected = local_mean(expected, DATA, width)
        assert np.max(np.abs(found[layer + 1] - expected)) < 1e-13


def layer_norm(points, gain: Any = 1.0, bias: Any = 0.0):
    centred = points - points.mean(axis=1, keepdims=True)
    return gain * centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True)) + bias


@pytest.mark.slow
def test_post_norm_transformer_layers():
    """x ← LN(x + attention(LN affine of x) + feed-forward(the same)), one step a layer."""
    gain, bias = _RNG.uniform(0.5, 1.5, 3), _RNG.normal(size=3)
    query, key, value, output = _RNG.normal(size=(4, 3, 3))
    weight, offset, back = _RNG.normal(size=(5, 3)), _RNG.normal(size=5), _RNG.normal(size=(3, 5))
    attend = pf.Attend(kernels.Attention(beta=3**-0.5, query=query, key=key), value=value, output=output)
    flow = pf.Flow([attend, pf.FeedForward(weight, offset, back, activation="relu")], pf.LayerNorm(gain, bias))
    start = layer_norm(START)
    expected = start
    for found in layers(flow, start, 3)[1:]:
        seen = layer_norm(expected, gain, bias)
        attention = oracle.attention_weights(seen, 3**-0.5, query, key) @ seen @ value.T @ output.T
        expected = layer_norm(expected + attention + np.maximum(seen @ weight.T + offset, 0) @ back.T)
        assert np.max(np.abs(found - expected)) < 1e-12


@pytest.mark.slow
def test_pre_norm_transformer_layers():
    """y ← y + attention(y/|y|); what is saved is the direction."""
    start = oracle.on_sphere(START)
    found = layers(pf.Flow(pf.Attend(kernels.Attention(beta=2.0)), geometry.PreNorm()), start, 5)
    stream = start
    for frame in found[1:]:
        seen = oracle.on_sphere(stream)
        stream = stream + oracle.attention_weights(seen, 2.0, 1.0, 1.0) @ seen
        assert np.max(np.abs(frame - oracle.on_sphere(stream))) < 1e-13


@pytest.mark.slow
def test_sphere_and_ngpt_layers():
    start = oracle.on_sphere(START)
    attend = pf.Attend(kernels.Attention(beta=2.0))
    sphere, ngpt = (layers(pf.Flow(attend, where), start, 2, 0.5) for where in (pf.Sphere(), geometry.Ngpt(0.8)))
    pulls = oracle.attention_weights(start, 2.0, 1.0, 1.0) @ start
    assert np.max(np.abs(sphere[1] - oracle.on_sphere(start + 0.5 * pulls))) < 1e-14
    assert np.max(np.abs(ngpt[1] - oracle.on_sphere(start + 0.4 * oracle.on_sphere(pulls)))) < 1e-14
    assert oracle.norm_error(sphere) < 1e-9


@pytest.mark.slow
def test_windows_do_not_change_a_map():
    flow = pf.Flow(pf.MeanShift(kernels.Gaussian(0.7)))
    times = 0.1 * np.arange(9)
    runs = [pf.simulate(flow, START, times, step=0.1, solver="map", window=window) for window in (2, 9)]
    assert (np.asarray(runs[0].points) == np.asarray(runs[1].points)).all()
    sparse = pf.simulate(flow, START, times[::4], step=0.1, solver="map", window=2)
    assert (np.asarray(sparse.points) == np.asarray(runs[1].points)[::4]).all()
    assert runs[0].metadata["statistics"]["field evaluations"] == 8


@pytest.mark.slow  # by default `app/test_threshold` ends a map by an event
@pytest.mark.parametrize("every", [1, 4])
def test_an_event_ends_a_map_with_the_layer_that_has_crossed(every):
    """x ← x/2 from a diameter of 1: 1, 1/2, 1/4; there is no layer with 0.3."""
    flow, start = pf.Flow(pf.drifts.Linear(-1.0)), np.array([[0.5], [-0.5]])
    times = 0.5 * np.arange(0, 9, every)
    event = pf.events.Clustered(0.3)
    run = pf.simulate(flow, start, times, step=0.5, solver="map", event=event, observe=[pf.observables.diameter])
    assert run.status == "stopped by event"
    assert run.times[-1] == 1.0
    np.testing.assert_array_equal(np.asarray(run.points)[-1], start / 4)
    assert run.observables["diameter"][-1] == 0.25
    assert len(run) == (3 if every == 1 else 2)
