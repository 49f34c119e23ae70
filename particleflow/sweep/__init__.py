"""Sweeps: one scenario over many values of its keys."""

from particleflow.sweep.execute import plan_groups, run_sweep, start_sweep
from particleflow.sweep.expand import SweepPlan, expand, read_plan
from particleflow.sweep.figures import draw_phase_diagram, draw_sweep
from particleflow.sweep.manifest import Manifest
from particleflow.sweep.replay import member_folder, member_scenario
from particleflow.sweep.results import write_results

__all__ = [
    "Manifest",
    "SweepPlan",
    "draw_phase_diagram",
    "draw_sweep",
    "expand",
    "member_folder",
    "member_scenario",
    "plan_groups",
    "read_plan",
    "run_sweep",
    "start_sweep",
    "write_results",
]
