"""Ways to sum moments: `Dense`, `Blockwise`, and `Auto`, which chooses between them."""

from particleflow.summation.auto import Auto, Choice
from particleflow.summation.base import AbstractSummation
from particleflow.summation.blockwise import Blockwise
from particleflow.summation.dense import Dense

__all__ = ["AbstractSummation", "Auto", "Blockwise", "Choice", "Dense"]
