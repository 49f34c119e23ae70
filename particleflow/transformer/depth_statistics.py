"""Statistics of hidden states along depth, and spectra of heads that predict attraction or repulsion.

Of hidden states x_i at every depth:

    inner products      ⟨x_i, x_j⟩/(|x_i||x_j|) of all pairs                 a peak at 1 is a cluster
    anisotropy          their mean over pairs i ≠ j                          0 for random directions, 1 at consensus
    effective rank      exp of the entropy of σ²/Σσ², σ singular values      1 where all tokens are parallel
    rank collapse       |X − 1 x̄ᵀ|/|X|                                       falls fast in attention alone
    energy              (1/2β) ∬ e^{β⟨x, y⟩} dμ dμ of unit vectors           grows in gradient flows, may fall here

Source of the third and fourth: Dong et al., Attention is not all you need: pure attention loses rank doubly
exponentially with depth (2021). Of heads: the eigenvalues of O V and of the symmetric part of QᵀK. Where both are
positive theory predicts attraction (with V = QᵀK = 1 all tokens meet), where only O V is negative repulsion; complex
eigenvalues rotate. A head of dimension k has at most k eigenvalues of O V that are not zero, those of V O.
"""

from typing import Any, NamedTuple

import numpy as np

from particleflow.transformer.network import Transformer


class Depth(NamedTuple):
    """Statistics of hidden states, one entry a depth.

    Attributes: `cosines` of all pairs i < j (depths, pairs); `anisotropy`, their mean; `effective_rank` exp H(σ²/Σσ²);
    `collapse` |X − 1 x̄ᵀ|/|X|; `energy` (1/2β) ∬ e^{β⟨x, y⟩} dμ dμ of unit vectors.
    """

    cosines: np.ndarray
    anisotropy: np.ndarray
    effective_rank: np.ndarray
    collapse: np.ndarray
    energy: np.ndarray

    @property
    def energy_falls(self) -> int:
        """The number of layers across which the energy falls."""
        return int(np.sum(np.diff(self.energy) < 0))


class HeadSpectrum(NamedTuple):
    """The eigenvalues of one head of dimension k.

    Attributes: the numbers of its `layer` and `head`; `value` (k,), those of O V that are not zero by rank; `attention`
    (2k,), those of the symmetric part of QᵀK.
    """

    layer: int
    head: int
    value: np.ndarray
    attention: np.ndarray

    @property
    def regime(self) -> str:
        """Attraction where tr(QᵀK) · tr(O V) > 0, else repulsion."""
        seen, pulled = np.sum(self.attention), np.sum(np.real(self.value))
        return "attraction" if seen * pulled > 0 else "repulsion"


def along_depth(states: Any, beta: float = 1.0) -> Depth:
    """The statistics of hidden states along depth.

    Parameters: `states` (depths, n, d), or a list of (n, d); `beta` of the energy.
    """
    rows = np.stack([np.asarray(state, float) for state in states])
    units = rows / np.linalg.norm(rows, axis=2, keepdims=True)
    gram = units @ units.swapaxes(1, 2)
    first, second = np.triu_indices(rows.shape[1], 1)
    cosines = gram[:, first, second]
    shares = np.linalg.svd(rows, compute_uv=False) ** 2
    shares = shares / shares.sum(axis=1, keepdims=True)
    logarithms = np.log(np.where(shares > 0, shares, 1.0))
    centred = rows - rows.mean(axis=1, keepdims=True)
    return Depth(
        cosines,
        cosines.mean(axis=1),
        np.exp(-np.sum(shares * logarithms, axis=1)),
        np.linalg.norm(centred, axis=(1, 2)) / np.linalg.norm(rows, axis=(1, 2)),
        np.exp(beta * gram).mean(axis=(1, 2)) / (2 * beta),
    )


def head_spectra(network: Transformer) -> list[HeadSpectrum]:
    """The eigenvalues of O V and of the symmetric part of QᵀK, of every head of every layer of a network."""
    found = []
    for layer, parts in enumerate(network.layers):
        for place, head in enumerate(parts.attention.each):
            value, output = np.asarray(head.value, float), np.asarray(head.output, float)
            kernel: Any = head.kernel
            query, key = (np.asarray(each, float) for each in (kernel.query, kernel.key))
            found.append(HeadSpectrum(layer, place, np.linalg.eigvals(value @ output), _symmetric(query, key)))
    return found


def analogy(network: Transformer, first: str, second: str, third: str, count: int = 5) -> list[tuple[str, float]]:
    """Words that are to `third` as `second` is to `first`, by the cosine of their embeddings with E₂ − E₁ + E₃.

    Each word must be one token of the network; the three are left out of the `count` results. Source:
    Mikolov, Yih and Zweig, Linguistic regularities in continuous space word representations (2013).
    """
    numbers = [network.number_of(word) for word in (first, second, third)]
    table = np.asarray(network.embedding.table, float)
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    wanted = units[numbers[1]] - units[numbers[0]] + units[numbers[2]]
    cosines = units @ wanted / np.linalg.norm(wanted)
    cosines[numbers] = -np.inf
    best = np.argsort(-cosines)[:count]
    return list(zip(network.words(best), cosines[best].tolist(), strict=True))


def _symmetric(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """The 2k eigenvalues of ½(QᵀK + KᵀQ) that are not zero by rank, from a 2k × 2k matrix.

    With A = [Q; K] and B = ½[K; Q] it is AᵀB, whose eigenvalues are those of B Aᵀ and zeros.
    """
    below, above = np.concatenate([query, key]), 0.5 * np.concatenate([key, query])
    return np.sort(np.linalg.eigvals(above @ below.T).real)
