"""Which numbers a dotted path names, and which of them are learned by their logarithm."""

import ast
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import particleflow as pf
from particleflow import drifts, geometry
from particleflow import kernels as k
from particleflow.errors import ArgumentError
from particleflow.learning import fit
from particleflow.learning.parameters import free_values, parameters_of, with_values
from particleflow.transformer import Architecture, random_transformer

# A constructor of one number by name, and whether it refuses a negative one.
CONSTRUCTORS: dict[str, Any] = {
    "width": (k.Gaussian, True),
    "power": (lambda power: k.InverseDistance(power, 0.1), True),
    "softening": (lambda softening: k.InverseDistance(1.0, softening), True),
    "slope": (k.Alibi, True),
    "beta": (lambda beta: k.Attention(beta), False),
    "weights.0": (lambda weight: k.Mixture([k.Gaussian(1.0), k.Laplace(1.0)], [weight, 1.0]), True),
    "factor": (lambda factor: k.Scaled(k.Gaussian(1.0), factor), True),
    "value": (lambda value: pf.Attend(k.Attention(1.0), value=value), False),
    "strength": (drifts.Confinement, True),
    "rate": (lambda rate: pf.LogNormalizerAscent(k.Gaussian(1.0), rate=rate), True),
    "duration": (lambda duration: drifts.Layers([drifts.Linear(1.0)], duration), True),
    "alpha": (geometry.Ngpt, True),
    "radius": (pf.Sphere, True),
    "epsilon": (lambda epsilon: geometry.LayerNorm(epsilon=epsilon), True),
    "temperature": (lambda temperature: pf.Flow(drifts.Linear(1.0), temperature=temperature), True),
}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_what_a_constructor_refuses_to_be_negative_is_learned_by_its_logarithm(name):
    make, positive = CONSTRUCTORS[name]
    (parameter,) = parameters_of(make(2.0), name)
    assert parameter.by_logarithm == positive
    if positive:
        with pytest.raises(ArgumentError, match="positive"):
            make(-1.0)
    else:
        make(-1.0)


def checked_and_declared(path: Path) -> tuple[set[str], set[str]]:
    """The fields that constructors of a file check to be positive, or not negative, and those declared so."""
    checked, declared = set(), set()
    classes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    for owner, each in ((node, inner) for node in classes for inner in ast.walk(node)):
        if isinstance(each, ast.Assign) and {"as_positive", "as_nonnegative"} & called(each.value):
            checked.add(f"{owner.name}.{ast.unparse(each.targets[0]).removeprefix('self.')}")
        if isinstance(each, ast.AnnAssign) and "nonnegative" in ast.unparse(each.annotation).lower():
            declared.add(f"{owner.name}.{ast.unparse(each.target)}")
    return checked, declared


def called(value: ast.expr) -> set[str]:
    """The names of the functions that an expression calls."""
    return {ast.unparse(each.func) for each in ast.walk(value) if isinstance(each, ast.Call)}


@pytest.mark.parametrize("room", ["kernels", "dynamics/drifts", "dynamics/geometry"])
def test_every_field_that_is_checked_is_declared(room):
    for path in (Path(pf.__file__).parent / room).glob("*.py"):
        checked, declared = checked_and_declared(path)
        assert checked == declared


def heads(*betas: float) -> Any:
    rng = np.random.default_rng(0)
    return drifts.MultiHead(
        [
            pf.Attend(k.Attention(beta, query=np.eye(2) + 0.3 * rng.normal(size=(2, 2))), value=rng.normal(size=(2, 2)))
            for beta in betas
        ]
    )


STACKS: dict[str, tuple[Any, tuple[int, ...], bool]] = {
    "drift.heads.kernel.query": (pf.Flow(heads(1.0, 2.0)), (2, 2, 2), False),
    "drift.heads.value": (pf.Flow(heads(1.0, 2.0)), (2, 2, 2), False),
    "drift.stacks.0.weight": (pf.Flow(drifts.Layers([drifts.FeedForward(np.ones((3, 2)))] * 2)), (2, 3, 2), False),
    "drift.stacks.0.kernel.width": (pf.Flow(drifts.Layers([pf.Attend(k.Gaussian(w)) for w in (1.0, 2.0)])), (2,), True),
}


@pytest.mark.parametrize("name", STACKS)
def test_stacks_of_heads_and_layers_are_arrays(name):
    """Also where all of a stack is positive, it is free unless its class says otherwise."""
    model, shape, by_logarithm = STACKS[name]
    model = jax.tree_util.tree_map(lambda leaf: abs(leaf) if eqx.is_array(leaf) else leaf, model)
    found = parameters_of(model, name)
    assert found[0].by_logarithm == by_logarithm
    (free,) = free_values(model, found)
    assert free.shape == shape
    again = with_values(model, found, (free,))
    np.testing.assert_allclose(found[0].read(again), found[0].read(model), rtol=1e-15)


def test_parts_of_layers_have_names():
    network = random_transformer(jax.random.key(0), Architecture(width=4, depth=2, heads=2))
    (found,) = parameters_of(network, "layers.0.attention.heads.kernel.query")
    assert not found.by_logarithm
    with pytest.raises(ArgumentError, match="which has attention, feed_forward"):
        parameters_of(network, "layers.0.attend")


@pytest.mark.slow
def test_two_stacked_heads_are_found_from_a_trajectory():
    """Q times β and V of both heads, up to 1e-3, from a guess nearby."""
    true = pf.Flow(heads(1.5, 0.5))
    start = np.random.default_rng(1).normal(size=(12, 2))
    tolerances: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11, "solver": "tsit5"}
    run = pf.simulate(true, start, np.linspace(0, 1, 6), **tolerances)
    names = ["drift.heads.kernel.query", "drift.heads.value"]
    parameters = parameters_of(true, names)
    rng = np.random.default_rng(2)
    moved = tuple(value + 0.1 * rng.normal(size=value.shape) for value in free_values(true, parameters))
    learned = fit(with_values(true, parameters, moved), run, names, steps=400, rtol=1e-7, atol=1e-9, solver="tsit5")
    for each in parameters:
        np.testing.assert_allclose(each.read(learned.model), each.read(true), atol=1e-3)
