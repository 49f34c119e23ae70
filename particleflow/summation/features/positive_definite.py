"""A kernel in the form of low rank: one positive definite κ of two points of one space, and an offset of each side.

    log K(x, y) = A(x) + B(y) + log κ(u(x), v(y)),    κ(u, v) = Π_l k_l(|u_l − v_l|) ≤ κ(u, u) = 1

Each k_l is a curve that is the Fourier transform of a law (Bochner): e^{−ρ²/2}, e^{−ρ} or (1 + ρ²)^{−p}. A bilinear
factor is a Gaussian, since ⟨θ, s⟩ = ½|θ|² + ½|s|² − ½|θ − s|². It does not change where both sides are moved and
scaled,

    ⟨θ, s⟩ = ⟨(θ − e)/α, α(s − c)⟩ + ⟨e, s − c⟩ + ⟨θ, c⟩,

but the error of every feature does: e^{½|u + v|²} of them is noise. So e and c are the means of both sides, and α makes
both equally long. A distance is seen from the point midway between the means. Origin and balance follow the points
inside `jit`; they count as numbers without a derivative, since K does not depend on them.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel, AbstractMatrixKernel, check_same_dimension, squared_distances
from particleflow.kernels.base import points_of as points_of_sites
from particleflow.kernels.forms import Bilinear, Radial, Shape
from particleflow.measure import Measure, Sites
from particleflow.summation.native.xla_reference import log_curve

# Factors of the ρ of `kernels.forms.Shape`, by which a Gaussian is e^{−ρ²/2}, with frequencies of standard normal law.
_STRETCH = {"gaussian": 2**0.5, "exponential": 1.0, "power": 1.0}


class Curves(AbstractMatrixKernel):
    """κ(u, v) = Π_l k_l(|u_l − v_l|) for slices u_l of the coordinates, each with its curve and number of coordinates.

    `powers` are the p of curves (1 + ρ²)^{−p}, one number a slice.
    """

    powers: tuple[Array | float, ...]
    curves: tuple[str, ...] = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix Σ_l log k_l(|u_l − v_l|)."""
        ours, theirs = (self.slices(points_of_sites(sites)) for sites in (xs, ys))
        parts = zip(self.curves, self.powers, ours, theirs, strict=True)
        first, *others = (
            log_curve(curve, squared_distances(u, v) / _STRETCH[curve] ** 2, power) for curve, power, u, v in parts
        )
        return sum(others, start=first)

    def slices(self, points: Float[Array, "n k"]) -> list[Array]:
        """The coordinates that each curve depends on."""
        ends = [sum(self.widths[: place + 1]) for place in range(len(self.widths))]
        return [points[:, end - width : end] for end, width in zip(ends, self.widths, strict=True)]

    def radial(self) -> Radial | None:
        """The curve where there is one only: then it is summed natively."""
        if len(self.curves) != 1 or len(self.powers) != 1:
            return None
        (curve,), (power,) = self.curves, self.powers
        return Radial(
            lambda squares, dimension: log_curve(curve, squares / _STRETCH[curve] ** 2, power),
            shape=lambda dimension: Shape(curve, 1 / _STRETCH[curve], power),  # pyright: ignore[reportArgumentType]
        )

    def vanishes(self) -> bool:
        """Never: its curves are positive."""
        return False

    @property
    def is_gaussian(self) -> bool:
        """Whether κ = e^{−½|u − v|²}."""
        return self.curves == ("gaussian",)


class LowRankForm(NamedTuple):
    """κ, the places u(x) and v(y), and the offsets A(x) and B(y); log-weights are part of B."""

    kernel: Curves
    queries: Float[Array, "m k"]
    keys: Float[Array, "n k"]
    query_offsets: Float[Array, " m"]
    key_offsets: Float[Array, " n"]

    @staticmethod
    def of(kernel: AbstractKernel, measure: Measure, queries: Sites) -> "LowRankForm":
        """The form of a kernel on these points; a kernel without one is refused with the reason."""
        reason = obstacle(kernel, measure.dimension)
        if reason is not None:
            raise ArgumentError(f"The summation Features cannot sum this kernel: {reason}.")
        shares = jax.nn.softmax(measure.log_weights)
        placed = [_placed(factor, measure.sites, queries, shares) for factor in kernel.factors()]
        query_offsets = sum((each.query_offsets for each in placed[1:]), start=placed[0].query_offsets)
        key_offsets = sum((each.key_offsets for each in placed), start=measure.log_weights)
        parts = _gaussians_as_one([each for each in placed if each.u.shape[1] > 0] or [_nowhere(measure, queries)])
        curves = Curves(*zip(*((each.power, each.curve, each.u.shape[1]) for each in parts), strict=True))
        u, v = (jnp.concatenate(places, axis=1) for places in zip(*((each.u, each.v) for each in parts), strict=True))
        return LowRankForm(curves, u, v, query_offsets, key_offsets)


def obstacle(kernel: AbstractKernel, dimension: int) -> str | None:
    """Why a kernel is no κ of two places with offsets, in words; None where it is one."""
    for factor in kernel.factors():
        name, distance = type(factor).__name__, factor.radial()
        if factor.band() is not None:
            return f"its factor {name} is a band of positions, and a mask is no sum of a few products of features"
        shape = distance and distance.shape(dimension)
        if shape is not None and shape.curve in _STRETCH:
            continue
        if factor.bilinear() is None:
            if shape is not None and shape.curve != "inverse":
                return f"the curve of its factor {name} is the Fourier transform of no positive law in all dimensions"
            return f"its factor {name} is neither bilinear nor a known curve of a distance"
    return None


class _Placed(NamedTuple):
    """One factor: its curve, places of both sides, and offsets of both."""

    curve: str
    power: Array | float
    u: Array
    v: Array
    query_offsets: Array
    key_offsets: Array


def _placed(factor: AbstractKernel, keys: Sites, queries: Sites, shares: Array) -> _Placed:
    """A factor as one curve of a distance: by its own curve if that is positive definite, else by its features."""
    distance, product = factor.radial(), factor.bilinear()
    if distance is not None:
        places = distance.query_map(queries), distance.key_map(keys)
        shape = distance.shape(places[1].shape[1])
        if shape is not None and shape.curve in _STRETCH:
            return _by_distance(shape, *places, shares)
    assert product is not None  # else there was an obstacle
    return _by_product(product, keys, queries, shares)


def _by_distance(shape: Shape, u: Array, v: Array, shares: Array) -> _Placed:
    """A curve of a distance, its places scaled and seen from midway between their means."""
    check_same_dimension(u, v)
    scale = jnp.asarray(_STRETCH[shape.curve] * shape.scale, u.dtype)
    origin = jax.lax.stop_gradient(0.5 * (_mean(u) + shares @ v))[None]
    nothing, factor = jnp.zeros(u.shape[0], u.dtype), jnp.full(v.shape[0], shape.log_factor, v.dtype)
    return _Placed(shape.curve, shape.power, scale * (u - origin), scale * (v - origin), nothing, factor)


def _by_product(form: Bilinear, keys: Sites, queries: Sites, shares: Array) -> _Placed:
    """A bilinear factor as a Gaussian of centred and balanced features."""
    theta, s = form.query_features(queries), form.key_features(keys)
    check_same_dimension(theta, s)
    middle, centre = (jax.lax.stop_gradient(mean) for mean in (_mean(theta), shares @ s))
    u, v = theta - middle[None], s - centre[None]
    sizes = [jax.lax.stop_gradient(size) for size in (_mean(_squares(u)), shares @ _squares(v))]
    known = (sizes[0] > 0) & (sizes[1] > 0)
    balance = jnp.where(known, jnp.sqrt(jnp.sqrt(sizes[0] / jnp.where(known, sizes[1], 1.0))), 1.0)
    balance = jnp.where(balance > 0, balance, 1.0)
    query_offsets = form.query_offset(queries) + theta @ centre
    key_offsets = form.key_offset(keys) + v @ middle
    u, v = u / balance, balance * v
    return _Placed("gaussian", 0.0, u, v, query_offsets + 0.5 * _squares(u), key_offsets + 0.5 * _squares(v))


def _squares(points: Float[Array, "n k"]) -> Float[Array, " n"]:
    """|p|² of every point."""
    return jnp.sum(jnp.square(points), axis=1)


def _mean(numbers: Float[Array, "n *k"]) -> Float[Array, "*k"]:
    """The mean over queries; that of none is 0, not NaN."""
    return jnp.sum(numbers, axis=0) / max(1, numbers.shape[0])


def _gaussians_as_one(parts: list[_Placed]) -> list[_Placed]:
    """Gaussians first, as one of the coordinates of all; offsets have been added up before."""
    smooth, others = ([each for each in parts if (each.curve == "gaussian") == wanted] for wanted in (True, False))
    if not smooth:
        return others
    u, v = (jnp.concatenate(places, axis=1) for places in zip(*((each.u, each.v) for each in smooth), strict=True))
    return [smooth[0]._replace(u=u, v=v), *others]


def _nowhere(measure: Measure, queries: Sites) -> _Placed:
    """The place 0 of every site, for a kernel that depends on no coordinate."""
    u, v = (jnp.zeros((points.shape[0], 1), points.dtype) for points in (queries.points, measure.points))
    return _Placed("gaussian", 0.0, u, v, u[:, 0], v[:, 0])
