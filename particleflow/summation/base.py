"""How moments are summed, apart from what is summed.

A summation takes any kernel and any measure and returns, for every query x,

    G(x) = log Σ_j w_j K(x, y_j),    m(x) = Σ_j w_j K(x, y_j) z_j / Σ_j w_j K(x, y_j).

A new summation defines `moments`; the rest follows. `select` and `choices` say how sums would be made before they are
made, as `Choice`s. Further abilities are classes that some summations inherit as well:

    Candidate           `Auto` may choose it: it promises an error and a cost for given points (`candidates`)
    Approximation       a candidate whose cost can be bounded before its error is (`candidates`)
    NeedsSettings       its settings depend on the points, which compiled code cannot look at
    LeavesChoiceOpen    it chooses among others, within an error that its user allows
    DrawsPoints         it draws points y ∝ K(x, y) dμ(y) (`sampling`)

Errors are those of the mean, relative to max |z|, and of the log-mass, absolute. An exact summation has error 0, which
means nothing beyond rounding.

What a causal mask hides from a query changes no bit of an exact sum (`Dense`, `Blockwise`, `Native`, `Separated`, and
`Auto` without a tolerance): it enters as a zero, and every query's shift and precision are chosen by what it sees, not
by all points. Approximations and random batches do not promise this: their settings depend on all points. Without a
mask `Native` has one bound for all queries, and rows are independent to the last bit with `Dense` and `Blockwise`.
"""

import abc
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array

from particleflow._support.arrays import as_float_array, check_same_dtype, strong_dtype_leaves
from particleflow.errors import ShapeError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.moments import Moments

# The time that a pair takes, relative to native code: for plans and choices. All numbers of costs are fixed ones,
# fitted to processor time (`tests/benchmarks/sum_costs.py`): a resumed run makes the choices of an uninterrupted one.
NATIVE_TIME, XLA_TIME = 1.0, 3.0
_EXPONENTIAL_OPERATIONS = 12  # what an exponential costs, in multiply-adds
_OPERATIONS_IN_SPACE = 6  # multiply-adds of a pair in three dimensions with three values
_DISTANCE_OPERATIONS, _OPERATIONS_A_DIFFERENCE = 2.0, 0.5  # more than an inner product, and that for each coordinate
_CURVE_OPERATIONS = {"exponential": 12.0, "power": 20.0, "inverse": 20.0}  # a root; a logarithm


class Limits(NamedTuple):
    """The limits of a promise: the error that is allowed (None: no approximation), and the bytes of one matrix."""

    tolerance: float | None
    dense_bytes: int


class Choice(NamedTuple):
    """A summation, the reason it was chosen, the error it promises (0: exact up to rounding), and what it costs.

    The cost is in native pairs: the number of pairs in three dimensions that native code sums in the same time.
    """

    summation: "AbstractSummation"
    reason: str
    error: float = 0.0
    cost: float = 0.0

    def __str__(self) -> str:
        return f"{type(self.summation).__name__}: {self.reason}"


class AbstractSummation(eqx.Module):
    """A way to evaluate moments: how any kernel is summed over any measure."""

    @abc.abstractmethod
    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each of `queries` (an array (m, d), or `Sites`).

        `values` (n,) or (n, k) are summed in place of those that the measure carries; the kernel still sees the
        measure's own.
        """

    def select(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Choice:
        """The summation that would sum exactly these points, and why."""
        return next(self.choices(kernel, measure, queries))

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """The summations that could sum these points, the best first: itself alone, unless it chooses among others.

        Each is found when it is taken from the iterator, so that the second best costs nothing where the best is used.
        """
        yield Choice(self, "as asked", cost=cost_of_pairs(measure, as_query_sites(queries)))


class LeavesChoiceOpen(AbstractSummation):
    """A summation whose user has left open how sums are taken: any exact sum is as good, or one of a small error."""

    @abc.abstractmethod
    def allowed_error(self) -> float | None:
        """The error that its sums may have; None where no tolerance was given, and sums are exact."""

    @abc.abstractmethod
    def exactly(self) -> AbstractSummation:
        """The same without the approximations that it may choose."""

    @abc.abstractmethod
    def tightened(self, factor: float) -> AbstractSummation:
        """The same with `factor` times less error allowed, for callers that multiply the errors of its sums."""


class NeedsSettings(AbstractSummation):
    """A summation whose settings depend on the points: compiled code, which cannot look at them, takes usual ones."""

    @abc.abstractmethod
    def select(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Choice:
        """Itself with its settings for these points, if they are known."""

    @abc.abstractmethod
    def diagnose(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> str | None:
        """How many of these queries the settings of compiled code cannot serve, in sentences; None for none."""


def allowed_error(summation: AbstractSummation) -> float | None:
    """The error that a summation is allowed by its user; None where no tolerance was given."""
    return summation.allowed_error() if isinstance(summation, LeavesChoiceOpen) else None


def exactly(summation: AbstractSummation) -> AbstractSummation:
    """A summation without the approximations that it may choose."""
    return summation.exactly() if isinstance(summation, LeavesChoiceOpen) else summation


def tightened(summation: AbstractSummation, factor: float) -> AbstractSummation:
    """A summation with `factor` times less error allowed, if it may choose one."""
    return summation.tightened(factor) if isinstance(summation, LeavesChoiceOpen) else summation


def cost_of_pairs(measure: Measure, queries: Sites, time: float = XLA_TIME, curve: str | None = None) -> float:
    """The cost of a sum over all pairs, in native pairs of three dimensions.

    A pair takes a multiply-add a coordinate and a value column, an exponential, and what a `curve` of distances takes,
    each `time` times as long as in native code.
    """
    each = cost_of_pair(measure.dimension, value_columns(measure).shape[1], curve)
    return time * each * queries.points.shape[0] * measure.count


def cost_of_pair(dimension: int, columns: int, curve: str | None) -> float:
    """The cost of one pair of an inner product (None) or a curve of a distance, in native pairs of three dimensions."""
    operations = dimension + columns + _EXPONENTIAL_OPERATIONS
    if curve is not None:
        operations += _DISTANCE_OPERATIONS + _OPERATIONS_A_DIFFERENCE * dimension + _CURVE_OPERATIONS.get(curve, 0.0)
    return operations / (_OPERATIONS_IN_SPACE + _EXPONENTIAL_OPERATIONS)


def as_query_sites(queries: Any) -> Sites:
    """Queries as sites with a leading axis; an array is points without positions."""
    if isinstance(queries, Measure):
        return queries.sites
    sites = queries if isinstance(queries, Sites) else Sites(queries)
    points = as_float_array(sites.points, "queries")
    if points.ndim != 2 or points.shape[1] == 0:
        raise ShapeError(f"Argument `queries` must have shape (m, d), but has {points.shape}.")
    count = points.shape[0]
    positions, values = (
        None if array is None else as_float_array(array, f"queries.{name}")
        for name, array in (("positions", sites.positions), ("values", sites.values))
    )
    if positions is not None and positions.shape != (count,):
        raise ShapeError(
            f"Argument `queries.positions` must have shape ({count},), one number a query, but has {positions.shape}."
        )
    if values is not None and (values.ndim not in (1, 2) or values.shape[0] != count):
        raise ShapeError(
            f"Argument `queries.values` must have shape ({count},) or ({count}, k), but has {values.shape}."
        )
    return Sites(points, positions, values)


def lifted(site: Sites) -> Sites:
    """One site as an array of sites, with a leading axis of one."""
    return jax.tree_util.tree_map(lambda leaf: leaf[None], site)


def check_precision(kernel: AbstractKernel, measure: Measure, queries: Sites) -> None:
    """Raise if kernel, measure and queries do not share one precision."""
    inside_kernel = {f"kernel.{path}": leaf for path, leaf in strong_dtype_leaves(kernel).items()}
    inside_queries = {f"queries.{name}": getattr(queries, name) for name in ("positions", "values")}
    check_same_dtype(points=measure.points, queries=queries.points, **inside_queries, **inside_kernel)


def value_columns(measure: Measure, values: Any = None) -> Array:
    """What is summed, as a matrix with one row a point: the given values, or else those that the measure carries."""
    if values is None:
        summed = measure.carried
    else:
        summed = as_float_array(values, "values")
        if summed.ndim not in (1, 2) or summed.shape[0] != measure.count:
            raise ShapeError(
                f"Argument `values` must have shape ({measure.count},) or ({measure.count}, k), but has {summed.shape}."
            )
        check_same_dtype(points=measure.points, values=summed)
    return summed[:, None] if summed.ndim == 1 else summed


def logits_of(kernel: AbstractKernel, queries: Sites, sources: Sites, log_weights: Array) -> Array:
    """The matrix log K(x_i, y_j) + log w_j, checked for its shape."""
    logits = kernel.log_matrix(queries, sources)
    expected = (queries.points.shape[0], sources.points.shape[0])
    if logits.shape != expected:
        raise ShapeError(
            f"The kernel {type(kernel).__name__} must return shape {expected}, but returned {logits.shape}."
        )
    return logits + log_weights[None, :]
