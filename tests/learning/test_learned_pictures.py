"""The numbers in the picture of what is learned, against NumPy: shares, drawn patterns, words, hops, energies."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.special import log_softmax

import learned_pictures

pytestmark = pytest.mark.slow


def drawn(name: str) -> dict[str, np.ndarray]:
    figure, ax = plt.subplots()
    found = getattr(learned_pictures, name)(ax)
    plt.close(figure)
    return found


def test_neighbours_of_wine_have_its_class():
    found = drawn("neighbours")
    squares = ((found["plane"][:, None] - found["plane"][None]) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    weights = np.exp(-(squares - squares.min(axis=1, keepdims=True)))
    own = (weights * (found["kinds"][:, None] == found["kinds"])).sum(axis=1) / weights.sum(axis=1)
    np.testing.assert_allclose(found["shares"], own, atol=1e-10)
    assert own.mean() > 0.99


def test_most_drawn_patterns_are_bars_or_stripes():
    found = drawn("bars")
    pictures = found["drawn"].reshape(-1, 3, 3)
    rows = (pictures == pictures[:, :, :1]).all(axis=(1, 2))
    columns = (pictures == pictures[:, :1, :]).all(axis=(1, 2))
    np.testing.assert_array_equal(found["right"], rows | columns)
    assert found["right"].mean() > 0.8


def test_words_of_one_kind_are_in_one_place():
    found = drawn("words")
    names, table = list(found["names"]), found["table"]
    spread = np.ptp(table)
    for kind in (["cat", "dog", "horse"], ["bread", "fish", "rice"], ["eats", "likes"], ["runs", "sleeps"]):
        places = table[[names.index(word) for word in kind]]
        assert np.ptp(places, axis=0).max() < 0.2 * spread
    shares = found["counts"] / found["counts"].sum(axis=1, keepdims=True)
    least = -np.sum(found["counts"] * np.log(np.where(shares > 0, shares, 1.0))) / found["counts"].sum()
    uniform = -np.mean(log_softmax(np.zeros(len(names))))
    assert least < found["loss"] < least + 0.2 * (uniform - least)


def test_contrast_lowers_alignment_and_uniformity():
    found = drawn("contrast")
    for frame in (0, -1):
        points = found["points"][frame]
        pairs = np.sum((points[::2] - points[1::2]) ** 2, axis=1)
        assert abs(found["alignment"][frame] - pairs.mean()) < 1e-12
    assert found["alignment"][-1] < 1e-6
    assert found["uniformity"][-1] < found["uniformity"][0] - 0.1


def test_both_hops_read_the_right_sentence():
    """Who has the milk, then where he is: the shares of two sentences, and the answer."""
    found = drawn("memory")
    np.testing.assert_allclose(found["shares"].sum(axis=1), 1, atol=1e-12)
    assert bool(found["right"])
    assert found["shares"].max(axis=1).min() > 0.5


def test_nesterov_is_below_the_flow_of_first_order_at_last():
    found = drawn("momentum")
    late = found["times"] > 20
    assert (found["Nesterov, γ = 3/t"][late] < found["first order"][late]).all()
