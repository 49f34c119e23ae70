"""What training does to the tokens: attention, clusters and energy of a small network before and after it.

    python docs/examples/trained_attention.py outputs/gallery/trained_attention.png

The network names the first capital among letters (scenarios/data/first_marked.npz, made by train_networks.py).
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt

import particleflow as pf
from particleflow import learning
from particleflow.transformer import load_network

PATH = "scenarios/data/first_marked.npz"
TEXT = "abaBbAabBaab"
BETA = 4.0
ROWS = (("before training", False), ("after training", True))


def states_of(model: Any, ids: np.ndarray) -> np.ndarray:
    """The hidden states of several texts (depth + 1, texts, tokens, width)."""
    return np.asarray(jax.vmap(lambda each: jnp.stack(model.stream(each)), out_axes=1)(ids), float)


def energies(states: np.ndarray) -> np.ndarray:
    """(1/2β) mean exp(β cos) over all pairs of one text's tokens, at every depth, the mean over texts."""
    units = states / np.linalg.norm(states, axis=-1, keepdims=True)
    cosines = np.einsum("lbnd,lbmd->lbnm", units, units)
    return np.exp(BETA * cosines).mean(axis=(1, 2, 3)) / (2 * BETA)


def draw_attention(ax: Any, model: Any, when: str) -> Any:
    """The attention of the first head of the first layer on one text."""
    ids = load_network(PATH).ids(TEXT)
    run = pf.simulate(
        model.flow, model.measure(ids), [0.0, 1.0], step=1.0, solver="map", observe=[pf.observables.head_attention]
    )
    image = ax.imshow(np.asarray(run.observables["head_attention"])[0, 0], vmin=0, vmax=1, cmap="viridis")
    ax.set_xticks(range(len(TEXT)), list(TEXT), fontsize=8)
    ax.set_yticks(range(len(TEXT)), list(TEXT), fontsize=8)
    ax.set(title=f"attention {when}", xlabel="token that is looked at", ylabel="token that looks")
    return image


def draw_clusters(ax: Any, states: np.ndarray, labels: np.ndarray, when: str) -> None:
    """The last states of all tokens of forty texts as directions, in their two main components."""
    last = states[-1][:40]
    units = last / np.linalg.norm(last, axis=-1, keepdims=True)
    flat = units.reshape(-1, units.shape[-1])
    _, sizes, axes = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    plane = (flat - flat.mean(axis=0)) @ axes[:2].T
    shares = sizes[:2] ** 2 / np.sum(sizes**2)
    for label, mark in ((0, "o"), (1, "^")):
        chosen = np.repeat(labels[:40] == label, units.shape[1])
        ax.plot(*plane[chosen].T, mark, markersize=3, alpha=0.6, label=f"first capital {'AB'[label]}", linestyle="none")
    ax.set(title=f"last states {when}", xlabel=f"first component ({shares[0]:.0%})", ylabel=f"second ({shares[1]:.0%})")
    ax.set_aspect("equal", adjustable="datalim")
    ax.legend(fontsize=7, loc="best")


def main(path: str) -> None:
    """Draw both rows, and the energy of both networks beside them."""
    ids, labels = (np.asarray(each) for each in learning.SequenceClassification(length=12).held_out(400))
    figure = plt.figure(figsize=(11, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=(1.1, 1.1, 0.9))
    for_energy = figure.add_subplot(grid[:, 2])
    for row, (when, trained) in enumerate(ROWS):
        model = load_network(PATH, trained).model
        states = states_of(model, ids)
        left = figure.add_subplot(grid[row, 0])
        figure.colorbar(draw_attention(left, model, when), ax=left, label="weight", shrink=0.85)
        draw_clusters(figure.add_subplot(grid[row, 1]), states, labels, when)
        for_energy.plot(range(len(states)), energies(states), "os"[row] + "-", label=when)
    for_energy.set(title=f"interaction energy, β = {BETA:g}", xlabel="layers", ylabel="mean of exp(β cos) / 2β")
    for_energy.set_xticks(range(3))
    for_energy.legend()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "outputs/gallery/trained_attention.png")
