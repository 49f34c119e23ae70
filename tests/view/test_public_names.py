"""The public names of `particleflow.view`: functions in whichever order files are imported, and nothing before use."""

import json
import os
import pkgutil
import random
import subprocess
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType

import pytest

import particleflow

NAMES = [
    "Camera",
    "animate",
    "approach",
    "attention",
    "attention_ranks",
    "block_ranks",
    "branches",
    "camera_of",
    "cluster_count",
    "compare",
    "covariance",
    "data_field",
    "density",
    "density_map",
    "density_profiles",
    "depth_figure",
    "depth_of_run",
    "eigenvalues",
    "energy",
    "feature_convergence",
    "figure_names",
    "figures",
    "fit",
    "fitted_values",
    "fixed_point",
    "gram",
    "growth_rates",
    "heads",
    "heat_profiles",
    "hysteresis",
    "kymograph",
    "kymograph_with_tree",
    "local_mean_graph",
    "merge_tree",
    "modes",
    "nearest_neighbours",
    "notebook_card",
    "observable",
    "overlay",
    "page",
    "particle_density",
    "patches_before_and_after",
    "paths",
    "peaks",
    "phase_diagram",
    "picture",
    "profiles",
    "query_key_value",
    "recall",
    "regression",
    "resample",
    "schedule",
    "similarity",
    "smoothers",
    "snapshot",
    "snapshots",
    "staircase",
    "style",
    "sweep_grid",
    "values_on_places",
    "weight_maps",
]
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(particleflow.view.__path__, f"{particleflow.view.__name__}.")
)
ORDERS = {
    "by name": MODULES,
    "backwards": MODULES[::-1],
    "shuffled": random.Random(0).sample(MODULES, len(MODULES)),
    "folders alone": [module for module in MODULES if module.count(".") == 2],
    "none": [],
}
REPORT = """
import importlib, json, sys
view = importlib.import_module("particleflow.view")
for module in {modules!r}:
    importlib.import_module(module)
kinds = {{name: type(getattr(view, name)).__name__ for name in dir(view)}}
print(json.dumps([type(view).__name__, kinds]))
"""


def python(code: str, **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def check_names(modules: Iterable[str], **environment: str) -> None:
    """A fresh interpreter that has imported these files finds functions under all names but `style`."""
    package, kinds = json.loads(python(REPORT.format(modules=list(modules)), **environment))
    assert package == "module", "the package must be a plain module"
    assert kinds == {name: {"style": "module", "Camera": "type"}.get(name, "function") for name in NAMES}


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_functions_stay_functions_in_every_order_of_imports(order):
    check_names(ORDERS[order])


@pytest.mark.slow
def test_names_can_all_be_imported_at_once():
    check_names(MODULES, EAGER_IMPORT="1")


def test_functions_do_their_work_after_every_file_is_imported(tmp_path):
    for module in MODULES:
        __import__(module)
    view = particleflow.view
    run = particleflow.Trajectory.from_arrays([0.0, 1.0, 2.0], [[[0.0], [1.0]], [[0.2], [0.8]], [[0.5], [0.5]]])
    assert view.resample(run, 5, "linear").times.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert view.page(run, tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert {path.name for path in view.figures(run, tmp_path)} >= {"snapshots.png", "kymograph.png"}


def test_a_name_leads_to_the_function_of_that_name():
    for name in set(NAMES) - {"style", "Camera"}:
        found = getattr(particleflow.view, name)
        assert isinstance(found, FunctionType)
        assert found.__name__ == name
    assert isinstance(particleflow.view.style, ModuleType)
    with pytest.raises(AttributeError, match="nothing"):
        particleflow.view.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_no_file_has_the_name_of_a_function():
    files = {module.name for module in pkgutil.iter_modules(particleflow.view.__path__)}
    assert files & set(NAMES) == {"style"}


def test_importing_the_package_imports_nothing_heavy():
    loaded = python("import sys, particleflow.view; print(*sys.modules)").split()
    assert not {name.split(".")[0] for name in loaded} & {"numpy", "scipy", "matplotlib", "h5py", "PIL", "jax"}
