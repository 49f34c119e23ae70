"""The sources of particleflow import, read and replace nothing private of another package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import particleflow

ROOT = Path(particleflow.__file__).parent
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}

# Documented names that begin with an underscore.
DOCUMENTED = {"_replace", "_asdict", "_fields", "_make", "_exit", "_repr_html_"}
# What Python documents to be replaced: within `warnings.catch_warnings`, and in a process of one's own.
REPLACEABLE = {"warnings.showwarning", "sys.stdout", "sys.stderr"}
# What changes a whole process, and is nobody's business but the user's.
PROCESS_WIDE = {"os.fork", "os.forkpty", "os.nice", "os.setpriority", "sys.setswitchinterval", "sys.setrecursionlimit"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def own_names(nodes: list[ast.AST]) -> set[str]:
    """Private names that a file defines itself: functions, classes, fields, and attributes of `self`."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            names.add(node.attr)
    return names


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def foreign_modules(nodes: list[ast.AST]) -> set[str]:
    """The names by which a file knows other packages and what it imports from them."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            others = [alias for alias in node.names if alias.name.split(".")[0] != "particleflow"]
            names |= {alias.asname or alias.name.split(".")[0] for alias in others}
        elif isinstance(node, ast.ImportFrom) and not node.level and str(node.module).split(".")[0] != "particleflow":
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def imported_names(nodes: list[ast.AST]) -> Iterator[str]:
    """The dotted names that a file imports from other packages."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def dotted(node: ast.expr) -> str:
    """The source of a name with its attributes, "" of anything else; `ast.unparse` of every node takes seconds."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return before and f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def root_of(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def offences(source: str) -> list[str]:
    """What a file does that it must not, each in a few words with its line."""
    nodes = list(ast.walk(ast.parse(source)))
    own, foreign, found = own_names(nodes), foreign_modules(nodes), []
    for name in imported_names(nodes):
        if name.split(".")[0] not in ("particleflow", "__future__") and any(map(is_private, name.split("."))):
            found.append(f"imports {name}")
        if name.split(".")[0] == "gc" or name in PROCESS_WIDE:
            found.append(f"imports {name}")
    for node in nodes:
        if isinstance(node, ast.Attribute):
            said = dotted(node) or f"….{node.attr}"
            private = is_private(node.attr) and node.attr not in DOCUMENTED and not is_self(node.value)
            if (private and (node.attr not in own or root_of(node.value) in foreign)) or said in PROCESS_WIDE:
                found.append(f"line {node.lineno}: reads {said}")
            if node.attr in ("__closure__", "cell_contents") and not is_self(node.value):
                found.append(f"line {node.lineno}: looks into the closure {said}")
            if not isinstance(node.ctx, ast.Load) and root_of(node.value) in foreign and said not in REPLACEABLE:
                found.append(f"line {node.lineno}: replaces {said}")
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if ast.unparse(node.value) == "sys.modules" or ast.unparse(node.value).startswith("vars("):
                found.append(f"line {node.lineno}: replaces {ast.unparse(node)}")
        elif isinstance(node, ast.Call) and called(node) in CALLS and node.args:
            found += [f"line {node.lineno}: {each}" for each in offending_call(node, own, foreign)]
    return found


def called(call: ast.Call) -> str:
    """The last part of the name of the function that is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else dotted(function)


CALLS = {"getattr", "setattr", "delattr", "hasattr", "import_module", "__import__", "vars"}


def offending_call(call: ast.Call, own: set[str], foreign: set[str]) -> Iterator[str]:
    """The ways around the above: names in strings."""
    function, strings = called(call), [ast.unparse(each) for each in call.args]
    words = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if function in ("import_module", "__import__"):
        if any(is_private(part) for word in words for part in word.split(".")):
            yield f"imports {words[0]}"
    elif function in ("setattr", "delattr"):
        if root_of(call.args[0]) in foreign:
            yield f"replaces {', '.join(strings[:2])}"
    elif any(is_private(word) and word not in own | DOCUMENTED for word in words):
        yield f"reads {', '.join(strings[:2])}"


# Which functions of a user's own code have changed is told by what they hold, closures included.
CLOSURES_OF_USERS = {"simulation/recording/fingerprint.py", "_support/user_code.py"}


def test_other_packages_are_used_as_they_document():
    found = [f"{name}: {each}" for name, source in SOURCES.items() for each in offences(source)]
    assert [each for each in found if "closure" not in each or each.split(":")[0] not in CLOSURES_OF_USERS] == []


@pytest.mark.parametrize(
    "source",
    [
        "from jax._src import core",
        "from sklearn.utils.validation import _check_sample_weight",
        "import equinox._errors",
        "import diffrax\ndiffrax._integrate.loop",
        "import diffrax\ndef _integrate(): ...\ndiffrax._integrate",
        "def draw(fig): return fig._cachedRenderer",
        "import numpy as np\nnp.array = None",
        "from importlib import import_module\nimport_module('jaxlib._jax')",
        "from matplotlib.artist import Artist\nsetattr(Artist, 'draw', None)",
        "def look(lock): return getattr(lock, '_is_owned')",
        "import gc\ngc.disable()",
        "from gc import freeze",
        "import os\nos.fork()",
        "from os import nice",
        "import sys\nsys.modules['jax'] = None",
        "import equinox\nvars(equinox)['x'] = 1",
        "def spy(function): return function.__closure__",
    ],
)
def test_what_is_private_is_found(source):
    assert offences(source)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos._exit(1)",
        "class A:\n    _x: int\n    def same(self, other): return self._x == other._x",
        "def moved(form): return form._replace(bias=0)",
        "from particleflow._support import files\nfrom particleflow.app.runs.driver import _run",
        "import sys\n'jax' in sys.modules",
    ],
)
def test_what_is_ours_or_documented_is_not(source):
    assert offences(source) == []
