"""Natural exponential families with closed forms: Gaussian on R^d, von Mises–Fisher on the sphere."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, check_same_dtype, is_concrete
from particleflow.dynamics.initial.sphere_sampling import sample_von_mises_fisher
from particleflow.errors import ArgumentError, ShapeError
from particleflow.theory.exponential_family.base import AbstractNaturalFamily, check_dimension

# Nodes of the quadrature on the sphere: exact to rounding in every dimension up to the concentration below.
_JACOBI_NODES = 256
_LARGE_CONCENTRATION = 1000.0


class GaussianBase(AbstractNaturalFamily):
    """The base measure N(a, S): G(θ) = ⟨θ, a⟩ + ½⟨θ, Sθ⟩, and tilting moves the centre to a + Sθ.

    Parameters: `centre` a (d,); `spread` S (d, d), symmetric and positive definite.
    """

    centre: Float[Array, " d"]
    spread: Float[Array, "d d"]

    def __init__(self, centre: Any, spread: Any):
        self.centre = as_float_array(centre, "centre")
        self.spread = as_float_array(spread, "spread")

    def __check_init__(self):
        if self.centre.ndim != 1 or self.spread.shape != self.centre.shape * 2:
            raise ShapeError(
                "Arguments `centre` and `spread` must have shapes (d,) and (d, d), "
                f"but have {self.centre.shape} and {self.spread.shape}."
            )
        check_same_dtype(centre=self.centre, spread=self.spread)
        if is_concrete(self.spread):
            spread = np.asarray(self.spread)
            if not np.allclose(spread, spread.T):
                raise ArgumentError("Argument `spread` must be a symmetric matrix, but is not.")
            least = np.linalg.eigvalsh(spread).min()
            if least <= 0:
                raise ArgumentError(f"Argument `spread` must be positive definite, but has the eigenvalue {least:.6g}.")

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of y and θ."""
        return self.centre.shape[0]

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """⟨θ, a⟩ + ½⟨θ, Sθ⟩."""
        parameter = self.checked(parameter)
        return jnp.dot(parameter, self.centre) + 0.5 * jnp.dot(parameter, self.spread @ parameter)

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """The mean a + Sθ of N(a + Sθ, S)."""
        return self.centre + self.spread @ self.checked(parameter)

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """The covariance S, the same for every θ."""
        self.checked(parameter)
        return self.spread

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Draws from N(a + Sθ, S)."""
        noise = jax.random.normal(key, (count, self.dimension), self.centre.dtype)
        return self.mean(parameter)[None, :] + noise @ jnp.linalg.cholesky(self.spread).T


class UniformSphereBase(AbstractNaturalFamily):
    """The uniform distribution on the unit sphere S^{d−1}, d ≥ 2: tilting gives von Mises–Fisher.

    G depends on κ = |θ| alone. The projection t of a uniform point on an axis has density ∝ (1 − t²)^{(d−3)/2},
    so G(κ) = log Σ_i w_i e^{κ t_i} with Gauss–Jacobi nodes: an exponential family on the line. Near κ = 0 the Taylor
    series is used, and for κ > 1000, where the nodes become too few, Olver's expansion.

    Parameters: `dimension` d of the space.
    """

    dimension: int = eqx.field(static=True)

    def __check_init__(self):
        check_dimension(self.dimension, 2)

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """log[Γ(d/2) (2/κ)^{d/2−1} I_{d/2−1}(κ)], κ = |θ|."""
        parameter = self.checked(parameter)
        square = jnp.sum(jnp.square(parameter))
        # |θ| has no second derivative at 0, but G has; the series is cut at the cube of its argument.
        small = square < float(np.cbrt(jnp.finfo(parameter.dtype).eps))
        concentration = jnp.sqrt(jnp.where(small, 1.0, square))
        large = concentration > _LARGE_CONCENTRATION
        nodes, log_weights = _gauss_jacobi(self.dimension, parameter.dtype)
        near = jax.nn.logsumexp(jnp.where(large, 1.0, concentration) * nodes + log_weights)
        far = _olver(self.dimension, jnp.where(large, concentration, _LARGE_CONCENTRATION))
        return jnp.where(small, _taylor(self.dimension, square), jnp.where(large, far, near))

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """A_d(κ) θ/κ with A_d = I_{d/2} / I_{d/2−1}."""
        return jax.grad(self.log_normalizer)(self.checked(parameter))

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²G(θ); I/d at θ = 0."""
        return jax.hessian(self.log_normalizer)(self.checked(parameter))

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Von Mises–Fisher draws with concentration |θ| about θ/|θ|."""
        return sample_von_mises_fisher(key, self.checked(parameter), count)


def _taylor(dimension: int, square: Array) -> Array:
    """log ₀F₁(; a; x) = x/a − x²/(2a²(a + 1)) + 2x³/(3a³(a + 1)(a + 2)) + O(x⁴) with a = d/2, x = κ²/4."""
    a, x = dimension / 2, square / 4
    return x / a - jnp.square(x) / (2 * a**2 * (a + 1)) + 2 * x**3 / (3 * a**3 * (a + 1) * (a + 2))


def _gauss_jacobi(dimension: int, dtype) -> tuple[Array, Array]:
    """Nodes and log-weights of the projection of a uniform point on an axis."""
    from scipy.special import roots_jacobi

    exponent = (dimension - 3) / 2
    nodes, weights = roots_jacobi(_JACOBI_NODES, exponent, exponent)
    with np.errstate(divide="ignore"):  # in high dimensions the outermost nodes weigh nothing
        log_weights = np.log(weights / weights.sum())
    return jnp.asarray(nodes, dtype), jnp.asarray(log_weights, dtype)


def _olver(dimension: int, concentration: Array) -> Array:
    """G for large κ: I_ν(κ) ≈ e^r (κ/(ν + r))^ν (2πr)^{−1/2} (1 + Σ_k u_k), r = √(ν² + κ²), ν = d/2 − 1.

    With q = ν²/r² the terms are polynomials in q over r^k, so that ν = 0 is no special case; the first
    omitted one is of order 1/r⁴. Source: NIST Handbook of Mathematical Functions, 10.41.
    """
    from scipy.special import gammaln

    order = dimension / 2 - 1
    radius = jnp.sqrt(order**2 + jnp.square(concentration))
    q = order**2 / jnp.square(radius)
    first = (3 - 5 * q) / 24
    second = (81 - 462 * q + 385 * q**2) / 1152
    third = (30375 - 369603 * q + 765765 * q**2 - 425425 * q**3) / 414720
    series = jnp.log1p((first + (second + third / radius) / radius) / radius)
    constant = float(gammaln(dimension / 2) + order * np.log(2) - 0.5 * np.log(2 * np.pi))
    return radius + constant - order * jnp.log(order + radius) - 0.5 * jnp.log(radius) + series
