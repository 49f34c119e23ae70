"""Words of tokens: what is kept of them, how groups are named, and which words became one, against brute force."""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

import json

import numpy as np
import pytest

import particleflow as pf
from particleflow.app.cli.closing_lines import words_line
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.trajectory.words import LONGEST, as_words, bare, from_bytes, named, to_bytes, visible

EVIL = ["<script>alert(1)</script>", "\x1b[31mred\x1b[0m", "\x9b2J", "a\u202eb", "two\nlines", "$x^2$", "", "\t"]


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda words: np.array(words, object)])
def test_words_are_texts_however_they_are_given(kind):
    found = as_words(kind(["the", "cat"]), 2)
    assert found.tolist() == ["the", "cat"]
    assert found.dtype.kind == "U"
    assert from_bytes(to_bytes(found)).tolist() == ["the", "cat"]


def test_words_of_runs_have_rows_only_where_they_differ():
    assert as_words([["a", "b"], ["a", "c"]], 2, 2).tolist() == [["a", "b"], ["a", "c"]]
    assert as_words([["a", "b"], ["a", "b"]], 2, 2).tolist() == ["a", "b"]
    assert as_words(["a", "b"], 2, 2).tolist() == ["a", "b"]
    assert as_words(None, 2) is None


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["a", "b", "c"], ShapeError, r"one word for each of the 2 particles, but has shape \(3,\)"),
        ("ab", ShapeError, r"one word for each of the 2 particles, but has shape \(\)"),
        ([["a", "b"]], ShapeError, r"but has shape \(1, 2\)"),
        (["a", 2], ArgumentError, "must hold texts, but holds 2 at index 1"),
        (["a", None], ArgumentError, "must hold texts, but holds None at index 1"),
        ([b"a", b"b"], ArgumentError, "must hold texts, but holds b'a' at index 0"),
    ],
)
def test_what_is_no_list_of_words_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        as_words(given, 2)
    with pytest.raises(error, match=message):
        Trajectory.from_arrays([0.0], np.zeros((1, 2, 1)), words=given)


def test_a_word_keeps_what_a_file_can_hold():
    kept = as_words(["字" * 1000, "a\0b", "half \ud800"], 3).tolist()
    assert len(kept[0].encode()) <= LONGEST
    assert kept[0] == "字" * ((LONGEST - 3) // 3) + "…"
    assert kept[1:] == ["a\ufffdb", "half ?"]


def test_bytes_that_are_no_text_take_no_more_room_than_words():
    """A file that was written like that can be written again, and read again."""
    found = from_bytes(np.array([b"\xff" * LONGEST, b"a\0b", b"ok"]))
    assert found.tolist()[1:] == ["a\ufffdb", "ok"]
    assert to_bytes(found).dtype.itemsize <= LONGEST
    assert from_bytes(to_bytes(found)).tolist() == found.tolist()


def test_groups_are_named_by_their_most_frequent_words():
    assert named(["bank", "river", "river", "water", "bank", "river"]) == "river, bank, water"
    assert named(["b", "a", "c", "a", "d", "e"], 2) == "a, b +3"
    assert named(["", "x" * 99]) == f"␣, {'x' * 23}…"
    assert named([]) == ""


def test_nothing_that_steers_a_terminal_is_visible():
    for word in EVIL:
        for shown in (visible(word), named([word]), bare(word)):
            assert shown.isprintable()
            assert shown
    assert not any(letter.isspace() for word in EVIL for letter in bare(word))


def contracting(seed: int, count: int = 14, frames: int = 6) -> np.ndarray:
    """Particles on a line that shrink to three places; few frames, so that several merges fall between two of them."""
    rng = np.random.default_rng(seed)
    start = rng.permutation(np.cumsum(rng.uniform(0.1, 2.0, count)))
    group = np.digitize(start, [4.0, 10.0])
    goal = np.array([start[group == each].mean() for each in range(3)])[group]
    share = np.linspace(0, 1, frames)[:, None] ** rng.uniform(0.5, 3.0, 3)[group]
    return ((1 - share) * start + share * goal)[..., None]


@pytest.mark.parametrize("seed", range(6))
def test_words_on_both_sides_of_a_merge_are_those_of_its_particles(seed):
    """Every particle begins as a cluster of its own number, so that merges alone tell who is in a cluster."""
    points = contracting(seed)
    words = np.random.default_rng(seed + 100).choice(["the", "cat", "sat", "on", "mat"], points.shape[1])
    track = pf.analysis.track_clusters(Trajectory.from_arrays(np.arange(6.0), points), 0.05)
    assert [birth.parent for birth in track.tree.births] == [-1] * points.shape[1]
    members = {label: {label} for label in range(points.shape[1])}
    expected = []
    for merge in track.tree.merges:
        sides = members[merge.survivor], members.pop(merge.absorbed)
        ours, theirs = ({words[particle] for particle in side} for side in sides)
        if len(ours | theirs) > 1:
            expected.append((merge.time, ours, theirs, len(sides[0]), len(sides[1])))
        members[merge.survivor] = sides[0] | sides[1]
    found = pf.analysis.word_merges(track, words)
    assert [
        (each.time, set(each.survivor.words), set(each.absorbed.words), each.survivor.tokens, each.absorbed.tokens)
        for each in found
    ] == sorted(expected, key=lambda row: row[0])
    clusters = pf.analysis.cluster_words(track.labels[-1], words)
    assert {label: (set(side.words), side.tokens) for label, _, side in clusters} == {
        label: ({words[particle] for particle in group}, len(group)) for label, group in members.items()
    }
    masses = [mass for _, mass, _ in clusters]
    assert masses == sorted(masses, reverse=True)
    assert sum(masses) == pytest.approx(1.0)


def test_weights_and_missing_mass_count_in_the_words_of_clusters():
    labels, words = [0, 0, 1, -1, 1, 0], ["a", "b", "c", "d", "c", "b"]
    found = pf.analysis.cluster_words(labels, words, [1, 1, 4, 0, 3, 1])
    assert [(label, mass, side.words, str(side)) for label, mass, side in found] == [
        (1, 0.7, ("c",), "c"),
        (0, pytest.approx(0.3), ("b", "a"), "b, a"),
    ]
    with pytest.raises(ShapeError, match="one word for each of the 6 particles"):
        pf.analysis.cluster_words(labels, words[:3])


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Four particles at 0, 1, 10, 11: neighbours meet between t = 1 and 2, all between 2 and 3."""
    points = np.array([[0, 1, 10, 11], [0, 1, 10, 11], [0.5, 0.5, 10.5, 10.5], [5, 5, 5, 5]], float)
    return np.arange(4.0), points[..., None]


FIRST = "a with b (t = 1–2), c with d (t = 1–2)"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["a", "a", "b", "b"], "2 words in 1 cluster: first a with b (t = 2–3)"),
        (["a", "b", "c", "d"], f"4 words in 1 cluster: first {FIRST}, a, b with c, d (t = 2–3)"),
        (["a", "a", "a", "a"], "1 word in 1 cluster: the same one everywhere"),
        (None, None),
    ],
)  # fmt: skip
def test_the_words_in_one_line(words, line):
    """Neighbours meet between t = 1 and 2, all between 2 and 3; the frames do not tell when."""
    times, points = pairs()
    run = Trajectory.from_arrays(times, points, words=words)
    summary = pf.analysis.summarize(run, threshold=0.25)
    assert words_line(summary) == line
    assert words_line(json.loads(json.dumps(summary))) == words_line(summary)


def test_without_a_merge_the_line_says_what_the_clusters_hold():
    """Beside one cluster it does not say that no two words became one where they were one from the beginning."""
    still = np.array([0.0, 0.1, 5.0, 5.1])[None, :, None].repeat(3, axis=0)
    for words, said in (
        ("aabb", "no two different ones became one"),
        ("abcd", "those in one cluster are together from the first frame on"),
    ):
        summary = pf.analysis.summarize(Trajectory.from_arrays(np.arange(3.0), still, words=list(words)), threshold=1.0)
        assert words_line(summary) == f"{len(set(words))} words in 2 clusters: {said}"
    points = np.stack([np.linspace(0, 10, 40), np.linspace(0, 0.1, 40)])[..., None]  # a chain, then one place
    run = Trajectory.from_arrays([0.0, 1.0], points, words=list("ab" * 20))
    summary = pf.analysis.summarize(run, threshold=0.5)
    assert words_line(summary) == "2 words in 1 cluster: those in one cluster are together since t = 0–1"


@pytest.mark.parametrize("summary", [None, {}, {"words": 3}, {"words": {"listed_merges": [1]}, "clusters": {}}])
def test_a_foreign_summary_has_no_line_of_words(summary):
    assert words_line(summary) is None


def test_many_merges_are_told_by_the_first_two_and_the_last():
    points = np.array([[max(place - frame, 0) for place in range(7)] for frame in range(8)], float)[..., None]
    run = Trajectory.from_arrays(np.arange(8.0), points, words=list("abcdefg"))
    summary = pf.analysis.summarize(run, threshold=0.5)
    line = words_line(summary)
    assert line is not None
    assert line.startswith("7 words in 1 cluster: first a with b (t = 0–1), a, b with c (t = 1–2), …, last ")
    assert line.endswith("a, b, c +3 with g (t = 5–6)")
    assert summary["words"]["merges_of_different_words"] == 6


def test_a_line_of_more_merges_than_are_listed_claims_no_first():
    start = np.arange(300.0)
    points = np.stack([start, 0.4 * start, np.zeros(300)])[..., None]
    run = Trajectory.from_arrays([0.0, 1.0, 2.0], points, words=[f"w{place}" for place in range(300)])
    summary = pf.analysis.summarize(run, threshold=0.3)
    assert summary["words"]["merges_of_different_words"] == 299
    assert len(summary["words"]["listed_merges"]) == 200
    assert str(words_line(summary)).startswith("300 words in 1 cluster: for example w")
    assert "last" not in str(words_line(summary))


def test_hostile_words_are_printable_in_summary_and_card():
    times, points = np.arange(2.0), np.zeros((2, len(EVIL), 1))
    points[0, :, 0] = np.arange(len(EVIL))
    run = Trajectory.from_arrays(times, points, words=EVIL)
    summary = json.dumps(pf.analysis.summarize(run), ensure_ascii=False)
    assert summary.isprintable()
    assert all(line.isprintable() for line in str(run).splitlines())
    assert any(line.split()[0] == "words" for line in str(run).splitlines()[1:])
