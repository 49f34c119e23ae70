"""A kernel taken apart: its factors sorted by what they are, as fast exact sums take them.

Bilinear factors become features of one inner product, radial ones of a known curve become coordinates of one distance,
and bands of positions let whole blocks be skipped. A Gaussian is summed by distances, not by its bilinear form, which
loses digits far from the origin.
"""

from typing import NamedTuple

from jaxtyping import Array, Float

from particleflow.kernels.base import AbstractKernel
from particleflow.kernels.forms import Band, Bilinear, Radial
from particleflow.measure import Sites


class KernelParts(NamedTuple):
    """K = e^{⟨θ,s⟩ + a + b} · k(|u − v|²) · K₂(t, s): bilinear factors, radial ones that share a curve, and bands."""

    bilinear: tuple[Bilinear, ...]
    radial: tuple[Radial, ...]
    curve: str | None
    band: Band | None

    @staticmethod
    def of(kernel: AbstractKernel, dimension: int) -> "KernelParts | None":
        """The parts of a kernel on points of some dimension; None where a factor is none of the three.

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

    def query_offsets(self, queries: Sites) -> Float[Array, " m"] | float:
        """Σ a(x) of the bilinear factors: it changes masses, and never means."""
        return sum(form.query_offset(queries) for form in self.bilinear)
