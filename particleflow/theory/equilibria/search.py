"""The search for fixed points: check the guesses, find zeros of the field, classify them, and list each once."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._support.arrays import as_positive
from particleflow.discretization import AbstractDiscretization, Particles, Present
from particleflow.discretization.base import POINTS
from particleflow.discretization.discretization_capabilities import Coalescing, merge_points, noises_of
from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError, whole_number
from particleflow.measure import Measure
from particleflow.simulation.plan import Draws, as_guesses, check_arguments, check_begin, check_flow, check_interactions
from particleflow.theory.equilibria.fixed_point import FixedPoint
from particleflow.theory.equilibria.spectrum import spectrum_of
from particleflow.theory.equilibria.vector_field import VectorField
from particleflow.theory.equilibria.zero_finding import Solved, largest, solve

_SAME = 0.375  # points within eps^_SAME are one fixed point: 1e-6 in 64 bits, 3e-3 in 32


class _Start(NamedTuple):
    """The start of a search: the field, that with weightless copies (or None), and the place of every particle."""

    system: VectorField
    probed: VectorField | None
    members: np.ndarray


def fixed_points(
    flow: Flow,
    guesses: Any,
    *,
    discretization: AbstractDiscretization | None = None,
    time: float = 0.0,
    layer: float | None = None,
    merge: float | None = None,
    tolerance: float | None = None,
    max_steps: int = 256,
    max_unknowns: int = 1024,
    count: int | None = None,
    draws: int = 1,
    key: Array | None = None,
) -> list[FixedPoint]:
    """Fixed points of a flow, v(x, μ) = 0 at every particle, or of an explicit layer, with their eigenvalues and kind.

    Each guess is followed to a zero of the field by least squares (Levenberg–Marquardt, then Newton), which need not be
    stable: saddles are found as well. A fixed point to which several guesses lead is listed once; permuted particles
    and rotated configurations count as different. A guess from which no zero is found is listed with `found` False. A
    field that is zero up to rounding counts as zero: slower motion cannot be distinguished from rest.

    Parameters:
        flow            a `Flow` without noise, or with noise a discretization that carries a density
        guesses         points (n, d), a `Measure`, or several: points (guesses, n, d) or a list of measures; or an
                        initial kind, of which `draws` clouds of `count` particles are drawn with `key` (that of seed 0
                        if left out); its density where densities are carried and no `count` is given
        discretization  how the measure is carried; by `Particles()` if left out
        time            at which the flow is evaluated; a field that changes with time has fixed points at one time only
        layer           the size of an explicit layer x ← N(x + layer · v), to find the fixed points of that layer (of a
                        deep equilibrium model) with their multipliers; those of the flow if left out
        merge           particles linked by distances up to this become one point of their common weight: thousands of
                        particles in a few clusters have as many unknowns as clusters, and all eigenvalues are still
                        computed; none are merged if left out
        tolerance       of growth, within which a direction is neutral; 5e-7 (in 32 bits 2e-3) of the largest
                        eigenvalue if left out
        max_steps       the most steps that a search takes
        max_unknowns    the most numbers that may move; the Jacobian holds the square of them
        count, draws, key   as for `guesses` that are an initial kind
    """
    check_flow(flow)
    check_arguments(discretization, (), None)
    for name, number in (("max_steps", max_steps), ("max_unknowns", max_unknowns)):
        whole_number(number, name)
    if tolerance is not None:
        tolerance = float(as_positive(tolerance, "tolerance"))
    how, found = discretization or Particles(), []
    measures = as_guesses(guesses, how, flow, Draws(count, draws, key))
    for number, measure in enumerate(measures):
        start = _begin(flow, how, measure, time, layer, merge)
        _check_size(start, max_unknowns)
        solved = solve(start.system, max_steps)
        found.append(_described(start, measure, solved, tolerance, number))
    return _distinct(found, measures[0].points.dtype)


def _begin(
    flow: Flow, how: AbstractDiscretization, measure: Measure, time: float, layer: float | None, merge: float | None
) -> _Start:
    """The field at a guess, checked: an admissible start, no noise on particles, merged particles where asked for."""
    dtype = measure.points.dtype
    check_begin(flow, how, measure, flow_per_run=False)
    state = how.begin(flow, measure)
    members = np.arange(measure.count)
    now = jnp.asarray(time, dtype)
    check_interactions(Present(flow, how, now, state))
    if flow.is_noisy and noises_of(how, flow, state):
        raise ArgumentError(
            "Particles under noise (`temperature`) have no fixed points: their law can be stationary, they never are. "
            "Leave the noise out, or carry the measure by a density (a discretization by cells or modes), whose "
            "velocity has the noise in it."
        )
    size = None if layer is None else jnp.asarray(as_positive(layer, "layer"), dtype)
    if merge is None:
        if isinstance(how, Coalescing):
            how, state = how.carriers(state)
        return _Start(VectorField(flow, how, state, now, size), None, members)
    taken = merge_points(how, flow, measure, float(as_positive(merge, "merge")))
    points, copies = (VectorField(flow, Particles(), each, now, size) for each in (taken.state, taken.with_copies))
    return _Start(points, copies, taken.members)


def _check_size(start: _Start, most: int) -> None:
    unknowns = jax.eval_shape(lambda: start.system.vector).size
    if unknowns > most:
        raise ArgumentError(
            f"The search has {unknowns} unknowns, and so a Jacobian of {unknowns}² numbers, but `max_unknowns` is "
            f"{most}. Merge the particles of clusters (`merge`), take fewer particles, or raise `max_unknowns`."
        )


def _described(start: _Start, measure: Measure, solved: Solved, tolerance: float | None, number: int) -> FixedPoint:
    """The fixed point that a search has found, with its residuals, spectrum and kind."""
    system, sizes = start.system, np.bincount(start.members)
    guess = np.asarray(measure.points, float)
    fields = {name: values[start.members] for name, values in solved.end.fields.items()}
    points = fields.pop(POINTS, guess)
    known = spectrum_of(system, start.probed, sizes, solved, tolerance)
    return FixedPoint(
        found=solved.found,
        smooth=known.smooth,
        timeless=not system.depends_on_time(),
        time=float(system.time),
        layer=None if system.layer is None else float(system.layer),
        points=points,
        fields=fields,
        residual_before=largest(solved.begin.residual),
        residual=largest(solved.end.residual),
        steps=solved.steps,
        moved=float(np.max(np.linalg.norm(points - guess, axis=1))),
        sizes=sizes,
        eigenvalues=known.eigenvalues,
        multiplicities=known.multiplicities,
        places=known.places,
        nature=known.nature,
        guesses=(number,),
    )


def _distinct(points: list[FixedPoint], dtype: Any) -> list[FixedPoint]:
    """Every fixed point once, with the numbers of all guesses that led there; failed searches are kept as they are."""
    tolerance = float(jnp.finfo(dtype).eps) ** _SAME
    kept: list[FixedPoint] = []
    for point in points:
        places = [
            place for place, other in enumerate(kept)
            if point.found and other.found and point.points.shape == other.points.shape
            and point.same_place(other, tolerance)
        ]  # fmt: skip
        if places:
            first = kept[places[0]]
            kept[places[0]] = replace(first, guesses=first.guesses + point.guesses)
        else:
            kept.append(point)
    return kept
