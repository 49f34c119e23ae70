"""Runs of several kinds, each stored once for every number of devices: `FOLDER DEVICES,… CASE,…`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import particleflow as pf

ADAPTIVE = {"rtol": 1e-6, "atol": 1e-8}
ON_SPHERE = pf.Sphere()


def sphere(count: int, dim: int = 3, seed: int = 0) -> jax.Array:
    """Points on a sphere."""
    return pf.initial.UniformSphere(dim=dim).sample(jax.random.key(seed), count)


def cloud(count: int, dim: int = 2) -> jax.Array:
    """Points of a normal law."""
    return pf.initial.Gaussian(dim=dim).sample(jax.random.key(1), count)


def times(end: float, frames: int = 3) -> jax.Array:
    """Saved times."""
    return jnp.linspace(0.0, end, frames)


def towards_the_mean(t: Any, x: Any, mu: Any) -> Any:
    """A drift that sums over all particles by itself."""
    return jnp.exp(-t) * ((jnp.exp(mu.log_weights) @ mu.points)[None] - x)


def attention(beta: float = 4.0, **settings: Any) -> pf.Attend:
    """Self-attention."""
    return pf.Attend(pf.kernels.Attention(beta), **settings)


ENERGY, ORDER = pf.observables.energy, pf.observables.order_parameter
BOTH = [ENERGY, ORDER]
TURNED = {"query": jnp.asarray([[1.0, 0.3], [0.2, 1.0]])}

# Flow, start, saved times and the other arguments of each run; no number of particles is a multiple of the devices.
CASES: dict[str, Callable[[], tuple[Any, Any, Any, dict[str, Any]]]] = {
    "euler": lambda: (
        pf.Flow(attention(), ON_SPHERE),
        sphere(250),
        times(0.2),
        {"step": 0.1, "solver": "euler", "observe": BOTH},
    ),
    "event": lambda: (
        pf.Flow(attention(9.0), ON_SPHERE),
        sphere(250),
        times(60.0, 9),
        {**ADAPTIVE, "observe": BOTH, "event": pf.events.Clustered(0.5)},
    ),
    "dense": lambda: (
        pf.Flow(pf.Attend(pf.kernels.Gaussian(0.3), summation=pf.summation.Dense())),
        cloud(301),
        times(1.0),
        {**ADAPTIVE, "observe": [ENERGY]},
    ),
    "blockwise": lambda: (
        pf.Flow(
            pf.Attend(
                pf.kernels.Attention(1.0, **TURNED),
                value=jnp.asarray([[1.0, 0.1], [0.0, 1.0]]),
                summation=pf.summation.Blockwise(),
            )
        ),
        cloud(700),
        times(0.2),
        {**ADAPTIVE, "observe": [ENERGY]},
    ),
    "noise": lambda: (
        pf.Flow(attention(), ON_SPHERE, temperature=0.05, common_temperature=0.01),
        sphere(333),
        times(1.0),
        {"step": 0.02, "key": jax.random.key(3), "observe": BOTH},
    ),
    "single": lambda: (
        pf.Flow(attention(9.0), ON_SPHERE),
        sphere(450).astype(jnp.float32),
        times(2.0),
        {"observe": BOTH},
    ),
    "widened": lambda: (
        pf.Flow(pf.Attend(pf.kernels.Gaussian(0.1))),
        cloud(450).astype(jnp.float32),
        times(1.0),
        {"observe": [ENERGY]},
    ),
    "causal": lambda: (
        pf.Flow(attention(positional=pf.kernels.Causal()), ON_SPHERE),
        sphere(431),
        times(2.0),
        {**ADAPTIVE, "observe": BOTH},
    ),
    "sinkhorn": lambda: (
        pf.Flow(attention(2.0, normalization="sinkhorn"), ON_SPHERE),
        sphere(200),
        times(1.0),
        {**ADAPTIVE, "observe": [ORDER]},
    ),
    "coalescing": lambda: (
        pf.Flow(attention(9.0), ON_SPHERE),
        sphere(300),
        times(40.0, 20),
        {**ADAPTIVE, "observe": BOTH, "discretization": pf.discretization.Particles(coalesce=1e-2)},
    ),
    "layers": lambda: (
        pf.Flow(pf.MeanShift(pf.kernels.Gaussian(0.5))),
        cloud(600),
        times(5.0, 6),
        {"step": 1.0, "solver": "map", "observe": [ENERGY]},
    ),
    "implicit": lambda: (
        pf.Flow(attention(9.0), ON_SPHERE),
        sphere(100),
        times(5.0),
        {**ADAPTIVE, "solver": "kvaerno5", "observe": BOTH},
    ),
    "function": lambda: (
        pf.Flow([pf.drifts.FunctionDrift(towards_the_mean), pf.Attend(pf.kernels.Laplace(0.3))]),
        cloud(400),
        times(1.0),
        {**ADAPTIVE, "observe": [ENERGY]},
    ),
    "features": lambda: (
        pf.Flow(attention(1.0, summation=pf.summation.Features()), ON_SPHERE),
        sphere(600),
        times(0.5),
        {**ADAPTIVE, "observe": [ORDER]},
    ),
    "tolerance": lambda: (
        pf.Flow(attention(1.0, summation=pf.summation.Auto(tolerance=1e-4)), ON_SPHERE),
        sphere(6000),
        times(0.2),
        {"rtol": 1e-4, "atol": 1e-6, "observe": [ORDER]},
    ),
    "gaussian": lambda: (
        pf.Flow(pf.Attend(pf.kernels.Gaussian(0.5))),
        cloud(300),
        times(0.5),
        {**ADAPTIVE, "discretization": pf.discretization.Gaussian()},
    ),
    "cells": lambda: (
        pf.Flow(attention(), ON_SPHERE, temperature=0.1),
        sphere(400, 2),
        times(0.5),
        {**ADAPTIVE, "observe": [ENERGY], "discretization": pf.discretization.FiniteVolumes(cells=128)},
    ),
    "ensemble": lambda: (
        [pf.Flow(attention(beta), ON_SPHERE) for beta in (1.0, 2.0, 4.0, 9.0, 16.0)],
        jnp.stack([sphere(100, 3, seed) for seed in range(5)]),
        times(1.0),
        {**ADAPTIVE, "observe": BOTH},
    ),
}


def main() -> None:
    """Store every case for every number of devices, without silent casting or broadcasting."""
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    folder, counts, names = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3].split(",")
    for name in names:
        flow, start, saved, rest = CASES[name]()
        for devices in counts:
            pf.simulate(flow, start, saved, devices=int(devices), store=folder / f"{name}-{devices}.h5", **rest)


if __name__ == "__main__":
    main()
