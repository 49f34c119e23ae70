"""Figures of what particular runs are about show their numbers: loops, heat, data, images, values, names of lines."""

from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from scipy.optimize import minimize

mpl.use("Agg")

import particleflow
from figure_oracles import make
from particleflow.analysis import heat_profile, step_means
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.label_placement import spread_apart
from particleflow.view.plots.figure_set import _plan

view: Any = particleflow.view
RNG = np.random.default_rng(5)


def run_of(points: Any, metadata: dict[str, Any], **others: Any) -> Trajectory:
    points = np.asarray(points, float)
    return Trajectory.from_arrays(np.arange(float(len(points))), points, metadata=metadata, **others)


LOOP: dict[str, Any] = {
    "schedule": {"name": "value", "times": [0, 3.99, 4, 7.99, 8, 12], "values": [0.3, 0.3, 0.5, 0.5, 0.4, 0.4]},
    "changes": [4.0, 8.0], "temperature": 1.0, "interactions": [{"kernel": {"kind": "attention", "beta": 4.0}}],
}  # fmt: skip
BRANCH = {
    "parameter": "value", "values": [0.45, 0.35, 0.6], "orders": [0.0, 0.4, 0.9], "stable": [False, False, True],
    "limit": 0.45, "folds": [0.35], "equal": [0.39],
}  # fmt: skip


def looped(**others: Any) -> Trajectory:
    series = RNG.uniform(size=13)
    return run_of(RNG.normal(size=(13, 4, 2)), LOOP | others, observables={"order_parameter": series})


def test_a_loop_shows_the_mean_of_every_step_and_what_theory_says():
    run = looped(transition=BRANCH)
    ax = view.hysteresis(run)
    found = step_means(run, run.observables["order_parameter"])
    drawn = {line.get_label(): line for line in ax.lines}
    containers = {each.get_label(): each.lines[0].get_xydata() for each in ax.containers}
    np.testing.assert_allclose(containers["going up"], np.column_stack([found.values, found.means])[:2])
    np.testing.assert_allclose(containers["going down"], np.column_stack([found.values, found.means])[1:])
    marks = {name: line.get_xdata()[0] for name, line in drawn.items() if "0." in name}
    assert sorted(marks.values()) == pytest.approx([0.35, 0.39, 0.45])
    assert any("\\kappa_c$ = 0.390" in name for name in marks)
    assert view.hysteresis(looped()).lines  # a run that stores no theory
    for wrong in ({"limit": "x"}, BRANCH | {"stable": [True]}, [3], BRANCH | {"values": []}):
        assert looped(transition=wrong).facts.transition is None
    with pytest.raises(ArgumentError, match="up and then down"):
        view.hysteresis(make(2))


def test_profiles_of_heat_begin_with_those_of_the_run():
    angles = np.linspace(0, 2 * np.pi, 80, endpoint=False) + 0.1
    kernel = {"kind": "attention", "form": "inner", "beta": 50.0}
    row = {"kernel": kernel, "normalization": "row", "value": -1.0}
    space = {"kind": "sphere", "radius": 1.0, "sees_stored": True}
    turned = angles + 0.05 * np.arange(3)[:, None] * np.sin(angles)
    run = run_of(np.stack([np.cos(turned), np.sin(turned)], axis=-1), {"space": space, "interactions": [row]})
    lines = [line for line in view.heat_profiles(run).lines if len(line.get_xdata()) > 2]
    grid = lines[0].get_xdata()
    weights = np.full(80, 1 / 80)
    np.testing.assert_allclose(lines[0].get_ydata(), lines[1].get_ydata())
    np.testing.assert_allclose(lines[-2].get_ydata(), heat_profile(turned[-1], weights, 0.0, grid, 20), atol=1e-12)
    np.testing.assert_allclose(lines[-1].get_ydata(), heat_profile(turned[0], weights, 2 / 50, grid, 20), atol=1e-12)


def test_particles_lie_over_the_data_that_they_climb():
    data = RNG.normal(size=(30, 2))
    row = {"kernel": {"kind": "gaussian", "width": 0.5}, "normalization": "row", "data": True}
    run = run_of(RNG.normal(size=(5, 6, 2)), {"interactions": [row], "data points": data.tolist()})
    axes = view.data_field(run)
    for ax in axes:
        assert any(
            np.shape(each.get_offsets()) == data.shape and np.allclose(each.get_offsets(), data)
            for each in ax.collections
        )
        (image,) = ax.images
        left, right, bottom, top = image.get_extent()
        shades = image.get_array()
        row_of, column_of = np.unravel_index(shades.argmax(), shades.shape)
        peak = left + (right - left) * column_of / 159, bottom + (top - bottom) * row_of / 159
        squares = np.square(np.stack([data - np.array(peak), data - data.mean(axis=0)])).sum(axis=-1)
        density = np.exp(-squares / (2 * 0.25)).sum(axis=1)
        assert density[0] >= density[1]
    with pytest.raises(ArgumentError, match="looks at stored data"):
        view.data_field(make(2))


def images(frames: int = 3, **others: Any) -> Trajectory:
    metadata = {"image": [3, 2], "data points": np.eye(6).tolist(), **others}
    return run_of(RNG.uniform(size=(frames, 4, 6)), metadata, labels=[1, 0, 1, 2])


def test_points_that_are_images_are_drawn_as_images():
    run = images()
    axes = view.recall(run)
    assert axes.shape == (4, 3)  # three frames and the memory, the first particle of every label
    for row, frame in zip(axes, range(3), strict=False):
        points = run.points[frame][[1, 0, 3]]
        low, high = points.min(), points.max()
        for ax, point in zip(row, points, strict=True):
            np.testing.assert_allclose(ax.images[0].get_array(), (point.reshape(3, 2) - low) / (high - low))
    for ax, point in zip(axes[-1], run.points[-1][[1, 0, 3]], strict=True):
        nearest = np.linalg.norm(np.eye(6) - point, axis=1).argmin()
        np.testing.assert_allclose(ax.images[0].get_array(), np.eye(6)[nearest].reshape(3, 2))
    for wrong in ([3, 3], [2], [1.5, 2], "x", [-1, 2], None):
        assert images(image=wrong).facts.image is None
    with pytest.raises(ArgumentError, match="stores no sides"):
        view.recall(make(2))


def test_a_picture_is_put_together_from_its_patches(tmp_path):
    """The patches of an image file, cut by the initial cloud, are the image again, less the mean of all patches."""
    import jax

    from particleflow.dynamics.initial import ImagePatches

    image = RNG.uniform(size=(6, 8, 3))
    np.save(tmp_path / "image.npy", image)
    start = ImagePatches(tmp_path / "image.npy", patch=2, place_scale=0.3).start(jax.random.key(0))
    metadata = {"picture": list(start.picture or ()), "image": list(start.image or ())}
    points = np.asarray(start.measure.points)
    run = run_of(np.stack([points, 0.5 * points]), metadata)
    before, after, segments = view.patches_before_and_after(run)
    mean = image.reshape(3, 2, 4, 2, 3).mean(axis=(0, 2))
    centred = image - np.tile(mean, (3, 4, 1))
    low, high = centred.min(), centred.max()
    np.testing.assert_allclose(before.images[0].get_array(), (centred - low) / (high - low), atol=1e-6)
    np.testing.assert_allclose(after.images[0].get_array(), (0.5 * centred - low) / (high - low), atol=1e-6)
    assert segments.images[0].get_array().shape == (3, 4, 3)


def placed(places: np.ndarray, points: np.ndarray) -> Trajectory:
    kernel = {"kind": "placed", "form": "positional", "places": places.tolist()}
    metadata = {"interactions": [{"kernel": kernel}], "solver": "map"}
    return run_of(points, metadata, positions=np.arange(float(len(places))))


def test_values_on_a_line_are_dots_and_their_fits_curves():
    places = RNG.uniform(size=(7, 1))
    run = placed(places, RNG.normal(size=(9, 7, 1)))
    ax = dict(_plan(run, {"counts": np.arange(9, 0, -1)}))["values"]()
    np.testing.assert_allclose(ax.collections[0].get_offsets(), np.column_stack([places, run.points[0]]))
    order = places[:, 0].argsort()
    drawn = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_allclose(drawn["t = 1.00"], run.points[1][order, 0])
    np.testing.assert_allclose(drawn["t = 8.00"], run.points[8][order, 0])
    with pytest.raises(ShapeError):
        view.fitted_values(run, places[:3])


def test_values_on_places_are_no_clusters_and_come_first():
    places = np.stack(np.meshgrid(np.arange(3.0), np.arange(2.0)), axis=-1).reshape(-1, 2)
    run = placed(places, RNG.dirichlet(np.ones(3), (4, 6)))
    plan = dict(_plan(run, {"counts": np.arange(4, 0, -1), "merge_tree": [(0, 1, 1.0, 2)]}))
    assert next(iter(plan)) == "values"
    assert not {"merge_tree", "staircase"} & plan.keys()
    axes = plan["values"]()
    assert [text.get_text() for text in axes[0].figure.legends[0].get_texts()] == ["label 0", "label 1", "label 2"]


@pytest.mark.parametrize("seed", range(6))
def test_names_spread_apart_move_as_little_as_they_can(seed):
    rng = np.random.default_rng(seed)
    places, gap = np.sort(rng.uniform(0, 4, 6)), rng.uniform(0.1, 0.7)
    found = spread_apart(places, gap, 0.0, 4.0)
    constraints = [{"type": "ineq", "fun": lambda y, k=k: y[k + 1] - y[k] - gap} for k in range(5)]
    best = minimize(
        lambda y: np.square(y - places).sum(), np.linspace(0, 4, 6), bounds=[(0, 4)] * 6, constraints=constraints,
        options={"ftol": 1e-12},
    )  # fmt: skip
    np.testing.assert_allclose(found, best.x, atol=1e-4)
    assert np.ptp(spread_apart(places, 9.0, 0.0, 4.0)) == pytest.approx(4.0)  # no room: evenly over all of it


def test_names_of_lines_stand_beside_the_axis_and_touch_nothing():
    words = np.array([f"word{number}" for number in range(60)])
    words[[3, 4]] = "$x^2$", "\x1b[31m"
    run = make(1, count=60, words=words)
    ax = view.kymograph(run)
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) > 8
    left = ax.get_window_extent().x0
    assert all(0 <= box.x0 < box.x1 < left for box in boxes)
    ordered = sorted(boxes, key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 + 2.5 for lower, upper in pairwise(ordered))  # the boxes hold empty ascenders
    begins = np.sort(run.points[0][:, 0])
    leaders = [line for line in ax.lines if len(line.get_xdata()) == 3]
    ends = np.array([line.get_ydata()[-1] for line in leaders])
    assert {line.get_ydata()[0] for line in leaders} == {text.get_position()[1] for text in ax.texts}
    assert np.isin(ends, begins).all()


def network(**others: Any) -> Trajectory:
    metadata = {"space": {"kind": "flat"}, "drift": "trained_layers", "solver": "map", "step": 1.0, **others}
    return run_of(RNG.normal(size=(4, 5, 6)) * [[[1.0]], [[5.0]], [[9.0]], [[30.0]]], metadata, words=list("abcde"))


@pytest.mark.slow
def test_matrices_of_a_network_are_cosines_and_its_time_counts_layers():
    run = network()
    ax = view.gram(run)
    image = ax.images[0]
    units = run.points[-1] / np.linalg.norm(run.points[-1], axis=1, keepdims=True)
    np.testing.assert_allclose(np.sort(np.ravel(image.get_array())), np.sort(np.ravel(units @ units.T)), atol=1e-12)
    assert image.get_clim() == (-1.0, 1.0)
    assert "cosine" in image.colorbar.ax.get_ylabel()
    assert ax.get_title().endswith("layer 3")
    for figure in (view.kymograph, view.similarity):
        assert figure(run).get_xlabel() == "layer"
    assert view.similarity(run).get_ylim()[0] == -1.0
    assert view.kymograph(network(step=0.5)).get_xlabel() == "time $t$"


def test_a_head_that_is_switched_off_is_an_empty_panel_that_says_so():
    weights = RNG.dirichlet(np.ones(5), (4, 3, 5))
    weights[:, 1] = np.nan
    run = run_of(network().points[:], dict(network().metadata), observables={"head_attention": weights})
    axes = view.heads(run)
    assert [[text.get_text() for text in ax.texts] for ax in axes] == [[], ["off"], []]
    assert np.ma.getmaskarray(axes[1].images[0].get_array()).all()


def test_heads_and_depth_of_a_network_are_drawn_as_recorded():
    weights = RNG.dirichlet(np.ones(5), (4, 3, 5))
    states = network()
    run = run_of(states.points[:], dict(states.metadata), words=list("abcde"), observables={"head_attention": weights})
    plan = dict(_plan(run, {"counts": np.arange(4, 0, -1)}))
    assert list(plan)[:2] == ["depth", "heads"]
    axes = plan["heads"]()
    for head, ax in enumerate(axes):
        np.testing.assert_array_equal(ax.images[0].get_array(), weights[2, head])
        assert ax.images[0].get_clim() == (0.0, 1.0)
    assert "attention of layer 3" in axes[0].figure.get_suptitle()
    depth = plan["depth"]()
    units = run.points[:] / np.linalg.norm(run.points[:], axis=-1, keepdims=True)
    pairs = np.triu_indices(5, 1)
    cosines = [(unit @ unit.T)[pairs].mean() for unit in units]
    np.testing.assert_allclose(depth[1].lines[0].get_ydata(), cosines)
    for figure in (view.heads, view.depth_of_run):
        with pytest.raises(ArgumentError):
            figure(make(2))
