"""Themes, colours and text: what is drawn stays readable, and what comes from outside stays harmless."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import LogNorm, to_rgb
from matplotlib.figure import Figure

from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.plots.matrices.pair_matrices import color_bar


def relative_luminance(colors):
    """The luminance of the web's contrast rule."""
    linear = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(colors, background):
    pair = np.stack([relative_luminance(colors), np.full(len(colors), relative_luminance(background))])
    return (pair.max(axis=0) + 0.05) / (pair.min(axis=0) + 0.05)


@pytest.mark.parametrize("name", sorted(style.THEMES))
def test_text_and_categories_stand_out_from_the_page(name):
    theme = style.find(name)
    page = np.array(to_rgb(theme.background))
    text = np.array([to_rgb(theme.text), to_rgb(theme.muted)])
    assert contrast(text, page).min() >= 4.5
    assert contrast(style.palette(7, theme), page).min() >= 2.0


@pytest.mark.parametrize("name", sorted(style.THEMES))
def test_categories_differ_for_colour_blind_readers(name):
    # Viénot's linear map to what a reader without the medium (green) cones sees
    deuteranope = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])
    colors = style.palette(6, style.find(name))
    linear = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ deuteranope.T, 0, 1) ** (1 / 2.2)
    distance = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.eye(6)
    assert distance.min() > 0.1


def test_oklch_gives_known_colours():
    # white, black and the sRGB primary red, whose OKLCH coordinates are published with the colour space
    found = style.oklch(np.array([1.0, 0.0, 0.62796]), np.array([0.0, 0.0, 0.25768]), np.radians([0.0, 0.0, 29.234]))
    np.testing.assert_allclose(found, [[1, 1, 1], [0, 0, 0], [1, 0, 0]], atol=4e-3)


def test_many_categories_are_distinct_and_keep_their_order():
    colors = style.palette(40)
    assert colors.shape == (40, 3)
    assert len(np.unique(colors.round(4), axis=0)) == 40
    np.testing.assert_array_equal(colors[:11], style.palette(11))


def test_ordered_colours_grow_lighter_and_cyclic_ones_close():
    luminance = relative_luminance(style.ordered_colors(np.linspace(0, 1, 50)))
    assert np.all(np.diff(luminance) > 0)
    np.testing.assert_allclose(style.cyclic_colors(np.array(-np.pi)), style.cyclic_colors(np.array(np.pi)), atol=1e-12)


def test_labels_outside_clusters_are_grey():
    grey = to_rgb(style.current().muted)
    colors = style.label_colors(np.array([0, -1, 2]))
    np.testing.assert_allclose(colors[1], grey)
    np.testing.assert_allclose(colors[[0, 2]], style.palette(3)[[0, 2]])


def test_theme_is_switched_on_and_off():
    before = mpl.rcParams["axes.facecolor"]
    with style.use("dark") as theme:
        assert style.current() is theme
        assert mpl.rcParams["figure.facecolor"] == theme.background
    assert style.current().name == "light"
    assert mpl.rcParams["axes.facecolor"] == before
    with pytest.raises(ArgumentError, match="'sepia'"):
        style.find("sepia")


@pytest.mark.parametrize("kind", ["density", "diverging", "sequential"])
def test_colour_maps_exist_for_every_theme(kind):
    for name in style.THEMES:
        with style.use(name):
            colors = style.colormap(kind)(np.linspace(0, 1, 5))
            assert len(np.unique(colors, axis=0)) == 5
    with pytest.raises(ArgumentError, match="'rainbow'"):
        style.colormap("rainbow")


def drawn_text(text) -> Any:
    figure = Figure()
    label = figure.text(0.1, 0.5, text)
    figure.canvas.draw()
    return label


@pytest.mark.parametrize(
    "title",
    [r"$\frac{1}{0$", "$$", r"\$5 and $6", "a\x00b\u202ec\n\td", "漢字 😀", "<script>alert(1)</script>", "", "$" * 500],
)
def test_hostile_titles_are_drawn_as_plain_text(title):
    for name in style.THEMES:
        with style.use(name):
            label = drawn_text(style.clean(title))
            assert not label._preprocess_math(label.get_text())[1]


@settings(max_examples=8, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_short_plain_and_drawable(text):
    cleaned = style.clean(text, 40)
    assert len(cleaned.replace(r"\$", "$")) <= 40
    assert cleaned.isprintable()
    assert drawn_text(cleaned).get_window_extent().height >= 0


@pytest.mark.parametrize(("greatest", "small"), [(1e4, False), (30.0, True)])
def test_long_logarithmic_scales_name_their_powers_alone(greatest, small):
    """Two powers of ten with names are a scale; where there are fewer, the small ticks are read."""
    ax = Figure().add_subplot()
    color_bar(ax, ax.pcolormesh(np.ones((2, 2)), norm=LogNorm(1.0, greatest)), "density")
    bar = ax.child_axes[0].yaxis
    named = [value for value in bar.get_majorticklocs() if 1.0 <= value <= greatest]
    np.testing.assert_allclose(named, 10.0 ** np.arange(len(named)))
    assert len(named) >= 2
    assert bool(len(bar.get_minorticklocs())) is small


def test_small_print_is_broken_between_its_parts():
    text = "β = 6 · n = 96 · rings of a dot: shares of the labels there · open dots: behind the sphere"
    assert style.wrapped_parts(text, " · ", 10_000, 8) == text
    lines = style.wrapped_parts(text, " · ", 340, 8).split("\n")
    assert len(lines) == 2
    assert " · ".join(lines) == text
    assert "\n" in style.wrapped_parts("one part that is longer than its line", " · ", 60, 8)
