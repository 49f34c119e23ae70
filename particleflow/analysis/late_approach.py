"""How a gap closes at late times: the frames to fit, and the better of a power law and an exponential law."""

import numpy as np

from particleflow.analysis.rates import RateFit, better_law
from particleflow.analysis.reading import FloatArray, IntArray

LEAST_GAP = 1e-10  # what rounding leaves of a difference
_LATE = 0.1  # of the gap at first: the fit begins where it has fallen to this
_LEAST_FRAMES = 8
_EXPLAINED = 0.999  # of the variance of log(gap), for a law to be stated


def late_stretch(gap: FloatArray) -> IntArray | None:
    """The frames in which a gap (T,) is between 1e-10 and a tenth of its first value; None if fewer than 8."""
    if gap.ndim != 1 or not np.isfinite(gap).all():
        return None
    late = np.flatnonzero((gap <= _LATE * gap[0]) & (gap > LEAST_GAP))
    return late if len(late) >= _LEAST_FRAMES else None


def late_law(times: FloatArray, gap: FloatArray) -> RateFit | None:
    """The law A t^r or A e^{rt} of the late part of a gap (T,), whichever explains more of the variance of its log.

    None where the gap does not close (see `late_stretch`), or where the better law explains less than 99.9 %.
    """
    late = late_stretch(gap)
    if late is None:
        return None
    fit = better_law(np.asarray(times)[late], gap[late])
    return fit if fit.r_squared > _EXPLAINED else None


def law_values(fit: RateFit, times: FloatArray) -> FloatArray:
    """The values A t^r or A e^{rt} of a fitted law at some times."""
    clock = np.asarray(times, float)
    return fit.amplitude * (clock**fit.rate if fit.law == "power" else np.exp(fit.rate * clock))
