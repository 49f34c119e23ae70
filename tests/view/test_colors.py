"""Colours of clusters: neighbours have unlike hues, and a particle has the colour of the cluster it ends in."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest

from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.plots.colors import colored_clusters, contrasting_categories
from particleflow.view.webpage.page_data import CodedLabels, cluster_categories


def hue_gap(one, other):
    angles = np.arctan2(*style.oklab(np.stack([one, other]))[:, :0:-1].T)
    return np.degrees(np.abs(np.angle(np.exp(1j * (angles[0] - angles[1])))))


@pytest.mark.parametrize("theme", sorted(style.THEMES))
@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_neighbouring_clusters_have_unlike_hues(theme, count):
    for seed in range(5):
        turn = 2 * np.pi * (np.arange(count) + 0.3 * np.random.default_rng(seed).uniform(size=count)) / count
        chosen = contrasting_categories(np.stack([np.cos(turn), np.sin(turn)], axis=1))
        colors = style.palette(7, style.find(theme))[chosen]
        assert len(np.unique(colors, axis=0)) == count
        for index in range(count):
            assert hue_gap(colors[index], colors[(index + 1) % count]) > 35


def test_a_category_has_one_hue_in_every_theme():
    light, dark = (style.palette(96, style.find(name)) for name in ("light", "dark"))
    assert max(hue_gap(one, other) for one, other in zip(light[:7], dark[:7], strict=True)) < 3
    assert max(hue_gap(one, other) for one, other in zip(light, dark, strict=True)) < 30  # clipped to what screens show


def test_categories_that_are_known_are_kept():
    centres = np.random.default_rng(0).normal(size=(5, 2))
    chosen = contrasting_categories(centres, {1: 6, 4: 9})
    assert (chosen[1], chosen[4]) == (6, 9)
    assert len(set(chosen.tolist())) == 5


def test_a_cluster_has_one_colour_in_figures_and_page_light_and_dark():
    """Three clusters, of which two merge early: codes of the page, which count over all frames, and last clusters."""
    generator, member = np.random.default_rng(1), np.arange(60) % 4
    centres = np.array([[0.0, 0.0], [0.4, 0.0], [5.0, 0.0], [0.0, 5.0]])
    last = np.array([[0.2, 0.0], [0.2, 0.0], [5.0, 0.0], [0.0, 5.0]])
    frames = [(1 - s) * centres[member] + s * last[member] for s in (0.0, 0.5, 1.0)]
    points = np.stack(frames) + 1e-4 * generator.normal(size=(3, 60, 2))
    run = Trajectory.from_arrays(np.arange(3.0), points, metadata={})
    labels = np.stack([member, member, np.where(member == 1, 0, member)])
    codes = CodedLabels.of(labels)
    chosen = cluster_categories(run, codes, 96)
    assert sorted(chosen.tolist()) == sorted(set(chosen.tolist()))
    for theme in ("light", "dark"):
        with style.use(theme):
            found = colored_clusters(run)
            page = style.palette(int(chosen.max()) + 1)[chosen]
        assert found is not None
        np.testing.assert_array_equal(page[codes()[-1]], found.colors[found.labels])


def test_oklab_is_the_inverse_of_oklch():
    lightness, chroma, hue = np.array([0.5, 0.7]), np.array([0.05, 0.1]), np.array([1.0, 4.0])
    found = style.oklab(style.oklch(lightness, chroma, hue))
    np.testing.assert_allclose(found, np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], 1), atol=2e-6)


def test_particles_have_the_colour_of_the_cluster_they_end_in():
    generator = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    member = np.arange(300) % 3
    last = centres[member] + 1e-3 * generator.normal(size=(300, 2))
    last[299] = [2.6, 0.1]  # alone, nearest to the second
    run = Trajectory.from_arrays([0.0, 1.0], np.stack([generator.normal(size=(300, 2)), last]), metadata={})
    found = colored_clusters(run)
    assert found is not None
    assert [np.unique(found.labels[member == k][:99]).size for k in range(3)] == [1, 1, 1]
    assert found.labels[299] == found.labels[1] != found.labels[2]
    last[299] = [-4.0, -4.0]  # alone, and far from all others: a cluster of its own
    found = colored_clusters(Trajectory.from_arrays([0.0], last[None], metadata={}))
    assert found is not None
    assert (found.labels == found.labels[299]).sum() == 1
    assert len(found.colors) == 4
    assert colored_clusters(Trajectory.from_arrays([0.0], generator.normal(size=(1, 60, 2)))) is None
