"""Stability of uniform states: which modes of a density grow, and what they grow into.

uniform_growth          growth rates, critical temperatures and switches of the fastest mode, from the kernel alone
coefficients            a kernel's coefficients on a sphere (Funk and Hecke), by `quadrature`
branches                stationary densities on the circle, followed from the uniform one in temperature
stationary_densities    the equation that they solve, its free energy, their stability
"""

from particleflow.theory.stability.branches import Branch, Point, branches
from particleflow.theory.stability.uniform_growth import (
    Transition,
    critical_temperature,
    fastest_mode,
    growth_rates,
    mode_temperatures,
    switches,
    transition,
)

__all__ = [
    "Branch",
    "Point",
    "Transition",
    "branches",
    "critical_temperature",
    "fastest_mode",
    "growth_rates",
    "mode_temperatures",
    "switches",
    "transition",
]


def __dir__() -> list[str]:
    return __all__
