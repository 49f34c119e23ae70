"""Diagrams of local means, linear smoothers, weights over a picture: what is drawn is what was computed."""

import re
from typing import Any

import numpy as np
import pytest

import local_mean_pictures as pictures
import particleflow as pf
from particleflow.errors import UserError

LINE = np.linspace(0, 3, 9)
TARGETS = np.cos(LINE)


class Fitted:
    """A fitted model as the figure reads it: samples, targets, weights and predictions of its own."""

    class measure_:  # noqa: N801
        points = LINE[:, None]
        carried = TARGETS

    def attention(self, queries: np.ndarray) -> np.ndarray:
        pull = np.exp(-np.abs(queries - LINE[None]) / 0.4)
        return pull / pull.sum(axis=1, keepdims=True)

    def predict(self, queries: np.ndarray) -> np.ndarray:
        return self.attention(queries) @ TARGETS


def words(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("keys", [3, 20])
def test_a_pooling_shows_its_numbers_and_they_add_up(keys):
    ax = pf.view.query_key_value(Fitted(), 1.0, keys=keys)
    weights = Fitted().attention(np.array([[1.0]]))[0]
    shown = np.sort(np.argsort(-weights)[:keys])
    said = [float(text) for text in words(ax) if re.fullmatch(r"0\.\d{3}", text)]
    rest = [1 - weights[shown].sum()] if keys < 9 else []
    np.testing.assert_allclose(said, [*weights[shown], *rest], atol=6e-4)
    assert abs(sum(said) - 1) < 5e-3
    assert f"{weights @ TARGETS:.2f}" in words(ax)
    for place in shown:
        assert {f"{LINE[place]:.2f}", f"{TARGETS[place]:.2f}"} <= set(words(ax))
    assert ("6 others" in words(ax)) == (keys == 3)
    patches: list[Any] = list(ax.patches)
    bars = sorted(patch.get_width() for patch in patches)
    np.testing.assert_allclose(np.array(bars) / bars[-1], np.sort([*weights[shown], *rest]) / weights.max(), rtol=1e-9)
    with pytest.raises(UserError, match="keys"):
        pf.view.query_key_value(Fitted(), 1.0, keys=0)


def test_the_graph_has_five_nodes_of_which_three_are_known():
    ax = pf.view.local_mean_graph()
    nodes: list[Any] = list(ax.collections)
    shades = [tuple(node.get_facecolor()[0]) for node in nodes]
    assert len(shades) == 5
    assert sorted(shades.count(shade) for shade in set(shades)) == [2, 3]
    assert any("K(x_*,x_i)" in each for each in words(ax))


def test_smoothers_are_their_weights_times_the_targets():
    asked = np.linspace(0, 3, 7)
    mean = Fitted().attention(asked[:, None])
    signed = mean - 0.02
    left, right = pf.view.smoothers(LINE, TARGETS, asked, {"mean": mean, "signed": signed}, at=1.1, truth=np.cos(asked))
    curves = {line.get_label(): np.asarray(line.get_ydata()) for line in left.lines}
    for name, weights in (("mean (sum of weights 1.00", mean), ("signed (sum of weights 0.82, negative", signed)):
        found = next(curve for label, curve in curves.items() if str(label).startswith(name))
        np.testing.assert_allclose(found, weights @ TARGETS)
    np.testing.assert_allclose(right.lines[1].get_ydata(), signed[2])
    assert "x = 1.00" in right.get_title()
    for wrong in ({}, {"mean": mean[:3]}):
        with pytest.raises(UserError):
            pf.view.smoothers(LINE, TARGETS, asked, wrong, at=1.0)


def test_weights_over_a_picture_are_drawn_at_their_pixels():
    image, maps = np.random.default_rng(0).uniform(size=(8, 12)), np.zeros((2, 8, 12))
    maps[0, 2:5, 3:9], maps[1] = 1 / 18, 1 / 96
    maps[0, 3, 4] += 0.5
    axes = pf.view.weight_maps(image, [[3, 4], [7, 11]], maps)
    np.testing.assert_allclose(axes[1].images[0].get_array(), maps[0])
    assert axes[1].images[0].get_clim() == (0.0, pytest.approx(1 / 18))  # its own weight is in the title
    assert "0.6" in axes[1].get_title()
    frames = [[line for line in ax.lines if line.get_linestyle() == "--"] for ax in axes[1:]]
    assert [len(each) for each in frames] == [1, 0]  # nothing to enclose where all pixels have weight
    np.testing.assert_allclose(frames[0][0].get_xdata(), [2.5, 8.5, 8.5, 2.5, 2.5])
    assert np.asarray(axes[0].lines[0].get_xdata()).tolist() == [4.0]
    with pytest.raises(UserError, match="weights"):
        pf.view.weight_maps(image, [[3, 4]], maps)


# --- the pictures of the gallery ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_gallery_shows_what_numpy_and_scikit_learn_find():
    """Weights of the smoothers by NumPy; ridge and process are one, and a large penalty is the local mean."""
    _, ridge = pictures.kernel_methods()
    pull = np.exp(-((pictures.QUERIES[:, None] - pictures.LINE[None]) ** 2) / (2 * pictures.WIDTH**2))
    gram = np.exp(-((pictures.LINE[:, None] - pictures.LINE[None]) ** 2) / (2 * pictures.WIDTH**2))
    mean, large, small, process = ridge.values()
    np.testing.assert_allclose(mean, pull / pull.sum(axis=1, keepdims=True), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(small, np.linalg.solve(gram + pictures.NOISE * np.eye(50), pull.T).T, atol=1e-10)
    np.testing.assert_allclose(process, small, atol=1e-10)
    assert np.abs(large - mean).max() < 1e-3
    _, local = pictures.equivalent_kernels()
    for degree, weights in enumerate(local.values()):
        powers = (pictures.LINE[None] - pictures.QUERIES[:, None]) ** degree
        np.testing.assert_allclose(np.sum(weights * powers, axis=1), 1.0 if degree == 0 else 0.0, atol=1e-12)
    _, found = pictures.non_local_weights()
    np.testing.assert_allclose(found["maps"].sum(axis=(1, 2)), 1.0, rtol=1e-12)
    _, drawn = pictures.query_key_value()
    weights = np.exp(-((pictures.AT - pictures.LINE) ** 2) / (2 * 0.2**2))
    assert f"{weights @ pictures.TARGETS / weights.sum():.2f}" in drawn["texts"]
    _, matrices = pictures.random_features()
    errors = [np.sqrt(np.mean((matrices[str(rank)] - matrices["exact"]) ** 2)) for rank in (32, 512, 8192)]
    assert errors[2] < 0.5 * errors[1] < 0.5 * errors[0]
