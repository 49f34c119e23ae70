"""Autoregression against NumPy and simulated laws; gaps against scikit-learn."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.impute import KNNImputer

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import UserError
from particleflow.models import LocalAutoregression, LocalImputer
from shares import by_default

_RNG = np.random.default_rng(11)


def path(count: int, seed: int = 0, steps: int = 0) -> np.ndarray:
    """x_{t+1} = 2.5 tanh(x_t) cos(x_t) + noise, whose spread grows with |x|: neither linear nor of one variance."""
    rng = np.random.default_rng(seed)
    series = np.zeros(count + steps)
    for t in range(1, count + steps):
        now = series[t - 1]
        series[t] = 2.5 * np.tanh(now) * np.cos(now) + (0.2 + 0.2 * abs(now)) * rng.normal()
    return series[:, None]


def gaussian(x: np.ndarray, y: np.ndarray, width: float) -> np.ndarray:
    return np.exp(-((x[:, None] - y[None]) ** 2).sum(-1) / (2 * width**2))


@pytest.mark.slow
@pytest.mark.parametrize("lags", by_default([1, 2], [2]))
def test_what_came_next_is_averaged(lags):
    """With a memory that fades: sums in NumPy, from the past alone."""
    series = path(60)
    model = LocalAutoregression(bandwidth=0.5, lags=lags, positional=k.Alibi(0.05)).fit(series)
    states = np.stack([np.concatenate([series[t - lag] for lag in range(lags)]) for t in range(lags - 1, 60)])
    times = np.arange(lags - 1, 60)
    pull = gaussian(states, states, 0.5) * np.exp(-0.05 * np.abs(times[:, None] - times[None]))
    nexts = series[lags:, 0]
    first = model.forecast(1, draws=10, random_state=0).mean[0, 0]
    assert abs(first - pull[-1, :-1] @ nexts / pull[-1, :-1].sum()) < 1e-12
    fitted = model.fitted()[:, 0]
    assert np.isnan(fitted[: lags + 1]).all()
    for row in (5, 40):
        past = pull[row, :row]
        assert abs(fitted[lags + row] - past @ nexts[:row] / past.sum()) < 1e-12


@pytest.mark.slow
def test_absolute_times_are_added_to_what_the_kernel_sees():
    series, encoding = path(40), k.Sinusoidal(0.4, 50.0)
    model = LocalAutoregression(k.Encoded(k.Gaussian(0.5), encoding)).fit(series)
    shifted = series + np.asarray(encoding.vectors(jnp.arange(40.0), 1))
    pull = gaussian(shifted, shifted, 0.5)
    found = model.forecast(1, draws=10, random_state=0).mean[0, 0]
    assert abs(found - pull[-1, :-1] @ series[1:, 0] / pull[-1, :-1].sum()) < 1e-12


def test_a_local_dynamical_system_is_a_step_of_mean_shift():
    series = path(40)
    model = LocalAutoregression(bandwidth=0.5, positional=k.Window(6.0)).fit(series)
    times = np.arange(40.0)
    cloud = pf.Measure.uniform(series, positions=times)
    velocity = pf.MeanShift(k.Gaussian(0.5) * k.Window(6.0))(0.0, cloud.sites, cloud)
    np.testing.assert_allclose(model.smoothed(), series + np.asarray(velocity), rtol=1e-12)
    pull = gaussian(series, series, 0.5) * (np.abs(times[:, None] - times[None]) < 6)
    np.testing.assert_allclose(model.smoothed(), pull @ series / pull.sum(1, keepdims=True), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("starts", "known", "off"), [(12, 600, 0.06), (80, 2000, 0.025)])
def test_intervals_hold_what_they_promise(starts, known, off):
    """Nine of ten futures of a simulated law lie within the interval of their model, one and three steps ahead."""
    steps = 3
    model = LocalAutoregression(bandwidth=0.15).fit(path(known))
    inside = np.zeros(steps)
    rng = np.random.default_rng(1)
    for start in range(starts):
        now = path(40, seed=100 + start)[-1]
        model.series_ = np.concatenate([path(known)[:-1], now[None]])
        found = model.forecast(steps, interval=0.9, draws=300, random_state=start)
        futures = np.full(300, now[0])
        for step in range(steps):
            noise = (0.2 + 0.2 * np.abs(futures)) * rng.normal(size=300)
            futures = 2.5 * np.tanh(futures) * np.cos(futures) + noise
            inside[step] += np.mean((futures > found.lower[step, 0]) & (futures < found.upper[step, 0]))
    np.testing.assert_allclose(inside / starts, 0.9, atol=off)


@pytest.mark.slow
def test_forecasts_repeat_with_their_seed():
    model = LocalAutoregression(bandwidth=0.5, lags=2).fit(path(60))
    one, two = (model.forecast(3, draws=50, random_state=4) for _ in range(2))
    np.testing.assert_array_equal(one.upper, two.upper)
    assert one.mean.shape == one.lower.shape == (3, 1)
    assert (one.lower <= one.upper).all()


@pytest.mark.parametrize(
    ("settings", "said"), [({"lags": 0}, "lags"), ({"lags": 60}, "n_samples = 60"), ({"positional": 3}, "positional")]
)
def test_what_cannot_be_is_refused(settings, said):
    with pytest.raises((ValueError, TypeError), match=said):
        LocalAutoregression(**settings).fit(path(60))
    model = LocalAutoregression(lags=2).fit(path(60))
    for act in (model.smoothed, lambda: model.forecast(0), lambda: model.forecast(1, interval=1.5)):
        with pytest.raises(UserError):
            act()


def with_gaps(count: int = 60, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 3))
    rows[:, 2] = rows[:, 0] - rows[:, 1] + 0.1 * rng.normal(size=count)
    return np.where(rng.uniform(size=rows.shape) < 0.2, np.nan, rows)


def test_gaps_are_filled_as_scikit_learn_does_with_the_same_weights():
    """KNNImputer over all samples, weighted by a Gaussian of its distances, is the local mean."""
    rows, others = with_gaps(), with_gaps(25, 1)
    others = others[~np.isnan(others).all(axis=1)]

    def weights(distances: np.ndarray) -> np.ndarray:
        return np.exp(-np.square(distances) / (2 * 0.7**2))

    imputer: Any = KNNImputer
    theirs = imputer(n_neighbors=60, weights=weights).fit(rows)
    ours = LocalImputer(bandwidth=0.7).fit(rows)
    np.testing.assert_allclose(ours.transform(others), theirs.transform(others), rtol=1e-9)
    kept = ~np.isnan(others)
    np.testing.assert_array_equal(ours.transform(others)[kept], others[kept])


def test_where_no_donor_is_seen_the_mean_is_taken():
    rows = with_gaps()
    model = LocalImputer("flat", 0.5).fit(rows)
    found = model.transform([[90.0, np.nan, 90.0], [np.nan, np.nan, np.nan]])
    np.testing.assert_allclose(found[0, 1], np.nanmean(rows[:, 1]))
    np.testing.assert_allclose(found[1], np.nanmean(rows, axis=0))
    with pytest.raises(UserError, match="Feature 1"):
        LocalImputer().fit(np.array([[1.0, np.nan], [2.0, np.nan]]))
    with pytest.raises(UserError, match="distances"):
        LocalImputer(k.Attention(1.0)).fit(rows)
