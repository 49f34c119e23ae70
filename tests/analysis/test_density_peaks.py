"""The cells of a density and its peaks, against formulas, brute force and the meshes that simulate them."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from density_oracles import BOX, EVEN, KINDS, SHARES, centres, make, peaks_in_a_row, places, scattered, watershed
from figure_oracles import make as particles
from particleflow.analysis import cells_of, densities_of, find_peaks, summarize, track_clusters, track_peaks
from particleflow.app.cli.closing_lines import clusters_line, threshold_line
from particleflow.app.runs.run_outputs import track
from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shuffled", [False, True])
def test_cells_fill_the_space_and_touch_both_ways(kind, shuffled):
    cells = cells_of(make(kind, shuffled=shuffled))
    assert cells is not None
    assert cells.kind == kind
    points, volumes = places(kind)
    order = np.random.default_rng(1).permutation(len(points)) if shuffled else np.arange(len(points))
    np.testing.assert_allclose(cells.volumes, volumes[order], rtol=1e-9)
    assert cells.volumes.sum() == pytest.approx(EVEN[kind], rel=1e-9)
    pairs = {(i, j) for i, row in enumerate(cells.neighbours.tolist()) for j in row if i != j}
    assert pairs == {(j, i) for i, j in pairs}
    if kind in ("circle", "line", "plane"):
        nearest = np.linalg.norm(points[order][:, None] - points[order][None], axis=-1) + 9 * np.eye(len(points))
        assert {(i, int(j)) for i, j in enumerate(nearest.argmin(axis=1))} <= pairs


def test_cells_are_those_of_the_meshes_that_simulate_them():
    from particleflow.discretization.density.finite_volumes.voronoi_sphere import _cut
    from particleflow.discretization.density.spectral.harmonics import harmonics_of

    basis, parts = harmonics_of(6, 3), _cut(200)
    for points, areas in ((basis.points, 4 * np.pi * basis.shares), (parts.unit_centres, parts.areas)):
        masses = np.full((2, len(points)), 1 / len(points))
        where = np.broadcast_to(points, (2, *points.shape))
        run = Trajectory.from_arrays([0, 1], where, fields={"masses": masses}, metadata={"geometry": "sphere"})
        cells = cells_of(run)
        assert cells is not None
        np.testing.assert_allclose(cells.volumes, areas, rtol=1e-9)


def test_what_has_no_cells_says_so():
    assert cells_of(particles(2, sphere=True)) is None
    assert cells_of(scattered()) is None
    assert cells_of(make("line")[:1]) is not None
    twice = np.zeros((2, 5, 1))
    assert cells_of(Trajectory.from_arrays([0, 1], twice, fields={"masses": np.full((2, 5), 0.2)})) is None
    with pytest.raises(ArgumentError, match="`track_clusters` follows particles"):
        track_peaks(particles(2))
    with pytest.raises(ArgumentError, match="this run is a density"):
        track_clusters(make("line"))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1.5, 2.0, 4.0]))
def test_peaks_of_a_row_are_those_of_brute_force(seed, contrast):
    generator = np.random.default_rng(seed)
    density = np.exp(np.cumsum(generator.normal(size=40)))
    points = np.broadcast_to(np.arange(40.0)[:, None], (2, 40, 1))
    run = Trajectory.from_arrays([0, 1], points, fields={"masses": np.tile(density, (2, 1))})
    cells = cells_of(run)
    assert cells is not None
    found = find_peaks(cells, density, contrast=contrast, least=0.0)
    expected = peaks_in_a_row(density, contrast) if density.max() >= contrast * density.min() else 0
    assert len(found.tops) == expected
    np.testing.assert_allclose(found.masses.sum(), 1.0 if expected else 0.0, rtol=1e-12)
    np.testing.assert_allclose(found.heights, (density / density.sum())[found.tops], rtol=1e-12)
    assert (np.diff(found.masses) <= 0).all()


def grid_of(kind: str, generator: np.random.Generator) -> Any:
    """Cells of a small mesh, their points in a random order: uneven on the line and the circle, even in the plane."""
    if kind in ("line", "ring"):
        points = np.cumsum(generator.uniform(0.5, 1.5, 40))[:, None] if kind == "line" else np.arange(40.0)[:, None]
    elif kind == "circle":
        turn = np.sort(generator.uniform(0, 2 * np.pi, 40))
        points = np.column_stack([np.cos(turn), np.sin(turn)])
    elif kind in ("plane", "torus"):
        points = np.stack(np.meshgrid(np.arange(8.0), np.arange(7.0), indexing="ij"), -1).reshape(-1, 2)
    else:
        points = generator.normal(size=(70, 3))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    points = generator.permutation(points)
    metadata = {"geometry": "sphere" if kind in ("circle", "sphere") else "euclidean", "ends meet": kind in MEETING}
    even = np.full((2, len(points)), 1 / len(points))
    where = np.broadcast_to(points, (2, *points.shape))
    cells = cells_of(Trajectory.from_arrays([0, 1], where, fields={"masses": even}, metadata=metadata))
    assert cells is not None
    return cells


MEETING = ("ring", "torus")
ROUGHNESS = ("noise", "walk", "steps")


def rough(cells: Any, roughness: str, generator: np.random.Generator) -> np.ndarray:
    """A random density: noise without a scale, smoothed noise, or that in steps, with many plains."""
    noise = generator.normal(size=len(cells.points))
    if roughness == "noise":
        return np.exp(noise)
    for _ in range(3):
        noise = 0.4 * noise + 0.6 * noise[cells.neighbours].mean(axis=1)
    scaled = 1.5 * noise / noise.std()
    return np.exp(scaled) if roughness == "walk" else np.exp(np.round(scaled))


SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 70))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["line", "ring", "circle", "plane", "torus", "sphere"])
def test_the_peaks_and_their_cells_are_those_of_a_brute_force_watershed(kind, seed):
    for number, roughness in enumerate(ROUGHNESS):
        generator = np.random.default_rng([seed, number])
        cells = grid_of(kind, generator)
        density = rough(cells, roughness, generator)
        contrast, least = float(generator.choice([1.0, 1.5, 2.0])), float(generator.choice([0.0, 0.01, 0.05]))
        expected = watershed(cells, density, contrast, least)
        found = find_peaks(cells, density * cells.volumes, contrast=contrast, least=least)
        assert sorted(found.tops.tolist()) == sorted(expected)
        for place, top in enumerate(found.tops.tolist()):
            assert np.flatnonzero(found.basins == place).tolist() == expected[top]
            share = density @ cells.volumes
            assert found.masses[place] == pytest.approx((density * cells.volumes)[expected[top]].sum() / share)


def test_a_shoulder_belongs_to_its_peak_though_another_one_is_nearer():
    density = np.array([0.1, 9, 10, 9, 4, 3.5, 4, 4.2, 4, 0.1, 6, 5, 0.1])
    points = np.broadcast_to(np.arange(13.0)[:, None], (2, 13, 1))
    cells = cells_of(Trajectory.from_arrays([0, 1], points, fields={"masses": np.tile(density, (2, 1))}))
    assert cells is not None
    found = find_peaks(cells, density)
    assert found.tops.tolist() == [2, 10]
    assert found.basins.tolist() == [0] * 9 + [1] * 4  # the lowest cell, 9, goes with the higher of its neighbours
    np.testing.assert_allclose(found.masses, [density[:9].sum() / density.sum(), density[9:].sum() / density.sum()])


@pytest.mark.parametrize("gap", [4, 5])
def test_a_plain_between_two_peaks_is_shared(gap):
    density = np.array([1.0, 5, *[1.0] * gap, 5, 1.0])
    points = np.broadcast_to(np.arange(float(len(density)))[:, None], (2, len(density), 1))
    cells = cells_of(Trajectory.from_arrays([0, 1], points, fields={"masses": np.tile(density, (2, 1))}))
    assert cells is not None
    found = find_peaks(cells, density)
    assert sorted((found.masses * density.sum()).round(9).tolist()) == [6 + gap // 2, 6 + gap - gap // 2]


@pytest.mark.parametrize("kind", KINDS)
def test_bumps_become_peaks_of_their_shares(kind):
    run = make(kind, frames=6, shuffled=True)
    found = track_peaks(run)
    assert found.counts[-1] == 2
    assert (np.diff(found.counts) >= 0).all()
    assert found.counts[0] == 0
    first, second = found.last
    nearer = np.linalg.norm(run.points[-1][:, None] - centres(kind)[None], axis=-1).argmin(axis=1)
    expected = np.bincount(nearer, np.asarray(run.masses[-1]))
    np.testing.assert_allclose([first.masses[-1], second.masses[-1]], expected, atol=1e-6)
    np.testing.assert_allclose(expected, SHARES, atol=0.02)  # by so much cells are off at random places
    spacing = np.sqrt(EVEN[kind] / run.count) if kind != "line" else EVEN[kind] / run.count
    for peak, centre in zip(found.last, centres(kind), strict=True):
        assert np.linalg.norm(peak.places[-1] - centre) < 1.5 * spacing


def test_peaks_that_meet_are_one_and_the_heavier_goes_on():
    """Two bumps of the masses 0.7 and 0.3 that come together on a line: the lighter one merges into the other."""
    grid = np.linspace(-BOX, BOX, 121)[:, None]
    apart = np.linspace(2.0, 0.0, 21)
    rows = [0.7 * np.exp(-8 * (grid[:, 0] + d) ** 2) + 0.3 * np.exp(-8 * (grid[:, 0] - d) ** 2) + 1e-12 for d in apart]
    where = np.broadcast_to(grid, (21, 121, 1))
    found = track_peaks(Trajectory.from_arrays(np.arange(21.0), where, fields={"masses": np.stack(rows)}))
    assert found.counts[0] == 2
    assert found.counts[-1] == 1
    heavy, light = sorted(found.peaks, key=lambda peak: -peak.masses[0])
    assert (heavy.label, light.into, heavy.into) == (0, 0, -1)
    assert heavy.frames[-1] == 20
    last = rows[light.frames[-1]], rows[light.frames[-1] + 1]
    assert [peaks_in_a_row(row, found.contrast) for row in last] == [2, 1]
    assert "2 → 1" in repr(found)


def test_a_density_is_summarized_by_its_peaks():
    run = make("circle")
    summary = json.loads(json.dumps(summarize(run), allow_nan=False))
    assert summary["cells"] == 96
    assert "particles" not in summary
    assert summary["clusters"] is None
    peaks = summary["peaks"]
    assert (peaks["initial_count"], peaks["final_count"]) == (0, 2)
    assert peaks["last"][0]["mass"] == pytest.approx(0.6, abs=0.01)
    np.testing.assert_allclose(peaks["last"][0]["place"], centres("circle")[0], atol=1e-12)
    before, after = run.times[peaks["counts"].index(2) - 1], run.times[peaks["counts"].index(2)]
    assert max(each["since_between"] for each in peaks["last"]) == [before, after]
    assert max(each["since"] for each in peaks["last"]) == (before + after) / 2
    assert clusters_line(summary) == f"no peak until t = {before:.4g}–{after:.4g}, then 2 peaks; masses 0.6, 0.4"
    assert threshold_line(summary) == peaks["rule"]
    assert clusters_line(summarize(run[-1:])) == "2 peaks from the first frame to the last; masses 0.6, 0.4"
    assert clusters_line(summarize(run[:1])) == "no peak at any time"


def test_an_ensemble_of_densities_is_summarized_run_by_run():
    summary = summarize(make("line", runs=3))
    assert summary["aggregate"]["final_peaks"]["mean"] == 2
    assert summary["aggregate"]["final_count"]["runs"] == 0
    assert clusters_line(summary) == "3 runs with 2 peaks at the end, 2 on average"


def test_a_distance_of_particles_is_refused_for_a_density():
    for ask in (lambda run: summarize(run, threshold=0.1), lambda run: track(run, 0.1)):
        with pytest.raises(ArgumentError, match="this run is a density"):
            ask(make("line"))
    assert track(scattered()) is None
    assert summarize(scattered())["peaks"] is None
    assert clusters_line(summarize(scattered())) is None


def test_a_mass_that_is_no_number_is_named():
    run = make("line")
    masses = np.array(run.masses)
    masses[3, 7] = np.nan
    broken = Trajectory.from_arrays(run.times, run.points, fields={"masses": masses}, metadata=run.metadata)
    with pytest.raises(ArgumentError, match=r"Frame 3 \(time 1.5\) is not finite: the mass of cell 7"):
        track_peaks(broken)
    cells = cells_of(broken)
    assert cells is not None
    assert densities_of(broken, cells, np.array([2])).shape == (1, 40)


@pytest.mark.parametrize("dimension", [1, 2])
def test_a_peak_on_the_seam_of_a_box_whose_ends_meet_is_one(dimension):
    """Wrapped Gaussians around a corner and around the middle: the corner is one peak, or one at each of its sides."""
    axis = (np.arange(24) + 0.5) / 24
    points = np.stack(np.meshgrid(*[axis] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    corner = np.exp(-0.5 * np.square(np.minimum(points, 1 - points) / 0.08).sum(axis=1))
    middle = np.exp(-0.5 * np.square((points - 0.5) / 0.08).sum(axis=1))
    masses = np.stack([2 * corner + middle] * 2)
    masses /= masses.sum(axis=1, keepdims=True)
    where = np.broadcast_to(points, (2, *points.shape))
    counts = {}
    for meet in (False, True):
        run = Trajectory.from_arrays([0, 1], where, fields={"masses": masses}, metadata={"ends meet": meet})
        peaks = track_peaks(run)
        counts[meet] = len(peaks.last)
    np.testing.assert_allclose([peak.masses[-1] for peak in peaks.last], [2 / 3, 1 / 3], atol=2e-3)
    assert counts == {False: 1 + 2**dimension, True: 2}


TWINS = {  # axes of equal cells, whether their ends meet, and the places between two or four cells where a maximum is
    "line": (1, False, ([8.0], [20.0])),
    "line, on the seam": (1, True, ([0.0], [12.0])),
    "plane, between two": (2, False, ([6.0, 6.5], [16.0, 17.5])),
    "plane, between four": (2, False, ([6.0, 7.0], [16.0, 17.0])),
    "plane, on a corner of the seam": (2, True, ([0.0, 0.0], [12.0, 12.0])),
    "plane, on a side of the seam": (2, True, ([0.0, 12.5], [12.0, 3.5])),
}


def cells_and_squares(name: str) -> tuple[np.ndarray, dict, np.ndarray]:
    """Points, the metadata of their run, and squared distances (N, 2) to two maxima, equal ones to the last bit."""
    from particleflow._support.sphere_lattice import fibonacci

    if name in TWINS:
        axes, meet, middles = TWINS[name]
        points = np.stack(np.meshgrid(*[np.arange(24) + 0.5] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
        apart = np.abs(points[:, None] - np.array(middles)[None])
        return points, {"ends meet": meet}, np.square(np.minimum(apart, 24 - apart) if meet else apart).sum(axis=-1)
    points = fibonacci(400)
    if name == "circle":
        turn = 2 * np.pi * np.arange(96) / 96
        points = np.column_stack([np.cos(turn), np.sin(turn)])
    pairs = []
    for first in (30, 60) if name == "circle" else (90, 310):
        near = np.linalg.norm(points - points[first], axis=1).argsort()
        pairs.append([first, near[1]])
    middles = np.array([points[pair].mean(axis=0) for pair in pairs])
    squares = np.square(points[:, None] - middles[None]).sum(axis=-1) * 100
    for column, (first, second) in enumerate(pairs):
        squares[first, column] = squares[second, column]
    return points, {"geometry": "sphere"}, squares


@pytest.mark.parametrize("name", [*TWINS, "circle", "sphere"])
@pytest.mark.parametrize("flat", [0.0, 4.5])
def test_a_maximum_between_cells_of_one_density_is_one_peak(name, flat):
    """Two maxima, each between cells that are equal; all that is nearer than `flat` is cut to one plateau."""
    points, metadata, squares = cells_and_squares(name)
    density = np.max(np.exp(-0.3 * np.maximum(squares, flat)) * np.array([1.0, 0.5]), axis=1)
    assert (density == density.max()).sum() >= 2
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(points))
        where = np.broadcast_to(points[order], (2, *points.shape))
        cells = cells_of(Trajectory.from_arrays([0, 1], where, fields={"masses": np.tile(density[order], (2, 1))},
                                                metadata=metadata))  # fmt: skip
        assert cells is not None
        for contrast, least in ((1.0, 0.0), (2.0, 0.01)):
            found = find_peaks(cells, density[order] * cells.volumes, contrast=contrast, least=least)
            assert found.heights[0] > 1.5 * found.heights[1]
            assert len(found.tops) == 2
            nearer = squares[order].argmin(axis=1)
            np.testing.assert_allclose(found.masses, np.bincount(nearer, density[order] * cells.volumes) / (
                density[order] @ cells.volumes), atol=0.02)  # fmt: skip


def test_an_even_density_has_no_peak_and_a_light_spike_is_none():
    cells = cells_of(make("line", shuffled=True))
    assert cells is not None
    assert len(find_peaks(cells, np.ones(40), contrast=1.0, least=0.0).tops) == 0
    empty = np.where(np.isin(np.arange(40), [3, 4, 30]), 1.0, 0.0)  # on most cells nothing, in no order
    assert len(find_peaks(cells, empty[np.argsort(cells.order)], contrast=1.0, least=0.0).tops) == 2
    row = np.exp(-0.02 * np.square(np.arange(40) - 15.5))
    row[38] = 1.5
    spiked = row[np.argsort(cells.order)]
    share = 1.5 / row.sum()
    assert len(find_peaks(cells, spiked, least=0.9 * share).tops) == 2
    only = find_peaks(cells, spiked, least=1.1 * share)
    assert len(only.tops) == 1
    assert only.heights[0] < 1.5 / row.sum() / 0.15
    np.testing.assert_allclose(only.masses, [1.0], rtol=1e-12)
