"""Moment matching: the natural parameter whose mean is given.

    ∇G(θ) = m    ⇔    θ maximises the concave ⟨θ, m⟩ − G(θ)

It has a solution if m lies inside of the convex hull of the statistics, and then one only, up to directions in which
all statistics agree. The Jacobian of ∇G is the covariance, symmetric and not negative, so a step of Levenberg and
Marquardt, (covariance² + λ)⁻¹ covariance (m − ∇G), never goes astray. Derivatives of θ with respect to m come from the
equation itself, not from the steps: dθ/dm is the inverse covariance.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float

from particleflow._arrays import is_concrete
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.exponential_family.base import AbstractExponentialFamily

_NEAR = 0.75  # steps below eps^_NEAR of the parameter end the search
_MATCHED = 0.5  # a mean is matched if it is to eps^_MATCHED of its size


def matched(
    family: "AbstractExponentialFamily", mean: Float[Array, " d"], start: Float[Array, " d"], max_steps: int
) -> Float[Array, " d"]:
    """The θ with ∇G(θ) = m, searched from `start` on; refused where there is none, NaN for it inside of `jit`."""
    unit = float(jnp.finfo(mean.dtype).eps)
    solver: Any = optx.LevenbergMarquardt(rtol=unit**_NEAR, atol=unit**_NEAR)
    begin, asked = _widened((start, (family, mean)))
    solution = optx.root_find(_defect, solver, begin, asked, max_steps=max_steps, throw=False)
    found: Array = jnp.asarray(solution.value, mean.dtype)
    left = jnp.max(jnp.abs(_defect(found, (family, mean))))
    good = left <= unit**_MATCHED * (1 + jnp.max(jnp.abs(mean)))
    if is_concrete(good) and not bool(good):
        raise ArgumentError(
            f"Argument `mean` is the mean of no member of the family: the nearest found is off by {float(left):.2g}. "
            "It must lie inside of the convex hull of the statistics."
        )
    return jnp.where(good, found, jnp.nan)


def _widened(tree: Any) -> Any:
    """All numbers in the default precision: the solver's own are, and it does not mix them with others."""
    wide = jnp.zeros(()).dtype
    return jax.tree.map(lambda leaf: leaf.astype(wide) if eqx.is_inexact_array(leaf) else leaf, tree)


def _defect(parameter: Array, asked: tuple["AbstractExponentialFamily", Array]) -> Array:
    """∇G(θ) − m; a function of the module, so that it is compiled once for a family."""
    return asked[0].mean(parameter) - asked[1]
