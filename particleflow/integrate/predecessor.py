"""The number before a number, in few operations, where diffrax asks for it.

diffrax lets a step that ends within a hundred units in the last place of t₁ end there. It finds that place by a hundred
`nextafter` one after the other, some twenty operations each: half of a small program, and a quarter of the time that it
takes to make one. Rounded to nearest, and whether or not product and difference are fused, the number before x is

    x − max(φ|x|, η),    φ = u(1 + 2u),    u = ε/2

for every x that is 0 or larger than η/φ, η the smallest normal number (Rump, Zimmermann, Boldo and Melquiond, 2009).
Those are all times that there are, so that not a bit of any run depends on the way.
"""

from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


@jax.jit
def predecessor(x: Array) -> Array:
    """The number before x; of 0 the largest normal number below it, since smaller ones count as 0."""
    numbers = jnp.finfo(x.dtype)
    unit = 0.5 * float(numbers.eps)
    half = lax.mul(lax.full_like(x, unit * (1 + 2 * unit)), lax.abs(x))
    return lax.sub(x, lax.max(half, lax.full_like(x, float(numbers.tiny))))


def shorten_programs() -> None:
    """Let diffrax find the numbers before t₁ by `predecessor`; where its private names have changed, nothing is."""
    with suppress(ImportError, AttributeError):
        solving: Any = import_module("diffrax._integrate")
        if solving.eqxi is eqxi:
            solving.eqxi = SimpleNamespace(**vars(eqxi) | {"prevbefore": predecessor})
