"""Everything that is wrong with a scenario, collected and then reported in one error.

Checks raise pydantic's `ValidationError`, which carries any number of errors, each with the keys that lead to it, and
joins those of tables inside tables. `Problems` collects them over the parts of a file, as lines such as

    drift.0.kernel.bta = 4.0: is no known key; did you mean 'beta'?
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from particleflow._support.text import one_line, plural, suggestion
from particleflow.errors import UserError

_LONGEST_VALUE = 60
_MOST_PROBLEMS = 50

# The types of our own errors: they are shown with the value that is wrong, or without one.
WRONG, MISSING = "particleflow_wrong", "particleflow_missing"

# What pydantic finds, in our words; others follow "Input should …".
_WORDS = {
    "missing": "is missing",
    "int_type": "must be a whole number",
    "string_type": "must be a text in quotes",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "finite_number": "must be finite",
}


class ScenarioError(UserError):
    """A scenario that cannot be used, with all its problems."""

    def __init__(self, message: str, problems: "tuple[Problem, ...]" = ()):
        super().__init__(message)
        self.problems = problems


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: at which key, with which value (if it has one), and what was expected."""

    path: str
    message: str
    value: Any = field(default=None)
    has_value: bool = False

    def __str__(self) -> str:
        value = f" = {shown(self.value)}" if self.has_value else ""
        return f"{one_line(self.path, 500) or 'the file'}{value}: {self.message}"


class Problems:
    """A list of problems that can be added to."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, path: str, message: str, *value: Any) -> None:
        """Note a problem; the value, if there is one to show, comes last."""
        self.found.append(Problem(path, message, value[0] if value else None, bool(value)))

    def collected(self, path: str, raw: Any, check: Callable[[], Any]) -> Any:
        """Return the result of a check of the value `raw` at `path`, or None after adding its errors to `found`."""
        try:
            return check()
        except PydanticCustomError as error:
            self.add(path, error.message(), *(() if error.type == MISSING else (raw,)))
        except ValidationError as error:
            for each in error.errors(include_url=False):
                value = () if each["type"] == MISSING else (each["input"],)
                self.add(joined(path, *each["loc"]), each["msg"], *value)
        return None

    def raise_if_any(self, name: str) -> None:
        """Raise one error with all problems of the file `name`."""
        if not self.found:
            return
        lines = [f"  {problem}" for problem in self.found[:_MOST_PROBLEMS]]
        if len(self.found) > _MOST_PROBLEMS:
            lines.append(f"  … and {len(self.found) - _MOST_PROBLEMS} more")
        head = f"{one_line(name, 500)}: {plural(len(self.found), 'problem')}"
        raise ScenarioError("\n".join([head, *lines]), tuple(self.found))


def problem(message: str, kind: str = WRONG) -> PydanticCustomError:
    """An error about the value that is being checked; of the kind `MISSING`, the value is not shown."""
    return PydanticCustomError(kind, "{message}", {"message": message})  # type: ignore[arg-type]


def problem_at(key: str, message: str, *value: Any) -> ValidationError:
    """An error about one key of the table that is being checked, with its value if it is to be shown."""
    return _errors([_details((key,), problem(message, WRONG if value else MISSING), *value)])


def checked(model: type[BaseModel], raw: Any, context: Any = None) -> Any:
    """A table as its model; errors are in our words and name the key that was probably meant.

    Parameters: `context`, which the types of the model need; see `argument_types`.
    """
    try:
        return model.model_validate(raw, context=context)
    except ValidationError as error:
        found = error.errors(include_url=False)
    except RecursionError:
        raise problem("is nested too deeply") from None
    details = []
    for each in found:
        kind = MISSING if each["type"] in ("missing", MISSING) else WRONG
        details.append(_details(each["loc"], problem(_in_words(each, model), kind), each["input"]))
    raise _errors(details)


def _in_words(error: Any, model: type[BaseModel]) -> str:
    if error["type"] == "extra_forbidden":
        known = _model_at(model, error["loc"][:-1]).model_fields
        return f"is no known key; {suggestion(error['loc'][-1], known)}"
    if error["type"] in (WRONG, MISSING):
        return error["msg"]
    message = _WORDS.get(error["type"]) or error["msg"][:1].lower() + error["msg"][1:]
    return message.replace("input should", "must")


def _model_at(model: type[BaseModel], location: tuple[str | int, ...]) -> type[BaseModel]:
    """The model of a table inside a table, where pydantic has found it by itself."""
    for part in location:
        annotation = model.model_fields[part].annotation if isinstance(part, str) else model
        model = table_model(annotation) or model
    return model


def table_model(annotation: Any) -> type[BaseModel] | None:
    """The model of a table that a field takes, perhaps beside None; None for a field that takes no table."""
    for each in (annotation, *get_args(annotation)):
        if inspect.isclass(each) and issubclass(each, BaseModel):
            return each
    return None


def _details(location: tuple[str | int, ...], error: PydanticCustomError, value: Any = None) -> InitErrorDetails:
    return InitErrorDetails(type=error, loc=location, input=value)


def _errors(details: list[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data("scenario", details)


def joined(path: str, *parts: str | int) -> str:
    """A dotted path, as `--set` takes it."""
    return ".".join([*([path] if path else []), *map(str, parts)])


def shown(value: Any) -> str:
    """A value of the file for a message: one short line of printable characters."""
    try:
        text = repr(str(value) if isinstance(value, PurePath) else value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits, or a very deep list
        text = f"({type(value).__name__})"
    text = one_line(text, 500)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
