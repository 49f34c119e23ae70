"""How large the error of features is for the points at hand, before anything is summed with them.

Nyström's residuals bound it for certain: with E(x) = ρ(x)^{1/2} Σ_j e^{B_j} ρ(v_j)^{1/2} and the mass M̂(x) found,

    |G − Ĝ| ≤ −log(1 − E/M̂),    |m − m̂| ≤ 2 max|z| E/M̂.

In many dimensions that is far too careful, since the errors of many sources cancel. Then the error itself is measured,
against an exact sum, at the queries with the largest bounds (an outlier is one of them) and at others drawn at random.

Random features have a variance instead. Seen from x, sources have shares p_j ∝ e^{B_j} κ(u, v_j), and an estimate of
the mass varies by Σ_jl p_j p_l C_jl / R of its square, one of the mean by Σ_jl p_j p_l C_jl ⟨z_j − m, z_l − m⟩ / R:

    positive   C_jl = e^{⟨u + v_j, u + v_l⟩} − 1
    fourier    C_jl = (κ(v_j, v_l) + κ(2u, v_j + v_l)) / (κ(u, v_j) κ(u, v_l)) − 2.

The double sum is estimated from sources of which half are drawn ∝ p_j and half ∝ e^{B_j}, since sources with a tiny
share p_j add noise, too, and often most of it. Each counts p_j/q_j, with q_j the chance of its draw; pairs of a source
with itself are included, which makes the sum too large rather than too small. By the central limit theorem the error at
all of m queries stays below Φ⁻¹(1 − δ/2m) standard deviations with probability 1 − δ. That is a bound for most draws,
not for all, and for few features with heavy tails it is too small: such a promise has to be verified.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import logits_of
from particleflow.summation.features.nystrom import factor
from particleflow.summation.features.positive_definite import Curves, LowRankForm
from particleflow.summation.moments import Moments

CONFIDENCE = 0.99
MEASURED = 64  # queries at which the error of landmarks is measured
_QUERIES = 24  # at which variances are estimated; the farthest ones, and others at random
_FARTHEST = 8
_DRAWS = 192  # sources drawn for each of them
_BLOCK = 4096
_SAMPLED = 512  # queries, and as many sources, from which the number of landmarks is estimated


def nystrom_errors(form: LowRankForm, landmarks: Array, log_mass: Array) -> np.ndarray:
    """The bound on the errors of mean and log-mass at each query; ∞ where a mass may be error alone."""
    lower = factor(form.kernel, landmarks)
    ours, theirs = (np.sqrt(_residuals(form.kernel, places, landmarks, lower)) for places in (form.queries, form.keys))
    offsets = np.asarray(form.key_offsets, np.float64)
    spread = np.exp(offsets - offsets.max()) @ theirs
    log_share = np.log(ours * spread) + offsets.max() + np.asarray(form.query_offsets, np.float64)
    with np.errstate(over="ignore"):
        share = np.exp(log_share - np.asarray(log_mass, np.float64))
    usable = share < 1  # a mass that is NaN is not usable either
    small = np.where(usable, share, 0.5)
    return np.where(usable, np.maximum(2 * small, -np.log1p(-small)), np.inf)


def errors_between(found: Moments, exact: Moments, values: Array) -> np.ndarray:
    """The larger error of each query: of the mean, relative to max |z|, and of the log-mass; ∞ for NaN."""
    largest = np.sqrt(np.max(np.sum(np.square(np.asarray(values, np.float64)), axis=1))) or 1.0
    means = np.linalg.norm(np.asarray(found.mean - exact.mean, np.float64), axis=1) / largest
    errors = np.maximum(means, np.abs(np.asarray(found.log_mass - exact.log_mass, np.float64)))
    return np.where(np.isnan(errors), np.inf, errors)


def sampled_queries(bounds: np.ndarray, seed: int) -> np.ndarray:
    """The queries of the largest bounds, and as many others."""
    worst = np.argsort(bounds)[-MEASURED // 2 :]
    others = np.random.default_rng(seed).choice(len(bounds), min(len(bounds), MEASURED // 2), replace=False)
    return np.concatenate([worst, others])


def _residuals(kernel: Curves, places: Array, landmarks: Array, lower: Array) -> np.ndarray:
    """ρ = 1 − κ̂(v, v) of all places, never below what rounding leaves."""
    pieces = [places[begin : begin + _BLOCK] for begin in range(0, len(places), _BLOCK)]
    return np.concatenate([np.asarray(_left(kernel, each, landmarks, lower), np.float64) for each in pieces])


@eqx.filter_jit
def _left(kernel: Curves, places: Array, landmarks: Array, lower: Array) -> Array:
    seen = jnp.exp(kernel.log_matrix(landmarks, places))
    explained = jax.scipy.linalg.solve_triangular(lower, seen, lower=True)
    return jnp.maximum(1 - jnp.sum(jnp.square(explained), axis=0), jnp.finfo(places.dtype).eps)


def numerical_rank(kernel: AbstractKernel, measure: Measure, queries: Sites, tolerance: float) -> int:
    """The rank, to a tolerance, of the weights w_j K(x_i, y_j)/mass_i of some queries and sources.

    By QR with the largest pivots, whose diagonal follows the singular values. No bound, since errors of many sources
    cancel and a sample does not show all; but many fewer landmarks than this do not suffice.
    """
    from scipy.linalg import qr

    logits = np.asarray(_sampled_logits(kernel, measure, queries), np.float64)
    logits = logits[np.isfinite(logits.max(axis=1))]  # a query that sees nothing has no weights
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = weights / weights.sum(axis=1, keepdims=True)
    upper = qr(shares, mode="r", pivoting=True, check_finite=False)[0]
    return int(np.sum(np.abs(np.diagonal(upper)) > tolerance))


@eqx.filter_jit
def _sampled_logits(kernel: AbstractKernel, measure: Measure, queries: Sites) -> Array:
    ours = np.linspace(0, queries.points.shape[0] - 1, _SAMPLED).astype(int)
    theirs = (np.linspace(0, measure.count - 1, _SAMPLED).astype(int) + 1) % measure.count  # not the queries again
    picked = jax.tree_util.tree_map(lambda leaf: leaf[ours], queries)
    sources, log_weights = jax.tree_util.tree_map(lambda leaf: leaf[theirs], (measure.sites, measure.log_weights))
    return logits_of(kernel, picked, sources, log_weights)


def random_variances(form: LowRankForm, values: Array, seed: int, most: float = np.inf) -> dict[str, float]:
    """R times the variance of log-mass or mean (the larger one, relative to max |z|) at the worst of some queries.

    A method whose variance exceeds `most` is not evaluated at further queries.
    """
    from scipy.special import logsumexp, softmax

    generator = np.random.default_rng(seed)
    u, v, z = (np.asarray(each, np.float64) for each in (form.queries, form.keys, values))
    largest = np.sqrt(np.max(np.sum(z**2, axis=1), initial=0.0)) or 1.0
    offsets = np.asarray(form.key_offsets, np.float64)
    methods = ["positive", "fourier"] if form.kernel.is_gaussian else ["fourier"]
    worst = dict.fromkeys(methods, 0.0)
    for query in _looked_at(u, v, generator):
        if min(worst.values()) > most:
            break
        seen = _log_matrix(form.kernel, u[query][None], v)[0]
        shares, by_weight = softmax(seen + offsets), softmax(offsets)
        drawn = np.concatenate([generator.choice(len(v), _DRAWS // 2, p=each) for each in (shares, by_weight)])
        likely = 0.5 * (shares + by_weight)[drawn]
        counted = offsets[drawn] - np.asarray(logsumexp(seen + offsets)) - np.log(likely)  # log p/(q κ)
        centred = (z[drawn] - shares @ z) / largest
        for method in [each for each in methods if worst[each] <= most]:
            covariances = _covariances(method, form.kernel, u[query], v[drawn], seen[drawn], counted)
            with np.errstate(invalid="ignore"):  # ∞ · 0, where the features of a query are noise alone
                both = np.array([np.mean(covariances), np.mean(covariances * (centred @ centred.T))])
            worst[method] = float(max(worst[method], *np.where(np.isnan(both), np.inf, both)))
    return worst


def standard_deviations(queries: int) -> float:
    """Φ⁻¹(1 − δ/2m): errors at all m queries stay below so many standard deviations, with probability `CONFIDENCE`."""
    from scipy.special import ndtri

    return float(-ndtri((1 - CONFIDENCE) / (2 * max(1, queries))))


def _looked_at(u: np.ndarray, v: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Random queries, and those farthest from the middle of the sources."""
    far = np.argsort(np.sum((u - v.mean(axis=0)) ** 2, axis=1))[-_FARTHEST:]
    return np.concatenate([far, generator.choice(len(u), min(len(u), _QUERIES - _FARTHEST), replace=False)])


def _covariances(
    method: str, kernel: Curves, u: np.ndarray, v: np.ndarray, seen: np.ndarray, counted: np.ndarray
) -> np.ndarray:
    """C_jl p_j p_l / (q_j q_l) of the sources v seen from u, with log κ(u, v) and log p/(q κ); ∞ where it overflows."""
    with np.errstate(over="ignore"):
        often = counted[:, None] + counted[None] + seen[:, None] + seen[None]
        if method == "positive":
            more, less = (np.maximum(sign * (u + v) @ (u + v).T, 0) for sign in (1, -1))
            return np.exp(often) * np.expm1(-less) - np.exp(often + more) * np.expm1(-more)
        between = v[:, None] + v[None]
        mirrored = _log_matrix(kernel, 2 * u[None], between.reshape(-1, v.shape[1]))[0].reshape(len(v), len(v))
        both = counted[:, None] + counted[None]
        noise = np.exp(_log_matrix(kernel, v, v) + both) + np.exp(mirrored + both)
        return noise - 2 * np.exp(often)


def _log_matrix(kernel: Curves, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """log κ in double precision, whatever that of the points."""
    return np.asarray(_all_pairs(jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf, float), kernel), xs, ys))


@eqx.filter_jit
def _all_pairs(kernel: Curves, xs: Any, ys: Any) -> Array:
    return kernel.log_matrix(xs, ys)
