"""A Gaussian: the measure is a normal law, and its mean and covariance are all that moves.

    μ_t = N(a, S),  S = F Fᵀ,        ȧ = u,    Ḟ = B F + temperature F⁻ᵀ,    so that    Ṡ = B S + S Bᵀ + 2 temperature

for the velocity v(a + ξ) = u + B ξ that the law gives itself, in closed form: `flow.drift.affine`. Under softmax, L2
and Sinkhorn attention, MeanShift and linear drifts the velocity is affine, so this is the solution of the continuity
equation itself (Castin, Ablin, Carrillo and Peyré 2025). Under unnormalised attention it is not: there u = E[v] and
B = E[∇v] make the nearest affine field, and the Gaussian is that of the closed equations for mean and covariance.

A sum is never taken over particles: a step costs d³, whatever the number of points. The points of a frame are those of
the start, carried along by the affine field: x_j = a + F z_j. They have mean a and covariance S exactly at every time,
and without noise each moves as a particle would that sees the Gaussian instead of the other particles.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import is_concrete
from particleflow.discretization.base import POINTS, AbstractDiscretization
from particleflow.discretization.discretization_capabilities import (
    ClosedForm,
    Diagnosable,
    DrivenByNoise,
    HasLogDensity,
    HasStatistics,
    Noise,
)
from particleflow.dynamics.flow import Flow, flow_of_run
from particleflow.dynamics.geometry import NormalisesTheSet, check_start, for_weights, moving_laws
from particleflow.dynamics.normal_law import Normal
from particleflow.errors import ArgumentError
from particleflow.measure import Measure

_ABOUT_TO_DIVERGE = 1e-5  # an integral that is infinite for a law wider by this share is about to be
_SINGULAR = 1e-10  # a standard deviation below this share of the largest counts as zero


class GaussianState(eqx.Module):
    """The `mean` a and the `factor` F that move; the `directions` z_j and weights of the points, which do not."""

    mean: Any
    factor: Any
    directions: Any = None
    log_weights: Any = None
    positions: Any = None

    @property
    def law(self) -> Normal:
        """The normal law N(mean, factor factorᵀ)."""
        return Normal(self.mean, self.factor, jax.nn.logsumexp(self.log_weights))


class GaussianClosure(AbstractDiscretization, ClosedForm, Diagnosable, DrivenByNoise, HasLogDensity, HasStatistics):
    """A normal law N(a, F Fᵀ) with the mean and covariance of the start: ȧ = u, Ḟ = B F + temperature F⁻ᵀ.

    u + B ξ is the velocity that the drift has under the law itself, in closed form.

    The start is any cloud, of which only the mean, the covariance and the mass matter: `initial.GaussHermite` has those
    of a normal law exactly. Flat space and `set_norm` only. What has no affine velocity is refused: feed-forward
    layers, hardmax, kernels that are no quadratic form, positions, fixed data. Observables that sum over pairs are
    those of the cloud of points.
    """

    kind: ClassVar[str] = "gaussian"

    def begin(self, flow: Flow, measure: Measure) -> GaussianState:
        """Mean and covariance of the start, and its points as seen from them."""
        law = Normal.of(measure)
        back = jnp.linalg.pinv(law.factor, hermitian=True)
        directions = (measure.points - law.mean[None, :]) @ back
        return GaussianState(law.mean, law.factor, directions, measure.log_weights, measure.positions)

    def measure(self, flow: Flow, time: Any, state: GaussianState) -> Measure:
        """The points of the start, carried along: a cloud of the mean and covariance of the law."""
        law = moving_laws(flow.geometry).retract_law(state.law)
        return Measure(law.mean[None, :] + state.directions @ law.factor.T, state.log_weights, None, state.positions)

    def velocity(self, flow: Flow, time: Any, state: GaussianState) -> GaussianState:
        """d/dt of mean and factor."""
        law = moving_laws(flow.geometry).retract_law(state.law)
        field = flow.law_velocity(time, law)
        factor = field.matrix @ law.factor
        if flow.may_be_noisy:
            heat = flow.temperature.astype(factor.dtype)
            safe = jnp.where(heat > 0, law.factor, jnp.eye(law.dimension, dtype=factor.dtype))
            factor = factor + heat * jnp.linalg.inv(safe).T
        return GaussianState(field.offset, factor)

    def step(self, flow: Flow, time: Any, state: GaussianState, size: Any) -> GaussianState:
        """One explicit layer: the law of x ← N(x + size · v(x)), noise of variance 2 temperature size added."""
        law = flow.law_step(time, moving_laws(flow.geometry).retract_law(state.law), size)
        factor = law.factor
        if flow.may_be_noisy:
            added = 2 * (flow.temperature * size).astype(factor.dtype)
            wider = jnp.linalg.cholesky(law.covariance + added * jnp.eye(law.dimension, dtype=factor.dtype))
            factor = jnp.where(added > 0, wider, factor)
        return GaussianState(law.mean, factor, state.directions, state.log_weights, state.positions)

    def fields(self, flow: Flow, time: Any, state: GaussianState) -> dict[str, Array]:
        """The points; their `centre` and `covariance` are those of the law."""
        return {POINTS: self.measure(flow, time, state).points}

    def noises(self, flow: Flow, state: GaussianState) -> tuple[Noise, ...]:
        """The noise that all share moves the mean; that of every particle is diffusion, part of the velocity.

        They are two, as for particles, so that one key moves the mean of a Gaussian as it moves that of particles.
        """
        common = flow.common_temperature
        if is_concrete(common) and not np.any(np.asarray(common) > 0):
            return ()

        def nothing(time: Any, now: GaussianState, increment: Array) -> GaussianState:
            return GaussianState(jnp.zeros_like(now.mean), jnp.zeros_like(now.factor))

        def shift(time: Any, now: GaussianState, increment: Array) -> GaussianState:
            kick = jnp.sqrt(2 * common).astype(now.mean.dtype) * increment[0]
            return GaussianState(kick, jnp.zeros_like(now.factor))

        return Noise((0,), nothing), Noise((1, *state.mean.shape), shift)

    def log_density(self, flow: Flow, time: Any, state: GaussianState) -> Float[Array, " n"]:
        """log of the normal density at the points."""
        law = moving_laws(flow.geometry).retract_law(state.law)
        return law.log_density(self.measure(flow, time, state).points)

    def diagnose(self, flow: Flow, time: Any, state: GaussianState) -> str | None:
        """An integral of the kernel against the law that is infinite, or about to be."""
        law = moving_laws(flow.geometry).retract_law(state.law)
        wider = Normal(law.mean, (1 + _ABOUT_TO_DIVERGE) * law.factor, law.log_mass)
        for each in flow.interactions(time):
            if not np.isfinite(np.asarray(each.affine(wider).matrix)).all():
                widest = float(np.linalg.eigvalsh(np.asarray(law.covariance, float)).max())
                return (
                    f"the integral of the kernel {each.kernel!r} (normalization {each.normalization!r}) against the "
                    f"Gaussian becomes infinite, now that its largest variance is {widest:.6g}."
                )
        return None

    def statistics(self, states: Any) -> dict[str, Any]:
        """The largest variance at the end, of all runs."""
        factors = np.asarray(states.factor, float)
        spread = np.linalg.norm(np.where(np.isfinite(factors), factors, 0.0), 2, axis=(-2, -1)) ** 2
        return {"largest variance": float(np.max(spread))}

    def check(self, flow: Flow, measure: Measure, *, flow_per_run: bool = False) -> None:
        """The start must be on the geometry, the geometry move laws, and the drift be affine."""
        one = flow_of_run(flow, 0) if flow_per_run else flow
        if measure.values is not None:
            raise ArgumentError("A Gaussian carries no `values` of its points, but the start has some; leave them out.")
        if measure.fields:
            raise ArgumentError(f"A Gaussian carries no fields, but the start has {', '.join(sorted(measure.fields))}.")
        dimension, dtype = (
            measure.dimension if measure.points.ndim == 2 else measure.points.shape[-1],
            measure.points.dtype,
        )
        law = Normal(jnp.zeros(dimension, dtype), jnp.eye(dimension, dtype=dtype), jnp.zeros((), dtype))
        jax.eval_shape(lambda: one.law_velocity(jnp.zeros((), dtype), moving_laws(one.geometry).retract_law(law)))
        space = for_weights(flow.geometry, measure.log_weights)
        check_start(space, measure.points, per_run=flow_per_run)
        shared = is_concrete(flow.common_temperature) and np.any(flow.common_temperature > 0)
        if shared and isinstance(flow.geometry, NormalisesTheSet):
            raise ArgumentError(
                f"Noise that all share (`common_temperature`) moves the mean, which the geometry {flow.geometry.name} "
                "holds; leave it out."
            )
        if flow.is_noisy and is_concrete(measure.points):
            _check_spread(measure)


Gaussian = GaussianClosure  # its name for users, `pf.discretization.Gaussian`


def _check_spread(measure: Measure) -> None:
    """With noise the covariance must be invertible from the beginning on."""
    points, weights = np.asarray(measure.points, float), np.exp(np.asarray(measure.log_weights, float))
    shares = weights / weights.sum(axis=-1, keepdims=True)
    centred = points - np.einsum("...n,...nd->...d", shares, points)[..., None, :]
    spectrum = np.linalg.eigvalsh(np.einsum("...n,...nd,...ne->...de", shares, centred, centred))
    if not (spectrum[..., 0] > _SINGULAR**2 * spectrum[..., -1]).all() or not (spectrum[..., -1] > 0).all():
        raise ArgumentError(
            "A Gaussian with temperature must spread in every direction from the beginning on, but the start does not; "
            "it needs more points than dimensions, in general position."
        )
