"""Of what rank is the attention of a trained network, and what is left of it beside a band? One head of MiniLM, drawn.

    python docs/examples/minilm_ranks.py [minilm_ranks.png]

The text is the beginning of Herman Melville's Moby-Dick (1851), 243 tokens. Prints the numbers of all 72 heads: the
share of the Frobenius norm that the best approximations of rank 1 and 8 leave, and the singular values above a tenth of
the largest, of A and of A − D, D the entries of at most 8 places from the diagonal.
"""

import sys

import numpy as np

import particleflow as pf
from particleflow import transformer
from particleflow.analysis import attention_ranks

TEXT = """Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse, and
nothing particular to interest me on shore, I thought I would sail about a little and see the watery part of the
world. It is a way I have of driving off the spleen and regulating the circulation. Whenever I find myself growing
grim about the mouth; whenever it is a damp, drizzly November in my soul; whenever I find myself involuntarily pausing
before coffin warehouses, and bringing up the rear of every funeral I meet; and especially whenever my hypos get such
an upper hand of me, that it requires a strong moral principle to prevent me from deliberately stepping into the
street, and methodically knocking people's hats off, then, I account it high time to get to sea as soon as I can. This
is my substitute for pistol and ball. With a philosophical flourish Cato throws himself upon his sword; I quietly take
to the ship. There is nothing surprising in this. If they but knew it, almost all men in their degree, some time or
other, cherish very nearly the same feelings towards the ocean with me."""
LAYER, HEAD, BAND = 2, 11, 8  # layers and heads count from 0


def head_matrices() -> np.ndarray:
    """The attention of every head on the text (layers, heads, n, n), rows queries."""
    model = transformer.load("minilm")
    states = model.hidden_states(model.tokenize(TEXT))
    found = []
    for layer, state in zip(model.layers, states, strict=False):
        tokens = pf.Measure.uniform(state)
        found.append([pf.attention_weights(head.kernel, tokens, tokens) for head in layer.heads.each])
    return np.asarray(found, float)


def main() -> None:
    """Print the numbers of all heads and draw one."""
    matrices = head_matrices()
    print(f"{matrices.shape[-1]} tokens\nlayer head   rank 1   rank 8   rank of A   of A − D")
    for layer, heads in enumerate(matrices):
        for head, matrix in enumerate(heads):
            found = attention_ranks(matrix, (-1, BAND), (0.1,))
            whole, beside = found.ranks[:, 0]
            print(f"{layer:5d} {head:4d}   {found.left[1]:6.2f}   {found.left[8]:6.2f}   {whole:9d}   {beside:8d}")
    with pf.view.style.use("light"):
        axes = pf.view.attention_ranks(matrices[LAYER, HEAD])
        axes[0].set_title(f"Layer {LAYER}, head {HEAD} of MiniLM, {matrices.shape[-1]} tokens")
        axes[0].set(yscale="linear", yticks=np.linspace(0, 1, 6), ylim=(0, 1.3))  # the shares are of one size
        axes[0].figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "minilm_ranks.png", dpi=150)


if __name__ == "__main__":
    main()
