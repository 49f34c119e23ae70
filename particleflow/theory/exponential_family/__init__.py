"""Exponential families p(y | θ) = exp(⟨θ, y⟩ − G(θ)) h(dy): the Laplace view of attention.

The base measure h alone determines the family:

    G(θ) = log ∫ e^{⟨θ, y⟩} h(dy),    mean = ∇G(θ),    covariance = ∇²G(θ).

For the empirical measure of tokens and θ = βq, the mean is the output of attention for the query q: one step of
attention is one step of gradient ascent on G, taken at every query at once.

With a statistic u in place of y the same holds for u(x) (`StatisticFamily`), for any u and any base measure that is a
`Measure`: quadratures and finite spaces (`base_measures`), or draws. A parameter that is W x + b makes a `Conditional`;
two of coins, one for each layer, are a `RestrictedBoltzmannMachine`.
"""

from particleflow.theory.exponential_family import base_measures
from particleflow.theory.exponential_family.base import (
    AbstractExponentialFamily,
    AbstractLogNormalizer,
    AbstractNaturalFamily,
    Tilted,
)
from particleflow.theory.exponential_family.conditional import Conditional
from particleflow.theory.exponential_family.continuous import GaussianBase, UniformSphereBase
from particleflow.theory.exponential_family.finite import Bernoulli, Empirical, Multinoulli
from particleflow.theory.exponential_family.restricted_machine import RestrictedBoltzmannMachine
from particleflow.theory.exponential_family.statistic import StatisticFamily, boltzmann_machine

__all__ = [
    "AbstractExponentialFamily",
    "AbstractLogNormalizer",
    "AbstractNaturalFamily",
    "Bernoulli",
    "Conditional",
    "Empirical",
    "GaussianBase",
    "Multinoulli",
    "RestrictedBoltzmannMachine",
    "StatisticFamily",
    "Tilted",
    "UniformSphereBase",
    "base_measures",
    "boltzmann_machine",
]


def __dir__() -> list[str]:
    return __all__
