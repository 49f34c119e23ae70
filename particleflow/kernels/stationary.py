"""Kernels of the distance r = |x − y|: smooth ones, heavy-tailed ones, and ones that vanish beyond a radius.

Each class is its profile: log K as a function of r². None is divided by its integral, since a local mean does not
notice constant factors; `Scaled` adds one where masses matter.
"""

import abc
import math
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from particleflow._support.arrays import Nonnegative, as_nonnegative, as_positive
from particleflow.kernels.base import AbstractMatrixKernel, Form, points_of, safe_log, safe_root
from particleflow.kernels.capabilities import Integrable, Quadratic
from particleflow.kernels.forms import Bilinear, PowerLaw, Radial, Shape


class AbstractRadialKernel(AbstractMatrixKernel):
    """K(x, y) = exp k(|x − y|²), given by its log-profile k; distances are taken from differences of the points."""

    form: ClassVar[Form] = "distance"

    @abc.abstractmethod
    def log_profile(self, squares: Float[Array, "m n"], dimension: int) -> Float[Array, "m n"]:
        """k(r²) at squared distances; only kernels that are densities (Student's t) depend on the `dimension`."""

    def support(self) -> Float[Array, ""] | None:
        """The radius beyond which K is 0; None for one that reaches everywhere."""
        return None

    def shape(self, dimension: int) -> Shape | None:
        """The profile as one of the curves of `forms.Shape`; None where it is none of them."""
        return None

    def power_law(self, dimension: int) -> PowerLaw | None:
        """The profile as a power of a softened distance; None where it is none."""
        return None

    def radial(self) -> Radial:
        """The profile, of the points themselves."""
        return Radial(self.log_profile, support=self.support(), shape=self.shape, power_law=self.power_law)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix k(|x_i − y_j|²)."""
        return self.radial().log_matrix(xs, ys)

    def vanishes(self) -> bool:
        """Whether there is a radius beyond which K is 0."""
        return self.support() is not None


class Gaussian(AbstractRadialKernel, Quadratic, Integrable):
    """K(x, y) = exp(−r² / (2 width²)); on the unit sphere the attention kernel of β = 1/width².

    The kernel of MeanShift (Fukunaga and Hostetler 1975; Cheng 1995), whose step is a gradient step on log ∫ K dμ.
    """

    width: Nonnegative

    def __init__(self, width: Any):
        self.width = as_positive(width, "width")

    def log_profile(self, squares: Float[Array, "m n"], dimension: int) -> Float[Array, "m n"]:
        """The profile −r² / (2 width²)."""
        return -0.5 * squares / jnp.square(self.width)

    def shape(self, dimension: int) -> Shape:
        """A Gaussian of ρ = r/(√2 width)."""
        return Shape("gaussian", 0.5**0.5 / self.width)

    def bilinear(self) -> Bilinear:
        """θ = x/width², s = y, a = −|x|²/(2 width²), b = −|y|²/(2 width²)."""

        def offset(sites: Any) -> Array:
            return -0.5 * jnp.sum(jnp.square(points_of(sites)), axis=1) / jnp.square(self.width)

        return Bilinear(lambda xs: points_of(xs) / jnp.square(self.width), points_of, offset, offset)

    def inverse_temperature(self) -> Float[Array, ""]:
        """1/width², the β of attention on the unit sphere."""
        return 1 / jnp.square(self.width)

    def log_integral(self, dimension: int) -> Float[Array, ""]:
        """The logarithm of (√(2π) width)^d."""
        return dimension * jnp.log(math.sqrt(2 * math.pi) * self.width)


class Laplace(AbstractRadialKernel, Integrable):
    """K(x, y) = exp(−r / width); it has a kink where the points agree, and its gradient is taken as 0 there."""

    width: Nonnegative

    def __init__(self, width: Any):
        self.width = as_positive(width, "width")

    def log_profile(self, squares: Float[Array, "m n"], dimension: int) -> Float[Array, "m n"]:
        """The profile −r / width."""
        return -safe_root(squares) / self.width

    def shape(self, dimension: int) -> Shape:
        """An exponential of ρ = r/width."""
        return Shape("exponential", 1 / self.width)

    def inverse_temperature(self) -> Float[Array, ""]:
        """1/width², as for every kernel that has a width."""
        return 1 / jnp.square(self.width)

    def log_integral(self, dimension: int) -> Float[Array, ""]:
        """The logarithm of V_d d! width^d."""
        return log_ball(dimension) + math.lgamma(dimension + 1) + dimension * jnp.log(self.width)


class Cauchy(AbstractRadialKernel):
    """K(x, y) = 1 / (1 + r² / width²): a heavy tail, so that a far crowd may outweigh near neighbours.

    The kernel of t-SNE's map (van der Maaten and Hinton 2008).
    """

    width: Nonnegative

    def __init__(self, width: Any):
        self.width = as_positive(width, "width")

    def log_profile(self, squares: Float[Array, "m n"], dimension: int) -> Float[Array, "m n"]:
        """−log(1 + r² / width²)."""
        return -jnp.log1p(squares / jnp.square(self.width))

    def shape(self, dimension: int) -> Shape:
        """A power, p = 1."""
        return Shape("power", 1 / self.width, 1.0)

    def power_law(self, dimension: int) -> PowerLaw:
        """A power of one: width² (r² + width²)⁻¹."""
        return PowerLaw(1.0, self.width, 2 * jnp.log(self.width))

    def inverse_temperature(self) -> Float[Array, ""]:
        """1/width², as for every kernel that has a width."""
        return 1 / jnp.square(self.width)


class StudentT(AbstractRadialKernel, Integrable):
    """K(x, y) = (1 + r² / (ν width²))^{−(ν + d)/2}, the density of Student's t in d dimensions up to its constant.

    Its limit ν → ∞ is the Gaussian; ν = 1 on the line is the Cauchy kernel.
    Parameters: `width`; `freedom`, the degrees of freedom ν.
    """

    width: Nonnegative
    freedom: Nonnegative

    def __init__(self, width: Any, freedom: Any):
        self.width = as_positive(width, "width")
        self.freedom = as_positive(freedom, "freedom")

    def log_profile(self, squares: Float[Array, "m n"], dimension: int) -> Float[Array, "m n"]:
        """−(ν + d)/2 · log(1 + r² / (ν width²))."""
        relative = squares / (self.freedom * jnp.square(self.width))
        return -0.5 * (self.freedom + dimension) * jnp.log1p(relative)

    def shape(self, dimension: int) -> Shape:
        """A power, p = (ν + d)/2, of ρ = r/(√ν width)."""
        return Shape("power", 1 / (jnp.sqrt(self.freedom) * self.width), 0.5 * (self.freedom + dimension))

    def power_law(self, dimension: int) -> PowerLaw:
        """(c²)^p (r² + c²)^{−p} with c = √ν width and p = (ν + d)/2."""
        power, softening = 0.5 * (self.freedom + dimension), jnp.sqrt(self.freedom) * self.width
        return PowerLaw(power, softening, 2 * power * jnp.log(softening))

    def inverse_temperature(self) -> Float[Array, ""]:
        """1/width², as for every kernel that has a width."""
        return 1 / jnp.square(self.width)

    def log_integral(self, dimension: int) -> Float[Array, ""]:
        """log of Γ(ν/2) (νπ)^{d/2} width^d / Γ((ν + d)/2)."""
        return (
            lax.lgamma(0.5 * self.freedom)
            - lax.lgamma(0.5 * (self.freedom + dimension))
            + 0.5 * dimension * jnp.log(self.freedom * math.pi * jnp.square(self.width))
        )


class Ball(AbstractRadialKernel, Integrable):
    """K(x, y) = 1 where r < radius, else 0: bounded confidence (Hegselmann and Krause 2002), flat MeanShift.

    It has no gradient in the radius, and none in the points: a local mean has derivatives in the values alone.
    """

    radius: Nonnegative

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def log_profile(self, squares: Float[Array, "m n"], dimension: int) -> Float[Array, "m n"]:
        """0 inside and −∞ outside the ball."""
        return jnp.where(squares < jnp.square(self.radius), jnp.zeros_like(squares), -jnp.inf)

    def shape(self, dimension: int) -> Shape:
        """A ball of ρ = r, with p = radius²."""
        return Shape("ball", jnp.ones_like(self.radius), jnp.square(self.radius))

    def support(self) -> Float[Array, ""]:
        """The radius, from which on K is 0."""
        return self.radius

    def log_integral(self, dimension: int) -> Float[Array, ""]:
        """The logarithm of V_d radius^d."""
        return log_ball(dimension) + dimension * jnp.log(self.radius)


class Epanechnikov(AbstractRadialKernel, Integrable):
    """K(x, y) = max(0, 1 − r² / radius²): of all density estimates that of least mean square error (Epanechnikov 1969).

    The gradient of this estimate is along the MeanShift of the flat kernel, `Ball`: ∇ₓK = 2(y − x)/radius² inside.
    """

    radius: Nonnegative

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def log_profile(self, squares: Float[Array, "m n"], dimension: int) -> Float[Array, "m n"]:
        """log max(0, 1 − r² / radius²)."""
        return safe_log(jnp.maximum(1 - squares / jnp.square(self.radius), 0.0))

    def shape(self, dimension: int) -> Shape:
        """A parabola of ρ = r/radius."""
        return Shape("parabola", 1 / self.radius)

    def support(self) -> Float[Array, ""]:
        """The radius, from which on K is 0."""
        return self.radius

    def log_integral(self, dimension: int) -> Float[Array, ""]:
        """log(V_d radius^d · 2/(d + 2))."""
        return log_ball(dimension) + dimension * jnp.log(self.radius) + math.log(2 / (dimension + 2))


class Triangle(AbstractRadialKernel, Integrable):
    """K(x, y) = max(0, 1 − r / radius), a cone; on the line the convolution of two boxes."""

    radius: Nonnegative

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def log_profile(self, squares: Float[Array, "m n"], dimension: int) -> Float[Array, "m n"]:
        """log max(0, 1 − r / radius)."""
        return safe_log(jnp.maximum(1 - safe_root(squares) / self.radius, 0.0))

    def shape(self, dimension: int) -> Shape:
        """A triangle of ρ = r/radius."""
        return Shape("triangle", 1 / self.radius)

    def support(self) -> Float[Array, ""]:
        """The radius, from which on K is 0."""
        return self.radius

    def log_integral(self, dimension: int) -> Float[Array, ""]:
        """The logarithm of V_d radius^d/(d + 1)."""
        return log_ball(dimension) + dimension * jnp.log(self.radius) - math.log(dimension + 1)


class InverseDistance(AbstractRadialKernel):
    """K(x, y) = (r² + softening²)^{−power/2}: no scale of its own, so that every distance counts.

    Its local mean is Shepard's interpolation (1968): without softening K is infinite at r = 0, and a query on a point
    takes the value of the point; here the softening is at least the fourth root of the smallest normal number, 1e-77,
    in single precision 3e-10. `power = 1` in three dimensions is the potential of gravity, with the softening of N-body
    codes (Aarseth 1963).
    """

    power: Nonnegative
    softening: Nonnegative

    def __init__(self, power: Any = 1.0, softening: Any = 0.0):
        self.power = as_positive(power, "power")
        self.softening = as_nonnegative(softening, "softening")

    def log_profile(self, squares: Float[Array, "m n"], dimension: int) -> Float[Array, "m n"]:
        """−power/2 · log(r² + softening²)."""
        least = float(jnp.finfo(squares.dtype).tiny) ** 0.25
        return -0.5 * self.power * jnp.log(squares + jnp.square(jnp.maximum(self.softening, least)))

    def shape(self, dimension: int) -> Shape:
        """A power, p = power/2, of ρ = r/softening, times softening^{−power}; too narrow for low rank."""
        softening = jnp.maximum(self.softening, float(jnp.finfo(jnp.result_type(self.softening)).tiny) ** 0.25)
        return Shape("inverse", 1 / softening, 0.5 * self.power, -self.power * jnp.log(softening))

    def power_law(self, dimension: int) -> PowerLaw:
        """The law itself: (r² + softening²)^{−power/2}."""
        return PowerLaw(0.5 * self.power, self.softening)


def log_ball(dimension: int) -> float:
    """log V_d, the volume π^{d/2}/Γ(d/2 + 1) of the unit ball."""
    return 0.5 * dimension * math.log(math.pi) - math.lgamma(0.5 * dimension + 1)
