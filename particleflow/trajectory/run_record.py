"""What is known of a run besides its frames: its metadata, and the facts parsed from them, each computed once.

A trajectory, its slices and its single runs share one record, so that the metadata of a file are parsed once however
often analysis and pictures use its facts.
"""

from collections.abc import Callable
from typing import Any

from particleflow.trajectory.facts import RunFacts, of_run, parse_facts


class RunRecord:
    """The metadata of a run and the facts in them.

    Parameters: `metadata`, or a function that returns them, called at their first use. Facts that have been parsed do
    not follow later changes of the metadata.
    """

    def __init__(self, metadata: dict[str, Any] | Callable[[], dict[str, Any]]) -> None:
        """Keep the metadata; nothing is computed or parsed yet."""
        self._metadata = metadata
        self._facts: RunFacts | None = None
        self._of_runs: dict[int, RunRecord] = {}

    @property
    def metadata(self) -> dict[str, Any]:
        """Title, geometry, scenario, seed, statistics, ... as far as known."""
        if callable(self._metadata):
            self._metadata = self._metadata()
        return self._metadata

    def facts(self, dimension: int) -> RunFacts:
        """Return the facts in the metadata, parsed at the first call; `dimension` is that of the points."""
        if self._facts is None:
            self._facts = parse_facts(self.metadata, dimension)
        return self._facts

    def of_run(self, run: int) -> "RunRecord":
        """Return the record of one run of an ensemble: this one, unless the runs' facts differ."""
        if run not in self._of_runs:
            own = of_run(self.metadata, run)
            self._of_runs[run] = RunRecord({**self.metadata, **own}) if own else self
        return self._of_runs[run]
