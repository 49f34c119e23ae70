"""Ticks of a phase diagram: with few values exactly these, with many those of the axis."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest

import particleflow

view: Any = particleflow.view


@pytest.mark.parametrize("log", [False, True])
def test_few_values_are_the_ticks(log):
    x, y = np.array([0.5, 1.0, 4.0]), np.array([1.0, 2.0, 3.0, 8.0])
    ax = view.phase_diagram(x, y, np.arange(12.0).reshape(4, 3), log_x=log, log_y=log)
    ax.figure.canvas.draw()
    for axis, values, names in ((ax.xaxis, x, ["0.5", "1", "4"]), (ax.yaxis, y, ["1", "2", "3", "8"])):
        np.testing.assert_allclose(axis.get_majorticklocs(), values)
        assert [label.get_text() for label in axis.get_ticklabels()] == names
        assert len(axis.get_minorticklocs()) == 0


def test_names_that_would_overlap_are_left_out():
    ax = view.phase_diagram([1.0, 1.01, 9.0], [0.0, 1.0], np.zeros((2, 3)))
    assert [label.get_text() for label in ax.xaxis.get_ticklabels()] == ["1", "", "9"]
    np.testing.assert_allclose(ax.xaxis.get_majorticklocs(), [1.0, 1.01, 9.0])


def test_many_values_have_the_ticks_of_an_axis():
    ax = view.phase_diagram(np.linspace(0, 1, 30), [0.0, 1.0], np.zeros((2, 30)))
    assert len(ax.xaxis.get_majorticklocs()) < 15
