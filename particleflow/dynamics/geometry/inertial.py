"""Inertia: the drift is a force, and a particle has a velocity beside its point.

    ẋ = w,    Dw/dt = P_x v(t, x, μ) − γ(t) w,    γ(t) = friction, or friction/t

D/dt is the derivative along the space: in R^d ẇ itself, on a sphere of radius R  ẇ + |w|² x/R², so that a particle
without force follows a great circle. Where v = −∇U the energy H = U + ½|w|² obeys dH/dt = −γ|w|²: it falls, but U may
swing. A constant friction is the heavy ball (Polyak, Some methods of speeding up the convergence of iteration methods,
1964); 3/t is the limit of Nesterov's accelerated gradient (Su, Boyd and Candès, A differential equation for modeling
Nesterov's accelerated gradient method, 2016), which is at a distance of O(1/t²) from the least U of a convex U where
the flow ẋ = v of first order is at O(1/t). For large friction, and times of order γ, it is that flow, slower by γ.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import Nonnegative, as_nonnegative
from particleflow.dynamics.geometry.base import AbstractGeometry, Facts
from particleflow.dynamics.geometry.geometry_capabilities import CarriesFields, State, Unconstrained
from particleflow.dynamics.geometry.spaces import RESIDUAL_NORM, AbstractSphere, Euclidean
from particleflow.errors import ArgumentError, ShapeError

VELOCITY = "velocity"


class Inertial(AbstractGeometry, CarriesFields):
    """A space on which drifts accelerate: ẋ = w, Dw/dt = P_x v − γ w. The velocities w are stored beside the points.

    A state is a row (x, w) of twice as many numbers as a point; a run starts at rest, or with the field `velocity` of
    its measure. On spheres a state has redundant parts, the length of x and the part of w along x: like elsewhere they
    change nothing that can be observed, so that points stay on the sphere to rounding.

    An explicit layer of size h is a layer with momentum, on a sphere brought back to it,

        w ← w/(1 + hγ) + h v(x),    x ← N(x + h w),

    so that x − x_before is passed on by the share 1/(1 + hγ); at γ = 3/t, t = kh, Nesterov's k/(k + 3). In a `Block`
    every sub-layer is such a layer, and moves points by their velocity.

    Parameters: `space`, flat space or a sphere (sphere, layer_norm, rms_norm); `friction` ≥ 0; `vanishing`, whether γ
    is friction/t instead of a constant, which needs a start at rest at time 0, or a later one.
    """

    space: AbstractGeometry
    friction: Nonnegative
    vanishing: bool = eqx.field(static=True)

    def __init__(self, space: AbstractGeometry | None = None, friction: Any = 1.0, vanishing: bool = False):
        self.space = Euclidean() if space is None else space
        self.friction = as_nonnegative(friction, "friction")
        self.vanishing = vanishing

    def __check_init__(self):
        if not isinstance(self.space, AbstractSphere | Unconstrained):
            name = self.space.name if isinstance(self.space, AbstractGeometry) else repr(self.space)
            raise ArgumentError(
                f"Argument `space` must be flat space or a sphere (euclidean, sphere, layer_norm, rms_norm), but is "
                f"{name}, on which no acceleration is defined."
            )

    def retract(self, state: State) -> State:
        """The point x, on the space."""
        return self.space.retract(_halves(state)[0])

    def observe(self, state: State, time: Any = 0.0) -> State:
        """The point x as drifts see it, with gain, bias and ε of the space; they see no velocities."""
        return self.space.observe(_halves(state)[0], time)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """(ẋ, ẇ) = (w, P_x v − γ w), and on a sphere the acceleration along its normal that keeps x there.

        At time 0 a vanishing friction has the limit γ w = friction v/(1 + friction) of a particle that starts at rest.
        """
        point, _ = _halves(state)
        moving, force = self._along(state), self.space.tangent(point, velocity, time)
        rate = force - self._braking(moving, force, time)
        return jnp.concatenate([moving, rate + self._bend(state, moving)], axis=-1)

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """One layer with momentum: w ← w/(1 + hγ) + h v(x), then x ← N(x + h w)."""
        point, moving = self.retract(state), self.fields(state)[VELOCITY]
        moving = self._kept(size, time, state) * moving + size * self.space.tangent(point, velocity, time)
        after = self.space.advance(point, moving, size, time)
        return jnp.concatenate([after, self.space.tangent(after, moving, time)], axis=-1)

    def diffuse(self, state: State, increment: State, time: Any = 0.0) -> State:
        """Refuse: a temperature of points is none of velocities."""
        raise ArgumentError(
            "The noise of a flow moves points, but the geometry inertial moves them by their velocity alone, which is "
            "differentiable; a temperature has no meaning there. Leave out the temperature, or the inertia."
        )

    def fields(self, state: State) -> dict[str, Array]:
        """The velocity of every point on the space."""
        point, moving = _halves(state)
        return {VELOCITY: self.space.tangent(self.space.retract(point), self._scale(point) * moving)}

    def lift(self, points: State, fields: Mapping[str, Array]) -> State:
        """The rows (x, w); at rest, w = 0, where no velocities are given."""
        given = fields.get(VELOCITY, jnp.zeros_like(points))
        if given.shape != points.shape:
            raise ShapeError(f"The field `velocity` must have shape {points.shape}, but has {given.shape}.")
        return jnp.concatenate([points, given], axis=-1)

    def facts(self, dimension: int) -> Facts:
        """Those of the space."""
        return self.space.facts(dimension)

    def _along(self, state: State) -> State:
        """The part of w along the space, for a point of the length that it has in the state."""
        point, moving = _halves(state)
        return self._scale(point) * self.space.tangent(point, moving)

    def _scale(self, point: State) -> Float[Array, "n 1"]:
        """R/r for a point at the distance r from the centre of a sphere of radius R; 1 in flat space."""
        if not isinstance(self.space, AbstractSphere):
            return jnp.ones_like(point[..., :1])
        length = self.space.residual(point)[RESIDUAL_NORM][:, None]
        return self._radius(point) / jnp.where(length > 0, length, 1.0)

    def _radius(self, point: State) -> Any:
        return self.space.facts(point.shape[-1]).radius

    def _bend(self, state: State, moving: State) -> State:
        """−|w|² x/r² + ⟨x, w⟩ w/r²: x stays at its distance r from the centre, the part of w along x stays what it is.

        Its second term removes what a part of w along x, if rounding has left one, would do to the observed velocity.
        """
        if not isinstance(self.space, AbstractSphere):
            return jnp.zeros_like(moving)
        point, whole = _halves(state)
        unit = self.space.retract(point) / self._radius(point)
        inverse = self._scale(point) / self._radius(point)
        outward = jnp.sum(unit * whole, axis=-1, keepdims=True)
        return inverse * (outward * moving - jnp.sum(jnp.square(moving), axis=-1, keepdims=True) * unit)

    def _braking(self, moving: State, force: State, time: Any) -> State:
        """γ(t) w, at time 0 its limit."""
        friction = jnp.asarray(self.friction, moving.dtype)
        if not self.vanishing:
            return friction * moving
        time = jnp.asarray(time, moving.dtype)
        begun = time > 0
        rate = friction / jnp.asarray(jnp.where(begun, time, 1.0))
        return jnp.where(begun, rate * moving, friction / (1 + friction) * force)

    def _kept(self, size: Any, time: Any, state: State) -> Array:
        """1/(1 + hγ), the share of its velocity that a particle keeps in a layer."""
        friction = jnp.asarray(self.friction, state.dtype)
        if not self.vanishing:
            return 1 / (1 + size * friction)
        time = jnp.asarray(time, state.dtype)
        whole = jnp.asarray(jnp.where(time > 0, time + size * friction, 1.0))
        return jnp.asarray(jnp.where(time > 0, time / whole, 0.0))


def _halves(state: State) -> tuple[State, State]:
    """The point and the velocity of every row."""
    dimension = state.shape[-1] // 2
    return state[..., :dimension], state[..., dimension:]
