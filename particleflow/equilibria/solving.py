"""Zeros of a field by least squares: Levenberg and Marquardt far away, Newton's method near by.

Symmetries make fixed points come in families (all rotations of one), so DF is singular there. Least squares do not
mind: of all steps that solve the linear equation, the shortest is taken, across the family and never along it.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from particleflow.equilibria.system import Near, System, near

_POLISHES = 8  # Newton's steps at the end, taken while they help
_CUTOFF = 0.5  # singular values below eps^_CUTOFF of the largest count as zero in Newton's steps
_NO_SLOPE = 0.75  # as do those below eps^_NO_SLOPE, whatever the largest is
_FIRST_STEP = 0.1  # of the length of a state: a search should end near its guess
_NEAR = 0.75  # steps below eps^_NEAR of the state are for Newton to take
_ROUNDING = 0.625  # a field is zero if it is below eps^_ROUNDING, 2e-10 in 64 bits and 5e-5 in 32, of its own scale
_NOWHERE = 1e100  # in place of a field that is not finite: no step leads there


class Solved(NamedTuple):
    """A search: the system near its begin and its end, the number of steps, and whether the field is zero there."""

    begin: Near
    end: Near
    steps: int
    found: bool


def solve(system: System, max_steps: int) -> Solved:
    """Search for a zero of the field from the state of a system on."""
    begin = near(system, system.vector)
    end, steps = (begin, 0) if _is_zero(begin) else _least_squares(system, begin, max_steps)
    for _ in range(_POLISHES):
        if not np.isfinite(end.jacobian).all():
            break
        step = _newton_step(end)
        there = near(system, end.vector - jnp.asarray(step, end.vector.dtype))
        if not largest(there.residual) < largest(end.residual):
            break
        end, steps = there, steps + 1
    return Solved(begin, end, steps, _is_zero(end))


def _least_squares(system: System, begin: Near, max_steps: int) -> tuple[Near, int]:
    """The steps of Levenberg and Marquardt (MINPACK's), each from the field and its Jacobian by one program."""
    from scipy.optimize import leastsq

    known = {_bytes(begin.vector): begin}

    def at(vector: np.ndarray) -> Near:
        place = jnp.asarray(vector, begin.vector.dtype)
        key = _bytes(place)
        if key not in known:
            known.clear()  # fields and Jacobians are asked for one after the other
            known[key] = near(system, place)
        return known[key]

    def field(vector: np.ndarray) -> np.ndarray:
        return np.nan_to_num(at(vector).residual, nan=_NOWHERE, posinf=_NOWHERE, neginf=-_NOWHERE)

    def slopes(vector: np.ndarray) -> np.ndarray:
        return np.nan_to_num(at(vector).jacobian)

    tolerance, start = _unit(begin) ** _NEAR, np.asarray(begin.vector, float)
    solver: Any = leastsq
    found, _, facts, *_ = solver(
        field, start, Dfun=slopes, full_output=True, xtol=tolerance, ftol=tolerance, gtol=tolerance, maxfev=max_steps,
        factor=_FIRST_STEP, diag=np.ones_like(start),
    )  # fmt: skip
    return at(found), int(facts["nfev"])


def _newton_step(end: Near) -> np.ndarray:
    """The shortest of all steps that solve DF s = F, without directions of which nothing is known but rounding."""
    left, slopes, right = np.linalg.svd(end.jacobian)
    known = slopes > max(_unit(end) ** _CUTOFF * slopes[0], _unit(end) ** _NO_SLOPE)
    return (left[:, known].T @ end.residual / slopes[known]) @ right[known]


def largest(numbers: np.ndarray) -> float:
    """The largest |number|; infinite where one is not finite."""
    return float(np.max(np.abs(numbers), initial=0.0)) if np.isfinite(numbers).all() else float("inf")


def _bytes(vector: Any) -> bytes:
    return np.asarray(vector).tobytes()


def _unit(found: Near) -> float:
    """The unit of rounding."""
    return float(jnp.finfo(found.vector.dtype).eps)


def _is_zero(end: Near) -> bool:
    """Whether the field is zero to rounding: it cannot be known better than its slope times the rounding of a state."""
    if not all(np.isfinite(each).all() for each in (end.residual, end.jacobian, end.vector)):
        return False
    slope = np.abs(end.jacobian).sum(axis=1).max(initial=0.0)
    scale = max(slope, 1e-3) * max(largest(np.asarray(end.vector, float)), 1e-3)
    return bool(largest(end.residual) <= _unit(end) ** _ROUNDING * scale)
