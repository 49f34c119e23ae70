"""Transformers in plain NumPy, from the papers' formulas, and the stored networks in tiny_transformers/."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import erf

FOLDER = Path(__file__).parent / "tiny_transformers"
IDS = [3, 17, 5, 5, 30, 11, 0]


def stored(kind: str) -> dict[str, np.ndarray]:
    """What transformers + torch found for a stored network."""
    with np.load(FOLDER / kind / "reference.npz", allow_pickle=False) as archive:
        return dict(archive)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def layer_norm(rows: np.ndarray, gain: Any = 1.0, bias: Any = 0.0, epsilon: float = 0.0) -> np.ndarray:
    centred = rows - rows.mean(axis=1, keepdims=True)
    return gain * centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + epsilon) + bias


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def heads(drift: Any) -> list[dict[str, np.ndarray]]:
    """The numbers of every head of a multi-head, as plain arrays."""
    return [
        {
            "beta": np.asarray(head.kernel.beta), "query": np.asarray(head.kernel.query),
            "key": np.asarray(head.kernel.key), "query_bias": np.asarray(head.kernel.query_bias),
            "key_bias": np.asarray(head.kernel.key_bias), "value": np.asarray(head.value),
            "value_bias": np.asarray(head.value_bias), "output": np.asarray(head.output),
        }
        for head in drift.each
    ]  # fmt: skip


def attention(drift: Any, queries: np.ndarray, sources: np.ndarray, causal: bool = False) -> np.ndarray:
    """Σ_h O_h softmax(β (Q_h x + b)(K_h y + c)ᵀ)(V_h y + b) + c, a head after the other."""
    total = np.zeros_like(queries) + (0.0 if drift.bias is None else np.asarray(drift.bias))
    for head in heads(drift):
        asked = queries @ head["query"].T + head["query_bias"]
        known = sources @ head["key"].T + head["key_bias"]
        logits = head["beta"] * asked @ known.T
        if causal:
            logits = np.where(np.tril(np.ones(logits.shape, bool)), logits, -np.inf)
        total = total + softmax(logits) @ (sources @ head["value"].T + head["value_bias"]) @ head["output"].T
    return total


def feed_forward(drift: Any, rows: np.ndarray) -> np.ndarray:
    weight, bias, output, last = (
        np.asarray(each) for each in (drift.weight, drift.bias, drift.output, drift.output_bias)
    )
    act = {"gelu_exact": gelu, "relu": lambda x: np.maximum(x, 0)}[drift.activation]
    return act(rows @ weight.T + bias) @ output.T + last


def norm(space: Any, rows: np.ndarray) -> np.ndarray:
    return layer_norm(rows, np.asarray(space.gain), np.asarray(space.bias), float(space.epsilon))


def layer(parts: Any, rows: np.ndarray, placement: str, causal: bool = False, memory: Any = None) -> np.ndarray:
    """One layer, its parts one after the other."""
    stages = [(parts.attention_norm, lambda x: attention(parts.attention, x, x, causal))]
    if memory is not None:
        stages.append((parts.cross_norm, lambda x: attention(parts.cross, x, memory)))
    stages.append((parts.feed_forward_norm, lambda x: feed_forward(parts.feed_forward, x)))
    for space, part in stages:
        rows = norm(space, rows + part(rows)) if placement == "post" else rows + part(norm(space, rows))
    return rows
