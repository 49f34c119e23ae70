"""The near part of a sum by XLA: what native code does with boxes, for its tangents and for machines without it.

    ⟨q, s⟩ = |x|² + |y|² − |x − y|²,    x = q/√(2c), y = s √(c/2), for any c > 0

So every kernel of `KernelParts` is one of distances, of sources whose weights are tilted by |y|², and boxes
around blocks bound what one may add to the mass of another. A block of queries sums blocks of sources from the largest
bound down, and stops where the bounds of all that are left are together less than ½ tolerance times its least mass: the
log-mass then lacks less than ½ tolerance, the mean is off by less than tolerance · max |z|, whatever the points are.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from particleflow.measure import Sites
from particleflow.summation.base import logits_of
from particleflow.summation.moments import Moments, Sums
from particleflow.summation.native.xla_reference import FeatureKernel, feature_kernel, log_curve, reference_moments

COMPACT = ("ball", "parabola", "triangle")  # curves that reach zero: only what is zero is left out of their sums
_BLOCK_FACTOR = 16  # size of XLA's blocks, in those of native code: each operation costs more
SCORE_ULPS = 32  # what rounding may take from a bound of a score, in eps · (largest distance)²
DISTANCE_ULPS = 8  # and from a distance of boxes, in eps · (largest distance)


class ScoreCoordinates(NamedTuple):
    """Coordinates whose distances bound all scores: ℓ_ij ≤ a_i + b_j − |x_i − y_j|² (inner) + curve(|x_i − y_j|²)."""

    queries: Float[Array, "m f"]
    keys: Float[Array, "n f"]
    query_offsets: Float[Array, " m"]
    key_offsets: Float[Array, " n"]
    blur: Float[Array, ""]

    @staticmethod
    def of(form: Any, arrays: Any) -> "ScoreCoordinates":
        """The coordinates of `Arrays` under a `Form`, without derivatives: they only tell what is near."""
        arrays = jax.lax.stop_gradient(arrays)
        inner, eps = form.inner, jnp.finfo(arrays.keys.dtype).eps
        ours, theirs = arrays.queries[:, :inner], arrays.keys[:, :inner]
        lengths = [_longest(each) for each in (ours, theirs)]
        usual = (lengths[0] > 0) & (lengths[1] > 0)
        ratio = jnp.where(usual, lengths[0] / jnp.where(usual, lengths[1], 1.0), 1.0)
        root, centre = jnp.sqrt(ratio / 2), jnp.mean(theirs, axis=0)
        scale = jnp.ones_like(ratio) if form.curve == "ball" else jnp.abs(arrays.numbers[4])
        near, far = (ours / ratio - centre[None, :]) * root, (theirs - centre[None, :]) * root
        places = [scale * each[:, inner:] for each in (arrays.queries, arrays.keys)]
        reach = root * (lengths[0] / ratio + lengths[1]) + _longest(places[0]) + _longest(places[1])
        tilt = jnp.sum(jnp.square(far), axis=1) + ratio * (theirs - centre[None, :]) @ centre
        slack = SCORE_ULPS * eps * jnp.square(reach) + _highest(arrays)
        return ScoreCoordinates(
            jnp.concatenate([near, places[0]], axis=1),
            jnp.concatenate([far, places[1]], axis=1),
            jnp.sum(jnp.square(near), axis=1) + ours @ centre,
            arrays.offsets + tilt + slack,
            DISTANCE_ULPS * eps * reach,
        )


def _longest(rows: Array) -> Array:
    """The largest length of a row, 0 of none."""
    return jnp.sqrt(jnp.max(jnp.sum(jnp.square(rows), axis=1), initial=0.0))


def _highest(arrays: Any) -> Array | float:
    """By how much a band of negative slope may raise a score."""
    times, positions = arrays.query_positions, arrays.key_positions
    if positions.shape[0] == 0 or times.shape[0] == 0:
        return 0.0
    _, least, most, slope, _ = arrays.numbers
    lag = jnp.maximum(jnp.max(times) - jnp.min(positions), jnp.max(positions) - jnp.min(times))
    return jnp.maximum(-slope, 0.0) * jnp.minimum(lag, jnp.maximum(jnp.abs(least), jnp.abs(most)))


def log_bound(form: Any, numbers: Array, inner_squares: Array, squares: Array) -> Array:
    """The logarithm of the kernel at squared distances of coordinates; NaN stays."""
    power = numbers[0]
    unknown = jnp.isnan(inner_squares + squares)
    curved = 0.0 if form.curve is None else log_curve(form.curve, squares, power)
    return jnp.where(unknown, jnp.nan, curved - inner_squares)


def moments_by_xla(form: Any, arrays: Any) -> Moments:
    """The moments of `Arrays` under a `Form`: all pairs, or with a tolerance the near ones."""
    if form.tolerance is None or 0 in arrays.queries.shape:
        return reference_moments(form, arrays)
    return _near_moments(form, arrays)


def _near_moments(form: Any, arrays: Any) -> Moments:
    """The near part of a sum: blocks of neighbouring queries, each over blocks of neighbouring sources."""
    size, count = _BLOCK_FACTOR * form.block, arrays.queries.shape[0]
    coordinates = ScoreCoordinates.of(form, arrays)
    order = neighbours(coordinates.queries, size)
    kernel, banded = feature_kernel(form, arrays)
    sources = _source_boxes(arrays, coordinates, size, banded)

    def one(block: Any) -> Moments:
        sites, where, own = block
        bounds = sources.weights + _between(form, arrays.numbers, coordinates.blur, _boxes(where), sources.boxes)
        return _summed(kernel, sites, own, bounds, sources.blocks, form).moments()

    rows = order % count
    sites = Sites(arrays.queries[rows], arrays.query_positions[rows] if banded else None)
    blocks = _cut((sites, coordinates.queries[rows], coordinates.query_offsets[rows]), size)
    # Derivatives sum a block again instead of storing its pairs.
    by_block = jax.lax.map(jax.checkpoint(one), blocks)
    back = jnp.argsort(order)[:count]
    return jax.tree_util.tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[back], by_block)


class _SourceBoxes(NamedTuple):
    """Blocks of neighbouring sources (sites, offsets, values), the boxes around them, and the log-weight of each."""

    blocks: tuple[Sites, Array, Array]
    boxes: tuple[Array, Array]
    weights: Array


def _source_boxes(arrays: Any, coordinates: ScoreCoordinates, size: int, banded: bool) -> _SourceBoxes:
    """Sources in the order of their neighbours, cut into blocks; fillers weigh nothing."""
    order, count = neighbours(coordinates.keys, size), arrays.keys.shape[0]
    weightless = order >= count
    rows = order % count
    offsets = jnp.where(weightless, -jnp.inf, arrays.offsets[rows])
    tilted = jnp.where(weightless, -jnp.inf, coordinates.key_offsets[rows])
    positions = arrays.key_positions[rows] if banded else None
    blocks = _cut((Sites(arrays.keys[rows], positions), offsets, arrays.values[rows]), size)
    boxes = _boxes(coordinates.keys[rows].reshape(-1, size, coordinates.keys.shape[1]))
    return _SourceBoxes(blocks, boxes, jax.nn.logsumexp(tilted.reshape(-1, size), axis=1))


def _cut(tree: Any, size: int) -> Any:
    """Every leaf cut into blocks of `size` rows, of which it has a multiple."""
    return jax.tree_util.tree_map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), tree)


def neighbours(points: Float[Array, "n f"], size: int) -> Int[Array, " padded"]:
    """An order of points in which every block of `size` consecutive points holds neighbours.

    Halves along the coordinate in which they reach furthest, halves of these, and so on. Fillers, numbered from n on,
    are copies of the points from the first on, and make the number of blocks a power of two.
    """
    count = points.shape[0]
    levels = (-(-count // size) - 1).bit_length()
    index = jnp.arange(size * 2**levels)

    def part(level: Array, order: Array) -> Array:
        """One sort for a level; as the body of a loop it is compiled once, which takes a fifth of a second."""
        piece = index // (index.shape[0] >> level)
        found = points[order % count]
        most, least = (jax.ops.segment_max(sign * found, piece, 2**levels) for sign in (1, -1))
        axis = jnp.argmax(most + least, axis=1)[piece]
        along = jnp.take_along_axis(found, axis[:, None], axis=1)[:, 0]
        return jax.lax.sort((piece, along, order), num_keys=2)[2]

    return jax.lax.fori_loop(0, levels, part, index)


def _boxes(points: Float[Array, "*b n f"]) -> tuple[Array, Array]:
    """The least and the largest coordinates of each block of points."""
    return jnp.min(points, axis=-2), jnp.max(points, axis=-2)


def _between(form: Any, numbers: Array, blur: Array, one: Any, many: Any) -> Float[Array, " b"]:
    """The logarithm of the kernel at the distance of a box from many."""
    gaps = jnp.maximum(many[0] - one[1][None, :], one[0][None, :] - many[1])
    squares = jnp.square(jnp.maximum(gaps - blur, 0.0))
    inner, others = jnp.sum(squares[:, : form.inner], axis=1), jnp.sum(squares[:, form.inner :], axis=1)
    return log_bound(form, numbers, inner, others)


def _summed(kernel: FeatureKernel, queries: Sites, own: Array, bounds: Array, keys: Any, form: Any) -> Sums:
    """The sums of one block of queries over blocks of sources with these bounds, from the highest down."""
    limits = jnp.finfo(bounds.dtype)
    allowed = 0.0 if form.curve in COMPACT else form.tolerance / 2
    order = jnp.argsort(-bounds)
    sorted_bounds = bounds[order]
    top = jnp.where(jnp.isneginf(sorted_bounds[0]), 0.0, sorted_bounds[0])
    left = jnp.cumsum(jnp.exp(sorted_bounds - top)[::-1])[::-1]

    def fold(so_far: Sums, block: tuple[Array, Array, Array]) -> tuple[Sums, None]:
        index, bound, rest = block
        mass = jax.lax.stop_gradient(so_far.sums[:, -1])
        least = jnp.min(jnp.where(mass > 0, jnp.log(jnp.where(mass > 0, mass, 1.0)) + so_far.shift - own, -jnp.inf))
        share = jnp.exp(least - top)
        enough = ((rest <= allowed * share) & (share > limits.tiny / limits.eps)) | jnp.isneginf(bound)

        def add() -> Sums:
            sites, log_weights, values = jax.tree_util.tree_map(lambda leaf: leaf[index], keys)
            return so_far.merge(Sums.from_logits(logits_of(kernel, queries, sites, log_weights), values))

        return jax.lax.cond(enough, lambda: so_far, add), None

    nothing = Sums.nothing(queries.points.shape[0], keys[2].shape[-1], bounds.dtype)
    return jax.lax.scan(jax.checkpoint(fold), nothing, (order, sorted_bounds, left))[0]
