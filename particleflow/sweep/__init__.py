"""Sweeps: one scenario over many values of its keys."""

from particleflow.sweep.execute import run_sweep, start_sweep
from particleflow.sweep.expand import SweepPlan, expand, read_plan
from particleflow.sweep.manifest import Manifest
from particleflow.sweep.results import draw_phase_diagram, write_results

__all__ = [
    "Manifest",
    "SweepPlan",
    "draw_phase_diagram",
    "expand",
    "read_plan",
    "run_sweep",
    "start_sweep",
    "write_results",
]
