"""A discretization, a geometry, a kernel and a summation as a user would write them, and a run that is killed.

The discretization carries a measure by weights that move on fixed points: d log w_i/dt is the first coordinate of the
drift at x_i, so that under ẋ = A x the weights are w_i(t) ∝ w_i(0) exp(t (A x_i)_1).
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import particleflow as pf
from particleflow import discretization, drifts, geometry, initial, kernels, observables, summation
from particleflow.kernels.forms import Bilinear
from particleflow.summation.base import value_columns


class MovingWeights(discretization.AbstractDiscretization):
    """Weights that move on fixed points."""

    def begin(self, flow: pf.Flow, measure: pf.Measure) -> Any:
        return {"log_weights": measure.log_weights, "points": measure.points}

    def measure(self, flow: pf.Flow, time: Any, state: Any) -> pf.Measure:
        return pf.Measure(state["points"], state["log_weights"]).normalised()

    def velocity(self, flow: pf.Flow, time: Any, state: Any) -> Any:
        measure = self.measure(flow, time, state)
        return {"log_weights": flow.drift(time, measure.sites, measure)[:, 0], "points": None}

    def fields(self, flow: pf.Flow, time: Any, state: Any) -> dict[str, Any]:
        return {"masses": jnp.exp(self.measure(flow, time, state).log_weights)}


class Cylinder(geometry.AbstractGeometry):
    """{x² + y² = 1} × R^{d−2}."""

    def retract(self, state: Any) -> Any:
        return jnp.concatenate([geometry.directions(state[:, :2]), state[:, 2:]], axis=1)

    def observe(self, state: Any, time: Any = 0.0) -> Any:
        return self.retract(state)

    def tangent(self, state: Any, velocity: Any, time: Any = 0.0) -> Any:
        round_ = geometry.norms(state[:, :2]) * geometry.project_out(geometry.directions(state[:, :2]), velocity[:, :2])
        return jnp.concatenate([round_, velocity[:, 2:]], axis=1)

    def advance(self, state: Any, velocity: Any, size: Any, time: Any = 0.0) -> Any:
        return self.retract(self.retract(state) + size * velocity)


class Halved(kernels.AbstractMatrixKernel):
    """K(x, y) = exp(½⟨x, y⟩), with its bilinear form."""

    def log_matrix(self, xs: Any, ys: Any) -> Any:
        return 0.5 * kernels.points_of(xs) @ kernels.points_of(ys).T

    def bilinear(self) -> Bilinear:
        def nothing(sites: Any) -> Any:
            return jnp.zeros(len(kernels.points_of(sites)))

        return Bilinear(lambda xs: 0.5 * kernels.points_of(xs), kernels.points_of, nothing, nothing)


class ByForm(summation.AbstractSummation):
    """Moments of any kernel that offers a bilinear form, from that form alone."""

    def moments(self, kernel: Any, measure: Any, queries: Any, values: Any = None) -> Any:
        form = kernel.bilinear()
        logits = form.query_features(queries) @ form.key_features(measure.sites).T
        sources = form.key_offset(measure.sites) + measure.log_weights
        logits = logits + form.query_offset(queries)[:, None] + sources[None, :]
        return pf.Moments.from_logits(logits, value_columns(measure, values))


POINTS = np.random.default_rng(5).normal(size=(6, 3))
WEIGHTS = np.array([0.3, 0.2, 0.2, 0.1, 0.2, 0.0])
RATES = np.array([[0.5, -1.0, 0.3], [0.0, 1.0, 0.0], [0.2, 0.0, 1.0]])
TIMES = np.linspace(0.0, 1.0, 11)
FLOW = pf.Flow(drifts.Linear(RATES))
START = pf.Measure.weighted(POINTS, WEIGHTS)
OPTIONS: dict[str, Any] = {
    "discretization": MovingWeights(), "rtol": 1e-9, "atol": 1e-11, "observe": [observables.centre], "window": 3,
}  # fmt: skip


def exact(time: float, start: np.ndarray = WEIGHTS, rates: np.ndarray = RATES) -> np.ndarray:
    """The weights at a time."""
    grown = start * np.exp(time * (POINTS @ rates.T)[:, 0])
    return grown / grown.sum()


CYLINDER_FLOW = pf.Flow(pf.Attend(Halved(), summation=ByForm()), geometry=Cylinder())
CYLINDER_OPTIONS: dict[str, Any] = {
    "rtol": 1e-9, "atol": 1e-11, "observe": [observables.speed, observables.energy], "window": 4,
}  # fmt: skip


SPECTRAL = discretization.Spectral(8)
SPECTRAL_FLOW = pf.Flow(pf.Attend(kernels.Attention(beta=1.0)), pf.Sphere(), 0.1)
SPECTRAL_OPTIONS: dict[str, Any] = {
    "discretization": SPECTRAL, "rtol": 1e-9, "atol": 1e-11, "observe": [observables.energy], "window": 3,
}  # fmt: skip

DENSITY_FLOW = pf.Flow(pf.Attend(kernels.Attention(beta=3.0), normalization="none"), geometry=pf.Sphere())
DENSITY_OPTIONS: dict[str, Any] = {
    "discretization": discretization.FiniteVolumes(64), "rtol": 1e-4, "atol": 1e-6, "window": 3,
    "observe": [observables.energy, observables.entropy],
}  # fmt: skip


LAW_OPTIONS: dict[str, Any] = {
    "discretization": discretization.Gaussian(), "rtol": 1e-9, "atol": 1e-11, "observe": [observables.entropy],
    "window": 3,
}  # fmt: skip
SOFTMAX = pf.Attend(kernels.Attention(beta=0.1))
TRACED = START.with_fields({"log_density": jnp.asarray(-np.sum(POINTS**2, axis=1))})
ON_SET = geometry.SetNorm("diagonal")
NOISY_OPTIONS: dict[str, Any] = {"step": 0.05, "key": jax.random.key(4), "observe": [observables.speed], "window": 3}


RUNS: dict[str, tuple[pf.Flow, Callable[[], Any], dict[str, Any]]] = {
    "weights that move": (FLOW, lambda: START, OPTIONS),
    "a density in cells": (DENSITY_FLOW, lambda: initial.CircleWave(1, 0.5), DENSITY_OPTIONS),
    "geometry, kernel and summation": (CYLINDER_FLOW, lambda: np.asarray(Cylinder().retract(POINTS)), CYLINDER_OPTIONS),
    "harmonics": (SPECTRAL_FLOW, lambda: SPECTRAL.measure_of(lambda points: 1 + 0.5 * points[:, 0]), SPECTRAL_OPTIONS),
    "a normal law": (pf.Flow(SOFTMAX, temperature=0.1), lambda: START, LAW_OPTIONS),
    "characteristics": (
        pf.Flow(SOFTMAX),
        lambda: START.with_fields({"log_density": -np.sum(POINTS**2, axis=1)}),
        LAW_OPTIONS | {"discretization": discretization.Characteristics()},
    ),
    "a normalised set": (
        pf.Flow(SOFTMAX, ON_SET, 0.2),
        lambda: START.with_points(ON_SET.for_weights(START.log_weights).retract(START.points)),
        NOISY_OPTIONS,
    ),
}


def system(name: str) -> tuple[pf.Flow, Any, dict[str, Any]]:
    """The flow, the start and the options of a run."""
    flow, start, options = RUNS[name]
    return flow, start(), options


def run_and_die(path: str, name: str) -> None:
    """Begin a run of the tests, and be killed after its second window."""
    flow, start, options = system(name)
    seen = []

    def die(frames: Any) -> None:
        seen.append(frames)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    pf.simulate(flow, start, TIMES, **options, store=path, progress=die)
