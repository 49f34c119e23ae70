"""The runs of a sweep, built from its scenario; what runs share is checked, made and drawn once."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from particleflow._support import toml
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Scenario, Setup
    from particleflow.app.scenario.schema import Document


class MemberBuilder:
    """Builds the runs of a sweep; documents, flows and starts are cached by the parts of the scenario they depend on.

    So all seeds share a document, and a flow if nothing in it is drawn; all β of the drift share a start.
    """

    def __init__(self, scenario: "Scenario"):
        self.scenario = scenario
        self._documents: dict[str, Document] = {}
        self._flows: dict[str, Any] = {}
        self._starts: dict[str, Any] = {}

    def check(self, values: dict[str, Any]) -> None:
        """Check the scenario with these values, as a document; a wrong one is a `UserError`."""
        if "seed" in values:  # which the documents of runs leave out
            self.scenario.with_values(values)
        else:
            self._document(self._raw(values))

    def setup(self, values: dict[str, Any]) -> "Setup":
        """Build the run with these values of the swept keys."""
        from particleflow.app.scenario.scenario import make_flow, make_setup, make_start

        raw = self._raw(values)
        seed, common = raw.get("seed", 0), [raw.get(name) for name in ("geometry", "precision")]
        document = replace(self._document(raw), seed=seed)
        drawn = seed if any(spec.draws for spec in document.flow_calls()) else None
        flow_key = _text([raw["drift"], raw.get("temperature"), raw.get("common_temperature"), drawn, common])
        if flow_key not in self._flows:
            self._flows[flow_key] = make_flow(document)
        flow = self._flows[flow_key]
        start_key = _text([raw["initial"], raw.get("discretization"), seed, common])
        if start_key not in self._starts:
            self._starts[start_key] = make_start(document, flow)
        return make_setup(document, flow, self._starts[start_key], devices=self.scenario.devices)

    def signature(self, values: dict[str, Any]) -> Any:
        """What must be equal for two runs to run as one ensemble: structure, shapes, times, method."""
        from particleflow.simulation.recording.fingerprint import described

        try:
            setup = self.setup(values)
        except UserError as error:
            return ("wrong", str(error))
        method = repr((setup.stepping, setup.options["window"]))
        # Observables, events and discretizations are shared by the runs of an ensemble, numbers and all.
        shared = tuple(described([setup.options[name] for name in ("observe", "event", "discretization")]))
        return (_structure((setup.flow, setup.start)), setup.times.tobytes(), method, setup.flow.is_noisy, shared)

    def _raw(self, values: dict[str, Any]) -> dict[str, Any]:
        """The scenario as a table with these values at their dotted paths, its expressions computed from them."""
        from particleflow.app.scenario.schema.expressions import with_numbers
        from particleflow.app.scenario.schema.problems import Problems

        raw, problems = self.scenario.raw, Problems()
        for path, value in values.items():
            raw = toml.with_value(raw, toml.parse_path(path), value)
        raw = with_numbers(raw, problems)
        problems.raise_if_any(self.scenario.name)
        return raw

    def _document(self, raw: dict[str, Any]) -> "Document":
        """The checked document of a run but for its seed, which it shares with all runs that differ in the seed."""
        from particleflow.app.scenario.scenario import from_document

        rest = {name: value for name, value in raw.items() if name not in ("seed", "sweep")}
        key = _text(rest)
        if key not in self._documents:
            scenario = self.scenario
            checked = from_document(rest, scenario.name, scenario.folder, allow_code=scenario.allow_code)
            self._documents[key] = checked.document
        return self._documents[key]


def _structure(tree: Any) -> Any:
    """The structure of a tree, and the shapes and precisions of its arrays."""
    import equinox as eqx
    import jax

    leaves, structure = jax.tree_util.tree_flatten(tree)
    shown = tuple((leaf.shape, str(leaf.dtype)) if eqx.is_array(leaf) else repr(leaf) for leaf in leaves)
    return structure, shown


def _text(value: Any) -> str:
    """A value of a scenario as a text that can be a key."""
    return json.dumps(value, sort_keys=True, default=str)
