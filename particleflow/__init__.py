"""particleflow: tokens are particles, attention is a local mean, and depth is time.

Names are imported when they are first used, so that reading a trajectory never imports JAX.
"""

from importlib import import_module

from particleflow._version import __version__

_MODULES = (
    "analysis",
    "continuity",
    "drifts",
    "events",
    "exponential_family",
    "geometry",
    "initial",
    "kernels",
    "models",
    "observables",
    "scenario",
    "summation",
    "view",
)
_NAMES = {
    "Attend": "drifts",
    "Flow": "flow",
    "MeanShift": "drifts",
    "LogNormalizerAscent": "drifts",
    "FeedForward": "drifts",
    "Euclidean": "geometry",
    "LayerNorm": "geometry",
    "RmsNorm": "geometry",
    "Sphere": "geometry",
    "evolve": "simulation",
    "simulate": "simulation",
    "stream": "simulation",
    "Measure": "measure",
    "Moments": "moments",
    "Auto": "summation",
    "Blockwise": "summation",
    "Dense": "summation",
    "local_covariance": "local",
    "local_mean": "local",
    "local_mode": "local",
    "local_moments": "local",
    "log_normalizer": "local",
    "resampled_local_mean": "local",
    "Trajectory": "trajectory",
}

__all__ = ["__version__", *_MODULES, *_NAMES]


def __getattr__(name: str):
    if name in _MODULES:
        return import_module(f"particleflow.{name}")
    if name in _NAMES:
        return getattr(import_module(f"particleflow.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'particleflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
