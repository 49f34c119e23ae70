"""Shipped scenarios and the picture of the models, each against an independent computation of what it claims."""

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.special import logsumexp
from sklearn import neighbors
from sklearn.impute import KNNImputer

import model_pictures
import particleflow as pf
from flows_oracles import solve, tangent

pytestmark = pytest.mark.slow
DATA = pf.scenario.shipped()["hopfield"].parent / "data"


def run(name: str, tmp_path: Any, **changes: Any) -> pf.Trajectory:
    bare: dict[str, Any] = dict.fromkeys(("summary", "figures", "movie", "page"), False)
    return pf.run(name, set=changes.get("set"), output=tmp_path / "run", **bare)


def shares(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits - logsumexp(logits, axis=1, keepdims=True))


def squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def test_labels_end_in_the_closed_form_of_linear_neighbourhoods(tmp_path):
    """(1 − α)(I − αW)⁻¹ Y, and every label is right."""
    start, memory = np.load(DATA / "neighbours_start.npz"), np.load(DATA / "neighbours_memory.npy")
    W = np.exp(np.load(DATA / "neighbours_log_weights.npy").astype(float))
    found = np.asarray(run("linear_neighbourhoods", tmp_path).points[-1])
    expected = 0.01 * np.linalg.solve(np.eye(len(W)) - 0.99 * W / W.sum(axis=1, keepdims=True), memory)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert memory.sum() == 2
    assert np.mean(found.argmax(axis=1) == start["labels"]) == 1.0


def test_forecasts_are_the_local_means_of_what_came_next(tmp_path):
    """Eighty steps of x ← m(x) in NumPy; then every forecast is on the cycle of Van der Pol's equation."""
    data = np.load(DATA / "series_states.npz")
    states, nexts = data["points"], data["values"]
    trajectory = run("local_autoregression", tmp_path)
    points = np.asarray(trajectory.points[0])
    for step in range(80):
        points = shares(-squares(points, states) / (2 * 0.15**2)) @ nexts
        if step < 20:  # rounding grows where two futures part
            np.testing.assert_allclose(trajectory.points[step + 1], points, atol=1e-8)

    def field(time: float, z: np.ndarray) -> np.ndarray:
        return np.stack([z[:, 1], (1 - z[:, 0] ** 2) * z[:, 1] - z[:, 0]], axis=1)

    cycle = solve(field, np.array([[2.0, 0.0]]), np.linspace(0, 30, 1200), rtol=1e-8)[400:, 0]
    away = np.sqrt(squares(np.asarray(trajectory.points[-1]), cycle).min(axis=1))
    assert away.max() < 0.2


def test_two_measures_follow_each_other(tmp_path):
    data = np.load(DATA / "two_measures.npz")
    groups = data["positions"]
    mask = np.where(groups[:, None] == groups[None], -np.inf, 0.0)

    def field(time: float, x: np.ndarray) -> np.ndarray:
        return tangent(x, shares(6.0 * x @ x.T + mask) @ x)

    start = data["points"] / np.linalg.norm(data["points"], axis=1, keepdims=True)
    times = [0.0, 1.0, 3.0]
    found = run("cross_attention", tmp_path, set={"time.end": 3.0, "time.frames": 4, "time.rtol": 1e-9}).points
    exact = solve(field, start, times)
    np.testing.assert_allclose(np.asarray(found)[[1, 3]], exact[1:], atol=1e-6)
    other = np.array([each.mean(axis=0) for each in (exact[-1][:48], exact[-1][48:])])
    assert not np.allclose(other[0], other[1])


def test_noisy_digits_are_recalled(tmp_path):
    """Each probe ends in the fixed point of x = Σ softmax(β⟨x, ξ⟩) ξ next to its own pattern."""
    patterns, probes = np.load(DATA / "digits.npy"), np.load(DATA / "noisy_digits.npz")
    found = np.asarray(run("hopfield", tmp_path).points[-1])
    ends = patterns.copy()
    for _ in range(200):
        ends = shares(20.0 * ends @ patterns.T) @ patterns
    np.testing.assert_allclose(found, ends[probes["labels"]], atol=1e-4)
    model = pf.models.Hopfield(beta=20.0).fit(patterns)
    np.testing.assert_allclose(model.transform(probes["points"]), ends[probes["labels"]], atol=1e-8)


def test_the_nearest_twelve_are_followed(tmp_path):
    """Euler steps of a quarter with the neighbours of scikit-learn; groups hold twelve or more."""
    trajectory = run("nearest_neighbours", tmp_path)
    points = np.asarray(trajectory.points[0])
    for step in range(8):
        near = neighbors.NearestNeighbors(n_neighbors=12).fit(points).kneighbors(points)[1]
        points = points + 0.25 * (points[near].mean(axis=1) - points)
        if step % 2:
            np.testing.assert_allclose(trajectory.points[(step + 1) // 2], points, atol=1e-10)
    last = np.asarray(trajectory.points[-1])
    together = squares(last, last) < 1e-4
    assert together.sum(axis=1).min() >= 12
    assert len(np.unique(together, axis=0)) == 11


def test_neighbours_clean_a_picture_of_labels(tmp_path):
    """19 pixels in 100 are wrong at first and 2 in 100 at the end, by the loop p ← p + ¼(Π(p + s) − p) in NumPy."""
    start, places = np.load(DATA / "grid_shares.npz"), np.load(DATA / "grid_places.npy")
    trajectory = run("relaxation_labelling", tmp_path)
    weights = shares(-squares(places, places) / (2 * 0.8**2))
    rule, p = np.full((3, 3), -0.5) + 1.5 * np.eye(3), start["points"]
    for _ in range(4):
        raised = p + weights @ p @ rule.T
        low, high = raised.min(axis=1) - 1, raised.max(axis=1)
        for _ in range(60):
            middle = (low + high) / 2
            over = np.maximum(raised - middle[:, None], 0).sum(axis=1) > 1
            low, high = np.where(over, middle, low), np.where(over, high, middle)
        p = p + 0.25 * (np.maximum(raised - low[:, None], 0) - p)
    found = trajectory.at(1.0, interpolate=True).points
    np.testing.assert_allclose(found, p, atol=5e-3)  # frames are not at every step
    wrong = [np.mean(np.asarray(each).argmax(axis=1) != start["labels"]) for each in trajectory.points[[0, -1]]]
    assert abs(wrong[0] - 0.19) < 0.01
    assert wrong[1] < 0.03


def test_a_signal_finds_its_levels(tmp_path):
    """Against DOP853 of ḟ = m(f) − f; by t = 13 values are on three levels."""
    values, places = np.load(DATA / "signal_values.npz")["points"], np.load(DATA / "signal_places.npy")
    near = -squares(places, places) / (2 * 0.05**2)

    def field(time: float, f: np.ndarray) -> np.ndarray:
        return shares(near - squares(f, f) / (2 * 0.2**2)) @ f - f

    trajectory = run("self_localization", tmp_path, set={"time.end": 13.0, "time.frames": 14})
    exact = solve(field, values, [0.0, 13.0])[-1]
    np.testing.assert_allclose(trajectory.points[-1], exact, atol=1e-4)


def test_steps_become_steep_until_they_are_stopped(tmp_path):
    """e^{t(1 − K̃)} u at the time of the event, at which the largest value is 1.3."""
    trajectory = run("sharpening", tmp_path)
    signal = np.asarray(trajectory.points[0])
    places = np.arange(float(len(signal)))
    smooth = shares(-((places[:, None] - places[None]) ** 2) / (2 * 4.0**2))
    end = float(trajectory.times[-1])
    assert trajectory.status == "stopped by event"
    np.testing.assert_allclose(trajectory.points[-1], expm(end * (np.eye(len(signal)) - smooth)) @ signal, atol=1e-5)
    assert abs(np.abs(trajectory.points[-1]).max() - 1.3) < 1e-6


@pytest.fixture
def ax() -> Iterator[Any]:
    figure, axis = plt.subplots()
    yield axis
    plt.close(figure)


def test_the_panels_of_estimators_show_what_scikit_learn_finds(ax):
    found = model_pictures.density(ax)
    theirs = neighbors.KernelDensity(bandwidth=0.25).fit(model_pictures.IRIS[:, 2:3])
    np.testing.assert_allclose(np.log(found["density"]), theirs.score_samples(found["asked"][:, None]), rtol=1e-8)
    drawn = model_pictures.classes(ax)["shares"]
    np.testing.assert_allclose(drawn.sum(axis=2), 1, rtol=1e-12)
    petals, kinds = model_pictures.IRIS[:, 2:], model_pictures.SPECIES
    at = np.array([[0.5 + 7 * 40 / 89, -0.2 + 3 * 30 / 59]])
    pull = np.exp(-squares(at, petals) / (2 * 0.3**2))[0]
    expected = [pull[kinds == each].sum() / pull.sum() for each in range(3)]
    np.testing.assert_allclose(drawn[30, 40], expected, rtol=1e-9)
    said = model_pictures.rules(ax)
    np.testing.assert_allclose(said["predicted"], said["said"], rtol=1e-10)


def test_the_panel_of_a_series_holds_what_came(ax):
    found = model_pictures.forecast(ax)
    assert found["inside"].mean() >= 0.8
    states = np.lib.stride_tricks.sliding_window_view(model_pictures.SERIES[:130], 6)[:, ::-1]
    pull = np.exp(-squares(states[-1:], states[:-1]) / (2 * 0.3**2))[0]
    np.testing.assert_allclose(found["mean"][0], pull @ model_pictures.SERIES[6:130] / pull.sum(), rtol=1e-9)


def test_the_panel_of_digits_fills_and_recalls(ax):
    """Gaps are filled better than by the mean of the nearest five, patterns recalled to rounding."""
    found = model_pictures.digits(ax)
    missing = np.isnan(found["gaps"])
    nearest = np.asarray(KNNImputer(n_neighbors=5).fit(model_pictures.DIGITS[0][20:]).transform(found["gaps"]))

    def error(filled: np.ndarray) -> float:
        return float(np.sqrt(np.mean((filled - found["truth"])[missing] ** 2)))

    assert error(found["filled"]) < 1.1 * error(nearest)
    assert np.max(np.abs(found["recalled"] - found["patterns"])) < 0.2


def test_the_panels_of_losses_and_limits(ax):
    """Leave-one-out squares in NumPy; the limit of the filter; a bound that stays below what pairs know."""
    found, line, targets = model_pictures.total_loss(ax), model_pictures.LINE, model_pictures.TARGETS
    for place, width in enumerate(model_pictures.WIDTHS[4:]):
        pull = np.exp(-((line[:, None] - line[None]) ** 2) / (2 * width**2))
        np.fill_diagonal(pull, 0.0)
        alone = pull.sum(axis=1) == 0
        left = np.square(targets - pull @ targets / np.where(alone, 1.0, pull.sum(axis=1)))[~alone].mean()
        np.testing.assert_allclose(found["without"][place + 4], left, rtol=1e-8)
    assert np.all(np.diff(found["with oneself"]) > 0)
    limit = model_pictures.filter_limit(ax)
    assert np.max(np.abs(limit["found"] - limit["limit"])) < 0.03 * np.max(np.abs(limit["limit"]))
    pairs = model_pictures.contrast(ax)
    assert abs(pairs["bound"].max() - pairs["known"]) < 0.1
    assert abs(np.log(pairs["sharpness"][np.argmax(pairs["bound"])])) < 0.4


def test_the_panels_of_hierarchies_pairs_medians_and_scores(ax):
    found = model_pictures.hierarchy(ax)
    line, values = found["line"], found["step"]
    weights = shares(-((line[:, None] - line[None]) ** 2) / (2 * 0.08**2))
    np.testing.assert_allclose(found["plain"], weights @ (weights @ values), rtol=1e-9)
    np.testing.assert_allclose(found["bent"], weights @ np.tanh(3 * (weights @ values)), rtol=1e-9)
    pairs, line, targets = model_pictures.three_points(ax), model_pictures.LINE, model_pictures.TARGETS
    for x, mean in zip(pairs["asked"][::20], pairs["found"][::20], strict=True):
        total, mass = np.zeros(4), 0.0
        for y, one in zip(line[line < x], targets[line < x], strict=True):
            for z, two in zip(line[line > x], targets[line > x], strict=True):
                pull = np.exp(-((x - y) ** 2 + (x - z) ** 2) / (2 * 0.5**2))
                total, mass = total + pull * np.array([y, one, z, two]), mass + pull
        np.testing.assert_allclose(mean, total / mass, rtol=1e-9)
    asked = model_pictures.medians(ax)
    pull = np.exp(-((model_pictures.QUERIES[:, None] - line[None]) ** 2) / (2 * 0.3**2))
    for row in range(0, 101, 10):
        values = asked["targets"]
        best = min(values, key=lambda middle: pull[row] @ np.abs(values - middle))  # the weighted median
        assert asked["median"][row] == best
    scores = model_pictures.score(ax)
    density = neighbors.KernelDensity(bandwidth=0.3).fit(scores["moons"])
    for axis in range(2):
        step = 1e-5 * np.eye(2)[axis]
        ends = [density.score_samples(scores["places"] + sign * step) for sign in (1, -1)]
        np.testing.assert_allclose(scores["scores"][:, axis], (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-5)
