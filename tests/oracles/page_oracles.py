"""Runs for the tests of the interactive page, with planted clusters, and what an open page tells of itself."""

import shutil
import time
import zlib
from base64 import b64decode
from collections.abc import Callable
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.image import imread

from particleflow.trajectory.trajectory import Trajectory

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def browser_path() -> str | None:
    """Where a browser is installed, if one is."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def two_groups(frames: int = 40, count: int = 60, dimension: int = 3, seed: int = 0) -> np.ndarray:
    """Points on a sphere that move along great circles' chords to two poles: half of them to each."""
    generator = np.random.default_rng(seed)
    start = generator.normal(size=(count, dimension))
    pole = np.zeros(dimension)
    pole[0] = 1.0
    goal = np.where(np.arange(count)[:, None] < count // 2, pole, -pole)
    weight = np.linspace(0.0, 1.0, frames)[:, None, None]
    points = (1 - weight) * start / np.linalg.norm(start, axis=1, keepdims=True) + weight * goal
    return points / np.linalg.norm(points, axis=2, keepdims=True)


def demo(title: str = "Two groups", **changes: Any) -> Trajectory:
    points = two_groups()
    times = np.linspace(0.0, 4.0, len(points))
    energy = np.square(points.mean(axis=1)).sum(axis=1)
    contents: dict = {
        "observables": {"order": energy[::-1].copy(), "energy": energy},
        "labels": np.arange(60) % 3,
        "positions": np.arange(60.0),
        "metadata": {"title": title, "geometry": "sphere", "scenario": f'title = "{title}"', "seed": 3},
    }
    return Trajectory.from_arrays(times, points, **(contents | changes))


def planted(frames: int = 40, count: int = 60) -> dict:
    """Labels, counts and merges that are known: one cluster for each particle, then pairs, then the two groups."""
    labels = np.tile(np.arange(count), (frames, 1))
    labels[10:] = labels[10:] // 2 * 2
    labels[20:] = np.where(np.arange(count) < count // 2, 0, count // 2)
    counts = np.array([len(set(row)) for row in labels.tolist()])
    step = 4.0 / (frames - 1)
    pairs = [(i, i + 1, 10 * step, 2) for i in range(0, count, 2)]
    half = count // 2
    groups = [(base, base + i, 20 * step, i + 2) for base in (0, half) for i in range(2, half, 2)]
    return {"labels": labels, "counts": counts, "merge_tree": np.array(pairs + groups, float)}


def state(page) -> SimpleNamespace:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return SimpleNamespace(**page.evaluate("window.particleflow.state()"))


def stored(page, frame: int, dimension: int) -> np.ndarray:
    values = page.evaluate(f"Array.from(window.particleflow.positions({frame}), (x) => Number.isNaN(x) ? null : x)")
    return np.array(values, float).reshape(-1, dimension)


def wait_until(happened: Callable[[], bool], seconds: float = 10.0) -> bool:
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        if happened():
            return True
    return False


def picture(page) -> bytes:
    return page.locator("#stage").screenshot()


def pixels(page) -> np.ndarray:
    """The stage as (height, width, 3) numbers in [0, 1], one for each CSS pixel."""
    return np.asarray(imread(BytesIO(picture(page)), format="png"))[..., :3]


def undo(text: str, shape: tuple[int, ...], order: int, before: list[np.ndarray]) -> np.ndarray:
    """An independent decoder, one value at a time in exact integers."""
    raw = np.frombuffer(zlib.decompress(b64decode(text)), np.uint8).astype(int)
    folded = raw[: len(raw) // 2] + 256 * raw[len(raw) // 2 :]
    residual = np.where(folded % 2 == 0, folded // 2, -(folded // 2) - 1).reshape(shape)
    frames = [*before]
    for row in residual:
        last = frames[-1] if frames else np.zeros(shape[1:], int)
        second = frames[-2] if len(frames) > 1 else np.zeros(shape[1:], int)
        frames.append((row + (last if order == 1 else 2 * last - second)) % 65536)
    return np.array(frames[len(before) :])
