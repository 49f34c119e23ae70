"""Spectral: the measure is a smooth density on the circle or the sphere, carried by the coefficients of its harmonics.

On the sphere of radius R let μ = g σ, σ uniform, g = Σ_j a_j B_j up to degree L. The continuity equation, multiplied
with a harmonic and integrated by parts, moves its coefficient by

    da_j/dt = ∫ ⟨∇B_j, g u̇⟩ dσ − (T/R²) e_j a_j,    u̇ = v(R u, μ)/R,

with the velocity v of the flow on the grid, where the measure has the masses q_i g(u_i). The sum over pairs is
that of the drift. The mass a_0 never changes, and noise damps every coefficient by itself. Where g is smooth the error
falls faster than any power of L; where clusters become points, cells are better.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import is_concrete
from particleflow.discretization.base import MASSES, AbstractDiscretization
from particleflow.discretization.density.spectral.harmonics import AbstractHarmonics, harmonics_of
from particleflow.discretization.discretization_capabilities import CarriesDensity, Diagnosable, HasLogDensity
from particleflow.dynamics.flow import Flow, flow_of_run
from particleflow.dynamics.geometry import check_start, round_radius
from particleflow.dynamics.initial.base import density_of
from particleflow.dynamics.initial.density import Density, check_whole, sphere_area
from particleflow.errors import ArgumentError, whole_number
from particleflow.kernels.capabilities import counts_points
from particleflow.measure import Measure

_ON_GRID_ULPS = 1e3  # so far may a start be off the grid
_SUSPECT = 1e-3  # where a run has failed, a density this share of the refused depth below zero is the reason
_WHOLE = 1e-6  # how far from one the mass of a start may be


class SpectralDensity(AbstractDiscretization, CarriesDensity, Diagnosable, HasLogDensity):
    """A density by its harmonics of degree at most `modes`: Fourier on the circle, spherical harmonics on S².

    A run begins with masses on the grid of these harmonics: `Spectral(64).measure_of(density)`, the last frame of
    another such run, or in a scenario an initial kind of known density. Frames hold the masses on the grid.
    Truncation can make a density negative that is not resolved: below −√(rounding) of its maximum it is refused, and a
    run ends with an error; smaller negative values count as zero.

    Parameters: `modes`, the highest degree L; the circle then has 3L + 1 points, the sphere about 4.5 L².
    """

    modes: int = eqx.field(static=True)

    kind: ClassVar[str] = "spectral"

    def __init__(self, modes: int):
        self.modes = modes

    def __check_init__(self):
        whole_number(self.modes, "modes")

    def measure_of(
        self, density: Callable[[Any], Any], dimension: int = 2, radius: Any = 1.0, dtype: Any = float
    ) -> Measure:
        """A density as masses on the grid, to begin a run with.

        Parameters: `density`, a function of points (n, d) that returns n numbers, in any unit; `dimension` d, 2 for the
        circle and 3 for the sphere; `radius` of that sphere; `dtype` of the run.
        """
        basis = self._basis(dimension)
        points = float(radius) * basis.points
        found = Density("sphere", dimension, density).at(points)
        if not found.any():
            raise ArgumentError("A density must not be zero everywhere, but is.")
        masses = basis.shares * found / float(basis.shares @ found)
        return Measure.weighted(jnp.asarray(points, dtype), jnp.asarray(masses, dtype))

    def project(self, flow: Flow, start: Any) -> Any:
        """The start on the grid: a density, or that of an initial kind, evaluated there; a measure as it is."""
        start = density_of(start)
        if not isinstance(start, Density):
            return start
        facts = flow.geometry.facts(start.dimension)
        start.check_lives_on(facts.kind, flow.geometry.name)
        if facts.kind != "sphere":
            raise ArgumentError(f"Spectral densities live on a sphere, but the geometry is {flow.geometry.name}.")
        basis, radius = self._basis(start.dimension), float(np.asarray(facts.radius))
        total = sphere_area(start.dimension) * float(basis.shares @ start.at(basis.points))
        check_whole(total, "the sphere", f"{self.modes} modes do not resolve it")
        return self.measure_of(lambda points: start.values(points / radius), start.dimension, radius)

    def begin(self, flow: Flow, measure: Measure) -> dict[str, Array]:
        """The coefficients of the masses on the grid, a row each, so that step control sees the error of every one."""
        basis = self._basis(measure.dimension)
        if measure.count != len(basis.shares):
            raise ArgumentError(self._off_grid(basis, measure.count))
        values = jnp.exp(measure.log_weights) / jnp.asarray(basis.shares, measure.points.dtype)
        return {"coefficients": basis.coefficients(values)[:, None]}

    def measure(self, flow: Flow, time: Any, state: dict[str, Array]) -> Measure:
        """The grid, with the masses q_i g(u_i); where g is negative beyond rounding an error, inside `jit` NaN."""
        basis = self._basis_of(state)
        values = self._values(state)
        shares = jnp.asarray(basis.shares, values.dtype)
        if is_concrete(values) and (trouble := _negative(np.asarray(values), self.modes)):
            raise ArgumentError(trouble)
        known = jnp.where(values < -_floor(values) * jnp.max(values), jnp.nan, jnp.maximum(values, 0.0))
        masses = state["coefficients"][0, 0] * shares * known / jnp.sum(shares * known)
        some = masses != 0
        log_masses = jnp.where(some, jnp.log(jnp.where(some, masses, 1.0)), -jnp.inf)
        return Measure(self._points(flow, basis, values.dtype), log_masses)

    def velocity(self, flow: Flow, time: Any, state: dict[str, Array]) -> dict[str, Array]:
        """Transport by the flow, and diffusion."""
        basis, radius = self._basis_of(state), self._radius(flow, state)
        turning = self.point_velocity(flow, time, state) / radius
        carried = basis.pulled(self._values(state)[:, None] * turning)
        decay = flow.temperature / radius**2 * jnp.asarray(basis.eigenvalues, turning.dtype)
        return {"coefficients": carried[:, None] - decay[:, None] * state["coefficients"]}

    def point_velocity(self, flow: Flow, time: Any, state: dict[str, Array]) -> Float[Array, "n d"]:
        """The velocity of the flow on the grid; noise has none."""
        measure = self.measure(flow, time, state)
        return flow.velocity(time, measure.points, measure)

    def fields(self, flow: Flow, time: Any, state: dict[str, Array]) -> dict[str, Array]:
        """The masses; the grid stays."""
        return {MASSES: jnp.exp(self.measure(flow, time, state).log_weights)}

    def log_density(self, flow: Flow, time: Any, state: dict[str, Array]) -> Float[Array, " n"]:
        """log of mass over length or area, on the grid."""
        basis = self._basis_of(state)
        dimension = basis.points.shape[1]
        whole = {2: 2 * np.pi, 3: 4 * np.pi}[dimension]
        values = self._values(state)
        some = values > 0
        size = jnp.log(whole * jnp.asarray(self._radius(flow, state), values.dtype) ** (dimension - 1))
        return jnp.where(some, jnp.log(jnp.where(some, values, 1.0)), -jnp.inf) - size

    def step(self, flow: Flow, time: Any, state: dict[str, Array], size: Any) -> dict[str, Array]:
        """Refused: a layer moves points by a finite step, and a density would have to be folded along."""
        raise ArgumentError(
            "Explicit layers (solver = 'map') push points forward, which coefficients of a density cannot follow; use "
            "another solver, or particles."
        )

    def diagnose(self, flow: Flow, time: Any, state: dict[str, Array]) -> str | None:
        """That the density has become negative, where it has, or is about to."""
        return _negative(np.asarray(self._values(state)), self.modes, share=_SUSPECT)

    def check(self, flow: Flow, measure: Measure, *, flow_per_run: bool = False) -> None:
        """A density of mass one on the grid of this sphere, whose particles differ by nothing but their places."""
        one = flow_of_run(flow, 0) if flow_per_run else flow
        dimension, dtype = measure.points.shape[-1], measure.points.dtype
        _check_exchangeable(one, measure)
        basis = self._basis(dimension)
        round_radius(one.geometry, dimension, noisy=one.may_be_noisy, dtype=dtype)
        check_start(flow.geometry, measure.points, per_run=flow_per_run)
        self._check_grid(basis, measure)

    def _check_grid(self, basis: AbstractHarmonics, measure: Measure) -> None:
        """The points must be those of the grid, and the masses a density that the harmonics resolve."""
        if not (is_concrete(measure.points) and is_concrete(measure.log_weights)):
            return
        points = np.asarray(measure.points)
        units = points / np.linalg.norm(points, axis=-1, keepdims=True)
        rounding = _ON_GRID_ULPS * float(np.finfo(units.dtype).eps)
        if units.shape[-2:] != basis.points.shape or np.max(np.abs(units - basis.points)) > rounding:
            raise ArgumentError(self._off_grid(basis, units.shape[-2]))
        masses = np.exp(np.asarray(measure.log_weights, float)).reshape(-1, len(basis.points))
        for row in masses:
            if not abs(row.sum() - 1) <= _WHOLE:
                raise ArgumentError(f"A density must have the mass one, but has {row.sum():.10g}; normalise it.")
            with jax.ensure_compile_time_eval():
                values = np.asarray(basis.values(basis.coefficients(jnp.asarray(row / basis.shares))))
            if trouble := _negative(values.astype(points.dtype), self.modes):
                raise ArgumentError(trouble)

    def _off_grid(self, basis: AbstractHarmonics, count: int) -> str:
        return (
            f"A density of {self.modes} modes begins with masses on its grid of {len(basis.points)} points, but the "
            f"start has {count} others; use `Spectral({self.modes}).measure_of(density)`, or an initial kind of "
            "known density."
        )

    def _basis(self, dimension: int) -> AbstractHarmonics:
        if dimension not in (2, 3):
            raise ArgumentError(
                f"Spectral densities live on the circle (d = 2) or the sphere (d = 3), but d is {dimension}."
            )
        return harmonics_of(self.modes, dimension)

    def _basis_of(self, state: dict[str, Array]) -> AbstractHarmonics:
        """The basis that so many coefficients belong to."""
        return harmonics_of(self.modes, 2 if state["coefficients"].shape[0] == 2 * self.modes + 1 else 3)

    def _values(self, state: dict[str, Array]) -> Float[Array, " n"]:
        return self._basis_of(state).values(state["coefficients"][:, 0])

    def _radius(self, flow: Flow, state: dict[str, Array]) -> Any:
        return flow.geometry.facts(self._basis_of(state).points.shape[1]).radius

    def _points(self, flow: Flow, basis: AbstractHarmonics, dtype: Any) -> Float[Array, "n d"]:
        radius = jnp.asarray(flow.geometry.facts(basis.points.shape[1]).radius, dtype)
        return radius * jnp.asarray(basis.points, dtype)


Spectral = SpectralDensity  # its name for users, `pf.discretization.Spectral`


def _check_exchangeable(flow: Flow, measure: Measure) -> None:
    """Raise where particles differ by more than their places, or are counted."""
    if is_concrete(flow.common_temperature) and float(flow.common_temperature) > 0:
        raise ArgumentError("Noise that all particles share moves a density at random; `common_temperature` must be 0.")
    if measure.values is not None:
        raise ArgumentError("Points of a density carry themselves, but the start has `values` of its own.")
    found = flow.interactions(jnp.zeros((), measure.points.dtype))
    if any(each.positional is not None for each in found):
        raise ArgumentError("A density has no places in a sequence, but a drift has a `positional` kernel.")
    if any(counts_points(each.kernel) for each in found):
        raise ArgumentError("A density has no nearest points to be counted, but a kernel counts them; use particles.")


def _floor(values: Any) -> float:
    """How far below zero, relative to its maximum, a density may be: half of the digits."""
    return float(np.sqrt(np.finfo(values.dtype).eps))


def _negative(values: np.ndarray, modes: int, share: float = 1.0) -> str | None:
    """What is wrong with values of a density that are below zero; None if nothing is."""
    if not np.isfinite(values).all():
        return f"The density is not finite with {modes} modes any more; use more `modes`, or finite_volumes."
    least = float(values.min() / values.max())
    if least >= -share * _floor(values):
        return None
    return (
        f"The density falls to {least:.2g} of its maximum, below zero, because {modes} modes do not resolve it; use "
        "more `modes`, or finite_volumes where clusters become points."
    )
