"""Label propagation: points stay, and the values that they carry are replaced by their local means, repeatedly.

    f ← α K̃f + (1 − α) y,    (K̃f)(x) = m(x), the local mean of the values f

With α = 0 on samples that have a label and 1 on all others this is label propagation (Zhu and Ghahramani 2002), whose
fixed point is F_u = (I − P_uu)⁻¹ P_ul Y_l; with one α < 1 for all it is label spreading, whose fixed point is
(1 − α)(I − αP)⁻¹ Y (Zhou et al. 2004; `neighbourhoods` has it with the weights of local reconstructions). Both are
MeanShift of values under a kernel of points. As a flow: the drift `Propagate`.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from particleflow.errors import ArgumentError
from particleflow.kernels import AbstractKernel
from particleflow.measure import Measure
from particleflow.models.base import (
    check_count,
    check_share,
    kernel_of,
    means_at,
    measure_of,
    pairs_of,
    queries_of,
    read,
)
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.local_mean import local_mean

UNKNOWN = -1


class AbstractPropagation(ClassifierMixin, BaseEstimator, abc.ABC):
    """A classifier that spreads the labels of a few samples to all others, f ← α K̃f + (1 − α) y.

    Subclasses have the parameters `max_iter`, `tolerance` and `summation`; their `fit` sets the kernel, the measure and
    α.
    """

    max_iter: int
    tolerance: float
    summation: AbstractSummation | None
    classes_: np.ndarray
    measure_: Measure

    @abc.abstractmethod
    def predict_proba(self, X: Any) -> np.ndarray:
        """The shares of the classes at every row of X, (m, classes)."""

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest share at every row of X."""
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(axis=1)]

    def _spread(self, kernel: AbstractKernel, measure: Measure, taken: np.ndarray) -> None:
        """Iterate to the fixed point, and store it as values of `measure_`, as shares and as classes."""
        how = self.summation or Auto()
        values, count = spread(kernel, measure, jnp.asarray(taken), how, int(self.max_iter), self.tolerance)
        self.n_iter_ = int(count)
        self.measure_ = measure.with_values(values)
        self.label_distributions_ = shares_of(np.asarray(values))
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]


class LabelPropagation(AbstractPropagation):
    """Classes of a few samples spread to all others along the kernel; samples of class −1 have no label.

    Where −1 and 1 are the only labels, they are two classes and every sample is labelled.

    Parameters: `kernel` and `bandwidth` as for `KernelRegression`; `alpha`, None to hold the labels that are given, or
    a number below 1, the share that every sample takes from its neighbours at each step; `max_iter`; `tolerance` of the
    largest change; `summation`.

    Attributes: `classes_`; `label_distributions_`, the values at the fixed point, rows that sum to one;
    `transduction_`, the class of every sample; `n_iter_`; `kernel_`, `measure_`.
    """

    kernel_: AbstractKernel

    def __init__(
        self,
        kernel: Any = "gaussian",
        bandwidth: Any = 1.0,
        alpha: float | None = None,
        max_iter: int = 1000,
        tolerance: float = 1e-9,
        summation: AbstractSummation | None = None,
    ):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.alpha = alpha
        self.max_iter = max_iter
        self.tolerance = tolerance
        self.summation = summation

    def fit(self, X: Any, y: Any) -> "LabelPropagation":
        """Propagate the labels until no value changes by more than `tolerance`."""
        points, begin, self.classes_ = labels_of(self, X, y)
        self._check()
        known = begin.any(axis=1)
        taken = np.where(known, 0.0, 1.0) if self.alpha is None else np.full(len(points), float(self.alpha))
        self.kernel_ = kernel_of(self.kernel, self.bandwidth, points)
        self._spread(self.kernel_, measure_of(points, begin, None), taken)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The local mean of the propagated values, as shares; 0 where the kernel reaches no sample."""
        points = queries_of(self, X)
        return shares_of(read(means_at, points, self.kernel_, self.measure_, self.summation or Auto()))

    def _check(self) -> None:
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise ArgumentError(f"Argument `alpha` must be None, or between 0 and 1, but is {self.alpha!r}.")
        check_count(self.max_iter, "max_iter")
        check_share(self.tolerance, "tolerance")


def labels_of(estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples, one-hot rows of their classes (0 where there is no label), and the classes.

    UNKNOWN stands for no label, unless 1 is the only other one: ±1 are two classes. At least one label is needed.
    """
    points, labels = pairs_of(estimator, X, y)
    check_classification_targets(labels)
    known = (labels != UNKNOWN) | np.array_equal(np.unique(labels), [-1, 1])
    if not known.any():
        raise ArgumentError("Argument `y` must label at least one sample, but every entry is −1.")
    classes, numbers = np.unique(labels[known], return_inverse=True)
    begin = np.zeros((len(points), len(classes)))
    begin[known] = np.eye(len(classes))[numbers]
    return points, begin, classes


def shares_of(values: np.ndarray) -> np.ndarray:
    """Rows divided by their sums; 0 where a row is 0."""
    whole = values.sum(axis=1, keepdims=True)
    return np.divide(values, whole, out=np.zeros_like(values), where=whole > 0)


@eqx.filter_jit
def spread(
    kernel: AbstractKernel,
    measure: Measure,
    taken: Float[Array, " n"],
    how: AbstractSummation,
    most: int,
    tolerance: float,
) -> tuple[Float[Array, "n k"], Array]:
    """Iterate f ← α m + (1 − α) y from f = y, the values of the measure; return the values and the number of steps.

    Parameters: `taken`, the share α of every sample; `most` steps, ended by a largest change of `tolerance`.
    """
    begin, share = measure.carried, taken[:, None]

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        values, _, count = state
        means = local_mean(kernel, measure.with_values(values), measure.with_values(values), summation=how)
        after = share * means + (1 - share) * begin
        return after, jnp.max(jnp.abs(after - values)), count + 1

    def goes_on(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > tolerance) & (state[2] < most)

    values, _, count = jax.lax.while_loop(goes_on, step, (begin, jnp.asarray(jnp.inf), jnp.asarray(0)))
    return values, count
