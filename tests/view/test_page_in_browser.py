"""The interactive page in a real browser: what it shows is what was simulated; controls, words, themes and widths.

The tests are one file so that they share one browser, and most of them one page.
"""

from itertools import combinations, pairwise

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import PCA

from page_oracles import EVIL, demo, picture, pixels, planted, state, stored, two_groups, wait_until
from particleflow.analysis import track_clusters
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import page as write_page
from shares import by_default

mpl.use("Agg")
WORDS = [f"word{place}" for place in range(60)]


def test_decoded_positions_are_the_simulated_ones(planted_page):
    run = demo()
    page = planted_page
    assert state(page).renderer == "webgl2"
    assert np.allclose(page.evaluate("window.particleflow.frameTimes()"), run.times)
    for frame in (0, 1, 2, 17, 39):
        error = np.abs(stored(page, frame, 3) - run.points[frame]).max()
        assert error <= 0.5001 * 2 / 65534
    clusters = [page.evaluate(f"window.particleflow.clusters({frame})") for frame in (0, 15, 30)]
    assert [len(set(codes)) for codes in clusters] == [60, 30, 2]


def test_points_are_drawn_where_they_are(show):
    """Two particles exchange corners of [−1, 1]²; at the middle of the run both stand in the middle."""
    points = np.array([[[-1.0, -1.0], [1.0, 1.0]], [[1.0, 1.0], [-1.0, -1.0]]])
    page = show(Trajectory.from_arrays([0.0, 1.0], points, labels=[0, 1], metadata={"geometry": "euclidean"}))
    page.locator("#color").select_option("label")
    blue, orange = ([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in ("#0072b2", "#e69f00"))
    for moment, expected in (
        (0.0, {-1: blue, 1: orange}),
        (0.75, {0.5: blue, -0.5: orange}),
        (1.0, {1: blue, -1: orange}),
    ):
        page.evaluate(f"window.particleflow.seek({moment})")
        state(page)
        seen = pixels(page)
        height, width, _ = seen.shape
        scale = min((width - 80) / 2, (height - 96) / 2)  # the margins are 56, 24, 52 and 44 pixels
        for place, color in expected.items():
            spot = seen[round((height + 8) / 2 - place * scale), round((width + 32) / 2 + place * scale)]
            assert np.allclose(spot, color, atol=0.1)  # the points are slightly transparent


def test_panels_show_the_numbers_at_the_cursor(planted_page):
    run = demo()
    page = planted_page
    page.evaluate(f"window.particleflow.seek({run.times[15]})")
    state(page)
    values = page.locator(".panel .value").all_inner_texts()
    assert float(values[0]) == pytest.approx(float(run.observables["energy"][15]), rel=1e-4)
    assert values[1] == "30"
    assert values[2] == "28 merges to come"
    page.locator(".panel select").select_option(label="order")
    value = page.locator(".panel .value").first.inner_text()
    assert float(value) == pytest.approx(float(run.observables["order"][15]), rel=1e-4)


@pytest.mark.slow
def test_the_number_of_clusters_changes_where_the_tree_merges(show):
    """Half way between the two frames that the merge happened between."""
    points = np.array([[0.0, 8.0], [0.0, 8.0], [0.0, 0.1], [0.0, 0.1]])[..., None]
    page = show(Trajectory.from_arrays([0.0, 1.0, 3.0, 4.0], points), analysis=None)
    for moment, expected in ((1.0, ["2", "1 merge to come"]), (1.98, ["2", "1 merge to come"]),
                             (2.02, ["1", "no merge to come"]), (4.0, ["1", "no merge to come"])):  # fmt: skip
        page.evaluate(f"window.particleflow.seek({moment})")
        state(page)
        assert page.locator(".panel .value").all_inner_texts()[-2:] == expected


def test_hostile_text_is_shown_as_text(show):
    page = show(demo(EVIL, observables={EVIL: np.arange(40.0), "</script>": np.arange(40.0)}))
    assert page.locator("#title").inner_text() == EVIL
    assert page.title() == EVIL
    page.locator("#about-button").click()
    assert EVIL in page.locator("#scenario").inner_text()
    assert page.locator("img").count() == 0
    names = page.locator(".panel select option").all_inner_texts()
    assert set(names) == {EVIL, "</script>"}


@pytest.mark.slow
@pytest.mark.parametrize("dimension", by_default([1, 2, 5], [5]))
def test_other_dimensions_are_shown(show, dimension: int):
    points = np.random.default_rng(2).normal(size=(12, 40, dimension)).cumsum(axis=0)
    page = show(Trajectory.from_arrays(np.arange(12.0), points))
    shown = stored(page, 5, min(dimension, 3))
    if dimension > 3:
        reference = PCA(3).fit_transform(points.reshape(-1, dimension)).reshape(12, 40, 3)[5]
        assert np.allclose(np.abs(shown), np.abs(reference), atol=1e-3)
        assert "principal components" in page.locator("#subtitle").inner_text()
    else:
        assert np.allclose(shown, points[5], atol=1e-3)
    first = picture(page)
    page.keyboard.press("End")
    state(page)
    assert picture(page) != first


@pytest.mark.slow
def test_reductions_are_told(show):
    points = np.random.default_rng(0).normal(size=(300, 800, 3)).cumsum(axis=0)
    page = show(Trajectory.from_arrays(np.arange(300.0), points), max_bytes=700_000)
    now = state(page)
    assert now.frames < 300
    assert f"{now.frames} of 300 frames" in page.locator("#subtitle").inner_text().replace("\u00a0", " ")
    index = int(now.frames) // 2
    frame = int(page.evaluate(f"window.particleflow.frameTimes()[{index}]"))
    assert now.count == 800
    half_step = 0.5 * np.ptp(points, axis=(0, 1)) / (2**12 - 2)
    assert (np.abs(stored(page, index, 3) - points[frame]) <= 1.0001 * half_step).all()


@pytest.mark.slow
def test_missing_particles_are_left_out(show):
    points = two_groups().copy()
    points[20:, 3] = np.nan
    page = show(Trajectory.from_arrays(np.linspace(0, 4, 40), points), analysis=None)
    assert np.isnan(stored(page, 30, 3)[3]).all()
    assert np.isfinite(np.delete(stored(page, 30, 3), 3, axis=0)).all()
    page.locator("#about-button").click()
    assert "not analysed" in page.locator("#facts-list").inner_text()


@pytest.mark.slow
def test_one_frame_is_enough(show):
    page = show(Trajectory.from_arrays([0.0], two_groups()[:1]))
    page.keyboard.press("Space")
    assert not state(page).playing


@pytest.mark.slow
def test_clusters_are_found_without_being_given(show):
    page = show(demo(), analysis=None)
    counts = page.locator(".panel .value")
    page.keyboard.press("End")
    state(page)
    assert counts.nth(1).inner_text() == "2"
    assert len(set(page.evaluate("window.particleflow.clusters(39)"))) == 2


@pytest.mark.slow
def test_without_webgl_a_canvas_shows_the_points(show):
    script = """const real = HTMLCanvasElement.prototype.getContext;
        HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
            return kind.startsWith("webgl") ? null : real.call(this, kind, ...rest);
        };"""
    page = show(demo(), before=script, **planted())
    assert state(page).renderer == "canvas"
    assert "no WebGL2" in page.locator("#notice").inner_text()
    stage, notice = (page.locator(name).bounding_box() for name in ("#stage", "#notice"))
    assert stage["y"] + stage["height"] <= notice["y"]  # it covers nothing
    first = picture(page)
    page.keyboard.press("End")
    state(page)
    assert picture(page) != first
    page.keyboard.press("Home")
    state(page)
    colors = [[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in legend_colors(page)]
    page.locator("#legend .item").first.click()
    state(page)
    seen = pixels(page)[60:]  # one label of three is left
    assert [bool((np.abs(seen - color).max(axis=-1) < 0.1).any()) for color in colors] == [True, False, False]


@pytest.mark.slow
def test_play_moves_the_points_and_stops_at_the_end(planted_page):
    page = planted_page
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
    page.locator("#speed").select_option("1")


@pytest.mark.slow
@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_page_opens_in_its_last_colours_and_plays_unless_less_motion_is_asked_for(show, motion):
    """Sixty clusters at first, and two colours from the beginning: those of the two groups at the end."""
    page = show(demo(labels=None), motion=motion, **planted())
    now = state(page)
    assert now.playing == (motion == "no-preference")
    assert (now.mode, now.held) == ("last", 39)
    assert page.locator("#play").get_attribute("aria-label") == ("Pause" if now.playing else "Play")
    page.evaluate("window.particleflow.pause(); window.particleflow.seek(0)")
    state(page)
    assert page.locator("#legend .item").all_inner_texts() == ["30", "30"]
    assert len(set(page.evaluate("window.particleflow.clusters(0)"))) == 60


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "mode"), [([60], "cluster"), ([59, 1], "cluster"), ([40, 20], "last")])
def test_last_clusters_are_several_that_hold_the_particles(show, ends, mode):
    """All in one at the end, or but for a single one, and alone before: no cluster to colour by."""
    labels = np.tile(np.arange(60), (40, 1))
    labels[30:] = np.repeat(np.arange(len(ends)), ends)
    page = show(demo(labels=None), labels=labels, counts=np.full(40, 1))
    assert state(page).mode == mode


def test_the_area_of_a_dot_is_the_mass_at_its_place(planted_page):
    """Alone a particle is a point; at the end half of them lie in each dot: its area is half that of one for all."""
    page = planted_page
    radius = "window.particleflow.dotRadius(0)"
    page.evaluate("window.particleflow.seek(4)")
    state(page)
    whole = 0.044 * page.locator("#stage").evaluate("(stage) => Math.min(stage.clientWidth, stage.clientHeight)")
    assert page.evaluate(radius) ** 2 == pytest.approx(0.5 * whole**2, rel=1e-6)
    page.evaluate("window.particleflow.seek(0)")
    state(page)
    assert page.evaluate(radius) < 0.3 * whole


@pytest.mark.slow
def test_a_network_stops_at_its_layers_and_counts_them(show):
    """Nothing is between two layers: the page shows the nearer one, its clock and its axis in the words of figures."""
    run, metadata = demo(), {"solver": "map", "step": 1.0, "drift": "trained_layers"}
    page = show(Trajectory.from_arrays(np.arange(40.0), run.points, metadata=metadata))
    for moment, expected in ((3.0, 3), (3.25, 3), (3.75, 4), (39.0, 39)):
        page.evaluate(f"window.particleflow.seek({moment})")
        assert state(page).time == expected
        assert page.locator("#readout").inner_text() == f"layer {expected}"
    for scale in ("linear", "arc"):
        page.locator(f"[data-scale={scale}]").click()
        labels = [tick["label"] for tick in page.evaluate("window.particleflow.ticks(7)")]
        assert all(label.isdecimal() for label in labels)
        assert len(set(labels)) == len(labels) > 2


@pytest.mark.slow
def test_neighbouring_ticks_of_arc_length_have_different_labels_that_are_true(show):
    """Nearly all motion falls between t = 1.0001 and 1.0004, where two digits would say 1 again and again."""
    times = np.concatenate([[0.0, 1.0], 1.0 + 1e-4 * np.arange(1, 5), [2.0]])
    place = np.array([0.0, 1e-3, 1e-3, 0.3, 0.7, 1.0, 1.001])
    points = np.stack([place, 0 * place], axis=1)[:, None] * np.array([[1.0], [-1.0]])
    page = show(Trajectory.from_arrays(times, points))
    page.locator("[data-scale=arc]").click()
    ticks = page.evaluate("window.particleflow.ticks(6)")
    labels = [tick["label"] for tick in ticks]
    assert len(labels) == 7
    assert all(one != other for one, other in pairwise(labels))
    travelled = 0.98 * (place - place[0]) / np.ptp(place) + 0.02 * np.arange(7) / 6  # what the scale is made of
    expected = np.interp([float(label) for label in labels], times, travelled)
    np.testing.assert_allclose([tick["unit"] for tick in ticks], expected, atol=1e-3)


@pytest.mark.slow
def test_dots_go_by_weights(show):
    """Four particles at two places, with weights 1, 2 and 3, 10."""
    points = np.array([[[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]] * 2)
    page = show(Trajectory.from_arrays([0.0, 1.0], points, log_weights=np.log([1.0, 2.0, 3.0, 10.0])))
    radii = [page.evaluate(f"window.particleflow.dotRadius({particle})") for particle in range(4)]
    assert radii[0] == radii[1]
    assert radii[2] == radii[3]
    assert radii[2] ** 2 / radii[0] ** 2 == pytest.approx(13 / 3, rel=1e-5)


@pytest.mark.slow
def test_the_legend_shows_a_cluster_alone_and_all_again(planted_page):
    """By click and by key: only its colour is left, and a second time the picture is that of before."""
    page = planted_page
    page.locator("#color").select_option("last")
    page.locator("#color").blur()
    page.keyboard.press("m")  # no rings
    page.evaluate("window.particleflow.seek(2)")
    state(page)
    blue, orange = ([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in legend_colors(page))
    items = page.locator("#legend .item")

    def seen() -> list[int]:
        stage = pixels(page)[60:]  # below the legend
        return [int((np.abs(stage - color).max(axis=-1) < 0.27).sum()) for color in (blue, orange)]  # rims are paler

    before = seen()
    assert min(before) > 40  # one colour is mostly behind the sphere, in open dots
    items.first.click()
    assert state(page).only >= 0
    assert items.first.get_attribute("aria-pressed") == "true"
    assert items.nth(1).get_attribute("aria-pressed") == "false"
    alone = seen()
    assert alone[0] >= before[0]
    assert alone[1] == 0
    items.first.click()
    assert state(page).only == -1
    assert seen() == before
    items.nth(1).focus()
    page.keyboard.press("Enter")
    state(page)
    assert seen()[0] == 0
    assert page.evaluate("document.activeElement.dataset.code") == items.nth(1).get_attribute("data-code")
    assert "Only" in page.locator("#live").inner_text()
    page.keyboard.press("Escape")
    assert state(page).only == -1
    page.keyboard.press("m")
    page.locator("#color").select_option("label")
    page.locator("#color").blur()


def legend_colors(page) -> list[str]:
    """The colours of the legend's marks as "#rrggbb"."""
    found = page.locator("#legend .item i").evaluate_all("(marks) => marks.map((mark) => mark.style.background)")
    numbers = [[int(part) for part in color.strip("rgba()").split(",")[:3]] for color in found]
    return ["#{:02x}{:02x}{:02x}".format(*color) for color in numbers]


def saved_picture(page) -> np.ndarray:
    """The picture that the button saves, (height, width, 3) in [0, 1]."""
    with page.expect_download() as download:
        page.locator("#save").click()
    with Image.open(download.value.path()) as image:
        return np.asarray(image.convert("RGB"), float) / 255


@pytest.mark.slow
def test_the_saved_picture_has_title_and_time_at_twice_the_pixels(planted_page):
    page = planted_page
    page.evaluate("window.particleflow.seek(2)")
    state(page)
    screen = pixels(page)
    saved = saved_picture(page)
    height, width = page.locator("#over").evaluate("(stage) => [2 * stage.clientHeight, 2 * stage.clientWidth]")
    head = len(saved) - height
    assert saved.shape[1] == width
    assert head == 2 * 74
    ink = (np.abs(saved[:head] - saved[0, 0]).max(axis=-1) > 0.5).any(axis=0)
    assert ink[: width // 3].any()  # the title
    assert ink[-width // 5 :].any()  # the time
    halved = saved[head:].reshape(height // 2, 2, width // 2, 2, 3).mean(axis=(1, 3))
    below = np.s_[60 : height // 2 - 20, 20 : width // 2 - 20]  # without legend and rounded corners
    assert np.abs(halved[below] - screen[: height // 2, : width // 2][below]).mean() < 0.01
    assert np.array_equal(pixels(page)[below], screen[below])


@pytest.mark.slow
def test_only_the_head_of_a_saved_picture_depends_on_the_title(show):
    """A hostile title is drawn as text, and a long one is cut to its room."""
    one, other = (saved_picture(show(demo(title))) for title in ("Two groups", "<img src=>"))
    assert saved_picture(show(demo(9 * EVIL))).shape[1] == one.shape[1]
    rows = np.flatnonzero((one != other).any(axis=(1, 2)))
    assert rows.size
    assert rows.max() < 2 * 34


@pytest.mark.slow
def test_a_page_in_a_notebook_plays_in_a_frame_that_reaches_nothing(browser, tmp_path):
    trouble: list[str] = []
    path = tmp_path / "notebook.html"
    path.write_text(f"<p id=own>notebook</p>{write_page(demo(EVIL), analysis=False)._repr_html_()}", encoding="utf-8")
    page = browser.new_page()
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(path.as_uri())
    frame = page.frames[1]
    frame.evaluate("window.particleflow.ready")
    assert frame.evaluate("window.particleflow.state()")["playing"]
    assert frame.locator("#title").inner_text() == EVIL
    assert (
        frame.evaluate("(() => { try { return parent.document.title; } catch (refused) { return refused.name; } })()")
        == "SecurityError"
    )
    with page.expect_download() as download:
        frame.locator("#save").click()
    with Image.open(download.value.path()) as image:
        assert image.format == "PNG"
    assert page.locator("img, script").count() == 0
    page.close()
    assert trouble == []


@pytest.mark.slow
def test_keys(planted_page):
    page = planted_page
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
    for _ in range(5):
        modes.append(state(page).mode)
        page.keyboard.press("c")
    assert modes == ["label", "index", "speed", "last", "cluster"]  # labels first, as in the figures
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


def test_the_cursor_is_shared_and_panels_scrub(planted_page):
    page = planted_page
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
def test_time_scales_place_the_cursor(planted_page, scale: str):
    run = demo()
    arc = np.sqrt(np.square(np.diff(run.points, axis=0)).sum(axis=2).mean(axis=1)).sum
    page = planted_page
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


@pytest.mark.slow
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


def test_theme_follows_the_system_and_the_button(planted_page):
    page = planted_page
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert light != dark
    page.keyboard.press("t")
    assert page.evaluate(background) == light
    page.emulate_media(color_scheme="light")
    page.keyboard.press("t")


def test_what_changes_its_size_is_drawn_before_the_next_paint(planted_page):
    """Read by an observer that comes after those of the page: no paint shows an empty stage or stretched charts."""
    script = """(width) => new Promise((done) => {
        const [under, chart] = [document.querySelector("#under"), document.querySelector(".plot canvas")];
        let changed = false;
        new ResizeObserver((_, own) => {
            if (!changed) return;
            own.disconnect();
            const ink = (each) => each.getContext("2d").getImageData(0, 0, each.width, each.height).data;
            const fits = chart.width === Math.round(chart.clientWidth * devicePixelRatio);
            done({ drawn: ink(under).some(Boolean) && ink(chart).some(Boolean), fits });
        }).observe(chart.parentElement);
        requestAnimationFrame(() => { changed = true; document.querySelector("main").style.width = width; });
    })"""
    for width in ("1000px", ""):
        assert planted_page.evaluate(script, width) == {"drawn": True, "fits": True}


@pytest.mark.slow
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


def test_controls_have_accessible_names(planted_page):
    page = planted_page
    nameless = page.evaluate("""() => [...document.querySelectorAll("button, select, input, canvas:not([aria-hidden])")]
        .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
        .map((e) => e.id)""")
    assert nameless == []
    assert "time 0" in page.locator("#scrubber").get_attribute("aria-valuetext")


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


@pytest.mark.slow
def test_hover_legend_and_names_tell_the_words(show):
    """Two groups of thirty: at the end a name and a legend entry for each, of its words."""
    run = demo(words=WORDS)
    page = show(run, **planted())
    alone = names(page)
    assert len(alone) > 10
    assert {name["text"] for name in alone} <= set(WORDS) | {f"{a}, {b}" for a in WORDS for b in WORDS if a != b}
    page.evaluate(f"window.particleflow.seek({run.times[-1]})")
    assert sorted(name["text"] for name in names(page)) == ["word0, word1, word2 +27", "word30, word31, word32 +27"]
    page.locator("#color").select_option("cluster")
    state(page)
    page.locator("#color").blur()
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


@pytest.mark.slow
def test_given_labels_are_named_by_their_words(show):
    page = show(demo(words=[["river", "bank", "money"][place % 3] for place in range(60)]))
    page.locator("#color").select_option("label")
    state(page)
    assert page.locator("#legend .item").all_inner_texts() == ["river", "bank", "money"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_mixed_cluster_is_rings_of_its_labels(show):
    """Of labels 0 and 1, 18 and 6 particles at one place, in turn: a blue dot with a quarter of its area in orange."""
    labels = np.tile([0, 0, 1, 0], 6)
    spread = np.random.default_rng(0).uniform(-1, 1, (24, 2))
    points = np.stack([spread, np.zeros((24, 2)), np.zeros((24, 2))])
    run = Trajectory.from_arrays([0.0, 1.0, 2.0], points, labels=labels, metadata={"geometry": "euclidean"})
    clusters = np.stack([np.arange(24), np.zeros(24, int), np.zeros(24, int)])
    merges = np.array([[0, other, 1.0, other + 1] for other in range(1, 24)], float)
    page = show(run, labels=clusters, counts=[24, 1, 1], merge_tree=merges)
    assert state(page).mode == "label"  # as in the figures
    page.locator("#size").fill("3")
    page.locator("#size").blur()
    page.keyboard.press("m")
    page.evaluate("window.particleflow.seek(2)")
    state(page)
    seen = pixels(page)
    blue, orange = ([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in ("#0072b2", "#e69f00"))
    areas = [(np.abs(seen - color).max(axis=-1) < 0.3).sum() for color in (blue, orange)]
    assert areas[1] / sum(areas) == pytest.approx(0.25, abs=0.06)
    page.keyboard.press("]")
    state(page)
    tooltip = page.locator("#tooltip").inner_text().split("\n")
    assert tooltip[tooltip.index("its labels") + 1] == "18 of label 0, 6 of label 1"


@pytest.mark.slow
def test_a_normal_law_is_its_ellipses(show):
    """Nodes (±10, ±1) of equal weights: standard deviations 10 and 1, on equal scales, and no dot at a node."""
    nodes = np.array([[10.0, 1.0], [10.0, -1.0], [-10.0, 1.0], [-10.0, -1.0]])
    metadata = {"geometry": "euclidean", "closed form": True, "space": {"kind": "flat"}}
    page = show(Trajectory.from_arrays([0.0, 1.0], np.stack([0.5 * nodes, nodes]), metadata=metadata))
    page.evaluate("window.particleflow.seek(1)")
    state(page)
    seen = pixels(page)
    accent = [int("#0072b2"[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    rows, columns = np.nonzero(np.abs(seen - accent).max(axis=-1) < 0.4)
    assert np.ptp(columns) / np.ptp(rows) == pytest.approx(10.0, rel=0.06)
    middle = (rows.min() + rows.max()) / 2, (columns.min() + columns.max()) / 2
    unit = np.ptp(columns) / 40.0
    away = np.hypot(np.abs(rows - middle[0]) / unit - 1, np.abs(columns - middle[1]) / unit - 10)
    assert away.min() > 0.3  # the nodes are √2 deviations away, between both ellipses
    assert page.locator("#subtitle").inner_text().startswith("normal\xa0law")


@pytest.mark.slow
def test_frames_without_a_count_say_that_clusters_are_not_separated(show):
    """80 places, evenly on [−1, 1], that go to four as e^(−t)."""
    start = np.linspace(-1, 1, 80)
    end = (np.floor(2 * np.clip(start, -1, 0.999)) + 0.5) / 2
    times = np.linspace(0, 6, 16)
    run = Trajectory.from_arrays(times, (end + np.exp(-times)[:, None] * (start - end))[:, :, None])
    track = track_clusters(run, 0.03)
    page = show(run, analysis=track)
    for frame, count in enumerate(track.counts):
        page.evaluate(f"window.particleflow.seek({times[frame]})")
        state(page)
        said = page.locator(".panel", has_text="clusters").first.locator(".value").inner_text()
        assert said == ("chains, not separated" if np.isnan(count) else f"{count:.0f}")
    codes = [set(page.evaluate(f"window.particleflow.clusters({frame})")) for frame in (0, 15)]
    assert [len(each) for each in codes] == [1, 4]
    back = Trajectory.from_arrays(times, run.points[::-1])
    assert state(show(back)).mode == "index"  # as figures colour a run that ends in chains
