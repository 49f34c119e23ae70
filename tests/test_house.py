"""House rules that a machine can check: documentation, names, sizes of bases, and nothing read that could run."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import particleflow

ROOT = Path(particleflow.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
ROOMS = sorted(path for path in ROOT.iterdir() if path.is_dir() and any(path.rglob("*.py")))
ROOMS += [ROOT / "measure.py"]

# The least share of documentation among the lines of a room that are not blank.
MATHEMATICAL = {"measure.py", "kernels", "summation", "dynamics", "discretization", "theory"}
LEAST_SHARE = {True: 0.22, False: 0.18}

MOST_METHODS_OF_A_BASE = 10

COMMENT = re.compile(r"(?:^|\s)#(?:\s|$)")


def place(path: Path) -> str:
    return str(path.relative_to(ROOT.parent))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """The classes at the top of all modules."""
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                yield path, node


def methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """The public methods and properties that a class defines itself."""
    found = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    return {name: each for name, each in found.items() if not name.startswith("_")}


def bases() -> dict[str, ast.ClassDef]:
    return {node.name: node for _, node in classes() if node.name.startswith("Abstract")}


def descendants(name: str) -> list[ast.ClassDef]:
    """The classes of the package below a base, by the names of their parents."""
    below, ahead = [], [name]
    while ahead:
        current = ahead.pop()
        for _, node in classes():
            parents = {re.sub(r"\[.*", "", ast.unparse(base)).split(".")[-1] for base in node.bases}
            if current in parents:
                below.append(node)
                ahead.append(node.name)
    return below


def documentation_of(path: Path) -> tuple[int, int]:
    """How many lines of a file explain (docstrings and comments), and how many are not blank."""
    text = path.read_text(encoding="utf-8")
    explaining = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            string = node.body[0]
            explaining |= set(range(string.lineno, (string.end_lineno or string.lineno) + 1))
    lines = {number: line for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    return sum(number in explaining or bool(COMMENT.search(line)) for number, line in lines.items()), len(lines)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_room_is_documented(room):
    counts = [documentation_of(path) for path in (sorted(room.rglob("*.py")) if room.is_dir() else [room])]
    share = sum(explaining for explaining, _ in counts) / sum(lines for _, lines in counts)
    assert share >= LEAST_SHARE[room.name in MATHEMATICAL], f"{place(room)}: {share:.3f}"


def documented() -> Iterator[tuple[str, str]]:
    """Every public class, function and method by its place, with its docstring or an empty string."""
    for path in SOURCES:
        for node in parsed(path).body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            yield f"{place(path)}:{node.lineno} {node.name}", ast.get_docstring(node) or ""
            for method in methods_of(node).values() if isinstance(node, ast.ClassDef) else ():
                yield f"{place(path)}:{method.lineno} {node.name}.{method.name}", ast.get_docstring(method) or ""


def test_everything_public_has_a_docstring():
    missing = [name for name, text in documented() if not text]
    assert not missing, "\n".join(missing)


def test_docstrings_say_something():
    """A sentence has at least four words, and does not send the reader of `help` elsewhere."""
    short = [name for name, text in documented() if text and len(text.split()) < 4]
    assert not short, "\n".join(short)
    elsewhere = re.compile(r"[Ss]ee the module|module's first lines")
    pointing = [name for name, text in documented() if elsewhere.search(text)]
    assert not pointing, "\n".join(pointing)


def test_no_two_public_classes_share_a_name():
    found = defaultdict(list)
    for path, node in classes():
        if not node.name.startswith("_"):
            found[node.name].append(place(path))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


# Found by text, so that collecting these tests parses no file.
BASES = sorted(
    {name for path in SOURCES for name in re.findall(r"^class (Abstract\w+)", path.read_text("utf-8"), re.M)}
)


@pytest.mark.parametrize("name", BASES)
def test_a_base_holds_its_core(name):
    """At most ten methods; one that members may replace is replaced by two at least, else it is a capability."""
    methods = methods_of(bases()[name])
    assert len(methods) <= MOST_METHODS_OF_A_BASE, sorted(methods)
    members = descendants(name)
    replaced = {method: [each.name for each in members if method in methods_of(each)] for method in methods}
    lonely = {method: names for method, names in replaced.items() if len(names) == 1}
    assert not lonely, f"{name}: only one member has its own {lonely}; make it a capability"


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_nothing_is_read_that_could_run(path):
    """No pickle in any form: what is read from a file or another process is numbers and text."""
    for node in ast.walk(parsed(path)):
        imported = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in imported} & {"pickle", "marshal", "shelve", "dill", "joblib"}
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False
