"""Colours of clusters: neighbours have unlike hues, and a particle has the colour of the cluster it ends in."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest

from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.plots.colors import colored_clusters, contrasting_colors


def hue_gap(one, other):
    angles = np.arctan2(*style.oklab(np.stack([one, other]))[:, :0:-1].T)
    return np.degrees(np.abs(np.angle(np.exp(1j * (angles[0] - angles[1])))))


@pytest.mark.parametrize("theme", sorted(style.THEMES))
@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_neighbouring_clusters_have_unlike_hues(theme, count):
    for seed in range(5):
        turn = 2 * np.pi * (np.arange(count) + 0.3 * np.random.default_rng(seed).uniform(size=count)) / count
        with style.use(theme):
            colors = contrasting_colors(np.stack([np.cos(turn), np.sin(turn)], axis=1))
        assert len(np.unique(colors, axis=0)) == count
        for index in range(count):
            assert hue_gap(colors[index], colors[(index + 1) % count]) > 35


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
