"""Makes oracles/tiny_transformers: random networks of odd sizes, and the numbers that transformers + torch find.

Run it where `torch` and `transformers` are installed: python tests/helpers/make_tiny_transformers.py
"""

from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "oracles" / "tiny_transformers"
IDS = [3, 17, 5, 5, 30, 11, 0]
SIZES: dict[str, dict[str, Any]] = {
    "bert": {
        "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 19, "vocab_size": 37,
        "max_position_embeddings": 11, "type_vocab_size": 2, "layer_norm_eps": 1e-5, "hidden_act": "gelu",
    },
    "distilbert": {
        "dim": 10, "n_layers": 3, "n_heads": 5, "hidden_dim": 7, "vocab_size": 31, "max_position_embeddings": 9,
        "activation": "relu",
    },
    "gpt2": {
        "n_embd": 15, "n_layer": 2, "n_head": 3, "n_inner": 17, "vocab_size": 41, "n_positions": 13,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-3,
    },
}  # fmt: skip
# Where the outputs of sublayers are, by the module whose output they are.
HOOKS = {
    "bert": ("bert.encoder.layer.{}.", "attention.output.dense", "attention.output", "output.dense"),
    "distilbert": ("distilbert.transformer.layer.{}.", "attention", "sa_layer_norm", "ffn"),
    "gpt2": ("transformer.h.{}.", "attn", "ln_2", "mlp"),
}


def make(kind: str, sizes: dict[str, Any], seed: int = 0, head: bool = True) -> Any:
    """A random network with weights that make attention far from uniform; no bias or gain is a default."""
    import torch  # pyright: ignore[reportMissingImports]
    import transformers  # pyright: ignore[reportMissingImports]

    name = {"bert": "Bert", "distilbert": "DistilBert", "gpt2": "GPT2"}[kind]
    suffix = "Model" if not head else "LMHeadModel" if kind == "gpt2" else "ForMaskedLM"
    torch.manual_seed(seed)
    model = getattr(transformers, name + suffix)(getattr(transformers, f"{name}Config")(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def reference(model: Any, ids: list[int], **given: Any) -> dict[str, np.ndarray]:
    """Hidden states, and logits where there is a head."""
    import torch  # pyright: ignore[reportMissingImports]

    with torch.no_grad():
        extra = {name: torch.tensor([value]) for name, value in given.items()}
        found = model(input_ids=torch.tensor([ids]), output_hidden_states=True, **extra)
    numbers = {f"hidden_{depth}": state[0].numpy() for depth, state in enumerate(found.hidden_states)}
    return numbers | ({"logits": found.logits[0].numpy()} if "logits" in found else {})


def sublayers(model: Any, kind: str, depth: int, ids: list[int]) -> dict[str, np.ndarray]:
    """What attention and feed-forward of every layer add, and what is between them."""
    found: dict[str, np.ndarray] = {}
    modules = dict(model.named_modules())

    def keep(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            found[name] = (output[0] if isinstance(output, tuple) else output).reshape(len(ids), -1).numpy()

        return hook

    for layer in range(depth):
        prefix, *places = HOOKS[kind]
        for part, place in zip(("attention", "middle", "feed_forward"), places, strict=True):
            modules[prefix.format(layer) + place].register_forward_hook(keep(f"{part}_{layer}"))
    reference(model, ids)
    return found


def tokenizer(path: Path, vocabulary: int) -> None:
    """Words w3, w4, … of their own numbers, marks in front and behind."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"[CLS]": 0, "[SEP]": 1, "[UNK]": 2} | {f"w{number}": number for number in range(3, vocabulary)}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 0), ("[SEP]", 1)])
    made.save(str(path))


def main() -> None:
    """Write the folders anew."""
    for kind, sizes in SIZES.items():
        folder = FOLDER / kind
        model = make(kind, sizes)
        model.save_pretrained(folder)
        depth = sizes.get("num_hidden_layers") or sizes.get("n_layers") or sizes["n_layer"]
        numbers = reference(model, IDS) | sublayers(model, kind, depth, IDS)
        if kind == "bert":
            given = {"token_type_ids": [0, 0, 0, 1, 1, 1, 1], "attention_mask": [1, 1, 1, 1, 1, 0, 0]}
            masked = reference(model, IDS, **given)
            numbers |= {f"masked_{name}": array for name, array in masked.items()}
            tokenizer(folder / "tokenizer.json", sizes["vocab_size"])
        np.savez(folder / "reference.npz", **numbers)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
