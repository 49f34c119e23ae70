"""Restricted Boltzmann machines fitted to patterns: by their likelihood, or by contrastive divergence.

The likelihood's slope is E_data − E_model of the statistics h vᵀ, v and h. `PatternLikelihood` sums the model's part
over all patterns of the smaller layer, so that `learn` can descend it; `contrast_patterns` replaces it by patterns that
Gibbs sampling has drawn, which needs no sum:

    CD-k          k rounds from the data, anew at every step          biased: k rounds forget the data only in part
    persistent    k rounds from where the chains of the step before ended: they follow the model as it changes

Sources: Hinton, Training products of experts by minimizing contrastive divergence (2002); Tieleman, Training restricted
Boltzmann machines using approximations to the likelihood gradient (2008), the persistent chains of scikit-learn.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow._support.progress import reporting
from particleflow.errors import ArgumentError, ShapeError, whole_number

if TYPE_CHECKING:
    from particleflow.theory.exponential_family import RestrictedBoltzmannMachine

_RATE = 0.02  # of Adam's first step, if no optimizer is given; it falls to 0, without which draws are never averaged


class PatternLikelihood(eqx.Module):
    """−mean log p(v) of some patterns under a machine, its normalizer by enumeration: a loss for `learn`.

    Parameters: `patterns` (n, d) of 0 and 1.
    """

    patterns: Float[Array, "n d"]

    def __init__(self, patterns: Any):
        self.patterns = _checked(patterns)

    def __call__(self, machine: "RestrictedBoltzmannMachine") -> Float[Array, ""]:
        """The mean of F(v) + log Z."""
        return -jnp.mean(machine.log_likelihood(self.patterns))


def contrast_patterns(
    machine: "RestrictedBoltzmannMachine",
    patterns: Any,
    key: Array,
    *,
    rounds: int = 1,
    chains: int | None = None,
    steps: int = 1000,
    optimizer: optax.GradientTransformation | None = None,
    progress: bool | Callable[[int, float], None] | None = None,
) -> "RestrictedBoltzmannMachine":
    """Fit a machine by contrastive divergence, CD-k, or by persistent chains; returns the machine after all steps.

    Parameters: `patterns` (n, d) of 0 and 1, all of which are used at every step; the random `key`; `rounds` k of Gibbs
    sampling a step; the number of persistent `chains`, None for CD-k, whose chains begin at the patterns; the number of
    `steps`; `optimizer`, any of optax's, Adam with a rate that falls to 0 if left out; `progress`, true for a bar, or a
    function that is called with the step and the mean log-pseudo-likelihood of the patterns.
    """
    patterns = _checked(patterns)
    whole_number(rounds, "rounds")
    whole_number(steps, "steps")
    if chains is not None:
        whole_number(chains, "chains")
    optimizer = optimizer or optax.adam(optax.linear_schedule(_RATE, 0.0, steps))
    first, *keys = jax.random.split(key, steps + 1)
    state = optimizer.init(eqx.filter(machine, eqx.is_array))
    shape = (chains or len(patterns), patterns.shape[1])
    drawn = jax.random.bernoulli(first, 0.5, shape).astype(patterns.dtype) if chains else patterns
    with reporting(
        progress, "learning", steps, lambda step, value: (step, f"log-likelihood of a unit {value:.4g}")
    ) as say:
        for step, each in enumerate(keys):
            begin = drawn if chains else patterns
            machine, state, drawn, value = _stepped(machine, optimizer, state, each, patterns, begin, rounds)
            say(step + 1, float(value) if progress else 0.0)
    return machine


@eqx.filter_jit
def _stepped(
    machine: Any, optimizer: Any, state: Any, key: Array, patterns: Array, begin: Array, rounds: int
) -> tuple[Any, Any, Array, Array]:
    """One step: draw from `begin`, ascend the slope; machine, optimizer state, draws, mean log-pseudo-likelihood."""
    drawn = machine.gibbs(key, begin, rounds)
    slope = machine.slope_from(patterns, drawn)
    downhill = eqx.tree_at(
        lambda each: (each.weight, each.visible, each.hidden), machine, (-slope.weight, -slope.visible, -slope.hidden)
    )
    with jax.numpy_dtype_promotion("standard"):
        updates, state = optimizer.update(downhill, state, machine)
    value = jnp.mean(machine.log_pseudo_likelihood(patterns))
    return eqx.apply_updates(machine, updates), state, drawn, value


def _checked(patterns: Any) -> Float[Array, "n d"]:
    """Patterns (n, d) that hold nothing but 0 and 1."""
    found = as_float_array(patterns, "patterns")
    if found.ndim != 2 or 0 in found.shape:
        raise ShapeError(f"Argument `patterns` must have shape (n, d), but has {found.shape}.")
    if not np.isin(np.asarray(found), (0.0, 1.0)).all():
        raise ArgumentError("Argument `patterns` must hold 0 and 1 only, one number a unit.")
    return found
