"""Branches of stationary densities on the circle, followed from where they leave the uniform one.

Mode l of the uniform state begins to grow at the temperature T_l, and there a branch of states with l clusters leaves
it. A branch may go to higher temperatures first: then it turns at a *fold*, two states exist beside the uniform one,
and the transition is of first order, with hysteresis between T_l and the fold. Where F = 0 both have equal free energy.

A branch is a curve y(s) = (φ, T) of zeros of the stationary equation. From a point y with tangent t the next one solves

    T φ − Φ(φ) = 0,    ⟨t, y' − y⟩ = ds    (pseudo-arclength)

by Newton's method, which passes folds; ds grows where a few iterations suffice and is halved where they fail. Source:
Keller, Numerical solution of bifurcation and nonlinear eigenvalue problems (1977).
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from particleflow._support.arrays import default_dtype
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import round_radius
from particleflow.errors import ArgumentError
from particleflow.theory.stability.stationary_densities import StationaryEquation
from particleflow.theory.stability.uniform_growth import in_64_bits, mode_temperatures

_NEWTON_ROUNDS = 12
_ZERO = 1e-12  # a residual below this, relative to temperature and coefficients, counts as zero
_EASY = 3  # after at most so many rounds of Newton's method the next step is longer
_FIRST_STEP, _SHORTEST, _LONGEST = 0.02, 1e-6, 0.15  # arclengths ds
_UNRESOLVED = 1e-9  # largest admissible coefficient among the last eighth of the harmonics
_STABLE = 1e-8  # growth rates below this are rounding
_MOST_POINTS = 2000


class Point(NamedTuple):
    """A fold or a point of equal free energy: its temperature and its order parameter |∫ e^{ilθ} dμ|."""

    temperature: float
    order: float


class Branch(NamedTuple):
    """A branch of stationary states with `mode` clusters, from the uniform state on, as plain arrays over its points.

    Parameters: `temperatures`; `orders` |∫ e^{ilθ} dμ|; `free_energies`, relative to the uniform state, None where
    there is no free energy; `stable`, whether small perturbations decay (the first point, where the branch begins, is
    marked as the second); `densities` relative to the uniform one at the `angles`; `folds`, where the branch turns in
    temperature; `equal`, where its free energy is that of the uniform state; `ends`, the reason why it ends.
    """

    mode: int
    temperatures: np.ndarray
    orders: np.ndarray
    free_energies: np.ndarray | None
    stable: np.ndarray
    angles: np.ndarray
    densities: np.ndarray
    folds: tuple[Point, ...]
    equal: tuple[Point, ...]
    ends: str

    @property
    def critical_temperature(self) -> float:
        """T_l, at which the branch leaves the uniform state."""
        return float(self.temperatures[0])

    @property
    def order_of_transition(self) -> int:
        """1 (discontinuous) where the branch first goes to higher temperatures, 2 (continuous) where to lower ones."""
        return 1 if self.temperatures[1] > self.temperatures[0] else 2


def branches(
    flow: Flow, modes: Any = (1,), *, lowest: float | None = None, harmonics: int = 64, time: Any = 0.0
) -> list[Branch]:
    """The branches of stationary densities on the circle that leave the uniform state with these modes.

    Parameters: `flow`, attention on a circle, of any normalisation, by a rotation-invariant kernel; its temperature is
    ignored. `modes`, wave numbers l from 1 to a quarter of `harmonics`. `lowest`, the temperature at which to stop, a
    quarter of T_l if left out. `harmonics`, the number of Fourier modes of a density: a branch ends where they do not
    resolve it. `time`, at which the flow is evaluated. Only normalization = "none" has a free energy. A mode that never
    grows is refused.
    """
    flow = in_64_bits(flow)
    known = mode_temperatures(flow, np.arange(1, harmonics + 1), 2, time)
    equation = StationaryEquation(flow, float(round_radius(flow.geometry, 2)), harmonics, time)
    energies = known if all(each.normalization == "none" for each in flow.interactions(time)) else None
    found = []
    for mode in np.atleast_1d(np.asarray(modes)).tolist():
        if not (isinstance(mode, int) and 1 <= mode <= harmonics // 4):
            raise ArgumentError(
                f"Argument `modes` must hold whole numbers from 1 to a quarter of `harmonics`, but holds {mode!r}."
            )
        if not known[mode - 1] > 0:
            raise ArgumentError(
                f"Mode {mode} grows at no temperature, so that no branch leaves the uniform state there."
            )
        stop = known[mode - 1] / 4 if lowest is None else float(lowest)
        found.append(_branch(equation, mode, float(known[mode - 1]), stop, energies))
    return found


def _branch(
    equation: StationaryEquation, mode: int, begin: float, lowest: float, energies: np.ndarray | None
) -> Branch:
    """One branch from its first point, with stability, free energies, folds and points of equal free energy."""
    places, tangents = [np.append(np.zeros(equation.harmonics), begin)], [_unit(mode - 1, equation.harmonics + 1)]
    ends = f"it was followed for {_MOST_POINTS} points"
    for place, tangent in _followed(equation, places[0], tangents[0]):
        if equation.tail(place) > _UNRESOLVED:
            ends = f"{equation.harmonics} harmonics do not resolve it"
            break
        places.append(place)
        tangents.append(tangent)
        if place[-1] <= lowest:
            ends = "it has come to the lowest temperature"
            break
    if len(places) < 2:
        raise ArgumentError(f"The branch of mode {mode} cannot be followed: {ends}; raise `harmonics`.")

    def turning(place: np.ndarray, tangent: np.ndarray) -> float:
        return float(tangent[-1])

    def excess(place: np.ndarray, tangent: np.ndarray) -> float:
        return 0.0 if energies is None else equation.free_energy(place, energies)

    stable = np.array([equation.fastest_rate(place) < _STABLE for place in places[1:]])
    special = [_crossings(equation, places, tangents, each, mode) for each in (turning, excess)]
    angles = 2 * np.pi * np.arange(3 * equation.harmonics + 1) / (3 * equation.harmonics + 1)
    return Branch(
        mode=mode,
        temperatures=np.array([place[-1] for place in places]),
        orders=np.array([_order(equation, place, mode) for place in places]),
        free_energies=None if energies is None else np.array([equation.free_energy(each, energies) for each in places]),
        stable=np.append(stable[:1], stable),
        angles=angles,
        densities=np.stack([equation.density(place) for place in places]),
        folds=special[0],
        equal=special[1],
        ends=ends,
    )


def _followed(
    equation: StationaryEquation, place: np.ndarray, tangent: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The points of a branch with their tangents, until Newton's method fails at the shortest step."""
    size = _FIRST_STEP
    for _ in range(_MOST_POINTS):
        answer = None
        while answer is None and size >= _SHORTEST:
            answer = _corrected(equation, place, tangent, size)
            size = size if answer is not None else size / 2
        if answer is None:
            return
        place, rounds = answer
        tangent = _tangent(equation, place, tangent)
        yield place, tangent
        size = min(1.3 * size, _LONGEST) if rounds <= _EASY else size


def _corrected(
    equation: StationaryEquation, place: np.ndarray, tangent: np.ndarray, size: float
) -> tuple[np.ndarray, int] | None:
    """The zero y' with ⟨t, y' − y⟩ = size, and the rounds of Newton's method; None where it does not converge."""
    guess = place + size * tangent
    for rounds in range(1, _NEWTON_ROUNDS + 1):
        matrix = np.vstack([equation.jacobian(guess), tangent])
        right = np.append(equation.residual(guess), tangent @ (guess - place) - size)
        guess = guess - np.linalg.solve(matrix, right)
        if not np.isfinite(guess).all() or guess[-1] <= 0:
            return None
        if np.max(np.abs(equation.residual(guess))) < _ZERO * (guess[-1] + np.max(np.abs(guess))):
            near = np.linalg.norm(guess - place) < 2 * size  # else it is on another branch
            return (guess, rounds) if near else None
    return None


def _tangent(equation: StationaryEquation, place: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The unit tangent of the branch at a point, oriented like the tangent `before`."""
    matrix = np.vstack([equation.jacobian(place), before])
    found = np.linalg.solve(matrix, _unit(len(place) - 1, len(place)))
    return found / np.linalg.norm(found)


def _crossings(
    equation: StationaryEquation,
    places: list[np.ndarray],
    tangents: list[np.ndarray],
    number: Callable[..., float],
    mode: int,
) -> tuple[Point, ...]:
    """The points at which a function of the branch changes its sign, by root finding along the branch.

    Parameters: `number`, a function of a place and its tangent. The uniform state, where it is 0, is left out.
    """
    from scipy.optimize import brentq

    values = [number(*each) for each in zip(places, tangents, strict=True)]
    found = []
    for index in range(1, len(values) - 1):
        if values[index] * values[index + 1] >= 0:
            continue
        place, tangent = places[index], tangents[index]
        reach = float(tangent @ (places[index + 1] - place))

        def between(size: float, place: np.ndarray = place, tangent: np.ndarray = tangent) -> np.ndarray:
            answer = _corrected(equation, place, tangent, size) if size > 0 else (place, 0)
            assert answer is not None
            return answer[0]

        def value(size: float, tangent: np.ndarray = tangent, between: Any = between) -> float:
            here = between(size)
            return number(here, _tangent(equation, here, tangent))

        root = between(float(brentq(value, 0.0, reach, xtol=1e-12)))  # pyright: ignore[reportArgumentType]
        found.append(Point(float(root[-1]), _order(equation, root, mode)))
    return tuple(found)


def _order(equation: StationaryEquation, place: np.ndarray, mode: int) -> float:
    """The order parameter |∫ e^{ilθ} dμ| of mode l."""
    return float(abs(equation.coefficients(place)[mode]) / np.sqrt(2.0))


def _unit(index: int, size: int) -> np.ndarray:
    """The unit vector of an index."""
    found = np.zeros(size, default_dtype())
    found[index] = 1.0
    return found
