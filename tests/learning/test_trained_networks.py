"""The shipped networks, and how they are made: scores, what counting reaches, and the numbers of the page."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import particleflow as pf
from particleflow import learning
from particleflow.transformer import load_network
from training_oracles import cross_entropy, last_states, logits

PROJECT = Path(pf.__file__).parents[1]
DATA = PROJECT / "scenarios" / "data"


def example(name: str) -> Any:
    """A script of docs/examples as a module."""
    spec = spec_from_file_location(name, PROJECT / "docs" / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stated(row: str) -> tuple[float, float, list[float]]:
    """Accuracy, loss and what counting says in a row of the page."""
    page = (PROJECT / "docs" / "learning.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {row} \| ([\d.]+) \| ([\d.]+) \| (.*?) \|", page, re.MULTILINE)
    assert found is not None
    return float(found[1]), float(found[2]), [float(each) for each in re.findall(r"[\d.]+", found[3])]


@pytest.mark.slow
def test_the_shipped_network_names_the_first_capital():
    """Scores in NumPy on 300 texts that were not learned from, and the text of the scenario."""
    saved = load_network(DATA / "first_marked.npz")
    ids, labels = (np.asarray(each) for each in learning.SequenceClassification(length=12).held_out(300))
    table, bias = (np.asarray(each, float) for each in (saved.model.head.table, saved.model.head.bias))
    pooled = np.stack([last_states(saved.model, row, causal=False).mean(axis=0) for row in ids])
    found = np.column_stack([np.zeros(len(ids)), pooled @ table[0] + bias[0]])
    accuracy, loss, _ = stated(re.escape("class of the first marked token of 12"))
    assert np.mean(found.argmax(axis=1) == labels) == pytest.approx(accuracy, abs=0.005)
    assert cross_entropy(found, labels).mean() == pytest.approx(loss, abs=0.002)
    sure = 1 / (
        1 + np.exp(-(last_states(saved.model, saved.ids("abaBbAabBaab"), False).mean(axis=0) @ table[0] + bias[0]))
    )
    assert sure > 0.95


@pytest.mark.slow
def test_the_shipped_network_predicts_letters_better_than_counting():
    saved = load_network(DATA / "next_letter.npz")
    task = learning.NextToken((DATA / "particles_and_attention.txt").read_text(encoding="utf-8"), length=32)
    assert saved.symbols == task.symbols
    windows = np.asarray(task.held_out(2000))
    found = np.stack([logits(saved.model, row[:-1], causal=True) for row in windows])
    accuracy, loss, counted = stated("next letter")
    assert cross_entropy(found, windows[:, 1:]).mean() == pytest.approx(loss, abs=0.0006)
    assert np.mean(found.argmax(axis=-1) == windows[:, 1:]) == pytest.approx(accuracy, abs=0.0006)
    counts = task.counts()
    assert [round(counts.unigram(), 3), round(counts.bigram(), 3)] == counted
    assert loss < counted[1] - 0.1 < counted[0] - 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first_marked", "parity", "next_letter", "masked_letters"])
def test_the_networks_are_made_again(name):
    """On any machine: more than 95 % of the labels are right, and letters are predicted better than by counting."""
    problem = example("train_networks").PROBLEMS[name]()
    trained = problem.trained()
    loss, accuracy = learning.evaluate(trained.model, problem.task, 2000)
    if name in ("first_marked", "parity"):
        assert float(accuracy) > 0.95
    else:
        assert float(loss) < problem.task.counts().bigram() - 0.1
        assert float(accuracy) > problem.task.counts().bigram_accuracy() + 0.05
