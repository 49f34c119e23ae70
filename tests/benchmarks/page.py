"""What a picture of the interactive page costs its script: `python tests/benchmarks/page.py [--particles 100000]`.

The page is opened in a headless Chromium, where software draws the points, so that only the time of our own script is
meaningful: decoding a frame, filling buffers, moving cursors. A screen at 60 pictures a second leaves 16.7 ms.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import page as write_page


def gathering(particles: int, frames: int = 20) -> Trajectory:
    """Random points on the sphere that move to two poles."""
    start = np.random.default_rng(0).normal(size=(particles, 3))
    goal = np.where(np.arange(particles)[:, None] % 2, [1.0, 0, 0], [-1.0, 0, 0])
    share = np.linspace(0.0, 0.95, frames)[:, None, None]
    points = (1 - share) * start + share * goal
    points /= np.linalg.norm(points, axis=2, keepdims=True)
    return Trajectory.from_arrays(np.arange(float(frames)), points, metadata={"geometry": "sphere"})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--particles", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    print(f"{'particles':>10}{'script ms a picture':>22}{'MB of the file':>17}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=arguments)
        for particles in parser.parse_args().particles:
            path = write_page(gathering(particles), Path(folder) / f"{particles}.html", analysis=False)
            page = browser.new_page()
            page.goto(path.as_uri())
            page.evaluate("window.particleflow.ready")
            script = page.evaluate("window.particleflow.benchmark(20)")
            print(f"{particles:>10}{script:>22.2f}{path.stat().st_size / 1e6:>17.2f}")
        browser.close()


if __name__ == "__main__":
    main()
