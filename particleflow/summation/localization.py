"""The localization trick: any loss, made local by a kernel.

    global   θ̂     = argmin_θ ∫ l(y, z(y), θ) dμ(y)
    local    θ̂(x)  = argmin_θ ∫ K(x, y) l(y, z(y), θ) dμ(y)             localize(l, K)
    total    J(K)  = ∫ l(x, z(x), θ̂(x)) dμ(x)                            with x itself, or without (leave-one-out)

The squared loss of a constant gives the local mean, that of an affine function local linear regression, the logistic
loss local logistic regression. The kernel enters by local means alone: those of (l, ∂l/∂θ, ∂²l/∂θ²) at the present
θ(x), with which every query takes Newton steps of its own. Drawn points in place of the kernel, y_1, …, y_p ∼
K(x, y) dμ(y), give the Monte Carlo form, argmin_θ Σ_k l(y_k, z(y_k), θ).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from particleflow._support.arrays import as_float_array
from particleflow._support.representation import shown
from particleflow.errors import ArgumentError, ShapeError, check_kind, whole_number
from particleflow.kernels import AbstractKernel, Others
from particleflow.measure import Measure, Sites
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.base import lifted
from particleflow.summation.local_mean import as_sites, bound
from particleflow.summation.sampling import check_draws

Loss = Callable[[Array, Array, Array], Array]
Terms = Callable[[Array, Array], Array]

REST_ULPS = 4  # θ rests, and a loss has not risen, within so many eps of their size
_DESCENT = 1e-4  # the share of what the slope promises by which a step must lower the loss (Armijo)


class LocalFit(NamedTuple):
    """The fit of every query: its `parameters`, the local `loss` there, and the `slope` |∂L/∂θ| that is left.

    The slope is 0 up to rounding where a minimum was found; a query that sees nothing has NaN everywhere.
    """

    parameters: Float[Array, "m p"]
    loss: Float[Array, " m"]
    slope: Float[Array, " m"]


class Localized(eqx.Module):
    """A loss made local by a kernel, as `localize` returns it.

    Parameters: `loss` l(point, value, θ); `kernel` K; `summation`; `steps`, the most Newton steps of a query.
    """

    loss: Loss = eqx.field(static=True)
    kernel: AbstractKernel
    summation: AbstractSummation
    steps: int = eqx.field(static=True)

    def fit(self, measure: Measure, queries: Any, initial: Any) -> LocalFit:
        """θ̂(x) = argmin_θ ∫ K(x, y) l(y, z(y), θ) dμ(y) at every query.

        Derivatives with respect to kernel, measure and queries are those of the minimum (implicit function theorem).
        Parameters: `measure` with its values z; `queries` (m, d), one point, `Sites` or a measure; `initial` θ (p,),
        from which every query begins.
        """
        kernel = bound(self.kernel, measure)
        sites, single = as_sites(queries)
        found = _fitted(self, _ByKernel(kernel, measure, self.summation), sites, self._begin(initial, measure))
        return _first(found) if single else found

    def resampled_fit(self, key: Array, measure: Measure, queries: Any, initial: Any, *, draws: int) -> LocalFit:
        """The Monte Carlo form: the least mean loss of `draws` points, drawn ∝ K(x, y) dμ(y) for every query.

        It tends to `fit` at the rate draws^{−1/2}; with one draw it is the stochastic form.
        Parameters: a random `key`; the others as for `fit`.
        """
        kernel = bound(self.kernel, measure)
        whole_number(draws, "draws")
        sites, single = as_sites(queries)
        chosen = check_draws(self.summation).draw(key, kernel, measure, sites, draws)
        found = _fitted(self, _ByDraws(measure), chosen, self._begin(initial, measure))
        return _first(found) if single else found

    def total_loss(self, measure: Measure, initial: Any, *, leave_out: bool = False) -> Float[Array, ""]:
        """J(K) = ∫ l(x, z(x), θ̂(x)) dμ(x), divided by the mass of those x that see a point.

        With x itself J falls as the kernel narrows, to 0 if some θ fits a single point exactly. With `leave_out`, θ̂(x)
        is fitted to all other points (those at another position; by index, if the measure has no positions), and J has
        a minimum by which a bandwidth can be chosen.
        """
        local, queries = self._of_others(measure) if leave_out else (self, measure)
        return self._total(measure, local.fit(queries, queries, initial))

    def resampled_total_loss(
        self, key: Array, measure: Measure, initial: Any, *, draws: int, leave_out: bool = False
    ) -> Float[Array, ""]:
        """J(K) of the Monte Carlo form, `draws` points for every x; see `resampled_fit` and `total_loss`."""
        local, queries = self._of_others(measure) if leave_out else (self, measure)
        return self._total(measure, local.resampled_fit(key, queries, queries, initial, draws=draws))

    def _of_others(self, measure: Measure) -> tuple["Localized", Measure]:
        """Leave-one-out: the same under K · `Others`, on points whose positions tell them apart."""
        local = Localized(self.loss, self.kernel * Others(), self.summation, self.steps)
        if measure.positions is not None:
            return local, measure
        return local, measure.with_positions(jnp.arange(measure.count).astype(measure.points.dtype))

    def _total(self, measure: Measure, found: LocalFit) -> Float[Array, ""]:
        """The mean loss at the points of a measure, of those that have found parameters."""
        seen = jnp.isfinite(found.parameters).all(axis=1)
        theta = jnp.where(seen[:, None], found.parameters, 0.0)
        losses = jax.vmap(self.loss)(measure.points, measure.carried, theta)
        weights = jnp.where(seen, jnp.exp(measure.log_weights), 0.0)
        return weights @ jnp.where(seen, losses, 0.0) / jnp.sum(weights)

    def _begin(self, initial: Any, measure: Measure) -> Float[Array, " p"]:
        """The first parameters, if the loss takes them and is one number."""
        begin = as_float_array(initial, "initial").astype(measure.points.dtype)
        if begin.ndim != 1:
            raise ShapeError(f"Argument `initial` must be a list of parameters, but has shape {begin.shape}.")
        found = jax.eval_shape(self.loss, measure.points[0], measure.carried[0], begin)
        if getattr(found, "shape", None) != ():
            raise ShapeError(f"The loss of one point must be one number, but is {found}.")
        return begin

    def __repr__(self) -> str:
        return shown(self)


def localize(
    loss: Loss, kernel: AbstractKernel, *, summation: AbstractSummation | None = None, steps: int = 100
) -> Localized:
    """The localization trick: the loss of one point becomes its local mean at every query.

    The loss must be twice differentiable in θ. Where it has curvature, Newton's steps reach the minimum (one is enough
    for a square). Along directions without curvature θ keeps its initial value: where the loss does not depend on them,
    and where it is linear, as absolute values are; `LocalFit.slope` shows the second case.
    Parameters: `loss` l(point, value, θ), a number; `kernel` K; `summation`, `Auto()` if left out; `steps` at most.
    """
    check_kind(kernel, AbstractKernel, "kernel", "a kernel, such as kernels.Gaussian(0.3)")
    if not callable(loss):
        raise ArgumentError(f"Argument `loss` must be a function (point, value, parameters), but is {loss!r}.")
    whole_number(steps, "steps")
    return Localized(loss, kernel, summation or Auto(), steps)


class _ByKernel(eqx.Module):
    """Averages under the kernel, seen from a query: local means."""

    kernel: AbstractKernel
    measure: Measure
    summation: AbstractSummation

    def average(self, site: Sites, terms: Terms) -> Array:
        values = jax.vmap(terms)(self.measure.points, self.measure.carried)
        moments = self.summation.moments(self.kernel, self.measure, lifted(site), values=values)
        return jnp.where(jnp.isneginf(moments.log_mass[0]), jnp.nan, moments.mean[0])


class _ByDraws(eqx.Module):
    """Averages over points that were drawn for a query."""

    measure: Measure

    def average(self, places: Int[Array, " k"], terms: Terms) -> Array:
        drawn = jax.vmap(terms)(self.measure.points[places], self.measure.carried[places])
        return jnp.where(jnp.all(places < 0), jnp.nan, jnp.mean(drawn, axis=0))


class _State(NamedTuple):
    """The state of a query's Newton search: θ, its local loss with derivatives, the length of the next step, whether θ
    rests, and the number of steps taken."""

    place: Float[Array, " p"]
    loss: Float[Array, ""]
    slope: Float[Array, " p"]
    bend: Float[Array, "p p"]
    length: Float[Array, ""]
    still: Bool[Array, ""]
    taken: Int[Array, ""]


@eqx.filter_jit  # loops outside `jit` are compiled again at every call
def _fitted(how: Localized, around: _ByKernel | _ByDraws, queries: Any, begin: Float[Array, " p"]) -> LocalFit:
    """Every query on its own; the loop sees constants, and one step after it has the derivatives of the minimum."""
    constant = jax.tree_util.tree_map(jax.lax.stop_gradient, eqx.filter(around, eqx.is_array))
    held = eqx.combine(constant, around)

    def at_one(site: Any) -> LocalFit:
        still = jax.tree_util.tree_map(jax.lax.stop_gradient, site)
        place = jax.lax.stop_gradient(_descended(how, held, still, begin).place)
        loss, slope, bend = _derivatives(how.loss, around, site, place)
        inverse = jax.lax.stop_gradient(_inverse(bend))
        moved = place - inverse @ (slope - jax.lax.stop_gradient(slope))
        return LocalFit(jnp.where(jnp.isnan(loss), jnp.nan, moved), loss, jnp.linalg.norm(slope))

    return jax.lax.map(at_one, queries)


def _descended(how: Localized, around: _ByKernel | _ByDraws, site: Any, begin: Float[Array, " p"]) -> _State:
    """Newton steps, halved while they do not lower the loss, until θ rests within rounding."""
    rounding = REST_ULPS * float(jnp.finfo(begin.dtype).eps)

    def step(state: _State) -> _State:
        direction = -_inverse(state.bend) @ state.slope
        move = state.length * direction
        loss, slope, bend = _derivatives(how.loss, around, site, state.place + move)
        promised = _DESCENT * move @ state.slope + rounding * jnp.abs(state.loss)
        better = loss <= state.loss + promised
        still = jnp.linalg.norm(move) <= rounding * (1 + jnp.linalg.norm(state.place))
        length = jnp.where(better, 1.0, 0.5 * state.length).astype(state.length.dtype)
        there = (state.place + move, loss, slope, bend)
        here = (state.place, state.loss, state.slope, state.bend)
        place, loss, slope, bend = (jnp.where(better, new, old) for new, old in zip(there, here, strict=True))
        return _State(place, loss, slope, bend, length, still, state.taken + 1)

    first = _derivatives(how.loss, around, site, begin)
    start = _State(begin, *first, jnp.ones((), begin.dtype), jnp.isnan(first[0]), jnp.zeros((), int))
    return jax.lax.while_loop(lambda state: ~state.still & (state.taken < how.steps), step, start)


def _derivatives(
    loss: Loss, around: _ByKernel | _ByDraws, site: Any, place: Float[Array, " p"]
) -> tuple[Float[Array, ""], Float[Array, " p"], Float[Array, "p p"]]:
    """L, ∂L/∂θ and ∂²L/∂θ², as one local mean."""

    def terms(point: Array, value: Array) -> Array:
        def own(parameters: Array) -> Array:
            return loss(point, value, parameters)

        bend = jax.jacfwd(jax.grad(own))(place)
        return jnp.concatenate([own(place)[None], jax.grad(own)(place), bend.ravel()])

    found, count = around.average(site, terms), place.shape[0]
    return found[0], found[1 : count + 1], found[count + 1 :].reshape(count, count)


def _inverse(bend: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """The pseudo-inverse of |H|, H symmetric: −|H|⁻¹ ∂L/∂θ points downhill at a saddle, too."""
    values, vectors = jnp.linalg.eigh(jnp.where(jnp.isfinite(bend), bend, 0.0))
    sizes = jnp.abs(values)
    cutoff = bend.shape[0] * float(jnp.finfo(bend.dtype).eps) * jnp.max(sizes)
    inverse = jnp.where(sizes > cutoff, 1 / jnp.where(sizes > cutoff, sizes, 1.0), 0.0)
    return (vectors * inverse[None, :]) @ vectors.T


def _first(found: LocalFit) -> LocalFit:
    """The fit of a single query, without the leading axis."""
    return LocalFit(*(each[0] for each in found))


def __dir__() -> list[str]:
    return ["LocalFit", "Localized", "localize"]
