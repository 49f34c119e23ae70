"""The part of `info` below the card of a trajectory: parameters, clusters and products, from files alone.

Everything here is read from metadata of unknown origin: values are checked before they are shown.
"""

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow.analysis.density.cells import is_density
from particleflow.app.cli.closing_lines import clusters_line, threshold_line, words_line
from particleflow.app.runs.folder_contents import product_notes, products_in, read_summary

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_SETTINGS = ("seed", "geometry", "precision", "solver", "rtol", "atol", "step")


def parameters(run: "Trajectory") -> dict[str, Any]:
    """The settings that decide a run, as far as its file holds them; `chosen` are those that the user left open."""
    metadata = run.metadata
    kernels = [
        {"kind": each.kind, "beta": each.beta, "normalization": each.normalization, "positional": each.positional}
        for each in run.facts.interactions
    ]
    chosen = metadata.get("chosen")
    settings = {name: _plain(metadata.get(name)) for name in _SETTINGS}
    return {
        "kernels": kernels,
        "particles": run.count,
        "dimension": run.dimension,
        **settings,
        "solver in some windows": _plain(metadata.get("solver in some windows")),
        "chosen": {str(key): _plain(value) for key, value in chosen.items()} if isinstance(chosen, dict) else {},
    }


def _plain(value: Any) -> Any:
    """A number or a text from a file; whatever else it may hold becomes text."""
    is_plain = value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else str(value)


def parameter_rows(found: dict[str, Any]) -> dict[str, str]:
    """The parameters of a run in words, by name, without those that are not known; equal kernels are counted."""
    kernels = Counter(_kernel(each) for each in found["kernels"])
    rows = {"kernel": "; ".join(text if count == 1 else f"{count} × {text}" for text, count in kernels.items())}
    rows["n, d"] = f"{found['particles']}, {found['dimension']}"
    rows |= {name: str(found[name]) for name in ("seed", "geometry", "precision") if found[name] is not None}
    rows["solver"] = _solver(found)
    return {name: text for name, text in rows.items() if text}


def _kernel(kernel: dict[str, Any]) -> str:
    """A kernel in words: "attention, β = 4, normalization row, times causal"."""
    beta = kernel["beta"]
    parts = [kernel["kind"] or "unknown", None if beta is None else f"β = {beta:g}"]
    parts += [kernel["normalization"] and f"normalization {kernel['normalization']}"]
    parts += [kernel["positional"] and f"times {kernel['positional']}"]
    return ", ".join(part for part in parts if part)


def _solver(found: dict[str, Any]) -> str:
    """The solver, and another one that some windows may take, with the step if that is fixed, else with tolerances."""
    names = ("step",) if found["step"] else ("rtol", "atol")
    numbers = [f"{name} = {found[name]:g}" for name in names if isinstance(found[name], int | float)]
    other = found.get("solver in some windows")
    solver = str(found["solver"] or "") + (f" or {other}, window by window" if other else "")
    return ", ".join(filter(None, [solver, *numbers]))


def cluster_facts(folder: Path) -> dict[str, Any] | None:
    """The clusters in the summary of a run, in words and as numbers; None without a summary."""
    summary = read_summary(folder)
    line = clusters_line(summary)
    if summary is None or line is None:
        return None
    clusters = summary.get("clusters") or summary.get("peaks") or {}
    counts = {name: clusters.get(name) for name in ("initial_count", "final_count")}
    return {"found": line, "threshold": threshold_line(summary), "words": words_line(summary), **counts}


def run_rows(run: "Trajectory", folder: Path) -> dict[str, dict[str, str]]:
    """The rows of `info` below the card of a trajectory: heading → name → words."""
    clusters = cluster_facts(folder)
    kind, rule = ("peaks", "rule") if is_density(run) else ("clusters", "threshold")
    found = {} if clusters is None else {kind: clusters["found"], rule: clusters["threshold"] or "unknown"}
    if clusters is not None and clusters["words"]:
        found["words"] = clusters["words"]
    notes = product_notes(folder, len(run))
    files = [f"{file} ({notes[name]})" if name in notes else file for name, file in products_in(folder).items()]
    products = ", ".join(files) or "none"
    return {"Parameters": parameter_rows(parameters(run)), "Results": {**found, "products": products}}
