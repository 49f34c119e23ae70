"""Drifts of signed kernels: differences of local means, which sharpen what one local mean smooths.

A kernel with a sign has no logarithm, but as an operator on what the points carry it is a difference of two that have:

    Laplacian      v = z − K̃ z             unsharp masking, the heat equation run backwards
    difference     v = K̃₁ z − K̃₂ z         the difference of Gaussians (Marr and Hildreth 1980), a band of scales
    differential   v = −∂/∂h K̃_h z         its limit for neighbouring scales

where z are the points themselves unless the measure carries others. Under a kernel of positions the points are the
values of a signal, and positions are where they are: a pattern of wavelength λ then grows at the rate 1 − K̂(1/λ) of the
Laplacian. Nothing bounds that growth, so that such a run is stopped by an event before it has lost its meaning.
"""

from dataclasses import fields
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._arrays import as_linear_map
from particleflow.drifts.base import AbstractDrift, Interaction, check_interacting
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation

Sign = Literal["row", "none"]


class KernelDifference(AbstractDrift):
    """v(x) = m₁(x) − m₂(x), the difference of two local means; x − m₂(x), the Laplacian, without a first kernel.

    With `normalization` "none" it is e^{G₁} m₁ − e^{G₂} m₂, and e^{G₂}(x − m₂) for the Laplacian. The Laplacian by rows
    is MeanShift backwards, but for points that carry other values. A point that sees nothing stays.

    Parameters: the `second` kernel, which is subtracted; the `first`, left out for the identity; `normalization`;
    `summation`.
    """

    second: AbstractKernel
    first: AbstractKernel | None
    normalization: Sign = eqx.field(static=True)
    summation: AbstractSummation

    def __init__(
        self,
        second: AbstractKernel,
        first: AbstractKernel | None = None,
        normalization: Sign = "row",
        summation: AbstractSummation | None = None,
    ):
        self.second = second
        self.first = first
        self.normalization = normalization
        self.summation = summation or Auto()

    def __check_init__(self):
        check_interacting(self.second, self.summation)
        if self.first is not None:
            check_interacting(self.first, self.summation)
        if self.normalization not in ("row", "none"):
            raise ArgumentError(f"Argument `normalization` must be 'row' or 'none', but is {self.normalization!r}.")

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """Both kernels, the second with the output −1."""
        one = as_linear_map(1.0, "value")
        signed = ((self.first, one), (self.second, -one))
        return tuple(
            Interaction(kernel, self.normalization, None, self.summation, None, value=one, output=sign)
            for kernel, sign in signed
            if kernel is not None
        )

    def interacts_only(self, time: Any) -> bool:
        """Where there are two kernels; the Laplacian has its own point, too."""
        return self.first is not None

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """m₁(x) − m₂(x)."""
        *first, taken = (each.moments(queries, measure) for each in self.interactions(time))
        if not first:
            pull = queries.points - taken.mean
            pull = jnp.where(jnp.isneginf(taken.log_mass)[:, None], 0.0, pull)
            return pull if self.normalization == "row" else jnp.exp(taken.log_mass)[:, None] * pull
        given = first[0]
        if self.normalization == "row":
            return given.mean - taken.mean
        return jnp.exp(given.log_mass)[:, None] * given.mean - jnp.exp(taken.log_mass)[:, None] * taken.mean


class KernelDerivative(AbstractDrift):
    """v(x) = −∂m_h(x)/∂h, h a number of the kernel: how the local mean changes as the kernel becomes narrower.

    For a Gaussian of width h it is −Cov(r², z)/h³ under the weights of x: towards what is near, away from what is far.
    Derivatives are exact, not quotients. A kernel with a radius alone (ball) has the derivative 0 almost everywhere.

    Parameters: `kernel`; `parameter`, the name of h in it; `summation`.
    """

    kernel: AbstractKernel
    parameter: str = eqx.field(static=True)
    summation: AbstractSummation

    def __init__(self, kernel: AbstractKernel, parameter: str = "width", summation: AbstractSummation | None = None):
        self.kernel = kernel
        self.parameter = parameter
        self.summation = summation or Auto()

    def __check_init__(self):
        check_interacting(self.kernel, self.summation)
        known = [field.name for field in fields(self.kernel) if self._is_number(field.name)]
        if self.parameter not in known:
            names = ", ".join(map(repr, known)) or "none"
            raise ArgumentError(
                f"Argument `parameter` must be a number of {type(self.kernel).__name__} ({names}), but is "
                f"{self.parameter!r}."
            )

    def _is_number(self, name: str) -> bool:
        return eqx.is_array(getattr(self.kernel, name)) and getattr(self.kernel, name).ndim == 0

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The kernel itself, whose velocity this is not."""
        return (Interaction(self.kernel, "row", None, self.summation, None),)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """−∂m_h(x)/∂h by forward differentiation."""

        def means(number: Array) -> Array:
            kernel = eqx.tree_at(lambda each: getattr(each, self.parameter), self.kernel, number)
            return self.summation.moments(kernel.among(measure), measure, queries).mean

        here = jnp.asarray(getattr(self.kernel, self.parameter), measure.points.dtype)
        return -jax.jvp(means, (here,), (jnp.ones_like(here),))[1]
