"""New kernels from old: products, mixtures, multiples, symmetrisation. (Normalisation needs a measure: see
`summation.local_mean.Normalised`.)

Logarithms make products sums; only mixtures take exponentials. Forms survive where the mathematics lets them: products
of bilinear kernels are bilinear, those of radial kernels of one distance are radial, multiples and transposes keep
both, and mixtures keep neither.
"""

from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import NONNEGATIVE, Nonnegative, as_nonnegative, is_concrete
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels.base import AbstractKernel, safe_log
from particleflow.kernels.capabilities import Composite, Integrable, log_integral
from particleflow.kernels.forms import Band, Bilinear, Radial


class Product(Composite):
    """K(x, y) = Π_l K_l(x, y): a mask times attention, space times time, points times values."""

    kernels: tuple[AbstractKernel, ...]

    def __init__(self, kernels: Any):
        self.kernels = tuple(kernels)

    def __check_init__(self):
        if not self.kernels:
            raise ArgumentError("Argument `kernels` must name at least one kernel, but is empty.")
        _check_kernels(self.kernels)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix Σ_l log K_l(x_i, y_j)."""
        first, *others = (kernel.log_matrix(xs, ys) for kernel in self.kernels)
        return sum(others, start=first)

    def bilinear(self) -> Bilinear | None:
        """Features side by side and offsets added, if every factor is bilinear."""
        return Bilinear.product([kernel.bilinear() for kernel in self.kernels])

    def radial(self) -> Radial | None:
        """Log-profiles added, if every factor is radial and maps sites alike."""
        return Radial.product([kernel.radial() for kernel in self.kernels])

    def band(self) -> Band | None:
        """The lags that all factors let pass, if every factor is a band."""
        return Band.product([kernel.band() for kernel in self.kernels])

    def factors(self) -> tuple[AbstractKernel, ...]:
        """The factors of all factors."""
        return tuple(factor for kernel in self.kernels for factor in kernel.factors())

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The factors, as they were given."""
        return self.kernels

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """The product of other factors."""
        return Product(parts)

    def adds_logarithms(self) -> bool:
        """Yes: log K = Σ_l log K_l."""
        return True


class Mixture(Composite, Integrable):
    """K(x, y) = Σ_l w_l K_l(x, y) with weights w_l ≥ 0.

    Not several heads: those are a sum of local means, each with its own mass; this is one local mean under a sum of
    kernels, to which each contributes in proportion to its mass. A weight of 0 leaves its kernel out.
    """

    kernels: tuple[AbstractKernel, ...]
    weights: Annotated[tuple[Float[Array, ""], ...], NONNEGATIVE]

    def __init__(self, kernels: Any, weights: Any):
        self.kernels = tuple(kernels)
        self.weights = tuple(as_nonnegative(weight, f"weights[{i}]") for i, weight in enumerate(weights))

    def __check_init__(self):
        if not self.kernels or len(self.weights) != len(self.kernels):
            raise ShapeError(
                "Arguments `kernels` and `weights` must be equally many and at least one, "
                f"but there are {len(self.kernels)} kernels and {len(self.weights)} weights."
            )
        _check_kernels(self.kernels)
        if all(is_concrete(weight) and float(weight) == 0 for weight in self.weights):
            raise ArgumentError("Argument `weights` gives the mixture no mass: every weight is zero.")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log Σ_l w_l K_l(x_i, y_j)."""
        pairs = zip(self.kernels, self.weights, strict=True)
        return _log_sum_exp(jnp.stack([kernel.log_matrix(xs, ys) + safe_log(weight) for kernel, weight in pairs]))

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernels of the mixture, in order."""
        return self.kernels

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """Other kernels with the same weights."""
        return Mixture(parts, self.weights)

    def adds_logarithms(self) -> bool:
        """No: the logarithm of a sum is no sum of logarithms."""
        return False

    def vanishes(self) -> bool:
        """True unless a part that never vanishes has a weight known to be positive; traced weights are not known."""
        pairs = zip(self.kernels, self.weights, strict=True)
        return not any(_is_positive(weight) and not kernel.vanishes() for kernel, weight in pairs)

    def inverse_temperature(self) -> Float[Array, ""] | None:
        """None: several kernels have no β in common."""
        return None

    def log_integral(self, dimension: int) -> Float[Array, ""] | None:
        """log Σ_l w_l ∫ K_l, if every part has one."""
        parts = [log_integral(kernel, dimension) for kernel in self.kernels]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        shares = [part + safe_log(weight) for part, weight in zip(known, self.weights, strict=True)]
        return _log_sum_exp(jnp.stack(shares))


class Scaled(Composite, Integrable):
    """K(x, y) = factor · kernel(x, y); the factor changes masses, never means."""

    kernel: AbstractKernel
    factor: Nonnegative

    def __init__(self, kernel: AbstractKernel, factor: Any):
        self.kernel = kernel
        self.factor = as_nonnegative(factor, "factor")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log factor + log kernel(x_i, y_j)."""
        return safe_log(self.factor) + self.kernel.log_matrix(xs, ys)

    def bilinear(self) -> Bilinear | None:
        """The form of the kernel; log factor goes into an offset."""
        form = self.kernel.bilinear()
        return form and form.scaled(safe_log(self.factor))

    def radial(self) -> Radial | None:
        """The form of the kernel; log factor goes into the profile."""
        form = self.kernel.radial()
        return form and form.scaled(safe_log(self.factor))

    def band(self) -> Band | None:
        """The form of the kernel; log factor is added."""
        form = self.kernel.band()
        return form and form.scaled(safe_log(self.factor))

    def factors(self) -> tuple[AbstractKernel, ...]:
        """The factors of the kernel, the first of them scaled."""
        first, *others = self.kernel.factors()
        return (Scaled(first, self.factor), *others) if others else (self,)

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernel that is scaled."""
        return (self.kernel,)

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """The same multiple of another kernel."""
        return Scaled(parts[0], self.factor)

    def adds_logarithms(self) -> bool:
        """Yes: log K = log kernel + log factor."""
        return True

    def vanishes(self) -> bool:
        """Whether the kernel may vanish, or the factor is not known to be positive (it is zero, or traced)."""
        return self.kernel.vanishes() or not _is_positive(self.factor)

    def log_integral(self, dimension: int) -> Float[Array, ""] | None:
        """log ∫ kernel + log factor, if the first is known."""
        plain = log_integral(self.kernel, dimension)
        return None if plain is None else plain + safe_log(self.factor)


class Transposed(Composite):
    """K(y, x): the kernel with its sites exchanged; its row sums are the column sums of K, as Sinkhorn needs them."""

    kernel: AbstractKernel

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log K(y_j, x_i)."""
        return self.kernel.log_matrix(ys, xs).T

    def bilinear(self) -> Bilinear | None:
        """The form of the kernel with the roles swapped."""
        form = self.kernel.bilinear()
        return form and form.transposed()

    def radial(self) -> Radial | None:
        """The form of the kernel with the maps swapped."""
        form = self.kernel.radial()
        return form and form.transposed()

    def band(self) -> Band | None:
        """The form of the kernel with the sign of lags changed."""
        form = self.kernel.band()
        return form and form.transposed()

    def factors(self) -> tuple[AbstractKernel, ...]:
        """The factors, each transposed."""
        parts = self.kernel.factors()
        return (self,) if len(parts) == 1 else tuple(Transposed(part) for part in parts)

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernel that is transposed."""
        return (self.kernel,)

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """The same of another kernel: K(y, x)."""
        return Transposed(parts[0])

    def adds_logarithms(self) -> bool:
        """Yes: log K(y, x) is the logarithm of the part, with its sites exchanged."""
        return True


class Symmetrised(Composite):
    """½(K(x, y) + K(y, x)), or √(K(x, y) K(y, x)) with `mean = "geometric"`.

    Queries and points must live in one space. The geometric mean keeps both forms, the arithmetic mean keeps none.
    """

    kernel: AbstractKernel
    mean: Literal["arithmetic", "geometric"] = eqx.field(static=True, default="arithmetic")

    def __check_init__(self):
        if self.mean not in ("arithmetic", "geometric"):
            raise ArgumentError(f"Argument `mean` must be 'arithmetic' or 'geometric', but is {self.mean!r}.")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The logarithm of the mean of both orders."""
        forward, backward = self.kernel.log_matrix(xs, ys), self.kernel.log_matrix(ys, xs).T
        if self.mean == "geometric":
            return 0.5 * (forward + backward)
        return _log_sum_exp(jnp.stack([forward, backward])) - jnp.log(2.0).astype(forward.dtype)

    def bilinear(self) -> Bilinear | None:
        """Half-features of both orders side by side, for the geometric mean."""
        form = self.kernel.bilinear()
        return form.symmetrised() if form is not None and self.mean == "geometric" else None

    def radial(self) -> Radial | None:
        """The form of the kernel, for the geometric mean of one that is symmetric already."""
        form = self.kernel.radial()
        return form.symmetrised() if form is not None and self.mean == "geometric" else None

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernel that is symmetrised."""
        return (self.kernel,)

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """The same mean of both orders of another kernel."""
        return Symmetrised(parts[0], self.mean)

    def adds_logarithms(self) -> bool:
        """Yes for the geometric mean, ½ (log K(x, y) + log K(y, x))."""
        return self.mean == "geometric"


def _check_kernels(kernels: tuple[Any, ...]) -> None:
    for index, kernel in enumerate(kernels):
        if not isinstance(kernel, AbstractKernel):
            raise ArgumentError(f"Argument `kernels[{index}]` must be a kernel, but is {type(kernel).__name__}.")


def _is_positive(number: Array) -> bool:
    """Whether a number is known to be positive; one that `jit` traces is not known."""
    # By NumPy: inside a loop JAX would trace the comparison, although the number is known.
    return is_concrete(number) and bool(np.all(np.asarray(number) > 0))


def _log_sum_exp(stacked: Float[Array, "l *s"]) -> Float[Array, "*s"]:
    """log Σ_l exp stacked_l, with gradient 0 (not NaN) where every term vanishes."""
    highest = jax.lax.stop_gradient(jnp.max(stacked, axis=0))
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    return highest + safe_log(jnp.sum(jnp.exp(stacked - highest[None]), axis=0))
