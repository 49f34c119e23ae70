"""Time by diffrax; nothing outside this package imports it."""

from particleflow.integrate.stepping import Numbers
from particleflow.integrate.window import (
    ADAPTIVE_SOLVERS,
    MAP,
    STOCHASTIC_SOLVERS,
    Method,
    Window,
    compiled_frame,
    final_state,
    frame,
    moved_by_a_layer,
    solve_window,
)

__all__ = [
    "ADAPTIVE_SOLVERS",
    "MAP",
    "STOCHASTIC_SOLVERS",
    "Method",
    "Numbers",
    "Window",
    "compiled_frame",
    "final_state",
    "frame",
    "moved_by_a_layer",
    "solve_window",
]
