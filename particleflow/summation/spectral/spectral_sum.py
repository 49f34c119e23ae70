"""Spectral sums as a summation: what it promises, what it costs, and what happens to queries that see too little."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.summation.base import Choice, Limits, NeedsSettings, as_query_sites, cost_of_pairs, value_columns
from particleflow.summation.candidates import Approximation
from particleflow.summation.moments import Moments
from particleflow.summation.prepared import PreparedSum, prepare
from particleflow.summation.spectral.convolution_form import feature_dimension, obstacle
from particleflow.summation.spectral.mode_choice import Settled, least_pairs, pairs_of, settled
from particleflow.summation.spectral.spectral_moments import Domain, Setting, spectral_moments

_USUAL_MODES = {1: 512, 2: 128, 3: 48}  # for each coordinate, where points are unknown
_USUAL_ACCURACY, _LEAST_ACCURACY = 1e-4, 1e-13  # of transforms, the first in parts of the tolerance
_LARGEST_TOLERANCE = 0.5  # what is kept where 1 or more is allowed, from which on errors are not bounded


def _without_lists(given: Any) -> Any:
    """A list of modes, as a scenario has it, as the tuple that compiled code is known by."""
    return tuple(given) if isinstance(given, list) else given


class Spectral(Approximation, NeedsSettings):
    """Fourier sums: O(m + n) for bilinear and smooth radial kernels of at most three dimensions, to a tolerance.

    Kernels: exp⟨θ, s⟩ with features of at most three dimensions (attention on circles and spheres, above all),
    Gaussians, and other kernels of a distance whose Fourier coefficients fall fast enough (Cauchy, Student's t, not
    Laplace). They are made periodic on a box around the points, or on the circle that they lie on (`periodic_boxes`);
    boxes follow the points inside `jit`, where each query's error bound is known, too (`spectral_moments`). Memory
    O(m + n + modes).

    The error is a small multiple of the whole weight, not of the mass that a query sees. Where its bound exceeds
    `tolerance`, because a query sees too little (far outliers; masses may even come out negative), or because points
    have moved so far apart that the modes no longer resolve the kernel, log-mass and mean of that query are NaN: they
    show. The bound does not count rounding in the precision of the points.

    Parameters: `tolerance`, the largest error of the mean (relative to max |z|) and of the log-mass (absolute); `modes`
    of each coordinate, `accuracy` of the transforms, and the `domain`: "box"; "circle", whose modes are those of its
    series and then, for derivatives, of both coordinates of the plane; or "apart", with queries and keys centred each
    for itself. What is left out is derived from the points, and refused where no setting keeps the tolerance; `select`
    settles all of them for given points. Inside `jit`, where points are unknown, there are 512, 128² or 48³ modes. So
    there are in runs, which fail where these do not suffice; `Auto(tolerance=…)` settles modes before every window.
    """

    tolerance: float = eqx.field(static=True, default=1e-8)
    modes: tuple[int, ...] | None = eqx.field(static=True, default=None, converter=_without_lists)
    accuracy: float | None = eqx.field(static=True, default=None)
    domain: Domain = eqx.field(static=True, default="box")

    def __check_init__(self):
        for name in ("tolerance", "accuracy"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, int | float) and 0 < given < 1):
                raise ArgumentError(f"Argument `{name}` must be a number between 0 and 1, but is {given!r}.")
        if self.domain not in ("box", "apart", "circle"):
            raise ArgumentError(f"Argument `domain` must be 'box', 'apart' or 'circle', but is {self.domain!r}.")
        given = self.modes
        if given is not None and not (isinstance(given, tuple) and given and all(_is_count(each) for each in given)):
            raise ArgumentError(f"Argument `modes` must be a tuple of even numbers ≥ 4, but is {given!r}.")

    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """The moments by transforms; NaN for queries at which the tolerance cannot be kept."""
        kernel, measure, queries = prepared.kernel, prepared.measure, prepared.queries
        columns = value_columns(measure, values)
        _check_kernel(kernel, measure)
        if queries.points.shape[0] == 0:
            return Moments.nothing(0, columns.shape[1], columns.dtype)
        found, certainty = spectral_moments(self._setting(prepared), kernel, measure, queries, columns)
        lost = ~(certainty.bound() <= self.tolerance)
        nothing = jnp.asarray(jnp.nan, columns.dtype)
        return Moments(jnp.where(lost, nothing, found.log_mass), jnp.where(lost[:, None], nothing, found.mean))

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself as it is, at the cost of the modes of compiled code; `select` settles them for these points."""
        prepared = prepare(kernel, measure, queries)
        _check_kernel(kernel, measure)
        yield Choice(self, "as asked", cost=pairs_of(self._setting_unseen(prepared), measure, prepared.queries))

    def diagnose(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> str | None:
        """How many of these queries the modes of compiled code cannot serve within the tolerance."""
        sites = as_query_sites(queries)
        setting = self._setting_unseen(prepare(kernel, measure, sites))
        bounds = spectral_moments(setting, kernel, measure, sites, value_columns(measure))[1].bound()
        lost = int(jnp.sum(~(bounds <= self.tolerance)))
        if not lost:
            return None
        return (
            f"With {_grid(setting)} modes the summation Spectral cannot keep the tolerance {self.tolerance:.3g} for "
            f"{lost} of {len(bounds)} queries, whose sums are NaN. Give it more `modes`, or use "
            f"Auto(tolerance={self.tolerance:.3g}), which chooses sums for the points as they are."
        )

    def select(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Choice:
        """Itself with all settings for these points, if they are known and the tolerance can be kept."""
        prepared = prepare(kernel, measure, queries)
        if self.modes is not None or not prepared.is_known or obstacle(kernel, measure) is not None:
            return Choice(self, "as asked")
        found = settled(kernel, measure, prepared.queries, self.tolerance)
        return self._choice(found) if found.setting else Choice(self, f"as asked, but {found.obstacle}")

    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice | None:
        """An error bound for known points, where it is within the tolerance and sums get cheaper."""
        kernel, measure, queries = prepared.kernel, prepared.measure, prepared.queries
        if limits.tolerance is None or queries.points.shape[0] == 0 or not prepared.is_known:
            return None
        if obstacle(kernel, measure) is not None:
            return None
        tolerance = limits.tolerance if limits.tolerance < 1 else _LARGEST_TOLERANCE
        found = settled(kernel, measure, queries, tolerance, cost_of_pairs(measure, queries))
        return Spectral(tolerance)._choice(found) if found.setting else None

    def cost_bounds(self, prepared: PreparedSum, limits: Limits) -> Iterator[float]:
        """What transforms of so many points cost at this tolerance, without their grids."""
        kernel, measure = prepared.kernel, prepared.measure
        if limits.tolerance is None or obstacle(kernel, measure) is not None:
            yield float("inf")
        else:
            yield least_pairs(kernel, measure, prepared.queries, limits.tolerance)

    def _choice(self, found: Settled) -> Choice:
        """This summation with a setting, and the reason in words."""
        assert found.setting is not None
        domain, modes, epsilon = found.setting
        reason = f"{_grid(found.setting)} Fourier modes {'on the circle' if domain == 'circle' else 'in a box'}"
        return Choice(Spectral(self.tolerance, modes, epsilon, domain), reason, found.error, found.pairs)

    def _setting(self, prepared: PreparedSum) -> Setting:
        """The setting that is given, or one for these points, or the usual one where they are unknown."""
        if self.modes is not None or not prepared.is_known:
            return self._setting_unseen(prepared)
        found = settled(prepared.kernel, prepared.measure, prepared.queries, self.tolerance)
        if found.setting is None:
            raise ArgumentError(
                f"The summation Spectral cannot keep the tolerance {self.tolerance:.3g}: {found.obstacle}; "
                "`Auto` finds one that can."
            )
        return found.setting

    def _setting_unseen(self, prepared: PreparedSum) -> Setting:
        """The setting that is given, or the usual one: that of compiled code, which cannot look at points."""
        dimension = feature_dimension(prepared.kernel, prepared.measure)
        usual = max(_LEAST_ACCURACY, _USUAL_ACCURACY * self.tolerance) if self.accuracy is None else self.accuracy
        if self.modes is None:
            return Setting("box", (_USUAL_MODES[dimension],) * dimension, usual)
        expected = 1 + dimension if self.domain == "circle" else dimension
        if len(self.modes) != expected:
            raise ArgumentError(f"Argument `modes` must hold {expected} numbers here, but is {self.modes}.")
        return Setting(self.domain, self.modes, usual)


def _check_kernel(kernel: AbstractKernel, measure: Measure) -> None:
    """Raise with the reason for a kernel that Fourier sums cannot sum."""
    reason = obstacle(kernel, measure)
    if reason is not None:
        raise ArgumentError(
            f"The summation Spectral cannot sum the kernel {type(kernel).__name__}: {reason}; "
            "`Auto` finds one that can."
        )


def _grid(setting: Setting) -> str:
    """The numbers of modes in words."""
    return " × ".join(str(each) for each in setting.grid)


def _is_count(number: Any) -> bool:
    """Whether it is a number of modes that transforms take: even, and at least 4."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= 4 and number % 2 == 0
