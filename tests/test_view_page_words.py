"""Words on the page, in a real browser: on hover, in the legend and beside the particles, never as markup."""

from itertools import combinations

import numpy as np
from page_oracles import EVIL, demo, planted, state

from particleflow.trajectory import Trajectory

WORDS = [f"word{place}" for place in range(60)]


def names(page) -> list[dict]:
    """What is written beside particles, each inside of the stage and over no other."""
    state(page)
    found = page.evaluate("window.particleflow.names()")
    stage = page.locator("#stage").bounding_box()
    for name in found:
        left, top, right, bottom = name["box"]
        assert 0 <= left < right <= stage["width"]
        assert 0 <= top < bottom <= stage["height"]
    for one, other in combinations([name["box"] for name in found], 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    return found


def test_hover_legend_and_names_tell_the_words(show):
    """Two groups of thirty: at the end a name and a legend entry for each, of its words."""
    run = demo(words=WORDS)
    page = show(run, **planted())
    alone = names(page)
    assert len(alone) > 10
    assert {name["text"] for name in alone} <= set(WORDS) | {f"{a}, {b}" for a in WORDS for b in WORDS if a != b}
    page.evaluate(f"window.particleflow.seek({run.times[-1]})")
    assert sorted(name["text"] for name in names(page)) == ["word0, word1, word2 +27", "word30, word31, word32 +27"]
    legend = page.locator("#legend .item").all_inner_texts()
    assert sorted(legend) == ["word0, word1 +28 · 30", "word30, word31 +28 · 30"]
    page.keyboard.press("]")
    state(page)
    tooltip = page.locator("#tooltip").inner_text().split("\n")
    assert tooltip[:2] == ["word", "word0"]
    assert tooltip[tooltip.index("its words") + 1] == "word0, word1, word2, word3, word4 +25"
    page.keyboard.press("w")
    assert names(page) == []
    page.keyboard.press("w")
    assert len(names(page)) == 2


def test_given_labels_are_named_by_their_words(show):
    page = show(demo(words=[["river", "bank", "money"][place % 3] for place in range(60)]))
    page.locator("#color").select_option("label")
    state(page)
    assert page.locator("#legend .item").all_inner_texts() == ["river", "bank", "money"]


def test_a_crowd_is_named_by_its_clusters(show):
    """Of many particles only the heavy clusters have names, at their centres."""
    count = 400
    places = np.where(np.arange(count)[:, None] < 300, [1.0, 0.0], [-1.0, 0.5])
    points = np.stack([places, 0.9 * places])
    words = np.where(np.arange(count) < 300, "left", "right")
    run = Trajectory.from_arrays([0.0, 1.0], points, words=words)
    labels = np.broadcast_to(np.arange(count) >= 300, (2, count)).astype(int)
    page = show(run, labels=labels, counts=[2, 2])
    assert [name["text"] for name in names(page)] == ["left", "right"]
    assert names(show(run)) == []  # without clusters nobody is heavy


def test_hostile_words_stay_text(show, tmp_path):
    """The fixture sees every dialog, request and error; the file has no markup of theirs."""
    words = [EVIL, "</script><script>alert(3)</script>", "\x1b[31m\u202e", "&amp;", "$x$", ""] * 10
    page = show(demo(words=words))
    page.keyboard.press("]")
    state(page)
    assert page.locator("#tooltip").inner_text().split("\n")[1] == EVIL[:39] + "…"
    assert EVIL[:39] not in (tmp_path / "page0.html").read_text(encoding="utf-8")
    texts = [name["text"] for name in names(page)]
    assert texts
    assert all(text.isprintable() for text in texts)
    assert "\u202e" not in page.locator("body").inner_text()
