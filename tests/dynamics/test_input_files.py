"""Files that other programs write: byte-order marks, pictures of every depth; the values are right, or are refused."""

from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from particleflow.dynamics.initial import FromFile, ImagePatches, TextTokens
from particleflow.errors import ArgumentError

KEY = jax.random.key(0)
ROWS = "1.5,2.5\n-3.0,4.0\n0.25,1e-3\n"
POINTS = np.array([[1.5, 2.5], [-3.0, 4.0], [0.25, 1e-3]])


@pytest.mark.parametrize(
    "content",
    [
        ROWS.encode(),
        b"\xef\xbb\xbf" + ROWS.encode(),
        b"\xef\xbb\xbfx,y\n" + ROWS.encode(),
        b"\xef\xbb\xbf" + ROWS.replace("\n", "\r\n").encode(),
        b"x,y\n" + ROWS.encode(),
        b"# x,y\n" + ROWS.encode(),
    ],
    ids=["plain", "mark", "mark and header", "mark and carriage returns", "header", "comment"],
)
def test_a_table_keeps_all_of_its_particles(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cloud.csv").write_bytes(content)
    np.testing.assert_array_equal(np.asarray(FromFile(tmp_path / "cloud.csv").sample(KEY)), POINTS)


@pytest.mark.parametrize(
    "content",
    [b"1.5,2.5O\n-3.0,4.0\n", b"1.5,2.5,\n-3.0,4.0\n", ROWS.encode("utf-16"), b"1;2\n3;4\n"],
    ids=["slip in a number", "open end", "UTF-16", "semicolons"],
)
def test_a_table_that_cannot_be_read_whole_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cloud.csv").write_bytes(content)
    with pytest.raises(ArgumentError, match="cannot be read as a cloud"):
        FromFile(tmp_path / "cloud.csv").sample(KEY)


TABLE = 'x,Word,y\n1.5,the,2.5\n-3.0,"a, b",4.0\n0.25, 字,1e-3\n'


@pytest.mark.parametrize("content", [TABLE, "\ufeff" + TABLE, "# " + TABLE.replace("\n", "\r\n"), TABLE + "\n\n"])
def test_a_column_of_words_is_told_by_its_header(tmp_path: Path, content: str) -> None:
    (tmp_path / "cloud.csv").write_bytes(content.encode())
    start = FromFile(tmp_path / "cloud.csv").start(KEY)
    np.testing.assert_array_equal(np.asarray(start.measure.points), POINTS)
    assert start.words is not None
    assert start.words.tolist() == ["the", "a, b", " 字"]


@pytest.mark.parametrize(
    "content",
    ["word,x\nthe,1.5\non,2.O\n", "word,x\nthe,1.5\non\n", 'x,word\n1,"the\n2,on\n', "x,y\n1.5,the\n2.5,on\n"],
    ids=["slip", "short row", "open quote", "no such column"],
)
def test_a_table_of_words_that_cannot_be_read_whole_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "cloud.csv").write_text(content, encoding="utf-8")
    with pytest.raises(ArgumentError, match="cannot be read as a cloud"):
        FromFile(tmp_path / "cloud.csv").start(KEY)


@pytest.mark.parametrize("name", ["words", "tokens"])
@pytest.mark.parametrize("kind", [str, bytes])
def test_an_archive_may_hold_words(tmp_path: Path, name: str, kind: type) -> None:
    words = np.array(["the", "naïve", "字"] if kind is str else [word.encode() for word in ("the", "naïve", "字")])
    np.savez(tmp_path / "cloud.npz", points=POINTS, **{name: words})  # type: ignore[arg-type]
    found = FromFile(tmp_path / "cloud.npz").start(KEY).words
    assert found is not None
    assert found.tolist() == ["the", "naïve", "字"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (np.array(["a", "b"]), r"has 3 particles, but words of shape \(2,\)"),
        (np.array([["a"], ["b"], ["c"]]), r"has 3 particles, but words of shape \(3, 1\)"),
        (np.arange(3), "must hold texts as words"),
    ],
)
def test_words_that_do_not_fit_their_particles_are_refused(tmp_path: Path, words: np.ndarray, message: str) -> None:
    np.savez(tmp_path / "cloud.npz", points=POINTS, words=words)
    with pytest.raises(ArgumentError, match=message):
        FromFile(tmp_path / "cloud.npz").start(KEY)


def test_the_byte_order_mark_of_a_text_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("so it goes.", encoding="utf-8-sig")
    assert TextTokens(path=tmp_path / "text.txt").tokens == ["so", "it", "goes", "."]


GREYS = np.array([[0, 1000, 40000], [65535, 256, 300]], np.uint16)
FLOATS = np.array([[0.0, 0.5, 1.0], [0.25, -0.125, 2.0]], np.float32)
COLOURS = np.random.default_rng(0).integers(0, 256, (2, 3, 3)).astype(np.uint8)
BITS = np.array([[True, False, True], [False, False, True]])


def patches(path: Path) -> np.ndarray:
    """The image as it is read: patches of one pixel, in reading order."""
    return np.asarray(ImagePatches(path, patch=1, centred=False).sample(KEY))


@pytest.mark.parametrize("name", ["grey.png", "grey.tif", "grey.npy", "big_endian.npy", "grey.pgm"])
def test_sixteen_bits_are_sixteen_bits(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.startswith("big"):
        np.save(path, GREYS.astype(">u2"))
    elif path.suffix == ".npy":
        np.save(path, GREYS)
    else:
        Image.fromarray(GREYS).save(path)
    np.testing.assert_allclose(patches(path)[:, 0], GREYS.ravel() / 65535, rtol=1e-15)


def test_floating_point_pictures_are_their_numbers(tmp_path: Path) -> None:
    Image.fromarray(FLOATS).save(tmp_path / "float.tif")
    np.save(tmp_path / "float.npy", FLOATS)
    for name in ("float.tif", "float.npy"):
        np.testing.assert_array_equal(patches(tmp_path / name)[:, 0], FLOATS.ravel())


def test_eight_bits_colours_and_bits(tmp_path: Path) -> None:
    Image.fromarray(COLOURS).save(tmp_path / "colour.png")
    Image.fromarray(COLOURS[:, :, 0]).save(tmp_path / "grey.png")
    Image.fromarray(BITS).save(tmp_path / "bits.png")
    Image.fromarray(np.dstack([COLOURS, np.full((2, 3), 255, np.uint8)])).save(tmp_path / "alpha.png")
    for name in ("colour.png", "alpha.png"):
        np.testing.assert_allclose(patches(tmp_path / name), COLOURS.reshape(6, 3) / 255, rtol=1e-15)
    np.testing.assert_allclose(patches(tmp_path / "grey.png")[:, 0], COLOURS[:, :, 0].ravel() / 255, rtol=1e-15)
    np.testing.assert_array_equal(patches(tmp_path / "bits.png")[:, 0], BITS.ravel())


def test_whole_numbers_of_any_range_are_refused_as_pictures(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 70000], [-3, 5]], np.int32)).save(tmp_path / "deep.tif")
    with pytest.raises(ArgumentError, match=r"deep.tif cannot be read as an image: its 32-bit numbers"):
        patches(tmp_path / "deep.tif")
