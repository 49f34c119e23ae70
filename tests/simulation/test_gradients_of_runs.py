"""Derivatives of a number at time T with respect to β, Q, K, V and the start, for every adjoint."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import kernels, observables

_RNG = np.random.default_rng(61)
START = jnp.asarray(oracle.random_sphere(62, 4, 2))
PARAMETERS = {
    "beta": jnp.asarray(1.2),
    "query": jnp.asarray(np.eye(2) + 0.3 * _RNG.normal(size=(2, 2))),
    "key": jnp.asarray(np.eye(2) + 0.3 * _RNG.normal(size=(2, 2))),
    "value": jnp.asarray(np.eye(2) + 0.3 * _RNG.normal(size=(2, 2))),
    "start": START,
}
DIRECTION = {name: jnp.asarray(_RNG.normal(size=np.shape(leaf))) for name, leaf in PARAMETERS.items()}


def flow_of(parameters):
    kernel = kernels.Attention(beta=parameters["beta"], query=parameters["query"], key=parameters["key"])
    return pf.Flow(pf.Attend(kernel, value=parameters["value"]), geometry=pf.Sphere())


def number_at_end(parameters, adjoint="recursive_checkpoint"):
    """The energy after T = 0.7."""
    flow = flow_of(parameters)
    end = pf.evolve(
        flow, parameters["start"], 0.7, rtol=1e-10, atol=1e-12, adjoint=adjoint, max_steps=256, solver="tsit5"
    )
    return observables.energy(flow, 0.7, end)


def moved(size):
    return {name: leaf + size * DIRECTION[name] for name, leaf in PARAMETERS.items()}


def oracle_number(parameters):
    """The same number by SciPy; a start that a derivative moves off the sphere means the point below it."""
    plain = {name: np.asarray(leaf) for name, leaf in parameters.items()}
    beta, query, key = float(plain["beta"]), plain["query"], plain["key"]
    field = oracle.attention_field(beta, query, key, plain["value"], sphere=True)
    points = oracle.on_sphere(oracle.solve(field, oracle.on_sphere(plain["start"]), [0.0, 0.7])[-1])
    return np.mean(np.exp(beta * (points @ query.T) @ (points @ key.T).T)) / (2 * beta)


def central_difference(function, size=1e-4):
    """Fourth-order central difference along `DIRECTION`."""
    near, far = (function(moved(k * size)) - function(moved(-k * size)) for k in (1, 2))
    return (8 * near - far) / (12 * size)


EXACT = central_difference(oracle_number)


value_and_gradient = jax.jit(jax.value_and_grad(number_at_end), static_argnums=1)


@pytest.mark.parametrize(
    ("adjoint", "tolerance"),
    [
        ("recursive_checkpoint", 1e-7),
        pytest.param("direct", 1e-7, marks=pytest.mark.slow),
        pytest.param("backsolve", 1e-5, marks=pytest.mark.slow),
    ],
)
def test_reverse_mode(adjoint, tolerance):
    value, gradient = value_and_gradient(PARAMETERS, adjoint)
    assert abs(value - oracle_number(PARAMETERS)) < 1e-8
    along = sum(float(jnp.sum(gradient[name] * DIRECTION[name])) for name in PARAMETERS)
    assert abs(along / EXACT - 1) < tolerance


@pytest.mark.slow
def test_forward_mode():
    for adjoint in ("forward",):
        derivative = jax.jit(lambda p, d, a=adjoint: jax.jvp(lambda q: number_at_end(q, a), (p,), (d,))[1])
        assert abs(derivative(PARAMETERS, DIRECTION) / EXACT - 1) < 1e-7


def test_every_parameter_one_by_one():
    gradient = value_and_gradient(PARAMETERS, "recursive_checkpoint")[1]
    for name, leaf in PARAMETERS.items():
        index = (0,) * jnp.ndim(leaf)
        size = 1e-4

        def at(step, name=name, leaf=leaf, index=index):
            return oracle_number({**PARAMETERS, name: np.asarray(leaf.at[index].add(step) if index else leaf + step)})

        near, far = (at(k * size) - at(-k * size) for k in (1, 2))
        exact = (8 * near - far) / (12 * size)
        assert abs(gradient[name][index] - exact) < 1e-7 * max(1.0, abs(exact)), name


@pytest.mark.slow
def test_whole_flow_as_the_variable():
    """A flow is a tree of arrays: its gradient is a flow, temperature included."""
    import equinox as eqx

    flow = flow_of(PARAMETERS)

    def number(flow):
        end = pf.evolve(flow, START, 0.7, rtol=1e-10, atol=1e-12, max_steps=256, solver="tsit5")
        return jnp.sum(end.points[:, 0])

    differentiated = eqx.filter_jit(eqx.filter_value_and_grad(number))
    gradient, size = differentiated(flow)[1], 1e-4
    shifted = [differentiated(flow_of({**PARAMETERS, "beta": PARAMETERS["beta"] + s}))[0] for s in (size, -size)]
    assert abs(gradient.drift.kernel.beta - (shifted[0] - shifted[1]) / (2 * size)) < 1e-6


@pytest.mark.slow
def test_gradient_through_explicit_layers():
    """The derivative of a stack of layers is the derivative of the composed map."""

    def by_layers(beta):
        flow = pf.Flow(pf.MeanShift(kernels.Gaussian(beta**-0.5)))
        return jnp.sum(jnp.sin(pf.evolve(flow, START, 3.0, step=1.0, solver="map", max_steps=8).points))

    def by_hand(beta):
        points = np.asarray(START)
        for _ in range(3):
            weights = np.exp(-beta / 2 * np.sum((points[:, None] - points[None]) ** 2, axis=2))
            points = weights @ points / weights.sum(axis=1, keepdims=True)
        return np.sum(np.sin(points))

    exact = (by_hand(1.5 + 1e-5) - by_hand(1.5 - 1e-5)) / 2e-5
    value, slope = jax.jit(jax.value_and_grad(by_layers))(1.5)
    assert abs(value - by_hand(1.5)) < 1e-13
    assert abs(slope - exact) < 1e-8
