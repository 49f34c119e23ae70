"""The last lines that `run` and `analyze` print: how clusters changed, how they were found, and what to open.

They are made from the summary in the run's folder. Where it is missing or has another form, a line is left out.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow._support.text import plural
from particleflow.app.runs.folder_contents import PAGE_FILE, product_notes, products_in, read_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from particleflow.analysis.clusters.brackets import Bracket, ChangeTimes

_LISTED_TREADS = 3  # how many of each are named; the others are left out
_LISTED_SERIES = 3
_LISTED_MERGES = 3
_LISTED_MASSES = 5


def clusters_line(summary: dict[str, Any] | None) -> str | None:
    """How the number of clusters changed: "449 → 4 clusters; 5 until t = 11.9–12.4"; None where it is not known.

    For a density the number of its peaks: "no peak until t = 0.31–0.315, then 3 peaks; masses 0.333, 0.333, 0.333".
    For particles that noise or repulsion keeps apart, the observables instead: chance chains of particles are no
    clusters.
    """
    try:
        if summary is None:
            return None
        if isinstance(summary.get("runs"), list):
            return _ensemble_line(summary)
        if summary.get("peaks") is not None:
            return _peaks_line(summary)
        if summary.get("kept_apart_by") is not None:
            return _apart_line(summary)
        return None if summary.get("clusters") is None else _run_line(summary)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):  # no summary of ours
        return None


def _run_line(summary: dict[str, Any]) -> str:
    """ "449 → 4 clusters; 5 until t = 11.9–12.4": first and last number, and the longest-lived numbers in between.

    Where clusters are not separated at first: "not separated until t = 7.3–7.4, then 5 → 4 clusters; …".
    """
    clusters = summary["clusters"]
    known = [int(count) for count in clusters["counts"] if count is not None]
    gap, unit = clusters.get("not_separated"), _unit(summary)
    if not known:
        never = f"clusters are not separated at any time{_chains(clusters)}"
        return "; ".join([never, _recorded(summary)]).removesuffix("; ")
    if clusters["final_count"] is None:
        since = f"not separated since {_change(gap['from'], unit)}{_chains(clusters)}"
        return f"{plural(known[0], 'cluster')} at first, {since}"
    lead = "" if gap is None or gap["from"] is not None else f"not separated until {_change(gap['until'], unit)}, then "
    if len(set(known)) == 1 and (lead or gap is None):
        return lead + plural(known[-1], "cluster") + ("" if lead else " from the first frame to the last")
    inside = (
        ""
        if gap is None or lead
        else f", not separated from {_change(gap['from'], unit)} to {_change(gap['until'], unit).removeprefix('t = ')}"
    )
    treads = _treads(clusters["times"], clusters["counts"], unit, _changes(summary))
    return f"{lead}{known[0]} → {plural(known[-1], 'cluster')}{inside}; {treads}"


def _chains(clusters: dict[str, Any]) -> str:
    """ "; 2 chains at the end hold 67.5 %, 31 %" of the mass: strings of particles, where they are few."""
    masses = [float(mass) for mass in clusters.get("final_chains") or ()]
    if not 0 < len(masses) <= _LISTED_MASSES:
        return ""
    shares = ", ".join(f"{100 * mass:.3g} %" for mass in masses)
    return f"; {plural(len(masses), 'chain')} at the end hold{'s' if len(masses) == 1 else ''} {shares}"


def _treads(times: list[float], counts: list[int | None], unit: str | None, changes: "ChangeTimes") -> str:
    """ "8 until t = 3.1–3.2, 5 until t = 11.9–12.4": the longest-lived numbers, or since when there is the last.

    Parameters: the saved `times`; the `counts`, None where there is none; the `unit` that times count;
    `changes`, what is known of their times.
    """
    import numpy as np

    from particleflow.analysis.clusters.plateaus import find_plateaus, metastable

    series, last = np.array(counts, dtype=float), counts[-1]
    found = metastable(find_plateaus(times, series, changes=changes), float(series[0]))
    treads = dict.fromkeys(plateau.count for plateau in found if plateau.count not in (None, last))
    words = [f"{count} until {_when(_end_of(count, times, counts, changes), unit)}" for count in treads]
    if not words:
        other = next((count for count in reversed(counts) if count != last), None)
        words = [f"{last} since {_when(_end_of(other, times, counts, changes), unit)}"]
    return ", ".join(words[-_LISTED_TREADS:])


def _change(times: list[float], unit: str | None) -> str:
    """The saved times around a change, as a summary has them, in words."""
    from particleflow.analysis.clusters.brackets import Bracket

    return _when(Bracket(float(times[0]), float(times[1])), unit)


def _peaks_line(summary: dict[str, Any]) -> str:
    """ "no peak until t = 0.31–0.315, then 3 peaks; masses 0.333, 0.333, 0.333": of a density, with the last masses.

    Where the number changes further: "no peak until t = 0.1–0.2, then 3 → 2 peaks; 2 since t = 0.5–0.6; masses …".
    """
    from particleflow.analysis.clusters.brackets import bracket_of

    peaks, unit, changes = summary["peaks"], _unit(summary), _changes(summary)
    times, counts = peaks["times"], [int(count) for count in peaks["counts"]]
    masses = [f"{float(each['mass']):.3g}" for each in peaks["last"]]
    shown = ", ".join([*masses[:_LISTED_MASSES], *(["…"] if len(masses) > _LISTED_MASSES else [])])
    held = f"; mass{'es' if len(masses) > 1 else ''} {shown}" if masses else ""
    begin = next((frame for frame, count in enumerate(counts) if count), None)
    if begin is None:
        return "no peak at any time"
    until = "" if begin == 0 else _when(bracket_of(times, begin, changes), unit)
    lead = f"no peak until {until}, then " if until else ""
    first, last, counts = counts[begin], counts[-1], counts[begin:]
    if len(set(counts)) == 1:
        return f"{lead}{plural(last, 'peak')}{'' if lead else ' from the first frame to the last'}{held}"
    other = next(count for count in reversed(counts) if count != last)
    since = _when(_end_of(other, times[begin:], counts, changes), unit)
    if last == 0:
        return f"{lead}{plural(first, 'peak')} at first, none since {since}"
    return f"{lead}{first} → {plural(last, 'peak')}; {last} since {since}{held}"


def _apart_line(summary: dict[str, Any]) -> str:
    """ "kept apart by noise; energy 0.51 → 0.66": what keeps particles apart, and what was recorded of them."""
    return "; ".join([f"kept apart by {summary['kept_apart_by']}", _recorded(summary)]).removesuffix("; ")


def _recorded(summary: dict[str, Any]) -> str:
    """ "energy 0.51 → 0.66, speed 1 → 0.1": the first and the last value of the first observables."""
    ends = [
        f"{name.replace('_', ' ')} {float(each['first']):.3g} → {float(each['last']):.3g}"
        for name, each in summary["observables"].items()
        if each["first"] is not None and each["last"] is not None
    ]
    return ", ".join(ends[:_LISTED_SERIES])


def _end_of(
    count: int | None, times: list[float], counts: "Sequence[int | None]", changes: "ChangeTimes"
) -> "Bracket | None":
    """The saved times around the end of the last stretch with so many clusters, or without a number of them (None)."""
    from particleflow.analysis.clusters.brackets import bracket_after

    return bracket_after(times, [each == count for each in counts], changes)


def _changes(summary: dict[str, Any]) -> "ChangeTimes":
    """What a summary says of the times at which its counts change."""
    from particleflow.analysis.clusters.brackets import ChangeTimes

    return ChangeTimes(
        whole=_unit(summary) is not None, exact_end=(summary.get("clusters") or {}).get("ends_with_a_merge") is True
    )


def _unit(summary: dict[str, Any]) -> str | None:
    """What the time of a summary counts, "layer" or "step"; None where it is a time."""
    found = summary.get("unit_of_time")
    return found if found in ("layer", "step") else None


def _when(between: "Bracket | None", unit: str | None) -> str:
    """ "t = 4.4–4.5", or the layer (or step) after which something is so for the first time: "layer 4"."""
    return f"{unit} {between.after:g}" if unit and between is not None else f"t = {between}"


def _ensemble_line(summary: dict[str, Any]) -> str | None:
    """ "8 runs with 2 to 4 clusters at the end, 2.9 on average"; None where no run has a number.

    Runs that end without separated clusters are counted apart.
    """
    clusters, peaks = (summary["aggregate"].get(name) or {"runs": 0} for name in ("final_count", "final_peaks"))
    final, noun = (clusters, "cluster") if clusters["runs"] else (peaks, "peak")
    if not final["runs"]:
        return None
    least, most = int(final["minimum"]), int(final["maximum"])
    spread = plural(least, noun) if least == most else f"{least} to {plural(most, noun)}"
    others = sum(
        each.get("clusters") is not None and each["clusters"]["final_count"] is None for each in summary["runs"]
    )
    apart = f", {others} not separated" if others else ""
    return f"{plural(int(final['runs']), 'run')} with {spread} at the end, {float(final['mean']):.4g} on average{apart}"


def words_line(summary: dict[str, Any] | None) -> str | None:
    """Which words became one: "12 words in 1 cluster: first mat with rug (t = 4.4–4.5), …"; None without words.

    Of the layers of a network: "river with water (at layer 4)".
    """
    try:
        found = None if summary is None else summary.get("words")
        if summary is None or found is None:
            return None
        clusters, merges = int(summary["clusters"]["final_count"]), found["listed_merges"]
        unit = _unit(summary)
        times = summary["clusters"]["times"]
        told = [
            f"{_side(each['survivor'])} with {_side(each['absorbed'])} ({_at(each, times, unit)})"
            for each in merges[: _LISTED_MERGES - 1] + merges[_LISTED_MERGES - 1 :][-1:]
        ]
        if len(merges) > _LISTED_MERGES:
            told[-1:] = ["…", f"last {told[-1]}" if found["complete"] else told[-1]]
        lead = "first" if found["complete"] else "for example"
        became = f"{lead} {', '.join(told)}" if told else _without_merges(summary, found)
        return f"{plural(int(found['different']), 'word')} in {plural(clusters, 'cluster')}: {became}"
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):  # no summary of ours
        return None


def _without_merges(summary: dict[str, Any], words: dict[str, Any]) -> str:
    """What to say where no merge brought different words together: whether clusters hold different ones anyhow."""
    if int(words["different"]) == 1:
        return "the same one everywhere"
    if all(int(each["different"]) == 1 for each in words["final_clusters"]):
        return "no two different ones became one"
    gap = summary["clusters"].get("not_separated")
    if gap is None or gap["from"] is not None:
        return "those in one cluster are together from the first frame on"
    return f"those in one cluster are together since {_change(gap['until'], _unit(summary))}"


def _at(merge: dict[str, Any], times: list[float], unit: str | None) -> str:
    """When a merge happened: "t = 4.4–4.5", or "at layer 4" (of some, where frames are fewer: "at layer 4–6")."""
    return f"{f'at {unit}' if unit else 't ='} {_bracket(merge, times)}"


def _bracket(merge: dict[str, Any], times: list[float]) -> "Bracket":
    """The saved times around a merge: as stored, or those of its frame in a summary without them."""
    from particleflow.analysis.clusters.brackets import Bracket, bracket_of

    stored = merge.get("between")
    return bracket_of(times, int(merge["frame"])) if stored is None else Bracket(*map(float, stored))


def _side(side: dict[str, Any]) -> str:
    """The words of a cluster in a summary."""
    from particleflow.trajectory.words import listed

    return listed([str(word) for word in side["words"]], int(side["different"]))


def threshold_line(summary: dict[str, Any] | None) -> str | None:
    """The linking distance behind the counts and where it comes from; of a density what counts as a peak."""
    try:
        runs = (summary or {}).get("runs")
        one = runs[0] if isinstance(runs, list) else summary or {}
        if one.get("peaks") is not None:
            return str(one["peaks"]["rule"])
        thresholds = one["thresholds"]
        distance, metric = float(thresholds["cluster_distance"]), str(thresholds["cluster_metric"])
        return f"linked at {metric} distance {distance:.4g} ({thresholds['cluster_reason']})"
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None


def stale_line(folder: Path, before: dict[str, Any] | None, now: dict[str, Any]) -> str | None:
    """Name the products that show clusters at another linking distance than the new summary; None without any.

    Parameters: `folder` of the run; the summaries `before` and `now`.
    """
    others = [file for name, file in products_in(folder).items() if name != "summary"]
    if before is None or not others or threshold_line(before) == threshold_line(now):
        return None
    return f"{', '.join(others)}: made at another distance; `plot`, `animate` and `view` make them again"


def closing_lines(folder: Path, run: Any) -> list[str]:
    """The lines at the end of a run: clusters and words, its final time and cost, and what to open."""
    summary = read_summary(folder)
    lines = (
        clusters_line(summary),
        words_line(summary),
        overflow_line(run),
        _extent_line(run),
        _page_line(folder, len(run)),
    )
    return [line for line in lines if line]


def overflow_line(run: Any) -> str | None:
    """In how many frames the energy is too large for a number, and its logarithm; None where it never is.

    "energy overflows in 3 of 9 frames; log energy 601 → 790 is drawn instead".
    """
    import numpy as np

    if not len(run) or "energy" not in run.observables:
        return None
    lost = np.isinf(np.asarray(run.observables["energy"], float)).reshape(len(run), -1).any(axis=1)
    if not lost.any():
        return None
    said = f"energy overflows in {int(lost.sum())} of {plural(len(run), 'frame')}"
    if "log_energy" not in run.observables:
        return f"{said}; record log_energy"
    known = np.asarray(run.observables["log_energy"], float).reshape(len(run), -1)[:, 0]
    return f"{said}; log energy {known[0]:.6g} → {known[-1]:.6g} is drawn instead"


def analysis_lines(folder: Path, summary: dict[str, Any], frames: int) -> list[str]:
    """The lines at the end of an analysis: clusters, their words, the distance behind them, what to open.

    Parameters: `folder` of the run; its new `summary`; how many `frames` it has.
    """
    lines = clusters_line(summary), words_line(summary), threshold_line(summary), _page_line(folder, frames)
    return [line for line in lines if line]


def _extent_line(run: Any) -> str:
    """ "t = 20 after 400 frames, 1234 steps, 3.21 s", as far as the metadata hold these numbers."""
    statistics = run.metadata.get("statistics") or {}
    parts = [plural(len(run), "frame")]
    if "accepted steps" in statistics:
        parts.append(plural(int(statistics["accepted steps"]), "step"))
    if "wall seconds" in statistics:
        parts.append(f"{float(statistics['wall seconds']):.3g} s")
    unit = run.facts.time_unit
    reached = f"{unit or 't ='} {float(run.times[-1]):.4g} after " if len(run) else ""
    return reached + ", ".join(parts)


def _page_line(folder: Path, frames: int) -> str:
    """The page to open, or the command that makes it; again, where it shows fewer `frames` or another distance."""
    if "page" not in products_in(folder):
        return f"`particleflow view {folder}` makes the interactive page"
    stale = product_notes(folder, frames).get("page")
    return (
        f"`particleflow view {folder}` makes the page again, which is {stale}"
        if stale
        else f"open {folder / PAGE_FILE}"
    )
