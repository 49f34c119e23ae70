"""How moments are summed, apart from what is summed.

A summation takes any kernel and any measure and returns, for every query x,

    G(x) = log Σ_j w_j K(x, y_j),    m(x) = Σ_j w_j K(x, y_j) z_j / Σ_j w_j K(x, y_j).

It says what it would do before it does it: `select` answers with a `Choice`. `promise` is the same question asked by
`Auto`, with limits that the answer must keep; a summation that cannot keep them, or does not fit the kernel's forms,
answers None and is passed over. So a new summation is one class, and one line in the list of candidates of `auto`.
A promise takes sums and programs of its own, so that nobody is asked for one who would be dearer than another, by the
least that it costs or by a glance at the points.
An approximation promises something for the points it is shown (their extent, their weights), not for their number
alone; where they are traced `Auto` allows none. What it would sum with (how many modes, features, cells) is settled in
the summation that its choice names, so that compiled code knows it.

Errors are those of the mean, relative to max |z|, and of the log-mass, absolute. An exact summation has error 0, which
means nothing beyond rounding.

What a causal mask hides from a query changes no bit of an exact sum (`Dense`, `Blockwise`, `Native`, `Separated`, and
`Auto` without a tolerance): it enters as a zero, and every query's shift and precision are chosen by what it sees, not
by all points. Approximations and random batches do not promise this: they look at all points before they sum. Without
a mask `Native` has one bound for all queries, and rows are independent to the last bit with `Dense` and `Blockwise`.
"""

import abc
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Int

from particleflow._arrays import as_float_array, check_same_dtype, strong_dtype_leaves
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.moments import Moments

_EXPONENTIAL = 14  # what an exponential costs, in multiply-adds


class Limits(NamedTuple):
    """What a promise has to keep: the error that is allowed (None: no approximation), and the bytes of one matrix."""

    tolerance: float | None
    dense_bytes: int


class Choice(NamedTuple):
    """A summation, the reason it was chosen, the error it promises (0: exact up to rounding), and what it costs.

    The cost is in pairs: those that native code sums, in three dimensions, in the same time.
    """

    summation: "AbstractSummation"
    reason: str
    error: float = 0.0
    cost: float = 0.0

    def __str__(self) -> str:
        return f"{type(self.summation).__name__}: {self.reason}"


class AbstractSummation(eqx.Module):
    """A way to evaluate moments; `relative_time` is what a pair takes, roughly, in times of what native code takes."""

    relative_time: ClassVar[float] = 3.0

    def pairs(self, measure: Measure, queries: Sites) -> float:
        """The cost of a sum over all pairs: each takes some operations a coordinate and value, and an exponential."""
        columns = value_columns(measure).shape[1]
        each = (measure.dimension + columns + _EXPONENTIAL) / (6 + _EXPONENTIAL)
        return self.relative_time * each * queries.points.shape[0] * measure.count

    @abc.abstractmethod
    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each of `queries` (an array (m, d), or `Sites`).

        `values` (n,) or (n, k) are summed in place of those that the measure carries; the kernel still sees the
        measure's own.
        """

    def select(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Choice:
        """What sums these, and why."""
        return next(self.choices(kernel, measure, queries))

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """What could sum these, the best first: itself alone, unless it chooses among others."""
        yield Choice(self, "as asked", cost=self.pairs(measure, as_query_sites(queries)))

    def exactly(self) -> "AbstractSummation":
        """The same without the approximations that it may choose."""
        return self

    def allowed_error(self) -> float | None:
        """The error that this summation may make by the wish of its user; None where nothing was said of errors."""
        return None

    def leaves_open(self) -> bool:
        """Whether its user has left open how sums are taken, so that another exact sum may take its place."""
        return False

    def tightened(self, factor: float) -> "AbstractSummation":
        """The same with `factor` times less error allowed, for what multiplies the errors of its sums."""
        return self

    def promise(self, kernel: AbstractKernel, measure: Measure, queries: Sites, limits: Limits) -> Choice | None:
        """What this summation promises for these within some limits, known from shapes and forms; None: nothing."""
        return None

    def least_cost(self, kernel: AbstractKernel, measure: Measure, queries: Sites, limits: Limits) -> float:
        """What `promise` would cost at least, in pairs, known from shapes and forms; ∞: there will be none."""
        return 0.0

    def likely_cost(self, kernel: AbstractKernel, measure: Measure, queries: Sites, limits: Limits) -> float:
        """What `promise` will cost, as far as a glance at the points tells; the least, where none is taken."""
        return self.least_cost(kernel, measure, queries, limits)

    def obstacle(self, kernel: AbstractKernel, measure: Measure) -> str | None:
        """Why this summation cannot be used for these on this machine, None if it can: a choice tells it."""
        return None

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points y drawn ∝ K(x, y) dμ(y), independently for each query; −1 where a query sees nothing."""
        raise ArgumentError(
            f"The summation {type(self).__name__} knows sums only and cannot draw points; use `Dense` or `Blockwise`."
        )


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
