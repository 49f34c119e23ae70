"""Wrong input is refused by a typed error that names the argument, what was expected and what was found."""
# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from particleflow import kernels as k
from particleflow.errors import ArgumentError, DtypeError, ShapeError
from particleflow.measure import Measure, Sites
from particleflow.summation import Auto, Blockwise, Dense
from particleflow.summation.local_mean import (
    local_covariance,
    local_mean,
    local_mode,
    local_moments,
    resampled_local_mean,
)
from particleflow.summation.operators import kernel_derivative

POINTS = np.arange(6.0).reshape(3, 2)
CLOUD = Measure.uniform(POINTS)
SINGLE = Measure.uniform(POINTS.astype(np.float32))
LETTERS = Measure.of_symbols([0, 1, 2])
TIMED = Measure.uniform(POINTS, positions=np.arange(3.0))
NAN, INF = float("nan"), float("inf")


def spoiled(value: float) -> np.ndarray:
    points = POINTS.copy()
    points[1, 0] = value
    return points


# What is done, the error, and every piece of text that its message must hold.
MEASURES = {
    "points without an axis": (lambda: Measure.uniform(np.zeros(3)), ShapeError, ["`points`", "(n, d)", "(3,)"]),
    "points with an axis too many": (
        lambda: Measure.uniform(np.zeros((2, 3, 4))),
        ShapeError,
        ["`points`", "(2, 3, 4)"],
    ),
    "no points": (lambda: Measure.uniform(np.zeros((0, 2))), ShapeError, ["`points`", "n, d ≥ 1", "(0, 2)"]),
    "no points, given by weights": (lambda: Measure(np.zeros((0, 2)), np.zeros(0)), ShapeError, ["`points`", "(0, 2)"]),
    "points of no dimension": (lambda: Measure.uniform(np.zeros((4, 0))), ShapeError, ["`points`", "(4, 0)"]),
    "an empty list": (lambda: Measure.uniform([]), ShapeError, ["`points`", "(0,)"]),
    "ragged points": (lambda: Measure.uniform([[0.0, 1.0], [2.0]]), ShapeError, ["`points`", "equally long"]),
    "words": (lambda: Measure.uniform([["a", "b"]]), DtypeError, ["`points`", "floating-point", "<U1"]),
    "nothing at all": (lambda: Measure.uniform(None), DtypeError, ["`points`", "array", "NoneType"]),
    "truth values": (lambda: Measure.uniform([[True]]), DtypeError, ["`points`", "floating-point", "bool"]),
    "integer points": (
        lambda: Measure.uniform(np.ones((2, 2), int)),
        DtypeError,
        ["`points`", "floating", "int64", "astype"],
    ),
    "complex points": (lambda: Measure.uniform(np.ones((2, 2), complex)), DtypeError, ["`points`", "complex128"]),
    "NaN points": (lambda: Measure.uniform(spoiled(NAN)), ArgumentError, ["`points`", "finite", "nan", "[1, 0]"]),
    "infinite points": (lambda: Measure.uniform(spoiled(INF)), ArgumentError, ["`points`", "finite", "inf", "[1, 0]"]),
    "weights of another length": (lambda: Measure(POINTS, np.zeros(4)), ShapeError, ["`log_weights`", "(3,)", "(4,)"]),
    "a single weight": (lambda: Measure(POINTS, 0.0), ShapeError, ["`log_weights`", "(3,)", "()"]),
    "NaN weights": (lambda: Measure(POINTS, np.array([0, NAN, 0])), ArgumentError, ["`log_weights`", "nan", "[1]"]),
    "infinite weights": (
        lambda: Measure(POINTS, np.array([0, 0, INF])),
        ArgumentError,
        ["`log_weights`", "inf", "[2]"],
    ),
    "log-weights without mass": (
        lambda: Measure(POINTS, np.full(3, -INF)),
        ArgumentError,
        ["`log_weights`", "no mass"],
    ),
    "weights that sum to zero": (
        lambda: Measure.weighted(POINTS, np.zeros(3)),
        ArgumentError,
        ["`weights`", "no mass", "zero"],
    ),
    "negative weights": (
        lambda: Measure.weighted(POINTS, np.array([1.0, -2.0, 1.0])),
        ArgumentError,
        ["`weights`", "negative", "-2.0", "index 1"],
    ),
    "integer weights": (lambda: Measure.weighted(POINTS, np.ones(3, int)), DtypeError, ["`weights`", "int64"]),
    "values of another length": (
        lambda: Measure.uniform(POINTS, values=np.zeros((2, 5))),
        ShapeError,
        ["`values`", "(3, k)", "(2, 5)"],
    ),
    "values with an axis too many": (
        lambda: Measure.uniform(POINTS, values=np.zeros((3, 1, 1))),
        ShapeError,
        ["`values`", "(3, 1, 1)"],
    ),
    "integer values": (lambda: Measure.uniform(POINTS, values=np.zeros(3, int)), DtypeError, ["`values`", "int64"]),
    "NaN values": (lambda: Measure.uniform(POINTS, values=[0.0, NAN, 0.0]), ArgumentError, ["`values`", "nan", "[1]"]),
    "integer positions": (
        lambda: Measure.uniform(POINTS, positions=np.arange(3)),
        DtypeError,
        ["`positions`", "int64"],
    ),
    "positions of another shape": (
        lambda: Measure.uniform(POINTS, positions=np.zeros((3, 1))),
        ShapeError,
        ["`positions`", "(3,)", "(3, 1)"],
    ),
    "mixed precision": (
        lambda: Measure(POINTS, np.zeros(3, np.float32)),
        DtypeError,
        ["one precision", "`points` is float64", "`log_weights` is float32"],
    ),
    "letters that are no integers": (
        lambda: Measure.of_symbols([0.5, 1.0]),
        DtypeError,
        ["`symbols`", "integers", "float64"],
    ),
    "no letters": (lambda: Measure.of_symbols([]), ShapeError, ["`symbols`", "(0,)"]),
    "a table of letters": (lambda: Measure.of_symbols([[0, 1]]), ShapeError, ["`symbols`", "(1, 2)"]),
    "a tilt of another length": (lambda: CLOUD.tilted(np.zeros(2)), ShapeError, ["`log_density`", "(3,)", "(2,)"]),
    "a tilt in another precision": (lambda: SINGLE.tilted(np.zeros(3)), DtypeError, ["`log_density` is float64"]),
    "a tilt that leaves nothing": (lambda: CLOUD.tilted(np.full(3, -INF)), ArgumentError, ["no mass"]),
    "sums over two spaces": (lambda: CLOUD.concatenated(LETTERS), ShapeError, ["2", "1", "cannot be added"]),
    "sums of two precisions": (lambda: CLOUD.concatenated(SINGLE), DtypeError, ["float64", "float32"]),
    "sums where one has positions": (lambda: CLOUD.concatenated(TIMED), ArgumentError, ["`positions`", "only one"]),
    "sums of different values": (
        lambda: CLOUD.concatenated(CLOUD.with_values(jnp.zeros(3))),
        ShapeError,
        ["(2,)", "()", "joined"],
    ),
}

KERNELS = {
    "negative width": (lambda: k.Gaussian(-0.1), ArgumentError, ["`width`", "positive", "-0.1"]),
    "zero width": (lambda: k.Laplace(0), ArgumentError, ["`width`", "positive", "0.0"]),
    "negative radius": (lambda: k.Ball(-1.0), ArgumentError, ["`radius`", "positive", "-1.0"]),
    "NaN width": (lambda: k.Cauchy(NAN), ArgumentError, ["`width`", "finite", "nan"]),
    "infinite beta": (lambda: k.Attention(INF), ArgumentError, ["`beta`", "finite", "inf"]),
    "a vector of widths": (lambda: k.Gaussian([0.1, 0.2]), ShapeError, ["`width`", "one number", "(2,)"]),
    "an integer array as width": (lambda: k.Gaussian(np.array(1)), DtypeError, ["`width`", "floating", "int64"]),
    "a word as width": (lambda: k.Gaussian("wide"), DtypeError, ["`width`", "str"]),
    "a truth value as beta": (lambda: k.Attention(True), DtypeError, ["`beta`", "number", "True"]),
    "no degrees of freedom": (lambda: k.StudentT(1.0, 0.0), ArgumentError, ["`freedom`", "positive", "0.0"]),
    "negative slope": (lambda: k.Alibi(-0.5), ArgumentError, ["`slope`", "zero or positive", "-0.5"]),
    "negative factor": (lambda: -1.0 * k.Gaussian(1.0), ArgumentError, ["`factor`", "zero or positive", "-1.0"]),
    "a factor that is none": (lambda: k.Gaussian(1.0) * "much", DtypeError, ["`factor`", "str"]),
    "a map with three axes": (
        lambda: k.Attention(1.0, np.zeros((2, 2, 2))),
        ShapeError,
        ["`query`", "matrix", "(2, 2, 2)"],
    ),
    "an integer matrix": (lambda: k.Attention(1.0, 1.0, np.eye(2, dtype=int)), DtypeError, ["`key`", "int64"]),
    "a map of another dimension": (
        lambda: local_mean(k.Attention(1.0, np.eye(3)), CLOUD, POINTS),
        ShapeError,
        ["`query`", "(3, 3)", "dimension 2"],
    ),
    "a diagonal of another dimension": (
        lambda: local_mean(k.Attention(1.0, 1.0, np.ones(3)), CLOUD, POINTS),
        ShapeError,
        ["`key`", "(3,)", "dimension 2"],
    ),
    "lags by a table": (
        lambda: k.RelativeAttention(encoding=k.PositionTable(np.eye(4))),
        ArgumentError,
        ["`encoding`", "`Sinusoidal`", "PositionTable", "`Encoded`"],
    ),
    "a sine without its cosine": (
        lambda: k.RelativeAttention(position_key=np.ones((2, 3))),
        ShapeError,
        ["even", "3", "`position_key`"],
    ),
    "lag keys of another dimension": (
        lambda: local_mean(k.RelativeAttention(position_key=np.ones((3, 4))), TIMED, TIMED),
        ShapeError,
        ["`position_key`", "2 rows", "(3, 4)"],
    ),
    "relative attention without positions": (
        lambda: local_mean(k.RelativeAttention(), CLOUD, POINTS),
        ArgumentError,
        ["positions", "query"],
    ),
    "too few mixture weights": (
        lambda: k.Mixture((k.Ball(1.0), k.Ball(2.0)), (1.0,)),
        ShapeError,
        ["`kernels`", "`weights`", "2 kernels", "1 weights"],
    ),
    "negative mixture weight": (lambda: k.Mixture((k.Ball(1.0),), (-1.0,)), ArgumentError, ["`weights[0]`", "-1.0"]),
    "a mixture of nothing": (lambda: k.Mixture((k.Ball(1.0),), (0.0,)), ArgumentError, ["`weights`", "no mass"]),
    "a mixture with a stranger": (
        lambda: k.Mixture((k.Ball(1.0), 3), (1.0, 1.0)),
        ArgumentError,
        ["`kernels[1]`", "int"],
    ),
    "an empty product": (lambda: k.Product(()), ArgumentError, ["`kernels`", "at least one", "empty"]),
    "a product with a stranger": (lambda: k.Product((k.Ball(1.0), "x")), ArgumentError, ["`kernels[1]`", "str"]),
    "an unknown mean": (
        lambda: k.Symmetrised(k.Ball(1.0), mean="harmonic"),
        ArgumentError,
        ["`mean`", "'arithmetic'", "'geometric'", "'harmonic'"],
    ),
    "gaps in mapped points": (
        lambda: k.PartlyObserved(k.SquaredDistanceAttention(1.0, 2.0, 2.0)),
        ArgumentError,
        ["`kernel`", "distances between the points themselves", "SquaredDistanceAttention"],
    ),
    "gaps in positions": (lambda: k.PartlyObserved(k.Window(1.0)), ArgumentError, ["`kernel`", "Window"]),
    "a pair of one point": (lambda: k.HigherOrder(lambda x, y, z: 0.0, 0), ArgumentError, ["`dimension`", "0"]),
    "a pair that is too short": (
        lambda: k.HigherOrder(lambda x, y, z: 0.0, 4).log_pair(POINTS[0], jnp.zeros(4)),
        ShapeError,
        ["`dimension`", "less than the 4 coordinates", "is 4"],
    ),
    "a table that is a vector": (lambda: k.Discrete(np.zeros(3)), ShapeError, ["`log_table`", "matrix", "(3,)"]),
    "a NaN table": (lambda: k.Discrete([[0.0, NAN]]), ArgumentError, ["`log_table`", "nan", "[0, 1]"]),
    "tables of different width": (
        lambda: k.Embedded(np.zeros((4, 2)), np.zeros((4, 3))),
        ShapeError,
        ["`query_table`", "`key_table`", "(4, 2)", "(4, 3)"],
    ),
    "a letter outside the alphabet": (
        lambda: local_mean(k.Discrete(np.zeros((2, 2))), LETTERS, LETTERS),
        ArgumentError,
        ["letters", "0 to 1", "2.0"],
    ),
    "a letter between letters": (
        lambda: k.Discrete(np.zeros((2, 2))).log_matrix(np.array([[0.5]]), np.array([[0.0]])),
        ArgumentError,
        ["letters", "whole numbers", "0.5"],
    ),
    "vectors as letters": (
        lambda: local_mean(k.Discrete(np.eye(2)), CLOUD, POINTS),
        ShapeError,
        ["one coordinate", "(3, 2)"],
    ),
    "a position outside the table": (
        lambda: local_mean(k.Encoded(k.Ball(9.0), k.PositionTable(np.zeros((2, 2)))), TIMED, TIMED),
        ArgumentError,
        ["positions", "0 to 1", "2.0"],
    ),
    "integer arrays given to a kernel": (
        lambda: k.Gaussian(1.0).log_matrix(np.ones((2, 2), int), POINTS),
        DtypeError,
        ["`points`", "floating", "int64"],
    ),
    "NaN given to a kernel": (
        lambda: k.Gaussian(1.0).log_matrix(spoiled(NAN), POINTS),
        ArgumentError,
        ["`points`", "nan"],
    ),
    "one point given as many": (
        lambda: k.Gaussian(1.0).log_matrix(POINTS[0], POINTS),
        ShapeError,
        ["(m, d)", "(2,)", "(3, 2)"],
    ),
    "two precisions given to a kernel": (
        lambda: k.Attention(1.0).log_matrix(POINTS.astype(np.float32), POINTS),
        DtypeError,
        ["`queries` is float32", "`points` is float64"],
    ),
}


class Wide(k.AbstractMatrixKernel):
    """A kernel that returns the wrong shape."""

    def log_matrix(self, xs, ys):
        return jnp.zeros((1, 1))


QUERIES = {
    "queries of another dimension": (
        lambda: local_mean(k.Gaussian(1.0), CLOUD, np.zeros((4, 3))),
        ShapeError,
        ["dimension 3", "dimension 2", "`Pullback`"],
    ),
    "one query of another dimension": (
        lambda: local_mean(k.Attention(), CLOUD, np.zeros(3)),
        ShapeError,
        ["dimension 3"],
    ),
    "queries with an axis too many": (
        lambda: local_mean(k.Constant(), CLOUD, np.zeros((1, 2, 2))),
        ShapeError,
        ["`queries`", "(m, d)", "(1, 2, 2)"],
    ),
    "NaN queries": (
        lambda: local_mean(k.Constant(), CLOUD, spoiled(NAN)),
        ArgumentError,
        ["`queries`", "nan", "[1, 0]"],
    ),
    "integer queries": (
        lambda: local_mean(k.Constant(), CLOUD, np.ones((1, 2), int)),
        DtypeError,
        ["`queries`", "int64"],
    ),
    "queries in another precision": (
        lambda: local_mean(k.Constant(), SINGLE, POINTS),
        DtypeError,
        ["one precision", "`points` is float32", "`queries` is float64"],
    ),
    "a kernel in another precision": (
        lambda: local_mean(k.Attention(1.0, np.eye(2)), SINGLE, POINTS.astype(np.float32)),
        DtypeError,
        ["`points` is float32", "`kernel.query` is float64"],
    ),
    "no positions in the measure": (
        lambda: local_mean(k.Causal(), CLOUD, TIMED),
        ArgumentError,
        ["positions", "measure has none", "`positions`"],
    ),
    "no positions in the queries": (
        lambda: local_mean(k.Causal(), TIMED, POINTS),
        ArgumentError,
        ["positions", "query has none"],
    ),
    "integer positions in the queries": (
        lambda: local_mean(k.Causal(), TIMED, Sites(POINTS, np.arange(3))),
        DtypeError,
        ["`queries.positions`", "int64"],
    ),
    "positions of another length": (
        lambda: local_mean(k.Causal(), TIMED, Sites(POINTS, np.arange(4.0))),
        ShapeError,
        ["`queries.positions`", "(3,)", "(4,)"],
    ),
    "positions in another precision": (
        lambda: local_mean(k.Causal(), TIMED, Sites(POINTS, np.arange(3, dtype=np.float32))),
        DtypeError,
        ["`queries.positions` is float32"],
    ),
    "NaN positions in the queries": (
        lambda: local_mean(k.Causal(), TIMED, Sites(POINTS, np.array([0, NAN, 1]))),
        ArgumentError,
        ["`queries.positions`", "nan"],
    ),
    "values of another length in the queries": (
        lambda: local_mean(k.OnValues(k.Ball(1.0)), CLOUD, Sites(POINTS, None, np.zeros((2, 2)))),
        ShapeError,
        ["`queries.values`", "(3, k)", "(2, 2)"],
    ),
    "no values in the queries": (
        lambda: local_mean(k.OnValues(k.Ball(1.0)), CLOUD, POINTS),
        ArgumentError,
        ["values", "query has none"],
    ),
    "a kernel of the wrong shape": (
        lambda: local_mean(Wide(), CLOUD, POINTS),
        ShapeError,
        ["Wide", "(3, 3)", "(1, 1)"],
    ),
    "a mode of numbers": (
        lambda: local_mode(k.Constant(), CLOUD.with_values(jnp.zeros(3)), POINTS),
        ShapeError,
        ["(n, classes)", "(3,)"],
    ),
    "covariance at another dimension": (
        lambda: local_covariance(k.Ball(1.0), CLOUD, np.zeros(3)),
        ShapeError,
        ["dimension 3"],
    ),
    "no draws": (
        lambda: resampled_local_mean(jax.random.key(0), k.Constant(), CLOUD, POINTS, draws=0),
        ArgumentError,
        ["`draws`", "positive integer", "0"],
    ),
    "a fraction of a draw": (
        lambda: resampled_local_mean(jax.random.key(0), k.Constant(), CLOUD, POINTS, draws=1.5),
        ArgumentError,
        ["`draws`", "1.5"],
    ),
    "blocks of nothing": (lambda: Blockwise(0, 4), ArgumentError, ["`query_block`", "positive integer", "0"]),
    "blocks of a fraction": (
        lambda: Blockwise(4, 2.5),
        ArgumentError,
        ["`source_block`", "2.5"],
    ),
    "a tolerance of nothing": (lambda: Auto(tolerance=0.0), ArgumentError, ["`tolerance`", "positive number", "0.0"]),
    "a negative tolerance": (lambda: Auto(tolerance=-1e-8), ArgumentError, ["`tolerance`", "-1e-08"]),
    "a tolerance of NaN": (lambda: Auto(tolerance=NAN), ArgumentError, ["`tolerance`", "nan"]),
    "a tolerance in words": (lambda: Auto(tolerance="low"), ArgumentError, ["`tolerance`", "'low'"]),
    "a derivative at a negative width": (
        lambda: kernel_derivative(k.Gaussian, -0.5, CLOUD, POINTS),
        ArgumentError,
        ["`width`", "positive", "-0.5"],
    ),
    "a derivative at NaN": (
        lambda: kernel_derivative(k.Gaussian, NAN, CLOUD, POINTS),
        ArgumentError,
        ["`parameter`", "nan"],
    ),
}

EVERYTHING = {**MEASURES, **KERNELS, **QUERIES}


@pytest.mark.parametrize("name", EVERYTHING)
def test_wrong_input_is_named(name):
    pair_oracles.assert_refused(*EVERYTHING[name])


def test_names_of_the_table_are_not_reused():
    assert len(EVERYTHING) == len(MEASURES) + len(KERNELS) + len(QUERIES)


@pytest.mark.parametrize("summation", [Dense(), Blockwise(2, 2), Auto(), Auto(dense_bytes=1)], ids=repr)
def test_every_summation_checks_what_it_gets(summation):
    with pytest.raises(ShapeError, match="dimension 3"):
        summation.moments(k.Gaussian(1.0), CLOUD, jnp.zeros((4, 3)))
    with pytest.raises(DtypeError, match="`queries` is float32"):
        summation.moments(k.Gaussian(1.0), CLOUD, jnp.zeros((4, 2), jnp.float32))
    with pytest.raises(DtypeError, match=r"`queries`.*int"):
        summation.moments(k.Gaussian(1.0), CLOUD, jnp.zeros((4, 2), int))
    with pytest.raises(ArgumentError, match="positions"):
        summation.moments(k.Causal(), CLOUD, jnp.zeros((4, 2)))


def test_a_kernel_may_have_a_field_called_points():
    class Anchored(k.AbstractMatrixKernel):
        points: jax.Array

        def log_matrix(self, xs, ys):
            return k.Gaussian(1.0).log_matrix(xs, self.points) @ jnp.ones((2, ys.points.shape[0]))

    assert jax.jit(local_moments)(Anchored(jnp.zeros((2, 2))), CLOUD, POINTS).mean.shape == (3, 2)
    with pytest.raises(DtypeError, match=r"`kernel\.points` is float64"):
        local_moments(Anchored(jnp.zeros((2, 2))), SINGLE, POINTS.astype(np.float32))


def test_shapes_and_precisions_are_checked_inside_jit():
    with pytest.raises(ShapeError, match="dimension 3"):
        jax.jit(lambda q: local_mean(k.Gaussian(1.0), CLOUD, q))(jnp.zeros((4, 3)))
    with pytest.raises(DtypeError, match="float32"):
        jax.jit(lambda q: local_mean(k.Gaussian(1.0), CLOUD, q))(jnp.zeros((4, 2), jnp.float32))


def test_adding_a_number_to_a_kernel_is_refused():
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = k.Gaussian(1.0) + 3  # pyright: ignore[reportOperatorIssue]
