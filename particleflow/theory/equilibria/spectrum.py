"""The eigenvalues of a fixed point.

Where m particles of one place were merged, the linear motion splits into that of the places (all particles of a place
move together) and m − 1 copies of the motion of one particle relative to its place, which is that of a weightless copy.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from particleflow.discretization.base import POINTS
from particleflow.theory.equilibria.stability_kind import TOLERANCE, Nature, growth_of, nature_of, symmetric_directions
from particleflow.theory.equilibria.vector_field import (
    Linearisation,
    VectorField,
    WeightlessMotion,
    tangent_basis,
    weightless_motion,
)
from particleflow.theory.equilibria.zero_finding import Solved, largest

_BENT = 3e3  # a field is smooth if `bend` is below this multiple of √eps, the length of a move, times `slope`
_MOST_BENT = 0.05  # and below this share of `slope` in any precision
_ROUNDING = 0.75  # eigenvalues below eps^_ROUNDING, 2e-12 in 64 bits, are zero whatever the others are


class Spectrum(NamedTuple):
    """Eigenvalues by decreasing growth, with multiplicities and places as in `FixedPoint`."""

    eigenvalues: np.ndarray
    multiplicities: np.ndarray
    places: np.ndarray
    nature: Nature | None
    smooth: bool

    @staticmethod
    def none(*, smooth: bool) -> "Spectrum":
        """The empty spectrum of a search that failed, or of a field that is not smooth."""
        whole = np.zeros(0, int)
        return Spectrum(np.zeros(0, complex), whole, whole, None, smooth)


def spectrum_of(
    system: VectorField, probed: VectorField | None, sizes: np.ndarray, solved: Solved, tolerance: float | None
) -> Spectrum:
    """The spectrum of a fixed point.

    Parameters: the `system` of places; where particles were merged, `probed`, the same with a weightless copy of every
    place; `sizes`, the number of particles at every place; the search that was `solved`; the `tolerance` of growth,
    None for eps^TOLERANCE times the largest eigenvalue.
    """
    if not solved.found:
        return Spectrum.none(smooth=True)
    end, twice = solved.end, jnp.concatenate([solved.end.vector] * 2)
    relative = None if probed is None else weightless_motion(probed, twice)
    unit = float(jnp.finfo(end.vector.dtype).eps)
    if not all(_is_smooth(each, unit) for each in (end, relative) if each is not None):
        return Spectrum.none(smooth=False)
    basis = tangent_basis(end.projection)
    linear = basis.T @ end.jacobian @ basis
    eigenvalues, places = _eigenvalues(linear, relative, sizes)
    allowed = tolerance or max(unit**TOLERANCE * largest(eigenvalues), unit**_ROUNDING)
    layers = system.layer is not None
    eigenvalues = eigenvalues + 1 if layers else eigenvalues
    order = np.lexsort((-np.imag(eigenvalues), -growth_of(eigenvalues, layers=layers).round(9)))
    eigenvalues, places = eigenvalues[order], places[order]
    times = np.where(places < 0, 1, sizes[places] - 1)
    known = _symmetries(system, end, basis, linear, allowed)
    nature = nature_of(eigenvalues, times, tolerance=allowed, layers=layers, **known)
    return Spectrum(eigenvalues, times, places, nature, True)


def _eigenvalues(
    linear: np.ndarray, relative: WeightlessMotion | None, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues of places (place −1), then those of particles relative to their place, with its number."""
    values, places = [np.linalg.eigvals(linear)], [np.full(len(linear), -1)]
    if relative is not None:
        crowds = np.flatnonzero(sizes > 1)
        values.append(np.linalg.eigvals(relative.blocks[crowds]).ravel())
        places.append(np.repeat(crowds, relative.blocks.shape[-1]))
    return np.concatenate(values).astype(complex), np.concatenate(places)


def _symmetries(
    system: VectorField, end: Linearisation, basis: np.ndarray, linear: np.ndarray, tolerance: float
) -> dict[str, int]:
    """The numbers of neutral rotations and, in flat space, translations; empty where a state is not made of points."""
    shown = end.fields.get(POINTS)
    if shown is None or shown.size != end.vector.size:
        return {}
    points = np.asarray(end.vector, float).reshape(shown.shape)
    flat = system.flow.geometry.facts(shown.shape[1]).kind == "flat"
    return symmetric_directions(points, basis, linear, tolerance, flat=flat)


def _is_smooth(found: Linearisation | WeightlessMotion, unit: float) -> bool:
    """Whether small moves change the field by its linear part, up to curvature.

    Hardmax jumps where leaders tie, a rectifier has a kink at 0, and a Laplace kernel one where two particles are at
    one place: automatic differentiation gives a Jacobian there, but no linear motion. A smooth field bends by its
    curvature times the move.
    """
    share = min(_BENT * unit**0.5, _MOST_BENT)
    return bool(np.isfinite(found.bend).all() and (found.bend <= share * found.slope.max()).all())
