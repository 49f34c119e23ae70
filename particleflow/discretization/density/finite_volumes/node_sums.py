"""Sums over the cells of a sphere, by a few nodes that stand for many cells.

Cells and faces never move, and a smooth kernel is a polynomial on a small patch, up to rounding. The sphere is cut into
patches, k × k on each side of a cube around it, with q × q Chebyshev nodes each. With ℓ_a Lagrange's polynomials of the
nodes z_a of the patch that a point lies in,

    Σ_j K(x, y_j) w_j = Σ_a ℓ_a(x) Σ_b K(z_a, z_b) Σ_j ℓ_b(y_j) w_j

to rounding, if q is as large as it must be for this kernel and patch (Fong and Darve, the black-box fast multipole
method, 2009, in one level). The sum in the middle is the exact one over all pairs of nodes, of which there are far
fewer than of cells and faces. As for grids, the error is relative to the sum itself: with r the range of log K over a
pair of patches it is at most c ε e^r of it. A few pairs are evaluated in every sum; where they show that the kernel
varies by more than the nodes were made for (under a schedule of β), the sum is over all pairs.
"""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from particleflow.discretization.density.finite_volumes.grid_convolution import is_replaceable, log_pairs
from particleflow.discretization.density.finite_volumes.mesh import AbstractMesh
from particleflow.discretization.density.finite_volumes.voronoi_sphere import Charted, CubeCharts, VoronoiSphere
from particleflow.dynamics.drifts.base import Interaction
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation, Choice, as_query_sites, value_columns
from particleflow.summation.moments import Moments, Sums, finite_maximum

_MOST_CUTS, _MOST_NODES = 6, 24  # patches along a side of a chart; nodes along a side of a patch
_LINES = 96  # along which a kernel is evaluated to find the number of nodes
_PROBES = 16  # pairs at which interpolation is checked in every sum
_TAIL, _WRONG = 0.8, 4.0  # nodes leave out at most eps^_TAIL, 3e-13 in 64 bits; a probe may be off by this multiple
_RANGE = 4.0  # of log K along a line through a patch; over a pair of patches it is about twice as much
_WORTH = 0.3  # the largest share of the cost of all pairs at which nodes are used
_POLYNOMIAL_COST = 2.0  # of a product with the polynomials, in pairs


class Patched(eqx.Module):
    """Points sorted by the patches they lie in, and the polynomials of both coordinates at each.

    `members` (patches, most) are numbers of points, that of no point where a patch has fewer; `places` (n,) is where
    in that table a point is; `first`, `second` (patches, most, q), zero for no point.
    """

    members: Int[Array, "p s"]
    places: Int[Array, " n"]
    first: Float[Array, "p s q"]
    second: Float[Array, "p s q"]

    def onto_nodes(self, columns: Float[Array, "n c"]) -> Float[Array, "p q q c"]:
        """Σ_j ℓ_b(y_j) c_j for the nodes b of every patch."""
        filled = jnp.concatenate([columns, jnp.zeros_like(columns[:1])])[self.members]
        spread = self.second[:, :, :, None] * filled[:, :, None, :]
        return jnp.einsum("psa,psbc->pabc", self.first, spread)

    def from_nodes(self, values: Float[Array, "p q q c"]) -> Float[Array, "n c"]:
        """Σ_a ℓ_a(x_i) v_a of every point."""
        along = jnp.einsum("psa,pabc->psbc", self.first, values)
        found = jnp.sum(self.second[:, :, :, None] * along, axis=2)
        return found.reshape((-1, values.shape[-1]))[self.places]


class Probes(eqx.Module):
    """Some pairs of points, each with the nodes of its patch (k, q², d) and the polynomials there (k, q²)."""

    points: Float[Array, "2 k d"]
    nodes: Float[Array, "2 k b d"]
    weights: Float[Array, "2 k b"]

    def error(self, kernel: AbstractKernel) -> Array:
        """The largest error of the kernel interpolated at one end of a pair, relative to the largest K of its nodes."""

        def each(points: Array, nodes: Array, weights: Array) -> Array:
            (x, y), (ours, theirs) = (Sites(each[None]) for each in points), (Sites(each) for each in nodes)
            exact = kernel.log_matrix(x, y)[0, 0]
            ends = kernel.log_matrix(ours, y)[:, 0], kernel.log_matrix(x, theirs)[0]
            tops = [jnp.max(end) for end in ends]
            found = [
                jnp.abs(weight @ jnp.exp(end - top) - jnp.exp(exact - top))
                for weight, end, top in zip(weights, ends, tops, strict=True)
            ]
            return jnp.maximum(*found)

        return jnp.max(jax.vmap(each, in_axes=1)(self.points, self.nodes, self.weights))


class NodeInterpolation(AbstractSummation):
    """The sums over cells that never move, seen from these cells or from their faces, by nodes of patches.

    Seen from other places, and where a kernel varies too much, the exact sum over all pairs takes its place.
    """

    nodes: Float[Array, "b d"]
    cells: Patched
    faces: Patched
    probes: Probes

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        sites = as_query_sites(queries)
        seen = {len(each.places): each for each in (self.cells, self.faces)}.get(sites.points.shape[0])
        if seen is None or measure.count != len(self.cells.places):
            return Auto().moments(kernel, measure, queries, values)
        columns = value_columns(measure, values)

        def interpolated() -> Moments:
            return self._interpolated(kernel, seen, measure.log_weights, columns)

        def summed() -> Moments:
            return Auto().moments(kernel, measure, sites, values)

        wrong = self.probes.error(kernel)
        return jax.lax.cond(wrong <= _WRONG * _tail(wrong.dtype), interpolated, summed)

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself, with the nodes it was made for."""
        patches, _, each = self.cells.first.shape
        reason = f"{patches} patches of {each} × {each} nodes for {measure.count} cells, exact up to rounding"
        yield Choice(self, reason, cost=_cost(len(self.nodes), each, len(self.cells.places), len(self.faces.places)))

    def _interpolated(self, kernel: AbstractKernel, seen: Patched, log_weights: Array, columns: Array) -> Moments:
        shift = finite_maximum(log_weights)
        summed = jnp.exp(log_weights - shift)[:, None] * jnp.pad(columns, ((0, 0), (0, 1)), constant_values=1.0)
        onto = self.cells.onto_nodes(summed)
        # Sums on nodes have signs: they are the values that nodes of weight one carry, whose total mass is divided out.
        among = Measure(self.nodes, jnp.zeros_like(self.nodes[:, 0]))
        found = Auto().moments(kernel, among, Sites(self.nodes), onto.reshape((len(self.nodes), -1)))
        tops = jax.lax.stop_gradient(jnp.max(found.log_mass.reshape((onto.shape[0], -1)), axis=1))
        scaled = jnp.exp(found.log_mass.reshape(onto.shape[:3]) - tops[:, None, None])[..., None]
        sums = seen.from_nodes(scaled * found.mean.reshape(onto.shape))
        return Sums(tops[seen.places // seen.members.shape[1]] + shift, sums).moments()


def interpolation_for(
    mesh: AbstractMesh, interaction: Interaction, cells: Float[Array, "n d"], faces: Float[Array, "m d"]
) -> NodeInterpolation | None:
    """What sums an interaction over these cells by nodes; None where that is impossible, or not worth it."""
    kernel = interaction.kernel
    if not isinstance(mesh, VoronoiSphere) or not is_replaceable(interaction, cells, faces):
        return None
    charts = mesh.charts()
    found = _fewest(charts, kernel, cells, len(faces))
    if found is None:
        return None
    made = _made(charts, np.asarray(cells), np.asarray(faces), *found)
    wrong = float(_probed(made.probes, kernel))
    return made if wrong <= _WRONG * _tail(cells.dtype) else None


def _tail(dtype: Any) -> float:
    """What nodes may leave out of a kernel, relative to its largest value nearby."""
    return float(jnp.finfo(dtype).eps) ** _TAIL


def _cost(nodes: int, each: int, cells: int, faces: int) -> float:
    """In pairs: all pairs of nodes, and products with the polynomials of cells and faces."""
    return float(nodes) ** 2 + _POLYNOMIAL_COST * each * (cells + faces)


def _fewest(surface: CubeCharts, kernel: AbstractKernel, cells: Array, faces: int) -> tuple[int, int] | None:
    """How many patches along a side of a chart, and nodes along a side of a patch, cost least; None if all cost much.

    The Chebyshev coefficients of the kernel along lines through patches decide how many nodes it takes.
    """
    allowed, best = _WORTH * float(len(cells) * faces), None
    for cuts in range(1, _MOST_CUTS + 1):
        least = surface.count * cuts**2
        if _cost(least * 4, 2, len(cells), faces) > allowed:
            break
        each = _nodes_along(surface, kernel, np.asarray(cells), cuts)
        if each is not None:
            cost = _cost(least * each**2, each, len(cells), faces)
            if cost < allowed:
                allowed, best = cost, (cuts, each)
    return best


def _nodes_along(surface: CubeCharts, kernel: AbstractKernel, cells: np.ndarray, cuts: int) -> int | None:
    """How many nodes along a side of a patch the kernel needs, as far as some lines show; None for too many."""
    random = np.random.default_rng(0)
    chart, corner = random.integers(surface.count, size=_LINES), random.integers(cuts, size=(_LINES, 2))
    inside = np.broadcast_to(random.uniform(-1, 1, (_LINES, 1, 2)), (_LINES, _MOST_NODES, 2)).copy()
    inside[np.arange(_LINES), :, np.arange(_LINES) % 2] = _chebyshev(_MOST_NODES)
    charted = Charted(np.repeat(chart, _MOST_NODES), _joined(inside, corner[:, None, :], cuts).reshape(-1, 2))
    lines = surface.at(charted).astype(cells.dtype)
    others = np.repeat(cells[random.integers(len(cells), size=_LINES)], _MOST_NODES, axis=0)
    found = []
    for ends in ((lines, others), (others, lines)):
        logs = np.asarray(log_pairs(kernel, *ends), float).reshape(_LINES, _MOST_NODES)
        if not np.isfinite(logs).all() or (np.ptp(logs, axis=1) > _RANGE).any():
            return None
        values = np.exp(logs - logs.max(axis=1, keepdims=True))
        sizes = np.abs(values @ _at_zeros(_MOST_NODES)) * 2 / _MOST_NODES
        found.append(sizes.max(axis=0))
    enough = np.flatnonzero(np.max(found, axis=0) <= _tail(cells.dtype))
    return int(enough[0]) if enough.size else None


@eqx.filter_jit
def _probed(probes: Probes, kernel: AbstractKernel) -> Array:
    return probes.error(kernel)


def _made(surface: CubeCharts, cells: np.ndarray, faces: np.ndarray, cuts: int, each: int) -> NodeInterpolation:
    """The nodes of all patches, and the polynomials at cells and faces."""
    dtype = cells.dtype
    grid = np.stack(np.meshgrid(_chebyshev(each), _chebyshev(each), indexing="ij"), axis=-1).reshape(1, -1, 2)
    charts, rows, columns = (
        part.ravel() for part in np.meshgrid(np.arange(surface.count), np.arange(cuts), np.arange(cuts), indexing="ij")
    )
    inside = _joined(grid, np.stack([rows, columns], axis=1)[:, None, :], cuts)
    nodes = surface.at(Charted(np.repeat(charts, each**2), inside.reshape(-1, 2))).astype(dtype)
    from_cells, from_faces = (_patched(surface, points, cuts, each) for points in (cells, faces))
    probes = _probes(nodes.reshape(len(charts), each**2, -1), ((faces, from_faces), (cells, from_cells)))
    return NodeInterpolation(jnp.asarray(nodes), from_cells, from_faces, probes)


def _patched(surface: CubeCharts, points: np.ndarray, cuts: int, each: int) -> Patched:
    """Points sorted by the patches of the surface that they lie in."""
    charted = surface.charted(points)
    steps = np.clip(np.floor(0.5 * (charted.coordinates + 1) * cuts).astype(int), 0, cuts - 1)
    inside = cuts * (charted.coordinates + 1) - 2 * steps - 1
    patch = (charted.chart * cuts + steps[:, 0]) * cuts + steps[:, 1]
    order, count = np.argsort(patch, kind="stable"), surface.count * cuts**2
    sizes = np.bincount(patch, minlength=count)
    place = np.arange(len(points)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members = np.full((count, sizes.max()), len(points))
    members[patch[order], place] = order
    places = np.empty(len(points), int)
    places[order] = patch[order] * sizes.max() + place
    rows = np.zeros((2, *members.shape, each))
    rows[:, patch[order], place] = [_lagrange(inside[order, axis], each) for axis in (0, 1)]
    first, second = (jnp.asarray(part, points.dtype) for part in rows)
    return Patched(jnp.asarray(members, jnp.int32), jnp.asarray(places, jnp.int32), first, second)


def _probes(nodes: np.ndarray, both: tuple[tuple[np.ndarray, Patched], ...]) -> Probes:
    """Some pairs of points of two kinds."""
    random, ends = np.random.default_rng(1), []
    for own, by in both:
        chosen = random.integers(len(own), size=_PROBES)
        patch, place = np.divmod(np.asarray(by.places)[chosen], by.members.shape[1])
        rows = [np.asarray(part)[patch, place] for part in (by.first, by.second)]
        weights = (rows[0][:, :, None] * rows[1][:, None, :]).reshape(_PROBES, -1)
        ends.append((own[chosen], nodes[patch], weights))
    return Probes(*(jnp.asarray(np.stack(parts)) for parts in zip(*ends, strict=True)))


def _joined(inside: np.ndarray, steps: np.ndarray, cuts: int) -> np.ndarray:
    """The coordinates in a chart of places in its patches."""
    return (inside + 2 * steps + 1) / cuts - 1


def _chebyshev(count: int) -> np.ndarray:
    """The zeros of T_count."""
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def _at_zeros(count: int) -> np.ndarray:
    """T_k(z_a) = cos(π k (2a + 1)/(2 count)) at the zeros of T_count, (a, k), whole turns taken off before rounding."""
    turns = np.outer(2 * np.arange(count) + 1, np.arange(count)) % (4 * count)
    return np.cos(np.pi * turns / (2 * count))


def _lagrange(places: np.ndarray, count: int) -> np.ndarray:
    """ℓ_a(u) = (1 + 2 Σ_k T_k(z_a) T_k(u))/count, k from 1 on, for the zeros z_a of T_count; (places, a)."""
    there = np.cos(np.arange(count)[None, :] * np.arccos(np.clip(places, -1, 1))[:, None])
    return there @ (_at_zeros(count) * np.r_[1.0, np.full(count - 1, 2.0)]).T / count
