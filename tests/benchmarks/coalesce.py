"""What coalescing saves: `python tests/benchmarks/coalesce.py [--count 2000] [--end 1e12] [--epsilon 1e-9]`.

Uniform tokens on the circle under SA with β = 30, rtol 1e-6, frames evenly spaced in log t, `Particles(coalesce=ε)`.
The table shows how many points carry the cloud, the fields so far and the pairs that they have summed, and the pairs of
the same run without coalescing: measured up to `--compare`, and from there on extrapolated by the steps that this run
took at last, which stability holds at a few units of time however long it lasts. The last column is their ratio. Below
it: the energies of both runs as far as both were run, beside the bound that the run states for merging alone, and the
seconds that both would take at N = 10⁵, from the time of one field of that size (`--field` measures it) and the fields
of this run; fields of merged clouds are not counted there, which take less than one in a hundred. `--count 100000` runs
the whole thing: about an hour on two cores.
"""

import argparse
import time
from typing import Any

import jax
import numpy as np

import particleflow as pf
from particleflow import kernels

BETA, RTOL, LARGE = 30.0, 1e-6, 100_000
FLOW = pf.Flow(pf.Attend(kernels.Attention(beta=BETA)), geometry=pf.Sphere())


def circle(count: int) -> np.ndarray:
    """Uniform points."""
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, count)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def run(points: np.ndarray, times: np.ndarray, how: Any) -> tuple[Any, list[tuple[float, int, int, int]], float]:
    """A run: after each window the time, the points that carry it, its fields so far, its pairs so far; CPU seconds."""
    rows: list[tuple[float, int, int, int]] = []

    def note(frames: Any) -> None:
        state = frames.progress.state
        left = len(points) if how is None else int(state.carrying[0])
        pairs = frames.pairs + (rows[-1][3] if rows else 0)
        rows.append((frames.progress.time, left, int(frames.progress.evaluations[0]), pairs))

    begun = time.process_time()
    found = pf.simulate(
        FLOW, points, times, rtol=RTOL, atol=RTOL / 100, discretization=how, progress=note,
        observe=[pf.observables.log_energy],
    )  # fmt: skip
    return found, rows, time.process_time() - begun


def seconds_of_a_field(count: int) -> float:
    """Wall seconds of one field, its compilation left out; the second of two."""
    measure = pf.Measure.uniform(circle(count))
    field = jax.jit(lambda measure: FLOW.drift(0.0, measure.sites, measure))
    jax.block_until_ready(field(measure))
    begun = time.perf_counter()
    jax.block_until_ready(field(measure))
    return time.perf_counter() - begun


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--end", type=float, default=1e12)
    parser.add_argument("--epsilon", type=float, default=1e-9)
    parser.add_argument("--compare", type=float, default=300.0, help="how far the run without coalescing goes")
    parser.add_argument("--field", action="store_true", help=f"measure a field of {LARGE} tokens")
    given = parser.parse_args()
    points = circle(given.count)
    times = np.concatenate([[0.0], np.geomspace(0.1, given.end, 10 * round(np.log10(given.end) + 1) + 1)])
    few, rows, seconds = run(points, times, pf.Particles(coalesce=given.epsilon))
    every, plain, plain_seconds = run(points, times[times <= given.compare], None)
    last, _, fields, _ = plain[-1]
    fields_a_time = (fields - plain[-2][2]) / (last - plain[-2][0])

    def without(when: float) -> float:
        """Fields without coalescing until then."""
        measured = np.interp(when, [0.0, *(row[0] for row in plain)], [0, *(row[2] for row in plain)])
        return float(measured) + fields_a_time * max(0.0, when - last)

    print(f"N = {given.count}, β = {BETA:g}, ε = {given.epsilon:g}: {seconds:.1f} s of CPU; without, until "
          f"t = {plain[-1][0]:.3g}: {plain_seconds:.1f} s")  # fmt: skip
    print("       t   points   fields   pairs     without   ratio")
    shown = [index for index in range(len(rows)) if index in (0, len(rows) - 1) or rows[index][1] != rows[index - 1][1]]
    for when, left, fields, pairs in (rows[index] for index in shown):
        others = without(when) * given.count**2
        print(f"{when:8.3g} {left:8d} {fields:8d} {pairs:9.2e} {others:9.2e} {others / pairs:8.3g}")
    both = slice(0, len(every))
    apart = np.abs(np.asarray(few.observables["log_energy"])[both] - np.asarray(every.observables["log_energy"]))
    said = few.metadata["statistics"]
    print(f"log-energies differ by {apart.max():.2g}; merging may do {said['log-energy bound of merging']:.2g},"
          f" a particle was moved by {said['moved by merging']:.2g} at most")  # fmt: skip
    if given.field:
        one = seconds_of_a_field(LARGE)
        full = rows[-1][3] / given.count**2  # fields of the whole cloud that cost as much as this run
        print(f"one field of N = {LARGE}: {one:.2f} s; until t = {given.end:.0e} {full:.0f} of them with, "
              f"{without(given.end):.2g} without coalescing: {full * one / 3600:.2g} h and "
              f"{without(given.end) * one / 3600:.2g} h")  # fmt: skip


if __name__ == "__main__":
    main()
