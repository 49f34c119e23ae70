"""Which particles become one, and where that would be wrong.

A group of particles x_i, of relative weights w_i, is merged at its mean x̄ = Σ w_i x_i if they are

- near:      within ε/2 of the group's middle, hence within ε of each other; and no particle is moved by more than ε,
             neither as the geometry moves particles (the norm of a residual stream counts) nor as drifts see them;
- together:  the group does not spread, Σ w_i ⟨x_i − x̄, ẋ_i − ẋ̄⟩ ≤ 0 up to the rounding of the field. For explicit
             layers of size h the step counts: Σ w_i (⟨x_i − x̄, r_i⟩ + ½h|r_i|²) ≤ 0 with r_i = Δx_i/h − mean.

Groups are the clusters at linking distance ε. One that is wider than ε, a chain, is cut into the cells of a grid.
All of this happens outside of compiled programs, in the order of the particles, so that the same state always becomes
the same state.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._support.arrays import is_concrete
from particleflow._support.single_linkage import cell_numbers, components, distinct
from particleflow.discretization.particles.cloud_states import Cloud, Coalesced
from particleflow.discretization.particles.kernel_slope import log_slope_bound
from particleflow.dynamics.flow import Flow, flow_of_run
from particleflow.dynamics.geometry import NormalisesTheSet, carried_fields, lifted
from particleflow.errors import ArgumentError
from particleflow.kernels.capabilities import counts_points
from particleflow.measure import Measure

_FEWEST = 16  # points; arrays of fewer are no faster
_ROUNDING_ULPS = 4.0  # of a mean or a field, in units of eps · max |x|


def padded_size(count: int, largest: int) -> int:
    """The size of arrays for `count` points: a power of two, so that few programs are compiled, or all `largest`."""
    return min(largest, max(_FEWEST, 1 << (count - 1).bit_length()))


def coalesced(flow: Flow, time: Array, state: Coalesced, epsilon: float, layer: float | None) -> Coalesced:
    """The state with all groups merged that are near and move together; the very same state where there are none.

    Parameters: `layer`, the size of an explicit layer, None for a flow in continuous time.
    """
    count = int(state.carrying)
    cloud = jax.tree_util.tree_map(jnp.asarray, state.carriers())
    places = _rows(_places(flow, time, cloud.moving), count)
    groups = _near_groups(places.own, epsilon)
    # The field is evaluated only where particles may merge: it costs as much as a stage of a step.
    if groups.max() + 1 == count:
        return state
    shares = group_shares(np.asarray(cloud.log_weights)[:count], groups)
    rates = np.asarray(_rates(flow, time, cloud, layer))[:count]
    spreading = _spreading(places.own, rates, groups, shares, layer or 0.0)
    means = group_means(places.own, groups, shares)
    # The means in an array of the size of all points, so that no further program is compiled for them.
    middle = np.array(cloud.moving)
    middle[: len(means)] = means
    centres = _places(flow, time, jnp.asarray(middle))
    moved = np.maximum(*(_lengths(np.asarray(new)[groups] - old) for new, old in zip(centres, places, strict=True)))
    # Equal particles are not moved, but for rounding: they may merge whatever the kernel is.
    moved[moved <= _ROUNDING_ULPS * np.finfo(places.own.dtype).eps * np.abs(places.own).max()] = 0
    apart = spreading | (_largest(moved, groups) > epsilon)
    if apart[np.bincount(groups) > 1].all():
        return state
    seen = cloud.measure_at(_places(flow, time, cloud.moving).seen)
    slope = max((float(log_slope_bound(each, seen)) for each in flow.interactions(time)[:1]), default=math.inf)
    return _merged(state, places, np.asarray(centres.own), moved, groups, apart, slope)


class _Places(NamedTuple):
    """Where particles are: `own`, as the geometry moves them, in lengths that mean something; `seen` by drifts."""

    own: Any
    seen: Any


@eqx.filter_jit
def _places(flow: Flow, time: Array, moving: Array) -> _Places:
    """A state moved on a sphere may have any length; retracted and lifted again it has the one that counts."""
    geometry = flow.geometry
    own = lifted(geometry, geometry.retract(moving), carried_fields(geometry, moving))
    return _Places(own, geometry.observe(own, time))


def _rows(places: _Places, count: int) -> _Places:
    """The places of the first so many points: the others fill up the arrays."""
    return _Places(*(np.asarray(rows)[:count] for rows in places))


@eqx.filter_jit
def _rates(flow: Flow, time: Array, cloud: Cloud, layer: float | None) -> Array:
    """How the places of points change in unit time, by a flow or by an explicit layer."""
    own = _places(flow, time, cloud.moving).own
    if layer is None:
        return flow.velocity(time, own, cloud.measure_at(own))
    after = flow.step(time, own, cloud.measure_at(own), jnp.asarray(layer, own.dtype))
    return (_places(flow, time, after).own - own) / layer


def _near_groups(points: np.ndarray, epsilon: float) -> np.ndarray:
    """The number of the group of every point, in which all are within ε/2 of the middle."""
    points = points.astype(float)
    groups = components(points, epsilon)
    wide = (
        _largest(_lengths(points - group_means(points, groups, group_shares(None, groups))[groups]), groups)
        > 0.5 * epsilon
    )
    if wide.any():
        cells = cell_numbers(points, 0.5 * epsilon / math.sqrt(points.shape[1]))
        groups = distinct(np.stack([groups, np.where(wide[groups], 1 + cells, 0)], axis=1))
    return groups


def group_shares(log_weights: np.ndarray | None, groups: np.ndarray) -> np.ndarray:
    """The share of every member in its group; equal ones without weights, or where no member has any."""
    if log_weights is None:
        return 1.0 / np.bincount(groups)[groups]
    highest = _largest(log_weights.astype(float), groups)
    weightless = np.isneginf(highest)[groups]
    weights = np.exp(log_weights - np.where(weightless, 0.0, highest[groups]))
    weights = np.where(weightless, 1.0, weights)
    return weights / np.bincount(groups, weights)[groups]


def group_means(rows: np.ndarray, groups: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Σ w_i x_i of every group."""
    return np.stack([np.bincount(groups, shares * column) for column in rows.astype(float).T], axis=1)


def _spreading(places: np.ndarray, rates: np.ndarray, groups: np.ndarray, shares: np.ndarray, layer: float) -> Any:
    """Which groups grow: Σ w_i (⟨x_i − x̄, r_i⟩ + ½h|r_i|²) > 0, r_i = ẋ_i − ẋ̄, by more than the field is rounded."""
    around, apart = (rows - group_means(rows, groups, shares)[groups] for rows in (places, rates))
    growth = np.bincount(groups, shares * np.sum(apart * (around + 0.5 * layer * apart), axis=1))
    rounding = _ROUNDING_ULPS * np.finfo(rates.dtype).eps * max(np.abs(rates).max(), np.abs(places).max())
    return growth > rounding * np.bincount(groups, shares * _lengths(around))


def _lengths(rows: np.ndarray) -> np.ndarray:
    """|x| of every row."""
    return np.sqrt(np.sum(np.square(rows, dtype=float), axis=1))


def _largest(numbers: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The largest number of every group."""
    found = np.full(int(groups.max()) + 1, -np.inf)
    np.maximum.at(found, groups, numbers)
    return found


def _merged(
    state: Coalesced, places: _Places, centres: np.ndarray, moved: np.ndarray, groups: np.ndarray, apart: np.ndarray,
    slope: float,
) -> Coalesced:  # fmt: skip
    """The state with every group, but for those that stay apart, at its centre.

    Points come in the order of their first particle, which depends on nothing else. A point that does not merge keeps
    its bits; weights are summed over particles, not over points, so that rounding does not add up.
    """
    alone = apart[groups] | (np.bincount(groups) == 1)[groups]
    keys = np.where(alone, len(groups) + np.arange(len(groups)), groups)
    _, first, labels = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.argsort(order)
    first, labels = first[order], rank[labels]
    dtype, log_weights = places.own.dtype, np.asarray(state.log_weights)
    moving = np.where(alone[first][:, None], np.asarray(state.moving)[first], centres[groups[first]])
    moved = np.where(alone, 0.0, moved)
    members = labels[np.asarray(state.members)].astype(np.int32)
    return replace(
        state,
        moving=moving.astype(dtype),
        log_masses=log_sums(log_weights, members).astype(dtype),
        carrying=np.asarray(len(first), np.int32),
        members=members,
        displacement=_largest(np.asarray(state.displacement)[: len(moved)] + moved, labels).astype(dtype),
        log_energy_bound=np.asarray(state.log_energy_bound + (2 * slope * moved.max() if moved.any() else 0.0), dtype),
    )


def log_sums(log_weights: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """log Σ w_i of every group."""
    highest = _largest(log_weights.astype(float), groups)
    shift = np.where(np.isneginf(highest), 0.0, highest)
    with np.errstate(divide="ignore"):
        return np.log(np.bincount(groups, np.exp(log_weights - shift[groups]))) + shift


def check_exchangeable(flow: Flow, measure: Measure, *, flow_per_run: bool, wish: str = "coalesce") -> None:
    """Raise where particles differ by more than where they are, so that two in one place would not stay together.

    Parameters: `wish`, the name of the argument for which particles would become one.
    """
    begun = f"Particles in one place cannot become one (`{wish}`), because "
    if measure.values is not None:
        raise ArgumentError(f"{begun}each carries a value of its own; leave out `values`, or `{wish}`.")
    if isinstance(flow.geometry, NormalisesTheSet):
        raise ArgumentError(f"{begun}the geometry {flow.geometry.name} looks at the whole set, which merging narrows.")
    if not is_concrete(flow.temperature) or np.any(np.asarray(flow.temperature) > 0):
        raise ArgumentError(
            f"{begun}each has noise of its own (`temperature`), which parts them again; noise that all share "
            "(`common_temperature`) would not."
        )
    one = flow_of_run(flow, 0) if flow_per_run else flow
    time = jnp.zeros((), measure.points.dtype)
    for each in one.interactions(time):
        if each.positional is not None:
            raise ArgumentError(f"{begun}the kernel looks at their positions ({each.positional!r}).")
        if counts_points(each.kernel):
            raise ArgumentError(f"{begun}the kernel counts points ({each.kernel!r}), of which there would be fewer.")
    count, dimension = measure.points.shape[-2:]
    _check_shape(one, time, count, dimension, with_positions=True)
    try:
        _check_shape(one, time, count + 1, dimension, with_positions=False)
    except Exception as error:  # a drift of the user's own may raise anything
        raise ArgumentError(f"{begun}the drift tells them apart by position or number: {error}") from error


def _check_shape(flow: Flow, time: Array, count: int, dimension: int, *, with_positions: bool) -> None:
    """Evaluate the drift's velocity in shape alone, for so many particles; raises what the drift raises."""
    points = jax.ShapeDtypeStruct((count, dimension), time.dtype)
    numbers = jax.ShapeDtypeStruct((count,), time.dtype)

    def velocities(points: Array, numbers: Array) -> list[Array]:
        measure = Measure(points, numbers, None, numbers if with_positions else None)
        return [drift(time, measure.sites, measure) for drift, _ in flow.drift.stages(time)]

    jax.eval_shape(velocities, points, numbers)
