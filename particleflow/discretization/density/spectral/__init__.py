"""Densities by their harmonics: `harmonics` has the transforms, `spectral_density` the discretization."""

from particleflow.discretization.density.spectral.spectral_density import Spectral, SpectralDensity

__all__ = ["Spectral", "SpectralDensity"]
