"""The kind of a fixed point, from the eigenvalues of its linear motion.

The growth of a direction is Re λ for an eigenvalue λ of a flow, log |λ| for a multiplier λ of a layer. Up to a
tolerance it is positive (unstable), negative (stable) or zero (neutral):

    stable      nothing grows, and every neutral direction is one along the fixed points themselves (a rotation or
                translation of all particles): a nearby state converges to one of them
    saddle      some directions grow, others shrink
    unstable    everything grows, except such neutral directions
    neutral     every direction is one along the fixed points themselves
    undecided   nothing grows, but a direction that is no symmetry is neutral: the linear part does not decide

Where a direction that is not neutral has Im λ ≠ 0, the motion spirals.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["stable", "saddle", "unstable", "neutral", "undecided"]
# The tolerance of growth is eps^TOLERANCE, 5e-7 in 64 bits and 2e-3 in 32, times the largest |λ| of a flow, |λ − 1| of
# a layer.
TOLERANCE = 0.4


@dataclass(frozen=True)
class Nature:
    """The kind of a fixed point, and how many directions grow, shrink or are neutral.

    Attributes: `kind`; the numbers of `unstable`, `stable` and `neutral` directions; how many neutral ones are
    `rotations` or `translations` of all particles; `spirals`, whether motion turns on its way; the `tolerance` of
    growth.
    """

    kind: Kind
    unstable: int
    stable: int
    neutral: int
    rotations: int
    translations: int
    spirals: bool
    tolerance: float

    def to_dict(self) -> dict[str, Any]:
        """Return the nature for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [
            f"{number} {name}"
            for name in ("unstable", "stable", "neutral")
            if (number := getattr(self, name)) or (name == "unstable" and self.kind == "saddle")
        ]
        known = [
            f"{number} {name if number > 1 else name[:-1]}"
            for name in ("rotations", "translations")
            if (number := getattr(self, name))
        ]
        along = f" ({', '.join(known)})" if known else ""
        return f"{self.kind}{', spiralling' if self.spirals else ''}: {', '.join(parts)}{along}"


def nature_of(
    eigenvalues: np.ndarray,
    multiplicities: np.ndarray,
    *,
    tolerance: float,
    layers: bool,
    rotations: int = 0,
    translations: int = 0,
) -> Nature:
    """The nature of a fixed point with given eigenvalues.

    A direction is unstable, stable or neutral as its growth (Re λ of a flow, log |λ| of a layer) is above, below or
    within ± `tolerance`; the kind follows from the three counts, less the neutral directions that are symmetries.

    Parameters: `eigenvalues` (k,) with `multiplicities` (k,); the `tolerance` of growth; `layers`, whether eigenvalues
    are multipliers of a layer; of the neutral directions, how many are `rotations` and `translations` of all particles.
    """
    growth = growth_of(eigenvalues, layers=layers)
    turning = np.abs(np.angle(eigenvalues) if layers else np.imag(eigenvalues)) > tolerance
    if layers:  # a negative multiplier flips from side to side, which is no spiral
        turning &= np.abs(np.imag(eigenvalues)) > tolerance
    moving = np.abs(growth) > tolerance
    unstable, stable = (int(multiplicities[moving & (sign * growth > 0)].sum()) for sign in (1, -1))
    neutral = int(multiplicities[~moving].sum())
    return Nature(
        _kind(unstable, stable, neutral - rotations - translations), unstable, stable, neutral, rotations,
        translations, bool(turning[moving].any()), tolerance,
    )  # fmt: skip


def growth_of(eigenvalues: np.ndarray, *, layers: bool) -> np.ndarray:
    """The growth of directions with eigenvalues λ: Re λ of a flow, log |λ| of a layer."""
    if not layers:
        return np.real(eigenvalues)
    with np.errstate(divide="ignore"):
        return np.log(np.abs(eigenvalues))


def _kind(unstable: int, stable: int, unexplained: int) -> Kind:
    """The kind from the numbers of directions; `unexplained` are neutral ones that are no symmetries."""
    if unstable:
        return "saddle" if stable else "unstable"
    if unexplained > 0:
        return "undecided"
    return "stable" if stable else "neutral"


def symmetric_directions(
    points: np.ndarray, basis: np.ndarray, jacobian: np.ndarray, tolerance: float, *, flat: bool
) -> dict[str, int]:
    """The numbers of neutral rotations and translations of all particles.

    Of the tangent directions A x with A antisymmetric, and in `flat` space of the constant ones, those are counted
    along which |J u| is below the tolerance; a direction that is both counts as a translation. A cloud has at most d(d
    − 1)/2 rotations, less those that leave every particle where it is.
    """
    count, dimension = points.shape
    shifts = np.broadcast_to(np.eye(dimension)[:, None, :], (dimension, count, dimension))[: None if flat else 0]
    rows, columns = np.triu_indices(dimension, 1)
    turns = np.zeros((len(rows), count, dimension))
    numbers = np.arange(len(rows))
    turns[numbers, :, rows], turns[numbers, :, columns] = points[:, columns].T, -points[:, rows].T
    shifted, moved = (
        _neutral(_span(directions.reshape(len(directions), count * dimension) @ basis), jacobian, tolerance)
        for directions in (shifts, np.concatenate([shifts, turns]))
    )
    return {"rotations": moved - shifted, "translations": shifted}


def _neutral(along: np.ndarray, jacobian: np.ndarray, tolerance: float) -> int:
    """The dimension of the largest subspace of given directions (rows) on which |J u| is below the tolerance."""
    return int((np.linalg.svd(jacobian @ along.T, compute_uv=False) <= tolerance).sum()) if len(along) else 0


def _span(rows: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of rows, as rows."""
    if not rows.size:
        return rows[:0]
    _, lengths, directions = np.linalg.svd(rows, full_matrices=False)
    return directions[lengths > 1e-6 * max(lengths[0], 1e-300)]
