"""From the tables of a scenario file to checked constructor calls.

Nothing is declared twice: what a file may hold follows from the signatures and annotations of the classes, and what it
means from their docstrings. A file is read from the top of this list to its end:

    registry        finds the class of a `kind`
    argument_types  the pydantic type of each parameter of its constructor, from the annotation
    numbers         arrays that are in a file of their own, or random
    tables          the pydantic model of a kind, and the check of one table
    calls           the checked call of a constructor, which is made again for every seed
    document        the keys that belong to no class, and the checks between tables
    problems        everything that is wrong, with the path of the key, the value and what was expected

`json_schema` describes all of it for editors, `descriptions` for people.
"""

from particleflow.app.scenario.schema.calls import Spec
from particleflow.app.scenario.schema.descriptions import Kind, all_kinds, find_kinds
from particleflow.app.scenario.schema.document import Document, OutputTable, RecordTable, TimeTable, read_document
from particleflow.app.scenario.schema.json_schema import json_schema
from particleflow.app.scenario.schema.problems import Problem, Problems, ScenarioError
from particleflow.app.scenario.schema.registry import Registry

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
