"""The commands list, runs, info and schema, which show what exists and run nothing.

Only `schema` and `info --system` import JAX.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow._support.text import duration, plural, printable
from particleflow.app.cli.console import note, result, result_json
from particleflow.app.cli.options import Flag
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory


_LISTED_WORDS = 100


def runs(folder: Path = Path("outputs"), /, *, json: Flag = False) -> int:
    """List the runs and sweeps in a folder: path, status, frames and title of each.

    Parameters
    ----------
    folder
        A folder of runs, such as outputs or outputs/SCENARIO.
    json
        Print them as JSON.
    """
    from particleflow.app.runs import run_folder

    return _list_runs(run_folder.folder_of(folder), json=json)


def _list_runs(folder: Path, *, json: bool) -> int:
    """Print one aligned line for each run and sweep in a folder, or for the folder itself if it is one."""
    from particleflow.app.runs.folder_contents import entry_of, is_run, runs_in

    found = [entry_of(each) for each in ([folder] if is_run(folder) else runs_in(folder))]
    if json:
        result_json([each.to_dict() for each in found])
        return 0
    if not found:
        note(f"There is no run in {folder}.")
    rows = [(each.path, each.status, "" if each.frames is None else plural(each.frames, "frame")) for each in found]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for row, each in zip(rows, found, strict=True):
        columns = [f"{text:<{width}}" for text, width in zip(row, widths, strict=True)]
        result(printable("  ".join([*columns, each.title[:120]])).rstrip())
    return 0


def info(run: Path | None = None, /, *, system: Flag = False, json: Flag = False) -> int:
    """Show what a run, a sweep or a folder of runs holds, or the versions and devices on this machine.

    Parameters
    ----------
    run
        The folder of a run, of a sweep or of several runs, or a trajectory file.
    system
        Show versions, device and native code of this machine instead.
    json
        Print it as JSON.
    """
    from particleflow.app.cli.run_card import run_rows
    from particleflow.app.runs import run_folder
    from particleflow.app.runs.folder_contents import is_run, runs_in

    if (run is None) != system:
        raise UserError("Name a run folder or its trajectory file, or give --system; one of the two.")
    if run is None:
        return _system_info(json=json)
    folder = run_folder.folder_of(run)
    if run.is_dir() and (folder / run_folder.MANIFEST_FILE).is_file():
        return _sweep_info(folder, json=json)
    if run.is_dir() and not is_run(folder) and any(True for _ in runs_in(folder)):
        return _list_runs(folder, json=json)
    with run_folder.open_run(run) as trajectory:
        if json:
            result_json(_run_facts(trajectory, folder))
        else:
            result(str(trajectory))
            for heading, rows in run_rows(trajectory, folder).items():
                result(heading)
                _print_rows(rows)
    return 0


def _run_facts(trajectory: "Trajectory", folder: Path) -> dict[str, Any]:
    """What `info --json` prints of a run: extent, status, observables, parameters, clusters and products."""
    from particleflow.app.cli.run_card import cluster_facts, parameters
    from particleflow.app.runs.folder_contents import product_notes, products_in
    from particleflow.trajectory.words import distinct

    return {
        "path": trajectory.path,
        "title": trajectory.metadata.get("title"),
        "status": trajectory.status,
        "message": trajectory.metadata.get("message"),
        "frames": len(trajectory),
        "particles": trajectory.count,
        "dimension": trajectory.dimension,
        "runs": trajectory.runs,
        "times": [float(trajectory.times[0]), float(trajectory.times[-1])] if len(trajectory) else [],
        "observables": list(trajectory.observables),
        "words": None if trajectory.words is None else distinct(trajectory.words.ravel().tolist())[:_LISTED_WORDS],
        "dtype": str(trajectory.points.dtype),
        "parameters": parameters(trajectory),
        "clusters": cluster_facts(folder),
        "products": products_in(folder),
        "product_notes": product_notes(folder, len(trajectory)),
        **{name: trajectory.metadata.get(name) for name in ("geometry", "seed", "versions", "statistics", "device")},
    }


def _system_info(*, json: bool) -> int:
    """Print versions, device and native code; builds the native sum if it has not been built yet."""
    import os
    import platform
    from importlib.metadata import version

    from particleflow._support.compilation_cache import cache_folder
    from particleflow.app.cli.device import prepare

    device = prepare()
    from particleflow.summation.native.build import library

    native = library(note)
    facts = {
        "particleflow": version("particleflow"),
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "jaxlib", "diffrax", "numpy", "h5py")},
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "device": device,
        "compiled programs": str(cache_folder()),
        "native sum": str(native.path or "none"),
        "native sum because": native.reason,
    }
    if json:
        result_json(facts)
    else:
        _print_rows(facts, indent="")
    return 0


def _print_rows(rows: dict[str, Any], indent: str = "  ") -> None:
    """Print names and values in two columns."""
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        result(printable(f"{indent}{name:<{width}}  {value}"))


def _sweep_info(folder: Path, *, json: bool) -> int:
    """Print the keys of a sweep, how many of its runs are in each state, its workers, and its products."""
    from particleflow.app.runs.folder_contents import SWEEP_PRODUCTS, runs_in
    from particleflow.app.sweep.manifest import Manifest
    from particleflow.app.sweep.time_left import seconds_left

    manifest = Manifest.open(folder)
    states, workers = manifest.states(), manifest.workers()
    made = [name for name in SWEEP_PRODUCTS if (folder / name).is_file()]
    facts = {"path": str(folder), "title": manifest.title, "keys": manifest.keys, "runs": len(manifest.runs), **states}
    if workers:
        facts["workers"] = [holder.worker for holder in workers.values()]
        left = seconds_left(manifest, len(workers))
        facts["time left"] = left if json else "not known yet" if left is None else f"about {duration(left)}"
    facts |= {"replayed": [each.name for each in runs_in(folder, depth=1)], "products": made}
    if json:
        result_json(facts)
        return 0
    result(printable(manifest.title)[:200])
    for name, value in facts.items():
        if name != "title":
            shown = ", ".join(value) or "none" if isinstance(value, list) else value
            result(printable(f"  {name:<12} {shown}"))
    return 0


def schema() -> int:
    """Print the JSON Schema of scenario files, for completion in editors."""
    from particleflow.app.cli.device import prepare
    from particleflow.app.scenario.schema import json_schema

    prepare()
    result_json(json_schema())
    return 0
