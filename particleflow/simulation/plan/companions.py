"""What is recorded beside an observable so that no number is lost: log E, wherever E may overflow.

What a run records is decided by its plan, before the first frame: a file keeps its columns, and a run that is resumed
records what it recorded. So the question is not whether E = (1/2β) ∬ K dμ dμ has overflowed, but whether it is known
that it never will, from the largest K that two points can have:

    K = k(|u − v|²), of a distance                       k is largest where the points coincide
    K on a sphere, the same log K(x, x) everywhere       K(x, x) is the largest: exp β⟨x, y⟩ at x = y

Elsewhere (attention in R^d, whose exponents grow with the points; kernels with matrices Q and K; data) nothing is
known.
"""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.discretization import AbstractDiscretization, Present
from particleflow.dynamics.flow import Flow
from particleflow.measure import Measure
from particleflow.simulation.observables import Observable, energy, log_energy, name_of

Run = tuple[Flow, AbstractDiscretization, Measure]

_DRAWN = 1e250  # the largest energy that pictures draw
_PLACES = 16  # points at which log K(x, x) is compared
_TIMES = 16  # at which a kernel that changes is looked at
_SAME = 1e-3  # the largest difference of the log K(x, x) that count as equal


def may_overflow(flow: Flow, discretization: AbstractDiscretization, start: Measure, times: Any) -> bool:
    """Whether the energy of a run is not known to stay below 1e250, or the largest number of its precision.

    Parameters: the flow, the discretization and the start of one run; its saved times, some of which are looked at.
    """
    state = discretization.begin(flow, start)
    chosen = np.unique(np.linspace(0, len(times) - 1, _TIMES).astype(int))
    presents = [Present(flow, discretization, jnp.asarray(times[k], start.points.dtype), state) for k in chosen]
    limit = np.log(min(_DRAWN, float(jnp.finfo(start.points.dtype).max)))
    return not all(_largest_exponent(present) < limit for present in presents)


def _largest_exponent(present: Present) -> float:
    """The largest log K that two points can have, of the first kernel that acts; ∞ where that is not known."""
    interaction, dimension = present.interaction, present.measure.dimension
    of_distances = interaction.kernel.radial() is not None
    on_sphere = interaction.data is None and present.flow.geometry.facts(dimension).kind == "sphere"
    if not of_distances and not on_sphere:
        return np.inf
    here = np.asarray(_own_exponents(present), float)
    if not of_distances and np.isneginf(here).any():  # a point that does not see itself says nothing of others
        return np.inf
    return float(here.max()) if of_distances or np.ptp(here) <= _SAME else np.inf


@eqx.filter_jit
def _own_exponents(present: Present) -> Array:
    """log K(x, x) at a few points, as one compiled program."""
    interaction, seen = present.interaction, present.reduced.observed
    sites = jax.tree_util.tree_map(lambda leaf: leaf[:_PLACES], seen.sites)
    return jnp.diagonal(interaction.bound_kernel(seen).log_matrix(sites, sites))


def with_log_energy(observe: tuple[Observable, ...], runs: Iterable[Run], times: Any) -> tuple[Observable, ...]:
    """The observables, and `log_energy` right after `energy` where that may overflow and nothing has this name.

    Parameters: `observe`; `runs`, (flow, discretization, start) of every run; the saved `times`.
    """
    if energy not in observe or name_of(log_energy) in map(name_of, observe):
        return observe
    if not any(may_overflow(flow, how, start, times) for flow, how, start in runs):
        return observe
    place = observe.index(energy) + 1
    return (*observe[:place], log_energy, *observe[place:])
