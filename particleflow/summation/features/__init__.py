"""Sums of low rank in any dimension: `Features`, by random features or Nyström's landmarks."""

from particleflow.summation.features.features import Features

__all__ = ["Features"]
