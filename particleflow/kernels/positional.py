"""Kernels K₂(t, s) of positions in a sequence, to be multiplied with a kernel K₁(x, y) of points.

t is the position of the query, s that of the source. Positions are token indices or times; they never move, so a mask
made of them is the same at every time of a flow. Kernels of |t − s| are radial, as kernels of one coordinate: a window
has a support like a ball.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import Nonnegative, as_float_array, as_nonnegative, as_positive
from particleflow._support.representation import shown
from particleflow.errors import ShapeError
from particleflow.kernels.base import (
    AbstractKernel,
    AbstractMatrixKernel,
    Form,
    as_log_table,
    points_of,
    positions_of,
    rows_at,
    safe_root,
)
from particleflow.kernels.capabilities import AbstractView
from particleflow.kernels.forms import Band, Bilinear, Radial, Shape
from particleflow.measure import Sites

# Different positions are taken to differ by at least this, the smallest normal number of single precision.
_LEAST_LAG = float(np.finfo(np.float32).tiny)
_WHOSE = {"query": "The positions of the queries", "measure": "The positions of the points"}


class Causal(AbstractMatrixKernel):
    """K₂(t, s) = 1 where s ≤ t, else 0: a token sees the past and itself, never the future.

    Tokens of equal position see each other.
    """

    form: ClassVar[Form] = "positional"

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of 0 where s_j ≤ t_i, else −∞."""
        lags = _lags(xs, ys)
        return jnp.where(lags >= 0, jnp.zeros_like(lags), -jnp.inf)

    def band(self) -> Band:
        """Lags t − s ≥ 0, written as lags above the largest negative one."""
        return Band(least=-_LEAST_LAG)


class StrictlyCausal(AbstractMatrixKernel):
    """K₂(t, s) = 1 where s < t, else 0; the first token sees nothing and stays.

    With next values as values it is autoregression: a prediction made of the past alone.
    """

    form: ClassVar[Form] = "positional"

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of 0 where s_j < t_i, else −∞."""
        lags = _lags(xs, ys)
        return jnp.where(lags > 0, jnp.zeros_like(lags), -jnp.inf)

    def band(self) -> Band:
        """All lags above 0."""
        return Band(least=0.0)


class Window(AbstractMatrixKernel):
    """K₂(t, s) = 1 where |t − s| < radius, else 0: sliding-window attention (Beltagy et al., Longformer, 2020)."""

    form: ClassVar[Form] = "positional"
    radius: Nonnegative

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of 0 where |t_i − s_j| < radius, else −∞."""
        lags = _lags(xs, ys)
        return jnp.where(jnp.abs(lags) < self.radius, jnp.zeros_like(lags), -jnp.inf)

    def radial(self) -> Radial:
        """k(r²) = 0 where r < radius, else −∞, of the positions."""

        def log_profile(squares: Array, dimension: int) -> Array:
            return jnp.where(squares < jnp.square(self.radius), jnp.zeros_like(squares), -jnp.inf)

        return Radial(log_profile, _query_times, _key_times, self.radius)

    def band(self) -> Band:
        """Lags between −radius and radius."""
        return Band(least=-self.radius, most=self.radius)


class Others(AbstractMatrixKernel):
    """K₂(t, s) = 0 where s = t, else 1: all tokens but the query's own.

    With the index of a sample as its position, a local mean under `kernel * Others()` is the leave-one-out prediction,
    and a token of a flow does not attend to itself.
    """

    form: ClassVar[Form] = "positional"

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of −∞ where s_j = t_i, else 0."""
        lags = _lags(xs, ys)
        return jnp.where(lags == 0, -jnp.inf, jnp.zeros_like(lags))


class PositionMatrix(AbstractMatrixKernel):
    """K₂(t, s) = exp log_table[t, s] for positions 0, 1, …: the weights of a graph, or any coupling of its nodes.

    The table may hold −∞, where there is no edge, and need not be symmetric; its rows are queries.
    """

    form: ClassVar[Form] = "positional"
    log_table: Float[Array, "a b"] = eqx.field(converter=as_log_table)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log_table[t_i, s_j]."""
        rows = rows_at(self.log_table, positions_of(xs, "query"), _WHOSE["query"])
        return rows_at(rows.T, positions_of(ys, "measure"), _WHOSE["measure"]).T


class Placed(AbstractView):
    """K₂(t, s) = kernel(place t, place s): a kernel of places that never move; row t of `places` is that of position t.

    In a flow points move, and positions do not. So where values f move on fixed x, the points of the flow are the
    values, and x is their place: `Placed(K₁, x) * K₂` is the self-localization kernel K₁(x, y) K₂(f(x), f(y)).
    Forms and facts are those of the kernel, of the places.
    """

    form: ClassVar[Form] = "positional"
    kernel: AbstractKernel
    places: Float[Array, "n p"]

    def __init__(self, kernel: AbstractKernel, places: Any):
        self.kernel = kernel
        self.places = as_float_array(places, "places")

    def __check_init__(self):
        if self.places.ndim != 2 or 0 in self.places.shape:
            raise ShapeError(f"Argument `places` must have one row a position, but has shape {self.places.shape}.")

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernel of the places."""
        return (self.kernel,)

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """Another kernel of the same places."""
        return Placed(parts[0], self.places)

    def query_view(self, sites: Any) -> Sites:
        """The queries at the places of their positions t."""
        return sites._replace(points=rows_at(self.places, positions_of(sites, "query"), _WHOSE["query"]))

    def key_view(self, sites: Any) -> Sites:
        """The points of the measure at the places of their positions s."""
        return sites._replace(points=rows_at(self.places, positions_of(sites, "measure"), _WHOSE["measure"]))

    def inverse_temperature(self) -> Float[Array, ""] | None:
        """None: the kernel does not change with the points."""
        return None


class Alibi(AbstractMatrixKernel):
    """K₂(t, s) = exp(−slope |t − s|): attention with linear biases; times `Causal()` for the usual form.

    Source: Press, Smith and Lewis, Train short, test long (2022), where head h of H has the slope 2^{−8h/H}.
    """

    form: ClassVar[Form] = "positional"
    slope: Nonnegative

    def __init__(self, slope: Any):
        self.slope = as_nonnegative(slope, "slope")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −slope |t_i − s_j|."""
        return -self.slope * jnp.abs(_lags(xs, ys))

    def radial(self) -> Radial:
        """k(r²) = −slope r, of the positions."""
        return Radial(lambda squares, dimension: -self.slope * safe_root(squares), _query_times, _key_times)

    def band(self) -> Band:
        """All lags, falling with the slope."""
        return Band(slope=self.slope)

    def vanishes(self) -> bool:
        """Never: an exponential is positive."""
        return False


class TimeGaussian(AbstractMatrixKernel):
    """K₂(t, s) = exp(−(t − s)² / (2 width²)): neighbours in time weigh most, with a soft end; past and future alike."""

    form: ClassVar[Form] = "positional"
    width: Nonnegative

    def __init__(self, width: Any):
        self.width = as_positive(width, "width")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −(t_i − s_j)² / (2 width²)."""
        return -0.5 * jnp.square(_lags(xs, ys) / self.width)

    def radial(self) -> Radial:
        """k(r²) = −r² / (2 width²), of the positions."""
        return Radial(
            lambda squares, _: -0.5 * squares / jnp.square(self.width),
            _query_times,
            _key_times,
            shape=lambda _: Shape("gaussian", 0.5**0.5 / self.width),
        )

    def bilinear(self) -> Bilinear:
        """θ = t/width², s = s, and −t²/(2 width²) as offsets of both sides: one column, of the positions."""

        def offset(times: Callable[[Any], Array]) -> Callable[[Any], Array]:
            return lambda sites: -0.5 * jnp.square(times(sites)[:, 0] / self.width)

        return Bilinear(
            lambda xs: _query_times(xs) / jnp.square(self.width), _key_times, offset(_query_times), offset(_key_times)
        )

    def vanishes(self) -> bool:
        """Never: an exponential is positive."""
        return False

    def inverse_temperature(self) -> Float[Array, ""]:
        """1/width², as for every kernel that has a width."""
        return 1 / jnp.square(self.width)


class AbstractEncoding(eqx.Module):
    """A vector p(t) for every position t, with as many coordinates as the points have."""

    @abc.abstractmethod
    def vectors(self, positions: Float[Array, " n"], dimension: int) -> Float[Array, "n d"]:
        """The encodings of some positions."""

    def __repr__(self) -> str:
        return shown(self)


class FiniteEncoding(AbstractEncoding):
    """An encoding of positions 0, …, longest − 1 alone, such as a table."""

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """The number of positions that have a vector."""


class Sinusoidal(AbstractEncoding):
    """p(t)_{2i} = scale · sin(t/base^{2i/d}), p(t)_{2i+1} = scale · cos(t/base^{2i/d}).

    Source: Vaswani et al., Attention is all you need (2017). ⟨p(t), p(s)⟩ depends on t − s alone when d is even.
    """

    scale: Nonnegative
    base: Nonnegative

    def __init__(self, scale: Any = 1.0, base: Any = 10000.0):
        self.scale = as_nonnegative(scale, "scale")
        self.base = as_positive(base, "base")

    def vectors(self, positions: Float[Array, " n"], dimension: int) -> Float[Array, "n d"]:
        """The sines and cosines, in turn."""
        index = jnp.arange(dimension)
        even = (index - index % 2).astype(positions.dtype)
        angles = positions[:, None] * jnp.exp(-even / dimension * jnp.log(self.base)).astype(positions.dtype)[None, :]
        return self.scale * jnp.where((index % 2 == 0)[None, :], jnp.sin(angles), jnp.cos(angles))


class PositionTable(FiniteEncoding):
    """p(t) from a table with one row a position, as a learned encoding is given."""

    table: Float[Array, "n d"]

    def __init__(self, table: Any):
        self.table = as_float_array(table, "table")

    def __check_init__(self):
        if self.table.ndim != 2:
            raise ShapeError(f"Argument `table` must be a matrix, but has shape {self.table.shape}.")

    @property
    def longest(self) -> int:
        """The number of rows of the table."""
        return self.table.shape[0]

    def vectors(self, positions: Float[Array, " n"], dimension: int) -> Float[Array, "n d"]:
        """The rows of the table."""
        if self.table.shape[1] != dimension:
            raise ShapeError(f"Argument `table` must have {dimension} columns, but has {self.table.shape[1]}.")
        return rows_at(self.table, positions, "The positions")


class Encoded(AbstractView):
    """kernel(x + p(t), y + p(s)): absolute position encodings are added to what the kernel sees, not to the values.

    Forms and facts are those of the kernel, seen through the shift x ↦ x + p(t).
    """

    kernel: AbstractKernel
    encoding: AbstractEncoding

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernel of the encoded points."""
        return (self.kernel,)

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """Another kernel of the same encoded points."""
        return Encoded(parts[0], self.encoding)

    def query_view(self, sites: Any) -> Sites:
        """The queries at x + p(t)."""
        return self._shifted(sites, "query")

    def key_view(self, sites: Any) -> Sites:
        """The points of the measure at y + p(s)."""
        return self._shifted(sites, "measure")

    def _shifted(self, sites: Any, role: str) -> Sites:
        points = points_of(sites)
        return sites._replace(points=points + self.encoding.vectors(positions_of(sites, role), points.shape[-1]))


def _lags(xs: Any, ys: Any) -> Float[Array, "m n"]:
    return positions_of(xs, "query")[:, None] - positions_of(ys, "measure")[None, :]


# Positions as points of one coordinate; one function for each role, so that all kernels of positions map sites alike.
def _query_times(sites: Any) -> Float[Array, "m 1"]:
    return positions_of(sites, "query")[:, None]


def _key_times(sites: Any) -> Float[Array, "n 1"]:
    return positions_of(sites, "measure")[:, None]
