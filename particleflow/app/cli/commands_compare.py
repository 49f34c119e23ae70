"""The command compare: two runs side by side. JAX is not imported."""

from collections.abc import Sequence
from pathlib import Path

from particleflow._support.text import printable
from particleflow.app.cli.console import note, result, result_json
from particleflow.app.cli.options import Flag, Quiet, Run

COMPARISONS_FOLDER = "comparisons"
_WIDEST = 48


def compare(first: Run, second: Run, /, *, output: Path | None = None, json: Flag = False, quiet: Quiet = False) -> int:
    """Show how the scenarios of two runs differ, and draw what both recorded into one picture.

    The lines are key, value in the first run and value in the second; the last line is the path of the picture.

    Parameters
    ----------
    output
        The picture, ending in .png, .svg or .pdf; comparisons/OTHER.png in the folder of the first run if left out.
    json
        Print differences and path as JSON.
    """
    from particleflow._support.files import refuse_link
    from particleflow.app.runs import run_folder
    from particleflow.app.runs.comparison import draw_comparison, scenario_differences, scenario_of

    folders = (run_folder.folder_of(first), run_folder.folder_of(second))
    with run_folder.open_run(first) as one, run_folder.open_run(second) as other:
        labels = run_labels(folders)
        scenarios = (scenario_of(one, folders[0]), scenario_of(other, folders[1]))
        found = scenario_differences(*scenarios)
        own = folders[0] / COMPARISONS_FOLDER
        refuse_link(own)
        target = output or own / f"{safe_label(labels[1])}.png"
        path = draw_comparison((one, other), folders, (labels[0], labels[1]), target)
    if json:
        rows = [{"key": key, "first": a, "second": b} for key, a, b in found]
        result_json({"differences": rows, "path": str(path)})
        return 0
    if not found:
        note("The scenarios are the same." if any(scenarios) else "Neither run has a scenario.", quiet=quiet)
    _print_table([("", labels[0], labels[1]), *found] if found else [])
    result(str(path))
    return 0


def run_labels(folders: Sequence[Path]) -> list[str]:
    """A different name for each run, SCENARIO/NUMBER from its folder; titles could be the same."""
    names = [f"{folder.resolve().parent.name}/{folder.resolve().name}" for folder in folders]
    return [f"{name} ({place})" if names.count(name) > 1 else name for place, name in enumerate(names, 1)]


def safe_label(label: str) -> str:
    """A label as the name of a file."""
    from particleflow.app.scenario.scenario import safe_name

    return safe_name(label.replace("/", "-"))


def _print_table(rows: list[tuple[str, str, str]]) -> None:
    """Print three aligned columns, each value cut to a width that fits beside the others."""
    cells = [[printable(cell if len(cell) <= _WIDEST else cell[: _WIDEST - 1] + "…") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(3)] if cells else []
    for row in cells:
        result("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
