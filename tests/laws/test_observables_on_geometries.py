"""Every observable on every geometry, with weights of which one is zero, against NumPy at the stored trajectory.

One compiled program a geometry serves all of its cases: the run, the same with the weightless particle elsewhere, and
continuations. Observables are asked of the frames as they are stored; a slow test records them inside of the runs.
"""

from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
import system_oracles as oracle
from particleflow import kernels, observables
from shares import by_default

BETA, LEVELS, THRESHOLD, DIMENSION = 0.6, (0.1, 0.5, 0.9), 0.3, 4
STEP, MIDDLE = 0.003, 0.3
TIMES = np.array([0.0, *(MIDDLE + STEP * np.arange(-2, 3)), 0.5])
TOLERANCES: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12}
# Those that have weight stand at four places, which do not span R⁴: their whole covariance cannot be normalised.
SPACES = {name: space for name, space in oracle.spaces(DIMENSION).items() if name != "set_norm"}
GRADIENT = ("euclidean", "sphere", "sphere_2.5", "layer_norm", "sqrt_scaled")
DEFAULT = ("sqrt_scaled",)
ALL = [
    observables.energy,
    observables.log_energy,
    observables.dissipation,
    observables.order_parameter,
    observables.centre,
    observables.covariance,
    observables.mean_similarity,
    observables.diameter,
    observables.speed,
    observables.effective_rank,
    observables.attention_entropy,
    observables.attention_rank,
    observables.SimilarityQuantiles(LEVELS),
    observables.PairFraction(THRESHOLD),
    observables.Alignment(),
    observables.Uniformity(1.5),
]
# The last particle has no weight and stands far from the others where it can; the fifth is where the second is, so that
# attention is not of full rank.
WEIGHTS = np.array([0.4, 0.2, 0.3, 0.15, 0.2, 0.0])
ALIVE = WEIGHTS > 0
CLOUD = 0.6 * np.random.default_rng(41).normal(size=(6, DIMENSION))
CLOUD[4] = CLOUD[1]
GHOSTS = 5.0 * CLOUD[5], np.array([-7.0, 1.0, 2.0, 3.0])
ATTEND = pf.Attend(kernels.Attention(beta=BETA))


@eqx.filter_jit
def ask_all(flow: pf.Flow, measure: pf.Measure, time: Any) -> dict[str, Any]:
    """All observables at once, in one program for all frames."""
    present = pf.Present.of(flow, measure, time)
    return {observables.name_of(each): each(present) for each in ALL}


class Recorded(NamedTuple):
    """A run on a space: its flow and its trajectory."""

    space: oracle.Space
    flow: pf.Flow
    run: pf.Trajectory

    def start(self, frame: int) -> pf.Measure:
        """The measure of a stored frame, from which a run can begin."""
        moment = self.run[frame]
        return pf.Measure(moment.points, self.run.log_weights, None, self.run.positions, moment.fields)

    def asked(self, frame: int) -> dict[str, np.ndarray]:
        """All observables of a stored frame."""
        asked = ask_all(self.flow, self.start(frame), self.run.times[frame])
        return {name: np.asarray(value) for name, value in asked.items()}

    def logits(self, frame: int) -> np.ndarray:
        """log K at what drifts see in a frame."""
        moment = self.run[frame]
        seen = self.space.seen(self.space.state(moment.points, moment.fields), moment.time)
        return BETA * seen @ seen.T


def started(space: oracle.Space, ghost: int = 0) -> pf.Measure:
    """The weighted cloud on a space, its weightless particle in one of two places."""
    points = np.concatenate([CLOUD[:5], GHOSTS[ghost][None]])
    return pf.Measure.weighted(space.given(WEIGHTS).retract(points), WEIGHTS)


@cache
def recorded(name: str, ghost: int = 0) -> Recorded:
    """The run on a geometry, without observables."""
    space = SPACES[name].given(WEIGHTS)
    flow = pf.Flow(ATTEND, geometry=space.build())
    return Recorded(space, flow, pf.simulate(flow, started(space, ghost), TIMES, **TOLERANCES))


def expected(case: Recorded, frame: int) -> dict[str, Any]:
    """All observables that a frame alone decides, from the particles that have weight."""
    weights, logits = WEIGHTS[ALIVE], case.logits(frame)[np.ix_(ALIVE, ALIVE)]
    points = case.run[frame].points[ALIVE]
    return {
        **oracle.of_points(points, weights, LEVELS, THRESHOLD),
        **oracle.of_interaction(logits, weights, 2 * BETA),
        **contrast(points, weights),
    }


def contrast(points: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    """Alignment of the first and the next two particles, the fifth being alone; uniformity at rate 1.5."""
    shares, squares = np.outer(weights, weights), oracle.squares(points, points)
    pairs, alike = np.triu_indices(5, 1), ([0, 2], [1, 3])
    return {
        "alignment": shares[alike] @ squares[alike] / shares[alike].sum(),
        "uniformity": np.log(shares[pairs] @ np.exp(-1.5 * squares[pairs]) / shares[pairs].sum()),
    }


def moving(case: Recorded) -> dict[str, Any]:
    """Speed and dissipation in the middle of the run, from differences of the stored points."""
    velocity = oracle.slope(case.run.points[1:6], STEP)[ALIVE]
    masses = np.exp(oracle.log_mass(case.logits(3)[np.ix_(ALIVE, ALIVE)], WEIGHTS[ALIVE]))
    return oracle.of_velocity(velocity, WEIGHTS[ALIVE], masses)


def assert_close(found: Any, wanted: dict[str, Any], tolerance: float) -> None:
    """Every wanted number is found, relative to its size where that is above one."""
    for name, value in wanted.items():
        error = np.max(np.abs(found[name] - value)) / max(1.0, np.max(np.abs(value)))
        assert error < tolerance, f"{name}: {found[name]} instead of {value}"


@pytest.mark.slow
@pytest.mark.parametrize("name", by_default(SPACES, DEFAULT))
def test_observables_of_stored_frames(name):
    case = recorded(name)
    found = {frame: case.asked(frame) for frame in (3, 6)}
    for frame, values in found.items():
        assert_close(values, expected(case, frame), 1e-11)
    assert_close(found[3], moving(case), 1e-7)
    # Another place of the particle without weight changes nothing but its own path.
    other = recorded(name, ghost=1)
    assert np.max(np.abs(other.run.points[-1, 5] - case.run.points[-1, 5])) > 0.1
    assert np.max(np.abs((np.asarray(other.run.points) - np.asarray(case.run.points))[:, ALIVE])) < 1e-9
    assert_close(other.asked(6), found[6], 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADIENT)
def test_dissipation_is_the_growth_of_the_energy(name):
    """ẋ = P m climbs E wherever drifts see the stored points; scaled steps divide one of the two factors ẋ only."""
    case = recorded(name)
    energies = np.array([case.asked(frame)["energy"] for frame in range(1, 6)])
    factor = np.sqrt(1 + MIDDLE) if name == "sqrt_scaled" else 1.0
    growth = float(oracle.slope(energies, STEP))
    assert growth > 1e-3
    assert abs(growth - factor * case.asked(3)["dissipation"]) < 1e-7 * max(1.0, growth)


DATA = pf.Measure.weighted(np.random.default_rng(42).normal(size=(5, 3)), np.array([0.5, 0.2, 0.0, 0.3, 0.4]))
GRADIENT_FLOWS = {
    "unnormalised attention on the sphere": pf.Flow(
        pf.Attend(kernels.Attention(beta=1.4), normalization="none"), geometry=pf.Sphere()
    ),
    "mean shift among themselves": pf.Flow(pf.MeanShift(kernels.Gaussian(0.9))),
    "mean shift towards data": pf.Flow(pf.MeanShift(kernels.Gaussian(0.9), data=DATA)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADIENT_FLOWS)
def test_gradient_flows_dissipate_what_their_energy_gains(name):
    flow = GRADIENT_FLOWS[name]
    start = flow.geometry.retract(jnp.asarray(CLOUD[:, :3]))
    seen = [observables.energy, observables.dissipation, observables.speed]
    run = pf.simulate(flow, pf.Measure.weighted(start, WEIGHTS), TIMES, observe=seen, **TOLERANCES)
    growth = float(oracle.slope(run.observables["energy"][1:6], STEP))
    assert growth > 1e-3
    assert abs(growth - run.observables["dissipation"][3]) < 1e-7
    squares = np.sum(oracle.slope(run.points[1:6], STEP) ** 2, axis=1)
    assert abs(run.observables["speed"][3] - np.sqrt(WEIGHTS @ squares / WEIGHTS.sum())) < 1e-7
    points, others, factor = run.points[6], run.points[6], 2.0
    if name == "unnormalised attention on the sphere":
        pairs, beta = np.exp(1.4 * points @ points.T), 1.4
    else:
        if name == "mean shift towards data":
            others, factor = np.asarray(DATA.points), 1.0
        pairs, beta = np.exp(-oracle.squares(points, others) / (2 * 0.81)), 1 / 0.81
    masses = np.exp(np.asarray(DATA.log_weights)) if factor == 1.0 else WEIGHTS
    assert abs(run.observables["energy"][6] - WEIGHTS @ pairs @ masses / (factor * beta)) < 1e-12


@pytest.mark.slow
def test_observables_inside_of_a_run():
    """What drifts see and how points move is decided by gains, ε and the length of the stream."""
    case = recorded("pre_norm_of_layer_norm")
    seen = [observables.energy, observables.dissipation, observables.speed, observables.attention_entropy]
    run = pf.simulate(case.flow, started(case.space), TIMES, observe=seen, **TOLERANCES)
    inside, names = case._replace(run=run), ("energy", "attention_entropy")
    for frame in range(len(TIMES)):
        wanted = expected(inside, frame)
        assert_close(run[frame].observables, {name: wanted[name] for name in names}, 1e-11)
    assert_close(run[3].observables, moving(inside), 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_all_observables_inside_of_a_run(name):
    """The compiled run records what its stored frames say, and the same without the particle that has no weight."""
    case = recorded(name)
    run = pf.simulate(case.flow, started(case.space), TIMES, observe=ALL, **TOLERANCES)
    inside = case._replace(run=run)
    for frame in range(len(TIMES)):
        assert_close(run[frame].observables, expected(inside, frame), 1e-11)
    assert_close(run[3].observables, moving(inside), 1e-7)
    measure = pf.Measure.weighted(case.space.given(WEIGHTS[:5]).retract(CLOUD[:5]), WEIGHTS[:5])
    without = case._replace(run=pf.simulate(case.flow, measure, TIMES, **TOLERANCES))
    assert np.max(np.abs(np.asarray(without.run.points) - run.points[:, :5])) < 1e-9
    for frame in (0, 3, 6):
        assert_close(run[frame].observables, without.asked(frame), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_a_run_goes_on_from_a_stored_frame(name, tmp_path):
    """From the measure of a frame, and from a file of the first half."""
    case = recorded(name)
    on = np.linspace(MIDDLE, TIMES[-1], len(TIMES))
    first = pf.simulate(case.flow, started(case.space), np.linspace(0.0, MIDDLE, len(TIMES)), **TOLERANCES)
    first.save(tmp_path / "first.h5")
    stored = pf.initial.FromFile(tmp_path / "first.h5").start(jax.random.key(0)).measure
    for start in (case.start(3), stored):
        second = pf.simulate(case.flow, start, on, **TOLERANCES)
        scale = max(1.0, np.max(np.abs(case.run.points[-1])))
        assert np.max(np.abs(second.points[-1] - case.run.points[-1])) < 1e-9 * scale
        assert second.fields.keys() == case.run.fields.keys()
        for field, values in second.fields.items():
            assert np.max(np.abs(values[-1] - case.run.fields[field][-1])) < 1e-9, field
    assert bool(case.run.fields) == case.space.carries
