"""The card that a notebook shows: dots where the figures have them, whatever the space, and no element from outside."""

import re

import numpy as np
import pytest

from figure_oracles import make, offsets
from page_oracles import EVIL, demo
from particleflow import view
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.card import SIZE, notebook_card
from particleflow.view.plots.camera import camera_of
from shares import by_default

SPACES = [(1, False), (2, False), (2, True), (3, False), (3, True), (8, False), (8, True)]


def pictures(card: str) -> list[np.ndarray]:
    """The places of the dots in every picture of a card."""
    drawn = [body for body in re.findall(r"<svg.*?</svg>", card, re.DOTALL) if "<circle" in body]
    return [np.array(re.findall(r'<circle cx="([-\d.]+)" cy="([-\d.]+)"', body), float) for body in drawn]


CROSSED = [(*space, runs) for space in SPACES for runs in (None, 2)]


@pytest.mark.parametrize("case", by_default(CROSSED, CROSSED[::3]), ids=str)  # every space or its neighbour, both forms
def test_dots_are_where_the_figures_have_them(case):
    """Up to one scale and shift for all pictures of a card; rows of a picture grow downwards."""
    dimension, sphere, runs = case
    run = make(dimension, sphere=sphere, runs=runs)
    shown = pictures(view.notebook_card(run))
    assert len(shown) == 3
    assert all(((places >= 0) & (places <= SIZE)).all() for places in shown)
    expected = [offsets(view.snapshot(run, frame)) for frame in (0, 3, 6)]
    ours, theirs = (np.concatenate([np.sort(each, axis=0) for each in places]) for places in (shown, expected))
    ours[:, 1] = np.concatenate([np.sort(SIZE - places[:, 1]) for places in shown])
    for axis in (0, 1):
        scale, shift = np.polyfit(theirs[:, axis], ours[:, axis], 1)
        assert scale > 0
        np.testing.assert_allclose(scale * theirs[:, axis] + shift, ours[:, axis], atol=0.11)


def test_what_is_behind_the_sphere_is_open_as_in_figures():
    run = make(3, sphere=True, count=200)
    groups = re.findall(r'<g fill="(.*?)".*?>(.*?)</g>', notebook_card(run))
    towards = camera_of(run).rotation[2]
    behind = [int((np.asarray(run.points[frame]) @ towards < 0).sum()) for frame in (0, 3, 6)]
    assert [body.count("<circle") for fill, body in groups if fill == "none"] == behind


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_short_runs_and_points_that_are_no_numbers(frames):
    points = np.ones((frames, 4, 2))
    points[:, 1] = np.nan
    card = notebook_card(Trajectory.from_arrays(np.arange(float(frames)), points))
    assert card.count("<circle") == 3 * frames


@pytest.mark.parametrize("outlier", [np.inf, 1e200, 1e308])
@pytest.mark.parametrize(("dimension", "sphere"), SPACES)
def test_points_too_far_out_leave_the_card_standing(dimension, sphere, outlier):
    plain = make(dimension, sphere=sphere)
    points = np.array(plain.points)
    points[3:, 1] = outlier
    card = notebook_card(Trajectory.from_arrays(plain.times, points, metadata=plain.metadata))
    assert card.startswith("<div")
    assert not re.search(r'"(nan|-?inf)"', card)


def test_card_escapes_and_counts():
    run = demo(EVIL, observables={EVIL: np.arange(40.0)})
    card = notebook_card(run)
    assert run._repr_html_() == card
    assert "<script" not in card
    assert "<img" not in card
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in card
    assert card.count("<circle") == 3 * 60
    assert card.count("<polyline") == 1
    assert "40 frames" in card
    assert len(card) < 40_000
