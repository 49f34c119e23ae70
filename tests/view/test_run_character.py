"""Figures are chosen by what a run is, and show what they say: facts of runs, sets of figures, their numbers."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import particleflow
from figure_oracles import make
from particleflow.analysis import character_of, excess_kurtosis, gaussian_blow_up, gaussian_variance, nearest_distances
from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view import style
from particleflow.view.plots.base import small_print
from particleflow.view.plots.figure_set import _plan
from shares import by_default

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know


def attention_of(beta: Any = 2.0, value: Any = 1.0, **others: Any) -> dict[str, Any]:
    kernel = {"kind": "attention", "form": "inner", "beta": beta, "query": 1.0, "key": 1.0}
    return {"kernel": kernel, "normalization": "row", "positional": None, "data": False, "value": value, **others}


SPHERE = {"kind": "sphere", "radius": 1.0, "sees_stored": True}
FLAT = {"kind": "flat", "sees_stored": True}


def facts(space: dict[str, Any] = SPHERE, **others: Any) -> dict[str, Any]:
    return {"space": space, "drift": "attend", "interactions": [attention_of()], "seed": 7, **others}


SIGNAL = {"kind": "time_gaussian", "form": "positional", "width": 3.0}
TAUGHT = attention_of(data=True, taught=True)
ANNEALING = {"name": "beta", "times": [0.0, 1.0, 3.0], "values": [1.0, 4.0, 4.0]}
ANALYSIS = {"counts": np.arange(7, 0, -1), "merge_tree": [(0, 1, 1.0, 2), (2, 3, 2.0, 2)]}


@pytest.mark.parametrize(
    ("metadata", "there", "missing"),
    [
        (facts(), {"attention", "staircase", "merge_tree", "kymograph"}, {"density", "nearest_neighbours", "schedule"}),
        (facts(temperature=0.1), {"density", "attention", "energy"}, {"merge_tree", "staircase", "kymograph", "paths"}),
        (facts(temperature={"runs": [0.0, 0.2]}), {"density"}, {"merge_tree"}),
        (
            facts(interactions=[attention_of(value=-1.0)]),
            {"density", "nearest_neighbours", "energy"},
            {"merge_tree", "staircase"},
        ),
        (facts(interactions=[attention_of(value=[-1.0, -2.0])]), {"nearest_neighbours"}, {"merge_tree"}),
        (facts(interactions=[attention_of(value=[[-1.0, 5.0], [-5.0, -1.0]])]), {"nearest_neighbours"}, set()),
        (facts(interactions=[attention_of(value=[[-1.0, 5.0], [5.0, -1.0]])]), {"merge_tree"}, {"nearest_neighbours"}),
        (facts(interactions=[attention_of(output=-1.0)]), {"nearest_neighbours"}, {"merge_tree"}),
        (facts(FLAT, interactions=[{"kernel": SIGNAL}]), {"values"}, {"merge_tree", "staircase"}),
        (facts(FLAT, interactions=[{"kernel": SIGNAL}, attention_of()]), {"merge_tree"}, {"values"}),
        (facts(FLAT, interactions=[TAUGHT]), {"density", "kymograph"}, {"merge_tree", "staircase"}),
        (facts(FLAT, interactions=[TAUGHT, attention_of()]), {"merge_tree"}, {"density"}),
        (facts(schedule=ANNEALING), {"schedule"}, {"density"}),
        (facts(picture=[3, 4]), {"picture"}, set()),
        (facts(picture=[5, 4]), set(), {"picture"}),
        (facts({"kind": "sphere", "sees_stored": False}), {"merge_tree"}, {"attention"}),
        ({}, {"kymograph", "merge_tree", "staircase"}, {"attention", "density", "schedule", "picture"}),
        (
            {"temperature": "hot", "changes": {"a": 1}, "schedule": [1], "picture": [[2]], "interactions": ["?", 3]},
            {"kymograph", "merge_tree"},
            {"density", "schedule", "picture"},
        ),
    ],
)
def test_figures_are_chosen_by_what_the_run_is(metadata, there, missing):
    plan = dict(_plan(make(2, sphere=True, metadata=metadata), ANALYSIS))
    assert there <= plan.keys()
    assert not missing & plan.keys()


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        (facts(temperature=0.1, schedule=ANNEALING), ["density", "attention", "energy", "schedule"]),
        (facts(interactions=[attention_of(value=-1.0)]), ["nearest_neighbours"]),
        (facts(FLAT, interactions=[{"kernel": SIGNAL}]), ["values"]),
        (facts(picture=[3, 4]), ["picture", "staircase"]),
    ],
)
def test_every_kind_of_figure_is_drawn(metadata, names):
    plan = dict(_plan(make(2, sphere=True, metadata=metadata), ANALYSIS))
    for name in names:
        np.ravel(plan[name]())[0].figure.canvas.draw()


@pytest.mark.parametrize("runs", [None, 2])
def test_what_data_send_on_gathers_where_it_comes_to_rest(runs):
    """Forecasts go around a cycle to the end; what has been denoised stays."""
    around = make(2, runs=runs, metadata=facts(FLAT, interactions=[TAUGHT]))
    assert character_of(around).apart == "a rule learned from data"
    at_rest = np.concatenate([around.points[:], around.points[-1:]])
    stays = Trajectory.from_arrays(np.arange(len(at_rest)), at_rest, metadata=around.metadata)
    for few in (stays, stays[-1:], stays[:0]):  # one frame, or none yet, tells nothing
        assert character_of(few).gathers


def described(flow: Any, start: Any) -> dict[str, Any]:
    """The metadata of a run of a flow by steps of a map."""
    from particleflow.simulation.plan import Stepping, make_plan
    from particleflow.simulation.recording.provenance import describe

    measure = particleflow.Measure.uniform(start)
    return describe(make_plan(flow, measure, np.array([0.0, 1.0]), Stepping(step=1.0, solver="map")))


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("many", by_default(["one", "starts", "flows"], ["one"]))
def test_a_run_says_that_its_data_carry_values(dtype, many):
    """So it is in ensembles and in single precision; data that carry nothing of their own teach no rule."""
    turn = np.linspace(0, 2 * np.pi, 40, endpoint=False)[:, None] + np.array([[0.0, np.pi / 2]])
    places, after = np.sin(turn).astype(dtype), np.sin(turn + 0.5).astype(dtype)
    start = np.random.default_rng(0).normal(size=(7, 2)).astype(dtype)
    given = np.stack([start, start + dtype(0.1)]) if many == "starts" else start

    def known(values: Any) -> Any:
        data = particleflow.Measure.uniform(places, values=values)
        flows = [
            particleflow.Flow(particleflow.MeanShift(particleflow.kernels.Gaussian(dtype(width)), data))
            for width in (0.2, 0.3)
        ]
        flow = flows if many == "flows" else flows[0]
        if many == "one":  # what the run would say, without compiling it
            around = np.stack([np.sin(turn[::6] + 0.5 * frame).astype(dtype) for frame in range(4)])
            return character_of(Trajectory.from_arrays(np.arange(4.0), around, metadata=described(flow, start)))
        return character_of(particleflow.simulate(flow, given, np.arange(4.0), step=1.0, solver="map"))

    assert known(after).apart == "a rule learned from data"
    if many == "one":
        assert known(None).gathers


def test_a_count_that_only_comes_and_goes_has_no_staircase():
    run = make(2, observables={})
    names = {
        name for name, _ in _plan(run, {"counts": np.array([5, 6, 5, 6, 7, 7, 7]), "merge_tree": [(0, 1, 1.0, 2)]})
    }
    assert not {"staircase", "merge_tree"} & names


def test_small_print_says_what_is_known():
    assert small_print(make(2, sphere=True, metadata=facts())) == "β = 2 · n = 12 · d = 2 · seed 7"
    assert small_print(make(3, metadata={})) == "n = 12 · d = 3"
    assert small_print(make(2, metadata=facts(schedule=ANNEALING))).startswith("β = 1 → 4 · n")
    many = [attention_of(beta={"runs": [0.5, 1.0, 2.0, 9.0]})]
    ensemble = make(2, runs=4, metadata=facts(interactions=many, temperature=0.25))
    assert small_print(ensemble) == "β = 0.5 … 9 · temperature 0.25 · n = 12 · d = 2 · seed 7 · 4 runs"
    widths = [{"kernel": {"kind": "gaussian", "width": 0.5}}, {"kernel": {"radius": 2.0, "beta": 3.0}}]
    wide = facts(interactions=widths, **{"common temperature": 0.1, "count": 500})
    assert small_print(make(2, metadata=wide)) == (
        "β = 3 · width 0.5 · radius 2 · common temperature 0.1 · n = 12 · d = 2 · seed 7"
    )
    assert "\\$" in small_print(make(2, metadata={"seed": "$x$"}))


@pytest.mark.slow
def test_every_figure_that_we_make_has_small_print_and_a_given_axes_is_left_alone():
    from figure_oracles import blank

    run = make(2, sphere=True, metadata={**facts(), "title": "A run"})
    for name, draw in _plan(run, {"counts": np.arange(7, 0, -1), "merge_tree": [(0, 1, 1.0, 2)]}):
        figure = np.ravel(draw())[0].figure
        assert figure.get_supxlabel() == "β = 2 · n = 12 · d = 2 · seed 7", name
        words = figure.get_suptitle() or " ".join(ax.get_title() for ax in figure.axes)
        assert "A run" in words, name
    ax = blank()
    view.kymograph(run, ax=ax)
    assert ax.figure.get_supxlabel() == ""


def test_ensembles_say_what_their_lines_are():
    ensemble = make(2, runs=5)
    words = "(median and 10–90 % of 5 runs)"
    assert words in view.energy(ensemble).get_ylabel()
    assert words in view.cluster_count(ensemble, np.ones((7, 5))).get_ylabel()
    assert words in view.compare([ensemble]).get_ylabel()
    assert words not in view.energy(make(2)).get_ylabel()
    grid = np.zeros((2, 3))
    ax = view.phase_diagram([1, 2, 3], [1, 2], grid, x_label="time", y_label="beta", value_label="pairs", runs=16)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time t", "β")
    bar = ax.child_axes[0].get_ylabel()
    assert bar == "pairs, mean of 16 runs"
    few = view.phase_diagram([1, 2, 3], [1, 2], grid, value_label="pairs", runs=(3, 5))
    assert few.child_axes[0].get_ylabel() == "pairs, mean of 3–5 runs"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("dimension", "sphere"), [(1, False), (2, True), (3, True), (5, False)])
def test_densities_are_the_mass_of_every_bin(dimension, sphere, weighted):
    weights = np.random.default_rng(2).uniform(0.1, 1, 30) if weighted else np.ones(30)
    run = make(dimension, sphere=sphere, count=30, log_weights=np.log(weights))
    mesh = view.particle_density(run).collections[0]
    edges = np.asarray(mesh.get_coordinates())[:, 0, 1]
    widths = np.diff(edges)
    np.testing.assert_allclose(widths @ np.asarray(mesh.get_array()), 1.0)
    if dimension == 1:
        places = run.points[3, :, 0]
        inside = (places >= edges[5]) & (places < edges[6])
        assert mesh.get_array()[5, 3] * widths[5] == pytest.approx(inside @ weights / weights.sum())


@pytest.mark.parametrize("radius", [None, 1.0, 2.5])
def test_nearest_distances_by_brute_force(radius):
    points = np.random.default_rng(0).normal(size=(40, 3))
    if radius is not None:
        points *= radius / np.linalg.norm(points, axis=1, keepdims=True)
    pairs = np.linalg.norm(points[:, None] - points[None], axis=-1)
    if radius is not None:
        pairs = np.arccos(np.clip(points @ points.T / radius**2, -1, 1))
    np.fill_diagonal(pairs, np.inf)
    np.testing.assert_allclose(nearest_distances(points, radius), pairs.min(axis=1), atol=1e-7)
    with pytest.raises(ArgumentError, match="two"):
        nearest_distances(points[:1])


def test_nearest_neighbours_are_drawn_in_degrees_on_a_sphere():
    angle = np.array([[0.0, 0.1, 0.4, 1.0], [0.0, 0.5, 1.5, 3.0]])
    points = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    run = Trajectory.from_arrays([0.0, 1.0], points, metadata={"geometry": "sphere"})
    ax = view.nearest_neighbours(run)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.degrees([0.2, 0.75]))
    np.testing.assert_allclose(ax.lines[1].get_ydata(), np.degrees([0.1, 0.5]))


@pytest.mark.parametrize("rate", [1.0, -0.7])
def test_variance_of_gaussian_tokens_solves_its_equation(rate):
    times = np.linspace(0, 0.4, 21)
    solved = solve_ivp(lambda _, s: 2 * rate * s**2, (0, 0.4), [0.9], t_eval=times, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gaussian_variance(0.9, rate, times), solved.y[0], rtol=1e-8)
    pole = gaussian_blow_up(0.9, rate)
    assert pole == (pytest.approx(1 / 1.8) if rate > 0 else None)
    if pole is not None:
        assert np.isnan(gaussian_variance(0.9, rate, np.array([1.001 * pole]))).all()
        assert gaussian_variance(0.9, rate, np.array([0.999 * pole]))[0] > 500


def gaussian_run(dimension: int = 1, **others: Any) -> Trajectory:
    points = np.random.default_rng(0).standard_normal((4000, dimension))
    grown = np.stack([points * (1 + 0.3 * time) for time in np.arange(4.0)])
    return Trajectory.from_arrays(0.1 * np.arange(4.0), grown, metadata=facts(FLAT, **others))


@pytest.mark.parametrize("dimension", [1, 3])
def test_covariance_is_numpys_and_its_pole_is_where_theory_says(dimension):
    run = gaussian_run(dimension)
    ax = view.covariance(run)
    spectrum = np.linalg.eigvalsh(np.atleast_2d(np.cov(np.asarray(run.points[2]).T, bias=True)))[::-1]
    np.testing.assert_allclose([line.get_ydata()[2] for line in ax.lines[:dimension]], spectrum, rtol=1e-9)
    start = max(line.get_ydata()[0] for line in ax.lines[:dimension])
    assert ax.lines[-1].get_xdata()[0] == pytest.approx(1 / (2 * 2.0 * start))
    assert ax.get_ylim()[0] == 0


@pytest.mark.parametrize(
    "metadata",
    [
        facts(FLAT, temperature=0.1),
        facts(FLAT, drift="sum"),
        facts(FLAT, **{"interacts only": False}),
        facts(FLAT, interactions=[attention_of(normalization="none")]),
        facts(FLAT, interactions=[attention_of(positional={"kind": "causal"})]),
        facts(FLAT, schedule=ANNEALING),
        facts(FLAT, interactions=[attention_of(), attention_of(data=True)], **{"interacts only": True}),
        facts(FLAT, interactions=[attention_of(), {"kernel": {"kind": "gaussian"}}], **{"interacts only": True}),
        facts({"kind": "flat", "sees_stored": False}),
    ],
)
def test_the_theory_of_gaussians_is_drawn_only_where_it_holds(metadata):
    run = gaussian_run()
    other = Trajectory.from_arrays(run.times, run.points, metadata=metadata)
    assert len(view.covariance(other).lines) == 1
    uniform = np.random.default_rng(0).uniform(size=(4, 4000, 1))
    assert len(view.covariance(Trajectory.from_arrays(run.times, uniform, metadata=facts(FLAT))).lines) == 1
    assert excess_kurtosis(uniform[0], np.ones(4000))[0] == pytest.approx(-1.2, abs=0.05)


@pytest.mark.parametrize(
    ("geometry", "lines"),
    [
        pytest.param(particleflow.Euclidean(), 3, marks=pytest.mark.slow, id="free"),
        pytest.param(particleflow.geometry.SetNorm(), 1, marks=pytest.mark.slow, id="normalised set"),
        pytest.param(particleflow.geometry.PostNorm(), 1, marks=pytest.mark.slow, id="post-norm"),
    ],
)
def test_the_theory_of_gaussians_is_not_drawn_where_a_norm_holds_the_tokens(geometry, lines):
    flow = particleflow.Flow(particleflow.Attend(particleflow.kernels.Attention(beta=0.5)), geometry)
    points = np.random.default_rng(0).standard_normal((200, 1))
    metadata = described(flow, geometry.retract(points))
    gaussian = Trajectory.from_arrays([0.0, 0.1], gaussian_run().points[:2], metadata=metadata)
    assert len(view.covariance(gaussian).lines) == lines


@pytest.mark.parametrize("positional", [None, {"kind": "causal"}])
def test_attention_of_a_run_has_its_mask_its_weights_and_the_beta_of_its_time(positional):
    weights = np.random.default_rng(1).uniform(0.2, 1, 9)
    metadata = facts(interactions=[attention_of(positional=positional)], schedule=ANNEALING)
    run = make(2, sphere=True, count=9, log_weights=np.log(weights), positions=np.arange(9.0)[::-1], metadata=metadata)
    frame = 3  # t = 1.5: beta is 4
    points = np.asarray(run.points[frame])
    logits = 4.0 * points @ points.T
    if positional is not None:  # positions count down: particle 8 is the first
        logits = np.where(np.arange(9)[None] >= np.arange(9)[:, None], logits, -np.inf)
    expected = weights * np.exp(logits)
    expected /= expected.sum(axis=1, keepdims=True)
    ax = view.attention(run, frame)
    shown = ax.images[0].get_array()
    if positional is None:
        assert "sequence" not in ax.get_xlabel()
        np.testing.assert_allclose(np.sort(shown.ravel()), np.sort(np.maximum(9 * expected, 1e-3).ravel()))
    else:
        assert ax.get_xlabel().endswith("in sequence")
        np.testing.assert_allclose(
            shown.filled(0.0), np.maximum(9 * expected[::-1, ::-1], 1e-3) * (expected[::-1, ::-1] > 0)
        )
        assert shown.mask[np.triu_indices(9, 1)].all()


def test_layers_are_marked_where_they_change():
    run = make(2, metadata=facts(changes=[1.0, 2.5, 99.0]))
    for draw in (view.kymograph, view.energy, view.similarity, lambda run: view.cluster_count(run, np.ones(7))):
        marks = [line.get_xdata()[0] for line in draw(run).lines if np.ptp(line.get_xdata()) == 0]
        assert marks == [1.0, 2.5]


def test_a_schedule_is_drawn_as_stored():
    line = view.schedule(make(2, metadata=facts(schedule=ANNEALING))).lines[0]
    np.testing.assert_array_equal(line.get_xydata(), np.column_stack([ANNEALING["times"], ANNEALING["values"]]))
    with pytest.raises(ArgumentError, match="none"):
        view.schedule(make(2))


def test_a_picture_has_one_colour_a_cluster_at_the_places_of_the_patches():
    labels = np.array([5, 5, 2, 2, 2, 5, 2, 2, 9, 9, 2, 2])
    image = view.picture(make(2, metadata=facts(picture=[3, 4])), labels=labels).images[0].get_array()
    assert image.shape == (3, 4, 3)
    expected = style.palette(3)[np.array([{2: 0, 5: 1, 9: 2}[label] for label in labels])]
    np.testing.assert_allclose(image.reshape(12, 3), expected)
    with pytest.raises(ArgumentError, match="patches"):
        view.picture(make(2))


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["print", pytest.param("dark", marks=pytest.mark.slow)])
def test_the_command_line_draws_what_python_draws(tmp_path, theme):
    from particleflow.app.cli.main import main

    run = make(2, sphere=True, frames=1, count=2, metadata={**facts(), "title": "A run"})
    run.save(tmp_path / "trajectory.h5")
    assert main(["plot", str(tmp_path), "--theme", theme, "--format", "svg", "--quiet"]) == 0
    opened = Trajectory.open(tmp_path / "trajectory.h5")
    track = particleflow.analysis.track_clusters(opened)
    for path in view.figures(opened, tmp_path / "python", theme=theme, analysis=track, format="svg"):
        assert path.read_bytes() == (tmp_path / "figures" / path.name).read_bytes()


@pytest.mark.slow
def test_runs_keep_what_kind_they_are():
    import jax
    import jax.numpy as jnp

    import particleflow as pf
    from particleflow.simulation.plan import Stepping, make_plan
    from particleflow.simulation.recording.provenance import describe

    start = pf.Measure.uniform(jnp.eye(3))
    attend = pf.Attend(pf.kernels.Attention(beta=2.0), value=-1.0, output=2.0)
    annealed = pf.drifts.Varying(
        pf.Attend(pf.kernels.Attention(beta=1.0)), pf.drifts.Ramp(1.0, 16.0, 2.0, scale="log"), "kernel.beta"
    )
    layers = pf.drifts.Layers([attend, attend, attend], duration=2.0)

    def kept(drift, temperature=0.0, geometry: Any = pf.Sphere):
        flow = pf.Flow(drift, geometry(), temperature)
        stepping = Stepping(step=0.1) if temperature else Stepping(rtol=1e-6, atol=1e-8)
        plan = make_plan(flow, start, jnp.linspace(0, 5, 6), stepping, key=jax.random.key(0) if temperature else None)
        return character_of(Trajectory.from_arrays([0.0], np.eye(3)[None], metadata=describe(plan)))

    assert kept(attend, 0.5).temperature == 0.5
    repelling = kept(attend)
    assert (repelling.repels, repelling.temperature, repelling.apart) == (True, 0.0, "repulsion")
    assert (kept(attend, 0.5).apart, kept(-1.0 * attend).apart) == ("noise", None)
    bare = [attend, 2.0 * attend, attend + attend, annealed]
    others = [attend + pf.drifts.Linear(1.0), pf.MeanShift(pf.kernels.Gaussian(1.0)), layers]
    free = [kept(drift, geometry=pf.Euclidean) for drift in bare + others]
    assert [each.interacts_only for each in free] == 4 * [True] + 3 * [False]
    assert not repelling.interacts_only
    assert repelling.attention is not None
    assert repelling.attention.value == -2.0
    assert kept(-1.0 * attend).repels is False
    assert kept(layers).changes == (2.0, 4.0)
    schedule = kept(annealed).schedule
    assert schedule is not None
    assert [schedule(time) for time in (0.0, 1.0, 2.0, 5.0)] == pytest.approx([1, 4, 16, 16], rel=2e-3)
    assert kept(attend + attend).schedule is None


@pytest.mark.parametrize(("count", "shown"), [(5, "kymograph"), (100, "snapshots")])
def test_few_particles_that_repel_on_a_line_are_lines(count, shown):
    run = make(1, count=count, metadata=facts(FLAT, interactions=[attention_of(value=-1.0)]))
    names = view.figure_names(run, False)
    assert names[0] == shown
    assert ("density" in names) is (count > 32)
