"""Tasks: labels, masks and losses against brute force; gradients against finite differences and torch."""

import itertools
from collections import Counter
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from particleflow import kernels as k
from particleflow.errors import ArgumentError, ShapeError
from particleflow.learning import (
    Contrast,
    Evidence,
    LeaveOneOut,
    LeaveOneOutLikelihood,
    MaskedToken,
    NextToken,
    Observed,
    Reconstruction,
    SequenceClassification,
    evaluate,
    learnable,
)
from particleflow.learning.parameters import free_values, parameters_of, with_values
from particleflow.transformer import Architecture, Unembedding, random_classifier, random_transformer
from training_oracles import cross_entropy, last_states, logits, torch_loss_and_gradient

TEXT = "a near token meets a near token, and a far token waits. " * 5
SHAPE = Architecture(4, 1, 2, 5, 0, "learned", 8)


def with_noise(model: Any) -> Any:
    """No bias, gain or read-out is left at its neutral value."""
    parameters = parameters_of(model, learnable(model))
    rng = np.random.default_rng(0)
    values = tuple(u + 0.3 * rng.normal(size=u.shape) for u in free_values(model, parameters))
    return with_values(model, parameters, values)


@cache
def problem(name: str, attention: Any = "softmax") -> tuple[Any, Any]:
    """A task and a small network of random numbers for it, in double precision."""
    key = jax.random.key(0)
    if name in ("first", "parity", "three classes"):
        rule: Any = "parity" if name == "parity" else "first"
        task = SequenceClassification(8, 3 if name == "three classes" else 2, rule)
        shape = SHAPE._replace(vocabulary=task.vocabulary, attention=attention)
        return task, with_noise(random_classifier(key, shape, 3 if name == "three classes" else 1))
    task = NextToken(TEXT, 8) if name == "next" else MaskedToken(TEXT, 8)
    shape = SHAPE._replace(vocabulary=task.vocabulary, causal=name == "next", attention=attention)
    model = random_transformer(key, shape)
    if name == "masked":  # a read-out with a bias
        readout = Unembedding(model.head.table, jnp.zeros(task.vocabulary))
        model = eqx.tree_at(lambda made: made.unembedding, model, readout)
    return task, with_noise(model)


def drawn(task: Any, seed: int, count: int) -> Any:
    """A batch, as one program."""
    return eqx.filter_jit(lambda key: task.batch(key, count))(jax.random.key(seed))


@pytest.mark.slow
def test_labels_are_those_of_a_loop_over_tokens():
    for rule in ("first", "parity"):
        task = SequenceClassification(7, 3, rule, share=0.1)
        ids, labels = (np.asarray(each) for each in drawn(task, 1, 400))
        for row, label in zip(ids, labels, strict=True):
            marked = [int(token) - 3 for token in row if token >= 3]
            assert label == (marked[0] if rule == "first" else len(marked) % 2)
        assert ids.min() == 0
        assert ids.max() == 5
    np.testing.assert_array_equal(task.held_out(3)[0], task.held_out(3)[0])


def test_masks_hide_as_bert_does():
    task = MaskedToken(TEXT * 4, 40)
    tokens, seen, hidden = (np.asarray(each) for each in drawn(task, 0, 2000))
    share = hidden.mean()
    assert abs(share - 0.15) < 4 * np.sqrt(0.15 * 0.85 / hidden.size)
    np.testing.assert_array_equal(seen[~hidden], tokens[~hidden])
    assert hidden.any(axis=1).all()
    masked, other = (seen == task.vocabulary - 1)[hidden], (seen != tokens)[hidden]
    error = 4 * np.sqrt(0.25 / hidden.sum())
    assert abs(masked.mean() - 0.8) < error
    random_token = 0.1 * (1 - 1 / (task.vocabulary - 1))  # one in so many is the token itself
    assert abs((other & ~masked).mean() - random_token) < error


def test_windows_of_the_three_parts_do_not_meet():
    task = NextToken([str(number) for number in range(100)], length=5, held_out_share=0.2)
    number = np.asarray([int(symbol) for symbol in task.symbols])
    learned = number[np.asarray(drawn(task, 0, 500))]
    chosen_by, held = (number[np.asarray(task.held_out(50, part))] for part in ("validation", "test"))
    assert [(each.min(), each.max()) for each in (learned, chosen_by, held)] == [(0, 79), (80, 89), (90, 99)]
    assert (np.diff(learned) == 1).all()
    assert held.shape == (5, 6)


def test_counts_are_those_of_a_dictionary():
    task = NextToken(TEXT, 8)
    counts = task.counts()
    text = TEXT[: len(task.learned)]
    rest = TEXT[-len(task.tested) :]
    singles, pairs = Counter(text), Counter(itertools.pairwise(text))
    firsts = Counter(text[:-1])

    def unigram(amount: float) -> float:
        total = len(text) + amount * task.vocabulary
        return -float(np.mean([np.log((singles[each] + amount) / total) for each in rest[1:]]))

    def bigram(amount: float) -> float:
        shares = [(pairs[a, b] + amount) / (firsts[a] + amount * task.vocabulary) for a, b in itertools.pairwise(rest)]
        return -float(np.mean(np.log(shares)))

    amounts = np.geomspace(1e-3, 10.0, 81)
    assert abs(counts.unigram() - min(map(unigram, amounts))) < 1e-12
    assert abs(counts.bigram() - min(map(bigram, amounts))) < 1e-12
    best = {a: max(((pairs[a, b], -ord(b)), b) for b in singles)[1] for a in firsts}
    right = np.mean([best[a] == b for a, b in itertools.pairwise(rest)])
    assert abs(counts.bigram_accuracy() - right) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first", "parity", "three classes", "next"])
def test_scores_are_those_of_a_network_in_numpy(name):
    task, model = problem(name)
    if name == "next":
        windows = np.asarray(task.held_out(5))
        found = np.stack([logits(model, row[:-1], causal=True) for row in windows])
        labels = windows[:, 1:]
    else:
        ids, labels = (np.asarray(each) for each in task.held_out(12))
        pooled = np.stack([last_states(model, row, causal=False).mean(axis=0) for row in ids])
        found = pooled @ np.asarray(model.head.table).T + np.asarray(model.head.bias)
        if found.shape[1] == 1:  # y = σ(βᵀx̄ + b)
            found = np.concatenate([np.zeros_like(found), found], axis=1)
    scores = evaluate(model, task, 5 if name == "next" else 12)
    assert abs(float(scores.loss) - cross_entropy(found, labels).mean()) < 1e-12
    assert float(scores.accuracy) == pytest.approx(np.mean(found.argmax(axis=-1) == labels), abs=1e-12)


@pytest.mark.slow
def test_scores_of_masked_tokens_are_those_of_a_network_in_numpy():
    task, model = problem("masked")
    tokens, seen, hidden = (np.asarray(each) for each in task.held_out(9))
    found = np.stack([logits(model, row, causal=False) for row in seen])
    scores = evaluate(model, task, 9)
    assert abs(float(scores.loss) - cross_entropy(found, tokens)[hidden].mean()) < 1e-12
    assert float(scores.accuracy) == pytest.approx(np.mean((found.argmax(-1) == tokens)[hidden]), abs=1e-12)


CASES = [(task, kind) for task in ("first", "parity", "next", "masked") for kind in ("softmax", "near_and_far")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_gradients_by_every_kind_of_parameter_are_finite_differences(name, attention):
    """Embedding, positions, Q, K, V, O, biases, feed-forward, norms, read-out, and the weights of the blend."""
    task, model = problem(name, attention)
    parameters = parameters_of(model, learnable(model))
    samples, free = task.held_out(4), free_values(model, parameters)
    check_gradient(lambda values: task.scores(with_values(model, parameters, values), samples).loss, free)


def check_gradient(loss: Any, free: Any) -> None:
    """The derivative along one random direction of each free array, against central differences."""
    value, rng = eqx.filter_jit(loss), np.random.default_rng(1)
    gradient = eqx.filter_jit(eqx.filter_grad(loss))(free)
    for place, array in enumerate(free):
        direction = rng.normal(size=array.shape)
        direction /= np.linalg.norm(direction)

        def along(size: float, place: int = place, array: Any = array, direction: Any = direction) -> float:
            return float(value((*free[:place], array + size * direction, *free[place + 1 :])))

        size = 1e-4
        expected = (8 * (along(size) - along(-size)) - (along(2 * size) - along(-2 * size))) / (12 * size)
        assert abs(float(np.vdot(gradient[place], direction)) - expected) < 1e-9, place


POINTS = np.random.default_rng(3).normal(size=(12, 2))
TARGETS = np.sin(POINTS[:, 0])
LABELS = np.eye(2)[(POINTS[:, 0] > 0).astype(int)]
GAUSSIAN, ATTENTION = k.Gaussian(0.9), k.Attention(1.2, query=np.eye(2) + 0.1, key=np.eye(2) - 0.1)
TABLES = k.Embedded(*(np.random.default_rng(seed).normal(size=(4, 2)) for seed in (0, 1)))
LETTERS = np.arange(12.0)[:, None] % 4
OF_KERNELS: dict[str, tuple[Any, Any, list[str]]] = {
    "left out, width": (LeaveOneOut(POINTS, TARGETS), GAUSSIAN, ["width"]),
    "left out, classes": (LeaveOneOut(POINTS, LABELS, "log"), ATTENTION, ["beta", "query", "key"]),
    "left out, tables": (LeaveOneOut(LETTERS, LABELS), TABLES, ["query_table", "key_table"]),
    "left out, mixture": (
        LeaveOneOut(POINTS, TARGETS), k.Mixture((k.Gaussian(0.4), k.Gaussian(1.5)), (1.0, 0.5)), ["weights.1"],
    ),
    "reconstruction": (Reconstruction(POINTS), ATTENTION, ["beta", "query", "key"]),
    "likelihood": (LeaveOneOutLikelihood(POINTS), GAUSSIAN, ["width"]),
    "evidence": (
        Evidence(POINTS, TARGETS), Observed(1.3 * GAUSSIAN, 0.3), ["kernel.kernel.width", "kernel.factor", "noise"],
    ),
    "contrast": (Contrast(POINTS, POINTS[:, ::-1].copy()), ATTENTION, ["beta", "query", "key"]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_KERNELS)
def test_gradients_of_losses_of_kernels_are_finite_differences(name):
    loss, model, names = OF_KERNELS[name]
    parameters = parameters_of(model, names)
    check_gradient(lambda values: loss(with_values(model, parameters, values)), free_values(model, parameters))


@pytest.mark.slow
def test_loss_and_gradient_are_those_of_torch():
    """A network of two layers, written anew in torch, with its own automatic derivatives."""
    pytest.importorskip("torch")
    task = NextToken(TEXT, 8)
    shape = Architecture(6, 2, 2, 7, task.vocabulary, "learned", 8, causal=True)
    model = random_transformer(jax.random.key(3), shape)
    windows = task.held_out(5)
    loss, gradients = torch_loss_and_gradient(model, np.asarray(windows))
    names = list(gradients)
    parameters = parameters_of(model, names)
    value, found = eqx.filter_value_and_grad(
        lambda values: task.scores(with_values(model, parameters, values), windows).loss
    )(free_values(model, parameters))
    assert abs(float(value) - loss) < 1e-12
    for name, ours in zip(names, found, strict=True):
        np.testing.assert_allclose(ours, gradients[name], atol=1e-12, err_msg=name)


def test_what_is_no_task_is_a_sentence():
    with pytest.raises(ArgumentError, match="rule"):
        SequenceClassification(rule="last")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="share"):
        SequenceClassification(share=1.0)
    with pytest.raises(ArgumentError, match="at least 2"):
        SequenceClassification(classes=1)
    with pytest.raises(ShapeError, match="longer text"):
        NextToken("abc" * 10, length=20)
    with pytest.raises(ArgumentError, match="held_out_share"):
        NextToken("abc" * 100, held_out_share=0.0)
    with pytest.raises(ArgumentError, match="'x' is none of the 3 tokens"):
        NextToken("abc" * 100, length=9).ids("axb")
    with pytest.raises(ArgumentError, match="must not hold"):
        MaskedToken("ab▢" * 100)
