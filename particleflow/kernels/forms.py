"""The forms of kernels that fast methods read, and how they are carried through products, maps and multiples.

    bilinear   log K(x, y) = ⟨θ(x), s(y)⟩ + a(x) + b(y)      radial   log K(x, y) = k(|u(x) − v(y)|²)
    band       log K₂(t, s) = c − slope |t − s| for lags t − s between two numbers, else −∞

In a local mean, a(x) cancels and b(y) only tilts the measure. So every method for exp⟨θ, s⟩ (random features, low
rank, a native sum) serves all bilinear kernels: attention, but also the Gaussian, since −½|x − y|² = ⟨x, y⟩ − ½|x|² −
½|y|². Radial kernels can be summed by cell lists, trees and Fourier sums.

A form is a view of its kernel, made where it is used (inside `jit`, too), from functions of *sites*; pass the kernel,
not its forms, to compiled functions.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.kernels.base import inner_products, points_of, squared_distances

Sited = Callable[[Any], Array]


def no_offset(sites: Any) -> Float[Array, " m"]:
    """The offset 0 of every site, in the precision of the points."""
    points = points_of(sites)
    return jnp.zeros(points.shape[0], points.dtype)


class Bilinear(NamedTuple):
    """log K(x, y) = ⟨θ(x), s(y)⟩ + a(x) + b(y): features (m, k) and (n, k), offsets (m,) and (n,); k may be 0.

    Limits: where K depends on a distance, the three terms are large numbers with a small sum. They lose
    (|x|/|x − y|)² digits, which the kernel's own `log_matrix` does not; move the origin amid the points first.
    """

    query_features: Sited
    key_features: Sited
    query_offset: Sited = no_offset
    key_offset: Sited = no_offset

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix ⟨θ(x_i), s(y_j)⟩ + a(x_i) + b(y_j)."""
        products = inner_products(self.query_features(xs), self.key_features(ys))
        return products + self.query_offset(xs)[:, None] + self.key_offset(ys)[None, :]

    def scaled(self, log_factor: Array) -> "Bilinear":
        """The form of e^{log_factor} K: the factor goes into b."""
        return self._replace(key_offset=lambda ys: self.key_offset(ys) + log_factor)

    def transposed(self) -> "Bilinear":
        """The form of K(y, x): the roles are swapped."""
        return Bilinear(self.key_features, self.query_features, self.key_offset, self.query_offset)

    def symmetrised(self) -> "Bilinear":
        """The form of √(K(x, y) K(y, x)): θ' = ½(θ, s), s' = (s, θ), and a' = b' = ½(a + b)."""

        def offset(sites: Any) -> Array:
            return 0.5 * (self.query_offset(sites) + self.key_offset(sites))

        return Bilinear(
            lambda xs: 0.5 * jnp.concatenate([self.query_features(xs), self.key_features(xs)], axis=1),
            lambda ys: jnp.concatenate([self.key_features(ys), self.query_features(ys)], axis=1),
            offset,
            offset,
        )

    def seen_through(self, query_view: Callable[[Any], Any], key_view: Callable[[Any], Any]) -> "Bilinear":
        """The form of K(φ(x), ψ(y)) for maps φ, ψ from sites to sites."""
        return Bilinear(
            lambda xs: self.query_features(query_view(xs)),
            lambda ys: self.key_features(key_view(ys)),
            lambda xs: self.query_offset(query_view(xs)),
            lambda ys: self.key_offset(key_view(ys)),
        )

    @staticmethod
    def product(forms: "Sequence[Bilinear | None]") -> "Bilinear | None":
        """The form of Π_l K_l: features side by side, offsets added; None unless every factor has one."""
        parts = [form for form in forms if form is not None]
        if len(parts) < len(forms):
            return None

        def joined(features: Sequence[Sited]) -> Sited:
            return lambda sites: jnp.concatenate([feature(sites) for feature in features], axis=1)

        def added(offsets: Sequence[Sited]) -> Sited:
            return lambda sites: sum((offset(sites) for offset in offsets[1:]), start=offsets[0](sites))

        return Bilinear(
            joined([form.query_features for form in parts]),
            joined([form.key_features for form in parts]),
            added([form.query_offset for form in parts]),
            added([form.key_offset for form in parts]),
        )


Curve = Literal["gaussian", "exponential", "power", "inverse", "ball", "parabola", "triangle"]


class Shape(NamedTuple):
    """A profile as one of a few known curves of ρ = scale · r: log K = curve + log_factor.

    gaussian −ρ², exponential −ρ, power and inverse −p log(1 + ρ²), of a width and of a softening; ball 0 (ρ² < p),
    parabola log(1 − ρ²)₊, triangle log(1 − ρ)₊, where p is `power`.
    """

    curve: Curve
    scale: Array
    power: Array | float = 0.0
    log_factor: Array | float = 0.0


class PowerLaw(NamedTuple):
    """log K = −power log(r² + softening²) + log_factor: no scale beyond the softening; for sums by trees."""

    power: Array | float
    softening: Array | float
    log_factor: Array | float = 0.0


class Radial(NamedTuple):
    """log K(x, y) = k(|u(x) − v(y)|², d) for maps u, v of sites into one space of dimension d; u(x) = x unless given.

    `log_profile(squares, dimension)` is k, elementwise; only kernels that are densities (Student's t) read d. K is 0
    where |u(x) − v(y)| ≥ `support`, a radius for cell lists; None means that K reaches everywhere. `shape(dimension)`
    is the profile as a known curve, `power_law(dimension)` as a power of a softened distance, None where it is none.
    """

    log_profile: Callable[[Array, int], Array]
    query_map: Sited = points_of
    key_map: Sited = points_of
    support: Float[Array, ""] | None = None
    shape: Callable[[int], Shape | None] = lambda dimension: None
    power_law: Callable[[int], PowerLaw | None] = lambda dimension: None

    @property
    def of_points(self) -> bool:
        """Whether distances are those of the points themselves: u(x) = x and v(y) = y."""
        return self.query_map is points_of and self.key_map is points_of

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix k(|u(x_i) − v(y_j)|², d), from differences: exact for close points far from the origin."""
        queries, points = self.query_map(xs), self.key_map(ys)
        return self.log_profile(squared_distances(queries, points), points.shape[-1])

    def scaled(self, log_factor: Array) -> "Radial":
        """The form of e^{log_factor} K."""

        def shape(dimension: int) -> Shape | None:
            plain = self.shape(dimension)
            return plain and plain._replace(log_factor=plain.log_factor + log_factor)

        def power_law(dimension: int) -> PowerLaw | None:
            plain = self.power_law(dimension)
            return plain and plain._replace(log_factor=plain.log_factor + log_factor)

        def log_profile(squares: Array, dimension: int) -> Array:
            return self.log_profile(squares, dimension) + log_factor

        return self._replace(log_profile=log_profile, shape=shape, power_law=power_law)

    def transposed(self) -> "Radial":
        """The form of K(y, x): the maps are swapped."""
        return self._replace(query_map=self.key_map, key_map=self.query_map)

    def symmetrised(self) -> "Radial | None":
        """The form of √(K(x, y) K(y, x)): K itself where both sides are mapped alike, else none."""
        return self if self.query_map is self.key_map else None

    def seen_through(self, query_view: Callable[[Any], Any], key_view: Callable[[Any], Any]) -> "Radial":
        """The form of K(φ(x), ψ(y)) for maps φ, ψ from sites to sites."""
        return self._replace(
            query_map=lambda xs: self.query_map(query_view(xs)), key_map=lambda ys: self.key_map(key_view(ys))
        )

    @staticmethod
    def product(forms: "Sequence[Radial | None]") -> "Radial | None":
        """The form of Π_l K_l: log-profiles added, the smallest support; None unless all factors map sites alike.

        Alike means by the same Python functions, as all kernels of the points have, and all kernels of positions; maps
        by two matrices Q count as different.
        """
        parts = [form for form in forms if form is not None]
        alike = all(form.query_map is parts[0].query_map and form.key_map is parts[0].key_map for form in parts)
        if len(parts) < len(forms) or not alike:
            return None

        def log_profile(squares: Array, dimension: int) -> Array:
            first, *others = (form.log_profile(squares, dimension) for form in parts)
            return sum(others, start=first)

        supports = [form.support for form in parts if form.support is not None]
        if len(parts) == 1:
            return parts[0]
        return Radial(log_profile, parts[0].query_map, parts[0].key_map, _smallest(supports))


class Separable(NamedTuple):
    """K(x, y) = ⟨φ(x), ψ(y)⟩ for maps φ and ψ from sites to a few features each: a matrix of low rank."""

    query_map: Callable[[Any], Array]
    key_map: Callable[[Any], Array]


class Band(NamedTuple):
    """log K₂(t, s) = log_factor − slope |t − s| where least < t − s < most, else −∞; t and s are positions.

    Sums skip the blocks of sources that lie outside of the band: causal attention costs half.
    """

    least: Array | float = -jnp.inf
    most: Array | float = jnp.inf
    slope: Array | float = 0.0
    log_factor: Array | float = 0.0

    def scaled(self, log_factor: Array) -> "Band":
        """The form of e^{log_factor} K₂."""
        return self._replace(log_factor=self.log_factor + log_factor)

    def transposed(self) -> "Band":
        """The form of K₂(s, t): lags change their sign."""
        return self._replace(least=-self.most, most=-self.least)

    @staticmethod
    def product(forms: "Sequence[Band | None]") -> "Band | None":
        """The form of Π_l K_l: the lags that all let pass, slopes and factors added; None unless all are bands."""
        parts = [form for form in forms if form is not None]
        if len(parts) < len(forms):
            return None
        return reduce(
            lambda one, other: Band(
                jnp.maximum(one.least, other.least),
                jnp.minimum(one.most, other.most),
                one.slope + other.slope,
                one.log_factor + other.log_factor,
            ),
            parts,
            Band(),
        )


def _smallest(supports: list[Array]) -> Array | None:
    # Not the minimum of a stack: plain numbers must stay weakly typed, to fit points of any precision.
    return reduce(jnp.minimum, supports) if supports else None
