"""Minimise a loss over parameters of a model, by any optimizer of optax.

Unless another optimizer is given, directions are those of L-BFGS: these losses are smooth, deterministic functions of
few numbers, so that past gradients approximate the curvature (Liu and Nocedal 1989). A step that does not decrease the
loss sufficiently (Armijo 1966) is halved; so is one after which the loss cannot be computed. The result is the model of
the least loss, or of the least second loss on data that were held back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from particleflow._support.progress import reporting
from particleflow.errors import ArgumentError, whole_number
from particleflow.learning.parameters import LearnedParameter, Paths, free_values, parameters_of, with_values

Loss = Callable[[Any], Array]
Free = tuple[Array, ...]

_USUAL = optax.chain(optax.scale_by_lbfgs(memory_size=10), optax.scale(-1.0))
_ARMIJO = 1e-4  # a step must decrease the loss by this share of what the slope predicts
_HALVINGS = 30  # of a step, at most
_DOUBLED = 2**10  # the most by which a first step is lengthened


@dataclass(frozen=True)
class Learned:
    """The result of learning.

    Attributes: the `model`, an ordinary kernel or flow; its `loss`; the `losses` of all steps; `validation`, the losses
    on data that were held back, of which `loss` is then the least, or None; the `reason` why the search ended.
    """

    model: Any
    loss: float
    losses: np.ndarray
    validation: np.ndarray | None
    reason: str

    @property
    def steps(self) -> int:
        """The number of steps that were taken."""
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
    """Minimise a loss over some parameters of a model, starting from their present values.

    Parameters: `model`, a kernel, a flow, or any module; `loss`, a function of it, see `losses`; `parameters`, paths of
    the numbers that may change, such as "width" (a tuple of paths is one number in several places); `optimizer`, any of
    optax's, L-BFGS if left out; `steps`, the most that are taken; the search ends early when `patience` steps have not
    lowered the loss by a share `tolerance` of it, or the loss `validate` of held-back data, if there is one;
    `progress`, true for a bar, or a function that is called with step and loss.
    """
    for name, count in (("steps", steps), ("patience", patience)):
        whole_number(count, name)
    search = _Search(model, loss, parameters_of(model, parameters), optimizer)
    free = free_values(model, search.chosen, loss)
    state = search.optimizer.init(free)
    value, slope = search.begin(free)
    best = _Best(free, tolerance)
    losses, held_back = [], []
    reason = f"all {steps} steps were taken"
    with reporting(progress, "learning", steps, lambda step, loss: (step, f"loss {loss:.6g}")) as report:
        for step in range(steps + 1):
            losses.append(value)
            held_back.append(value if validate is None else search.validated(validate, free))
            best.record(held_back[-1], free)
            report(step, value)
            if best.since >= patience:
                reason = f"no better for {patience} steps"
            if best.since >= patience or step == steps:
                break
            further = search.step(free, value, slope, state, fresh=step == 0)
            if further is None and search.halving:  # L-BFGS's memory is misleading: restart with steepest descent
                further = search.step(free, value, slope, search.optimizer.init(free), fresh=True)
            if further is None:
                reason = "there is no way down from here"
                break
            free, value, slope, state = further
    return Learned(
        with_values(model, search.chosen, best.free),
        best.value,
        np.asarray(losses),
        None if validate is None else np.asarray(held_back),
        reason,
    )


class _Search:
    """A loss as a function of free numbers u, with the steps of an optimizer that decrease it."""

    def __init__(self, model: Any, loss: Loss, chosen: tuple[LearnedParameter, ...], optimizer: Any):
        self.model, self.loss, self.chosen = model, loss, chosen
        self.halving = optimizer is None
        self.optimizer = optax.with_extra_args_support(_USUAL if optimizer is None else optimizer)

    def begin(self, free: Free) -> tuple[float, Free]:
        """Loss and gradient at the start; refused where they cannot be computed."""
        try:
            value, slope = _value_and_slope(self.loss, self.model, self.chosen, free)
        except RuntimeError as error:  # raised by compiled programs
            first = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
            raise ArgumentError(f"The loss cannot be computed at the start: {first[:300]}") from error
        if not np.isfinite(value):
            raise ArgumentError(f"The loss is {float(value)} at the start, so that there is no way down from it.")
        return float(value), slope

    def validated(self, validate: Loss, free: Free) -> float:
        """The loss of held-back data, ∞ where it cannot be computed: a run with the present numbers may blow up."""
        try:
            value = float(_value(validate, self.model, self.chosen, free))
        except RuntimeError:  # raised by compiled programs
            return np.inf
        return np.inf if np.isnan(value) else value

    def step(
        self, free: Free, value: float, slope: Free, state: Any, *, fresh: bool
    ) -> tuple[Free, float, Free, Any] | None:
        """The next free numbers with loss, gradient and optimizer state; None where no step decreases the loss.

        The scale of the first step of a `fresh` optimizer, without past gradients, is arbitrary: it may be doubled as
        well as halved.
        """
        here = jnp.asarray(value, free[0].dtype)
        updates, state = _proposed(self.optimizer, self.loss, self.model, self.chosen, free, here, slope, state)
        predicted = sum(float(np.vdot(one, other)) for one, other in zip(slope, updates, strict=True))

        def at(share: float) -> tuple[Free, float, Free, Any] | None:
            there = jax.tree_util.tree_map(lambda here, update: here + share * update, free, updates)
            found = self._known(there)
            kept = found is not None and (not self.halving or found[0] <= value + _ARMIJO * share * predicted)
            return (there, *found, state) if found is not None and kept else None

        shares = [0.5**halving for halving in range(_HALVINGS if self.halving else 1)]
        share, best = next(((share, found) for share in shares if (found := at(share)) is not None), (0.0, None))
        while fresh and self.halving and best is not None and share < _DOUBLED:
            share, further = 2 * share, at(2 * share)
            if further is None or further[1] >= best[1]:
                break
            best = further
        return best

    def _known(self, free: Free) -> tuple[float, Free] | None:
        """Loss and gradient at some free numbers, None where they are not finite or cannot be computed."""
        try:
            value, slope = _value_and_slope(self.loss, self.model, self.chosen, free)
        except (RuntimeError, ArgumentError):  # a flow that blows up, a kernel that has become infinitely wide
            return None
        known = np.isfinite(value) and all(np.isfinite(each).all() for each in slope)
        return (float(value), slope) if known else None


class _Best:
    """The least loss so far, its free numbers, and the number of steps since it last fell by more than `tolerance`."""

    def __init__(self, free: Free, tolerance: float):
        self.value, self.free, self.tolerance = np.inf, free, tolerance
        self.since, self._mark = 0, np.inf

    def record(self, value: float, free: Free) -> None:
        """Record the loss of one more step."""
        if value < self.value:
            self.value, self.free = value, free
        if value < self._mark - (self.tolerance * abs(self._mark) if np.isfinite(self._mark) else 0.0):
            self.since, self._mark = 0, value
        else:
            self.since += 1


@eqx.filter_jit
def _value_and_slope(loss: Loss, model: Any, chosen: tuple[LearnedParameter, ...], free: Free) -> tuple[Array, Free]:
    """The loss and its gradient by the free numbers."""
    return eqx.filter_value_and_grad(lambda values: loss(with_values(model, chosen, values)))(free)


@eqx.filter_jit
def _proposed(
    optimizer: Any,
    loss: Loss,
    model: Any,
    chosen: tuple[LearnedParameter, ...],
    free: Free,
    value: Array,
    slope: Free,
    state: Any,
) -> tuple[Free, Any]:
    """The update that an optimizer proposes, and its next state; optimizers with line search call the loss."""

    def at(values: Free) -> Array:
        return loss(with_values(model, chosen, values))

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax relies on both promotions
        return optimizer.update(slope, state, free, value=value, grad=slope, value_fn=at)


@eqx.filter_jit
def _value(loss: Loss, model: Any, chosen: tuple[LearnedParameter, ...], free: Free) -> Array:
    """The loss at some free numbers."""
    return loss(with_values(model, chosen, free))
