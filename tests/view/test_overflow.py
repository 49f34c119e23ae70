"""An energy that overflows is drawn as its recorded logarithm, and pictures say so; without one they say what to do."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

import particleflow
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.movie.movie import Movie
from particleflow.view.plots.figure_set import _plan
from particleflow.view.plots.time.series import energy_name
from particleflow.view.webpage import page_data

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know
BETA = 800.0


def shrinking(*names, beta=BETA):
    """Points on the unit circle that come together, with E = (1/2β) ∬ exp(β ⟨x, y⟩) dμ dμ and its logarithm."""
    angles = np.linspace(1.0, 0.02, 9)[:, None] * np.linspace(-1.0, 1.0, 12)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    log_energy = logsumexp(beta * np.einsum("tni,tmi->tnm", points, points), axis=(1, 2)) - np.log(2 * beta * 144)
    with np.errstate(over="ignore"):
        known = {"energy": np.exp(log_energy), "log_energy": log_energy, "order": np.linspace(0.0, 1.0, 9)}
    observables = {name: known[name] for name in names}
    return Trajectory.from_arrays(np.arange(9.0), points, observables=observables, metadata={"geometry": "sphere"})


def words_in(ax):
    return " ".join(text.get_text() for text in ax.texts)


@pytest.mark.parametrize("draw", [view.energy, lambda run: view.staircase(run, np.arange(9, 0, -1)).figure.axes[1]])
def test_the_logarithm_of_an_energy_that_overflows_is_drawn(draw):
    run = shrinking("energy", "log_energy")
    assert np.isinf(run.observables["energy"]).all()
    ax = draw(run)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), run.observables["log_energy"])
    assert ax.get_ylabel() == "log energy"
    assert words_in(ax) == "energy exceeds 1e+250 in 9 of 9 frames: its logarithm is drawn"
    finite = draw(shrinking("energy", "log_energy", beta=8.0))
    assert finite.get_ylabel() == "energy"
    assert words_in(finite) == ""


def test_an_energy_that_overflows_alone_says_what_to_record():
    ax = view.energy(shrinking("energy"))
    assert words_in(ax) == "energy exceeds 1e+250 in 9 of 9 frames: record log_energy"
    assert not ax.get_yticks().size  # an axis without a curve has no numbers
    run = shrinking("energy", beta=584.0)
    lost = int((np.asarray(run.observables["energy"]) > 1e250).sum())
    assert 0 < lost < 9
    assert f"in {lost} of 9 frames" in words_in(view.energy(run))


def test_the_set_of_figures_the_movie_and_the_page_take_the_same_energy():
    run = shrinking("energy", "log_energy", "order")
    names = list(dict(_plan(run, {"counts": np.arange(9, 0, -1)})))
    assert "staircase" in names
    assert "observable_order" in names
    assert not {"observable_log_energy", "observable_energy"} & set(names)
    with style.use("light"):
        movie = Movie(run, 2, "linear", (640, 368))
    panel = movie.stage.panels[-1]
    assert panel.axes.get_ylabel() == "log energy"
    np.testing.assert_allclose(np.asarray(panel.values), run.observables["log_energy"])
    assert list(page_data.scalar_observables(run, np.arange(9))) == ["log_energy", "order"]
    assert page_data.lost_observables(run) == ["energy"]


def test_energy_names():
    assert energy_name(shrinking("order")) is None
    assert energy_name(shrinking("log_energy")) == "log_energy"
    assert energy_name(shrinking("energy", beta=2.0)) == "energy"
