"""Training for tests to kill: `python killed_training.py FOLDER RESULT` prints its steps and saves what it found."""

import sys
from typing import Any

import jax
import numpy as np

from particleflow.learning import NextToken, train
from particleflow.transformer import Architecture, random_transformer

TEXT = "the near particles meet and the far particles wait. " * 12


def main() -> None:
    """Train a small network, with checkpoints in the first argument, and write its numbers to the second one."""
    task = NextToken(TEXT, length=12)
    shape = Architecture(8, 1, 2, 8, task.vocabulary, "learned", 12, causal=True, precision="float32")
    trained = train(
        random_transformer(jax.random.key(0), shape), task, steps=400, batch=8, every=20, validate=32,
        checkpoint=sys.argv[1], progress=lambda step, loss: print(step, flush=True),
    )  # fmt: skip
    numbers: dict[str, Any] = {
        f"leaf{place}": leaf for place, leaf in enumerate(jax.tree_util.tree_leaves(trained.model))
    }
    numbers |= {"losses": trained.losses, "validation": trained.validation}
    np.savez(sys.argv[2], **numbers)


if __name__ == "__main__":
    main()
