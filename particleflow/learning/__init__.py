"""Learned kernels and flows: a loss, the parameters that may change, and optax.

    parameters      which numbers of a kernel or flow are learned, each by a dotted path
    losses          leave-one-out, reconstruction, likelihood, evidence, contrast: functions of a kernel
    descent         `learn`: down a loss, with progress and early stopping
    trajectories    `fit`: a flow whose trajectory meets an observed one
    saving          what was learned, as a scenario file

A kernel is learned where it acts: every loss but the evidence reads the one operator and nothing else. What comes out
is an ordinary kernel or flow.
"""

from importlib.util import find_spec

if find_spec("optax") is None:
    raise ImportError("particleflow.learning needs optax: pip install 'particleflow[learn]'.")

from particleflow.learning.descent import Learned, learn
from particleflow.learning.losses import (
    Contrast,
    Evidence,
    LeaveOneOut,
    LeaveOneOutLikelihood,
    Observed,
    Reconstruction,
)
from particleflow.learning.saving import save_scenario, table_of
from particleflow.learning.trajectories import TrajectoryError, fit

__all__ = [
    "Contrast",
    "Evidence",
    "Learned",
    "LeaveOneOut",
    "LeaveOneOutLikelihood",
    "Observed",
    "Reconstruction",
    "TrajectoryError",
    "fit",
    "learn",
    "save_scenario",
    "table_of",
]


def __dir__() -> list[str]:
    return __all__
