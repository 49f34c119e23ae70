"""Drifts of signed kernels against their formulas in NumPy, and sharpening flows against matrix exponentials."""

import equinox as eqx
import numpy as np
import pytest
from scipy.linalg import expm

import particleflow as pf
from particleflow import drifts, kernels
from particleflow.errors import ArgumentError

_RNG = np.random.default_rng(7)
POINTS = _RNG.normal(size=(7, 2))
WEIGHTS = _RNG.uniform(0.2, 1.0, size=7)
SQUARES = ((POINTS[:, None] - POINTS[None]) ** 2).sum(-1)


def at(drift, dtype=np.float64):
    measure = pf.Measure.weighted(POINTS.astype(dtype), WEIGHTS.astype(dtype), positions=np.arange(7, dtype=dtype))
    return np.asarray(eqx.filter_jit(drift)(0.0, measure.sites, measure))


def masses(width):
    return np.exp(-SQUARES / (2 * width**2)) * WEIGHTS


def mean(width):
    return masses(width) @ POINTS / masses(width).sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("dtype", "rounding"), [(np.float64, 1e-13), pytest.param(np.float32, 1e-5, marks=pytest.mark.slow)]
)
def test_differences_of_local_means(dtype, rounding):
    narrow, wide = kernels.Gaussian(0.5), kernels.Gaussian(1.2)
    cases = [
        (drifts.KernelDifference(wide), POINTS - mean(1.2)),
        (drifts.KernelDifference(wide, narrow), mean(0.5) - mean(1.2)),
        (drifts.KernelDifference(wide, normalization="none"),
         masses(1.2).sum(axis=1, keepdims=True) * POINTS - masses(1.2) @ POINTS),
        (drifts.KernelDifference(wide, narrow, "none"), (masses(0.5) - masses(1.2)) @ POINTS),
    ]  # fmt: skip
    for drift, expected in cases:
        assert np.max(np.abs(at(drift, dtype) - expected)) < rounding
    back = -1.0 * drifts.MeanShift(wide)
    np.testing.assert_allclose(at(drifts.KernelDifference(wide), dtype), at(back, dtype), atol=rounding)


def test_the_derivative_is_a_covariance():
    """−∂m/∂h = −Cov(r², z)/h³ for a Gaussian; of another number of another kernel, a central difference."""
    shares = masses(0.8) / masses(0.8).sum(axis=1, keepdims=True)
    covariance = (shares * SQUARES) @ POINTS - (shares * SQUARES).sum(axis=1, keepdims=True) * (shares @ POINTS)
    np.testing.assert_allclose(at(drifts.KernelDerivative(kernels.Gaussian(0.8))), -covariance / 0.8**3, atol=1e-13)

    def student(freedom):
        pull = (1 + SQUARES / (freedom * 0.49)) ** (-(freedom + 2) / 2) * WEIGHTS
        return pull @ POINTS / pull.sum(axis=1, keepdims=True)

    found = at(drifts.KernelDerivative(kernels.StudentT(0.7, 3.0), "freedom"))
    np.testing.assert_allclose(found, -(student(3.0 + 1e-5) - student(3.0 - 1e-5)) / 2e-5, atol=1e-9)


def test_a_point_that_sees_nothing_stays():
    far = pf.Measure.uniform(np.array([[0.0, 0.0], [9.0, 9.0]]), positions=np.arange(2.0))
    for drift in (drifts.KernelDifference(kernels.Ball(1.0) * kernels.Others()),):
        moved = np.asarray(eqx.filter_jit(drift)(0.0, far.sites, far))
        assert np.max(np.abs(moved)) == 0


@pytest.mark.slow
def test_sharpening_is_the_matrix_exponential_until_its_event():
    """u̇ = (1 − K̃)u on fixed places, and an event where max |u| first comes to a level."""
    places = np.arange(30.0)
    signal = np.tanh((places - 14.5) / 4)[:, None] * 0.9
    smooth = np.exp(-((places[:, None] - places[None]) ** 2) / (2 * 3.0**2))
    matrix = np.eye(30) - smooth / smooth.sum(axis=1, keepdims=True)
    flow = pf.Flow(drifts.KernelDifference(kernels.TimeGaussian(3.0)))
    start = pf.Measure.uniform(signal, positions=places)
    run = pf.simulate(flow, start, np.linspace(0, 9, 4), rtol=1e-10, atol=1e-12, event=pf.events.BlewUp(1.4))
    assert run.status == "stopped by event"
    end = float(run.times[-1])
    assert 0 < end < 9
    np.testing.assert_allclose(run.points[-1], expm(end * matrix) @ signal, atol=1e-8)
    assert abs(np.abs(run.points[-1]).max() - 1.4) < 1e-8


@pytest.mark.slow
def test_the_differential_kernel_prefers_a_wavelength():
    """The rate h k² e^{−h²k²/2} is largest at k = √2/h."""
    run = pf.run("differential", movie=False, figures=False, page=False, summary=False)
    signal = np.asarray(run.points[-1])[:, 0]
    spectrum = np.abs(np.fft.rfft(signal * np.hanning(len(signal)), 4096))
    waves = 4096 / np.maximum(np.arange(len(spectrum)), 1)
    assert abs(waves[np.argmax(spectrum)] / (2 * np.pi * 6 / np.sqrt(2)) - 1) < 0.2


@pytest.mark.slow
def test_a_tolerance_chooses_a_sum_for_each_kernel():
    """A narrow and a wide kernel are summed within 1e-6 by methods of their own, also where a width varies."""
    points = np.random.default_rng(3).normal(size=(6000, 2))
    narrow, wide = kernels.Gaussian(0.02), kernels.Gaussian(0.5)
    times = np.array([0.0, 0.5])
    exact = pf.simulate(pf.Flow(drifts.KernelDifference(wide, narrow)), points, times, rtol=1e-8, atol=1e-10)
    allowed = drifts.KernelDifference(wide, narrow, summation=pf.summation.Auto(tolerance=1e-6))
    held = drifts.Varying(allowed, drifts.Ramp(0.5, 0.5, end=1.0), "second.width")
    for drift in (allowed, held):
        run = pf.simulate(pf.Flow(drift), points, times, rtol=1e-8, atol=1e-10)
        first, second = run.metadata["statistics"]["chosen summation"].split(":")[0].split(", ")
        assert {"Native", "Dense", "Blockwise"}.isdisjoint({first, second})
        assert 0 < np.max(np.abs(run.points[-1] - exact.points[-1])) < 1e-5


def test_what_a_signed_kernel_cannot_be_is_a_sentence():
    with pytest.raises(ArgumentError, match="not of its derivative"):
        drifts.KernelDerivative(kernels.Gaussian(1.0), summation=pf.summation.Auto(tolerance=1e-6))
    with pytest.raises(ArgumentError, match="first_summation"):
        drifts.KernelDifference(kernels.Gaussian(1.0), first_summation=pf.summation.Dense())
    with pytest.raises(ArgumentError, match="normalization"):
        drifts.KernelDifference(kernels.Gaussian(1.0), normalization="sinkhorn")  # pyright: ignore
    with pytest.raises(ArgumentError, match="'width'"):
        drifts.KernelDerivative(kernels.Gaussian(1.0), "beta")
    with pytest.raises(ArgumentError, match="kernel"):
        drifts.KernelDifference(kernels.Gaussian)  # pyright: ignore
