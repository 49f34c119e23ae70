"""Every test runs with 64 bits, without silent broadcasting or casting, and without a display."""

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# POT, an oracle of some tests, imports every package of arrays that it finds; torch alone takes seconds.
for _package in ("CUPY", "JAX", "PYTORCH", "TENSORFLOW"):
    os.environ[f"POT_BACKEND_DISABLE_{_package}"] = "1"

HERE = Path(__file__).parent
# Processes that tests start find helpers and oracles, too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(HERE / "helpers"), str(HERE / "oracles"), *filter(None, [os.environ.get("PYTHONPATH")])]
)

QUICK_TO_COMPILE = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"

# The same examples every time, and no deadline: the first example of a law also compiles.
settings.register_profile(
    "particleflow",
    deadline=None,
    derandomize=True,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("particleflow")


def pytest_configure(config: pytest.Config) -> None:
    """Compile without LLVM's costly passes, in this process and in those that tests start.

    Most tests run a program once, so that making it costs more than running it. The slow tests run theirs for long and
    keep every pass, as do all tests with JAX_DISABLE_MOST_OPTIMIZATIONS=0 in the environment. JAX 0.9 has a second,
    slower way to emit fused operations: without it a program is made in half of the time, and in .85 of that if it is
    emitted in one piece (later releases may stop at the names of these flags).
    """
    _share_what_is_compiled(config)
    if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
        quick = config.option.markexpr == "not slow"
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quick))
        jax.config.update("jax_disable_most_optimizations", quick)
        if quick and jax.__version_info__ < (0, 10):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK_TO_COMPILE}".strip()


def _share_what_is_compiled(config: pytest.Config) -> None:
    """Keep programs for all processes of these tests, and nothing of it after them.

    What is forgotten between two files (see below), or compiled by another worker or by a command that a test starts,
    is read back in a fraction of the time.
    """
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="particleflow-compiled-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    for name, value in {"min_compile_time_secs": 0.0, "min_entry_size_bytes": -1}.items():
        os.environ[f"JAX_PERSISTENT_CACHE_{name.upper()}"] = str(value)
        jax.config.update(f"jax_persistent_cache_{name}", value)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect fifteen thousand tests without looking for garbage, and never look among them: they stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module")
def every_optimization() -> Iterator[None]:
    """Compile as users do, for tests about the compiler or with more to compute than to compile."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, neighbouring tests stay in one process and share what it has compiled, unless `--dist` is given."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.option.dist == "load" else None


_tests_since_clearing = 0
_MANY = {"small": 300, "whole": 40}  # so many tests leave so much compiled code that a process may die of it


def _forget_compiled_code() -> None:
    global _tests_since_clearing
    _tests_since_clearing = 0
    jax.clear_caches()


@pytest.fixture(autouse=True)
def _counted(request: pytest.FixtureRequest) -> None:
    """Slow tests of one file make a whole program each: forget them on the way, too."""
    global _tests_since_clearing
    if _tests_since_clearing >= _MANY["whole"] and request.config.option.markexpr != "not slow":
        _forget_compiled_code()
    _tests_since_clearing += 1


@pytest.fixture(scope="module", autouse=True)
def _compiled_code_does_not_pile_up() -> Iterator[None]:
    """Hundreds of small compiled functions take gigabytes: forget them now and then, between two files."""
    yield
    if _tests_since_clearing >= _MANY["small"]:
        _forget_compiled_code()


@pytest.fixture(scope="module")
def browser() -> Iterator:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs `pip install playwright` (no browser download)"
    )
    from page_oracles import ARGUMENTS, BROWSERS, browser_path

    path = browser_path()
    if path is None:
        pytest.skip(f"no browser found: install Debian's `chromium` (looked for {', '.join(BROWSERS)})")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, headless=True, args=ARGUMENTS)
        yield opened
        opened.close()


def _open_page(
    browser: Any, path: Path, trouble: list[str], width: int, height: int, before: str, motion: Any = "reduce"
) -> Any:
    """Open a page in a context of its own; what must not happen is appended to `trouble`."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="light", reduced_motion=motion
    )
    page = context.new_page()
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: trouble.append(request.url) if request.url != path.as_uri() else None)
    if before:
        page.add_init_script(before)
    page.goto(path.as_uri())
    page.evaluate("window.particleflow.ready")
    return page


@pytest.fixture
def show(browser, tmp_path: Path) -> Iterator:
    """Open pages of trajectories; no error, dialog or request may have happened.

    `before` is a script to run first, `motion` what the reader's system prefers: "reduce" opens a page at rest.
    """
    from particleflow.view import page as write_page

    pages, trouble = [], []

    def open_page(
        trajectory: Any, *, viewport: tuple[int, int] = (1280, 800), before: str = "", motion: str = "reduce",
        **options: Any,
    ):  # fmt: skip
        wanted: dict[str, Any] = {"analysis": False} | options
        path = write_page(trajectory, tmp_path / f"page{len(pages)}.html", **wanted)
        pages.append(_open_page(browser, path, trouble, *viewport, before, motion))
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()
    assert trouble == []


@pytest.fixture(scope="module")
def _page_of_planted_clusters(browser, tmp_path_factory) -> Iterator:
    from page_oracles import demo, planted
    from particleflow.view import page as write_page

    trouble: list[str] = []
    path = write_page(demo(), tmp_path_factory.mktemp("page") / "page.html", analysis=False, **planted())
    page = _open_page(browser, path, trouble, 1280, 800, "")
    yield page, trouble
    page.context.close()


@pytest.fixture
def planted_page(_page_of_planted_clusters) -> Iterator:
    """The page of a run with planted clusters that the tests of a file share, at its first frame."""
    page, trouble = _page_of_planted_clusters
    page.evaluate("window.particleflow.pause(); window.particleflow.seek(0)")
    yield page
    assert trouble == []
