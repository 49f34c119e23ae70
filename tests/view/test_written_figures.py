"""How figures are written: chosen by name, in a size, with text that can be edited, in the reader's own style."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest
from cycler import cycler
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.image import imread
from matplotlib.text import Text

import particleflow
from density_oracles import RADIUS
from density_oracles import make as density
from figure_oracles import make
from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.plots.figure_set import FIGURES, OBSERVABLE, _plan
from particleflow.view.plots.saving import save_figure
from shares import by_default

view: Any = particleflow.view
LONG = (
    "Eighty particles on a sphere gather in a few clusters, which stay for a long time before the last two of them "
    "become one"
)
MERGES = {"counts": np.arange(7, 0, -1), "merge_tree": [(0, 1, 1.0, 2), (2, 3, 2.0, 2)]}


def test_only_the_figures_that_are_asked_for_are_written(tmp_path):
    run = make(2, sphere=True, observables={"energy": np.arange(7.0), "spread": np.arange(7.0)})
    written = view.figures(run, tmp_path, only=["gram", "snapshots"], dpi=20)
    assert [path.name for path in written] == ["gram.png", "snapshots.png"]
    assert [path.stem for path in view.figures(run, tmp_path, only="kymograph", dpi=20)] == ["kymograph"]
    everything = view.figure_names(run)
    leading = [path.stem for path in view.figures(run, tmp_path, dpi=20)]
    assert leading == everything[: len(leading)]
    assert 3 <= len(leading) <= 5 < len(everything)
    assert set(everything) == dict(_plan(run, particleflow.analysis.track_clusters(run))).keys()


def test_a_name_that_suits_no_figure_is_refused_with_those_that_do(tmp_path):
    with pytest.raises(ArgumentError, match=r"'grm'; did you mean 'gram'\? There is: kymograph, .*snapshots"):
        view.figures(make(2, sphere=True), tmp_path / "new", only=["grm"])
    with pytest.raises(ArgumentError, match=r"'map'.*kymograph"):
        view.figures(make(2, sphere=True), tmp_path / "new", only=["map"])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"size": (3, 0)}, "`size`"), ({"size": 3}, "`size`"), ({"size": (1, 2, 3)}, "`size`"),
        ({"size": (1e9, 1)}, "`size`"), ({"dpi": 0}, "`dpi`"), ({"dpi": np.nan}, "`dpi`"), ({"dpi": 1e6}, "`dpi`"),
    ],
)  # fmt: skip
def test_sizes_that_make_no_picture_are_refused(options, why, tmp_path):
    with pytest.raises(ArgumentError, match=why):
        view.figures(make(2), tmp_path, **options)


@pytest.mark.parametrize("name", by_default(["snapshots", "gram", "kymograph", "staircase"], ["gram"]))
def test_pictures_have_the_pixels_that_are_asked_for(name, tmp_path):
    run = make(2, sphere=True)
    (path,) = view.figures(run, tmp_path, only=[name], analysis=MERGES, size=(4.5, 3), dpi=100)
    assert imread(path).shape[:2] == (300, 450)
    (path,) = view.figures(run, tmp_path, only=[name], analysis=MERGES, size=(5, 2.5))
    assert imread(path).shape[:2] == (800, 1600)
    (path,) = view.figures(run, tmp_path, only=[name], analysis=MERGES, theme="print")
    assert imread(path).shape[1] == 1600


def test_clusters_are_found_where_none_are_given(tmp_path):
    """Two of three particles meet: as on the page, the count of clusters and the tree of merges are drawn."""
    times, places = np.linspace(0, 1, 9), np.array([[0.0], [1.0], [9.0]])
    points = np.stack([np.where([[False], [True], [False]], (1 - time) * places, places) for time in times])
    run = Trajectory.from_arrays(times, points, metadata={"geometry": "euclidean"})
    assert {"staircase", "merge_tree"} <= set(view.figure_names(run))
    assert not {"staircase", "merge_tree"} & set(view.figure_names(run, False))
    (here,) = view.figures(run, tmp_path / "here", only="merge_tree", format="svg")
    track = particleflow.analysis.track_clusters(run)
    (given,) = view.figures(run, tmp_path / "given", only="merge_tree", format="svg", analysis=track)
    assert here.read_bytes() == given.read_bytes()


@pytest.mark.parametrize("theme", by_default(["light", "print", "dark", "user"], ["print"]))
def test_text_of_vector_files_is_text(theme, tmp_path):
    """A PDF embeds TrueType and no Type 3 fonts; an SVG holds text elements in a named font, and the words of axes."""
    run = make(3, sphere=True, metadata={"title": "Ein Titel β → ∞", "geometry": "sphere"})
    (path,) = view.figures(run, tmp_path, only="gram", format="pdf", theme=theme, dpi=40)
    assert b"/Type3" not in path.read_bytes()
    assert b"/TrueType" in path.read_bytes() or b"/CIDFontType2" in path.read_bytes()
    family = {"print": "STIXGeneral"}.get(theme, "DejaVu Sans")
    (path,) = view.figures(run, tmp_path, only="gram", format="svg", theme=theme, dpi=40)
    text = path.read_text(encoding="utf-8")
    assert "<text" in text
    assert family in text
    assert ("Ein Titel β → ∞" in text) == (theme != "print")
    assert "by cluster" in text or "neighbours side by side" in text


def test_a_picture_that_is_saved_by_itself_has_text_too(tmp_path):
    path = save_figure(view.kymograph(make(1)).figure, tmp_path / "kymograph.pdf")
    assert b"/Type3" not in path.read_bytes()


@pytest.mark.parametrize("theme", ["user", "print"])
def test_the_settings_of_matplotlib_stay_as_they_are(theme, tmp_path):
    mine: Any = {"axes.facecolor": "#fff8e7", "axes.grid": True, "font.size": 13.0, "svg.fonttype": "path"}
    with mpl.rc_context(mine):
        before = dict(mpl.rcParams)
        view.figures(make(2), tmp_path, only="kymograph", theme=theme, format="svg")
        assert dict(mpl.rcParams) == before


def test_the_user_theme_draws_in_the_users_own_style():
    mine: Any = {
        "figure.facecolor": "#102030", "axes.facecolor": "#203040", "font.size": 14.0, "figure.figsize": (8.0, 5.0),
        "axes.prop_cycle": cycler(color=["#ff0000", "#00ff00"]), "axes.titlelocation": "center",
    }  # fmt: skip
    with mpl.rc_context(mine), view.style.use("user") as theme:
        ax = view.energy(make(2))
        assert theme.is_dark
        assert mpl.rcParams["axes.titlelocation"] == "center"
        assert ax.get_facecolor()[:3] == pytest.approx(to_rgb("#203040"))
        assert to_hex(ax.lines[0].get_color()) == "#ff0000"
        assert ax.xaxis.label.get_fontsize() == 14.0
        assert ax.figure.get_figwidth() == pytest.approx(8.0)
        assert ax.get_title() == "A run"


def test_figures_for_print_have_neither_title_nor_small_print():
    run = make(3, sphere=True)
    with view.style.use("print"):
        one, row = view.snapshot(run), view.snapshots(run)[0].figure
        assert one.get_title(loc="left") == "t = 3.00"
        assert one.figure.get_supxlabel() == row.get_supxlabel() == row.get_suptitle() == ""
    assert "n = 12" in view.snapshot(run).figure.get_supxlabel()


RUNS: dict[str, Any] = {
    "line": lambda about: make(1, metadata=about),
    "circle": lambda about: make(2, sphere=True, metadata=about | {"geometry": "sphere"}),
    "sphere": lambda about: make(3, sphere=True, metadata=about | {"geometry": "sphere"}),
    "words": lambda about: make(8, metadata=about, words=[f"word{index}" for index in range(12)]),
    "space": lambda about: make(3, metadata=about),
    "density": lambda about: density(
        "circle", metadata=about | {"geometry": "sphere", "space": {"kind": "sphere", "radius": RADIUS}}
    ),
}


def outside(figure: Any) -> list[str]:
    """The texts whose extent leaves the figure by more than half a pixel; ticks beyond the ends are not drawn."""
    figure.canvas.draw()
    page, hidden, found = figure.bbox, set(), []
    for axis in figure.findobj(Axis):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        beyond = [tick for tick in ticks if not low <= tick.get_loc() <= high]
        hidden |= {label for tick in beyond for label in (tick.label1, tick.label2)}
    for text in figure.findobj(Text):
        box = text.get_window_extent()
        inside = box.x0 >= -0.5 and box.y0 >= -0.5 and box.x1 <= page.x1 + 0.5 and box.y1 <= page.y1 + 0.5
        if text.get_text() and text.get_visible() and text not in hidden and not inside:
            found.append(text.get_text())
    return found


@pytest.mark.parametrize("theme", by_default(["light", "print"], ["light"]))
@pytest.mark.parametrize("name", by_default(list(RUNS), ["density"]))
def test_no_text_of_a_figure_with_a_long_title_leaves_the_page(name, theme):
    assert len(LONG) == 120
    run = RUNS[name]({"title": LONG, "geometry": "euclidean"})
    with view.style.use(theme):
        drawn = {figure: np.ravel(draw())[0].figure for figure, draw in _plan(run, MERGES)}
        assert {figure: left for figure, each in drawn.items() if (left := outside(each))} == {}
    assert all(figure in FIGURES or figure.startswith(OBSERVABLE) for figure in drawn)
    if theme == "light":
        titles = {figure: each.get_suptitle() or each.axes[0].get_title(loc="left") for figure, each in drawn.items()}
        assert all("become one" in title.replace("\n", " ") for title in titles.values()), titles


def law() -> Trajectory:
    """A normal law in the plane by its nodes."""
    nodes = np.random.default_rng(0).normal(size=(40, 2))
    points = np.stack([nodes * [1.0 + 0.2 * frame, 1.0] for frame in range(5)])
    metadata = {"title": LONG, "geometry": "euclidean", "closed form": True}
    return Trajectory.from_arrays(np.arange(5.0), points, metadata=metadata)


TITLED = {"title": LONG, "geometry": "euclidean"}
OTHERS: dict[str, Any] = {
    "compare": lambda: view.compare([make(1, metadata=TITLED), make(1, metadata=TITLED)]),
    "overlay": lambda: view.overlay([make(1, metadata=TITLED), make(1, metadata=TITLED)]),
    "phase_diagram": lambda: view.phase_diagram([0.0, 1.0], [0.0, 1.0], np.eye(2), title=LONG, value_label="energy"),
    "growth_rates": lambda: view.growth_rates([1, 2, 3], [0.5, 0.2, -1.0], title=LONG),
    "fixed_point": lambda: np.array(view.fixed_point(make(2, metadata=TITLED), [1.0, -1.0]).axes),
    "law": lambda: view.snapshots(law()),
    "covariance": lambda: view.covariance(law()),
    "nearest_neighbours": lambda: view.nearest_neighbours(make(2, metadata=TITLED)),
}


@pytest.mark.parametrize("name", by_default(list(OTHERS), ["phase_diagram"]))
def test_no_text_of_other_figures_leaves_the_page(name):
    for theme in ("light", "print"):
        with view.style.use(theme):
            assert outside(np.ravel(OTHERS[name]())[0].figure) == []
