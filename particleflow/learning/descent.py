"""Down a loss: parameters of a model that make it small, by any optimizer of optax.

L-BFGS with a line search is taken unless another optimizer is given: these losses are smooth, of few numbers, and the
same at every step, so that curvature is worth remembering (Liu and Nocedal 1989). The model that is kept is the best
one that was seen, by the loss, or by a second loss on data that were held back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np
import optax
from jaxtyping import Array

from particleflow.errors import ArgumentError
from particleflow.learning.parameters import Parameter, Paths, free_values, parameters_of, with_values
from particleflow.progress_bar import counting

Loss = Callable[[Any], Array]
_USUAL = optax.lbfgs(memory_size=10)


@dataclass(frozen=True)
class Learned:
    """What was learned: the `model`, an ordinary kernel or flow; its `loss`; the `losses` of all steps, and why it ended.

    `validation` are the losses on what was held back, None where nothing was; then `loss` is the least of them.
    """

    model: Any
    loss: float
    losses: np.ndarray
    validation: np.ndarray | None
    reason: str

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return len(self.losses) - 1

    def __repr__(self) -> str:
        return f"Learned after {self.steps} steps ({self.reason}): loss {self.loss:.6g}\n{self.model!r}"


def learn(
    model: Any,
    loss: Loss,
    parameters: Paths | Sequence[Paths],
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 500,
    tolerance: float = 1e-12,
    patience: int = 5,
    validate: Loss | None = None,
    progress: bool | Callable[[int, float], None] | None = None,
) -> Learned:
    """The model whose parameters make a loss least, searched from where it is.

    Parameters: `model`, a kernel, a flow, or any module; `loss`, a function of it, see `losses`; `parameters`, paths of
    the numbers that may change, such as "width" (a tuple of paths is one number in several places); `optimizer`, any of
    optax's, L-BFGS if left out; `steps`, the most that are taken; it ends early when `patience` steps have not lowered
    the loss by a share `tolerance` of it, or the loss `validate` of held-back data, if there is one; `progress`, true
    for a bar, or a function that is told step and loss.
    """
    for name, count in (("steps", steps), ("patience", patience)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ArgumentError(f"Argument `{name}` must be a positive integer, but is {count!r}.")
    chosen = parameters_of(model, parameters)
    descent = optax.with_extra_args_support(optimizer or _USUAL)
    free = free_values(model, chosen, loss)
    state = descent.init(free)
    best = _Best(free, tolerance)
    losses, held_back = [], []
    reason = f"all {steps} steps were taken"
    with counting(progress, steps, "learning") as report:
        for step in range(steps + 1):
            value, further, state = _step(descent, loss, model, chosen, free, state)
            losses.append(float(value))
            judged = losses[-1] if validate is None else float(_value(validate, model, chosen, free))
            held_back.append(judged)
            if step == 0 and not np.isfinite(judged):
                raise ArgumentError(f"The loss is {judged} at the start, so that there is no way down from it.")
            best.see(judged, free)
            report(step, losses[-1])
            if not np.isfinite(judged) or best.since > patience:
                reason = f"no better for {patience} steps" if np.isfinite(judged) else "the loss is not finite any more"
                break
            free = further
    return Learned(
        with_values(model, chosen, best.free),
        best.value,
        np.asarray(losses),
        None if validate is None else np.asarray(held_back),
        reason,
    )


class _Best:
    """The least loss so far, where it was, and for how many steps none was less by more than a share of it."""

    def __init__(self, free: tuple[Array, ...], tolerance: float):
        self.value, self.free, self.tolerance = np.inf, free, tolerance
        self.since, self._mark = 0, np.inf

    def see(self, value: float, free: tuple[Array, ...]) -> None:
        """Look at one more loss."""
        if value < self.value:
            self.value, self.free = value, free
        if value < self._mark - self.tolerance * abs(self._mark) or not np.isfinite(self._mark):
            self.since, self._mark = 0, value
        else:
            self.since += 1


@eqx.filter_jit
def _step(
    descent: Any, loss: Loss, model: Any, chosen: tuple[Parameter, ...], free: tuple[Array, ...], state: Any
) -> tuple[Array, tuple[Array, ...], Any]:
    """The loss here, where the optimizer goes from here, and what it remembers."""

    def at(values: tuple[Array, ...]) -> Array:
        return loss(with_values(model, chosen, values))

    value, slope = eqx.filter_value_and_grad(at)(free)
    updates, state = descent.update(slope, state, free, value=value, grad=slope, value_fn=at)
    return value, optax.apply_updates(free, updates), state


@eqx.filter_jit
def _value(loss: Loss, model: Any, chosen: tuple[Parameter, ...], free: tuple[Array, ...]) -> Array:
    return loss(with_values(model, chosen, free))
