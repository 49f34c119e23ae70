"""The time left is what is left times the rate of late, and is not given where rates change."""

import io
import sys

import pytest

from particleflow._support.progress import TimeLeft, reporting

# The windows of scenarios/circle_staircase.toml, whose frames lie evenly in the logarithm, and of 400 tokens on the
# sphere, evenly in time: (time, seconds), as measured.
STAIRCASE = [
    (0.01, 0.0), (0.01097, 0.06), (0.01321, 0.13), (0.01914, 0.2), (0.04018, 0.27), (0.1771, 0.35), (0.7809, 0.42),
    (3.443, 0.53), (15.18, 0.63), (66.91, 0.79), (295.0, 0.95), (1300.0, 1.43), (5733.0, 3.23), (1e4, 4.89),
]  # fmt: skip
SPHERE = [
    (0.05, 0.0), (0.15, 0.1), (0.35, 0.2), (0.752, 0.29), (1.554, 0.43), (3.158, 0.63), (4.762, 0.86), (6.366, 1.04),
    (7.97, 1.23), (9.574, 1.4), (11.18, 1.52), (12.78, 1.63), (14.39, 1.68), (15.99, 1.81), (17.59, 1.94),
    (19.2, 2.07), (20.0, 2.15),
]  # fmt: skip


def told(windows):
    """The estimate after every window, with the seconds that were really left."""
    clock = iter([seconds for _, seconds in windows])
    left = TimeLeft(windows[-1][0], lambda: next(clock))
    return [(time, left(time), windows[-1][1] - seconds) for time, seconds in windows]


@pytest.mark.parametrize(("windows", "known"), [(STAIRCASE, [1300.0, 5733.0]), (SPHERE, [4.762, 9.574, 14.39])])
def test_what_is_told_is_within_a_factor_of_two(windows, known):
    found = {time: (guess, left) for time, guess, left in told(windows)[:-1] if guess is not None}
    assert set(known) <= found.keys()
    assert all(left / 2 <= guess <= 2 * left for guess, left in found.values())


def test_equal_work_is_told_from_its_third_part_on():
    assert told([(0.0, 9.0), (1.0, 10.0)])[-1][1] is None
    steady = told([(step, 9.0 + 2.0 * step) for step in range(9)])
    assert [guess for _, guess, _ in steady[2:]] == pytest.approx([left for _, _, left in steady[2:]])
    assert told([(0.0, 0.0), (1.0, 1.0), (2.0, 4.0)])[-1][1] is None  # three times as slow as before


def test_it_is_said_in_words():
    clock = iter([0.0, 60.0, 120.0])
    left = TimeLeft(20.0, lambda: next(clock))
    assert [left.text(done) for done in (0.0, 1.0, 2.0)] == ["", "", "about 18 min left"]


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stderr", "progress", "after", "is_shown"),
    [
        (Terminal, None, 1e-9, True), (Terminal, None, 60.0, False), (Terminal, None, None, False),
        (Terminal, False, 1e-9, False), (Terminal, True, 60.0, True), (io.StringIO, None, 1e-9, False),
        (io.StringIO, True, 1e-9, False),
    ],
)  # fmt: skip
def test_a_bar_that_was_not_asked_for_comes_late_and_to_terminals_only(stderr, progress, after, is_shown, monkeypatch):
    shown = stderr()
    monkeypatch.setattr(sys, "stderr", shown)
    with reporting(progress, "training", 2, lambda step: (step, ""), after=after) as report:
        report(1)
        report(2)
    assert ("training" in shown.getvalue()) == is_shown
    assert is_shown or not shown.getvalue()
