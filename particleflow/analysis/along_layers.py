"""Statistics of hidden states along the layers of a network.

Of hidden states x_i at every depth:

    inner products      ⟨x_i, x_j⟩/(|x_i||x_j|) of all pairs                 a peak at 1 is a cluster
    anisotropy          their mean over pairs i ≠ j                          0 for random directions, 1 at consensus
    effective rank      exp of the entropy of σ²/Σσ², σ singular values      1 where all are parallel, 0 if all are 0
    rank collapse       |X − 1 x̄ᵀ|/|X|                                       falls fast in attention alone
    energy              (1/2β) ∬ e^{β⟨x, y⟩} dμ dμ of unit vectors           grows in gradient flows, may fall here

Source of the third and fourth: Dong et al., Attention is not all you need: pure attention loses rank doubly
exponentially with depth (2021).
"""

from typing import Any, NamedTuple

import numpy as np


class Depth(NamedTuple):
    """Statistics of hidden states, one entry a depth.

    Attributes: `cosines` of all pairs i < j (depths, pairs); `anisotropy`, their mean; `effective_rank` exp H(σ²/Σσ²),
    0 where all states are 0;
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


def along_depth(states: Any, beta: float = 1.0) -> Depth:
    """The statistics of hidden states along depth.

    Parameters: `states` (depths, n, d), or a list of (n, d); `beta` of the energy.
    """
    rows = np.stack([np.asarray(state, float) for state in states])
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    units = rows / np.where(lengths > 0, lengths, np.nan)  # a token at the origin has no direction
    gram = units @ units.swapaxes(1, 2)
    first, second = np.triu_indices(rows.shape[1], 1)
    cosines = gram[:, first, second]
    shares = np.linalg.svd(rows, compute_uv=False) ** 2
    whole = shares.sum(axis=1, keepdims=True)
    shares = shares / np.where(whole > 0, whole, 1.0)
    logarithms = np.log(np.where(shares > 0, shares, 1.0))
    centred = rows - rows.mean(axis=1, keepdims=True)
    return Depth(
        cosines,
        cosines.mean(axis=1),
        np.where(whole[:, 0] > 0, np.exp(-np.sum(shares * logarithms, axis=1)), 0.0),
        np.linalg.norm(centred, axis=(1, 2)) / np.where(whole[:, 0] > 0, np.linalg.norm(rows, axis=(1, 2)), 1.0),
        np.exp(beta * gram).mean(axis=(1, 2)) / (2 * beta),
    )
