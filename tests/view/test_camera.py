"""Depth and mass: where the camera stands, what is seen of the far side, and how large a cluster is drawn."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest

import particleflow
from figure_oracles import make, offsets
from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.plots.base import projection
from particleflow.view.plots.camera import camera_of, depth_cues, frame_limits, rotation
from particleflow.view.plots.crowds import crowd_colors, crowd_mass

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know


def test_sphere_snapshot_is_an_orthographic_view_with_near_points_last_and_larger():
    run = make(3, sphere=True, count=40)
    ax = view.snapshot(run, 4, azimuth=30.0)
    azimuth, elevation = np.radians(30.0), np.radians(22.0)
    toward = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    right = np.array([-np.sin(azimuth), np.cos(azimuth), 0])
    up = np.cross(toward, right)
    points = np.asarray(run.points[4])
    order = np.argsort(points @ toward)
    np.testing.assert_allclose(offsets(ax), np.column_stack([points @ right, points @ up])[order], atol=1e-12)
    assert np.all(np.diff(ax.collections[0].get_sizes()) > 0)


@pytest.mark.parametrize("shape", [(2, False), (2, True), (3, False), (3, True), (8, True)])
def test_marker_areas_are_proportional_to_mass(shape):
    """Three clusters of masses 1/2, 1/3 and 1/6, one of them in one particle of large weight."""
    dimension, sphere = shape
    generator = np.random.default_rng(3)
    places = generator.normal(size=(3, dimension))
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    cluster = np.array([0] * 6 + [1] * 4 + [2])
    points = np.stack([generator.normal(size=(11, dimension)), places[cluster]])
    points /= np.linalg.norm(points, axis=-1, keepdims=True) if sphere else 1.0
    weights = np.array([1 / 12] * 10 + [1 / 6])
    metadata = {"geometry": "sphere" if sphere else "euclidean"}
    run = Trajectory.from_arrays([0.0, 1.0], points, log_weights=np.log(weights), metadata=metadata)
    ax = view.snapshot(run, azimuth=10.0)
    seen = projection(run)(points[1])
    sizes = np.broadcast_to(ax.collections[0].get_sizes(), 11)
    if seen.shape[1] == 3:  # drawn from far to near, and nearer ones larger: at least 60 % of the area is left
        camera = rotation(10.0, 22.0)
        if not sphere:
            seen = seen - (frame_limits(run, projection(run))[0] + frame_limits(run, projection(run))[1]) / 2
        order = np.argsort(seen @ camera[2], kind="stable")
        ratio = sizes / weights[cluster == 0].sum() / np.array([1, 2 / 3, 1 / 3])[cluster[order]]
        assert 0.6 <= ratio.min() / ratio.max() <= 1
    else:
        np.testing.assert_allclose(sizes / sizes[0], np.array([1, 2 / 3, 1 / 3])[cluster])


def test_what_is_behind_keeps_three_fifths_of_its_size_and_colour_and_is_open_on_a_solid():
    depth, colors = np.linspace(-1, 1, 41), np.tile([[0.2, 0.4, 0.8]], (41, 1))
    for solid in (True, False):
        cues = depth_cues(depth, colors, "white", solid)
        strength = (1 - cues.rims) / (1 - colors)  # how much of the colour is left over the white fog
        inside = (1 - cues.fills) / (1 - colors)
        assert (cues.sizes**2).min() >= 0.6
        assert strength.min() >= 0.6
        assert (np.diff(cues.sizes) > 0).all()
        assert (np.diff(strength, axis=0) > 0).all()
        np.testing.assert_array_equal(cues.open, (depth < 0) & solid)
        np.testing.assert_allclose(inside[~cues.open], strength[~cues.open])
        assert inside[cues.open].max(initial=0.0) < 0.2


def test_a_sphere_is_drawn_with_open_dots_behind_it():
    """Poles of the camera's axis, half a turn apart: one is full with a rim of the page, one open with a rim of ink."""
    pole = rotation(30.0, 22.0)[2]
    points = np.stack([pole, -pole])[None]
    run = Trajectory.from_arrays([0.0], points, metadata={"geometry": "sphere"})
    dots = view.snapshot(run, colors=np.array([[0.0, 0.45, 0.7]] * 2), azimuth=30.0).collections[0]
    far, near = dots.get_facecolors()[:, :3]
    assert np.abs(near - [0.0, 0.45, 0.7]).max() < 0.01
    assert far.min() > 0.8
    assert dots.get_edgecolors()[0, 0] < 0.5
    assert dots.get_edgecolors()[1, :3].min() == 1
    assert dots.get_linewidths()[0] > dots.get_linewidths()[1]


@pytest.mark.parametrize("seed", range(4))
def test_the_camera_is_aimed_at_the_last_clusters(seed):
    """Of up to three clusters within a half sphere, wherever it is, every one is seen in front, and apart."""
    generator = np.random.default_rng(seed)
    pole = generator.normal(size=3)
    pole[2] *= 0.4  # the camera keeps the poles of the globe up and down
    centres = pole / np.linalg.norm(pole) + 0.55 * generator.normal(size=(3, 3)) / np.sqrt(3)
    last = np.repeat(centres, [30, 15, 5], axis=0)
    points = np.stack([generator.normal(size=(50, 3)), last])
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    run = Trajectory.from_arrays([0.0, 1.0], points, metadata={"geometry": "sphere"})
    seen = points[-1][[0, 30, 45]] @ camera_of(run).rotation.T
    assert (seen[:, 2] > 0).all()
    drawn = offsets(view.snapshot(run))
    np.testing.assert_allclose(np.unique(drawn.round(9), axis=0), np.unique(seen[:, :2].round(9), axis=0), atol=1e-8)


def test_camera_is_a_rotation():
    camera = rotation(73.0, 22.0)
    np.testing.assert_allclose(camera @ camera.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(camera) == pytest.approx(1)


def test_particles_at_one_place_share_their_mass_and_their_mean_colour():
    coordinates = np.array([[0.0, 0.0]] * 6 + [[1.0, 0.0]] * 3 + [[0.3, 0.7], [0.5, 0.2]])
    weights = np.arange(1, 12) / 66
    np.testing.assert_allclose(crowd_mass(coordinates, weights), np.array([21] * 6 + [24] * 3 + [10, 11]) / 66)
    colors = np.random.default_rng(0).uniform(size=(11, 3))
    groups = [slice(0, 6), slice(6, 9), slice(9, 10), slice(10, 11)]
    expected = np.concatenate([colors[part].mean(axis=0) + np.zeros_like(colors[part]) for part in groups])
    np.testing.assert_allclose(crowd_colors(coordinates, colors), expected)


def test_runs_share_a_direction_a_scale_and_a_projection():
    """Of several runs the box holds all places, and in many dimensions both lie on the components of all points."""
    small, large = make(3, seed=1), make(3, seed=2, count=30)
    shared = view.camera_of([small, large])
    low, high = shared.limits
    for run in (small, large):
        one, other = view.camera_of(run).limits
        assert (low <= one).all()
        assert (other <= high).all()
    high_dimensional = [make(8, seed=seed) for seed in (1, 2)]
    shared = view.camera_of(high_dimensional)
    points = np.concatenate([np.asarray(run.points).reshape(-1, 8) for run in high_dimensional])
    _, _, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(axes[:2] @ shared.view.matrix), np.eye(2), atol=1e-9)
    drawn = [view.snapshot(run, 3, camera=shared) for run in high_dimensional]
    assert drawn[0].get_xlim() == drawn[1].get_xlim()
    assert drawn[0].get_ylim() == drawn[1].get_ylim()
    with pytest.raises(ArgumentError, match="must live in one space"):
        view.camera_of([make(2), make(3)])


@pytest.mark.parametrize("draw", [view.snapshot, view.snapshots, view.paths])
def test_a_camera_of_another_space_is_refused(draw):
    for camera, said in ((view.camera_of(make(3)), "must live in one space"), (5, "must be made by `camera_of`")):
        with pytest.raises(ArgumentError, match=said):
            draw(make(2), camera=camera)


def test_one_sphere_is_seen_alike_in_two_runs():
    """The same points, which end at other places in the second run, lie at the same places of the first pictures."""
    one, other = make(3, sphere=True, seed=1), make(3, sphere=True, seed=2)
    start = np.asarray(one.points[0])
    changed = np.concatenate([start[None], np.asarray(other.points)[1:]])
    other = Trajectory.from_arrays(one.times, changed, metadata={"geometry": "sphere"})
    shared = view.camera_of([one, other])
    pictures = [view.snapshots(run, [0, -1], camera=shared) for run in (one, other)]
    np.testing.assert_allclose(offsets(pictures[0][0]), offsets(pictures[1][0]))
    assert view.camera_of(one).rotation.tolist() != view.camera_of(other).rotation.tolist()
