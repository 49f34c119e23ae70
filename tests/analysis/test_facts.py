"""The analysis goes by what a run says about itself: spheres of any radius, ensembles, densities, bad metadata."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from particleflow import geometry
from particleflow.analysis import (
    choose_threshold,
    cluster_counts,
    mode_amplitudes,
    parking_centres,
    parking_separation,
    similarity_quantiles,
    summarize,
    track_clusters,
    wasserstein2,
)
from particleflow.analysis.reading import is_spherical
from particleflow.app.cli.console import Meter, RunMeter
from particleflow.dynamics.geometry import Sphere
from particleflow.errors import ArgumentError
from particleflow.trajectory.store import TrajectoryWriter
from particleflow.trajectory.trajectory import Trajectory


def circle(angles: Any, radius: float = 1.0) -> np.ndarray:
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def sphere_fact(radius: Any) -> dict[str, Any]:
    return {"kind": "sphere", "radius": radius, "coordinates": "points of the sphere", "sees_stored": True}


@pytest.mark.parametrize("radius", [0.2, 1.0, 5.0])
def test_clusters_do_not_depend_on_the_radius_of_the_sphere(radius):
    # Neighbours at an angle of 0.02 are linked, at 0.1 not, whatever the radius.
    angles = np.array([0.0, 0.02, 0.04, 0.14, 0.16])
    run = Trajectory.from_arrays([0], circle(angles, radius)[None], metadata={"space": sphere_fact(radius)})
    threshold = choose_threshold(run)
    assert threshold.value == pytest.approx(radius * np.sqrt(0.002))
    assert f"radius {radius:g}" in threshold.reason
    assert cluster_counts(run).tolist() == [2]
    assert track_clusters(run).counts.tolist() == [2]
    summary = summarize(run)
    assert summary["clusters"]["final_count"] == 2
    assert summary["space"] == sphere_fact(radius)


def test_radius_that_is_not_stored_is_measured_without_particles_of_no_mass():
    points = circle([0.0, 1.0, 2.0], 5.0)
    points[2] *= 1000
    run = Trajectory.from_arrays(
        [0], points[None], log_weights=[0.0, 0.0, -np.inf], metadata={"space": sphere_fact(None)}
    )
    assert choose_threshold(run).value == pytest.approx(5 * np.sqrt(0.002))
    assert "measured" in choose_threshold(run).reason
    assert run.facts.space.radius is None


@pytest.mark.parametrize(
    ("name", "radius", "sees_stored"),
    [
        ("sphere", 1.0, True),
        ("ngpt", 1.0, True),
        ("pre_norm", 1.0, True),
        ("peri_norm", 1.0, True),
        ("sqrt_scaled", 1.0, True),
        ("layer_norm", 2.0, False),
        ("rms_norm", 2.0, False),
        ("euclidean", None, True),
        ("rescaled", None, False),
        ("my_module:Torus", None, False),
    ],
)
def test_runs_without_facts_are_read_by_the_name_of_their_geometry(name, radius, sees_stored):
    run = Trajectory.from_arrays([0], np.ones((1, 3, 4)), metadata={"geometry": name})
    space = run.facts.space
    assert (space.kind, space.radius) == ("flat" if radius is None else "sphere", radius)
    assert space.sees_stored is sees_stored
    assert is_spherical(run) is (radius is not None)


@pytest.mark.parametrize("scheme", ["Ngpt", "PreNorm", "PeriNorm", "SqrtScaled"])
def test_all_normalisations_on_the_unit_sphere_are_analysed_on_the_sphere(scheme):
    space = getattr(geometry, scheme)().facts(2).description()
    frames = circle(np.linspace(0.0, 1.0, 6) * np.array([[1.0], [0.9], [0.8]]))
    run = Trajectory.from_arrays([0.0, 0.5, 1.0], frames, metadata={"space": space})
    threshold = choose_threshold(run)
    assert (threshold.metric, threshold.value) == ("chordal", pytest.approx(np.sqrt(0.002)))
    assert similarity_quantiles(run).measure == "cosine"
    assert summarize(run)["modes"]["basis"] == "Fourier"


def test_progress_of_a_run_counts_clusters_at_the_radius_of_its_sphere():
    frames = SimpleNamespace(points=circle([[0.0, 0.02, 0.04, 0.14, 0.16]], 5.0))
    with Meter(quiet=True) as meter:
        assert RunMeter(meter, 1.0, 1, Sphere(5.0))._clusters(frames) == ["2 clusters"]
        dense = SimpleNamespace(points=circle([np.linspace(0, 2 * np.pi, 200)], 5.0))
        assert RunMeter(meter, 1.0, 1, Sphere(5.0))._clusters(dense) == ["clusters not separated"]


def test_facts_are_believed_before_names():
    points = np.random.default_rng(0).normal(size=(1, 8, 3))
    flat = {"kind": "flat", "radius": None, "coordinates": "x", "sees_stored": True}
    run = Trajectory.from_arrays([0], points, metadata={"geometry": "sphere", "space": flat})
    assert not is_spherical(run)
    assert choose_threshold(run).metric == "euclidean"
    assert similarity_quantiles(run).measure == "distance"


HOSTILE = [None, 3, "sphere", [], ["sphere"], {}, {"kind": 1}, {"kind": ["sphere"]}, {"kind": "torus"}]


@pytest.mark.parametrize("space", HOSTILE)
def test_spaces_of_the_wrong_type_are_as_if_they_were_not_there(space):
    run = Trajectory.from_arrays([0], circle([[0.0, 1.0, 2.0]]), metadata={"geometry": "sphere", "space": space})
    assert (run.facts.space.kind, run.facts.space.radius) == ("sphere", 1.0)
    json.dumps(summarize(run), allow_nan=False)


@pytest.mark.parametrize("radius", ["5", -1.0, 0, float("nan"), float("inf"), True, [1.0, 2.0], {}, 10**400, [[]]])
def test_radii_that_are_no_positive_numbers_are_unknown(radius):
    run = Trajectory.from_arrays([0], circle([[0.0, 1.0, 2.0]], 3.0), metadata={"space": sphere_fact(radius)})
    assert run.facts.space.radius is None
    assert choose_threshold(run).value == pytest.approx(3 * np.sqrt(0.002))


@pytest.mark.parametrize(
    "interactions",
    [
        *HOSTILE,
        [None],
        [{"kernel": 3}],
        [{"kernel": {"kind": {}, "form": [], "beta": {}, "query": "x" * 9, "key": [None]}, "normalization": {}}],
        [{"kernel": {"kind": "attention", "form": "inner", "beta": 1e300, "query": 1e300}, "normalization": "row"}],
        "x",
    ],
)
def test_interactions_of_the_wrong_type_are_unknown(interactions):
    run = Trajectory.from_arrays(
        [0], circle([[0.0, 1.0, 2.0]]), metadata={"geometry": "sphere", "interactions": interactions}
    )
    assert summarize(run)["attention"] is None
    assert not any(each.is_attention for each in run.facts.interactions) or run.facts.interactions[0].beta == 1e300


def test_parking_takes_beta_times_the_square_of_the_radius():
    generator = np.random.default_rng(4)
    points = circle(generator.uniform(0, 2 * np.pi, size=200), 5.0)
    kernel = {"kind": "attention", "form": "inner", "beta": 2.0, "query": [2.0, 2.0], "key": [[0.5, 0.0], [0.0, 0.5]]}
    row = {"kernel": kernel, "normalization": "row", "positional": {"kind": "causal"}, "data": False}
    run = Trajectory.from_arrays(
        [0], points[None], positions=np.arange(200), metadata={"space": sphere_fact(5.0), "interactions": [row]}
    )
    parking = summarize(run)["parking"]
    # ⟨Qx, Kx'⟩ = ⟨x, x'⟩ = 25 cos: as on the unit circle at β = 50.
    assert parking["separation"] == pytest.approx(parking_separation(50.0))
    assert parking["centres"] == parking_centres(points / 5, beta=50.0).tolist()
    metadata = run.metadata | {"space": sphere_fact(1e200)}  # a file may say so
    run = Trajectory.from_arrays([0], points[None], positions=np.arange(200), metadata=metadata)
    assert summarize(run)["parking"] is None


def test_attention_to_particles_that_are_not_stored_has_no_section(tmp_path):
    kernel = {"kind": "attention", "form": "inner", "beta": 4.0, "query": 1.0, "key": 1.0}
    interactions = [{"kernel": kernel, "normalization": "row", "positional": None, "data": False}]
    known = {"space": sphere_fact(1.0), "interactions": interactions}
    points, found = circle(np.linspace(0.0, 1.0, 6)), []
    for particles in (None, [0, 2, 3]):
        stored = points if particles is None else points[particles]
        path = tmp_path / f"{len(stored)}.h5"
        shape = {"count": len(stored), "dimension": 2, "particles": particles}
        with TrajectoryWriter.create(path, **shape, provenance=known) as writer:
            writer.append([0.0], [0], stored[None])
        with Trajectory.open(path) as run:
            found.append(summarize(run)["attention"])
    assert found[0]["first"]["beta"] == 4.0
    assert found[1] is None


def test_geodesic_w2_on_a_sphere_of_any_radius():
    points = circle([0.3, 1.0], 5.0)
    assert wasserstein2(points[:1], points[1:], metric="geodesic", radius=5.0) == pytest.approx(3.5)
    with pytest.raises(ArgumentError, match="`radius` 1"):
        wasserstein2(points[:1], points[1:], metric="geodesic")


def ensemble(metadata: dict[str, Any], runs: int = 3, dimension: int = 2) -> Trajectory:
    points = np.random.default_rng(1).normal(size=(1, runs, 6, dimension))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    return Trajectory.from_arrays([0], np.arange(1, runs + 1)[:, None, None] * points, metadata=metadata)


def test_every_run_of_an_ensemble_has_its_own_facts():
    by_run = {"beta": {"runs": [1.0, 2.0, 3.0]}, "query": [2.0, 2.0], "key": {"runs": [1.0, 4.0, 9.0]}}
    row = {"kernel": {"kind": "attention", "form": "inner", **by_run}, "normalization": "row", "positional": None}
    many = ensemble({"space": sphere_fact({"runs": [1.0, 2.0, 3.0]}), "interactions": [row]})
    assert many.facts.space.radius is None
    for run, summary in enumerate(summarize(many)["runs"]):
        assert summary["space"]["radius"] == run + 1
        assert summary["thresholds"]["cluster_distance"] == pytest.approx((run + 1) * np.sqrt(0.002))
        assert summary["attention"]["first"]["beta"] == run + 1
        assert many.run(run).facts.interactions[0].key == (run + 1) ** 2
        assert np.asarray(many.run(run).facts.interactions[0].query).tolist() == [2.0, 2.0]
        assert choose_threshold(many.run(run)).value == pytest.approx((run + 1) * np.sqrt(0.002))


@pytest.mark.parametrize("metadata", [{}, {"geometry": "sphere"}])
def test_ensembles_are_weighted_run_by_run(metadata):
    points = np.random.default_rng(0).normal(size=(2, 3, 8, 2))
    alive = np.where(np.arange(8) <= np.arange(3)[:, None] + 1, 0.0, -np.inf)
    many = Trajectory.from_arrays([0, 1], points, log_weights=alive, metadata=metadata)
    assert many.weights.shape == (3, 8)
    summary = summarize(many, beta=1.0)
    assert [run["clusters"]["initial_count"] for run in summary["runs"]] == [2, 3, 4]
    for analysis in (cluster_counts, track_clusters, similarity_quantiles, mode_amplitudes):
        with pytest.raises(ArgumentError, match="ensemble of 3"):
            analysis(many)


def density() -> Trajectory:
    """Masses 1 + a cos θ over cells of the circle of radius 2, a from 0.2 to 0.8."""
    angles = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    return Trajectory.from_arrays(
        [0.0, 1.0, 2.0],
        np.broadcast_to(circle(angles, 2.0), (3, 64, 2)),
        observables={"energy": np.array([3.0, 2.0, 1.0])},
        fields={"masses": (1 + np.array([0.2, 0.5, 0.8])[:, None] * np.cos(angles)) / 64},
        metadata={"space": sphere_fact(2.0)},
    )


def test_masses_that_change_are_used_where_nothing_is_followed_and_refused_elsewhere():
    run = density()
    np.testing.assert_allclose(mode_amplitudes(run, 2), [[0.1, 0.0], [0.25, 0.0], [0.4, 0.0]], atol=1e-12)
    for analysis in (cluster_counts, track_clusters, similarity_quantiles):
        with pytest.raises(ArgumentError, match="masses change in time"):
            analysis(run)
    summary = summarize(run)
    assert summary["clusters"] is None
    assert summary["energy"]["last"] == 1.0
    np.testing.assert_allclose(np.array(summary["modes"]["amplitudes"])[:, 0], [0.1, 0.25, 0.4], atol=1e-12)
    masses = run.masses
    points = np.asarray(run.points[0])
    expected = wasserstein2(points, points, x_weights=masses[0], y_weights=masses[-1])
    assert summary["distances"]["wasserstein2"] == pytest.approx(expected)
    assert expected > 0.1
    json.dumps(summary, allow_nan=False)
