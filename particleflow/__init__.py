"""particleflow: tokens are particles, attention is a local mean, and depth is time.

Names are imported when they are first used, so that reading a trajectory never imports JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from particleflow._version import __version__

if TYPE_CHECKING:
    from particleflow import (
        analysis,
        drifts,
        events,
        exponential_family,
        geometry,
        initial,
        kernels,
        observables,
        operators,
        scenario,
        store,
        summation,
        view,
    )
    from particleflow.drifts import Attend, FeedForward, LogNormalizerAscent, MeanShift
    from particleflow.flow import Flow
    from particleflow.geometry import Euclidean, LayerNorm, RmsNorm, Sphere
    from particleflow.local import (
        local_covariance,
        local_mean,
        local_mode,
        local_moments,
        log_normalizer,
        resampled_local_mean,
    )
    from particleflow.measure import Measure, Sites
    from particleflow.moments import Moments
    from particleflow.simulation import evolve, simulate, stream
    from particleflow.summation import Auto, Blockwise, Dense
    from particleflow.trajectory import Trajectory

_MODULES = (
    "analysis",
    "drifts",
    "events",
    "exponential_family",
    "geometry",
    "initial",
    "kernels",
    "observables",
    "operators",
    "scenario",
    "store",
    "summation",
    "view",
)
_NAMES = {
    "Attend": "drifts",
    "Auto": "summation",
    "Blockwise": "summation",
    "Dense": "summation",
    "Euclidean": "geometry",
    "FeedForward": "drifts",
    "Flow": "flow",
    "LayerNorm": "geometry",
    "LogNormalizerAscent": "drifts",
    "MeanShift": "drifts",
    "Measure": "measure",
    "Moments": "moments",
    "RmsNorm": "geometry",
    "Sites": "measure",
    "Sphere": "geometry",
    "Trajectory": "trajectory",
    "evolve": "simulation",
    "local_covariance": "local",
    "local_mean": "local",
    "local_mode": "local",
    "local_moments": "local",
    "log_normalizer": "local",
    "resampled_local_mean": "local",
    "simulate": "simulation",
    "stream": "simulation",
}

__all__ = [
    "Attend",
    "Auto",
    "Blockwise",
    "Dense",
    "Euclidean",
    "FeedForward",
    "Flow",
    "LayerNorm",
    "LogNormalizerAscent",
    "MeanShift",
    "Measure",
    "Moments",
    "RmsNorm",
    "Sites",
    "Sphere",
    "Trajectory",
    "__version__",
    "analysis",
    "drifts",
    "events",
    "evolve",
    "exponential_family",
    "geometry",
    "initial",
    "kernels",
    "local_covariance",
    "local_mean",
    "local_mode",
    "local_moments",
    "log_normalizer",
    "observables",
    "operators",
    "resampled_local_mean",
    "scenario",
    "simulate",
    "store",
    "stream",
    "summation",
    "view",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"particleflow.{name}")
    if name in _NAMES:
        return getattr(import_module(f"particleflow.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'particleflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
