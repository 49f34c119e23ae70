"""Modes of the density and their growth: Fourier on the circle, spherical harmonics on S².

Only directions x/|x| enter, so a sphere may have any radius. Amplitudes lie between 0 (uniform) and 1 (all mass on a
point). While a mode is small it grows or decays by itself, A_k(t) = A_k(0) e^{λ_k t}; that is its linear regime.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.density.cells import is_density
from particleflow.analysis.rates import RateFit, fit_exponential
from particleflow.analysis.reading import (
    BoolArray,
    FloatArray,
    Progress,
    as_frames,
    as_points,
    as_series,
    as_weights,
    frame_weights,
    is_spherical,
    iterate,
    single_run,
)
from particleflow.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_ABSENT = 1e-13  # amplitude up to which a mode is not in the start: rounding of a sum over thousands of points
_OWN = 10.0  # times the products of two others, from which on a mode grows by itself
_LOOKED_AT = 64  # modes of the start, to find its symmetry


def fourier_amplitudes(points: ArrayLike, maximum: int, *, weights: ArrayLike | None = None) -> FloatArray:
    """Return |c_k| for k = 1 … maximum, c_k = Σ_j w_j e^{−ikθ_j}, of particles on the circle.

    points: (N, 2), or (N,) angles in radians; weights: (N,), by default equal. |c_1| is the Kuramoto order parameter.
    """
    given = np.asarray(points, dtype=np.float64)
    array = as_points(given)
    mass = as_weights(weights, array.shape[0])
    _check_maximum(maximum)
    if given.ndim == 1:
        phase = np.exp(-1j * array[:, 0])
    elif array.shape[1] == 2:
        phase = _directions(array, mass) @ np.array([1.0, -1.0j])
    else:
        raise ShapeError(f"Fourier modes need points of the circle (N, 2) or angles (N,), but got {given.shape}.")
    amplitudes, power = np.empty(maximum), mass.astype(np.complex128)
    for order in range(maximum):
        power = power * phase
        amplitudes[order] = abs(power.sum())
    return amplitudes


def harmonic_amplitudes(points: ArrayLike, maximum: int, *, weights: ArrayLike | None = None) -> FloatArray:
    """Return the amplitude of degree l = 1 … maximum on S²: A_l = √(4π/(2l+1) Σ_m |Σ_j w_j Y_lm(x_j)|²).

    points: (N, 3); weights: (N,), by default equal. By the addition theorem A_l² = Σ_ij w_i w_j P_l(⟨u_i, u_j⟩) for the
    directions u, without the sum over pairs.
    """
    array = as_points(points)
    mass = as_weights(weights, array.shape[0])
    _check_maximum(maximum)
    if array.shape[1] != 3:
        raise ShapeError(f"Spherical harmonics need points of shape (N, 3), but got {array.shape}.")
    unit = _directions(array, mass)
    polar, azimuth = np.arccos(np.clip(unit[:, 2], -1.0, 1.0)), np.arctan2(unit[:, 1], unit[:, 0])
    amplitudes = np.empty(maximum)
    for degree in range(1, maximum + 1):
        # |a_{l,−m}| = |a_{l,m}| for a real measure, so m ≥ 0 is enough.
        moments = [abs(mass @ _harmonic(degree, order, polar, azimuth)) ** 2 for order in range(degree + 1)]
        amplitudes[degree - 1] = np.sqrt(4.0 * np.pi / (2 * degree + 1) * (moments[0] + 2.0 * sum(moments[1:])))
    return amplitudes


def mode_amplitudes(
    trajectory: "Trajectory", maximum: int = 8, *, frames: ArrayLike | None = None, progress: Progress | None = None
) -> FloatArray:
    """Return the amplitudes of modes 1 … maximum in every frame, (T, maximum): Fourier for d = 2, harmonics for d = 3.

    frames: the indices of the frames to use, by default all. A density is weighted by the masses of each frame.
    """
    trajectory = single_run(trajectory)
    if trajectory.dimension not in (2, 3):
        raise ArgumentError(f"Modes are defined for d = 2 (circle) and 3 (sphere), but d is {trajectory.dimension}.")
    amplitudes = fourier_amplitudes if trajectory.dimension == 2 else harmonic_amplitudes
    chosen = as_frames(frames, len(trajectory))
    result = np.empty((chosen.size, maximum))
    for place, points in iterate(trajectory, progress, None if frames is None else chosen):
        result[place] = amplitudes(points, maximum, weights=frame_weights(trajectory, int(chosen[place])))
    return result


def symmetry_errors(trajectory: "Trajectory", maximum: int = 8) -> BoolArray:
    """Return which modes 1 … maximum (maximum,) can only be errors of a scheme, because the start forbids them.

    Where the orders of all modes of a density on the circle are multiples of g, it is the same after a turn by 2π/g,
    and stays so under attention alone with numbers Q, K and V, which has no special place. What a run has of other
    modes began as rounding, or as the truncation error of a grid that has no such turn, and grew. A mode is in the
    start where its amplitude is above 1e-13. Nothing is said of particles, of other spaces, or of other flows.
    """
    run = single_run(trajectory)
    known = min(max(maximum, _LOOKED_AT), (run.count - 1) // 2)  # n points have those above half of n as aliases
    if run.dimension != 2 or known < 1 or not is_density(run) or not _turns_along(run):
        return np.zeros(maximum, dtype=bool)
    start = mode_amplitudes(run, known, frames=[0])[0]
    orders = np.arange(1, known + 1)
    shared = int(np.gcd.reduce(orders[start > _ABSENT], initial=0))
    outside = (orders % shared != 0 if shared else np.ones(known, dtype=bool))[:maximum]
    return np.pad(outside, (0, maximum - len(outside)))


def _turns_along(run: "Trajectory") -> bool:
    """Whether the flow is known to be the same in every direction: attention on a sphere, with numbers Q, K and V."""
    facts = run.facts
    acting = facts.interactions
    plain = [each.is_attention and isinstance(each.value, float) for each in acting]
    numbers = [isinstance(each.query, float) and isinstance(each.key, float) for each in acting]
    return is_spherical(run) and facts.driven_by_interactions and bool(acting) and all(plain) and all(numbers)


def growth_window(amplitudes: ArrayLike, *, lower: float = 1e-12, upper: float = 0.05) -> tuple[int, int] | None:
    """Return the frames (first, last) of the linear regime of one mode, or None if it has fewer than three.

    It is the first stretch of three or more frames in which lower ≤ amplitude ≤ upper: above rounding, and small
    enough that terms quadratic in the amplitudes change the rate by about `upper` at most.
    """
    array = np.asarray(amplitudes, dtype=np.float64)
    inside = np.concatenate([[False], (array >= lower) & (array <= upper), [False]]).astype(np.int8)
    starts, ends = np.flatnonzero(np.diff(inside) == 1), np.flatnonzero(np.diff(inside) == -1)
    long = np.flatnonzero(ends - starts >= 3)
    if long.size == 0:
        return None
    return int(starts[long[0]]), int(ends[long[0]]) - 1


def growth_rates(
    times: ArrayLike, amplitudes: ArrayLike, *, lower: float = 1e-12, upper: float = 0.05, level: float = 0.95
) -> list[RateFit | None]:
    """Fit A_k(t) ≈ A_k(0) e^{rate·t} for every mode over its `growth_window`; None for a mode without one.

    Times at which a mode may only follow others are left out: products A_p A_q with |p − q| ≤ k ≤ p + q drive it (on
    the circle only those of the two ends), so that a mode which is stable by itself grows as fast as both together. It
    is its own where it is above ten times all of them.

    amplitudes: (T, K) from `mode_amplitudes`. times: (T,); lower, upper: those of `growth_window`; level: the
    confidence of the intervals.
    """
    table = np.asarray(amplitudes, dtype=np.float64)
    if table.ndim != 2:
        raise ShapeError(f"`amplitudes` must have shape (T, K), but has shape {table.shape}.")
    fits: list[RateFit | None] = []
    for column, driven in zip(table.T, _driven(table).T, strict=True):
        clock, series = as_series(times, column, "amplitudes")
        window = growth_window(np.where(driven, np.nan, series), lower=lower, upper=upper)
        if window is None or clock[window[0]] == clock[window[1]]:
            fits.append(None)
            continue
        chosen = slice(window[0], window[1] + 1)
        fits.append(fit_exponential(clock[chosen], series[chosen], level=level))
    return fits


def _driven(amplitudes: FloatArray) -> BoolArray:
    """Where a mode may only follow two others: it is not above ten times A_p A_q for all |p − q| ≤ k ≤ p + q."""
    orders = 1 + np.arange(amplitudes.shape[1])
    products = amplitudes[:, :, None] * amplitudes[:, None, :]
    apart, together = np.abs(orders[:, None] - orders), orders[:, None] + orders
    strongest = [np.max(products[:, (apart <= k) & (k <= together)], axis=1, initial=0.0) for k in orders]
    return ~(amplitudes > _OWN * np.reshape(strongest, amplitudes.T.shape).T)


def _harmonic(degree: int, order: int, polar: FloatArray, azimuth: FloatArray) -> "np.ndarray":
    """Return Y_lm(polar angle, azimuth), orthonormal on the unit sphere: ∫ Y_lm Y*_l'm' = δ_ll' δ_mm'."""
    from scipy import special

    if hasattr(special, "sph_harm_y"):
        return special.sph_harm_y(degree, order, polar, azimuth)
    older = getattr(special, "sph_harm")  # noqa: B009  SciPy before 1.15, unknown to the type checker since
    return older(order, degree, azimuth, polar)


def _directions(points: FloatArray, mass: FloatArray) -> FloatArray:
    """Return x/|x|, which every particle that has mass must have."""
    norms = np.linalg.norm(points, axis=1)
    nowhere = (norms == 0) & (mass > 0)
    if nowhere.any():
        raise ArgumentError(f"Modes need directions, but particle {int(np.argmax(nowhere))} is at the origin.")
    return points / np.where(norms > 0, norms, 1.0)[:, None]


def _check_maximum(maximum: int) -> None:
    """Refuse a `maximum` below 1."""
    if maximum < 1:
        raise ArgumentError(f"Argument `maximum` must be at least 1, but is {maximum}.")
