"""Train a network on random batches of a task, by any optimizer of optax, with checkpoints.

    u ← u + update(∇ loss(u; batch k)),    batch k drawn by the key (seed, k),    k = 0, 1, 2, …

Batches depend on the seed and on the number of the step alone, and a checkpoint holds all numbers that steps change. So
training that was killed goes on from its last checkpoint to the same bits as if it had never stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array

from particleflow._support.progress import reporting
from particleflow.errors import ArgumentError, check_kind, whole_number
from particleflow.learning.parameters import (
    LearnedParameter,
    Paths,
    free_values,
    learnable,
    parameters_of,
    with_values,
)
from particleflow.learning.task import AbstractTask, held_out_scores
from particleflow.learning.training_checkpoints import Checkpoints, Progress

_USUAL_RATE = 3e-3
_SILENT_SECONDS = 2.0  # before a bar is shown that was not asked for
_LONGEST_SLOPE = 1.0  # gradients are cut to this length


@dataclass(frozen=True)
class Trained:
    """The result of training.

    Attributes: the `model`, that of the least validation loss, or the last one without validation; its `loss`, that
    on what was held back, or that of the last batch; the `losses` of the batches of all steps; `validation`, the losses
    on what was held back, and `accuracy`, the shares of right answers, both after the steps `validated`, None without;
    the `reason` why training ended.
    """

    model: Any
    loss: float
    losses: np.ndarray
    validation: np.ndarray | None
    accuracy: np.ndarray | None
    validated: np.ndarray | None
    reason: str

    @property
    def steps(self) -> int:
        """The number of steps that were taken."""
        return len(self.losses)

    def __repr__(self) -> str:
        kind = "loss" if self.validation is None else "validation loss"
        return f"Trained in {self.steps} steps ({self.reason}): {kind} {self.loss:.6g}\n{self.model!r}"


def usual_optimizer() -> optax.GradientTransformation:
    """Adam at the rate 0.003 with gradients cut to the length 1, which `train` uses unless it is given another one."""
    return optax.chain(optax.clip_by_global_norm(_LONGEST_SLOPE), optax.adam(_USUAL_RATE))


def train(
    model: Any,
    task: AbstractTask,
    parameters: Paths | Sequence[Paths] | None = None,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 1000,
    batch: int = 32,
    seed: int = 0,
    validate: int = 256,
    every: int = 50,
    patience: int | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | Callable[[int, float], None] | None = None,
) -> Trained:
    """Train parameters of a model on random batches of a task.

    Parameters: `model`, a network, a flow or any module that the task takes; `task`; `parameters`, paths as for
    `learn`, all of `learnable(model)` if left out; `optimizer`, any of optax's; the most `steps`; samples in a `batch`;
    `seed` of the batches; `validate`, the most samples that are held back to choose the model by, 0 for none; `every`
    so many steps it is validated and a checkpoint is written; training ends after `patience` validations without gain;
    `checkpoint`, a folder, from which training that was stopped goes on; `progress`, true for a bar, false for
    none, or a function that is called with step and loss; left out, there is a bar on a terminal after two seconds.
    """
    check_kind(task, AbstractTask, "task", "a task, such as NextToken(text)")
    for name, count in {"steps": steps, "batch": batch, "every": every}.items():
        whole_number(count, name)
    whole_number(validate, "validate", 0)
    if patience is not None:
        whole_number(patience, "patience")
        if not validate:
            raise ArgumentError("Argument `patience` counts validations, but `validate` is 0; hold some samples back.")
    names = learnable(model) if parameters is None else parameters
    training = _Training(model, task, parameters_of(model, names), optimizer, batch, seed, validate)
    settings = {"every": every, "patience": patience}
    kept = None if checkpoint is None else Checkpoints(checkpoint, training.arguments | settings)
    now = training.begin()
    if kept is not None:
        now = kept.latest(now)
    with reporting(
        progress, "training", steps, lambda step, loss: (step, f"loss {loss:.6g}"), after=_SILENT_SECONDS
    ) as report:
        while (reason := _ended(now, steps, patience)) is None:
            training.step(now)
            report(now.step, now.losses[-1])
            if now.step % every == 0 or now.step == steps:
                training.validated(now)
                if kept is not None and now.step % every == 0:  # so that more steps later are as if never stopped
                    kept.save(now)
    return training.result(now, reason)


def _ended(now: Progress, steps: int, patience: int | None) -> str | None:
    """Why training ends here, or None."""
    if now.losses and not np.isfinite(now.losses[-1]):
        return f"the loss of step {now.step} is {now.losses[-1]}"
    if patience is not None and now.since >= patience:
        return f"no better in {patience} validations"
    return f"all {steps} steps were taken" if now.step >= steps else None


class _Training:
    """What steps and validations do with the numbers of training, which are a `Progress`."""

    def __init__(
        self,
        model: Any,
        task: AbstractTask,
        chosen: tuple[LearnedParameter, ...],
        optimizer: optax.GradientTransformation | None,
        batch: int,
        seed: int,
        validate: int,
    ):
        self.model, self.task, self.chosen = model, task, chosen
        self.optimizer = usual_optimizer() if optimizer is None else optimizer
        self.batch, self.validate = batch, validate
        self.key = jax.random.key(whole_number(seed, "seed", 0))
        self.arguments = {
            "model": model, "task": task, "parameters": [each.places for each in chosen],
            "optimizer": self.optimizer, "batch": batch, "seed": seed, "validate": validate,
        }  # fmt: skip

    def begin(self) -> Progress:
        """The numbers before the first step."""
        free = free_values(self.model, self.chosen)
        return Progress(free, _init(self.optimizer, free), free)

    def step(self, now: Progress) -> None:
        """One step of the optimizer on the next batch; without effect where the loss is not finite."""
        key = jax.random.fold_in(self.key, now.step)
        free, state, loss = _stepped(
            self.optimizer, self.task, self.model, self.chosen, now.free, now.state, key, self.batch
        )
        now.losses.append(float(loss))
        if np.isfinite(now.losses[-1]):
            now.best = now.best if self.validate else now.free
            now.free, now.state = free, state
        elif len(now.losses) == 1:
            raise ArgumentError(f"The loss is {now.losses[0]} at the start, so that there is no way down from it.")

    def validated(self, now: Progress) -> None:
        """Loss and accuracy on what is held back, and whether they are the best so far."""
        if not self.validate:
            return
        scores = held_out_scores(self.task, with_values(self.model, self.chosen, now.free), self.validate, "validation")
        now.validated.append(now.step)
        now.validation.append(float(scores.loss))
        now.accuracy.append(float(scores.accuracy))
        if now.validation[-1] < min(now.validation[:-1], default=np.inf):
            now.best = now.free

    def result(self, now: Progress, reason: str) -> Trained:
        """The outcome with the best numbers, or the last ones of a finite loss where nothing is held back."""
        free = now.best if now.validation or not np.isfinite(now.losses[-1]) else now.free
        validation, accuracy, validated = (
            np.asarray(each) if self.validate else None for each in (now.validation, now.accuracy, now.validated)
        )
        return Trained(
            with_values(self.model, self.chosen, free),
            min(now.validation) if now.validation else now.losses[-1],
            np.asarray(now.losses),
            validation,
            accuracy,
            validated,
            reason,
        )


@eqx.filter_jit
def _init(optimizer: optax.GradientTransformation, free: tuple[Array, ...]) -> Any:
    """The state of an optimizer before its first step."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return optimizer.init(free)


@eqx.filter_jit
def _stepped(
    optimizer: optax.GradientTransformation,
    task: AbstractTask,
    model: Any,
    chosen: tuple[LearnedParameter, ...],
    free: tuple[Array, ...],
    state: Any,
    key: Array,
    count: int,
) -> tuple[tuple[Array, ...], Any, Array]:
    """The free numbers and the state of the optimizer after a step on a batch, and the loss before it."""
    samples = task.batch(key, count)
    loss, slope = eqx.filter_value_and_grad(
        lambda values: task.scores(with_values(model, chosen, values), samples).loss
    )(free)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax relies on both promotions
        updates, state = optimizer.update(slope, state, free)
        moved = optax.apply_updates(free, updates)
    return jax.tree_util.tree_map(lambda new, old: new.astype(old.dtype), moved, free), state, loss
