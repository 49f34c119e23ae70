"""Positive features: attention through R random points.

    e^{−½|u − v|²} = E e^{⟨w, u⟩ − |u|²} e^{⟨w, v⟩ − |v|²},    w standard normal

With draws w_1, …, w_R in place of the expectation, the sum over sources is two exact sums: each w_r sees the sources
under exp⟨w, v⟩, and each query sees the w_r, weighted by what they saw, under exp⟨u, w⟩. So it is as stable as an exact
sum (all in the log domain, offsets of any size), it has the derivatives of one, and masses are positive. Source:
FAVOR+, Choromanski et al., Rethinking attention with performers (2021). Independent draws have the variance

    Var K̂(x, y) = e^{|u + v|²} K(x, y)² (1 − e^{−|u + v|²}) / R;    orthogonal ones have less.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.kernels.inner_product import Attention
from particleflow.measure import Measure
from particleflow.summation.features.positive_definite import LowRankForm
from particleflow.summation.moments import Moments
from particleflow.summation.native.native import Native


def positive_moments(form: LowRankForm, values: Float[Array, "n k"], frequencies: Float[Array, "rank k"]) -> Moments:
    """The moments by two exact sums, O((m + n) R)."""
    exact, inner = Native(), Attention()
    tilted = Measure(form.keys, form.key_offsets - jnp.sum(jnp.square(form.keys), axis=1), values)
    seen = exact.moments(inner, tilted, frequencies)
    between = Measure(frequencies, seen.log_mass - jnp.log(float(len(frequencies))), seen.mean)
    found = exact.moments(inner, between, form.queries)
    return Moments(found.log_mass + form.query_offsets - jnp.sum(jnp.square(form.queries), axis=1), found.mean)
