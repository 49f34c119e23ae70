"""A density by the means over cells: the continuity equation itself, without particles.

    V_i dρ_i/dt = − Σ_f ± A_f (⟨v(x_f, μ), n_f⟩ ρ_f − T (ρ_right − ρ_left)/d_f),    μ = Σ_i V_i ρ_i δ_{c_i}

The velocity is that of the flow at the middles of the faces, under the measure of the cells' masses: every drift, every
kernel and every normalisation that particles have. ρ_f comes from the upwind cell (see `mesh`); noise is
diffusion. The scheme is conservative, of second order where the density is smooth, and positive for Euler steps of at
most

    τ = min_i ρ_i / (what leaves cell i in unit time),

which the integrator keeps (`simulation.stepping.positive_steps`). With noise τ is of the order of h²/T for cells of
size h. Positive is not yet stable: where lines through the cells lean on the upwind neighbour, the ripple of two cells
decays at the rate 4 ν/h · (h/Δt) for the Courant number ν = Δt Σ_f A_f max(⟨v, n_f⟩, 0)/V_i, and methods of order three
let it grow where 4ν > 2.51. So that rounding stays rounding, a step is no longer than ν = 0.6, either.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, is_concrete
from particleflow.discretization.base import MASSES, AbstractDiscretization
from particleflow.discretization.density.finite_volumes.cell_masses import as_cell_masses
from particleflow.discretization.density.finite_volumes.grid_convolution import convolution_for
from particleflow.discretization.density.finite_volumes.mesh import AbstractMesh, HasBoundary, mesh_places
from particleflow.discretization.density.finite_volumes.node_sums import interpolation_for
from particleflow.discretization.density.finite_volumes.regular_meshes import Box, Circle, grid_shape
from particleflow.discretization.density.finite_volumes.voronoi_sphere import VoronoiSphere
from particleflow.discretization.discretization_capabilities import (
    BoundedSteps,
    CarriesDensity,
    Diagnosable,
    HasLogDensity,
    HasStatistics,
    InBox,
    SpecialisesSums,
)
from particleflow.dynamics.drifts.base import Interaction
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import AbstractGeometry, NormalisesTheSet, carried_names, for_weights
from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.kernels.capabilities import counts_points
from particleflow.measure import Measure

_FEWEST = 8  # cells along an axis, or on a sphere
_SOLVERS = ("ssprk3",)
_SEAM = 1e-6  # the largest difference of velocities where a box closes, relative to the largest velocity
_COURANT = 0.6  # of a cell's volume, the largest part that leaves in an Euler step: four times it is less than 2.51
_ROUNDING = 1e-3  # the part that is taken off the bound of a step, for rounding in single precision


class CellDensities(NamedTuple):
    """The state: the mean density of every cell, and the mesh, which stays."""

    density: Float[Array, " n"]
    mesh: Any


class _Fluxes(NamedTuple):
    """The velocity across a face, the mass it carries from left to right, and what noise takes from both cells."""

    speed: Float[Array, " m"]
    carried: Float[Array, " m"]
    left: Float[Array, " m"]
    right: Float[Array, " m"]


class FiniteVolumes(
    AbstractDiscretization,
    BoundedSteps,
    CarriesDensity,
    Diagnosable,
    HasLogDensity,
    HasStatistics,
    InBox,
    SpecialisesSums,
):
    """The density in cells: equal arcs of the circle, Voronoi cells of the sphere S², or boxes in R^d, d ≤ 2.

    The geometry of the flow decides which of them. A flow in R^d needs a box: nothing passes its walls, so let it be
    wide enough; the card of a run shows the share of mass at the walls. A start is the known density of an initial
    kind, or a measure, each point of which goes to the cell it lies in.

    Refused with the reason: noise that all particles share, values and positions of particles, geometries that carry
    more along than the point itself.

    Parameters: `cells`, how many, in a box about as many; `low` and `high`, the ends of the box, one number or one an
    axis; `periodic`, whether the box closes to a torus, for velocities that agree at its ends.
    """

    cells: int = eqx.field(static=True)
    low: tuple[float, ...] | None = eqx.field(static=True)
    high: tuple[float, ...] | None = eqx.field(static=True)
    periodic: bool = eqx.field(static=True)

    def __init__(
        self,
        cells: int,
        low: Float[Array, "..."] | float | None = None,
        high: Float[Array, "..."] | float | None = None,
        periodic: bool = False,
    ):
        self.cells = cells
        self.low, self.high = _ends(low, "low"), _ends(high, "high")
        self.periodic = periodic

    def __check_init__(self):
        whole_number(self.cells, "cells", _FEWEST)
        if (self.low is None) != (self.high is None):
            raise ArgumentError("Arguments `low` and `high` must be given both, or neither, but one is missing.")
        if self.low is None or self.high is None:
            return
        if len(self.low) != len(self.high) and 1 not in (len(self.low), len(self.high)):
            raise ShapeError(f"Arguments `low` and `high` have {len(self.low)} and {len(self.high)} numbers.")
        if not all(a < b for a, b in zip(*np.broadcast_arrays(self.low, self.high), strict=True)):
            raise ArgumentError(f"Argument `low` must be below `high`, but they are {self.low} and {self.high}.")

    def mesh(self, flow: Flow, dimension: int, dtype: Any = float) -> AbstractMesh:
        """The cells of this flow's space; refused where there are none for it."""
        facts = flow.geometry.facts(dimension)
        if facts.kind == "flat":
            return self._box(dimension, dtype)
        if self.low is not None or self.periodic:
            raise ArgumentError("Arguments `low`, `high` and `periodic` are for boxes, but the flow is on a sphere.")
        radius = jnp.asarray(facts.radius, dtype)
        if dimension == 2:
            return Circle.of(radius, self.cells)
        if dimension == 3:
            return VoronoiSphere.of(radius, self.cells)
        raise ArgumentError(
            f"Cells are known for the circle (dimension 2) and the sphere (dimension 3), but the flow is in dimension "
            f"{dimension} on the geometry {flow.geometry.name}; use particles."
        )

    def _box(self, dimension: int, dtype: Any) -> Box:
        if self.low is None or self.high is None:
            raise ArgumentError(
                "Arguments `low` and `high` must be given for a flow in flat space: its cells fill a box, which must "
                "be wide enough for all mass, now and later."
            )
        if dimension > 2 or max(len(self.low), len(self.high)) not in (1, dimension):
            raise ArgumentError(
                f"Cells in flat space are known for dimensions 1 and 2, with ends of as many numbers, but the flow has "
                f"dimension {dimension} and the box {max(len(self.low), len(self.high))}."
            )
        low, high = (np.broadcast_to(np.asarray(end), (dimension,)) for end in (self.low, self.high))
        lengths = high - low
        sides = np.rint(lengths * (self.cells / np.prod(lengths)) ** (1 / dimension)).astype(int)
        sides = tuple(max(_FEWEST, int(side)) for side in sides)
        closed = (self.periodic,) * dimension
        return Box(low=jnp.asarray(low, dtype), high=jnp.asarray(high, dtype), sides=sides, closed=closed)

    def begin(self, flow: Flow, measure: Measure) -> CellDensities:
        """The density of a measure that is laid out on the cells."""
        mesh = self.mesh(flow, measure.dimension, measure.points.dtype)
        if measure.count != mesh.count:
            raise ShapeError(
                f"The start must be laid out on {mesh.count} cells, but has {measure.count} points; "
                "`discretization.project(flow, start)` does it."
            )
        return CellDensities(jnp.exp(measure.log_weights) / mesh.cells.volumes, mesh)

    def project(self, flow: Flow, start: Any) -> Measure:
        """The masses of the cells: of a density its integrals, of a measure what lies in each cell."""
        return as_cell_masses(lambda dimension, dtype: self.mesh(flow, dimension, dtype), flow, start)

    def measure(self, flow: Flow, time: Any, state: CellDensities) -> Measure:
        """The cells' middles with their masses."""
        cells = state.mesh.cells
        return Measure.weighted(cells.centres, jnp.maximum(cells.volumes * state.density, 0.0))

    def fields(self, flow: Flow, time: Any, state: CellDensities) -> dict[str, Array]:
        """The masses; the middles stay."""
        return {MASSES: state.mesh.cells.volumes * state.density}

    def velocity(self, flow: Flow, time: Any, state: CellDensities) -> CellDensities:
        """dρ/dt, and None for the mesh."""
        return self._rate(state, self._fluxes(flow, time, state))

    def bounded_velocity(self, flow: Flow, time: Any, state: CellDensities) -> tuple[CellDensities, Any]:
        """dρ/dt, and the longest Euler step under which the density stays positive and ripples do not grow."""
        fluxes = self._fluxes(flow, time, state)
        forth, back = (jnp.maximum(sign * fluxes.carried, 0.0) for sign in (1, -1))
        leaving = state.mesh.onto_cells(forth + fluxes.left, back + fluxes.right)
        swept = state.mesh.onto_cells(*(jnp.maximum(sign * fluxes.speed, 0.0) for sign in (1, -1)))
        some = (leaving > 0) & (state.density > 0)  # a stage after one that was too long may be negative
        shares = jnp.maximum(leaving / jnp.where(some, state.density, 1.0), swept / _COURANT)
        fastest = jnp.max(jnp.where(some, shares, 0.0))
        bound = jnp.where(fastest > 0, (1 - _ROUNDING) / jnp.where(fastest > 0, fastest, 1.0), jnp.inf)
        return self._rate(state, fluxes), bound

    def solvers(self) -> tuple[str, ...]:
        """The solvers whose steps are averages of Euler steps, under which the density stays positive."""
        return _SOLVERS

    def point_velocity(self, flow: Flow, time: Any, state: CellDensities) -> Float[Array, "n d"]:
        """The velocity of the flow in the middles of the cells; noise has none."""
        return flow.velocity_at(time, state.mesh.cells.centres, self.measure(flow, time, state))

    def log_density(self, flow: Flow, time: Any, state: CellDensities) -> Float[Array, " n"]:
        """The logarithm log ρ_i of the mean density of every cell, −∞ where it is empty."""
        some = state.density > 0
        return jnp.where(some, jnp.log(jnp.where(some, state.density, 1.0)), -jnp.inf)

    def specialise_sums(self, flow: Flow, measure: Measure) -> Flow:
        """The flow with sums by Fourier transforms, or by nodes of patches, where kernel and cells allow."""
        if not is_concrete(measure.points):
            return flow
        mesh = self.mesh(flow, measure.dimension, measure.points.dtype)
        shape, where = grid_shape(mesh), mesh_places(mesh)

        def choose(interaction: Interaction) -> Any:
            found = convolution_for(shape, interaction, where.centres, where.faces)
            return found or interpolation_for(mesh, interaction, where.centres, where.faces) or interaction.summation

        return flow.resummed(jnp.zeros((), measure.points.dtype), choose)

    def diagnose(self, flow: Flow, time: Any, state: CellDensities) -> str | None:
        """How long a step may be for the density to stay positive, and the scheme stable."""
        bound = float(self.bounded_velocity(flow, time, state)[1])
        return (
            f"the density stays positive, and the scheme stable, only in steps well below {bound:.3g}; take such, or "
            "`rtol` and `atol`."
        )

    def statistics(self, states: CellDensities) -> dict[str, Any]:
        """The number of cells, and the largest share of mass that is at the walls."""
        density, mesh = np.asarray(states.density), states.mesh
        entries: dict[str, Any] = {"cells": density.shape[-1]}
        if isinstance(mesh, HasBoundary) and (walls := mesh.at_walls()).size:
            entries["mass at the walls"] = float(np.max(density[..., walls].sum(axis=-1) / density.sum(axis=-1)))
        return entries

    def check(self, flow: Flow, measure: Measure, *, flow_per_run: bool = False) -> None:
        """Raise, with the reason, for flows and starts that a density cannot represent."""
        if is_concrete(flow.common_temperature) and np.any(np.asarray(flow.common_temperature) > 0):
            raise ArgumentError(
                "Noise that all particles share moves a density as a whole and at random: it is no density of one run. "
                "Use particles, or common_temperature = 0."
            )
        if measure.values is not None:
            raise ArgumentError("The start has `values`, which a density cannot carry along; use particles.")
        time = jnp.zeros((), measure.points.dtype)
        if any(each.positional is not None for each in flow.interactions(time)):
            raise ArgumentError("The drift depends on positions of particles, and a density has none; use particles.")
        if any(counts_points(each.kernel) for each in flow.interactions(time)):
            raise ArgumentError("The kernel counts the nearest points, of which a density has none; use particles.")
        if any(own is not None for _, own in flow.drift.stages(time)):
            raise ArgumentError("The drift has sub-layers with geometries of their own; a density moves on one alone.")
        if not flow_per_run:
            mesh = self.mesh(flow, measure.points.shape[-1], measure.points.dtype)
            _check_geometry(flow, mesh, measure)
            _check_seams(flow, mesh, measure)

    def _fluxes(self, flow: Flow, time: Any, state: CellDensities) -> _Fluxes:
        mesh, density, faces = state.mesh, state.density, state.mesh.faces
        velocity = flow.velocity_at(time, faces.points, self.measure(flow, time, state))
        speed = jnp.sum(velocity * faces.normals, axis=1)
        left, right = mesh.reconstructed(density)
        carried = jnp.where(speed > 0, speed * left, speed * right)
        mine, theirs = mesh.beside(density)
        share = flow.temperature / faces.distances
        return _Fluxes(speed, carried, share * mine, share * theirs)

    def _rate(self, state: CellDensities, fluxes: _Fluxes) -> CellDensities:
        across = fluxes.carried + fluxes.left - fluxes.right
        stays = jax.tree_util.tree_map(lambda _: None, state.mesh)
        return CellDensities(state.mesh.onto_cells(-across, across), stays)


def _ends(given: Any, name: str) -> tuple[float, ...] | None:
    """The ends of a box as plain numbers."""
    if given is None:
        return None
    numbers = np.atleast_1d(np.asarray(as_float_array(given, name), float))
    if numbers.ndim != 1:
        raise ShapeError(f"Argument `{name}` must be a number or a list of them, but has shape {numbers.shape}.")
    return tuple(float(number) for number in numbers)


def _check_geometry(flow: Flow, mesh: AbstractMesh, measure: Measure) -> None:
    """The cells must lie in the space of the flow, which must carry nothing but the points along."""
    geometry, points = for_weights(flow.geometry, measure.log_weights), mesh_places(mesh).centres
    carried = carried_names(geometry, points)
    if carried:
        raise ArgumentError(
            f"The geometry {geometry.name} carries {', '.join(carried)} along with every point, so that its law is no "
            "density of points alone; use particles."
        )
    if isinstance(geometry, NormalisesTheSet):
        _check_set(geometry, mesh, measure)
    else:
        geometry.check_contains(points)
    if flow.is_noisy and not geometry.facts(points.shape[1]).sees_stored:
        raise ArgumentError(
            f"On the geometry {geometry.name} noise differs from place to place in the frame of cells; use particles."
        )


def _check_set(geometry: AbstractGeometry, mesh: AbstractMesh, measure: Measure) -> None:
    """The density must have the mean and covariance of a normalised set, as far as cells resolve them."""
    if not is_concrete(measure.log_weights):
        return
    moved = np.abs(np.asarray(geometry.retract(measure.points) - measure.points)).max(axis=-1)
    rms = np.sqrt(np.sum(np.exp(np.asarray(measure.log_weights)) * np.square(moved), axis=-1)).max()
    size = float(np.max(np.asarray(mesh.faces.distances)))
    if not rms <= size:
        raise ArgumentError(
            f"The density must have the mean and covariance that the geometry {geometry.name} holds it at, but is off "
            f"by {rms:.3g}, more than the size {size:.3g} of a cell; begin with another one, or use finer cells."
        )


@eqx.filter_jit
def _velocities(flow: Flow, ends: Array, begins: Array, measure: Measure) -> tuple[Array, Array]:
    """The velocities at both sides of every seam of a mesh."""
    found = flow.velocity_at(jnp.zeros((), measure.points.dtype), jnp.concatenate([ends, begins]), measure)
    return found[: len(ends)], found[len(ends) :]


def _check_seams(flow: Flow, mesh: AbstractMesh, measure: Measure) -> None:
    """Raise unless velocities agree where a box closes."""
    seams = mesh.seams() if isinstance(mesh, HasBoundary) else None
    if seams is None or measure.points.ndim > 2:
        return
    before, after = map(np.asarray, _velocities(flow, *seams, Measure(measure.points, measure.log_weights)))
    largest = max(float(np.max(np.abs(before))), float(np.max(np.abs(after))))
    apart = float(np.max(np.abs(before - after)))
    if not apart <= _SEAM * largest:
        raise ArgumentError(
            f"The box is periodic, but the velocity is not: at its ends it differs by {apart:.3g}. "
            "Kernels of |x − y| see no neighbour beyond an end; use walls, periodic = false."
        )
