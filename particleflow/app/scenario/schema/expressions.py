"""Numbers of a scenario that are computed from its other numbers, by a small grammar; nothing is ever executed.

    beta = { expression = "2 * log(count)" }                    count is that of [initial]
    beta = { expression = "gamma * log(count)" }                gamma is one of [numbers], the user's own
    end = { expression = "10 / drift.0.kernel.beta" }           any number of the file, by its dotted path

    sum      product, or several joined by + and −              product   factor, or several joined by * and /
    factor   −factor, or value, or value ^ factor               value     number, name, function(sum, …), (sum)

A name is the dotted path of a number in the file, which may be an expression itself, or a key of [initial] or [numbers]
without its table, or one of the constants pi and e. A whole result is a whole number. Values that a sweep or `--set`
gives to the names change the result with them; in [sweep] itself there are no expressions.
"""

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from particleflow._support.text import nearest_name
from particleflow.app.scenario.schema.problems import Problems, joined, shown, suggestion
from particleflow.errors import UserError

KEY = "expression"
LONGEST = 300
_DEEPEST = 24  # tables inside tables
_MOST_NAMED = 8  # numbers of the file in a message
_PATH = "drift.0.kernel.beta"
_TOKEN = re.compile(
    r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*(?:\.\w+)*)|(\*\*|[-+*/^(),]))"
)
_WITHOUT_TABLE = ("initial", "numbers")  # whose keys may be named without their table
_CONSTANTS = {"pi": math.pi, "e": math.e}
_OF_ONE: dict[str, Callable[[float], Any]] = {
    "abs": abs, "ceil": math.ceil, "cos": math.cos, "exp": math.exp, "floor": math.floor, "log": math.log,
    "round": round, "sin": math.sin, "sqrt": math.sqrt, "tanh": math.tanh,
}  # fmt: skip
_OF_SEVERAL: dict[str, Callable[[list[float]], float]] = {"max": max, "min": min}
SCHEMA = {
    "type": "object",
    "title": "a number computed from others",
    "properties": {KEY: {"type": "string", "maxLength": LONGEST}},
    "required": [KEY],
    "additionalProperties": False,
}


def grammar() -> str:
    """What can be written in an expression, in paragraphs, with all names that there are."""
    functions, several = ", ".join(_OF_ONE), " and ".join(_OF_SEVERAL)
    return f"""A number that is computed from other numbers of the file, written in the place of any number.

Signs: + - * / and ^ (or **) for powers, with round brackets; - also before a number. The usual order: powers first,
from the right, then * and /, then + and -.

Names: a dotted path of the file, such as {_PATH}; a key of [initial] or of your own table
[numbers], without its table; {" and ".join(_CONSTANTS)}. A name may be that of another expression, but none may depend
on itself.

Functions: {functions} of one number;
{several} of several. The logarithm is the natural one.

A result that is a whole number can stand for a count. What `--set` or a sweep changes, expressions follow; in [sweep]
itself there are none. Nothing is ever executed."""


EXAMPLE = """[numbers]
gamma = 2.0

[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = { expression = "gamma * log(count)" } }"""


def with_numbers(raw: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """A parsed file with every expression replaced by its number; those that are wrong are added to `problems`."""
    names = _Names(raw)

    def walk(node: Any, path: str, depth: int) -> Any:
        if _is_expression(node):
            try:
                return _plain(names.computed(path, node[KEY]))
            except (UserError, RecursionError) as error:
                said = str(error) if isinstance(error, UserError) else "is nested too deeply"
                problems.add(path, said, node[KEY])
                return 1
        if depth > _DEEPEST:
            return node
        if isinstance(node, dict):
            return {name: walk(value, joined(path, name), depth + 1) for name, value in node.items()}
        if isinstance(node, list):
            return [walk(value, joined(path, place), depth + 1) for place, value in enumerate(node)]
        return node

    return {name: value if name == "sweep" else walk(value, name, 1) for name, value in raw.items()}


def _is_expression(node: Any) -> bool:
    return isinstance(node, dict) and set(node) == {KEY}


def _is_number(node: Any) -> bool:
    return isinstance(node, int | float) and not isinstance(node, bool)


def _plain(value: float) -> float | int:
    """A whole number as one, so that counts can be computed."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


class _Names:
    """The numbers of a file by their names; every expression is computed once."""

    def __init__(self, raw: dict[str, Any]):
        self.raw = raw
        self._found: dict[str, float] = {}
        self._open: list[str] = []  # the paths of the expressions that are being computed

    def computed(self, path: str, text: Any) -> float:
        """The value of the expression at a path."""
        if path in self._found:
            return self._found[path]
        if not isinstance(text, str) or len(text) > LONGEST:
            raise UserError(f"must be a text of at most {LONGEST} characters")
        if path in self._open:
            raise UserError(f"depends on itself: {' → '.join([*self._open[-4:], path])}")
        self._open.append(path)
        try:
            found = float(_Reader(text, self).value())
        except (ArithmeticError, ValueError) as error:
            raise UserError(f"has no value: {error}") from error
        finally:
            self._open.pop()
        if not math.isfinite(found):
            raise UserError(f"has the value {found}")
        self._found[path] = found
        return found

    def value(self, name: str) -> float:
        """The number that a name stands for."""
        for path in (name, *(f"{table}.{name}" for table in _WITHOUT_TABLE)):
            found = _node_at(self.raw, path)
            if _is_expression(found):
                return self.computed(path, found[KEY])
            if _is_number(found):
                return float(found)
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        raise UserError(f"names {shown(name)}, which is no number of the file; {self._hint(name)}")

    def _hint(self, name: str) -> str:
        """What a wrong name may have meant, or how the numbers of the file are named."""
        known = self._known()
        near = nearest_name(name, known)
        if near is not None:
            return f"did you mean {near!r}?"
        short = [each for each in known if "." not in each and each not in _CONSTANTS]
        return f"there is {', '.join(sorted(short)[:_MOST_NAMED])}, or a dotted path such as {_PATH}"

    def _known(self) -> list[str]:
        """The names that there are."""
        known, ahead = [*_CONSTANTS], [("", self.raw)]
        while ahead:
            path, node = ahead.pop()
            if _is_number(node) or _is_expression(node):
                known.append(path)
            elif isinstance(node, dict | list) and path.count(".") < _DEEPEST:
                items = node.items() if isinstance(node, dict) else enumerate(node)
                ahead += [(joined(path, key), value) for key, value in items if key != "sweep"]
        short = [name.partition(".")[2] for name in known if name.partition(".")[0] in _WITHOUT_TABLE]
        return known + short


def _node_at(raw: Any, path: str) -> Any:
    """What stands at a dotted path, or None; numbers count the items of a list."""
    for key in path.split("."):
        if isinstance(raw, dict):
            raw = raw.get(key)
        elif isinstance(raw, list) and key.isdecimal() and len(key) < 9 and int(key) < len(raw):
            raw = raw[int(key)]
        else:
            return None
    return raw


class _Token(NamedTuple):
    kind: str
    text: str


def _tokens(text: str) -> list[_Token]:
    """The numbers, names and signs of an expression, with an end."""
    found, place = [], 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            raise UserError(f"cannot be read at {shown(text[place:].strip()[:20])}")
        kind = ("number", "name", "sign")[match.lastindex - 1] if match.lastindex else "sign"
        found.append(_Token(kind, match[match.lastindex or 0]))
        place = match.end()
    return [*found, _Token("end", "the end")]


class _Reader:
    """Reads an expression from left to right and computes it on the way."""

    def __init__(self, text: str, names: _Names):
        self.tokens, self.names = _tokens(text)[::-1], names

    def value(self) -> float:
        """The value of the whole expression."""
        found = self._sum()
        if self.tokens[-1].kind != "end":
            raise UserError(f"cannot be read at {shown(self.tokens[-1].text)}")
        return found

    def _taken(self, *signs: str) -> str | None:
        """The next sign, taken away, if it is one of these."""
        following = self.tokens[-1]
        return self.tokens.pop().text if following.kind == "sign" and following.text in signs else None

    def _sum(self) -> float:
        found = self._product()
        while sign := self._taken("+", "-"):
            found = found + self._product() if sign == "+" else found - self._product()
        return found

    def _product(self) -> float:
        found = self._factor()
        while sign := self._taken("*", "/"):
            found = found * self._factor() if sign == "*" else found / self._factor()
        return found

    def _factor(self) -> float:
        if self._taken("-"):
            return -self._factor()
        found = self._value()
        if not self._taken("^", "**"):
            return found
        power = found ** self._factor()
        if isinstance(power, complex):
            raise UserError(f"has no value: a root of {found:g}")
        return power

    def _value(self) -> float:
        token = self.tokens.pop()
        if token.kind == "number":
            return float(token.text)
        if token.kind == "name":
            return self._called(token.text) if self._taken("(") else self.names.value(token.text)
        if token == _Token("sign", "("):
            found = self._sum()
            self._close()
            return found
        raise UserError(f"cannot be read at {shown(token.text)}")

    def _called(self, name: str) -> float:
        """The value of a function, whose arguments follow."""
        if name not in (*_OF_ONE, *_OF_SEVERAL):
            hint = suggestion(name, [*_OF_ONE, *_OF_SEVERAL])
            raise UserError(f"calls {shown(name)}, which is no function here; {hint}")
        arguments = [self._sum()]
        while self._taken(","):
            arguments.append(self._sum())
        self._close()
        if name in _OF_SEVERAL:
            return _OF_SEVERAL[name](arguments)
        if len(arguments) > 1:
            raise UserError(f"gives {name} {len(arguments)} arguments, but it takes one")
        return float(_OF_ONE[name](arguments[0]))

    def _close(self) -> None:
        if not self._taken(")"):
            raise UserError(f"lacks a closing bracket before {shown(self.tokens[-1].text)}")
