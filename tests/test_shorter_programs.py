"""The number before a number: that of NumPy, bit for bit, and the one that diffrax asks for; what it need not ask."""

from functools import partial
from importlib import import_module
from typing import Any

import diffrax
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shares import by_default

import particleflow as pf
from particleflow.integrate.shorter import controller_of, known_times, predecessor, shape_of, shorten_programs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_number_before(dtype):
    """Of random numbers of every size and sign, powers of two and their neighbours, and 0."""
    numbers, rng = np.finfo(dtype), np.random.default_rng(17)
    exponents = np.arange(numbers.minexp + 60, numbers.maxexp - 1)
    powers = np.ldexp(dtype(1), exponents)
    some = np.ldexp(rng.uniform(1, 2, (40, len(powers))).astype(dtype), exponents).ravel()
    above = np.concatenate([some, powers, np.nextafter(powers, dtype(np.inf)), np.nextafter(powers, dtype(0))])
    x = np.concatenate([above, -above]).astype(dtype)
    np.testing.assert_array_equal(predecessor(jnp.asarray(x)), np.nextafter(x, dtype(-np.inf)))
    both = np.array([0.0, *x[:1000]], dtype)
    np.testing.assert_array_equal(predecessor(jnp.asarray(both)), eqxi.prevbefore(jnp.asarray(both)))
    assert predecessor(jnp.asarray(both)).dtype == dtype


def test_diffrax_asks_for_it():
    """A solve has no `nextafter` left, however often it is asked for."""
    shorten_programs()

    def end(t1):
        decay = diffrax.ODETerm(lambda t, y, args: -y)
        steps = diffrax.PIDController(1e-6, 1e-6)
        return diffrax.diffeqsolve(decay, diffrax.Tsit5(), 0.0, t1, 0.1, jnp.ones(2), stepsize_controller=steps).ys

    program = jax.jit(end).lower(jnp.asarray(1.0)).as_text()
    assert "next_after" not in program
    assert program.count("call @predecessor") == 100
    np.testing.assert_allclose(jax.jit(end)(jnp.asarray(1.0)), np.exp([[-1.0, -1.0]]), rtol=1e-5)


def test_diffrax_looks_at_the_times_of_everybody_else():
    """Times in no order are refused, unless they are known to be in order."""
    shorten_programs()

    def ends():
        decay = diffrax.ODETerm(lambda t, y, args: -y)
        times = diffrax.SaveAt(ts=jnp.array([0.5, 0.2]))
        return diffrax.diffeqsolve(decay, diffrax.Euler(), 0.0, 1.0, 0.25, jnp.ones(1), saveat=times).ys

    with pytest.raises(RuntimeError, match="increasing"):
        ends()
    with known_times():
        ends()
    with known_times(active=False), pytest.raises(RuntimeError, match="increasing"):
        ends()


def test_the_steps_of_everybody_else_are_looked_at(monkeypatch):
    """Of a controller that jumps, also in a solve inside a solve of ours: what it finds is what diffrax would."""
    solving, steps = import_module("diffrax._integrate"), []

    def spied(function, *arguments, **named):
        found = shape_of(function, *arguments, **named)
        if getattr(function, "__name__", "") == "body_fun_aux":
            steps.append((controller_of(function) is None, found[1]))
        return found

    class Inner(pf.drifts.AbstractDrift):
        def __call__(self, time, queries, measure):
            jumping = diffrax.ClipStepSizeController(diffrax.PIDController(1e-3, 1e-3), jump_ts=jnp.array([0.5]))
            field = diffrax.ODETerm(lambda t, y, args: jnp.where(t < 0.5, y, -y))
            end: Any = diffrax.diffeqsolve(
                field, diffrax.Tsit5(), 0.0, 1.0, 0.1, queries.points, stepsize_controller=jumping
            )
            return end.ys[-1]

    shorten_programs()
    monkeypatch.setattr(solving.eqx, "filter_eval_shape", spied)
    run = pf.simulate(pf.Flow(Inner()), jnp.ones((1, 1)), [0.0, 0.5], step=0.25, solver="euler")
    np.testing.assert_allclose(run.points[-1], 1.25**2, rtol=1e-3)  # e^½ e^−½ = 1
    assert (False, False) in steps
    assert (True, True) in steps
    assert set(steps) == {(False, False), (True, True)}


_SPHERE = pf.Flow(pf.Attend(pf.kernels.Attention(2.0)), pf.Sphere())
_IN_TURN = pf.Flow(pf.drifts.Layers([_SPHERE.drift, _SPHERE.drift]), pf.Sphere())
_NOISE = pf.Flow(_SPHERE.drift, pf.Sphere(), 0.1)
_MERGED, _WITHIN = {"event": pf.events.Merged(1, 0.1)}, {"rtol": 1e-3, "atol": 1e-3}
_STEPS, _LAYERS = {"solver": "heun", "step": 0.25}, {"solver": "map", "step": 0.25}
_WINDOWS = {
    "adaptive": (_SPHERE, _WITHIN),
    "event": (_SPHERE, _WITHIN | _MERGED),
    "implicit": (_SPHERE, _WITHIN | {"solver": "kvaerno5"}),
    "fixed": (_SPHERE, _STEPS),
    "fixed, event": (_SPHERE, _STEPS | _MERGED),
    "noise": (_NOISE, _STEPS | {"key": jax.random.key(1)}),
    "map": (_SPHERE, _LAYERS),
    "in turn": (_IN_TURN, _WITHIN),
    "in turn, event": (_IN_TURN, _WITHIN | _MERGED),
    "in turn, implicit": (_IN_TURN, _WITHIN | {"solver": "kvaerno5"}),
    "in turn, fixed": (_IN_TURN, _STEPS),
    "in turn, map": (_IN_TURN, _LAYERS),
    "cells": (_SPHERE, _WITHIN | {"discretization": pf.discretization.FiniteVolumes(16)}),
}
_ENDS = {"fixed, end": (_SPHERE, _STEPS), "in turn, end": (_IN_TURN, _WITHIN)}


class _AnsweredError(Exception):
    """Diffrax has what it asks for; the program itself is not wanted."""


@pytest.mark.parametrize(
    "name", by_default([*_WINDOWS, *_ENDS], ["adaptive", "fixed", "noise", "map", "in turn, event", "in turn, end"])
)
def test_what_is_said_of_steps_is_what_diffrax_finds(name, monkeypatch):
    """Whether steps may jump, and fail, as tracing them tells: of every kind of window, and of a single solve."""
    solving, said, found = import_module("diffrax._integrate"), [], []

    def both(function, *arguments, **named):
        ours = shape_of(function, *arguments, **named)
        if controller_of(function) is None:
            return ours
        said.append(ours[1:])
        found.append(eqx.filter_eval_shape(function, *arguments, **named)[1:])
        if len(found) == 2:
            raise _AnsweredError
        return None, *found[-1]

    shorten_programs()
    monkeypatch.setattr(solving.eqx, "filter_eval_shape", both)
    flow, settings = (_WINDOWS | _ENDS)[name]
    start = pf.initial.UniformSphere(2).sample(jax.random.key(0), 5)
    solve = partial(pf.evolve, end=1.5) if name in _ENDS else partial(pf.simulate, times=jnp.linspace(0, 1.5, 4))
    with pytest.raises(_AnsweredError):
        solve(flow, start, **settings)
    assert said == [tuple(map(any, zip(*found, strict=True)))] * 2
