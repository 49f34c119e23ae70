"""The side panels of a movie: plots over time beside the particles, with a cursor that moves and the past revealed.

A panel is an ordinary figure of `view.plots` on its own axes. It is drawn twice before the first frame: with its curve
(the past) and with a faint one (the future). A frame needs only the pixel column of its cursor and the row of its dot.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.run_character import character_of
from particleflow.view import style
from particleflow.view.plots.base import Projection, is_crowd
from particleflow.view.plots.density.density_scale import Field, field_of
from particleflow.view.plots.density.distributions import particle_density
from particleflow.view.plots.density.histograms import cell_count
from particleflow.view.plots.space.paths import kymograph
from particleflow.view.plots.subjects.placed_values import PlacedValues
from particleflow.view.plots.time.series import cluster_count, energy_name, observable, observable_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEFT, _WIDTH, _BOTTOM, _TOP, _GAP = 0.62, 0.345, 0.115, 0.87, 0.035  # of the column of panels, in shares of the frame
_NUMBER_SHARE = 0.27  # of the column's height for a curve of numbers, where three panels share it
_LEAST_CELL_PIXELS = 1.3  # of a cell of a density: narrower ones may fall between two pixels


@dataclass
class Panel:
    """One plot over time: its axes, pixel box (left, top, right, bottom), cursor column and dot row by instant.

    Its curve goes through `values`, one a frame: straight from one to the next, or with `steps` half way to it.
    """

    axes: Any
    box: tuple[int, int, int, int] = (0, 0, 0, 0)
    columns: np.ndarray = field(default_factory=lambda: np.zeros(0))
    dots: np.ndarray | None = None
    color: Any = None
    values: np.ndarray | None = None
    steps: bool = False

    def measure(self, height: int, saved: np.ndarray, shown: np.ndarray) -> None:
        """Find the pixel box, and the pixels of cursor and dot at every shown instant.

        Parameters: the `height` of the canvas in pixels; the times of the `saved` frames and of the `shown` instants,
        as drawn on the axis.
        """
        bounds = self.axes.get_window_extent()
        # one column to the right of the axis line, and below the top: spines and ticks stay as they are
        self.box = int(bounds.x0) + 1, int(height - bounds.y1), int(np.ceil(bounds.x1)), int(height - bounds.y0)
        columns = self._pixels(shown, np.ones_like(shown))[:, 0]
        self.columns = np.clip(columns, self.box[0], self.box[2])
        if self.values is not None:
            known = np.isfinite(self.values)
            corners = self._pixels(saved, np.where(known, self.values, 1.0))
            rows = np.where(known, height - corners[:, 1], np.nan)
            nearest = np.searchsorted(0.5 * (saved[1:] + saved[:-1]), shown, side="right")
            self.dots = rows[nearest] if self.steps else np.interp(columns, corners[:, 0], rows)

    def _pixels(self, times: np.ndarray, heights: np.ndarray) -> np.ndarray:
        """Pixel coordinates (k, 2), from the lower left corner, of points (time, height) of the curve."""
        return self.axes.transData.transform(np.column_stack([times, heights]))


@dataclass(frozen=True)
class KnownClusters:
    """The clusters given to `animate`: `labels` by particle, `counts` (T,), and `plateaus`."""

    labels: Any = None
    counts: Any = None
    plateaus: Any = ()


def has_history_panel(view: Projection | PlacedValues, density: Field | None) -> bool:
    """Whether a panel shows all of time: the main picture of particles on a line does so itself."""
    return view.kind == "circle" or (view.kind == "line" and density is not None)


def is_noisy(run: Any) -> bool:
    """Whether every particle has noise of its own, so that lines through its saved places are a tangle of jumps."""
    return character_of(run).temperature > 0


def panel_count(run: Any, view: Projection | PlacedValues, clusters: KnownClusters) -> int:
    """The number of side panels: one each for the history, the energy and the cluster count, where there is one."""
    history = has_history_panel(view, field_of(run))
    return history + (scalar_energy(run) is not None) + (clusters.counts is not None)


def scalar_energy(run: Any) -> np.ndarray | None:
    """The recorded energy (T,), or its logarithm; None where there is none that is one number a frame, or finite."""
    name = energy_name(run)
    values = None if name is None else observable_values(run, name)
    return values if values is not None and np.isfinite(values).any() else None


def build_panels(
    figure: Any, run: Any, view: Projection | PlacedValues, log: bool, clusters: KnownClusters
) -> list[Panel]:
    """The column of panels at the right, from the top: history (circle, density on a line), energy, cluster count."""
    theme, density = style.current(), field_of(run)
    history, energy = has_history_panel(view, density), scalar_energy(run)
    number = panel_count(run, view, clusters)
    share = _NUMBER_SHARE if history and number == 3 else 1.0 / max(number, 1)
    panels: list[Panel] = []
    if history:
        panels.append(Panel(_next_axes(figure, panels, number, 1.0 - share * (number - 1))))
        _draw_history(panels[-1].axes, run, log, density, clusters.labels)
    if energy is not None:
        panels.append(Panel(_next_axes(figure, panels, number, share), color=theme.categories[0], values=energy))
        observable(run, energy_name(run) or "energy", log=log, ax=panels[-1].axes)
    if clusters.counts is not None:
        counts, color = np.asarray(clusters.counts, float), theme.categories[3]
        panels.append(Panel(_next_axes(figure, panels, number, share), color=color, values=counts, steps=True))
        noun = "clusters" if density is None else "peaks"
        cluster_count(run, clusters.counts, plateaus=clusters.plateaus, log=log, of=noun, ax=panels[-1].axes)
    _share_time_axis(figure, panels)
    return panels


def _next_axes(figure: Any, panels: list[Panel], number: int, share: float) -> "Axes":
    """Axes below the last panel, whose height is a share of what `number` panels have together."""
    height = (_TOP - _BOTTOM - _GAP * (number - 1)) * share
    upper = panels[-1].axes.get_position().y0 - _GAP if panels else _TOP
    return figure.add_axes((_LEFT, upper - height, _WIDTH, height))


def _draw_history(ax: "Axes", run: Any, log: bool, density: Field | None, labels: Any) -> None:
    """The kymograph, or of a crowd, noise or a density the density against time, in cells that a pixel can show."""
    if not is_crowd(run) and density is None and not is_noisy(run):
        kymograph(run, labels=labels, log=log, words=False, ax=ax)
        return
    fine = max(int(ax.get_window_extent().height / _LEAST_CELL_PIXELS), 2)
    cells = fine if density is not None else min(cell_count(run.count), fine)
    particle_density(run, log=log, cells=cells, bar=False, ax=ax)


def _share_time_axis(figure: Any, panels: list[Panel]) -> None:
    """Leave the name and the numbers of the time axis to the lowest panel, and align the names of the others."""
    for panel in panels:
        panel.axes.set_title("")
        if panel is not panels[-1]:
            panel.axes.set_xlabel("")
            panel.axes.tick_params(labelbottom=False)
    figure.align_ylabels([panel.axes for panel in panels])
