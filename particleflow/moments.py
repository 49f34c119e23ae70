"""The pair that the whole package sums: log-mass and local mean.

    G = log ∫ K dμ,    m = ∫ K z dμ / ∫ K dμ

Over disjoint pieces of μ these pairs form a commutative monoid: `merge` is its operation, `nothing` its
identity (−∞, 0). Every way of summing (dense, in blocks, near plus far, over devices) is a fold of `merge`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.errors import ShapeError

# The masses ride along as one more column of the means. A large matrix product with few or odd columns is slow on
# CPU; for small ones padding costs more than it saves.
_COLUMN_MULTIPLE = 16
_PADDED_ROWS = 256


class Moments(eqx.Module):
    """log-mass G and local mean m of some queries; a query that sees nothing has (−∞, 0)."""

    log_mass: Float[Array, "*m"]
    mean: Float[Array, "*m k"]

    @staticmethod
    def nothing(queries: int, columns: int, dtype) -> "Moments":
        """The identity of `merge`: no mass."""
        return Moments(jnp.full(queries, -jnp.inf, dtype), jnp.zeros((queries, columns), dtype))

    @staticmethod
    def from_logits(logits: Float[Array, "m n"], values: Float[Array, "n k"]) -> "Moments":
        """The moments of log K(x_i, y_j) + log w_j and the values z_j, in one matrix product.

        The row maximum is taken out before exponentials are taken, so nothing overflows; where a whole row
        is −∞ the result is the identity, with gradient 0.
        """
        highest = finite_maximum(logits)
        return Moments.from_sums(shifted_sums(logits, highest, values), highest)

    @staticmethod
    def from_sums(sums: Float[Array, "m k+1"], shift: Float[Array, " m"]) -> "Moments":
        """The moments from Σ_j e^{logit_j − shift} (z_j, 1); no mass gives the identity.

        The mass moves into the shift before the quotient is taken: the derivative of a quotient divides by the
        square of the mass, which may underflow or overflow although the mass does not.
        """
        mass = sums[:, -1]
        some = ~(mass < jnp.finfo(mass.dtype).tiny)  # NaN counts as something, so that it shows
        scale = jax.lax.stop_gradient(jnp.where(some, mass, 1.0))
        relative = sums / scale[:, None]
        positive = jnp.where(some, relative[:, -1], 1.0)
        log_mass = jnp.where(some, shift + jnp.log(scale) + jnp.log(positive), -jnp.inf)
        return Moments(log_mass, jnp.where(some[:, None], relative[:, :-1] / positive[:, None], 0.0))

    def merge(self, other: "Moments") -> "Moments":
        """The moments over both pieces: G = log(e^{G₁} + e^{G₂}), m = (e^{G₁} m₁ + e^{G₂} m₂) / e^{G}."""
        if self.log_mass.shape != other.log_mass.shape or self.mean.shape != other.mean.shape:
            raise ShapeError(
                f"Moments of log-mass {self.log_mass.shape} and mean {self.mean.shape} merge with others of the same "
                f"shapes, but the others have {other.log_mass.shape} and {other.mean.shape}."
            )
        highest = finite_maximum(jnp.stack([self.log_mass, other.log_mass], axis=-1))
        mine, theirs = jnp.exp(self.log_mass - highest), jnp.exp(other.log_mass - highest)
        mass = mine + theirs
        some = mass != 0
        positive = jnp.where(some, mass, 1.0)
        along_mean = mass.shape + (1,) * (self.mean.ndim - mass.ndim)  # a mean of numbers has no axis of its own
        mine, theirs = (jnp.reshape(part / positive, along_mean) for part in (mine, theirs))
        log_mass = jnp.where(some, highest + jnp.log(positive), -jnp.inf)
        return Moments(log_mass, mine * self.mean + theirs * other.mean)


def finite_maximum(logits: Float[Array, "*m n"]) -> Float[Array, "*m"]:
    """The largest entry of each row, 0 where a row is all −∞; without derivative, since every use cancels it."""
    highest = jax.lax.stop_gradient(jnp.max(logits, axis=-1))
    return jnp.where(jnp.isneginf(highest), 0.0, highest)


def shifted_sums(
    logits: Float[Array, "m n"], shift: Float[Array, " m"], values: Float[Array, "n k"], cap: float | None = None
) -> Float[Array, "m k+1"]:
    """Σ_j e^{logit_j − shift} (z_j, 1) in one matrix product; exponents above `cap` are cut to it."""
    exponents = logits - shift[:, None]
    if cap is not None:
        exponents = jnp.minimum(exponents, cap)
    columns = values.shape[1]
    padding = -(columns + 1) % _COLUMN_MULTIPLE if logits.shape[0] >= _PADDED_ROWS else 0
    with_mass = jnp.pad(values, ((0, 0), (0, 1 + padding))).at[:, columns].set(1.0)
    return jnp.matmul(jnp.exp(exponents), with_mass, precision=jax.lax.Precision.HIGHEST)[:, : columns + 1]
