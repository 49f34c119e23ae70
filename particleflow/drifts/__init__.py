"""Vector fields: attention and relatives, MeanShift, ascent, signed kernels, values on places; schedules, layers."""

from particleflow.drifts.attend import Attend, Hardmax, LinearAttention
from particleflow.drifts.base import AbstractDrift, Interaction, Multiple, Sum
from particleflow.drifts.blend import Blend, near_and_far
from particleflow.drifts.heads import MultiHead
from particleflow.drifts.layers import Block, Layers
from particleflow.drifts.plain import Confinement, FeedForward, Linear, RandomFeedForward
from particleflow.drifts.schedules import AbstractSchedule, Decay, Ramp, Steps, Varying
from particleflow.drifts.shift import LogNormalizerAscent, MeanShift
from particleflow.drifts.signed import KernelDerivative, KernelDifference
from particleflow.drifts.values import Propagate, RelaxationLabelling

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
    "KernelDerivative",
    "KernelDifference",
    "Layers",
    "Linear",
    "LinearAttention",
    "LogNormalizerAscent",
    "MeanShift",
    "MultiHead",
    "Multiple",
    "Propagate",
    "Ramp",
    "RandomFeedForward",
    "RelaxationLabelling",
    "Steps",
    "Sum",
    "Varying",
    "near_and_far",
]


def __dir__() -> list[str]:
    return __all__
