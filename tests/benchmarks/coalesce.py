"""What coalescing saves: `python tests/benchmarks/coalesce.py [--count 100000] [--end 1e12] [--arc 3]`.

Uniform tokens on an arc of the circle under SA with β = 30, rtol 1e-6, frames evenly spaced in log t. On less than half
of the circle all become one. On all of it (`--arc 6.283`) three clusters stand for ever: their pull, e^{−45} of what
each does to itself, is lost in double precision. Both runs sum within the same tolerance (`--tolerance 0` for exact
sums, about an hour at N = 10⁵): one with `Particles(coalesce=ε)`, one without, as far as `--compare`. The table shows
how many points carry the cloud, the fields so far, as many whole fields (N² pairs) as they would be with exact sums,
the processor seconds so far, compiling and choosing sums included, and those of the run without coalescing: measured
up to `--compare`, and from there on extrapolated by what a unit of time took at last, without compiling, since
stability holds explicit steps at a few units of time however long the run lasts. Below the table: the log-energies of
both runs as far as both were run, beside the bound that the run states for merging alone.
"""

import argparse
import os
import time
from typing import Any, NamedTuple

import numpy as np

import particleflow as pf
from particleflow import kernels

BETA, RTOL = 30.0, 1e-6


class Window(NamedTuple):
    """After a window: its end, the points that carry the cloud; fields, their pairs and processor seconds so far."""

    time: float
    points: int
    fields: int
    pairs: int
    seconds: float


def circle(count: int, arc: float) -> np.ndarray:
    """Uniform points on an arc."""
    angles = np.random.default_rng(0).uniform(0, arc, count)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def run(points: np.ndarray, times: np.ndarray, how: Any, tolerance: float) -> tuple[Any, list[Window]]:
    """A run, and how it stood after each window."""
    sums = pf.summation.Auto(tolerance=tolerance or None)
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=BETA), summation=sums), geometry=pf.Sphere())
    windows: list[Window] = []
    begun = time.process_time()

    def note(frames: Any) -> None:
        state = frames.progress.state
        left = len(points) if how is None else int(state.carrying[0])
        fields = int(frames.progress.evaluations[0])
        pairs = frames.pairs + (windows[-1].pairs if windows else 0)
        windows.append(Window(frames.progress.time, left, fields, pairs, time.process_time() - begun))

    found = pf.simulate(
        flow, points, times, rtol=RTOL, atol=RTOL / 100, discretization=how, progress=note,
        observe=[pf.observables.log_energy],
    )  # fmt: skip
    return found, windows


def seconds_without(when: float, windows: list[Window]) -> float:
    """Processor seconds without coalescing until then: measured, and beyond that at the rate of the last window."""
    last, before = windows[-1], windows[-2]
    rate = (last.seconds - before.seconds) / (last.time - before.time)
    measured = np.interp(when, [0.0, *(each.time for each in windows)], [0.0, *(each.seconds for each in windows)])
    return float(measured) + rate * max(0.0, when - last.time)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--end", type=float, default=1e12)
    parser.add_argument("--arc", type=float, default=3.0, help="radians of the circle that the tokens begin on")
    parser.add_argument("--epsilon", type=float, default=1e-9)
    parser.add_argument("--tolerance", type=float, default=1e-8, help="of sums; 0 for exact ones")
    parser.add_argument("--compare", type=float, default=100.0, help="how far the run without coalescing goes")
    given = parser.parse_args()
    points = circle(given.count, given.arc)
    times = np.concatenate([[0.0], np.geomspace(0.1, given.end, 10 * round(np.log10(given.end) + 1) + 1)])
    few, windows = run(points, times, pf.Particles(coalesce=given.epsilon), given.tolerance)
    every, plain = run(points, times[times <= given.compare], None, given.tolerance)
    print(f"N = {given.count} on {given.arc:g} radians, β = {BETA:g}, ε = {given.epsilon:g}, tolerance of sums "
          f"{given.tolerance:g}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; without, measured until "
          f"t = {plain[-1].time:.3g}: {plain[-1].fields} fields, {plain[-1].seconds:.1f} s")  # fmt: skip
    print(f"{'t':>8} {'points':>8} {'fields':>8} {'whole':>8} {'seconds':>8} {'without':>9} {'ratio':>9}")
    for place, each in enumerate(windows):
        if place in (0, len(windows) - 1) or each.points != windows[place - 1].points:
            others = seconds_without(each.time, plain)
            whole = each.pairs / given.count**2
            print(f"{each.time:8.3g} {each.points:8d} {each.fields:8d} {whole:8.1f} {each.seconds:8.1f} {others:9.3g} "
                  f"{others / each.seconds:9.3g}")  # fmt: skip
    last = next(each for each in windows if each.points == windows[-1].points)
    others = seconds_without(last.time, plain)
    print(f"the last merging, to {last.points}, at t = {last.time:.3g}: {others / last.seconds:.3g} times faster")
    both = slice(0, len(every))
    apart = np.abs(np.asarray(few.observables["log_energy"])[both] - np.asarray(every.observables["log_energy"]))
    said = few.metadata["statistics"]
    print(f"log-energies differ by {apart.max():.2g}; merging may do {said['log-energy bound of merging']:.2g},"
          f" a particle was moved by {said['moved by merging']:.2g} at most")  # fmt: skip
    print(f"sums with: {said['chosen summation']}")
    print(f"sums without: {every.metadata['statistics']['chosen summation']}")


if __name__ == "__main__":
    main()
