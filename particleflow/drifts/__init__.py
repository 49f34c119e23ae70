"""Vector fields: attention and its relatives, MeanShift, gradient ascent, feed-forward; schedules and layers."""

from particleflow.drifts.attend import Attend, Hardmax, LinearAttention
from particleflow.drifts.base import AbstractDrift, Multiple, Sum, terms_of
from particleflow.drifts.plain import Confinement, FeedForward, Linear, RandomFeedForward
from particleflow.drifts.schedules import AbstractSchedule, Decay, Layers, Ramp, Steps, Varying
from particleflow.drifts.shift import LogNormalizerAscent, MeanShift

__all__ = [
    "AbstractDrift",
    "AbstractSchedule",
    "Attend",
    "Confinement",
    "Decay",
    "FeedForward",
    "Hardmax",
    "Layers",
    "Linear",
    "LinearAttention",
    "LogNormalizerAscent",
    "MeanShift",
    "Multiple",
    "Ramp",
    "RandomFeedForward",
    "Steps",
    "Sum",
    "Varying",
    "terms_of",
]
