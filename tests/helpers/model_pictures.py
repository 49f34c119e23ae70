"""One picture of models that only read the local mean, each a panel of real or simple data.

    python tests/helpers/model_pictures.py outputs/gallery/models.png

Each panel draws on an axis and returns the numbers that it shows, which a test compares with scikit-learn and NumPy.
"""

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits, load_iris, make_moons

import particleflow as pf
from particleflow import kernels as k
from particleflow import models

SERIES = np.sin(0.35 * np.arange(160)) + 0.15 * np.random.default_rng(4).normal(size=160)
LINE = np.sort(np.random.default_rng(1).uniform(0, 5, size=60))
TARGETS = 2 * np.sin(LINE) + LINE**0.8 + 0.5 * np.random.default_rng(2).normal(size=60)
QUERIES = np.linspace(0, 5, 101)
WIDTHS = np.geomspace(0.05, 2.0, 24)
IRIS, SPECIES = (np.asarray(each) for each in load_iris(return_X_y=True))

DIGITS = tuple(np.asarray(each) for each in load_digits(return_X_y=True))


def classes(ax: Any) -> dict[str, np.ndarray]:
    """The shares of three kinds of iris around every place of the plane of their petals."""
    petals = IRIS[:, 2:]
    model = models.KernelClassifier(bandwidth=0.3).fit(petals, SPECIES)
    across, up = np.meshgrid(np.linspace(0.5, 7.5, 90), np.linspace(-0.2, 2.8, 60))
    shares = model.predict_proba(np.column_stack([across.ravel(), up.ravel()])).reshape(*across.shape, 3)
    colors = pf.view.style.label_colors(np.arange(3))
    ax.imshow(np.clip(shares @ colors, 0, 1), origin="lower", extent=(0.5, 7.5, -0.2, 2.8), aspect="auto", alpha=0.45)
    ax.scatter(*petals.T, c=colors[SPECIES], s=7, linewidths=0)
    ax.set(title="classes: iris", xlabel="length of petals", ylabel="width")
    return {"shares": shares}


def density(ax: Any) -> dict[str, np.ndarray]:
    """The log-mass, less the integral of the kernel."""
    asked = np.linspace(0, 8, 201)
    found = np.exp(models.KernelDensity(bandwidth=0.25).fit(IRIS[:, 2:3]).score_samples(asked[:, None]))
    ax.fill_between(asked, found, alpha=0.3)
    ax.plot(asked, found)
    ax.plot(IRIS[:, 2], np.full(len(IRIS), -0.012), "|", markersize=4, alpha=0.5)
    ax.set(title="density: iris", xlabel="length of petals")
    return {"asked": asked, "density": found}


def forecast(ax: Any) -> dict[str, np.ndarray]:
    """What came next, where the last six values were alike, with what nine of ten paths do."""
    seen, coming = SERIES[:130], SERIES[130:]
    model = models.LocalAutoregression(bandwidth=0.3, lags=6).fit(seen[:, None])
    found = model.forecast(len(coming), interval=0.9, random_state=0)
    steps = np.arange(130, 160)
    ax.plot(np.arange(90, 130), seen[90:], ".-", markersize=3, label="series")
    ax.fill_between(steps, found.lower[:, 0], found.upper[:, 0], alpha=0.25, label="90 %")
    ax.plot(steps, found.mean[:, 0], label="forecast")
    ax.plot(steps, coming, ".", markersize=3, label="what came")
    ax.legend(fontsize="x-small", loc="lower left", ncols=2)
    ax.set(title="autoregression, 6 lags", xlabel="time", ylim=(-2.6, 1.7))
    return {"mean": found.mean[:, 0], "inside": (coming >= found.lower[:, 0]) & (coming <= found.upper[:, 0])}


def rules(ax: Any) -> dict[str, np.ndarray]:
    """Four rules, each a line with a condition, and what they say together."""
    model = models.FuzzyRules(np.array([[0.5], [1.8], [3.2], [4.6]]), widths=0.5).fit(LINE[:, None], TARGETS)
    members = model.memberships(QUERIES[:, None])
    lines = model.consequents_[:, 0, 0] + QUERIES[:, None] * model.consequents_[:, 0, 1]
    ax.plot(LINE, TARGETS, ".", markersize=4)
    for rule in range(4):
        heard = members[:, rule] > 0.2
        ax.plot(QUERIES[heard], lines[heard, rule], linewidth=0.8)
    ax.plot(QUERIES, model.predict(QUERIES[:, None]), linewidth=1.8)
    ax.set(title="fuzzy rules (Takagi–Sugeno)", xlabel="x")
    return {"said": np.sum(members * lines, axis=1), "predicted": model.predict(QUERIES[:, None])}


def digits(ax: Any) -> dict[str, np.ndarray]:
    """Digits with a third of their pixels missing, filled in from others; noisy ones, recalled from a memory of ten."""
    data, kinds = DIGITS
    first = np.array([np.flatnonzero(kinds == kind)[0] for kind in range(5)])
    gaps = data[first].copy()
    gaps[np.random.default_rng(0).uniform(size=gaps.shape) < 0.33] = np.nan
    filled = models.LocalImputer(bandwidth=8.0).fit(data[20:]).transform(gaps)
    patterns = data[first] - data.mean(axis=0)
    noisy = patterns + 5 * np.random.default_rng(1).normal(size=patterns.shape)
    recalled = models.Hopfield(beta=0.02).fit(patterns).transform(noisy)
    rows = [gaps, filled, noisy + data.mean(axis=0), recalled + data.mean(axis=0)]
    framed = [[np.pad(each.reshape(8, 8), 1, constant_values=np.nan) for each in row] for row in rows]
    ax.imshow(np.concatenate([np.concatenate(row, axis=1) for row in framed]), cmap="gray_r", vmin=0, vmax=16)
    ax.set(title="gaps filled; noise forgotten", xticks=[], yticks=[4.5, 14.5, 24.5, 34.5])
    ax.set_yticklabels(["gaps", "filled", "noisy", "recalled"], fontsize="x-small")
    ax.set_facecolor("0.8")  # what is missing
    return {"gaps": gaps, "filled": filled, "truth": data[first], "recalled": recalled, "patterns": patterns}


def total_loss(ax: Any) -> dict[str, np.ndarray]:
    """J(K) of the squared loss, with oneself and without, by the width of the kernel."""
    measure = pf.Measure.uniform(LINE[:, None], TARGETS)

    def loss(point: Any, value: Any, theta: Any) -> Any:
        return jnp.square(value - theta[0])

    def total(width: float, *, leave_out: bool) -> float:
        return float(pf.localize(loss, k.Gaussian(width)).total_loss(measure, [0.0], leave_out=leave_out))

    found = {"with oneself": [total(width, leave_out=False) for width in WIDTHS]}
    found |= {"without": [total(width, leave_out=True) for width in WIDTHS]}
    for name, losses in found.items():
        ax.semilogx(WIDTHS, losses, label=name)
    ax.plot(WIDTHS[np.argmin(found["without"])], np.min(found["without"]), "o", markersize=4)
    ax.legend(fontsize="x-small")
    ax.set(title="total loss J(K)", xlabel="width of the kernel")
    return {name: np.array(losses) for name, losses in found.items()}


def filter_limit(ax: Any) -> dict[str, np.ndarray]:
    """(m − u)/σ² of the neighbourhood filter, and its limit ½ u''(1 − 2a)/(1 + a)², a = (u'/c)²."""
    line, places, contrast, width = np.linspace(-1.2, 1.2, 6001), np.linspace(-1, 1, 101), 0.5, 0.01
    u, value = np.tanh(4 * line) / 4, np.tanh(4 * places) / 4
    slope = 1 / np.cosh(4 * places) ** 2
    ratio, bend = (slope / contrast) ** 2, -8 * np.tanh(4 * places) * slope
    limit = 0.5 * bend * (1 - 2 * ratio) / (1 + ratio) ** 2
    kernel = k.Gaussian(width) * k.OnValues(k.Gaussian(contrast * width))
    asked = pf.Sites(jnp.asarray(places[:, None]), None, jnp.asarray(value))
    means = pf.local_mean(kernel, pf.Measure.uniform(line[:, None], values=u), asked)
    found = (np.asarray(means) - value) / width**2
    ax.plot(places, 0.5 * bend, linewidth=0.9, label="heat equation")
    ax.plot(places, limit, label="limit")
    ax.plot(places[::4], found[::4], ".", label="filter, σ = 0.01")
    ax.legend(fontsize="x-small")
    ax.set(title="neighbourhood filter at an edge", xlabel="x", ylabel="velocity")
    return {"found": found, "limit": limit}


def contrast(ax: Any) -> dict[str, np.ndarray]:
    """InfoNCE of pairs that share a number, by β: log n less it is at most what they know of each other."""
    rng, correlation = np.random.default_rng(3), 0.9
    x = rng.normal(size=(400, 1))
    y = correlation * x + np.sqrt(1 - correlation**2) * rng.normal(size=x.shape)
    betas = np.geomspace(0.2, 60.0, 24)
    width = np.sqrt(1 - correlation**2)
    score = pf.learning.Contrast(correlation * x, y)
    found = np.array([np.log(400) - float(score(k.Gaussian(width * 6 / np.sqrt(beta)))) for beta in betas])
    known = -0.5 * np.log(1 - correlation**2)
    ax.semilogx(betas / 36, found, label="log n − InfoNCE")
    ax.axhline(known, linestyle="--", linewidth=0.9, label="mutual information")
    ax.legend(fontsize="x-small", loc="lower left")
    ax.set(title="contrast of pairs", xlabel="sharpness, 1 for the right one", ylim=(-0.5, 1.1))
    return {"bound": found, "known": np.array(known), "x": x, "y": y, "sharpness": betas / 36}


def hierarchy(ax: Any) -> dict[str, np.ndarray]:
    """Local means of local means of a noisy step: one local mean, unless something bends between."""
    line = np.linspace(-1, 1, 120)
    step = np.sign(line) + 0.5 * np.random.default_rng(5).normal(size=120)
    measure, both = pf.Measure.uniform(line[:, None], step), [k.Gaussian(0.08), k.Gaussian(0.08)]
    plain = np.asarray(pf.hierarchical_mean(both, measure, line[:, None]))
    bent = np.asarray(pf.hierarchical_mean(both, measure, line[:, None], between=lambda z: jnp.tanh(3 * z)))
    ax.plot(line, step, ".", markersize=3)
    ax.plot(line, plain, label="mean of means")
    ax.plot(line, bent, label="tanh between")
    ax.legend(fontsize="x-small")
    ax.set(title="hierarchies", xlabel="x")
    return {"line": line, "step": step, "plain": plain, "bent": bent}


def three_points(ax: Any) -> dict[str, np.ndarray]:
    """K(x, y, z) of pairs on both sides of x, which carry the line through them: local lines without a regression."""

    def log_function(x: Any, y: Any, z: Any) -> Any:
        apart = jnp.sum(jnp.square(x - y)) + jnp.sum(jnp.square(x - z))
        return jnp.where((y[0] < x[0]) & (x[0] < z[0]), -apart / (2 * 0.5**2), -jnp.inf)

    points = np.column_stack([LINE, TARGETS])
    values = pf.Measure.uniform(LINE[:, None], points)
    pairs = pf.paired(values, values, lambda one, two: jnp.concatenate([one, two]))
    asked = np.linspace(0.3, 4.7, 60)

    def at(matches: Any, carried: Any) -> Any:
        return matches @ carried / jnp.sum(matches)

    found = np.asarray(pf.local_query(k.HigherOrder(log_function, 1), pairs, asked[:, None], at))
    share = (asked - found[:, 0]) / (found[:, 2] - found[:, 0])
    curve = (1 - share) * found[:, 1] + share * found[:, 3]
    ax.plot(LINE, TARGETS, ".", markersize=4)
    ax.plot(asked, curve, label="between the mean pair")
    ax.legend(fontsize="x-small")
    ax.set(title="kernel of three points", xlabel="x")
    return {"asked": asked, "found": found}


def medians(ax: Any) -> dict[str, np.ndarray]:
    """Another operator in the place of the mean: the local median does not mind what is far off."""
    spoiled = TARGETS.copy()
    spoiled[::9] += 9.0

    def median(matches: Any, values: Any) -> Any:
        order = jnp.argsort(values)
        below = jnp.cumsum(matches[order])
        return values[order][jnp.searchsorted(below, 0.5 * below[-1])]

    measure = pf.Measure.uniform(LINE[:, None], spoiled)
    mean = np.asarray(pf.local_mean(k.Gaussian(0.3), measure, QUERIES[:, None]))
    found = np.asarray(pf.local_query(k.Gaussian(0.3), measure, QUERIES[:, None], median))
    ax.plot(LINE, spoiled, ".", markersize=4)
    ax.plot(QUERIES, mean, label="local mean")
    ax.plot(QUERIES, found, label="local median")
    ax.legend(fontsize="x-small")
    ax.set(title="query model: another operator", xlabel="x")
    return {"mean": mean, "median": found, "targets": spoiled}


def score(ax: Any) -> dict[str, np.ndarray]:
    """Tweedie: what a denoiser would move a point by is the score of the smoothed density."""
    moons = np.asarray(make_moons(300, noise=0.05, random_state=0)[0])
    model = models.Denoiser(noise=0.3).fit(moons)
    places = np.stack(np.meshgrid(np.linspace(-1.6, 2.6, 17), np.linspace(-1.1, 1.6, 12)), axis=-1).reshape(-1, 2)
    found = model.scores(places)
    ax.plot(*moons.T, ".", markersize=2, alpha=0.5)
    ax.quiver(*places.T, *found.T, angles="xy", width=0.004)
    ax.set(title="denoiser: (m − x)/σ² is the score", xlabel="x", ylabel="y")
    return {"moons": moons, "places": places, "scores": found}


PANELS = [
    classes,
    density,
    total_loss,
    rules,
    forecast,
    digits,
    medians,
    hierarchy,
    three_points,
    filter_limit,
    score,
    contrast,
]


def main(path: str) -> None:
    """All panels in one picture."""
    import matplotlib.pyplot as plt

    with pf.view.style.use("light"):
        figure, axes = plt.subplots(3, 4, figsize=(13, 8.4), layout="constrained")
        for draw, ax in zip(PANELS, axes.ravel(), strict=True):
            draw(ax)
        figure.savefig(path, dpi=90)


if __name__ == "__main__":
    main(sys.argv[1])
