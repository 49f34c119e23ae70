"""Networks with something switched off, against a forward pass in plain NumPy that leaves it out."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import particleflow as pf
import transformer_oracles as oracles
from particleflow.errors import ArgumentError
from particleflow.transformer import Architecture, load, random_transformer
from particleflow.transformer.ablations import as_ablation
from particleflow.transformer.scenario_kinds import RandomLayers, TrainedLayers


class OtherHeads:
    """A multi-head of which some heads are left out of the sum."""

    def __init__(self, drift: Any, off: set[int]):
        self.bias = drift.bias
        self.each = tuple(head for place, head in enumerate(drift.each) if place not in off)


def forward(network: Any, rows: np.ndarray, *, off: Any = (), causal: bool = False, bare: Any = ()) -> np.ndarray:
    """All layers in NumPy, without heads `off`, pairs (layer or None, head), and without the norms `bare`."""
    for place, parts in enumerate(network.layers):
        gone = {head for layer, head in off if layer in (None, place)}
        attended = OtherHeads(parts.attention, gone)
        stages = (
            ("attention_norm", lambda x, drift=attended: oracles.attention(drift, x, x, causal)),
            ("feed_forward_norm", lambda x, drift=parts.feed_forward: oracles.feed_forward(drift, x)),
        )
        for name, act in stages:
            space = getattr(parts, name)
            if name in bare:
                rows = rows + act(rows)
            elif network.placement == "post":
                rows = oracles.norm(space, rows + act(rows))
            else:
                rows = rows + act(oracles.norm(space, rows))
    return rows


def ran(drift: Any, network: Any, start: Any) -> np.ndarray:
    """The last state of the layers as a flow, by steps of a map."""
    times = np.arange(network.depth + 1.0)
    run = pf.simulate(pf.Flow(drift, network.flow.geometry), start, times, solver="map", step=1.0)
    return run.points[-1]


CASES = [
    (["heads.1"], {"off": [(None, 1)]}),
    (["layers.1.heads.0", "layers.0.heads.1"], {"off": [(1, 0), (0, 1)]}),
    (["feed_forward_norm"], {"bare": ["feed_forward_norm"]}),
    (["attention_norm", "heads.0"], {"bare": ["attention_norm"], "off": [(None, 0)]}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("without", "options"), CASES)
def test_what_is_switched_off_is_missing_from_a_trained_network(without, options):
    folder = str(oracles.FOLDER / "bert")
    network = load(folder, "float64")
    start = network.measure(oracles.IDS)
    expected = forward(network, np.asarray(start.points, float), **options)
    np.testing.assert_allclose(ran(TrainedLayers(folder, without=without), network, start), expected, atol=2e-5)
    assert np.abs(expected - forward(network, np.asarray(start.points, float))).max() > 1e-3


@pytest.mark.slow
def test_without_its_mask_every_token_sees_the_later_ones():
    trained = TrainedLayers(str(oracles.FOLDER / "gpt2"), without=["causal_mask"])
    assert all(each.positional is None for each in trained.interactions(0.0))
    shape = Architecture(width=8, depth=2, heads=2, causal=True, activation="relu")
    random = random_transformer(jax.random.key(1), shape)
    rows = np.random.default_rng(0).normal(size=(5, 8))
    begin = pf.Measure.uniform(rows, positions=np.arange(5.0))
    free = ran(random.layers_of(("attention", "feed_forward"), without=["causal_mask"]), random, begin)
    np.testing.assert_allclose(free, forward(random, rows), atol=1e-9)
    masked = ran(random.layers_of(("attention", "feed_forward")), random, begin)
    np.testing.assert_allclose(masked, forward(random, rows, causal=True), atol=1e-9)
    assert np.abs(free - masked).max() > 1e-3


def test_a_head_that_is_switched_off_adds_nothing_and_the_others_stay():
    network = load(str(oracles.FOLDER / "bert"))
    changed = as_ablation(["layers.1.heads.0"]).applied(network.layers)
    for place, (before, after) in enumerate(zip(network.layers, changed, strict=True)):
        for head, (one, other) in enumerate(zip(before.heads.each, after.heads.each, strict=True)):
            expected = np.asarray(one.output) * float((place, head) != (1, 0))
            np.testing.assert_array_equal(np.asarray(other.output), expected)


@pytest.mark.parametrize(
    ("without", "words"),
    [
        (["heads.9"], "heads in a layer"), (["layers.7.heads.0"], "layers"), (["heads"], "must name"),
        (["attention"], "use `parts`"), (["causal_mask"], "has none"), (["heads.-1"], "must name"), ([3], "must name"),
        (["layers.0.heads.x"], "must name"),
    ],
)  # fmt: skip
def test_what_cannot_be_switched_off_is_refused(without, words):
    with pytest.raises(ArgumentError, match=words):
        TrainedLayers(str(oracles.FOLDER / "bert"), without=without)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_heads_are_recorded_as_their_own_norms_see_the_tokens(kind):
    """Softmax of β(Qx + b)(Ky + c)ᵀ in NumPy, of what the norm of the layer lets the heads see, masked or not."""
    network = load(str(oracles.FOLDER / kind), "float64")
    start = network.measure(oracles.IDS)
    flow, times = network.flow, np.arange(network.depth + 1.0)
    run = pf.simulate(flow, start, times, solver="map", step=1.0, observe=[pf.observables.head_attention])
    for place, parts in enumerate(network.layers):
        rows = run.points[place]
        seen = oracles.norm(parts.attention_norm, rows) if network.placement == "pre" else rows
        for number, head in enumerate(oracles.heads(parts.attention)):
            asked, known = (seen @ head[name].T + head[f"{name}_bias"] for name in ("query", "key"))
            logits = head["beta"] * asked @ known.T
            if kind == "gpt2":
                logits = np.where(np.tril(np.ones(logits.shape, bool)), logits, -np.inf)
            found = run.observables["head_attention"][place][number]
            np.testing.assert_allclose(found, oracles.softmax(logits), atol=1e-9)


def random_run(**others: Any) -> Any:
    """Two layers of two heads; by `others` with a head off, or further than they go."""
    layers = RandomLayers(4, others.pop("depth", 2), 2, 5, **{"placement": "none", **others.pop("layers", {})})
    start = pf.Measure.uniform(np.random.default_rng(2).normal(size=(3, 4)), positions=np.arange(3.0))
    observe = [pf.observables.head_attention]
    return pf.simulate(pf.Flow(layers), start, solver="map", step=1.0, observe=observe, **others)


@pytest.mark.slow
def test_a_head_that_is_off_has_no_attention_in_the_layers_where_it_is():
    found = random_run(times=[0.0, 1.0], layers={"without": ["layers.0.heads.1"]}).observables["head_attention"]
    assert np.isnan(found).all(axis=(2, 3)).tolist() == [[False, True], [False, False]]
    np.testing.assert_allclose(found[1].sum(axis=-1), 1.0, atol=1e-12)
    shape = Architecture(width=4, depth=1, heads=2)
    parts = as_ablation(["heads.0"]).applied(random_transformer(jax.random.key(0), shape).layers)
    network = eqx.tree_at(lambda model: model.layers, random_transformer(jax.random.key(0), shape), tuple(parts))
    spectra = pf.transformer.head_spectra(network)
    assert [each.regime == "off" for each in spectra] == [True, False]


@pytest.mark.slow
def test_a_run_does_not_go_on_after_the_last_layer_unless_one_is_repeated_by_name():
    for end, options in ((2.0, {}), (5.0, {"layers": {"shared": True}}), (5.0, {"depth": 1})):
        assert random_run(times=[0.0, end], **options).times[-1] == end
    with pytest.raises(ArgumentError, match="ends after layer 2, but the run goes on to t = 5"):
        random_run(times=[0.0, 5.0])
    with pytest.raises(ArgumentError, match="name the layer to repeat"):
        random_run(times=[0.0, 3.0])
