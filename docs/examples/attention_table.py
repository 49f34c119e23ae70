"""Softmax attention, linearised attention, and the blend of near field and far field, trained on the same two tasks.

    python docs/examples/attention_table.py

Prints a table: parameters, loss (nats) and accuracy of both tasks on samples that nothing was chosen by, mean and range
over three seeds of weights and batches, and processor seconds. In the blend the three fields share Q, K, V and O, as in
the FMMformer; numbers of parameters differ by biases and the blend's weights. docs/learning.md shows what it printed.
"""

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from particleflow import learning
from particleflow.learning.parameters import parameters_of
from particleflow.transformer import Architecture, random_classifier, random_transformer

SEEDS = (0, 1, 2)
TEXT = Path(__file__).parents[2] / "scenarios" / "data" / "particles_and_attention.txt"
SHARED = ("kernel.query", "kernel.key", "heads.value", "heads.output")


def shared_parameters(model: Any) -> list[str | tuple[str, ...]]:
    """All parameters of a network; the matrices that near field and far field of one layer share are one each."""
    groups: dict[str, list[str]] = defaultdict(list)
    for path in learning.learnable(model):
        layer, _, part = path.partition(".attention.drifts.")
        suffix = next((each for each in SHARED if part.endswith(each)), None)
        groups[f"{layer} {suffix}" if part and suffix else path].append(path)
    return [paths[0] if len(paths) == 1 else tuple(paths) for paths in groups.values()]


def first_marked(kind: Any, seed: int) -> tuple[Any, learning.AbstractTask, dict[str, Any]]:
    """The class of the first of a few marked tokens among 32."""
    task = learning.SequenceClassification(length=32, share=0.1)
    shape = Architecture(
        16, 2, 2, 32, task.vocabulary, "learned", task.length, attention=kind, radius=4.0, precision="float32"
    )
    return random_classifier(jax.random.key(seed), shape), task, {"steps": 1000, "batch": 64}


def next_letter(kind: Any, seed: int) -> tuple[Any, learning.AbstractTask, dict[str, Any]]:
    """The next letter of a small text."""
    task = learning.NextToken(TEXT.read_text(encoding="utf-8"), length=32)
    shape = Architecture(
        32, 2, 4, 64, task.vocabulary, "learned", 32, causal=True, spread=0.1, attention=kind, radius=4.0,
        precision="float32",
    )  # fmt: skip
    return random_transformer(jax.random.key(seed), shape), task, {"steps": 600, "batch": 32, "patience": 5}


def row(problem: Any, kind: Any) -> str:
    """One line of the table."""
    losses, accuracies, seconds, count = [], [], [], 0
    for seed in SEEDS:
        model, task, how = problem(kind, seed)
        names = shared_parameters(model)
        count = sum(each.read(model).size for each in parameters_of(model, names))
        begun = time.process_time()
        rate = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))
        trained = learning.train(model, task, names, optimizer=rate, seed=seed, validate=512, every=50, **how)
        seconds.append(time.process_time() - begun)
        scores = learning.evaluate(trained.model, task, 2000)
        losses.append(float(scores.loss))
        accuracies.append(float(scores.accuracy))

    def told(values: list[float], digits: int) -> str:
        return f"{np.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"

    return f"| {kind} | {count} | {told(losses, 3)} | {told(accuracies, 3)} | {np.mean(seconds):.0f} |"


def main() -> None:
    """Print both tables."""
    for problem in (first_marked, next_letter):
        print(
            f"\n{problem.__doc__}\n\n| attention | parameters | loss | accuracy | processor s |\n|---|---|---|---|---|"
        )
        for kind in ("softmax", "linearised", "near_and_far"):
            print(row(problem, kind), flush=True)


if __name__ == "__main__":
    main()
