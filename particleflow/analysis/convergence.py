"""Convergence in N: the exponent with which an error falls as the number of particles grows.

For e(N) ≈ C N^s, log e = log C + s log N is a straight line; s = −1/2 for independent samples of a measure (Monte
Carlo), and steeper for starts that are spread evenly. An error that is random is known by its root mean square over
repetitions, whose logarithm is what is fitted.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.rates import fit_line
from particleflow.errors import ArgumentError, ShapeError


@dataclass(frozen=True)
class ConvergenceFit:
    """error ≈ prefactor · N^slope; (low, high) is the interval of the slope; `method` says where it comes from."""

    slope: float
    low: float
    high: float
    level: float
    prefactor: float
    r_squared: float
    method: str
    counts: list[float]
    errors: list[float]

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as a table for JSON."""
        return asdict(self)


def convergence_slope(
    counts: ArrayLike, errors: ArrayLike, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> ConvergenceFit:
    """Fit the slope of log RMS error against log N.

    counts: (n,). errors: (n,) one error each, with Student's interval; or (n, repetitions) signed or absolute errors,
    which are combined to √(mean error²) and whose interval comes from resampling the repetitions (bootstrap, of the
    seed). level: the confidence of the interval; resamples: of the bootstrap.
    """
    number, error = np.asarray(counts, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if number.ndim != 1 or error.ndim not in (1, 2) or error.shape[0] != number.size:
        raise ShapeError(f"`errors` must have shape (n,) or (n, repetitions) with n = {number.size}: {error.shape}.")
    if (number <= 0).any() or not np.isfinite(error).all():
        raise ArgumentError("`counts` must be positive and `errors` finite.")
    table = error[:, None] if error.ndim == 1 else error
    size = np.sqrt(np.mean(np.square(table), axis=1))
    if (size == 0).any():
        raise ArgumentError(
            f"An error of exactly zero at N = {number[np.argmin(size)]:g} has no logarithm; leave it out."
        )
    fit = fit_line(np.log(number), np.log(size), level=level, ordered=False)
    low, high, method = fit.low, fit.high, "student"
    if table.shape[1] > 1:
        low, high = _bootstrap(number, table, level, resamples, seed)
        method = f"bootstrap of {table.shape[1]} repetitions, {resamples} resamples, seed {seed}"
    prefactor = float(np.exp(fit.intercept))
    return ConvergenceFit(fit.slope, low, high, level, prefactor, fit.r_squared, method, number.tolist(), size.tolist())


def _bootstrap(
    number: "np.ndarray", table: "np.ndarray", level: float, resamples: int, seed: int
) -> tuple[float, float]:
    """Return the interval of the slope: the quantiles (1 ∓ level)/2 over repetitions that are drawn anew.

    The slope of least squares is linear in the ordinates, s = Σ_n c_n log e_n / Σ_n c_n² with c_n = log N_n − mean, so
    that all resamples are one matrix product; log e = ½ log mean e².
    """
    generator = np.random.default_rng(seed)
    repetitions = table.shape[1]
    squares = np.square(table)
    chosen = generator.integers(repetitions, size=(resamples, number.size, repetitions))
    means = np.take_along_axis(squares[None], chosen, axis=2).mean(axis=2)
    centred = np.log(number) - np.log(number).mean()
    with np.errstate(divide="ignore"):
        slopes = 0.5 * np.log(means) @ centred / (centred @ centred)
    low, high = np.quantile(slopes[np.isfinite(slopes)], [0.5 - 0.5 * level, 0.5 + 0.5 * level])
    return float(low), float(high)
