"""Densities on a set that is normalised as a whole, from Python and from scenarios."""

from typing import Any

import numpy as np
import pytest

import particleflow as pf
from particleflow import geometry, kernels, observables, scenario
from particleflow.discretization import FiniteVolumes
from particleflow.dynamics.initial import UniformBox
from particleflow.errors import ArgumentError, UserError


@pytest.mark.slow
def test_a_density_is_normalised_as_a_set_and_agrees_with_particles():
    """The kurtosis of uniform quantiles under attention; the jumps of the density cost one order of the cells."""
    flow = pf.Flow(pf.Attend(kernels.Attention(0.5)), geometry=geometry.SetNorm())
    edge, times, observe = np.sqrt(3.0), [0.0, 1.0], [observables.excess_kurtosis, observables.covariance]
    quantiles = edge * (np.arange(400) - 199.5) / 200
    cloud = (quantiles / np.sqrt(np.mean(quantiles**2)))[:, None]
    exact = pf.simulate(flow, cloud, times, rtol=1e-8, atol=1e-10, observe=observe).observables
    options: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6, "observe": observe}
    cells = FiniteVolumes(128, low=-4.0, high=4.0)
    found = pf.simulate(flow, UniformBox([-edge], [edge]), times, discretization=cells, **options).observables
    assert np.abs(np.diff(np.ravel(found["covariance"]))) < 2e-3
    gained = [np.diff(each["excess_kurtosis"])[0] for each in (found, exact)]
    assert gained[1] < -0.04
    assert abs(gained[0] - gained[1]) < 0.004
    with pytest.raises(ArgumentError, match="must have the mean and covariance that the geometry set_norm holds it at"):
        pf.simulate(flow, UniformBox([-1.0], [1.0]), times, discretization=cells, **options)


NORMALISED: dict[str, Any] = {
    "drift": [{"kind": "attend", "kernel": {"kind": "attention", "beta": 2.0}}],
    "time": {"end": 0.1, "frames": 3, "rtol": 1e-4},
    "initial": {"kind": "uniform_box", "low": [0.5], "high": [1.5]},
    "geometry": {"kind": "set_norm"},
    "discretization": {"kind": "finite_volumes", "cells": 100, "low": -3.0, "high": 3.0},
}


@pytest.mark.slow
def test_a_scenario_brings_a_density_onto_a_normalised_set(tmp_path):
    """The law of [½, 3/2] becomes that of [−√3, √3]: N is affine. With `retract = false` it is refused as it is."""
    start = scenario.from_document(NORMALISED, "box.toml", tmp_path).build().start
    points, masses = np.asarray(start.points)[:, 0], np.exp(np.asarray(start.log_weights))
    edges = np.clip(np.linspace(-3, 3, 101), -np.sqrt(3), np.sqrt(3))
    assert np.max(np.abs(masses - np.diff(edges) / np.sqrt(12))) < 2e-3  # the box ends inside of a cell
    assert abs(masses @ points) < 1e-3
    assert abs(masses @ points**2 - 1) < 5e-3
    turned = {"kind": "mixture", "centres": [[1.0, 0.5], [-0.5, 1.0]], "width": 0.4}
    cells = {"kind": "finite_volumes", "cells": 3600, "low": -4.5, "high": 4.5}
    plane = {**NORMALISED, "initial": turned, "discretization": cells}
    start = scenario.from_document(plane, "blobs.toml", tmp_path).build().start
    points, masses = np.asarray(start.points), np.exp(np.asarray(start.log_weights))
    assert np.max(np.abs(masses @ points)) < 1e-3
    # a cell adds h²/12 to a variance, here to 0.16
    assert np.max(np.abs(points.T @ (masses[:, None] * points) - np.eye(2))) < 0.15**2 / 12 / 0.16


@pytest.mark.slow
def test_a_scenario_runs_a_density_on_a_normalised_set(tmp_path):
    setup = scenario.from_document(NORMALISED, "box.toml", tmp_path).build()
    run = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
    points = np.asarray(run.points[-1])[:, 0]
    assert abs(np.asarray(run.masses)[-1] @ points**2 - np.asarray(run.masses)[0] @ points**2) < 3e-3
    off = {**NORMALISED, "initial": {**NORMALISED["initial"], "retract": False}}
    with pytest.raises(UserError, match="must have the mean and covariance that the geometry set_norm holds it at"):
        scenario.from_document(off, "box.toml", tmp_path).build()
