"""Logarithmic axes end where what is drawn is rounding, by one rule, in figures and on the page; and they say so."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest

import particleflow
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.plots.base import log_axis, new_axes, rounding_level
from particleflow.view.plots.figure_set import _plan
from particleflow.view.webpage import page_data

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know
TIMES = np.linspace(0.0, 200.0, 101)
DECAY = np.exp(-TIMES)  # down to 1e-87


def run_of(dtype: Any = np.float64, **series: np.ndarray) -> Trajectory:
    points = np.zeros((len(TIMES), 3, 2)) + np.eye(3, 2)
    return Trajectory.from_arrays(TIMES, points, observables={k: v.astype(dtype) for k, v in series.items()})


def words_in(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize(
    ("dtype", "power", "level"), [(np.float64, 1, 64 * 2.0**-52), (np.float64, 2, 2.0**-92), (np.float32, 1, 2.0**-17)]
)
def test_the_level_of_rounding_is_64_ulps_of_the_largest_value(dtype, power, level):
    values = np.array([1e-30, 0.5, 3.0, np.nan, -1.0], dtype)
    assert rounding_level(values, power=power) == pytest.approx(3.0 * level, rel=1e-12)
    assert rounding_level(np.zeros(3)) == 0
    assert rounding_level(np.array([np.inf, np.nan])) == 0


@pytest.mark.parametrize(("name", "dtype", "level"), [
    ("speed", np.float64, 2.0**-46), ("dissipation", np.float64, 2.0**-92), ("speed", np.float32, 2.0**-17),
])  # fmt: skip
def test_a_series_that_falls_below_rounding_ends_there(name, dtype, level):
    ax = view.observable(run_of(dtype, **{name: np.maximum(DECAY, 1e-38)}), name)
    assert ax.get_yscale() == "log"
    assert 0.01 * level < ax.get_ylim()[0] < level
    line = ax.lines[-1].get_ydata()
    assert line.min() == pytest.approx(level, rel=1e-6)
    above = level < DECAY
    np.testing.assert_allclose(line[above], DECAY[above], rtol=1e-6)
    assert words_in(ax) == ["at rounding"]


def test_what_stays_above_rounding_is_drawn_as_it_is():
    ax = view.observable(run_of(speed=np.exp(-TIMES / 10)), "speed")
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), np.exp(-TIMES / 10))
    assert words_in(ax) == []


def test_runs_on_one_axis_share_its_end():
    ax = view.compare({"a": run_of(speed=DECAY), "b": run_of(speed=100 * DECAY)}, "speed")
    assert min(np.min(line.get_ydata()) for line in ax.lines) == pytest.approx(100 * 2.0**-46)
    assert set(words_in(ax)) == {"at rounding"}


def test_upright_lines_mark_the_rounding_of_a_horizontal_axis():
    ax = new_axes(None)
    shown = log_axis(ax, np.array([1e-20, 1e-3, 1.0]), axis="x")
    assert ax.get_xscale() == "log"
    np.testing.assert_allclose(shown, [2.0**-46, 1e-3, 1.0])
    assert words_in(ax) == ["at rounding"]


def test_the_page_has_the_levels_of_the_figures():
    run = run_of(speed=DECAY, dissipation=DECAY**2)
    found = page_data.scalar_observables(run, np.arange(len(TIMES)))
    assert dict(zip(found, page_data.rounding_levels(run, found), strict=True)) == pytest.approx(
        {"speed": 2.0**-46, "dissipation": 2.0**-92}
    )


def test_an_order_parameter_that_the_start_forbids_is_not_drawn():
    angles = 2 * np.pi * np.arange(60) / 60
    points = np.stack([np.stack([np.cos(angles), np.sin(angles)], axis=1)] * 2)
    attention = {"kernel": {"kind": "attention", "form": "inner", "beta": 5.0}, "value": 1.0, "normalization": "none"}
    metadata = {"geometry": "sphere", "driven by interactions": True, "interactions": [attention]}

    def run_with(order: int) -> Trajectory:
        masses = np.stack([1 + size * np.cos(order * angles) + 1e-3 * size**4 * np.cos(angles) for size in (0.1, 0.9)])
        masses[0] -= 1e-7 * np.cos(angles)
        series = {"order_parameter": np.abs(masses @ np.exp(1j * angles)) / 60}
        fields = {"masses": masses / 60}
        return Trajectory.from_arrays([0.0, 1.0], points, observables=series, fields=fields, metadata=metadata)

    run, other = run_with(3), run_with(1)
    assert run.observables["order_parameter"][1] > 1e-4
    assert "observable_order_parameter" in dict(_plan(other, None))
    assert "observable_order_parameter" not in dict(_plan(run, None))
    assert list(page_data.scalar_observables(run, np.arange(2))) == []
    assert words_in(view.observable(run, "order_parameter")) == ["0 by the symmetry of the start: errors of the scheme"]
    drawn = view.modes(run)
    labels = [text.get_text() for text in drawn.get_legend().get_texts()]
    assert labels == ["errors of the scheme:\nmodes 1, 2, 4, 5,\nnot in the start", "mode 3"]
