"""Linear neighbourhood propagation: labels spread along the weights that reconstruct a sample from its neighbours.

    W_i = argmin_w |x_i − Σ_j w_j x_j|²,   w ≥ 0,  Σ_j w_j = 1,   j among the nearest others of x_i
    f ← α W f + (1 − α) y   →   (1 − α)(I − αW)⁻¹ y

Source: Wang and Zhang, Label propagation through linear neighborhoods (2006). The rows of W are the kernel of a graph
(`PositionMatrix(log W)`), Wf is its local mean, and values move: `spread`, or a flow with the drift `Propagate`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls
from scipy.spatial import KDTree

from particleflow.errors import ArgumentError
from particleflow.kernels import PositionMatrix
from particleflow.measure import Measure, Sites
from particleflow.models.base import check_count, check_share, queries_of
from particleflow.models.propagation import AbstractPropagation, labels_of, shares_of
from particleflow.summation import AbstractSummation
from particleflow.summation.local_mean import local_mean


class LinearNeighbourhoodPropagation(AbstractPropagation):
    """Classes of a few samples spread to all others along reconstruction weights; samples of class −1 have no label.

    Where −1 and 1 are the only labels, they are two classes and every sample is labelled.

    Parameters: `n_neighbors`, the number of samples that reconstruct each one; `alpha`, the share that a sample takes
    from its neighbours at each step; `max_iter`; `tolerance` of the largest change; `summation`.

    Attributes: `classes_`; `weights_`, the matrix W; `label_distributions_`, the values at the fixed point as shares;
    `transduction_`, the class of every sample; `n_iter_`; `measure_`, samples with their values.
    """

    def __init__(
        self,
        n_neighbors: int = 7,
        alpha: float = 0.99,
        max_iter: int = 10_000,
        tolerance: float = 1e-9,
        summation: AbstractSummation | None = None,
    ):
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.max_iter = max_iter
        self.tolerance = tolerance
        self.summation = summation

    def fit(self, X: Any, y: Any) -> "LinearNeighbourhoodPropagation":
        """Propagate the labels until no value changes by more than `tolerance`."""
        points, begin, self.classes_ = labels_of(self, X, y)
        check_count(self.n_neighbors, "n_neighbors")
        check_count(self.max_iter, "max_iter")
        check_share(self.alpha, "alpha")
        check_share(self.tolerance, "tolerance")
        self.weights_ = reconstruction_weights(points, n_neighbors=min(self.n_neighbors, max(1, len(points) - 1)))
        indices = np.arange(len(points), dtype=np.float64)
        measure = Measure.uniform(points, begin, indices)
        self._spread(weight_kernel(self.weights_), measure, np.full(len(points), float(self.alpha)))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The weighted values of the samples that reconstruct every row of X, as shares."""
        queries = queries_of(self, X)
        weights = reconstruction_weights(
            np.asarray(self.measure_.points), queries, n_neighbors=min(self.n_neighbors, self.measure_.count)
        )
        asking = Sites(jnp.asarray(queries), jnp.arange(len(queries)).astype(jnp.float64))
        means = local_mean(weight_kernel(weights), self.measure_, asking, summation=self.summation)
        return shares_of(np.asarray(means))


def weight_kernel(weights: np.ndarray) -> PositionMatrix:
    """The kernel K(i, j) = W_ij of positions i and j, from the weights W (m, n)."""
    with np.errstate(divide="ignore"):
        return PositionMatrix(np.log(weights))


def reconstruction_weights(points: Any, queries: Any = None, *, n_neighbors: int) -> np.ndarray:
    """The weights W (m, n) ≥ 0, rows of sum one, with which the nearest points best reconstruct every query.

    W_i = argmin_w |x_i − Σ_j w_j x_j|² over the `n_neighbors` points nearest to x_i; without `queries` every point is
    reconstructed from others. Where several weights are best (more neighbours than coordinates, x inside their hull)
    one of them is returned. The constraint of the sum is exact: minimising |Σ_j w_j (x_j − x)|² + (Σ_j w_j − 1)² over w
    ≥ 0 gives a multiple of the answer, and the multiple is divided out.
    """
    points = np.asarray(points, np.float64)
    own = queries is None
    asking = points if own else np.asarray(queries, np.float64)
    if n_neighbors > len(points) - own and len(points) > 1:
        raise ArgumentError(f"Argument `n_neighbors` is {n_neighbors}, but there are {len(points) - own} others.")
    wanted = min(n_neighbors + own, len(points))
    nearest = KDTree(points).query(asking, k=wanted)[1].reshape(len(asking), wanted)
    found = np.zeros((len(asking), len(points)))
    for row, (point, places) in enumerate(zip(asking, nearest, strict=True)):
        others = places[places != row][:n_neighbors] if own and len(points) > 1 else places
        apart = points[others] - point
        size = np.abs(apart).max() or 1.0
        system = np.vstack([apart.T / size, np.ones(len(others))])
        weights = nnls(system, np.append(np.zeros(apart.shape[1]), 1.0))[0]
        found[row, others] = weights / weights.sum()
    return found
