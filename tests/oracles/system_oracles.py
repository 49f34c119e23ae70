"""Whole systems in NumPy, from the formulas alone: kernels, normalisations, geometries, drifts and observables.

Arrays are in float64 and every function takes all particles at once. A `Space` is a geometry beside its formulas: the
state y that moves, the point that is stored of it, what drifts see of it, and how it moves under what they say.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from particleflow import geometry

Rows = np.ndarray
GAIN, BIAS = np.array([1.2, 0.7, -0.9, 1.1]), np.array([0.3, -0.2, 0.1, 0.4])
OUTPUT_GAIN, OUTPUT_BIAS = np.array([0.8, 1.3, 1.1, -0.6]), np.array([0.05, 0.2, -0.1, 0.15])
CARRIED = ("residual_norm", "residual_mean")


class Norm(NamedTuple):
    """A normalisation: the sphere that it projects on, and N(y) with gain, bias and ε as a network applies it."""

    centres: bool
    radius: float
    gain: Any
    bias: Any
    epsilon: float

    def project(self, y: Rows) -> Rows:
        """R (y − ȳ)/|y − ȳ|, without the mean ȳ except for layer norm."""
        return self.radius * unit(self.centred(y))

    def normalise(self, y: Rows) -> Rows:
        """gain ⊙ R (y − ȳ)/√(|y − ȳ|² + R² ε) + bias."""
        centred = self.centred(y)
        squares = np.sum(centred**2, axis=1, keepdims=True)
        return self.gain * self.radius * centred / np.sqrt(squares + self.radius**2 * self.epsilon) + self.bias

    def along(self, y: Rows, velocity: Rows) -> Rows:
        """The part of a velocity that is tangent to the sphere."""
        direction, velocity = unit(self.centred(y)), self.centred(velocity)
        return velocity - np.sum(direction * velocity, axis=1, keepdims=True) * direction

    def centred(self, y: Rows) -> Rows:
        """y − ȳ for layer norm, y otherwise."""
        return y - y.mean(axis=1, keepdims=True) if self.centres else y


class Space(NamedTuple):
    """A geometry and its formulas; `carries` says whether the length of the state is stored beside the points.

    `weighed` makes the same formulas of other weights, where they depend on them; else it is None.
    """

    name: str
    build: Callable[[], geometry.AbstractGeometry]
    retract: Callable[[Rows], Rows]
    seen: Callable[[Rows, float], Rows]
    move: Callable[[Rows, Rows, float], Rows]
    carries: bool = False
    weighed: Callable[[Rows], "Space"] | None = None

    def given(self, weights: Rows) -> "Space":
        """The formulas for particles of these weights."""
        return self if self.weighed is None else self.weighed(weights)

    def state(self, points: Rows, fields: Mapping[str, Any]) -> Rows:
        """The state that stored points and fields stand for."""
        if not self.carries:
            return points
        stream = unit(points) * np.asarray(fields["residual_norm"])[:, None]
        return stream + np.asarray(fields["residual_mean"])[:, None] if "residual_mean" in fields else stream


def unit(vectors: Rows) -> Rows:
    """x/|x|, and 0 for 0."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def post(name: str, build: Callable[[], geometry.AbstractGeometry], norm: Norm) -> Space:
    """Points on the sphere of a normalisation, of which drifts see N: ẋ = P_x v."""
    return Space(
        name, build, norm.project, lambda y, t: norm.normalise(norm.project(y)), lambda y, v, t: norm.along(y, v)
    )


def stream(name: str, build: Callable[[], geometry.AbstractGeometry], norm: Norm, output: Norm | None = None) -> Space:
    """A residual stream: ẏ = v, or N(v) with a normalised output, where drifts see N(y)."""

    def move(y: Rows, velocity: Rows, time: float) -> Rows:
        return velocity if output is None else output.normalise(velocity)

    return Space(name, build, norm.project, lambda y, t: norm.normalise(y), move, carries=True)


def stepped(name: str, build: Callable[[], geometry.AbstractGeometry], norm: Norm, alpha: float | None) -> Space:
    """nGPT's ẋ = α P_x R v/|v|; without α the depth-scaled ẋ = P_x v/√(t + 1)."""

    def move(y: Rows, velocity: Rows, time: float) -> Rows:
        said = velocity / np.sqrt(time + 1) if alpha is None else alpha * norm.radius * unit(velocity)
        return norm.along(y, said)

    return post(name, build, norm)._replace(move=move)


def whole_set(name: str, kind: Any, mean: Any, variance: Any, weights: Rows | None = None) -> Space:
    """All particles together held at a mean and the variances, or the covariance S: N(y) = m + T (y − ȳ).

    Of a velocity it loses E[v] + A ξ, with C = E[v ξᵀ]: A = diag(C_ii/S_ii), or for the whole covariance
    ½(C + Cᵀ) S⁻¹; of what is not normalised T⁻¹ of that moves.
    """

    def moments(y: Rows) -> tuple[Rows, Rows, Rows]:
        shares = np.full(len(y), 1 / len(y)) if weights is None else weights / weights.sum()
        return shares, shares @ y, (shares[:, None] * (y - shares @ y)).T @ (y - shares @ y)

    def matrix(y: Rows) -> Rows:
        _, _, spread = moments(y)
        if kind == "diagonal":
            return np.diag(np.sqrt(variance / np.diag(spread)))
        root = np.linalg.cholesky(variance * np.eye(len(spread)) if np.ndim(variance) < 2 else variance)
        values, axes = np.linalg.eigh(np.linalg.solve(root, np.linalg.solve(root, spread).T))
        return root @ (axes / np.sqrt(values)) @ axes.T @ np.linalg.inv(root)

    def retract(y: Rows) -> Rows:
        return mean + (y - moments(y)[1]) @ matrix(y).T

    def move(y: Rows, velocity: Rows, time: float) -> Rows:
        points = retract(y)
        shares, middle, spread = moments(points)
        apart = velocity - shares @ velocity
        cross = (shares[:, None] * apart).T @ (points - middle)
        slope = np.diag(np.diag(cross) / np.diag(spread))
        if kind == "full":
            slope = 0.5 * (cross + cross.T) @ np.linalg.inv(spread)
        return np.linalg.solve(matrix(y), (apart - (points - middle) @ slope.T).T).T

    return Space(
        name, lambda: geometry.SetNorm(kind, mean, variance), retract, lambda y, t: retract(y), move,
        weighed=lambda weights: whole_set(name, kind, mean, variance, weights),
    )  # fmt: skip


def spaces(dimension: int) -> dict[str, Space]:
    """All geometries that have a flow, by what they are."""
    root = np.sqrt(dimension)
    gain, bias, output_gain, output_bias = (v[:dimension] for v in (GAIN, BIAS, OUTPUT_GAIN, OUTPUT_BIAS))
    ball, layer, rms = (
        Norm(False, 1.0, 1.0, 0.0, 0.0),
        Norm(True, root, 1.0, 0.0, 0.0),
        Norm(False, root, 1.0, 0.0, 0.0),
    )
    affine = Norm(True, root, gain, bias, 0.3)
    output = Norm(True, root, output_gain, output_bias, 0.1)

    def layer_norm() -> geometry.LayerNorm:
        return geometry.LayerNorm(gain, bias, 0.3)

    def peri_norm() -> geometry.PeriNorm:
        return geometry.PeriNorm(geometry.RmsNorm(), output=geometry.LayerNorm(output_gain, output_bias, 0.1))

    listed = [
        Space("euclidean", geometry.Euclidean, lambda y: y, lambda y, t: y, lambda y, v, t: v),
        post("sphere", geometry.Sphere, ball),
        post("sphere_2.5", lambda: geometry.Sphere(2.5), ball._replace(radius=2.5)),
        post("layer_norm", geometry.LayerNorm, layer),
        post("layer_norm_numbers", lambda: geometry.LayerNorm(1.3, -0.2, 0.1), Norm(True, root, 1.3, -0.2, 0.1)),
        post("layer_norm_gain_bias_epsilon", layer_norm, affine),
        post("rms_norm_gain", lambda: geometry.RmsNorm(gain), rms._replace(gain=gain)),
        stream("pre_norm", geometry.PreNorm, ball),
        stream("pre_norm_of_layer_norm", lambda: geometry.PreNorm(layer_norm()), affine),
        stream("peri_norm", geometry.PeriNorm, ball, ball),
        stream("peri_norm_of_rms_norm_output_layer_norm", peri_norm, rms, output),
        stepped("ngpt", lambda: geometry.Ngpt(0.5), ball, 0.5),
        stepped("ngpt_of_rms_norm", lambda: geometry.Ngpt(0.5, geometry.RmsNorm()), rms, 0.5),
        stepped("sqrt_scaled", geometry.SqrtScaled, ball, None),
        Space(
            "rescaled", lambda: geometry.Rescaled(0.5), lambda y: y, lambda y, t: np.exp(0.5 * t) * y,
            lambda y, v, t: np.exp(-0.5 * t) * v - 0.5 * y,
        ),
        Space(
            "residual_stream", lambda: geometry.ResidualStream(layer_norm()), lambda y: y,
            lambda y, t: affine.normalise(y), lambda y, v, t: v,
        ),
        whole_set("set_norm", "full", 0.0, 1.0),
        whole_set("set_norm_variances", "diagonal", bias, np.square(gain)),
    ]  # fmt: skip
    return {space.name: space for space in listed}


def squares(x: Rows, y: Rows) -> Rows:
    """|x_i − y_j|²."""
    return np.sum((x[:, None] - y[None]) ** 2, axis=2)


def log_mass(logits: Rows, weights: Rows) -> Rows:
    """log Σ_j w_j e^{logit_ij}."""
    logits, weights = logits[:, weights > 0], weights[weights > 0]
    highest = logits.max(axis=1)
    return highest + np.log(np.exp(logits - highest[:, None]) @ weights)


def shares(logits: Rows, weights: Rows, normalization: str = "row") -> Rows:
    """A_ij with Σ_j A_ij = 1 ("row"), w_j K_ij ("none"), or both Σ_j A_ij = 1 and Σ_i w_i A_ij = w_j ("sinkhorn")."""
    if normalization == "none":
        return np.exp(logits) * weights
    if normalization == "sinkhorn":
        tilted = weights.copy()
        tilted[weights > 0] *= balancing(logits[np.ix_(weights > 0, weights > 0)], weights[weights > 0])
        return shares(logits, tilted)
    relative = logits - log_mass(logits, weights)[:, None]
    return np.exp(np.where(weights > 0, relative, -np.inf)) * weights


def balancing(logits: Rows, weights: Rows) -> Rows:
    """e^{g_j} with Σ_j w_j e^{f_i + g_j} K_ij = Σ_i w_i e^{f_i + g_j} K_ij = 1, by sweeps and then Newton's method."""
    kernel = weights[:, None] * np.exp(logits - logits.max()) * weights
    row, column = np.ones((2, len(weights)))
    for _ in range(50):
        row = weights / (kernel @ column)
        column = weights / (kernel.T @ row)
    for _ in range(30):
        plan = row[:, None] * kernel * column
        excess = np.concatenate([plan.sum(axis=1) - weights, plan.sum(axis=0) - weights])
        if np.max(np.abs(excess)) < 1e-13:
            return column
        slopes = np.block([[np.diag(plan.sum(axis=1)), plan], [plan.T, np.diag(plan.sum(axis=0))]])
        moves = np.linalg.lstsq(slopes, -excess, rcond=1e-13)[0]  # f + c, g − c is the same plan for any c
        row, column = row * np.exp(moves[: len(weights)]), column * np.exp(moves[len(weights) :])
    raise AssertionError("these weights do not become doubly stochastic")


def weighted_quantiles(values: Rows, weights: Rows, levels: Any) -> Rows:
    """Linear interpolation between the values in order, the l-th at the place (Σ_{k<l} w_k)/(1 − w_l).

    Equal values follow each other by weight: the level at which one value ends and the next begins depends on it.
    """
    order = np.lexsort((weights, values))
    values, weights = values[order], weights[order]
    places = np.concatenate([[0.0], np.cumsum(weights)[:-1]]) / (1 - weights)
    return np.interp(levels, places, values)


def of_points(points: Rows, weights: Rows, levels: Any, threshold: float) -> dict[str, Any]:
    """The observables of the stored points alone; every weight must be positive."""
    weights = weights / weights.sum()
    units, centre = unit(points), weights @ points
    first, second = np.triu_indices(len(points), 1)
    cosines, pairs = (units @ units.T)[first, second], weights[first] * weights[second]
    pairs = pairs / pairs.sum()
    spectrum = np.linalg.svd(np.sqrt(weights)[:, None] * points, compute_uv=False) ** 2
    return {
        "order_parameter": np.linalg.norm(weights @ units),
        "centre": centre,
        "covariance": np.cov(points.T, aweights=weights, ddof=0),
        "mean_similarity": pairs @ cosines,
        "diameter": pdist(points).max(),
        "effective_rank": np.exp(entropy(spectrum / spectrum.sum())),
        "similarity_quantiles": weighted_quantiles(cosines, pairs, levels),
        "pair_fraction": pairs @ (cosines > threshold),
    }


def of_interaction(logits: Rows, weights: Rows, factor: float, normalization: str = "row") -> dict[str, Any]:
    """The observables of log K at what drifts see: E = (1/factor) ΣΣ w_i w_j K_ij, entropy and rank of A."""
    rows, total = shares(logits, weights, "row" if normalization == "none" else normalization), weights.sum()
    log_energy = log_mass(log_mass(logits, weights)[None], weights)[0] - np.log(factor)
    singular = np.linalg.svd(rows, compute_uv=False)
    return {
        "energy": np.exp(log_energy),
        "log_energy": log_energy,
        "attention_entropy": weights @ np.array([entropy(row) for row in rows]) / total,
        "attention_rank": np.sum(singular > 1e-6 * singular[0]),
    }


def of_velocity(velocity: Rows, weights: Rows, mass: Any = 1.0) -> dict[str, Any]:
    """√(Σ w_i |v_i|²/Σ w_i) and Σ w_i Z_i |v_i|²."""
    speeds = np.sum(velocity**2, axis=1)
    return {"speed": np.sqrt(weights @ speeds / weights.sum()), "dissipation": weights @ (mass * speeds)}


def entropy(probabilities: Rows) -> float:
    """−Σ p log p."""
    positive = probabilities[probabilities > 0]
    return float(-np.sum(positive * np.log(positive)))


def slope(values: Rows, step: float) -> Rows:
    """The derivative in the middle of five equally spaced values, to O(step⁴)."""
    return (values[0] - 8 * values[1] + 8 * values[3] - values[4]) / (12 * step)
