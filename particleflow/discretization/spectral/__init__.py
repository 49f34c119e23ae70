"""Densities by their harmonics: `harmonics` has the transforms, `spectral` the discretization."""

from particleflow.discretization.spectral.spectral import Spectral

__all__ = ["Spectral"]
