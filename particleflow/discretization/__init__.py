"""Discretizations: how a measure is represented by arrays that an integrator can move."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
