"""The start of a density: integrals over cells, or the cells that points lie in.

A density is integrated over each cell by a rule of nodes, and the whole is brought to mass one, if it nearly is: a
density that misses mass does not fit into the box, or is too narrow for the cells. A cloud of points becomes a density
by counting: every point gives its weight to the cell it lies in, so that all of it is kept, and moved by less than a
cell.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array

from particleflow._support.arrays import default_dtype
from particleflow.discretization.density.finite_volumes.mesh import AbstractMesh, mesh_places
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import NormalisesTheSet, for_weights
from particleflow.dynamics.initial.base import density_of
from particleflow.dynamics.initial.density import Density, check_whole
from particleflow.errors import ArgumentError
from particleflow.measure import Measure

_NOT_ONE = 1e-5  # how far from one the mass of a measure may be, for rounding in single precision

Meshing = Callable[[int, Any], AbstractMesh]


def as_cell_masses(meshing: Meshing, flow: Flow, start: Any) -> Measure:
    """Convert the start of a run to masses of cells; `meshing(dimension, dtype)` makes the cells."""
    start = density_of(start)
    if isinstance(start, Density):
        return _integrated(meshing(start.dimension, default_dtype()), flow, start)
    measure = start if isinstance(start, Measure) else Measure.uniform(start)
    return _counted(meshing(measure.dimension, measure.points.dtype), flow, measure)


def _integrated(mesh: AbstractMesh, flow: Flow, density: Density) -> Measure:
    """∫ over every cell of a density."""
    facts = flow.geometry.facts(density.dimension)
    density.check_lives_on(facts.kind, flow.geometry.name)
    nodes = mesh.nodes()
    radius = float(np.asarray(facts.radius)) if facts.kind == "sphere" else 1.0
    nodes_on_unit = nodes.points.reshape(-1, density.dimension) / radius
    values = density.at(nodes_on_unit)
    means = np.sum(nodes.weights * values.reshape(nodes.weights.shape), axis=1)
    where = mesh_places(mesh)
    masses = (
        means * np.asarray(where.volumes, float) / radius ** (density.dimension - 1 if facts.kind == "sphere" else 0)
    )
    total = masses.sum()
    check_whole(total, "all cells", "a box must be wide enough for it, and cells small enough to see it")
    return _measure(where.centres, masses / total)


def _counted(mesh: AbstractMesh, flow: Flow, measure: Measure) -> Measure:
    """The weights of the points in every cell; a measure on the cells themselves stays what it is, up to its mass."""
    if measure.values is not None or measure.fields:
        what = "`values`" if measure.values is not None else f"the fields {', '.join(sorted(measure.fields))}"
        raise ArgumentError(f"The start has {what}, which a density cannot carry along; use particles.")
    geometry = for_weights(flow.geometry, measure.log_weights)
    # Whether cells can hold the moments that a set is normalised to is checked when a run begins.
    if not isinstance(geometry, NormalisesTheSet):
        geometry.check_contains(measure.points)
    weights, points = np.exp(np.asarray(measure.log_weights, float)), np.asarray(measure.points)
    if not abs(weights.sum() - 1) <= _NOT_ONE:
        raise ArgumentError(
            f"The start of a density must have mass one, but has {weights.sum():.6g}; use `measure.normalised()`."
        )
    cells = mesh.containing(points)
    outside = (cells < 0) & (weights > 0)
    if outside.any():
        raise ArgumentError(
            f"Every point of the start must lie in a cell, but particle {int(np.argmax(outside))} at "
            f"{_shown(points[np.argmax(outside)])} lies outside of the box; make it wider."
        )
    inside = cells >= 0
    masses = np.bincount(cells[inside], weights=weights[inside], minlength=mesh.count)
    return _measure(mesh_places(mesh).centres, masses / masses.sum())


def _measure(centres: Array, masses: np.ndarray) -> Measure:
    """Masses on the middles of cells."""
    with np.errstate(divide="ignore"):
        return Measure(centres, np.log(masses).astype(centres.dtype))


def _shown(point: np.ndarray) -> str:
    return f"({', '.join(f'{number:.4g}' for number in point)})"
