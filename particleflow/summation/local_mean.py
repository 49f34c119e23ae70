"""The one operator, and what is read from it.

    G(x) = log ∫ K(x, y) dμ(y),    m(x) = ∫ K(x, y) z(y) dμ(y) / ∫ K(x, y) dμ(y)

Queries are an array (m, d), one point (d,), `Sites` with positions or values of their own, or a measure, whose points
are the queries then. For a single point the result has no leading axis.

With targets as values, m is the regression of Nadaraya (1964) and Watson (1964); with tokens as values and an attention
kernel it is the output of attention. Every reading below is summed by the `summation` it is given, by `Auto` if there
is none.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, is_concrete
from particleflow.errors import ArgumentError, ShapeError, check_kind, whole_number
from particleflow.kernels.base import AbstractKernel, AbstractMatrixKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation, as_query_sites, lifted, logits_of, value_columns
from particleflow.summation.moments import Moments
from particleflow.summation.sampling import check_draws


def local_moments(
    kernel: AbstractKernel, measure: Measure, queries: Any, *, summation: AbstractSummation | None = None
) -> Moments:
    """The log-mass G and the local mean m at every query.

    Parameters: `kernel` K; `measure` μ with its values z; `queries` x, points (m, d), one point (d,), `Sites` or a
    measure; `summation`, how it is summed, by `Auto()` if left out.
    """
    kernel = bound(kernel, measure)
    sites, single = as_sites(queries)
    moments = (summation or Auto()).moments(kernel, measure, sites)
    mean = moments.mean[:, 0] if measure.carried.ndim == 1 else moments.mean
    return Moments(moments.log_mass[0], mean[0]) if single else Moments(moments.log_mass, mean)


def local_mean(
    kernel: AbstractKernel, measure: Measure, queries: Any, *, summation: AbstractSummation | None = None
) -> Array:
    """m(x) = ∫ K(x, y) z(y) dμ(y) / ∫ K(x, y) dμ(y); 0 where a query sees nothing.

    Parameters: `kernel` K; `measure` μ with its values z; `queries` x, points (m, d), one point (d,), `Sites` or a
    measure; `summation`, how it is summed, by `Auto()` if left out.
    """
    return local_moments(kernel, measure, queries, summation=summation).mean


def attention_weights(
    kernel: AbstractKernel, measure: Measure, queries: Any, *, summation: AbstractSummation | None = None
) -> Float[Array, "m n"]:
    """w_ij = K(x_i, y_j) μ_j / ∫ K(x_i, y) dμ(y): how much of query i goes to point j; m = Σ_j w_ij z_j.

    Rows sum to one; a query that sees nothing has a row of zeros. All m × n of them are stored.
    Parameters: `kernel`, `measure`, `queries` and `summation` as for `local_mean`.
    """
    _check(kernel, measure)
    sites, single = as_sites(queries)
    logits = Normalised(kernel, measure, summation or Auto()).log_matrix(sites, measure.sites)
    weights = jnp.exp(logits + measure.log_weights[None, :])
    return weights[0] if single else weights


def log_normalizer(
    kernel: AbstractKernel, measure: Measure, queries: Any, *, summation: AbstractSummation | None = None
) -> Array:
    """G(x) = log ∫ K(x, y) dμ(y); −∞ where a query sees nothing.

    Parameters: `kernel` K; `measure` μ with its values z; `queries` x, points (m, d), one point (d,), `Sites` or a
    measure; `summation`, how it is summed, by `Auto()` if left out.
    """
    return local_moments(kernel, measure, queries, summation=summation).log_mass


def local_mode(
    kernel: AbstractKernel, measure: Measure, queries: Any, *, summation: AbstractSummation | None = None
) -> Array:
    """argmax_k m_k(x) for a measure whose values are class probabilities or one-hot vectors; ties go to the first.

    A query that sees nothing gets class 0; its log-mass (`log_normalizer`) is −∞.

    Parameters: `kernel` K; `measure` μ with values (n, classes), refused where they are no probabilities (negative, or
    not summing to one; inside `jit` that is not checked); `queries` x and `summation` as for `local_mean`.
    """
    _check(kernel, measure)
    _check_classes(measure.carried)
    return jnp.argmax(local_mean(kernel, measure, queries, summation=summation), axis=-1)


def local_expectation(
    kernel: AbstractKernel,
    measure: Measure,
    queries: Any,
    function: Callable[[Array, Array, Array], Array],
    *,
    summation: AbstractSummation | None = None,
) -> Array:
    """∫ K(x, y) f(x, y, z(y)) dμ(y) / ∫ K(x, y) dμ(y): the local mean of values that depend on the query.

    With f = (1, y − x, …)(1, y − x, …)ᵀ these are the normal equations of local polynomials, with f = l(y, θ(x)) it is
    a local loss. 0 where a query sees nothing. Queries take turns, each with n values of f.
    Parameters: a `function` of a query's point, a point of the measure and its value, which returns an array of one
    shape; `kernel`, `measure`, `queries` and `summation` as for `local_mean`.
    """
    kernel = bound(kernel, measure)
    sites, single = as_sites(queries)

    def values_at(site: Sites) -> Array:
        return jax.vmap(partial(function, site.points))(measure.points, measure.carried)

    found = _expectations(kernel, measure, summation or Auto(), sites, sites, values_at)
    return found[0] if single else found


def local_query(
    kernel: AbstractKernel, measure: Measure, queries: Any, operator: Callable[[Array, Array], Array]
) -> Array:
    """T({K(x, y_j) w_j}_j, {z_j}_j) for any operator T: a function of all points' values and how well they match.

    For T(K, z) = Σ_j K_j z_j / Σ_j K_j it is the local mean; a median, a maximum and the max–min rule of Mamdani's
    fuzzy inference are other operators. Queries take turns, each with n matches.
    Parameters: an `operator` of matches (n,) and values, which returns an array of one shape; `kernel`, `measure` and
    `queries` as for `local_mean`.
    """
    kernel = bound(kernel, measure)
    sites, single = as_sites(queries)

    def at_one(site: Sites) -> Array:
        logits = logits_of(kernel, lifted(site), measure.sites, measure.log_weights)[0]
        return operator(jnp.exp(logits), measure.carried)

    found = jax.lax.map(at_one, sites)
    return found[0] if single else found


def local_covariance(
    kernel: AbstractKernel, measure: Measure, queries: Any, *, summation: AbstractSummation | None = None
) -> Array:
    """∫ K(x, y) (z(y) − m(x))(z(y) − m(x))ᵀ dμ(y) / ∫ K(x, y) dμ(y); 0 where a query sees nothing.

    Each query centres the values at its own mean before squaring, so narrow kernels keep their digits: E[zzᵀ] − mmᵀ
    would lose (|m|/spread)² of them. Queries take turns, each with n·k² squares.
    Parameters: `kernel`, `measure`, `queries` and `summation` as for `local_mean`.
    """
    kernel = bound(kernel, measure)
    sites, single = as_sites(queries)
    how, values = summation or Auto(), value_columns(measure)

    def squares_around(mean: Array) -> Array:
        centred = values - mean[None, :]
        return centred[:, :, None] * centred[:, None, :]

    means = how.moments(kernel, measure, sites).mean
    covariances = _expectations(kernel, measure, how, sites, means, squares_around)
    if measure.carried.ndim == 1:
        covariances = covariances[:, 0, 0]
    return covariances[0] if single else covariances


def _expectations(
    kernel: AbstractKernel,
    measure: Measure,
    how: AbstractSummation,
    sites: Sites,
    seen: Any,
    values_at: Callable[[Any], Array],
) -> Array:
    """The local means of values (n, ...) that each query has of its own: `values_at` of its entry of `seen`."""

    def at_one(query: tuple[Sites, Any]) -> Array:
        values = values_at(query[1])
        # Not a measure carrying the values: a kernel that looks at values must see the measure's own.
        moments = how.moments(kernel, measure, lifted(query[0]), values=values.reshape(measure.count, -1))
        return moments.mean[0].reshape(values.shape[1:])

    return jax.lax.map(at_one, (sites, seen))


def resampled_local_mean(
    key: Array,
    kernel: AbstractKernel,
    measure: Measure,
    queries: Any,
    *,
    draws: int,
    summation: AbstractSummation | None = None,
) -> Array:
    """The Monte Carlo local mean: the average of `draws` values z(y), with y drawn ∝ K(x, y) dμ(y).

    Its standard error is √(local variance / draws). A query that sees nothing gets 0. One key gives the same draws with
    every summation that can draw; others are refused.
    Parameters: a random `key`; the number of `draws`; `kernel`, `measure`, `queries` and `summation` as for
    `local_mean`.
    """
    kernel = bound(kernel, measure)
    whole_number(draws, "draws")
    sites, single = as_sites(queries)
    how, values = check_draws(summation or Auto()), value_columns(measure)

    def at_one(query: tuple[Sites, Array]) -> Array:
        chosen = how.draw(query[1], kernel, measure, lifted(query[0]), draws)[0]
        return jnp.where(jnp.all(chosen < 0), 0.0, jnp.mean(values[chosen], axis=0))

    means = jax.lax.map(at_one, (sites, jax.random.split(key, sites.points.shape[0])))
    if measure.carried.ndim == 1:
        means = means[:, 0]
    return means[0] if single else means


class Normalised(AbstractMatrixKernel):
    """K̃(x, y) = K(x, y) / ∫ K(x, y') dμ(y'): the transition density x → y with respect to μ.

    It offers no form to fast methods: a(x) = −G(x) would be summed over all of μ at every evaluation. Where ∫ K dμ = 0,
    K̃ = 0.
    """

    kernel: AbstractKernel
    measure: Measure
    summation: AbstractSummation = Auto()

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log K(x_i, y_j) − G(x_i)."""
        kernel = self.kernel.bind(self.measure)
        log_mass = self.summation.moments(kernel, self.measure, xs).log_mass
        nothing = jnp.isneginf(log_mass)  # NaN is not nothing, and has to show
        logits = kernel.log_matrix(xs, ys) - jnp.where(nothing, 0.0, log_mass)[:, None]
        return jnp.where(nothing[:, None], -jnp.inf, logits)

    def vanishes(self) -> bool:
        """Whether the kernel may vanish: if it never does, every query has a mass to be divided by."""
        return self.kernel.vanishes()


def _check(kernel: Any, measure: Any) -> None:
    check_kind(kernel, AbstractKernel, "kernel", "a kernel, such as kernels.Gaussian(0.3)")
    check_kind(measure, Measure, "measure", "a measure, such as Measure.uniform(points, values)")


def bound(kernel: Any, measure: Any) -> AbstractKernel:
    """The kernel bound to the measure, once their types are checked."""
    _check(kernel, measure)
    return kernel.bind(measure)


def _check_classes(values: Array) -> None:
    """Raise unless each row is one-hot or probabilities; inside `jit` only shapes are checked."""
    if values.ndim != 2:
        raise ShapeError(
            f"Values must have shape (n, classes) for a mode, one-hot or probabilities, but have {values.shape}; "
            "of class numbers jax.nn.one_hot(numbers, classes) makes them."
        )
    if not is_concrete(values):
        return
    rows = np.asarray(values)
    slack = values.shape[1] * float(np.sqrt(np.finfo(rows.dtype).eps))
    wrong = (rows < -slack).any(axis=1) | (np.abs(rows.sum(axis=1) - 1) > slack)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise ArgumentError(
            "Values must be classes for a mode, each row one-hot or probabilities that sum to one, but row "
            f"{place} is {np.array2string(rows[place], threshold=6, precision=4)}."
        )


def as_sites(queries: Any) -> tuple[Sites, bool]:
    """Queries with a leading axis, and whether it was added here."""
    if isinstance(queries, Measure):
        return queries.sites, False
    sites = queries if isinstance(queries, Sites) else Sites(queries)
    points = as_float_array(sites.points, "queries")
    if points.ndim != 1:
        return as_query_sites(sites._replace(points=points)), False
    rest = (sites.positions, sites.values)
    positions, values = (
        None if leaf is None else as_float_array(leaf, name)[None]
        for leaf, name in zip(rest, ("queries.positions", "queries.values"), strict=True)
    )
    return as_query_sites(Sites(points[None], positions, values)), True
