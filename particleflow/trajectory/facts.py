"""Facts about a run, parsed once from its metadata: its space, its interactions, its noise, its schedule.

A simulation stores plain tables in the trajectory's metadata:

    space               {kind: "sphere" | "flat", radius, coordinates, sees_stored}
    interactions        [{kernel: {kind, form, beta, query, key, …}, normalization, positional, data, value, output}, …]
    interacts only      whether nothing but its interactions moves the particles, no constraint either
    driven by interactions  the same, but for the constraint of a space
    event               the kind of event that ends the run, such as "merged"
    linking distance    the distance up to which the run's event counts particles as one cluster
    closed form         whether the points represent a normal law, of which only mean and covariance are integrated
    ends meet           whether the cells of a density lie on a torus
    solver              the method that made the frames; "map" for steps with nothing in between, such as layers
    temperature         of the noise that is independent for every particle
    common temperature  of the noise that is the same for all particles
    count               how many particles move, of which some may be stored
    changes             [times at which the field jumps: layer boundaries, kinks of a schedule]
    schedule            {name, times, values} of a parameter that changes with time, such as β
    picture             [rows, columns] of the patches of an image
    image               [rows, columns] or [rows, columns, channels] of the image that every point is, or begins with
    data points         [[…], …] of the fixed data that the first interaction with data looks at, if they are few
    transition          what theory says of a transition between two states as a parameter changes, see `StoredBranch`

Where the runs of an ensemble differ, a value is {runs: [...]}, of which `trajectory.run(r)` keeps one. These tables are
parsed at the first use of `Trajectory.facts` into one frozen `RunFacts`, which every slice shares; analysis and
pictures read that, never the metadata, and never decide by the name of a geometry. Only where metadata have no table
`space`, as those that a user gives to `Trajectory.from_arrays`, the geometry's name decides.

Metadata come from files, so nothing in them is trusted: what has the wrong type is unknown, never an error. Unknown is
None (of a truth value, false), and a reader that needs the fact does without its result.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from particleflow.trajectory.position_kernels import (
    ALL_SEE_ALL,
    PositionKernel,
    factors_of,
    is_of_positions,
    position_kernel,
)

NORMALIZATIONS = ("row", "none", "sinkhorn")
UNKNOWN = "unknown"

LinearMap = float | NDArray[np.float64]

# Lengths that kernels have besides β: those of Gaussians and of balls.
_SCALES = ("width", "radius")

# Drifts that are the layers of a transformer, and those of which one explicit step is one layer.
_NETWORKS = ("trained_layers", "random_layers", "saved_layers")
_LAYERED = (*_NETWORKS, "block")
_STACKED = "layers"  # of which a step is one layer where each lasts for one unit of time

# The entries of an ensemble's metadata in which runs may differ.
_BY_RUN = ("space", "interactions", "temperature", "common temperature")

# Geometries whose points lie on the unit sphere, and on the sphere of radius √d; all others count as flat.
_UNIT_SPHERES = ("sphere", "ngpt", "pre_norm", "peri_norm", "sqrt_scaled")
_ROOT_SPHERES = ("layer_norm", "rms_norm")


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
        """Return the space as a table for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class StoredInteraction:
    """One drift with a kernel: its weights are w_j K₁(x_i, y_j) K₂(t_i, s_j), normalised in some way.

    kind, form: of K₁; the form "inner" of the kind "attention" is exp β⟨Qx, Ky⟩; beta, query, key: its parameters, Q
    and K each a number, a diagonal or a matrix; normalization: one of NORMALIZATIONS; positional: the kind of K₂, None
    if there is none; positions: K₂ itself, together with the factors of K₁ that are kernels of positions; data: the
    points y are fixed data rather than the particles; taught: the data carry values of their own, such as each point's
    successor; value: O V of the velocity O V m. Any other None means not known.
    """

    kind: str | None
    form: str | None
    beta: float | None
    query: LinearMap | None = 1.0
    key: LinearMap | None = 1.0
    normalization: str | None = "row"
    positional: str | None = None
    positions: PositionKernel | None = ALL_SEE_ALL
    data: bool = False
    taught: bool = False
    value: LinearMap | None = None

    @property
    def is_attention(self) -> bool:
        """Whether the particles attend to each other by exp β⟨Qx, Ky⟩, all known but perhaps for K₂."""
        known = None not in (self.beta, self.normalization) and self.query is not None and self.key is not None
        return known and (self.kind, self.form) == ("attention", "inner") and not self.data


@dataclass(frozen=True)
class Schedule:
    """A parameter `name` with `values` at increasing `times`, linear in between."""

    name: str
    times: NDArray[np.float64]
    values: NDArray[np.float64]

    def __call__(self, time: float) -> float:
        """Return the value at a time, interpolated linearly."""
        return float(np.interp(time, self.times, self.values))


@dataclass(frozen=True, eq=False)
class StoredBranch:
    """The branch of stationary states that leaves the uniform one, as theory has it, against a parameter.

    parameter: its name, that of the schedule; values, orders, stable: the branch point by point, the order parameter R
    and whether small perturbations decay; limit: where the uniform state loses its stability; folds: where the branch
    turns; equal: where both states have one free energy.
    """

    parameter: str
    values: NDArray[np.float64]
    orders: NDArray[np.float64]
    stable: NDArray[np.bool_]
    limit: float
    folds: tuple[float, ...] = ()
    equal: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class RunFacts:
    """All facts in a run's metadata; for an ensemble, those of all of its runs together.

    space, interactions: see their classes, interactions in the order of the drifts; space_is_stated: whether the
    metadata hold a space or a geometry; kernels: the stored descriptions of the interactions' kernels; interacts_only:
    the interactions alone move the particles; driven_by_interactions: so they do but for the constraint of the space;
    event: its kind, None without one; linking_distance: that of
    the event, None without one; is_law: the
    points represent a normal law; is_signal: every kernel depends on the distance of positions alone, so that the
    points are values of a signal at times; ends_meet: cells lie on a torus; is_map: the frames are steps of a map, with
    no states in between; temperature, common_temperature: of the noise, the largest of an ensemble; count: particles
    that move, None if not known; betas: all β of the kernels, scales: (name, length) of their widths and radii, both
    increasing; schedule: a parameter that changes; changes: times at which the field jumps; picture: (rows, columns) of
    an image's patches; image: (rows, columns) or (rows, columns, channels) of the image that every point is, or begins
    with; data_points: (n, d) that the particles look at and that stay; transition: see its class; is_network: the
    layers of a transformer move the particles, whose directions count; time_unit: what one unit of time counts, "layer"
    of a network or "step" of another map, of size 1; None where time is a time.
    """

    space: Space
    space_is_stated: bool = False
    interactions: tuple[StoredInteraction, ...] = ()
    kernels: tuple[Any, ...] = ()
    interacts_only: bool = False
    driven_by_interactions: bool = False
    event: str | None = None
    linking_distance: float | None = None
    is_law: bool = False
    is_signal: bool = False
    ends_meet: bool = False
    is_map: bool = False
    temperature: float = 0.0
    common_temperature: float = 0.0
    count: int | None = None
    betas: tuple[float, ...] = ()
    scales: tuple[tuple[str, float], ...] = ()
    schedule: Schedule | None = None
    changes: tuple[float, ...] = ()
    picture: tuple[int, int] | None = None
    image: tuple[int, ...] | None = None
    data_points: NDArray[np.float64] | None = None
    transition: StoredBranch | None = None
    is_network: bool = False
    time_unit: str | None = None

    @property
    def counts_layers(self) -> bool:
        """Whether one unit of time is one layer of a network."""
        return self.time_unit == "layer"

    @property
    def repels(self) -> bool:
        """Whether every interaction drives the particles apart: ⟨x, Vx⟩ < 0 for all x ≠ 0."""
        return bool(self.interactions) and all(is_negative(each.value) for each in self.interactions)


def parse_facts(metadata: Any, dimension: int) -> RunFacts:
    """Parse the metadata of a run; `dimension` is that of its points. A value of a wrong type counts as unknown."""
    table = metadata if isinstance(metadata, Mapping) else {}
    rows = table.get("interactions")
    rows = tuple(rows) if isinstance(rows, list | tuple) else ()
    kernels = tuple(row.get("kernel") if isinstance(row, Mapping) else {} for row in rows)
    interactions = tuple(_interaction(row) for row in rows)
    distance, count = _number(table.get("linking distance")), numbers_in(table.get("count"))
    return RunFacts(
        space=_space(table, dimension),
        space_is_stated="space" in table or "geometry" in table,
        interactions=interactions,
        kernels=kernels,
        interacts_only=_interacts_only(table),
        driven_by_interactions=table.get("driven by interactions") is True,
        event=_text(table.get("event")),
        linking_distance=distance if distance is not None and distance > 0 else None,
        is_law=table.get("closed form") is True,
        is_signal=_is_signal(kernels),
        ends_meet=table.get("ends meet") is True,
        is_map=table.get("solver") == "map",
        temperature=float(numbers_in(table.get("temperature")).max(initial=0.0)),
        common_temperature=float(numbers_in(table.get("common temperature")).max(initial=0.0)),
        count=int(count[0]) if count.size == 1 else None,
        betas=_of_kernels(kernels, "beta", [each.beta for each in interactions]),
        scales=tuple((name, each) for name in _SCALES for each in _of_kernels(kernels, name)),
        schedule=_schedule(table.get("schedule")),
        changes=tuple(np.unique(numbers_in(table.get("changes"))).tolist()),
        picture=_picture(table.get("picture")),
        image=_image(table.get("image"), dimension),
        data_points=_data_points(table.get("data points"), dimension),
        transition=_transition(table.get("transition")),
        is_network=table.get("drift") in _NETWORKS,
        time_unit=_time_unit(table),
    )


def of_run(metadata: Mapping[str, Any], run: int) -> dict[str, Any]:
    """Return those of an ensemble's metadata that differ from run to run, with the values of one run."""
    found = {name: _value_of_run(metadata[name], run) for name in _BY_RUN if name in metadata}
    return {name: value for name, value in found.items() if value is not metadata[name]}


def is_negative(value: LinearMap | None) -> bool:
    """Whether ⟨x, Vx⟩ < 0 for all x ≠ 0, for a number, a diagonal or a matrix V; false where V is not known."""
    if value is None:
        return False
    array = np.asarray(value, dtype=np.float64)
    if array.ndim < 2:
        return bool((array < 0).all())
    if array.shape[0] != array.shape[1]:
        return False
    return bool(np.linalg.eigvalsh((array + array.T) / 2).max() < 0)


def numbers_in(value: Any) -> NDArray[np.float64]:
    """Return the finite numbers in a value as a flat array, empty where it holds anything else.

    A value that differs from run to run, {runs: [...]}, gives the numbers of all runs.
    """
    array = _numbers(value["runs"] if isinstance(value, Mapping) and "runs" in value else value)
    return np.zeros(0) if array is None else array.ravel()


def _value_of_run(value: Any, run: int) -> Any:
    """Replace every {"runs": [...]} in a value by the run's entry; the same object if there is none."""
    if isinstance(value, Mapping):
        runs = value.get("runs")
        if len(value) == 1 and isinstance(runs, list):
            return runs[run] if run < len(runs) else None
        inner = {key: _value_of_run(each, run) for key, each in value.items()}
        return value if all(inner[key] is each for key, each in value.items()) else inner
    if not isinstance(value, list):
        return value
    items = [_value_of_run(each, run) for each in value]
    return value if all(own is each for own, each in zip(items, value, strict=True)) else items


def _time_unit(table: Mapping[str, Any]) -> str | None:
    """ "layer" or "step" where one step of a map takes one unit of time, else None."""
    if table.get("solver") != "map" or table.get("step") != 1.0:
        return None
    changes = numbers_in(table.get("changes"))
    by_one = changes.size > 0 and bool((np.sort(changes) == np.arange(1, changes.size + 1)).all())
    layered = table.get("drift") in _LAYERED or (table.get("drift") == _STACKED and by_one)
    return "layer" if layered else "step"


def _space(metadata: Mapping[str, Any], dimension: int) -> Space:
    """The stored space where it has a known kind, else that of the geometry's name."""
    table = metadata.get("space")
    kind = table.get("kind") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or kind not in ("sphere", "flat"):
        return _space_from_name(metadata.get("geometry", "euclidean"), dimension)
    radius = _number(table.get("radius")) if kind == "sphere" else None
    return Space(
        kind=str(kind),
        radius=radius if radius is not None and radius > 0 else None,
        coordinates=_text(table.get("coordinates")),
        sees_stored=table.get("sees_stored") is True,
    )


def _space_from_name(geometry: Any, dimension: int) -> Space:
    """The space by the geometry's name: unit sphere, sphere of radius √d (a gain may precede the kernel), or flat."""
    name = str(geometry.get("kind") if isinstance(geometry, Mapping) else geometry)
    if name in _UNIT_SPHERES:
        return Space("sphere", 1.0, sees_stored=True)
    if name in _ROOT_SPHERES:
        return Space("sphere", float(np.sqrt(dimension)))
    return Space("flat", sees_stored=name == "euclidean")


def _interaction(row: Any) -> StoredInteraction:
    """Parse one row of `interactions`, of any type; factors of K₁ that are kernels of positions move into K₂."""
    table = row if isinstance(row, Mapping) else {}
    normalization, positional = table.get("normalization"), table.get("positional")
    kernel, factors = _without_positions(table.get("kernel"))
    whole = [*factors, *([] if positional is None else [positional])]
    return StoredInteraction(
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


def _interacts_only(metadata: Mapping[str, Any]) -> bool:
    """Whether only interactions move the particles: as stored, else true if the whole drift is one attention."""
    stored = metadata.get("interacts only")
    return stored if isinstance(stored, bool) else metadata.get("drift") == "attend"


def _is_signal(kernels: tuple[Any, ...]) -> bool:
    """Whether there are kernels, and all of them depend on distances of positions alone."""
    known = [position_kernel(table) for table in kernels]
    return bool(known) and all(each is not None and each.is_of_distance for each in known)


def _of_kernels(kernels: tuple[Any, ...], name: str, more: Any = ()) -> tuple[float, ...]:
    """Every number of this name that the kernels, of any run of an ensemble, or `more` hold, in increasing order."""
    stored = [numbers_in(table.get(name)) for table in kernels if isinstance(table, Mapping)]
    others = np.asarray([each for each in more if each is not None], float)
    return tuple(np.unique(np.concatenate([*stored, others])).tolist())


def _schedule(table: Any) -> Schedule | None:
    """The schedule of a table; None where times do not increase or are not as many as the values."""
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        return None
    times, values = numbers_in(table.get("times")), numbers_in(table.get("values"))
    if times.size < 2 or times.shape != values.shape or (np.diff(times) <= 0).any():
        return None
    return Schedule(str(table["name"]), times, values)


def _picture(value: Any) -> tuple[int, int] | None:
    """Two whole numbers, else None; that the run has so many patches is checked in `character_of`."""
    sides = numbers_in(value)
    return (int(sides[0]), int(sides[1])) if sides.size == 2 and (sides == np.floor(sides)).all() else None


def _image(value: Any, dimension: int) -> tuple[int, ...] | None:
    """Two or three whole numbers whose product is at most the dimension, else None."""
    sides = numbers_in(value)
    whole = sides.size in (2, 3) and bool((sides == np.floor(sides)).all() and (sides > 0).all())
    return tuple(int(side) for side in sides) if whole and np.prod(sides) <= dimension else None


def _data_points(value: Any, dimension: int) -> NDArray[np.float64] | None:
    """Rows of `dimension` finite numbers, else None."""
    array = _numbers(value)
    return array if array is not None and array.ndim == 2 and array.shape[1] == dimension else None


def _transition(table: Any) -> StoredBranch | None:
    """The transition of a table; None where its branch has no points, or not one entry of each kind a point."""
    if not isinstance(table, Mapping) or _number(table.get("limit")) is None:
        return None
    values, orders = numbers_in(table.get("values")), numbers_in(table.get("orders"))
    stable = table.get("stable")
    if not isinstance(stable, list | tuple) or not values.size == orders.size == len(stable) > 1:
        return None
    folds, equal = (tuple(numbers_in(table.get(name)).tolist()) for name in ("folds", "equal"))
    name, limit = _text(table.get("parameter")) or "parameter", float(numbers_in(table.get("limit"))[0])
    return StoredBranch(name, values, orders, np.array([each is True for each in stable]), limit, folds, equal)


def _kind(table: Any) -> str | None:
    """The kind of an optional table: None if there is none, `UNKNOWN` for anything without a kind."""
    if table is None:
        return None
    return (_text(table.get("kind")) if isinstance(table, Mapping) else None) or UNKNOWN


def _text(value: Any) -> str | None:
    """A text, else None."""
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    """A finite number, else None."""
    array = _numbers(value)
    return float(array) if array is not None and array.ndim == 0 else None


def _linear_map(value: Any) -> LinearMap | None:
    """A number, a diagonal (d,) or a matrix of finite numbers, else None."""
    array = _numbers(value)
    if array is None or array.ndim > 2:
        return None
    return float(array) if array.ndim == 0 else array


def _product(outer: LinearMap | None, inner: LinearMap | None) -> LinearMap | None:
    """Outer ∘ inner of numbers, diagonals and matrices; None where one is unknown or their shapes do not fit."""
    if outer is None or inner is None:
        return None
    left, right = np.asarray(outer), np.asarray(inner)
    if left.ndim and right.ndim:
        left, right = (np.diag(each) if each.ndim == 1 else each for each in (left, right))
        return left @ right if left.shape[1] == right.shape[0] else None
    product = left * right
    return float(product) if product.ndim == 0 else product


def _numbers(value: Any) -> NDArray[np.float64] | None:
    """Finite numbers of any shape; None for text, booleans, missing values and ragged rows."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            return None
        array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return array if array.size and np.isfinite(array).all() else None
