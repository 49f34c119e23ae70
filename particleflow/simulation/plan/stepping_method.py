"""How time is stepped: what the user asked for, completed by what the flow needs, as a `Method` and its `Numbers`."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._support.arrays import as_number
from particleflow.discretization import AbstractDiscretization
from particleflow.discretization.discretization_capabilities import BoundedSteps, noises_of
from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError, whole_number
from particleflow.measure import Measure
from particleflow.simulation.stepping import ADAPTIVE_SOLVERS, STOCHASTIC_SOLVERS, Method, Numbers

# Explicit steps stay of order one when clusters stand still, so long runs of few particles go to an implicit method.
LONG_TIME = 1e4
IMPLICIT = "kvaerno5"
IMPLICIT_UNKNOWNS = 1024  # Newton's matrices have this many rows at most
_CHOSEN_RTOL = {"float64": 1e-6, "float32": 1e-4}  # of adaptive steps, by the precision of the run
_ATOL_SHARE = 0.01  # of rtol
_LOOSEST = 0.1  # rtol, from which on a run is not that of its flow
FEW_POINTS = 32  # up to so many points an implicit step takes about as long as ten explicit ones, and is taken at once
# An implicit step of m unknowns takes as long as m²/500 explicit ones (measured, m = 80 to 400), and ten at least;
# every frame takes one or more.
_STEPS_A_FRAME, _FEWEST_STEPS_A_FRAME = 1 / 400, 10
_TIGHT = 1e-7  # relative tolerances below this are cheaper with a method of order eight


@dataclass(frozen=True)
class Stepping:
    """What the user asks of the steps in time; tolerances and a solver left None are chosen, and reported as chosen.

    Parameters: `rtol` and `atol`, tolerances of adaptive steps, or `step`, the size of fixed ones; `solver`, a diffrax
    solver by its snake-case name or "map"; `max_steps`, how many steps one window may take.
    """

    rtol: float | None = None
    atol: float | None = None
    step: float | None = None
    solver: str | None = None
    max_steps: int = 200_000

    @property
    def adaptive(self) -> bool:
        """Whether the size of steps follows from tolerances."""
        return self.step is None

    def with_tolerances(self, precision: Any) -> "Stepping":
        """These steps with the tolerances that were left out, in a precision such as "float64"."""
        return replace(self, **({} if self.step is not None else chosen_tolerances(self.rtol, self.atol, precision)))


def chosen_tolerances(rtol: float | None, atol: float | None, precision: Any) -> dict[str, float]:
    """The tolerances of adaptive steps that are left out (None), by their names.

    `rtol` is 1e-6, in single precision 1e-4, and `atol` a hundredth of `rtol`; of one that is given, the other one
    follows.
    """
    found: dict[str, float] = {}
    usual = _CHOSEN_RTOL[str(np.dtype(precision))]
    if rtol is None:
        found["rtol"] = float(f"{atol / _ATOL_SHARE:.6g}") if atol else usual
    if atol is None:
        found["atol"] = float(f"{_ATOL_SHARE * (rtol or usual):.6g}")
    return found


def make_method(
    flow: Flow,
    discretization: AbstractDiscretization,
    start: Measure,
    stepping: Stepping,
    duration: float,
    key: Array | None,
    *,
    single: bool = True,
) -> Method:
    """Choose the solver and the kind of steps, from what the user asked for and what the flow needs.

    Parameters: `start` of the first run; `stepping`, with its tolerances (see `Stepping.with_tolerances`); `duration`
    of the run, NaN if unknown; `key` of the noise; `single`: it is one run, whose windows may go to an implicit method
    (`explicit_steps`). Arguments that do not go together are an `ArgumentError`.
    """
    # The temperature of a traced flow is not known; then there is noise if a key is given.
    noisy = flow.is_noisy or (flow.may_be_noisy and key is not None)
    noisy = noisy and bool(_noises(flow, discretization, start))
    _check_steps(stepping, key, noisy=noisy)
    suited = discretization.solvers() if isinstance(discretization, BoundedSteps) else ()
    chosen = stepping.solver or (
        suited[0] if suited else _default_solver(start, stepping, duration, noisy=noisy, single=single)
    )
    method = Method(chosen, stepping.adaptive, noisy, stepping.max_steps)
    if suited and chosen not in suited:
        raise ArgumentError(
            f"The solver {chosen!r} does not lead from densities to densities; use one of {', '.join(suited)}, or "
            "leave it out."
        )
    _check_sizes(stepping, chosen, start)
    # For additive noise the Itô and Stratonovich interpretations agree.
    allowed = (*STOCHASTIC_SOLVERS, "euler") if flow.geometry.noise_is_additive else STOCHASTIC_SOLVERS
    if noisy and chosen not in allowed:
        raise ArgumentError(
            f"The solver {chosen!r} does not converge to this noise; use one of {', '.join(STOCHASTIC_SOLVERS)}."
        )
    return method


def _check_steps(stepping: Stepping, key: Array | None, *, noisy: bool) -> None:
    """Raise if both tolerances and a step are given, for noise without a step or a key, and if no step is allowed."""
    whole_number(stepping.max_steps, "max_steps")
    given = [value is not None for value in (stepping.rtol, stepping.atol)]
    if not stepping.adaptive and any(given):
        raise ArgumentError("Arguments `rtol` and `atol` are for adaptive steps, but a fixed `step` is given, too.")
    if noisy and stepping.adaptive:
        raise ArgumentError("A flow with temperature needs a fixed `step`, but there is none: its steps cannot adapt.")
    if noisy and key is None:
        raise ArgumentError("A flow with temperature needs a random `key`, but there is none.")


def _check_sizes(stepping: Stepping, solver: str, start: Measure) -> None:
    """Raise unless the precision can meet the tolerances, or the step is positive."""
    if stepping.step is not None:
        if not stepping.step > 0:
            raise ArgumentError(f"Argument `step` must be positive, but is {stepping.step}.")
        return
    assert stepping.rtol is not None
    assert stepping.atol is not None
    _check_tolerances(start, float(stepping.rtol), float(stepping.atol))
    if solver not in ADAPTIVE_SOLVERS:
        raise ArgumentError(f"The solver {solver!r} cannot adapt its steps; give a fixed `step`.")


def _check_tolerances(start: Measure, rtol: float, atol: float) -> None:
    """Raise unless both are finite, none is negative, and `rtol` is above the rounding of the points and at most .1."""
    rounding = float(jnp.finfo(start.points.dtype).eps)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if not tolerance >= 0 or not np.isfinite(tolerance):
            raise ArgumentError(f"Argument `{name}` must be zero or positive, but is {tolerance}.")
    if rtol < 10 * rounding:
        raise ArgumentError(
            f"Argument `rtol` is {rtol}, below the {10 * rounding:.1e} that {start.points.dtype} can give."
        )
    if rtol > _LOOSEST:
        raise ArgumentError(f"Argument `rtol` is {rtol:g}, above {_LOOSEST:g}: such steps do not follow the flow.")


def _default_solver(start: Measure, stepping: Stepping, duration: float, *, noisy: bool, single: bool) -> str:
    """Heun's method for noise, an implicit one for long runs of few particles, else an order that suits `rtol`."""
    if noisy:
        return "heun"
    few = start.count <= FEW_POINTS if single else True
    if stepping.adaptive and duration > LONG_TIME and few and start.points.size <= IMPLICIT_UNKNOWNS:
        return IMPLICIT
    return "dopri8" if stepping.rtol is not None and stepping.rtol < _TIGHT else "tsit5"


def explicit_steps(count: int, dimension: int, frames: int) -> int | None:
    """How many explicit steps a window may take before it is solved by the implicit method; 0 where that is cheaper.

    None where Newton's matrices are too large, so that the implicit method is never taken. Parameters: `count` points
    of a `dimension`, and the most `frames` of a window.
    """
    unknowns = count * dimension
    if unknowns > IMPLICIT_UNKNOWNS:
        return None
    return 0 if count <= FEW_POINTS else round(max(_FEWEST_STEPS_A_FRAME, _STEPS_A_FRAME * unknowns**2)) * frames


def _noises(flow: Flow, discretization: AbstractDiscretization, start: Measure) -> tuple[Any, ...]:
    """The noises that drive the state; only their number and shapes are known here."""
    state = jax.eval_shape(lambda: discretization.begin(flow, start))
    return noises_of(discretization, flow, state)


def make_numbers(stepping: Stepping, origin: Any, key: Array | None, runs: int | None) -> Numbers:
    """The numbers of a method as arrays, so that other numbers do not compile another program.

    Parameters: `origin`, where the grid of fixed steps begins; `key` of the noise, which an ensemble splits into one
    for every run unless `runs` keys are given.
    """
    given = key is not None and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == (runs,)
    keys = key if key is None or runs is None or given else jax.random.split(key, runs)
    rtol, atol, step = (0.0 if value is None else value for value in (stepping.rtol, stepping.atol, stepping.step))
    return Numbers(as_number(rtol), as_number(atol), as_number(step), as_number(origin), keys)
