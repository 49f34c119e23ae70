"""Time and memory of the analysis: `python tests/benchmarks/analysis.py [--frames 1000] [--particles 10000]`.

Each case runs in a process of its own on a file-backed trajectory, which is read a block at a time. Limits: the whole
summary of 1,000 frames × 10,000 particles in 60 s and 2 GB, the count over time of 1,000 × 1,000 in 10 s.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from particleflow.analysis import cluster_counts, summarize
from particleflow.trajectory.store.file_writer import TrajectoryWriter
from particleflow.trajectory.trajectory import Trajectory


def unit(points: np.ndarray) -> np.ndarray:
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def collapsing(generator: np.random.Generator, frames: int, count: int, dimension: int) -> Iterator[np.ndarray]:
    """A uniform cloud that falls onto twelve points, which then drift together: spread, crowded, then one point."""
    start, centres = unit(generator.normal(size=(count, dimension))), unit(generator.normal(size=(12, dimension)))
    target = centres[np.argmax(start @ centres.T, axis=1)]
    for clock in np.linspace(0, 40, frames):
        fall, drift = 1 - np.exp(-clock / 3), 1 / (1 + np.exp(-(clock - 30)))
        yield unit((1 - fall) * start + fall * ((1 - drift) * target + drift * centres[0]))


def collapsed(generator: np.random.Generator, frames: int, count: int, dimension: int) -> Iterator[np.ndarray]:
    """Ten points that hold all the particles, up to rounding."""
    centres = unit(generator.normal(size=(10, dimension)))
    member = generator.integers(10, size=count)
    for _ in range(frames):
        yield unit(centres[member] + 1e-13 * generator.normal(size=(count, dimension)))


def crowded(generator: np.random.Generator, frames: int, count: int, dimension: int) -> Iterator[np.ndarray]:
    """Noisy clusters about as wide as the threshold, from which particles leave and to which they return."""
    centres = unit(generator.normal(size=(10, dimension)))
    target = centres[generator.integers(10, size=count)]
    points = target
    for _ in range(frames):
        points = unit(points + 0.3 * (target - points) + 0.02 * generator.normal(size=(count, dimension)))
        yield points


def spread(generator: np.random.Generator, frames: int, count: int, dimension: int) -> Iterator[np.ndarray]:
    """Brownian motion of a uniform cloud: thousands of small clusters that split and merge in every frame."""
    points = unit(generator.normal(size=(count, dimension)))
    for _ in range(frames):
        points = unit(points + 0.005 * generator.normal(size=(count, dimension)))
        yield points


CLOUDS = {cloud.__name__: cloud for cloud in (collapsing, collapsed, crowded, spread)}


def store(path: Path, cloud: str, frames: int, count: int, dimension: int) -> None:
    """Write a run frame by frame, so that not even the benchmark holds it in memory."""
    generator = np.random.default_rng(0)
    layout = {"count": count, "dimension": dimension, "observables": {"energy": ()}}
    with TrajectoryWriter.create(path, provenance={"geometry": "sphere"}, fsync=False, **layout) as writer:
        for index, points in enumerate(CLOUDS[cloud](generator, frames, count, dimension)):
            energy = {"energy": np.array([np.square(points.mean(axis=0)).sum()])}
            writer.append([0.04 * index], [index], points[None], energy)


def measure(task: str, path: Path) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, used = time.perf_counter(), time.process_time()
    with Trajectory.open(path) as run:
        if task == "count":
            counts = cluster_counts(run)
            last = int(counts[-1])
        else:
            last = summarize(run)["clusters"]["final_count"]
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    used = time.process_time() - used
    return {"seconds": seconds, "processor": used, "start_mb": before / 1024, "peak_mb": peak / 1024, "last": last}


def run_case(task: str, cloud: str, frames: int, count: int, dimension: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trajectory.h5"
        store(path, cloud, frames, count, dimension)
        command = [sys.executable, __file__, "--measure", task, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--particles", type=int, default=10_000)
    parser.add_argument("--measure", nargs=2, metavar=("TASK", "FILE"))
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure[0], Path(arguments.measure[1]))))
        return
    cases = [("summary", cloud, arguments.particles, 3) for cloud in CLOUDS]
    cases += [("count", cloud, 1000, dimension) for dimension in (3, 64) for cloud in CLOUDS]
    print("task     cloud       frames      N   d  seconds  cpu s  peak MB  clusters")
    for task, cloud, count, dimension in cases:
        row = run_case(task, cloud, arguments.frames, count, dimension)
        print(
            f"{task:<8} {cloud:<11} {arguments.frames:>6} {count:>6} {dimension:>3} "
            f"{row['seconds']:>8.1f} {row['processor']:>6.1f} {row['peak_mb']:>8.0f} {row['last']:>9}",
            flush=True,
        )


if __name__ == "__main__":
    main()
