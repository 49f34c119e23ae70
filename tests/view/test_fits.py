"""Pictures of fitted local means and of values on fixed places: what is drawn is what was computed."""

from typing import Any

import numpy as np
import pytest

import particleflow as pf
from particleflow import kernels as k
from particleflow.analysis.run_character import places_of
from particleflow.errors import UserError
from particleflow.models import KernelRegression

_RNG = np.random.default_rng(1)
INPUTS = np.sort(_RNG.uniform(0, 5, size=40))[:, None]
TARGETS = np.sin(INPUTS[:, 0])


def drawn(ax: Any) -> np.ndarray:
    """The numbers of a heat map."""
    return np.asarray(ax.collections[0].get_array()).reshape(-1, 40)


@pytest.mark.slow
def test_a_fit_shows_the_curve_and_all_weights():
    shuffled = _RNG.permutation(40)
    model = KernelRegression(bandwidth=0.3).fit(INPUTS[shuffled], TARGETS[shuffled])
    asked = np.linspace(0, 5, 11)
    left, right = pf.view.fit(model, queries=asked, at=2.0, truth=np.sin)
    curve = next(line for line in left.lines if line.get_label() == "local mean")
    np.testing.assert_allclose(curve.get_ydata(), model.predict(asked[:, None]))
    pull = np.exp(-((asked[:, None] - INPUTS.T) ** 2) / (2 * 0.3**2))
    np.testing.assert_allclose(drawn(right), pull / pull.sum(axis=1, keepdims=True), rtol=1e-10, atol=1e-14)
    assert "sample" in right.get_xlabel()
    with pytest.raises(UserError, match="one feature"):
        pf.view.fit(KernelRegression().fit(np.zeros((3, 2)), np.zeros(3)))


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2])
def test_values_are_drawn_at_their_places(dimension):
    places, values = _RNG.normal(size=(12, dimension)), _RNG.dirichlet(np.ones(3), size=12)
    flow = pf.Flow(pf.MeanShift(k.Placed(k.Gaussian(0.5), places)))
    run = pf.simulate(
        flow, pf.Measure.uniform(values, positions=np.arange(12.0)), np.arange(4.0), step=1.0, solver="map"
    )
    np.testing.assert_allclose(np.asarray(places_of(run)), places)
    axes = pf.view.values_on_places(run, places, frames=[0, 3], names=["oak", "elm", "ash"])
    assert [ax.get_title() for ax in axes] == ["step 0", "step 3"]
    if dimension == 1:
        order = np.argsort(places[:, 0])
        np.testing.assert_allclose(axes[1].lines[2].get_ydata(), np.asarray(run.points[-1])[order, 2])
    else:
        dots = np.concatenate([np.asarray(each.get_offsets()) for each in axes[0].collections])
        np.testing.assert_allclose(np.sort(dots, axis=0), np.sort(places, axis=0))
    assert [text.get_text() for text in axes[0].figure.legends[0].get_texts()] == ["oak", "elm", "ash"]
    for wrong in ({"places": places[:5]}, {"places": places, "names": ["oak"]}):
        with pytest.raises(UserError):
            pf.view.values_on_places(run, **wrong)


@pytest.mark.slow
def test_places_are_found_where_points_are_values_and_nowhere_else():
    """Rows of `places` at the positions of the particles; positions of a signal; none of a graph, or of attention."""
    places, order = _RNG.normal(size=(8, 2)), _RNG.permutation(8).astype(float)
    start = pf.Measure.uniform(_RNG.normal(size=(8, 1)), positions=order)

    def found(kernel: Any) -> Any:
        return places_of(pf.simulate(pf.Flow(pf.MeanShift(kernel)), start, [0.0, 1.0], step=1.0, solver="map"))

    near = k.Placed(k.Gaussian(0.5), places)
    np.testing.assert_array_equal(found(near), places[order.astype(int)])
    np.testing.assert_array_equal(found(near * k.Gaussian(0.3)), places[order.astype(int)])
    np.testing.assert_array_equal(found(k.TimeGaussian(2.0)), order[:, None])
    for kernel in (k.Attention(1.0), k.Gaussian(1.0) * k.TimeGaussian(2.0), k.PositionMatrix(np.zeros((8, 8)))):
        assert found(kernel) is None
