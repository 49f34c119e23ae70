"""Values on places that stay, and runs with noise, as movies and the page show them."""

from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from page_oracles import pixels, state, stored
from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.movie.movie import Movie
from particleflow.view.plots.subjects.placed_values import placed_values
from particleflow.view.webpage import page_data
from particleflow.view.webpage.placed_codes import placed_codes

SQUARE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [3.0, 2.0]]
SHARES = np.array([[1.0, 0.0], [0.25, 0.75], [0.4, 0.4], [0.2, 0.1], [0.0, 0.0]])
LEADS = [1.0, 0.5, 0.0, 0.1, 0.0]  # of the largest share over the other
BLUE, ORANGE = (np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255 for color in ("#0072b2", "#e69f00"))


def on_places(places: Any, values: np.ndarray, **more: Any) -> Trajectory:
    """Values (T, n, d) at places (n, p) that alone decide which of them see each other."""
    kernel = {"kind": "placed", "places": places, "kernel": {"kind": "gaussian", "width": 1.0}}
    metadata = {"interactions": [{"kernel": kernel}], "space": {"kind": "flat"}, "title": "Values"}
    return Trajectory.from_arrays(np.arange(len(values), dtype=float), values, metadata=metadata, **more)


def labelled() -> Trajectory:
    """Two frames of shares of two labels, of which the first has one label everywhere."""
    return on_places(SQUARE, np.stack([np.tile([1.0, 0.0], (5, 1)), SHARES]))


def line() -> Trajectory:
    """One value on each place of a line, which are not in their order."""
    return on_places([[2.0], [0.0], [1.0]], np.array([[[1.0], [2.0], [4.0]], [[1.0], [3.0], [2.0]]]))


def movie_of(run: Trajectory, **options: Any) -> Movie:
    """The movie of a run, five frames evenly spaced in time, in the light theme."""
    with style.use("light"):
        return Movie(run, 5, "linear", (640, 368), **options)


def test_labels_in_the_plane_are_coloured_dots_at_their_places():
    movie = movie_of(labelled(), trail=4)
    with style.use("light"):
        image = np.asarray(movie.frame(4))[..., :3] / 255
    layer = movie.stage.places_layer
    assert layer is not None
    order = [2, 4, 0, 1, 3]  # empty circles are drawn first
    np.testing.assert_array_equal(layer.artist.get_offsets(), np.array(SQUARE)[order])
    colors = layer.artist.get_facecolors()[np.argsort(order)]
    np.testing.assert_allclose(colors[:, 3], [0.25 + 0.75 * lead if lead else 0.0 for lead in LEADS])
    np.testing.assert_allclose(colors[[0, 1, 3], :3], [BLUE, ORANGE, BLUE], atol=1e-9)
    seen = movie.stage.main.transData.transform(SQUARE)
    for (column, row), color, lead in zip(seen, [BLUE, ORANGE, BLUE, BLUE, BLUE], LEADS, strict=True):
        shade = 0.25 + 0.75 * lead if lead else 0.0
        np.testing.assert_allclose(image[round(367.5 - row), round(column - 0.5)], shade * color + 1 - shade, atol=0.02)
    assert [text.get_text() for text in movie.stage.main.get_legend().get_texts()] == ["label 0", "label 1"]
    assert movie._trail == 0
    with pytest.raises(ArgumentError, match="colors"):
        movie_of(labelled(), colors=np.arange(5))


def test_values_over_a_line_are_a_curve_that_moves():
    movie = movie_of(line())
    layer, ax = movie.stage.places_layer, movie.stage.main
    assert layer is not None
    with style.use("light"):
        movie.frame(2)  # half-way
    np.testing.assert_allclose(layer.artist.get_xydata(), [[0.0, 2.5], [1.0, 3.0], [2.0, 1.0]])
    start = next(each for each in ax.collections if each.get_label() == "start")
    np.testing.assert_allclose(np.asarray(start.get_offsets()), [[2.0, 1.0], [0.0, 2.0], [1.0, 4.0]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "value")


def test_only_values_that_have_a_place_to_be_drawn_at_are_drawn_there():
    """Neither two values on a line, nor two that are no shares in the plane, nor one frame."""
    shares = np.stack([SHARES, SHARES])
    assert placed_values(on_places(np.arange(5.0)[:, None], shares)) is None
    assert placed_values(on_places(SQUARE, 3 * shares)) is None
    assert placed_values(on_places(SQUARE, shares[:1])) is None
    found = placed_values(on_places(SQUARE, 3 * shares[..., :1]))
    assert found is not None
    assert (found.kind, found.low, found.high, found.is_grid) == ("places", 0.0, 3.0, False)
    np.testing.assert_allclose(found.levels(3 * SHARES[:, :1]), SHARES[:, 0])


def test_the_page_stores_places_and_codes_of_their_colours():
    run = labelled()
    found, codes = page_data.survey(run), placed_codes(run)
    assert codes is not None
    shown = page_data.reader(run, found, np.array([4, 1]))(np.array([0, 1]))
    np.testing.assert_array_equal(shown, [[SQUARE[4], SQUARE[1]]] * 2)
    np.testing.assert_array_equal(codes([1])[0], [255, 256 + 128, 0, 26, 0])
    assert page_data.circle_radius(run) is None
    heights = page_data.reader(line(), page_data.survey(line()), None)(np.array([1]))
    np.testing.assert_array_equal(heights, [[[2.0, 1.0], [0.0, 3.0], [1.0, 2.0]]])


def noisy(step: float, **metadata: float) -> Trajectory:
    """120 particles on the circle that jump by an angle of `step`, back and forth."""
    angle = np.linspace(0, 2 * np.pi, 120) + step * (np.arange(12)[:, None] % 2)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    table = {"geometry": "sphere", "space": {"kind": "sphere", "radius": 1.0}} | metadata
    return Trajectory.from_arrays(np.arange(12.0), points, metadata=table)


@pytest.mark.parametrize(
    ("step", "noise", "trail", "density"),
    [
        (0.10, {"temperature": 1.0}, 0, True),  # 4.5 % of the picture's width of 2.2
        (0.05, {"temperature": 1.0}, 4, True),
        (0.10, {"common temperature": 1.0}, 4, False),
        (0.10, {}, 4, False),
    ],
)
def test_jumps_of_noise_have_no_trails_and_their_history_is_a_density(step, noise, trail, density):
    movie = movie_of(noisy(step, **noise), trail=4)
    assert movie._trail == trail
    history = movie.stage.panels[0].axes
    assert any(type(each).__name__ == "QuadMesh" for each in history.collections) == density


@pytest.mark.slow
def test_the_page_draws_values_on_their_places(show):
    page = show(labelled())
    page.evaluate("window.particleflow.seek(1)")
    assert state(page).mode == "leading"
    drawn = page.evaluate("window.particleflow.placed(1)")
    shades = [0.25 + 0.75 * lead if lead else 0.0 for lead in LEADS]
    np.testing.assert_allclose([shade for _, shade in drawn], shades, atol=0.75 / 255)
    np.testing.assert_allclose([drawn[j][0] for j in (0, 1, 3)], 255 * np.array([BLUE, ORANGE, BLUE]), atol=0.5)
    seen = pixels(page)
    height, width, _ = seen.shape
    pad = 0.7  # of the gap, which is 1
    scale = min((width - 80) / (3 + 2 * pad), (height - 136) / (2 + 2 * pad))
    for j in (0, 1):
        row, column = (
            (height + 78 - 58) / 2 - (SQUARE[j][1] - 1) * scale,
            (width + 32) / 2 + (SQUARE[j][0] - 1.5) * scale,
        )
        expected = shades[j] * np.array(drawn[j][0]) / 255 + (1 - shades[j]) * np.array(to_rgb("#ffffff"))
        assert np.allclose(seen[round(row), round(column)], expected, atol=0.06)
    assert page.locator("#legend").inner_text().split() == ["label", "0", "label", "1"]
    curve = show(line())
    assert state(curve).mode == "value"
    np.testing.assert_allclose(stored(curve, 1, 2), [[2.0, 1.0], [0.0, 3.0], [1.0, 2.0]], atol=1e-4)
    assert curve.locator("#legend").inner_text().split() == ["start", "now"]
