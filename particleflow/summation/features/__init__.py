"""Sums of low rank in any dimension: `Features`, by random features or Nyström's landmarks."""

from particleflow.summation.features.summation import Features

__all__ = ["Features"]
