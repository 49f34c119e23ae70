"""Zeros of a field by least squares: Levenberg and Marquardt's method far away, Newton's method near by.

Symmetries make fixed points come in families (all rotations of one), so DF is singular there. Least squares handle
this: of all steps that solve the linear equation DF s = F the shortest is taken, which is orthogonal to the family.
Source of the first: Moré, The Levenberg–Marquardt algorithm: implementation and theory (1978), as MINPACK has it.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from particleflow.theory.equilibria.vector_field import Linearisation, VectorField, linearise

_POLISHES = 8  # Newton's steps at the end, taken while they reduce the residual
_CUTOFF = 0.5  # singular values below eps^_CUTOFF of the largest count as zero in Newton's steps
_NO_SLOPE = 0.75  # singular values below eps^_NO_SLOPE count as zero, whatever the largest is
_FIRST_STEP = 0.1  # the first step, as a share of the length of the state: a search should end near its guess
_NEAR = 0.75  # when steps fall below eps^_NEAR of the state, Newton's method takes over
_ROUNDING = 0.625  # a field is zero if it is below eps^_ROUNDING, 2e-10 in 64 bits and 5e-5 in 32, of its own scale
_NOWHERE = 1e100  # replaces a field that is not finite, so that no step is accepted there


class Solved(NamedTuple):
    """A search: the field at its beginning and its end, the number of steps, and whether it is zero at the end."""

    begin: Linearisation
    end: Linearisation
    steps: int
    found: bool


def solve(system: VectorField, max_steps: int) -> Solved:
    """Search for a zero of a field, starting from its own state; at most `max_steps` steps of least squares."""
    begin = linearise(system, system.vector)
    end, steps = (begin, 0) if _is_zero(begin) else _least_squares(system, begin, max_steps)
    for _ in range(_POLISHES):
        if not np.isfinite(end.jacobian).all():
            break
        step = _newton_step(end)
        there = linearise(system, end.vector - jnp.asarray(step, end.vector.dtype))
        if not largest(there.residual) < largest(end.residual):
            break
        end, steps = there, steps + 1
    return Solved(begin, end, steps, _is_zero(end))


def _least_squares(system: VectorField, begin: Linearisation, max_steps: int) -> tuple[Linearisation, int]:
    """Levenberg and Marquardt's steps by MINPACK; field and Jacobian come from one compiled program."""
    from scipy.optimize import leastsq

    known = {_bytes(begin.vector): begin}

    def at(vector: np.ndarray) -> Linearisation:
        place = jnp.asarray(vector, begin.vector.dtype)
        key = _bytes(place)
        if key not in known:
            known.clear()  # MINPACK evaluates the field and then the Jacobian at one place
            known[key] = linearise(system, place)
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


def _newton_step(end: Linearisation) -> np.ndarray:
    """The shortest step with DF s = F, by the pseudo-inverse without singular values that are rounding."""
    left, slopes, right = np.linalg.svd(end.jacobian)
    known = slopes > max(_unit(end) ** _CUTOFF * slopes[0], _unit(end) ** _NO_SLOPE)
    return (left[:, known].T @ end.residual / slopes[known]) @ right[known]


def largest(numbers: np.ndarray) -> float:
    """The largest |number|; infinite where one is not finite."""
    return float(np.max(np.abs(numbers), initial=0.0)) if np.isfinite(numbers).all() else float("inf")


def _bytes(vector: Any) -> bytes:
    return np.asarray(vector).tobytes()


def _unit(found: Linearisation) -> float:
    """The rounding unit eps of the precision of a search."""
    return float(jnp.finfo(found.vector.dtype).eps)


def _is_zero(end: Linearisation) -> bool:
    """Whether |F| ≤ eps^_ROUNDING · slope · |state|, the rounding error of the field."""
    if not all(np.isfinite(each).all() for each in (end.residual, end.jacobian, end.vector)):
        return False
    slope = np.abs(end.jacobian).sum(axis=1).max(initial=0.0)
    scale = max(slope, 1e-3) * max(largest(np.asarray(end.vector, float)), 1e-3)
    return bool(largest(end.residual) <= _unit(end) ** _ROUNDING * scale)
