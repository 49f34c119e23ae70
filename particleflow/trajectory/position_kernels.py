"""Kernels K₂(t, s) of token positions, made from the descriptions that files hold.

With the lag l = t − s between the position t of a query and the position s of a source, log K₂ is

    causal            0 where l ≥ 0, else −∞
    strictly_causal   0 where l > 0, else −∞
    others            −∞ where l = 0, else 0
    window            0 where |l| < radius, else −∞
    alibi             −slope |l|
    time_gaussian     −l² / (2 width²)
    product           the sum over its factors

and a positive multiple of a kernel counts as the kernel, since a factor changes no normalised weight. A description is
a table as a run stores it, {"kind": "alibi", "slope": 0.1}. Any other kind is unknown: its kernel is None rather than
wrong.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.float64]


def _mask(seen: NDArray[np.bool_]) -> _Array:
    """log K₂ of a mask: 0 where a token is seen, −∞ where not."""
    return np.where(seen, 0.0, -np.inf)


# Kind → the name of its parameter, and log K₂ of lags and parameter.
_FORMULAS: dict[str, tuple[str | None, Callable[[_Array, float], _Array]]] = {
    "causal": (None, lambda lags, _: _mask(lags >= 0)),
    "strictly_causal": (None, lambda lags, _: _mask(lags > 0)),
    "others": (None, lambda lags, _: _mask(lags != 0)),
    "window": ("radius", lambda lags, radius: _mask(np.abs(lags) < radius)),
    "alibi": ("slope", lambda lags, slope: -slope * np.abs(lags)),
    "time_gaussian": ("width", lambda lags, width: -0.5 * np.square(lags / width)),
}
_ONE_SIDED = ("causal", "strictly_causal")


@dataclass(frozen=True)
class PositionKernel:
    """A product of known kernels of positions, each by its kind and its parameter; without any, K₂ = 1."""

    factors: tuple[tuple[str, float], ...] = ()

    @property
    def is_causal(self) -> bool:
        """Whether K₂(t, s) = 1 where s ≤ t, else 0, and nothing else."""
        return bool(self.factors) and all(kind == "causal" for kind, _ in self.factors)

    @property
    def is_one_sided(self) -> bool:
        """Whether K₂(t, s) = 0 for every source at a later position s > t, as in every causal mask."""
        return any(kind in _ONE_SIDED for kind, _ in self.factors)

    @property
    def is_of_distance(self) -> bool:
        """Whether K₂ depends on the distance |t − s| with a length scale, so that positions are places.

        Masks that depend on the order alone (causal, others) have no such scale.
        """
        return not self.is_one_sided and any(_FORMULAS[kind][0] is not None for kind, _ in self.factors)

    def log_matrix(self, queries: _Array, sources: _Array) -> _Array:
        """Return log K₂(t_i, s_j) of the positions t of the queries and s of the sources, (m, n)."""
        lags = queries[:, None] - sources[None, :]
        return sum((_FORMULAS[kind][1](lags, number) for kind, number in self.factors), start=np.zeros_like(lags))

    def description(self) -> list[dict[str, Any]]:
        """Return the factors as tables for JSON, {"kind": …} with the parameter by its name."""
        named = [(kind, _FORMULAS[kind][0], number) for kind, number in self.factors]
        return [{"kind": kind} | ({} if name is None else {name: number}) for kind, name, number in named]


ALL_SEE_ALL = PositionKernel()
CAUSAL = PositionKernel((("causal", 0.0),))


def position_kernel(table: Any) -> PositionKernel | None:
    """Return the kernel of a description: K₂ = 1 for None, and None where a factor is not known.

    An unknown factor makes the whole product unknown, since leaving it out would give wrong weights.
    """
    found = [_factor(each) for each in ([] if table is None else factors_of(table))]
    return None if None in found else PositionKernel(tuple(each for each in found if each is not None))


def factors_of(table: Any) -> list[Any]:
    """Return the descriptions of a kernel's factors: products are taken apart, a positive multiple is the kernel."""
    if isinstance(table, Mapping) and table.get("kind") == "product" and isinstance(table.get("kernels"), list | tuple):
        return [factor for kernel in table["kernels"] for factor in factors_of(kernel)]
    if isinstance(table, Mapping) and table.get("kind") == "scaled" and (_number(table.get("factor")) or 0) > 0:
        return factors_of(table.get("kernel"))
    return [table]


def is_of_positions(table: Any) -> bool:
    """Whether a description says that its kernel is one of positions."""
    return isinstance(table, Mapping) and table.get("form") == "positional"


def _factor(table: Any) -> tuple[str, float] | None:
    """The kind and the parameter of one kernel; None if it is unknown or out of its range.

    A table that a user writes has no `form`; in one that a run has stored it must be "positional".
    """
    if not isinstance(table, Mapping) or table.get("form", "positional") != "positional":
        return None
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _FORMULAS:
        return None
    name, _ = _FORMULAS[kind]
    number = 0.0 if name is None else _number(table.get(name))
    if number is None or number < 0 or (number == 0 and name in ("radius", "width")):
        return None
    return kind, number


def _number(value: Any) -> float | None:
    """A finite number; None for text, booleans and lists over runs."""
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return float(value) if plain and np.isfinite(value) else None
