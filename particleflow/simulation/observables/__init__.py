"""What is measured while a measure moves.

An observable is any function of the `Present` of a run (time, state, measure, velocity, …) that returns an array; its
name in the trajectory is its `__name__` (or `name`; those with parameters take one, so that two of a kind can be stored
side by side). It is evaluated at the saved state, inside the compiled run.
A function of three arguments is called with (flow, time, measure) instead, as can those below outside of a
run: `energy(flow, 0.0, measure)`. Sums over all pairs go through the same summation as the drift; only quantities that
need the whole Gram matrix hold it, and say so.

Everything is weighted: means are over the weights normalised to Σ w_i = 1, pairs i ≠ j weigh w_i w_j, and points of
weight zero do not count. Energies and dissipation are integrals over μ as it is, whatever its mass.

Of a density, whose points are places and no particles, pairs are pairs of independent draws: a place is paired with
itself, too. What counts particles (a diameter, rows of attention) is refused.
"""

from particleflow.simulation.observables.base import Observable, measured, name_of, observable
from particleflow.simulation.observables.contrast import Alignment, Uniformity
from particleflow.simulation.observables.energies import dissipation, energy, log_energy, speed
from particleflow.simulation.observables.head_attention import head_attention
from particleflow.simulation.observables.pairs import (
    PairFraction,
    SimilarityQuantiles,
    attention_entropy,
    attention_rank,
    diameter,
    mean_similarity,
)
from particleflow.simulation.observables.spread import (
    blow_up_time,
    centre,
    covariance,
    effective_rank,
    entropy,
    excess_kurtosis,
    gaussian_distance,
    largest_variance,
    order_parameter,
)

__all__ = [
    "Alignment",
    "Observable",
    "PairFraction",
    "SimilarityQuantiles",
    "Uniformity",
    "attention_entropy",
    "attention_rank",
    "blow_up_time",
    "centre",
    "covariance",
    "diameter",
    "dissipation",
    "effective_rank",
    "energy",
    "entropy",
    "excess_kurtosis",
    "gaussian_distance",
    "head_attention",
    "largest_variance",
    "log_energy",
    "mean_similarity",
    "measured",
    "name_of",
    "observable",
    "order_parameter",
    "speed",
]


def __dir__() -> list[str]:
    return __all__
