"""list, info, schema: what there is, without running anything (and, but for the schema, without JAX)."""

from pathlib import Path
from typing import Any

from particleflow.cli.console import printable, result, result_json
from particleflow.cli.options import Flag
from particleflow.errors import UserError


def list_(*, json: Flag = False) -> int:
    """List the scenarios that come with particleflow.

    Parameters
    ----------
    json
        Print name, title, first comment and path of each as JSON.
    """
    from particleflow.scenario import describe, shipped

    found = [describe(path) for path in shipped().values()]
    if json:
        result_json(found)
        return 0
    width = max((len(each["name"]) for each in found), default=0)
    for each in found:
        mark = " (sweep)" if each["sweep"] else ""
        result(f"{each['name']:<{width}}  {printable(each['title'])[:120]}{mark}")
    return 0


def info(run: Path | None = None, /, *, system: Flag = False, json: Flag = False) -> int:
    """Show what is in a run folder, a trajectory file or a sweep, or what this machine computes with.

    Parameters
    ----------
    run
        The folder of a run or of a sweep, or a trajectory file.
    system
        Show versions, device and native code of this machine instead.
    json
        Print it as JSON.
    """
    from particleflow import run_folder

    if (run is None) != system:
        raise UserError("Name a run folder or its trajectory file, or give --system; one of the two.")
    if run is None:
        return _system_info(json=json)
    folder = run_folder.folder_of(run)
    if run.is_dir() and (folder / run_folder.MANIFEST_FILE).is_file():
        return _sweep_info(folder, json=json)
    with run_folder.open_run(run) as trajectory:
        if not json:
            result(str(trajectory))
            return 0
        facts: dict[str, Any] = {
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
            "dtype": str(trajectory.points.dtype),
            **{
                name: trajectory.metadata.get(name) for name in ("geometry", "seed", "versions", "statistics", "device")
            },
        }
        result_json(facts)
    return 0


def _system_info(*, json: bool) -> int:
    """What sums and solvers run on; builds the native sum, if that has not been done yet."""
    import os
    import platform
    from importlib.metadata import version

    from particleflow.cli.console import note
    from particleflow.cli.device import prepare
    from particleflow.compilation_cache import cache_folder

    device = prepare()
    from particleflow.summation.native import library

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
        return 0
    width = max(map(len, facts))
    for name, value in facts.items():
        result(printable(f"{name:<{width}}  {value}"))
    return 0


def _sweep_info(folder: Path, *, json: bool) -> int:
    from particleflow.sweep.manifest import Manifest

    manifest = Manifest.open(folder)
    states = manifest.states()
    facts = {"path": str(folder), "title": manifest.title, "keys": manifest.keys, "runs": len(manifest.runs), **states}
    if json:
        result_json(facts)
        return 0
    result(printable(manifest.title)[:200])
    for name, value in facts.items():
        if name != "title":
            result(printable(f"  {name:<12} {', '.join(value) if isinstance(value, list) else value}"))
    return 0


def schema() -> int:
    """Print the JSON Schema of scenario files, for completion in editors."""
    from particleflow._schema import json_schema
    from particleflow.cli.device import prepare

    prepare()
    result_json(json_schema())
    return 0
