"""Networks in one file come back bit for bit; any flow as a network; attention of other kinds against brute force."""

from typing import Any

import jax
import numpy as np
import pytest

import particleflow as pf
from particleflow import kernels as k
from particleflow._support.text import kind_of
from particleflow.errors import ArgumentError
from particleflow.transformer import (
    Architecture,
    Embedding,
    TokenFlow,
    Transformer,
    Unembedding,
    in_precision,
    load_network,
    random_classifier,
    random_transformer,
    save_network,
)
from particleflow.transformer.scenario_kinds import AbstractNetwork
from transformer_oracles import softmax

SHAPE = Architecture(4, 1, 2, 5, 3, "learned", 6, precision="float32")


def moved(network: Any) -> Any:
    """The network with other numbers, as training leaves it."""
    return jax.tree_util.tree_map(lambda leaf: leaf + 0.25 if leaf.ndim and not leaf.weak_type else leaf, network)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [None, 2])
def test_a_network_comes_back_bit_for_bit(labels, tmp_path):
    key = jax.random.key(3)
    begun = random_transformer(key, SHAPE) if labels is None else random_classifier(key, SHAPE, labels)
    path = save_network(moved(begun), tmp_path / "n.npz", SHAPE, 3, symbols="xyz", labels=labels, about="a test")
    saved = load_network(path)
    assert (saved.symbols, saved.about) == (("x", "y", "z"), "a test")
    for expected, found in ((moved(begun), saved.model), (begun, load_network(path, trained=False).model)):
        assert jax.tree_util.tree_structure(expected) == jax.tree_util.tree_structure(found)
        for one, other in zip(*map(jax.tree_util.tree_leaves, (expected, found)), strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
    assert saved.ids("zxx").tolist() == [2, 0, 0]
    with pytest.raises(ArgumentError, match="'q' is none"):
        saved.ids("xq")
    with pytest.raises(ArgumentError, match="other arrays"):
        save_network(moved(begun), tmp_path / "n.npz", SHAPE._replace(hidden=6), 3, labels=labels)
    for damaged in (path.read_bytes()[:-9], b"", path.read_bytes().replace(b"__sha256__", b"__sha255__")):
        (tmp_path / "damaged.npz").write_bytes(damaged)
        with pytest.raises(ArgumentError, match="holds no network"):
            load_network(tmp_path / "damaged.npz")
    with pytest.raises(ArgumentError, match="no file"):
        load_network(tmp_path / "none.npz")


@pytest.mark.slow
def test_a_token_flow_of_the_layers_of_a_transformer_is_the_transformer():
    network = random_transformer(jax.random.key(0), SHAPE._replace(depth=2, precision="float64"))
    assert isinstance(network, Transformer)
    same = TokenFlow(network.embedding, network.flow, 2, network.head, final_norm=network.final_norm)
    np.testing.assert_allclose(same.logits([0, 2, 1, 1]), network.logits([0, 2, 1, 1]), atol=1e-12)
    for one, other in zip(same.stream([0, 2]), network.stream([0, 2]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.slow
def test_a_token_flow_is_steps_of_its_flow():
    rng = np.random.default_rng(0)
    table, value = rng.normal(size=(3, 2)), rng.normal(size=(2, 2))
    flow = pf.Flow(pf.Attend(k.Attention(1.5), value=value))
    model = TokenFlow(Embedding(table), flow, 3, Unembedding(table), step=0.5)
    points = table[[0, 1, 1, 2]]
    for _ in range(3):
        points = points + 0.5 * softmax(1.5 * points @ points.T) @ points @ value.T
    np.testing.assert_allclose(model.hidden_states([0, 1, 1, 2])[-1], points, atol=1e-12)
    np.testing.assert_allclose(model.logits([0, 1, 1, 2]), points @ table.T, atol=1e-12)
    with pytest.raises(ArgumentError, match="noise"):
        TokenFlow(Embedding(table), pf.Flow(flow.drift, temperature=0.1), 3, Unembedding(table))


def elu_plus_one(u: np.ndarray) -> np.ndarray:
    return np.where(u > 0, u + 1, np.exp(np.minimum(u, 0)))


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["linearised", "near_and_far"])
def test_attention_of_other_kinds_is_brute_force(kind, causal):
    shape = SHAPE._replace(attention=kind, causal=causal, radius=2.0, precision=None, placement="pre")
    drift: Any = random_transformer(jax.random.key(1), shape).layers[0].attention
    rng = np.random.default_rng(2)
    x = rng.normal(size=(6, 4))
    lags = np.arange(6.0)[:, None] - np.arange(6.0)[None]
    seen = (lags >= 0) if causal else np.ones((6, 6), bool)

    def heads(drift: Any, weigh: Any) -> np.ndarray:
        total = np.zeros_like(x)
        for head in drift.each:
            queries, keys = (x @ np.asarray(each).T for each in (head.kernel.query, head.kernel.key))
            weights = weigh(queries, keys)
            weights = weights / weights.sum(axis=1, keepdims=True)
            total += weights @ (x @ np.asarray(head.value).T) @ np.asarray(head.output).T
        return total

    def far(sign: float) -> Any:
        return lambda q, key: np.where(seen, elu_plus_one(sign * q) @ elu_plus_one(sign * key).T, 0.0)

    if kind == "linearised":
        expected = heads(drift, far(1.0))
    else:
        band = seen & (np.abs(lags) < 2)
        expected = heads(drift.drifts[0], lambda q, key: np.where(band, np.exp(q @ key.T / np.sqrt(2)), 0.0))
        expected = expected + sum(
            heads(each, far(sign)) for each, sign in zip(drift.drifts[1].drifts, (1, -1), strict=True)
        )
    measure = pf.Measure.uniform(x, positions=np.arange(6.0))
    np.testing.assert_allclose(drift(0.0, measure.sites, measure), expected, atol=1e-12)


def test_what_is_no_architecture_is_a_sentence():
    with pytest.raises(ArgumentError, match="attention"):
        random_transformer(jax.random.key(0), SHAPE._replace(attention="hard"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="precision"):
        in_precision(np.ones(2), "float16")


def test_every_kind_of_network_is_one_to_those_who_read_its_run():
    """A trajectory tells by the kind of its drift that time counts layers and that directions count."""
    kinds = [kind_of(each) for each in AbstractNetwork.__subclasses__()]
    assert {"trained_layers", "random_layers", "saved_layers"} <= set(kinds)
    for kind in kinds:
        metadata = {"drift": kind, "solver": "map", "step": 1.0}
        facts = pf.Trajectory.from_arrays([0.0, 1.0], np.ones((2, 3, 4)), metadata=metadata).facts
        assert facts.is_network
        assert facts.time_unit == "layer"
