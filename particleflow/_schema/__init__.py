"""From the tables of a scenario file to checked constructor calls.

The classes' own signatures and annotations are the only declaration: `slots` reads them, `tables` makes pydantic models
of them and turns a file's tables into `calls`, `numbers` are arrays that a file names or describes, `document` holds
the few keys that belong to no class, `json_schema` writes all of it down for editors and `descriptions` for people.
"""

from particleflow._schema.calls import Spec
from particleflow._schema.descriptions import Kind, all_kinds, find_kinds
from particleflow._schema.document import Document, OutputTable, RecordTable, TimeTable, read_document
from particleflow._schema.json_schema import json_schema
from particleflow._schema.problems import Problem, Problems, ScenarioError
from particleflow._schema.registry import Registry

__all__ = [
    "Document",
    "Kind",
    "OutputTable",
    "Problem",
    "Problems",
    "RecordTable",
    "Registry",
    "ScenarioError",
    "Spec",
    "TimeTable",
    "all_kinds",
    "find_kinds",
    "json_schema",
    "read_document",
]
