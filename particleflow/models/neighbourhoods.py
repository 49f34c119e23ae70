"""Linear neighbourhood propagation: labels spread along the weights by which neighbours make up a sample.

    W_i = argmin_w |x_i − Σ_j w_j x_j|²,   w ≥ 0,  Σ_j w_j = 1,   j among the nearest others of x_i
    f ← α W f + (1 − α) y   →   (1 − α)(I − αW)⁻¹ y

Source: Wang and Zhang, Label propagation through linear neighborhoods (2006). The rows of W are the kernel of a graph
(`PositionMatrix(log W)`), Wf is its local mean, and what moves are values: `spread`, or a flow with the drift
`Propagate`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls
from scipy.spatial import KDTree
from sklearn.base import BaseEstimator, ClassifierMixin

from particleflow.errors import ArgumentError
from particleflow.kernels import PositionMatrix
from particleflow.local import local_mean
from particleflow.measure import Measure, Sites
from particleflow.models.base import check_count, check_share, queries_of
from particleflow.models.propagation import labels_of, shares_of, spread
from particleflow.summation import AbstractSummation, Auto


class LinearNeighbourhoodPropagation(ClassifierMixin, BaseEstimator):
    """Classes of a few samples spread to all others; samples of class −1 have no label.

    Where −1 and 1 are all that there is, they are two classes: one alone would have nothing to tell.

    Parameters: `n_neighbors`, from which every sample is made up; `alpha`, the share that a sample takes from its
    neighbours at each step; `max_iter`; `tolerance` of the largest change; `summation`.

    Attributes: `classes_`; `weights_`, the matrix W; `label_distributions_`, the values at the fixed point as shares;
    `transduction_`, the class of every sample; `n_iter_`; `measure_`, samples with their values.
    """

    measure_: Measure

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
        """Spread the labels until nothing changes."""
        points, begin, self.classes_ = labels_of(self, X, y)
        check_count(self.n_neighbors, "n_neighbors")
        check_count(self.max_iter, "max_iter")
        check_share(self.alpha, "alpha")
        check_share(self.tolerance, "tolerance")
        self.weights_ = reconstruction_weights(points, n_neighbors=min(self.n_neighbors, max(1, len(points) - 1)))
        indices = np.arange(len(points), dtype=np.float64)
        measure = Measure.uniform(points, begin, indices)
        taken = jnp.full(len(points), float(self.alpha))
        how = self.summation or Auto()
        values, count = spread(graph(self.weights_), measure, taken, how, int(self.max_iter), self.tolerance)
        self.n_iter_ = int(count)
        self.measure_ = measure.with_values(values)
        self.label_distributions_ = shares_of(np.asarray(values))
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The values of the samples that make up every row of X, by the weights that do so, as shares."""
        queries = queries_of(self, X)
        weights = reconstruction_weights(
            np.asarray(self.measure_.points), queries, n_neighbors=min(self.n_neighbors, self.measure_.count)
        )
        asking = Sites(jnp.asarray(queries), jnp.arange(len(queries)).astype(jnp.float64))
        return shares_of(np.asarray(local_mean(graph(weights), self.measure_, asking, summation=self.summation)))

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest share."""
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(axis=1)]


def graph(weights: np.ndarray) -> PositionMatrix:
    """The kernel whose weights these are."""
    with np.errstate(divide="ignore"):
        return PositionMatrix(np.log(weights))


def reconstruction_weights(points: Any, queries: Any = None, *, n_neighbors: int) -> np.ndarray:
    """The weights (m, n) ≥ 0 of sum one by which the nearest points make up every query as well as they can.

    Without `queries` every point is made up of others. Where several weights do equally well (more neighbours than
    coordinates, and x amid them) they are one of these. The constraint of the sum is exact: minimising
    |Σ_j w_j (x_j − x)|² + (Σ_j w_j − 1)² over w ≥ 0 gives a multiple of the answer, by how well x can be met.
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
