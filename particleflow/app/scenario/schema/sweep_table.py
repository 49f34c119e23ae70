"""The [sweep] table of a scenario: its settings, and the keys of the scenario with the values they run through."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, Strict

MOST_RUNS = 1_000_000
_FORBID = ConfigDict(extra="forbid")


class PhaseTable(BaseModel):
    """The phase diagram to draw: two swept keys (or "time"), an observable, and a curve from theory on top."""

    model_config = _FORBID
    x: Annotated[str, Strict()]
    y: Annotated[str, Strict()]
    value: Annotated[str, Strict()]
    overlay: Literal["equiangular"] | None = None


class SweptRange(BaseModel):
    """Evenly spaced values, or values drawn evenly between two ends."""

    model_config = _FORBID
    start: Annotated[float, Strict(), Field(allow_inf_nan=False)]
    stop: Annotated[float, Strict(), Field(allow_inf_nan=False)]
    count: Annotated[int, Strict(), Field(ge=1, le=MOST_RUNS)] = 1
    spacing: Literal["linear", "log"] = "linear"


class SweptSeeds(BaseModel):
    """A number of seeds, counted from the scenario's own on."""

    model_config = _FORBID
    count: Annotated[int, Strict(), Field(ge=1, le=MOST_RUNS)]


class SweepTable(BaseModel):
    """What `particleflow sweep` runs: keys of the scenario, by their dotted paths in quotes, each with its values.

        "drift.0.kernel.beta" = [1.0, 4.0, 9.0]                          these values
        "drift.0.kernel.beta" = { start = 0.1, stop = 9.0, count = 90 }  evenly spaced; spacing = "log" in the logarithm
        seed = { count = 16 }                                            16 seeds, from the scenario's own on

    Seeds are repetitions: means and their errors are over them. Beside the keys there are settings:

    `mode`: all combinations ("grid"), the keys' values one after the other ("zip"), or each value drawn ("random");
    `count`, the number of runs with mode = "random"; `keep`, whether trajectories are stored beside the observables;
    `phase`, the phase diagram to draw, { x = KEY, y = KEY, value = OBSERVABLE }, in which one KEY may be "time" and
    overlay = "equiangular" draws a curve from theory on top.
    """

    # The values of a key are checked with the scenario when the sweep is planned, see `sweep_plan`.
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, SkipValidation[list[Any] | SweptRange | SweptSeeds]] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]
    mode: Literal["grid", "zip", "random"] = "grid"
    count: Annotated[int, Strict(), Field(ge=1, le=MOST_RUNS)] | None = None
    keep: Literal["observables", "trajectories"] = "observables"
    phase: PhaseTable | None = None

    @property
    def swept(self) -> dict[str, Any]:
        """The keys in the order of the file, each with its values as they are written there."""
        return dict(self.model_extra or {})
