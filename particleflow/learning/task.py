"""What a network is trained for: samples, drawn by a key or held back, and the loss of a model on them."""

import abc
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from particleflow._support.representation import shown
from particleflow.errors import check_kind, whole_number

Part = Literal["validation", "test"]


class Scores(NamedTuple):
    """The mean `loss` of a model on some samples, in nats, and its `accuracy`, the share of right answers."""

    loss: Float[Array, ""]
    accuracy: Float[Array, ""]


class AbstractTask(eqx.Module):
    """Samples of a problem, and how well a model solves it; samples are any arrays, the first axis counts them."""

    @abc.abstractmethod
    def batch(self, key: Array, count: int) -> Any:
        """So many samples to learn from, drawn by a random key."""

    @abc.abstractmethod
    def held_out(self, count: int, part: Part = "test") -> Any:
        """At most so many samples that are never learned from, always the same ones.

        `train` chooses the model by those of the part "validation"; `evaluate` takes others.
        """

    @abc.abstractmethod
    def scores(self, model: Any, samples: Any) -> Scores:
        """Loss and accuracy of a model on some samples."""

    def __repr__(self) -> str:
        return shown(self)


def evaluate(model: Any, task: AbstractTask, count: int = 1000) -> Scores:
    """Loss and accuracy of a model on at most `count` samples that it was neither trained on nor chosen by."""
    check_kind(task, AbstractTask, "task", "a task")
    return held_out_scores(task, model, whole_number(count, "count"), "test")


@eqx.filter_jit
def held_out_scores(task: AbstractTask, model: Any, count: int, part: Part) -> Scores:
    """The compiled scores of a model on a part of the samples that were held back."""
    return task.scores(model, task.held_out(count, part))


def last_states(model: Any, ids: Int[Array, "b n"]) -> Float[Array, "b n d"]:
    """x_L, the last hidden states of the tokens of several texts."""
    return jax.vmap(lambda each: model.hidden_states(each)[-1])(ids)


def logistic_scores(
    logits: Float[Array, "*b k"], labels: Int[Array, "*b"], counted: Bool[Array, "*b"] | None = None
) -> Scores:
    """Cross entropy and accuracy of logits: softmax over k classes, or for k = 1 the logistic y = σ(logit) of class 1.

    Parameters: `logits`; the `labels`, 0 … k − 1, or 0 and 1; `counted`, which of them count, all if left out.
    """
    if logits.shape[-1] == 1:
        logits = jnp.concatenate([jnp.zeros_like(logits), logits], axis=-1)
    found = jax.nn.log_softmax(logits, axis=-1)
    losses = -jnp.take_along_axis(found, labels[..., None], axis=-1)[..., 0]
    right = jnp.argmax(logits, axis=-1).astype(labels.dtype) == labels
    weights = jnp.ones_like(losses) if counted is None else counted.astype(losses.dtype)
    weights = weights / jnp.sum(weights)
    return Scores(jnp.sum(weights * losses), jnp.sum(weights * right.astype(losses.dtype)))
