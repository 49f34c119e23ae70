"""Principal components against scikit-learn, and which runs are found to lie on a sphere."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from particleflow.analysis.reading import first_run
from particleflow.analysis.shape import common_norm, principal_components
from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory

SPREAD = np.array([5, 3, 2, 1, 0.5, 0.1])


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_components_are_those_of_scikit_learn(count, scale):
    points = np.random.default_rng(1).normal(size=(5, 200, 6)) * SPREAD + 3.0
    found = principal_components(scale * points, count)
    reference = PCA(count).fit(points.reshape(-1, 6))
    np.testing.assert_allclose(found.center, scale * points.mean(axis=(0, 1)))
    np.testing.assert_allclose(np.abs(np.sum(found.directions.T * np.asarray(reference.components_), axis=1)), 1.0)
    np.testing.assert_allclose(found.shares, reference.explained_variance_ratio_, rtol=1e-9)
    assert (found.directions[np.abs(found.directions).argmax(axis=0), np.arange(count)] > 0).all()
    scores = reference.transform(points.reshape(-1, 6)).reshape(5, 200, count)
    np.testing.assert_allclose(np.abs(found(scale * points)) / scale, np.abs(scores), atol=1e-9)


def test_points_that_are_not_finite_are_passed_over():
    points = np.random.default_rng(2).normal(size=(40, 5))
    holes = np.concatenate([points, np.full((3, 5), np.nan), np.full((1, 5), np.inf)])
    np.testing.assert_array_equal(principal_components(holes, 3).directions, principal_components(points, 3).directions)


@pytest.mark.parametrize("points", [np.full((7, 4), 2.5), np.zeros((1, 4)), np.full((3, 4), np.nan)])
def test_a_cloud_that_is_one_point_has_directions_but_no_variance(points):
    found = principal_components(points, 3)
    np.testing.assert_allclose(found.directions.T @ found.directions, np.eye(3), atol=1e-14)
    assert found.shares.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("geometry", "error", "found"),
    [
        ("sphere", 1e-3, True),
        ("rms_norm", 1e-3, True),
        ("sphere", 5e-2, False),
        ("ngpt", 0.0, True),
        ("sqrt_scaled", 1e-12, True),
        ("pre_norm", 1e-3, True),
        ("euclidean", 0.0, False),
        (None, 1e-7, True),
        (None, 1e-3, False),
    ],
)
def test_a_sphere_is_found_by_what_the_run_says_and_where_its_points_are(geometry, error, found):
    points = np.random.default_rng(3).normal(size=(4, 50, 3))
    points *= 2.0 / np.linalg.norm(points, axis=-1, keepdims=True)
    points[2, 7] *= 1 + error
    points[3, 8] = np.nan
    run = Trajectory.from_arrays(np.arange(4.0), points, metadata={"geometry": geometry} if geometry else {})
    assert common_norm(run, points) == (pytest.approx(2.0, rel=1e-3) if found else None)


def test_an_ensemble_is_read_through_its_first_run_and_nothing_without_a_frame():
    points = np.random.default_rng(4).normal(size=(3, 2, 5, 1))
    np.testing.assert_array_equal(first_run(Trajectory.from_arrays(np.arange(3.0), points)).points, points[:, 0])
    with pytest.raises(ArgumentError, match="no frame"):
        first_run(Trajectory.from_arrays(np.zeros(0), np.zeros((0, 5, 1))))
