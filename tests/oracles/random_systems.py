"""Whole systems drawn at random: each as a flow, and as a field in NumPy from the formulas alone.

A system is drawn twice from one seed's numbers. Its name says what it is made of.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.special import ndtr

import particleflow as pf
import system_oracles as oracle
from flows_oracles import solve
from particleflow import drifts, kernels

COUNT, DIMENSION, TIMES = 5, 3, [0.0, 0.5]
BASE = 1000  # chosen so that the default systems cover everything
SEEDS, MORE = range(18), range(18, 218)
SPACES = {name: space for name, space in oracle.spaces(DIMENSION).items() if name != "layer_norm_numbers"}
FLAT = ("euclidean", "rescaled", "residual_stream", "set_norm", "set_norm_variances")
NORMALIZATIONS = ["row", "none", "sinkhorn"]

Logits = Callable[[np.ndarray, np.ndarray], np.ndarray]
Said = Callable[[np.ndarray], np.ndarray]


class Part(NamedTuple):
    """A kernel or a drift, under its name, beside its formula; `parts` names what it is made of."""

    name: str
    built: Any
    formula: Any
    parts: tuple[str, ...] = ()


class System(NamedTuple):
    """A flow and its start, and the same as a field of states in NumPy."""

    name: str
    flow: pf.Flow
    start: pf.Measure
    space: oracle.Space
    said: Said
    parts: tuple[str, ...]

    def field(self, time: float, state: np.ndarray) -> np.ndarray:
        """How the state moves."""
        return self.space.move(state, self.said(self.space.seen(state, time)), time)

    def begun(self) -> np.ndarray:
        """The state at the start."""
        fields = {name: np.asarray(values) for name, values in self.start.fields.items()}
        return self.space.state(np.asarray(self.start.points), fields)


def draw_kernel(rng: np.random.Generator, which: int) -> Part:
    """One of the kernels, with log K of all pairs."""
    beta, width, freedom, offset = rng.uniform(0.3, 0.9), rng.uniform(0.7, 1.4), rng.uniform(1.0, 4.0), rng.normal()
    query, key = 0.7 * rng.normal(size=(2, DIMENSION, DIMENSION))
    here, there = rng.normal(size=(2, DIMENSION))

    def inner(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return beta * (x @ query.T) @ (y @ key.T).T

    def student(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -(freedom + DIMENSION) / 2 * np.log1p(oracle.squares(x, y) / (freedom * width**2))

    choices = [
        Part("attention", kernels.Attention(beta), lambda x, y: beta * x @ y.T),
        Part("cosine", kernels.Cosine(beta), lambda x, y: beta * oracle.unit(x) @ oracle.unit(y).T),
        Part("gaussian", kernels.Gaussian(width), lambda x, y: -oracle.squares(x, y) / (2 * width**2)),
        Part("laplace", kernels.Laplace(width), lambda x, y: -np.sqrt(oracle.squares(x, y)) / width),
        Part("cauchy", kernels.Cauchy(width), lambda x, y: -np.log(1 + oracle.squares(x, y) / width**2)),
        Part("student_t", kernels.StudentT(width, freedom), student),
        Part(
            "squared_distance_QK",
            kernels.SquaredDistanceAttention(beta, query, key),
            lambda x, y: -beta * oracle.squares(x @ query.T, y @ key.T),
        ),
        Part(
            "sigmoid_QK",
            kernels.Sigmoid(beta, offset, query, key),
            lambda x, y: -np.log(1 + np.exp(-inner(x, y) - offset)),
        ),
        Part("attention_QK", kernels.Attention(beta, query, key), inner),
        Part(
            "affine_attention",
            kernels.AffineAttention(beta, query, key, here, there),
            lambda x, y: beta * (x @ query.T + here) @ (y @ key.T + there).T,
        ),
        Part(
            "linearised_attention",
            kernels.LinearisedAttention("elu", query, key),
            lambda x, y: np.log(elu_and_one(x @ query.T) @ elu_and_one(y @ key.T).T),
        ),
    ]
    return choices[which % len(choices)]


def draw_positional(rng: np.random.Generator, *, positive: bool) -> Part | None:
    """A kernel of positions, with log K₂ of all lags t − s, or none; masks only where zeros are allowed."""
    radius, slope, width = rng.uniform(1.5, 3.5), rng.uniform(0.1, 0.6), rng.uniform(1.0, 3.0)
    soft = [
        None,
        Part("alibi", kernels.Alibi(slope), lambda lags: -slope * np.abs(lags)),
        Part("time_gaussian", kernels.TimeGaussian(width), lambda lags: -(lags**2) / (2 * width**2)),
    ]
    masks = [
        Part("causal", kernels.Causal(), lambda lags: np.where(lags >= 0, 0.0, -np.inf)),
        Part("window", kernels.Window(radius), lambda lags: np.where(np.abs(lags) < radius, 0.0, -np.inf)),
    ]
    choices = soft if positive else soft + masks
    return choices[rng.integers(len(choices))]


def draw_attend(
    rng: np.random.Generator, which: int, normalization: Any, weights: np.ndarray, positions: np.ndarray
) -> Part:
    """A head O V m(x), its positional kernel given beside the kernel or multiplied in."""
    kernel = draw_kernel(rng, which)
    positional = draw_positional(rng, positive=normalization == "sinkhorn")
    maps = [np.asarray(1.0), rng.normal(size=DIMENSION), 0.7 * rng.normal(size=(DIMENSION, DIMENSION))]
    value, output = (maps[index] for index in rng.integers(3, size=2))
    inside = bool(rng.integers(2))
    whole = kernel.built * positional.built if positional and inside else kernel.built
    beside = positional.built if positional and not inside else None
    drift = pf.Attend(whole, value=value, normalization=normalization, positional=beside, output=output)
    bias = positional.formula(positions[:, None] - positions[None]) if positional else 0.0

    def said(seen: np.ndarray) -> np.ndarray:
        mean = oracle.shares(kernel.formula(seen, seen) + bias, weights, normalization) @ seen
        return applied(output, applied(value, mean))

    times = "" if positional is None else f" times {positional.name}" if inside else f" at {positional.name}"
    linear = {0: "1", 1: "diagonal", 2: "matrix"}
    name = f"{kernel.name}{times} {normalization} V={linear[value.ndim]} O={linear[output.ndim]}"
    return Part(name, drift, said, (kernel.name, normalization, positional.name if positional else "no positions"))


def elu_and_one(u: np.ndarray) -> np.ndarray:
    """u + 1 for u > 0, e^u below."""
    return np.where(u > 0, u + 1, np.exp(np.minimum(u, 0.0)))


def draw_heads(rng: np.random.Generator, weights: np.ndarray, positions: np.ndarray) -> Part:
    """Three heads of two dimensions with all their biases, as a network has them, under linear biases of positions."""
    query, key, value = 0.5 * rng.normal(size=(3, 6, DIMENSION))
    query_bias, key_bias, value_bias = 0.5 * rng.normal(size=(3, 6))
    output, bias, slope = 0.5 * rng.normal(size=(DIMENSION, 6)), rng.normal(size=DIMENSION), rng.uniform(0.1, 0.6)
    built = drifts.MultiHead.of_matrices(
        3, query, key, value, output, query_bias, key_bias, value_bias, bias, positional=kernels.Alibi(slope)
    )

    def said(x: np.ndarray) -> np.ndarray:
        lags = np.abs(positions[:, None] - positions[None])
        asked, known, carried = x @ query.T + query_bias, x @ key.T + key_bias, x @ value.T + value_bias
        read = [
            oracle.shares(asked[:, part] @ known[:, part].T / np.sqrt(2) - slope * lags, weights) @ carried[:, part]
            for part in (slice(0, 2), slice(2, 4), slice(4, 6))
        ]
        return np.concatenate(read, axis=1) @ output.T + bias

    return Part("multi_head", built, said)


def draw_blend(rng: np.random.Generator, weights: np.ndarray, positions: np.ndarray) -> Part:
    """Near field and far field: softmax inside a band of positions, and features everywhere."""
    radius, beta, near, far = rng.uniform(1.6, 3.5), rng.uniform(0.3, 0.9), *rng.uniform(0.3, 1.2, 2)
    query, key, value = 0.5 * rng.normal(size=(3, DIMENSION, DIMENSION))
    built = drifts.near_and_far(radius, ("elu", "elu_reversed"), beta, query, key, value, (near, far))

    def said(x: np.ndarray) -> np.ndarray:
        asked, known = x @ query.T, x @ key.T
        hidden = np.where(np.abs(positions[:, None] - positions[None]) < radius, 0.0, -np.inf)
        mixed = near * oracle.shares(beta * asked @ known.T + hidden, weights)
        for sign in (1, -1):
            mixed = mixed + far * oracle.shares(
                np.log(elu_and_one(sign * asked) @ elu_and_one(sign * known).T), weights
            )
        return mixed @ x @ value.T

    return Part("blend", built, said)


def draw_other(rng: np.random.Generator, which: int, weights: np.ndarray, positions: np.ndarray) -> Part:
    """Another drift to add: one of the others there are."""
    width, beta, rate = rng.uniform(0.7, 1.4), rng.uniform(0.3, 0.9), rng.uniform(0.3, 0.8)
    matrix, query, key = 0.5 * rng.normal(size=(3, DIMENSION, DIMENSION))
    inward, outward = rng.normal(size=(4, DIMENSION)), rng.normal(size=(DIMENSION, 4))
    bias, shift, centre = rng.normal(size=4), rng.normal(size=DIMENSION), rng.normal(size=DIMENSION)
    points, masses = rng.normal(size=(4, DIMENSION)), np.array([0.3, 0.0, 0.5, 0.4])
    data = pf.Measure.weighted(points, masses)

    def gaussian_mean(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> np.ndarray:
        return oracle.shares(-oracle.squares(x, y) / (2 * width**2), given) @ y

    def cauchy_gradient(x: np.ndarray) -> np.ndarray:
        squares = oracle.squares(x, points)
        pulls = -2 * (x[:, None] - points[None]) / (width**2 + squares)[:, :, None]
        return rate * np.einsum("ij,ijk->ik", oracle.shares(-np.log1p(squares / width**2), masses), pulls)

    def attention_gradient(x: np.ndarray) -> np.ndarray:
        return oracle.shares(beta * (x @ query.T) @ (x @ key.T).T, weights) @ x @ key.T @ query

    def confined(x: np.ndarray) -> np.ndarray:
        away = x - centre
        return -rate * np.linalg.norm(away, axis=1, keepdims=True) * away

    def linear_attention(x: np.ndarray) -> np.ndarray:
        return ((x @ query.T) @ (x @ key.T).T * weights) @ x @ matrix.T

    def forward(activation: Callable[[np.ndarray], np.ndarray]) -> Said:
        return lambda x: activation(x @ inward.T + bias) @ outward.T + shift

    def feed_forward(activation: Any) -> drifts.FeedForward:
        return drifts.FeedForward(inward, bias, outward, shift, activation)

    gaussian = kernels.Gaussian(width)
    ascent = drifts.LogNormalizerAscent
    choices = [
        Part("mean_shift", pf.MeanShift(gaussian), lambda x: gaussian_mean(x, x, weights) - x),
        Part("mean_shift to data", pf.MeanShift(gaussian, data), lambda x: gaussian_mean(x, points, masses) - x),
        Part("ascent of attention_QK", ascent(kernels.Attention(beta, query, key)), attention_gradient),
        Part("ascent of cauchy data", ascent(kernels.Cauchy(width), rate, data), cauchy_gradient),
        Part("feed_forward tanh", feed_forward("tanh"), forward(np.tanh)),
        Part("feed_forward gelu_exact", feed_forward("gelu_exact"), forward(lambda h: h * ndtr(h))),
        Part("linear", drifts.Linear(matrix), lambda x: x @ matrix.T),
        Part("confinement", drifts.Confinement(rate, 3.0, centre), confined),
        Part("linear_attention", drifts.LinearAttention(query, key, matrix), linear_attention),
        draw_heads(rng, weights, positions),
        draw_blend(rng, weights, positions),
    ]
    return choices[which % len(choices)]


def draw_weights(rng: np.random.Generator) -> tuple[str, np.ndarray]:
    """Equal weights, weights of another mass than one, or such with a zero among them."""
    weights = rng.uniform(0.1, 0.4, COUNT)
    nothing = np.where(np.arange(COUNT) == rng.integers(COUNT), 0.0, weights)
    return [("equal", np.full(COUNT, 1 / COUNT)), ("weighted", weights), ("one weightless", nothing)][rng.integers(3)]


@cache
def draw(seed: int) -> System:
    """The system of a seed: kernels, geometries and other drifts go round, the rest is drawn."""
    rng = np.random.default_rng(BASE + seed)
    weighting, weights = draw_weights(rng)
    positions = rng.permutation(COUNT) + rng.uniform(0.0, 0.5, COUNT)
    space = list(SPACES.values())[seed % len(SPACES)].given(weights)
    normalization = NORMALIZATIONS[rng.choice(3, p=[0.45, 0.35, 0.2])]
    if space.name in FLAT and normalization == "none":
        normalization = "row"  # e^{β⟨x, y⟩} that is not normalised leads to infinity in finite time
    head = draw_attend(rng, seed, normalization, weights, positions)
    other = draw_other(rng, seed + seed // 11, weights, positions)
    factor = rng.uniform(0.3, 0.8) * rng.choice([-1, 1])
    cases: list[Part] = [
        head,
        Part(f"{factor:.2f} * ({head.name})", factor * head.built, lambda x: factor * head.formula(x), head.parts),
        Part(
            f"{head.name} + {factor:.2f} * {other.name}",
            head.built + factor * other.built,
            lambda x: head.formula(x) + factor * other.formula(x),
            (*head.parts, other.name),
        ),
    ]
    drift = cases[rng.choice(3, p=[0.15, 0.15, 0.7])]
    points = space.retract(0.5 * rng.normal(size=(COUNT, DIMENSION)))
    start = pf.Measure.weighted(points, weights, positions=positions)
    if space.carries:
        start = start.with_fields({"residual_norm": rng.uniform(0.8, 2.0, COUNT)})
    name = f"{seed}: {drift.name} on {space.name}, {weighting}"
    flow = pf.Flow(drift.built, geometry=space.build())
    return System(name, flow, start, space, drift.formula, (*drift.parts, space.name, weighting))


def applied(linear: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A x of every row, A a number, a diagonal or a matrix."""
    return rows @ linear.T if linear.ndim == 2 else rows * linear


def cast(tree: Any, dtype: Any) -> Any:
    """A flow or a measure with all of its numbers in one precision."""
    return jax.tree_util.tree_map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


class Precision(NamedTuple):
    """What a run is asked for, and by how much it may be off, relative to the largest coordinate (or to 1)."""

    dtype: Any
    rtol: float
    atol: float
    error: float


DOUBLE = Precision(np.float64, rtol=1e-10, atol=1e-11, error=1e-7)
# Rounding of states and parameters is 6e-8. At 1e-5 the solver itself errs by up to 7e-5, in double precision as well.
SINGLE = Precision(np.float32, rtol=3e-6, atol=3e-7, error=5e-5)


def assert_agrees(system: System, precision: Precision = DOUBLE) -> None:
    """The stored points, and the lengths of streams, are those of SciPy in double precision."""
    flow, start = (cast(each, precision.dtype) for each in (system.flow, system.start))
    run = pf.simulate(flow, start, TIMES, rtol=precision.rtol, atol=precision.atol)
    assert run.points.dtype == precision.dtype
    exact = solve(system.field, system.begun(), TIMES)[-1]
    points = system.space.retract(exact)
    assert np.max(np.abs(run.points[-1] - run.points[0])) > 1e-3, "nothing moves"
    assert np.max(np.abs(run.points[-1] - points)) < precision.error * max(1.0, np.max(np.abs(points)))
    if system.space.carries:
        found = system.space.state(run.points[-1], run[-1].fields)
        assert np.max(np.abs(found - exact)) < precision.error * max(1.0, np.max(np.abs(exact)))
