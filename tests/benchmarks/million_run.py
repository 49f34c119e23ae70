"""The scenario million_tokens from its file to its page: seconds and peak memory of every phase.

    python tests/benchmarks/million_run.py [--count 1000000] [--folder DIR] [--whole]

Each phase is a process of its own, so that its peak memory is its own: the simulation, the clusters, the summary, the
figures, the movie and the page (the last four are given the clusters). `--whole` runs the scenario as a user does
instead, in one go, and compares with one exact field of torch's fused attention in float64 on the same cores, which is
measured at 65,536 tokens and extrapolated by the square of their number. `--folder` keeps the run there, and takes up a
simulation that lies there already. Run it on a quiet machine: what must hold is a fifth of that field's time, and 4 GB,
for the whole.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from turns import Times, median_times

SCENARIO = Path(__file__).parents[2] / "scenarios" / "million_tokens.toml"
PRODUCTS = ("clusters", "summary", "figures", "movie", "page")
WHOLE = "whole run"
LIMITS = 0.2, 4.0  # share of the time of one exact field, GB
EXACT = 65_536  # tokens of the exact field that is measured


def simulation(folder: Path, count: int, *, products: bool) -> list[str]:
    """The command that runs the scenario."""
    without = [] if products else ["--no-summary", "--no-figures", "--no-movie", "--no-page"]
    changed = ["--set", f"initial.count={count}", "--output", str(folder), "--quiet"]
    return [sys.executable, "-m", "particleflow", "run", str(SCENARIO), *changed, *without]


def make(phase: str, folder: Path) -> None:
    """One product of the run in a folder, and how long it alone took."""
    from particleflow import analysis, view
    from particleflow.analysis.clusters.tracking import ClusterTrack
    from particleflow.app.runs import run_outputs as products
    from particleflow.trajectory.trajectory import Trajectory

    with Trajectory.open(folder / "trajectory.h5") as trajectory:
        known: Any = None
        if phase != "clusters":
            with np.load(folder / "clusters.npz") as arrays:
                labels = np.load(folder / "labels.npy", mmap_mode="r")
                known = ClusterTrack.from_arrays({**arrays, "labels": labels})
        makers: dict[str, Callable[[], Any]] = {
            "clusters": lambda: products.track(trajectory),
            "summary": lambda: analysis.write_summary(trajectory, folder / "summary.json", track=known),
            "figures": lambda: view.figures(trajectory, folder / "figures", analysis=known),
            "movie": lambda: view.animate(trajectory, folder / "movie.mp4", counts=known.counts),
            "page": lambda: view.page(trajectory, folder / "viewer.html", analysis=known),
        }
        start = time.perf_counter()
        made = makers[phase]()
        print(f"{time.perf_counter() - start:.1f}")
        if phase == "clusters":
            arrays = made.arrays()
            np.save(folder / "labels.npy", arrays.pop("labels"))
            np.savez(folder / "clusters.npz", **arrays)


def measured(command: list[str]) -> tuple[float, float, float, str]:
    """Seconds by the clock, seconds of processor time, peak memory in GB, and what the command said."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().strip()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}.")
    unit = 1 if sys.platform == "darwin" else 1024
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * unit / 1e9, text


def size_of(path: Path) -> float:
    """Megabytes of a file, or of all in a folder; 0 where there is none."""
    files = [path] if path.is_file() else path.glob("**/*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def report(phase: str, command: list[str], made: Path) -> Times:
    """Do a phase, print its row, and return its times; a process that tells how long its own work took is believed."""
    clock, processor, memory, said = measured(command)
    own = float(said) if phase in PRODUCTS else clock
    print(f"{phase:12} {own:9.1f} {clock:9.1f} {processor:9.1f} {memory:9.2f} {size_of(made):9.1f}", flush=True)
    return Times(own, processor)


def exact_field_times(count: int) -> Times:
    """The times of one field of so many tokens on the circle by torch's exact attention, extrapolated."""
    from million import exact_field  # needs torch

    measured_at = median_times({"torch": exact_field(2, EXACT)}, 3)["torch"]
    return Times(*(seconds * (count / EXACT) ** 2 for seconds in measured_at))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--phase", choices=PRODUCTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        make(options.phase, options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "run"
        print(f"{options.count:,} tokens, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
              f"limits {LIMITS[0]:g} of one exact field and {LIMITS[1]:g} GB for the whole")  # fmt: skip
        print(f"{'':12} {'seconds':>9} {'process':>9} {'CPU':>9} {'peak GB':>9} {'MB made':>9}")
        if options.whole:
            own = report(WHOLE, simulation(folder, options.count, products=True), folder)
            field = exact_field_times(options.count)
            shares = (
                f"{own.clock / field.clock:.3f} on the clock, {own.processors / field.processors:.3f} of processors"
            )
            print(f"one exact field of torch takes {field.clock:,.0f} s, and the whole run of that {shares}")
            return
        total = 0.0
        if not (folder / "trajectory.h5").exists():
            total += report(
                "simulation", simulation(folder, options.count, products=False), folder / "trajectory.h5"
            ).clock
        own = {"clusters": "labels.npy", "summary": "summary.json", "movie": "movie.mp4", "page": "viewer.html"}
        for phase in PRODUCTS:
            command = [sys.executable, __file__, "--phase", phase, "--folder", str(folder)]
            total += report(phase, command, folder / own.get(phase, phase)).clock
        print(f"{'one by one':12} {total:9.1f}")


if __name__ == "__main__":
    main()
