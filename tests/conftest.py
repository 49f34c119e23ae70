"""Every test runs with 64 bits, without silent broadcasting or casting, and without a display."""

import os
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


_tests_since_clearing = 0


@pytest.fixture(autouse=True)
def _compiled_code_does_not_pile_up():
    """Hundreds of small compiled functions take gigabytes: forget them now and then."""
    global _tests_since_clearing
    yield
    _tests_since_clearing += 1
    if _tests_since_clearing >= 60:
        _tests_since_clearing = 0
        jax.clear_caches()


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


@pytest.fixture
def show(browser, tmp_path: Path) -> Iterator:
    """Open a page and collect everything that must not happen; checked when the test ends."""
    from particleflow.view import page as write_page

    contexts, trouble = [], []

    def open_page(trajectory: Any, *, viewport: tuple[int, int] = (1280, 800), **options: Any):
        wanted: dict[str, Any] = {"analysis": False} | options
        path = write_page(trajectory, tmp_path / f"page{len(contexts)}.html", **wanted)
        size = {"width": viewport[0], "height": viewport[1]}
        context = browser.new_context(viewport=size, color_scheme="light", reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: trouble.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        page.evaluate("window.particleflow.ready")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []
