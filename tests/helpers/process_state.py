"""What a library may change of the process that it is loaded into, as a snapshot that can be compared with a later one.

The rule for other packages' modules: functions, classes, modules and constants by their names, and the entries of
classes, must be the same objects. What may differ: modules that are loaded later, names that are new in a module (a
package has its submodules as attributes once they are loaded), and the contents of what is mutable, such as caches.
"""

import builtins
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import types
import warnings
from pathlib import Path
from typing import Any

PACKAGES = ("diffrax", "equinox", "h5py", "jax", "jaxlib", "jaxtyping", "lineax", "matplotlib", "numpy", "optimistix")
PACKAGES += ("scipy", "sklearn")
FIXED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    str,
    bytes,
    int,
    float,
)
FIXED += (bool, complex, tuple, frozenset, types.NoneType, property, staticmethod, classmethod)
_KEPT_BY_PYTHON = {"__abstractmethods__", "_abc_impl", "__doc__", "__annotations__", "__weakref__", "__dict__"}

State = dict[str, Any]


def snapshot() -> State:
    """Every setting of the process by its name, and every fixed object of other packages by its dotted name."""
    return {**_settings(), **_objects()}


def differences(before: State, after: State) -> list[str]:
    """The names whose values differ; objects of packages are compared by identity, settings as they are."""
    gone = object()
    return sorted(name for name, value in before.items() if not _same(value, after.get(name, gone)))


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    plain = str | bytes | int | float | tuple | list | dict | frozenset
    return type(one) is type(other) and isinstance(one, plain) and bool(one == other)


def _settings() -> State:
    state: State = {
        "gc.isenabled": gc.isenabled(),
        "gc.threshold": gc.get_threshold(),
        "gc.frozen": gc.get_freeze_count(),
        "gc.debug": gc.get_debug(),
        "gc.callbacks": list(gc.callbacks),
        "locale": locale.setlocale(locale.LC_ALL),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0,
        "folder": str(Path.cwd()),
        "random": hash(random.getstate()),
        "warnings": list(warnings.filters),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "faulthandler": faulthandler.is_enabled(),
        "temporary folder": tempfile.gettempdir(),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "paths": (list(sys.path), list(sys.meta_path), list(sys.path_hooks)),
        "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook, warnings.showwarning),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
    }
    state |= {f"environ.{name}": value for name, value in os.environ.items()}
    state["environ"] = sorted(os.environ)
    state |= {f"signal.{number.name}": signal.getsignal(number) for number in signal.Signals}
    state |= {f"builtins.{name}": value for name, value in vars(builtins).items() if name != "_"}
    root = logging.getLogger()
    state["logging"] = (root.level, list(root.handlers), logging.raiseExceptions, root.manager.disable)
    for name, logger in list(root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            state[f"logging.{name}"] = (logger.level, list(logger.handlers), logger.propagate, logger.disabled)
    return state | _settings_of_packages()


def _settings_of_packages() -> State:
    state: State = {}
    if "numpy" in sys.modules:
        import numpy as np

        state |= {"numpy.err": np.geterr(), "numpy.errcall": np.geterrcall(), "numpy.print": np.get_printoptions()}
        state["numpy.random"] = str(np.random.get_state())  # noqa: NPY002
    if "jax" in sys.modules:
        import jax

        state |= {f"jax.config.{name}": value for name, value in jax.config.values.items()}
    if "matplotlib" in sys.modules:
        import matplotlib as mpl

        state |= {f"rcParams.{name}": str(value) for name, value in dict.items(mpl.rcParams)}
    return state


def _objects() -> State:
    state: State = {}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or name.split(".")[0] not in PACKAGES:
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, FIXED):
                state[f"{name}.{key}"] = value
            if isinstance(value, type) and value.__module__ == name:
                entries = {key: each for key, each in vars(value).items() if key not in _KEPT_BY_PYTHON}
                state |= {f"{name}.{value.__qualname__}.{key}": each for key, each in entries.items()}
    return state
