"""Weighted point clouds: the measures that everything else sums over.

    μ = Σ_j w_j δ_{y_j},    each point y_j carrying a value z_j (itself, unless given) and, optionally,
                            a position s_j (token index, time) that never moves.

A point may have further numbers by name, its `fields`. No sum uses them; they belong to the motion of the point, such
as the norm of a residual stream whose direction the point is.

Weights live as logarithms. A point of weight zero (log-weight −∞) is allowed; a measure without mass is not. Integrals
are sums, ∫ f dμ = Σ_j w_j f(y_j), and for the empirical measure w_j = 1/n this is the mean over the tokens: the 1/n of
unnormalised attention and of every energy is a weight, never a constant in a formula.

A tilt e^{h} μ multiplies every weight by e^{h(y_j)}. A factor b(y) of a kernel, the potentials of Sinkhorn attention
and the base change of an exponential family are all tilts, so whatever can be computed for one kernel and any measure
can be computed for these.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, check_same_dtype, is_concrete, progression
from particleflow._support.representation import shown
from particleflow.errors import ArgumentError, DtypeError, ShapeError


class Sites(NamedTuple):
    """What a kernel may depend on: points, their positions in the sequence, the values they carry.

    The fields of one site are a vector, a scalar and a vector; of many, the same with a leading axis. Weights are not
    among them: a kernel cannot depend on the weight of a point.
    """

    points: Array
    positions: Array | None = None
    values: Array | None = None


class Measure(eqx.Module):
    """The measure Σ_j exp(log_weights_j) δ_{points_j}.

    Parameters: `points` (n, d); `log_weights` (n,); `values` (n,) or (n, k), left out when every point
    carries itself; `positions` (n,), left out when the kernel does not depend on them; `fields`, name -> (n, ...).
    """

    points: Float[Array, "n d"]
    log_weights: Float[Array, " n"]
    values: Float[Array, "n *k"] | None
    positions: Float[Array, " n"] | None
    fields: dict[str, Array]

    def __init__(
        self,
        points: Any,
        log_weights: Any,
        values: Any = None,
        positions: Any = None,
        fields: Mapping[str, Any] | None = None,
    ):
        self.points = as_float_array(points, "points")
        self.log_weights = as_float_array(log_weights, "log_weights", finite=False)
        self.values = None if values is None else as_float_array(values, "values")
        self.positions = None if positions is None else as_float_array(positions, "positions")
        self.fields = {name: as_float_array(array, f"fields.{name}") for name, array in (fields or {}).items()}

    def __check_init__(self):
        if self.points.ndim != 2 or 0 in self.points.shape:
            raise ShapeError(f"Argument `points` must have shape (n, d) with n, d ≥ 1, but has {self.points.shape}.")
        for name in ("log_weights", "positions"):
            array = getattr(self, name)
            if array is not None and array.shape != (self.count,):
                raise ShapeError(
                    f"Argument `{name}` must have shape ({self.count},), one number a point, but has {array.shape}."
                )
        if self.values is not None and (self.values.ndim not in (1, 2) or self.values.shape[0] != self.count):
            raise ShapeError(
                f"Argument `values` must have shape ({self.count},) or ({self.count}, k), but has {self.values.shape}."
            )
        for name, array in self.fields.items():
            if array.shape[:1] != (self.count,):
                raise ShapeError(
                    f"Argument `fields.{name}` must hold one entry for each of the {self.count} points, "
                    f"but has shape {array.shape}."
                )
        check_same_dtype(
            points=self.points,
            log_weights=self.log_weights,
            values=self.values,
            positions=self.positions,
            **self.fields,
        )
        if is_concrete(self.log_weights) and np.all(np.isneginf(np.asarray(self.log_weights))):
            raise ArgumentError("Argument `log_weights` gives the measure no mass: every weight is zero.")

    @staticmethod
    def uniform(points: Any, values: Any = None, positions: Any = None) -> "Measure":
        """The empirical measure (1/n) Σ_j δ_{points_j}.

        Parameters: `points` (n, d); `values` (n,) or (n, k) and `positions` (n,) as for `Measure`.
        """
        points = as_float_array(points, "points")
        if points.ndim != 2 or 0 in points.shape:
            raise ShapeError(f"Argument `points` must have shape (n, d) with n, d ≥ 1, but has {points.shape}.")
        count = points.shape[0]
        return Measure(points, progression(-np.log(count), 0.0, count, points.dtype), values, positions)

    @staticmethod
    def weighted(points: Any, weights: Any, values: Any = None, positions: Any = None) -> "Measure":
        """The measure Σ_j weights_j δ_{points_j}; weights must not be negative nor all zero."""
        weights = as_float_array(weights, "weights")
        if is_concrete(weights):
            numbers = np.asarray(weights)
            if (numbers < 0).any():
                place = int(np.argmax(numbers < 0))
                raise ArgumentError(
                    f"Argument `weights` must not be negative, but holds {numbers.ravel()[place]} at index {place}."
                )
            if numbers.size and not numbers.any():
                raise ArgumentError("Argument `weights` gives the measure no mass: every weight is zero.")
        positive = weights > 0
        log_weights = jnp.where(positive, jnp.log(jax.lax.select(positive, weights, jnp.ones_like(weights))), -jnp.inf)
        return Measure(points, log_weights, values, positions)

    @staticmethod
    def of_symbols(symbols: Any, values: Any = None, positions: Any = None, dtype: Any = float) -> "Measure":
        """The empirical measure of letters of an alphabet, each letter a point whose one coordinate is its index."""
        indices = np.asarray(symbols)
        if indices.ndim != 1 or indices.size == 0:
            raise ShapeError(f"Argument `symbols` must be a list of letter indices, but has shape {indices.shape}.")
        if not np.issubdtype(indices.dtype, np.integer):
            raise DtypeError(f"Argument `symbols` must hold letter indices (integers), but has dtype {indices.dtype}.")
        return Measure.uniform(jnp.asarray(indices[:, None], dtype), values, positions)

    @property
    def count(self) -> int:
        """The number n of points, those of weight zero included."""
        return self.points.shape[0]

    @property
    def dimension(self) -> int:
        """The dimension d of the points."""
        return self.points.shape[1]

    @property
    def carried(self) -> Array:
        """What the points carry: their values, or themselves."""
        return self.points if self.values is None else self.values

    @property
    def sites(self) -> Sites:
        """The points with their positions and values, as kernels take them."""
        return Sites(self.points, self.positions, self.carried)

    @property
    def log_mass(self) -> Float[Array, ""]:
        """log μ(everything) = log Σ_j w_j, 0 for a probability measure."""
        return jax.nn.logsumexp(self.log_weights)

    def normalised(self) -> "Measure":
        """The probability measure μ / μ(everything)."""
        return self.with_log_weights(self.log_weights - self.log_mass)

    def tilted(self, log_density: Float[Array, " n"]) -> "Measure":
        """The measure e^{h} μ for a log-density h given at the points, (n,); it may be −∞, which removes a point."""
        log_density = as_float_array(log_density, "log_density", finite=False)
        if log_density.shape != (self.count,):
            raise ShapeError(f"Argument `log_density` must have shape ({self.count},), but has {log_density.shape}.")
        check_same_dtype(log_density=log_density, points=self.points)
        return self.with_log_weights(self.log_weights + log_density)

    def with_log_weights(self, log_weights: Array) -> "Measure":
        """The same points with other log-weights (n,)."""
        return Measure(self.points, log_weights, self.values, self.positions, self.fields)

    def with_points(self, points: Array) -> "Measure":
        """The same weights, values, positions and fields on moved points."""
        return Measure(points, self.log_weights, self.values, self.positions, self.fields)

    def with_values(self, values: Array | None) -> "Measure":
        """The same points carrying other values (n,) or (n, k); themselves, for None."""
        return Measure(self.points, self.log_weights, values, self.positions, self.fields)

    def with_positions(self, positions: Array) -> "Measure":
        """The same points at other positions of the sequence."""
        return Measure(self.points, self.log_weights, self.values, positions, self.fields)

    def with_fields(self, fields: Mapping[str, Any]) -> "Measure":
        """The same points with other numbers by name, in place of those they had.

        The geometry gives them their meaning: `residual_norm` of a pre-norm flow, for example.
        """
        return Measure(self.points, self.log_weights, self.values, self.positions, fields)

    def concatenated(self, other: "Measure") -> "Measure":
        """The sum μ + ν, as one cloud: points of the first measure, then those of the second.

        If one of them carries values, the points of the other carry themselves. Both must have the same fields, and
        positions or none.
        """
        if self.dimension != other.dimension:
            raise ShapeError(f"Measures of dimension {self.dimension} and {other.dimension} cannot be added.")
        if (self.positions is None) != (other.positions is None):
            raise ArgumentError("Both measures must have `positions`, or neither, but only one has.")
        if self.fields.keys() != other.fields.keys():
            raise ArgumentError(
                f"Both measures must have the same fields, but have {sorted(self.fields)} and {sorted(other.fields)}."
            )
        check_same_dtype(points=self.points, other_points=other.points)
        positions = None if self.positions is None or other.positions is None else [self.positions, other.positions]
        keeps_values = self.values is not None or other.values is not None
        return Measure(
            jnp.concatenate([self.points, other.points]),
            jnp.concatenate([self.log_weights, other.log_weights]),
            _joined(self.carried, other.carried) if keeps_values else None,
            None if positions is None else jnp.concatenate(positions),
            {name: _joined(array, other.fields[name]) for name, array in self.fields.items()},
        )

    def __repr__(self) -> str:
        return shown(self)


def _joined(first: Array, second: Array) -> Array:
    """Rows of the first array, then those of the second, which must have the same shape."""
    if first.shape[1:] != second.shape[1:]:
        raise ShapeError(f"Values of shape {first.shape[1:]} and {second.shape[1:]} cannot be joined.")
    return jnp.concatenate([first, second])
