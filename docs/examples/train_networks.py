"""Train the small networks of scenarios/data: the class of the first marked token, the next letter, masked letters.

    python docs/examples/train_networks.py            prints what each of them learns, in which processor time
    python docs/examples/train_networks.py --save     and writes scenarios/data/{first_marked,next_letter}.npz anew

Seeds are fixed: on one machine and with the same versions the files have the same numbers again. On others the last
digits differ, and after many steps all of them.
"""

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax

from particleflow import learning
from particleflow.transformer import Architecture, random_classifier, random_transformer, save_network

DATA = Path(__file__).parents[2] / "scenarios" / "data"
TEXT = (DATA / "particles_and_attention.txt").read_text(encoding="utf-8")
HOW = f"made by docs/examples/{Path(__file__).name} --save"


class Problem(NamedTuple):
    """A task, the network that is trained for it from a seed, and for how long."""

    task: Any
    shape: Architecture
    labels: int | None
    symbols: tuple[str, ...]
    training: dict[str, Any]

    def trained(self, **options: Any) -> learning.Trained:
        """The trained network."""
        key = jax.random.key(0)
        start = (
            random_transformer(key, self.shape)
            if self.labels is None
            else random_classifier(key, self.shape, self.labels)
        )
        return learning.train(start, self.task, **self.training, **options)


def first_marked() -> Problem:
    """Letters a and b, of which capitals are marked: which letter is the first capital? A logistic read-out tells."""
    task = learning.SequenceClassification(length=12, classes=2, rule="first")
    shape = Architecture(16, 2, 2, 32, task.vocabulary, "learned", task.length, precision="float32")
    return Problem(task, shape, 1, ("a", "b", "A", "B"), {"steps": 1500, "batch": 64, "validate": 1000})


def parity() -> Problem:
    """Is the number of marked tokens among eight even or odd?"""
    task = learning.SequenceClassification(length=8, classes=1, rule="parity", share=0.5)
    shape = Architecture(16, 2, 2, 64, task.vocabulary, "none", precision="float32")
    return Problem(task, shape, 1, ("a", "A"), {"steps": 4000, "batch": 64, "validate": 1000})


def next_letter() -> Problem:
    """The next letter of a small text, from the letters before it; training ends before the text is known by heart."""
    task = learning.NextToken(TEXT, length=32)
    shape = Architecture(
        32, 2, 4, 64, task.vocabulary, "learned", 32, causal=True, spread=0.1, precision="float32"
    )  # fmt: skip
    return Problem(task, shape, None, task.symbols, {"steps": 1000, "batch": 32, "validate": 1000, "patience": 5})


def masked_letters() -> Problem:
    """Hidden letters of the same text, from both sides."""
    task = learning.MaskedToken(TEXT, length=32)
    shape = Architecture(32, 2, 4, 64, task.vocabulary, "learned", 32, spread=0.1, precision="float32")
    return Problem(task, shape, None, task.symbols, {"steps": 3000, "batch": 32, "validate": 1000, "patience": 8})


PROBLEMS = {each.__name__: each for each in (first_marked, parity, next_letter, masked_letters)}
SAVED = ("first_marked", "next_letter")


def main() -> None:
    """Train all networks, print a line for each, and save two of them if asked to."""
    for name, make in PROBLEMS.items():
        problem, begun = make(), time.process_time()
        trained = problem.trained(progress=True)
        spent = time.process_time() - begun
        scores = learning.evaluate(trained.model, problem.task, 2000)
        line = f"{name}: accuracy {float(scores.accuracy):.3f}, loss {float(scores.loss):.3f} nats on the test"
        if hasattr(problem.task, "counts"):
            counts = problem.task.counts()
            line += f" (unigrams {counts.unigram():.3f}, bigrams {counts.bigram():.3f})"
        print(f"{line}; {trained.steps} steps, {spent:.0f} s of processor time", flush=True)
        if "--save" in sys.argv and name in SAVED:
            path = DATA / f"{name}.npz"
            save_network(
                trained.model, path, problem.shape, 0, symbols=problem.symbols, labels=problem.labels, about=HOW
            )
            print(f"written: {path.name}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
