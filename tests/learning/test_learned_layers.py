"""Matrices of layers and the weights of a blend, found again from the trajectories that they made."""

from typing import Any

import numpy as np
import pytest

import particleflow as pf
from particleflow import drifts
from particleflow import kernels as k
from particleflow.learning import fit
from particleflow.learning.parameters import free_values, parameters_of, with_values

TOLERANCES: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11, "solver": "tsit5"}
LOOSER: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-9, "solver": "tsit5"}


def three_layers() -> pf.Flow:
    """Each layer has a Q, a K and a V of its own, and acts for half of a unit of time."""
    rng = np.random.default_rng(0)

    def near_one() -> np.ndarray:
        return np.eye(2) + 0.3 * rng.normal(size=(2, 2))

    layers = [pf.Attend(k.Attention(1.0, near_one(), near_one()), value=rng.normal(size=(2, 2))) for _ in range(3)]
    return pf.Flow(drifts.Layers(layers, duration=0.5))


def moved(flow: pf.Flow, names: list[Any], amount: float) -> pf.Flow:
    """The flow with noise on some of its free numbers."""
    rng, parameters = np.random.default_rng(2), parameters_of(flow, names)
    return with_values(
        flow, parameters, tuple(u + amount * rng.normal(size=u.shape) for u in free_values(flow, parameters))
    )


def found_again(true: pf.Flow, start: Any, times: np.ndarray, names: list[Any], **how: Any) -> Any:
    """Parameters are moved, and learned from the trajectory of the true flow to 1e-3."""
    run = pf.simulate(true, start, times, **TOLERANCES)
    learned = fit(moved(true, names, 0.1), run, names, steps=300, restart=True, **LOOSER, **how)
    for each in parameters_of(true, names):
        np.testing.assert_allclose(each.read(learned.model), each.read(true), atol=1e-3)
    return learned.model


@pytest.mark.slow
def test_three_layers_are_found_from_a_trajectory():
    """Q and V of all layers, with K held: Q and K act by the product QᵀK alone."""
    start = np.random.default_rng(1).normal(size=(12, 2))
    names = ["drift.stacks.0.kernel.query", "drift.stacks.0.value"]
    found_again(three_layers(), start, np.linspace(0, 1.5, 10), names)


@pytest.mark.slow
def test_with_another_key_the_product_is_found():
    """K is held at 1, where the truth has others: then KᵀQ is found in place of Q."""
    names = ["drift.stacks.0.kernel.query", "drift.stacks.0.value"]
    true: Any = three_layers()
    start = np.random.default_rng(1).normal(size=(12, 2))
    run = pf.simulate(true, start, np.linspace(0, 1.5, 10), **TOLERANCES)
    held = parameters_of(true, "drift.stacks.0.kernel.key")
    ones: Any = np.broadcast_to(np.eye(2), (3, 2, 2))
    guess = with_values(true, held, (ones,))
    learned: Any = fit(moved(guess, names, 0.1), run, names, steps=300, restart=True, **LOOSER)
    before, after = true.drift.stacks[0].kernel, learned.model.drift.stacks[0].kernel
    expected = np.einsum("lka,lkb->lab", np.asarray(before.query), np.asarray(before.key))
    np.testing.assert_allclose(np.einsum("lka,lkb->lab", after.query, after.key), expected, atol=1e-3)


@pytest.mark.slow
def test_the_weights_of_near_field_and_far_field_are_found():
    """The two positive weights of the blend, alone, and beside the common Q; V is held, since w V acts as a product."""
    rng = np.random.default_rng(3)
    start = pf.Measure.uniform(rng.normal(size=(14, 2)), positions=np.arange(14.0))
    query, value = np.eye(2) + 0.3 * rng.normal(size=(2, 2)), -0.6 * np.eye(2) + 0.2 * rng.normal(size=(2, 2))
    true = pf.Flow(drifts.near_and_far(3.0, query=query, value=value, weights=(0.7, 0.4)))
    model = found_again(true, start, np.linspace(0, 1, 6), ["drift.log_weights"])
    np.testing.assert_allclose(np.exp(np.asarray(model.drift.log_weights)), [0.7, 0.4], atol=1e-3)
    far = [f"drift.drifts.1.drifts.{each}" for each in range(2)]
    queries = tuple(f"{field}.kernel.query" for field in ("drift.drifts.0", *far))
    found_again(true, start, np.linspace(0, 1, 6), ["drift.log_weights", queries])
