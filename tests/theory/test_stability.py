"""Which modes of a density grow: closed forms, the particles' own Jacobian, and waves on a sphere."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import eval_legendre, gamma, gammaln, iv, ive

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, geometry, kernels, stability
from particleflow.errors import ArgumentError
from shares import by_default

NORMALIZATIONS = ["none", "row", "sinkhorn"]


def attention(beta, normalization: Any = "none", value=1.0, radius=1.0, temperature=0.0):
    drift = pf.Attend(kernels.Attention(beta=beta), value, normalization)
    return pf.Flow(drift, pf.Sphere(radius), temperature)


def bessel_rates(beta, degrees, dimension, normalization, value, radius, temperature):
    """l(l + d − 2) (c p_l − T/R²) for e^{β⟨x,y⟩}: λ_l = Γ(d/2) (2/b)^{d/2−1} I_{d/2−1+l}(b), h_l = λ_l/b, b = βR²."""
    inner, order = beta * radius**2, dimension / 2 - 1

    def mass(degree):
        return np.exp(gammaln(dimension / 2) + order * np.log(2 / inner)) * ive(order + degree, inner)

    below = {"none": np.exp(-inner), "row": mass(0), "sinkhorn": mass(0) + mass(degrees)}[normalization]
    pull = value * mass(degrees) / inner / below
    return degrees * (degrees + dimension - 2) * (pull - temperature / radius**2)


CASES = [(dimension, normalization) for dimension in (2, 3, 6) for normalization in NORMALIZATIONS]


@pytest.mark.parametrize("case", by_default(CASES, [(6, "row")]))
def test_rates_of_attention_are_those_of_bessel_functions(case):
    (dimension, normalization), degrees = case, np.arange(1, 13)
    for beta, value, radius, temperature in [(5.0, 1.0, 1.0, 0.0), (0.8, -0.7, 2.0, 0.3)]:
        flow = attention(beta, normalization, value, radius, temperature)
        found = stability.growth_rates(flow, degrees, dimension)
        expected = bessel_rates(beta, degrees, dimension, normalization, value, radius, temperature)
        assert np.max(np.abs(found - expected)) < 1e-12 * np.max(np.abs(expected))


@pytest.mark.slow
def test_published_rates():
    found = [stability.growth_rates(attention(5.0, each), 3)[0] for each in NORMALIZATIONS]
    assert np.max(np.abs(np.array(found) - [18.59607030, 0.68267833, 0.49495780])) < 6e-9
    assert stability.fastest_mode(attention(5.0)) == 3
    assert stability.fastest_mode(attention(5.0, value=-1.0)) is None
    with pytest.raises(ArgumentError, match="raise `modes`"):
        stability.fastest_mode(attention(5.0), modes=3)


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["row", "none"])
def test_published_switches_of_the_fastest_mode(normalization):
    switched = stability.switches(lambda beta: attention(beta, normalization), 0.5, 12.0, modes=8)
    assert [each[1:] for each in switched] == [(1, 2), (2, 3), (3, 4), (4, 5)]
    values = np.array([each[0] for each in switched])
    assert np.max(np.abs(values - [1.044457, 3.165434, 6.211298, 10.228483])) < 6e-7


TRICRITICAL = [(2, 2.44691831), (3, 1.81615453), (4, 1.57525715)]


@pytest.mark.parametrize("case", by_default(TRICRITICAL, TRICRITICAL[1:2]))
def test_critical_temperature_and_order_of_the_transition(case):
    dimension, beta = case
    half = dimension / 2
    for each in (0.5, 7.0):
        expected = 2 ** (half - 1) * gamma(half) * iv(half, each) / each**half
        assert abs(stability.critical_temperature(attention(each), dimension) / expected - 1) < 1e-12
    below, above = (stability.transition(attention(each), dimension) for each in (beta - 6e-9, beta + 6e-9))
    assert (below.order, above.order) == (2, 1)
    assert below.ratio < 1 < above.ratio
    assert stability.critical_temperature(attention(3.0, value=-1.0), dimension) == 0


@pytest.mark.slow
def test_repulsion_at_large_beta_is_heat():
    modes, beta = np.arange(1, 5), 1e5
    heat = -(modes**2) / beta
    assert (
        np.max(np.abs(stability.growth_rates(attention(beta, "row", -1.0), modes) / heat - 1)) < modes[-1] ** 2 / beta
    )
    sinkhorn = stability.growth_rates(attention(beta, "sinkhorn", -1.0), modes)
    assert np.max(np.abs(sinkhorn / (heat / 2) - 1)) < modes[-1] ** 2 / beta


def test_a_kernel_that_jumps():
    """The ball of chord r is the arc |θ| < θ0: h_l = (1/πl) ∫_0^{θ0} sin θ sin lθ dθ."""
    reach, degrees = 2 * np.arcsin(0.35), np.arange(2, 9)
    below, above = degrees - 1, degrees + 1
    pulls = (np.sin(below * reach) / below - np.sin(above * reach) / above) / (2 * np.pi * degrees)
    flow = pf.Flow(pf.Attend(kernels.Ball(0.7), normalization="none"), pf.Sphere())
    assert np.max(np.abs(stability.growth_rates(flow, degrees) - degrees**2 * pulls)) < 1e-10
    flow = pf.Flow(pf.Attend(kernels.Ball(0.7)), pf.Sphere())
    assert np.max(np.abs(stability.growth_rates(flow, degrees) - degrees**2 * pulls / (reach / np.pi))) < 1e-10


HEADS = pf.Attend(kernels.Gaussian(0.6), 0.5) + 2.0 * pf.Attend(kernels.Attention(2.0), -0.25, "none")
FLOWS: dict[str, tuple[Any, float]] = {
    "gaussian": (pf.Attend(kernels.Gaussian(0.5)), 1.3),
    "cauchy": (pf.Attend(kernels.Cauchy(0.8), -1.0, "none"), 1.0),
    "sinkhorn": (pf.Attend(kernels.Cauchy(0.8), 2.0, "sinkhorn"), 1.0),
    "two heads": (HEADS, 1.0),
    "blurring mean shift": (pf.MeanShift(kernels.Gaussian(0.5)), 1.0),
    "ascent": (pf.LogNormalizerAscent(kernels.Attention(3.0)), 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOWS)
def test_rates_are_eigenvalues_of_the_particles(name):
    """The Jacobian of equispaced particles is circulant: each rate of a mode is an eigenvalue, twice."""
    drift, radius = FLOWS[name]
    flow, count = pf.Flow(drift, pf.Sphere(radius)), 96
    angles = jnp.asarray(2 * np.pi * np.arange(count) / count)

    def turning(angles):
        state = radius * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
        velocity = flow.velocity(0.0, state, pf.Measure.uniform(state))
        return (velocity[:, 1] * jnp.cos(angles) - velocity[:, 0] * jnp.sin(angles)) / radius

    eigenvalues = np.linalg.eigvals(np.asarray(jax.jacfwd(turning)(angles)))
    for rate in stability.growth_rates(flow, np.arange(1, 9)):
        assert np.sum(np.abs(eigenvalues - rate) < 1e-9) >= 2


WAVES = [(kernel, each) for kernel in (kernels.Gaussian(0.7), kernels.Cauchy(0.9)) for each in NORMALIZATIONS]


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(WAVES)))
def test_rates_on_the_sphere_from_waves_on_a_grid(place):
    """The velocity of μ = (1 + ε P_l(z)) σ, derived in ε on a product grid, is p_l ∇P_l: compared at three heights."""
    kernel, normalization = WAVES[place]
    heights, shares = np.polynomial.legendre.leggauss(24)
    turns = 2 * np.pi * np.arange(48) / 48
    grid = np.stack(np.meshgrid(heights, turns, indexing="ij"), axis=-1).reshape(-1, 2)
    waist = np.sqrt(1 - grid[:, 0] ** 2)
    points = jnp.asarray(np.stack([waist * np.cos(grid[:, 1]), waist * np.sin(grid[:, 1]), grid[:, 0]], axis=1))
    weights = jnp.asarray(np.repeat(shares / 2, 48) / 48)
    flow = pf.Flow(pf.Attend(kernel, 1.5, normalization), pf.Sphere())
    for degree in (1, 4):
        wave = jnp.asarray(eval_legendre(degree, grid[:, 0]))

        def climbing(size, wave=wave):
            measure = pf.Measure.weighted(points, weights * (1 + size * wave))
            return flow.velocity(0.0, points, measure)[:, 2]

        change = np.asarray(jax.jvp(climbing, (jnp.zeros(()),), (jnp.ones(()),))[1])
        z = grid[:, 0]  # ż = p_l (1 − z²) P_l'(z) and (1 − z²) P_l' = l (P_{l−1} − z P_l)
        slope = degree * (eval_legendre(degree - 1, z) - z * eval_legendre(degree, z))
        pull = stability.growth_rates(flow, degree, 3)[0] / (degree * (degree + 1))
        assert np.max(np.abs(change - pull * slope)) < 1e-10


REFUSED: dict[str, tuple[pf.Flow, str]] = {
    "kernel": (pf.Flow(pf.Attend(kernels.Attention(1.0, query=[1.0, 2.0])), pf.Sphere()), "rotations and reflections"),
    "positional": (pf.Flow(pf.Attend(kernels.Attention(1.0), positional=kernels.Causal()), pf.Sphere()), "positional"),
    "data": (pf.Flow(pf.MeanShift(kernels.Gaussian(1.0), pf.Measure.uniform(oracle.circle(np.arange(3.0)))),
                     pf.Sphere()), "`data`"),
    "value": (pf.Flow(pf.Attend(kernels.Attention(1.0), [1.0, 2.0]), pf.Sphere()), "V = c"),
    "further drift": (pf.Flow([pf.Attend(kernels.Attention(1.0)), drifts.Linear(np.diag([1.0, 2.0]))], pf.Sphere()),
                      "another way, too"),
    "no kernel": (pf.Flow(drifts.Linear(1.0), pf.Sphere()), "no kernel"),
    "ascent": (pf.Flow(pf.LogNormalizerAscent(kernels.Cauchy(0.5)), pf.Sphere()), "another way, too"),
    "flat": (pf.Flow(pf.Attend(kernels.Attention(1.0))), "live on a sphere"),
    "layer norm": (pf.Flow(pf.Attend(kernels.Attention(1.0)), pf.LayerNorm()), "has not all of its points"),
    "pace": (pf.Flow(pf.Attend(kernels.Attention(1.0)), geometry.Ngpt(1.0)), "in another way"),
    "stream": (pf.Flow(pf.Attend(kernels.Attention(1.0)), geometry.PreNorm(pf.RmsNorm())), "Harmonics need"),
    "common noise": (pf.Flow(pf.Attend(kernels.Attention(1.0)), pf.Sphere(), 0.0, 0.1), "common_temperature"),
}  # fmt: skip


@pytest.mark.parametrize("name", by_default(REFUSED, REFUSED.keys() - {"ascent"}))
def test_what_has_no_rates_says_why(name):
    flow, reason = REFUSED[name]
    with pytest.raises(ArgumentError, match=reason):
        stability.growth_rates(flow, [1, 2])


def test_arguments_that_make_no_sense():
    with pytest.raises(ArgumentError, match="`modes` must hold whole numbers"):
        stability.growth_rates(attention(1.0), [0])
    with pytest.raises(ArgumentError, match="`dimension` must be"):
        stability.growth_rates(attention(1.0), [1], dimension=1)
    with pytest.raises(ArgumentError, match="free energy"):
        stability.transition(attention(1.0, "row"))
    with pytest.raises(ArgumentError, match="mode 1 is the first"):
        stability.transition(attention(1.0, value=-1.0))


def test_a_flow_in_single_precision_has_the_same_rates():
    flow = jax.tree_util.tree_map(lambda leaf: leaf.astype(jnp.float32), attention(5.0, "row"))
    assert abs(stability.growth_rates(flow, 3)[0] - 0.68267833) < 6e-9
