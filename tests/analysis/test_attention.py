"""The attention matrix and its statistics: softmax against SciPy, Sinkhorn against POT, and what a run says of it."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import entr, softmax

from particleflow.analysis import attention_matrix, attention_statistics, summarize
from particleflow.analysis.attention.attention_statistics import _scores
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.position_kernels import CAUSAL, position_kernel
from particleflow.trajectory.trajectory import Trajectory


def test_attention_matrix_is_the_softmax():
    generator = np.random.default_rng(0)
    points, query, key = generator.normal(size=(12, 3)), generator.normal(size=(2, 3)), generator.normal(size=(2, 3))
    weights = generator.dirichlet(np.ones(12))
    logits = 1.7 * (points @ query.T) @ (points @ key.T).T + np.log(weights)
    found = attention_matrix(points, 1.7, query=query, key=key, weights=weights)
    np.testing.assert_allclose(found, softmax(logits, axis=1), rtol=1e-12)
    masked = np.where(np.tril(np.ones((12, 12))) > 0, logits, -np.inf)
    causal = attention_matrix(points, 1.7, query=query, key=key, weights=weights, causal=True)
    np.testing.assert_allclose(causal, softmax(masked, axis=1), rtol=1e-12)


def test_statistics_of_uniform_attention():
    statistics = attention_statistics(np.random.default_rng(0).normal(size=(8, 2)), 0.0)
    assert statistics.rank == 1
    assert statistics.entropy == pytest.approx(np.log(8))
    assert statistics.effective_targets == pytest.approx(8)
    assert statistics.boolean_distance == pytest.approx(1 / 8)
    assert statistics.leaders == [0]  # a tie goes to the first


def test_statistics_of_two_leaders_on_a_line():
    # On a line with large β every token attends to the end on its side: a Boolean matrix of rank 2.
    points = np.array([-1.0, -0.6, -0.3, 0.4, 0.7, 1.1, 1.2])
    statistics = attention_statistics(points, 800.0)
    assert statistics.rank == 2
    assert statistics.leaders == [6, 0]
    np.testing.assert_allclose(statistics.followers, [4 / 7, 3 / 7])
    # The least decided row is x = 0.4, whose two best targets differ by 0.1: e^{−800·0.4·0.1}, far below 1 − 1.
    assert statistics.boolean_distance == pytest.approx(np.exp(-32), rel=1e-6)
    assert statistics.entropy < 1e-10
    # Two second-best targets at 0.9 leave 1 − A = 2 e^{−800·0.4·0.2} on the row 0.4, which 1 − A in floats is not.
    twice = attention_statistics([0.4, 0.9, 0.9, 1.1], 800.0)
    assert twice.boolean_distance == pytest.approx(2 * np.exp(-64), rel=1e-6)


def test_statistics_do_not_depend_on_the_blocks(monkeypatch):
    points = np.random.default_rng(1).normal(size=(50, 3))
    whole = attention_statistics(points, 2.0, causal=True)
    monkeypatch.setattr("particleflow.analysis.attention.attention_statistics._BLOCK_ENTRIES", 350)
    assert len(list(_scores(points, 2.0, None, None, CAUSAL, None, None).blocks())) == 8
    parts = attention_statistics(points, 2.0, causal=True)
    assert parts.entropy == pytest.approx(whole.entropy, rel=1e-13)
    assert (parts.rank, parts.leaders) == (whole.rank, whole.leaders)
    matrix = attention_matrix(points, 2.0, causal=True)
    assert whole.rank == np.linalg.matrix_rank(matrix, tol=1e-6 * np.linalg.norm(matrix, 2))
    assert whole.boolean_distance == pytest.approx(np.minimum(matrix, 1 - matrix).max())


def test_attention_refuses_matrices_that_do_not_fit():
    with pytest.raises(ShapeError, match="query"):
        attention_statistics(np.zeros((3, 2)), 1.0, query=np.zeros((2, 3)))
    with pytest.raises(ArgumentError, match="beta"):
        attention_statistics(np.zeros((3, 2)), float("nan"))


def on_sphere(count: int, dimension: int, radius: float = 1.0) -> np.ndarray:
    points = np.random.default_rng(count + dimension).normal(size=(count, dimension))
    return radius * points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "maps", [{}, {"query": [1.0, 0.5, 2.0], "key": [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]}]
)
def test_sinkhorn_attention_is_pots_plan_over_the_row_mass(weighted, maps):
    import ot  # takes most of a second

    points = on_sphere(30, 3)
    weights = np.random.default_rng(3).dirichlet(np.ones(30)) if weighted else np.full(30, 1 / 30)
    queries = points * np.asarray(maps.get("query", 1.0))
    keys = points @ np.asarray(maps.get("key", np.eye(3))).T
    plan = ot.sinkhorn(weights, weights, -queries @ keys.T, 1 / 3.0, stopThr=1e-14, numItermax=20_000)
    found = attention_matrix(points, 3.0, weights=weights, normalization="sinkhorn", **maps)
    np.testing.assert_allclose(found, np.asarray(plan) / weights[:, None], rtol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(weights @ found, weights, rtol=1e-12)


def test_sinkhorn_attention_is_doubly_stochastic_at_any_beta_and_by_blocks(monkeypatch):
    points = on_sphere(40, 3, radius=5.0)
    for beta in (0.0, -0.05, 100.0):
        found = attention_matrix(points, beta, normalization="sinkhorn")
        np.testing.assert_allclose(found.sum(axis=0), 1.0, rtol=1e-9)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    whole = attention_statistics(points, 0.3, normalization="sinkhorn")
    monkeypatch.setattr("particleflow.analysis.attention.attention_statistics._BLOCK_ENTRIES", 250)
    parts = attention_statistics(points, 0.3, normalization="sinkhorn")
    assert parts.entropy == pytest.approx(whole.entropy, rel=1e-12)
    assert (parts.rank, parts.leaders) == (whole.rank, whole.leaders)


def test_sinkhorn_attention_is_right_where_the_exponentials_are_out_of_range():
    # Two equal masses have the matrix [[a, b], [b, a]] with (a/b)² = K₁₁K₂₂/K₁₂² = e^{β(x−y)²}; here β x² is 4,500.
    found = attention_matrix([3.0, 2.99], 500.0, normalization="sinkhorn")
    ratio = np.exp(-0.5 * 500.0 * 0.01**2)
    np.testing.assert_allclose(found, np.array([[1.0, ratio], [ratio, 1.0]]) / (1 + ratio), rtol=1e-10)


def test_statistics_say_which_normalization_they_are_of():
    # Three tokens of one place, one opposite: softmax prefers the crowd, doubly stochastic weights may not.
    points = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    found = {name: attention_statistics(points, 1.0, normalization=name) for name in ("row", "none", "sinkhorn")}
    assert found["row"].entropy == found["none"].entropy
    assert [each.normalization for each in found.values()] == ["row", "none", "sinkhorn"]
    # By hand: the matrix [[a, a, a, b], …, [b, b, b, c]] with 3a + b = 1, 3b + c = 1 and (ac)/b² = e⁴.
    b = np.roots([np.exp(4.0) - 1.0, 4 / 3, -1 / 3]).max()
    a, c = (1 - b) / 3, 1 - 3 * b
    np.testing.assert_allclose(attention_matrix(points, 1.0, normalization="sinkhorn")[0], [a, a, a, b], rtol=1e-12)
    rows = [-3 * a * np.log(a) - b * np.log(b), -3 * b * np.log(b) - c * np.log(c)]
    assert found["sinkhorn"].entropy == pytest.approx((3 * rows[0] + rows[1]) / 4)
    assert abs(found["sinkhorn"].entropy - found["row"].entropy) > 0.01


def test_sinkhorn_says_what_it_cannot_do(monkeypatch):
    with pytest.raises(ArgumentError, match="doubly stochastic only if it is the identity"):
        attention_matrix(np.eye(3), 1.0, causal=True, normalization="sinkhorn")
    with pytest.raises(ArgumentError, match='"row", "none", "sinkhorn"'):
        attention_matrix(np.eye(3), 1.0, normalization="column")
    monkeypatch.setattr("particleflow.analysis.attention.attention_statistics._MAXIMUM_SWEEPS", 3)
    with pytest.raises(ArgumentError, match="after 3 sweeps"):
        attention_matrix(on_sphere(20, 3), 5.0, normalization="sinkhorn")
    with pytest.raises(ArgumentError, match="overflow"):
        attention_matrix(on_sphere(20, 3), 1e300, key=1e300)


def test_causal_tokens_see_those_at_earlier_or_equal_positions():
    points = np.random.default_rng(0).normal(size=(5, 2))
    positions = np.array([2.0, 0.0, 1.0, 1.0, 3.0])
    logits = np.where(positions[None, :] <= positions[:, None], 1.5 * points @ points.T, -np.inf)
    found = attention_matrix(points, 1.5, causal=True, positions=positions)
    np.testing.assert_allclose(found, softmax(logits, axis=1), rtol=1e-12)
    statistics = attention_statistics(points, 800.0, causal=True, positions=positions)
    strongest = np.where(positions[None, :] <= positions[:, None], points @ points.T, -np.inf).argmax(axis=1)
    assert sorted(statistics.leaders) == sorted(set(strongest.tolist()))
    with pytest.raises(ShapeError, match="positions"):
        attention_matrix(points, 1.0, causal=True, positions=[0.0, 1.0])


SPACE = {"kind": "sphere", "radius": 1.0, "coordinates": "points", "sees_stored": True}


def run_with(space: dict[str, Any] | None, kernel: dict[str, Any], **interaction: Any) -> Trajectory:
    """Two frames on the circle whose metadata say what interacts."""
    points = np.stack([on_sphere(12, 2), on_sphere(12, 2)])
    row = {"kernel": kernel, "normalization": "row", "positional": None, "data": False, **interaction}
    metadata = {"interactions": [row]} | ({} if space is None else {"space": space})
    return Trajectory.from_arrays([0, 1], points, positions=np.arange(12), metadata={"geometry": "sphere", **metadata})


ATTENTION = {"kind": "attention", "form": "inner", "beta": 4.0, "query": 1.0, "key": 1.0}


@pytest.mark.parametrize("normalization", ["row", "none", "sinkhorn"])
def test_summary_reads_the_normalization_of_the_run(normalization):
    run = run_with(SPACE, ATTENTION, normalization=normalization)
    section = summarize(run)["attention"]
    expected = attention_statistics(np.asarray(run.points[-1]), 4.0, normalization=normalization)
    assert section["last"]["entropy"] == pytest.approx(expected.entropy)
    assert (section["last"]["normalization"], section["interaction"]) == (normalization, 0)


@pytest.mark.parametrize(
    ("space", "kernel", "interaction"),
    [
        (SPACE | {"sees_stored": False}, ATTENTION, {}),
        (SPACE | {"sees_stored": "yes"}, ATTENTION, {}),
        (SPACE, ATTENTION, {"data": True}),
        (SPACE, ATTENTION, {"data": "no"}),
        (SPACE, ATTENTION, {"positional": {"kind": "rotary", "form": "positional"}}),
        (SPACE, ATTENTION, {"positional": {"kind": "alibi", "form": "other", "slope": 1.0}}),
        (SPACE, ATTENTION, {"positional": {"kind": "alibi", "form": "positional", "omitted": ["slope"]}}),
        (SPACE, ATTENTION, {"positional": {"kind": "alibi", "form": "positional", "slope": [1.0, 2.0]}}),
        (SPACE, ATTENTION, {"positional": {"kind": "window", "form": "positional", "radius": "inf"}}),
        (SPACE, ATTENTION, {"positional": {"kind": "product", "kernels": [{"kind": "causal"}, {"kind": "rotary"}]}}),
        (SPACE, ATTENTION, {"positional": {"kind": "scaled", "factor": 0.0, "kernel": {"kind": "causal"}}}),
        (SPACE, {"kind": "product", "kernels": [ATTENTION, ATTENTION]}, {}),
        (SPACE, ATTENTION, {"positional": 3}),
        (SPACE, ATTENTION, {"positional": {"kind": "causal"}, "normalization": "sinkhorn"}),
        (SPACE, ATTENTION, {"normalization": None}),
        (SPACE, ATTENTION | {"form": "other"}, {}),
        (SPACE, {"kind": "squared_distance_attention", "form": "distance", "beta": 4.0}, {}),
        (SPACE, ATTENTION | {"beta": [4.0, 5.0]}, {}),
        (SPACE, ATTENTION | {"beta": None}, {}),
        (SPACE, ATTENTION | {"beta": True}, {}),
        (SPACE, ATTENTION | {"beta": float("nan")}, {}),
        (SPACE, ATTENTION | {"query": "identity"}, {}),
        (SPACE, ATTENTION | {"query": [[1.0, 0.0], [0.0]]}, {}),
        (SPACE, ATTENTION | {"query": [1.0, 2.0, 3.0]}, {}),
    ],
)
def test_attention_that_is_not_known_has_no_section(space, kernel, interaction):
    summary = summarize(run_with(space, kernel, **interaction))
    assert summary["attention"] is None
    assert summary["parking"] is None
    assert len(summary["omitted"]["attention"]) > 20


def test_the_first_attention_that_can_be_computed_is_taken_and_named():
    rows = [
        {"kernel": {"kind": "gaussian", "form": "distance", "width": 1.0}, "normalization": "row", "data": True},
        {"kernel": ATTENTION | {"query": [2.0, 1.0]}, "normalization": "row", "positional": {"kind": "causal"}},
    ]
    run = run_with(SPACE, ATTENTION)
    run.metadata["interactions"] = rows
    summary = summarize(run)
    expected = attention_statistics(np.asarray(run.points[0]), 4.0, query=[2.0, 1.0], causal=True)
    assert summary["attention"]["first"]["entropy"] == pytest.approx(expected.entropy)
    assert summary["attention"]["interaction"] == 1
    assert summary["parking"] is None  # QᵀK is no multiple of the identity
    assert summarize(run, beta=2.0)["attention"]["last"]["beta"] == 2.0


TIMES: NDArray[np.float64] = np.random.default_rng(8).permutation(np.arange(0.0, 6.0, 0.5))
LAGS = TIMES[:, None] - TIMES[None, :]
# Description of K₂ → its matrix, by the formula.
POSITIONAL: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "causal": ({"kind": "causal"}, 1.0 * (LAGS >= 0)),
    "strictly causal": ({"kind": "strictly_causal"}, 1.0 * (LAGS > 0)),
    "window": ({"kind": "window", "radius": 1.5}, 1.0 * (abs(LAGS) < 1.5)),
    "alibi": ({"kind": "alibi", "slope": 0.7}, np.exp(-0.7 * abs(LAGS))),
    "time gaussian": ({"kind": "time_gaussian", "width": 1.2}, np.exp(-(LAGS**2) / (2 * 1.2**2))),
    "product": (
        {"kind": "product", "kernels": [{"kind": "causal"}, {"kind": "alibi", "slope": 0.2}]},
        (LAGS >= 0) * np.exp(-0.2 * abs(LAGS)),
    ),
    "product of products": (
        {
            "kind": "product",
            "kernels": [
                {"kind": "scaled", "factor": 3.0, "kernel": {"kind": "window", "radius": 2.5}},
                {"kind": "product", "kernels": [{"kind": "strictly_causal"}, {"kind": "time_gaussian", "width": 2.0}]},
            ],
        },
        (abs(LAGS) < 2.5) * (LAGS > 0) * np.exp(-(LAGS**2) / 8),
    ),
}


def as_stored(table: dict[str, Any]) -> dict[str, Any]:
    """A description with the forms that a run writes beside the kinds."""
    parts: dict[str, Any] = {name: as_stored(value) for name, value in table.items() if isinstance(value, dict)}
    if "kernels" in table:
        parts["kernels"] = [as_stored(each) for each in table["kernels"]]
    return table | {"form": "other" if parts else "positional"} | parts


def brute_force(points: np.ndarray, beta: float, mask: np.ndarray) -> np.ndarray:
    """A_ij = K_ij / Σ_k K_ik; a row without anything to see is 0."""
    kernel = np.exp(beta * points @ points.T) * mask
    mass = kernel.sum(axis=1, keepdims=True)
    return np.divide(kernel, mass, out=np.zeros_like(kernel), where=mass > 0)


@pytest.mark.parametrize("name", POSITIONAL)
@pytest.mark.parametrize("inside", [False, True], ids=["positional", "factor of the kernel"])
def test_attention_of_a_run_has_its_kernel_of_positions(name, inside):
    """Entropy, rank, targets and leaders are those of the matrix by its formula."""
    table, mask = POSITIONAL[name]
    if inside:
        kernel = {"kind": "product", "form": "other", "kernels": [ATTENTION, as_stored(table)]}
        run = run_with(SPACE, kernel)
    else:
        run = run_with(SPACE, ATTENTION, positional=as_stored(table))
    points = np.asarray(run.points)
    run = Trajectory.from_arrays([0, 1], points, positions=TIMES, metadata=run.metadata)
    found = summarize(run)["attention"]["last"]
    matrix = brute_force(points[-1], 4.0, mask)
    entropies = entr(matrix).sum(axis=1)
    sees = matrix.sum(axis=1) > 0
    assert found["entropy"] == pytest.approx(entropies.mean(), rel=1e-12)
    assert found["effective_targets"] == pytest.approx(np.where(sees, np.exp(entropies), 0).mean(), rel=1e-12)
    assert found["rank"] == np.linalg.matrix_rank(matrix, tol=1e-6 * np.linalg.norm(matrix, 2))
    assert sorted(found["leaders"]) == sorted(set(matrix[sees].argmax(axis=1).tolist()))
    assert sum(found["followers"]) == pytest.approx(sees.mean())
    assert found["causal"] is (name == "causal")
    np.testing.assert_allclose(
        attention_matrix(points[-1], 4.0, positional=table, positions=TIMES), matrix, rtol=1e-12, atol=1e-300
    )


def test_a_given_beta_keeps_the_kernel_of_positions_and_a_given_causal_replaces_it():
    run = run_with(SPACE, ATTENTION, positional={"kind": "alibi", "form": "positional", "slope": 1.0})
    points, lags = np.asarray(run.points[-1]), np.subtract.outer(np.arange(12.0), np.arange(12.0))
    biased = brute_force(points, 2.0, np.exp(-abs(lags)))
    assert summarize(run, beta=2.0)["attention"]["last"]["entropy"] == pytest.approx(entr(biased).sum() / 12)
    causal = brute_force(points, 4.0, 1.0 * (lags >= 0))
    assert summarize(run, causal=True)["attention"]["last"]["entropy"] == pytest.approx(entr(causal).sum() / 12)
    unknown = summarize(run_with(SPACE, ATTENTION, positional={"kind": "rotary", "form": "positional"}), beta=2.0)
    assert unknown["attention"] is None
    assert "kernel of positions of interaction 0 is not known" in unknown["omitted"]["attention"]


def test_symmetric_kernels_of_positions_go_with_sinkhorn_and_one_sided_ones_do_not():
    points = on_sphere(12, 3)
    for table in (POSITIONAL["window"][0], POSITIONAL["alibi"][0]):
        found = attention_matrix(points, 1.0, positional=table, positions=TIMES, normalization="sinkhorn")
        np.testing.assert_allclose(found.sum(axis=0), 1.0, rtol=1e-9)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    with pytest.raises(ArgumentError, match="triangular"):
        attention_matrix(points, 1.0, positional=POSITIONAL["product"][0], normalization="sinkhorn")
    with pytest.raises(ArgumentError, match="`positional` must be a known kernel"):
        attention_matrix(points, 1.0, positional={"kind": "rotary"})


def test_descriptions_of_kernels_of_positions_stand_for_these_kernels():
    """What a file says of a kernel gives the matrix that the kernel gives."""
    import jax.numpy as jnp

    from particleflow import kernels
    from particleflow.kernels.description import described
    from particleflow.measure import Sites

    sites = Sites(jnp.zeros((12, 1)), jnp.asarray(TIMES))
    causal, strict, window, alibi, gaussian = (
        kernels.Causal(), kernels.StrictlyCausal(), kernels.Window(1.5), kernels.Alibi(0.7), kernels.TimeGaussian(1.2)
    )  # fmt: skip
    for kernel in (causal, strict, window, alibi, gaussian, causal * alibi, causal * (window * gaussian), 2.0 * alibi):
        found = position_kernel(described(kernel))
        assert found is not None
        scale = np.log(2.0) if "scaled" in str(described(kernel)) else 0.0
        expected = np.asarray(kernel.log_matrix(sites, sites)) - scale
        np.testing.assert_allclose(found.log_matrix(TIMES, TIMES), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.slow
def test_what_an_ensemble_stores_of_its_kernels_of_positions_gives_its_own_entropy():
    """Facts of runs whose slopes differ, as they are written, against the observable."""
    import particleflow as pf
    from particleflow.simulation.plan import Stepping, make_plan
    from particleflow.simulation.recording.provenance import describe

    start = on_sphere(9, 3)

    def flow(slope: float) -> pf.Flow:
        positional = pf.kernels.Causal() * pf.kernels.Alibi(slope)
        return pf.Flow(pf.Attend(pf.kernels.Attention(beta=4.0), positional=positional), geometry=pf.Sphere())

    flows = [flow(0.1), flow(2.0)]
    plan = make_plan(flows, start, [0.0, 0.1], Stepping(step=0.1, solver="map"))
    run = Trajectory.from_arrays([0.0], np.stack([start, start])[None], metadata=describe(plan))
    for each, summary in zip(flows, summarize(run)["runs"], strict=True):
        measure = pf.Measure.uniform(start, positions=np.arange(9.0))
        expected = float(pf.observables.attention_entropy(each, 0.0, measure))
        assert summary["attention"]["last"]["entropy"] == pytest.approx(expected, rel=1e-10)
