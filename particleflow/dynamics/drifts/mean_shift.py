"""Drifts that climb a density: MeanShift and gradient ascent on the log-normalizer.

For a Gaussian kernel of width σ, with p = ∫ K(·, y) dν(y) the (unnormalised) density estimate of ν,

    ∇ log p(x) = (m(x) − x)/σ²,

so ẋ = m(x) − x ascends σ² log p (Fukunaga and Hostetler 1975; Cheng 1995). With ν the particles themselves the density
climbs, too: blurring MeanShift, whose clusters shrink cubically where plain MeanShift shrinks linearly
(Carreira-Perpiñán 2006).
"""

from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import NONNEGATIVE, as_positive, is_concrete
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction, check_interacting, with_summation
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation


class MeanShift(AbstractDrift):
    """ẋ = m(x) − x, towards fixed `data`, or towards the particles themselves (blurring) when there are none.

    An explicit step of size 1 is the hard map x ← m(x), one of size α the soft map x ← x + α(m(x) − x). A particle
    that sees nothing stays where it is.
    """

    kernel: AbstractKernel
    data: Measure | None
    summation: AbstractSummation

    def __init__(self, kernel: AbstractKernel, data: Measure | None = None, summation: AbstractSummation | None = None):
        self.kernel = kernel
        self.data = data
        self.summation = summation or Auto()

    def __check_init__(self):
        check_interacting(self.kernel, self.summation, data=self.data)

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The one kernel, on the data or on the particles."""
        return (Interaction(self.kernel, "row", None, self.summation, self.data),)

    def resummed(self, time: Any, choose: Chooser) -> "MeanShift":
        """The same drift with the summation that `choose` names for its kernel."""
        return with_summation(self, time, choose)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """m(x) − x."""
        moments = self.interactions(time)[0].moments(queries, measure)
        return jnp.where(jnp.isneginf(moments.log_mass)[:, None], 0.0, moments.mean - queries.points)

    def affine(self, time: Any, law: Normal) -> Affine:
        """m(x) − x: for a Gaussian kernel log(σ/σ₀) + (β/2)(σ² − σ₀²) = −t on the line."""
        return self.interactions(time)[0].affine(law).plus(law.identity().times(-1.0))


class LogNormalizerAscent(AbstractDrift):
    """ẋ = rate · ∇G(x) with G(x) = log ∫ K(x, y) dμ(y): gradient ascent at every query at once.

    `rate` is 1/β if left out: β itself for attention (then ẋ = QᵀK m), 1/width² for a Gaussian (then ẋ = m − x).
    """

    kernel: AbstractKernel
    rate: Annotated[Float[Array, ""] | None, NONNEGATIVE]
    data: Measure | None
    summation: AbstractSummation

    def __init__(
        self,
        kernel: AbstractKernel,
        rate: Any = None,
        data: Measure | None = None,
        summation: AbstractSummation | None = None,
    ):
        self.kernel = kernel
        self.rate = None if rate is None else as_positive(rate, "rate")
        self.data = data
        self.summation = summation or Auto()

    def __check_init__(self):
        check_interacting(self.kernel, self.summation, data=self.data)
        if self.rate is not None:
            return
        inverse = self.kernel.inverse_temperature()
        if inverse is None:
            raise ArgumentError(
                f"Argument `rate` must be given, because the kernel {type(self.kernel).__name__} has no "
                "inverse temperature (`beta` or `width`) to take it from."
            )
        if is_concrete(inverse) and np.any(np.asarray(inverse) == 0):
            raise ArgumentError(
                f"Argument `rate` must be given, because the inverse temperature of the kernel {self.kernel!r} is 0, "
                "and its inverse infinite."
            )

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The one kernel, on the data or on the particles."""
        return (Interaction(self.kernel, "row", None, self.summation, self.data),)

    def resummed(self, time: Any, choose: Chooser) -> "LogNormalizerAscent":
        """The same drift with the summation that `choose` names for its kernel."""
        return with_summation(self, time, choose)

    def _step(self) -> Array:
        if self.rate is not None:
            return self.rate
        inverse = self.kernel.inverse_temperature()
        assert inverse is not None
        return 1 / inverse

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """rate · ∇G(x)."""
        fixed = self.data or measure
        kernel = self.kernel.bind(fixed)

        def log_masses(points: Array) -> Array:
            return self.summation.moments(kernel, fixed, queries._replace(points=points)).log_mass

        # G at one query depends on that query alone, so one backward pass gives all gradients.
        masses, pull_back = jax.vjp(log_masses, queries.points)
        return self._step() * pull_back(jnp.ones_like(masses))[0]

    def affine(self, time: Any, law: Normal) -> Affine:
        """rate · ∇G(x), G a quadratic form."""
        local = self.interactions(time)[0].local_law(law)
        return Affine(local.slope, local.bend).times(self._step())
