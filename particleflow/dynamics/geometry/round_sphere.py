"""Check that a geometry is a whole round sphere, moved by P_x v, before harmonics are used on it.

The check evaluates the maps at a few points and never asks for the class: the points R u, u any unit vector, must be
points of the geometry, a velocity must move them by P_x v, drifts must see them where they are, and nothing else may be
carried along.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from particleflow._support.arrays import is_concrete
from particleflow.dynamics.geometry.base import AbstractGeometry, project_out
from particleflow.dynamics.geometry.geometry_capabilities import carried_names
from particleflow.errors import ArgumentError

_PROBES = 6  # points at which the maps are compared
_SAME_ULPS = 1e3  # the largest difference of the maps, in eps · largest coordinate


def round_radius(geometry: AbstractGeometry, dimension: int, *, noisy: bool = False, dtype: Any = float) -> Any:
    """The radius R of a geometry that is {|x| = R} in R^dimension with ẋ = P_x v; refused with the reason otherwise.

    Parameters: `noisy`, whether noise must act as Brownian motion on the sphere, too; `dtype` of the flow's numbers.
    """
    facts = geometry.facts(dimension)
    if facts.kind != "sphere":
        raise ArgumentError(f"Harmonics live on a sphere, but the geometry is {geometry.name}; use `Sphere()`.")
    if not all(map(is_concrete, jax.tree_util.tree_leaves(geometry))):
        return facts.radius  # inside `jit` nothing can be checked
    with jax.ensure_compile_time_eval():
        _check_round(geometry, dimension, facts.radius, noisy, dtype)
    return facts.radius


def _check_round(geometry: AbstractGeometry, dimension: int, radius: Any, noisy: bool, dtype: Any) -> None:
    """Raise unless points and velocities are mapped as they are on a round sphere."""
    rows = np.random.default_rng(0).normal(size=(2, _PROBES, dimension))
    units = jnp.asarray(rows[0] / np.linalg.norm(rows[0], axis=1, keepdims=True), dtype)
    points, kicks = jnp.asarray(radius, dtype) * units, jnp.asarray(rows[1], dtype)
    carried = carried_names(geometry, points)
    if carried:
        raise ArgumentError(
            f"Harmonics need points that move by themselves, but the geometry {geometry.name} carries "
            f"{', '.join(carried)} along; use `Sphere()`."
        )
    for what, found, expected in _compared(geometry, points, units, kicks, noisy):
        if np.max(np.abs(np.asarray(found - expected))) > _SAME_ULPS * float(jnp.finfo(dtype).eps) * _size(points):
            raise ArgumentError(
                f"Harmonics need the whole round sphere with ẋ = P_x v, but the geometry {geometry.name} {what}; "
                "use `Sphere()`."
            )


def _compared(
    geometry: AbstractGeometry, points: Any, units: Any, kicks: Any, noisy: bool
) -> list[tuple[str, Any, Any]]:
    """The maps of a geometry beside those of a round sphere, each with words for the difference."""
    flat = project_out(units, kicks)
    maps = [
        ("has not all of its points", geometry.retract(points), points),
        ("shows drifts other points", geometry.observe(points), points),
        ("moves points in another way", geometry.tangent(points, kicks), flat),
    ]
    return [*maps, ("has another noise", geometry.diffuse(points, kicks), flat)] if noisy else maps


def _size(points: Any) -> float:
    """The largest coordinate, at least 1: rounding is relative to it."""
    return max(1.0, float(np.max(np.abs(np.asarray(points)))))
