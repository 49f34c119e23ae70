"""A kernel as native code takes it: its factors sorted by what they are.

Bilinear factors become features of one inner product, radial ones of a known curve become coordinates of one distance,
and bands of positions let whole blocks be skipped. A Gaussian is summed by distances, not by its bilinear form, which
loses digits far from the origin.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.kernels.base import AbstractKernel, check_same_dimension, positions_of
from particleflow.kernels.forms import Band, Bilinear, Radial, Shape
from particleflow.measure import Measure, Sites
from particleflow.summation.native.operator import Arrays, Form


class KernelParts(NamedTuple):
    """K = e^{⟨θ,s⟩ + a + b} · k(|u − v|²) · K₂(t, s): bilinear factors, radial ones that share a curve, and bands."""

    bilinear: tuple[Bilinear, ...]
    radial: tuple[Radial, ...]
    curve: str | None
    band: Band | None

    @staticmethod
    def of(kernel: AbstractKernel, dimension: int) -> "KernelParts | None":
        """The parts of a kernel on points of some dimension, None where native code does not know a factor.

        Several Gaussians are one, of the coordinates of all; two other curves of distances do not make one.
        """
        bilinear, radial, curves, bands = [], [], [], []
        for factor in kernel.factors():
            band, distance, product = factor.band(), factor.radial(), factor.bilinear()
            shape = distance and distance.shape(dimension)
            if band is not None:
                bands.append(band)
            elif distance is not None and shape is not None:
                radial.append(distance)
                curves.append(shape.curve)
            elif product is not None:
                bilinear.append(product)
            else:
                return None
        if len(curves) > 1 and set(curves) != {"gaussian"}:
            return None
        curve = curves[0] if curves else None
        return KernelParts(tuple(bilinear), tuple(radial), curve, Band.product(bands) if bands else None)

    def arrays(self, measure: Measure, queries: Sites, values: Array) -> tuple[Form, Arrays]:
        """What is summed, in the precision of the points."""
        dtype, keys = measure.points.dtype, measure.sites
        products = [(form.query_features(queries), form.key_features(keys)) for form in self.bilinear]
        inner = sum(pair[1].shape[1] for pair in products)
        offsets = measure.log_weights + sum(form.key_offset(keys) for form in self.bilinear)
        places = [(form.query_map(queries), form.key_map(keys)) for form in self.radial]
        shapes = [_shape(form, pair[1].shape[1]) for form, pair in zip(self.radial, places, strict=True)]
        if len(shapes) == 1:  # native code scales differences, which loses nothing
            power, scale = shapes[0].power, shapes[0].scale
        else:  # several Gaussians have one scale only if their coordinates do
            power, scale = 0.0, 1.0
            places = [tuple(shape.scale * each for each in pair) for shape, pair in zip(shapes, places, strict=True)]
        offsets = offsets + sum(shape.log_factor for shape in shapes)
        band = self.band or Band()
        none = jnp.zeros(0, dtype)
        times = (none, none) if self.band is None else (positions_of(queries, "query"), positions_of(keys, "measure"))
        numbers = jnp.stack([jnp.asarray(each, dtype) for each in (power, band.least, band.most, band.slope, scale)])
        pairs = products + places
        for pair in pairs:
            check_same_dimension(*pair)
        counts = queries.points.shape[0], measure.count
        ours, theirs = (_joined([pair[side] for pair in pairs], counts[side], dtype) for side in (0, 1))
        offsets = jnp.asarray(offsets + band.log_factor, dtype)
        return Form(inner, self.curve), Arrays(ours, theirs, values, offsets, times[0], times[1], numbers)

    def query_offsets(self, queries: Sites) -> Float[Array, " m"] | float:
        """Σ a(x): what changes masses, and never means."""
        return sum(form.query_offset(queries) for form in self.bilinear)


def _joined(columns: list[Array], count: int, dtype: Any) -> Float[Array, "n f"]:
    """Columns side by side; a kernel that looks at no point has one column of zeros."""
    seen = [each for each in columns if each.shape[1] > 0]
    return jnp.concatenate(seen, axis=1) if seen else jnp.zeros((count, 1), dtype)


def _shape(form: Radial, dimension: int) -> Shape:
    """The curve of a form that has one, see `KernelParts.of`."""
    shape = form.shape(dimension)
    assert shape is not None
    return shape
