"""A trajectory in a notebook: a small static card, with its first, middle and last frames and one curve as inline SVG.

The particles are drawn where the figures draw them: in the same projection, seen by the same camera. Only three frames
and one observable are read, so that the card is fast for a long run, too. It has no script and no style sheet, takes
its text colour from the notebook, and escapes all text that comes from outside.
"""

import html
from typing import Any

import numpy as np

SIZE = 132  # pixels of a snapshot's side
POINTS = 300  # dots in a snapshot, at most: more would only make the card heavy
_BLUE = "#0072B2"  # the first of the colours that colour-blind readers can tell apart
_FARTHEST = 1e150  # up to which squared distances are finite
_WHOLE_RADIUS = 9.0  # pixels, of a dot that holds all of the mass
_NEAR, _FAR = 0.65, 0.42  # opacity of what is in front of the middle and behind it
_REACH = 0.92  # of the half side of a picture, up to which particles may lie
_OUTLINE = (
    f'<ellipse cx="{SIZE / 2:g}" cy="{SIZE / 2:g}" rx="{_REACH * SIZE / 2:g}" ry="{_REACH * SIZE / 2:g}" '
    'fill="none" stroke="currentColor" stroke-opacity=".25"/>'
)


def notebook_card(trajectory: Any) -> str:
    """The HTML that a notebook shows for a trajectory: title, facts, three snapshots, and a curve.

    The curve is that of the energy (where that overflows, of its logarithm), or else of the first observable that is
    one number a frame. Of an ensemble the first run is shown.
    """
    run = trajectory if trajectory.runs is None else trajectory.run(0)
    title = html.escape(str(trajectory.metadata.get("title") or "Trajectory")[:200])
    with np.errstate(all="ignore"):  # what is too far out to draw is left out
        pictures = "".join(_snapshots(run)) + _curve(run)
    return (
        '<div style="display:inline-block;max-width:100%;padding:12px 14px;border:1px solid rgba(128,128,128,.3);'
        'border-radius:10px;font:13px/1.45 system-ui,sans-serif">'
        f'<div style="font-size:15px;font-weight:600">{title}</div>'
        f'<div style="opacity:.7;margin-bottom:8px">{html.escape(_summary(trajectory))}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:10px">{pictures}</div>'
        '<div style="opacity:.7;margin-top:8px">played by <code>particleflow.view.page(run)</code></div>'
        "</div>"
    )


def _summary(trajectory: Any) -> str:
    """One line of facts: runs, particles and dimension, frames, time, geometry and status."""
    parts = [] if trajectory.runs is None else [f"{trajectory.runs} runs (the first is shown)"]
    noun = "cells" if "masses" in trajectory.fields else "particles"
    parts += [f"{trajectory.count:,} {noun} in {trajectory.dimension}-D", f"{len(trajectory):,} frames"]
    if len(trajectory):
        unit = f"{trajectory.facts.time_unit}s" if trajectory.facts.time_unit else "time"
        parts.append(f"{unit} {float(trajectory.times[0]):.4g} to {float(trajectory.times[-1]):.4g}")
    parts += [str(trajectory.metadata[key])[:60] for key in ("geometry", "status") if trajectory.metadata.get(key)]
    return " · ".join(parts)


def _snapshots(run: Any) -> list[str]:
    """Small pictures of the first, middle and last frames, all on one scale."""
    if len(run) == 0:
        return []
    frames = sorted({0, len(run) // 2, len(run) - 1})
    try:
        kind, clouds = _clouds(run, frames)
    except np.linalg.LinAlgError:  # points so far out that they have no principal components
        return []
    clouds = [np.where(np.abs(cloud) < _FARTHEST, cloud, np.nan) for cloud in clouds]
    visited = np.concatenate(clouds)
    visited = visited[np.isfinite(visited).all(axis=1)]
    if not len(visited):
        return []
    round_one = kind in ("circle", "sphere")  # its middle is that of the picture, and it reaches to 1
    ends = np.ones(visited.shape[1])
    low, high = (-ends, ends) if round_one else (visited.min(axis=0), visited.max(axis=0))
    half = max(float((high - low)[:2].max()) / 2, 1e-300)
    return [
        _picture((cloud - (low + high) / 2) / half, _radii(run, frame, cloud, half), _when(run, frame), round_one)
        for frame, cloud in zip(frames, clouds, strict=True)
    ]


def _when(run: Any, frame: int) -> str:
    """The time of a frame in words: "t = 3.2", or "layer 3"."""
    from particleflow.view.plots.base import time_words

    time = float(run.times[frame])
    return f"t = {time:.4g}" if run.facts.time_unit is None else time_words(run, time)


def _clouds(run: Any, frames: list[int]) -> tuple[str, list[np.ndarray]]:
    """The kind of picture that the figures make of a run, and its particles in some frames as there: x, y and depth."""
    from particleflow.analysis.samples import stored_points
    from particleflow.view.plots.base import projection
    from particleflow.view.plots.camera import camera_of
    from particleflow.view.plots.density.density_scale import field_of, frame_density

    view = projection(run)
    clouds = [view(stored_points(run, frame)[_shown(run)]) for frame in frames]
    if view.kind == "line":  # drawn at a height by the particle's index
        visited = np.concatenate([cloud[np.isfinite(cloud)] for cloud in clouds])
        reach = (visited.max() - visited.min()) / 2 if visited.size else 1.0
        if (field := field_of(run)) is not None:  # or at the height of the density
            levels = [field.levels(frame_density(run, field.cells, frame))[_shown(run)] for frame in frames]
            pairs = zip(clouds, levels, strict=True)
            return view.kind, [np.column_stack([cloud, reach * (2 * level - 1)]) for cloud, level in pairs]
        return view.kind, [np.column_stack([cloud, np.linspace(-reach, reach, len(cloud))]) for cloud in clouds]
    if view.kind in ("sphere", "space"):
        camera = camera_of(run).rotation
        return view.kind, [cloud @ camera.T for cloud in clouds]
    return view.kind, clouds


def _shown(run: Any) -> slice:
    """Every k-th particle, so that at most `POINTS` are drawn."""
    return slice(None, None, max(1, -(-run.count // POINTS)))


def _radii(run: Any, frame: int, cloud: np.ndarray, half: float) -> np.ndarray:
    """Radii in pixels: areas grow with the mass at a place, as in the figures, from a least one that can be seen."""
    from particleflow.view.plots.crowds import crowd_mass, shown_weights

    mass = crowd_mass(cloud, shown_weights(run, frame, _shown(run)), 0.01 * half)
    return np.maximum(np.clip(14 / max(1, len(cloud)) ** 0.35, 1.6, 5.0), _WHOLE_RADIUS * np.sqrt(mass))


def _picture(cloud: np.ndarray, radii: np.ndarray, when: str, outlined: bool) -> str:
    """Dots of a cloud in [−1, 1]² with `when` below; those behind come first: open behind a sphere, else fainter."""
    finite = np.isfinite(cloud).all(axis=1)
    cloud, radii = cloud[finite], radii[finite]
    places = SIZE / 2 * (1 + _REACH * cloud[:, :2] * np.array([1.0, -1.0]))
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>' for (x, y), r in zip(places, radii, strict=True)]
    behind = (cloud[:, 2:] < 0).any(axis=1)
    far = (
        f'fill="none" stroke="{_BLUE}" stroke-opacity="{_NEAR}"'
        if outlined
        else f'fill="{_BLUE}" fill-opacity="{_FAR}"'
    )
    layers = "".join(
        f"<g {look}>{''.join(dots[dot] for dot in np.flatnonzero(chosen))}</g>"
        for chosen, look in ((behind, far), (~behind, f'fill="{_BLUE}" fill-opacity="{_NEAR}"'))
    )
    return _figure((_OUTLINE if outlined else "") + layers, when, "particles")


def _figure(body: str, caption: str, kind: str) -> str:
    """An SVG picture with its caption, which is also its description for screen readers."""
    words = html.escape(caption)
    return (
        f'<figure style="margin:0"><svg width="{SIZE}" height="{SIZE}" viewBox="0 0 {SIZE} {SIZE}" role="img" '
        f'aria-label="{kind}: {html.escape(caption, quote=True)}">{body}</svg>'
        f'<figcaption style="max-width:{SIZE}px;text-align:center;opacity:.7;font-size:12px;overflow-wrap:anywhere">'
        f"{words}</figcaption></figure>"
    )


def _curve(run: Any) -> str:
    """A line of the energy, or of the first observable that is one number a frame, against the frame number."""
    from particleflow.view.plots.time.series import energy_name

    names = sorted(run.observables, key=lambda name: (name != energy_name(run), "energy" not in name.lower()))
    for name in names:
        values = np.asarray(run.observables[name])
        if values.shape == (len(run),) and values.dtype.kind in "fiu" and np.isfinite(values).sum() > 1:
            return _line(name, values.astype(float))
    return ""


def _line(name: str, values: np.ndarray) -> str:
    """A curve of at most 200 finite values with its first and last value; empty if fewer than two are finite."""
    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), 200)).astype(int))
    kept = chosen[np.isfinite(values[chosen])]
    if kept.size < 2:
        return ""
    shown = values[kept]
    span = float(np.ptp(shown)) or 1.0
    xs = 6 + (SIZE - 12) * kept / (len(values) - 1)
    ys = SIZE - 8 - (SIZE - 16) * (shown - shown.min()) / span
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    body = f'<polyline points="{points}" fill="none" stroke="{_BLUE}" stroke-width="1.8" stroke-linejoin="round"/>'
    return _figure(body, f"{name[:60]}: {shown[0]:.4g} → {shown[-1]:.4g}", "curve")
