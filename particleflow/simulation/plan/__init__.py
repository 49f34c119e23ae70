"""The plan of a run: the arguments of the user, checked and completed, and an estimate of the cost.

device_choice    the devices that share a run
inputs           flows, starts and times in the shapes that one run or an ensemble has
checks           errors that can be found before anything is compiled
stepping_method  the solver and the kind of steps, from what the user asks (`Stepping`) and the flow needs
plan             `make_plan` brings these together in a `Plan`
cost             pairs, seconds, bytes and fields of a plan
"""

from particleflow.simulation.plan.checks import EVENT_TIME, check_arguments, check_begin, check_interactions
from particleflow.simulation.plan.cost import Cost, check_memory, cost_of
from particleflow.simulation.plan.device_choice import local_devices
from particleflow.simulation.plan.inputs import Draws, as_guesses, as_start, check_flow, laid_out
from particleflow.simulation.plan.plan import Plan, WindowTimes, make_plan
from particleflow.simulation.plan.stepping_method import Stepping, make_method, make_numbers

__all__ = [
    "EVENT_TIME",
    "Cost",
    "Draws",
    "Plan",
    "Stepping",
    "WindowTimes",
    "as_guesses",
    "as_start",
    "check_arguments",
    "check_begin",
    "check_flow",
    "check_interactions",
    "check_memory",
    "cost_of",
    "laid_out",
    "local_devices",
    "make_method",
    "make_numbers",
    "make_plan",
]
