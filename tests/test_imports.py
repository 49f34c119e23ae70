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

import pytest

import particleflow

ROOT = Path(particleflow.__file__).parent

# One list a level, from the ground up: a module may import modules of lower levels and its own package, nothing else.
# A new top-level module or package of particleflow gets its place here.
LEVELS = [
    ["errors", "status", "_version", "_names", "_precision", "_text"],
    ["compilation_cache", "stopping", "user_code", "_words"],
    ["_arrays", "_files", "_toml", "frame", "progress_bar"],
    ["_shown"],
    ["measure"],
    ["normal"],
    ["kernels"],
    ["moments", "geometry", "sphere_sampling", "store"],
    ["summation", "analysis"],
    ["local", "view"],
    ["notebook"],
    ["trajectory"],
    ["operators", "localization", "hierarchy", "exponential_family", "initial", "drifts", "folder_contents", "beside"],
    ["flow", "products"],
    ["discretization"],
    ["observables", "models", "stability", "transformer"],
    ["events"],
    ["integrate"],
    ["plan"],
    ["ensemble", "equilibria", "fingerprint", "approximation"],
    ["loop"],
    ["provenance"],
    ["recording"],
    ["simulation"],
    ["_schema"],
    ["scenario"],
    ["run_folder", "learning"],
    ["comparison", "run_file", "sweep"],
    ["cli"],
    ["__main__"],
]
# Everything on this side of the store reads files with NumPy alone.
WITHOUT_JAX = ["errors", "status", "_version", "_names", "_precision", "_text", "_words", "_files"]
WITHOUT_JAX += [
    "_toml",
    "notebook",
    "frame",
    "progress_bar",
    "store",
    "trajectory",
    "analysis",
    "view",
    "folder_contents",
    "beside",
    "products",
]
JAX_PACKAGES = {"jax", "jaxlib", "jaxtyping", "equinox", "diffrax", "lineax", "optimistix", "optax", "jax_finufft"}

LEVEL_OF = {name: level for level, names in enumerate(LEVELS) for name in names}


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
        if not happens(child):
            yield from (grandchild for other in child.orelse for grandchild in ast.walk(other))  # type: ignore[attr-defined]
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside_functions:
            continue
        yield child
        yield from statements(child, inside_functions=inside_functions)


@cache
def imported_by(path: Path, *, inside_functions: bool = True) -> set[str]:
    """The absolute names of all modules that a file imports; `from a import b` is a.b where that is a module."""
    found = set()
    package = module_name(path).split(".")
    package = package if path.name == "__init__.py" else package[:-1]
    for node in statements(ast.parse(path.read_text(encoding="utf-8")), inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            name = ".".join(part for part in (base, node.module or "") if part)
            submodules = {f"{name}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= submodules or {name}
    return found


def inside(modules: set[str]) -> set[str]:
    return {module for module in modules if module in MODULES}


def test_every_module_has_a_place():
    unknown = sorted({top_of(module) for module in MODULES} - LEVEL_OF.keys() - {""})
    assert not unknown, f"add {unknown} to LEVELS in tests/test_imports.py, above everything that they import"
    dangling = {(module, name) for module, path in MODULES.items() for name in imported_by(path)}
    missing = sorted(pair for pair in dangling if pair[1].split(".")[0] == "particleflow" and pair[1] not in MODULES)
    assert not missing, f"these imports name no module: {missing}"


@pytest.mark.parametrize("module", [module for module in MODULES if module != "particleflow"])
def test_imports_go_one_way(module):
    own = top_of(module)
    if own not in LEVEL_OF:
        pytest.fail(f"add {own!r} to LEVELS in tests/test_imports.py, above everything that it imports")
    wrong = sorted(
        name
        for name in inside(imported_by(MODULES[module])) - {"particleflow"}
        if top_of(name) != own and LEVEL_OF.get(top_of(name), 99) >= LEVEL_OF[own]
    )
    assert not wrong, f"{module} may only import modules of levels below its own (see LEVELS), but imports {wrong}"


@pytest.mark.parametrize("module", [module for module in MODULES if top_of(module) in WITHOUT_JAX])
def test_nothing_that_reads_files_reaches_jax(module):
    paths, ahead = {module: [module]}, [module]
    while ahead:
        current = ahead.pop()
        names = imported_by(MODULES[current])
        reached = sorted(name for name in names if name.split(".")[0] in JAX_PACKAGES)
        assert not reached, f"{' → '.join(paths[current])} imports {reached}"
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
        top_of(module) for module, path in MODULES.items() if "diffrax" in {n.split(".")[0] for n in imported_by(path)}
    }
    assert users <= {"integrate", "plan", "simulate", "simulation"}, f"diffrax is imported by {sorted(users)}"


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
        "import particleflow.store, particleflow.analysis, particleflow.view",
        "import particleflow.cli",
    ],
)
def test_reading_leaves_jax_out(statement):
    assert not loaded_after(statement) & JAX_PACKAGES


def test_importing_the_package_is_light():
    assert not loaded_after("import particleflow") & {"numpy", "scipy", "h5py", "matplotlib"}


@pytest.mark.parametrize(
    "statement",
    [
        "import particleflow, jax.numpy as jnp",
        "import jax.numpy as jnp, particleflow",
        pytest.param("import particleflow._arrays, jax.numpy as jnp", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("wish", "expected"), [(None, "float64"), ("0", "float32")])
def test_the_numbers_are_64_bits_unless_the_environment_says_otherwise(statement, wish, expected):
    environment = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"}
    environment |= {} if wish is None else {"JAX_ENABLE_X64": wish}
    code = f"{statement}; print(jnp.asarray(1.0).dtype)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert run.stdout.split() == [expected], run.stderr


LAZY = ("analysis", "discretization", "drifts", "initial", "kernels", "summation", "view")
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
