"""Random damage to scenario files, for tests that nothing a file says can bring the program down."""

import copy
import random
from typing import Any

from particleflow._support import toml

VALUES: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 2**31, 2**63, 10**400, -(10**30), 0.0, -0.0, 0.5, -2.5, 1e-320, 1e308, float("inf"),
    float("-inf"), float("nan"), True, False, "", "x", "sphere", "attend", "os:system", "../../etc/passwd",
    "<script>alert(1)</script>", "\u0000", "\U0001f600" * 3, "a" * 10_000, [], {}, [1, 2], [1.0, "x"],
    [[1.0], [2.0, 3.0]], [[[1.0]]], [[]], {"kind": "gaussian"}, {"kind": 3}, {"kind": "nothing"}, [{}],
    {"a": {"b": {"c": 1}}}, "x.npy", "\u0000.npy", {"random": "normal", "shape": [2, 2]},
    {"random": "orthogonal", "shape": [3, 3], "scale": 0.5, "seed": 1}, {"random": "uniform", "shape": [10**9, 10**9]},
    {"kind": "uniform_sphere", "dim": 2, "count": 4},
)  # fmt: skip
NAMES = ("kind", "beta", "bta", "count", "kernel", "drift", "time", "", "a b", "\u00e9", "__class__", "end", "x.y")


def places(node: Any, path: tuple = ()) -> list[tuple]:
    """The paths of all values in a document."""
    found = [path] if path else []
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        found += places(value, (*path, key))
    return found


def at(node: Any, path: tuple) -> Any:
    """The value at a path."""
    for part in path:
        node = node[part]
    return node


def mutated(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A copy of a document with one to three random changes, many of them small."""
    document = copy.deepcopy(document)
    for _ in range(chance.choice((1, 1, 2, 3))):
        paths = places(document)
        if not paths:
            break
        path = chance.choice(paths)
        _change(document, at(document, path[:-1]), path[-1], chance)
    return document


def _multiple(number: int | float, times: int, parts: int) -> int | float:
    """times/parts of a number, an integer of one: it may be larger than any float."""
    return number * times // parts if isinstance(number, int) else number * times / parts


def _change(document: dict[str, Any], parent: Any, key: Any, chance: random.Random) -> None:
    action = chance.randrange(8)
    if action >= 6 and isinstance(parent[key], int | float):
        parent[key] = _multiple(parent[key], *chance.choice(((1, 2), (2, 1), (9, 10))))
    elif action == 0:
        del parent[key]
    elif action <= 2:
        parent[key] = copy.deepcopy(chance.choice(VALUES))
    elif action == 3 and isinstance(parent, dict):
        parent[chance.choice(NAMES)] = parent.pop(key)
    elif action == 4:
        parent[key] = copy.deepcopy(at(document, chance.choice(places(document))))
    elif isinstance(parent, dict):
        parent[chance.choice(NAMES)] = copy.deepcopy(chance.choice(VALUES))
    else:
        parent.append(copy.deepcopy(parent[0]))


def mutated_text(document: dict[str, Any], chance: random.Random) -> str:
    """A damaged file: usually valid TOML with wrong content, sometimes not even TOML."""
    text = toml.dumps(mutated(document, chance))
    if chance.random() < 0.15:
        place = chance.randrange(len(text))
        text = text[:place] + chance.choice(["", "\x00", "[", '"', "= =", "\n[[", "\U0001f600"]) + text[place + 3 :]
    return text
