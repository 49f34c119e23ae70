"""Models beside scikit-learn and scikit-image: seconds, how many times faster, and whether they agree.

    python tests/benchmarks/models.py [--count 20000] [--bandwidth 1.0] [--every 1] [--rows clusters segments denoising]

clusters: Gaussian and flat MeanShift of blobs in the plane, every sample a seed, beside scikit-learn's flat one of the
same bandwidth from every sample, and from the occupied cells of a grid (`bin_seeding=True`); with `--every` 20 the
former seeks from every 20th and every 40th sample, and its time from all is extrapolated, linearly in the seeds, and
marked so. The column × says how many times faster than the former a row is, the last column how many times faster than
the latter. The blobs stand apart: of overlapping ones the modes depend on the kernel, and labels agreed to .86
(Gaussian) and .92 (flat) only. segments: a photograph of 256 × 256 pixels. denoising: non-local means of a noisy one,
beside scikit-image's with `fast_mode=False`. The first call of ours, which compiles, is told apart.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from skimage.metrics import peak_signal_noise_ratio
from skimage.restoration import denoise_nl_means
from sklearn.cluster import MeanShift
from sklearn.datasets import load_sample_image, make_blobs
from sklearn.metrics import adjusted_rand_score

from particleflow.models import MeanShiftClustering, non_local_means, segmented
from particleflow.summation.native.build import library


def timed(task: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a task returns, its seconds on the clock, and those of all processors."""
    clock, processors = time.perf_counter(), time.process_time()
    found = task()
    return found, time.perf_counter() - clock, time.process_time() - processors


def photograph(name: str, side: int = 256) -> np.ndarray:
    """A square part of a picture of scikit-learn's, scaled down, channels between 0 and 1."""
    picture = load_sample_image(name).astype(float)[:, :427] / 255
    edges = np.linspace(0, 427, side + 1).astype(int)[:-1]
    sums = np.add.reduceat(np.add.reduceat(picture, edges, 0), edges, 1)
    counts = np.diff([*edges, 427])
    return sums / np.outer(counts, counts)[..., None]


def of_scikit_learn(X: np.ndarray, bandwidth: float, every: int) -> tuple[MeanShift, float, float]:
    """Flat MeanShift from every so many samples; the seconds that it takes, or would take, from all of them."""
    found, *times = timed(lambda: MeanShift(bandwidth=bandwidth, seeds=X[::every]).fit(X))
    if every == 1:
        return found, times[0], times[1]
    _, *half = timed(lambda: MeanShift(bandwidth=bandwidth, seeds=X[:: 2 * every]).fit(X))
    seeds = len(X[::every]), len(X[:: 2 * every])
    more = (len(X) - seeds[0]) / (seeds[0] - seeds[1])
    clock, processors = (one + more * (one - other) for one, other in zip(times, half, strict=True))
    return found, clock, processors


def clusters(options: argparse.Namespace) -> None:
    """Three ways to shift blobs that are apart: where they overlap, modes depend on the kernel."""
    jitter = np.random.default_rng(0).uniform(-0.4, 0.4, size=(12, 2))
    centres = 4.0 * np.stack(np.divmod(np.arange(12), 4), axis=1) + jitter
    X = np.asarray(make_blobs(options.count, centers=centres, cluster_std=0.6, random_state=1)[0])
    theirs, clock, processors = of_scikit_learn(X, options.bandwidth, options.every)
    name = "scikit-learn, flat" if options.every == 1 else f"scikit-learn, extrapolated 1:{options.every}"
    print(f"{name:>30} {clock:>9.2f} {processors:>9.2f} {'1':>7} {len(theirs.cluster_centers_):>9}")
    of_bins, binned, used = timed(lambda: MeanShift(bandwidth=options.bandwidth, bin_seeding=True).fit(X))
    same = adjusted_rand_score(of_bins.labels_, theirs.labels_)
    numbers = f"{binned:>9.2f} {used:>9.2f} {clock / binned:>7.1f} {len(of_bins.cluster_centers_):>9} {same:>10.4f}"
    print(f"{'scikit-learn, bin_seeding':>30} {numbers}")
    for kernel in ("gaussian", "flat"):
        for call in ("first", "second"):
            model = MeanShiftClustering(options.bandwidth, kernel)
            found, ours, used = timed(lambda model=model: model.fit(X))
            same = adjusted_rand_score(found.labels_, theirs.labels_)
            numbers = f"{ours:>9.2f} {used:>9.2f} {clock / ours:>7.1f} {len(found.cluster_centers_):>9} {same:>10.4f}"
            how = f"{type(found.summation_).__name__}, {found.n_iter_} shifts, × {binned / ours:.1f}"
            print(f"{f'{kernel}, {call} call':>30} {numbers}  {how}")


def segments(options: argparse.Namespace) -> None:
    """A flower and a temple."""
    for name in ("flower.jpg", "china.jpg"):
        for call in ("first", "second"):
            found, clock, used = timed(lambda name=name: segmented(photograph(name), colour=0.12, place=24.0))
            print(f"{f'{name}, {call} call':>30} {clock:>9.2f} {used:>9.2f} {'':>7} {len(found.colours):>9}")


def denoising(options: argparse.Namespace) -> None:
    """A temple in grey under noise of 0.08."""
    clean = photograph("china.jpg").mean(axis=2)
    noisy = clean + 0.08 * np.random.default_rng(2).normal(size=clean.shape)
    before = peak_signal_noise_ratio(clean, noisy, data_range=1.0)
    ways = {
        "scikit-image": lambda: denoise_nl_means(noisy, 5, 7, h=0.12, fast_mode=False),
        "first call": lambda: non_local_means(noisy, 5, 7, h=0.12),
        "second call": lambda: non_local_means(noisy, 5, 7, h=0.12),
    }
    for name, way in ways.items():
        found, clock, used = timed(way)
        gain = peak_signal_noise_ratio(clean, found, data_range=1.0) - before
        print(f"{name:>30} {clock:>9.2f} {used:>9.2f} {'':>7} {'':>9} gains {gain:.2f} dB")


def main() -> None:
    """Print the tables."""
    rows = {"clusters": clusters, "segments": segments, "denoising": denoising}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--bandwidth", type=float, default=1.0)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rows", nargs="+", default=list(rows), choices=list(rows))
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; native sum: {library().reason}")
    print(f"{'':>30} {'seconds':>9} {'of CPU':>9} {'×':>7} {'clusters':>9} {'agreement':>10}  summed by")
    for name in options.rows:
        rows[name](options)


if __name__ == "__main__":
    main()
