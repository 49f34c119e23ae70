"""Spectra of heads that predict attraction or repulsion, analogies of words, and statistics of states along depth.

Of heads: the eigenvalues of O V and of the symmetric part of QᵀK. Where both are positive theory predicts attraction
(with V = QᵀK = 1 all tokens meet), where only O V is negative repulsion; complex eigenvalues rotate. A head of
dimension k has at most k eigenvalues of O V that are not zero, those of V O. The statistics of states are those of
`analysis.along_depth`.
"""

from typing import Any, NamedTuple

import numpy as np

from particleflow.transformer.network import Transformer


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
        """Attraction where tr(QᵀK) · tr(O V) > 0, off where O V is zero, else repulsion."""
        if not np.any(self.value):
            return "off"
        seen, pulled = np.sum(self.attention), np.sum(np.real(self.value))
        return "attraction" if seen * pulled > 0 else "repulsion"


def along_depth(states: Any, beta: float = 1.0) -> Any:
    """The statistics of hidden states along depth, a `particleflow.analysis.Depth`.

    The same as `particleflow.analysis.along_depth`. Parameters: `states` (depths, n, d), or a list of (n, d); `beta` of
    the energy.
    """
    import particleflow

    return particleflow.analysis.along_depth(states, beta)


def head_spectra(network: Transformer) -> list[HeadSpectrum]:
    """The eigenvalues of O V and of the symmetric part of QᵀK, of every head of every layer of a network."""
    found = []
    for layer, parts in enumerate(network.layers):
        for place, head in enumerate(parts.heads.each):
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
