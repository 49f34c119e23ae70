"""What a run will do, checked before anything is compiled."""

from particleflow.plan.checks import EVENT_TIME, check_arguments, check_begin, check_interactions
from particleflow.plan.cost import Cost, check_memory, cost_of
from particleflow.plan.inputs import Draws, as_guesses, as_start, check_flow, laid_out
from particleflow.plan.plan import Plan, make_method, make_numbers, make_plan

__all__ = [
    "EVENT_TIME",
    "Cost",
    "Draws",
    "Plan",
    "as_guesses",
    "as_start",
    "check_arguments",
    "check_begin",
    "check_flow",
    "check_interactions",
    "check_memory",
    "cost_of",
    "laid_out",
    "make_method",
    "make_numbers",
    "make_plan",
]
