"""Associative memories against their formulas, and against the published capacity."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from particleflow.errors import ArgumentError
from particleflow.models import Hopfield


def signs(count: int, units: int, seed: int) -> np.ndarray:
    return np.where(np.random.default_rng(seed).uniform(size=(count, units)) < 0.5, -1.0, 1.0)


def test_the_coupling_is_hebbs_without_its_diagonal():
    patterns = signs(7, 40, 0)
    expected = patterns.T @ patterns / 40
    np.fill_diagonal(expected, 0)
    memory = Hopfield().fit(patterns)
    np.testing.assert_allclose(memory.coupling_, expected, atol=1e-14)
    probes = signs(5, 40, 1)
    fields = probes @ expected
    once = Hopfield(steps=1).fit(patterns).transform(probes)
    np.testing.assert_array_equal(once, np.where(np.abs(fields) < 1e-12, probes, np.sign(fields)))
    np.testing.assert_allclose(memory.energy(probes), -0.5 * np.sum(probes * fields, axis=1), rtol=1e-12)


def test_with_the_diagonal_it_is_the_sign_of_all_patterns_by_their_overlaps():
    """sign(X Ξᵀ Ξ): nothing is taken out, the energy falls all at once, and no probe ends in a cycle of two."""
    patterns, probes = signs(12, 30, 8), signs(50, 30, 9)
    memory = Hopfield(diagonal=True, steps=1).fit(patterns)
    np.testing.assert_allclose(memory.coupling_, patterns.T @ patterns / 30, atol=1e-14)
    once = memory.transform(probes)
    np.testing.assert_array_equal(once, np.sign(probes @ patterns.T @ patterns))
    assert np.all(memory.energy(once) <= memory.energy(probes) + 1e-12)
    ends = Hopfield(diagonal=True, steps=100).fit(patterns).transform(probes)
    np.testing.assert_array_equal(memory.transform(ends), ends)
    cycling = Hopfield(steps=100).fit(patterns).transform(probes)
    assert (Hopfield(steps=1).fit(patterns).transform(cycling) != cycling).any()  # without it some do
    with pytest.raises(ArgumentError, match="`diagonal`"):
        Hopfield(beta=1.0, diagonal=True).fit(patterns)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_few_patterns_are_recalled_from_a_quarter_of_wrong_bits(asynchronous):
    patterns = signs(4, 200, 2)
    probes = patterns.copy()
    probes[:, :50] *= -1
    memory = Hopfield(asynchronous=asynchronous, random_state=0).fit(patterns)
    np.testing.assert_array_equal(memory.transform(probes), patterns)
    np.testing.assert_allclose(np.diag(memory.overlaps(memory.transform(probes))), 1.0)


def test_the_energy_never_rises_unit_by_unit():
    patterns, probes = signs(30, 60, 3), signs(20, 60, 4)
    energies = []
    for sweeps in range(1, 6):
        memory = Hopfield(asynchronous=True, steps=sweeps, random_state=1).fit(patterns)
        energies.append(memory.energy(memory.transform(probes)))
    assert np.all(np.diff(energies, axis=0) <= 1e-12)
    assert np.all(energies[0] < Hopfield().fit(patterns).energy(probes))


@pytest.mark.parametrize(("load", "overlap"), [(0.138, 0.984), (0.17, 0.706)])
@pytest.mark.slow
def test_the_capacity_of_the_classical_network(load, overlap):
    """The mean overlap with the pattern that one begins from, over four networks of 1,000 units and 20 sweeps.

    Near the capacity it differs by .01 from network to network, beyond it by .03, and falls with further sweeps.
    """
    found = []
    for seed in range(4):
        patterns = signs(round(1000 * load), 1000, 10 + seed)
        memory = Hopfield(asynchronous=True, steps=20, random_state=seed).fit(patterns)
        found.append(np.mean(np.diag(memory.overlaps(memory.transform(patterns)))))
    assert abs(np.mean(found) - overlap) < (0.03 if load < 0.15 else 0.06), found


def test_the_modern_network_recalls_in_one_step():
    """64 bits, 1,000 patterns, 12 flips, β = 1: a relative error of about 1.2e-6 in the median."""
    rng = np.random.default_rng(5)
    patterns = signs(1000, 64, 6)
    probes = patterns[:100].copy()
    for probe in probes:
        probe[rng.choice(64, size=12, replace=False)] *= -1
    found = Hopfield(beta=1.0, steps=1).fit(patterns).transform(probes)
    errors = np.linalg.norm(found - patterns[:100], axis=1) / 8
    assert 1e-7 < np.median(errors) < 1e-5
    np.testing.assert_allclose(found, softmax(probes @ patterns.T, axis=1) @ patterns, rtol=1e-12, atol=1e-14)


def test_the_energy_of_the_modern_network_never_rises():
    rng = np.random.default_rng(7)
    patterns, probes = rng.normal(size=(30, 5)), rng.normal(size=(10, 5))
    memory = Hopfield(beta=2.0).fit(patterns)
    masses = np.asarray(logsumexp(2.0 * probes @ patterns.T, axis=1))
    expected = 0.5 * np.sum(probes**2, axis=1) - masses / 2.0
    np.testing.assert_allclose(memory.energy(probes), expected, rtol=1e-12)
    states, energies = probes, [expected]
    for _ in range(5):
        states = Hopfield(beta=2.0, steps=1).fit(patterns).transform(states)
        energies.append(memory.energy(states))
    assert np.all(np.diff(energies, axis=0) <= 1e-13)


def test_what_cannot_be_is_refused():
    for memory, patterns, said in [
        (Hopfield(), np.array([[1.0, 0.5]]), "±1"),
        (Hopfield(beta=-1.0), signs(2, 3, 0), "beta"),
        (Hopfield(steps=0), signs(2, 3, 0), "steps"),
    ]:
        with pytest.raises(ValueError, match=said):
            memory.fit(patterns)
    with pytest.raises(ValueError, match="probes"):
        Hopfield().fit(signs(2, 3, 0)).transform(np.zeros((1, 3)))
