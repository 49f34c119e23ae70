"""Native sums that stay in single precision: as exact as its scores are, at any size of them, and never less."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from particleflow import kernels as k
from particleflow import scenario
from particleflow.measure import Measure, Sites
from particleflow.summation import Dense, Native
from particleflow.summation.native.build import library
from shares import by_default

pytestmark = pytest.mark.skipif(library().path is None, reason=f"no native sum here: {library().reason}")

SINGLE = Native(widen=False)
ROUNDING = float(np.finfo(np.float32).eps)
KERNELS = {
    "attention": k.Attention(1.3, query=np.array([[1.0, 0.2, 0.0], [0.0, 0.7, 0.1], [0.3, 0.0, 1.1]])),
    "gaussian": k.Gaussian(0.7),
    "laplace": k.Laplace(0.7),
    "student": k.StudentT(0.7, 2.5),
    "ball": k.Ball(0.7),
    "causal": k.Attention(1.0) * k.Causal(),
    "linear bias": k.Attention(1.0) * k.Causal() * k.Alibi(0.1),
    "mixed": 2.0 * (k.Attention(0.5) * k.Laplace(1.0)) * k.Window(9.0),
}
# Scores of a few units; of tens, which a shift by their bound still holds; of hundreds and ten thousands, which it does
# not.
SIZES = {"small": 0.4, "tens": 1.7, "hundreds": 6.0, "huge": 60.0}


summed = jax.jit(lambda how, kernel, measure, sites: how.moments(kernel, measure, sites))


def cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tree)


def pairs_of(first: Any, second: Any) -> Any:
    """The arrays of one thing beside those of another."""
    return zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)


def cloud(size: float, queries: int = 70, sources: int = 250) -> tuple[Measure, Sites]:
    """In single precision; a tenth of the points have no weight, and positions are in no order."""
    rng = np.random.default_rng(5)
    weights = np.where(np.arange(sources) % 10 == 0, -np.inf, rng.normal(size=sources))
    measure = Measure(
        size * rng.normal(size=(sources, 3)), weights, rng.normal(size=(sources, 2)),
        rng.permutation(sources).astype(float),
    )  # fmt: skip
    points, positions = jnp.asarray(size * rng.normal(size=(queries, 3))), jnp.linspace(0, sources, queries)
    return cast((measure, Sites(points, positions)), np.float32)


def exact(kernel: Any, measure: Measure, sites: Sites) -> Any:
    """The sum of the same numbers in double precision, by XLA."""
    kernel, measure, sites = cast((cast(kernel, np.float32), measure, sites), np.float64)
    return summed(Dense(), kernel, measure, sites)


def largest_score(kernel: Any, measure: Measure, sites: Sites) -> float:
    """The most that rounding a score can amount to, in units of it: |q||s| for inner products, else the score."""
    kernel, *rows = cast((kernel, sites.points, measure.points), np.float64)
    logs = np.asarray(jax.jit(lambda kernel, *rows: kernel.log_matrix(*rows))(kernel, *rows))
    lengths = [np.square(np.asarray(each)).sum(axis=1).max() for each in rows]
    return 1.0 + np.max(np.abs(logs), initial=0.0, where=np.isfinite(logs)) + np.sqrt(lengths[0] * lengths[1])


def point_part(kernel: Any) -> Any:
    """Those factors of a kernel that look at points."""
    parts = [factor for factor in kernel.factors() if factor.band() is None]
    return parts[0] if len(parts) == 1 else parts[0] * parts[1]


@pytest.mark.parametrize("size", by_default(SIZES, ["tens", "huge"]))
@pytest.mark.parametrize("name", by_default(KERNELS, ["attention", "laplace", "ball", "mixed"]))
def test_means_are_as_right_as_scores(name, size):
    """Measured, in rounding units of the largest score: at most 0.36 in means, 1.23 in log-masses."""
    measure, sites = cloud(SIZES[size])
    kernel: Any = KERNELS[name]
    expected, found = exact(kernel, measure, sites), summed(SINGLE, cast(kernel, np.float32), measure, sites)
    assert found.mean.dtype == found.log_mass.dtype == np.float32
    sees = np.isfinite(np.asarray(expected.log_mass))
    np.testing.assert_array_equal(np.isfinite(np.asarray(found.log_mass)), sees)
    assert sees.any() or (name, size) == ("ball", "huge")
    unit = ROUNDING * largest_score(point_part(kernel), measure, sites)
    masses, means = (np.abs(np.asarray(a, np.float64) - b)[sees].max(initial=0.0) for a, b in pairs_of(found, expected))
    assert masses < 2 * unit
    assert means < unit


@pytest.mark.parametrize("name", by_default(KERNELS, ["linear bias"]))
@pytest.mark.slow
def test_derivatives_and_batches(name):
    """Gradients of a batch of clouds, beside those in double precision, where scores are of tens."""
    measure, sites = cloud(SIZES["tens"], 30, 40)
    rates = jnp.asarray(np.random.default_rng(6).normal(size=(3, 30, 2)))
    factors = np.array([0.5, 1.0, 1.1])

    def gradients(how: Any, dtype: Any) -> Any:
        kernel, looked_at, queries = cast((cast(KERNELS[name], np.float32), measure, sites), dtype)

        def read(points: Any, values: Any, factor: Any, rate: Any) -> Any:
            seen = Measure(factor * points, looked_at.log_weights, values, looked_at.positions)
            return jnp.vdot(how.moments(kernel, seen, queries).mean, rate)

        batch = cast(factors, dtype), cast(rates, dtype)
        return jax.jit(jax.vmap(jax.grad(read, (0, 1)), (None, None, 0, 0)))(looked_at.points, looked_at.values, *batch)

    for ours, theirs in pairs_of(gradients(SINGLE, np.float32), gradients(Dense(), np.float64)):
        scale = np.max(np.abs(theirs))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-5 * scale)


@pytest.mark.parametrize("name", by_default(KERNELS, ["linear bias"]))
def test_small_scores_and_double_precision_are_summed_as_ever(name):
    """To the bit: nothing is widened there."""
    for size, dtype in ((0.1, np.float32), (SIZES["hundreds"], np.float64)):
        kernel, *given = cast((KERNELS[name], *cloud(size, 70, 40)), dtype)
        for ours, theirs in pairs_of(SINGLE.moments(kernel, *given), Native().moments(kernel, *given)):
            np.testing.assert_array_equal(ours, theirs)


def test_what_is_no_number_shows():
    measure, sites = cloud(1.0)

    @jax.jit
    def means(points: Any) -> Any:
        return SINGLE.moments(cast(k.Attention(1.0), np.float32), measure.with_points(points), sites).mean

    assert np.isfinite(means(measure.points)).all()
    assert np.isnan(means(measure.points.at[3, 1].set(np.nan))).all()


def test_a_scenario_may_ask_for_it(tmp_path):
    text = """
precision = "float32"
initial = { kind = "uniform_sphere", dim = 3, count = 20 }
geometry = { kind = "sphere" }
time = { end = 1.0, frames = 3, rtol = 1e-4, atol = 1e-4 }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 40.0 }
summation = { kind = "native", widen = false }
"""
    (tmp_path / "single.toml").write_text(text)
    drift: Any = scenario.load(tmp_path / "single.toml").build().flow.drift
    assert drift.summation == SINGLE != Native()
