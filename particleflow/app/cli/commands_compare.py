"""The command compare: two runs side by side. JAX is not imported."""

from pathlib import Path

from particleflow._support.text import printable
from particleflow.app.cli.console import fitted, note, result, result_json
from particleflow.app.cli.options import Flag, Quiet, Run

COMPARISONS_FOLDER = "comparisons"
_WIDEST = 48


def compare(first: Run, second: Run, /, *, output: Path | None = None, json: Flag = False, quiet: Quiet = False) -> int:
    """Show how the scenarios of two runs differ, and draw what both recorded into one picture.

    The lines are key, value in the first run and value in the second, without the [output] tables; the last line is the
    path of the picture, in which runs are named by what differs.

    Parameters
    ----------
    output
        The picture, ending in .png, .svg or .pdf; comparisons/OTHER.png in the folder of the first run if left out.
    json
        Print differences and path as JSON.
    """
    from particleflow._support.files import refuse_link
    from particleflow.app.runs import run_folder
    from particleflow.app.runs.comparison import (
        draw_comparison,
        folder_names,
        input_differences,
        run_names,
        scenario_differences,
        scenario_of,
    )

    folders = (run_folder.folder_of(first), run_folder.folder_of(second))
    with run_folder.open_run(first) as one, run_folder.open_run(second) as other:
        labels = folder_names(folders)
        scenarios = (scenario_of(one, folders[0]), scenario_of(other, folders[1]))
        found = [*scenario_differences(*scenarios), *input_differences(folders)]
        own = folders[0] / COMPARISONS_FOLDER
        refuse_link(own)
        target = output or own / f"{safe_label(labels[1])}.png"
        first_name, second_name = run_names(folders, scenarios)
        path = draw_comparison((one, other), folders, (first_name, second_name), target)
    if json:
        rows = [{"key": key, "first": a, "second": b} for key, a, b in found]
        result_json({"differences": rows, "path": str(path)})
        return 0
    if not found:
        note("The scenarios are the same." if any(scenarios) else "Neither run has a scenario.", quiet=quiet)
    _print_table([("", labels[0], labels[1]), *found] if found else [])
    result(str(path))
    return 0


def safe_label(label: str) -> str:
    """A label as the name of a file."""
    from particleflow.app.scenario.scenario import safe_name

    return safe_name(label.replace("/", "-"))


def _print_table(rows: list[tuple[str, str, str]]) -> None:
    """Print three aligned columns, on a terminal each value cut to a width that fits beside the others."""
    cells = [[printable(fitted(cell, _WIDEST)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(3)] if cells else []
    for row in cells:
        result("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
