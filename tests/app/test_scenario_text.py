"""What a run's scenario.toml says: the user's file, comments and layout kept, with what was changed from outside."""

import random
import tomllib

import pytest

from particleflow import scenario
from particleflow._support import toml
from particleflow.errors import UserError
from scenario_mutations import mutated

TEXT = """\
# Look at the colours.

title   =   "A test"  # aligned by hand
initial = { kind = "uniform_sphere", dim = 3, count = 12 }   # twelve
geometry = { kind = "sphere" }

[[drift]]                     # heads
kind = "attend"
kernel = {kind="attention",   beta = 4.0} # narrow
# positional = { kind = "causal" }

[[drift]]
kind = "linear"
matrix = [
    [1.0, 0.0, 0.0],  # first row
    [0.0, 1.0, 0.0],
    [0.0, 0.0, 1.0],
]
[time]
times = [0.0, 0.5, 1.0]
rtol = 1e-8
atol = 1e-10 # last
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "test.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("override", "old", "new"),
    [
        ("drift.0.kernel.beta=9", "beta = 4.0}", "beta = 9}"),
        ('title="B # \\"C\\""', '"A test"', '"B # \\"C\\""'),
        ("drift.1.matrix.0.1=0.25", "[1.0, 0.0, 0.0],  # first", "[1.0, 0.25, 0.0],  # first"),
        ("time.times.2=2.0", "[0.0, 0.5, 1.0]", "[0.0, 0.5, 2.0]"),
        ("time.times=[0.0, 9.0]", "[0.0, 0.5, 1.0]", "[0.0, 9.0]"),
        ('geometry={ kind = "euclidean" }', '{ kind = "sphere" }', '{ kind = "euclidean" }'),
        ("seed=7", '{ kind = "sphere" }\n', '{ kind = "sphere" }\nseed = 7\n'),
        ("drift.0.value=-1.0", '"causal" }\n', '"causal" }\nvalue = -1.0\n'),
        ("time.max_steps=9", "# last\n", "# last\nmax_steps = 9\n"),
        ("output.page=false", "# last\n", "# last\n\n[output]\npage = false\n"),
        ("drift.0.kernel.beta=4.0", "beta = 4.0", "beta = 4.0"),
        ("drift.0.kernel.beta=4", "beta = 4.0", "beta = 4"),
    ],
)
def test_only_what_was_set_is_different(path, override, old, new):
    assert TEXT.count(old) == 1
    assert scenario.load(path, [override]).text == TEXT.replace(old, new)


def test_a_file_that_nothing_was_set_in_is_kept_to_the_letter(path):
    assert scenario.load(path).text == TEXT
    changed = scenario.load(path, ["seed=7", "drift.0.kernel.beta=9"])
    assert changed.with_values({"seed": 8}).text == changed.text.replace("seed = 7", "seed = 8")
    assert changed.raw == tomllib.loads(changed.text)


def test_documents_stay_plain(path):
    def types(node):
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return {type(node)}.union(*map(types, inner))

    loaded = scenario.load(path, ["seed=7", "time.times=[0.0, 9.0]"])
    assert loaded.text
    assert types(loaded.raw) == {dict, list, str, int, float}


@pytest.mark.parametrize("name", ["metastable_sphere", "phase_diagram", "transformer_block", "causal"])
def test_damaged_documents_are_written_as_they_are(name):
    """The text says what the document says, whatever that is; comments stay where their keys do."""
    text = scenario.shipped()[name].read_text(encoding="utf-8")
    kept = 0
    for number in range(40):
        document = mutated(tomllib.loads(text), random.Random(number))
        written = toml.rewritten(text, document)
        read = tomllib.loads(written)
        assert repr(read) == repr(in_order(read, document))  # by their texts, for NaN is not equal to itself
        kept += written.startswith(text.splitlines()[0])
    assert kept > 30


def in_order(model, document):
    """A document with the keys of every table in the order of another one."""
    if isinstance(document, dict):
        assert model.keys() == document.keys()
        return {name: in_order(model[name], document[name]) for name in model}
    if isinstance(document, list):
        return [in_order(*pair) for pair in zip(model, document, strict=True)]
    return document


def test_what_cannot_be_written_or_found_is_said(path):
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(UserError, match="nested too deeply"):
        toml.rewritten("", deep)
    with pytest.raises(UserError, match="names between its dots"):
        scenario.load(path, [".".join(["a"] * 5000) + "=1"])
