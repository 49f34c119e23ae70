"""The Fibonacci lattice: any number of nearly evenly spaced points on the sphere S²."""

import numpy as np
from numpy.typing import NDArray


def fibonacci(count: int) -> NDArray[np.float64]:
    """Points on the unit sphere at equal steps of height, each turned against the one before by the golden angle.

    z_j = 1 − (2j + 1)/n,  φ_j = π(1 + √5)(j + ½): the lattice of Swinbank and Purser (Fibonacci grids, 2006).
    """
    steps = np.arange(count) + 0.5
    heights, angles = 1 - 2 * steps / count, np.pi * (1 + 5**0.5) * steps
    around = np.sqrt(1 - heights**2)
    return np.stack([around * np.cos(angles), around * np.sin(angles), heights], axis=1)
