"""A fixed point as a search found it: its points, its residual, and the eigenvalues of the flow near it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from particleflow.theory.equilibria.stability_kind import Nature

_LISTED = 6  # the most eigenvalues or places that a card lists


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A fixed point of a flow or of one explicit layer, or the place where the search for one has ended.

    Attributes: `found`, whether the field is zero there to rounding; its `time`, and `timeless`, whether the field does
    not depend on time, so that the point is fixed at all times; `layer`, the size of an explicit layer, None for a
    flow; `points` (n, d) and other `fields` of every particle; `residual_before` and `residual`, the largest component
    of the velocity (of a layer, the largest move) at the guess and here; `steps` of the search; `moved`, the largest
    distance of a particle from its guess; `sizes`, the number of particles at every place, all 1 unless some were
    merged.

    `eigenvalues` (k,), by decreasing growth, with `multiplicities` (k,): growth rates of a flow, multipliers of a
    layer. `places` (k,): −1 for motions of places, the number of a place for motions of its particles relative to it.
    `nature`: the kind that follows; None where the point was not found, or where the field bends or jumps (`smooth` is
    False) and has no linear part. `guesses`: the numbers of the guesses that led here.
    """

    found: bool
    smooth: bool
    timeless: bool
    time: float
    layer: float | None
    points: np.ndarray
    fields: dict[str, np.ndarray]
    residual_before: float
    residual: float
    steps: int
    moved: float
    sizes: np.ndarray
    eigenvalues: np.ndarray
    multiplicities: np.ndarray
    places: np.ndarray
    nature: Nature | None
    guesses: tuple[int, ...]

    @property
    def spectrum(self) -> np.ndarray:
        """All eigenvalues, each repeated by its multiplicity."""
        return np.repeat(self.eigenvalues, self.multiplicities)

    def same_place(self, other: "FixedPoint", tolerance: float) -> bool:
        """Whether points and other fields of both agree, particle by particle, up to a relative `tolerance`.

        Permuted particles and rotated configurations do not agree.
        """
        pairs = [(self.points, other.points), *((array, other.fields[name]) for name, array in self.fields.items())]
        scale = max(1.0, *(float(np.max(np.abs(ours), initial=0.0)) for ours, _ in pairs))
        return all(float(np.max(np.abs(ours - theirs), initial=0.0)) <= tolerance * scale for ours, theirs in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return the fixed point for JSON; eigenvalues are pairs of real and imaginary part."""
        return {
            "found": self.found,
            "smooth": self.smooth,
            "timeless": self.timeless,
            "time": self.time,
            "layer": self.layer,
            "residual_before": _finite(self.residual_before),
            "residual": _finite(self.residual),
            "steps": self.steps,
            "moved": _finite(self.moved),
            "sizes": self.sizes.tolist(),
            "nature": None if self.nature is None else self.nature.to_dict(),
            "eigenvalues": np.stack([np.real(self.eigenvalues), np.imag(self.eigenvalues)], axis=1).tolist(),
            "multiplicities": self.multiplicities.tolist(),
            "places": self.places.tolist(),
            "guesses": list(self.guesses),
            "points": self.points.tolist() if np.isfinite(self.points).all() else None,
        }

    def rows(self) -> dict[str, str]:
        """The lines of the printed card, by name."""
        what = "a flow" if self.layer is None else f"a layer of size {self.layer:g}"
        when = "" if self.timeless else f", at t = {self.time:g} only: it changes with time"
        count, dimension = self.points.shape
        rows = {
            "of": what + when,
            "particles": f"{count} in dimension {dimension}{_places(self.sizes)}",
            "residual": f"{self.residual_before:.2e} → {self.residual:.2e} in {self.steps} steps",
            "moved": f"by {self.moved:.3g} at most",
        }
        if self.nature is not None:
            rows["nature"] = str(self.nature)
            name = "eigenvalues" if self.layer is None else "multipliers"
            rows[name] = _listed(self.eigenvalues, self.multiplicities)
        return rows

    def __str__(self) -> str:
        head = "Fixed point" if self.found else "No fixed point was found"
        if self.found and not self.smooth:
            head += " where the field bends or jumps: it has no eigenvalues"
        rows = self.rows()
        width = max(map(len, rows))
        return "\n".join([head, *(f"  {name:<{width}}  {text}" for name, text in rows.items())])

    def __repr__(self) -> str:
        return str(self)


def _finite(number: float) -> float | None:
    """The number, or None (JSON's null) for infinity and NaN."""
    return number if np.isfinite(number) else None


def _places(sizes: np.ndarray) -> str:
    """The text on merged places and their sizes; empty where no particles were merged."""
    if not (sizes > 1).any():
        return ""
    shown = np.sort(sizes)[::-1]
    more = ", …" if len(shown) > _LISTED else ""
    places = "1 place" if len(sizes) == 1 else f"{len(sizes)} places"
    return f", at {places} ({', '.join(map(str, shown[:_LISTED]))}{more})"


def _listed(eigenvalues: np.ndarray, multiplicities: np.ndarray) -> str:
    """The text of the first few different eigenvalues and of the last, with multiplicities."""
    merged: list[tuple[complex, int]] = []
    for value, number in zip(eigenvalues.tolist(), multiplicities.tolist(), strict=True):
        near = merged and abs(value - merged[-1][0]) <= 1e-6 * max(1.0, abs(value))
        merged[-1:] = [(merged[-1][0], merged[-1][1] + number)] if near else [*merged[-1:], (value, number)]
    texts = [_number(value) + (f" (× {number})" if number > 1 else "") for value, number in merged]
    return ", ".join(texts if len(texts) <= _LISTED else [*texts[: _LISTED - 1], "…", texts[-1]])


def _number(value: complex) -> str:
    """Four digits of a complex number, without an imaginary part that is rounding."""
    if abs(value.imag) <= 1e-9 * max(1.0, abs(value)):
        return f"{value.real:.4g}"
    return f"{value.real:.4g} {'+' if value.imag > 0 else '−'} {abs(value.imag):.4g}i"
