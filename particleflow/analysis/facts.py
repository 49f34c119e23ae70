"""What a run says about itself: the space its points live in, and the interactions that move them.

A simulation stores both as plain tables in the trajectory's metadata,

    space         {kind: "sphere" | "flat", radius, coordinates, sees_stored}
    interactions  [{kernel: {kind, form, beta, query, key, …}, normalization, positional, data, value, output}, …]

(where the runs of an ensemble differ, a value is {runs: [...]}, of which `trajectory.run(r)` keeps one), and everything
in `analysis` asks here, never for the name of a geometry. Files without these tables are read by the
name of their geometry and by the text of their scenario, in the last part of this module and nowhere else.

Metadata come from files, so nothing in them is trusted: what has the wrong type is unknown, never an error. Unknown is
None, and a reader that needs the fact does without its result.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from particleflow.analysis.positions import EVERYONE, PositionKernel, factors_of, is_of_positions, position_kernel

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory

NORMALIZATIONS = ("row", "none", "sinkhorn")
UNKNOWN = "unknown"

LinearMap = float | NDArray[np.float64]


@dataclass(frozen=True)
class Space:
    """Where the stored points live.

    kind: "sphere", {|x| = radius}, or "flat", R^d; radius: None where it does not exist or is not known; coordinates:
    what the stored coordinates mean, in words; sees_stored: whether the kernels see the stored points themselves (a
    gain, a bias or a moving frame may come between).
    """

    kind: str
    radius: float | None = None
    coordinates: str | None = None
    sees_stored: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Interaction:
    """One drift with a kernel: its weights are w_j K₁(x_i, y_j) K₂(t_i, s_j), normalised in some way.

    kind, form: of K₁; the form "inner" of the kind "attention" is exp β⟨Qx, Ky⟩; beta, query, key: its parameters, Q
    and K each a number, a diagonal or a matrix; normalization: one of NORMALIZATIONS; positional: the kind of K₂, None
    if there is none; positions: K₂ itself, together with the factors of K₁ that are kernels of positions; data: the
    points y are fixed data rather than the particles; taught: these carry values of their own, such as what came next;
    value: O V of the velocity O V m. What else is None is not known.
    """

    kind: str | None
    form: str | None
    beta: float | None
    query: LinearMap | None = 1.0
    key: LinearMap | None = 1.0
    normalization: str | None = "row"
    positional: str | None = None
    positions: PositionKernel | None = EVERYONE
    data: bool = False
    taught: bool = False
    value: LinearMap | None = None

    @property
    def is_attention(self) -> bool:
        """Whether the particles attend to each other by exp β⟨Qx, Ky⟩, all known but perhaps for K₂."""
        known = None not in (self.beta, self.normalization) and self.query is not None and self.key is not None
        return known and (self.kind, self.form) == ("attention", "inner") and not self.data


def space_of(trajectory: "Trajectory") -> Space:
    """Return where a run lives; of an ensemble, what holds for all of its runs."""
    table = _metadata(trajectory).get("space")
    kind = table.get("kind") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or kind not in ("sphere", "flat"):
        return _space_from_name(trajectory)
    radius = _number(table.get("radius")) if kind == "sphere" else None
    return Space(
        kind=str(kind),
        radius=radius if radius is not None and radius > 0 else None,
        coordinates=_text(table.get("coordinates")),
        sees_stored=table.get("sees_stored") is True,
    )


def interactions_of(trajectory: "Trajectory") -> tuple[Interaction, ...]:
    """Return the interactions of a run in the order of its drifts, as far as they are known."""
    table = _metadata(trajectory).get("interactions")
    if not isinstance(table, list | tuple):
        return _interactions_from_scenario(trajectory)
    return tuple(_interaction(row) for row in table)


def interacts_only(trajectory: "Trajectory") -> bool:
    """Return whether its interactions alone move the particles of a run, without constraint; if not known, no."""
    stored = _metadata(trajectory).get("interacts only")
    return stored if isinstance(stored, bool) else _metadata(trajectory).get("drift") == _BARE_ATTENTION


def linking_distance_of(trajectory: "Trajectory") -> float | None:
    """Return the distance at which the event of a run takes particles for one, None where there is none such."""
    distance = _number(_metadata(trajectory).get("linking distance"))
    return distance if distance is not None and 0 < distance < np.inf else None


def _interaction(row: Any) -> Interaction:
    table = row if isinstance(row, Mapping) else {}
    normalization, positional = table.get("normalization"), table.get("positional")
    kernel, factors = _without_positions(table.get("kernel"))
    whole = [*factors, *([] if positional is None else [positional])]
    return Interaction(
        kind=_text(kernel.get("kind")),
        form=_text(kernel.get("form")),
        beta=_number(kernel.get("beta")),
        query=_linear_map(kernel.get("query", 1.0)),
        key=_linear_map(kernel.get("key", 1.0)),
        normalization=normalization if isinstance(normalization, str) and normalization in NORMALIZATIONS else None,
        positional=_kind(positional),
        positions=position_kernel({"kind": "product", "kernels": whole}),
        data=table.get("data", False) is not False,
        taught=table.get("taught") is True,
        value=_product(_linear_map(table.get("output", 1.0)), _linear_map(table.get("value"))),
    )


def _without_positions(table: Any) -> tuple[Mapping[str, Any], list[Any]]:
    """K₁ without those of its factors that are kernels of positions, and these factors."""
    factors = factors_of(table)
    others = [each for each in factors if not is_of_positions(each)]
    kernel = others[0] if len(others) == 1 else table
    return kernel if isinstance(kernel, Mapping) else {}, [each for each in factors if is_of_positions(each)]


def _kind(table: Any) -> str | None:
    """The kind of an optional table; something else than a table is there, but unknown."""
    if table is None:
        return None
    return (_text(table.get("kind")) if isinstance(table, Mapping) else None) or UNKNOWN


def _metadata(trajectory: "Trajectory") -> Mapping[str, Any]:
    metadata: Any = trajectory.metadata
    return metadata if isinstance(metadata, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def numbers_in(value: Any) -> NDArray[np.float64]:
    """The finite numbers of a value in a row, also of one that differs from run to run; none of what is no number."""
    array = _numbers(value["runs"] if isinstance(value, Mapping) and "runs" in value else value)
    return np.zeros(0) if array is None else array.ravel()


def _number(value: Any) -> float | None:
    array = _numbers(value)
    return float(array) if array is not None and array.ndim == 0 else None


def _linear_map(value: Any) -> LinearMap | None:
    array = _numbers(value)
    if array is None or array.ndim > 2:
        return None
    return float(array) if array.ndim == 0 else array


def _product(outer: LinearMap | None, inner: LinearMap | None) -> LinearMap | None:
    """Outer ∘ inner of numbers, diagonals and matrices; unknown where one is, or where they do not fit."""
    if outer is None or inner is None:
        return None
    left, right = np.asarray(outer), np.asarray(inner)
    if left.ndim and right.ndim:
        left, right = (np.diag(each) if each.ndim == 1 else each for each in (left, right))
        return left @ right if left.shape[1] == right.shape[0] else None
    product = left * right
    return float(product) if product.ndim == 0 else product


def _numbers(value: Any) -> NDArray[np.float64] | None:
    """Finite numbers of any shape; text, truth values, gaps and ragged rows are none."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            return None
        array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return array if array.size and np.isfinite(array).all() else None


# Runs without these tables: the name of the geometry and the text of the scenario are all there is.

_UNIT_SPHERES = ("sphere", "ngpt", "pre_norm", "peri_norm", "sqrt_scaled")
_ROOT_SPHERES = ("layer_norm", "rms_norm")
_BARE_ATTENTION = "attend"  # the drift of older files that is nothing but its kernel


def _space_from_name(trajectory: "Trajectory") -> Space:
    """Unit spheres, spheres of radius √d (where a gain may come before the kernel), and everything else flat."""
    geometry = _metadata(trajectory).get("geometry", "euclidean")
    name = str(geometry.get("kind") if isinstance(geometry, Mapping) else geometry)
    if name in _UNIT_SPHERES:
        return Space("sphere", 1.0, sees_stored=True)
    if name in _ROOT_SPHERES:
        return Space("sphere", float(np.sqrt(trajectory.dimension)))
    return Space("flat", sees_stored=name == "euclidean")


def _interactions_from_scenario(trajectory: "Trajectory") -> tuple[Interaction, ...]:
    """The drifts of a scenario that have a kernel; only the attention kernel is known by its name."""
    try:
        drifts = tomllib.loads(str(_metadata(trajectory).get("scenario", ""))).get("drift", [])
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()
    found: list[Interaction] = []
    for drift in drifts if isinstance(drifts, list) else [drifts]:
        kernel = drift.get("kernel") if isinstance(drift, dict) else None
        if isinstance(kernel, dict):
            form = "inner" if kernel.get("kind") == "attention" else "other"
            described = {"beta": 1.0, **kernel, "form": form}
            value = 1.0 if drift.get("kind") == "attend" else None
            given = {"kernel": described, "data": drift.get("data") is not None}
            row = {"normalization": "row", "value": value, **drift, **given}
            found.append(_interaction(row))
    return tuple(found)
