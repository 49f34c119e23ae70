"""What objects print of themselves, and what `dir` and `help` show of the package."""

import inspect
import io
import pydoc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow._support.representation import shown

SHOWN = {
    "Gaussian(width=0.3)": lambda: pf.kernels.Gaussian(0.3),
    "Attention(beta=9.0)": lambda: pf.kernels.Attention(beta=9.0),
    "Attention(beta=4.0, query=2.0, key=f64[3])": lambda: pf.kernels.Attention(4.0, 2.0, np.ones(3)),
    "Attend(kernel=Gaussian(width=0.3), normalization='none', summation=Auto())": lambda: pf.Attend(
        pf.kernels.Gaussian(0.3), normalization="none"
    ),
    "Flow(drift=Attend(kernel=Attention(beta=9.0), summation=Auto()), geometry=Sphere(radius=1.0))": lambda: pf.Flow(
        pf.Attend(pf.kernels.Attention(9.0)), pf.Sphere()
    ),
    "Flow(drift=Linear(matrix=f64[2,2]), geometry=Euclidean(), temperature=0.1)": lambda: pf.Flow(
        pf.drifts.Linear(np.eye(2)), temperature=0.1
    ),
    "Measure(points=f64[5,2], log_weights=f64[5])": lambda: pf.Measure.uniform(jnp.ones((5, 2))),
    "Measure(points=f64[5,2], log_weights=f64[5], fields={'norm': f64[5]})": lambda: pf.Measure.uniform(
        jnp.ones((5, 2))
    ).with_fields({"norm": np.ones(5)}),
    "PairFraction(threshold=0.9)": lambda: pf.observables.PairFraction(0.9),
    "SimilarityQuantiles(levels=f64[5])": pf.observables.SimilarityQuantiles,
    "Clustered(distance=0.1)": lambda: pf.events.Clustered(0.1),
    "UniformSphere(dim=3)": lambda: pf.initial.UniformSphere(3),
    "Ramp(first=1.0, last=9.0, end=5.0)": lambda: pf.drifts.Ramp(1.0, 9.0, 5.0),
    "Particles()": pf.Particles,
    "Particles(coalesce=1e-09)": lambda: pf.Particles(coalesce=1e-9),
    "Gaussian(width=0.3) ": lambda: jax.tree_util.tree_map(
        lambda leaf: leaf.astype(jnp.float32), pf.kernels.Gaussian(0.3)
    ),
}


@pytest.mark.parametrize("text", SHOWN)
def test_objects_show_their_numbers_and_leave_out_what_is_assumed(text):
    assert repr(SHOWN[text]()) == text.strip()


def test_what_does_not_fit_on_a_line_has_a_line_a_part():
    heads = pf.Flow([pf.Attend(pf.kernels.Attention(float(beta)), value=0.5) for beta in range(3)], pf.Sphere())
    lines = repr(heads).splitlines()
    assert max(map(len, lines)) <= 100
    assert sum("Attention(beta=" in line for line in lines) == 3
    assert [line.strip() for line in lines][-2:] == ["geometry=Sphere(radius=1.0),", ")"]


def test_traced_and_batched_numbers_are_shown_by_their_shape():
    said = []

    @jax.jit
    def look(beta):
        said.append(repr(pf.kernels.Attention(beta)))
        return beta

    look(1.0)
    assert "beta=" in said[0]
    many = eqx.filter_vmap(pf.kernels.Attention)(jnp.arange(1.0, 5.0))
    assert repr(many).startswith("Attention(beta=f64[4]")
    slope = jax.grad(lambda kernel: kernel.log_pair(jnp.ones(2), jnp.ones(2)))(pf.kernels.Attention(3.0))
    assert repr(slope).startswith("Attention(beta=2.0, query=6.0")


def test_a_kernel_of_ones_own_shows_itself_like_the_others():
    class Bump(pf.kernels.AbstractPairKernel):
        height: jax.Array
        power: int = 4

        def log_pair(self, x, y):
            return jnp.zeros(())

    assert repr(Bump(jnp.asarray(2.0))) == "Bump(height=2.0)"
    assert repr(Bump(jnp.asarray(2.0), 3)) == "Bump(height=2.0, power=3)"
    assert shown((1.0, Bump(jnp.asarray(2.0)))) == "(1.0, Bump(height=2.0))"
    assert shown(jax.random.key(0)) != ""


def two_pairs():
    """Two pairs of particles that merge at t = 1 and t = 3, then stay apart."""
    times = np.linspace(0.0, 4.0, 9)
    left = np.clip(1.0 - times, 0.0, None)
    right = 10.0 + np.clip(3.0 - times, 0.0, None)
    points = np.stack([np.zeros(9), left + 1e-3 * (left == 0), np.full(9, 10.0), right], axis=1)[..., None]
    return pf.Trajectory.from_arrays(times, points, log_weights=np.log([0.4, 0.3, 0.2, 0.1]))


def test_tracks_and_trees_are_cards_of_five_lines():
    track = pf.analysis.track_clusters(two_pairs(), 0.05)
    lines = repr(track).splitlines()
    assert lines[0] == "ClusterTrack of 4 particles over 9 frames, t = 0 to 4"
    assert lines[1].split() == ["clusters", "4", "→", "2,", "unchanged", "since", "t", "=", "2.5–3"]
    assert "70.0% of the mass" in lines[2]
    assert "effective number 1.72" in lines[2]  # 1 / (0.7² + 0.3²)
    assert lines[3].split()[:2] == ["merges", "2,"]
    assert lines[4].split()[:2] == ["threshold", "0.05"]
    assert len(lines) == 5
    tree = repr(track.tree).splitlines()
    assert tree[0] == "MergeTree from 4 clusters to 2 at the threshold 0.05"
    assert tree[3].split() == ["remaining", "0,", "2"]
    assert "30.0% of the mass to make 70.0%" in tree[4]
    assert len(tree) == 5
    assert max(map(len, lines + tree)) <= 100


def test_tracks_without_a_merge_and_of_one_particle_are_cards_too():
    alone = pf.analysis.track_clusters(pf.Trajectory.from_arrays([0.0], np.zeros((1, 1, 2))), 0.1)
    assert repr(alone).splitlines()[0] == "ClusterTrack of 1 particle over 1 frame, t = 0 to 0"
    assert "merges     none" in repr(alone)
    assert len(repr(alone.tree).splitlines()) == 4


def test_a_frame_is_a_line():
    assert repr(two_pairs()[2]) == "Frame(time=1, step=2, points=(4, 1))"


MODULES = ["analysis", "discretization", "drifts", "events", "exponential_family", "geometry", "initial", "kernels"]
MODULES += ["observables", "operators", "scenario", "store", "view"]


@pytest.mark.parametrize("name", [None, *MODULES])
def test_dir_shows_what_is_for_users_and_nothing_else(name):
    module: Any = pf if name is None else getattr(pf, name)
    names = dir(module)
    assert names == sorted(names) == sorted(module.__all__)
    for each in names:
        found = getattr(module, each)
        assert not each.startswith("_") or each == "__version__"
        if inspect.ismodule(found):
            assert found.__name__.startswith("particleflow.")
        elif inspect.isclass(found) or inspect.isfunction(found):
            assert found.__module__.startswith("particleflow.")
            assert inspect.getdoc(found)


def help_of(thing):
    page = io.StringIO()
    pydoc.Helper(output=page)(thing)
    return page.getvalue()


FUNCTIONS = ["run", "simulate", "stream", "evolve", "use_cache", "key_for", "local_moments", "local_mean", "local_mode"]
FUNCTIONS += ["local_covariance", "log_normalizer", "resampled_local_mean", "fixed_points"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_of_a_function_names_every_parameter(name):
    """In backticks, or first in a line of a table."""
    function = getattr(pf, name)
    text = help_of(function)
    told = text[text.index((function.__doc__ or "?").splitlines()[0]) :]
    words = {word.strip(",") for line in told.splitlines() for word in line[:24].split()}
    for each in inspect.signature(function).parameters:
        assert f"`{each}`" in told or each in words, each
