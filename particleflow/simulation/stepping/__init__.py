"""Steps in time, by diffrax, which no other folder imports.

window          `solve_window`: one window of a run; `final_state`: one differentiable solve; `Method` names the solver
step_control    controllers (adaptive steps carried over windows, steps on a grid), maps, noise on the grid
implicit        diagonally implicit Runge–Kutta steps that count their evaluations
newton          their equations, by Newton's method with a matrix that is kept while it serves
positive_steps  Runge–Kutta steps made of Euler steps, which keep densities positive
event_search    steps that search for an event between their ends
solve_outcome   the state or the error of a single solve
solver_list     the solvers by their names, with what each can do
"""

from particleflow.simulation.stepping.solver_list import SolverFacts, solver_facts
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
    shares_rows,
    solve_window,
)

__all__ = [
    "ADAPTIVE_SOLVERS",
    "MAP",
    "STOCHASTIC_SOLVERS",
    "Method",
    "Numbers",
    "SolvedWindow",
    "SolverFacts",
    "compiled_frame",
    "fields_per_step",
    "final_state",
    "frame",
    "moved_by_a_layer",
    "shares_rows",
    "solve_window",
    "solver_facts",
]
