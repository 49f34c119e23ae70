"""An argument that is of another kind than is needed, or a class in place of an object, is a sentence at once."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow
from particleflow.errors import ArgumentError, KindError, whole_number
from shares import by_default

pf: Any = particleflow  # what is wrong here is also wrong for type checkers, but not everybody has one
TIMES = [0.0, 1.0]
START, KERNEL = jnp.eye(3), pf.kernels.Gaussian(0.3)
MEASURE = pf.Measure.uniform(START)


def drift():
    return pf.Attend(KERNEL)


def flow():
    return pf.Flow(drift())


WRONG = {
    "a drift for a flow": (lambda: pf.simulate(drift(), START, TIMES, step=0.5), "is a drift: write Flow"),
    "a drift in a list": (lambda: pf.simulate([flow(), drift()], START, TIMES, step=0.5), "is a drift: write Flow"),
    "a drift for evolve": (lambda: pf.evolve(drift(), START, 1.0, step=0.5), "is a drift: write Flow"),
    "the class of flows": (lambda: pf.simulate(pf.Flow, START, TIMES, step=0.5), r"class Flow: write Flow\(\.\.\.\)"),
    "a kernel for a flow": (lambda: pf.simulate(KERNEL, START, TIMES, step=0.5), r"flow.*but is Gaussian\(width=0.3\)"),
    "a kernel's class": (lambda: pf.Attend(pf.kernels.Attention), r"`kernel` .* write Attention\(\.\.\.\)"),
    "a class that shifts": (lambda: pf.MeanShift(pf.kernels.Gaussian), r"`kernel` .* write Gaussian"),
    "a class that climbs": (lambda: pf.LogNormalizerAscent(pf.kernels.Gaussian), r"`kernel` .* write Gaussian"),
    "data that are points": (lambda: pf.MeanShift(KERNEL, START), "`data` must be a measure, but is a"),
    "a class of positions": (lambda: pf.Attend(KERNEL, positional=pf.kernels.Causal), "`positional` .* write Causal"),
    "a class that sums": (lambda: pf.Attend(KERNEL, summation=pf.Dense), r"`summation` .* write Dense"),
    "a class of spaces": (lambda: pf.Flow(drift(), pf.Sphere), r"`geometry` .* write Sphere"),
    "a class of drifts": (lambda: pf.Flow(pf.Attend), r"`drift` .* write Attend"),
    "a class among drifts": (lambda: pf.Flow([drift(), pf.Attend]), r"`drifts\[1\]` .* write Attend"),
    "a kernel for a drift": (lambda: pf.Flow(KERNEL), r"`drift` must be a drift .* but is Gaussian\(width=0.3\)"),
    "a class of events": (
        lambda: pf.simulate(flow(), START, TIMES, step=0.5, event=pf.events.Clustered), r"`event` .* write Clustered"
    ),
    "a class that is carried": (
        lambda: pf.simulate(flow(), START, TIMES, step=0.5, discretization=pf.Particles), "write Particles"
    ),
    "one observable alone": (
        lambda: pf.simulate(flow(), START, TIMES, step=0.5, observe=pf.observables.energy), "must be a list of"
    ),
    "a class that observes": (
        lambda: pf.simulate(flow(), START, TIMES, step=0.5, observe=[pf.observables.PairFraction]),
        r"`observe\[0\]` .* write PairFraction",
    ),
    "a class that is local": (lambda: pf.local_mean(pf.kernels.Gaussian, MEASURE, START), "`kernel` .* write Gaussian"),
    "points for a measure": (lambda: pf.local_mean(KERNEL, START, START), "`measure` must be a measure, such as"),
    "its covariance": (lambda: pf.local_covariance(pf.kernels.Gaussian, MEASURE, START), "write Gaussian"),
    "its mode": (lambda: pf.local_mode(pf.kernels.Gaussian, MEASURE, START), "write Gaussian"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_objects_of_another_kind_are_refused_with_a_sentence(name):
    make, message = WRONG[name]
    with pytest.raises(KindError, match=message) as caught:
        make()
    assert len(str(caught.value)) < 250
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "3", None])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ArgumentError, match=f"Argument `count` must be a positive integer, but is {value!r}"):
        whole_number(value, "count")


def test_whole_numbers_are_those_of_python_and_numpy():
    assert whole_number(np.int64(3), "count") == 3
    with pytest.raises(ArgumentError, match="Argument `block` must be a whole number of at least 4, but is 3"):
        whole_number(3, "block", 4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0, 1.0, 2.0], "one_hot"),
        ([[1.0, 0.0], [0.5, 0.5], [2.0, 0.0]], r"row 2 is \[2\. 0\.\]"),
        ([[1.0, 0.0], [1.5, -0.5], [0.0, 1.0]], "row 1"),
        (None, "row 1"),
    ],
)
def test_the_mode_of_what_are_no_classes_is_refused(values, message):
    points = jnp.asarray([[1.0, 0.0], [0.3, 0.3], [0.0, 1.0]])
    measure = pf.Measure.uniform(points, values=None if values is None else jnp.asarray(values))
    with pytest.raises(ArgumentError, match=message):
        pf.local_mode(KERNEL, measure, points)


@pytest.mark.parametrize("dtype", by_default([jnp.float64, jnp.float32], [jnp.float32]))
def test_probabilities_rounded_in_their_own_precision_have_a_mode(dtype):
    chances = jax.nn.softmax(jax.random.normal(jax.random.key(0), (40, 1000), dtype), axis=1)
    points = jnp.arange(40, dtype=dtype)[:, None]
    found = pf.local_mode(pf.kernels.Gaussian(0.01), pf.Measure.uniform(points, values=chances), points)
    np.testing.assert_array_equal(found, np.argmax(np.asarray(chances), axis=1))
    traced = jax.jit(lambda values: pf.local_mode(KERNEL, pf.Measure.uniform(points, values=values), points))(chances)
    assert traced.shape == (40,)


DRAWN = {
    "animate": ("FOLDER/movie.gif",),
    "cluster_count": (np.ones(6),),
    "energy": (),
    "figures": ("FOLDER",),
    "gram": (),
    "kymograph": (),
    "kymograph_with_tree": ([],),
    "merge_tree": ([],),
    "observable": ("energy",),
    "page": ("FOLDER/page.html",),
    "paths": (),
    "resample": (5,),
    "similarity": (),
    "snapshot": (),
    "snapshots": (),
    "staircase": (np.ones(6),),
}
CLOUDS = np.random.default_rng(0).normal(size=(6, 8, 2))


@pytest.mark.parametrize("name", DRAWN)
def test_points_in_place_of_a_trajectory_are_refused_with_what_to_do(name, tmp_path):
    others = [each.replace("FOLDER", str(tmp_path)) if isinstance(each, str) else each for each in DRAWN[name]]
    with pytest.raises(KindError, match=r"is an array of shape \(6, 8, 2\); make one with Trajectory.from_arrays"):
        getattr(pf.view, name)(jnp.asarray(CLOUDS), *others)
    assert list(tmp_path.iterdir()) == []


def test_other_things_in_place_of_a_trajectory_are_named():
    with pytest.raises(KindError, match="but is a str"):
        pf.view.paths("run.h5")
    with pytest.raises(KindError, match=r"an array of shape \(8, 2\)"):
        pf.view.compare(jnp.asarray(CLOUDS))
    with pytest.raises(KindError, match="but is a list"):
        pf.analysis.track_clusters([1.0])


def test_arrays_of_jax_are_drawn_like_those_of_numpy():
    run = pf.Trajectory.from_arrays(jnp.arange(6.0), jnp.asarray(CLOUDS))
    assert isinstance(run.points, np.ndarray)
    weights = np.random.default_rng(1).random((5, 5))
    for draw in (
        lambda kind: pf.view.attention(kind(weights)).images[0].get_array(),
        lambda kind: pf.view.snapshot(run, labels=kind(np.arange(8) % 3)).collections[0].get_facecolors(),
        lambda kind: pf.view.cluster_count(run, kind(np.arange(6, 0, -1))).lines[0].get_ydata(),
        lambda kind: (
            pf.view.density(kind(np.arange(3.0)), kind(np.arange(5.0)), kind(weights[:3])).collections[0].get_array()
        ),
    ):
        np.testing.assert_array_equal(draw(jnp.asarray), draw(np.asarray))


@pytest.mark.slow
def test_no_warning_of_forks_from_a_movie(tmp_path):
    """In a process of its own: JAX warns once of the first fork, and the program's version is asked for once."""
    code = (
        "import warnings; warnings.simplefilter('error')\n"
        "import jax; jax.numpy.ones(3).sum()\n"
        "import numpy as np, particleflow as pf\n"
        "run = pf.Trajectory.from_arrays([0.0, 1.0], np.random.default_rng(0).normal(size=(2, 5, 2)))\n"
        f"pf.view.animate(run, {str(tmp_path / 'movie.mp4')!r}, frames=2, size=(320, 192))"
    )
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}  # XLA's own lines, where it reads a program back
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=quiet)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert (tmp_path / "movie.mp4").stat().st_size > 0
