"""The transformer against stored numbers of transformers + torch, and against the same formulas in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
import transformer_oracles as oracle
from particleflow import drifts, kernels
from particleflow.errors import ArgumentError, ShapeError
from particleflow.measure import Sites
from particleflow.transformer import (
    Architecture,
    Embedding,
    Unembedding,
    load,
    random_encoder_decoder,
    random_transformer,
)
from shares import by_default

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")
KINDS = ["bert", "distilbert", "gpt2"]
_RNG = np.random.default_rng(16)


@pytest.fixture(scope="module")
def networks():
    return {kind: load(oracle.FOLDER / kind) for kind in KINDS}


@pytest.fixture(scope="module")
def decoder():
    return random_transformer(jax.random.key(3), Architecture(8, 2, 2, 11, 13, causal=True))


def off(found, expected):
    return float(np.max(np.abs(np.asarray(found) - np.asarray(expected))))


@pytest.mark.slow
@pytest.mark.parametrize("kind", by_default(KINDS, ["distilbert", "gpt2"]))
def test_stored_networks_agree_at_every_depth(networks, kind):
    """By default BERT's with padding, below. Measured in float32: embeddings 2e-7, layers 2e-6, of states up to 5."""
    states, expected = networks[kind].hidden_states(oracle.IDS), oracle.stored(kind)
    assert states[0].dtype == jnp.float32
    assert len(states) == sum(name.startswith("hidden_") for name in expected)
    assert off(states[0], expected["hidden_0"]) < 1e-6
    for depth, state in enumerate(states):
        assert off(state, expected[f"hidden_{depth}"]) < 1e-5
    assert off(networks[kind].logits(oracle.IDS), expected["logits"]) < 5e-5
    assert off(networks[kind].next_token(oracle.IDS), oracle.softmax(expected["logits"])) < 1e-5


@pytest.mark.parametrize("kind", ["bert", pytest.param("distilbert", marks=pytest.mark.slow), "gpt2"])
def test_every_sublayer_agrees(networks, kind):
    """Attention and feed-forward of every layer as drifts, from the stored states before them."""
    network, expected = networks[kind], oracle.stored(kind)
    for depth, parts in enumerate(network.layers):
        before = jnp.asarray(expected[f"hidden_{depth}"])
        seen = parts.attention_norm.normalise(before) if network.placement == "pre" else before
        start = network.measure(oracle.IDS).with_points(seen)
        assert off(_drift_values(parts.attention, start), expected[f"attention_{depth}"]) < 1e-5
        middle = jnp.asarray(expected[f"middle_{depth}"])
        assert off(parts.feed_forward(0.0, Sites(middle), start), expected[f"feed_forward_{depth}"]) < 1e-5


@pytest.mark.slow
def test_padded_tokens_and_token_types(networks):
    """Where there is no weight nothing is seen: the tokens before the padding agree."""
    types, mask = [0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]
    states, expected = networks["bert"].hidden_states(oracle.IDS, types, mask), oracle.stored("bert")
    for depth, state in enumerate(states):
        assert off(state[:5], expected[f"masked_hidden_{depth}"][:5]) < 1e-5
    shorter = networks["bert"].hidden_states(oracle.IDS[:5], types[:5])
    assert off(states[-1][:5], shorter[-1]) < 1e-5


@pytest.mark.slow
def test_a_simulated_flow_is_the_network_and_keeps_the_words(networks):
    """To rounding: measured 0 as users compile it, one unit of the largest number where quick to compile."""
    network = networks["bert"]
    ids = network.tokenize("w4 w17 w5 nobody w5")
    words = network.words(ids)
    assert words == ["[CLS]", "w4", "w17", "w5", "[UNK]", "w5", "[SEP]"]
    run = pf.simulate(network.flow, network.measure(ids), jnp.arange(3.0), step=1.0, solver="map", words=words)
    assert off(run.points, np.stack(network.hidden_states(ids))) < 1e-6
    assert run.words is not None
    assert list(run.words) == words


def test_the_future_changes_no_bit_of_the_past_of_a_trained_network(networks):
    """Any other network, and what it is made of: test_causality."""
    network, ids = networks["gpt2"], oracle.IDS
    before = np.stack(network.hidden_states(ids))
    for place in range(1, len(ids)):
        changed = [*ids[:place], (ids[place] + 7) % 17, *ids[place + 1 :]]
        after = np.stack(network.hidden_states(changed))
        assert (after[:, :place] == before[:, :place]).all()
        assert (after[1:, place] != before[1:, place]).any()


@eqx.filter_jit
def _drift_values(drift, measure):
    return drift(0.0, measure.sites, measure)


def test_heads_are_a_sum_of_attends():
    """With their biases, their masks, weights of the measure, and another measure to look at."""
    matrices, biases = 0.5 * _RNG.normal(size=(4, 6, 6)), _RNG.normal(size=(4, 6))
    points, weights, data = _RNG.normal(size=(5, 6)), _RNG.uniform(0.2, 1, 5), _RNG.normal(size=(7, 6))
    measure = pf.Measure.weighted(points, weights, positions=np.arange(5.0))
    for settings in ({"positional": kernels.Causal()}, {"data": pf.Measure.uniform(data)}):
        many = drifts.MultiHead.of_matrices(3, *matrices, *biases, **settings)
        alone = [
            pf.Attend(one.kernel, one.value, "row", one.positional, one.output, None, many.data, one.value_bias)
            for one in many.each
        ]
        found, summed = _drift_values(many, measure), _drift_values(drifts.Sum(alone), measure)
        assert off(found, np.asarray(summed) + biases[3]) < 1e-13
    assert off(found, oracle.attention(many, points, data)) < 1e-13
    assert len(many.interactions(0.0)) == 3
    assert not many.interacts_only(0.0)


@pytest.mark.parametrize("placement", ["pre", pytest.param("post", marks=pytest.mark.slow)])
def test_random_networks_are_their_formulas(placement):
    """Causal, with sinusoidal positions; in NumPy, a layer after the other."""
    shape = Architecture(8, 3, 2, 11, 13, "sinusoidal", placement=placement, causal=True, activation="relu")
    network, ids = random_transformer(jax.random.key(1), shape), [1, 12, 0, 5, 5]
    states = network.hidden_states(ids)
    place, column = np.arange(5)[:, None], np.arange(8)[None]
    angles = place / 10000 ** ((column - column % 2) / 8)
    rows = np.asarray(network.embedding.table)[ids] + np.where(column % 2 == 0, np.sin(angles), np.cos(angles))
    rows = oracle.norm(network.embedding.norm, rows) if placement == "post" else rows
    assert off(states[0], rows) < 1e-13
    for depth, parts in enumerate(network.layers):
        rows = oracle.layer(parts, rows, placement, causal=True)
        last = depth == 2 and placement == "pre"
        assert off(states[depth + 1], oracle.layer_norm(rows, epsilon=1e-5) if last else rows) < 1e-12


@pytest.mark.slow
def test_an_encoder_decoder_is_its_formula():
    """The decoder looks at the encoder's last states; what the source says changes what is predicted."""
    shape = Architecture(8, 2, 2, 11, 13, placement="post")
    both = random_encoder_decoder(jax.random.key(5), shape, shape)
    source, target = [1, 2, 3, 4, 5, 6], [7, 8, 9]
    memory = np.asarray(both.encoder.hidden_states(source)[-1])
    states = both.hidden_states(source, target)
    rows = np.asarray(states[0])
    for depth, parts in enumerate(both.decoder.layers):
        rows = oracle.layer(parts, rows, "post", causal=True, memory=memory)
        assert off(states[depth + 1], rows) < 1e-12
    assert off(jnp.sum(both.next_token(source, target), axis=1), 1.0) < 1e-12
    assert off(both.next_token(source[::-1], target), both.next_token(source, target)) > 1e-4


@pytest.mark.slow
def test_shared_weights_are_one_layer_again_and_again():
    shape = Architecture(8, 4, 2, 11, 13, placement="post", shared=True)
    shared, ids = random_transformer(jax.random.key(1), shape), [1, 2, 3]
    assert len(shared.layers) == 1
    rows = np.asarray(shared.hidden_states(ids)[0])
    for found in shared.hidden_states(ids)[1:]:
        rows = oracle.layer_norm(rows + oracle.attention(shared.layers[0].attention, rows, rows), epsilon=1e-5)
        rows = oracle.layer_norm(rows + oracle.feed_forward(shared.layers[0].feed_forward, rows), epsilon=1e-5)
        assert off(found, rows) < 1e-12


@pytest.mark.slow
def test_pre_norm_has_a_limit_in_depth_and_post_norm_has_none(decoder):
    """Steps of 1/4 and 1/8 of the same layers: the error of Euler's method halves."""
    start = decoder.measure([3, 1, 4, 1, 5])
    ends = [pf.evolve(decoder.flow, start, 1.0, step=1 / steps, solver="map").points for steps in (4, 8, 64)]
    ratio = off(ends[0], ends[2]) / off(ends[1], ends[2])
    assert 1.7 < ratio < 2.8  # 16/7 were Euler's error exactly h
    post = random_transformer(jax.random.key(1), Architecture(8, 2, 2, 11, 13, placement="post"))
    with pytest.raises(ArgumentError, match="post_norm is a map without a limit"):
        pf.evolve(post.flow, post.measure([1, 2]), 1.0, rtol=1e-3, atol=1e-3)


def test_words_and_their_unembedding():
    """A dense embedding is a matrix times a one-hot vector; P(next) is a softmax of inner products."""
    table, bias = _RNG.normal(size=(9, 4)), _RNG.normal(size=9)
    ids = [0, 8, 3]
    one_hot = Embedding.one_hot(9)(ids)
    assert off(one_hot @ table, Embedding(table)(ids)) == 0
    projected = Embedding(table, projection=np.ones((6, 4)), scale=2.0)
    assert projected.width == 6
    assert off(projected(ids), 2 * table[ids] @ np.ones((4, 6))) < 1e-14
    states = _RNG.normal(size=(5, 4))
    found = Unembedding(table, bias).distribution(jnp.asarray(states))
    assert off(found, oracle.softmax(states @ table.T + bias)) < 1e-14


@pytest.mark.slow
def test_the_logit_lens_ends_where_the_network_does(networks):
    network = networks["gpt2"]
    lens = network.logit_lens(oracle.IDS)
    assert len(lens) == network.depth + 1
    assert off(lens[-1], network.next_token(oracle.IDS)) < 1e-6
    assert max(off(jnp.sum(each, axis=1), 1.0) for each in lens) < 1e-5


def test_what_cannot_be_is_refused(networks, decoder):
    bert = networks["bert"]
    cases = [
        (lambda: bert.hidden_states([1, 37]), ArgumentError, "from 0 to 36, but holds 37"),
        (lambda: bert.hidden_states([]), ShapeError, "at least one number"),
        (lambda: bert.hidden_states([0.5]), ArgumentError, "whole numbers"),
        (lambda: bert.hidden_states([1] * 12), ShapeError, "12 words, but positions are known for 11"),
        (lambda: bert.hidden_states([1, 2], types=[0, 2]), ArgumentError, "`types` must hold numbers from 0 to 1"),
        (lambda: bert.hidden_states([1, 2], mask=[1]), ArgumentError, "`mask` must hold a 0 or a 1 for each of 2"),
        (lambda: networks["gpt2"].hidden_states([1], types=[0]), ArgumentError, "has no token types"),
        (lambda: decoder.tokenize("a text"), ArgumentError, "has no tokenizer"),
        (lambda: bert.tokenize(3), ArgumentError, "`text` must be a text"),
        (lambda: bert.layers_of(["attention"], layer=2), ArgumentError, "from 0 to 1, but is 2"),
        (lambda: decoder.layers_of([]), ArgumentError, "at least one of attention"),
        (lambda: random_transformer(jax.random.key(0), Architecture(9, heads=2)), ArgumentError, "divide the width 9"),
        (lambda: random_transformer(jax.random.key(0), Architecture(2**20)), ArgumentError, "make it smaller"),
        (lambda: load([1]), ArgumentError, "must be the path of a folder"),
        (lambda: drifts.MultiHead([]), ArgumentError, "at least one attend"),
        (lambda: drifts.MultiHead([pf.Attend(kernels.Attention()), pf.Attend(kernels.Gaussian(1.0))]), ArgumentError,
         "one structure"),
    ]  # fmt: skip
    for make, kind, message in cases:
        with pytest.raises(kind, match=message):
            make()
