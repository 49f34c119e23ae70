"""Vector fields: attention and its relatives, MeanShift, gradient ascent, feed-forward; schedules and layers."""

from particleflow.drifts.attend import Attend, Hardmax, LinearAttention
from particleflow.drifts.base import AbstractDrift, Interaction, Multiple, Sum
from particleflow.drifts.blend import Blend, near_and_far
from particleflow.drifts.heads import MultiHead
from particleflow.drifts.layers import Block, Layers
from particleflow.drifts.plain import Confinement, FeedForward, Linear, RandomFeedForward
from particleflow.drifts.schedules import AbstractSchedule, Decay, Ramp, Steps, Varying
from particleflow.drifts.shift import LogNormalizerAscent, MeanShift

__all__ = [
    "AbstractDrift",
    "AbstractSchedule",
    "Attend",
    "Blend",
    "Block",
    "Confinement",
    "Decay",
    "FeedForward",
    "Hardmax",
    "Interaction",
    "Layers",
    "Linear",
    "LinearAttention",
    "LogNormalizerAscent",
    "MeanShift",
    "MultiHead",
    "Multiple",
    "Ramp",
    "RandomFeedForward",
    "Steps",
    "Sum",
    "Varying",
    "near_and_far",
]


def __dir__() -> list[str]:
    return __all__
