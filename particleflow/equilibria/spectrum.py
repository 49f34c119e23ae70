"""The eigenvalues of a fixed point: of its places, and of the particles of one place among themselves."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from particleflow.discretization.base import POINTS
from particleflow.equilibria.nature import TOLERANCE, Nature, growth_of, nature_of, symmetric_directions
from particleflow.equilibria.solving import Solved, largest
from particleflow.equilibria.system import Apart, Near, System, apart, tangent_basis

_BENT = 3e3  # by this share of √eps, the length of a move, a field may change otherwise than its linear part says
_MOST_BENT = 0.05  # and by no larger share in any precision

_ROUNDING = 0.75  # eigenvalues below eps^_ROUNDING, 2e-12 in 64 bits, are zero whatever the others are


class Spectrum(NamedTuple):
    """Eigenvalues, those that grow most first, with multiplicities and places as a `FixedPoint` has them."""

    eigenvalues: np.ndarray
    multiplicities: np.ndarray
    places: np.ndarray
    nature: Nature | None
    smooth: bool

    @staticmethod
    def none(*, smooth: bool) -> "Spectrum":
        """No eigenvalues: nothing was found, or the field is not smooth."""
        whole = np.zeros(0, int)
        return Spectrum(np.zeros(0, complex), whole, whole, None, smooth)


def spectrum_of(
    system: System, probed: System | None, sizes: np.ndarray, solved: Solved, tolerance: float | None
) -> Spectrum:
    """The spectrum of a fixed point.

    Parameters: the `system` of places, and where particles were taken together, that with weightless copies, `probed`;
    `sizes`, how many particles are at every place; what was `solved`; the `tolerance` of growth, None for the usual.
    """
    if not solved.found:
        return Spectrum.none(smooth=True)
    end, twice = solved.end, jnp.concatenate([solved.end.vector] * 2)
    alone = None if probed is None else apart(probed, twice)
    unit = float(jnp.finfo(end.vector.dtype).eps)
    if not all(_is_smooth(each, unit) for each in (end, alone) if each is not None):
        return Spectrum.none(smooth=False)
    basis = tangent_basis(end.projection)
    linear = basis.T @ end.jacobian @ basis
    eigenvalues, places = _eigenvalues(linear, alone, sizes)
    allowed = tolerance or max(unit**TOLERANCE * largest(eigenvalues), unit**_ROUNDING)
    layers = system.layer is not None
    eigenvalues = eigenvalues + 1 if layers else eigenvalues
    order = np.lexsort((-np.imag(eigenvalues), -growth_of(eigenvalues, layers=layers).round(9)))
    eigenvalues, places = eigenvalues[order], places[order]
    times = np.where(places < 0, 1, sizes[places] - 1)
    known = _symmetries(system, end, basis, linear, allowed)
    nature = nature_of(eigenvalues, times, tolerance=allowed, layers=layers, **known)
    return Spectrum(eigenvalues, times, places, nature, True)


def _eigenvalues(linear: np.ndarray, alone: Apart | None, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues of places, then those of particles apart, each with its place."""
    values, places = [np.linalg.eigvals(linear)], [np.full(len(linear), -1)]
    if alone is not None:
        crowds = np.flatnonzero(sizes > 1)
        values.append(np.linalg.eigvals(alone.blocks[crowds]).ravel())
        places.append(np.repeat(crowds, alone.blocks.shape[-1]))
    return np.concatenate(values).astype(complex), np.concatenate(places)


def _symmetries(system: System, end: Near, basis: np.ndarray, linear: np.ndarray, tolerance: float) -> dict[str, int]:
    """How many rotations and, in flat space, translations are neutral; none where a state is not made of points."""
    shown = end.fields.get(POINTS)
    if shown is None or shown.size != end.vector.size:
        return {}
    points = np.asarray(end.vector, float).reshape(shown.shape)
    flat = system.flow.geometry.facts(shown.shape[1]).kind == "flat"
    return symmetric_directions(points, basis, linear, tolerance, flat=flat)


def _is_smooth(found: Near | Apart, unit: float) -> bool:
    """Whether small moves change the field as its linear part says.

    Hardmax jumps where leaders tie, a rectifier bends at 0, and a Laplace kernel has an edge where two particles are at
    one place; there a Jacobian exists on paper only. A field that is smooth bends by its curvature times the move.
    """
    share = min(_BENT * unit**0.5, _MOST_BENT)
    return bool(np.isfinite(found.bend).all() and (found.bend <= share * found.slope.max()).all())
