"""What theory says of a run that goes through a transition and back, stored with it so that pictures can show it.

A drift of strength κ against noise of temperature T has the stationary states of T/κ, so that the branch of
`theory.stability.branches`, which is followed in temperature, gives the states at every κ.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from particleflow.simulation.plan import Plan

_HARMONICS = 48
_BEYOND = 1.02  # the branch is followed to this multiple of the largest strength


def transition_of(plan: "Plan") -> dict[str, Any]:
    """The metadata {"transition": …} of a plan whose one attention on the circle, against noise, grows and falls again.

    The table has the branch of one cluster: its `values` of the `parameter`, `orders` R and whether it is `stable`; the
    `limit`, where the uniform state loses its stability; `folds` and values of `equal` free energy. It is empty for all
    other plans, and where the theory does not hold.
    """
    strengths = _strengths(plan)
    if strengths is None or not ((np.diff(strengths) > 0).any() and (np.diff(strengths) < 0).any()):
        return {}
    with suppress(ArgumentError, ShapeError):
        return {"transition": _branch(plan, strengths)}
    return {}


def _strengths(plan: "Plan") -> np.ndarray | None:
    """The scheduled values of the one interaction of a noisy run on a circle, None for any other run."""
    from particleflow.simulation.recording.provenance import describe

    flow = plan.flow_of(0)
    if plan.flow_per_run or plan.start.points.shape[-1] != 2 or not float(flow.temperature) > 0:
        return None
    facts = describe(plan)
    known, alone = (
        facts.get("schedule", {}),
        len(facts["interactions"]) == 1 and flow.drift.interacts_only(plan.times[0]),
    )
    values = np.asarray(known.get("values", []), float)
    circle = facts["space"]["kind"] == "sphere"
    return values if alone and circle and known.get("name") == "value" and (values > 0).all() else None


def _branch(plan: "Plan", strengths: np.ndarray) -> dict[str, Any]:
    """The branch of one cluster in units of the strength."""
    from particleflow.theory.stability.branches import branches
    from particleflow.theory.stability.uniform_growth import mode_temperatures

    flow, time = plan.flow_of(0), float(plan.times[0])
    scale = float(strengths[0]) * float(flow.temperature)  # κ = scale / (temperature of the branch)
    critical = float(mode_temperatures(flow, np.array([1]), 2, time)[0])
    lowest = min(scale / (_BEYOND * float(strengths.max())), 0.9 * critical)
    found = branches(flow, (1,), lowest=lowest, harmonics=_HARMONICS, time=time)[0]
    return {
        "parameter": "value",
        "values": (scale / found.temperatures).tolist(),
        "orders": found.orders.tolist(),
        "stable": found.stable.tolist(),
        "limit": scale / found.critical_temperature,
        "folds": [scale / point.temperature for point in found.folds],
        "equal": [scale / point.temperature for point in found.equal],
    }
