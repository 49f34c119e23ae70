"""Associative memories: the stored patterns are the measure, the probe is the query, recall iterates the local mean.

    classical   x ← sign(W x),   W = (1/d) Σ_μ ξ_μ ξ_μᵀ     energy −½ xᵀ W x
    modern      x ← Σ_μ softmax_μ(β⟨x, ξ_μ⟩) ξ_μ = m(x)                          energy ½|x|² − G(x)/β

The classical network (Hopfield 1982) is linear in its kernel ⟨x, ξ⟩, which has a sign: as an operator it is the
difference of the kernels max(0, ±⟨x, ξ⟩). W usually goes without its diagonal, so that no unit acts on itself. With the
diagonal, which is the same number (patterns / d) for all units, x ← sign(W x) is the local mean's sign as it stands: W
is positive semidefinite, so that updates all at once never raise the energy and end in no cycle, but units keep their
signs more often, wrong ones too. Without it the network recalls about 0.138 d patterns of random bits (Amit, Gutfreund
and Sompolinsky 1985), each with 1.6 % of its bits wrong, and beyond that nothing. The modern one (Ramsauer et al. 2021)
is attention with the patterns as keys and values, and recalls exponentially many.
"""

from typing import Any

import numpy as np
from jaxtyping import Array, Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state

from particleflow.errors import ArgumentError
from particleflow.kernels import AbstractKernel, Attention, Rectified
from particleflow.measure import Measure
from particleflow.models.base import check_count, log_masses_at, means_at, queries_of, read, samples_of
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.operators import kernel_difference


class Hopfield(TransformerMixin, BaseEstimator):
    """An associative memory of patterns, the rows of X, that recalls the stored pattern nearest to a probe.

    Parameters: `beta`, the inverse temperature of the modern network, or None for the classical one, whose patterns
    are ±1; `asynchronous`, whether units of the classical one change one after the other in random order, which never
    raises the energy, or all at once, which without the diagonal may end in a cycle of two; `steps`, or sweeps of all
    units, at most (one step of the modern network recalls a well-separated pattern); `random_state` of the order;
    `summation`; `diagonal`, whether W of the classical network keeps its diagonal.

    Attributes: `patterns_`; `coupling_`, the matrix W of the classical network; `n_features_in_`.
    """

    patterns_: np.ndarray
    coupling_: np.ndarray

    def __init__(
        self,
        beta: float | None = None,
        asynchronous: bool = False,
        steps: int = 100,
        random_state: Any = None,
        summation: AbstractSummation | None = None,
        diagonal: bool = False,
    ):
        self.beta = beta
        self.asynchronous = asynchronous
        self.steps = steps
        self.random_state = random_state
        self.summation = summation
        self.diagonal = diagonal

    def fit(self, X: Any, y: Any = None) -> "Hopfield":
        """Store the patterns, and for the classical network the matrix W."""
        patterns = samples_of(self, X)
        check_count(self.steps, "steps")
        self.patterns_ = patterns
        if self.diagonal and self.beta is not None:
            raise ArgumentError("Argument `diagonal` is of the classical network, which has no `beta`; leave out one.")
        if self.beta is None:
            self._check_signs(patterns, "patterns")
            self.coupling_ = self._coupling(patterns)
        elif not 0 < self.beta < np.inf:
            raise ArgumentError(f"Argument `beta` must be positive, or None for the classical network: {self.beta!r}.")
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The state that every row of X, a probe, converges to within `steps`."""
        probes = queries_of(self, X)
        if self.beta is None:
            self._check_signs(probes, "probes")
            return self._swept(probes) if self.asynchronous else _iterated(self._signs, probes, self.steps)
        return _iterated(self._recalled, probes, self.steps)

    def energy(self, X: Any) -> np.ndarray:
        """The energy of every row of X."""
        probes = queries_of(self, X)
        if self.beta is None:
            return -0.5 * np.einsum("mi,ij,mj->m", probes, self.coupling_, probes)
        masses = read(log_masses_at, probes, *self._memory())
        return 0.5 * np.square(probes).sum(axis=1) - masses / float(self.beta)

    def overlaps(self, X: Any) -> np.ndarray:
        """⟨x, ξ_μ⟩/d of every row of X with every pattern: ±1 where they are alike."""
        return queries_of(self, X) @ self.patterns_.T / self.patterns_.shape[1]

    def _memory(self) -> tuple[AbstractKernel, Measure, AbstractSummation]:
        """Kernel, measure and summation of the modern network."""
        count = len(self.patterns_)
        return Attention(self.beta), Measure(self.patterns_, np.zeros(count)), self.summation or Auto()

    def _recalled(self, probes: np.ndarray) -> np.ndarray:
        """m(x), one step of the modern network."""
        return read(means_at, probes, *self._memory())

    def _coupling(self, patterns: np.ndarray) -> np.ndarray:
        """W e_j of every unit vector e_j (the operator is linear), with the diagonal or without."""
        count, units = patterns.shape
        columns = read(_signed, np.eye(units), Measure(patterns, np.zeros(count)), self.summation or Auto())
        coupling = columns / units
        if not self.diagonal:
            np.fill_diagonal(coupling, 0.0)
        return coupling

    def _signs(self, probes: np.ndarray) -> np.ndarray:
        """sign(W x); a unit whose field is 0 keeps its sign."""
        fields = probes @ self.coupling_
        return np.where(fields == 0, probes, np.sign(fields))

    def _swept(self, probes: np.ndarray) -> np.ndarray:
        """Update unit by unit, in a random order for every sweep, all probes together."""
        rng, states = check_random_state(self.random_state), probes.copy()
        for _ in range(self.steps):
            before = states.copy()
            for unit in rng.permutation(states.shape[1]):
                field = states @ self.coupling_[unit]
                states[:, unit] = np.where(field == 0, states[:, unit], np.sign(field))
            if np.array_equal(before, states):
                break
        return states

    def _check_signs(self, states: np.ndarray, what: str) -> None:
        wrong = np.abs(states) != 1
        if wrong.any():
            raise ArgumentError(
                f"The {what} of a classical Hopfield network must be ±1, but hold {states[wrong][0]:g}; "
                "give `beta` for real patterns."
            )


def _iterated(step: Any, states: np.ndarray, most: int) -> np.ndarray:
    """states ← step(states), until nothing changes, `most` times at most."""
    for _ in range(most):
        after = step(states)
        if np.array_equal(after, states):
            break
        states = after
    return states


def _signed(queries: Array, measure: Measure, how: AbstractSummation) -> Float[Array, "m d"]:
    """Σ_μ ⟨x, ξ_μ⟩ ξ_μ as a difference of two kernels that are not negative."""
    return kernel_difference(Rectified(), Rectified(query=-1.0), measure, queries, summation=how)
