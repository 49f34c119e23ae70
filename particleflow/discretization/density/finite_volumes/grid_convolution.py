"""Sums over the cells of a regular grid by Fourier transforms, as exact as sums over all pairs.

Where K(x, y) depends on x − y alone, the sum over cells is a convolution, S_a = Σ_b k_{a−b} w_b. A single transform
errs by rounding times max k · Σ w, everywhere: far from all mass, where S is small, no digit would be right.
So the grid is cut into blocks, and each pair of blocks is a convolution of its own (padded with zeros to twice its
size), of which those that lead to one block are added before the transform back. With r the largest range of log k
over one pair of blocks,

    |S̃_a − S_a| ≤ c ε Σ_B max k_{A−B} W_B ≤ c ε e^r S_a,    c a small number that grows like log M,

relative to S_a itself. Smaller blocks have a smaller r, and there are more pairs of them. Where log k has come to vary
by more (under a schedule of β), the sum is over all pairs.
"""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import is_concrete
from particleflow.discretization.density.finite_volumes.mesh import GridShape, product
from particleflow.dynamics.drifts.base import Interaction
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation, Choice, LeavesChoiceOpen, as_query_sites, value_columns
from particleflow.summation.moments import Moments, Sums, finite_maximum

_RANGE, _LARGEST_RANGE = 4.0, 6.0  # the largest r, of log k over a pair of blocks, when blocks are chosen and when used
_MOST_BLOCKS = 64  # along an axis
_PROBES = 64  # pairs that are compared to find out whether K depends on the displacement alone
_SAME_ULPS = 64.0  # the largest difference of log K between two pairs of one displacement, in eps · |log K|
_WORTH = 0.3  # the largest share of the cost of all pairs at which a convolution is used
_COEFFICIENT_COST = 0.7  # of a coefficient of a transform and block, in pairs


class GridConvolution(AbstractSummation):
    """The sums over the cells of a regular grid, seen from its cells or from its faces, by transforms of `blocks`.

    Seen from other places, and where a kernel varies too much, the exact sum over all pairs takes its place.
    """

    shape: GridShape = eqx.field(static=True)
    blocks: tuple[int, ...] = eqx.field(static=True)

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        sites = as_query_sites(queries)
        grids = _grids(self.shape, sites.points.shape[0])
        if grids is None or measure.count != product(self.shape.sides):
            return Auto().moments(kernel, measure, queries, values)
        tables, begin = [], 0
        for grid in grids:
            tables.append(_log_table(kernel, measure.sites, sites, self.shape, grid, begin))
            begin += product(grid)
        columns = value_columns(measure, values)
        ranges = [_block_range(table, self.shape, self.blocks) for table in tables]

        def convolved() -> Moments:
            found = [
                _convolved(table, self.shape, grid, self.blocks, measure.log_weights, columns)
                for table, grid in zip(tables, grids, strict=True)
            ]
            return jax.tree_util.tree_map(lambda *parts: jnp.concatenate(parts), *found)

        def summed() -> Moments:
            return Auto().moments(kernel, measure, sites, values)

        return jax.lax.cond(jnp.max(jnp.stack(ranges)) <= _LARGEST_RANGE, convolved, summed)

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself, with the blocks it was made for."""
        blocks, sides = (" × ".join(map(str, each)) for each in (self.blocks, self.shape.sides))
        cost = _COEFFICIENT_COST * _coefficients(self.shape, self.blocks)
        yield Choice(self, f"{blocks} blocks of {sides} cells by Fourier transforms, exact up to rounding", cost=cost)


def convolution_for(
    shape: GridShape | None, interaction: Interaction, cells: Float[Array, "n d"], faces: Float[Array, "m d"]
) -> GridConvolution | None:
    """What sums an interaction over these cells by transforms; None where that is impossible, or not worth it.

    That K depends on the displacement alone is found by comparing pairs of the same displacement.
    """
    kernel = interaction.kernel
    if shape is None or not is_replaceable(interaction, cells, faces):
        return None
    own, sites = Sites(cells), Sites(faces)
    if not all(_is_invariant(kernel, own, seen, shape) for seen in (own, sites)):
        return None
    (grid, *_) = _grids(shape, len(faces)) or [None]
    if grid is None:
        return None
    table = np.asarray(_first_table(kernel, own, sites, shape, grid))
    pairs = float(len(faces) * product(shape.sides))
    for blocks in _candidates(shape):
        if _block_range(table, shape, blocks, np) <= _RANGE:
            worth = _COEFFICIENT_COST * _coefficients(shape, blocks) < _WORTH * pairs
            return GridConvolution(shape, blocks) if worth else None
    return None


def is_replaceable(interaction: Interaction, cells: Float[Array, "n d"], faces: Float[Array, "m d"]) -> bool:
    """Whether another exact sum over these cells may take the place of that of an interaction, and all is known."""
    known = all(map(is_concrete, (cells, faces, *jax.tree_util.tree_leaves(interaction.kernel))))
    replaceable = isinstance(interaction.summation, LeavesChoiceOpen)
    return known and replaceable and interaction.data is None and interaction.positional is None


def _candidates(shape: GridShape) -> list[tuple[int, ...]]:
    """Numbers of blocks along each axis, the fewest first; an axis that closes is cut into equal ones."""
    found = []
    for wanted in 2 ** np.arange(int(np.log2(_MOST_BLOCKS)) + 1):
        cut = []
        for side, closed in zip(shape.sides, shape.closed, strict=True):
            fits = [n for n in range(1, min(side, _MOST_BLOCKS) + 1) if n >= wanted and (side % n == 0 or not closed)]
            cut.append(min(fits, default=0))
        if all(cut):
            found.append(tuple(cut))
    return list(dict.fromkeys(found))


def _coefficients(shape: GridShape, blocks: tuple[int, ...]) -> float:
    """Coefficients times pairs of blocks, over all grids of faces: the cost of a sum."""
    grids = len(shape.queries[-1])
    return float(grids * product(blocks) * 2 ** len(blocks) * product(shape.sides))


def _grids(shape: GridShape, count: int) -> tuple[tuple[int, ...], ...] | None:
    """The grids whose places are this number of queries; None if there are none."""
    return next((grids for grids in shape.queries if sum(map(product, grids)) == count), None)


def _ways(side: int, places: int, closed: bool) -> tuple[np.ndarray, np.ndarray]:
    """For every displacement (place − cell) along an axis, a place and a cell that have it."""
    apart = np.arange(side) if closed else np.arange(1 - side, places)
    return np.maximum(apart, 0), np.maximum(-apart, 0)


def _log_table(
    kernel: AbstractKernel, cells: Sites, places: Sites, shape: GridShape, grid: tuple[int, ...], begin: int
) -> Array:
    """log k of every displacement from a cell to a place of the grid, whose places begin at query `begin`."""
    ways = [_ways(*each) for each in zip(shape.sides, grid, shape.closed, strict=True)]
    tos, froms = (np.meshgrid(*[way[part] for way in ways], indexing="ij") for part in (0, 1))
    to = begin + np.ravel_multi_index([each.ravel() for each in tos], grid)
    since = np.ravel_multi_index([each.ravel() for each in froms], shape.sides)
    ends = Sites(places.points[to]), Sites(cells.points[since])
    return jax.vmap(kernel.log_pair)(*ends).reshape(tos[0].shape)


@eqx.filter_jit
def _first_table(kernel: AbstractKernel, cells: Sites, places: Sites, shape: GridShape, grid: tuple[int, ...]) -> Array:
    """The table of the first grid, as one compiled program."""
    return _log_table(kernel, cells, places, shape, grid, 0)


@eqx.filter_jit
def log_pairs(kernel: AbstractKernel, places: Any, cells: Any) -> Array:
    """log K of some pairs, as one compiled program."""
    return jax.vmap(kernel.log_pair)(Sites(jnp.asarray(places)), Sites(jnp.asarray(cells)))


def _block_sizes(shape: GridShape, blocks: tuple[int, ...]) -> tuple[int, ...]:
    """M, the number of cells of a block along each axis; the last block of an axis may have fewer."""
    return tuple(-(-side // cut) for side, cut in zip(shape.sides, blocks, strict=True))


def _block_ways(side: int, size: int, cut: int, closed: bool, length: int) -> np.ndarray:
    """The indices of the displacements of pairs of blocks along one axis of a table, (offsets, 2M); −1 for none.

    A place in block A and a cell in block B are M (A − B) + i apart, i from 1 − M to M − 1, in the order 0 … M − 1, (an
    unused entry), 1 − M … −1 of a circular convolution of length 2M.
    """
    offsets = np.arange(cut) if closed else np.arange(1 - cut, cut)
    inner = np.concatenate([np.arange(size), [0], np.arange(1 - size, 0)])
    apart = size * offsets[:, None] + inner[None, :]
    place = apart % side if closed else apart + side - 1
    inside = (place >= 0) & (place < length)
    inside[:, size] = False  # the unused entry
    return np.where(inside, place, -1)


def _split_axis(values: Any, axis: int, places: np.ndarray, missing: float, numpy: Any) -> Any:
    """Replace one axis by two: the entries at `places` (a, b) of that axis, `missing` where a place is −1."""
    before, after = values.shape[:axis], values.shape[axis + 1 :]
    taken = numpy.take(values, np.maximum(places, 0).ravel(), axis=axis).reshape((*before, *places.shape, *after))
    known = (places >= 0).reshape((1,) * len(before) + places.shape + (1,) * len(after))
    return numpy.where(known, taken, missing)


def _blocked(table: Any, shape: GridShape, blocks: tuple[int, ...], missing: float, numpy: Any = jnp) -> Any:
    """The table by pairs of blocks: offsets along each axis, then displacements inside of a pair along each axis.

    Computed by JAX, or with `numpy` = NumPy outside of compiled programs.
    """
    result = table
    axes = zip(shape.sides, _block_sizes(shape, blocks), blocks, shape.closed, table.shape, strict=True)
    for axis, each in enumerate(axes):
        result = _split_axis(result, 2 * axis, _block_ways(*each), missing, numpy)  # axes before it are two by now
    count = table.ndim
    return numpy.transpose(result, (*range(0, 2 * count, 2), *range(1, 2 * count, 2)))


def _block_range(table: Any, shape: GridShape, blocks: tuple[int, ...], numpy: Any = jnp) -> Any:
    """The largest range of log k over one pair of blocks, ∞ where k vanishes in a part of it."""
    axes = tuple(range(table.ndim, 2 * table.ndim))
    highest = numpy.max(_blocked(table, shape, blocks, -np.inf, numpy), axis=axes)
    lowest = numpy.min(_blocked(table, shape, blocks, np.inf, numpy), axis=axes)
    empty, part = highest == -np.inf, lowest == -np.inf
    apart = numpy.where(empty, 0.0, highest) - numpy.where(part, 0.0, lowest)
    return numpy.max(numpy.where(empty, 0.0, numpy.where(part, np.inf, apart)))


def _convolved(
    table: Array, shape: GridShape, grid: tuple[int, ...], blocks: tuple[int, ...], log_weights: Array, columns: Array
) -> Moments:
    """The moments seen from one grid of places: every pair of blocks is a circular convolution of length 2M.

    Transforms of kernel and sources are multiplied, and added over the blocks of sources, before the transform back.
    """
    top, shift = jax.lax.stop_gradient(jnp.max(table)), finite_maximum(log_weights)
    kernel = _kernel_transforms(table - top, shape, blocks)
    values = jnp.exp(log_weights - shift)[:, None] * jnp.pad(columns, ((0, 0), (0, 1)), constant_values=1.0)
    sources = _source_transforms(values, shape, blocks)
    flat = sources.reshape((*sources.shape[:2], -1))
    together = _summed_products(kernel[_offsets(shape, blocks)], flat).reshape(sources.shape)
    sums = _at_places(together, shape, blocks, grid)
    return Sums(jnp.broadcast_to(top + shift, sums.shape[:1]), sums).moments()


def _kernel_transforms(log_table: Array, shape: GridShape, blocks: tuple[int, ...]) -> Array:
    """The transforms of k for every offset of two blocks, (offsets, frequencies)."""
    axes = log_table.ndim
    symbol = _blocked(jnp.exp(log_table), shape, blocks, 0.0)
    symbol = jnp.fft.rfftn(symbol, axes=tuple(range(axes, 2 * axes))).reshape((*symbol.shape[:axes], -1))
    return symbol.reshape((-1, symbol.shape[-1]))


def _source_transforms(values: Array, shape: GridShape, blocks: tuple[int, ...]) -> Array:
    """The transforms of columns on cells, block by block, padded to 2M: (blocks, columns, frequencies of each axis)."""
    sizes = _block_sizes(shape, blocks)
    sources = _in_blocks(values.reshape((*shape.sides, -1)), blocks, sizes)
    return jnp.fft.rfftn(sources, tuple(2 * size for size in sizes), axes=tuple(range(2, 2 + len(sizes))))


def _at_places(transforms: Array, shape: GridShape, blocks: tuple[int, ...], grid: tuple[int, ...]) -> Array:
    """Transform back, and keep the first M entries along each axis of every block: one row for each place of a grid."""
    sizes = _block_sizes(shape, blocks)
    found = jnp.fft.irfftn(transforms, tuple(2 * size for size in sizes), axes=tuple(range(2, 2 + len(sizes))))
    return _from_blocks(found[(slice(None), slice(None), *(slice(size) for size in sizes))], blocks, grid)


def _summed_products(pairs: Array, spectrum: Array) -> Array:
    """Σ_b P_abf s_bcf, complex, by real sums: XLA takes two thirds of the time for them."""

    def summed(one: Array, other: Array) -> Array:
        return jnp.sum(one[:, :, None, :] * other[None], axis=1)

    real = summed(pairs.real, spectrum.real) - summed(pairs.imag, spectrum.imag)
    return jax.lax.complex(real, summed(pairs.real, spectrum.imag) + summed(pairs.imag, spectrum.real))


def _offsets(shape: GridShape, blocks: tuple[int, ...]) -> np.ndarray:
    """The number of the offset from every block to every block, (blocks, blocks)."""
    places = np.stack([each.ravel() for each in np.meshgrid(*map(np.arange, blocks), indexing="ij")])
    apart = places[:, :, None] - places[:, None, :]
    cuts = np.array(blocks)[:, None, None]
    closed = np.array(shape.closed)[:, None, None]
    apart = np.where(closed, apart % cuts, apart + cuts - 1)
    counts = [cut if ring else 2 * cut - 1 for cut, ring in zip(blocks, shape.closed, strict=True)]
    return np.asarray(np.ravel_multi_index(tuple(apart), counts))


def _in_blocks(values: Array, blocks: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """Rows of columns on a grid as (blocks, columns, places inside of each), filled up with zeros."""
    axes = len(blocks)
    missing = [(0, cut * size - side) for cut, size, side in zip(blocks, sizes, values.shape[:axes], strict=True)]
    filled = jnp.pad(values, (*missing, (0, 0)))
    cut = filled.reshape((*(n for pair in zip(blocks, sizes, strict=True) for n in pair), -1))
    order = (*range(0, 2 * axes, 2), 2 * axes, *range(1, 2 * axes, 2))
    return jnp.transpose(cut, order).reshape((product(blocks), -1, *sizes))


def _from_blocks(values: Array, blocks: tuple[int, ...], grid: tuple[int, ...]) -> Array:
    """The places of a grid, a row each, out of (blocks, columns, places inside of each)."""
    axes, columns, sizes = len(blocks), values.shape[1], values.shape[2:]
    cut = values.reshape((*blocks, columns, *sizes))
    order = (*(n for axis in range(axes) for n in (axis, axes + 1 + axis)), axes)
    whole = jnp.transpose(cut, order).reshape((*(b * s for b, s in zip(blocks, sizes, strict=True)), columns))
    return whole[tuple(slice(side) for side in grid)].reshape((-1, columns))


def _is_invariant(kernel: AbstractKernel, cells: Sites, places: Sites, shape: GridShape) -> bool:
    """Whether pairs of the same displacement have the same K, as far as some pairs show."""
    random, grids = np.random.default_rng(0), _grids(shape, places.points.shape[0])
    if grids is None:
        return False
    begin = 0
    for grid in grids:
        pairs = [_same_way(random, *each) for each in zip(shape.sides, grid, shape.closed, strict=True)]
        to, since, to_again, since_again = (
            np.ravel_multi_index([each[part] for each in pairs], shape.sides if part % 2 else grid) for part in range(4)
        )
        logs = [
            np.asarray(log_pairs(kernel, np.asarray(places.points)[begin + a], np.asarray(cells.points)[b]))
            for a, b in ((to, since), (to_again, since_again))
        ]
        if not np.isfinite(logs).all():  # where a kernel vanishes, log k has no finite range
            return False
        limit = _SAME_ULPS * np.finfo(logs[0].dtype).eps * (1 + np.max(np.abs(logs[0])))
        if not (np.abs(logs[0] - logs[1]) <= limit).all():
            return False
        begin += product(grid)
    return True


def _same_way(random: np.random.Generator, side: int, places: int, closed: bool) -> tuple[np.ndarray, ...]:
    """Places and cells along an axis, and others with the same displacements."""
    cell, shift = random.integers(side, size=_PROBES), random.integers(side, size=_PROBES)
    if closed:
        place = random.integers(places, size=_PROBES)
        return place, cell, (place + shift) % places, (cell + shift) % side
    place = random.integers(places, size=_PROBES)
    least, most = -np.minimum(place, cell), np.minimum(places - 1 - place, side - 1 - cell)
    shift = random.integers(least, most + 1)
    return place, cell, place + shift, cell + shift
