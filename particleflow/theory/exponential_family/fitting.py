"""Moment matching: the natural parameter whose mean is given.

    ∇G(θ) = m    ⇔    θ maximises the concave ⟨θ, m⟩ − G(θ)

It has a solution if m lies inside the convex hull of the statistics, unique up to directions in which all statistics
agree. The Jacobian of ∇G is the covariance, symmetric and positive semidefinite, so a step of Levenberg
and Marquardt, (covariance² + λ)⁻¹ covariance (m − ∇G), ascends the likelihood. Derivatives of θ with respect to m come
from the equation itself, not from the steps: dθ/dm is the inverse covariance.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float

from particleflow._support.arrays import is_concrete
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.theory.exponential_family.base import AbstractLogNormalizer

_NEAR = 0.75  # steps below eps^_NEAR of the parameter end the search
_MATCHED = 0.5  # the error allowed in a matched mean is eps^_MATCHED · (1 + its largest component)


def matched(
    family: "AbstractLogNormalizer", mean: Float[Array, " d"], start: Float[Array, " d"], max_steps: int
) -> Float[Array, " d"]:
    """The θ with ∇G(θ) = m; refused where there is none, NaN inside of `jit`.

    Parameters: the `family` of G; the `mean` m (d,); the `start` of the search (d,); at most `max_steps` steps.
    """
    unit = float(jnp.finfo(mean.dtype).eps)
    solver: Any = optx.LevenbergMarquardt(rtol=unit**_NEAR, atol=unit**_NEAR)
    begin, problem = _widened((start, (family, mean)))
    solution = optx.root_find(_defect, solver, begin, problem, max_steps=max_steps, throw=False)
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
    """All numbers in the default precision, which optimistix uses for its own state and does not mix with others."""
    wide = jnp.zeros(()).dtype
    return jax.tree.map(lambda leaf: leaf.astype(wide) if eqx.is_inexact_array(leaf) else leaf, tree)


def _defect(parameter: Array, problem: tuple["AbstractLogNormalizer", Array]) -> Array:
    """∇G(θ) − m, at module level so that it is compiled once for a family."""
    return problem[0].mean(parameter) - problem[1]
