"""What is measured while particles move.

An observable is any function `(flow, time, measure) -> array`; its name in the trajectory is its `__name__` (or
`name`). It is evaluated at the saved state itself, inside the compiled run. Sums over all pairs go through the
same summation as the drift; only quantities that need the whole Gram matrix hold it, and say so.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._arrays import as_float_array
from particleflow.drifts.attend import Attend
from particleflow.drifts.base import terms_of
from particleflow.drifts.shift import LogNormalizerAscent, MeanShift
from particleflow.errors import ArgumentError
from particleflow.flow import Flow
from particleflow.geometry import directions
from particleflow.kernels.base import AbstractKernel, inner_products, squared_distances
from particleflow.measure import Measure
from particleflow.moments import Moments

Observable = Callable[[Flow, Any, Measure], Array]


def name_of(observable: Any) -> str:
    """The name under which an observable is stored."""
    name = getattr(observable, "name", None) or getattr(observable, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(f"An observable needs a name that is an identifier, but {observable!r} has {name!r}.")
    return name


def energy(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """E = (1/2β) ∬ K dμ dμ, the interaction energy of the first kernel of the flow (β = 1/width² for a Gaussian)."""
    kernel, moments, seen = _interaction(flow, time, measure)
    return jnp.sum(jnp.exp(seen.log_weights + moments.log_mass)) / (2 * _inverse_temperature(kernel))


def log_energy(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """log E, which does not overflow at large β."""
    kernel, moments, seen = _interaction(flow, time, measure)
    return jax.nn.logsumexp(seen.log_weights + moments.log_mass) - jnp.log(2 * _inverse_temperature(kernel))


def dissipation(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """∫ Z |ẋ|² dμ, Z = e^{G} for row-normalised attention and 1 otherwise: dE/dt for Q = K = V = 1 on the sphere."""
    velocity = flow.velocity(time, measure.points, measure)
    log_factor = measure.log_weights
    first = terms_of(flow.drift)[0]
    if isinstance(first, Attend) and first.normalization == "row":
        log_factor = log_factor + _interaction(flow, time, measure)[1].log_mass
    return jnp.sum(jnp.exp(log_factor) * jnp.sum(jnp.square(velocity), axis=1))


def order_parameter(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """|∫ x/|x| dμ|: 0 for a balanced cloud, 1 at consensus."""
    weights = jnp.exp(measure.log_weights - measure.log_mass)
    return jnp.linalg.norm(weights @ directions(measure.points))


def centre(flow: Flow, time: Any, measure: Measure) -> Float[Array, " d"]:
    """The mean ∫ x dμ; its path is the drift of the centre."""
    return jnp.exp(measure.log_weights - measure.log_mass) @ measure.points


def covariance(flow: Flow, time: Any, measure: Measure) -> Float[Array, "d d"]:
    """∫ (x − c)(x − c)ᵀ dμ about the centre c."""
    weights = jnp.exp(measure.log_weights - measure.log_mass)
    centred = measure.points - (weights @ measure.points)[None, :]
    return centred.T @ (weights[:, None] * centred)


def mean_similarity(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """The mean of ⟨x, y⟩/(|x||y|) over pairs of different particles, without forming the pairs."""
    units = directions(measure.points)
    count = measure.count
    total = jnp.sum(jnp.square(jnp.sum(units, axis=0))) - count
    return total / max(count * (count - 1), 1)


def diameter(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """The largest distance between two particles; 0 at consensus."""

    def farthest(point: Array) -> Array:
        return jnp.max(squared_distances(point[None, :], measure.points))

    return jnp.sqrt(jnp.max(jax.lax.map(farthest, measure.points, batch_size=64)))


def speed(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """The root mean square of |ẋ|."""
    velocity = flow.velocity(time, measure.points, measure)
    weights = jnp.exp(measure.log_weights - measure.log_mass)
    return jnp.sqrt(jnp.sum(weights * jnp.sum(jnp.square(velocity), axis=1)))


def effective_rank(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """exp of the entropy of the normalised spectrum of ∫ x xᵀ dμ: the number of directions in use."""
    weights = jnp.exp(measure.log_weights - measure.log_mass)
    spectrum = jnp.linalg.eigvalsh(measure.points.T @ (weights[:, None] * measure.points))
    shares = jnp.maximum(spectrum, 0.0) / jnp.sum(jnp.maximum(spectrum, 0.0))
    return jnp.exp(-jnp.sum(jnp.where(shares > 0, shares * jnp.log(jnp.where(shares > 0, shares, 1.0)), 0.0)))


def attention_entropy(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """The mean entropy −Σ_j p_ij log p_ij of the attention rows (forms the n×n matrix)."""
    rows = _attention_matrix(flow, time, measure)
    logs = jnp.log(jnp.where(rows > 0, rows, 1.0))
    weights = jnp.exp(measure.log_weights - measure.log_mass)
    return -jnp.sum(weights[:, None] * rows * logs)


def attention_rank(flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
    """The numerical rank of the attention matrix: singular values above 1e-6 of the largest (forms the n×n matrix)."""
    singular = jnp.linalg.svd(_attention_matrix(flow, time, measure), compute_uv=False)
    return jnp.sum(singular > 1e-6 * singular[0]).astype(measure.points.dtype)


class SimilarityQuantiles(eqx.Module):
    """Quantiles of ⟨x, y⟩/(|x||y|) over pairs of different particles (forms the n×n matrix)."""

    levels: Float[Array, " q"]
    name: str = eqx.field(static=True, default="similarity_quantiles")

    def __init__(self, levels: Any = (0.05, 0.25, 0.5, 0.75, 0.95)):
        self.levels = as_float_array(levels, "levels")
        self.name = "similarity_quantiles"

    def __call__(self, flow: Flow, time: Any, measure: Measure) -> Float[Array, " q"]:
        """The quantiles at the given levels."""
        units = directions(measure.points)
        pairs = inner_products(units, units)[jnp.triu_indices(measure.count, 1)]
        return jnp.quantile(pairs, self.levels.astype(pairs.dtype))


class PairFraction(eqx.Module):
    """The fraction of pairs of different particles with ⟨x, y⟩/(|x||y|) above `threshold`."""

    threshold: Float[Array, ""]
    name: str = eqx.field(static=True, default="pair_fraction")

    def __init__(self, threshold: Any = 0.999):
        self.threshold = jnp.asarray(float(threshold))
        self.name = "pair_fraction"

    def __call__(self, flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
        """The share of close pairs."""
        units = directions(measure.points)

        def close(unit: Array) -> Array:
            return jnp.sum(inner_products(unit[None, :], units) > self.threshold).astype(units.dtype)

        count = measure.count
        return (jnp.sum(jax.lax.map(close, units, batch_size=256)) - count) / max(count * (count - 1), 1)


def _interaction(flow: Flow, time: Any, measure: Measure) -> tuple[AbstractKernel, Moments, Measure]:
    """The kernel of the first attention-like drift, its moments at the particles, and the measure it sees."""
    for drift in terms_of(flow.drift):
        if isinstance(drift, Attend | MeanShift | LogNormalizerAscent):
            seen = flow.observed(time, measure.points, measure)
            kernel = drift.whole_kernel if isinstance(drift, Attend) else drift.kernel
            return drift.kernel, drift.summation.moments(kernel, seen, seen.sites), seen
    raise ArgumentError("This observable needs a drift with a kernel (attend, mean_shift, …), but the flow has none.")


def _inverse_temperature(kernel: AbstractKernel) -> Array:
    if hasattr(kernel, "beta"):
        beta = kernel.beta  # pyright: ignore[reportAttributeAccessIssue]
        return jnp.asarray(jnp.where(beta == 0, 1.0, beta))
    if hasattr(kernel, "width"):
        return 1 / jnp.square(kernel.width)  # pyright: ignore[reportAttributeAccessIssue]
    return jnp.asarray(1.0)


def _attention_matrix(flow: Flow, time: Any, measure: Measure) -> Float[Array, "n n"]:
    for drift in terms_of(flow.drift):
        if isinstance(drift, Attend):
            seen = flow.observed(time, measure.points, measure)
            logits = drift.whole_kernel.log_matrix(seen.sites, seen.sites) + seen.log_weights[None, :]
            return jax.nn.softmax(logits, axis=1)
    raise ArgumentError("This observable needs an attend drift, but the flow has none.")
