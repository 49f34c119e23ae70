"""The arrays that native code sums, made from the parts of a kernel.

    ℓ_ij = ⟨q_i, s_j⟩ + k(γ |u_i − v_j|) + band(t_i − p_j) + b_j

Features q, s of all bilinear factors stand side by side, then the coordinates u, v of all radial ones; what depends on
the source alone (log-weights, offsets, constant factors) is added up in b.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.kernels.base import check_same_dimension, positions_of
from particleflow.kernels.forms import Band, Radial, Shape
from particleflow.measure import Sites
from particleflow.summation.native.primitive import Arrays, Form
from particleflow.summation.prepared import PreparedSum

Pair = tuple[Array, Array]  # of queries and of sources


def operands_of(prepared: PreparedSum, values: Array) -> tuple[Form, Arrays]:
    """The form and the arrays of a sum whose parts are known, in the precision of the points."""
    parts, measure, queries = prepared.parts, prepared.measure, prepared.queries
    assert parts is not None
    dtype, sources = measure.points.dtype, measure.sites
    features = [(form.query_features(queries), form.key_features(sources)) for form in parts.bilinear]
    offsets = measure.log_weights + sum(form.key_offset(sources) for form in parts.bilinear)
    distances = _distances(parts.radial, queries, sources)
    band = parts.band or Band()
    offsets = jnp.asarray(offsets + distances.log_factor + band.log_factor, dtype)
    numbers = (distances.power, band.least, band.most, band.slope, distances.scale)
    no_times = jnp.zeros(0, dtype)
    times = (no_times, no_times)
    if parts.band is not None:
        times = (positions_of(queries, "query"), positions_of(sources, "measure"))
    pairs = [*features, *distances.coordinates]
    for pair in pairs:
        check_same_dimension(*pair)
    of_queries = _joined([pair[0] for pair in pairs], queries.points.shape[0], dtype)
    of_sources = _joined([pair[1] for pair in pairs], measure.count, dtype)
    numbers = jnp.stack([jnp.asarray(each, dtype) for each in numbers])
    inner = sum(pair[1].shape[1] for pair in features)
    form = Form(inner, parts.curve, library=prepared.library.key)
    return form, Arrays(of_queries, of_sources, values, offsets, *times, numbers)


class _Distances(NamedTuple):
    """The coordinates of radial factors, and the one curve of γ |u − v| that they share: its power, γ, and factor."""

    coordinates: list[Pair]
    power: Array | float
    scale: Array | float
    log_factor: Array | float


def _distances(forms: tuple[Radial, ...], queries: Sites, sources: Sites) -> _Distances:
    """One curve is scaled by native code, in differences, which loses nothing; several Gaussians have one scale only
    if their coordinates are scaled."""
    coordinates = [(form.query_map(queries), form.key_map(sources)) for form in forms]
    shapes = [_shape(form, pair[1].shape[1]) for form, pair in zip(forms, coordinates, strict=True)]
    log_factor = sum(shape.log_factor for shape in shapes)
    if len(shapes) == 1:
        return _Distances(coordinates, shapes[0].power, shapes[0].scale, log_factor)
    scaled = [(shape.scale * u, shape.scale * v) for shape, (u, v) in zip(shapes, coordinates, strict=True)]
    return _Distances(scaled, 0.0, 1.0, log_factor)


def _shape(form: Radial, dimension: int) -> Shape:
    """The curve of a form that has one, as all radial parts of `KernelParts` have."""
    shape = form.shape(dimension)
    assert shape is not None
    return shape


def _joined(columns: list[Array], count: int, dtype: Any) -> Float[Array, "n f"]:
    """Columns side by side; a kernel that depends on no coordinate has one column of zeros."""
    seen = [each for each in columns if each.shape[1] > 0]
    return jnp.concatenate(seen, axis=1) if seen else jnp.zeros((count, 1), dtype)
