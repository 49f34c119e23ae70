"""Autoregression: the mean of the values that followed states like the present one.

    x̂_{t+1} = Σ_s K(x_t, t, x_s, s) x_{s+1} / Σ_s K(x_t, t, x_s, s)        next values as values: local autoregression
    m(x_t)  = Σ_s K(x_t, t, x_s, s) x_s / Σ_s K(x_t, t, x_s, s)            the series itself: local dynamical system

A state is a row of the series, or several lags of it. Positions are the times: a product K₁(x_t, x_s) K₂(t, s) forgets
(`Alibi`, `Window`, `TimeGaussian`), and absolute times are added to the states, K₁(x_t + p(t), x_s + p(s)), by
`Encoded`. Drawing what came next, in place of its mean, gives paths whose law is the local one, and so intervals
(Paparoditis and Politis, The local bootstrap for Markov processes, 2002).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from particleflow.errors import ArgumentError, check_kind
from particleflow.kernels import AbstractKernel, StrictlyCausal
from particleflow.measure import Measure, Sites
from particleflow.models.base import check_count, check_share, compiled, kernel_of, samples_of, seen_means_at
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.local_mean import local_mean
from particleflow.summation.sampling import check_draws


class Forecast(NamedTuple):
    """The mean of the next rows (steps, features), and the lower and upper bounds of a central interval."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class LocalAutoregression(BaseEstimator):
    """The next value of a series, the local mean over past states; rows of X are in the order of time.

    Parameters: `kernel` of states, a name with a `bandwidth` or a kernel object, which may depend on times; `lags`, how
    many rows make a state, the newest first; `positional`, a kernel of times that multiplies it; `summation`.

    Attributes: `kernel_`; `measure_`, states that carry the rows after them at their times; `series_`;
    `n_features_in_`.
    """

    kernel_: AbstractKernel
    measure_: Measure

    def __init__(
        self,
        kernel: Any = "gaussian",
        bandwidth: Any = 1.0,
        lags: int = 1,
        positional: AbstractKernel | None = None,
        summation: AbstractSummation | None = None,
    ):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.lags = lags
        self.positional = positional
        self.summation = summation

    def fit(self, X: Any, y: Any = None) -> "LocalAutoregression":
        """Store the states of the series with the rows that follow them as `measure_`."""
        series = samples_of(self, X)
        check_count(self.lags, "lags")
        if len(series) <= self.lags:
            raise ArgumentError(
                f"A series must be longer than its lags, {self.lags}, so that a state is followed by a value, but has "
                f"n_samples = {len(series)}."
            )
        states = _states(series, int(self.lags))
        kernel = kernel_of(self.kernel, self.bandwidth, states)
        if self.positional is not None:
            check_kind(self.positional, AbstractKernel, "positional", "a kernel of positions")
        self.kernel_ = kernel if self.positional is None else kernel * self.positional
        times = np.arange(self.lags - 1, len(series), dtype=np.float64)
        self.measure_ = Measure.uniform(states[:-1], series[int(self.lags) :], times[:-1])
        self.series_ = series
        return self

    def fitted(self) -> np.ndarray:
        """x̂ of every row of the series from the rows before it alone; NaN where no state precedes it."""
        check_is_fitted(self)
        found = compiled(_from_the_past)(self.measure_, self.kernel_, self.summation or Auto())
        return np.concatenate([np.full((int(self.lags), self.series_.shape[1]), np.nan), np.asarray(found)])

    def smoothed(self) -> np.ndarray:
        """m(x_t) of every row, one step of the local dynamical system on the series itself; `lags` must be 1."""
        check_is_fitted(self)
        if self.lags != 1:
            raise ArgumentError(f"A local dynamical system moves rows, but here a state has {self.lags} of them.")
        whole = Measure.uniform(self.series_, None, np.arange(len(self.series_), dtype=np.float64))
        return np.asarray(local_mean(self.kernel_, whole, whole, summation=self.summation))

    def forecast(
        self, steps: int = 1, *, interval: float = 0.9, draws: int = 1000, random_state: Any = None
    ) -> Forecast:
        """Means and central intervals of the next `steps` rows, from `draws` random paths.

        Each path draws a past state with probability ∝ K at every step and continues with the row that followed it. The
        first mean is the local mean itself, the others are means over the paths.

        Parameters: `steps`; `interval`, the probability of the central interval; `draws`; `random_state`.
        """
        check_is_fitted(self)
        check_count(steps, "steps")
        check_count(draws, "draws")
        check_share(interval, "interval")
        paths = self._paths(int(steps), int(draws), random_state)
        bounds = np.quantile(paths, [(1 - interval) / 2, (1 + interval) / 2], axis=1)
        mean = paths.mean(axis=1)
        last, time = self._present()
        mean[0] = local_mean(self.kernel_, self.measure_, Sites(last, time), summation=self.summation)
        return Forecast(mean, *bounds)

    def _present(self) -> tuple[Array, Array]:
        """The last state and its time."""
        last = _states(self.series_, int(self.lags))[-1]
        return jnp.asarray(last), jnp.asarray(float(len(self.series_) - 1))

    def _paths(self, steps: int, draws: int, random_state: Any) -> np.ndarray:
        seed = check_random_state(random_state).randint(2**31 - 1)
        how = self.summation or Auto()
        key = jax.random.key(int(seed))
        return np.array(compiled(_drawn_paths)(key, *self._present(), self.kernel_, self.measure_, how, steps, draws))


def _states(series: np.ndarray, lags: int) -> np.ndarray:
    """Every row joined with the lags − 1 rows before it, the newest first."""
    return np.concatenate([series[lags - 1 - lag : len(series) - lag] for lag in range(lags)], axis=1)


def _from_the_past(measure: Measure, kernel: AbstractKernel, how: AbstractSummation) -> Array:
    """x̂ of every state from the states before it: strictly causal local means, NaN for the first."""
    return seen_means_at(measure, kernel * StrictlyCausal(), measure, how)


def _drawn_paths(
    key: Array,
    state: Float[Array, " s"],
    time: Float[Array, ""],
    kernel: AbstractKernel,
    measure: Measure,
    how: AbstractSummation,
    steps: int,
    draws: int,
) -> Float[Array, "steps draws d"]:
    """Random continuations of one state; NaN from the step at which the kernel reaches no past state."""
    kernel, nexts = kernel.bind(measure), measure.carried

    def step(now: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Array]:
        states, times = now
        chosen = check_draws(how).draw(key, kernel, measure, Sites(states, times), 1)[:, 0]
        after = jnp.where(chosen[:, None] < 0, jnp.nan, nexts[chosen])
        older = states[:, : states.shape[1] - after.shape[1]]
        return (jnp.concatenate([after, older], axis=1), times + 1), after

    begin = jnp.tile(state[None], (draws, 1)), jnp.full(draws, 1.0) * time
    return jax.lax.scan(step, begin, jax.random.split(key, steps))[1]
