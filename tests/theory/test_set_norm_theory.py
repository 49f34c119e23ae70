"""The fixed point of attention and normalisation of the set: by density, by Gaussian and by particles.

About the standard normal law φ let ρ = φ(1 + ε He_n), He_n = Π_i He_{n_i}(x_i), of the order k = Σ n_i ≥ 3. Then
∫ e^{β⟨x,y⟩} dρ = e^{β²|x|²/2}(1 + ε Π (βx_i)^{n_i}), so that the local mean βx gains (ε/β) ∇ Π (βx_i)^{n_i}.
Normalisation takes off affine fields, βx among them, and the coefficient of He_n grows at the rate V k β^{k−1}.

These modes do not know tails. An atom far out at x, which gives itself the share p of its attention, sees the mean
p x + (1 − p) βx, hence moves by V p (1 − β)x: with V = −1 it comes back for β < 1 and runs away for β > 1.
"""

from math import factorial
from typing import Any

import equinox as eqx
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import geometry, initial, kernels, observables
from particleflow.discretization import FiniteVolumes, Gaussian
from particleflow.dynamics.initial import DensityFunction, GaussHermite, Quantiles, UniformBox

OBSERVE = [observables.excess_kurtosis, observables.gaussian_distance]


def flow_of(beta: float, value: float = 1.0) -> pf.Flow:
    return pf.Flow(pf.Attend(kernels.Attention(beta), value), geometry.SetNorm())


def hermite(orders: tuple[int, ...], points: np.ndarray) -> np.ndarray:
    """Π He_{n_i}(x_i)."""
    each = [np.polynomial.hermite_e.hermeval(points[:, axis], np.eye(n + 1)[n]) for axis, n in enumerate(orders)]
    return np.prod(each, axis=0)


def rate_of(flow: pf.Flow, orders: tuple[int, ...], cells: int, width: float = 9.0) -> float:
    """d/dt of the coefficient of a mode, over the coefficient, from the rate of the scheme about the Gaussian."""
    how, dimension = FiniteVolumes(cells, -width, width), len(orders)
    scale = np.prod([factorial(n) for n in orders])

    def moved(size: float) -> float:
        def density(points: np.ndarray) -> np.ndarray:
            normal = np.exp(-0.5 * np.sum(points**2, axis=1)) / (2 * np.pi) ** (0.5 * dimension)
            return np.maximum(normal * (1 + size * hermite(orders, points)), 0.0)

        laid = how.project(flow, DensityFunction(density, dimension, "flat"))
        state = how.begin(flow, laid)
        rate = eqx.filter_jit(how.velocity)(how.specialise_sums(flow, laid), 0.0, state).density
        masses = np.asarray(rate) * (2 * width) ** dimension / laid.count
        return float(hermite(orders, np.asarray(laid.points)) @ masses / scale)

    small = 1e-4 / scale
    return (moved(small) - moved(-small)) / (2 * small)


# Orders of the mode, β, V, and cells along an axis.
MODES: dict[str, Any] = {
    "third": ((3,), 0.5, 1.0, 300),
    "fourth": ((4,), 0.5, 1.0, 300),
    "fourth repelled": ((4,), 0.5, -1.0, 300),
    "fifth at a larger beta": ((5,), 0.8, 1.0, 300),
    "third at a small beta": ((3,), 0.2, -1.0, 300),
    "third in the plane": ((2, 1), 0.5, 1.0, 72),
    "fourth in the plane": ((2, 2), 0.6, -1.0, 72),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODES)
def test_modes_of_a_density_about_the_gaussian_grow_as_the_formula_says(name):
    """V k β^{k−1}, to second order in the size of cells."""
    orders, beta, value, cells = MODES[name]
    mode, dimension = sum(orders), len(orders)
    expected = value * mode * beta ** (mode - 1)
    found = [rate_of(flow_of(beta, value), orders, sides**dimension) for sides in (cells // 2, cells)]
    errors = [abs(each / expected - 1) for each in found]
    assert errors[-1] < 0.03, found
    assert errors[0] / errors[1] > 3.0, (found, expected)


EDGE = np.sqrt(3.0)
LINE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6, "observe": OBSERVE}


def kurtosis(run: pf.Trajectory) -> np.ndarray:
    return np.asarray(run.observables["excess_kurtosis"])


def standardised(points: Any) -> np.ndarray:
    points = np.asarray(points)
    points = points - points.mean(axis=0)
    spread = np.atleast_2d(np.cov(points.T, bias=True))
    values, axes = np.linalg.eigh(spread)
    return points @ (axes / np.sqrt(values)) @ axes.T


def quantiles(law: Any, count: int) -> np.ndarray:
    return standardised(Quantiles(law).sample(pf.key_for(0, "initial"), count))


@pytest.mark.slow
@pytest.mark.parametrize(("value", "end", "error"), [(1.0, 60.0, 0.01), (-1.0, 15.0, 0.05)])
def test_a_density_and_its_quantiles_go_the_same_way(value, end, error):
    """A uniform law, β = ½: V = 1 takes it to two atoms, V = −1 to the Gaussian, in cells and in 400 atoms alike."""
    times, flow = np.linspace(0.0, end, 7), flow_of(0.5, value)
    cells = FiniteVolumes(200, -5.0, 5.0)
    density = pf.simulate(flow, UniformBox([-EDGE], [EDGE]), times, discretization=cells, **LINE)
    atoms = pf.simulate(flow, quantiles("uniform", 400), times, rtol=1e-6, atol=1e-8, observe=OBSERVE)
    assert np.max(np.abs(kurtosis(density) - kurtosis(atoms))) < error
    assert (kurtosis(atoms)[-1] < -1.95) if value > 0 else (kurtosis(atoms)[-1] > -0.3)


@pytest.mark.slow
def test_the_gaussian_stands_still_but_does_not_attract():
    """V = 1, β = ½: a Gaussian law stays; of a density the fourth mode grows at 4β³ from what its box cuts off.

    So it leaves the later, the wider the box; quantiles leave first, for their tails end first.
    """
    times, flow, left = np.linspace(0.0, 40.0, 81), flow_of(0.5), []
    cloud = GaussHermite(1, 12).start(pf.key_for(0, "initial")).measure
    law = pf.simulate(flow, cloud, times, rtol=1e-9, atol=1e-11, observe=OBSERVE, discretization=Gaussian())
    assert np.max(np.abs(kurtosis(law))) < 1e-12
    for width, cells in ((5.0, 200), (7.0, 280), (9.0, 360)):
        how = FiniteVolumes(cells, -width, width)
        run = pf.simulate(flow, initial.Gaussian(1), times, discretization=how, **{**LINE, "rtol": 1e-5, "atol": 1e-7})
        found = -kurtosis(run)
        ramp = (found > 1e-3) & (found < 5e-2)
        left.append(float(np.interp(0.1, found, times)))
        if width > 5:  # where the fourth mode has outgrown all others
            assert abs(np.polyfit(times[ramp], np.log(found[ramp]), 1)[0] - 0.5) < 0.05
    atoms = pf.simulate(flow, quantiles("gaussian", 400), times, rtol=1e-6, atol=1e-8, observe=OBSERVE)
    left.insert(0, float(np.interp(0.1, -kurtosis(atoms), times)))
    assert np.min(np.diff(left)) > 4, left


@pytest.mark.slow
@pytest.mark.parametrize(("beta", "end"), [(0.5, 400.0), (0.8, 200.0), (0.95, 200.0), (1.2, 16.0)])
def test_repulsion_brings_a_density_to_the_gaussian_below_beta_one(beta, end):
    """V = −1: to W₂ = h/√12, what cells of size h make of a Gaussian; above β = 1 it comes near and leaves again.

    With finer cells both tails run away (W₂ = 1.09, kurtosis 137), with these, rounding decides: W₂ = 0.41 or above.
    """
    how = FiniteVolumes(360, -9.0, 9.0)
    run = pf.simulate(flow_of(beta, -1.0), UniformBox([-EDGE], [EDGE]), [0.0, end], discretization=how, **LINE)
    distance, grain = float(run.observables["gaussian_distance"][-1]), 18 / 360 / np.sqrt(12)
    if beta < 1:
        assert distance < 1.5 * grain
        assert abs(kurtosis(run)[-1]) < 0.02
    else:
        assert distance > 0.3


@pytest.mark.slow
def test_repelled_atoms_come_near_the_gaussian_and_gather():
    """V = −1, β = 0.8: 400 atoms come near the Gaussian, then gather, slowly, and keep its fourth moment.

    A quarter of them sit at ±1.71 by t = 1000, where Gauss and Hermite's rule of three points has ±√3. At β = 1.2 two
    atoms run away from all others, to the largest kurtosis n/2 − 3 that n atoms of equal weight have.
    """
    times = np.array([0.0, 20.0, 1000.0])
    run = pf.simulate(flow_of(0.8, -1.0), quantiles("uniform", 400), times, rtol=1e-6, atol=1e-8, observe=OBSERVE)
    near, late = (float(run.observables["gaussian_distance"][frame]) for frame in (1, 2))
    assert near < 0.1 < 0.2 < late
    assert abs(kurtosis(run)[-1]) < 0.05
    assert np.mean(np.abs(np.abs(np.asarray(run.points)[-1]) - EDGE) < 0.04) > 0.2
    wide = pf.simulate(
        flow_of(1.2, -1.0), quantiles("uniform", 400), [0.0, 50.0], rtol=1e-6, atol=1e-8, observe=OBSERVE
    )
    assert kurtosis(wide)[-1] > 0.97 * 197


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize(("beta", "end"), [(0.5, 120.0), (1.0, 40.0)])
def test_samples_end_in_one_atom_more_than_dimensions(dimension, beta, end):
    """V = 1: four Gaussian samples of 200 each; the masses of the atoms are those of the sample's own chance."""
    starts = np.stack([standardised(np.random.default_rng(seed).normal(size=(200, dimension))) for seed in range(4)])
    run = pf.simulate(flow_of(beta), starts, [0.0, end], rtol=1e-5, atol=1e-7)
    assert [oracle.cluster_count(points, 0.2) for points in np.asarray(run.points)[-1]] == [dimension + 1] * 4
