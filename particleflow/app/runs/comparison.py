"""Runs side by side: how their scenarios differ, names that say it, and what two of them recorded in one picture."""

import contextlib
import hashlib
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow._support import toml
from particleflow.analysis.density.cells import is_density
from particleflow.app.runs.folder_contents import INPUTS_FOLDER, SCENARIO_FILE, kept_threshold
from particleflow.app.runs.run_outputs import track
from particleflow.app.scenario.key_labels import key_label, value_label
from particleflow.errors import ParticleflowError, ShapeError, UserError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_MOST_PANELS = 12
_MOST_KEYS = 2  # in the name of a run
_LONGEST_NAME = 40


def scenario_differences(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Where two scenarios differ: key, value in the first, value in the second ("" where there is none)."""
    return [(key, _shown(a), _shown(b)) for key, a, b in _differing(first, second)]


def input_differences(folders: Sequence[Path]) -> list[tuple[str, str, str]]:
    """The inputs that two run folders keep under one name with other contents: name, and a part of each one's hash."""
    one, other = (_hashes(folder / INPUTS_FOLDER) for folder in folders)
    return [
        (f"{INPUTS_FOLDER}/{name}", one[name], other[name]) for name in one if one[name] != other.get(name, one[name])
    ]


def _hashes(folder: Path) -> dict[str, str]:
    """The beginning of the SHA-256 of every file of a folder, by name; links are not followed."""
    files = sorted(each for each in folder.glob("*") if each.is_file() and not each.is_symlink())
    return {each.name: f"contents {hashlib.sha256(each.read_bytes()).hexdigest()[:8]}…" for each in files}


def _differing(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Where two scenarios compute something else; which products are made of a run, its [output], does not count."""
    one, other = ({key: each[key] for key in each if key != "output"} for each in (first, second))
    return list(toml.differences(one, other))


def run_names(folders: Sequence[Path], scenarios: Sequence[dict[str, Any]]) -> list[str]:
    """A name for each run that says what tells it apart, such as "β = 4"; the folders where that would be much.

    Parameters: the `folders` of the runs, and their `scenarios` as tables, in the same order.
    """
    from particleflow.view.style import clean

    changes = [{key: pair for key, *pair in _differing(scenarios[0], each) if key != "title"} for each in scenarios]
    keys = dict.fromkeys(key for change in changes for key in change)
    own = {key: pair[0] for change in changes for key, pair in change.items()}  # the values in the first scenario
    rows = [{key: change[key][1] if key in change else own[key] for key in keys} for change in changes]
    names = [clean(_name(row), 2 * _LONGEST_NAME) for row in rows]
    plain = 0 < len(keys) <= _MOST_KEYS and max(map(len, names)) <= _LONGEST_NAME
    return names if plain and len(set(names)) == len(names) else folder_names(folders)


def _name(values: dict[str, Any]) -> str:
    """The values of some keys in a few words; "without value" if none of the keys is there."""
    given = [value_label(key, value) for key, value in values.items() if value is not toml.REMOVED]
    return ", ".join(given) or f"without {', '.join(map(key_label, values))}"


def folder_names(folders: Sequence[Path]) -> list[str]:
    """A different name for each run, SCENARIO/NUMBER from its folder; titles could be the same."""
    names = [f"{folder.resolve().parent.name}/{folder.resolve().name}" for folder in folders]
    return [f"{name} ({place})" if names.count(name) > 1 else name for place, name in enumerate(names, 1)]


def scenario_of(run: "Trajectory", folder: Path) -> dict[str, Any]:
    """The scenario of a run, from its file or from its folder; empty for a run that had none."""
    text = run.metadata.get("scenario")
    if not isinstance(text, str) or not text.strip():
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = (folder / SCENARIO_FILE).read_text(encoding="utf-8")
    try:
        return tomllib.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}


def _shown(value: Any) -> str:
    """A value as it is written in a scenario; nothing where a key is missing."""
    return "" if value is toml.REMOVED else toml.value_text(value)


def draw_comparison(
    runs: "tuple[Trajectory, Trajectory]", folders: tuple[Path, Path], labels: tuple[str, str], target: Path
) -> Path:
    """Draw what two runs both recorded, one panel each, and the number of clusters of both, into a file."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from particleflow import view
    from particleflow.analysis.reading import is_log_spaced
    from particleflow.view.plots.base import write_small_print
    from particleflow.view.plots.comparison_plot import comparison_note
    from particleflow.view.plots.saving import check_picture, save_figure

    check_picture(target)
    named = dict(zip(labels, runs, strict=True))
    log = any(is_log_spaced(run.times) for run in runs)
    panels: list[Callable[[Any], Any]] = [
        lambda ax, name=name: view.compare(named, name, log=log, ax=ax) for name in _shared(runs)
    ]
    counts = _counts(runs, folders)
    of = "peaks" if is_density(runs[0]) else "clusters"
    if counts is not None:
        panels.insert(0, lambda ax: view.compare(named, counts=counts, of=of, log=log, ax=ax))
    if not panels:
        raise UserError("The two runs have nothing in common that could be drawn: no observable, and no clusters.")
    with view.style.use("light"):
        figure = _figure_of(panels[:_MOST_PANELS])
        write_small_print(figure, comparison_note(runs, counts, of))
        target.parent.mkdir(exist_ok=True)
        save_figure(figure, target)
        plt.close(figure)
    return target


def _shared(runs: "tuple[Trajectory, Trajectory]") -> list[str]:
    """The observables that both runs have as one number a frame."""
    from particleflow.view.plots.time.series import observable_values

    shared = []
    for name in runs[0].observables:
        with contextlib.suppress(ShapeError, ValueError, TypeError, KeyError):
            for run in runs:
                observable_values(run, name)
            shared.append(name)
    return shared


def _counts(runs: "tuple[Trajectory, Trajectory]", folders: tuple[Path, Path]) -> list[Any] | None:
    """The clusters of both runs through time, each at its own threshold, or the peaks of two densities.

    None where they cannot be compared: in an ensemble, of particles and a density, or where clusters mean nothing since
    noise, repulsion or the flow keeps the particles of a run apart.
    """
    from particleflow.view.findings import worth_showing

    if any(run.runs is not None for run in runs) or is_density(runs[0]) != is_density(runs[1]):
        return None
    try:
        found = [track(run, kept_threshold(folder)) for run, folder in zip(runs, folders, strict=True)]
    except ParticleflowError:
        return None
    if not is_density(runs[0]):
        found = [worth_showing(run, each) for run, each in zip(runs, found, strict=True)]
    return None if any(each is None for each in found) else found


def _figure_of(panels: list[Callable[[Any], Any]]) -> Any:
    """One figure with so many panels, in two columns where there are more than three; one legend for all."""
    import matplotlib.pyplot as plt

    columns = 1 if len(panels) <= 3 else 2
    rows = -(-len(panels) // columns)
    size = (6.4 * columns, 2.9 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for place, ax in enumerate(axes.flat):
        if place >= len(panels):
            ax.set_visible(False)
            continue
        panels[place](ax)
        if place and ax.get_legend() is not None:
            ax.get_legend().remove()
    return figure
