"""One picture of what is learned from examples, or moved by what was: eight panels of small data.

    python tests/helpers/learned_pictures.py outputs/gallery/learned_models.png

Each panel draws on an axis and returns the numbers that it shows, which a test compares with NumPy and SciPy.
"""

import itertools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import particleflow as pf
from particleflow import drifts, geometry, kernels, learning
from particleflow.theory.exponential_family import RestrictedBoltzmannMachine
from particleflow.transformer.segment_recurrence import visible
from stories import WORDS, tell

KEY = jax.random.key(0)


def neighbours(ax: Any) -> dict[str, np.ndarray]:
    """Wine: the plane in which neighbours have one's own class, learned from its 13 coordinates."""
    raw, kinds = load_wine(return_X_y=True)
    points = StandardScaler().fit_transform(raw)
    start = 0.1 * np.random.default_rng(0).normal(size=(2, points.shape[1]))
    loss = learning.NeighbourShares(points, kinds)
    metric = kernels.SquaredDistanceAttention(1.0, query=start, key=start)
    learned = learning.learn(metric, loss, [("query", "key")], steps=12).model
    plane = points @ np.asarray(learned.query).T
    for kind, (color, marker) in enumerate(zip(pf.view.style.label_colors(np.arange(3)), "os^", strict=True)):
        ax.scatter(*plane[kinds == kind].T, color=color, marker=marker, s=7, linewidths=0, label=f"class {kind}")
    ax.legend(fontsize="x-small")
    ax.set(title=f"wine: share of own class {1 - float(loss(learned)):.3f}", xlabel="φ₁", ylabel="φ₂")
    return {"plane": plane, "kinds": np.asarray(kinds), "shares": np.asarray(loss.shares(learned))}


def bars_and_stripes(size: int = 3) -> np.ndarray:
    """All pictures of whole rows, and all of whole columns."""
    rows = [np.repeat(np.array(each)[:, None], size, axis=1) for each in itertools.product([0.0, 1.0], repeat=size)]
    return np.unique([each.ravel() for each in (*rows, *(row.T for row in rows))], axis=0)


def bars(ax: Any) -> dict[str, np.ndarray]:
    """Pictures that a restricted Boltzmann machine draws, before and after contrastive divergence."""
    data = bars_and_stripes()
    start = RestrictedBoltzmannMachine.random(KEY, 9, 8, scale=0.1)
    learned = learning.contrast_patterns(start, data, jax.random.key(1), chains=200, steps=4000)
    begun = jax.random.bernoulli(KEY, 0.5, (400, 9)).astype(float)
    drawn = [np.asarray(machine.gibbs(KEY, begun, 500)) for machine in (start, learned)]
    right = [np.array([(each == data).all(axis=1).any() for each in draws]) for draws in drawn]
    sheet = [np.full((4, 1), np.nan)]
    for draws in drawn:
        framed = [np.pad(each.reshape(3, 3), 1, constant_values=np.nan)[:-1, :-1] for each in draws[:24]]
        rows = [np.concatenate(framed[6 * row : 6 * row + 6], axis=1) for row in range(4)]
        sheet.append(np.concatenate(rows))
    gap = np.full((len(sheet[1]), 3), np.nan)
    ax.imshow(np.concatenate([sheet[1], gap, sheet[2]], axis=1), cmap="gray_r", vmin=0, vmax=1)
    ax.set_facecolor("0.85")
    ax.set(title="bars and stripes, drawn", xticks=[12, 39], yticks=[])
    names = [
        f"{name}: {100 * np.mean(hit):.0f} % right" for name, hit in zip(("before", "learned"), right, strict=True)
    ]
    ax.set_xticklabels(names)
    return {"drawn": drawn[1], "right": right[1]}


def words(ax: Any) -> dict[str, np.ndarray]:
    """Word vectors of two dimensions from a text of 400 sentences."""
    rng = np.random.default_rng(0)
    beasts, foods, eats, runs = (
        ["cat", "dog", "horse"],
        ["bread", "fish", "rice"],
        ["eats", "likes"],
        ["runs", "sleeps"],
    )
    text = []
    for _ in range(400):
        text += [
            rng.choice(beasts),
            *([rng.choice(eats), rng.choice(foods)] if rng.random() < 0.6 else [rng.choice(runs)]),
        ]
        text += ["."]
    counts, names = learning.cooccurrences([str(word) for word in text], window=1)
    start = kernels.Embedded(*(0.1 * rng.normal(size=(2, len(names), 2))))
    learned = learning.learn(start, learning.SkipGram(counts), ["query_table", "key_table"], steps=200)
    table = np.asarray(learned.model.query_table)
    ax.plot(*table.T, ".", markersize=4)
    groups = fcluster(linkage(table), 0.15 * np.ptp(table), "distance")  # words in one place share a label
    for group in np.unique(groups):
        label = ", ".join(names[place] for place in np.flatnonzero(groups == group) if names[place] != ".")
        at = table[groups == group].mean(axis=0)
        ax.annotate(label, at, fontsize="x-small", xytext=(0, 10), textcoords="offset points", ha="center")
    ax.margins(0.25)
    ax.set(title="word vectors (skip-gram)", xlabel="φ₁", ylabel="φ₂")
    return {"table": table, "names": np.array(names), "counts": counts, "loss": np.array(learned.loss)}


def contrast(ax: Any) -> dict[str, np.ndarray]:
    """Alignment and uniformity of 40 samples with two views on the sphere."""
    tokens = pf.initial.UniformSphere(dim=3).sample(KEY, 80)
    flow = pf.Flow(drifts.Contrastive(5.0), pf.Sphere())
    recorded = [pf.observables.Alignment(), pf.observables.Uniformity()]
    run = pf.simulate(flow, tokens, np.linspace(0, 6, 61), rtol=1e-7, atol=1e-9, observe=recorded)
    alignment, uniformity = (np.asarray(run.observables[name]) for name in ("alignment", "uniformity"))
    ax.plot(alignment, uniformity, ".-", markersize=3)
    for time in (0, 1, 6):
        place = int(np.argmin(np.abs(run.times - time)))
        at = alignment[place], uniformity[place]
        ax.annotate(f"t = {time}", at, fontsize="x-small", xytext=(4, 2), textcoords="offset points")
    ax.margins(0.12)
    ax.set(title="contrastive learning", xlabel="alignment |x − y|²", ylabel="uniformity")
    return {"alignment": alignment, "uniformity": uniformity, "points": np.asarray(run.points)}


def memory(ax: Any) -> dict[str, np.ndarray]:
    """What a question looks at in its first and in its second hop."""
    told, stories, questions, answers = tell(1, 301)
    loss = learning.Answers(stories[:300], questions[:300], answers[:300])
    start = learning.MemoryNetwork.random(KEY, len(WORDS), 16, 2)
    learned = learning.learn(start, loss, ["query", "key", "value", "answer"], steps=150, patience=30).model
    shares = np.asarray(learned.attention(jnp.asarray(stories[300]), jnp.asarray(questions[300])))
    image = ax.imshow(shares.T, cmap=pf.view.style.colormap("density"), vmin=0, vmax=1, aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="share")
    asked = WORDS[int(np.flatnonzero(questions[300][:-1])[0])]
    found = WORDS[int(np.argmax(learned.log_answers(jnp.asarray(stories[300]), jnp.asarray(questions[300]))))]
    ax.set(xticks=[0, 1], xticklabels=["hop 1", "hop 2"], yticks=range(5))
    ax.set_yticklabels(told[300], fontsize="x-small")
    ax.set(title=f"where is the {asked}? {found}")
    return {"shares": shares, "right": np.array(found == WORDS[answers[300]])}


def momentum(ax: Any) -> dict[str, np.ndarray]:
    """How far the energy of tokens that repel each other is from its last, lowest value, with and without inertia."""
    start = pf.initial.UniformSphere(dim=3).sample(KEY, 48)
    spaces = {
        "first order": pf.Sphere(),
        "heavy ball, γ = .3": geometry.Inertial(pf.Sphere(), 0.3),
        "Nesterov, γ = 3/t": geometry.Inertial(pf.Sphere(), 3.0, vanishing=True),
    }
    times = np.concatenate([[0.0], np.geomspace(0.5, 150, 80)])
    drift = pf.Attend(kernels.Attention(6.0), value=-1.0, normalization="none")
    found = {}
    for name, space in spaces.items():
        run = pf.simulate(pf.Flow(drift, space), start, times, rtol=1e-9, atol=1e-11, observe=[pf.observables.energy])
        found[name] = np.asarray(run.observables["energy"])
    least = min(energy.min() for energy in found.values())
    for (name, energy), style in zip(found.items(), ("-", "--", "-."), strict=True):
        ax.loglog(times[1:], (energy - least)[1:] / least, style, label=name)
    ax.set_ylim(bottom=1e-6)
    ax.legend(fontsize="x-small", loc="lower left")
    ax.set(title="repulsion with inertia", xlabel="time t", ylabel="energy above the lowest")
    return {"times": times, **found}


def context(ax: Any) -> dict[str, np.ndarray]:
    """Which tokens the last one depends on, through segments of four with a memory of four."""
    count, segment, depth = 16, 4, 3
    one = np.asarray(visible(count, segment)) > 0
    reached = [np.eye(count, dtype=bool)]
    for _ in range(depth):
        reached.append((reached[-1].astype(int) @ one.astype(int)) > 0)
    rows = np.array([each[-1] for each in reached])
    ax.imshow(rows, cmap="Greys", vmin=0, vmax=1.6, aspect="auto", origin="lower")
    for edge in range(segment, count, segment):
        ax.axvline(edge - 0.5, color="0.6", linewidth=0.8)
    ax.set(title="what token 15 depends on", xlabel="token (lines: segments)", ylabel="layers below", yticks=range(4))
    return {"reached": rows}


def noise(ax: Any) -> dict[str, np.ndarray]:
    """How far random layers are from the flow of their mean matrix, by the number of layers."""
    start = np.array([[1.0, -0.5], [0.3, 0.8], [-0.7, 0.2]])
    kernel, counts = kernels.Attention(1.5), [16, 64, 256]
    exact = pf.evolve(pf.Flow(pf.Attend(kernel, value=0.6)), start, 1.0, rtol=1e-9, atol=1e-11).points
    found = {}
    for scaled, label in ((True, "entries ∝ 1/√h"), (False, "entries of one size")):
        apart = []
        for count in counts:
            drawn = [
                drifts.RedrawnValues(kernel, 2, count, 1 / count, 0.6, 0.5, scaled=scaled, seed=seed)
                for seed in range(8)
            ]
            runs = pf.simulate([pf.Flow(each) for each in drawn], start, [0.0, 1.0], solver="map", step=1 / count)
            ends = [np.asarray(runs.run(seed).points[-1]) for seed in range(8)]
            apart.append(np.sqrt(np.mean(np.square(np.array(ends) - np.asarray(exact)))))
        found[label] = np.array(apart)
        ax.loglog(counts, apart, ".-", label=label)
    ax.loglog(counts, found["entries of one size"][0] * np.sqrt(16 / np.array(counts)), "k:", label="∝ √h")
    ax.legend(fontsize="x-small")
    ax.set_xticks(counts, [str(count) for count in counts])
    ax.minorticks_off()
    ax.set(title="weights drawn anew in each layer", xlabel="layers 1/h", ylabel="distance from the mean flow")
    return found


PANELS = (neighbours, bars, words, contrast, memory, momentum, context, noise)


def main(path: str) -> None:
    """Draw all panels into a file."""
    import matplotlib.pyplot as plt

    with pf.view.style.use("light"):
        figure, axes = plt.subplots(2, 4, figsize=(15, 7), layout="constrained")
        for panel, ax in zip(PANELS, axes.ravel(), strict=True):
            panel(ax)
            print(panel.__name__, flush=True)
        figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1])
