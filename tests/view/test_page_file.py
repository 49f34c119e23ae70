"""The interactive page as a file: it asks for nothing, takes no element from outside, and stays small."""

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from page_oracles import EVIL, demo
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import page as write_page
from shares import by_default


class Page(HTMLParser):
    """Collects what a browser would act on: elements, addresses and the bodies of scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_file_asks_for_nothing(tmp_path: Path):
    text = write_page(demo(), tmp_path / "page.html", analysis=False).read_text(encoding="utf-8")
    page = Page(text)
    addresses = [attrs[name] for _, attrs in page.tags for name in ("src", "href", "srcset", "action") if name in attrs]
    assert addresses == ["data:,"]
    assert not re.search(r"https?://|@import|url\(", text)
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_text_from_outside_adds_no_element(tmp_path: Path):
    def shape(title: str) -> list[str]:
        text = write_page(demo(title), tmp_path / "page.html", analysis=False).read_text(encoding="utf-8")
        return [tag for tag, _ in Page(text).tags]

    assert shape(EVIL) == shape("harmless")
    assert shape("</script><!--<script>\u2028]]>[[script]]") == shape("harmless")


def test_a_notebook_gets_the_same_page_in_a_sandboxed_frame(tmp_path: Path):
    """One element, whatever the title, with all of the page in an attribute, and without the notebook's origin."""
    run = demo(EVIL)
    embedded = write_page(run, analysis=False, height=500)
    [(tag, attributes)] = Page(embedded._repr_html_()).tags
    assert tag == "iframe"
    assert attributes["srcdoc"] == write_page(run, tmp_path / "page.html", analysis=False).read_text(encoding="utf-8")
    assert set(attributes["sandbox"].split()) == {"allow-scripts", "allow-downloads"}
    assert attributes["title"] == EVIL
    assert "500px" in attributes["style"]
    assert unescape(embedded._repr_html_()).count("<iframe") == 1


@pytest.mark.slow
def test_a_page_in_a_notebook_is_smaller_than_a_file():
    points = np.random.default_rng(0).normal(size=(300, 2000, 3)).cumsum(axis=0)
    run = Trajectory.from_arrays(np.arange(300.0), points)
    assert 1e6 < len(write_page(run, analysis=False).text) < 5e6


@pytest.mark.parametrize("size", by_default([300_000, 600_000], [300_000]))
def test_large_runs_stay_under_the_limit(tmp_path: Path, size: int):
    points = np.random.default_rng(0).normal(size=(200, 1500, 3)).cumsum(axis=0)
    path = write_page(
        Trajectory.from_arrays(np.arange(200.0), points), tmp_path / "p.html", analysis=False, max_bytes=size
    )
    assert 0.4 * size < path.stat().st_size <= size


def test_wrong_arguments_are_named(tmp_path: Path):
    with pytest.raises(ShapeError, match=r"`labels` must have shape \(40, 60\)"):
        write_page(demo(), tmp_path / "page.html", labels=np.zeros((2, 60)))
    with pytest.raises(ArgumentError, match="theme"):
        write_page(demo(), tmp_path / "page.html", theme="sepia")
    with pytest.raises(ArgumentError, match="height"):
        write_page(demo(), height=10)
    with pytest.raises(ArgumentError, match="max_bytes"):
        write_page(demo(), tmp_path / "page.html", max_bytes=1000)
    assert not list(tmp_path.iterdir())
