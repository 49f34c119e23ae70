"""Training on batches: the same bits after a stop, what may not change, when it ends, and what it then returns."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import ArgumentError, StoreError
from particleflow.learning import AbstractTask, NextToken, Scores, SequenceClassification, learnable, train
from particleflow.transformer import Embedding, TokenFlow, Unembedding

SCRIPT = Path(__file__).parents[1] / "helpers" / "killed_training.py"
TASK = SequenceClassification(length=5)


def network(dimension: int = 3) -> TokenFlow:
    """Attention in two steps, with a logistic read-out."""
    rng = np.random.default_rng(0)
    flow = pf.Flow(pf.Attend(k.Attention(1.0, rng.normal(size=(dimension, dimension)))), pf.Sphere())
    table = rng.normal(size=(TASK.vocabulary, dimension))
    return TokenFlow(Embedding(table), flow, 2, Unembedding(rng.normal(size=(1, dimension))))


class Line(AbstractTask):
    """y = 2 x for a model that is one number, its width."""

    noise: float = eqx.field(static=True, default=0.0)

    def batch(self, key, count):
        return jax.random.normal(key, (count,))

    def held_out(self, count, part="test"):
        return jnp.linspace(-1.0, 1.0, count)

    def scores(self, model, samples):
        miss = jnp.mean(jnp.square(model.width * samples - 2.0 * samples))
        return Scores(miss + self.noise * jnp.log(model.width), jnp.asarray(0.0))


SETTINGS: dict[str, Any] = {"parameters": "width", "steps": 14, "batch": 4, "every": 3, "validate": 8}


def assert_same(one: Any, other: Any) -> None:
    """The same bits in losses and models."""
    for name in ("losses", "validation", "accuracy", "validated"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.loss, one.reason) == (other.loss, other.reason)
    for mine, theirs in zip(*map(jax.tree_util.tree_leaves, (one.model, other.model)), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """The checkpoints of training that is stopped after eight of fourteen steps."""
    folder = tmp_path_factory.mktemp("stopped") / "checkpoints"

    def stop(step: int, loss: float) -> None:
        if step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(k.Gaussian(1.0), Line(), **SETTINGS, checkpoint=folder, progress=stop)
    return folder


def test_training_that_was_stopped_goes_on_to_the_same_bits(stopped):
    told: list[int] = []
    how: dict[str, Any] = SETTINGS | {"progress": lambda step, loss: told.append(step)}
    undisturbed = train(k.Gaussian(1.0), Line(), **SETTINGS)
    again = train(k.Gaussian(1.0), Line(), **how, checkpoint=stopped)
    assert told == list(range(7, 15))
    assert_same(undisturbed, again)
    assert again.steps == 14
    assert again.validated is not None
    assert again.validated.tolist() == [3, 6, 9, 12, 14]


def test_more_steps_are_as_if_never_stopped(tmp_path):
    """Also where training was validated at its end, between two checkpoints."""
    fewer: dict[str, Any] = SETTINGS | {"steps": 11}
    shorter = train(k.Gaussian(1.0), Line(), **fewer, checkpoint=tmp_path)
    assert shorter.steps == 11
    undisturbed = train(k.Gaussian(1.0), Line(), **SETTINGS)
    assert_same(undisturbed, train(k.Gaussian(1.0), Line(), **SETTINGS, checkpoint=tmp_path))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 1}, "`seed` differs"),
        ({"batch": 5}, "`batch` differs"),
        ({"every": 4}, "`every` differs"),
        ({"patience": 4}, "`patience` differs"),
        ({"optimizer": optax.adam(1e-3)}, "`optimizer` differs"),
        ({"task": Line(noise=0.5)}, "`task` differs"),
        ({"parameters": "kernel.width", "model": 2.0 * k.Gaussian(1.0)}, "`model` and `parameters` differ"),
        ({"model": k.Gaussian(1.5)}, "`model` differs"),
    ],
)
def test_other_training_does_not_go_on(stopped, changed, said):
    how: dict[str, Any] = {"model": k.Gaussian(1.0), "task": Line(), **SETTINGS, **changed}
    with pytest.raises(ArgumentError, match=said):
        train(**how, checkpoint=stopped)


@pytest.mark.slow
def test_a_network_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    def stop(step: int, loss: float) -> None:
        if step in (5, 11):
            raise KeyboardInterrupt

    how: dict[str, Any] = SETTINGS | {"parameters": None}
    undisturbed = train(network(), TASK, **how)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(network(), TASK, **how, checkpoint=tmp_path, progress=stop)
    assert_same(undisturbed, train(network(), TASK, **how, checkpoint=tmp_path))


def test_other_rates_are_other_optimizers(tmp_path):
    for rate, expected in ((1e-2, None), (1e-2, None), (2e-2, "`optimizer` differs")):
        how: dict[str, Any] = {"optimizer": optax.sgd(rate), "steps": 2, "every": 1, "checkpoint": tmp_path}
        if expected is None:
            train(k.Gaussian(1.0), Line(), "width", **how)
        else:
            with pytest.raises(ArgumentError, match=expected):
                train(k.Gaussian(1.0), Line(), "width", **how)


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    how: dict[str, Any] = {"optimizer": optax.sgd(1e-2), "every": 1, "checkpoint": tmp_path}
    whole = train(k.Gaussian(1.0), Line(), "width", steps=6, optimizer=optax.sgd(1e-2), every=1)
    train(k.Gaussian(1.0), Line(), "width", steps=4, **how)
    newest = max(tmp_path.glob("checkpoint-*.npz"))
    newest.write_bytes(newest.read_bytes()[:-40])
    told: list[int] = []
    again = train(
        k.Gaussian(1.0), Line(), "width", steps=6, **how, progress=lambda step, loss: told.append(step)
    )  # fmt: skip
    assert told == [4, 5, 6]
    np.testing.assert_array_equal(whole.losses, again.losses)
    for path in tmp_path.glob("checkpoint-*.npz"):
        path.write_bytes(b"")
    with pytest.raises(StoreError, match="no usable checkpoint"):
        train(k.Gaussian(1.0), Line(), "width", steps=6, **how)


def test_the_best_model_is_returned():
    """Steps of plain gradient descent that are too long jump over the best width, 2, to and fro, ever further."""
    trained = train(
        k.Gaussian(1.9), Line(), "width", optimizer=optax.sgd(1.3), steps=40, batch=64, validate=9, every=1, patience=3
    )
    assert trained.validation is not None
    assert trained.validation[-1] > trained.validation.min() == trained.loss
    expected = float(np.mean((np.linspace(-1, 1, 9) * (float(trained.model.width) - 2)) ** 2))
    assert abs(trained.loss - expected) < 1e-12


def test_training_ends_where_there_is_no_gain_or_no_number():
    fixed = train(k.Gaussian(1.0), Line(), "width", optimizer=optax.sgd(0.0), steps=50, every=1, patience=4)
    assert (fixed.steps, fixed.reason) == (5, "no better in 4 validations")
    blown = train(k.Gaussian(1.0), Line(), "width", optimizer=optax.sgd(1e200), steps=50, validate=0)
    assert blown.reason.startswith("the loss of step")
    assert np.isfinite(float(blown.model.width))
    assert blown.validation is None
    with pytest.raises(ArgumentError, match="no way down"):
        train(k.Gaussian(1.0), Line(noise=float("nan")), "width", steps=2)
    with pytest.raises(ArgumentError, match="hold some samples back"):
        train(k.Gaussian(1.0), Line(), "width", validate=0, patience=2)
    with pytest.raises(ArgumentError, match="a task, such as"):
        train(k.Gaussian(1.0), 3.0, "width")  # pyright: ignore[reportArgumentType]


def test_what_is_learned_where_nothing_is_named():
    """Matrices and vectors; not β, a duration or the numbers of fixed data, which can be named."""
    model = network()
    assert learnable(model) == ["embedding.table", "flow.drift.kernel.query", "unembedding.table"]
    data = pf.Measure.uniform(np.ones((4, 2)))
    flow = pf.Flow([pf.MeanShift(k.Gaussian(0.3), data=data), pf.drifts.Linear(np.eye(2))])
    assert learnable(flow) == ["drift.drifts.1.matrix"]


@pytest.mark.slow
def test_training_that_is_killed_goes_on_to_the_same_bits(tmp_path):
    """SIGKILL at three random steps, one after the other, and at one in another training."""
    chance = random.Random(7)

    def run(folder: Path, result: Path, stop: int | None = None) -> None:
        command = [sys.executable, str(SCRIPT), str(folder), str(result)]
        log = tmp_path / "errors.txt"  # a pipe that nobody reads would fill up, and the training wait for ever
        with log.open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if stop is not None and int(line) >= stop:
                process.kill()
                break
        process.communicate(timeout=600)
        assert (process.returncode == 0) == (stop is None), log.read_text()

    run(tmp_path / "whole", tmp_path / "whole.npz")
    stops = [sorted(chance.sample(range(3, 398), 3)), [chance.randrange(3, 398)]]
    for place, several in enumerate(stops):
        folder, result = tmp_path / f"killed{place}", tmp_path / f"killed{place}.npz"
        for stop in several:
            run(folder, result, stop)
            assert not result.exists()
        run(folder, result)
        with np.load(tmp_path / "whole.npz") as one, np.load(result) as other:
            assert one.files == other.files
            for name in one.files:
                np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.slow
def test_training_moves_only_what_is_named():
    task = NextToken("abcabcabc" * 9, length=4)
    rng = np.random.default_rng(1)
    table = rng.normal(size=(3, 2))
    flow = pf.Flow(pf.Attend(k.Attention(1.0), value=np.eye(2), positional=k.Causal()))
    model = TokenFlow(Embedding(table), flow, 1, Unembedding(table))
    trained = train(model, task, [("embedding.table", "unembedding.table")], steps=3, batch=2, validate=0)
    np.testing.assert_array_equal(trained.model.embedding.table, trained.model.unembedding.table)
    assert np.abs(np.asarray(trained.model.embedding.table) - table).max() > 1e-4
    np.testing.assert_array_equal(trained.model.flow.drift.value, np.eye(2))
