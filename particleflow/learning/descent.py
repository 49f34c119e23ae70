"""Down a loss: parameters of a model that make it small, by any optimizer of optax.

Unless another optimizer is given, directions are those of L-BFGS: these losses are smooth, of few numbers, and the same
at every step, so that curvature is worth remembering (Liu and Nocedal 1989). A step that does not lower the loss as its
slope promises (Armijo 1966) is halved; so is one after which the loss cannot be computed. The model that is kept is the
best one that was seen, by the loss, or by a second loss on data that were held back.
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

from particleflow.errors import ArgumentError
from particleflow.learning.parameters import Parameter, Paths, free_values, parameters_of, with_values
from particleflow.progress_bar import counting

Loss = Callable[[Any], Array]
Free = tuple[Array, ...]

_USUAL = optax.chain(optax.scale_by_lbfgs(memory_size=10), optax.scale(-1.0))
_PROMISED = 1e-4  # the part of what a slope promises that a step must bring
_HALVINGS = 30
_DOUBLED = 2**10  # as far as a step is stretched


@dataclass(frozen=True)
class Learned:
    """What was learned: the `model`, an ordinary kernel or flow, its `loss`, those of all steps, and why it ended.

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
    search = _Search(model, loss, parameters_of(model, parameters), optimizer)
    free = free_values(model, search.chosen, loss)
    state = search.optimizer.init(free)
    value, slope = search.begin(free)
    best = _Best(free, tolerance)
    losses, held_back = [], []
    reason = f"all {steps} steps were taken"
    with counting(progress, steps, "learning") as report:
        for step in range(steps + 1):
            losses.append(value)
            held_back.append(value if validate is None else float(_value(validate, model, search.chosen, free)))
            best.see(held_back[-1], free)
            report(step, value)
            if best.since > patience:
                reason = f"no better for {patience} steps"
            if best.since > patience or step == steps:
                break
            further = search.step(free, value, slope, state, fresh=step == 0)
            if further is None and search.halving:  # what it remembers misleads it: straight down, then
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
    """A loss as a function of free numbers, and how one goes down from some of them."""

    def __init__(self, model: Any, loss: Loss, chosen: tuple[Parameter, ...], optimizer: Any):
        self.model, self.loss, self.chosen = model, loss, chosen
        self.halving = optimizer is None
        self.optimizer = optax.with_extra_args_support(_USUAL if optimizer is None else optimizer)

    def begin(self, free: Free) -> tuple[float, Free]:
        """Loss and slope at the start; refused where there are none."""
        try:
            value, slope = _value_and_slope(self.loss, self.model, self.chosen, free)
        except RuntimeError as error:  # a compiled program says so in this way
            first = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
            raise ArgumentError(f"The loss cannot be computed at the start: {first[:300]}") from error
        if not np.isfinite(value):
            raise ArgumentError(f"The loss is {float(value)} at the start, so that there is no way down from it.")
        return float(value), slope

    def step(
        self, free: Free, value: float, slope: Free, state: Any, *, fresh: bool
    ) -> tuple[Free, float, Free, Any] | None:
        """Where the optimizer goes from here, loss and slope there, and what it remembers; None: nowhere.

        One that remembers nothing yet, a `fresh` one, does not know how far to go: its steps may be doubled, too.
        """
        here = jnp.asarray(value, free[0].dtype)
        updates, state = _proposed(self.optimizer, self.loss, self.model, self.chosen, free, here, slope, state)
        promised = sum(float(np.vdot(one, other)) for one, other in zip(slope, updates, strict=True))

        def at(share: float) -> tuple[Free, float, Free, Any] | None:
            there = jax.tree_util.tree_map(lambda here, update: here + share * update, free, updates)
            found = self._known(there)
            kept = found is not None and (not self.halving or found[0] <= value + _PROMISED * share * promised)
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
        """Loss and slope at some free numbers, None where they are not finite or cannot be computed."""
        try:
            value, slope = _value_and_slope(self.loss, self.model, self.chosen, free)
        except (RuntimeError, ArgumentError):  # a flow that blows up, a kernel that has become infinitely wide
            return None
        known = np.isfinite(value) and all(np.isfinite(each).all() for each in slope)
        return (float(value), slope) if known else None


class _Best:
    """The least loss so far, where it was, and for how many steps none was less by more than a share of it."""

    def __init__(self, free: Free, tolerance: float):
        self.value, self.free, self.tolerance = np.inf, free, tolerance
        self.since, self._mark = 0, np.inf

    def see(self, value: float, free: Free) -> None:
        """Look at one more loss."""
        if value < self.value:
            self.value, self.free = value, free
        if value < self._mark - self.tolerance * abs(self._mark) or not np.isfinite(self._mark):
            self.since, self._mark = 0, value
        else:
            self.since += 1


@eqx.filter_jit
def _value_and_slope(loss: Loss, model: Any, chosen: tuple[Parameter, ...], free: Free) -> tuple[Array, Free]:
    return eqx.filter_value_and_grad(lambda values: loss(with_values(model, chosen, values)))(free)


@eqx.filter_jit
def _proposed(
    optimizer: Any,
    loss: Loss,
    model: Any,
    chosen: tuple[Parameter, ...],
    free: Free,
    value: Array,
    slope: Free,
    state: Any,
) -> tuple[Free, Any]:
    """By how much an optimizer would go on, and what it remembers; one that searches along a line asks for losses."""

    def at(values: Free) -> Array:
        return loss(with_values(model, chosen, values))

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as optax is written for
        return optimizer.update(slope, state, free, value=value, grad=slope, value_fn=at)


@eqx.filter_jit
def _value(loss: Loss, model: Any, chosen: tuple[Parameter, ...], free: Free) -> Array:
    return loss(with_values(model, chosen, free))
