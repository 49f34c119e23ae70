"""Far cells through polynomials: slowly decaying kernels in near-linear time, to a relative error of every pair.

    K(x, y) = (|x − y|² + s²)^{−p}

Cubes of points that lie two sides or more apart interact through a polynomial of the kernel, of the least total degree
whose error, relative to the kernel, is small enough anywhere between the two cubes (black-box fast multipole methods:
Fong and Darve 2009; here with moments of total degree, as Cartesian expansions have). Nearer pairs are summed one by
one. Masses are sums of positive terms. If every term is right to a relative ε, then, for any points and weights,

    |G' − G| ≤ ε/(1 − ε),    |m' − m| ≤ ε/(1 − ε) max |z − m| ≤ 2ε/(1 − ε) max |z|.

So the tolerance is kept for clusters, outliers, copies of points and weights of any size; only the cost is theirs.
"""

from collections.abc import Iterator
from math import ceil, comb, log10, sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel, check_same_dimension
from particleflow.kernels.forms import PowerLaw, Radial
from particleflow.measure import Measure
from particleflow.summation.base import XLA_TIME, Choice, Limits, cost_of_pairs, value_columns
from particleflow.summation.candidates import Approximation
from particleflow.summation.moments import Moments, Sums, finite_maximum
from particleflow.summation.native.far_sums import far_sums
from particleflow.summation.prepared import PreparedSum, prepare

_MOST_DIMENSIONS = 3
_SHARE = 0.45  # of the tolerance that a pair may err by: twice as much is the bound of the mean
_LEAST_ERROR = 1e-13  # rounding in double precision
# Of plans: the degrees that a decimal digit takes in one, two and three dimensions, as measured for powers from 1/2 to
# 5/2, and what native operations take in native pairs: a call, sorting a point, a product, moving a number.
_DEGREES_A_DIGIT = {1: 2.1, 2: 3.2, 3: 4.2}
_PAIRS_A_CALL, _PAIRS_A_POINT, _PAIRS_A_PRODUCT, _PAIRS_A_NUMBER = 1e6, 300.0, 0.03, 1.5
_USUAL_POWER = 1.0  # where it is not known
# In space expansions of most pairs of cells are shorter, and near pairs cheaper. With this factor stated ÷ measured is
# .7 to 1.2 of 10⁵ points at 1e-2 to 1e-6 (1/r: 1.0 to 1.2), in the plane, where there is none, .8 to 1.2.
_MEASURED = {1: 1.0, 2: 1.0, 3: 0.2}
# Where nearly all pairs are near: their time beside that of the exact sum, and tables of the polynomial for each term.
_NEAR_TIME, _PAIRS_A_TERM = 0.55, 6e3


class Tree(Approximation):
    """Cells of an adaptive tree: near pairs one by one, far cells through polynomials that keep a relative error.

    Kernels: powers of a softened distance (`InverseDistance`, `Cauchy`, `StudentT`) of points, or of maps of them, in
    at most three dimensions; others are refused. First derivatives, forward and backward, take near-linear time, too;
    they are those of the polynomials, with an error that is not bounded. Without a native library, and without 64 bits,
    all pairs are summed by XLA.

    A query on a source is summed as the kernel says. `InverseDistance` without softening is infinite there: the mean is
    the value of the point, and the log-mass is some large number, which no tolerance holds for.

    Parameters: `tolerance`, the largest error of the mean (relative to max |z|) and of the log-mass (absolute).
    """

    tolerance: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self):
        given = self.tolerance
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not (is_number and 0 < given < 1):
            raise ArgumentError(f"Argument `tolerance` must be a number between 0 and 1, but is {given!r}.")

    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """The moments by native code or, without it, over all pairs by XLA."""
        form = _form_of(prepared)
        measure, queries = prepared.measure, prepared.queries
        columns = value_columns(measure, values)
        if queries.points.shape[0] == 0:
            return Moments.nothing(0, columns.shape[1], columns.dtype)
        ours, theirs = form.query_map(queries), form.key_map(measure.sites)
        check_same_dimension(ours, theirs)
        law = form.power_law(theirs.shape[1])
        assert law is not None
        wide = jnp.float64 if jax.config.read("jax_enable_x64") else columns.dtype
        fixed = jax.lax.stop_gradient(columns)
        middle = 0.5 * (jnp.max(fixed, axis=0) + jnp.min(fixed, axis=0))
        shift = finite_maximum(measure.log_weights)
        weights = jnp.exp(measure.log_weights - shift)
        charges = weights[:, None] * jnp.pad(columns - middle[None], ((0, 0), (0, 1)), constant_values=1.0)
        x, y, c, numbers = (each.astype(wide) for each in (ours, theirs, charges, _numbers(law)))
        sums = far_sums(x, y, c, numbers, max(_SHARE * self.tolerance, _LEAST_ERROR), self._library(prepared))
        highest = (shift + jnp.asarray(law.log_factor, columns.dtype)).astype(wide)
        found = Sums(jnp.broadcast_to(highest, sums.shape[:1]), sums).moments()
        return Moments(found.log_mass.astype(columns.dtype), middle[None] + found.mean.astype(columns.dtype))

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself, and whether it is native code; a kernel it cannot sum is refused."""
        prepared = prepare(kernel, measure, queries)
        _form_of(prepared)
        if self._library(prepared):
            yield Choice(self, "as asked", cost=self._cost(prepared))
        else:
            reason = f"as asked, over all pairs by XLA: no native sum: {prepared.library.reason}"
            yield Choice(self, reason, cost=cost_of_pairs(measure, prepared.queries, XLA_TIME))

    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice | None:
        """The tolerance, which is kept for any points; None where there is no native code for the kernel."""
        if limits.tolerance is None or obstacle(prepared) is not None or not self._library(prepared):
            return None
        if prepared.queries.points.shape[0] == 0:
            return None
        settled = Tree(min(float(limits.tolerance), 0.5))
        counts = f"{prepared.queries.points.shape[0]} × {prepared.measure.count}"
        reason = f"near cells of {counts} pairs one by one, far ones through polynomials"
        return Choice(settled, reason, settled.tolerance, settled._cost(prepared))

    def cost_bounds(self, prepared: PreparedSum, limits: Limits) -> Iterator[float]:
        """The cost of usual clouds, which depends on shapes alone."""
        if limits.tolerance is None or obstacle(prepared) is not None:
            yield float("inf")
        else:
            yield Tree(min(float(limits.tolerance), 0.5))._cost(prepared)

    def _library(self, prepared: PreparedSum) -> str:
        """The key of the native library; nothing where there is none, or no double precision."""
        usable = prepared.library.path is not None and jax.config.read("jax_enable_x64")
        return prepared.library.key if usable else ""

    def _cost(self, prepared: PreparedSum) -> float:
        """What near pairs and translations take where both take as much, or all pairs one by one, in native pairs."""
        points = prepared.queries.points.shape[0] + prepared.measure.count
        dimension = _form_of(prepared).key_map(prepared.measure.sites).shape[1]
        columns = value_columns(prepared.measure).shape[1] + 1
        digits = log10(1 / (_SHARE * self.tolerance)) + 2 * _USUAL_POWER - 1
        order = ceil(_DEGREES_A_DIGIT[dimension] * digits)
        terms = comb(order + dimension, dimension)
        products = 0.3 * comb(order + 2 * dimension, 2 * dimension)  # of pairs of cells on average, not of the nearest
        translation = columns * (_PAIRS_A_PRODUCT * products + _PAIRS_A_NUMBER * terms)
        near = _MEASURED[dimension] * 3**dimension * sqrt((2**dimension - 1) * translation)
        far_and_near = points * (_PAIRS_A_POINT + near + 0.5 * columns * terms)
        all_pairs = cost_of_pairs(prepared.measure, prepared.queries, _NEAR_TIME, "power")
        return _PAIRS_A_CALL + min(far_and_near, _PAIRS_A_TERM * terms + all_pairs)


def obstacle(prepared: PreparedSum) -> str | None:
    """Why a tree cannot sum the kernel, as a sentence; None if it can."""
    form = _power_form(prepared.kernel)
    if form is None:
        return "it must be a power of a softened distance (InverseDistance, Cauchy, StudentT), and nothing else"
    dimension = eqx.filter_eval_shape(form.key_map, prepared.measure.sites).shape[1]
    if form.power_law(dimension) is None:
        return "it must be a power of a softened distance (InverseDistance, Cauchy, StudentT), and nothing else"
    if not 1 <= dimension <= _MOST_DIMENSIONS:
        return f"its distance must have at most {_MOST_DIMENSIONS} coordinates, but has {dimension}"
    return None


def _power_form(kernel: AbstractKernel) -> Radial | None:
    factors = kernel.factors()
    return factors[0].radial() if len(factors) == 1 else None


def _form_of(prepared: PreparedSum) -> Radial:
    """The form of the kernel; a kernel that a tree cannot sum is refused."""
    reason = obstacle(prepared)
    if reason is not None:
        raise ArgumentError(
            f"The summation Tree cannot sum the kernel {type(prepared.kernel).__name__}: {reason}; `Auto` finds a sum "
            "that can."
        )
    form = _power_form(prepared.kernel)
    assert form is not None
    return form


def _numbers(law: PowerLaw) -> Array:
    """(p, s²)."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    return jnp.stack([jnp.asarray(law.power, dtype), jnp.square(jnp.asarray(law.softening, dtype))])
