"""Densities to their first clustering: how long a run takes, with compiling and without.

    python tests/benchmarks/volumes.py [--circle 4096] [--sphere 20000] [--rtol 1e-3] [--runs 2]

The uniform circle and the uniform sphere, each with a ripple, under unnormalised attention, β = 5, until peaks stand: a
line says how much of the mass the heaviest tenth of all cells holds. Sums are those that a user gets who asks for
nothing: exact up to rounding. Times are on the clock, and of processors, which a busy machine disturbs less.
"""

import argparse
import time
from typing import Any

import numpy as np

import particleflow as pf
from particleflow import kernels
from particleflow.discretization import FiniteVolumes
from particleflow.dynamics.initial import CircleWave, DensityFunction


def _attention() -> pf.Flow:
    return pf.Flow(pf.Attend(kernels.Attention(beta=5.0), normalization="none"), geometry=pf.Sphere())


def circle(cells: int) -> tuple[pf.Flow, Any, np.ndarray, FiniteVolumes]:
    """A ripple in the third mode."""
    return _attention(), CircleWave(3, 1e-2), np.linspace(0, 0.4, 9), FiniteVolumes(cells)


def sphere(cells: int) -> tuple[pf.Flow, Any, np.ndarray, FiniteVolumes]:
    """A ripple of twenty plane waves with random directions."""
    random = np.random.default_rng(0)
    waves, phases = 3 * random.normal(size=(20, 3)), random.uniform(0, 2 * np.pi, 20)

    def ripple(points: np.ndarray) -> np.ndarray:
        rough = 1 + 0.05 * np.sum(np.cos(points @ waves.T + phases), axis=1)
        return rough / (4 * np.pi)

    return _attention(), DensityFunction(_normalised(ripple), 3), np.linspace(0, 0.4, 5), FiniteVolumes(cells)


def _normalised(ripple: Any) -> Any:
    """The ripple over its mean, known on many points."""
    steps = np.arange(100_000) + 0.5
    heights, angles = 1 - 2 * steps / len(steps), np.pi * (1 + 5**0.5) * steps
    around = np.sqrt(1 - heights**2)
    everywhere = np.stack([around * np.cos(angles), around * np.sin(angles), heights], axis=1)
    total = 4 * np.pi * np.mean(ripple(everywhere))
    return lambda points: ripple(points) / total


def main() -> None:
    """Print a line for each run: the first one compiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--circle", type=int, default=4096)
    parser.add_argument("--sphere", type=int, default=20_000)
    parser.add_argument("--rtol", type=float, default=1e-3)
    parser.add_argument("--runs", type=int, default=2)
    given = parser.parse_args()
    for name, make, cells in (("circle", circle, given.circle), ("sphere", sphere, given.sphere)):
        if cells == 0:
            continue
        flow, start, times, how = make(cells)
        for attempt in ("first", "again")[: given.runs]:
            clock, processors = time.perf_counter(), time.process_time()
            run = pf.simulate(flow, start, times, discretization=how, rtol=given.rtol, atol=0.01 * given.rtol)
            masses, said = np.asarray(run.masses), run.metadata["statistics"]
            print(
                f"{name} {cells} cells, {attempt}: {time.perf_counter() - clock:.1f} s, "
                f"{time.process_time() - processors:.1f} s of processors; {said['accepted steps']} steps, "
                f"{said['field evaluations']} fields; the largest tenth of cells holds {_share(masses[-1]):.2f}; "
                f"least mass {masses.min():.1e}, total off by {np.max(np.abs(masses.sum(axis=1) - 1)):.1e}; "
                f"{said['chosen summation'][:60]}",
                flush=True,
            )


def _share(masses: np.ndarray) -> float:
    """The mass of the heaviest tenth of all cells."""
    return float(np.sort(masses)[::-1][: len(masses) // 10].sum())


if __name__ == "__main__":
    main()
