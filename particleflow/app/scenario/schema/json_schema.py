"""The JSON Schema of scenario files, for completion and checks in editors.

pydantic writes the schema of the file and of every kind. They are joined here by references, as in

    "scaled": { "properties": { "kind": { "const": "scaled" }, "kernel": { "$ref": "#/$defs/kernel" }, … } }

because kernels hold kernels: a type that held the schemas of all kinds of its own family would never end. Wherever
there is a number, there may be an expression.
"""

from typing import Any

from particleflow.app.scenario.schema import expressions
from particleflow.app.scenario.schema.argument_types import FAMILY_MARK, RANDOM
from particleflow.app.scenario.schema.document import ScenarioFile
from particleflow.app.scenario.schema.numbers import RandomTable
from particleflow.app.scenario.schema.registry import Registry
from particleflow.app.scenario.schema.tables import model_of


def json_schema() -> dict[str, Any]:
    """The schema: one definition a family, each the choice among its kinds, and the file that refers to them.

    A kind whose parameters all have defaults may also be written as its name alone. Installed plugins are included.
    """
    registry = Registry()
    registry.load_plugins()
    schema = ScenarioFile.model_json_schema()
    definitions = schema.setdefault("$defs", {})
    for family in registry.families:
        kinds = registry.kinds(family.name)
        choices = [_kind_schema(family.name, kind, target) for kind, target in sorted(kinds.items())]
        alone = sorted(kind for kind, choice in zip(sorted(kinds), choices, strict=True) if _needs_only_kind(choice))
        by_name = [{"title": "a kind by its name", "enum": alone}] if alone else []
        definitions[family.name] = {"anyOf": [*choices, *by_name]}
    definitions[RANDOM] = RandomTable.model_json_schema()
    schema["$defs"] = {
        name: each if name == "SweepTable" else _with_expressions(each) for name, each in definitions.items()
    }
    _name_solvers(schema["$defs"]["TimeTable"]["properties"]["solver"])
    schema["$defs"][expressions.KEY] = expressions.SCHEMA
    schema["properties"] = _with_expressions(schema["properties"])
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "particleflow scenario"}
    return _with_references(found)


def _name_solvers(key: dict[str, Any]) -> None:
    """Replace a text, of the key `solver` of [time], by the choice among the names of the solvers."""
    from particleflow.simulation.stepping import solver_facts

    names = {"enum": [each.name for each in solver_facts()]}
    key["anyOf"] = [names if each.get("type") == "string" else each for each in key["anyOf"]]


def _with_expressions(node: Any) -> Any:
    """A schema in which every number may also be an expression."""
    if isinstance(node, list):
        return [_with_expressions(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") in ("number", "integer"):
        about = {name: node[name] for name in ("title", "description", "default") if name in node}
        number = {name: value for name, value in node.items() if name not in about}
        return {"anyOf": [number, {"$ref": f"#/$defs/{expressions.KEY}"}], **about}
    return {name: _with_expressions(item) for name, item in node.items()}


def _needs_only_kind(schema: dict[str, Any]) -> bool:
    """Whether a table may be written as the name of its kind alone."""
    return set(schema.get("required", [])) <= {"kind"}


def _kind_schema(family: str, kind: str, target: Any) -> dict[str, Any]:
    """The schema of one kind, as pydantic writes it, without the titles of its keys, which only repeat them."""
    schema = model_of(family, target, kind).model_json_schema()
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return {**schema, "title": kind}


def _with_references(node: Any) -> Any:
    """The schema with every stand-in for a family replaced by a reference to its definition."""
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get(FAMILY_MARK), str):
        return {"$ref": f"#/$defs/{node[FAMILY_MARK]}"}
    return {name: _with_references(item) for name, item in node.items()}
