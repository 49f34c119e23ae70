"""How long a frame of an animation takes: 2,000 particles at 720p, against matplotlib's own FuncAnimation.

Run it on a quiet machine: `python tests/benchmarks/animation.py [--frames 150] [--particles 2000]`. It prints
milliseconds a frame for drawing alone and for drawing and encoding, the processor time that our process and the encoder
spend on it (which a busy machine inflates less), and the ratio to a scatter plot saved by FuncAnimation.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import numpy as np

from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import animate, style
from particleflow.view.movie.movie import Movie

LIMIT = 20.0
SIZE = (1280, 720)


def gathering(dimension: int, particles: int, frames: int, sphere: bool) -> Trajectory:
    """Particles that drift to six random centres, on the sphere or in space."""
    generator = np.random.default_rng(0)
    start = generator.normal(size=(particles, dimension))
    centres = generator.normal(size=(6, dimension))
    goal = centres[np.argmin(((start[:, None] - centres) ** 2).sum(axis=-1), axis=1)]
    share = (1 - np.exp(-np.linspace(0, 6, frames)))[:, None, None]
    points = (1 - share) * start + share * goal
    if sphere:
        points /= np.linalg.norm(points, axis=-1, keepdims=True)
    metadata = {"geometry": "sphere" if sphere else "euclidean", "title": f"{particles} particles"}
    return Trajectory.from_arrays(
        np.linspace(0, 6, frames), points, observables={"energy": share[:, 0, 0]}, metadata=metadata
    )


def time_drawing(run: Trajectory, frames: int, counts: np.ndarray) -> float:
    with style.use("dark"):
        movie = Movie(run, frames, "linear", SIZE, counts=counts)
        movie.frame(0)
        start = time.perf_counter()
        for index in range(frames):
            movie.frame(index).tobytes()
    return 1e3 * (time.perf_counter() - start) / frames


def time_movie(run: Trajectory, frames: int, counts: np.ndarray, folder: Path) -> np.ndarray:
    """Milliseconds a frame: by the clock, in our process, in the encoder."""
    start, before = time.perf_counter(), os.times()
    animate(run, folder / "fast.mp4", frames=frames, spacing="linear", counts=counts)
    after = os.times()
    own = after.user + after.system - before.user - before.system
    encoder = after.children_user + after.children_system - before.children_user - before.children_system
    return 1e3 * np.array([time.perf_counter() - start, own, encoder]) / frames


def time_func_animation(run: Trajectory, frames: int, counts: np.ndarray, folder: Path) -> float:
    """The plain way: one scatter and two panels with a cursor, everything drawn again for every frame."""
    import imageio_ffmpeg
    from matplotlib import pyplot as plt
    from matplotlib.animation import FFMpegWriter, FuncAnimation

    mpl.rcParams["animation.ffmpeg_path"] = imageio_ffmpeg.get_ffmpeg_exe()
    figure, (left, upper, lower) = plt.subplots(1, 3, figsize=(12.8, 7.2), dpi=100)
    points = np.asarray(run.points)
    scatter = left.scatter(*points[0, :, :2].T, s=20, c=np.linspace(0, 1, run.count))
    upper.plot(run.times, run.observables["energy"])
    lower.step(run.times, counts)
    cursors = [ax.axvline(0.0) for ax in (upper, lower)]

    def update(index: int):
        scatter.set_offsets(points[index, :, :2])
        for cursor in cursors:
            cursor.set_xdata([run.times[index]] * 2)
        return (scatter, *cursors)

    start = time.perf_counter()
    movie = FuncAnimation(figure, update, frames=frames, blit=True)
    movie.save(folder / "slow.mp4", writer=FFMpegWriter(fps=30, extra_args=["-preset", "veryfast", "-crf", "18"]))
    plt.close(figure)
    return 1e3 * (time.perf_counter() - start) / frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--particles", type=int, default=2000)
    options = parser.parse_args()
    frames, counts = options.frames, np.arange(options.frames, 0, -1)
    kinds = {"circle": (2, True), "sphere": (3, True), "plane": (2, False), "line": (1, False), "PCA, d = 8": (8, True)}
    print(
        f"{options.particles} particles, {SIZE[0]} × {SIZE[1]}, {frames} frames; milliseconds a frame (limit {LIMIT:g})"
    )
    print(f"{'':12} {'drawing':>9} {'with mp4':>9} {'CPU':>7} {'encoder':>8} {'FuncAnimation':>14} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as name:
        plain = time_func_animation(gathering(2, options.particles, frames, False), frames, counts, Path(name))
        for kind, (dimension, sphere) in kinds.items():
            run = gathering(dimension, options.particles, frames, sphere)
            drawing = time_drawing(run, frames, counts)
            whole, own, encoder = time_movie(run, frames, counts, Path(name))
            mark = "" if whole <= LIMIT else "  over the limit"
            numbers = f"{drawing:9.1f} {whole:9.1f} {own:7.1f} {encoder:8.1f} {plain:14.1f} {plain / whole:7.1f}"
            print(f"{kind:12} {numbers}{mark}")


if __name__ == "__main__":
    main()
