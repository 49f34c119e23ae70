"""Segments with a memory against NumPy on the whole sequence, under the masks that they stand for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import drifts, geometry, kernels
from particleflow.errors import ArgumentError
from particleflow.transformer import Architecture, in_segments, random_transformer, visible

COUNT, WIDTH, DEPTH, SEGMENT, SLOPE = 12, 4, 3, 4, 0.3
RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(COUNT, WIDTH))
MATRICES = 0.6 * RNG.normal(size=(DEPTH, 4, WIDTH, WIDTH))
LAGS = np.subtract.outer(np.arange(COUNT), np.arange(COUNT))
LAG_KEY = 0.6 * RNG.normal(size=(WIDTH, 6))
CONTENT_BIAS, LAG_BIAS = RNG.normal(size=(2, WIDTH))


def plain(query: np.ndarray, key: np.ndarray) -> kernels.AbstractKernel:
    """The attention of a layer, without positions."""
    return kernels.Attention(1.0, query, key)


def network(positional: kernels.AbstractKernel, attention: Any = plain) -> pf.Flow:
    """Pre-norm layers of attention with a kernel of positions, then a feed-forward layer."""
    norm = geometry.ResidualStream(geometry.LayerNorm(epsilon=1e-5))
    blocks = [
        drifts.Block(
            [
                pf.Attend(attention(query, key), value, positional=positional, summation=pf.Dense()),
                drifts.FeedForward(weight),
            ],
            [norm, norm],
        )
        for query, key, value, weight in MATRICES
    ]
    return pf.Flow(drifts.Layers(blocks), norm)


def falling(seen: np.ndarray, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Scores with linear biases."""
    return (seen @ query.T) @ (seen @ key.T).T - SLOPE * np.abs(LAGS)


def by_hand(points: np.ndarray, mask: np.ndarray, score: Any = falling) -> list[np.ndarray]:
    """The whole sequence through all layers, attention where the mask is 1."""
    states = [points]

    def norm(x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)

    for query, key, value, weight in MATRICES:
        x = states[-1]
        seen = norm(x)
        scores = np.where(mask > 0, score(seen, query, key), -np.inf)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        x = x + shares / shares.sum(axis=1, keepdims=True) @ seen @ value.T
        states.append(x + np.tanh(norm(x) @ weight.T))
    return states


def relative(query: np.ndarray, key: np.ndarray) -> kernels.AbstractKernel:
    """The attention of a layer of Transformer-XL."""
    return kernels.RelativeAttention(1.0, query, key, LAG_KEY, CONTENT_BIAS, LAG_BIAS)


def of_contents_and_lags(seen: np.ndarray, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """(q_i + u)·k_j + (q_i + v)·W r_{i − j}, with r of every pair written out."""
    queries, waves = seen @ query.T, np.empty((COUNT, COUNT, 6))
    for wave in range(3):
        angles = LAGS / 10000 ** (2 * wave / 6)
        waves[..., 2 * wave], waves[..., 2 * wave + 1] = np.sin(angles), np.cos(angles)
    contents = (queries + CONTENT_BIAS) @ (seen @ key.T).T
    return contents + np.einsum("ik,kp,ijp->ij", queries + LAG_BIAS, LAG_KEY, waves)


def reach(segment: int, memory: int) -> np.ndarray:
    """j ≤ i, and j not before the memory of the segment of i."""
    token = np.arange(COUNT)
    return (token <= token[:, None]) & (token >= (token // segment * segment)[:, None] - memory)


MEASURE = pf.Measure.uniform(POINTS, positions=np.arange(float(COUNT)))
CAUSAL = kernels.Causal() * kernels.Alibi(SLOPE)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0, 4, 6])
def test_segments_are_the_whole_sequence_under_their_mask(memory):
    mask = reach(SEGMENT, memory)
    np.testing.assert_array_equal(visible(COUNT, SEGMENT, memory), mask)
    found = in_segments(network(CAUSAL), MEASURE, DEPTH, SEGMENT, memory)
    for ours, theirs in zip(found, by_hand(POINTS, mask), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0, 4, 6])
def test_segments_of_transformer_xl(memory):
    """Scores of the lag and a memory together: the whole sequence under the mask, its scores pair by pair."""
    found = in_segments(network(kernels.Causal(), relative), MEASURE, DEPTH, SEGMENT, memory)
    theirs = by_hand(POINTS, reach(SEGMENT, memory), of_contents_and_lags)
    for ours, expected in zip(found, theirs, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-12)


@pytest.mark.slow
def test_under_a_window_segments_are_the_sliding_window():
    """A window that reaches back `memory` places sees the same tokens in whatever segment it stands."""
    window = kernels.Window(SEGMENT + 0.5)
    flow = network(CAUSAL * window)
    theirs = by_hand(POINTS, (LAGS >= 0) & (LAGS <= SEGMENT))
    whole = pf.simulate(flow, MEASURE, np.arange(DEPTH + 1.0), solver="map", step=1.0)
    for segment in (SEGMENT, 3, COUNT):
        found = in_segments(flow, MEASURE, DEPTH, segment, memory=SEGMENT)
        for layer in range(DEPTH + 1):
            np.testing.assert_allclose(found[layer], theirs[layer], atol=1e-12)
            np.testing.assert_allclose(found[layer], whole.points[layer], atol=1e-12)


@pytest.mark.slow
def test_the_context_grows_with_depth():
    """Token 11, with memory 4: after one layer it depends on 4 … 11, after two on all."""
    flow = network(CAUSAL)
    begun = in_segments(flow, MEASURE, DEPTH, SEGMENT)
    for token in range(COUNT):
        moved = POINTS.copy()
        moved[token] += 0.1 * RNG.normal(size=WIDTH)
        after = in_segments(flow, MEASURE.with_points(jnp.asarray(moved)), DEPTH, SEGMENT)
        for layer, oldest in ((1, 4), (2, 0)):
            change = np.max(np.abs(np.asarray(after[layer][-1] - begun[layer][-1])))
            assert change > 1e-9 if token >= oldest else change == 0


@pytest.mark.slow
def test_no_gradient_enters_the_memory():
    flow = network(CAUSAL)

    def last(points: Any) -> Any:
        return jnp.sum(in_segments(flow, MEASURE.with_points(points), DEPTH, SEGMENT)[-1][-1])

    slope = np.asarray(jax.grad(last)(jnp.asarray(POINTS)))
    assert (slope[:8] == 0).all()
    assert (np.abs(slope[8:]).max(axis=1) > 1e-6).all()


@pytest.mark.slow
def test_a_transformer_in_one_segment_is_itself():
    """And with all of the past as its memory, whatever the segments, as decoders cache keys and values."""
    model = random_transformer(jax.random.key(3), Architecture(8, 3, 2, vocabulary=20, causal=True))
    ids = np.random.default_rng(1).integers(20, size=11)
    whole = model.stream(ids)
    for segment, memory in ((11, 0), (4, 11), (1, 11)):
        found = in_segments(model.flow, model.measure(ids), 3, segment, memory)
        for ours, theirs in zip(found, whole, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_tokens_without_positions_are_refused():
    with pytest.raises(ArgumentError, match="positions"):
        in_segments(network(CAUSAL), pf.Measure.uniform(POINTS), DEPTH, SEGMENT)
    with pytest.raises(ArgumentError, match="segment"):
        in_segments(network(CAUSAL), MEASURE, DEPTH, 0)
