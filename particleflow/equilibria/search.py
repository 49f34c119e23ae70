"""Fixed points from guesses: checked, searched for, told apart, and understood."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._arrays import as_positive
from particleflow.discretization import AbstractDiscretization, Particles, Present
from particleflow.discretization.base import POINTS
from particleflow.equilibria.point import FixedPoint
from particleflow.equilibria.solving import Solved, largest, solve
from particleflow.equilibria.spectrum import spectrum_of
from particleflow.equilibria.system import System
from particleflow.errors import ArgumentError
from particleflow.flow import Flow
from particleflow.measure import Measure
from particleflow.plan import Draws, as_guesses, check_arguments, check_begin, check_flow, check_interactions

_SAME = 0.375  # points within eps^_SAME are one fixed point: 1e-6 in 64 bits, 3e-3 in 32


class _Start(NamedTuple):
    """What a search begins with: the system, that with weightless copies or None, and the place of every particle."""

    system: System
    probed: System | None
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

    Each guess is followed to a zero of the field by least squares (Levenberg–Marquardt, then Newton), whether the flow
    would go there or not: saddles are found as well. What several guesses lead to is listed once; particles that have
    changed places, and rotated configurations, are different. A guess from which no zero is found is listed with
    `found` False. A zero is one to rounding: what moves more slowly than that cannot be told from what stands still.

    Parameters:
        flow            a `Flow` without noise (with noise a law can be stationary, which takes a density to carry it)
        guesses         points (n, d), a `Measure`, or several: points (guesses, n, d) or a list of measures; or an
                        initial kind, of which `draws` clouds of `count` particles are drawn with `key` (that of seed 0
                        if left out); its density where densities are carried and no `count` is given
        discretization  how the measure is carried; by `Particles()` if left out
        time            when the flow is asked; a field that changes with time has its fixed points at this time only
        layer           the size of an explicit layer x ← N(x + layer · v), whose fixed points (of a deep equilibrium
                        model) and multipliers are wanted; those of the flow if left out
        merge           particles linked by distances up to this become one point of their common weight: thousands of
                        particles in a few clusters are as many unknowns as clusters, and all eigenvalues are known
                        still; none are merged if left out
        tolerance       of growth, within which a direction is neutral; 5e-7 (in 32 bits 2e-3) of the largest
                        eigenvalue if left out
        max_steps       so many steps may a search take
        max_unknowns    so many numbers may move: the Jacobian is a matrix of their square
    """
    check_flow(flow)
    check_arguments(discretization, (), None)
    for name, number in (("max_steps", max_steps), ("max_unknowns", max_unknowns)):
        if not isinstance(number, int) or number < 1:
            raise ArgumentError(f"Argument `{name}` must be a positive integer, but is {number!r}.")
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
    """The system that a guess begins with, checked."""
    dtype = measure.points.dtype
    check_begin(flow, how, measure, flow_per_run=False)
    state = how.begin(flow, measure)
    members = np.arange(measure.count)
    now = jnp.asarray(time, dtype)
    check_interactions(Present(flow, how, now, state))
    if flow.is_noisy and how.noises(flow, state):
        raise ArgumentError(
            "Particles under noise (`temperature`) have no fixed points: their law can be stationary, they never are. "
            "Leave the noise out, or carry the measure by a density (a discretization by cells or modes), whose "
            "velocity has the noise in it."
        )
    size = None if layer is None else jnp.asarray(as_positive(layer, "layer"), dtype)
    if merge is None:
        how, state = how.condensed(state)
        return _Start(System(flow, how, state, now, size), None, members)
    taken = how.gathered(flow, measure, float(as_positive(merge, "merge")))
    points, copies = (System(flow, Particles(), each, now, size) for each in (taken.state, taken.probed))
    return _Start(points, copies, taken.members)


def _check_size(start: _Start, most: int) -> None:
    unknowns = jax.eval_shape(lambda: start.system.vector).size
    if unknowns > most:
        raise ArgumentError(
            f"The search has {unknowns} unknowns, and so a Jacobian of {unknowns}² numbers, but `max_unknowns` is "
            f"{most}. Take the particles of clusters together (`merge`), take fewer particles, or allow more."
        )


def _described(start: _Start, measure: Measure, solved: Solved, tolerance: float | None, number: int) -> FixedPoint:
    """A fixed point with all that is known of it."""
    system, sizes = start.system, np.bincount(start.members)
    guess = np.asarray(measure.points, float)
    fields = {name: values[start.members] for name, values in solved.end.fields.items()}
    points = fields.pop(POINTS, guess)
    known = spectrum_of(system, start.probed, sizes, solved, tolerance)
    return FixedPoint(
        found=solved.found,
        smooth=known.smooth,
        timeless=not system.looks_at_time(),
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
    """Every fixed point once, with all guesses that have led there; searches that failed stay as they are."""
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
