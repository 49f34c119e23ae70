"""Drifts of signed kernels: differences of local means, which sharpen what one local mean smooths.

A kernel with a sign has no logarithm, but as an operator on what the points carry it is a difference of two that have:

    Laplacian      v = z − K̃ z             unsharp masking, the heat equation run backwards
    difference     v = K̃₁ z − K̃₂ z         the difference of Gaussians (Marr and Hildreth 1980), a band of scales
    differential   v = −∂/∂h K̃_h z         its limit for neighbouring scales

where z are the points themselves unless the measure carries others. Under a kernel of positions the points are the
values of a signal at these positions: a pattern of wavelength λ then grows at the rate 1 − K̂(1/λ) of the Laplacian.
Nothing bounds that growth, so stop such a run by an event.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_linear_map
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction, added, check_interacting
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation, allowed_error

Sign = Literal["row", "none"]


class KernelDifference(AbstractDrift):
    """v(x) = m₁(x) − m₂(x), the difference of two local means; x − m₂(x), the Laplacian, without a first kernel.

    With `normalization` "none" it is e^{G₁} m₁ − e^{G₂} m₂, and e^{G₂}(x − m₂) for the Laplacian. The Laplacian by rows
    is MeanShift backwards, but for points that carry other values. A point that sees nothing stays.

    Parameters: the `second` kernel, which is subtracted; the `first`, left out for the identity; `normalization`;
    `summation`; `first_summation`, what sums the first kernel, the same if left out.
    """

    second: AbstractKernel
    first: AbstractKernel | None
    normalization: Sign = eqx.field(static=True)
    summation: AbstractSummation
    first_summation: AbstractSummation | None

    def __init__(
        self,
        second: AbstractKernel,
        first: AbstractKernel | None = None,
        normalization: Sign = "row",
        summation: AbstractSummation | None = None,
        first_summation: AbstractSummation | None = None,
    ):
        self.second = second
        self.first = first
        self.normalization = normalization
        self.summation = summation or Auto()
        self.first_summation = first_summation

    def __check_init__(self):
        check_interacting(self.second, self.summation)
        if self.first is not None:
            check_interacting(self.first, self.first_summation or self.summation)
        elif self.first_summation is not None:
            raise ArgumentError("Argument `first_summation` sums the `first` kernel, but there is none.")
        if self.normalization not in ("row", "none"):
            raise ArgumentError(f"Argument `normalization` must be 'row' or 'none', but is {self.normalization!r}.")

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """Both kernels, the second with the output −1."""
        one = as_linear_map(1.0, "value")
        second = Interaction(self.second, self.normalization, None, self.summation, None, value=one, output=-one)
        if self.first is None:
            return (second,)
        how = self.first_summation or self.summation
        return (second._replace(kernel=self.first, summation=how, output=one), second)

    def resummed(self, time: Any, choose: Chooser) -> "KernelDifference":
        """The same drift with the summation that `choose` names for each kernel."""
        *first, second = (choose(each) for each in self.interactions(time))
        return KernelDifference(self.second, self.first, self.normalization, second, *first)

    def interacts_only(self, time: Any) -> bool:
        """Whether there are two kernels: the velocity of the Laplacian depends on x itself, too."""
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

    def affine(self, time: Any, law: Normal) -> Affine:
        """m₁ − m₂ of quadratic kernels; for Gaussians of widths h₁, h₂ about a: S((S + h₁²)⁻¹ − (S + h₂²)⁻¹)ξ."""
        if self.first is None and self.normalization == "none":
            raise ArgumentError("A Gaussian does not stay one under e^G(x − m), which is not affine. Use particles.")
        signed = added(each.affine(law).times(each.output) for each in self.interactions(time))
        return signed if self.first is not None else law.identity().plus(signed)


class KernelDerivative(AbstractDrift):
    """v(x) = −∂m_h(x)/∂h, h a number of the kernel: how the local mean changes as the kernel becomes narrower.

    For a Gaussian of width h it is −Cov(r², z)/h³ under the weights of x: towards what is near, away from what is far.
    Derivatives are exact, not quotients. A kernel with a radius alone (ball) has the derivative 0 almost everywhere.
    A tolerance bounds the error of a mean, not of its derivative, so that sums with one are refused.

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
        if allowed_error(self.summation) is not None:
            raise ArgumentError(
                "Argument `summation` must sum exactly, without a `tolerance`: that bounds the error of the local "
                "mean, not of its derivative."
            )
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
        """The one kernel, normalised by rows; the velocity is a derivative of its local mean, not the mean."""
        return (Interaction(self.kernel, "row", None, self.summation, None),)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """−∂m_h(x)/∂h by forward differentiation."""

        def means(number: Array) -> Array:
            (interaction,) = self._at(number).interactions(time)
            return interaction.moments(queries, measure).mean

        return -self._slope(means, measure.points.dtype)

    def affine(self, time: Any, law: Normal) -> Affine:
        """−∂/∂h of the local mean of a quadratic kernel; for a Gaussian of width h about a: 2h S(S + h²)⁻² ξ."""

        def field(number: Array) -> Affine:
            (interaction,) = self._at(number).interactions(time)
            return interaction.affine(law)

        return self._slope(field, law.mean.dtype).times(-1.0)

    def _at(self, number: Array) -> "KernelDerivative":
        """The same with another h."""
        return eqx.tree_at(lambda drift: getattr(drift.kernel, drift.parameter), self, number)

    def _slope(self, read: Callable[[Array], Any], dtype: Any) -> Any:
        """The derivative with respect to h of what is read."""
        here = jnp.asarray(getattr(self.kernel, self.parameter), dtype)
        return jax.jvp(read, (here,), (jnp.ones_like(here),))[1]
