"""Pictures of a trajectory: figures, animations and the interactive page. Nothing here imports JAX.

Every plot takes a trajectory (or plain arrays) and an optional `ax`, and returns the axes. Names are imported when they
are first used, so that importing the package costs nothing.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from particleflow.view import style
    from particleflow.view.animate_movie import animate
    from particleflow.view.figures_compare import compare
    from particleflow.view.figures_fields import density, density_profiles, regression
    from particleflow.view.figures_matrices import attention, gram, similarity
    from particleflow.view.figures_paths import kymograph, paths
    from particleflow.view.figures_phase import phase_diagram, sweep_grid
    from particleflow.view.figures_series import cluster_count, energy, observable, staircase
    from particleflow.view.figures_set import figures
    from particleflow.view.figures_snapshots import snapshot, snapshots
    from particleflow.view.figures_tree import kymograph_with_tree, merge_tree
    from particleflow.view.page import write_page as page
    from particleflow.view.resample import resample

_HOMES = {
    "animate": "animate_movie.animate",
    "attention": "figures_matrices.attention",
    "cluster_count": "figures_series.cluster_count",
    "compare": "figures_compare.compare",
    "density": "figures_fields.density",
    "density_profiles": "figures_fields.density_profiles",
    "energy": "figures_series.energy",
    "figures": "figures_set.figures",
    "gram": "figures_matrices.gram",
    "kymograph": "figures_paths.kymograph",
    "kymograph_with_tree": "figures_tree.kymograph_with_tree",
    "merge_tree": "figures_tree.merge_tree",
    "observable": "figures_series.observable",
    "page": "page.write_page",
    "paths": "figures_paths.paths",
    "phase_diagram": "figures_phase.phase_diagram",
    "regression": "figures_fields.regression",
    "resample": "resample.resample",
    "similarity": "figures_matrices.similarity",
    "snapshot": "figures_snapshots.snapshot",
    "snapshots": "figures_snapshots.snapshots",
    "staircase": "figures_series.staircase",
    "sweep_grid": "figures_phase.sweep_grid",
}

__all__ = [
    "animate",
    "attention",
    "cluster_count",
    "compare",
    "density",
    "density_profiles",
    "energy",
    "figures",
    "gram",
    "kymograph",
    "kymograph_with_tree",
    "merge_tree",
    "observable",
    "page",
    "paths",
    "phase_diagram",
    "regression",
    "resample",
    "similarity",
    "snapshot",
    "snapshots",
    "staircase",
    "style",
    "sweep_grid",
]


class _View(ModuleType):
    """The package as a module whose functions `page` and `resample` are not replaced by the files of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _HOMES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _View


def __getattr__(name: str) -> Any:
    if name == "style":
        return import_module("particleflow.view.style")
    if name in _HOMES:
        module, function = _HOMES[name].split(".")
        return getattr(import_module(f"particleflow.view.{module}"), function)
    raise AttributeError(f"module 'particleflow.view' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
