"""What a user can get wrong about a run: a clear error before anything is compiled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, events, geometry, kernels, observables
from particleflow.errors import ArgumentError, DtypeError, ShapeError

SPHERE = pf.Flow(pf.Attend(kernels.Attention(beta=2.0)), geometry=pf.Sphere())
PLAIN = pf.Flow(pf.Attend(kernels.Attention(beta=2.0)))
START = oracle.random_sphere(1, 5, 3)
TIMES = [0.0, 1.0]
TOLERANCES: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8}
NOISY = pf.Flow(drifts.Linear(-1.0), temperature=0.1)


def attend(**options):
    return pf.Flow(pf.Attend(kernels.Attention(beta=1.0), **options))


def with_kernel(**options):
    return pf.Flow(pf.Attend(kernels.Attention(beta=1.0, **options)))


def of_time_alone(flow, time):
    return time


def event_time(flow, time, measure):
    return time


CASES = {
    "off the sphere": (
        SPHERE,
        1.5 * START,
        TIMES,
        TOLERANCES,
        ArgumentError,
        r"geometry Sphere, but particle \d is off it by 0\.\d+; use `geometry\.retract",
    ),
    "off by little": (SPHERE, START * (1 + 1e-6), TIMES, TOLERANCES, ArgumentError, "is off it by"),
    "off the layer norm": (
        pf.Flow(drifts.Linear(1.0), pf.LayerNorm()),
        START,
        TIMES,
        TOLERANCES,
        ArgumentError,
        "geometry LayerNorm",
    ),
    "zero on the sphere": (SPHERE, np.zeros((2, 3)), TIMES, TOLERANCES, ArgumentError, "sphere|Sphere"),
    "one run off the sphere": (SPHERE, np.stack([START, 2 * START]), TIMES, TOLERANCES, ArgumentError, "is off it by"),
    "value of wrong size": (
        attend(value=np.eye(4)),
        START,
        TIMES,
        TOLERANCES,
        ShapeError,
        r"`value` has shape \(4, 4\), which does not act on vectors of dimension 3",
    ),
    "value not square": (
        attend(value=np.ones((2, 3))),
        START,
        TIMES,
        TOLERANCES,
        ShapeError,
        r"must return shape \(5, 3\)",
    ),
    "query of wrong size": (with_kernel(query=np.eye(2)), START, TIMES, TOLERANCES, ShapeError, "`query` has shape"),
    "key of wrong size": (with_kernel(key=np.ones(5)), START, TIMES, TOLERANCES, ShapeError, "`key` has shape"),
    "query and key do not meet": (
        with_kernel(query=np.ones((2, 3)), key=np.ones((4, 3))),
        START,
        TIMES,
        TOLERANCES,
        ShapeError,
        "dimension",
    ),
    "gain of wrong size": (
        pf.Flow(drifts.Linear(1.0), pf.LayerNorm(gain=np.ones(4))),
        np.asarray(geometry.LayerNorm().retract(jnp.asarray(START))),
        TIMES,
        TOLERANCES,
        ShapeError,
        "`gain` must have shape",
    ),
    "times decrease": (
        SPHERE,
        START,
        [0.0, 2.0, 1.0],
        TOLERANCES,
        ArgumentError,
        r"`times` must increase, but goes from 2\.0 to 1\.0 at index 1",
    ),
    "times repeat": (SPHERE, START, [0.0, 1.0, 1.0], TOLERANCES, ArgumentError, "must increase"),
    "times not finite": (SPHERE, START, [0.0, np.inf], TOLERANCES, ArgumentError, "`times` must be finite"),
    "no times": (SPHERE, START, [], TOLERANCES, ShapeError, "`times` must be a list"),
    "times as a table": (SPHERE, START, [[0.0, 1.0]], TOLERANCES, ShapeError, "`times` must be a list"),
    "tolerance below double precision": (
        SPHERE,
        START,
        TIMES,
        {"rtol": 1e-16, "atol": 1e-16},
        ArgumentError,
        r"`rtol` is 1e-16, below the 2\.2e-15 that float64 can give",
    ),
    "tolerance below single precision": (
        PLAIN,
        START.astype(np.float32),
        TIMES,
        {"rtol": 1e-9, "atol": 1e-9},
        ArgumentError,
        "that float32 can give",
    ),
    "a tolerance that keeps nothing": (
        SPHERE,
        START,
        TIMES,
        {"rtol": 2.0, "atol": 0.0},
        ArgumentError,
        "`rtol` is 2, above 0.1: such steps do not follow the flow",
    ),
    "negative tolerance": (
        SPHERE,
        START,
        TIMES,
        {"rtol": -1.0, "atol": 0.0},
        ArgumentError,
        "`rtol` must be zero or positive",
    ),
    "a title that is no text": (SPHERE, START, TIMES, {"title": 3}, ArgumentError, "`title` must be a text"),
    "two titles": (
        SPHERE,
        START,
        TIMES,
        {"title": "a", "provenance": {"title": "b"}},
        ArgumentError,
        "The title is given twice",
    ),
    "a map without a step": (SPHERE, START, TIMES, {"solver": "map"}, ArgumentError, "give a fixed `step`"),
    "tolerance and step": (
        SPHERE,
        START,
        TIMES,
        {**TOLERANCES, "step": 0.1},
        ArgumentError,
        "fixed `step` is given, too",
    ),
    "step not positive": (SPHERE, START, TIMES, {"step": -0.1}, ArgumentError, "`step` must be positive"),
    "a late time off the grid": (PLAIN, START, [0.0, 1e3, 1000.0004], {"step": 1e-3}, ArgumentError, r"times\[2\]"),
    "two times in one step": (PLAIN, START, [0.0, 1e3, 1000.00002], {"step": 1e-3}, ArgumentError, r"times\[2\]"),
    "no start": (PLAIN, [], TIMES, TOLERANCES, ArgumentError, "the list is empty"),
    "window of a truth value": (PLAIN, START, TIMES, {**TOLERANCES, "window": True}, ArgumentError, "window"),
    "times off the grid": (SPHERE, START, [0.0, 0.25, 0.9], {"step": 0.25}, ArgumentError, r"times\[2\] is 0\.9"),
    "unknown solver": (SPHERE, START, TIMES, {**TOLERANCES, "solver": "rk4"}, ArgumentError, "one of bosh3, .*'rk4'"),
    "euler cannot adapt": (SPHERE, START, TIMES, {**TOLERANCES, "solver": "euler"}, ArgumentError, "cannot adapt"),
    "map cannot adapt": (SPHERE, START, TIMES, {**TOLERANCES, "solver": "map"}, ArgumentError, "cannot adapt"),
    "noise with tolerances": (
        NOISY,
        START,
        TIMES,
        {**TOLERANCES, "key": jax.random.key(0)},
        ArgumentError,
        "needs a fixed `step`",
    ),
    "noise without a key": (NOISY, START, TIMES, {"step": 0.1}, ArgumentError, "needs a random `key`"),
    "noise with a solver for none": (
        NOISY,
        START,
        TIMES,
        {"step": 0.1, "key": jax.random.key(0), "solver": "tsit5"},
        ArgumentError,
        "use one of heun",
    ),
    "sinkhorn with an empty row": (
        attend(normalization="sinkhorn", positional=kernels.StrictlyCausal()),
        START,
        TIMES,
        TOLERANCES,
        ArgumentError,
        "positive entry in every row and column, but particle 0 has none in its row",
    ),
    "causal sinkhorn": (
        attend(normalization="sinkhorn", positional=kernels.Causal()),
        START,
        TIMES,
        TOLERANCES,
        ArgumentError,
        "cannot make these weights doubly stochastic.* causal mask leaves only the identity",
    ),
    "start is no matrix": (SPHERE, START[0], TIMES, TOLERANCES, ShapeError, r"shape \(n, d\) or \(runs, n, d\)"),
    "start holds NaN": (
        PLAIN,
        np.where(np.eye(5, 3) > 0, np.nan, START),
        TIMES,
        TOLERANCES,
        ArgumentError,
        "must be finite",
    ),
    "start of integers": (PLAIN, np.eye(3, dtype=int), TIMES, TOLERANCES, DtypeError, "floating-point"),
    "mixed precision": (
        attend(value=np.eye(3)),
        START.astype(np.float32),
        TIMES,
        {"rtol": 1e-4, "atol": 1e-5},
        DtypeError,
        "one precision",
    ),
    "flows of different kinds": ([SPHERE, PLAIN], START, TIMES, TOLERANCES, ArgumentError, "differ in numbers only"),
    "more flows than starts": (
        [PLAIN, PLAIN, PLAIN],
        np.stack([START, START]),
        TIMES,
        TOLERANCES,
        ShapeError,
        "3 flows, but 2 starts",
    ),
    "no flow": ([], START, TIMES, TOLERANCES, ArgumentError, "must be a flow"),
    "starts of different sizes": (
        PLAIN,
        [pf.Measure.uniform(START), pf.Measure.uniform(START[:3])],
        TIMES,
        TOLERANCES,
        ShapeError,
        "equal shapes",
    ),
    "observable without a name": (
        PLAIN,
        START,
        TIMES,
        {**TOLERANCES, "observe": [lambda flow, time, measure: time]},
        ArgumentError,
        "needs a name",
    ),
    "observable of two arguments": (
        PLAIN,
        START,
        TIMES,
        {**TOLERANCES, "observe": [of_time_alone]},
        ArgumentError,
        "of_time_alone must be a function of the present, or of flow, time and measure",
    ),
    "observable with a name that is taken": (
        PLAIN,
        START,
        TIMES,
        {**TOLERANCES, "observe": [event_time]},
        ArgumentError,
        "must not be called 'event_time'",
    ),
    "no event": (PLAIN, START, TIMES, {**TOLERANCES, "event": 0.1}, ArgumentError, "must be an event"),
    "energy without a kernel": (
        pf.Flow(drifts.Linear(1.0)),
        START,
        TIMES,
        {**TOLERANCES, "observe": [observables.energy]},
        ArgumentError,
        "needs a drift with a kernel",
    ),
    "window of nothing": (PLAIN, START, TIMES, {**TOLERANCES, "window": -1}, ArgumentError, "window"),
    "no steps allowed": (PLAIN, START, TIMES, {**TOLERANCES, "max_steps": 0}, ArgumentError, "max_steps"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_bad_input_is_refused_before_compilation(case, monkeypatch):
    from particleflow.simulation import ensemble

    def compiled(*_):
        raise AssertionError("a run was compiled although its input is wrong")

    monkeypatch.setattr(ensemble, "_solve_one", compiled)
    monkeypatch.setattr(ensemble, "_solve_group", compiled)
    flow, start, times, options, kind, text = CASES[case]
    with pytest.raises(kind, match=text):
        pf.simulate(flow, start, times, **options)


def test_bad_constructors():
    for make, kind, text in [
        (
            lambda: pf.Attend(kernels.Attention(), normalization="column"),  # pyright: ignore[reportArgumentType]
            ArgumentError,
            "one of 'row', 'none', 'sinkhorn'",
        ),
        (lambda: pf.Flow("attend"), ArgumentError, "must be a drift"),  # pyright: ignore[reportArgumentType]
        (lambda: pf.Flow([]), ArgumentError, "drift"),
        (
            lambda: pf.Flow(drifts.Linear(1.0), temperature=-1.0),
            ArgumentError,
            "`temperature` must be zero or positive",
        ),
        (lambda: pf.Sphere(0.0), ArgumentError, "`radius` must be positive"),
        (lambda: geometry.Ngpt(-1.0), ArgumentError, "`alpha` must be positive"),
        (lambda: events.Merged(0, 0.1), ArgumentError, "`merges` must be a positive integer"),
        (lambda: events.Clustered(-0.1), ArgumentError, "`distance` must be positive"),
        (lambda: drifts.Layers([]), ArgumentError, "at least one drift"),
        (
            lambda: drifts.FeedForward(np.eye(3), activation="softplus"),  # pyright: ignore[reportArgumentType]
            ArgumentError,
            "`activation` must be one of",
        ),
        (lambda: drifts.Confinement(power=1.0), ArgumentError, "`power` must be at least 2"),
        (lambda: pf.LogNormalizerAscent(kernels.Constant()), ArgumentError, "`rate` must be given"),
    ]:
        with pytest.raises(kind, match=text):
            make()


def test_evolve_refuses_what_simulate_refuses():
    with pytest.raises(ArgumentError, match="is off it by"):
        pf.evolve(SPHERE, 2 * START, 1.0, **TOLERANCES)
    with pytest.raises(ArgumentError, match="`max_steps` must be a positive integer"):
        pf.evolve(SPHERE, START, 1.0, **TOLERANCES, max_steps=0)
    with pytest.raises(ArgumentError, match="`adjoint` must be one of"):
        pf.evolve(SPHERE, START, 1.0, **TOLERANCES, adjoint="continuous")


def test_options_of_a_store_need_a_store():
    with pytest.raises(ArgumentError, match="go with `store`"):
        pf.simulate(PLAIN, START, TIMES, **TOLERANCES, storage="float32")
