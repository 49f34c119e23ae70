"""Scenarios: a TOML file, checked, as a flow, a start and the arguments of `simulate`.

    scenario = load("sphere.toml", ["seed=3"])     the file, changed from outside and checked as a whole: `Scenario`
    setup = scenario.build()                       flow, start and arguments, in one precision: `Setup`
    setup.plan, setup.cost()                       what will run, and what it will cost, each made once

JAX is imported when a scenario is checked or built, not before: finding and listing scenarios costs nothing.
"""

import tomllib
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support import toml
from particleflow._support.files import reason_of
from particleflow._support.text import nearest_name
from particleflow._support.user_code import blamed, importable
from particleflow.app.runs.folder_contents import MANIFEST_FILE, SCENARIO_FILE, TRAJECTORY_FILE
from particleflow.errors import ParticleflowError, StartMoved, UserError

if TYPE_CHECKING:
    from jax import Array

    from particleflow.app.scenario.schema import Document, Spec
    from particleflow.dynamics.flow import Flow
    from particleflow.dynamics.initial.base import Start
    from particleflow.measure import Measure
    from particleflow.simulation.plan import Cost, Plan, Stepping

__all__ = [
    "Drawing",
    "Scenario",
    "Setup",
    "describe",
    "find",
    "from_document",
    "key_for",
    "load",
    "make_flow",
    "make_setup",
    "make_start",
    "read_text",
    "safe_name",
    "save_times",
    "shipped",
]

_LARGEST_FILE = 4 * 2**20
_HDF5 = b"\x89HDF\r\n\x1a\n"  # how every HDF5 file begins
_THEME = "Theme:"  # begins the line of a comment that names what a scenario is listed under
_ROUNDED = 1e-5  # by which numbers in a file may be off where they are written with five digits


@dataclass(frozen=True)
class Setup:
    """A scenario built: flow, start, saved times, stepping and what is stored; `plan` is ready to run.

    `options` are the arguments of `simulate` beside those of `stepping`; `storing` holds those that need `store`;
    `picture` and `image` are those of the start, see `Start`. `drawing` has drawn its clouds.
    """

    flow: "Flow"
    start: "Measure"
    times: np.ndarray
    stepping: "Stepping"
    options: dict[str, Any]
    labels: np.ndarray | None = None
    words: np.ndarray | None = None
    storing: dict[str, Any] = field(default_factory=dict)
    picture: tuple[int, ...] | None = None
    image: tuple[int, ...] | None = None
    drawing: "Drawing | None" = None

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The metadata of the run that depend on its start: its seed, None where nothing is drawn; its pictures."""
        seed = None if self.drawing is None else self.drawing.used_seed(self.flow)
        sides = {"picture": self.picture, "image": self.image}
        return {"seed": seed} | {name: list(each) for name, each in sides.items() if each is not None}

    @property
    def arguments(self) -> dict[str, Any]:
        """The keywords of `simulate(flow, start, times, **arguments)`."""
        return {**asdict(self.stepping), **self.options}

    @cached_property
    def plan(self) -> "Plan":
        """The plan of the run, made once; parts that do not fit together raise an error here."""
        from particleflow.simulation.plan import make_plan

        return make_plan(self.flow, self.start, self.times, self.stepping, **self.options)

    @cached_property
    def _cost(self) -> "Cost":
        from particleflow.simulation.plan import check_memory, cost_of

        cost = cost_of(self.plan)
        check_memory(cost)
        precision, chosen = self.storing.get("storage"), self.storing.get("particles")
        size = 1.0 if precision is None else np.dtype(precision).itemsize / self.start.points.dtype.itemsize
        return cost.stored(size if chosen is None else size * len(chosen) / self.start.count)

    def cost(self) -> "Cost":
        """Estimate what the run will cost, once; a run that does not fit into memory is refused."""
        return self._cost


@dataclass(frozen=True)
class Drawing:
    """Draws what is random in a scenario from its seed: every cloud once, each with the random key of its own path."""

    document: "Document"
    _drawn: "dict[str, Start]" = field(default_factory=dict, repr=False, compare=False)

    @property
    def seed(self) -> int:
        """The seed of the scenario."""
        return self.document.seed

    def start(self, spec: "Spec") -> "Start":
        """Draw the cloud of an initial call; repeated calls return the same cloud."""
        if spec.path not in self._drawn:
            self._drawn[spec.path] = spec.build(self).start(key_for(self.seed, spec.path), spec.count)
        return self._drawn[spec.path]

    def measure(self, spec: "Spec") -> "Measure":
        """A measure inside a flow, drawn from a cloud."""
        return _cast(self.start(spec).measure, self.document.precision)

    def used_seed(self, flow: "Flow") -> int | None:
        """The seed, None if start, flow and noise do not depend on it, so that every seed gives the same run."""
        calls = [inner for call in self.document.calls() for inner in call.nested()]
        noisy = flow.is_noisy and not self.document.carries_density  # whose noise is diffusion
        used = noisy or any(call.has_random_numbers() or _is_drawn(call, self) for call in calls)
        return self.seed if used else None


@dataclass(frozen=True)
class Scenario:
    """A checked scenario: its table `raw`, the text `source` it was read from, and `folder`, where its paths begin.

    `devices`, which is not in the file, is the number of devices that a run of it is shared by, see `simulate`.
    """

    name: str
    folder: Path
    source: str
    raw: dict[str, Any]
    document: "Document"
    allow_code: bool = False
    devices: int | None = None

    @cached_property
    def text(self) -> str:
        """The user's file with everything that was changed from outside, its comments and layout kept."""
        return toml.rewritten(self.source, self.raw)

    @property
    def title(self) -> str:
        """The title, or the file's name where there is none."""
        return self.document.title or self.name

    @property
    def stem(self) -> str:
        """The name of the file without its ending, safe as the name of a folder."""
        return safe_name(Path(self.name).stem)

    def build(self, *, check: bool = True) -> Setup:
        """Draw the start and make the flow, all in one precision; raises a `UserError` if they do not fit.

        Without `check` the plan is not made yet, so that only what cannot be constructed at all is refused.
        """
        with self._blamed():
            setup = _build(self.document, self.devices)
            if check:
                setup.cost()  # makes the plan, in which everything is checked before the run begins
        return setup

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Turn errors in the block into a `UserError` that names the scenario."""
        try:
            yield
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from error
        except ParticleflowError:
            raise
        except Exception as error:  # shapes that only meet inside JAX, or a cloud that does not fit into memory
            message = (blamed(error) or str(error) or type(error).__name__).strip().splitlines()[0][:300]
            raise UserError(f"{self.name}: the scenario cannot be simulated: {message}") from error

    def with_values(self, values: dict[str, Any]) -> "Scenario":
        """The same scenario with other values at some dotted paths, checked again."""
        raw = self.raw
        for path, value in values.items():
            raw = toml.with_value(raw, toml.parse_path(path), value)
        return from_document(
            raw, self.name, self.folder, source=self.source, allow_code=self.allow_code, devices=self.devices
        )


def load(
    path: str | Path,
    overrides: Iterable[str] = (),
    *,
    values: Mapping[str, Any] | None = None,
    allow_code: bool = False,
    devices: int | None = None,
) -> Scenario:
    """Read and check a scenario file (or a shipped scenario by its name), changed from outside before it is checked.

    Parameters: `overrides`, texts `path=value`; `values`, the same as Python values by their dotted paths; on how
    many `devices` it is run, see `simulate`.
    """
    file = find(path)
    text = read_text(file)
    raw = toml.loads(text, str(file))
    for override in overrides:
        raw = toml.with_override(raw, override)
    for place, value in (values or {}).items():
        raw = toml.with_value(raw, toml.parse_path(place), toml.plain(value, place))
    return from_document(raw, file.name, file.parent, source=text, allow_code=allow_code, devices=devices)


def from_document(
    raw: dict[str, Any],
    name: str,
    folder: Path,
    *,
    source: str = "",
    allow_code: bool = False,
    devices: int | None = None,
) -> Scenario:
    """Check a parsed document `raw`; `source` is the text of the file that it was read from before changes, if any."""
    from particleflow.app.scenario.schema import Registry, read_document

    registry = Registry(allow_code=allow_code)
    with importable(folder, active=allow_code):
        document = read_document(raw, name, folder, registry)
    return Scenario(name, folder, source, raw, document, allow_code, devices)


def find(path: str | Path) -> Path:
    """The file of a scenario: a path, or the name of a shipped one."""
    if "\0" in str(path):
        raise UserError("The name of a scenario must not hold a NUL character.")
    file = Path(path)
    try:
        if file.is_file():
            return file
    except OSError as error:
        raise UserError(f"{str(path)[:100]!r} cannot be opened: {error.strerror}.") from error
    if file.is_dir() and (hint := _stored_hint(file)):
        raise UserError(f"{file} is the folder of a run or of a sweep and no scenario.{hint}")
    name = file.stem if file.suffix == ".toml" else file.name
    if len(file.parts) == 1 and name in shipped():
        return shipped()[name]
    near = nearest_name(name, shipped())
    hint = f" Did you mean the shipped scenario {near!r}?" if near else " `particleflow list` shows what is shipped."
    raise UserError(f"There is no scenario file {str(path)[:200]}.{hint}")


def shipped() -> dict[str, Path]:
    """The scenarios that come with particleflow: name → file."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_scenarios", package.parent / "scenarios"):
        if folder.is_dir():
            return {file.stem: file for file in sorted(folder.glob("*.toml"))}
    return {}


def describe(path: Path) -> dict[str, Any]:
    """Read name, title, first comment and theme of a scenario file, and whether it sweeps, without checking it.

    The theme is a line of the first comment, "# Theme: Clusters"; "" where there is none.
    """
    text = read_text(path)
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError):
        raw = {}
    lines = [line.lstrip("# ").strip() for line in _first_comment(text).splitlines()]
    themes = [line.removeprefix(_THEME).strip() for line in lines if line.startswith(_THEME)]
    return {
        "name": path.stem,
        "title": str(raw.get("title", path.stem)),
        "theme": themes[0] if themes else "",
        "look for": " ".join(line for line in lines if not line.startswith(_THEME)),
        "sweep": "sweep" in raw,
        "path": str(path),
    }


def read_text(path: Path) -> str:
    """The text of a scenario file."""
    try:
        with path.open("rb") as file:
            if file.read(len(_HDF5)) == _HDF5:
                raise UserError(
                    f"{path} is an HDF5 file, such as holds the frames of a run, and no scenario, which is TOML."
                    f"{_stored_hint(path)}"
                )
        if path.stat().st_size > _LARGEST_FILE:
            raise UserError(f"{path} is larger than {_LARGEST_FILE} bytes; put arrays into .npy files.")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text, but a scenario is a TOML file.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {reason_of(error)}.") from error


def _stored_hint(path: Path) -> str:
    """What can be done with a file that a run or a sweep left, or with the folder of one; empty for anything else."""
    folder = path if path.is_dir() else path.parent
    if (folder / MANIFEST_FILE).is_file():
        shows = f"`particleflow info {folder}` shows that sweep, `particleflow plot {folder}` draws it"
    elif path.is_file() or (folder / TRAJECTORY_FILE).is_file():
        shows = f"`particleflow info {path}` shows what it holds, `plot`, `animate` and `view` draw it"
    else:
        return ""
    own = folder / SCENARIO_FILE
    again = f", and `particleflow resume {folder}` continues it; its scenario is {own}" if own.is_file() else ""
    return f" {shows}{again}."


def key_for(seed: int, name: str) -> "Array":
    """The random key of one use of a seed: fold_in(key(seed), crc32(name)).

    Parameters: the `seed` of a scenario; `name`, "initial" for the cloud it begins with, "noise" for its Brownian
    motion, and for a cloud inside it the path of that cloud, such as "drift.0.data". What is drawn with this key in
    Python has the bits of what the scenario draws.
    """
    import jax

    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))


def safe_name(name: str) -> str:
    """A name for a file or a folder: letters, digits, dot, dash and underscore, not hidden, not long."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    return kept.strip("._")[:80] or "scenario"


def save_times(time: Any) -> np.ndarray:
    """The saved times of a [time] table; with a fixed step they are rounded to whole steps."""
    if time.times is not None:
        return np.asarray(time.times, dtype=float)
    if time.spacing == "log":
        times = np.concatenate([[0.0], np.geomspace(time.first, time.end, time.frames - 1)])
    else:
        times = np.linspace(0.0, time.end, time.frames)
    if time.step is None:
        return times
    steps = time.end / time.step
    if abs(steps - round(steps)) > 1e-6 * max(1.0, steps):
        raise UserError(f"time.end is {time.end:g}, which is no multiple of time.step ({time.step:g}).")
    return np.unique(np.round(times / time.step)) * time.step


def make_flow(document: "Document", drawing: Drawing | None = None) -> "Flow":
    """Make the flow of a scenario, every array in its precision.

    Parameters: `drawing`, if clouds of this document have been drawn already.
    """
    from particleflow.dynamics.flow import Flow

    draw = drawing or Drawing(document)
    drifts = [spec.build(draw) for spec in document.drifts]
    geometry = None if document.geometry is None else document.geometry.build(draw)
    flow = Flow(drifts, geometry, float(document.temperature), float(document.common_temperature))
    return _cast(flow, document.precision)


def make_start(document: "Document", flow: "Flow", drawing: Drawing | None = None) -> "Start":
    """The start of a scenario, on its geometry unless `retract = false`; for a density without `count`, the density."""
    from particleflow.dynamics.geometry import for_weights, retracted

    spec, draw = document.initial, drawing or Drawing(document)
    if document.carries_density and spec.count is None and (start := _density_start(draw, flow)) is not None:
        return start
    start = draw.start(spec)
    measure = _cast(start.measure, document.precision)
    drawn = measure.points
    if spec.retract:
        space = for_weights(flow.geometry, measure.log_weights)
        measure = measure.with_points(retracted(space, drawn))
        _warn_of_moved(spec, flow, drawn, measure.points)
    if spec.fields:
        given = {name: np.broadcast_to(value, (measure.count,)) for name, value in spec.fields.items()}
        measure = measure.with_fields({**measure.fields, **_cast_arrays(given, document.precision)})
    if document.discretization is not None:
        from particleflow.discretization.discretization_capabilities import StartsFromSamplingLaw

        how = document.discretization.build(draw)
        if isinstance(how, StartsFromSamplingLaw):
            density = spec.build(draw).density(key_for(document.seed, spec.path))
            measure = how.from_sampling_law(flow, measure, drawn, density)
    return start._replace(measure=measure)


def _warn_of_moved(spec: "Spec", flow: "Flow", given: Any, placed: Any) -> None:
    """Warn if points that a file gives were off the geometry by more than the rounding of five digits."""
    before, after = np.asarray(given), np.asarray(placed)
    moved = np.any(np.abs(after - before) > _ROUNDED * max(1.0, np.max(np.abs(before))), axis=-1)
    if spec.paths() and moved.any():
        warnings.warn(
            f"{spec.path}: {moved.sum()} of the {moved.size} points of the file are not on the geometry "
            f"{flow.geometry.name} and were moved onto it, because a scenario says where particles live and a file "
            "need not. In Python `simulate` takes points as they are and refuses these; so does retract = false here.",
            StartMoved,
            stacklevel=2,
        )


def _is_drawn(spec: "Spec", draw: Drawing) -> bool:
    """Whether a call is that of a cloud that depends on its random key; one that has a size of its own does not.

    It is found by tracing how the cloud, or its density where points are not counted, is made from a key.
    """
    import jax

    if not getattr(spec.target, "counted", False):
        return False
    initial: Any = spec.build(draw)

    def made(key: "Array") -> Any:
        with jax.ensure_compile_time_eval():  # of everything that does not depend on the key
            return initial.density(key) is None if spec.count is None else initial.start(key, spec.count).measure.points

    try:
        program = jax.make_jaxpr(made)(key_for(draw.seed, spec.path)).jaxpr
    except jax.errors.JAXTypeError:  # numbers that depend on the key were needed
        return True
    return any(program.invars[0] in equation.invars for equation in program.eqns)


def _density_start(draw: Drawing, flow: "Flow") -> "Start | None":
    """The density of the initial kind, projected on the discretization; None for kinds that are points."""
    from particleflow.discretization.base import retracted_density
    from particleflow.dynamics.initial.base import Start

    document = draw.document
    spec = document.initial
    initial: Any = spec.build(draw)
    density = initial.density(key_for(document.seed, spec.path))
    if density is None and initial.counted:
        raise UserError(
            f"initial.count is missing: the kind {spec.kind!r} has no density of its own, so that points must be "
            "drawn, which are counted into cells."
        )
    assert document.discretization is not None
    how: Any = document.discretization.build(draw)
    if density is not None and spec.retract:
        density = retracted_density(how, flow, density)
    return None if density is None else Start(_cast(how.project(flow, density), document.precision))


def make_setup(
    document: "Document", flow: "Flow", start: "Start", drawing: Drawing | None = None, devices: int | None = None
) -> Setup:
    """Collect all arguments of `simulate` from a scenario, its flow and its start."""
    from particleflow.simulation.plan import Stepping

    time, draw = document.time, drawing or Drawing(document)
    options = {
        "discretization": None if document.discretization is None else document.discretization.build(draw),
        "observe": [_cast(spec.build(draw), document.precision) for spec in document.observables],
        "event": None if document.event is None else _cast(document.event.build(draw), document.precision),
        "key": key_for(document.seed, "noise") if flow.is_noisy else None,
        "window": time.window,
        "devices": devices,
    }
    return Setup(
        flow, start.measure, save_times(time),
        Stepping(time.rtol, time.atol, time.step, time.solver, time.max_steps), options, start.labels, start.words,
        storing={
            "storage": document.record.storage,
            "particles": _chosen_particles(document.record.particles, start.measure.count),
        },
        picture=start.picture, image=start.image, drawing=draw,
    )  # fmt: skip


def _build(document: "Document", devices: int | None) -> Setup:
    """Flow, start and arguments, with clouds drawn once."""
    draw = Drawing(document)
    flow = make_flow(document, draw)
    return make_setup(document, flow, make_start(document, flow, draw), draw, devices)


def _cast(tree: Any, dtype: Any) -> Any:
    """The same object with every floating-point array in one precision."""
    import equinox as eqx
    import jax

    def cast(leaf: Any) -> Any:
        strange = eqx.is_inexact_array(leaf) and (leaf.dtype != dtype or getattr(leaf, "weak_type", False))
        return leaf.astype(dtype) if strange else leaf

    return jax.tree_util.tree_map(cast, tree)


def _cast_arrays(arrays: dict[str, np.ndarray], dtype: Any) -> dict[str, np.ndarray]:
    """The same arrays in one precision."""
    return {name: np.asarray(array, dtype) for name, array in arrays.items()}


def _chosen_particles(particles: Any, count: int) -> np.ndarray | None:
    """The indices of the particles to store: the given ones in order, or so many spread evenly; None for all."""
    if particles is None:
        return None
    if isinstance(particles, int):
        if not 1 <= particles <= count:
            raise UserError(f"record.particles is {particles}, but there are {count} particles.")
        return np.unique(np.round(np.linspace(0, count - 1, particles)).astype(int))
    chosen = np.asarray(particles, dtype=object)
    if len(set(particles)) < len(particles) or not all(index < count for index in particles):
        raise UserError(f"record.particles must hold different indices below {count}, but does not.")
    return np.sort(chosen.astype(int))


def _first_comment(text: str) -> str:
    """The comment lines at the top of a file."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line + "\n")
    return "".join(lines)


def __dir__() -> list[str]:
    return __all__
