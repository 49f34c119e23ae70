"""Denoising and pictures against closed forms, brute force and scikit-image."""

import math
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio
from skimage.restoration import denoise_nl_means
from sklearn.datasets import load_sample_image

import particleflow as pf
from particleflow import kernels as k
from particleflow.models import Denoiser, KernelDensity, non_local_means, non_local_weights, segmented


def brute_force(image: np.ndarray, size: int, distance: int, h: float) -> np.ndarray:
    """Non-local means, pixel by pixel."""
    pixels = image.reshape(*image.shape[:2], -1)
    reach = size // 2
    padded = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    apart = np.arange(-reach, reach + 1) ** 2
    weights = np.exp(-(apart[:, None] + apart[None]) / (2 * ((size - 1) / 4) ** 2))
    weights = (weights / weights.sum())[..., None] / pixels.shape[2]
    rows, columns = image.shape[:2]
    found = np.empty_like(pixels)

    def patch(row: int, column: int) -> np.ndarray:
        return padded[row : row + size, column : column + size]

    for row, column in np.ndindex(rows, columns):
        near = [
            (i, j)
            for i in range(max(row - distance, 0), min(row + distance + 1, rows))
            for j in range(max(column - distance, 0), min(column + distance + 1, columns))
        ]
        pull = np.array([np.exp(-np.sum(weights * (patch(row, column) - patch(*place)) ** 2) / h**2) for place in near])
        found[row, column] = pull @ np.array([pixels[place] for place in near]) / pull.sum()
    return found.reshape(image.shape)


@pytest.mark.parametrize("channels", [None, 3])
def test_non_local_means_is_a_local_mean_of_patches(channels):
    image = np.random.default_rng(0).uniform(size=(11, 9) if channels is None else (11, 9, channels))
    found = non_local_means(image, patch_size=3, patch_distance=3, h=0.4)
    np.testing.assert_allclose(found, brute_force(image, 3, 3, 0.4), rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_weights_over_a_picture_are_those_of_its_non_local_means():
    """Maps of sum one, zero out of reach; the mean of colours under them is the brute-force mean of the pixel."""
    image = np.random.default_rng(0).uniform(size=(11, 9, 3))
    maps = non_local_weights(image, [[0, 0], [5, 4]], patch_size=3, patch_distance=3, h=0.4)
    expected = brute_force(image, 3, 3, 0.4)
    for (row, column), each in zip([(0, 0), (5, 4)], maps, strict=True):
        np.testing.assert_allclose(np.einsum("rc,rck->k", each, image), expected[row, column], rtol=1e-12)
        assert abs(each.sum() - 1) < 1e-13
        reached = np.maximum.outer(np.abs(np.arange(11) - row), np.abs(np.arange(9) - column)) <= 3
        assert not each[~reached].any()
        assert each.argmax() == row * 9 + column  # no patch is more alike than itself
    for wrong, said in (([[0.5, 1.0]], "whole"), ([[0, 9]], "lie in"), ([0, 1, 2], "places")):
        with pytest.raises(ValueError, match=said):
            non_local_weights(image, wrong)


def test_non_local_means_agrees_with_scikit_image_to_its_rounding():
    """Where no patch is so unlike that it is left out there, the exponential there is all that differs."""
    rng = np.random.default_rng(1)
    image = (
        0.5
        + 0.1 * np.sin(np.arange(24) / 4)[:, None] * np.cos(np.arange(20) / 3)[None]
        + 0.02 * rng.normal(size=(24, 20))
    )
    theirs = denoise_nl_means(image, 5, 4, h=0.3, fast_mode=False)
    ours = non_local_means(image, 5, 4, h=0.3)
    assert np.max(np.abs(ours - image)) > 0.03
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


@cache
def photograph(side: int = 256) -> np.ndarray:
    """A part of scikit-learn's picture of a temple, in grey, scaled down to a square."""
    grey = load_sample_image("china.jpg").astype(float).mean(axis=2)[:, :427] / 255
    edges = np.linspace(0, 427, side + 1).astype(int)
    return np.add.reduceat(np.add.reduceat(grey, edges[:-1], 0), edges[:-1], 1) / np.outer(
        np.diff(edges), np.diff(edges)
    )


@pytest.mark.slow
def test_a_photograph_gains_what_it_gains_by_scikit_image():
    clean = photograph()
    noisy = clean + 0.08 * np.random.default_rng(2).normal(size=clean.shape)
    gains = [
        peak_signal_noise_ratio(clean, found, data_range=1.0) - peak_signal_noise_ratio(clean, noisy, data_range=1.0)
        for found in (non_local_means(noisy, 5, 7, h=0.12), denoise_nl_means(noisy, 5, 7, h=0.12, fast_mode=False))
    ]
    assert gains[0] > 3
    assert abs(gains[0] - gains[1]) < 0.3


def test_a_picture_of_three_areas_has_three_segments():
    rows, columns = np.mgrid[:24, :24]
    truth = np.where(columns < 12, 0, np.where(rows < 12, 1, 2))
    colours = np.array([[0.9, 0.2, 0.2], [0.2, 0.8, 0.3], [0.2, 0.3, 0.9]])
    image = colours[truth] + 0.03 * np.random.default_rng(3).normal(size=(24, 24, 3))
    found = segmented(image, colour=0.2, place=30.0)
    assert len(found.colours) == 3
    for area in range(3):
        assert len(np.unique(found.labels[truth == area])) == 1
    np.testing.assert_allclose(found.picture, colours[truth], atol=0.01)


def test_pictures_that_are_none_are_refused():
    for image, said in ((np.zeros(3), "shape"), (np.full((4, 4), np.nan), "finite")):
        with pytest.raises(ValueError, match=said):
            non_local_means(image)
    with pytest.raises(ValueError, match="patch_size"):
        non_local_means(np.zeros((9, 9)), patch_size=4)
    with pytest.raises(ValueError, match="stride"):
        segmented(np.zeros((9, 9)), 0.1, 2.0, stride=0)


def gaussian_line(spread: float) -> tuple[np.ndarray, np.ndarray]:
    """N(0, spread²) as weighted points."""
    points = np.linspace(-9 * spread, 9 * spread, 1001)
    return points[:, None], np.exp(-(points**2) / (2 * spread**2))


def test_the_score_of_a_normal_law_under_noise():
    """(m − x)/σ² = −x/(s² + σ²)."""
    points, weights = gaussian_line(1.3)
    at = np.linspace(-3, 3, 7)[:, None]
    model = Denoiser(noise=0.6).fit(points, sample_weight=weights)
    np.testing.assert_allclose(model.scores(at), -at / (1.3**2 + 0.6**2), atol=1e-12)


def test_the_score_is_the_gradient_of_the_log_density():
    rng = np.random.default_rng(4)
    X, at = rng.normal(size=(50, 2)), rng.normal(size=(6, 2))
    density = KernelDensity("gaussian", 0.7).fit(X)
    steps = [density.score_samples(at + move) - density.score_samples(at - move) for move in 1e-4 * np.eye(2)]
    np.testing.assert_allclose(Denoiser(0.7).fit(X).scores(at), np.stack(steps, axis=1) / 2e-4, atol=1e-7)


def annealed(data: pf.Measure, first: float, last: float) -> tuple[pf.Flow, float]:
    """MeanShift under σ = first · e^{−t}, and the time at which σ is `last`."""
    end = math.log(first / last)
    schedule = pf.drifts.Ramp(first, last, end, scale="log")
    return pf.Flow(pf.drifts.Varying(pf.MeanShift(k.Gaussian(first), data), schedule, "kernel.width")), end


@pytest.mark.slow
def test_annealing_carries_smoothed_normal_laws_into_each_other():
    """x(t) = x(0) √((s² + σ(t)²)/(s² + σ(0)²)): N(0, s² + σ₀²) becomes N(0, s² + σ₁²)."""
    points, weights = gaussian_line(0.8)
    flow, end = annealed(pf.Measure.weighted(points, weights / weights.sum()), 3.0, 0.1)
    start = np.linspace(-4, 4, 9)[:, None]
    found = pf.evolve(flow, start, end, rtol=1e-9, atol=1e-11).points
    np.testing.assert_allclose(found, start * np.sqrt((0.64 + 0.01) / (0.64 + 9.0)), atol=1e-7)


@pytest.mark.slow
def test_annealing_draws_new_samples_of_two_moons():
    """By the energy distance of the end to fresh samples, which must be near to that of two sets of fresh samples."""
    import jax
    from scipy.spatial.distance import cdist

    moons = pf.initial.Moons(0.05)
    data, fresh, other = (np.asarray(moons.sample(jax.random.key(seed), 1000)) for seed in range(3))
    fresh, other = (each + 0.08 * np.random.default_rng(9).normal(size=each.shape) for each in (fresh, other))
    flow, end = annealed(pf.Measure.uniform(data), 4.0, 0.08)
    start = np.array([0.5, 0.25]) + 4.0 * np.random.default_rng(5).normal(size=(1000, 2))
    drawn = np.asarray(pf.evolve(flow, start, end, rtol=1e-6, atol=1e-8).points)

    def energy(one: np.ndarray, two: np.ndarray) -> float:
        return float(2 * cdist(one, two).mean() - cdist(one, one).mean() - cdist(two, two).mean())

    assert energy(start, fresh) > 1
    assert energy(drawn, fresh) < 0.02
    assert energy(drawn, fresh) < 5 * energy(other, fresh) + 0.01


@pytest.mark.parametrize("contrast", [0.5, 3.0])
def test_the_neighbourhood_filter_is_a_diffusion_that_edges_turn_around(contrast):
    """With K = Gaussian of places (σ) times Gaussian of values (h = cσ), as σ → 0,

        (m − u)/σ² → ½ u'' (1 − 2a)/(1 + a)²,    a = (u'/c)²,

    the limit of Buades, Coll and Morel (2006) for Gaussian windows: smoothing where |u'| < c/√2, sharpening beyond. And
    without a kernel of values it is the heat equation, ½ u''.
    """
    line = np.linspace(-0.6, 0.6, 6001)
    u = np.sin(3 * line) / 3 + 0.2 * line**2
    places = np.linspace(-0.2, 0.2, 9)
    value, slope, bend = (
        np.sin(3 * places) / 3 + 0.2 * places**2,
        np.cos(3 * places) + 0.4 * places,
        -3 * np.sin(3 * places) + 0.4,
    )
    ratio = (slope / contrast) ** 2
    limits = {"values": 0.5 * bend * (1 - 2 * ratio) / (1 + ratio) ** 2, "heat": 0.5 * bend}
    measure = pf.Measure.uniform(line[:, None], values=u)
    queries = pf.Sites(jnp.asarray(places[:, None]), None, jnp.asarray(value))
    for name, limit in limits.items():
        errors = []
        for width in (0.02, 0.01):
            kernel = (
                k.Gaussian(width) * k.OnValues(k.Gaussian(contrast * width)) if name == "values" else k.Gaussian(width)
            )
            found = (np.asarray(pf.local_mean(kernel, measure, queries)) - value) / width**2
            errors.append(np.max(np.abs(found - limit)))
        assert errors[1] < 0.02 * max(1.0, np.abs(limit).max())
        assert errors[1] < 0.3 * errors[0]  # of second order
