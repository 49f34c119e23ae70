"""Vector fields: attention and relatives, MeanShift, ascent, signed kernels, contrast, places; schedules, layers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
