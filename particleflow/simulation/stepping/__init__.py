"""Steps in time, by diffrax, which no other folder imports.

window          `solve_window`: one window of a run; `final_state`: one differentiable solve; `Method` names the solver
step_control    controllers (adaptive steps carried over windows, steps on a grid), maps, noise on the grid
implicit        diagonally implicit Runge–Kutta steps that count their evaluations
positive_steps  Runge–Kutta steps of Euler steps, which keep densities positive
event_search    steps that look for an event on their way
solve_outcome   the sentence with which a single solve fails
"""

from particleflow.simulation.stepping.step_control import Numbers
from particleflow.simulation.stepping.window import (
    ADAPTIVE_SOLVERS,
    MAP,
    STOCHASTIC_SOLVERS,
    Method,
    SolvedWindow,
    compiled_frame,
    fields_per_step,
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
    "SolvedWindow",
    "compiled_frame",
    "fields_per_step",
    "final_state",
    "frame",
    "moved_by_a_layer",
    "solve_window",
]
