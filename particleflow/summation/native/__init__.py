"""The exact sum in native code: `Native`, the summation; `library`, what of it there is on this machine."""

from particleflow.summation.native.build import library
from particleflow.summation.native.summation import Native

__all__ = ["Native", "library"]
