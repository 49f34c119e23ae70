"""Histograms of pairwise similarity against pairs counted one by one."""

import numpy as np

from figure_oracles import make
from particleflow.analysis.clusters.similarity_histogram import similarity_histogram


def test_similarity_shares_count_pairs_by_brute_force():
    run = make(3, sphere=True, count=9)
    shown, edges, shares = similarity_histogram(run, bins=20)
    np.testing.assert_array_equal(shown, np.arange(7))
    points = np.asarray(run.points[4])
    cosines = [points[i] @ points[j] for i in range(9) for j in range(i)]
    np.testing.assert_allclose(shares[4], np.histogram(cosines, edges)[0] / 36)
    flat = make(2, count=9)
    _, edges, shares = similarity_histogram(flat, bins=20)
    distances = [np.linalg.norm(flat.points[2, i] - flat.points[2, j]) for i in range(9) for j in range(i)]
    np.testing.assert_allclose(shares[2], np.histogram(np.minimum(distances, edges[-1]), edges)[0] / 36)
