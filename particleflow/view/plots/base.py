"""The parts that all figures share: a projection to the page, a time axis, an `ax`, a title and small print.

An ensemble is drawn through its run 0 where particles are drawn, and as a median with a 10-90 % band where a number
is drawn over time. Long or crowded runs are thinned evenly (`MAX_LINES` particles, `MAX_FRAMES` frames): a page shows
no more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from particleflow.analysis.density.cells import is_density
from particleflow.analysis.reading import check_trajectory, first_run, is_log_spaced
from particleflow.analysis.run_character import character_of
from particleflow.analysis.samples import sample_points
from particleflow.analysis.shape import UNSTATED_TOLERANCE, common_norm, principal_components
from particleflow.errors import ArgumentError
from particleflow.view import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from particleflow.trajectory.trajectory import Trajectory

MAX_LINES = 512  # particles drawn as lines
MAX_FRAMES = 600  # frames along a line
MAX_DOTS = 20_000  # a crowd of more particles is drawn as a density, or by so many of them
_ALONE = 0.8  # of a figure: the width of a title over its only axes, which begins where these begin
_LINES_AROUND, _LINES_AROUND_BARE = 10.5, 5.0  # of text above and below axes: two of title and small print, or none
_MOST_CHANGES = 64  # of the field that are marked on a time axis
_MOST_LAYERS = 12  # that are marked on an axis of layers
ROUNDING_ULPS = 64.0  # of the largest value: what is below is rounding of sums over thousands of terms


Cached = TypeVar("Cached")
_CACHE: "WeakKeyDictionary[Any, dict[Any, Any]]" = WeakKeyDictionary()


def cached_by_run(function: "Callable[[Trajectory], Cached]") -> "Callable[[Trajectory], Cached]":
    """Cache a function of a run by the run, its number of frames and the theme, so that figures of a run share it.

    The cache holds a run weakly: it is freed together with the run.
    """

    @wraps(function)
    def cached(run: "Trajectory") -> Cached:
        known = _CACHE.setdefault(run, {})
        key = function.__qualname__, len(run), style.current()
        if key not in known:
            known[key] = function(run)
        return known[key]

    return cached


@dataclass(frozen=True)
class Projection:
    """A linear map to what is drawn: x ↦ (x − center) matrix / radius, and the kind of picture it makes.

    `kind` is "line" (1-D), "circle", "plane" (2-D), "sphere", "space" (3-D) or "pca" (d > 3, two components);
    `spherical` says that the points lie on a sphere of that radius.
    """

    kind: str
    center: np.ndarray
    matrix: np.ndarray
    radius: float
    spherical: bool
    labels: tuple[str, ...]

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """The coordinates (..., k) on the page of points (..., d): k is 1, 2 or 3 by the kind of picture."""
        return (np.asarray(points, float) - self.center) @ self.matrix / self.radius


def _centred_basis(dimension: int) -> np.ndarray:
    """An orthonormal basis (d, d−1) of the vectors whose coordinates sum to zero, as those of layer norm do."""
    basis = np.zeros((dimension, dimension - 1))
    for column in range(dimension - 1):
        basis[: column + 1, column] = 1.0
        basis[column + 1, column] = -(column + 1.0)
    return basis / np.linalg.norm(basis, axis=0)


@cached_by_run
def projection(trajectory: "Trajectory") -> Projection:
    """The projection of a trajectory's points to the page, found from its space, its dimension and its points.

    Up to d = 3 the coordinates are kept. Above, the two principal components of (thinned) frames are taken. Points on a
    sphere whose coordinates sum to zero, as those of layer norm do under any scheme, are first written in the d − 1
    coordinates they really have.
    """
    run = first_run(trajectory)
    points = sample_points(run)
    radius = None if run.facts.is_law else common_norm(run, points)
    return _projection_of(points, radius)


def shared_projection(runs: "Sequence[Trajectory]") -> Projection:
    """One projection for several runs of one space: that of the first up to d = 3, else components of all of them."""
    check_one_space([("", run) for run in runs], runs[0])
    first = projection(runs[0])
    if first.kind != "pca" or len(runs) == 1:
        return first
    return _projection_of(
        np.concatenate([sample_points(run) for run in runs]), first.radius if first.spherical else None
    )


def _projection_of(points: np.ndarray, radius: float | None) -> Projection:
    """The projection for points (..., d), on a sphere of a radius about zero or, with None, in space."""
    dimension = points.shape[-1]
    basis = np.eye(dimension)
    if radius and dimension > 2:
        sums = np.abs(np.nan_to_num(points).sum(axis=-1)).max()
        basis = _centred_basis(dimension) if sums <= UNSTATED_TOLERANCE * radius else basis
    size = basis.shape[1]
    names = tuple(f"$x_{axis + 1}$" for axis in range(min(size, 3)))
    scale = radius or 1.0
    if size > 3:
        found = principal_components(points, 2)
        names = tuple(f"component {axis + 1} ({100 * share:.0f} %)" for axis, share in enumerate(found.shares))
        return Projection("pca", found.center, found.directions, scale, radius is not None, names)
    kinds = {1: "line", 2: "circle" if radius else "plane", 3: "sphere" if radius else "space"}
    return Projection(
        kinds[size], np.zeros(dimension), basis, scale, radius is not None, names if size > 1 else ("$x$",)
    )


def check_one_space(runs: "Sequence[tuple[str, Trajectory]]", base: "Trajectory") -> None:
    """Raise unless named runs live in the space of the base: one dimension, one kind of picture, one radius."""
    wanted = projection(base)
    for name, run in runs:
        found = projection(run)
        alike = found.kind == wanted.kind and abs(found.radius - wanted.radius) <= 1e-2 * wanted.radius
        if not alike or run.dimension != base.dimension:
            which = f"{style.clean(name, 60)!r}" if name else "another one"
            raise ArgumentError(
                f"Runs in one picture must live in one space, but the first is in dimension {base.dimension} "
                f"({wanted.kind}) and {which} in {run.dimension} ({found.kind})."
            )


def angles(coordinates: np.ndarray, cut: float = -np.pi) -> np.ndarray:
    """The angles of plane coordinates (..., 2), in [cut, cut + 2π)."""
    return np.mod(np.arctan2(coordinates[..., 1], coordinates[..., 0]) - cut, 2 * np.pi) + cut


def emptiest_angle(theta: np.ndarray) -> float:
    """The angle at which to cut the circle open: the middle of the arc that the fewest positions visit.

    Visits are counted in 72 arcs of 5 degrees, each with its neighbours; where all counts are nearly alike it is −π.
    """
    counts, _ = np.histogram(np.mod(theta[np.isfinite(theta)], 2 * np.pi), bins=72, range=(0, 2 * np.pi))
    smooth = counts + np.roll(counts, 1) + np.roll(counts, -1)
    if smooth.max() - smooth.min() <= 0.2 * smooth.max():
        return -np.pi
    candidates = np.flatnonzero(smooth == smooth.min())
    runs = np.split(candidates, np.flatnonzero(np.diff(candidates) > 1) + 1)
    longest = max(runs, key=len)
    return float((longest.mean() + 0.5) * 2 * np.pi / 72 - 2 * np.pi)


def run_of_particles(trajectory: "Trajectory", figure: str) -> Any:
    """The run, or run 0 of an ensemble, for a figure of particles; an error if it is carried by a density."""
    run = first_run(trajectory)
    if is_density(run):
        raise ArgumentError(
            f"{figure} is a figure of particles, but this run is a density, whose points stay: "
            "`snapshots`, `particle_density`, `profiles` and `peaks` draw it."
        )
    return run


HATCHED_NOTE = "hatched: {}"
WIDE, SQUARE, MATRIX, WORD_MATRIX = (1.0, 0.62), (0.75, 0.75), (0.8, 0.64), (1.12, 0.94)


def new_axes(
    ax: "Axes | None", shape: tuple[float, float] = WIDE, *, about: "Trajectory | None" = None, note: str = ""
) -> "Axes":
    """The given axes, or those of a new figure that belongs to no window.

    Parameters: the axes, or None; the `shape` (width, height) of a new figure in widths of the theme; the run that its
    small print describes, and a `note` to add to it. A figure of the user's own is left as it is.
    """
    return new_figure(shape, about, note).add_subplot() if ax is None else ax


def new_figure(shape: tuple[float, float], about: "Trajectory | None" = None, note: str = "") -> "Figure":
    """A figure that belongs to no window, of a shape in widths of the theme, with small print about a run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    theme = style.current()
    size = theme.size or (shape[0] * theme.width, shape[1] * theme.width)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    if about is not None:
        write_small_print(figure, " · ".join(filter(None, [small_print(about), note])))
    return figure


def write_small_print(figure: "Figure", text: str) -> None:
    """Write small print below everything else, at the right, in a theme that has some."""
    theme = style.current()
    if text and theme.annotated:
        size = 0.74 * theme.font_size
        lines = style.wrapped_parts(text, " · ", 0.97 * 72 * figure.get_figwidth(), size)
        figure.supxlabel(lines, x=0.985, ha="right", fontsize=size, color=theme.muted)


def add_to_small_print(figure: "Figure", note: str) -> None:
    """Add a note to the small print of a figure."""
    before = figure.get_supxlabel().replace("\n", " ")
    write_small_print(figure, " · ".join(filter(None, [before, note])))


def small_print(trajectory: "Trajectory") -> str:
    """β or the width of the kernel, noise, n, d, seed, number of runs, as far as known: "β = 9 · n = 512 · d = 3"."""
    return " · ".join(small_print_parts(trajectory).values())


def small_print_of_several(runs: "Sequence[Trajectory]") -> tuple[str, list[str]]:
    """The small print that holds for all of several runs, and for each what holds for it and not for all."""
    tables = [small_print_parts(run) for run in runs]
    for table, run in zip(tables, runs, strict=True):  # what tells flows apart that have the same numbers
        names = (run.metadata.get("drift"), run.metadata.get("geometry"))
        table["flow"] = " on ".join(style.clean(str(name).replace("_", " "), 24) for name in names if name)
    keys = list(dict.fromkeys(key for table in tables for key in table))
    same = [key for key in keys if len({table.get(key) for table in tables}) == 1]
    common = " · ".join(tables[0][key] for key in same if key != "flow")
    return common, [", ".join(table[key] for key in keys if key not in same and table.get(key)) for table in tables]


def small_print_parts(trajectory: "Trajectory") -> dict[str, str]:
    """The parts of the small print by what they are about."""
    check_trajectory(trajectory)
    facts = trajectory.facts
    betas = [f"{beta:.4g}" for beta in facts.betas]
    changing, parts = facts.schedule, dict[str, str]()
    if changing is not None:
        name = "β =" if changing.name == "beta" else style.clean(changing.name, 24)
        ends, low, high = changing.values[[0, -1]], changing.values.min(), changing.values.max()
        returns = min(ends) > low or max(ends) < high
        span = f"{low:.4g} … {high:.4g}" if returns else f"{ends[0]:.4g} → {ends[1]:.4g}"
        parts["schedule" if changing.name != "beta" else "beta"] = f"{name} {span}"
    if betas and (changing is None or changing.name != "beta"):
        parts["beta"] = "β = " + (", ".join(betas) if len(betas) < 4 else f"{betas[0]} … {betas[-1]}")
    steady = [(name, length) for name, length in facts.scales if changing is None or name != changing.name]
    if steady:
        parts["scales"] = " · ".join(f"{name} {length:.4g}" for name, length in steady[:3])
    temperatures = {"temperature": facts.temperature, "common temperature": facts.common_temperature}
    parts |= {name: f"{name} {value:.4g}" for name, value in temperatures.items() if value > 0}
    moving = character_of(trajectory).count
    shown = "" if moving == trajectory.count else f" of {moving:,}"
    size = f"{trajectory.count:,} cells" if is_density(trajectory) else f"n = {trajectory.count:,}{shown}"
    size = f"normal law by {trajectory.count:,} nodes" if facts.is_law else size
    parts |= {"size": size, "dimension": f"d = {trajectory.dimension}"}
    seed = trajectory.metadata.get("seed")
    if seed is not None:
        parts["seed"] = f"seed {style.clean(seed, 24)}"
    if trajectory.runs is not None:
        parts["runs"] = f"{trajectory.runs} runs"
    return parts


def is_crowd(run: "Trajectory") -> bool:
    """Whether there are too many particles to draw one by one."""
    return run.count > MAX_DOTS


def sample_note(trajectory: "Trajectory", shown: int) -> str:
    """Small print for a picture of at most `shown` particles, evenly chosen; empty if it shows them all."""
    return f"{shown:,} of the particles drawn" if trajectory.count > shown else ""


def inches(ax: "Axes") -> float:
    """The shorter side of the axes in inches, before any layout."""
    box, figure = ax.get_position(), ax.figure
    return float(min(box.width * figure.get_figwidth(), box.height * figure.get_figheight()))  # type: ignore[union-attr]


def height_left(ax: "Axes") -> float:
    """The height of the axes in points that a layout leaves at least, beside title, names, numbers and small print."""
    theme, figure = style.current(), ax.figure
    whole = 72 * figure.get_figheight()  # type: ignore[union-attr]
    begun = ax.get_position().height * whole
    if figure.get_layout_engine() is None:  # type: ignore[union-attr]
        return begun
    around = (_LINES_AROUND if theme.annotated else _LINES_AROUND_BARE) * theme.font_size
    return max(min(0.9 * begun, whole - around), 2 * theme.font_size)


def wants_log(times: np.ndarray) -> bool:
    """Whether saved times suit a logarithmic axis: they are even in log t, or half lie in the first 15 % of t."""
    times = np.asarray(times, float)
    if len(times) < 3 or not np.all(times >= 0) or not times[-1] > 0:
        return False
    positive = times[times > 0]
    if positive[-1] > 5 * positive[0] and is_log_spaced(times):
        return True
    return bool(np.median(times) < 0.15 * times[-1] and positive[-1] > 20 * positive[0])


def time_axis(
    ax: "Axes", times: np.ndarray, log: bool | str = "auto", *, unit: str | None = None, axis: str = "x"
) -> bool:
    """Scale and label a time axis; returns whether it is logarithmic.

    Parameters: the axes; the saved times; whether the axis is to be logarithmic, or "auto"; the `unit` that times
    count, "layer" or "step", as of `RunFacts.time_unit`; which `axis`, "x" or "y". On a logarithmic axis a first frame
    at t = 0 cannot be shown: `drawn_times` puts it at half the first positive time.
    """
    times = np.asarray(times, float)
    log = wants_log(times) if log == "auto" else bool(log) and bool(np.any(times > 0))
    scale, limits, label = (
        (ax.set_xscale, ax.set_xlim, ax.set_xlabel) if axis == "x" else (ax.set_yscale, ax.set_ylim, ax.set_ylabel)
    )
    scale("log" if log else "linear")
    shown = drawn_times(times, log)
    if shown[-1] > shown[0]:
        limits(shown[0], shown[-1])
    label(unit or "time $t$")
    if unit and not log:
        locator: Any = (ax.xaxis if axis == "x" else ax.yaxis).get_major_locator()
        locator.set_params(integer=True)
    return log


def drawn_times(times: np.ndarray, log: bool) -> np.ndarray:
    """The times as drawn: on a logarithmic axis, times ≤ 0 move to half the first positive time."""
    times = np.asarray(times, float)
    positive = times[times > 0]
    if not log or positive.size == 0:
        return times
    return np.maximum(times, positive[0] / 2)


def rounding_level(values: Any, *, power: float = 1) -> float:
    """The level at which numbers are rounding: 64 ulps of the largest of them, 1.4e-14 of it in double precision.

    Parameters: the `values`, of which their precision counts, too; their `power`, 2 for squares of what is rounded,
    such as variances, whose level is (64 ulps)², ∞ for numbers without such a level. It is 0 where all values are.
    """
    values = np.asarray(values)
    single = values.dtype in (np.float16, np.float32)
    epsilon = float(np.finfo(values.dtype if single else np.float64).eps)
    known = values[np.isfinite(values)]
    largest = float(np.abs(known).max()) if known.size else 0.0
    return (ROUNDING_ULPS * epsilon) ** power * largest


def log_axis(ax: "Axes", values: Any, *, axis: str = "y", power: float = 1) -> np.ndarray:
    """Make an axis logarithmic, which ends at the `rounding_level` of its values; returns the values to draw.

    Values below that level, which are rounding errors and no signal, are returned as the level, where a dotted line
    says so. Every logarithmic axis of what a run has computed is made here.

    Parameters: the axes; all `values` on the axis; which `axis`, "x" or "y"; their `power`, as for `rounding_level`.
    """
    theme, level = style.current(), rounding_level(values, power=power)
    (ax.set_xscale if axis == "x" else ax.set_yscale)("log")
    shown = np.asarray(values, float)
    low = shown < level  # NaN is not
    if not low.any():
        return shown
    line, write = (ax.axvline, ax.get_xaxis_transform()) if axis == "x" else (ax.axhline, ax.get_yaxis_transform())
    line(level, color=theme.muted, linewidth=0.8, linestyle=(0, (1, 2)), zorder=2)
    place = (level, 0.98) if axis == "x" else (0.99, level)
    ax.annotate(
        "at rounding", place, (3, -3) if axis == "x" else (0, 3), write, "offset points", color=theme.muted,
        fontsize=0.82 * theme.font_size, rotation=90 if axis == "x" else 0, zorder=5,
        ha="left" if axis == "x" else "right", va="top" if axis == "x" else "bottom",
    )  # fmt: skip
    return np.where(low, level, shown)


def hatch_span(ax: "Axes", span: tuple[float, float], words: str, axis: str = "x") -> bool:
    """Hatch a stretch of time under all curves, with words above the curves, or beside the axes if time runs upwards.

    Parameters: `span`, its first and last time; `axis` of time, "x" or "y". Returns whether the words had room.
    """
    theme, upright = style.current(), axis == "y"
    low, high = ax.get_ylim() if upright else ax.get_xlim()
    start, end = (float(np.clip(time, min(low, high), max(low, high))) for time in span)
    draw, logarithmic = (ax.axhspan, ax.get_yscale()) if upright else (ax.axvspan, ax.get_xscale())
    draw(start, end, facecolor="none", edgecolor=theme.grid, hatch="///", linewidth=0, zorder=0.5)
    ruler = np.log if logarithmic == "log" else float
    share = float(ruler(end) - ruler(start)) / max(float(ruler(high) - ruler(low)), 1e-300)
    middle = float(np.sqrt(start * end)) if logarithmic == "log" else 0.5 * (start + end)
    box: Any = {"facecolor": theme.panel, "edgecolor": "none", "pad": 2.0}
    if upright:
        _write_beside(ax, middle, words, share)
        return True
    found = _fitting(ax, words, share)
    if found is not None:
        text, turned, size = found
        ax.text(middle, 0.97, text, transform=ax.get_xaxis_transform(), ha="center", va="top", color=theme.muted,
                bbox=box, rotation=90 if turned else 0, zorder=0.6, linespacing=1.0, fontsize=size)  # fmt: skip
    return found is not None


def _fitting(ax: "Axes", words: str, share: float) -> tuple[str, bool, float] | None:
    """Words as large as they fit into a stretch of an axis of time, whether turned, and their size; None if they don't.

    Parameters: `share`, that of the stretch in the width of the axes.
    """
    figure: Any = ax.figure
    box = ax.get_position()
    width, height = 72 * box.width * figure.get_figwidth() * share, 72 * box.height * figure.get_figheight()
    for smaller in (1.0, 0.85, 0.7):
        size = smaller * style.current().font_size
        for turned in (False, True):
            for text in (words, words.replace(", ", ",\n")):
                lines = text.split("\n")
                long, thick = 0.6 * size * max(map(len, lines)), size * (0.4 + 1.2 * len(lines))
                if (thick if turned else long) <= width and (long if turned else thick) <= 0.94 * height:
                    return text, turned, size
    return None


def _write_beside(ax: "Axes", height: float, words: str, stretch: float) -> None:
    """Write words to the right of the axes, at a height in data: downwards, or along a short stretch in lines.

    They stay within the ends of the axes. `stretch` is a share of the axes' height.
    """
    theme = style.current()
    share = ax.transAxes.inverted().transform(ax.transData.transform((ax.get_xlim()[0], height)))[1]
    inches_high = ax.get_position().height * ax.figure.get_figheight()  # type: ignore[union-attr]
    line = theme.font_size / 72 / inches_high
    downwards = stretch > 0.55 * line * len(words)
    text = words if downwards else words.replace(" ", "\n")
    half = 0.5 * (0.55 * len(words) if downwards else 1.3 * (1 + text.count("\n"))) * line
    place = float(np.clip(share, min(half, 0.5), max(1 - half, 0.5)))
    ax.annotate(
        text, (1.0, place), (5, 0), "axes fraction", "offset points", rotation=270 if downwards else 0, ha="left",
        va="center", color=theme.muted,
    )  # fmt: skip


def mark_changes(ax: "Axes", trajectory: "Trajectory", *, axis: str = "x") -> None:
    """Dotted lines where the field jumps: from layer to layer, or where a schedule bends."""
    theme = style.current()
    times = np.asarray(trajectory.times, float)
    changes = [time for time in trajectory.facts.changes if times[0] < time < times[-1]]
    crowded = trajectory.facts.counts_layers and len(changes) > _MOST_LAYERS  # whose axis counts them
    if len(changes) <= _MOST_CHANGES and not crowded:
        for time in changes:
            draw = ax.axvline if axis == "x" else ax.axhline
            draw(time, color=theme.muted, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1.5)


def set_title(ax: "Axes", trajectory: "Trajectory | None", fallback: str = "", *, time: float | None = None) -> None:
    """Title the axes by the run's title, where the theme has titles, and by the time of a frame."""
    title = str((trajectory.metadata or {}).get("title") or "") if trajectory is not None else ""
    when = "" if time is None else time_words(trajectory, time)
    write_title(ax, title or fallback if style.current().annotated else "", when)


def write_title(ax: "Axes", text: str, tail: str = "") -> None:
    """Title the axes by cleaned text and a tail that is never shortened, in as many lines as their width needs."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    place, figure = ax.get_position(), ax.figure
    alone = len(figure.axes) == 1 and rcParams["axes.titlelocation"] == "left"  # then it may be wider than its axes
    points = (_ALONE if alone else place.width) * figure.get_figwidth() * 72  # type: ignore[union-attr]
    size = FontProperties(size=rcParams["axes.titlesize"]).get_size_in_points()
    ax.set_title(style.wrapped(text, tail, points, size))


def title_figure(figure: "Figure", trajectory: "Trajectory", words: str = "", more: str = "") -> None:
    """Title a figure of several axes by the run's title, or else by `words`, and by what `more` there is to say.

    Where the theme has no titles, `more` alone is written.
    """
    title = str((trajectory.metadata or {}).get("title") or words) if style.current().annotated else ""
    write_figure_title(figure, title, more)


def write_figure_title(figure: "Figure", text: str, tail: str = "") -> None:
    """Title a figure by cleaned text and a tail that is never shortened, in as many lines as its width needs."""
    size = 1.15 * style.current().font_size
    title = style.wrapped(text, tail, 0.97 * 72 * figure.get_figwidth(), size)
    if title:
        figure.suptitle(title, x=0.012, ha="left", fontsize=size)


def time_words(trajectory: "Trajectory | None", time: float) -> str:
    """A time for a title, "t = 3.00", or "layer 3" (of other maps "step 3") where time counts the layers of a network.

    Figures, the clock of a movie and that of the page all go by the run's `time_unit`.
    """
    unit = None if trajectory is None else trajectory.facts.time_unit
    if unit is not None:
        return f"{unit} {time:.6g}"
    return f"t = {format_time(time)}"


def format_time(time: float) -> str:
    """A time for a title: always three significant digits, so that a clock keeps its width."""
    if time != 0 and not 1e-3 <= abs(time) < 1e4:
        exponent = int(np.floor(np.log10(abs(time))))
        digits = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{time / 10.0**exponent:.2f}·10{digits}"
    return (f"{time:#.3g}".rstrip(".") if abs(time) < 1000 else f"{time:.0f}") if time else "0"
