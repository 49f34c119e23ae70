"""The outcome of a single solve: its last state, or an error that says when and why it failed."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from particleflow.errors import RunError


def at_the_end(solution: diffrax.Solution, max_steps: int, *, adaptive: bool) -> Any:
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
        sentences = [_sentence(each, max_steps, "", adaptive=adaptive) for each in (True, False)]
        return eqx.branched_error_if(state, failed, jnp.where(out_of_steps, 0, 1), sentences)
    raise RunError(_sentence(bool(out_of_steps), max_steps, _at(solution.ts[-1]), adaptive=adaptive))


def _at(time: Array) -> str:
    return f" at t = {float(time):.10g}"


def _sentence(out_of_steps: bool, max_steps: int, when: str, *, adaptive: bool) -> str:
    """Why a solve failed, with `when` (" at t = 3" or nothing), and what may help."""
    if out_of_steps:
        return (
            f"`evolve` has taken {max_steps} steps{when} and is not at its end. If the flow is stiff, use "
            "solver = 'kvaerno5'; otherwise raise max_steps."
        )
    why = "no step is small enough" if adaptive else "after one more step it is not finite"
    return (
        f"`evolve` blew up{when}: {why}. Choose an earlier end{'' if adaptive else ' or a smaller step'}; `simulate` "
        "names the particle, and keeps the frames before."
    )
