"""The commands analyze, plot, animate, view, export and recover, which make products from a stored run.

JAX is not imported, with one exception: a run of a sweep that has no folder of its own yet is run first.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from particleflow.app.cli.console import Meter, note, result, result_json
from particleflow.app.cli.options import Dpi, Flag, Format, Only, Quiet, Run, Size, ThemeOption, Threshold
from particleflow.app.cli.sweep_members import ready
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.sweep.sweep_figures import Look


def analyze(run: Run, /, *, threshold: Threshold = None, json: Flag = False, quiet: Quiet = False) -> int:
    """Count clusters, plateaus, rates and distances of a run, and write them to its summary.json.

    A threshold that is given is kept in the summary, for `plot`, `animate`, `view` and the next `analyze`.

    Parameters
    ----------
    json
        Print the summary as JSON.
    """
    from particleflow.analysis import write_summary
    from particleflow.app.cli.closing_lines import analysis_lines, stale_line
    from particleflow.app.runs import run_folder
    from particleflow.app.runs.extent import check_extent
    from particleflow.app.runs.folder_contents import SUMMARY_FILE, read_summary, threshold_for

    run = ready(run, quiet=quiet)
    folder = run_folder.folder_of(run)
    before = read_summary(folder)
    with run_folder.open_run(run) as trajectory, Meter(quiet=quiet) as meter:
        check_extent(trajectory)
        summary = write_summary(
            trajectory, folder / SUMMARY_FILE, threshold=threshold_for(folder, threshold),
            progress=meter.stage("analysing"),
        )  # fmt: skip
        frames = len(trajectory)
    for line in filter(None, [stale_line(folder, before, summary), *analysis_lines(folder, summary, frames)]):
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
    only: Only = [],  # noqa: B006
    output: Path | None = None,
    format: Format = "png",
    theme: ThemeOption = "light",
    size: Size = None,
    dpi: Dpi = None,
    threshold: Threshold = None,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Draw the figures of a run or of a sweep, or one figure of several runs over each other, and print their paths.

    The path of the lead picture comes first.

    Parameters
    ----------
    others
        More runs of the same space, drawn over the first one.
    output
        The folder of the figures; if left out, figures/ in the run folder, or comparisons/ in that of the first run.
    json
        Print the paths as JSON.
    """
    from particleflow.app.runs import run_folder
    from particleflow.app.sweep.sweep_figures import Look

    run, look = ready(run, quiet=quiet), Look(theme, format, size, dpi, output)
    if others or _is_sweep(run):
        _refuse(["--only"] if only else [], ["--threshold"] if threshold is not None else [])
        _headless()
        together = [run, *(ready(other, quiet=quiet) for other in others)]
        paths = [_overlay(together, look)] if others else _of_sweep(run, look)
        _print_paths([str(path) for path in paths], json=json)
        return 0
    folder = output or run_folder.folder_of(run) / "figures"
    _headless()
    from particleflow import view

    with run_folder.open_run(run) as trajectory, Meter(quiet=quiet) as meter:
        note(f"drawing into {folder}", quiet=quiet)
        analysis = _track(run, trajectory, threshold, meter)
        progress = meter.stage("drawing")
        wanted = only[0] if only == ["all"] else only or None
        paths = view.figures(
            trajectory, folder, only=wanted, theme=theme, analysis=analysis or False, format=format, size=size,
            dpi=dpi, progress=progress,
        )  # fmt: skip
    _print_paths([str(path) for path in paths], json=json)
    return 0


def animate(
    run: Run,
    /,
    *,
    output: Path | None = None,
    frames: int = 240,
    fps: float = 30.0,
    spacing: Literal["motion", "linear", "log", "arc"] = "motion",
    trail: float = 0.5,
    theme: ThemeOption = "dark",
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
        How the pictures are spread over time: by what moves, slower at merges, with rest in a fifth of the movie at
        most; or evenly in time, in log time, or in the distance moved.
    trail
        How many seconds of the movie the trails behind particles reach back; 0 for none.
    json
        Print the path as JSON.
    """
    from particleflow.app.runs import run_folder

    run = ready(run, quiet=quiet)
    target = output or run_folder.folder_of(run) / "movie.mp4"
    _headless()
    from particleflow import view
    from particleflow.view.findings import pick, worth_showing

    with run_folder.open_run(run) as trajectory, Meter(quiet=quiet) as meter:
        clusters = worth_showing(trajectory, _track(run, trajectory, threshold, meter))
        path = view.animate(
            trajectory, target, frames=frames, fps=fps, spacing=spacing, trail=trail, theme=theme,
            colors=trajectory.labels, counts=pick(clusters, "counts"), progress=meter.stage("filming"),
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

    The page opens playing, unless your system asks for less motion.

    Parameters
    ----------
    output
        The file; viewer.html in the run folder if left out.
    open
        Open the page.
    json
        Print the path as JSON.
    """
    from particleflow.app.runs import run_folder
    from particleflow.view import page
    from particleflow.view.findings import worth_showing

    run = ready(run, quiet=quiet)
    target = output or run_folder.folder_of(run) / "viewer.html"
    with run_folder.open_run(run) as trajectory, Meter(quiet=quiet) as meter:
        analysis = worth_showing(trajectory, _track(run, trajectory, threshold, meter)) or False
        path = page(trajectory, target, analysis=analysis, progress=meter.stage("writing the page"))
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
        A format (h5md, gsd, xyz, npz, netcdf), or a file whose ending says which.
    member
        Which run of an ensemble.
    projection
        How points get three dimensions where the format requires them: pad with zeros, or principal components.
    json
        Print the path as JSON.
    """
    from particleflow.app.runs import run_folder
    from particleflow.trajectory.export.formats import KINDS
    from particleflow.trajectory.export.formats import export as write

    run = ready(run)
    with run_folder.open_run(run) as trajectory:
        kind = to if to in KINDS else None
        target = run_folder.folder_of(run) / f"trajectory{KINDS[to]}" if kind else Path(to)
        path = write(trajectory, target, kind, run=member, projection=projection)
    _print_paths([str(path)], json=json)
    return 0


def recover(run: Run, /, *, json: Flag = False) -> int:
    """Repair the trajectory file of a run that was killed or damaged.

    Parameters
    ----------
    json
        Print what was done as JSON.
    """
    from particleflow.app.runs import run_folder
    from particleflow.trajectory.store import recover as rebuild

    run_folder.folder_of(run)
    report = rebuild(run)
    if json:
        result_json({**vars(report), "path": str(report.path), "kept": report.kept and str(report.kept)})
    else:
        result(str(report))
    return 0


def _track(run: Path, trajectory: Any, threshold: float | str | None, meter: Meter) -> Any:
    """The clusters of a run at the given threshold, or at the one that is kept in its folder."""
    from particleflow.app.runs import run_folder
    from particleflow.app.runs.folder_contents import threshold_for
    from particleflow.app.runs.run_outputs import track

    distance = threshold_for(run_folder.folder_of(run), threshold)
    return track(trajectory, distance, meter.stage("finding clusters"))


def _is_sweep(run: Path) -> bool:
    """Whether a path is the folder of a sweep."""
    from particleflow.app.runs import run_folder

    return run.is_dir() and (run_folder.folder_of(run) / run_folder.MANIFEST_FILE).is_file()


def _refuse(*options: list[str]) -> None:
    """Raise where options of a single run's figures are given for a sweep or for several runs."""
    named = [name for names in options for name in names]
    if named:
        raise UserError(
            f"{' and '.join(named)} is for the figures of one run; leave it out for a sweep or several runs."
        )


def _of_sweep(folder: Path, look: "Look") -> list[Path]:
    """Draw the figures of a sweep again, from what its finished runs left."""
    from particleflow.app.sweep.manifest import Manifest
    from particleflow.app.sweep.sweep_figures import draw_figures

    paths = draw_figures(Manifest.open(folder), look)
    if not paths:
        raise UserError(f"{folder} has nothing to draw: its finished runs differ in no key, or in more than two.")
    return paths


def _overlay(runs: list[Path], look: "Look") -> Path:
    """Draw several runs over each other, particles over densities, and return the path of the picture."""
    from contextlib import ExitStack

    from particleflow._support.files import refuse_link
    from particleflow.app.cli.commands_compare import COMPARISONS_FOLDER, safe_label
    from particleflow.app.runs import run_folder
    from particleflow.app.runs.comparison import folder_names, run_names, scenario_of

    folders = [run_folder.folder_of(run) for run in runs]
    own = folders[0] / COMPARISONS_FOLDER
    refuse_link(own)
    folder = look.folder or own
    from particleflow import view
    from particleflow.view.plots.saving import save_figure

    with ExitStack() as open_files, view.style.use(view.style.sized(look.theme, look.size, look.dpi)):
        found = [open_files.enter_context(run_folder.open_run(run)) for run in runs]
        names = run_names(folders, [scenario_of(run, folder) for run, folder in zip(found, folders, strict=True)])
        axes = view.overlay(dict(zip(names, found, strict=True)))
        folder.mkdir(parents=True, exist_ok=True)
        return save_figure(
            axes[0].figure, folder / f"over-{safe_label(folder_names(folders)[-1])}.{look.format}", look.dpi
        )


def _headless() -> None:
    """Let matplotlib draw into files only: the command line opens no window."""
    import matplotlib as mpl

    mpl.use("Agg")


def _print_paths(paths: list[str], *, json: bool) -> None:
    """Print the paths of what was made, one a line or as JSON."""
    if json:
        result_json({"paths": paths})
        return
    for path in paths:
        result(path)
