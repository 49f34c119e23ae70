"""Localization kernels K(x, y) ≥ 0, only ever as logarithms.

A *site* is a point, with its position in the sequence and the value it carries where a kernel needs them; a plain array
is a site that is only a point. `log_pair` evaluates one pair of sites, `log_matrix` all pairs. A kernel is written
once, either way: subclass `AbstractPairKernel` and give `log_pair`, or `AbstractMatrixKernel` and give `log_matrix`
where the matrix can be had faster than pair by pair.

    (k1 * k2)(x, y) = k1(x, y) k2(x, y)      (k1 + k2)(x, y) = k1(x, y) + k2(x, y)      (c * k)(x, y) = c k(x, y)

Fast methods read the *forms* of a kernel, never its class: `bilinear`, `radial`, `band`, `separable` and `factors`; and
its facts `vanishes` and `inverse_temperature`. Their defaults are right for every kernel (True for `vanishes`, the
kernel itself for `factors`, None for the others), so a new kernel needs to define none of them. What only some kernels
can do is a class of `kernels.capabilities`.

Local means sum `kernel.bind(measure)`: the kernel itself, unless neighbours are counted (`nearest`).
"""

import abc
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, check_same_dtype, is_concrete
from particleflow._support.representation import shown
from particleflow.errors import ArgumentError, ShapeError
from particleflow.measure import Measure, Sites

if TYPE_CHECKING:
    from particleflow.kernels.forms import Band, Bilinear, Radial, Separable

# A large matrix product with two or three columns is several times slower on CPU than one padded to sixteen;
# for small matrices the padding costs more than it saves.
_PADDED_COLUMNS = 16
_PADDED_ROWS = 256
# Up to this dimension differences are written out coordinate by coordinate, which vectorises over pairs.
_UNROLLED_DIMENSION = 32

# What K depends on, for stored metadata: K = exp β⟨Qx, Ky⟩, a function of a distance, of positions, or anything else.
Form = Literal["inner", "distance", "positional", "other"]


class AbstractKernel(eqx.Module):
    """A localization kernel K(x, y) ≥ 0, given by its logarithm.

    Fields are arrays, other kernels, or static: so a kernel is an argument of `jax.jit`, `jax.grad` and `jax.vmap`
    like any array.
    """

    form: ClassVar[Form] = "other"

    @abc.abstractmethod
    def log_pair(self, x: Any, y: Any) -> Float[Array, ""]:
        """log K(x, y) of one pair of sites."""

    @abc.abstractmethod
    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log K(x_i, y_j)."""

    def bilinear(self) -> "Bilinear | None":
        """θ, s, a, b with log K(x, y) = ⟨θ(x), s(y)⟩ + a(x) + b(y), or None where there are none."""
        return None

    def radial(self) -> "Radial | None":
        """The profile of K = k(|u(x) − v(y)|²) with its maps u, v, or None where there is none."""
        return None

    def band(self) -> "Band | None":
        """The lags t − s of positions that K lets pass and how it falls with |t − s|; None for all other kernels."""
        return None

    def separable(self) -> "Separable | None":
        """Features φ, ψ with K(x, y) = ⟨φ(x), ψ(y)⟩, a sum of products of a few positive functions; None for none."""
        return None

    def factors(self) -> "tuple[AbstractKernel, ...]":
        """Kernels whose product this one is; itself alone, unless it can be taken apart.

        Causal attention has no bilinear form, but its factors are a bilinear kernel and a mask.
        """
        return (self,)

    def vanishes(self) -> bool:
        """Whether K(x, y) = 0 may happen, apart from overflow; True where that is not known.

        Where it is False, every query of a measure with mass has a mass.
        """
        return True

    def inverse_temperature(self) -> Float[Array, ""] | None:
        """β, the number that ∇ₓ log K is naturally measured in, or None where the kernel has no such number.

        β itself for kernels that have a `beta` (∇ₓ log K = β QᵀKy for attention), 1/width² for those that have a
        `width` (∇ₓ log K = (y − x)/width² for a Gaussian); a composed kernel has that of its first part that has one.
        """
        return None

    def bind(self, measure: "Measure") -> "AbstractKernel":
        """Bind the kernel to a measure: the kernel that a local mean over this measure sums.

        A kernel of two sites alone is bound already and returned as it is; one that counts points (`Nearest`) takes
        those of the measure.
        """
        return self

    def __mul__(self, other: Any) -> "AbstractKernel":
        from particleflow.kernels.algebra import Product, Scaled

        return Product((self, other)) if isinstance(other, AbstractKernel) else Scaled(self, other)

    def __rmul__(self, factor: Any) -> "AbstractKernel":
        return self * factor

    def __add__(self, other: "AbstractKernel") -> "AbstractKernel":
        from particleflow.kernels.algebra import Mixture

        if not isinstance(other, AbstractKernel):
            return NotImplemented
        return Mixture((self, other), (1.0, 1.0))

    def __repr__(self) -> str:
        return shown(self)


class AbstractPairKernel(AbstractKernel):
    """A kernel that is given pair by pair, by `log_pair`; the matrix is made by `jax.vmap`."""

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log K(x_i, y_j)."""
        along_row = jax.vmap(self.log_pair, in_axes=(None, 0))
        return jax.vmap(along_row, in_axes=(0, None))(xs, ys)


class AbstractMatrixKernel(AbstractKernel):
    """A kernel that is given as a whole matrix, by `log_matrix`; a pair is a matrix of one entry."""

    def log_pair(self, x: Any, y: Any) -> Float[Array, ""]:
        """log K(x, y) of one pair of sites."""
        # A list is one vector, not a tree of numbers.
        lifted = jax.tree_util.tree_map(
            lambda leaf: jnp.asarray(leaf)[None], (x, y), is_leaf=lambda node: isinstance(node, list)
        )
        return self.log_matrix(*lifted)[0, 0]


def points_of(sites: Any) -> Array:
    """The points of some sites, which may be a plain array."""
    return as_float_array(sites.points if isinstance(sites, Sites) else sites, "points")


def positions_of(sites: Any, role: str) -> Array:
    """The positions of some sites, which a positional kernel cannot do without."""
    if not isinstance(sites, Sites) or sites.positions is None:
        raise ArgumentError(
            f"The kernel looks at positions, but the {role} has none; "
            "give `positions` to the measure and to the queries."
        )
    return sites.positions


def values_of(sites: Any, role: str) -> Array:
    """The values of some sites, which a self-localization kernel cannot do without."""
    if not isinstance(sites, Sites) or sites.values is None:
        raise ArgumentError(f"The kernel looks at values, but the {role} has none; give `values`.")
    return sites.values


def check_same_dimension(xs: Array, ys: Array) -> None:
    """Raise unless queries and points are matrices of one precision whose rows live in one space."""
    if xs.ndim != 2 or ys.ndim != 2:
        raise ShapeError(f"Queries and points must have shapes (m, d) and (n, d), but have {xs.shape} and {ys.shape}.")
    check_same_dtype(queries=xs, points=ys)
    if xs.shape[-1] != ys.shape[-1]:
        raise ShapeError(
            f"Queries have dimension {xs.shape[-1]}, but the points have dimension {ys.shape[-1]}; "
            "a kernel on two different spaces is written with `Pullback`."
        )


def inner_products(xs: Float[Array, "m d"], ys: Float[Array, "n d"]) -> Float[Array, "m n"]:
    """The matrix ⟨x_i, y_j⟩, in full precision on every device."""
    check_same_dimension(xs, ys)
    missing = _PADDED_COLUMNS - xs.shape[-1]
    if missing > 0 and xs.shape[0] >= _PADDED_ROWS:
        xs, ys = (jnp.pad(a, ((0, 0), (0, missing))) for a in (xs, ys))
    return jnp.matmul(xs, ys.T, precision=jax.lax.Precision.HIGHEST)


def squared_distances(xs: Float[Array, "m d"], ys: Float[Array, "n d"]) -> Float[Array, "m n"]:
    """The matrix |x_i − y_j|², from differences.

    Expanding the square would be a matrix product, but loses (|x|/|x − y|)² digits: a narrow kernel far
    from the origin would be rounding error alone.
    """
    check_same_dimension(xs, ys)
    if xs.shape[-1] <= _UNROLLED_DIMENSION:
        return _unrolled_squares(xs.T, ys.T)
    return _squares_in_groups(xs, ys)


def _unrolled_squares(xs: Float[Array, "d m"], ys: Float[Array, "d n"]) -> Float[Array, "m n"]:
    pairs = zip(xs, ys, strict=True)
    return sum((jnp.square(x[:, None] - y[None, :]) for x, y in pairs), start=jnp.zeros((), xs.dtype))


@jax.jit  # a loop outside `jit` would be compiled again at every call
def _squares_in_groups(xs: Float[Array, "m d"], ys: Float[Array, "n d"]) -> Float[Array, "m n"]:
    """The matrix |x_i − y_j|², one group of coordinates after another: the m × n × d differences are never stored."""
    missing = -xs.shape[-1] % _UNROLLED_DIMENSION

    def grouped(points: Array) -> Array:
        return jnp.pad(points, ((0, 0), (0, missing))).T.reshape(-1, _UNROLLED_DIMENSION, points.shape[0])

    def add(so_far: Array, group: tuple[Array, Array]) -> tuple[Array, None]:
        return so_far + jax.checkpoint(_unrolled_squares)(*group), None

    return jax.lax.scan(add, jnp.zeros((xs.shape[0], ys.shape[0]), xs.dtype), (grouped(xs), grouped(ys)))[0]


def safe_root(numbers: Array) -> Array:
    """√ of numbers ≥ 0, with gradient 0 (not NaN) at 0, where a distance has none."""
    positive = numbers > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, numbers, 1.0)), 0.0)


def as_log_table(log_table: Any) -> Float[Array, "a b"]:
    """A matrix of logarithms of a kernel, which may be −∞."""
    table = as_float_array(log_table, "log_table", finite=False)
    if table.ndim != 2 or 0 in table.shape:
        raise ShapeError(f"Argument `log_table` must be a matrix, but has shape {table.shape}.")
    return table


def rows_at(table: Float[Array, "a k"], indices: Float[Array, " m"], what: str) -> Float[Array, "m k"]:
    """The rows of a table at whole numbers held as floats; inside `jit` a number that is no row shows as NaN."""
    valid = (indices == jnp.round(indices)) & (indices >= 0) & (indices < table.shape[0])
    if is_concrete(valid) and not bool(jnp.all(valid)):
        raise ArgumentError(
            f"{what} must be whole numbers from 0 to {table.shape[0] - 1}, the rows of a table, "
            f"but hold {float(indices[jnp.argmin(valid)])}."
        )
    rows = jnp.where(valid, indices, table.shape[0]).astype(jnp.int32)
    return table.at[rows].get(mode="fill", fill_value=jnp.nan)


def safe_log(numbers: Array) -> Array:
    """log of numbers ≥ 0: −∞ at 0 with gradient 0 (not NaN) there; negative numbers give NaN."""
    zero = numbers == 0
    return jnp.where(zero, -jnp.inf, jnp.log(jnp.where(zero, 1.0, numbers)))
