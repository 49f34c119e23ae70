"""How steep a kernel is: a bound of how much moving particles a little changes an energy.

If no particle moves by more than δ, every log K(x, y) changes by at most 2ℓδ, ℓ a bound of |∇ log K| in x and in y, and
so does log ∬ K dμ dμ. The bound is read from the forms that a kernel offers,

    bilinear   |∇ₓ(⟨θ(x), s(y)⟩ + a(x))| ≤ max |Dθ| · max |s| + max |∇a|,
    radial     |∇ₓ k(|u(x) − v(y)|)| ≤ max |k'(r)| · max |Du|,    r up to the diameter of the cloud,

for moves that are small beside the cloud: the maxima are over the present points. A kernel that jumps or vanishes
somewhere has no such bound.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.dynamics.drifts.base import Interaction
from particleflow.kernels.base import AbstractKernel
from particleflow.kernels.forms import Bilinear, Radial
from particleflow.measure import Measure, Sites

_DISTANCES = 1025  # at which the slope of a radial profile is evaluated


@eqx.filter_jit
def log_slope_bound(interaction: Interaction, observed: Measure) -> Float[Array, ""]:
    """A bound ℓ of |∇ log K(x, y)| in x and in y for these particles and their sources; infinite for none."""
    sources = interaction.data or observed
    slopes = (_slope_of(each, observed.sites, sources.sites) for each in interaction.whole_kernel.factors())
    return sum(slopes, start=jnp.zeros((), observed.points.dtype))


def _slope_of(kernel: AbstractKernel, queries: Sites, sources: Sites) -> Array:
    """The smaller one of the bounds that a factor's forms give."""
    bilinear, radial = kernel.bilinear(), kernel.radial()
    bounds = [jnp.asarray(jnp.inf, queries.points.dtype)]
    if bilinear is not None:
        ways = ((bilinear, queries, sources), (bilinear.transposed(), sources, queries))
        bounds.append(jnp.maximum(*(_bilinear_slope(*way) for way in ways)))
    if radial is not None and radial.support is None:
        bounds.append(_radial_slope(radial, queries, sources))
    return jnp.min(jnp.stack(bounds))


def _bilinear_slope(form: Bilinear, queries: Sites, sources: Sites) -> Array:
    """max |Dθ| · max |s| + max |∇a|, which bounds |∇ₓ(⟨θ(x), s(y)⟩ + a(x))|."""
    steep = _stretch(form.query_features, queries) * _size(form.key_features(sources))
    return steep + _stretch(form.query_offset, queries)


def _radial_slope(form: Radial, queries: Sites, sources: Sites) -> Array:
    """max |k'(r)| over the distances r of the cloud, times how much the maps u and v stretch."""
    ours, theirs = form.query_map(queries), form.key_map(sources)
    middle = jnp.mean(ours, axis=0, keepdims=True)
    reach = _size(ours - middle) + _size(theirs - middle)

    def profile(distance: Array) -> Array:
        return form.log_profile(distance**2, ours.shape[-1])

    distances = reach * jnp.linspace(0, 1, _DISTANCES, dtype=reach.dtype)
    steep = jnp.max(jnp.abs(jax.vmap(jax.grad(profile))(distances)))
    return steep * jnp.maximum(_stretch(form.query_map, queries), _stretch(form.key_map, sources))


def _stretch(function: Any, sites: Sites) -> Float[Array, ""]:
    """The largest norm of the derivative of a function of sites, among these."""

    def at(point: Array) -> Array:
        return function(Sites(point[None], None, point[None]))[0]

    slopes = jax.lax.map(jax.jacfwd(at), sites.points, batch_size=1024)
    return jnp.sqrt(jnp.max(jnp.sum(jnp.square(slopes), axis=tuple(range(1, slopes.ndim)))))


def _size(rows: Array) -> Float[Array, ""]:
    """The largest |x| of all rows."""
    return jnp.sqrt(jnp.max(jnp.sum(jnp.square(rows), axis=1)))
