"""The pair that the whole package sums: log-mass and local mean.

    G = log ∫ K dμ,    m = ∫ K z dμ / ∫ K dμ

Over disjoint pieces of μ these pairs form a commutative monoid: `merge` is its operation, `nothing` its
identity (−∞, 0). Every way of summing (dense, in blocks, near plus far, over devices) is a fold of `merge`.

There is one merge, of `Sums`: a sum that is still being added up, e^{shift} Σ_j e^{logit_j − shift} (z_j, 1).
Two sums are brought to the larger shift and added, so that no exponential overflows and none that matters underflows
(Milakov and Gimelshein, Online normalizer calculation for softmax, 2018). Moments merge as sums do; folds carry sums
and take logarithm and quotient once, at the end: a log-mass of 4000 is rounded to 2e-4 in float32, the difference of
two shifts is not.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.errors import ShapeError

# The mass is one more column of the values. A large matrix product with few or odd columns is slow on
# CPU; for small ones padding costs more than it saves.
_COLUMN_MULTIPLE = 16
_PADDED_ROWS = 256


class Sums(eqx.Module):
    """S = e^{shift} · sums with sums = Σ_j e^{logit_j − shift} (z_j, 1): values first, the mass in the last column.

    A row without mass has sums 0, and any shift; `nothing` has −∞, so that it never sets the shift of a merge.
    """

    shift: Float[Array, "*m"]
    sums: Float[Array, "*m k+1"]

    @staticmethod
    def nothing(queries: int, columns: int, dtype: Any) -> "Sums":
        """The identity of `merge`: no mass."""
        return Sums(jnp.full(queries, -jnp.inf, dtype), jnp.zeros((queries, columns + 1), dtype))

    @staticmethod
    def from_logits(logits: Float[Array, "m n"], values: Float[Array, "n k"]) -> "Sums":
        """The sums of log K(x_i, y_j) + log w_j and the values z_j, each row shifted by its maximum."""
        highest = jax.lax.stop_gradient(jnp.max(logits, axis=-1))
        return Sums(highest, shifted_sums(logits, _finite(highest), values))

    def merge(self, other: "Sums") -> "Sums":
        """S₁ + S₂ = e^s (e^{s₁−s} sums₁ + e^{s₂−s} sums₂) with s = max(s₁, s₂).

        Two sums that have one and the same array as their shift are only added: a fold with a common shift costs
        nothing more than its sums.
        """
        if self.shift is other.shift:
            return Sums(self.shift, self.sums + other.sums)
        shift = jax.lax.stop_gradient(jnp.maximum(self.shift, other.shift))
        mine, theirs = (jnp.exp(part.shift - _finite(shift))[..., None] * part.sums for part in (self, other))
        return Sums(shift, mine + theirs)

    def moments(self) -> "Moments":
        """G = shift + log mass and m = Σ_j e^{logit_j − shift} z_j / mass; no mass gives (−∞, 0).

        The mass moves into the shift before the quotient is taken: the derivative of a quotient divides by the
        square of the mass, which may underflow or overflow although the mass does not.
        """
        mass = self.sums[..., -1]
        some = ~(mass < jnp.finfo(mass.dtype).tiny)  # NaN counts as something, so that it shows
        scale = jax.lax.stop_gradient(jnp.where(some, mass, 1.0))
        relative = self.sums / scale[..., None]
        positive = jnp.where(some, relative[..., -1], 1.0)
        log_mass = jnp.where(some, _finite(self.shift) + jnp.log(scale) + jnp.log(positive), -jnp.inf)
        return Moments(log_mass, jnp.where(some[..., None], relative[..., :-1] / positive[..., None], 0.0))


class Moments(eqx.Module):
    """log-mass G and local mean m of some queries; a query that sees nothing has (−∞, 0)."""

    log_mass: Float[Array, "*m"]
    mean: Float[Array, "*m k"]

    @staticmethod
    def nothing(queries: int, columns: int, dtype: Any) -> "Moments":
        """The identity of `merge`: no mass."""
        return Moments(jnp.full(queries, -jnp.inf, dtype), jnp.zeros((queries, columns), dtype))

    @staticmethod
    def from_logits(logits: Float[Array, "m n"], values: Float[Array, "n k"]) -> "Moments":
        """The moments of log K(x_i, y_j) + log w_j and the values z_j, in one matrix product.

        The row maximum is taken out before exponentials are taken, so nothing overflows; where a whole row
        is −∞ the result is the identity, with gradient 0.
        """
        return Sums.from_logits(logits, values).moments()

    def merge(self, other: "Moments") -> "Moments":
        """The moments over both pieces: G = log(e^{G₁} + e^{G₂}), m = (e^{G₁} m₁ + e^{G₂} m₂) / e^{G}."""
        if self.log_mass.shape != other.log_mass.shape or self.mean.shape != other.mean.shape:
            raise ShapeError(
                f"Moments of log-mass {self.log_mass.shape} and mean {self.mean.shape} merge with others of the same "
                f"shapes, but the others have {other.log_mass.shape} and {other.mean.shape}."
            )
        merged = self.sums().merge(other.sums()).moments()
        return Moments(merged.log_mass, merged.mean.reshape(self.mean.shape))

    def sums(self) -> Sums:
        """The same as sums, e^{G} (m, 1), and 0 where there is no mass; a mean of numbers gets an axis of its own."""
        mean = self.mean.reshape((*self.log_mass.shape, -1))
        mass = jnp.where(jnp.isneginf(self.log_mass), 0.0, jnp.ones_like(self.log_mass))
        return Sums(self.log_mass, jnp.concatenate([mean, mass[..., None]], axis=-1))


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


def finite_maximum(logits: Float[Array, "*m n"]) -> Float[Array, "*m"]:
    """The largest entry of each row, 0 where a row is all −∞; without derivative, since every use cancels it."""
    return _finite(jax.lax.stop_gradient(jnp.max(logits, axis=-1)))


def _finite(shift: Array) -> Array:
    """A shift to subtract: −∞, which is that of no mass at all, becomes 0; NaN and +∞ stay, so that they show."""
    return jnp.where(jnp.isneginf(shift), 0.0, shift)
