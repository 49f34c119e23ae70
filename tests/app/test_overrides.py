"""--set: what is changed, what is removed, what was meant, and kinds by name; and what a scenario may leave open."""

import inspect
import json
import tomllib

import numpy as np
import pytest

import particleflow as pf
from particleflow import scenario
from particleflow._support import toml
from particleflow.app.cli import main
from particleflow.app.cli.options import with_every_flag
from particleflow.app.scenario.schema import Registry, all_kinds, json_schema
from particleflow.errors import UserError
from particleflow.simulation.stepping import Method

TEXT = """\
# What to look for.
title = "A test"
initial = { kind = "uniform_sphere", dim = 3, count = 4 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 4.0 }  # narrow
[[drift]]
kind = "linear"
matrix = -1.0
[time]  # short
end = 1.0
frames = 5
rtol = 1e-8
atol = 1e-10
"""


@pytest.fixture
def write(tmp_path):
    def write(text=TEXT):
        path = tmp_path / "test.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("tokens", "spread"),
    [
        ("run f --set a=1 b.0.c=2 --quiet", "run f --set a=1 --set b.0.c=2 --quiet"),
        ("run --set a=1 f", "run --set a=1 f"),
        ("run --set=a=1 b=2 f", "run --set=a=1 --set b=2 f"),
        ("run --set a=1 f c=3", "run --set a=1 f c=3"),
        ("run --set a= b=", "run --set a= --set b="),
        ("run --set a=1 --output x=y", "run --set a=1 --output x=y"),
        ("run --set a=1 -- b=2", "run --set a=1 -- b=2"),
        ("run a=1 --set", "run a=1 --set"),
        ("run --set a=1 ./b=2.toml", "run --set a=1 ./b=2.toml"),
    ],
)
def test_one_flag_takes_several_assignments(tokens, spread):
    assert with_every_flag(tokens.split()) == spread.split()


@pytest.mark.parametrize(
    ("overrides", "changes"),
    [
        (["time.rtol=", "time.atol=", "time.step=0.5"], {"time": {"end": 1.0, "frames": 5, "step": 0.5}}),
        (["geometry="], {"geometry": None}),
        (["drift.1="], {"drift": [{"kind": "attend", "kernel": {"kind": "attention", "beta": 4.0}}]}),
        (["geometry=euclidean"], {"geometry": {"kind": "euclidean"}}),
        (
            ["drift.1=", "drift.0.kernel=gaussian", "drift.0.kernel.width=0.5"],
            {"drift": [{"kind": "attend", "kernel": {"kind": "gaussian", "width": 0.5}}]},
        ),
        (
            ["drift.1=", "drift.0.positional=window", "drift.0.positional.radius=3.0"],
            {
                "drift": [
                    {
                        "kind": "attend",
                        "kernel": {"kind": "attention", "beta": 4.0},
                        "positional": {"kind": "window", "radius": 3.0},
                    }
                ]
            },
        ),
    ],
)
def test_keys_are_removed_and_kinds_are_named(overrides, changes, write):
    loaded = scenario.load(write(), overrides)
    expected = {name: value for name, value in (tomllib.loads(TEXT) | changes).items() if value is not None}
    assert loaded.raw == expected
    assert tomllib.loads(loaded.text) == expected
    assert loaded.text.startswith("# What to look for.")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("drift.kernel.beta=9", "Did you mean drift.0.kernel.beta?"),
        ("drift.kernel=gaussian", "Did you mean drift.0.kernel?"),
        ("drift.nothing.at.all=9", "drift.nothing.at.all: a list of 2 has no place 'nothing'.\n"),
        ("drift.7.kernel.beta=9", "a list of 2 has no place 7"),
        ("time.steps=", "there is no 'steps' to remove"),
        ("drift.5=", "a list of 2 has no place 5"),
        ("geometry=sphre", "did you mean 'sphere'?"),
        ("initial=", "initial: is missing"),
        ("drift.0.kernel=gaussian", "drift.0.kernel.width: is missing"),
        ("title.x=3", "there is nothing called 'x' inside 'A test'"),
    ],
)
def test_what_was_meant_is_said(override, message, write):
    with pytest.raises(UserError) as caught:
        scenario.load(write(), [override])
    assert message in f"{caught.value}\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("my sentence", "my sentence"),
        ("One, two = 3 # and four", "One, two = 3 # and four"),
        ("7 ways", "7 ways"),
        ('What is "it"?', 'What is "it"?'),
        ('"in quotes"', "in quotes"),
        ("word", "word"),
    ],
)
def test_a_text_needs_no_quotes(value, text, write):
    assert scenario.load(write(), [f"title={value}"]).title == text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("drift.0.kernel.beta=4,5", "must be a number"),
        ("seed=two or three", "must be a whole number"),
        ("time.times=[0, 1", "is no TOML value"),
        ('title="open', "is no TOML value"),
        ("geometry={kind = 3", "is no TOML value"),
        ("title=2024", "must be a text in quotes"),
    ],
)
def test_numbers_lists_and_tables_stay_what_they_are(override, message, write):
    with pytest.raises(UserError, match=message):
        scenario.load(write(), [override])


def test_a_single_table_of_drift_has_no_places(write):
    single = TEXT.split('[[drift]]\nkind = "linear"')[0].replace("[[drift]]", "[drift]") + "[time]\nend = 1.0\n"
    assert scenario.load(write(single), ["drift.kernel.beta=9"]).raw["drift"]["kernel"]["beta"] == 9
    with pytest.raises(UserError, match=r"Did you mean drift\.kernel\.beta\?"):
        scenario.load(write(single), ["drift.0.kernel.beta=9"])


def test_a_kind_by_its_name_is_the_kind(write):
    by_name = TEXT.replace('geometry = { kind = "sphere" }', 'geometry = "sphere"')
    first, second = (scenario.load(write(text)).build() for text in (TEXT, by_name))
    assert type(first.flow.geometry) is type(second.flow.geometry)
    assert np.array_equal(first.start.points, second.start.points)


@pytest.mark.parametrize(
    ("time", "precision", "chosen"),
    [
        ("end = 1.0", "float64", {"frames": 200, "rtol": 1e-6, "atol": 1e-8}),
        ("end = 1.0", "float32", {"frames": 200, "rtol": 1e-4, "atol": 1e-6}),
        ("end = 1.0\nframes = 7\nrtol = 1e-10", "float64", {"atol": 1e-12}),
        ("end = 1.0\nframes = 7\natol = 1e-9", "float64", {"rtol": 1e-7}),
        ("end = 1.0\nframes = 7\nrtol = 0.0", "float64", {"atol": 1e-8}),
        ("times = [0.0, 1.0]", "float64", {"rtol": 1e-6, "atol": 1e-8}),
        ("end = 1.0\nstep = 0.5", "float64", {"frames": 200}),
        ("times = [0.0, 1.0]\nstep = 0.5", "float64", {}),
        ('end = 1.0\nspacing = "log"\nfirst = 0.1', "float64", {"frames": 200, "rtol": 1e-6, "atol": 1e-8}),
    ],
)
def test_what_is_left_open_is_chosen(time, precision, chosen, write):
    text = TEXT.split("[time]")[0] + f"[time]\n{time}\n"
    document = scenario.load(write(text), [f"precision={precision}"]).document
    assert document.chosen == {f"time.{name}": value for name, value in chosen.items()}
    assert {name: getattr(document.time, name) for name in chosen} == chosen
    for name in {"frames", "rtol", "atol"} - chosen.keys():
        assert getattr(document.time, name) == tomllib.loads(time).get(name)


@pytest.mark.slow
def test_what_was_chosen_is_reported(write, tmp_path, capsys):
    text = TEXT.split("[time]")[0] + "[time]  # short\nend = 1.0 # one\n"
    folder = tmp_path / "run"
    products = ["--no-summary", "--no-figures", "--no-movie", "--no-page"]
    overrides = ["--set", "time.frames=3", "drift.0=", "geometry="]
    assert main(["run", str(write(text)), *overrides, "--output", str(folder), *products]) == 0
    assert "chosen: time.rtol = 1e-06, time.atol = 1e-08" in capsys.readouterr().err
    written = (folder / "scenario.toml").read_text(encoding="utf-8")
    assert "[time]  # short\nend = 1.0 # one\nframes = 3\nrtol = 1e-06 # chosen\natol = 1e-08 # chosen\n" in written
    with pf.Trajectory.open(folder) as run:
        assert run.metadata["chosen"] == {"time.rtol": 1e-6, "time.atol": 1e-8}
        assert (run.metadata["rtol"], run.metadata["atol"]) == (1e-6, 1e-8)
        assert "chosen" in str(run)
    again = scenario.load(folder / "scenario.toml")
    assert again.document.chosen == {}
    assert again.text == written
    assert main(["check", str(write(text)), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["chosen"]["time.frames"] == 200


def test_in_one_line_there_is_no_room_for_a_remark():
    changed = toml.rewritten("time = { end = 1.0 }\n", {"time": {"end": 1.0, "frames": 9}}, {"time.frames": "chosen"})
    assert tomllib.loads(changed) == {"time": {"end": 1.0, "frames": 9}}
    assert "#" not in changed


def test_every_kind_is_listed_with_every_parameter(capsys):
    """Against the registry and the constructors themselves."""
    registry = Registry()
    found = {(each.family, each.name): each for each in all_kinds()}
    for family in registry.families:
        for kind, target in registry.kinds(family.name).items():
            named = [each.name for each in found[family.name, kind].parameters]
            assert found[family.name, kind].sentence
            if inspect.isclass(target):
                assert set(inspect.signature(target).parameters) <= set(named)
    assert main(["kinds"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        *(each.name for each in registry.families), "solver", "table",
    ]  # fmt: skip
    assert sum(line.startswith("  ") for line in lines) == len(found)


def test_one_kind_is_described(capsys):
    assert main(["describe", "attend"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Self-attention, v(x) = O V m(x)" in said
    assert '{ kind = "attend", kernel = … }' in said
    assert 'normalization "row" or "none" or "sinkhorn"; default "row"' in said
    assert "positional a table (kernel); default none K₂, left out for none" in said
    assert main(["describe", "kernel.gaussian", "--json"]) == 0
    (kind,) = json.loads(capsys.readouterr().out)
    width = {"name": "width", "expected": "a number", "required": True, "default": None}
    assert kind["parameters"][0].items() >= width.items()
    assert main(["describe", "gaussian", "--json"]) == 0
    assert [each["family"] for each in json.loads(capsys.readouterr().out)] == ["kernel", "discretization", "initial"]
    assert main(["describe", "time"]) == 0
    assert "rtol a number; default none" in " ".join(capsys.readouterr().out.split())


def test_solvers_are_kinds_with_what_they_can_do(capsys):
    """Textbook facts: orders, implicit or not, adaptive or not, and the fields of a step."""
    assert main(["kinds", "solvers"]) == 0
    said = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    for name, facts in {
        "tsit5": "order 5, explicit, adaptive or fixed steps, 6 fields a step",
        "bosh3": "order 3, explicit, adaptive or fixed steps, 3 fields a step",
        "heun": "order 2, explicit, adaptive or fixed steps, 2 fields a step, also for noise at fixed steps",
        "euler": "order 1, explicit, fixed steps only, 1 field a step, also for additive noise at fixed steps",
        "kvaerno5": "order 5, implicit, adaptive or fixed steps, fields by Newton's method",
    }.items():
        assert said[name].endswith(f": {facts}")
    assert main(["describe", "kvaerno3"]) == 0
    assert 'solver = "kvaerno3"' in capsys.readouterr().out
    names = json_schema()["$defs"]["TimeTable"]["properties"]["solver"]["anyOf"][0]["enum"]
    assert {"solver", *names} == said.keys()
    for name in names:
        Method(name, adaptive=False, noisy=False, max_steps=1)  # refuses a name that is no solver's


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "atend"], "did you mean 'attend'?"),
        (["describe", "kernel.atend"], "There is no kind 'kernel.atend'"),
        (["describe", "kernl.gaussian"], "did you mean 'kernel'?"),
        (["kinds", "drfts"], "did you mean 'drift'?"),
    ],
)
def test_kinds_that_there_are_not(arguments, message, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("family", ["kernel", "kernels"])
def test_one_family_in_singular_or_plural(family, capsys):
    assert main(["kinds", family, "--json"]) == 0
    assert {each["family"] for each in json.loads(capsys.readouterr().out)} == {"kernel"}
