"""Lost in the middle: how much the last token of a causal sequence owes to each of the others.

Tokens are uniform on the circle and listen to their past with weights w_jk ∝ e^{−λ(j−k)/N}, k < j. The mode n of the
law of token j obeys ṙ_j = a Σ_k w_jk r_k to first order, a = n²I_n(β)/(βI_0(β)) under softmax attention, so

    corr(last at time t, k at time 0) = [e^{atW}]_{Nk},    N corr → λe^{λs}/(e^λ − 1) ψ_{at}(Y),    s = k/N,

Y = log((e^λ − 1)/(e^{λs} − 1)): in u = log(e^{λx} − 1) the kernel λe^{λy}/(e^{λx} − 1) dy is e^{v−u}dv on v < u, whose
iterates are e^{v−u}(u − v)^k/k!. And ψ_c(y) = Σ c^{k+1}y^k/(k!(k+1)!) = √(c/y) I_1(2√(cy)).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.special import factorial, iv

import flows_oracles as oracle
import particleflow as pf
from particleflow import kernels

BETA, MODE, SLOPE, TIME = 2.0, 1, 2.0, 3.0
RATE = MODE**2 * iv(MODE, BETA) / (BETA * iv(0, BETA))


def flow_of(count: int) -> pf.Flow:
    past = kernels.Product((kernels.StrictlyCausal(), kernels.Alibi(SLOPE / count)))
    return pf.Flow(pf.Attend(kernels.Attention(BETA), positional=past), pf.Sphere())


def profile(shares: np.ndarray) -> np.ndarray:
    """The limit of N corr at s."""
    grown = np.exp(SLOPE) - 1
    far = np.log(grown / (np.exp(SLOPE * shares) - 1))
    orders = np.arange(60)[:, None]
    strength = RATE * TIME
    series = np.sum(strength ** (orders + 1) * far**orders / (factorial(orders) * factorial(orders + 1)), axis=0)
    assert np.allclose(series, np.sqrt(strength / far) * iv(1, 2 * np.sqrt(strength * far)), rtol=1e-12)
    return SLOPE * np.exp(SLOPE * shares) / grown * series


def owed(count: int) -> np.ndarray:
    """The last row of e^{atW}."""
    lags = np.arange(count)[:, None] - np.arange(count)[None, :]
    weights = np.where(lags > 0, np.exp(-SLOPE * lags / count), 0.0)
    weights[1:] /= weights[1:].sum(axis=1, keepdims=True)
    return expm(RATE * TIME * weights)[-1, :-1]


def response(count: int, bundle: int = 12) -> np.ndarray:
    """∂(mode of the last law at the end)/∂(mode of every law at the start): each position holds a uniform circle."""
    angles = np.tile(2 * np.pi * np.arange(bundle) / bundle, count)
    positions = jnp.repeat(jnp.arange(count, dtype=float), bundle, total_repeat_length=count * bundle)
    around = jnp.asarray(np.stack([-np.sin(angles), np.cos(angles)], axis=1)[-bundle:])
    wave, flow = jnp.asarray(np.sin(MODE * angles)), flow_of(count)

    def last(amplitudes: Any) -> Any:
        moved = angles + jnp.repeat(amplitudes, bundle, total_repeat_length=count * bundle) * wave
        start = pf.Measure.uniform(jnp.stack([jnp.cos(moved), jnp.sin(moved)], axis=1), positions=positions)
        end = pf.evolve(flow, start, TIME, step=0.125, solver="tsit5", max_steps=64)
        return 2 / bundle * wave[-bundle:] @ jnp.sum(end.points[-bundle:] * around, axis=1)

    return np.asarray(jax.jit(jax.grad(last))(jnp.zeros(count)))[:-1]


@pytest.mark.slow
def test_the_last_token_forgets_the_middle():
    """Against e^{atW} by SciPy, and against the limit with an error of order 1/N."""
    errors = []
    for count in (32, 64, 128):
        found = count * response(count)
        assert np.max(np.abs(found / (count * owed(count)) - 1)) < 1e-5
        shares = np.arange(count - 1) / count
        inner = (shares >= 0.2) & (shares <= 0.9)
        errors.append(np.max(np.abs(found - profile(np.maximum(shares, 1e-9)))[inner]))
        lowest = int(np.argmin(found))
        assert 0.1 < shares[lowest] < 0.4
        assert min(found[0], found[-1]) > 1.3 * found[lowest]
    assert np.max(np.abs(np.array(errors[:-1]) / errors[1:] - 2)) < 0.2, errors


@pytest.mark.slow
def test_random_tokens_are_correlated_as_the_profile_says():
    """Independent uniform tokens: E cos n(θ_last(t) − θ_k(0)), summed over sixths of the sequence."""
    count, runs = 48, 12_000
    random = np.random.default_rng(5)
    angles = random.uniform(0, 2 * np.pi, (runs, count))
    ends = [
        np.asarray(pf.simulate(flow_of(count), oracle.circle(part), [0.0, TIME], rtol=1e-4, atol=1e-6).points)[-1]
        for part in np.split(angles, 6)
    ]
    last = np.concatenate(ends)[:, -1] @ np.array([1.0, 1j])
    each = np.real(last[:, None] ** MODE * np.exp(-1j * MODE * angles))[:, : count - 1]
    bins = np.minimum(np.arange(count - 1) * 6 // count, 5)
    sums = np.stack([each[:, bins == place].sum(axis=1) for place in range(6)])
    expected = np.array([owed(count)[bins == place].sum() for place in range(6)])
    error = sums.std(axis=1) / np.sqrt(runs)
    assert np.max(error) < 0.03
    # what the first order leaves out is of order 1/N of what it finds
    assert np.all(np.abs(sums.mean(axis=1) - expected) < 4.5 * error + 6 / count * expected)
    found = sums.mean(axis=1)
    assert np.max(found[1:3]) < min(found[0], found[-1])
