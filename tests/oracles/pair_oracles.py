"""Brute force in float64 NumPy, pair by pair, from the formulas alone: the independent answer for every kernel.

A *case* is a kernel, how to build it in a given precision, and the logarithm of its formula for one pair of
sites. `CASES` holds at least one case of every kernel class, so a law is checked for all of them by one loop.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from cloud_oracles import LETTERS as LETTERS
from cloud_oracles import Cloud as Cloud
from cloud_oracles import Site as Site
from cloud_oracles import cloud as cloud
from cloud_oracles import sites_of as sites_of
from particleflow import kernels as k
from particleflow.measure import Measure, Sites
from particleflow.summation.local_mean import Normalised
from sum_oracles import NOTHING as NOTHING
from sum_oracles import assert_close as assert_close
from sum_oracles import assert_refused as assert_refused
from sum_oracles import covariance as covariance
from sum_oracles import moments as moments


class Case(NamedTuple):
    """A kernel to build in some precision, log K of one pair, and the spaces its queries and points live in."""

    name: str
    build: Callable[[Any], k.AbstractKernel]
    log_pair: Callable[[Site, Site], float]
    space: str = "vectors"


_TABLES = np.random.default_rng(101)
QUERY = _TABLES.normal(size=(3, 3))
KEY = _TABLES.normal(size=(3, 3))
TALL = _TABLES.normal(size=(2, 3))
DIAGONAL = np.array([0.5, -1.25, 2.0])
LOG_TABLE = np.where(_TABLES.uniform(size=(LETTERS, LETTERS)) < 0.3, -np.inf, _TABLES.normal(size=(LETTERS, LETTERS)))
QUERY_TABLE, KEY_TABLE = _TABLES.normal(size=(2, LETTERS, 3))
POSITION_TABLE = _TABLES.normal(size=(64, 3))
LIFT = _TABLES.normal(size=(3, 2))
OTHER_POINTS = _TABLES.normal(size=(7, 3))
OTHER_WEIGHTS = _TABLES.uniform(0.1, 1.0, size=7)
GRAPH = np.where(_TABLES.uniform(size=(64, 64)) < 0.3, -np.inf, _TABLES.normal(size=(64, 64)))
LAG_KEY = _TABLES.normal(size=(3, 4))


def log_matrix(case: Case, queries: Sites, sources: Sites) -> np.ndarray:
    """log K(x_i, y_j), one pair after the other."""
    rows = [[case.log_pair(x, y) for y in sites_of(sources)] for x in sites_of(queries)]
    return np.array(rows, dtype=np.float64).reshape(len(sites_of(queries)), -1)


def _log(number: float) -> float:
    return math.log(number) if number > 0 else NOTHING


def _distance(x: Any, y: Any) -> float:
    return math.sqrt(_square(x, y))


def _square(x: Any, y: Any) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def _elu_plus_one(u: Any) -> np.ndarray:
    return np.where(u > 0, u + 1, np.exp(np.minimum(u, 0)))


def _dot(x: Any, y: Any) -> float:
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def _cosine(x: Any, y: Any) -> float:
    lengths = math.sqrt(_dot(x, x)) * math.sqrt(_dot(y, y))
    return _dot(x, y) / lengths if lengths > 0 else 0.0


def _gaussian(x: Any, y: Any, width: float) -> float:
    return -_square(x, y) / (2 * width**2)


def _log_sum(*logs: float) -> float:
    return _log(math.fsum(math.exp(value) for value in logs))


def _sinusoidal(position: float, scale: float, base: float, length: int = 3) -> np.ndarray:
    angles = [position / base ** ((2 * (c // 2)) / length) for c in range(length)]
    return scale * np.array([math.sin(a) if c % 2 == 0 else math.cos(a) for c, a in enumerate(angles)])


def _normaliser(x: Site) -> float:
    return _log(
        math.fsum(w * math.exp(_gaussian(x.point, y, 0.9)) for y, w in zip(OTHER_POINTS, OTHER_WEIGHTS, strict=True))
    )


def _of_points(log_function: Callable[[Any, Any], float]) -> Callable[[Site, Site], float]:
    return lambda x, y: log_function(x.point, y.point)


def _of_lag(log_function: Callable[[float], float]) -> Callable[[Site, Site], float]:
    return lambda x, y: log_function(x.position - y.position)


def _conditional(x: Any) -> np.ndarray:
    """p(z_k|x) on the seven nodes, under a Laplace kernel."""
    pulls = np.array([math.exp(-_distance(x, node) / 0.5) for node in OTHER_POINTS])
    return pulls / (pulls @ OTHER_WEIGHTS)


def _array(array: np.ndarray) -> Callable[[Any], Any]:
    return lambda dtype: jnp.asarray(array, dtype)


query, key, tall, diagonal = _array(QUERY), _array(KEY), _array(TALL), _array(DIAGONAL)
lift, log_table = _array(LIFT), _array(LOG_TABLE)


def _third(x: Any) -> float:
    return sorted(_distance(x, other) for other in OTHER_POINTS)[2]


def _others(dtype: Any) -> Measure:
    return Measure.weighted(jnp.asarray(OTHER_POINTS, dtype), jnp.asarray(OTHER_WEIGHTS, dtype))


def _self_localized(x: Any, fx: Any, y: Any, fy: Any) -> Any:
    return -jnp.sum(jnp.square(x - y)) - 0.5 * jnp.sum(jnp.abs(fx - fy))


INNER = [
    Case("attention", lambda t: k.Attention(1.7), _of_points(lambda x, y: 1.7 * _dot(x, y))),
    Case(
        "attention with matrices",
        lambda t: k.Attention(0.6, query(t), key(t)),
        _of_points(lambda x, y: 0.6 * _dot(QUERY @ x, KEY @ y)),
    ),
    Case(
        "attention with a diagonal and a number",
        lambda t: k.Attention(-1.1, diagonal(t), 2.0),
        _of_points(lambda x, y: -1.1 * _dot(DIAGONAL * x, 2.0 * y)),
    ),
    Case(
        "attention in fewer dimensions",
        lambda t: k.Attention(0.9, tall(t), -tall(t)),
        _of_points(lambda x, y: -0.9 * _dot(TALL @ x, TALL @ y)),
    ),
    Case(
        "attention with biases",
        lambda t: k.AffineAttention(0.6, query(t), key(t), 0.2, jnp.asarray(DIAGONAL, t)),
        _of_points(lambda x, y: 0.6 * _dot(QUERY @ x + 0.2, KEY @ y + DIAGONAL)),
    ),
    Case("cosine", lambda t: k.Cosine(3.0), _of_points(lambda x, y: 3.0 * _cosine(x, y))),
    Case(
        "sigmoid",
        lambda t: k.Sigmoid(1.3, -0.4, query(t), key(t)),
        _of_points(lambda x, y: -math.log1p(math.exp(-1.3 * _dot(QUERY @ x, KEY @ y) + 0.4))),
    ),
    Case(
        "sigmoid exponential",
        lambda t: k.SigmoidExponential(0.7, 0.2),
        _of_points(lambda x, y: math.tanh(0.7 * _dot(x, y) + 0.2)),
    ),
    Case(
        "rectified",
        lambda t: k.Rectified(1.1, -0.3, query(t), 1.0),
        _of_points(lambda x, y: _log(max(0.0, 1.1 * _dot(QUERY @ x, y) - 0.3))),
    ),
    Case(
        "squared distance attention",
        lambda t: k.SquaredDistanceAttention(0.4, query(t), key(t)),
        _of_points(lambda x, y: -0.4 * _square(QUERY @ x, KEY @ y)),
    ),
    Case("constant", lambda t: k.Constant(), lambda x, y: 0.0),
]

STATIONARY = [
    Case("gaussian", lambda t: k.Gaussian(0.6), _of_points(lambda x, y: _gaussian(x, y, 0.6))),
    Case("laplace", lambda t: k.Laplace(0.6), _of_points(lambda x, y: -_distance(x, y) / 0.6)),
    Case("cauchy", lambda t: k.Cauchy(0.6), _of_points(lambda x, y: -math.log(1 + _square(x, y) / 0.36))),
    Case(
        "student",
        lambda t: k.StudentT(0.7, 2.5),
        _of_points(lambda x, y: -(2.5 + 3) / 2 * math.log(1 + _square(x, y) / (2.5 * 0.49))),
    ),
    Case("ball", lambda t: k.Ball(1.5), _of_points(lambda x, y: 0.0 if _distance(x, y) < 1.5 else NOTHING)),
    Case("epanechnikov", lambda t: k.Epanechnikov(1.9), _of_points(lambda x, y: _log(1 - _square(x, y) / 1.9**2))),
    Case("triangle", lambda t: k.Triangle(1.9), _of_points(lambda x, y: _log(1 - _distance(x, y) / 1.9))),
    Case(
        "inverse distance",
        lambda t: k.InverseDistance(1.5, 0.2),
        _of_points(lambda x, y: -0.75 * math.log(_square(x, y) + 0.04)),
    ),
]

POSITIONAL = [
    Case("causal", lambda t: k.Causal(), _of_lag(lambda lag: 0.0 if lag >= 0 else NOTHING)),
    Case("strictly causal", lambda t: k.StrictlyCausal(), _of_lag(lambda lag: 0.0 if lag > 0 else NOTHING)),
    Case("window", lambda t: k.Window(4.0), _of_lag(lambda lag: 0.0 if abs(lag) < 4 else NOTHING)),
    Case("alibi", lambda t: k.Alibi(0.3), _of_lag(lambda lag: -0.3 * abs(lag))),
    Case("others", lambda t: k.Others(), _of_lag(lambda lag: NOTHING if lag == 0 else 0.0)),
    Case(
        "position matrix",
        lambda t: k.PositionMatrix(jnp.asarray(GRAPH, t)),
        lambda x, y: GRAPH[int(x.position), int(y.position)],
    ),
    Case(
        "placed",
        lambda t: k.Placed(k.Laplace(0.9), jnp.asarray(POSITION_TABLE, t)),
        lambda x, y: -_distance(POSITION_TABLE[int(x.position)], POSITION_TABLE[int(y.position)]) / 0.9,
    ),
    Case("time gaussian", lambda t: k.TimeGaussian(5.0), _of_lag(lambda lag: -(lag**2) / 50.0)),
    Case(
        "encoded by sines",
        lambda t: k.Encoded(k.Gaussian(1.2), k.Sinusoidal(0.5, 100.0)),
        lambda x, y: _gaussian(
            x.point + _sinusoidal(x.position, 0.5, 100.0), y.point + _sinusoidal(y.position, 0.5, 100.0), 1.2
        ),
    ),
    Case(
        "encoded by a table",
        lambda t: k.Encoded(k.Attention(0.5), k.PositionTable(jnp.asarray(POSITION_TABLE, t))),
        lambda x, y: 0.5 * _dot(x.point + POSITION_TABLE[int(x.position)], y.point + POSITION_TABLE[int(y.position)]),
    ),
]


def _partial(x: Any, y: Any) -> float:
    shared = [a for a in range(3) if x[3 + a] * y[3 + a] > 0]
    if not shared:
        return NOTHING
    return -3 / len(shared) * math.fsum((x[a] - y[a]) ** 2 for a in shared) / (2 * 0.8**2)


UNLIKE = [
    Case(
        "membership",
        lambda t: k.Membership(),
        _of_points(lambda x, y: -math.fsum(((x[a] - y[a]) / y[2 + a]) ** 2 for a in range(2)) / 2),
        "rules",
    ),
    Case(
        "fuzzy membership",
        lambda t: k.FuzzyMembership(),
        _of_points(
            lambda x, y: math.fsum(
                math.log(y[2 + a])
                - math.log(math.hypot(y[2 + a], x[2 + a]))
                - (x[a] - y[a]) ** 2 / (2 * (y[2 + a] ** 2 + x[2 + a] ** 2))
                for a in range(2)
            )
        ),
        "fuzzy inputs",
    ),
    Case("partly observed", lambda t: k.PartlyObserved(k.Gaussian(0.8)), _of_points(_partial), "gaps"),
    Case(
        "three points",
        lambda t: k.HigherOrder(lambda x, y, z: x[0] * y[0] * z[1] - z[0], 1),
        _of_points(lambda x, y: x[0] * y[0] * y[2] - y[1]),
    ),
]

NEAREST = [
    Case(
        "nearest",
        lambda t: k.Nearest(3).bind(_others(t)),
        _of_points(
            lambda x, y: 0.0 if _distance(x, y) <= sorted(_distance(x, o) for o in OTHER_POINTS)[2] else NOTHING
        ),
    )
]

FEATURES = [
    Case(
        "feature product",
        lambda t: k.FeatureProduct(lambda x: jnp.exp(0.3 * x), jnp.square),
        _of_points(lambda x, y: _log(_dot(np.exp(0.3 * x), y**2))),
    ),
    Case(
        "linearised attention",
        lambda t: k.LinearisedAttention("elu", query(t), key(t)),
        _of_points(lambda x, y: math.log(_dot(_elu_plus_one(QUERY @ x), _elu_plus_one(KEY @ y)))),
    ),
    Case(
        "feature exponential",
        lambda t: k.FeatureExponential(jnp.tanh, lambda y: 0.5 * y),
        _of_points(lambda x, y: _dot(np.tanh(x), 0.5 * y)),
    ),
    Case(
        "feature exponential of positions",
        lambda t: k.FeatureExponential(lambda x, s: 0.1 * s * x, lambda y, s: y - s, with_positions=True),
        lambda x, y: _dot(0.1 * x.position * x.point, y.point - y.position),
    ),
    Case(
        "pullback with positions",
        lambda t: k.Pullback(k.Gaussian(0.8), lambda x, s: x + 0.1 * s, lambda y, s: y - 0.1 * s, with_positions=True),
        lambda x, y: _gaussian(x.point + 0.1 * x.position, y.point - 0.1 * y.position, 0.8),
    ),
    Case(
        "pullback from two spaces",
        lambda t: k.Pullback(k.Gaussian(0.8), lambda x: lift(t) @ x, jnp.tanh),
        _of_points(lambda x, y: _gaussian(LIFT @ x, np.tanh(y), 0.8)),
        "two spaces",
    ),
    Case(
        "discrete",
        lambda t: k.Discrete(log_table(t)),
        _of_points(lambda x, y: LOG_TABLE[int(x[0]), int(y[0])]),
        "letters",
    ),
    Case(
        "embedded",
        lambda t: k.Embedded(jnp.asarray(QUERY_TABLE, t), jnp.asarray(KEY_TABLE, t)),
        _of_points(lambda x, y: _dot(QUERY_TABLE[int(x[0])], KEY_TABLE[int(y[0])])),
        "letters",
    ),
    Case(
        "self-localized",
        lambda t: k.SelfLocalized(_self_localized),
        lambda x, y: -_square(x.point, y.point) - 0.5 * float(np.abs(x.value - y.value).sum()),
    ),
    Case(
        "overlap",
        lambda t: k.Overlap(k.Laplace(0.5), jnp.asarray(OTHER_POINTS, t), jnp.log(jnp.asarray(OTHER_WEIGHTS, t))),
        _of_points(lambda x, y: math.log(np.sum(OTHER_WEIGHTS * _conditional(x) * _conditional(y)))),
    ),
    Case("on values", lambda t: k.OnValues(k.Gaussian(0.7)), lambda x, y: _gaussian(x.value, y.value, 0.7)),
]

ALGEBRA = [
    Case(
        "causal attention",
        lambda t: k.Attention(1.5) * k.Causal(),
        lambda x, y: 1.5 * _dot(x.point, y.point) if y.position <= x.position else NOTHING,
    ),
    Case(
        "bilateral filter",
        lambda t: k.Gaussian(0.9) * k.OnValues(k.Laplace(0.5)) * k.Window(9.0),
        lambda x, y: (
            _gaussian(x.point, y.point, 0.9) - _distance(x.value, y.value) / 0.5
            if abs(x.position - y.position) < 9
            else NOTHING
        ),
    ),
    Case(
        "sum",
        lambda t: k.Gaussian(0.5) + k.Ball(1.0),
        _of_points(lambda x, y: _log_sum(_gaussian(x, y, 0.5), 0.0 if _distance(x, y) < 1 else NOTHING)),
    ),
    Case(
        "mixture of compact ones",
        lambda t: k.Mixture((k.Triangle(1.2), k.Epanechnikov(1.6), k.Constant()), (0.3, 1.7, 0.0)),
        _of_points(
            lambda x, y: _log(0.3 * max(0.0, 1 - _distance(x, y) / 1.2) + 1.7 * max(0.0, 1 - _square(x, y) / 1.6**2))
        ),
    ),
    Case("scaled", lambda t: 2.5 * k.Cauchy(0.8), _of_points(lambda x, y: math.log(2.5 / (1 + _square(x, y) / 0.64)))),
    Case(
        "transposed",
        lambda t: k.Transposed(k.Attention(0.6, query(t), key(t))),
        _of_points(lambda x, y: 0.6 * _dot(QUERY @ y, KEY @ x)),
    ),
    Case(
        "symmetrised",
        lambda t: k.Symmetrised(k.Attention(0.6, query(t), key(t))),
        _of_points(lambda x, y: _log_sum(0.6 * _dot(QUERY @ x, KEY @ y), 0.6 * _dot(QUERY @ y, KEY @ x)) - math.log(2)),
    ),
    Case(
        "symmetrised geometrically",
        lambda t: k.Symmetrised(k.Attention(0.6, query(t), key(t)), mean="geometric"),
        _of_points(lambda x, y: 0.3 * (_dot(QUERY @ x, KEY @ y) + _dot(QUERY @ y, KEY @ x))),
    ),
    Case(
        "normalised",
        lambda t: Normalised(k.Gaussian(0.9), _others(t)),
        lambda x, y: _gaussian(x.point, y.point, 0.9) - _normaliser(x),
    ),
]


def _relative(x: Site, y: Site) -> float:
    content, lag = QUERY @ x.point, _sinusoidal(x.position - y.position, 0.8, 50.0, 4)
    return 0.6 * (_dot(content + DIAGONAL, KEY @ y.point) + _dot(content - 0.3, LAG_KEY @ lag))


RELATIVE = [
    Case(
        "relative attention",
        lambda t: k.RelativeAttention(
            0.6, query(t), key(t), jnp.asarray(LAG_KEY, t), jnp.asarray(DIAGONAL, t), -0.3, k.Sinusoidal(0.8, 50.0)
        ),
        _relative,
    )
]

CASES = INNER + STATIONARY + POSITIONAL + NEAREST + UNLIKE + FEATURES + ALGEBRA + RELATIVE
NAMES = [case.name for case in CASES]
