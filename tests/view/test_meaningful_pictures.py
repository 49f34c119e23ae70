"""Pictures show what means something: no clusters of what is kept apart, colours that tell particles apart."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from figure_oracles import make
from page_oracles import two_groups
from particleflow.analysis import find_plateaus, metastable, spreads
from particleflow.app.cli.closing_lines import clusters_line
from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.findings import worth_showing
from particleflow.view.movie.movie import Movie
from particleflow.view.plots.base import small_print
from particleflow.view.plots.camera import facing, rotation
from particleflow.view.plots.colors import colored_clusters, particle_colors, position_colors
from particleflow.view.plots.density.distributions import picture
from particleflow.view.plots.figure_set import _plan
from particleflow.view.plots.time.series import approach
from particleflow.view.webpage.build_page import page
from shares import by_default


def facts_of(path) -> dict:
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="facts">')[1].split("</script>")[0])


@pytest.mark.parametrize(
    ("counts", "treads"),
    [
        ([33, 32, 32, 32, 20, 20, 20, 4, 4, 4], [20, 4]),  # one that touched another is no tread
        ([5, 5, 5, 4, 4, 4, 3, 3, 3, 3], [4, 3]),  # of few clusters all are
        ([9, 9, 9, 9, 8, 8, 8, 8, 8, 8], []),
    ],
)
def test_treads_begin_when_particles_have_found_each_other(counts, treads):
    found = metastable(find_plateaus(np.arange(10.0), counts), counts[0])
    assert [each.count for each in found] == treads


@pytest.mark.parametrize(
    ("counts", "spread"), [([1, 3, 5], True), ([5, 3, 5], False), ([1, 10, 4], False), ([3, 3], False), ([4, 1], False)]
)
def test_a_count_that_ends_at_its_largest_spreads_but_not_into_parties(counts, spread):
    assert spreads(counts, np.arange(20) % 5 * (np.arange(20) < 5)) is spread  # four alone, and the others together
    assert spreads(counts, np.arange(20) % 5) is False


REPELS = {"kernel": {"kind": "attention", "form": "inner", "beta": 1.0}, "value": -1.0, "normalization": "row"}


@pytest.mark.parametrize(
    ("metadata", "by"),
    [({"temperature": 0.1}, "noise"), ({"interactions": [REPELS]}, "repulsion"), ({}, None)],
)
def test_particles_that_are_kept_apart_have_no_clusters_to_show(metadata, by, tmp_path):
    run = make(2, sphere=True, metadata={"geometry": "sphere", **metadata})
    track = pf.analysis.track_clusters(run)
    assert (worth_showing(run, track) is None) == (by is not None)
    summary = pf.analysis.summarize(run)
    assert summary["kept_apart_by"] == by
    assert summary["observables"] == {"energy": {"first": 0.0, "last": 1.0}}
    if by is not None:
        assert clusters_line(summary) == f"kept apart by {by}; energy 0 → 1"
        assert clusters_line({**summary, "observables": {}}) == f"kept apart by {by}"
    shown = facts_of(page(run, tmp_path / "page.html"))
    assert shown["counts"] == (by is None)
    assert any(section["name"] == "clusters0" for section in shown["sections"]) == (by is None)


def test_a_cloud_that_only_spreads_has_no_clusters_to_show():
    points = np.linspace(1.0, 3.0, 6)[:, None, None] * np.linspace(-1, 1, 30)[None, :, None]
    run = Trajectory.from_arrays(np.arange(6.0), points)
    track = pf.analysis.track_clusters(run, 0.1)
    assert (track.components[0], track.components[-1]) == (1, 30)
    assert worth_showing(run, track) is None
    assert pf.analysis.summarize(run, threshold=0.1)["kept_apart_by"] == "the flow"


@pytest.mark.slow
def test_some_stored_particles_of_many_say_so_and_have_no_attention(tmp_path):
    """The attention of particles that are not stored cannot be drawn, and n is that of the run."""
    points = np.random.default_rng(0).normal(size=(10, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    flow = pf.Flow(pf.Attend(pf.kernels.Attention(2.0)), pf.Sphere())
    options = {"step": 0.1, "solver": "map", "store": tmp_path / "run.h5"}
    with pf.simulate(flow, pf.Measure.uniform(jnp.asarray(points)), [0.0], particles=[0, 3, 9], **options) as run:
        assert small_print(run) == "β = 2 · n = 3 of 10 · d = 3"
        assert "attention" not in dict(_plan(run, None))


def test_attention_that_is_even_is_no_figure():
    kernel = {"kind": "attention", "form": "inner", "beta": 0.0}
    for positional, there in ((None, False), ({"kind": "causal"}, True)):
        table = {"kernel": kernel, "normalization": "row", "positional": positional}
        metadata = {"space": {"kind": "sphere", "radius": 1.0, "sees_stored": True}, "interactions": [table]}
        assert ("attention" in dict(_plan(make(2, sphere=True, metadata=metadata), None))) is there


def test_a_kymograph_of_one_line_is_none():
    """Equiangular tokens that gather have their mean direction as first component, which is the same for all."""
    share = np.linspace(0, 1, 20)[:, None, None]
    points = (1 - share) * np.eye(16)[None] + share * np.ones((1, 1, 16)) / 4
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    run = Trajectory.from_arrays(np.arange(20.0), points, metadata={"geometry": "sphere"})
    assert "kymograph" not in dict(_plan(run, None))
    assert "kymograph" in dict(_plan(make(6, sphere=True), None))


def test_particles_on_their_way_to_one_are_not_coloured_by_stragglers():
    """Of 40 that end as one, all but two are one a moment before: then places tell more apart than that cluster."""
    generator = np.random.default_rng(0)
    first = generator.normal(size=(40, 2))
    nearly = np.where(np.arange(40)[:, None] < 2, [[2.0, 0.0]], [[0.0, 0.0]]) + 1e-6 * first
    ends = Trajectory.from_arrays([0.0, 1.0, 2.0], np.stack([first, nearly, 1e-6 * first]), metadata={})
    assert colored_clusters(ends) is None
    stays = Trajectory.from_arrays([0.0, 1.0], np.stack([first, nearly]), metadata={})
    found = colored_clusters(stays)
    assert found is not None
    assert np.bincount(found.labels).tolist() == [2, 38]


def test_a_cloud_on_one_side_has_all_hues():
    """Hues by longitude would be alike where all points are near one; the angle around their middle is not."""
    turn = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    cap = np.stack([np.full(24, 3.0), 0.2 * np.cos(turn), 0.2 * np.sin(turn)], axis=1)
    gaps = np.linalg.norm(np.diff(position_colors(cap), axis=0, append=position_colors(cap)[:1]), axis=1)
    assert gaps.min() > 0.02
    assert np.ptp(position_colors(cap), axis=0).max() > 0.5


def test_a_picture_of_patches_has_the_colours_of_the_other_figures():
    places = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])[np.arange(12) % 3]
    run = Trajectory.from_arrays([0.0], places[None], metadata={"picture": [3, 4]})
    found = colored_clusters(run)
    assert found is not None
    image = picture(run).images[0].get_array()
    assert image is not None
    np.testing.assert_allclose(np.reshape(image, (12, 3)), found.colors[found.labels])


@pytest.mark.parametrize("log", by_default([False, True], [True]))
def test_the_dot_of_a_movie_lies_on_its_curve(log):
    """Between two saved frames, too: its row is that of the straight line through the corners of the curve."""
    energy = np.array([0.0, 3.0, 1.0, 1.5])
    times = [0.1, 1.0, 10.0, 1000.0] if log else [0.0, 1.0, 2.0, 5.0]
    run = Trajectory.from_arrays(times, make(2, frames=4).points, observables={"energy": energy})
    counts = np.array([4, 3, 2, 1])
    movie = Movie(run, 37, "log" if log else "linear", (640, 352), counts=counts)
    panel, steps = movie.stage.panels
    line = panel.axes.lines[0].get_xydata()
    corners = panel.axes.transData.transform(line)
    assert panel.dots is not None
    np.testing.assert_allclose(
        movie.stage.size[1] - panel.dots, np.interp(panel.columns, corners[:, 0], corners[:, 1]), atol=0.6
    )
    assert np.ptp(panel.dots) > 50
    assert steps.dots is not None
    assert len(np.unique(steps.dots)) == 4


@pytest.mark.parametrize(
    ("gap", "label"),
    [
        (lambda t: np.exp(-0.5 * t), r"$\propto e^{-0.5\,t}$"),
        (lambda t: np.minimum(1.0, t**-2.0), r"$\propto t^{-2.00}$"),
        (lambda t: np.exp(-4 * np.sqrt(t)), None),
    ],
)
def test_the_approach_to_one_has_the_law_that_explains_it(gap, label):
    times = np.geomspace(0.01, 40, 200)
    run = Trajectory.from_arrays(times, np.zeros((200, 1, 3)), observables={"mean_similarity": 1 - gap(times)})
    drawn = {str(line.get_label()): line for line in approach(run).lines}
    assert set(drawn) - {"1 − mean similarity"} == ({label} if label else set())
    if label is not None:
        law = drawn[label]
        np.testing.assert_allclose(
            np.asarray(law.get_ydata(), float), gap(np.asarray(law.get_xdata(), float)), rtol=0.1
        )
    assert "approach" in dict(_plan(run, None))
    away = Trajectory.from_arrays(times, run.points, observables={"mean_similarity": 0.5 - 0.1 * gap(times)})
    assert "approach" not in dict(_plan(away, None))
    with pytest.raises(ArgumentError, match="near 1"):
        approach(away)


def test_tokens_of_a_sequence_without_clusters_are_coloured_along_it():
    causal = {**REPELS, "value": 1.0, "positional": {"kind": "causal"}}
    metadata = {"space": {"kind": "sphere", "radius": 1.0, "sees_stored": True}, "interactions": [causal]}
    run = make(2, sphere=True, count=30, metadata=metadata, positions=np.arange(30.0)[::-1])
    np.testing.assert_allclose(particle_colors(run), position_colors(-np.arange(30.0)[:, None]))


def test_the_page_looks_at_the_last_clusters_first(tmp_path):
    run = Trajectory.from_arrays(np.arange(40.0), two_groups(), metadata={"geometry": "sphere"})
    yaw, pitch = facts_of(page(run, tmp_path / "page.html"))["facing"]
    assert (np.degrees(yaw), np.degrees(pitch)) == pytest.approx(facing(run))
    assert facts_of(page(make(3), tmp_path / "flat.html"))["facing"] is None
    one = Trajectory.from_arrays([0.0], np.tile([[0.0, 0.6, 0.8]], (9, 1))[None], metadata={"geometry": "sphere"})
    yaw, pitch = facts_of(page(one, tmp_path / "one.html"))["facing"]
    assert (rotation(np.degrees(yaw), np.degrees(pitch)) @ [0.0, 0.6, 0.8])[2] > 0.4


def test_neighbours_on_the_page_have_unlike_hues(tmp_path):
    """Five clusters on a ring, the largest first: those side by side are farther apart in colour than the palette's."""
    sizes = np.array([20, 16, 12, 8, 4])
    turn = 2 * np.pi * np.array([0, 2, 4, 1, 3]) / 5  # the first and the fifth colour of the palette, blue both, touch
    places = np.repeat(np.stack([np.cos(turn), np.sin(turn)], axis=1), sizes, axis=0)
    labels = np.repeat(np.arange(5), sizes)[None]
    run = Trajectory.from_arrays([0.0], places[None])
    shown = facts_of(page(run, tmp_path / "page.html", labels=labels))["palettes"]["light"]
    assert len(set(shown)) == len(shown)
    found = style.differences(np.array([[int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)] for color in shown[:5]]))
    plain = style.differences(style.palette(96, style.find("light"))[:5])
    around = np.argsort(turn)
    beside = [(around[k], around[(k + 1) % 5]) for k in range(5)]
    assert min(found[pair] for pair in beside) > min(plain[pair] for pair in beside)


def test_layer_norm_in_four_dimensions_is_a_sphere_on_the_page(tmp_path):
    points = np.random.default_rng(0).normal(size=(3, 20, 4))
    points -= points.mean(axis=-1, keepdims=True)
    points *= 2 / np.linalg.norm(points, axis=-1, keepdims=True)
    run = Trajectory.from_arrays(np.arange(3.0), points, metadata={"geometry": "layer_norm"})
    shown = facts_of(page(run, tmp_path / "page.html"))
    assert shown["radius"] == pytest.approx(2.0)
    assert (shown["shownDimension"], shown["explained"]) == (3, None)


def test_a_cloud_in_which_hardly_any_cluster_forms_is_shown_by_its_paths():
    """Of 100 particles in the plane 20 pairs meet; with 60 that all meet there are clusters to show."""
    rng = np.random.default_rng(0)
    start = 100 * rng.permutation(200).reshape(100, 2) + rng.uniform(size=(100, 2))
    share = np.linspace(0, 1, 6)[:, None, None]

    def meeting(ends):
        points = (1 - share) * start + share * ends
        return Trajectory.from_arrays(np.arange(6.0), points, observables={"energy": np.arange(6.0)})

    pairs = meeting(np.where(np.arange(100)[:, None] < 40, start[np.arange(100) // 2 * 2], start))
    track = pf.analysis.track_clusters(pairs, 0.1)
    assert (track.counts[0], track.counts[-1]) == (100, 80)
    assert worth_showing(pairs, track) is None
    found = pf.analysis.track_clusters(pairs)
    names = pf.view.figure_names(pairs, {"counts": found.counts, "labels": track.labels, "tree": found.tree})
    assert names[:3] == ["paths", "snapshots", "energy"]
    assert not {"staircase", "merge_tree"} & set(names)
    gathered = meeting(np.where(np.arange(100)[:, None] < 60, start[:1], start))
    assert worth_showing(gathered, pf.analysis.track_clusters(gathered, 0.1)) is not None


@pytest.mark.parametrize(("ends", "own", "said"), [
    ([0, 10, 20, 30], None, "neighbours side by side"), ([0, 10, 20, 30], [0, 0, 1, 1], "neighbours side by side"),
    ([0, 0, 10, 10], None, "by cluster"), ([0, 0, 10, 10], [0, 1, 0, 1], "by cluster, then by label"),
    ([0, 0, 0, 0], [0, 1, 0, 1], "by label"),
])  # fmt: skip
def test_matrices_name_the_order_that_they_have(ends, own, said):
    run = Trajectory.from_arrays([0.0, 1.0], np.array([[0, 10, 20, 30], ends], float)[..., None], labels=own)
    track = pf.analysis.track_clusters(run, 1.0)
    assert pf.view.gram(run, labels=track.labels).get_xlabel() == f"particle $j$, {said}"


@pytest.mark.parametrize(("missing", "inside"), [(40, True), (1, False)])
def test_words_of_a_hatched_stretch_stand_in_it_or_in_the_small_print(missing, inside):
    run, counts = make(1, frames=101), np.full(101, 3.0)
    counts[50 : 50 + missing] = np.nan
    axes: Any = pf.view.cluster_count(run, counts)
    axes.figure.draw_without_rendering()
    words = [text for text in axes.texts if "chains" in text.get_text()]
    assert len(words) == inside
    assert ("hatched: chains, not separated" in axes.figure.get_supxlabel()) is not inside
    for text in words:
        box, (left, right) = (
            text.get_window_extent(),
            axes.transData.transform([(run.times[50], 0), (run.times[89], 0)]),
        )
        assert left[0] <= box.x0
        assert box.x1 <= right[0]
        assert axes.bbox.y0 <= box.y0
