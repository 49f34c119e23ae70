"""analyze, plot, animate, view, export, recover: what can be made of a run that is there. JAX is not imported.

Unless a run of a sweep is named that has no folder of its own yet: then it is run first.
"""

from functools import partial
from pathlib import Path
from typing import Any, Literal

from particleflow.cli.console import Meter, note, result, result_json
from particleflow.cli.members import ready
from particleflow.cli.options import Flag, Quiet, Run, Threshold


def analyze(run: Run, /, *, threshold: Threshold = None, json: Flag = False, quiet: Quiet = False) -> int:
    """Count clusters, plateaus, rates and distances of a run, and write them to its summary.json.

    A threshold that is given is kept there, for `plot`, `animate`, `view` and the next `analyze`.

    Parameters
    ----------
    json
        Print the summary as JSON.
    """
    from particleflow import run_folder
    from particleflow.analysis import write_summary
    from particleflow.cli.closing import analysis_lines, stale_line
    from particleflow.folder_contents import SUMMARY_FILE, read_summary, threshold_for
    from particleflow.products import check_extent

    run = ready(run, quiet=quiet)
    folder = run_folder.folder_of(run)
    before = read_summary(folder)
    with run_folder.open_run(run) as trajectory, Meter(quiet=quiet) as meter:
        check_extent(trajectory)
        summary = write_summary(
            trajectory, folder / SUMMARY_FILE, threshold=threshold_for(folder, threshold),
            progress=partial(meter.update, "analysing"),
        )  # fmt: skip
    for line in filter(None, [stale_line(folder, before, summary), *analysis_lines(folder, summary)]):
        note(line, quiet=quiet)
    if json:
        result_json(summary)
    else:
        result(str(folder / SUMMARY_FILE))
    return 0


def plot(
    run: Run,
    /,
    *others: Run,
    output: Path | None = None,
    format: Literal["png", "svg", "pdf"] = "png",
    theme: Literal["light", "dark", "print"] = "light",
    threshold: Threshold = None,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Draw the figures of a run and print their paths; of several runs one figure, particles over densities.

    Parameters
    ----------
    others
        More runs of the same space, drawn over the first one.
    output
        The folder of the figures; figures/ in the run folder if left out, of several runs comparisons/ in the first.
    format
        The format of the files.
    theme
        The colours.
    json
        Print the paths as JSON.
    """
    from particleflow import run_folder

    run = ready(run, quiet=quiet)
    if others:
        together = [run, *(ready(other, quiet=quiet) for other in others)]
        _print_paths([str(_overlay(together, output, format, theme))], json=json)
        return 0
    folder = output or run_folder.folder_of(run) / "figures"
    _headless()
    from particleflow import view

    with run_folder.open_run(run) as trajectory, Meter(quiet=quiet) as meter:
        note(f"drawing into {folder}", quiet=quiet)
        analysis = _track(run, trajectory, threshold, meter)
        progress = partial(meter.update, "drawing")
        paths = view.figures(trajectory, folder, theme=theme, analysis=analysis, format=format, progress=progress)
    _print_paths([str(path) for path in paths], json=json)
    return 0


def animate(
    run: Run,
    /,
    *,
    output: Path | None = None,
    frames: int = 240,
    fps: float = 30.0,
    spacing: Literal["auto", "linear", "log", "arc"] = "auto",
    theme: Literal["light", "dark", "print"] = "dark",
    threshold: Threshold = None,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Make a movie of a run and print its path.

    Parameters
    ----------
    output
        The file, ending in .mp4 or .gif; movie.mp4 in the run folder if left out.
    frames
        How many pictures the movie has.
    fps
        How many pictures are shown in a second.
    spacing
        How the pictures are spread over time.
    theme
        The colours.
    json
        Print the path as JSON.
    """
    from particleflow import run_folder

    run = ready(run, quiet=quiet)
    target = output or run_folder.folder_of(run) / "movie.mp4"
    _headless()
    from particleflow import view
    from particleflow.view.findings import pick, worth_showing

    with run_folder.open_run(run) as trajectory, Meter(quiet=quiet) as meter:
        clusters = worth_showing(trajectory, _track(run, trajectory, threshold, meter))
        path = view.animate(
            trajectory, target, frames=frames, fps=fps, spacing=spacing, theme=theme, colors=trajectory.labels,
            counts=pick(clusters, "counts"), progress=partial(meter.update, "filming"),
        )  # fmt: skip
    _print_paths([str(path)], json=json)
    return 0


def view(
    run: Run,
    /,
    *,
    output: Path | None = None,
    threshold: Threshold = None,
    open: bool = True,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Write the interactive page of a run, print its path, and open it in the browser.

    Parameters
    ----------
    output
        The file; viewer.html in the run folder if left out.
    open
        Open the page.
    json
        Print the path as JSON.
    """
    from particleflow import run_folder
    from particleflow.view import page
    from particleflow.view.findings import worth_showing

    run = ready(run, quiet=quiet)
    target = output or run_folder.folder_of(run) / "viewer.html"
    with run_folder.open_run(run) as trajectory, Meter(quiet=quiet) as meter:
        analysis = worth_showing(trajectory, _track(run, trajectory, threshold, meter)) or False
        path = page(trajectory, target, analysis=analysis, progress=partial(meter.update, "writing the page"))
    _print_paths([str(path)], json=json)
    if open and not json:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            note("No browser was found; open the file yourself.", quiet=quiet)
    return 0


def export(
    run: Run,
    /,
    *,
    to: str,
    member: int | None = None,
    projection: Literal["auto", "pad", "pca"] = "auto",
    json: Flag = False,
) -> int:
    """Write a run in another program's format and print the path.

    Parameters
    ----------
    to
        A format (h5md, gsd, xyz, npz, netcdf), or a file whose ending tells it.
    member
        Which run of an ensemble.
    projection
        How points come to three dimensions where the format asks for them.
    json
        Print the path as JSON.
    """
    from particleflow import run_folder
    from particleflow.store.formats import KINDS
    from particleflow.store.formats import export as write

    run = ready(run)
    with run_folder.open_run(run) as trajectory:
        kind = to if to in KINDS else None
        target = run_folder.folder_of(run) / f"trajectory{KINDS[to]}" if kind else Path(to)
        path = write(trajectory, target, kind, run=member, projection=projection)
    _print_paths([str(path)], json=json)
    return 0


def recover(run: Run, /, *, json: Flag = False) -> int:
    """Make the trajectory of a killed or damaged run an ordinary file again.

    Parameters
    ----------
    json
        Print what was done as JSON.
    """
    from particleflow import run_folder
    from particleflow.store import recover as rebuild

    run_folder.folder_of(run)
    report = rebuild(run)
    if json:
        result_json({**vars(report), "path": str(report.path), "kept": report.kept and str(report.kept)})
    else:
        result(str(report))
    return 0


def _track(run: Path, trajectory: Any, threshold: float | str | None, meter: Meter) -> Any:
    """The clusters of a run at the threshold that was asked for, or that is kept in its folder."""
    from particleflow import run_folder
    from particleflow.folder_contents import threshold_for
    from particleflow.products import track

    distance = threshold_for(run_folder.folder_of(run), threshold)
    return track(trajectory, distance, partial(meter.update, "finding clusters"))


def _overlay(runs: list[Path], output: Path | None, format: str, theme: str) -> Path:
    """Draw several runs over each other into a file of the folder of comparisons, and return its path."""
    from contextlib import ExitStack

    from particleflow import run_folder
    from particleflow._files import refuse_link
    from particleflow.cli.commands_compare import COMPARISONS_FOLDER, run_labels, safe_label

    folders = [run_folder.folder_of(run) for run in runs]
    labels = run_labels(folders)
    own = folders[0] / COMPARISONS_FOLDER
    refuse_link(own)
    folder = output or own
    _headless()
    from particleflow import view
    from particleflow.view.drawing.saving import save_figure

    with ExitStack() as open_files, view.style.use(theme):
        found = {
            name: open_files.enter_context(run_folder.open_run(run)) for name, run in zip(labels, runs, strict=True)
        }
        axes = view.overlay(found)
        folder.mkdir(parents=True, exist_ok=True)
        return save_figure(axes[0].figure, folder / f"over-{safe_label(labels[-1])}.{format}")


def _headless() -> None:
    import matplotlib as mpl

    mpl.use("Agg")


def _print_paths(paths: list[str], *, json: bool) -> None:
    if json:
        result_json({"paths": paths})
        return
    for path in paths:
        result(path)
