"""Losses of small networks in plain NumPy, and in torch with its own gradients: what training minimises."""

from typing import Any

import numpy as np

from transformer_oracles import layer, norm


def logits(model: Any, ids: np.ndarray, causal: bool) -> np.ndarray:
    """The logits of a pre-norm network at every token."""
    rows = last_states(model, ids, causal)
    bias = model.head.bias
    return rows @ np.asarray(model.head.table).T + (0.0 if bias is None else np.asarray(bias))


def last_states(model: Any, ids: np.ndarray, causal: bool) -> np.ndarray:
    """x_L of a pre-norm network, after its final norm."""
    rows = np.asarray(model.embedding.table)[ids] + np.asarray(model.embedding.positions.table)[: len(ids)]
    for parts in model.layers:
        rows = layer(parts, rows, "pre", causal)
    return norm(model.final_norm, rows)


def cross_entropy(found: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """−log softmax at the labels, row by row."""
    shifted = found - found.max(axis=-1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=-1)) - np.take_along_axis(shifted, labels[..., None], axis=-1)[..., 0]


def torch_loss_and_gradient(model: Any, windows: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """The loss of the next token and its gradient by autograd, of a causal pre-norm network written anew in torch."""
    import torch  # pyright: ignore[reportMissingImports]

    named: dict[str, Any] = {
        "embedding.table": model.embedding.table, "embedding.positions.table": model.embedding.positions.table,
        "final_norm.gain": model.final_norm.gain, "final_norm.bias": model.final_norm.bias,
        "unembedding.table": model.unembedding.table,
    }  # fmt: skip
    for place, parts in enumerate(model.layers):
        heads, forward = parts.attention.heads, parts.feed_forward
        named |= {
            f"layers.{place}.attention.heads.kernel.query": heads.kernel.query,
            f"layers.{place}.attention.heads.kernel.key": heads.kernel.key,
            f"layers.{place}.attention.heads.value": heads.value,
            f"layers.{place}.attention.heads.output": heads.output,
            f"layers.{place}.feed_forward.weight": forward.weight,
            f"layers.{place}.feed_forward.bias": forward.bias,
            f"layers.{place}.feed_forward.output": forward.output,
            f"layers.{place}.attention_norm.gain": parts.attention_norm.gain,
            f"layers.{place}.feed_forward_norm.bias": parts.feed_forward_norm.bias,
        }
    p = {name: torch.tensor(np.asarray(value), requires_grad=True) for name, value in named.items()}
    ids = torch.tensor(np.asarray(windows[:, :-1]), dtype=torch.long)
    x = p["embedding.table"][ids] + p["embedding.positions.table"][None, : ids.shape[1]]
    mask = torch.ones(ids.shape[1], ids.shape[1]).tril() > 0
    for place in range(len(model.layers)):
        at = f"layers.{place}."
        y = torch.nn.functional.layer_norm(x, x.shape[-1:], p[at + "attention_norm.gain"], eps=1e-5)
        for head in range(p[at + "attention.heads.value"].shape[0]):
            query = y @ p[at + "attention.heads.kernel.query"][head].T
            key = y @ p[at + "attention.heads.kernel.key"][head].T
            scores = query @ key.transpose(1, 2) / np.sqrt(query.shape[-1])
            weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
            read = weights @ (y @ p[at + "attention.heads.value"][head].T)
            x = x + read @ p[at + "attention.heads.output"][head].T
        y = torch.nn.functional.layer_norm(x, x.shape[-1:], None, p[at + "feed_forward_norm.bias"], 1e-5)
        hidden = torch.nn.functional.gelu(y @ p[at + "feed_forward.weight"].T + p[at + "feed_forward.bias"])
        x = x + hidden @ p[at + "feed_forward.output"].T
    x = torch.nn.functional.layer_norm(x, x.shape[-1:], p["final_norm.gain"], p["final_norm.bias"], 1e-5)
    found = x @ p["unembedding.table"].T
    loss = torch.nn.functional.cross_entropy(
        found.reshape(-1, found.shape[-1]), torch.tensor(np.asarray(windows[:, 1:]), dtype=torch.long).reshape(-1)
    )
    loss.backward()
    return loss.item(), {name: np.asarray(value.grad) for name, value in p.items()}
