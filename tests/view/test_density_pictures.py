"""Figures, movies, pages and products of densities: what is drawn are the numbers m_i / V_i."""

import matplotlib as mpl

mpl.use("Agg")

import json
import shutil
from typing import Any

import numpy as np
import pytest
from test_figure_set import ONE_AX

import particleflow as pf
from density_oracles import EVEN, KINDS, RADIUS, make, places, scattered
from figure_oracles import blank
from figure_oracles import make as particles
from page_oracles import EVIL, undo
from particleflow.app.cli.closing_lines import clusters_line
from particleflow.app.cli.main import main
from particleflow.app.runs.run_outputs import Outcome, make_products
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.findings import expected_structure
from particleflow.view.movie.movie import Movie
from particleflow.view.plots.base import small_print
from particleflow.view.plots.camera import ELEVATION, rotation
from particleflow.view.plots.density.density_frame import seen_cells
from particleflow.view.plots.density.density_scale import field_of
from particleflow.view.plots.figure_set import _plan
from particleflow.view.webpage.build_page import page
from particleflow.view.webpage.density_levels import HIGHEST
from shares import by_default

view: Any = pf.view  # the drawn artists are read by names that type stubs do not know
COMMON = {"snapshots", "density", "peaks", "staircase"}
SETS = {
    "circle": COMMON | {"profiles", "modes"},
    "line": COMMON | {"profiles"},
    "plane": COMMON,
    "sphere": COMMON | {"map", "modes"},
    "scattered": {"snapshots", "density"},
}


def truth(run, frame):
    """m_i / V_i of one frame."""
    kind = next(kind for kind in KINDS if run.metadata["title"] == f"A density ({kind})")
    return np.asarray(run.masses[frame]) / places(kind)[1]


@pytest.mark.parametrize("kind", SETS)
def test_a_density_has_the_figures_that_mean_something(kind):
    run = scattered() if kind == "scattered" else make(kind)
    plan = dict(_plan(run, expected_structure(run)))
    assert plan.keys() == SETS[kind]
    assert dict(_plan(run, None if kind == "scattered" else pf.analysis.track_peaks(run))).keys() == SETS[kind]


SHAPES = [(kind, frames, runs) for kind in KINDS for frames, runs in ((6, None), (1, None), (2, None), (1, 2), (3, 2))]
SHAPES += [("scattered", 4, None), ("scattered", 1, None)]


@pytest.mark.parametrize("shape", by_default(SHAPES, [("plane", 3, 2), ("scattered", 4, None)]))
def test_every_figure_of_every_density_is_drawn(shape):
    kind, frames, runs = shape
    run = scattered(frames) if kind == "scattered" else make(kind, frames=frames, runs=runs)
    for draw in dict(_plan(run, None)).values():
        np.ravel(draw())[0].figure.canvas.draw()


OF_PARTICLES = ("gram", "kymograph", "merge_tree", "nearest_neighbours", "paths", "similarity")


@pytest.mark.parametrize("name", sorted(ONE_AX))
@pytest.mark.parametrize("kind", by_default([*KINDS, "scattered"], ["circle"]))
def test_figures_of_particles_draw_a_density_or_say_why_not(name, kind):
    run, ax = scattered() if kind == "scattered" else make(kind), blank()
    refusal = "this run is a density, whose points stay" if name in OF_PARTICLES else None
    if kind == "scattered" and name in ("compare", "energy"):
        refusal = "energy"  # which was not recorded
    if refusal is not None:
        with pytest.raises(ArgumentError, match=refusal):
            ONE_AX[name](run, ax)
    else:
        assert ONE_AX[name](run, ax) is ax


def test_the_curve_over_a_line_is_mass_over_width():
    run = make("line", shuffled=True)
    order = np.argsort(run.points[0, :, 0])
    expected = (np.asarray(run.masses[4]) / 0.15)[order]
    curve = view.snapshot(run, 4).lines[0]
    np.testing.assert_allclose(curve.get_xdata(), np.sort(run.points[0, :, 0]))
    np.testing.assert_allclose(curve.get_ydata(), expected, rtol=1e-9)
    profile = view.profiles(run, [4]).lines[0]
    np.testing.assert_allclose(profile.get_ydata(), expected, rtol=1e-9)
    mesh = view.particle_density(run).collections[0]
    np.testing.assert_allclose(np.asarray(mesh.get_array())[:, 4], expected, rtol=1e-9)


def test_the_density_around_a_circle_is_mass_over_arc():
    run = make("circle", shuffled=True)
    turn = np.arctan2(run.points[0, :, 1], run.points[0, :, 0])
    expected = np.asarray(run.masses[3]) / (2 * np.pi * RADIUS / 96)
    profile = view.profiles(run, [3]).lines[0]
    assert profile.get_xdata()[0] > -2 * np.pi
    assert np.ptp(profile.get_xdata()) == pytest.approx(2 * np.pi * 95 / 96)
    known = np.interp(np.mod(profile.get_xdata(), 2 * np.pi), *_sorted(np.mod(turn, 2 * np.pi), expected))
    np.testing.assert_allclose(profile.get_ydata(), known, rtol=1e-9)
    assert expected.min() == pytest.approx(profile.get_ydata()[0], rel=0.3)  # the circle is cut open in a valley
    ring = view.snapshot(run, 3)
    paths = ring.collections[0].get_paths()
    heights = np.array([np.linalg.norm(path.vertices[1]) - 1 for path in paths])
    field = field_of(run)
    assert field is not None
    np.testing.assert_allclose(np.square(heights / 0.42) * field.high, _around(turn, expected), rtol=1e-9)


def _sorted(places, values):
    order = np.argsort(places)
    return places[order], values[order]


def _around(turn, values):
    return values[np.argsort(turn)]


def test_the_heat_map_of_a_plane_is_mass_over_area():
    run = make("plane", shuffled=True)
    mesh = view.snapshot(run, -1).collections[0]
    grid = np.asarray(mesh.get_array())
    assert grid.shape == (20, 40)
    corner = run.points[0].min(axis=0)
    column, row = np.rint((run.points[0] - corner) / [0.15, 0.3]).astype(int).T
    np.testing.assert_allclose(grid[row, column], np.asarray(run.masses[-1]) / 0.045, rtol=1e-9)
    marginal = np.asarray(view.particle_density(run).collections[0].get_array())[:, -1]
    np.testing.assert_allclose(marginal, np.bincount(column, np.asarray(run.masses[-1])) / 0.15, rtol=1e-9)


def test_cells_of_a_sphere_have_the_colours_of_their_densities():
    run = make("sphere")
    field = field_of(run)
    assert field is not None
    camera = np.eye(3)[[1, 2, 0]]  # from the first axis, where the heavier bump is
    front, corners, light = seen_cells(field.cells, camera)
    assert (run.points[0, front, 0] > -1.0).all()
    assert {*np.flatnonzero(run.points[0, :, 0] > 0.01)} <= {*front.tolist()}
    assert np.linalg.norm(corners, axis=-1).max() <= 1 + 1e-9
    assert light.max() <= 1
    front, _, light = seen_cells(field.cells, rotation(0.0, ELEVATION))
    drawn = view.snapshot(run, -1, azimuth=0.0).collections[0].get_facecolor()[:, :3]
    expected = np.asarray(style.colormap("density")(field.norm()(truth(run, -1)[front])))[:, :3]
    np.testing.assert_allclose(drawn / light[:, None], expected, atol=0.01)
    bands = view.particle_density(run)
    values = np.asarray(bands.collections[0].get_array())
    edges = np.linspace(-1, 1, len(values) + 1)
    assert values[:, 0].max() == pytest.approx(0.5, rel=1e-6)  # even: half of the mass a unit of cosine
    np.testing.assert_allclose((values * np.diff(edges)[:, None]).sum(axis=0), 1.0, atol=0.1)


def test_colours_are_logarithmic_where_peaks_would_hide_the_rest():
    even, sharp = field_of(make("plane", frames=2)), field_of(make("plane"))
    assert even is not None
    assert sharp is not None
    assert (even.log, sharp.log) == (False, True)
    for field in (even, sharp):
        known = np.geomspace(max(field.low, 1e-3 * field.high), field.high, 7)
        np.testing.assert_allclose(field.levels(known), np.asarray(field.norm()(known)), atol=1e-12)


def test_maps_show_the_heaviest_place_in_the_middle():
    run = make("sphere")
    axes = view.density_map(run, [0, -1])
    grid = np.asarray(axes[1].collections[0].get_array()).reshape(181, 361)
    assert grid[90, 180] == pytest.approx(truth(run, -1).max(), rel=1e-9)
    np.testing.assert_allclose(np.asarray(axes[0].collections[0].get_array()), 1 / EVEN["sphere"], rtol=1e-9)


def test_modes_are_those_of_the_masses():
    run = make("circle")
    lines = {line.get_label().split(",")[0]: line.get_ydata() for line in view.modes(run).lines}
    turn = np.arctan2(run.points[0, :, 1], run.points[0, :, 0])
    for order in (1, 2):
        amplitude = [abs(np.asarray(row) @ np.exp(-1j * order * turn)) for row in run.masses]
        np.testing.assert_allclose(lines[f"mode {order}"][1:], amplitude[1:], rtol=1e-9)


def test_bands_of_peaks_hold_their_masses():
    run = make("line")
    found = pf.analysis.track_peaks(run)
    ax = view.peaks(run, found)
    corners = [band.get_paths()[0].vertices for band in ax.collections]
    last = sorted(found.last, key=lambda peak: peak.places[-1][0])
    for each, top in zip(corners, np.cumsum([peak.masses[-1] for peak in last]), strict=True):
        assert np.abs(each[each[:, 0] == run.times[-1], 1] - top).min() < 1e-9
    written = [float(text.get_text()) for text in ax.texts]
    np.testing.assert_allclose(written, [peak.masses[-1] for peak in last], atol=6e-4)


def test_figures_of_densities_refuse_particles():
    for draw in (view.profiles, view.density_map, view.modes):
        with pytest.raises(ArgumentError, match="but this run is particles"):
            draw(particles(2, sphere=True))
    with pytest.raises(ArgumentError, match="kind plane"):
        view.profiles(make("plane"))


def test_small_print_and_card_speak_of_cells():
    run = make("circle")
    assert small_print(run) == "96 cells · d = 2"
    assert "cells        96 in dimension 2" in str(run)
    assert "96 cells in 2-D" in view.notebook_card(run)


@pytest.mark.parametrize("kind", by_default(KINDS, ["line", "plane"]))
def test_movies_show_the_density_of_an_instant(kind):
    run = make(kind, frames=3)
    with style.use("dark"):
        movie = Movie(run, 5, "linear", (640, 368), counts=pf.analysis.track_peaks(run).counts)
        first, half = movie.frame(0).convert("RGB"), movie.frame(1).convert("RGB")
    np.testing.assert_allclose(movie.density(1), (truth(run, 0) + truth(run, 1)) / 2, rtol=1e-9)
    layer = movie.stage.density_layer
    assert layer is not None
    if kind == "line":
        np.testing.assert_allclose(layer.artists[1].get_ydata(), movie.density(1), rtol=1e-12)
    if kind == "plane":
        shown = np.asarray(layer.artists[0].get_array()).T.ravel()
        np.testing.assert_allclose(shown, movie.density(1), rtol=1e-12)
    assert np.abs(np.asarray(first, float) - np.asarray(half, float)).max() > 40
    assert [panel.axes.get_ylabel() for panel in movie.stage.panels][-1] == "peaks"


@pytest.mark.parametrize("kind", by_default([*KINDS, "scattered"], ["line", "scattered"]))
def test_movies_of_one_frame_and_of_ensembles(kind):
    for run in (make(kind, frames=1), make(kind, runs=2)) if kind != "scattered" else (scattered(), scattered(1)):
        with style.use("dark"):
            Movie(run, 2, "motion", (320, 192)).frame(1)


def facts_of(path) -> tuple[dict, str]:
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="facts">')[1].split("</script>")[0]), text


@pytest.mark.parametrize("kind", [*KINDS, "scattered"])
def test_a_page_stores_how_dense_every_cell_is(kind, tmp_path):
    run = scattered() if kind == "scattered" else make(kind)
    facts, text = facts_of(page(run, tmp_path / "page.html"))
    assert facts["density"]["kind"] == ("points" if kind == "scattered" else kind)
    assert facts["counted"] == ("clusters" if kind == "scattered" else "peaks")
    section = next(each for each in facts["sections"] if each["name"] == "levels0")
    data = text.split('id="section-levels0">')[1].split("</script>")[0]
    levels = undo(data, tuple(section["shape"]), 1, []) / HIGHEST
    if kind == "scattered":
        expected = np.asarray(run.masses) / np.asarray(run.masses).max()
    else:
        low, high = facts["density"]["low"], facts["density"]["high"]
        density = np.stack([truth(run, frame) for frame in range(len(run))])
        assert high == pytest.approx(density.max(), rel=1e-9)
        logarithm = np.log(np.maximum(density, low) / low) / np.log(high / low) if facts["density"]["log"] else 0
        expected = logarithm if facts["density"]["log"] else density / high
    np.testing.assert_allclose(levels, expected, atol=0.51 / HIGHEST)
    assert len(text) < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "scattered"])
def test_a_browser_shows_a_density(show, kind):
    run = scattered() if kind == "scattered" else make(kind, metadata={**make(kind).metadata, "title": EVIL})
    window = show(run, analysis=None)
    assert window.locator("#subtitle").inner_text().replace("\u00a0", " ").startswith(f"{run.count} cells")
    names = window.locator("figcaption .name").all_inner_texts()
    expected = {"circle": ["density by angle", "energy", "peaks"], "line": ["density by place", "energy", "peaks"]}
    assert names == expected.get(kind, [] if kind == "scattered" else ["energy", "peaks"])
    stage = window.locator("#stage")
    before = stage.screenshot()
    window.evaluate("window.particleflow.seek(2.5)")
    window.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert stage.screenshot() != before
    levels = window.evaluate("window.particleflow.levels(2)")
    assert max(levels) <= 1
    assert window.locator("#legend").inner_text().count("density" if kind != "scattered" else "mass") == 1


def test_particles_are_drawn_over_a_density():
    density, cloud = make("circle"), particles(2, sphere=True, count=40, frames=6, metadata={"geometry": "sphere"})
    cloud = pf.Trajectory.from_arrays(cloud.times, RADIUS * np.asarray(cloud.points), metadata={"geometry": "sphere"})
    axes = view.overlay({"density": density, "particles": cloud}, [0.0, 2.5])
    assert len(axes) == 3
    bars = axes[1].patches[0].get_data()
    assert (bars.values * np.diff(bars.edges)).sum() == pytest.approx(1.0)
    curve = axes[2].lines[0]
    assert np.sort(curve.get_ydata()) == pytest.approx(np.sort(truth(density, 5)))
    axes[0].figure.canvas.draw()
    assert "lines of" not in axes[0].figure.get_supxlabel()
    many = particles(1, count=300, frames=6)
    above = view.overlay([make("line"), many], [0.0])[0]
    assert len(above.collections[-1].get_segments()) == 120
    assert above.figure.get_supxlabel().endswith("lines of 120 of 300 particles")
    with pytest.raises(ArgumentError, match="must live in one space"):
        view.overlay([density, make("line")])
    with pytest.raises(ArgumentError, match="at least two runs"):
        view.overlay([density])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_densities_are_drawn_over_each_other(kind):
    view.overlay([make(kind), make(kind, frames=4)])[0].figure.canvas.draw()


@pytest.fixture
def folder(tmp_path):
    """A folder with a stored density on a line."""
    (tmp_path / "run").mkdir()
    make("line", frames=4).save(tmp_path / "run" / "trajectory.h5")
    return tmp_path / "run"


def test_a_stored_density_is_told_by_every_command(folder, capsys):
    assert main(["analyze", str(folder), "--quiet"]) == 0
    assert main(["info", str(folder)]) == 0
    assert "peaks     no peak until t = " in capsys.readouterr().out
    assert main(["analyze", str(folder), "--threshold", "0.1"]) == 2
    shutil.copytree(folder, folder.parent / "other")
    assert main(["plot", str(folder), str(folder.parent / "other"), "--quiet"]) == 0
    assert [path.suffix for path in (folder / "comparisons").iterdir()] == [".png"]


@pytest.mark.slow
def test_products_of_a_stored_density(folder):
    with pf.Trajectory.open(folder) as run:
        outcome = Outcome(folder, run.status)
        make_products(folder, run, {}, outcome)
    assert outcome.failures == {}
    drawn = {path.stem for path in (folder / "figures").iterdir()}
    assert {"density", "profiles"} <= drawn <= set(SETS["line"])
    assert 3 <= len(drawn) <= 5
    shutil.copytree(folder, folder.parent / "other")
    assert main(["compare", str(folder), str(folder.parent / "other"), "--quiet"]) == 0


@pytest.mark.slow
def test_a_density_that_is_killed_has_products_of_what_there_is(tmp_path):
    """A copy of the file while it is written is what a kill would leave."""
    flow = pf.Flow(pf.Attend(pf.kernels.Attention(beta=3.0), normalization="none"), pf.Sphere())
    (tmp_path / "run").mkdir()
    (tmp_path / "killed").mkdir()

    def copy(frames):
        if frames.progress.frames >= 4 and not (tmp_path / "killed" / "trajectory.h5").exists():
            shutil.copy(tmp_path / "run" / "trajectory.h5", tmp_path / "killed" / "trajectory.h5")

    pf.simulate(
        flow, pf.initial.CircleWave(1, 0.5), np.linspace(0, 0.4, 9), rtol=1e-3, atol=1e-5, window=2, progress=copy,
        discretization=pf.discretization.FiniteVolumes(32), store=tmp_path / "run" / "trajectory.h5",
    ).close()  # fmt: skip
    with pf.Trajectory.open(tmp_path / "killed") as run:
        assert 1 < len(run) < 9
        outcome = Outcome(tmp_path / "killed", run.status)
        make_products(tmp_path / "killed", run, {}, outcome)
    assert outcome.failures == {}
    assert outcome.products.keys() == {"summary", "figures", "movie", "page"}


def test_points_of_a_normal_law_are_no_particles():
    """The places of a quadrature make no clusters, and their pairs mean nothing; characteristics are particles."""
    law = particles(2, metadata={"geometry": "euclidean", "closed form": True, "space": {"kind": "flat"}})
    assert dict(_plan(law, pf.analysis.track_clusters(law))).keys() == {"snapshots", "covariance", "energy"}
    assert "Gaussian law" in str(clusters_line(pf.analysis.summarize(law)))
    ellipse = view.snapshot(law, -1).lines[0].get_xydata()
    points, centred = law.points[-1], law.points[-1] - law.points[-1].mean(axis=0)
    inverse = np.linalg.inv(centred.T @ centred / len(points))
    away = ellipse - points.mean(axis=0)
    np.testing.assert_allclose(np.einsum("ni,ij,nj->n", away, inverse, away), 1.0, rtol=1e-9)
    cloud = particles(2, fields={"log_density": np.zeros((7, 12))})
    assert {"gram", "similarity", "kymograph"} <= dict(_plan(cloud, None)).keys()


def test_several_runs_state_what_differs_beside_each_and_in_small_print_what_all_have():
    def run(beta, title="One", **others):
        metadata = {"geometry": "sphere", "drift": "attend", "title": title, "seed": 3, **others}
        kernel = {"kind": "attention", "form": "inner", "beta": beta}
        metadata["interactions"] = [{"kernel": kernel, "normalization": "row"}]
        few = particles(2, sphere=True, count=9, frames=6, metadata=metadata)
        return pf.Trajectory.from_arrays(few.times, few.points, metadata=metadata)

    for draw in (lambda runs: view.overlay(runs)[0], lambda runs: view.overlay(runs, [1.0])[0], counted):
        figure = draw([run(4.0), run(9.0)]).figure
        legend = (figure.legends or [figure.axes[0].get_legend()])[0]
        assert [text.get_text() for text in legend.get_texts()] == ["One, β = 4", "One, β = 9"]
        assert figure.get_supxlabel() == "n = 9 · d = 2 · seed 3"
    same = view.overlay([run(4.0), run(4.0)])[0]
    assert same.figure.get_supxlabel() == "β = 4 · n = 9 · d = 2 · seed 3"
    assert (same.get_title(loc="left") or same.get_title()) == "One"
    above = view.overlay([run(4.0), run(9.0)], [1.0])[0]
    assert (above.get_title(loc="left") or above.get_title()).endswith("colour: One, β = 4; lines: One, β = 9")
    twice = view.overlay({"beta = 4": run(4.0), "beta = 40": run(40.0)})[0]
    assert [text.get_text() for text in twice.figure.legends[0].get_texts()] == ["beta = 4", "beta = 40"]
    unrelated = view.overlay([run(4.0), run(4.0, "Two", drift="mean_shift")])[0]
    assert unrelated.get_title(loc="left") == unrelated.get_title() == ""
    names = [text.get_text() for text in unrelated.figure.legends[0].get_texts()]
    assert names == ["One, attend on sphere", "Two, mean shift on sphere"]


def counted(runs):
    return view.compare(runs, counts=[np.arange(6, 0, -1)] * len(runs))
