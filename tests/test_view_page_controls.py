"""The controls of the interactive page in a real browser: keys, buttons, pointers, themes and widths."""

import matplotlib as mpl
import numpy as np
import pytest
from page_oracles import demo, picture, planted, state, wait_until
from shares import by_default

from particleflow.trajectory import Trajectory

mpl.use("Agg")


def test_play_moves_the_points_and_stops_at_the_end(show):
    page = show(demo())
    before = state(page)
    first = picture(page)
    page.keyboard.press("Space")
    page.wait_for_timeout(600)
    assert state(page).playing
    page.keyboard.press("Space")
    after = state(page)
    assert not after.playing
    assert before.time == 0.0
    assert 0.0 < after.time < 4.0
    assert picture(page) != first
    page.evaluate("window.particleflow.seek(3.9)")
    page.locator("#speed").select_option("8")
    page.locator("#play").click()
    page.wait_for_timeout(100)
    # the page's policy forbids evaluating strings inside it, so the wait is here
    assert wait_until(lambda: not state(page).playing)
    assert state(page).time == 4.0


def test_keys(show):
    page = show(demo(), **planted())
    times = demo().times
    page.keyboard.press("End")
    assert state(page).time == 4.0
    page.keyboard.press("ArrowLeft")
    assert state(page).time == pytest.approx(times[38])
    page.keyboard.press("Shift+ArrowLeft")
    assert state(page).time == pytest.approx(times[28])
    page.keyboard.press("ArrowRight")
    assert state(page).time == pytest.approx(times[29])
    page.keyboard.press("Home")
    assert state(page).time == 0.0
    page.keyboard.press("+")
    assert state(page).speed == 2
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert state(page).speed == 0.5
    modes = []
    for _ in range(4):
        modes.append(state(page).mode)
        page.keyboard.press("c")
    assert modes == ["cluster", "label", "index", "speed"]
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()


@pytest.mark.slow
def test_colourings_differ(show):
    page = show(demo(), **planted())
    page.evaluate("window.particleflow.seek(2.5)")
    pictures = []
    for mode in ("cluster", "label", "index", "speed"):
        page.locator("#color").select_option(mode)
        state(page)
        pictures.append(picture(page))
    assert len(set(pictures)) == 4


def test_the_cursor_is_shared_and_panels_scrub(show):
    page = show(demo(), **planted())
    panels = page.locator(".panel .plot")
    assert panels.count() == 3
    for index in range(3):
        fraction = 0.2 + 0.25 * index
        box = page.evaluate("window.particleflow.cursors()")[index]
        plot = panels.nth(index).bounding_box()
        page.mouse.move(box["left"] + 5, plot["y"] + plot["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["left"] + fraction * (box["right"] - box["left"]), plot["y"] + plot["height"] / 2)
        page.mouse.up()
        now = state(page)
        assert now.unit == pytest.approx(fraction, abs=0.005)
        cursors = page.evaluate("window.particleflow.cursors()")
        places = {round(cursor["x"], 1) for cursor in cursors}
        assert len(places) == 1
        expected = cursors[0]["left"] + now.unit * (cursors[0]["right"] - cursors[0]["left"])
        assert places.pop() == pytest.approx(expected, abs=1.0)
        assert float(page.locator("#scrubber").input_value()) == pytest.approx(now.unit, abs=1e-6)


@pytest.mark.parametrize("scale", by_default(["linear", "log", "arc"], ["log"]))
def test_time_scales_place_the_cursor(show, scale: str):
    run = demo()
    arc = np.sqrt(np.square(np.diff(run.points, axis=0)).sum(axis=2).mean(axis=1)).sum
    page = show(run)
    page.locator(f"#scale button[data-scale={scale}]").click()
    page.evaluate("window.particleflow.seek(2.0)")
    steps = np.sqrt(np.square(np.diff(np.asarray(run.points), axis=0)).sum(axis=2).mean(axis=1))
    travelled = np.interp(2.0, run.times, np.concatenate([[0], np.cumsum(steps)])) / arc()
    first = run.times[1]
    expected = {
        "linear": 0.5,
        "log": 0.03 + 0.97 * np.log(2.0 / first) / np.log(4.0 / first),
        "arc": 0.98 * travelled + 0.02 * 0.5,
    }
    assert state(page).unit == pytest.approx(expected[scale], abs=1e-6)


def test_hover_and_selection_tell_a_particles_data(show):
    points = np.array([[[-1.0, -1.0], [1.0, 1.0], [0.25, 0.0]]] * 2)
    run = Trajectory.from_arrays([0.0, 1.0], points, positions=[10.0, 20.0, 30.0], labels=[4, 5, 6])
    page = show(run, labels=np.array([[0, 0, 1]] * 2), counts=[2, 2])
    page.keyboard.press("]")
    page.keyboard.press("]")
    page.keyboard.press("]")
    state(page)
    shown = " ".join(page.locator("#tooltip").inner_text().split())
    assert shown == "particle 2 position 30 label 6 cluster 2 (1 particle) x₁ 0.25 x₂ 0 speed 0"
    page.keyboard.press("Escape")
    state(page)
    assert not page.locator("#tooltip").is_visible()
    stage = page.locator("#stage").bounding_box()
    # the box is [−1, 1]², fitted between the margins 56, 24, 52, 44 with equal units
    scale = min((stage["width"] - 80) / 2, (stage["height"] - 96) / 2)
    middle = stage["x"] + (stage["width"] + 32) / 2, stage["y"] + (stage["height"] + 8) / 2
    page.mouse.move(middle[0] + 0.25 * scale + 2, middle[1] + 2)
    assert state(page).hovered == 2
    page.mouse.move(middle[0] + scale, middle[1] - scale)
    assert state(page).hovered == 1
    assert "particle\n1" in page.locator("#tooltip").inner_text()


@pytest.mark.slow
def test_dragging_turns_the_sphere_and_reset_restores_it(show):
    page = show(demo())
    first = picture(page)
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 240, steps=4)
    page.mouse.up()
    state(page)
    assert picture(page) != first
    page.locator("#reset").click()
    state(page)
    assert picture(page) == first


def test_theme_follows_the_system_and_the_button(show):
    page = show(demo())
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert light != dark
    page.keyboard.press("t")
    assert page.evaluate(background) == light


@pytest.mark.parametrize("width", by_default([320, 390, 900, 1600], [320]))
def test_every_width_fits(show, width: int):
    page = show(
        demo("A title that is long enough to need more than one line on a phone"), viewport=(width, 800), **planted()
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in ("#play", "#scrubber", "#scale", "#color", "#help-button", "#readout"):
        box = page.locator(selector).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    # no label is cut: everything with text is as wide as its text
    clipped = page.evaluate("""() => [...document.querySelectorAll("button, h1, .name, .value, #readout, #clock")]
        .filter((e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")
        .map((e) => e.id || e.textContent)""")
    assert clipped == []


def test_controls_have_accessible_names(show):
    page = show(demo(), **planted())
    nameless = page.evaluate("""() => [...document.querySelectorAll("button, select, input, canvas:not([aria-hidden])")]
        .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
        .map((e) => e.id)""")
    assert nameless == []
    assert "time 0" in page.locator("#scrubber").get_attribute("aria-valuetext")
