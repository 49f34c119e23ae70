"""House rules that a machine can check: sizes of files, shares of documentation, and nobody asking for classes."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

import particleflow

ROOT = Path(particleflow.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
SCRIPTS = sorted(ROOT.rglob("*.js"))
TESTS = sorted(Path(__file__).parent.rglob("*.py"))

# Families of objects that say what they can do: outside of these folders nobody asks one of them for its class.
FAMILIES = {
    "kernels": ["kernels"],
    "drifts": ["drifts", "flow"],
    "geometry": ["geometry"],
    "summation": ["summation"],
    "discretization": ["discretization"],
}
MATHEMATICAL = ["kernels", "geometry", "drifts", "summation", "discretization", "stability", "observables"]
MATHEMATICAL_FILES = ["measure", "moments", "local", "operators", "flow", "events"]
LEAST_SHARE = 0.20


def place(path: Path) -> str:
    return str(path.relative_to(ROOT.parent))


@pytest.mark.parametrize("path", [*SOURCES, *SCRIPTS, *TESTS], ids=lambda path: path.name)
def test_no_file_is_longer_than_four_hundred_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def classes_of(folder: str) -> set[str]:
    """The names of the classes that a family's folder defines."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    return found


def asked_classes(path: Path) -> set[str]:
    """The names of classes that a file gives to `isinstance` or `issubclass`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            found |= {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
            found |= {each.attr for each in ast.walk(node.args[1]) if isinstance(each, ast.Attribute)}
    return found


# What a user hands over is checked for its kind where it comes in, once.
AT_THE_DOOR = {"AbstractDrift", "AbstractKernel", "AbstractGeometry", "AbstractSummation", "AbstractDiscretization"}


@pytest.mark.parametrize("family", FAMILIES)
def test_outside_its_folder_nobody_asks_for_a_class(family):
    concrete = classes_of(family) - AT_THE_DOOR
    asking = {}
    for path in SOURCES:
        if path.relative_to(ROOT).with_suffix("").parts[0] in FAMILIES[family]:
            continue
        if asked := asked_classes(path) & concrete:
            asking[place(path)] = asked
    assert not asking


def test_nobody_asks_what_attributes_a_kernel_has():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("hasattr", "getattr"):
                names = [each.value for each in node.args[1:2] if isinstance(each, ast.Constant)]
                assert not {"beta", "width", "summation", "kernel"} & set(names), f"{place(path)}:{node.lineno}"


def documented_share(path: Path) -> float:
    """The share of lines that explain: docstrings and comments, of all lines that are not blank."""
    text = path.read_text(encoding="utf-8")
    explaining = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            string = node.body[0]
            explaining |= set(range(string.lineno, (string.end_lineno or string.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            explaining.add(token.start[0])
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return sum(number in explaining for number in lines) / len(lines)


def mathematical() -> list[Path]:
    folders = [path for folder in MATHEMATICAL for path in sorted((ROOT / folder).glob("*.py"))]
    return [path for path in folders if path.name != "__init__.py"] + [
        ROOT / f"{name}.py" for name in MATHEMATICAL_FILES
    ]


@pytest.mark.parametrize("path", mathematical(), ids=place)
def test_mathematics_is_explained(path):
    assert documented_share(path) >= LEAST_SHARE


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_nothing_is_read_that_could_run(path):
    """No pickle in any form: what is read from a file or another process is numbers and text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        imported = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in imported} & {"pickle", "marshal", "shelve", "dill", "joblib"}
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False
