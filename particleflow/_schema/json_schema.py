"""The JSON Schema of scenario files, for completion and checks in editors."""

from typing import Any

from particleflow._schema.document import ScenarioFile
from particleflow._schema.numbers import RandomTable
from particleflow._schema.registry import Registry
from particleflow._schema.slots import FAMILY_MARK, RANDOM, slots_of
from particleflow._schema.tables import model_of


def json_schema() -> dict[str, Any]:
    """One definition per family, each the choice among its kinds, and the file that refers to them."""
    registry = Registry()
    registry.load_plugins()
    schema = ScenarioFile.model_json_schema()
    definitions = schema.setdefault("$defs", {})
    for family in registry.families:
        kinds = registry.kinds(family.name)
        choices = [_kind_schema(registry, family.name, kind, target) for kind, target in sorted(kinds.items())]
        alone = sorted(kind for kind, choice in zip(sorted(kinds), choices, strict=True) if _needs_only_kind(choice))
        by_name = [{"title": "a kind by its name", "enum": alone}] if alone else []
        definitions[family.name] = {"anyOf": [*choices, *by_name]}
    definitions[RANDOM] = RandomTable.model_json_schema()
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "particleflow scenario"}
    return _with_references(found)


def _needs_only_kind(schema: dict[str, Any]) -> bool:
    """Whether a table may be written as the name of its kind alone."""
    return set(schema.get("required", [])) <= {"kind"}


def _kind_schema(registry: Registry, family: str, kind: str, target: Any) -> dict[str, Any]:
    slots = tuple(slots_of(target, registry.families).values())
    model = model_of(family, target, kind, slots)
    schema = model.model_json_schema()
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return {**schema, "title": kind}


def _with_references(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get(FAMILY_MARK), str):
        return {"$ref": f"#/$defs/{node[FAMILY_MARK]}"}
    return {name: _with_references(item) for name, item in node.items()}
