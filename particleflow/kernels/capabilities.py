"""What some kernels can do beside what all can: capabilities, each a class that those kernels inherit.

    Quadratic      log K is a polynomial of degree two in the points
    Integrable     ∫ K(x, y) dy may be known
    CountsPoints   K depends on counts of a measure's points, as the k nearest do
    Composite      K is made of other kernels, its parts

Of a composite kernel most facts are those of its parts, so functions read them: `is_quadratic(kernel)`,
`counts_points(kernel)`, `log_integral(kernel, dimension)`. For a kernel without the capability they return that the
fact is not known (False or None).
"""

import abc
from typing import Any

from jaxtyping import Array, Float

from particleflow.kernels.base import AbstractKernel, AbstractMatrixKernel, points_of
from particleflow.kernels.forms import Bilinear, Radial
from particleflow.measure import Measure


class Quadratic(AbstractKernel):
    """A kernel whose logarithm is a polynomial of degree two in the points x, y, and depends on nothing else.

    Under it the local mean of a normal law is affine, so that a Gaussian stays one (`dynamics.quadratic_kernels`).
    """


class Integrable(AbstractKernel):
    """A kernel whose integral over R^d is the same for every x and may be known, so that K can be made a density."""

    @abc.abstractmethod
    def log_integral(self, dimension: int) -> Float[Array, ""] | None:
        """log ∫ K(x, y) dy over R^d; None where it depends on x, is infinite, or is not known."""


class CountsPoints(AbstractKernel):
    """A kernel of neighbourhoods: K(x, y) depends on how many points of the measure are nearer than y, not on mass."""

    @abc.abstractmethod
    def bind(self, measure: Measure) -> AbstractKernel:
        """The kernel whose neighbours are counted among the points of a measure."""


class Composite(AbstractMatrixKernel):
    """A kernel made of other kernels, its parts, from which its facts follow."""

    @abc.abstractmethod
    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernels that this one is made of."""

    @abc.abstractmethod
    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """The same composition of other kernels."""

    @abc.abstractmethod
    def adds_logarithms(self) -> bool:
        """Whether log K is a sum of the parts' logarithms, of either order of the sites, and of a constant."""

    def bind(self, measure: Measure) -> AbstractKernel:
        """The same composition of bound parts, if one of them counts points."""
        return self.with_parts(tuple(part.bind(measure) for part in self.parts())) if counts_points(self) else self

    def vanishes(self) -> bool:
        """Whether one part may vanish, as for a product."""
        return any(part.vanishes() for part in self.parts())

    def inverse_temperature(self) -> Float[Array, ""] | None:
        """The inverse temperature of the first part that has one."""
        found = (part.inverse_temperature() for part in self.parts())
        return next((beta for beta in found if beta is not None), None)


class AbstractView(Composite):
    """K(x, y) = kernel(φ(x), ψ(y)) for maps φ, ψ from sites to sites: `query_view` and `key_view`.

    Forms and facts are those of the kernel, seen through the maps.
    """

    @abc.abstractmethod
    def query_view(self, sites: Any) -> Any:
        """φ: the queries as the kernel sees them."""

    @abc.abstractmethod
    def key_view(self, sites: Any) -> Any:
        """ψ: the points of the measure as the kernel sees them."""

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log kernel(φ(x_i), ψ(y_j))."""
        (kernel,) = self.parts()
        return kernel.log_matrix(self.query_view(xs), self.key_view(ys))

    def bilinear(self) -> Bilinear | None:
        """Features and offsets of the viewed sites."""
        form = self.parts()[0].bilinear()
        return form and form.seen_through(self.query_view, self.key_view)

    def radial(self) -> Radial | None:
        """The same profile, of the viewed sites."""
        form = self.parts()[0].radial()
        return form and form.seen_through(self.query_view, self.key_view)

    def factors(self) -> tuple[AbstractKernel, ...]:
        """The factors of the kernel, each under the same view."""
        factors = self.parts()[0].factors()
        return (self,) if len(factors) == 1 else tuple(self.with_parts((factor,)) for factor in factors)

    def bind(self, measure: Measure) -> AbstractKernel:
        """The same view of the bound kernel, if it counts points: among those of the viewed measure."""
        if not counts_points(self):
            return self
        viewed = measure.with_points(points_of(self.key_view(measure.sites)))
        return self.with_parts((self.parts()[0].bind(viewed),))

    def adds_logarithms(self) -> bool:
        """No: a polynomial of φ(x) and ψ(y) need not be one of x and y."""
        return False


def is_quadratic(kernel: AbstractKernel) -> bool:
    """Whether log K(x, y) is known to be a polynomial of degree two in the points, and depends on nothing else."""
    if isinstance(kernel, Composite):
        return kernel.adds_logarithms() and all(map(is_quadratic, kernel.parts()))
    return isinstance(kernel, Quadratic)


def counts_points(kernel: AbstractKernel) -> bool:
    """Whether K depends on counts of points: then `bind` returns another kernel, and whole rows cost least to sum."""
    if isinstance(kernel, Composite):
        return any(map(counts_points, kernel.parts()))
    return isinstance(kernel, CountsPoints)


def log_integral(kernel: AbstractKernel, dimension: int) -> Float[Array, ""] | None:
    """log ∫ K(x, y) dy over R^d, where it is the same for every x: K divided by it is a density. None if not known."""
    return kernel.log_integral(dimension) if isinstance(kernel, Integrable) else None
