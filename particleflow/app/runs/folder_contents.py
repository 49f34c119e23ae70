"""The contents of run folders, read without JAX: files by name, products, the summary, and the runs of a folder.

Files may come from anywhere, so nothing in them is trusted: a summary that cannot be read, or that has another form
than ours, counts as none.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow.errors import ParticleflowError

if TYPE_CHECKING:
    from particleflow.view.made_of import MadeOf

SCENARIO_FILE = "scenario.toml"
TRAJECTORY_FILE = "trajectory.h5"
MANIFEST_FILE = "manifest.json"
SUMMARY_FILE = "summary.json"
PAGE_FILE = "viewer.html"
INPUTS_FOLDER = "inputs"
FILES = {
    "summary": (SUMMARY_FILE,),
    "figures": ("figures",),
    "movie": ("movie.mp4", "movie.gif"),
    "page": (PAGE_FILE,),
}
PRODUCTS = tuple(FILES)
SWEEP_PRODUCTS = ("results.csv", "results.h5", "figures/sweep.png", "figures/phase_diagram.png", "figures/series.png")
GIVEN = "given"  # the reason of a threshold that a user has chosen
_LARGEST_SUMMARY = 2**30
_DEEPEST = 2  # outputs/<scenario>/<run>


@dataclass(frozen=True)
class RunEntry:
    """One run or sweep in a list of runs: its path, its status, its number of frames, and its title."""

    path: str
    status: str
    frames: int | None
    title: str

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for JSON."""
        return asdict(self)


def products_in(folder: Path) -> dict[str, str]:
    """The products that are in a run folder: product → file."""
    there = {name: [file for file in files if (folder / file).exists()] for name, files in FILES.items()}
    return {name: files[0] for name, files in there.items() if files}


def marks_in(folder: Path) -> dict[str, list[tuple[Path, "MadeOf"]]]:
    """What the products in a run folder say that they were made of: product → (file, mark) of each that says it.

    Copies of figures under other names are not products.
    """
    from particleflow.view.made_of import read_made_of

    found: dict[str, list[tuple[Path, MadeOf]]] = {}
    for name, files in FILES.items():
        there = [folder / file for file in files]
        each = [path for place in there for path in (sorted(place.glob("*")) if place.is_dir() else [place])]
        marks = [(path, _summary_mark(folder) if name == "summary" else read_made_of(path)) for path in each]
        found[name] = [(path, mark) for path, mark in marks if mark and mark.figure in (None, path.stem)]
    return found


def older_files(folder: Path, frames: int) -> dict[str, list[Path]]:
    """The files of products that were made of another number of frames than the run has: product → files."""
    old = {name: [path for path, mark in marks if mark.frames != frames] for name, marks in marks_in(folder).items()}
    return {name: paths for name, paths in old.items() if paths}


def product_notes(folder: Path, frames: int) -> dict[str, str]:
    """The products that are not of the run and the threshold as they are now: product → what is wrong with it.

    Parameters: `folder` of the run; how many `frames` the run has. The threshold is that of the summary.
    """
    marks = marks_in(folder)
    now = {mark.threshold for _, mark in marks["summary"]}
    distances = {name: {mark.threshold for _, mark in found} - {None} for name, found in marks.items()}
    notes = dict.fromkeys((name for name, found in distances.items() if now and found - now), "at another distance")
    return notes | dict.fromkeys(older_files(folder, frames), "older than the run")


def _summary_mark(folder: Path) -> "MadeOf | None":
    """What the summary was made of; of an ensemble, its first run."""
    from particleflow.view.made_of import MadeOf

    first = _first_run(read_summary(folder))
    thresholds, frames = first.get("thresholds"), first.get("frames")
    distance = thresholds.get("cluster_distance") if isinstance(thresholds, dict) else None
    return MadeOf(frames, distance if isinstance(distance, float) else None) if isinstance(frames, int) else None


def _first_run(summary: dict[str, Any] | None) -> dict[str, Any]:
    """The first run of an ensemble's summary, else the summary itself; empty for none."""
    runs = (summary or {}).get("runs")
    return runs[0] if isinstance(runs, list) and runs and isinstance(runs[0], dict) else summary or {}


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a run, None where there is none that can be read."""
    path = folder / SUMMARY_FILE
    try:
        if path.stat().st_size > _LARGEST_SUMMARY:
            return None
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return summary if isinstance(summary, dict) else None


def kept_threshold(folder: Path) -> float | None:
    """The linking distance of clusters that a user has chosen for this run, None where the analysis chooses it."""
    thresholds = _first_run(read_summary(folder)).get("thresholds")
    if not isinstance(thresholds, dict) or thresholds.get("cluster_reason") != GIVEN:
        return None
    distance = thresholds.get("cluster_distance")
    if isinstance(distance, bool) or not isinstance(distance, int | float) or not 0 <= distance < float("inf"):
        return None
    return float(distance)


def threshold_for(folder: Path, wish: float | str | None) -> float | None:
    """The linking distance to use for a run: the one asked for, else the one kept; None lets the analysis choose.

    Parameters: `wish`, a distance, "auto" for that of the analysis whatever is kept, or None.
    """
    if isinstance(wish, str):
        return None
    return kept_threshold(folder) if wish is None else wish


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run or a sweep."""
    return (folder / TRAJECTORY_FILE).is_file() or (folder / MANIFEST_FILE).is_file()


def runs_in(folder: Path, depth: int = _DEEPEST) -> Iterator[Path]:
    """The runs and sweeps in a folder of runs, in the order of their names; those inside of a run are its own."""
    for each in sorted(folder.iterdir()):
        if each.name.startswith(".") or not each.is_dir():
            continue
        if is_run(each):
            yield each
        elif depth > 1:
            yield from runs_in(each, depth - 1)


def entry_of(folder: Path) -> RunEntry:
    """The entry of a run or a sweep in a list; one that cannot be read has the status "damaged"."""
    if (folder / MANIFEST_FILE).is_file():
        return _sweep_entry(folder)
    from particleflow.trajectory.trajectory import Trajectory

    try:
        with Trajectory.open(folder / TRAJECTORY_FILE) as run:
            title = run.metadata.get("title") or run.metadata.get("name") or ""
            return RunEntry(str(folder), str(run.status), len(run), str(title))
    except (ParticleflowError, OSError) as error:
        return RunEntry(str(folder), "damaged", None, str(error))


def _sweep_entry(folder: Path) -> RunEntry:
    """The entry of a sweep: how many of its runs are in each state."""
    try:
        raw = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        states = [str(run["state"]) for run in raw["runs"]]
        title = str(raw["title"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return RunEntry(str(folder), "damaged", None, str(error))
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return RunEntry(str(folder), f"sweep: {counts}", None, title)
