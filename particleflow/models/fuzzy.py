"""Fuzzy rules "if x is near c_i, then y = a_i + b_i·x": inference over all rules is a local mean.

    membership   K(x, i) = Π_a exp(−(x_a − c_ia)²/(2 σ_ia²))                  conditions multiplied
    inference    ŷ(x) = Σ_i K(x, i) (a_i + b_i·x) / Σ_i K(x, i)               rules added

Rules are the points of a measure, their consequents (a_i, b_i) are its values, and ŷ(x) is the local mean of these,
evaluated at x: Takagi and Sugeno (1985); with b = 0 that of Mamdani's rules with products, sums and single consequents.
A fuzzy input is a law p(x|x') in place of a point, and belongs to a rule by the inner product of both functions:

    fuzzy input  ŷ = Σ_i ∫ p(x|x') K(x, i) (a_i + b_i·x) dx / Σ_i ∫ p(x|x') K(x, i) dx

This is a local mean again, under the kernel ⟨p(·|x'), K(·, i)⟩. It is not the mean of ŷ(x) over p: places where no rule
applies have less weight.
With the minimum in place of the product only the kernel changes. But max–min inference, whose conclusion is the
centroid of max_i min(K(x, i), consequent_i), is no local mean: it is not linear in the consequents. `local_query`
computes it, like any other operator.
"""

from typing import Any

import numpy as np
from scipy.cluster.vq import kmeans2
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state

from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels import Constant, FuzzyMembership, Membership
from particleflow.measure import Measure
from particleflow.models.base import (
    attention_weights_at,
    check_count,
    log_masses_at,
    means_at,
    pairs_of,
    queries_of,
    read,
    weights_of,
)
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.local_mean import local_mean


class FuzzyRules(RegressorMixin, MultiOutputMixin, BaseEstimator):
    """Takagi–Sugeno rules with Gaussian conditions, whose consequents are fitted by least squares.

    Parameters: `rules`, their centres (r, d), or a number of them, found by k-means; `widths`, a number, one a feature
    (d,), or one a rule and feature (r, d); `affine`, whether a consequent is a_i + b_i·x in place of a constant a_i;
    `random_state` of k-means; `summation`.

    Attributes: `rules_`, the measure of rules, points (c, σ) and values (a, b); `centers_`, `widths_`; `consequents_`
    (r, outputs, 1 + d), or (r, outputs, 1) for constants; `n_features_in_`.
    """

    rules_: Measure

    def __init__(
        self,
        rules: Any = 5,
        widths: Any = 1.0,
        affine: bool = True,
        random_state: Any = None,
        summation: AbstractSummation | None = None,
    ):
        self.rules = rules
        self.widths = widths
        self.affine = affine
        self.random_state = random_state
        self.summation = summation

    def fit(self, X: Any, y: Any) -> "FuzzyRules":
        """Place the rules, and fit their consequents: the least squares of Σ_i w_i(x) (a_i + b_i·x) − y."""
        points, targets = pairs_of(self, X, y, multi_output=True, y_numeric=True)
        self.centers_ = self._centres(points)
        self.widths_ = self._widths(self.centers_.shape)
        places = np.concatenate([self.centers_, self.widths_], axis=1)
        count, outputs = len(places), 1 if targets.ndim == 1 else targets.shape[1]
        shares = read(attention_weights_at, points, Membership(), Measure(places, np.zeros(count)))
        inputs = self._inputs(points)
        design = (shares[:, :, None] * inputs[:, None, :]).reshape(len(points), -1)
        solved = np.linalg.lstsq(design, targets.reshape(len(points), outputs).astype(np.float64), rcond=None)[0]
        self.consequents_ = solved.reshape(count, inputs.shape[1], outputs).transpose(0, 2, 1)
        self.rules_ = Measure(places, np.zeros(count), self.consequents_.reshape(count, -1))
        self._flat = targets.ndim == 1
        return self

    def predict(self, X: Any) -> np.ndarray:
        """ŷ at every row of X: the local mean of the consequents, evaluated at x."""
        points = queries_of(self, X)
        means = read(means_at, points, Membership(), self.rules_, self.summation or Auto())
        inputs = self._inputs(points)
        found = np.einsum("moi,mi->mo", means.reshape(len(points), -1, inputs.shape[1]), inputs)
        return found[:, 0] if self._flat else found

    def predict_fuzzy(self, X: Any, spreads: Any) -> np.ndarray:
        """ŷ of fuzzy inputs whose coordinates are normal about the rows of X, in closed form.

        K(·, i) p is normal about x̄_i = (σ² x' + τ² c)/(σ² + τ²), where the consequent is read.
        Parameters: `spreads` τ ≥ 0, a number, one a feature (d,), or one an input and feature (m, d).
        """
        points = queries_of(self, X)
        spreads = np.asarray(spreads, np.float64)
        if spreads.shape not in ((), points.shape[1:], points.shape):
            raise ShapeError(
                f"Argument `spreads` must be a number, or have the shape {points.shape[1:]} or {points.shape}, but has "
                f"{spreads.shape}."
            )
        if not (np.isfinite(spreads).all() and (spreads >= 0).all()):
            raise ArgumentError("Argument `spreads` must be finite, and not negative.")
        spreads = np.broadcast_to(spreads, points.shape)
        fuzzy = np.concatenate([points, spreads], axis=1)
        shares = read(attention_weights_at, fuzzy, FuzzyMembership(), self.rules_)
        own, theirs = np.square(spreads)[:, None], np.square(self.widths_)[None]
        places = (theirs * points[:, None] + own * self.centers_[None]) / (own + theirs)
        inputs = self._inputs(places.reshape(-1, points.shape[1])).reshape(*shares.shape, -1)
        found = np.einsum("mr,roi,mri->mo", shares, self.consequents_, inputs)
        return found[:, 0] if self._flat else found

    def predict_law(self, points: Any, weights: Any = None) -> np.ndarray:
        """ŷ of one fuzzy input of any law, given by points (q, d) and their weights: draws, or nodes of a quadrature.

        With the log-mass G of the rules at every point it is Σ_k p_k e^{G(x_k)} ŷ(x_k) / Σ_k p_k e^{G(x_k)}.
        """
        nodes = queries_of(self, points)
        given = weights_of(weights, len(nodes))
        log_masses = read(log_masses_at, nodes, Membership(), self.rules_, self.summation or Auto())
        with np.errstate(divide="ignore"):
            heard = Measure(nodes, np.log(given) + log_masses, self.predict(nodes))
        return np.asarray(local_mean(Constant(), heard, nodes[0]))

    def memberships(self, X: Any) -> np.ndarray:
        """The weight of every rule in every prediction, (queries, rules); rows sum to one."""
        return read(attention_weights_at, queries_of(self, X), Membership(), self.rules_)

    def _inputs(self, points: np.ndarray) -> np.ndarray:
        """(1, x) of every point, which consequents multiply; 1 alone for constants."""
        ones = np.ones((len(points), 1))
        return np.concatenate([ones, points], axis=1) if self.affine else ones

    def _centres(self, points: np.ndarray) -> np.ndarray:
        """The given centres, or those that k-means finds from randomly chosen different samples."""
        if np.ndim(self.rules) == 0:
            check_count(self.rules, "rules")
            different = np.unique(points, axis=0)
            count = min(int(self.rules), len(different))
            rng = check_random_state(self.random_state)
            begin = different[rng.choice(len(different), count, replace=False)]
            return np.asarray(kmeans2(points, begin, minit="matrix", missing="warn")[0], np.float64)
        centres = np.asarray(self.rules, np.float64)
        if centres.ndim != 2 or centres.shape[1] != points.shape[1] or not len(centres):
            raise ShapeError(
                f"Argument `rules` must be a number, or centres (r, {points.shape[1]}), but has shape {centres.shape}."
            )
        return centres

    def _widths(self, shape: tuple[int, int]) -> np.ndarray:
        """The given widths, positive, one a rule and feature."""
        widths = np.asarray(self.widths, np.float64)
        if widths.shape not in ((), shape[1:], shape):
            raise ShapeError(
                f"Argument `widths` must be a number, or have the shape {shape[1:]} or {shape}, but has {widths.shape}."
            )
        if not (np.isfinite(widths).all() and (widths > 0).all()):
            raise ArgumentError("Argument `widths` must be positive.")
        return np.array(np.broadcast_to(widths, shape))
