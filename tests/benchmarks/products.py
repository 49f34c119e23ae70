"""How long the products of a run take: clusters, every figure, movie, page, and all together as `run` makes them.

Run it on a quiet machine: `python tests/benchmarks/products.py [RUN]`. Without a run folder it simulates
`metastable_sphere` first, without products. It prints seconds by the clock and of processor time, processes included.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np

from particleflow import view
from particleflow._support.own_process import configure_process
from particleflow.app.runs import run_outputs as products
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.plots.figure_set import _plan
from particleflow.view.plots.saving import save_figure

SCENARIO = Path(__file__).parents[2] / "scenarios" / "metastable_sphere.toml"


def measured(name: str, action: Callable[[], Any], mark: str = "") -> Any:
    """Do something and print how long it took."""
    before, start = os.times(), time.perf_counter()
    result = action()
    seconds, after = time.perf_counter() - start, os.times()
    worked = sum(after[:4]) - sum(before[:4])
    print(f"{name:34} {seconds:8.2f} {worked:8.2f}{mark}")
    return result


def simulated(folder: Path) -> Path:
    """A new run of the scenario without products."""
    options = ["--output", str(folder), "--no-summary", "--no-figures", "--no-movie", "--no-page", "--quiet"]
    command = [sys.executable, "-m", "particleflow", "run", str(SCENARIO), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def draw_figures(trajectory: Trajectory, analysis: Any, folder: Path) -> None:
    """Every figure by itself."""
    with view.style.use("light"):
        for name, draw in _plan(trajectory, analysis):
            path = folder / f"{name}.png"
            measured(f"  {name}", lambda draw=draw, path=path: save_figure(np.ravel(draw())[0].figure, path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path)
    options = parser.parse_args()
    configure_process()  # as the command line: other processes draw figures and movie
    with tempfile.TemporaryDirectory() as name:
        run = options.run or simulated(Path(name) / "run")
        print(f"{'':34} {'seconds':>8} {'CPU':>8}")
        with Trajectory.open(run / "trajectory.h5") as trajectory:
            track = measured("clusters", lambda: products.track(trajectory))
            draw_figures(trajectory, track, Path(name))
            measured("movie", lambda: view.animate(trajectory, Path(name) / "movie.mp4", counts=track.counts))
            measured("page", lambda: view.page(trajectory, Path(name) / "viewer.html", analysis=track))
        copy = Path(name) / "copy"
        copy.mkdir()
        shutil.copy(run / "trajectory.h5", copy)
        with Trajectory.open(copy / "trajectory.h5") as trajectory:
            outcome = products.Outcome(copy, trajectory.status)
            wanted = {"summary": False}
            measured(
                "clusters, figures, movie and page", lambda: products.make_products(copy, trajectory, wanted, outcome)
            )
        failed = outcome.failures or "nothing"
        print(f"made {', '.join(outcome.products)}; failed {failed}")


if __name__ == "__main__":
    main()
