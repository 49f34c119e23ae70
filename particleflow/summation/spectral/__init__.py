"""Near-linear sums for smooth kernels of few dimensions, by non-uniform fast Fourier transforms."""

from particleflow.summation.spectral.spectral_sum import Spectral

__all__ = ["Spectral"]
