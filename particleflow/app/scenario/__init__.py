"""Scenario files: checked TOML as a flow, a start and the arguments of `simulate`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
