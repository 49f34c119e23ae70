"""Normalisation schemes: where in a residual layer the normalisation N of a space stands.

With A = f(N(y)) the output of attention, θ = y/|y| and r = |y|, on the unit sphere (Karagodin, Ge, Polyanskiy and
Rigollet, Normalization in attention dynamics, 2025):

    Post (a space by itself)   x ← N(x + A)             θ' = P A
    PreNorm                    y ← y + f(N(y))          θ' = P A/r,        r' = ⟨θ, A⟩
    ResidualStream             y ← y + f(N(y))          the same, and y itself is what is saved
    PeriNorm                   y ← y + N(f(N(y)))       θ' = P A/(r|A|),   r' = ⟨θ, A⟩/|A|
    Ngpt                       x ← N(x + α N(A))        θ' = α P A/|A|
    SqrtScaled                 x ← N(x + A/√(t + 1))    θ' = P A/√(t + 1)
    PostNorm                   x ← N(x + f(x))          the trained layer, gain and bias inside the stream: a map

The scheme and the space are two objects: any scheme takes any sphere, `PreNorm(LayerNorm(gain, bias, epsilon))`.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from particleflow._support.arrays import Nonnegative, as_positive
from particleflow.dynamics.geometry.base import AbstractGeometry, Facts
from particleflow.dynamics.geometry.geometry_capabilities import CarriesFields, State
from particleflow.dynamics.geometry.spaces import AbstractSphere, Sphere
from particleflow.errors import ArgumentError


class AbstractStream(AbstractGeometry, CarriesFields):
    """A residual stream y ∈ R^d of which drifts see N(y): points are saved on the sphere, the norm of y beside them."""

    space: eqx.AbstractVar[AbstractSphere]

    def retract(self, state: State) -> State:
        """The direction of the stream, on the sphere."""
        return self.space.retract(state)

    def observe(self, state: State, time: Any = 0.0) -> State:
        """The normalised stream N(y), with gain, bias and ε of the space."""
        return self.space.normalise(state)

    def diffuse(self, state: State, increment: State, time: Any = 0.0) -> State:
        """The increment itself: the stream is flat, and noise on it is not normalised."""
        return increment

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """y + size · tangent."""
        return state + size * self.tangent(state, velocity, time)

    def fields(self, state: State) -> dict[str, Array]:
        """The norm of the stream, and what else N forgets."""
        return self.space.residual(state)

    def lift(self, points: State, fields: Mapping[str, Array]) -> State:
        """The stream with these directions and norms; the points themselves where no norms are given."""
        return self.space.restore(points, fields)

    def facts(self, dimension: int) -> Facts:
        """Directions of the residual stream."""
        return self.space.facts(dimension)._replace(coordinates="directions of the residual stream")


class PreNorm(AbstractStream):
    """Pre-LN: the residual stream y moves freely, the drift sees N(y); so θ' = P A/r, r' = ⟨θ, A⟩."""

    space: AbstractSphere

    def __init__(self, space: AbstractSphere | None = None):
        self.space = _sphere(space)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """Return the velocity itself: ẏ = f(N(y))."""
        return velocity


class ResidualStream(AbstractGeometry):
    """The Pre-LN layer of a trained network, y ← y + f(N(y)), of which the hidden state y itself is saved.

    Small layers tend to the flow ẏ = f(N(y)), so a trained network can be refined in depth.
    """

    space: AbstractSphere

    def __init__(self, space: AbstractSphere | None = None):
        self.space = _sphere(space)

    def retract(self, state: State) -> State:
        """y itself: a hidden state of the network."""
        return state

    def observe(self, state: State, time: Any = 0.0) -> State:
        """The normalised stream N(y), with gain, bias and ε of the space."""
        return self.space.normalise(state)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """Return the velocity itself: ẏ = f(N(y))."""
        return velocity

    def diffuse(self, state: State, increment: State, time: Any = 0.0) -> State:
        """Return the increment itself: the stream is flat."""
        return increment

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """y + size · f(N(y))."""
        return state + size * velocity

    def facts(self, dimension: int) -> Facts:
        """Flat; drifts see N(y), not the stored y."""
        return Facts("flat", None, "hidden states of the residual stream", sees_stored=False)


class PeriNorm(AbstractStream):
    """Peri-LN: the drift's output is normalised too; θ' = P A/(r|A|), r' = ⟨θ, A⟩/|A|.

    `output` is the normalisation of the drift's output, with its own gain and bias; that of `space` if left out.
    """

    space: AbstractSphere
    output: AbstractSphere

    def __init__(self, space: AbstractSphere | None = None, output: AbstractSphere | None = None):
        self.space = _sphere(space)
        self.output = self.space if output is None else _sphere(output)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """N(A): A/|A| on the unit sphere."""
        return self.output.normalise(velocity)


class AbstractPaced(AbstractGeometry):
    """A sphere on which the drift sets the direction and the scheme the pace, θ' = P p(A, t); noise is not paced."""

    space: eqx.AbstractVar[AbstractSphere]

    @abstractmethod
    def paced(self, velocity: State, time: Any) -> State:
        """p(A, t): the output of the drift, at the length that the scheme gives it."""

    def retract(self, state: State) -> State:
        """The point on the sphere."""
        return self.space.retract(state)

    def observe(self, state: State, time: Any = 0.0) -> State:
        """The point as drifts see it: with the gain, bias and ε of the space."""
        return self.space.observe(state, time)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """(|y|/R) P_y p(A, t)."""
        return self.space.tangent(state, self.paced(velocity, time), time)

    def diffuse(self, state: State, increment: State, time: Any = 0.0) -> State:
        """Brownian motion on the sphere: only the drift is paced."""
        return self.space.diffuse(state, increment, time)

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """N(x + size · p(A, t))."""
        return self.space.advance(state, self.paced(velocity, time), size, time)

    def facts(self, dimension: int) -> Facts:
        """Those of the sphere."""
        return self.space.facts(dimension)


class Ngpt(AbstractPaced):
    """nGPT: steps of length α on the sphere, θ' = α P A/|A|."""

    alpha: Nonnegative
    space: AbstractSphere

    def __init__(self, alpha: Any = 1.0, space: AbstractSphere | None = None):
        self.alpha = as_positive(alpha, "alpha")
        self.space = _sphere(space)

    def paced(self, velocity: State, time: Any) -> State:
        """Bring the output of the drift to length α: α R A/|A|."""
        return self.alpha * self.space.retract(velocity)


class SqrtScaled(AbstractPaced):
    """A sphere with depth-scaled steps, θ' = P A/√(t + 1)."""

    space: AbstractSphere

    def __init__(self, space: AbstractSphere | None = None):
        self.space = _sphere(space)

    def paced(self, velocity: State, time: Any) -> State:
        """Shorten the output of the drift with depth: A/√(t + 1)."""
        return velocity / jnp.sqrt(1 + jnp.asarray(time, velocity.dtype))


class PostNorm(AbstractGeometry):
    """The Post-LN layer of a trained network, x ← N(x + f(x)), gain and bias of N inside the residual stream.

    N(x + h f(x)) does not tend to x as h → 0 unless gain and bias are neutral, so there is no flow in depth: take
    explicit layers (`solver = "map"`). For the flow on the sphere, use the space itself as the geometry.
    """

    space: AbstractSphere

    def __init__(self, space: AbstractSphere | None = None):
        self.space = _sphere(space)

    def retract(self, state: State) -> State:
        """x itself: a hidden state of the network."""
        return state

    def observe(self, state: State, time: Any = 0.0) -> State:
        """Return x itself: drifts see the hidden state."""
        return state

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """Refuse: a trained Post-LN layer has no limit of small steps."""
        raise ArgumentError(
            "The geometry post_norm is a map without a limit in depth, N(x + h f(x)) does not tend to x; "
            'use solver = "map" with a fixed step, or the space itself (sphere, layer_norm, rms_norm) for the flow.'
        )

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """N(x + size · f(x))."""
        return self.space.normalise(state + size * velocity)

    def facts(self, dimension: int) -> Facts:
        """Hidden states: on no sphere once gains come in."""
        return Facts("flat", None, "hidden states after the normalisation")


def _sphere(space: AbstractSphere | None) -> AbstractSphere:
    if space is not None and not isinstance(space, AbstractSphere):
        raise ArgumentError(
            f"Argument `space` must be a sphere (sphere, layer_norm, rms_norm), but is {type(space).__name__}."
        )
    return space or Sphere()
