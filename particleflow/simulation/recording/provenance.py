"""The metadata of a run: versions and machine, settings, what interacts, what never changes, the shapes of a frame."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from particleflow._support.text import kind_of
from particleflow.discretization import Present
from particleflow.discretization.discretization_capabilities import ClosedForm, InBox
from particleflow.dynamics.drifts.base import Interaction
from particleflow.dynamics.geometry import Unconstrained
from particleflow.kernels.description import described
from particleflow.simulation.plan import EVENT_TIME, Plan
from particleflow.simulation.stepping import frame
from particleflow.summation.native.build import library

# The version of checkpoints: raised whenever a run resumed from an older one would not repeat the uninterrupted run.
RUN_FORMAT = 7
SURROUNDINGS = ("versions", "device", "platform", "native sum", "sharing")  # compared when a run goes on elsewhere
# The packages whose versions may decide the numbers of a run, or the bytes of its file.
_PACKAGES = (
    "particleflow", "jax", "jaxlib", "jax-finufft", "diffrax", "equinox", "lineax", "optimistix", "numpy", "scipy",
    "h5py",
)  # fmt: skip
_LARGEST_TABLE = 512  # entries; larger tables are left out of the metadata
_SCHEDULE_POINTS = 65
_BEFORE_JUMP_ULPS = 32.0  # this much before a jump the field is that before it; layers change within 8 units
_SCHEDULED = ("beta", "width", "radius", "value")  # the last is that of the interaction, not of its kernel
_MOST_DATA = 20_000  # numbers of fixed data that the metadata hold


def surroundings(device: Any, packages: tuple[str, ...] = (), sharing: str | None = None) -> dict[str, Any]:
    """The software and hardware of a run on a device: versions of packages, device, native code, platform.

    Parameters: `device`; `packages` whose versions matter beside those that every run uses; `sharing`, what devices
    share, None for nothing.
    """
    import platform

    return {
        "run format": RUN_FORMAT,
        "versions": _versions(packages),
        "device": f"{device.platform} ({device.device_kind})",
        "sharing": sharing,
        "native sum": library().description,
        "platform": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def changed_surroundings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between the software and hardware of two `surroundings`, in words.

    Parameters: `before`, as stored in a file or a checkpoint; `now`, those of this process.
    """
    old, new = ({name: each.get(name) for name in SURROUNDINGS} for each in (before, now))
    versions, others = (each.pop("versions") or {} for each in (old, new))
    changes = [f"{name} {was} → {others.get(name)}" for name, was in versions.items() if others.get(name) != was]
    return changes + [
        f"{name} {was or 'none'} → {new[name] or 'none'}" for name, was in old.items() if new[name] != was
    ]


def describe(plan: Plan) -> dict[str, Any]:
    """The settings, space, interactions and precision of a run, as plain values by name; lists where runs differ."""
    facts = plan.flow.geometry.facts(plan.start.points.shape[-1]).description()
    interactions = [each.description() for each in _interactions(plan)]
    begin = jnp.asarray(plan.times[0], plan.dtype)
    if plan.flow_per_run:
        facts, interactions = _by_run(facts, plan.runs), _by_run(interactions, plan.runs)
    return {
        "geometry": plan.flow.geometry.name,
        "space": facts,
        "drift": kind_of(type(plan.flow.drift)),
        "interactions": interactions,
        "closed form": isinstance(plan.discretization, ClosedForm),
        "interacts only": isinstance(plan.flow.geometry, Unconstrained) and plan.flow_of(0).drift.interacts_only(begin),
        "driven by interactions": plan.flow_of(0).drift.interacts_only(begin),
        "temperature": _by_run(np.asarray(plan.flow.temperature, float).tolist(), plan.runs),
        "common temperature": _by_run(np.asarray(plan.flow.common_temperature, float).tolist(), plan.runs),
        "count": int(plan.start.points.shape[-2]),
        **_depth(plan),
        **_fixed_data(plan),
        "discretization": kind_of(type(plan.discretization)),
        "ends meet": isinstance(plan.discretization, InBox) and plan.discretization.periodic,
        "event": None if plan.event is None else kind_of(type(plan.event)),
        "linking distance": None if plan.event is None else plan.event.linking_distance(),
        "precision": str(np.dtype(plan.dtype)),
        "solver": plan.method.solver,
        "solver in some windows": None if plan.late_method is None else plan.late_method.solver,
        "rtol": float(plan.numbers.rtol),
        "atol": float(plan.numbers.atol),
        "step": float(plan.numbers.step),
    }


def _interactions(plan: Plan) -> tuple[Interaction, ...]:
    """What interacts when the run begins; the numbers of an ensemble's flows are lists over its runs."""
    time = jnp.asarray(plan.times[0], plan.dtype)
    if not plan.flow_per_run:
        return plan.flow.interactions(time)
    return eqx.filter_vmap(lambda flow: flow.interactions(time), in_axes=eqx.if_array(0))(plan.flow)


def _by_run(value: Any, runs: int | None) -> Any:
    """Descriptions of vmapped objects, whose numbers are lists over runs: one value if all agree, else {"runs": …}."""
    if isinstance(value, dict):
        return {key: inner if key == "omitted" else _by_run(inner, runs) for key, inner in value.items()}
    if isinstance(value, list) and len(value) == runs and not any(isinstance(inner, dict) for inner in value):
        return value[0] if all(inner == value[0] for inner in value) else {"runs": value}
    return [_by_run(inner, runs) for inner in value] if isinstance(value, list) else value


def _depth(plan: Plan) -> dict[str, Any]:
    """What changes with time in the (first) flow: when the field jumps, and the `schedule` of β, a width or a value."""
    flow, times = plan.flow_of(0), np.asarray(plan.times, float)
    jumps = _jumps_inside(flow, times)
    found: dict[str, Any] = {"changes": jumps} if 0 < len(jumps) <= _LARGEST_TABLE else {}
    name = _scheduled_number(flow, (times[0], times[-1], *jumps[:8]), plan.dtype)
    return found if name is None else found | {"schedule": _schedule(flow, name, times, jumps, plan.dtype)}


def _fixed_data(plan: Plan) -> dict[str, Any]:
    """The points of the first fixed data that the (first) flow looks at when the run begins, if they are few."""
    interactions = plan.flow_of(0).interactions(jnp.asarray(plan.times[0], plan.dtype))
    data = next((each.data for each in interactions if each.data is not None), None)
    few = data is not None and data.points.size <= _MOST_DATA
    return {"data points": np.asarray(data.points, float).tolist()} if data is not None and few else {}


def _jumps_inside(flow: Any, times: np.ndarray) -> list[float]:
    """The times, in order, at which the field jumps within a run."""
    jumps = np.unique(np.concatenate([np.zeros(0), *(np.ravel(np.asarray(each)) for each in flow.drift.changes())]))
    return jumps[(jumps > times[0]) & (jumps < times[-1])].tolist()


def _scheduled_number(flow: Any, looked_at: Any, dtype: Any) -> str | None:
    """The first of β, width, radius and value that differs between these times; None where none does."""
    return next((name for name in _SCHEDULED if _changes(flow, name, looked_at, dtype)), None)


def _schedule(flow: Any, name: str, times: np.ndarray, jumps: list[float], dtype: Any) -> dict[str, Any]:
    """A number of the kernel over a run, at even times and just before and at every jump."""
    before = _BEFORE_JUMP_ULPS * float(jnp.finfo(dtype).eps)
    corners = [moment for time in jumps for moment in (time - before * abs(time), time)]
    clock = np.unique(np.concatenate([np.linspace(times[0], times[-1], _SCHEDULE_POINTS), corners]))
    values = [_first_number(flow, name, time, dtype) for time in clock.tolist()]
    return {"name": name, "times": clock.tolist(), "values": values}


def _changes(flow: Any, name: str, times: Any, dtype: Any) -> bool:
    """Whether a number of the kernel is known at all these times, and is not always the same."""
    numbers = [_first_number(flow, name, time, dtype) for time in times]
    return None not in numbers and len(set(numbers)) > 1


def _first_number(flow: Any, name: str, time: float, dtype: Any) -> float | None:
    """The β, width or radius of the first kernel that has one, or the value of the first interaction, at a time."""
    interactions = flow.interactions(jnp.asarray(time, dtype))
    tables = (each.description() if name == "value" else described(each.kernel) for each in interactions)
    numbers = (table[name] for table in tables if isinstance(table.get(name), float))
    return next(numbers, None)


@cache
def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in (*_PACKAGES, *packages)}


def particle_constants(plan: Plan) -> dict[str, np.ndarray]:
    """The weights, positions and values that particles keep, one row a run only where runs differ."""
    given = {name: getattr(plan.start, name) for name in ("log_weights", "positions", "values")}
    arrays = {name: np.asarray(values, float) for name, values in given.items() if values is not None}
    if plan.runs is None:
        return arrays
    # Values have further axes, from which an axis of runs cannot be told apart, so theirs is always kept.
    return {name: rows[0] if name != "values" and (rows == rows[0]).all() else rows for name, rows in arrays.items()}


def constant_points(plan: Plan) -> np.ndarray:
    """The points, of all runs, of a discretization whose points never move."""
    state = plan.begin()

    def points(run: int) -> np.ndarray:
        mine = jax.tree_util.tree_map(lambda leaf: leaf[run], state)
        return np.asarray(_points(plan.present(run, mine, plan.times[0])))

    return points(0) if plan.runs is None else np.stack([points(run) for run in range(plan.runs)])


@eqx.filter_jit
def _points(present: Present) -> jax.Array:
    """The points of a present, as one compiled program."""
    return present.measure.points


def frame_shapes(plan: Plan) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """The shapes of a frame's fields (of one run) and of its observables (of all runs)."""
    runs = () if plan.runs is None else (plan.runs,)
    begin = plan.discretization.begin(plan.flow_of(0), plan.start_of(0))
    fields, observables = jax.eval_shape(lambda: frame(plan.observe, plan.present(0, begin, plan.times[0])))
    shapes = {name: runs + leaf.shape for name, leaf in observables.items()}
    if plan.event is not None and plan.runs is not None:
        shapes[EVENT_TIME] = runs
    return {name: leaf.shape for name, leaf in fields.items()}, shapes
