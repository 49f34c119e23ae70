"""The outcome of a single solve: its last state, or an error that says when and why it failed."""

from typing import TYPE_CHECKING, Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from particleflow.errors import RunError

if TYPE_CHECKING:
    from particleflow.simulation.stepping.window import Method


def at_the_end(solution: diffrax.Solution, method: "Method") -> Any:
    """The last saved state of a solve that did not `throw`; a solve that failed is a `RunError` that says when.

    While JAX traces, the outcome is not known yet. Then the same sentence, without the time, becomes part of the
    program and is raised when it runs, by JAX in its own way (under `equinox.filter_jit`, as
    `equinox.EquinoxRuntimeError`).
    """
    assert solution.ts is not None
    state = jax.tree_util.tree_map(lambda leaf: leaf[-1], solution.ys)
    failed = jnp.asarray(solution.result != diffrax.RESULTS.successful)
    out_of_steps = jnp.asarray(solution.result == diffrax.RESULTS.max_steps_reached)
    try:
        if not failed:
            return state
    except jax.errors.TracerBoolConversionError:
        sentences = [_sentence(each, method, "") for each in (True, False)]
        return eqx.branched_error_if(state, failed, jnp.where(out_of_steps, 0, 1), sentences)
    raise RunError(_sentence(bool(out_of_steps), method, _at(solution.ts[-1])))


def _at(time: Array) -> str:
    return f" at t = {float(time):.10g}"


def _sentence(out_of_steps: bool, method: "Method", when: str) -> str:
    """Why a solve failed, with `when` (" at t = 3" or nothing), and what may help."""
    if out_of_steps:
        return f"`evolve` has taken {method.max_steps} steps{when} and is not at its end. {method.step_limit_advice}"
    why = "no step is small enough" if method.adaptive else "after one more step it is not finite"
    smaller = "" if method.adaptive else " or a smaller step"
    return (
        f"`evolve` blew up{when}: {why}. Choose an earlier end{smaller}; `simulate` names the particle, and keeps the "
        "frames before."
    )
