"""Imports go one way, and reading a trajectory never imports JAX.

Every module is parsed, not run. Imports inside functions count like those at the top of a file (they only come
later); imports for type checkers alone do not count, since they never happen.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

import particleflow
from shares import by_default

ROOT = Path(particleflow.__file__).parent

# One line a room: what it may import, beside itself, errors and _support. "root" is particleflow/__init__.py, which
# composes the rooms; rooms without JAX never reach it, not even through others. learning and transformer reach it
# for two names that they keep and that lie above them: `save_scenario` and `depth_figure`.
ROOMS = {
    "_support": "",
    "measure": "",
    "kernels": "measure",
    "summation": "measure kernels",
    "dynamics": "measure kernels summation trajectory",
    "discretization": "measure kernels summation dynamics",
    "simulation": "measure kernels summation dynamics discretization trajectory",
    "theory": "measure kernels summation dynamics discretization simulation",
    "models": "measure kernels summation",
    "learning": "measure kernels summation dynamics simulation trajectory root",
    "transformer": "measure kernels summation dynamics trajectory root",
    "trajectory": "",
    "analysis": "trajectory",
    "view": "trajectory analysis",
    "app": "measure kernels summation dynamics discretization simulation theory transformer trajectory analysis view",
}
WITHOUT_JAX = ("trajectory", "analysis", "view")
ALWAYS = {"errors", "_support", "_version"}
JAX_PACKAGES = {"jax", "jaxlib", "jaxtyping", "equinox", "diffrax", "lineax", "optimistix", "optax", "jax_finufft"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("particleflow", *(part for part in parts if part != "__init__")))


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def top_of(module: str) -> str:
    """The top-level module or package of particleflow that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def happens(node: ast.AST) -> bool:
    """Whether a statement runs at all: `if TYPE_CHECKING:` does not."""
    return not (isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"))


def statements(node: ast.AST, *, inside_functions: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # holds no imports
            continue
        if not happens(child):
            yield from (grandchild for other in child.orelse for grandchild in ast.walk(other))  # type: ignore[attr-defined]
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not inside_functions:
            continue
        yield child
        yield from statements(child, inside_functions=inside_functions)


class Source(NamedTuple):
    """What these tests read of a file; its tree is not kept, since so many nodes slow down every garbage collection."""

    imports: list[ast.AST]
    imports_when_loaded: list[ast.AST]
    called: set[str]
    docstring: str


@cache
def read(path: Path) -> Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return Source(
        [node for node in statements(tree, inside_functions=True) if isinstance(node, ast.Import | ast.ImportFrom)],
        [node for node in statements(tree, inside_functions=False) if isinstance(node, ast.Import | ast.ImportFrom)],
        {getattr(function, "attr", getattr(function, "id", "")) for function in functions},
        ast.get_docstring(tree) or "",
    )


@cache
def imported_by(path: Path, *, inside_functions: bool = True) -> set[str]:
    """The absolute names of all modules that a file imports; `from a import b` is a.b where that is a module."""
    found = set()
    package = module_name(path).split(".")
    package = package if path.name == "__init__.py" else package[:-1]
    for node in read(path).imports if inside_functions else read(path).imports_when_loaded:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            name = ".".join(part for part in (base, node.module or "") if part)
            submodules = {f"{name}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= submodules or {name}
    return found


def annotated_by(path: Path) -> set[str]:
    """The modules that a file imports, for type checkers alone or not."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def inside(modules: set[str]) -> set[str]:
    return {module for module in modules if module in MODULES}


def reached(room: str) -> set[str]:
    """The rooms that the modules of a room import, beside their own."""
    names = {name for module, path in MODULES.items() if top_of(module) == room for name in imported_by(path)}
    rooms = {top_of(name) or "root" for name in names if name.split(".")[0] == "particleflow"}
    return rooms - {room}


def test_every_module_is_in_a_room():
    assert {top_of(module) for module in MODULES} - {"", "__main__", "errors", "_version"} == ROOMS.keys()
    dangling = {(module, name) for module, path in MODULES.items() for name in imported_by(path)}
    missing = sorted(pair for pair in dangling if pair[1].split(".")[0] == "particleflow" and pair[1] not in MODULES)
    assert not missing, f"these imports name no module: {missing}"


def test_the_root_has_at_most_six_public_modules():
    files = {path.stem for path in ROOT.glob("*.py")}
    assert len({name for name in files if not name.startswith("_")}) <= 6
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders - {"_scenarios"} == ROOMS.keys() - files


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_its_line_says(room):
    """No more, and no less: a line that allows what nobody imports any more is out of date."""
    assert reached(room) - ALWAYS == set(ROOMS[room].split())


def test_errors_and_the_version_import_nothing():
    assert not reached("errors")
    assert "particleflow" not in {name.split(".")[0] for name in annotated_by(MODULES["particleflow.errors"])}
    assert not reached("_version")
    assert reached("_support") == {"errors"}


# Where a module is imported by its name in a string, and why no import statement can do it.
IMPORTS_BY_STRING = {
    "particleflow.app.scenario.schema.registry": "code that a scenario names",
    "particleflow.trajectory.export.interop": "packages of an extra, with a sentence where one is missing",
    "particleflow.transformer.checkpoint_files": "packages of an extra, with a sentence where one is missing",
}


def test_modules_are_imported_by_statements():
    """A name in a string hides an import from the tables above, and from readers."""
    calls = {"import_module", "__import__"}
    found = {module for module, path in MODULES.items() if read(path).called & calls}
    assert found == IMPORTS_BY_STRING.keys()


def test_no_two_files_have_one_name():
    names = [path.name for path in ROOT.rglob("*.py") if path.name not in ("__init__.py", "base.py")]
    assert sorted(names) == sorted(set(names))


def test_every_package_says_its_purpose():
    for path in ROOT.rglob("__init__.py"):
        assert len(read(path).docstring) > 30, path


@pytest.mark.parametrize("module", [module for module in MODULES if top_of(module) in WITHOUT_JAX])
def test_nothing_that_reads_files_reaches_jax(module):
    paths, ahead = {module: [module]}, [module]
    while ahead:
        current = ahead.pop()
        names = imported_by(MODULES[current])
        found = sorted(name for name in names if name.split(".")[0] in JAX_PACKAGES)
        assert not found, f"{' → '.join(paths[current])} imports {found}"
        for name in sorted(inside(names) - paths.keys() - {"particleflow"}):
            paths[name] = [*paths[current], name]
            ahead.append(name)


def test_no_cycles_when_modules_are_loaded():
    graph = {module: inside(imported_by(path, inside_functions=False)) for module, path in MODULES.items()}
    state: dict[str, str] = {}

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert state.get(module) != "open", f"modules import each other: {' → '.join((*path, module))}"
        if module in state:
            return
        state[module] = "open"
        for name in sorted(graph[module]):
            visit(name, (*path, module))
        state[module] = "done"

    for module in graph:
        visit(module, ())


def test_only_the_integrator_knows_the_solvers():
    users = {
        module.rpartition(".")[0]
        for module, path in MODULES.items()
        if "diffrax" in {name.split(".")[0] for name in imported_by(path)}
    }
    assert users == {"particleflow.simulation.stepping"}


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import particleflow",
        "import particleflow.trajectory",
        "import particleflow.trajectory.store, particleflow.analysis, particleflow.view",
        "import particleflow.app.cli",
    ],
)
def test_reading_leaves_jax_out(statement):
    assert not loaded_after(statement) & JAX_PACKAGES


def test_importing_the_package_is_light():
    assert not loaded_after("import particleflow") & {"numpy", "scipy", "h5py", "matplotlib"}


PARTICLEFLOW_FIRST, JAX_FIRST = "import particleflow, jax.numpy as jnp", "import jax.numpy as jnp, particleflow"
STATEMENTS = [PARTICLEFLOW_FIRST, JAX_FIRST, "import particleflow._support.arrays, jax.numpy as jnp"]
PRECISIONS = [(each, *precision) for each in STATEMENTS for precision in ((None, "float64"), ("0", "float32"))]


BY_DEFAULT = [(PARTICLEFLOW_FIRST, None, "float64"), (JAX_FIRST, "0", "float32")]


@pytest.mark.parametrize("case", by_default(PRECISIONS, BY_DEFAULT), ids=str)
def test_the_numbers_are_64_bits_unless_the_environment_says_otherwise(case):
    statement, wish, expected = case
    environment = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"}
    environment |= {} if wish is None else {"JAX_ENABLE_X64": wish}
    code = f"{statement}; print(jnp.asarray(1.0).dtype)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert run.stdout.split() == [expected], run.stderr


LAZY = (
    "analysis",
    "app",
    "app.scenario",
    "discretization",
    "dynamics",
    "dynamics.drifts",
    "dynamics.initial",
    "kernels",
)
LAZY += ("simulation", "summation", "theory", "trajectory", "transformer", "view")
LAZY_PACKAGES = [particleflow, *(import_module(f"particleflow.{name}") for name in LAZY)]


@pytest.mark.parametrize("package", LAZY_PACKAGES, ids=lambda package: package.__name__)
def test_every_lazy_name_is_there(package):
    assert sorted(package.__all__) == dir(package)
    for name in package.__all__:
        home = getattr(getattr(package, name), "__module__", package.__name__)
        assert home.startswith(package.__name__), name
    with pytest.raises(AttributeError, match="nothing"):
        _ = package.nothing


def test_lazy_names_are_those_that_type_checkers_see():
    """What a stub re-exports is written `name as name`; each such name, and no other, exists when the package runs."""
    for package in LAZY_PACKAGES:
        stub = ast.parse(Path(str(package.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
        aliases = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
        assert all(alias.name == alias.asname for alias in aliases)
        assert sorted(alias.name for alias in aliases) == sorted(package.__all__)
