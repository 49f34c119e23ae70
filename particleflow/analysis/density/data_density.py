"""The density of fixed data under a Gaussian kernel, which MeanShift climbs."""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.reading import FloatArray
from particleflow.errors import ShapeError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_BLOCK = 2_000_000  # pairs of places and data at a time


def data_width(run: "Trajectory", time: float) -> float | None:
    """The width at a time of the Gaussian kernel by which a run looks at stored data; None for any other run."""
    facts = run.facts
    looking = [each for each in facts.interactions if each.data]
    if facts.data_points is None or len(facts.interactions) != 1 or not looking or looking[0].kind != "gaussian":
        return None
    if facts.schedule is not None:
        return facts.schedule(time) if facts.schedule.name == "width" else None
    widths = [length for name, length in facts.scales if name == "width"]
    return widths[0] if len(widths) == 1 else None


def data_density(data: FloatArray, width: float, places: FloatArray) -> FloatArray:
    """The density p(x) = (1/n) Σ_j (2π σ²)^{−d/2} e^{−|x − y_j|²/2σ²} at places (m, d), of data y (n, d).

    width: σ.
    """
    if data.ndim != 2 or places.ndim != 2 or data.shape[1] != places.shape[1]:
        raise ShapeError(f"Data and places must be rows of one dimension, but have {data.shape} and {places.shape}.")
    scale = len(data) * (2 * np.pi * width**2) ** (data.shape[1] / 2)
    step = max(1, _BLOCK // len(data))
    found = np.empty(len(places))
    for begin in range(0, len(places), step):
        part = places[begin : begin + step]
        squares = np.square(part[:, None] - data[None]).sum(axis=-1)
        found[begin : begin + step] = np.exp(-squares / (2 * width**2)).sum(axis=1) / scale
    return found
