"""ranks: the command, its pictures, and what it refuses, against singular values by NumPy."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import particleflow as pf
from particleflow.app.cli import main


@pytest.fixture
def run(tmp_path):
    tokens = pf.initial.UniformSphere(dim=3).sample(jax.random.key(0), 24)
    flow = pf.Flow(pf.Attend(pf.kernels.Attention(4.0)), geometry=pf.Sphere())
    pf.simulate(flow, tokens, jnp.array([0.0, 1.0]), rtol=1e-4, atol=1e-6, store=tmp_path / "trajectory.h5")
    return tmp_path


@pytest.mark.slow
def test_ranks_of_a_frame_and_all_pictures(run, capsys):
    assert main(["ranks", str(run), "--frame", "0", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    points = np.asarray(pf.Trajectory.open(run).points[0])
    weights = np.exp(4 * points @ points.T)
    values = np.linalg.svd(weights / weights.sum(axis=1, keepdims=True), compute_uv=False)
    np.testing.assert_allclose(found["left"][1], np.sqrt(np.sum(values[1:] ** 2) / np.sum(values**2)), rtol=1e-10)
    assert found["ranks"]["none"] == [int(np.sum(values > limit * values[0])) for limit in (1e-1, 1e-2, 1e-3)]
    assert main(["ranks", str(run), "--plot", "--blocks", "--features", "--quiet"]) == 0
    written = capsys.readouterr().out.splitlines()[-3:]
    assert [line.rsplit("/", 1)[1] for line in written] == ["ranks.png", "block_ranks.png", "features.png"]
    for path in written:
        assert np.asarray(Image.open(path).convert("L")).std() > 5
    assert main(["ranks", str(run), "--frame", "7", "--quiet"]) == 2
    assert "no frame 7" in capsys.readouterr().err
