"""Sums within a tolerance: chosen before every window from the current particles, and checked after it.

Where a drift sums with `Auto(tolerance=…)`, the cheapest method whose error bound is within the tolerance is taken, if
it also agrees with the exact sum for a random sample of particles: before the window (`choose_sums`), and again after
it (`Trial.after`). A method that fails, or with which the window cannot be solved, is replaced by the next one, and the
window is solved again; the last method is exact. Choices do not depend on earlier windows, so that a resumed run makes
the same ones.

The sample is small and may miss an error that only a few particles have; the error bound of the method covers all.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.dynamics.drifts.base import Interaction
from particleflow.kernels.algebra import Transposed
from particleflow.measure import Measure, Sites
from particleflow.simulation.plan import Plan
from particleflow.simulation.stepping import SolvedWindow
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation, Choice

_SAMPLE = 64


class Summed(NamedTuple):
    """How kernels are summed from `since` on: `methods`, the `reason`, the largest `error` on samples (exact: 0)."""

    since: float
    methods: str
    reason: str
    error: float

    def __str__(self) -> str:
        seen = f"; at most {self.error:.2g} seen on samples" if self.error > 0 else ""
        return f"{self.methods}: {self.reason}{seen}"


def joined(before: tuple[Summed, ...], now: Summed | None) -> tuple[Summed, ...]:
    """The history with one more window: an unchanged method extends the last entry, another one adds an entry."""
    if now is None:
        return before
    if before and before[-1].methods == now.methods:
        return (*before[:-1], before[-1]._replace(error=max(before[-1].error, now.error)))
    return (*before, now)


def told(history: tuple[Summed, ...]) -> str:
    """The history of sums in words, as the metadata of a run keep it."""
    first, *others = history
    return "; ".join([str(first), *(f"from t = {each.since:.6g} on {each}" for each in others)])


class Trial(NamedTuple):
    """A plan whose interactions are summed by choices that kept the tolerance before the window.

    Lists over the interactions whose summation is left open: `chosen`, the choice; `places`, its index among the
    choices; `allowed`, the error that the user allows; `errors`, those seen on the sample. `first` is the window's
    first frame, `begin` its time.
    """

    plan: Plan
    first: int
    begin: float
    places: list[int]
    chosen: list[Choice]
    allowed: list[float]
    errors: list[float]

    def after(self, window: SolvedWindow) -> tuple[dict[int, int], Summed]:
        """Check the choices after the window: for each that failed the index of the next to try, and what to report.

        A choice fails if its sample is not within the tolerance at the end of the window, or if the solver gave up.
        """
        errors = _errors_after(self, _single(window.state), float(np.asarray(window.end_time)[0]))
        lost = _is_lost(window)
        failed = {
            place: self.places[place] + 1 for place, error in errors.items() if not error <= self.allowed[place] or lost
        }
        methods = ", ".join(type(each.summation).__name__ for each in self.chosen)
        reasons = "; ".join(each.reason for each in self.chosen)
        return failed, Summed(self.begin, methods, reasons, max([*self.errors, *errors.values()], default=0.0))


def choose_sums(plan: Plan, first: int, begin: float, state: Any, passed: dict[int, int]) -> Trial:
    """For every interaction the first choice, of those that have not failed, whose sample is within the tolerance.

    Parameters: `first`, the first frame of the window; `state` at its `begin` (leading axis: one run); `passed`, for
    the interactions whose choices have failed, the index from which choices are tried.
    """
    places: list[int] = []
    chosen: list[Choice] = []
    allowed: list[float] = []
    errors: list[float] = []
    present = plan.present(0, _single(state), begin).reduced  # the points that a field sums over
    seen = present.observed

    def choose(interaction: Interaction) -> AbstractSummation:
        limit, start = interaction.allowed_error() or 0.0, passed.get(len(places), 0)
        place, choice, error = _first_within(limit, interaction, start, seen, first)
        places.append(place)
        chosen.append(choice)
        allowed.append(limit)
        errors.append(error)
        return interaction.summation if choice.error == 0 else choice.summation

    flow = plan.flow.resummed(present.time, choose)
    if not chosen:  # a stack of layers has one summation for all layers, which cannot be exchanged
        exact = [next(each.exactly().choices(seen)) for each in flow.interactions(present.time)]
        chosen = [each._replace(reason=f"{each.reason}; layers are summed exactly") for each in exact]
    return Trial(replace(plan, flow=flow), first, begin, places, chosen, allowed, errors)


def _first_within(
    limit: float, interaction: Interaction, begin: int, seen: Measure, first: int
) -> tuple[int, Choice, float]:
    """The first choice, from index `begin` on, whose sample is within the limit; its index, and the error seen there.

    A choice is computed only when those before it have failed.
    """
    for place, choice in enumerate(interaction.choices(seen)):
        error = _sampled_error(interaction, choice, seen, first) if place >= begin and choice.error > 0 else 0.0
        if place >= begin and error <= limit:
            return place, choice, error
    raise AssertionError("the last choice is exact")


def _errors_after(trial: Trial, state: Any, time: float) -> dict[int, float]:
    """The errors on a sample in another state, of the interactions that are approximated."""
    if all(choice.error == 0 for choice in trial.chosen):
        return {}
    present = trial.plan.present(0, state, time).reduced
    interactions: list[Interaction] = []  # those whose summation was exchanged, in the same order

    def note(interaction: Interaction) -> AbstractSummation:
        interactions.append(interaction)
        return interaction.summation

    present.flow.resummed(present.time, note)
    return {
        place: _sampled_error(interactions[place], choice, present.observed, trial.first)
        for place, choice in enumerate(trial.chosen)
        if choice.error > 0
    }


def _sampled_error(interaction: Interaction, choice: Choice, seen: Measure, first: int) -> float:
    """The largest error of mean (in units of max |z|) and log-mass of a sample of particles, drawn for this window."""
    random = np.random.default_rng([first, seen.count])
    sample = np.sort(random.choice(seen.count, min(_SAMPLE, seen.count), replace=False))
    asked = jax.tree_util.tree_map(lambda leaf: leaf[sample], seen.sites)
    return float(_error(interaction._replace(summation=choice.summation), seen, asked, jnp.asarray(sample)))


@eqx.filter_jit
def _error(interaction: Interaction, seen: Measure, asked: Sites, sample: Array) -> Array:
    """The error of the moments; with Sinkhorn weights also that of the tilt, which must solve its own equations."""
    how, exactly, kernel = interaction.summation, Auto(), interaction.bound_kernel(seen)
    looked_at = interaction.source_measure(seen)
    found, exact = (each.moments(kernel, looked_at, asked) for each in (how, exactly))
    largest = jnp.max(jnp.abs(looked_at.carried))
    errors = [jnp.max(jnp.abs(found.mean - exact.mean)) / jnp.where(largest > 0, largest, 1.0)]
    errors += [_difference(found.log_mass, exact.log_mass)]
    if interaction.normalization == "sinkhorn":
        rows = how.moments(kernel, looked_at, seen.sites).log_mass
        columns = exactly.moments(Transposed(kernel), seen.tilted(-rows), asked).log_mass
        tilt = (looked_at.log_weights - seen.log_weights)[sample]
        errors += [_difference(-columns, tilt)]
    return jnp.max(jnp.stack(errors))


def _difference(one: Array, other: Array) -> Array:
    """The largest difference; two infinities of one sign have none."""
    return jnp.max(jnp.where(one == other, 0.0, jnp.abs(one - other)))


def _is_lost(window: SolvedWindow) -> bool:
    """Whether the solver gave up, which an inaccurate sum may have caused."""
    return not (np.asarray(window.succeeded)[0] or np.asarray(window.stopped_by_event)[0])


def _single(state: Any) -> Any:
    """The state of the only run."""
    return jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf[0]), state)
