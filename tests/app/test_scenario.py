"""Scenario files: what they mean, what is wrong with them, and that all shipped ones work."""

# pyright: reportAttributeAccessIssue=false

import tomllib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import scenario
from particleflow._support import toml
from particleflow.app.scenario.schema import ScenarioError, json_schema
from particleflow.errors import UserError
from particleflow.simulation.plan import as_start
from shares import by_default, skip_without_extra

BASE = """
# What to look for.
title = "A test"
seed = 3
initial = { kind = "uniform_sphere", dim = 3, count = 12 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 4.0 }
[time]
end = 1.0
frames = 5
rtol = 1e-8
atol = 1e-10
[record]
observables = ["energy"]
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="test.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.slow
def test_a_scenario_is_the_constructor_calls_it_says(write):
    setup = scenario.load(write(BASE)).build()
    kernel = pf.kernels.Attention(beta=4.0)
    flow = pf.Flow(pf.Attend(kernel), geometry=pf.Sphere())
    points = pf.initial.UniformSphere(3).sample(scenario.key_for(3, "initial"), 12)
    observe = [pf.observables.energy]  # and one program
    expected = pf.simulate(flow, points, np.linspace(0, 1, 5), rtol=1e-8, atol=1e-10, observe=observe)
    found = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
    assert np.allclose(np.asarray(found.points), np.asarray(expected.points), atol=1e-12)
    assert list(found.observables) == ["energy"]


def test_all_problems_of_a_file_come_at_once(write):
    text = (
        BASE.replace("beta = 4.0", 'bta = 4.0, query = "x"').replace('"sphere"', '"spere"').replace("frames", "frams")
    )
    text = text.replace("end = ", "ending = ")
    text = text.replace("dim = 3", "dim = 0").replace('"energy"', '"enrgy"') + "[extra]\n"
    with pytest.raises(ScenarioError) as caught:
        scenario.load(write(text))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("test.toml: ")
    for fragment in (
        "drift.0.kernel.bta = 4.0: is no known key; did you mean 'beta'?",
        "drift.0.kernel.query = 'x': must be a number, a list of numbers",
        "geometry.kind = 'spere': is no known geometry; did you mean 'sphere'?",
        "time.frams = 5: is no known key; did you mean 'frames'?",
        "time.end: is missing",
        "initial.dim = 0: Argument `dim` must be a positive integer",
        "record.observables.0.kind = 'enrgy': is no known observable; did you mean 'energy'?",
        "extra = {}: is no known key",
    ):
        assert any(fragment in line for line in lines), fragment


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count = 12", "count = true", "initial.count = True: must be a whole number"),
        ("rtol = 1e-8", "rtol = 1e-8\nstep = 0.1", "must be left out when a fixed `step` is given"),
        ("seed = 3\n", "seed = 3\ntemperature = 0.1\n", "needs a fixed `step`"),
        ("frames = 5", 'frames = 5\nspacing = "log"', "time.first: is missing"),
        ("seed = 3", "seed = -1", "seed = -1: must be greater than or equal to 0"),
        ("beta = 4.0", "beta = [1.0, 2.0]", "drift.0.kernel.beta = [1.0, 2.0]: must be a number"),
        ("beta = 4.0", "query = [[1.0], [2.0, 3.0]]", "equally long rows"),
        ("beta = 4.0", "query = [1.0, 2.0]", "does not act on vectors of dimension 3"),
        ('"energy"', '"energy", "energy"', "is listed twice: record.observables.0 has the same name"),
        ('kind = "attend"', 'kind = "os:system"', "pass --allow-code if you trust this file"),
        ("[record]", "[record]\nparticles = 13", "record.particles is 13, but there are 12 particles"),
        ("frames = 5", "frames = 1", "time.frames = 1: must be greater than or equal to 2"),
        ("rtol = 1e-8", "rtol = 1e-30", "below the 2.2e-15 that float64 can give"),
        ("temperature", "temperature", None),
    ],
)
def test_messages_name_key_value_and_expectation(write, old, new, message):
    if message is None:
        with pytest.raises(UserError, match="needs a fixed `step`"):
            scenario.load(write("temperature = 0.1\n" + BASE)).build()
        return
    assert old in BASE
    with pytest.raises(UserError) as caught:
        scenario.load(write(BASE.replace(old, new))).build()
    assert message in str(caught.value)


def test_overrides_go_through_the_same_checks(write):
    path = write(BASE)
    changed = scenario.load(
        path, ["drift.0.kernel.beta=7", 'title="new"', "initial.count=4", "record.observables.0=speed"]
    )
    assert float(changed.build().flow.drift.kernel.beta) == 7.0
    assert changed.title == "new"
    assert changed.build().start.count == 4
    again = scenario.from_document(tomllib.loads(changed.text), "x", path.parent)
    assert again.raw == changed.raw
    for bad in ("drift.0.kernel.bta=7", "drift.3.kind=attend", "seed", "=3", "seed=1\nb=2", "title.x=3", "seed=a b"):
        with pytest.raises(UserError):
            scenario.load(path, [bad])


def test_linear_maps_are_numbers_diagonals_or_matrices(write):
    for text, shape in (("2", ()), ("[1, 2, 3]", (3,)), ("[[1, 0, 0], [0, 1, 0], [0, 0, 1]]", (3, 3))):
        flow = scenario.load(write(BASE), [f"drift.0.value={text}"]).build().flow
        assert flow.drift.value.shape == shape


@pytest.mark.slow
def test_float32_reaches_every_array(write):
    fixed = ["time.rtol=", "time.atol=", "time.step=0.25", "time.solver=euler"]
    setup = scenario.load(write(BASE), ["precision=float32", *fixed]).build()
    leaves = jax.tree_util.tree_leaves((setup.flow, setup.start))
    assert {leaf.dtype for leaf in leaves if hasattr(leaf, "dtype")} == {jnp.dtype("float32")}
    run = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
    assert run.points.dtype == np.float32


def test_seeds_are_split_by_name():
    first, noise = scenario.key_for(0, "initial"), scenario.key_for(0, "noise")
    assert not np.array_equal(jax.random.key_data(first), jax.random.key_data(noise))
    # the split must never change, or old scenarios would give other runs
    assert np.array_equal(
        jax.random.key_data(first), jax.random.key_data(jax.random.fold_in(jax.random.key(0), 3190234543))
    )


def test_times_are_linear_logarithmic_given_or_on_a_grid(write):
    def times(*overrides):
        return scenario.load(write(BASE), overrides).build().times

    assert np.allclose(times(), [0, 0.25, 0.5, 0.75, 1.0])
    assert np.allclose(times("time.spacing=log", "time.first=1e-3"), [0, 1e-3, 1e-2, 1e-1, 1])
    path = write(BASE.replace("end = 1.0\nframes = 5", "times = [0.0, 0.5, 3.0]"))
    assert np.allclose(scenario.load(path).build().times, [0, 0.5, 3])
    stepped = write(BASE.replace("rtol = 1e-8\natol = 1e-10", "step = 0.1").replace("frames = 5", "frames = 4"))
    assert np.allclose(scenario.load(stepped).build().times, [0, 0.3, 0.7, 1.0])
    with pytest.raises(UserError, match="no multiple of"):
        scenario.load(stepped, ["time.step=0.3"]).build()


def test_a_start_is_put_on_the_geometry_unless_it_is_not_to_be(write):
    off = BASE.replace('kind = "uniform_sphere", dim = 3, count = 12', 'kind = "gaussian", dim = 3, count = 12')
    points = np.asarray(scenario.load(write(off)).build().start.points)
    assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-14)
    with pytest.raises(UserError, match="must be on the geometry"):
        scenario.load(write(off), ["initial.retract=false"]).build()


def test_paths_are_relative_to_the_scenario(write, tmp_path, monkeypatch):
    np.save(tmp_path / "x0.npy", np.eye(3))
    text = BASE.replace('{ kind = "uniform_sphere", dim = 3, count = 12 }', '{ kind = "from_file", path = "x0.npy" }')
    path = write(text)
    monkeypatch.chdir("/")
    assert np.array_equal(scenario.load(path).build().start.points, np.eye(3))
    with pytest.raises(UserError, match=r"initial.path.*no such file"):
        scenario.load(path, ["initial.path=nothing"])


def test_data_of_mean_shift_is_an_initial_cloud(write):
    text = BASE.replace('kind = "attend"', 'kind = "mean_shift"').replace('geometry = { kind = "sphere" }\n', "")
    text = text.replace(
        'kernel = { kind = "attention", beta = 4.0 }',
        'kernel = { kind = "gaussian", width = 0.5 }\ndata = { kind = "gaussian", dim = 3, count = 50 }',
    )
    setup = scenario.load(write(text)).build()
    expected = pf.initial.Gaussian(3).sample(scenario.key_for(3, "drift.0.data"), 50)
    assert np.array_equal(setup.flow.drift.data.points, expected)


def test_code_is_imported_only_when_allowed(write, tmp_path):
    (tmp_path / "my_flow.py").write_text(
        "import jax.numpy as jnp\nfrom particleflow.dynamics.drifts import AbstractDrift\n"
        "class Push(AbstractDrift):\n    strength: float = 1.0\n"
        "    def __call__(self, time, queries, measure):\n"
        "        return self.strength * jnp.ones_like(queries.points)\n"
        "def height(flow, time, measure):\n    return measure.points[:, 0].max()\n"
    )
    text = BASE.replace('kind = "attend"', 'kind = "my_flow:Push"\nstrength = 2.0')
    text = text.replace('kernel = { kind = "attention", beta = 4.0 }', "").replace('"energy"', '"my_flow:height"')
    text = text.replace('geometry = { kind = "sphere" }', "")
    path = write(text)
    with pytest.raises(UserError, match="--allow-code"):
        scenario.load(path)
    layers = ["time.rtol=", "time.atol=", "time.step=0.25", "time.solver=map"]
    setup = scenario.load(path, layers, allow_code=True).build()
    run = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
    assert np.allclose(run.points[-1], run.points[0] + 2.0)
    assert np.allclose(run.observables["height"], np.asarray(run.points)[:, :, 0].max(axis=1))


def test_two_observables_of_a_kind_have_names_of_their_own(write):
    both = '{ kind = "pair_fraction", threshold = 0.5 }, { kind = "pair_fraction", threshold = 0.9, name = "close" }'
    run = scenario.load(write(BASE.replace('"energy"', both))).build()
    assert [pf.observables.name_of(each) for each in run.arguments["observe"]] == ["pair_fraction", "close"]
    with pytest.raises(ScenarioError, match=r"record.observables.1 = 'pair_fraction': is listed twice.*another `name`"):
        scenario.load(write(BASE.replace('"energy"', both.replace(', name = "close"', ""))))
    with pytest.raises(ScenarioError, match=r"record.observables.1.*needs a name that is an identifier"):
        scenario.load(write(BASE.replace('"energy"', both.replace('"close"', '"very close"'))))


def test_installed_plugins_are_kinds_of_their_own(write, tmp_path, monkeypatch):
    (tmp_path / "my_plugin.py").write_text(
        "from particleflow.dynamics.geometry import Euclidean\nclass Flat(Euclidean):\n    height: float = 1.0\n"
    )
    (tmp_path / "my_plugin-1.0.dist-info").mkdir()
    (tmp_path / "my_plugin-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: my_plugin\nVersion: 1.0\n"
    )
    (tmp_path / "my_plugin-1.0.dist-info" / "entry_points.txt").write_text(
        "[particleflow.plugins]\nflat_earth = my_plugin:Flat\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    setup = scenario.load(write(BASE.replace('kind = "sphere"', 'kind = "flat_earth", height = 2.0'))).build()
    assert type(setup.flow.geometry).__name__ == "Flat"
    assert setup.flow.geometry.height == 2.0


def test_toml_survives_writing():
    document = {
        "title": 'quote " back \\ newline \n nul \0 emoji \U0001f600',
        "a b": 1,
        "numbers": [1, 2.5, -1e300, float("inf")],
        "initial": {"kind": "x", "deep": {"a": [{"b": True}]}},
        "drift": [{"kind": "y", "m": [[1.0, 2.0]]}, {"kind": "z"}],
        "time": {"end": 1.0, "empty": [], "none": {}},
    }
    assert tomllib.loads(toml.dumps(document)) == document


def test_the_json_schema_knows_every_kind():
    schema = json_schema()
    kernels = {choice["title"]: choice for choice in schema["$defs"]["kernel"]["anyOf"]}
    assert "constant" in kernels["a kind by its name"]["enum"]
    assert "gaussian" not in kernels["a kind by its name"]["enum"]  # it needs a width
    assert kernels["attention"]["properties"]["beta"]["anyOf"][0]["type"] == "number"
    assert kernels["scaled"]["properties"]["kernel"]["$ref"] == "#/$defs/kernel"
    assert kernels["gaussian"]["required"] == ["kind", "width"]
    assert schema["required"] == ["initial", "drift", "time"]
    text = str(schema)
    assert "x-family" not in text
    for name in {part.split("'")[0] for part in text.split("#/$defs/")[1:]}:
        assert name in schema["$defs"]


@pytest.mark.parametrize("name", scenario.shipped())
def test_shipped_scenarios_are_short_and_say_what_to_look_for(name):
    path = scenario.shipped()[name]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 26
    assert lines[0].startswith("# ")
    assert len(lines[0]) > 40
    facts = scenario.describe(path)
    assert facts["title"] != name
    assert facts["look for"] == lines[0][2:].strip()
    assert f"# Theme: {facts['theme']}" == lines[1]


def test_shipped_scenarios_cover_all_dynamics_geometries_and_clouds():
    found = {"drift": set(), "geometry": {"euclidean"}, "initial": set()}

    def collect(node):
        for value in node.values() if isinstance(node, dict) else node:
            if isinstance(value, dict | list):
                collect(value)
        if isinstance(node, dict) and "kind" in node:
            for kinds in found.values():
                kinds.add(node["kind"])

    for path in scenario.shipped().values():
        collect(tomllib.loads(path.read_text(encoding="utf-8")))
    from particleflow.app.scenario.schema import Registry

    assert len(scenario.shipped()) >= 24
    for family, kinds in found.items():
        missing = set(Registry().kinds(family)) - kinds
        assert missing <= {"feed_forward", "sum", "density_function", "function_drift"}, (family, missing)


@pytest.mark.parametrize("name", by_default(scenario.shipped(), ["alibi", "hopfield"]))
def test_shipped_scenarios_load_and_take_three_steps(name):
    skip_without_extra(name)
    loaded = scenario.load(name)
    if loaded.document.initial.count is not None:
        fewest = 60 if loaded.document.record.particles is None else loaded.document.record.particles
        loaded = loaded.with_values({"initial.count": min(loaded.document.initial.count, fewest)})
    setup = loaded.build(check=False)
    size = 1e-3 * float(setup.times[-1]) if setup.arguments["step"] is None else setup.arguments["step"]
    state = setup.start.points

    @eqx.filter_jit
    def step(flow, time, state, start):
        return flow.step(time, state, start, size)

    end, start = state, as_start(setup.start)
    for number in range(3):
        end = step(setup.flow, jnp.asarray(number * size, state.dtype), end, start)
    end = setup.flow.geometry.retract(end)
    assert end.shape == state.shape
    assert np.isfinite(np.asarray(end)).all()
    assert not np.array_equal(np.asarray(end), np.asarray(state))
    setup.flow.geometry.check_contains(end)
