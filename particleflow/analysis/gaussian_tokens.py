"""Whether a run obeys the law of Gaussian tokens, s' = 2 r s² for each principal variance s, and its rate r.

A Gaussian under softmax attention alone, with numbers Q, K, V, in free space stays one; r = Σ β q k v over its heads.
The solution and its pole are `gaussian_variance` and `gaussian_blow_up`.
"""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.covariance import excess_kurtosis
from particleflow.analysis.reading import frame_points, frame_weights
from particleflow.analysis.samples import sampled_radius
from particleflow.trajectory.facts import StoredInteraction

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_NEARLY_GAUSSIAN = 0.5  # excess kurtosis of every coordinate in the first frame


def gaussian_rate(run: "Trajectory") -> float | None:
    """r = Σ β q k v over the heads of one run for which the law of Gaussian tokens holds; None for any other run.

    It needs: interaction by softmax attention alone, without a mask; no noise, no schedule, no sphere; numbers q, k and
    v in every head; and a first frame whose excess kurtosis is below 0.5 along every axis.
    """
    facts = run.facts
    alone = facts.interacts_only and facts.temperature == 0 and facts.schedule is None
    seen = run.particles is None and facts.space.sees_stored and bool(facts.interactions)
    if not alone or not seen:
        return None
    rates = [_rate_of(head) for head in facts.interactions]
    if sampled_radius(run) is not None or any(rate is None for rate in rates):
        return None
    kurtosis = excess_kurtosis(frame_points(run, 0), frame_weights(run, 0))
    return sum(rate for rate in rates if rate is not None) if (np.abs(kurtosis) < _NEARLY_GAUSSIAN).all() else None


def _rate_of(head: StoredInteraction) -> float | None:
    """β q k v of a head whose softmax runs over all tokens, with numbers q, k and v; else None."""
    plain = head.normalization == "row" and head.positions is not None and not head.positions.factors
    maps = [head.query, head.key, head.value]
    if not head.is_attention or not plain or any(each is None or np.ndim(each) > 0 for each in maps):
        return None
    return float(np.prod([float(head.beta or 0.0), *(float(each) for each in maps)]))  # type: ignore[arg-type]
