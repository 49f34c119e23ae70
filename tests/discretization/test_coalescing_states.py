"""What becomes one and what does not: single states, merged by hand, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, pdist

import flows_oracles as oracle
import particleflow as pf
from coalescing_runs import BETWEEN, EPSILON, OPTIONS, ROUND, SPHERE, THREE, TIMES
from particleflow import drifts, events, geometry, kernels, observables
from particleflow.discretization.particles.coalescing import _near_groups, padded_size
from particleflow.errors import ArgumentError
from particleflow.simulation import window_loop as loop
from particleflow.simulation.plan import Stepping, make_plan
from particleflow.simulation.stepping import compiled_frame


def merged(flow: pf.Flow, measure: Any, epsilon: float = EPSILON, layer: float | None = None) -> tuple[Any, Any]:
    """The presents of particles before and after they have merged."""
    how, time = pf.Particles(coalesce=epsilon), jnp.zeros(())
    state = jax.tree.map(np.asarray, how.begin(flow, measure))
    after = how.pad_states([how.after_window(flow, time, state, layer)])[0]
    before, now = (pf.Present(flow, how, time, jax.tree.map(jnp.asarray, each)) for each in (state, after))
    return before, now


def close(seed: int, spread: float, count: int = 36, places: int = 5) -> np.ndarray:
    """Points on the sphere in a few places, each scattered by `spread`."""
    rng = np.random.default_rng(seed)
    centres = oracle.random_sphere(seed, places, 3)
    return oracle.on_sphere(centres[np.arange(count) % places] + spread * rng.normal(size=(count, 3)))


@pytest.mark.slow
def test_a_merge_adds_weights_at_the_mean():
    points, weights = close(4, 1e-6), np.random.default_rng(4).uniform(0.1, 1, 36)
    before, after = merged(SPHERE, pf.Measure.weighted(points, weights))
    assert int(after.state.carrying) == 5
    assert after.state.moving.shape == (16, 3)
    places = np.asarray(after.state.moving)[:5]
    for place in range(5):
        mine = np.arange(36) % 5 == place
        mean = oracle.on_sphere((weights[mine] @ points[mine])[None])[0]
        assert np.max(np.abs(places[place] - mean)) < 1e-15
        assert abs(np.exp(after.state.log_masses[place]) - weights[mine].sum()) < 1e-14
        shown = np.asarray(after.measure.points)[mine]
        assert np.max(np.abs(shown - mean)) < 1e-15
        assert np.array_equal(shown, np.tile(shown[0], (len(shown), 1)))
    assert np.array_equal(after.measure.log_weights, before.measure.log_weights)
    shift = np.max(np.linalg.norm(np.asarray(after.measure.points) - points, axis=1))
    assert abs(float(jnp.max(after.state.displacement)) - shift) < 1e-15
    assert (
        abs(float(after.state.log_energy_bound) / (2 * 8.0 * np.sqrt(3) * shift) - 1) < 1e-6
    )  # |DQ| of the identity: √d


SUMMED = (observables.dissipation, observables.diameter)  # `test_coalescing_runs` asks for energy and similarity
EVERYTHING = (
    *SUMMED, observables.log_energy, observables.mean_similarity, observables.energy, observables.order_parameter,
    observables.centre, observables.covariance, observables.speed, observables.effective_rank,
    observables.attention_entropy, observables.attention_rank, observables.SimilarityQuantiles(),
    observables.PairFraction(),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("observed", [SUMMED, EVERYTHING], ids=len)
def test_observables_and_events_do_not_see_the_difference(observed):
    """On points that are equal, merging changes nothing at all that is measured."""
    points, weights = close(6, 0.0), np.where(np.arange(36) % 7 == 3, 0.0, 1.0 + np.arange(36) % 4)
    before, after = merged(SPHERE, pf.Measure.weighted(points, weights))
    assert int(after.state.carrying) == 5
    assert float(after.state.log_energy_bound) == 0
    found = [compiled_frame(observed, present) for present in (before, after)]
    for name in found[0][1]:
        assert np.allclose(found[0][1][name], found[1][1][name], rtol=1e-12, atol=1e-12), name
    heavy = points[weights > 0]
    edges = np.sort(linkage(heavy, "single")[:, 2])
    for merges in (1, len(heavy) - 5, len(heavy) - 4, len(heavy) - 1):
        level = float(events.Merged(merges, 0.1).level(after))
        assert abs(level - (edges[merges - 1] - 0.1)) < 1e-12, merges
    assert np.isposinf(events.Merged(len(heavy), 0.1).level(after))
    assert abs(float(events.Clustered(0.1).level(after)) - (pdist(heavy).max() - 0.1)) < 1e-12


@pytest.mark.slow
def test_those_that_part_or_differ_stay_apart():
    points = close(7, 1e-6)
    parting = pf.Flow(pf.Attend(kernels.Attention(8.0), value=-1.0), geometry=pf.Sphere())
    for flow, left in ((SPHERE, 5), (parting, 36)):
        assert int(merged(flow, pf.Measure.uniform(points))[1].state.carrying) == left
    # Of one direction, but of three norms: those of equal norm become one.
    stream = pf.Flow(ATTEND, geometry=geometry.PreNorm())
    norms = np.tile([1.0, 1.0, 2.0], 12)
    before, after = merged(stream, pf.Measure.uniform(close(8, 0.0)).with_fields({"residual_norm": norms}))
    assert int(after.state.carrying) == 10
    for name, rows in before.frame().items():
        assert np.max(np.abs(np.asarray(after.frame()[name] - rows))) < 1e-15
    # The frame z = e^{−t} x hides how far apart drifts see two particles.
    late, how = pf.Flow(ATTEND, geometry=geometry.Rescaled()), pf.Particles(coalesce=EPSILON)
    state = jax.tree.map(np.asarray, how.begin(late, pf.Measure.uniform(1e-6 * points[:8])))
    for time, left in ((0.0, 1), (5.0, 8)):
        assert int(how.after_window(late, jnp.asarray(time), state, None).carrying) == left
    # A layer that overshoots: x ← x + h(m − x) brings particles nearer for h < 2.
    shift = pf.Flow(pf.MeanShift(kernels.Gaussian(1.0)))
    pair = pf.Measure.uniform(np.array([[0.0, 0.0], [1e-6, 0.0], [9.0, 0.0]]))
    for size, left in ((1.5, 2), (2.5, 3)):
        assert int(merged(shift, pair, layer=size)[1].state.carrying) == left


@pytest.mark.parametrize("dimension", [1, 2, 9])
def test_groups_are_no_wider_than_epsilon(dimension):
    rng = np.random.default_rng(dimension)
    chain = np.linspace(0, 3, 40)[:, None] * np.eye(dimension)[:1]
    places = 10.0 * rng.integers(1, 9, (200, 1))
    heaps = places + rng.normal(size=(200, dimension)) * 10.0 ** rng.uniform(-8, 0, (200, 1))
    points = np.concatenate([heaps, heaps[:50], chain])
    groups = _near_groups(points, 0.1)
    for group in range(groups.max() + 1):
        assert cdist(points[groups == group], points[groups == group]).max() <= 0.1
    assert np.array_equal(groups[:50], groups[200:250])
    assert len(np.unique(groups)) < len(points) - 50  # more than the equal ones


def test_sizes_come_in_few():
    assert [padded_size(count, 1000) for count in (1, 16, 17, 100, 512, 513, 1000)] == [
        16,
        16,
        32,
        128,
        512,
        1000,
        1000,
    ]
    assert padded_size(3, 10) == 10


def planned(flow: Any, start: Any, times: Any, *, rtol: float, atol: float, **options: Any) -> Any:
    return make_plan(flow, start, times, Stepping(rtol, atol), **options)


@pytest.mark.slow
def test_runs_of_an_ensemble_merge_by_themselves_into_one_size():
    """Run r has r + 15 places."""
    starts = np.stack([close(run, 0.0, places=15 + run) for run in range(3)])
    plan = planned([SPHERE] * 3, starts, [0.0, 1.0], **OPTIONS)
    after = loop._carried_on(plan, loop.at_start(plan))
    assert after.state.carrying.tolist() == [15, 16, 17]
    assert after.state.moving.shape == (3, 32, 3)
    for run in range(3):
        state = jax.tree.map(lambda leaf, run=run: leaf[run], after.state)
        shown = plan.discretization.fields(plan.flow_of(run), 0.0, state)["points"]
        assert np.max(np.abs(np.asarray(shown) - starts[run])) < 1e-15
    ended = loop.at_start(plan)._replace(ended=np.array([0.0, np.nan, np.nan]))
    assert loop._carried_on(plan, ended).state.carrying.tolist() == [36, 16, 17]


def test_a_merge_does_not_step_over_an_event():
    for event, left in ((None, 2), (events.Merged(2, 1.5e-3), 2), (events.Merged(2, 2e-3), 3)):
        plan = planned(pf.Flow(drifts.Linear(-0.01)), THREE, [0.0, 1.0, 2.0], event=event, **BETWEEN)
        after = loop._carried_on(plan, loop.at_start(plan))
        assert int(after.state.carrying[0]) == left, event


class Pinned(drifts.AbstractDrift):
    """Every particle is pulled to a place of its own."""

    places: jax.Array

    def __call__(self, time: Any, queries: Any, measure: Any) -> Any:
        return self.places - queries.points


ATTEND = pf.Attend(kernels.Attention(2.0))
PAIRS = np.repeat(oracle.random_sphere(5, 4, 3), 2, axis=0)
REFUSED = {
    "positional": (pf.Flow(pf.Attend(kernels.Attention(2.0), positional=kernels.Causal())), PAIRS, "positions"),
    "inside": (pf.Flow(pf.Attend(kernels.Attention(2.0) * kernels.Window(2.0))), PAIRS, "by position or number"),
    "values": (pf.Flow(ATTEND), pf.Measure.uniform(PAIRS, values=PAIRS), "a value of its own"),
    "noise": (pf.Flow(ATTEND, temperature=0.1), PAIRS, "noise of its own"),
    "number": (pf.Flow(Pinned(jnp.asarray(PAIRS))), PAIRS, "by position or number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_particles_that_differ_do_not_become_one(name):
    flow, start, reason = REFUSED[name]
    how = pf.Particles(coalesce=EPSILON)
    steps: dict[str, Any] = {"step": 0.1, "key": jax.random.key(0)} if name == "noise" else {"rtol": 1e-6, "atol": 1e-8}
    with pytest.raises(ArgumentError, match=f"cannot become one.*{reason}"):
        pf.simulate(flow, start, [0.0, 1.0], **steps, discretization=how)
    with pytest.raises(ArgumentError, match="cannot become one"):
        pf.simulate([flow, flow], start, [0.0, 1.0], **steps, discretization=how)


def test_other_refusals():
    wrongs: tuple[Any, ...] = (0.0, -1.0, float("nan"), True, "near")
    for wrong in wrongs:
        with pytest.raises(ArgumentError, match="`coalesce` must be"):
            pf.Particles(coalesce=wrong)
    with pytest.raises(ArgumentError, match=r"distances of 5e-05, but particles within 0.0001"):
        pf.simulate(SPHERE, ROUND, TIMES, **OPTIONS, event=events.Clustered(5e-5))
    with pytest.raises(ArgumentError, match="`evolve` has no windows"):
        pf.evolve(SPHERE, ROUND, 1.0, rtol=1e-6, atol=1e-8, discretization=OPTIONS["discretization"])
