"""The interactive page in a real browser: what is shown is what was simulated."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from page_oracles import ARGUMENTS, EVIL, browser_path, demo, picture, pixels, planted, state, stored, two_groups
from shares import by_default
from sklearn.decomposition import PCA

from particleflow.trajectory import Trajectory
from particleflow.view import page as write_page

mpl.use("Agg")


def test_decoded_positions_are_the_simulated_ones(show):
    run = demo()
    page = show(run, **planted())
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


def test_panels_show_the_numbers_at_the_cursor(show):
    run = demo()
    page = show(run, **planted())
    page.evaluate(f"window.particleflow.seek({run.times[15]})")
    state(page)
    values = page.locator(".panel .value").all_inner_texts()
    assert float(values[0]) == pytest.approx(float(run.observables["energy"][15]), rel=1e-4)
    assert values[1] == "30"
    assert values[2] == "28 merges to come"
    page.locator(".panel select").select_option(label="order")
    value = page.locator(".panel .value").first.inner_text()
    assert float(value) == pytest.approx(float(run.observables["order"][15]), rel=1e-4)


def test_hostile_text_is_shown_as_text(show):
    page = show(demo(EVIL, observables={EVIL: np.arange(40.0), "</script>": np.arange(40.0)}))
    assert page.locator("#title").inner_text() == EVIL
    assert page.title() == EVIL
    page.locator("#about-button").click()
    assert EVIL in page.locator("#scenario").inner_text()
    assert page.locator("img").count() == 0
    names = page.locator(".panel select option").all_inner_texts()
    assert set(names) == {EVIL, "</script>"}


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


def test_clusters_are_found_without_being_given(show):
    page = show(demo(), analysis=None)
    counts = page.locator(".panel .value")
    page.keyboard.press("End")
    state(page)
    assert counts.nth(1).inner_text() == "2"
    assert len(set(page.evaluate("window.particleflow.clusters(39)"))) == 2


def test_without_webgl_a_canvas_shows_the_points(browser, tmp_path: Path):
    opened = browser.browser_type.launch(
        executable_path=browser_path(),
        headless=True,
        args=[*ARGUMENTS, "--disable-3d-apis"],
    )
    try:
        page = opened.new_page()
        page.goto(write_page(demo(), tmp_path / "page.html", **planted()).as_uri())
        page.evaluate("window.particleflow.ready")
        assert state(page).renderer == "canvas"
        assert "no WebGL2" in page.locator("#notice").inner_text()
        first = picture(page)
        page.keyboard.press("End")
        state(page)
        assert picture(page) != first
    finally:
        opened.close()
