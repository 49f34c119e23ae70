"""Drifts: the vector field that a cloud of particles exerts on every point.

    ẋ = drift(t, x, μ)

A drift is called with the time, the queries (points with their positions) and the measure of all particles, and
returns one velocity a query. Drifts add up (`d1 + d2`: heads, feed-forward, confinement) and can be multiplied
with a number (`0.5 * d`).

Beside its velocity a drift has
- `interactions(time)`: which kernels act, how they are normalised and summed, and over which measure. Energies,
  entropies and figures read this, so a drift inside a sum, a schedule or a stack of layers is seen like a bare one;
- `interacts_only(time)`: whether the velocity consists of these kernels alone;
- `stages(time)`: what an explicit layer applies one after the other (attention, then feed-forward);
- `changes()`: when it jumps, so that an adaptive solver can step exactly there;
- `resummed(time, choose)`: the same drift with other summations;
- `affine(time, law)`: the velocity that a normal law gives it, where that is an affine field.
"""

import abc
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_scalar
from particleflow._support.representation import shown
from particleflow._support.text import kind_of
from particleflow.dynamics.drifts.sinkhorn import sinkhorn_tilt, unbalanced
from particleflow.dynamics.drifts.total_support import check_total_support
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.dynamics.quadratic_kernels import LocalLaw, coupled_mean, local_law, weighted_mean
from particleflow.errors import ArgumentError, check_kind
from particleflow.kernels.base import AbstractKernel
from particleflow.kernels.capabilities import is_quadratic
from particleflow.kernels.description import described, described_numbers
from particleflow.measure import Measure, Sites
from particleflow.summation.base import (
    AbstractSummation,
    Choice,
    NeedsSettings,
    allowed_error,
    exactly,
    logits_of,
    tightened,
)
from particleflow.summation.moments import Moments

if TYPE_CHECKING:
    from particleflow.dynamics.geometry import AbstractGeometry

Normalization = Literal["row", "none", "sinkhorn"]
Chooser = Callable[["Interaction"], AbstractSummation]

# An error ε of log-masses moves the potentials of Sinkhorn attention by 2ε at most (each sweep halves what was wrong
# before it), and with both of them the weights by e^{±4ε}, and the mean by 4ε max |z| beside its own error.
_SINKHORN_FACTOR = 8.0


class Interaction(NamedTuple):
    """What interacts: the kernel K = K₁(x, y) K₂(t, s), its normalisation, and the measure ν that is summed over.

    Parameters: `kernel` K₁; `normalization`; `positional` K₂ or None; `summation`; `data` ν, None where it is
    the particles themselves; `value` V and `output` O, of the velocity O V m, None where the drift is not of this form.
    """

    kernel: AbstractKernel
    normalization: Normalization
    positional: AbstractKernel | None
    summation: AbstractSummation
    data: Measure | None
    value: Float[Array, "..."] | None = None
    output: Float[Array, "..."] | None = None

    @property
    def whole_kernel(self) -> AbstractKernel:
        """K₁(x, y) K₂(t, s)."""
        return self.kernel if self.positional is None else self.kernel * self.positional

    def bound_kernel(self, observed: Measure) -> AbstractKernel:
        """The whole kernel, bound to the measure of these particles, or to the data."""
        return self.whole_kernel.bind(self.data or observed)

    def source_measure(self, observed: Measure) -> Measure:
        """The measure whose local mean is read; for Sinkhorn attention tilted until weights are doubly stochastic.

        Where that is impossible it is refused; inside `jit`, where it cannot be checked, the tilt is NaN.
        """
        measure = self.data or observed
        if self.normalization == "sinkhorn":
            kernel = self.bound_kernel(observed)
            check_total_support(kernel, measure)
            return sinkhorn_tilt(kernel, measure, self.summation)
        return measure

    def moments(self, queries: Sites, observed: Measure, values: Float[Array, "n k"] | None = None) -> Moments:
        """G and m of the queries, under the tilt of Sinkhorn attention; of other `values` where they are given."""
        return self.summation.moments(self.bound_kernel(observed), self.source_measure(observed), queries, values)

    def local_law(self, law: Normal) -> LocalLaw:
        """G and m under a normal law in closed form, without any tilt; refused where the kernel has none."""
        reason = None
        if self.data is not None:
            reason = "looks at fixed data, under which a local mean is not affine"
        elif self.positional is not None or not is_quadratic(self.kernel):
            reason = f"is no quadratic form of two points ({self.whole_kernel!r}), as attention and the Gaussian are"
        if reason is not None:
            raise ArgumentError(f"A Gaussian does not stay one: the kernel {reason}. Use particles.")
        return local_law(self.kernel, law)

    def affine(self, law: Normal) -> Affine:
        """The local mean under a normal law; times e^{G}, as the nearest affine field, without normalisation."""
        local = self.local_law(law)
        if self.normalization == "none":
            return weighted_mean(local, law)
        return coupled_mean(self.kernel, law) if self.normalization == "sinkhorn" else local.mean

    def choices(self, observed: Measure) -> Iterator[Choice]:
        """The summations that could be used for these particles, the best first, found one at a time as needed."""
        return self._allowed.choices(self.bound_kernel(observed), self.data or observed, observed.sites)

    def exactly(self) -> "Interaction":
        """The same interaction without the approximations that its summation may choose."""
        return self._replace(summation=exactly(self.summation))

    def allowed_error(self) -> float | None:
        """The error that its sums may have, None where no tolerance was given."""
        return allowed_error(self._allowed)

    @property
    def _allowed(self) -> AbstractSummation:
        """The summation with what it is allowed in this place: Sinkhorn's loop multiplies the errors of its sums."""
        return tightened(self.summation, _SINKHORN_FACTOR) if self.normalization == "sinkhorn" else self.summation

    def diagnose(self, observed: Measure) -> str | None:
        """Why there are no moments at these points, as a sentence; None where nothing is known to be wrong."""
        kernel, measure = self.bound_kernel(observed), self.data or observed
        how = self.summation
        found = how.diagnose(kernel, measure, observed.sites) if isinstance(how, NeedsSettings) else None
        if found is not None or self.normalization != "sinkhorn":
            return found
        return unbalanced(kernel, measure, how)

    def log_mass(self, observed: Measure) -> Float[Array, " n"]:
        """G(x) = log ∫ K(x, y) dν(y) at the particles, without any tilt: what energies are made of."""
        return self.summation.moments(self.bound_kernel(observed), self.data or observed, observed.sites).log_mass

    def attention(self, observed: Measure) -> Float[Array, "n m"]:
        """The attention weights A_ij = w_j K_ij / Σ_k w_k K_ik of the particles (forms the whole matrix).

        Rows sum to one, also for unnormalised attention; a row that sees nothing is 0. Under Sinkhorn the w_j of this
        formula are tilted, and Σ_i μ_i A_ij = μ_j for the weights μ of the particles, if these are the sources.
        """
        sources = self.source_measure(observed)
        logits = logits_of(self.bound_kernel(observed), observed.sites, sources.sites, sources.log_weights)
        highest = jnp.max(logits, axis=1, keepdims=True)
        weights = jnp.exp(logits - jnp.where(jnp.isneginf(highest), 0.0, highest))
        mass = jnp.sum(weights, axis=1, keepdims=True)
        return weights / jnp.where(mass > 0, mass, 1.0)

    def description(self) -> dict[str, Any]:
        """The interaction as plain values, for stored metadata."""
        return {
            "kernel": described(self.kernel),
            "normalization": self.normalization,
            "positional": None if self.positional is None else described(self.positional),
            "data": self.data is not None,
            "taught": self.data is not None and self.data.values is not None,
            "value": described_numbers(self.value),
            "output": described_numbers(self.output),
        }


class AbstractDrift(eqx.Module):
    """A velocity field v(t, x, μ) that may depend on the whole measure.

    A new drift defines `__call__`; the other methods describe it to energies, figures, solvers and the choice of sums.
    """

    alternative: ClassVar[str] = "drifts.FunctionDrift(f) of a function f(t, x, mu)"

    @abc.abstractmethod
    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The velocity at every query."""

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The kernels that act at this time; none for a drift that acts on every particle alone."""
        return ()

    def interacts_only(self, time: Any) -> bool:
        """Whether the velocity is the sum of O V m (or O V e^G m) over its interactions, and nothing else."""
        return False

    def stages(self, time: Any) -> tuple[tuple["AbstractDrift", "AbstractGeometry | None"], ...]:
        """What an explicit layer applies in turn: a drift, and the geometry it moves on (None: that of the flow)."""
        return ((self, None),)

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """The times at which the field jumps; none for a field that is smooth in time."""
        return ()

    def resummed(self, time: Any, choose: Chooser) -> "AbstractDrift":
        """The drift with the summation that `choose` names for each interaction; itself if it cannot be exchanged."""
        return self

    def affine(self, time: Any, law: Normal) -> Affine:
        """The velocity under a normal law, u + B ξ about its mean; refused where it is not affine.

        Where the velocity is affine a Gaussian stays one; of another it is the nearest affine field, E[v] and E[∇v].
        """
        raise ArgumentError(
            f"A Gaussian does not stay one under the drift {kind_of(type(self))}, whose velocity is not "
            "affine. Use particles."
        )

    def __add__(self, other: "AbstractDrift") -> "Sum":
        return Sum((*terms_of(self), *terms_of(other)))

    def __mul__(self, factor: Any) -> "Multiple":
        return Multiple(self, factor)

    def __rmul__(self, factor: Any) -> "Multiple":
        return Multiple(self, factor)

    def __repr__(self) -> str:
        return shown(self)


class AbstractSum(AbstractDrift):
    """Several drifts whose velocities add up."""

    drifts: eqx.AbstractVar[tuple[AbstractDrift, ...]]

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The sum of the velocities."""
        first, *others = (drift(time, queries, measure) for drift in self.drifts)
        return sum(others, start=first)

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """Those of all summands."""
        return tuple(each for drift in self.drifts for each in drift.interactions(time))

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """Those of all summands."""
        return tuple(each for drift in self.drifts for each in drift.changes())

    def affine(self, time: Any, law: Normal) -> Affine:
        """The sum of the fields."""
        return added(drift.affine(time, law) for drift in self.drifts)


class Sum(AbstractSum):
    """Σ_l drift_l(t, x, μ)."""

    drifts: tuple[AbstractDrift, ...]

    def __init__(self, drifts: Any):
        self.drifts = tuple(drifts)

    def __check_init__(self):
        check_summands(self.drifts)

    def interacts_only(self, time: Any) -> bool:
        """Whether all summands do nothing else."""
        return all(drift.interacts_only(time) for drift in self.drifts)

    def resummed(self, time: Any, choose: Chooser) -> "Sum":
        """The sum of all summands, each with the summations that `choose` names."""
        return Sum(drift.resummed(time, choose) for drift in self.drifts)


class Multiple(AbstractDrift):
    """factor · drift(t, x, μ)."""

    drift: AbstractDrift
    factor: Float[Array, ""]

    def __init__(self, drift: AbstractDrift, factor: Any):
        self.drift = drift
        self.factor = as_scalar(factor, "factor")

    def __check_init__(self):
        check_kind(self.drift, AbstractDrift, "drift", "a drift")

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The multiple of the velocity."""
        return self.factor * self.drift(time, queries, measure)

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """Those of the drift, whose outputs are multiplied, too."""
        known = self.drift.interactions(time)
        return tuple(each if each.output is None else each._replace(output=self.factor * each.output) for each in known)

    def interacts_only(self, time: Any) -> bool:
        """Whether the drift that is multiplied does nothing else."""
        return self.drift.interacts_only(time)

    def stages(self, time: Any) -> tuple[tuple[AbstractDrift, "AbstractGeometry | None"], ...]:
        """The multiples of the drift's stages."""
        return tuple((Multiple(drift, self.factor), geometry) for drift, geometry in self.drift.stages(time))

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """Those of the drift."""
        return self.drift.changes()

    def resummed(self, time: Any, choose: Chooser) -> "Multiple":
        """The multiple of the drift with the summations that `choose` names."""
        return Multiple(self.drift.resummed(time, choose), self.factor)

    def affine(self, time: Any, law: Normal) -> Affine:
        """The multiple of the field."""
        return self.drift.affine(time, law).times(self.factor)


def added(fields: Iterable[Affine]) -> Affine:
    """The sum of affine fields."""
    return reduce(Affine.plus, fields)


def with_summation(drift: AbstractDrift, time: Any, choose: Chooser) -> Any:
    """A drift of one interaction with the `summation` that is chosen for it."""
    (interaction,) = drift.interactions(time)
    return eqx.tree_at(lambda each: each.summation, drift, choose(interaction))


def structure_of(drift: AbstractDrift) -> Any:
    """What drifts must have in common to be stacked along an axis: classes, static fields, and shapes of arrays."""
    leaves, structure = jax.tree_util.tree_flatten(drift)
    return structure, tuple(jnp.shape(leaf) for leaf in leaves)


def terms_of(drift: AbstractDrift) -> tuple[AbstractDrift, ...]:
    """The summands of a drift."""
    return drift.drifts if isinstance(drift, Sum) else (drift,)


def check_drifts(drifts: tuple[Any, ...]) -> None:
    """Raise unless there is at least one, and all are drifts."""
    if not drifts:
        raise ArgumentError("Argument `drifts` must name at least one drift, but is empty.")
    for index, drift in enumerate(drifts):
        check_kind(drift, AbstractDrift, f"drifts[{index}]", "a drift")


def acts_at_once(drift: AbstractDrift) -> bool:
    """Whether an explicit layer applies the drift as a whole, on the geometry of the flow: no block does."""
    stages = drift.stages(0.0)
    return len(stages) == 1 and stages[0][1] is None


def check_summands(drifts: tuple[Any, ...]) -> None:
    """Raise unless all are drifts that can be added: sub-layers of a block act one after the other."""
    check_drifts(drifts)
    if not all(map(acts_at_once, drifts)):
        raise ArgumentError(
            "A block cannot be added to other drifts, because its sub-layers act one after the other; "
            "make the other drifts sub-layers of the block."
        )


def check_balanced(normalization: str, data: Any) -> None:
    """Raise if other points than the particles are to be weighted doubly stochastically."""
    if normalization == "sinkhorn" and data is not None:
        raise ArgumentError(
            "Argument `data` must be left out with normalization = 'sinkhorn', which balances the weights of the "
            "particles among themselves; take normalization = 'row'."
        )


def check_interacting(kernel: Any, summation: Any, positional: Any = None, data: Any = None) -> None:
    """Raise unless the parts of a drift are objects of the right kinds."""
    check_kind(kernel, AbstractKernel, "kernel", "a kernel")
    check_kind(summation, AbstractSummation, "summation", "a summation")
    if positional is not None:
        check_kind(positional, AbstractKernel, "positional", "a kernel of positions")
    if data is not None:
        check_kind(data, Measure, "data", "a measure")
