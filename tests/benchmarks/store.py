"""What the store costs: seconds and memory of streaming, of reading files of any size, and of a cold start.

    python tests/benchmarks/store.py [--quick]

Each measurement runs in a process of its own, because the peak of resident memory is a number per process.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

COUNT, DIMENSION, WINDOW = 10_000, 3, 20


def peak_megabytes() -> float:
    """The most resident memory this process has had (Linux counts in kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def stream(folder: str, frames: int, fsync: bool) -> dict[str, float]:
    """Write a run of N = 10,000, d = 3 in windows of 20 frames, and time the writer alone."""
    from particleflow.trajectory.store import TrajectoryWriter

    rng = np.random.default_rng(0)
    points = rng.normal(size=(WINDOW, COUNT, DIMENSION))
    spent = busy = 0.0
    with TrajectoryWriter.create(
        folder, count=COUNT, dimension=DIMENSION, observables={"energy": ()}, fsync=fsync
    ) as writer:
        for start in range(0, frames, WINDOW):
            points += 1e-3
            steps = np.arange(start, start + WINDOW)
            begun, begun_busy = time.perf_counter(), time.process_time()
            writer.append(steps * 0.1, steps, points, {"energy": points[:, 0, 0]})
            spent += time.perf_counter() - begun
            busy += time.process_time() - begun_busy
    numbers = {"seconds": spent, "ms_per_frame": 1e3 * spent / frames, "busy_ms_per_frame": 1e3 * busy / frames}
    numbers["peak_megabytes"] = peak_megabytes()
    return numbers


def run(folder: str, frames: int, fsync: bool) -> dict[str, float]:
    """A real run, attention on the sphere at rtol 1e-6, and the share of its time that goes into storing it."""
    import particleflow as pf
    from particleflow.simulation.recording.recorder import Recorder

    spent, keep = 0.0, Recorder.append

    def timed(self: Recorder, window: Any) -> None:
        nonlocal spent
        begun = time.perf_counter()
        keep(self, window)
        spent += time.perf_counter() - begun

    Recorder.append = timed  # pyright: ignore[reportAttributeAccessIssue]
    points = np.random.default_rng(0).normal(size=(COUNT, DIMENSION))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    flow = pf.Flow(pf.Attend(pf.kernels.Attention(beta=4.0)), geometry=pf.Sphere())
    begun = time.perf_counter()
    pf.simulate(
        flow, points, np.linspace(0.0, 10.0, frames), rtol=1e-6, atol=1e-8, fsync=fsync, store=Path(folder) / "run.h5"
    ).close()
    whole = time.perf_counter() - begun
    numbers = {"run_seconds": whole, "storing_seconds": spent, "percent": 100 * spent / (whole - spent)}
    return {**numbers, "peak_megabytes": peak_megabytes()}


def read(folder: str) -> dict[str, float]:
    """Read some frames, every hundredth, and one particle through time, of a file: its size must not matter."""
    from particleflow.trajectory.trajectory import Trajectory

    before = peak_megabytes()
    with Trajectory.open(folder) as trajectory:
        begun = time.perf_counter()
        for frame in trajectory[:: len(trajectory) // 100]:
            assert np.isfinite(frame.points).all()
        one = np.asarray(trajectory.points[:: len(trajectory) // 100, 5])
        seconds, gigabytes = time.perf_counter() - begun, trajectory.points.nbytes / 1e9
    added = peak_megabytes() - before
    return {"gigabytes": gigabytes, "seconds": seconds, "added_megabytes": added, "frames_of_one_particle": len(one)}


def cold(folder: str) -> dict[str, float]:
    """Import, open and read one frame, from the start of the interpreter."""
    from particleflow.trajectory.trajectory import Trajectory

    with Trajectory.open(folder) as trajectory:
        points = trajectory[len(trajectory) // 2].points
    assert points.shape == (COUNT, DIMENSION)
    return {"processor_seconds": time.process_time(), "jax_imported": float("jax" in sys.modules)}


def measure(name: str, *arguments: object) -> dict[str, float]:
    """Run one measurement in a new process; the time of the whole process is added to what it reports."""
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--only", name, *(json.dumps(argument) for argument in arguments)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return {**json.loads(answer.stdout), "process_seconds": time.perf_counter() - begun}


def main(quick: bool) -> None:
    """Print one line per measurement."""
    for frames in (100, 400) if quick else (1000, 4000):
        for fsync in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                report(f"stream {frames} frames, fsync={fsync}", measure("stream", folder, frames, fsync))
                if fsync:
                    report("cold start", measure("cold", folder))
                    report("reading", measure("read", folder))
    for frames in (50,) if quick else (250, 1000):
        with tempfile.TemporaryDirectory() as folder:
            report(f"real run, {frames} frames", measure("run", folder, frames, True))


def report(title: str, numbers: dict[str, float]) -> None:
    print(f"{title:<32}" + "  ".join(f"{name} {value:.4g}" for name, value in numbers.items()), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--only"]:
        chosen = {"stream": stream, "run": run, "read": read, "cold": cold}[sys.argv[2]]
        print(json.dumps(chosen(*(json.loads(argument) for argument in sys.argv[3:]))))
    else:
        main("--quick" in sys.argv)
