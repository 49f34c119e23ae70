"""Gallery pictures of the local mean itself: its diagrams, its weights over a photograph, and its relatives.

    python tests/helpers/local_mean_pictures.py outputs/gallery

Each function draws one picture and returns the figure with the numbers that it shows, which a test computes again.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge

import particleflow as pf
from particleflow import models

PIXELS = 1600  # the width of every picture
_RNG = np.random.default_rng(1)
LINE = np.sort(_RNG.uniform(0, 5, size=50))
TRUTH = 2 * np.sin(LINE) + LINE**0.8
TARGETS = TRUTH + 0.5 * _RNG.normal(size=50)
AT = 2.0
WIDTH, NOISE = 0.35, 0.25
QUERIES = np.linspace(0, 5, 201)
EDGE = 0.25
PLACES = np.array([[15, 62], [44, 30], [70, 84], [86, 20], [74, 113]])


def query_key_value() -> tuple[Any, dict[str, np.ndarray]]:
    """One query, its seven heaviest keys, and what all others weigh together."""
    model = models.KernelRegression(bandwidth=0.2).fit(LINE[:, None], TARGETS)
    ax = pf.view.query_key_value(model, AT)
    ax.figure.suptitle("A local mean is attention: one query, its keys, weights and values", fontsize="medium")
    return ax.figure, {"texts": np.array([text.get_text() for text in ax.texts])}


def local_mean_graph() -> tuple[Any, dict[str, np.ndarray]]:
    """The graphical model, without data."""
    ax = pf.view.local_mean_graph()
    ax.figure.suptitle("The local mean as a graphical model: a query chooses a neighbour", fontsize="medium")
    return ax.figure, {}


def equivalent_kernels() -> tuple[Any, dict[str, np.ndarray]]:
    """Local constant, line and parabola near the end of the samples, where they differ most."""
    weights = {
        "local mean": models.KernelRegression(bandwidth=WIDTH).fit(LINE[:, None], TARGETS).attention(QUERIES[:, None])
    }
    for name, degree in (("local line", 1), ("local parabola", 2)):
        model = models.LocalLinearRegression(bandwidth=WIDTH, degree=degree).fit(LINE[:, None], TARGETS)
        weights[name] = model.equivalent_kernel(QUERIES[:, None])
    truth = 2 * np.sin(QUERIES) + QUERIES**0.8
    axes = pf.view.smoothers(LINE, TARGETS, QUERIES, weights, at=EDGE, truth=truth)
    return axes[0].figure, weights


def ridge(penalty: Any) -> KernelRidge:
    """Kernel ridge regression with the kernel of the local mean."""
    return KernelRidge(alpha=penalty, kernel="rbf", gamma=1 / (2 * WIDTH**2))


def kernel_methods() -> tuple[Any, dict[str, np.ndarray]]:
    """Kernel ridge and a Gaussian process beside the local mean; and ridge of a large penalty, divided by its sum."""
    samples, asked = LINE[:, None], QUERIES[:, None]
    settings: dict[str, Any] = {"alpha": NOISE, "optimizer": None}
    process = GaussianProcessRegressor(RBF(WIDTH, "fixed"), **settings)
    strong = models.equivalent_kernel(ridge(1e4), samples, asked)
    weights = {
        "local mean": models.KernelRegression(bandwidth=WIDTH).fit(samples, TARGETS).attention(asked),
        "ridge, λ = 10,000, over its sum": strong / strong.sum(axis=1, keepdims=True),
        "ridge, λ = 0.25": models.equivalent_kernel(ridge(NOISE), samples, asked),
        "Gaussian process, noise 0.25": models.equivalent_kernel(process, samples, asked),
    }
    truth = 2 * np.sin(QUERIES) + QUERIES**0.8
    axes = pf.view.smoothers(LINE, TARGETS, QUERIES, weights, at=AT, truth=truth)
    return axes[0].figure, weights


def photograph() -> np.ndarray:
    """A part of a photograph that scikit-learn brings, in grey with noise of 0.04, (100, 120)."""
    grey = np.asarray(load_sample_image("china.jpg"), float).mean(axis=2) / 255
    small = grey[:400, 120:600].reshape(100, 4, 120, 4).mean(axis=(1, 3))
    return np.clip(small + 0.04 * np.random.default_rng(0).normal(size=small.shape), 0, 1)


def non_local_weights() -> tuple[Any, dict[str, np.ndarray]]:
    """Which pixels five pixels of a photograph are the mean of."""
    image = photograph()
    maps = models.non_local_weights(image, PLACES, patch_size=7, patch_distance=120, h=0.08)
    axes = pf.view.weight_maps(image, PLACES, maps)
    return axes[0].figure, {"image": image, "maps": maps}


def random_features() -> tuple[Any, dict[str, np.ndarray]]:
    """A Gaussian kernel's matrix beside its random Fourier features, 32 to 8,192 of them."""
    places = np.linspace(-2, 2, 48)[:, None]
    measure = pf.Measure.uniform(places)
    matrices = {"exact": np.exp(-((places - places.T) ** 2) / (2 * 0.5**2))}
    for rank in 2 ** np.arange(5, 14):
        how = pf.summation.Features(int(rank), "fourier")
        found = how.moments(pf.kernels.Gaussian(0.5), measure, measure.sites, values=np.eye(48))
        matrices[str(rank)] = np.exp(np.asarray(found.log_mass)[:, None] + np.log(48)) * np.asarray(found.mean)
    axes = pf.view.feature_convergence(
        matrices["exact"], {int(rank): each for rank, each in matrices.items() if rank != "exact"}
    )
    return axes[0].figure, matrices


PICTURES = [query_key_value, local_mean_graph, equivalent_kernels, kernel_methods, non_local_weights, random_features]


def main(folder: str) -> None:
    """Write every picture, 1,600 pixels wide."""
    for draw in PICTURES:
        with pf.view.style.use("light"):
            figure, _ = draw()
            figure.savefig(Path(folder) / f"{draw.__name__}.png", dpi=PIXELS / figure.get_figwidth())


if __name__ == "__main__":
    main(sys.argv[1])
