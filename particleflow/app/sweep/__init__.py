"""Sweeps: one scenario over many values of its keys.

sweep_plan      the [sweep] table, read once, and the values of every run; member_builder builds the runs
sweep_driver    runs a planned sweep in its folder and makes its table and figures; all entry points call it
sweep_result    `particleflow.sweep`, and the results of a sweep as tables and arrays
execute         groups of runs that compile to one program, run one after the other under leases; `groups` are their
                files, group_simulation what is computed of each
manifest        the state of every run, on disk
workers         a worker, one of many that share a sweep by `leases`; local_workers starts some, slurm an array of them
results         one table of all results; sweep_figures draws it
replay          one run of a sweep as a run of its own
"""

from particleflow.app.sweep.execute import plan_groups, run_sweep, start_sweep
from particleflow.app.sweep.manifest import Manifest
from particleflow.app.sweep.replay import member_folder, member_scenario, member_values
from particleflow.app.sweep.results import write_results
from particleflow.app.sweep.sweep_driver import complete, new_sweep
from particleflow.app.sweep.sweep_figures import draw_figures
from particleflow.app.sweep.sweep_plan import SweepPlan, plan_sweep

__all__ = [
    "Manifest",
    "SweepPlan",
    "complete",
    "draw_figures",
    "member_folder",
    "member_scenario",
    "member_values",
    "new_sweep",
    "plan_groups",
    "plan_sweep",
    "run_sweep",
    "start_sweep",
    "write_results",
]
