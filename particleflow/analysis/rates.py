"""Rates with confidence intervals: exponential and power laws fitted as straight lines in the logarithm.

Least squares of log y on t (exponential) or on log t (power law), with Student's t for the interval:

    slope  b = Σ (x_k − x̄)(y_k − ȳ) / S,   S = Σ (x_k − x̄)²,   residuals r_k = y_k − ȳ − b (x_k − x̄)
    error  e = √( Σ r_k² / ((n − 2) S) · (1 + ρ) / (1 − ρ) ),   interval  b ± t_{n−2} e

Frames of a trajectory are not independent measurements: ρ ≥ 0 is the lag-one autocorrelation of the residuals, and the
factor is the variance of a mean of such a series over that of independent samples; ρ is reported.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.reading import FloatArray, as_series
from particleflow.errors import ArgumentError, ShapeError


@dataclass(frozen=True)
class LineFit:
    """A straight line y ≈ intercept + slope·x; (low, high) is the interval of the slope at the confidence `level`.

    r_squared: 1 − Σ r_k² / Σ (y_k − ȳ)², the explained part of the variance; autocorrelation: ρ of the residuals.
    """

    slope: float
    low: float
    high: float
    level: float
    standard_error: float
    intercept: float
    r_squared: float
    autocorrelation: float
    points: int


@dataclass(frozen=True)
class RateFit:
    """A law fitted over a window: "exponential" y ≈ A e^{rate·t}, or "power" y ≈ A t^{rate}, with low ≤ rate ≤ high.

    A is the `amplitude`; the numbers of the fit are those of the line in the logarithm.
    """

    law: str
    rate: float
    low: float
    high: float
    level: float
    amplitude: float
    r_squared: float
    autocorrelation: float
    window: tuple[float, float]
    points: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as a table for JSON."""
        return asdict(self)


def fit_line(x: ArrayLike, y: ArrayLike, *, level: float = 0.95, ordered: bool = True) -> LineFit:
    """Fit a straight line by least squares, with a Student interval for the slope.

    ordered: the samples follow each other in time, so correct for the autocorrelation of the residuals.
    Two samples give a slope without an interval (low and high are NaN); fewer are an error.

    x, y: (n,); level: the confidence of the interval.
    """
    from scipy.special import stdtrit  # the quantile of Student's t; scipy.stats takes half a second to import

    abscissa, ordinate = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if abscissa.shape != ordinate.shape or abscissa.ndim != 1:
        raise ShapeError(f"`x` and `y` must be vectors of one length, but have {abscissa.shape}, {ordinate.shape}.")
    if not 0.0 < level < 1.0:
        raise ArgumentError(f"Argument `level` must lie between 0 and 1, but is {level}.")
    centred = abscissa - abscissa.mean() if abscissa.size else abscissa
    spread = float(centred @ centred)
    if abscissa.size < 2 or spread == 0.0:
        raise ArgumentError(f"A slope needs two samples at different places, but got {abscissa.size} sample(s).")
    slope = float(centred @ (ordinate - ordinate.mean())) / spread
    residual = ordinate - ordinate.mean() - slope * centred
    total = float(np.square(ordinate - ordinate.mean()).sum())
    correlation = _lag_one(residual) if ordered else 0.0
    degrees = abscissa.size - 2
    error = half = float("nan")
    if degrees > 0:
        error = np.sqrt(float(residual @ residual) / degrees / spread * (1 + correlation) / (1 - correlation))
        half = float(stdtrit(degrees, 0.5 + 0.5 * level)) * error
    intercept = float(ordinate.mean() - slope * abscissa.mean())
    explained = 1.0 - float(residual @ residual) / total if total > 0 else 1.0
    return LineFit(
        slope, slope - half, slope + half, level, float(error), intercept, explained, correlation, abscissa.size
    )


def fit_exponential(
    times: ArrayLike,
    values: ArrayLike,
    *,
    window: tuple[float, float] | None = None,
    limit: float = 0.0,
    level: float = 0.95,
) -> RateFit:
    """Fit |y(t) − limit| ≈ A e^{rate·t}; a negative rate is a decay.

    window: (first, last) time to use, by default all. limit: the value approached, known beforehand (it is not fitted).
    times, values: (n,); level: the confidence of the interval.
    """
    clock, log_values = _logarithms(times, values, window, limit)
    fit = fit_line(clock, log_values, level=level)
    return _rate("exponential", fit, clock)


def fit_power_law(
    times: ArrayLike,
    values: ArrayLike,
    *,
    window: tuple[float, float] | None = None,
    limit: float = 0.0,
    level: float = 0.95,
) -> RateFit:
    """Fit |y(t) − limit| ≈ A t^{rate} over positive times; a negative rate is a decay.

    times, values: (n,); window, limit, level: as of `fit_exponential`.
    """
    clock, log_values = _logarithms(times, values, window, limit)
    positive = clock > 0
    if positive.sum() < 2:
        raise ArgumentError(f"A power law needs two positive times in its window, but has {int(positive.sum())}.")
    clock, log_values = clock[positive], log_values[positive]
    fit = fit_line(np.log(clock), log_values, level=level)
    return _rate("power", fit, clock)


def better_law(times: ArrayLike, values: ArrayLike, **options: Any) -> RateFit:
    """Fit both laws and return the one with the smaller unexplained part of the variance of log |y − limit|.

    Both are fitted over the positive times, so that they explain the same samples.

    times, values: (n,); options: `window`, `limit` and `level` of both fits.
    """
    clock, array = as_series(times, values)
    positive = clock > 0
    fits = [fit(clock[positive], array[positive], **options) for fit in (fit_exponential, fit_power_law)]
    return max(fits, key=lambda fit: fit.r_squared)


def _rate(law: str, fit: LineFit, clock: FloatArray) -> RateFit:
    """Turn the line log y = log A + rate · x into the law; A is kept below the largest number."""
    window = (float(clock[0]), float(clock[-1]))
    amplitude = float(np.exp(min(fit.intercept, 709.0)))
    return RateFit(
        law, fit.slope, fit.low, fit.high, fit.level, amplitude, fit.r_squared, fit.autocorrelation, window, fit.points
    )


def _logarithms(
    times: ArrayLike, values: ArrayLike, window: tuple[float, float] | None, limit: float
) -> tuple[FloatArray, FloatArray]:
    """Return the times inside the window and log |y − limit| at them, which must exist."""
    clock, array = as_series(times, values)
    if window is not None:
        inside = (clock >= window[0]) & (clock <= window[1])
        clock, array = clock[inside], array[inside]
    distance = np.abs(array - limit)
    if clock.size < 2:
        raise ArgumentError(f"A rate needs two frames, but the window {window} holds {clock.size}.")
    if not np.isfinite(distance).all() or (distance == 0).any():
        bad = float(clock[np.flatnonzero(~np.isfinite(distance) | (distance == 0))[0]])
        raise ArgumentError(
            f"A rate is fitted to log |value − {limit:g}|, but the value at time {bad:g} is not finite or equals the "
            "limit; choose a `window` that leaves it out."
        )
    return clock, np.log(distance)


def _lag_one(residual: FloatArray) -> float:
    """Estimate the lag-one autocorrelation ρ = Σ r_k r_{k+1} / Σ r_k², between 0 and 0.99; 0 without residuals."""
    power = float(residual @ residual)
    if residual.size < 4 or power == 0.0:
        return 0.0
    return float(np.clip((residual[1:] @ residual[:-1]) / power, 0.0, 0.99))
