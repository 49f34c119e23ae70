"""Parameters of a flow from an observed trajectory, by least squares.

    min_θ  mean_k Σ_i w_i |x_i(t_k; θ) − o_i(t_k)|²,    ẋ = v_θ(t, x, μ),  x(t_0) = o(t_0)

Derivatives go through the solver (`evolve`). β, Q and K of attention act by the product β QᵀK alone, and V and O by OV:
of parameters that enter only as a product, one is learned and the others are held, else only the product is determined.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError, ShapeError, check_kind
from particleflow.learning.descent import Learned, learn
from particleflow.learning.parameters import Paths
from particleflow.measure import Measure
from particleflow.simulation.plan import as_start
from particleflow.simulation.simulate import evolve
from particleflow.trajectory.trajectory import Trajectory


class TrajectoryError(eqx.Module):
    """mean_k Σ_i w_i |x_i(t_k) − o_i(t_k)|² between the flow that begins at the first frame and all later frames.

    With `restart` the flow begins anew at every frame and is compared with the next (multiple shooting): errors do not
    grow with time, so that the search converges from worse starting values. Runs of an ensemble are averaged.

    Parameters: `trajectory` of particles; `restart`; `rtol`, `atol`, `solver` and `max_steps` (between two frames) of
    the solver.
    """

    starts: Measure
    times: Float[Array, " t"]
    points: Float[Array, "t r n d"]
    restart: bool = eqx.field(static=True)
    how: tuple[tuple[str, Any], ...] = eqx.field(static=True)

    def __init__(
        self,
        trajectory: Trajectory,
        *,
        restart: bool = False,
        rtol: float = 1e-8,
        atol: float = 1e-10,
        solver: str | None = None,
        max_steps: int = 256,
    ):
        check_kind(trajectory, Trajectory, "trajectory", "a trajectory, such as Trajectory.from_arrays(times, points)")
        points = _frames(trajectory)
        self.times = jnp.asarray(np.asarray(trajectory.times), points.dtype)
        self.points = jnp.asarray(points)
        self.starts = _starts(trajectory, points[0])
        self.restart = restart
        self.how = tuple({"rtol": rtol, "atol": atol, "solver": solver, "max_steps": max_steps}.items())

    def __call__(self, flow: Flow) -> Float[Array, ""]:
        """The mean squared distance between the flow and the observed frames."""
        runs = (self.starts, jnp.swapaxes(self.points, 0, 1))
        return jnp.mean(jax.lax.map(lambda run: self._of_run(flow, *run), runs))

    def _of_run(self, flow: Flow, start: Measure, observed: Float[Array, "t n d"]) -> Float[Array, ""]:
        weights = jnp.exp(start.normalised().log_weights)

        def follow(now: Measure, leg: tuple[Array, ...]) -> tuple[Measure, Array]:
            begin, end, first, last = leg
            now = now.with_points(first) if self.restart else now
            there = evolve(flow, now, end, begin=begin, **dict(self.how))
            return there, weights @ jnp.sum(jnp.square(there.points - last), axis=1)

        legs = (self.times[:-1], self.times[1:], observed[:-1], observed[1:])
        return jnp.mean(jax.lax.scan(follow, start, legs)[1])


def fit(
    flow: Flow, trajectory: Trajectory, parameters: Paths | Sequence[Paths], *, restart: bool = False, **options: Any
) -> Learned:
    """Fit parameters of a flow so that its trajectory matches an observed one, starting from the given flow.

    Parameters: the initial `flow`; the observed `trajectory`; `parameters`, paths such as "drift.kernel.beta",
    "drift.kernel.query" or "drift.value"; `restart`, `rtol`, `atol`, `solver` and `max_steps` as for `TrajectoryError`;
    the other `options` are those of `learn`.
    """
    check_kind(flow, Flow, "flow", "a flow")
    if flow.is_noisy:
        raise ArgumentError(
            "A flow with noise has no single trajectory to compare with an observed one; learn it at temperature 0."
        )
    solving = {name: options.pop(name) for name in ("rtol", "atol", "solver", "max_steps") if name in options}
    return learn(flow, TrajectoryError(trajectory, restart=restart, **solving), parameters, **options)


def _frames(trajectory: Trajectory) -> np.ndarray:
    """The points (t, r, n, d) of a particle trajectory, checked to be finite and to have at least two frames."""
    if trajectory.is_fixed or "masses" in trajectory.fields:
        raise ArgumentError("The trajectory is that of a density, whose points stay; a flow is learned from particles.")
    points = np.asarray(trajectory.points[:])
    points = points[:, None] if points.ndim == 3 else points
    if len(points) < 2:
        raise ShapeError(f"A trajectory must have at least two frames to be fitted, but has {len(points)}.")
    if not np.isfinite(points).all():
        raise ArgumentError("The trajectory holds points that are not finite; leave out the frames after a failure.")
    return points


def _starts(trajectory: Trajectory, first: np.ndarray) -> Measure:
    """The initial measures of all runs, stacked along a leading axis."""
    dtype = first.dtype
    weights = np.log(np.maximum(trajectory.weights, np.finfo(dtype).tiny)).astype(dtype)
    fields = {name: np.asarray(values[0]) for name, values in trajectory.fields.items()}

    def of(run: int) -> Measure:
        def own(array: np.ndarray | None, axes: int) -> np.ndarray | None:
            if array is None:
                return None
            return (array[run] if trajectory.runs is not None and array.ndim > axes else array).astype(dtype)

        carried = None if trajectory.values is None else own(np.asarray(trajectory.values), 1)
        mine = {name: values[run] if trajectory.runs is not None else values for name, values in fields.items()}
        return as_start(Measure(first[run], own(weights, 1), carried, own(trajectory.positions, 1), mine))

    return jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *map(of, range(len(first))))
