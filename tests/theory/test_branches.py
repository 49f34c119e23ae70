"""Branches of stationary densities on the circle: their equation, their folds, and what particles make of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import iv

import flows_oracles as oracle
import particleflow as pf
from particleflow import discretization, kernels, observables, stability
from particleflow.errors import ArgumentError


def attention(beta, normalization: Any = "none", value=1.0, temperature=0.0):
    drift = pf.Attend(kernels.Attention(beta=beta), value, normalization)
    return pf.Flow(drift, pf.Sphere(), temperature)


def follow(beta, normalization: Any = "none", *, down=0.85, harmonics=48) -> stability.Branch:
    flow = attention(beta, normalization)
    lowest = down * stability.critical_temperature(flow)
    return stability.branches(flow, lowest=lowest, harmonics=harmonics)[0]


def convolved(branch, index, weights):
    """Σ_k weights_k ∫ cos k(θ − θ') dμ(θ') on the grid of a branch, cosine by cosine."""
    cosines = np.cos(branch.angles[:, None] * np.arange(len(weights)))
    moments = branch.densities[index] @ cosines / len(branch.angles)
    return cosines @ (weights * moments)


def check_rest(branch, index, gradient_of):
    """T log g is the potential of the velocity, up to a constant."""
    difference = branch.temperatures[index] * np.log(branch.densities[index]) - gradient_of
    assert np.max(np.abs(difference - difference.mean())) < 1e-9


CRITICAL = {3.0: 0.752188, 4.0: 0.391475, 5.0: 0.187976}


@pytest.mark.slow
@pytest.mark.parametrize("beta", CRITICAL)
def test_first_order_transition(beta):
    """κ_c where both states have one free energy; beside it, all from Bessel functions and double sums."""
    branch = follow(beta, harmonics=64) if beta > 3 else follow(beta, down=0.93, harmonics=32)
    assert branch.order_of_transition == 1
    (fold,), (equal,) = branch.folds, branch.equal
    assert abs(1 / equal.temperature - CRITICAL[beta]) < 6e-7
    assert abs(1 / branch.critical_temperature - beta / iv(1, beta)) < 1e-11
    assert branch.critical_temperature < equal.temperature < fold.temperature
    assert np.all(branch.temperatures <= fold.temperature + 1e-12)
    turned = int(np.argmax(branch.temperatures))
    assert not branch.stable[: turned - 1].any()
    assert branch.stable[turned + 1 :].all()
    orders = np.arange(60)
    weights = np.where(orders == 0, 1, 2) * iv(orders, beta) / beta
    kernel = np.exp(beta * np.cos(branch.angles[:, None] - branch.angles)) / beta
    assert branch.free_energies is not None
    for index in (1, turned, len(branch.orders) - 1):
        check_rest(branch, index, convolved(branch, index, weights))
        density = branch.densities[index]
        pairs = (density @ kernel @ density - kernel.sum()) / len(density) ** 2
        free = branch.temperatures[index] * np.mean(density * np.log(density)) - pairs / 2
        assert abs(branch.free_energies[index] - free) < 1e-9
        assert abs(branch.orders[index] - abs(np.mean(density * np.exp(1j * branch.angles)))) < 1e-12


@pytest.mark.slow
def test_second_order_transition():
    """Below β_* the branch goes down at once, is stable, has no fold, and leaves as the root of T_1 − T."""
    branch = follow(1.0)
    assert (branch.order_of_transition, branch.folds, branch.equal) == (2, (), ())
    assert branch.stable.all()
    assert branch.free_energies is not None
    assert (branch.free_energies[1:] < 0).all()
    near = branch.temperatures[0] - branch.temperatures[1:4]
    assert np.ptp(np.log(branch.orders[1:4] ** 2 / near)) < 0.05
    # A branch is where the density of a run comes to rest.
    how = discretization.Spectral(48)
    flow = attention(1.0, temperature=branch.temperatures[-1])
    density = branch.densities[-1]
    start = how.measure_of(lambda points: density)
    rate = how.velocity(flow, 0.0, how.begin(flow, start))["coefficients"]
    assert np.max(np.abs(rate)) < 1e-10


@pytest.mark.slow
def test_softmax_attention_has_branches_without_free_energy():
    """For SA, v = (1/β) ∇ log K∗μ: at rest g is the power κ/β of K∗g."""
    branch = follow(3.0, "row", down=0.9, harmonics=24)
    assert branch.free_energies is None
    assert branch.equal == ()
    orders = np.arange(50)
    for index in (1, len(branch.orders) - 1):
        mass = convolved(branch, index, np.where(orders == 0, 1, 2) * iv(orders, 3.0))
        check_rest(branch, index, np.log(mass) / 3.0)


@pytest.mark.slow
def test_sinkhorn_attention_has_branches():
    """At rest under the velocity that doubly stochastic attention has, found by another discretization's grid."""
    branch = follow(2.0, "sinkhorn", down=0.97, harmonics=12)
    flow = attention(2.0, "sinkhorn")
    angles, density = branch.angles, branch.densities[-1]
    measure = pf.Measure.weighted(jnp.asarray(oracle.circle(angles)), jnp.asarray(density / len(density)))
    velocity = np.asarray(flow.velocity(0.0, measure.points, measure))
    turning = velocity[:, 1] * np.cos(angles) - velocity[:, 0] * np.sin(angles)
    waves = np.fft.fft(np.log(density)) * 1j * np.fft.fftfreq(len(angles), 1 / len(angles))
    assert np.max(np.abs(branch.temperatures[-1] * np.fft.ifft(waves).real - turning)) < 1e-7
    assert branch.orders[-1] > 0.1


def test_what_has_no_branch_says_why():
    with pytest.raises(ArgumentError, match="grows at no temperature"):
        stability.branches(attention(1.0, value=-1.0), harmonics=8)
    with pytest.raises(ArgumentError, match="a quarter of `harmonics`"):
        stability.branches(attention(1.0), modes=[3], harmonics=8)
    flow = pf.Flow(pf.Attend(kernels.Attention(1.0, query=[1.0, 2.0])), pf.Sphere())
    with pytest.raises(ArgumentError, match="rotations and reflections"):
        stability.branches(flow, harmonics=8)


def drawn_branch():
    """Numbers in the form of a branch, for pictures."""
    orders = np.linspace(0.0, 0.8, 9)
    return stability.Branch(
        mode=1, temperatures=0.6 - 0.2 * orders**2, orders=orders, free_energies=-(orders**4), stable=np.ones(9, bool),
        angles=np.zeros(1), densities=np.ones((9, 1)), folds=(), equal=(), ends="",
    )  # fmt: skip


def test_figures_of_rates_and_branches():
    branch = drawn_branch()
    upper, lower = pf.view.branches([branch])
    drawn = [line for line in upper.lines if len(line.get_xdata()) == len(branch.temperatures)]
    assert np.array_equal(drawn[0].get_ydata(), branch.orders)
    assert lower.get_xlabel() == "temperature $T$"
    (only,) = pf.view.branches([branch._replace(free_energies=None, stable=np.arange(9) < 4)])
    same = [line for line in only.lines if np.array_equal(line.get_color(), drawn[0].get_color())]
    shown = {line.get_linestyle(): np.asarray(line.get_ydata()) for line in same if len(line.get_xdata()) > 2}
    assert np.array_equal(shown["-"], branch.orders[:5])  # up to the first point that is not stable
    assert np.array_equal(shown["--"], branch.orders[4:])
    modes = np.arange(1, 7)
    rates = {"none": 2.0 - 0.1 * modes**2, "row": 1.0 - 0.2 * modes**2}
    axes = pf.view.growth_rates(modes, rates, title="two")
    legend: Any = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["none", "row"]
    assert np.array_equal(axes.lines[1].get_ydata(), rates["none"])
    with pytest.raises(ArgumentError, match="one a mode"):
        pf.view.growth_rates(modes, rates["none"][:2])


@pytest.mark.slow
def test_particles_have_the_hysteresis_of_the_branches():
    """β = 5: between T_1 = 4.87 and the fold at 5.43 a uniform start stays uniform and a cluster stays a cluster.

    Below T_1 the uniform start clusters, above the fold the cluster dissolves.
    """
    branch = follow(5.0, harmonics=64)
    (fold,), count = branch.folds, 800
    between = 0.4 * branch.critical_temperature + 0.6 * fold.temperature
    upper = np.arange(np.argmax(branch.temperatures), len(branch.orders))
    expected = np.interp(-between, -branch.temperatures[upper], branch.orders[upper])
    angles = 2 * np.pi * (np.arange(count) + 0.5) / count
    near = int(upper[np.argmin(np.abs(branch.temperatures[upper] - between))])
    grid = np.append(branch.angles, 2 * np.pi)
    shares = np.append(0, np.cumsum(branch.densities[near])) / branch.densities[near].sum()
    clustered = np.interp((np.arange(count) + 0.5) / count, shares, grid)
    starts = np.stack([oracle.circle(each) for each in (angles, clustered, angles, clustered)])
    flows = [attention(5.0, temperature=each) for each in (between, between, 3.6, 1.12 * fold.temperature)]
    times = np.linspace(0.0, 5.0, 51)
    run = pf.simulate(
        flows, starts, times, step=0.004, key=jax.random.key(3), observe=[observables.order_parameter],
    )  # fmt: skip
    late = np.asarray(run.observables["order_parameter"])[40:].reshape(11, 4).mean(axis=0)
    assert late[0] < 0.3
    assert abs(late[1] - expected) < 0.06
    assert late[2] > 0.85
    assert late[3] < 0.3


KAPPAS = np.array([0.34, 0.36, 0.37, 0.38, 0.39, 0.4, 0.41, 0.42, 0.43, 0.44, 0.46])


@pytest.mark.slow
def test_rising_and_falling_attention_switch_at_different_strengths():
    """β = 4, temperature 1, V = κ by steps up and down: clusters appear above κ_c = 0.391475 and dissolve below it.

    At β = 1, in the same parts of its κ_#, both ways are one: there the transition is of second order.
    """
    way = np.concatenate([KAPPAS, KAPPAS[-2::-1]])
    lowest = [1 / stability.critical_temperature(attention(beta)) for beta in (4.0, 1.0)]

    def flow(beta: float, schedule: np.ndarray) -> pf.Flow:
        drift = pf.drifts.Varying(attention(beta).drift, pf.drifts.Steps(schedule, 16.0), "value")
        return pf.Flow(drift, pf.Sphere(), 1.0)

    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, (2, 500))
    run = pf.simulate(
        [flow(4.0, way), flow(1.0, way * lowest[1] / lowest[0])], oracle.circle(angles),
        np.arange(16 * len(way) + 1.0), step=1 / 32, key=jax.random.key(5), observe=[observables.order_parameter],
    )  # fmt: skip
    orders = np.asarray(run.observables["order_parameter"]).reshape(-1, 2)[1:]
    late = orders.reshape(len(way), 16, 2)[:, 8:].mean(axis=1)
    up, down = late[: len(KAPPAS)], late[len(KAPPAS) - 1 :][::-1]
    appears, dissolves = KAPPAS[np.argmax(up[:, 0] > 0.5)], KAPPAS[np.argmax(down[:, 0] > 0.5)]
    assert dissolves < CRITICAL[4.0] < appears
    near = (KAPPAS > 0.385) & (KAPPAS < 0.405)
    assert np.min((down - up)[near, 0]) > 0.35
    assert np.max(np.abs(down - up)[near, 1]) < 0.25
