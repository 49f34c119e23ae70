"""Flows made in Python as scenario files: every object is written as the constructor call that makes it.

    Attend(Attention(beta=4.0))   →   { kind = "attend", kernel = { kind = "attention", beta = 4.0 } }

Small arrays are written as lists, larger ones and measures go into .npy and .npz files in the folder of the scenario.
A scenario is read again as soon as it is written, and must give the same flow, number by number: what cannot be written
is refused, never changed.
"""

import inspect
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from particleflow._support import toml
from particleflow._support.text import kind_of
from particleflow.app.scenario import scenario
from particleflow.dynamics.drifts.base import terms_of
from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError, UserError, check_kind
from particleflow.measure import Measure
from particleflow.simulation.plan import as_start

_SPELLED_OUT = 64  # the most numbers of an array that is written into the scenario itself


def save_scenario(
    flow: Flow,
    path: str | Path,
    *,
    start: Any,
    end: float,
    frames: int = 200,
    title: str | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> Path:
    """Write a flow and its start as a scenario that `particleflow run` takes, and return its path.

    Parameters: `flow`; `path` of the file, which must end in .toml; `start`, points (n, d) or a measure, kept in an
    .npz file beside it; `end` and `frames` of the run; its `title`; `rtol` and `atol` of its steps.
    """
    check_kind(flow, Flow, "flow", "a flow")
    file = Path(path)
    if file.suffix != ".toml":
        raise ArgumentError(f"Argument `path` must end in .toml, but is {str(path)!r}.")
    file.parent.mkdir(parents=True, exist_ok=True)
    measure = as_start(start)
    precision = str(measure.points.dtype)
    document = {
        "title": title or file.stem.replace("_", " "),
        "precision": precision,
        "initial": _cloud(measure, file, "start") | {"retract": False},
        **_flow_tables(flow, file),
        "time": {"end": float(end), "frames": int(frames), "rtol": float(rtol), "atol": float(atol)},
    }
    file.write_text(toml.dumps(document), encoding="utf-8")
    try:
        _check_same(flow, file)
    except ArgumentError:
        file.unlink()
        raise
    return file


def table_of(made: Any, file: Path | None = None, name: str = "object") -> Any:
    """A kernel, drift, geometry or summation as the table of a scenario that makes it.

    Parameters: what was `made`; the scenario's `file`, beside which large arrays and measures go under `name`; without
    one they are refused.
    """
    if isinstance(made, Measure):
        return _cloud(made, file, name)
    if isinstance(made, tuple | list):
        return [table_of(each, file, f"{name}.{place}") for place, each in enumerate(made)]
    if made is None or isinstance(made, bool | int | float | str):
        return made
    if eqx.is_array(made):
        return _numbers(np.asarray(made), file, name)
    if not isinstance(made, eqx.Module):
        raise ArgumentError(f"A scenario holds numbers, texts and kinds, but {name} is {type(made).__name__}.")
    table: dict[str, Any] = {"kind": kind_of(type(made))}
    for parameter in inspect.signature(type(made)).parameters.values():
        value = getattr(made, parameter.name)
        if value is not None and not _is_default(value, parameter.default):
            table[parameter.name] = table_of(value, file, f"{name}.{parameter.name}")
    return table


def _flow_tables(flow: Flow, file: Path) -> dict[str, Any]:
    """The keys of a scenario that make a flow: geometry, temperatures above zero, and one table a drift."""
    drifts = [table_of(each, file, f"drift.{place}") for place, each in enumerate(terms_of(flow.drift))]
    amounts = {"temperature": flow.temperature, "common_temperature": flow.common_temperature}
    return {
        "geometry": table_of(flow.geometry, file, "geometry"),
        **{name: float(amount) for name, amount in amounts.items() if float(amount) > 0},
        "drift": drifts,
    }


def _is_default(value: Any, default: Any) -> bool:
    """Whether a value is the default of its parameter, so that it can be left out."""
    if isinstance(default, str | bool):
        return value == default
    return isinstance(default, int | float) and np.ndim(value) == 0 and float(value) == default


def _numbers(array: np.ndarray, file: Path | None, name: str) -> Any:
    """An array as nested lists, or, where it is large or not finite, as the name of a file that it is saved in."""
    if array.size <= _SPELLED_OUT and np.isfinite(array).all():
        return array.astype(float).tolist()
    beside = _file_of(file, f"{name}.npy")
    np.save(beside, array.astype(float))
    return beside.name


def _cloud(measure: Measure, file: Path | None, name: str) -> dict[str, Any]:
    """A measure as an .npz file in the folder of the scenario, and the table that reads it."""
    arrays = {"points": measure.points, "log_weights": measure.log_weights}
    optional = {"values": measure.values, "positions": measure.positions}
    arrays |= {each: array for each, array in optional.items() if array is not None}
    arrays |= {f"field.{each}": array for each, array in measure.fields.items()}
    beside = _file_of(file, f"{name}.npz")
    plain: dict[str, Any] = {each: np.asarray(array) for each, array in arrays.items()}
    np.savez(beside, **plain)
    return {"kind": "from_file", "path": beside.name}


def _file_of(file: Path | None, name: str) -> Path:
    """The path of a file that belongs to a scenario, SCENARIO.NAME; refused where there is no file to belong to."""
    if file is None:
        raise ArgumentError(f"The numbers of {name} are too many to be spelled out; give the scenario's `file`.")
    return file.with_name(f"{file.stem}.{name}")


def _check_same(flow: Flow, file: Path) -> None:
    """Raise unless the file gives the flow that was written, with equal structure and equal numbers."""
    try:
        again = scenario.load(file).build(check=False).flow
    except UserError as error:
        raise ArgumentError(f"The flow cannot be written as a scenario: {error}") from error
    ours, theirs = (jax.tree_util.tree_flatten(each) for each in (flow, again))
    same = ours[1] == theirs[1] and all(
        np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True)
        for one, other in zip(ours[0], theirs[0], strict=True)
    )
    if not same:
        raise ArgumentError(
            f"The flow cannot be written as a scenario: {file.name} gives {again!r} in place of {flow!r}."
        )
