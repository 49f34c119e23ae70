"""Ways to sum moments: `Dense`, `Blockwise`, and `Auto`, which chooses between them.

What is summed (kernel, measure) knows nothing of how; so a summation of one's own fits wherever these do.
"""

from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation, Choice, Limits
from particleflow.summation.blockwise import Blockwise
from particleflow.summation.dense import Dense
from particleflow.summation.features import Features
from particleflow.summation.native import Native
from particleflow.summation.near_far import NearFar
from particleflow.summation.random_batch import RandomBatch
from particleflow.summation.separated import Separated
from particleflow.summation.spectral import Spectral

__all__ = [
    "AbstractSummation",
    "Auto",
    "Blockwise",
    "Choice",
    "Dense",
    "Features",
    "Limits",
    "Native",
    "NearFar",
    "RandomBatch",
    "Separated",
    "Spectral",
]
