"""The interactive page: one HTML file that opens offline and plays a run.

Everything is inside the file: the points as quantised, predicted, deflated base64 text (`codec`), the numbers of
the panels, the style and the script (`assets/`). A Content-Security-Policy allows exactly that script and that style,
by hash, and no request of any kind. Text from outside (titles, names, scenarios) travels as JSON data and the script
only ever assigns it to `textContent`.

Tests and scripts reach the open page through `window.particleflow`; `assets/page.js` documents it.
"""

import base64
import hashlib
import html
import json
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from particleflow._support.files import written
from particleflow._support.progress import Progress
from particleflow.analysis.reading import first_run
from particleflow.errors import ArgumentError
from particleflow.trajectory.words import visible
from particleflow.view import style, webpage
from particleflow.view.findings import merge_rows
from particleflow.view.made_of import made_of
from particleflow.view.plots.base import projection
from particleflow.view.plots.camera import BEHIND_NOTE, INSIDE, OPEN, RIM, RIM_GAIN, facing
from particleflow.view.webpage import page_data as data
from particleflow.view.webpage.codec import Section, array_section
from particleflow.view.webpage.density_levels import levels_of
from particleflow.view.webpage.embedded_page import EmbeddedPage
from particleflow.view.webpage.page_clusters import Clusters, clusters_from, found_clusters
from particleflow.view.webpage.page_tree import layout_merge_tree
from particleflow.view.webpage.placed_codes import placed_codes

SCRIPTS = (
    "decode.js",
    "timeline.js",
    "colors.js",
    "camera.js",
    "points.js",
    "canvas_points.js",
    "canvas.js",
    "names.js",
    "scene.js",
    "panels.js",
    "panel_kinds.js",
    "density.js",
    "placed.js",
    "law.js",
    "words.js",
    "clusters.js",
    "controls.js",
    "picture.js",
    "player.js",
    "focus.js",
    "app.js",
    "page.js",
)
_WORD_LETTERS = 40  # of a word on the page
_THEMES = ("light", "dark")
_MOST_BYTES, _MOST_IN_A_NOTEBOOK = 25e6, 5e6  # a notebook saves every output that it shows
_LEAST_HEIGHT = 200  # pixels of a frame in a notebook


def page(
    trajectory: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    analysis: Any = None,
    labels: Any = None,
    counts: Any = None,
    merge_tree: Any = None,
    max_bytes: float | None = None,
    theme: str = "auto",
    height: int = 640,
    progress: Progress | None = None,
) -> Any:
    """Write one self-contained HTML file that plays a trajectory and links it to its energy, clusters and merges.

    Without a `path` nothing is written: the result is an `EmbeddedPage`, which a notebook shows, `height` pixels high,
    in a sandboxed frame. The page opens in the colours of figures (labels, else the last clusters) and plays, unless
    the reader's system asks for less motion.

    Parameters: the trajectory (of an ensemble the first run is shown); the `path` of the file; `analysis`, such as that
    of `track_clusters` (a mapping or object with `labels`, `counts` and `merge_tree` or `tree`), or these by
    themselves: cluster labels (T, N), cluster counts (T,) and merges (a, b, time, size). With no analysis the clusters
    (of a density the peaks) are found here; `analysis=False` leaves them out. `max_bytes`, the size of the file, 25 MB
    if left out, and 5 MB in a notebook, which is saved with it: bits of precision, then frames, then particles are
    given up to stay below it, and the page states what it leaves out. `theme`, "auto" (as the reader's system prefers),
    "light" or "dark". `progress`, called with (done, total) when the clusters, the contents and the file are there.
    Returns the path, or the page.
    """
    if theme not in ("auto", "light", "dark"):
        raise ArgumentError(f"Argument `theme` must be 'auto', 'light' or 'dark', but is {theme!r}.")
    if not isinstance(height, int) or height < _LEAST_HEIGHT:
        raise ArgumentError(f"Argument `height` must be at least {_LEAST_HEIGHT} pixels, but is {height!r}.")
    run, total_runs = first_run(trajectory), trajectory.runs
    given = Clusters(labels, counts, merge_tree)
    unknown = analysis is None and all(value is None for value in (labels, counts, merge_tree))
    clusters = found_clusters(run) if unknown else clusters_from(analysis).overridden_by(given)
    tell = progress or (lambda *_: None)
    tell(1, 3)
    usual = _MOST_IN_A_NOTEBOOK if path is None else _MOST_BYTES
    meta, sections = _content(run, clusters, total_runs, float(usual if max_bytes is None else max_bytes))
    meta |= {"theme": theme, "made": str(made_of(run, clusters.threshold))}
    text = _assemble(meta, sections)
    tell(2, 3)
    if path is None:
        tell(3, 3)
        return EmbeddedPage(text, meta["title"] or "particleflow", height)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with written(target) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")
    tell(3, 3)
    return target


def _content(trajectory: Any, clusters: Clusters, runs: int | None, max_bytes: float) -> tuple[dict, list[Section]]:
    """The page's facts (small, JSON) and its arrays (large, compressed)."""
    total, count = len(trajectory), trajectory.count
    times = np.asarray(trajectory.times, np.float64)
    found = data.survey(trajectory)
    timeline = data.choose_frames(times, found.arc, data.TIMELINE_LIMIT)
    codes, levels, placed = None, levels_of(trajectory), placed_codes(trajectory)
    if clusters.labels is not None and levels is None and placed is None:
        codes = data.CodedLabels.of(data.check_series("labels", clusters.labels, (total, count)))
    fixed, extra = _panels(trajectory, clusters, codes, timeline)
    fixed += [array_section("times", times[timeline]), array_section("arc", found.arc[timeline])]
    extra["density"] = None if levels is None else levels.facts()
    extra["placed"] = None if placed is None else placed.facts()
    shell = len(_assemble({**_facts(trajectory), **extra}, fixed)) + 8 * total + 12 * min(count, data.CROWD) + 4096
    if max_bytes < shell + 20_000:
        raise ArgumentError(f"`max_bytes` must be above {shell + 20_000} for this run, but is {max_bytes:.0f}.")
    chosen, stored = data.fit(trajectory, found, levels or placed or codes, max_bytes - shell)
    fixed += [array_section("frames", chosen.frames.astype(np.uint32)), *_particles(trajectory, chosen.particles)]
    meta = _facts(trajectory) | extra | _storage(trajectory, found, chosen, runs)
    scaled = levels or placed
    if scaled is not None:
        meta["ramps"] = {name: _hex(scaled.ramp(name)) for name in _THEMES}
    if trajectory.labels is not None:
        meta["labelPalettes"] = {name: _hex(data.label_colors(trajectory, name, data.PALETTE_SIZE)) for name in _THEMES}
    if codes is not None:
        categories = data.cluster_categories(trajectory, codes, data.PALETTE_SIZE)
        table = {name: style.palette(int(categories.max()) + 1, style.find(name)) for name in _THEMES}
        meta["palettes"] = {name: _hex(table[name][categories]) for name in _THEMES}
    return meta, fixed + stored


def _panels(
    trajectory: Any, clusters: Clusters, codes: data.CodedLabels | None, timeline: np.ndarray
) -> tuple[list[Section], dict]:
    """Observables, cluster counts and the merge tree, with the names that go into the page's facts."""
    observables = data.scalar_observables(trajectory, timeline)
    sections = [array_section(f"observable{i}", values) for i, values in enumerate(observables.values())]
    extra: dict = {"observables": list(observables), "counts": clusters.counts is not None, "tree": 0}
    extra["levels"] = data.rounding_levels(trajectory, observables)
    extra["lost"] = ", ".join(visible(name, 60) for name in data.lost_observables(trajectory))
    extra |= {"threshold": clusters.note, "counted": clusters.noun}
    extra["words"] = _vocabulary(trajectory)
    if clusters.counts is not None:
        counts = data.check_series("counts", clusters.counts, (len(trajectory),))
        sections.append(array_section("counts", counts[timeline].astype(np.float64)))
    rows = merge_rows(() if clusters.merge_tree is None else clusters.merge_tree)
    if rows.size:
        begin, end = float(trajectory.times[0]), float(trajectory.times[-1])
        tree = layout_merge_tree(rows[:, :4], leaves=trajectory.count, begin=begin, end=end, births=clusters.births)
        known = {} if codes is None else codes.codes  # −1: the name of a branch is no label of the run
        tree["label"] = np.array([known.get(int(name), -1) for name in tree["label"]], np.float64)
        extra["tree"] = len(rows)
        sections += [array_section(f"tree_{name}", values) for name, values in tree.items()]
        sections.append(array_section("merge_times", np.sort(rows[:, 2])))
    return sections, extra


def _particles(trajectory: Any, chosen: np.ndarray | None) -> list[Section]:
    """Arrays by shown particle: its number, position, label, word and weight, where the run has them."""
    keep = slice(None) if chosen is None else chosen
    found = [] if chosen is None else [array_section("particles", chosen.astype(np.uint32))]
    if trajectory.positions is not None:
        found.append(array_section("positions_of", np.asarray(trajectory.positions, np.float64)[keep]))
    if trajectory.labels is not None:
        given = np.asarray(trajectory.labels).astype(np.int32)
        ranks = data.CodedLabels.of(given[None, :])()[0]
        found += [array_section("labels", given[keep]), array_section("label_codes", ranks[keep].astype(np.uint32))]
    if trajectory.words is not None:
        number = {word: place for place, word in enumerate(dict.fromkeys(trajectory.words.tolist()))}
        codes = np.array([number[word] for word in trajectory.words.tolist()], np.uint32)
        found.append(array_section("word_codes", codes[keep]))
    if trajectory.log_weights is not None:
        found.append(array_section("weights", np.asarray(trajectory.weights, np.float64)[keep]))
    return found


def _vocabulary(trajectory: Any) -> list[str]:
    """The different words of a run in the order of their numbers, short and printable."""
    words = () if trajectory.words is None else trajectory.words.tolist()
    return [visible(word, _WORD_LETTERS) for word in dict.fromkeys(words)]


def _facts(trajectory: Any) -> dict:
    """Title, geometry, status, scenario and seed of a run as text cut to a limit, and the colours of both themes."""
    metadata = trajectory.metadata
    text = {key: _text(metadata.get(key), limit) for key, limit in _TEXT_LIMITS.items()}
    palettes = {name: _hex(style.palette(data.PALETTE_SIZE, style.find(name))) for name in _THEMES}
    steps = np.linspace(0.0, 1.0, 33)
    ramps = {name: _hex(style.ordered_colors(steps, style.find(name))) for name in _THEMES}
    seed = metadata.get("seed")
    return {**text, "seed": None if seed is None else _text(seed, 80), "palettes": palettes, "ramps": ramps}


_TEXT_LIMITS = {"title": 300, "geometry": 60, "status": 60, "scenario": 20_000}


def _text(value: Any, limit: int) -> str:
    """Text from outside that can be written as UTF-8, cut to a limit."""
    return "" if value is None else str(value)[:limit].encode("utf-8", "replace").decode("utf-8")


def _hex(colors: np.ndarray) -> list[str]:
    """Colours (k, 3) in [0, 1] as "#rrggbb"."""
    values = np.rint(np.clip(colors, 0, 1) * 255).astype(int)
    return ["#{:02x}{:02x}{:02x}".format(*color) for color in values]


def _storage(trajectory: Any, found: data.Survey, chosen: data.Selection, runs: int | None) -> dict:
    """The grid and the selection that the points were stored with: for the decoder, and for the page's notes."""
    shown = trajectory.count if chosen.particles is None else len(chosen.particles)
    return {
        "low": chosen.grid.low.tolist(),
        "step": chosen.grid.step.tolist(),
        "high": chosen.grid.high.tolist(),
        "bits": chosen.grid.bits,
        "order": chosen.order,
        "count": shown,
        "totalCount": trajectory.count,
        "frameCount": len(chosen.frames),
        "totalFrames": len(trajectory),
        "dimension": trajectory.dimension,
        "shownDimension": len(chosen.grid.low),
        "explained": found.explained,
        "law": trajectory.facts.is_law,
        "map": trajectory.facts.is_map,
        "unit": trajectory.facts.time_unit,
        "behind": {"open": OPEN, "rim": RIM, "gain": RIM_GAIN, "inside": INSIDE, "note": BEHIND_NOTE},
        "runs": runs,
        "radius": data.circle_radius(trajectory),
        "facing": np.radians(facing(trajectory)).tolist() if projection(trajectory).kind == "sphere" else None,
    }


def _json(value: Any) -> str:
    """JSON that no HTML parser can mistake for markup: every <, > and & is written as an escape."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    """The text of a file in `assets/`."""
    return (files(webpage) / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source expression by which a Content-Security-Policy allows a text: its SHA-256 in base64."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii") + "'"


def _assemble(meta: dict, sections: list[Section]) -> str:
    """The template with its slots filled in one pass, so that no inserted text is ever searched for slots again."""
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in SCRIPTS) + "\n})();\n"
    sheet = _asset("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(sheet)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    facts = {**meta, "sections": [section.describe() for section in sections]}
    texts = "\n".join(f'<script type="text/plain" id="section-{s.name}">{s.text}</script>' for s in sections)
    slots = {
        "policy": policy,
        "title": html.escape(meta["title"] or "particleflow"),
        "theme": meta.get("theme", "auto"),
        "made": meta.get("made", ""),
        "style": sheet,
        "facts": _json(facts),
        "data": texts,
        "script": script,
    }
    return re.sub(r"\[\[(\w+)\]\]", lambda match: slots[match[1]], _asset("page.html"))
