"""A trajectory in a notebook: a small static card, with its first, middle and last frames and one curve as inline SVG.

Only three frames and one observable are read, so the card is as fast for a large file as for a small one. It has no
script and no style sheet, takes its text colour from the notebook, and escapes every word that comes from outside.
"""

import html
from typing import Any

import numpy as np

SIZE = 132  # pixels of a snapshot's side
POINTS = 300  # more dots than this only make the card heavy
_BLUE = "#0072B2"  # the first of the colours that colour-blind readers can tell apart
_TURN = np.array([[0.8, 0.6, 0.0], [-0.2, 0.27, 0.94]])  # the direction from which three dimensions are seen


def repr_html(trajectory: Any) -> str:
    """The HTML that a notebook shows for a trajectory: title, facts, three snapshots, the energy or first scalar."""
    run = trajectory if trajectory.runs is None else trajectory.run(0)
    title = html.escape(str(trajectory.metadata.get("title") or "Trajectory")[:200])
    pictures = "".join(_snapshots(run)) + _curve(run)
    return (
        '<div style="display:inline-block;max-width:100%;padding:12px 14px;border:1px solid rgba(128,128,128,.3);'
        'border-radius:10px;font:13px/1.45 system-ui,sans-serif">'
        f'<div style="font-size:15px;font-weight:600">{title}</div>'
        f'<div style="opacity:.7;margin-bottom:8px">{html.escape(_summary(trajectory))}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:10px">{pictures}</div></div>'
    )


def _summary(trajectory: Any) -> str:
    parts = [] if trajectory.runs is None else [f"{trajectory.runs} runs (the first is shown)"]
    parts += [f"{trajectory.count:,} particles in {trajectory.dimension}-D", f"{len(trajectory):,} frames"]
    if len(trajectory):
        parts.append(f"time {float(trajectory.times[0]):.4g} to {float(trajectory.times[-1]):.4g}")
    parts += [str(trajectory.metadata[key])[:60] for key in ("geometry", "status") if trajectory.metadata.get(key)]
    return " · ".join(parts)


def _snapshots(run: Any) -> list[str]:
    """Small pictures of the first, middle and last frames, all on one scale."""
    frames = sorted({0, len(run) // 2, len(run) - 1}) if len(run) else []
    stride = max(1, -(-run.count // POINTS))
    clouds = [_flat(np.asarray(run.points[frame], float)[::stride]) for frame in frames]
    finite = [cloud[np.isfinite(cloud).all(axis=1)] for cloud in clouds]
    both = np.concatenate(finite) if finite else np.empty((0, 2))
    if not len(both):
        return []
    low, high = both.min(axis=0), both.max(axis=0)
    half = max(float((high - low).max()) / 2, 1e-300)
    middle = (low + high) / 2
    times = [float(run.times[frame]) for frame in frames]
    return [_picture((cloud - middle) / half, time) for cloud, time in zip(finite, times, strict=True)]


def _flat(points: np.ndarray) -> np.ndarray:
    """Two coordinates to draw: a level line for d = 1, a fixed view for d = 3, else the first two."""
    dimension = points.shape[1]
    if dimension == 1:
        return np.column_stack([points[:, 0], np.zeros(len(points))])
    return points @ _TURN.T if dimension == 3 else points[:, :2]


def _picture(cloud: np.ndarray, time: float) -> str:
    """Dots of a cloud in [−1, 1]², with the time below."""
    places = SIZE / 2 * (1 + 0.92 * cloud * np.array([1.0, -1.0]))
    radius = float(np.clip(14 / max(1, len(cloud)) ** 0.35, 1.6, 5.0))
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>' for x, y in places)
    return _figure(f'<g fill="{_BLUE}" fill-opacity=".65">{dots}</g>', f"t = {time:.4g}", "particles")


def _figure(body: str, caption: str, kind: str) -> str:
    words = html.escape(caption)
    return (
        f'<figure style="margin:0"><svg width="{SIZE}" height="{SIZE}" viewBox="0 0 {SIZE} {SIZE}" role="img" '
        f'aria-label="{kind}: {html.escape(caption, quote=True)}">{body}</svg>'
        f'<figcaption style="max-width:{SIZE}px;text-align:center;opacity:.7;font-size:12px;overflow-wrap:anywhere">'
        f"{words}</figcaption></figure>"
    )


def _curve(run: Any) -> str:
    """A line of the energy, or of the first observable that is one number a frame, against the frame number."""
    names = sorted(run.observables, key=lambda name: "energy" not in name.lower())
    for name in names:
        values = np.asarray(run.observables[name])
        if values.shape == (len(run),) and len(run) > 1 and values.dtype.kind in "fiu":
            return _line(name, values.astype(float))
    return ""


def _line(name: str, values: np.ndarray) -> str:
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
