"""What kernels say of themselves: forms, facts and descriptions, against their formulas; and as arguments of JAX."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from particleflow import kernels as k
from particleflow.kernels.description import described
from particleflow.measure import Measure, Sites
from particleflow.summation import Auto, Blockwise, Dense
from particleflow.summation.local_mean import Normalised, local_mean
from shares import by_default

TOLERANCE = {jnp.float64: 1e-12, jnp.float32: 1e-5}
by_case = pytest.mark.parametrize("case", pair_oracles.CASES, ids=pair_oracles.NAMES)
by_compiled_case = pytest.mark.parametrize(
    "case", by_default(pair_oracles.CASES, pair_oracles.CASES[::16]), ids=lambda case: case.name
)

BILINEAR = {
    "attention", "attention with biases", "attention with matrices", "attention with a diagonal and a number",
    "attention in fewer dimensions",
    "cosine", "squared distance attention", "constant", "gaussian", "time gaussian", "encoded by sines",
    "encoded by a table", "feature exponential", "pullback from two spaces", "embedded", "on values", "transposed",
    "symmetrised geometrically", "feature exponential of positions", "pullback with positions", "relative attention",
}  # fmt: skip
RADIAL = {
    "squared distance attention", "gaussian", "laplace", "cauchy", "student", "ball", "epanechnikov", "triangle",
    "window", "alibi", "time gaussian", "encoded by sines", "pullback from two spaces", "on values", "scaled",
    "inverse distance", "pullback with positions", "placed",
}  # fmt: skip
POSITIVE = {
    "attention", "attention with biases", "attention with matrices", "attention with a diagonal and a number",
    "attention in fewer dimensions",
    "cosine", "sigmoid", "sigmoid exponential", "squared distance attention", "constant", "gaussian", "laplace",
    "cauchy", "student", "alibi", "time gaussian", "encoded by sines", "encoded by a table", "feature exponential",
    "pullback from two spaces", "embedded", "on values", "sum", "scaled", "transposed", "symmetrised",
    "symmetrised geometrically", "normalised", "inverse distance", "feature exponential of positions",
    "pullback with positions", "placed", "membership", "fuzzy membership", "linearised attention", "overlap",
    "relative attention",
}  # fmt: skip

QUERY, KEY = jnp.asarray(pair_oracles.QUERY), jnp.asarray(pair_oracles.KEY)
COMPOSED: dict[str, tuple[k.AbstractKernel, bool, bool]] = {
    "gaussian times attention": (k.Gaussian(0.7) * k.Attention(0.4, QUERY, KEY), True, False),
    "three factors": (k.Gaussian(0.7) * k.TimeGaussian(3.0) * k.Cosine(2.0), True, False),
    "times a constant": (k.Attention(0.7) * k.Constant(), True, False),
    "radial factors": (k.Cauchy(0.7) * k.Ball(2.0) * k.Triangle(2.5), False, True),
    "both forms": (k.Gaussian(0.7) * k.Gaussian(1.3), True, True),
    "radial in time": (k.Alibi(0.2) * k.Window(4.0) * k.TimeGaussian(3.0), False, True),
    "space and time": (k.Laplace(0.7) * k.Alibi(0.2), False, False),
    "masked": (k.Attention(0.7) * k.Causal(), False, False),
    "scaled": (2.5 * k.Gaussian(0.7), True, True),
    "scaled product": (0.3 * (k.Gaussian(0.7) * k.Gaussian(1.3)), True, True),
    "transposed distances": (k.Transposed(k.SquaredDistanceAttention(0.3, QUERY, KEY)), True, True),
    "transposed product": (k.Transposed(k.Gaussian(0.7) * k.Attention(0.4, QUERY, KEY)), True, False),
    "symmetrised distances": (k.Symmetrised(k.SquaredDistanceAttention(0.3, QUERY, KEY), "geometric"), True, False),
    "symmetrised gaussian": (k.Symmetrised(k.Gaussian(0.7), "geometric"), True, True),
    "arithmetic mean": (k.Symmetrised(k.Gaussian(0.7)), False, False),
    "mixture": (k.Gaussian(0.7) + k.Gaussian(1.3), False, False),
    "encoded product": (k.Encoded(k.Gaussian(0.7) * k.Gaussian(1.3), k.Sinusoidal(0.5, 100.0)), True, True),
    "encoded twice": (k.Encoded(k.Encoded(k.Gaussian(0.7), k.Sinusoidal(0.5)), k.Sinusoidal(0.2)), True, True),
    "values and points": (k.OnValues(k.Laplace(0.7)) * k.Laplace(0.7), False, False),
    "transposed values": (k.Transposed(k.OnValues(k.Cosine(2.0))), True, False),
    "pulled back": (k.Pullback(k.Laplace(0.7), jnp.tanh, jnp.sin), False, True),
}


def error_of(found: Any, expected: np.ndarray) -> float:
    """The largest error of log K, relative to the larger of its size and one; −∞ must be −∞."""
    found = np.asarray(found, np.float64)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
    seen = ~np.isneginf(expected)
    found, expected = found[seen], expected[seen]
    return float(np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected)), initial=0.0))


# --- forms --------------------------------------------------------------------------------------------------------


def in_both_precisions():
    """Every kernel; in single precision every sixteenth by default."""
    for number, case in enumerate(pair_oracles.CASES):
        yield pytest.param(case, jnp.float64, id=f"{case.name}-float64")
        slow = [pytest.mark.slow] if number % 16 else []
        yield pytest.param(case, jnp.float32, id=f"{case.name}-float32", marks=slow)


@pytest.mark.parametrize(("case", "dtype"), list(in_both_precisions()))
def test_forms_are_the_formula(case, dtype):
    queries, measure = pair_oracles.cloud(case.space, dtype, 11, 17, seed=2)
    kernel, expected = case.build(dtype), pair_oracles.log_matrix(case, queries, measure.sites)
    bilinear, radial = kernel.bilinear(), kernel.radial()
    assert (bilinear is not None) == (case.name in BILINEAR)
    assert (radial is not None) == (case.name in RADIAL)
    for form in (bilinear, radial):
        if form is not None:
            found = form.log_matrix(queries, measure.sites)
            assert found.dtype == dtype
            assert error_of(found, expected) <= TOLERANCE[dtype]
    if bilinear is not None:
        theta, key = bilinear.query_features(queries), bilinear.key_features(measure.sites)
        a, b = bilinear.query_offset(queries), bilinear.key_offset(measure.sites)
        assert theta.shape[1] == key.shape[1]
        assert (a.shape, b.shape) == ((11,), (17,))
        by_hand = np.asarray(theta, float) @ np.asarray(key, float).T + np.asarray(a)[:, None] + np.asarray(b)[None]
        assert error_of(by_hand, expected) <= TOLERANCE[dtype]
    if radial is not None:
        u, v = np.asarray(radial.query_map(queries), float), np.asarray(radial.key_map(measure.sites), float)
        squares = jnp.asarray(((u[:, None] - v[None]) ** 2).sum(-1), dtype)
        assert error_of(radial.log_profile(squares, v.shape[1]), expected) <= TOLERANCE[dtype]


@pytest.mark.parametrize("name", COMPOSED)
def test_forms_are_carried_through_the_algebra(name):
    kernel, is_bilinear, is_radial = COMPOSED[name]
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 11, 17, seed=3)
    expected = np.asarray(kernel.log_matrix(queries, measure.sites))
    for form, offered in ((kernel.bilinear(), is_bilinear), (kernel.radial(), is_radial)):
        assert (form is not None) == offered
        if form is not None:
            assert error_of(form.log_matrix(queries, measure.sites), expected) <= 1e-12


@by_case
def test_factors_multiply_to_the_kernel(case):
    kernel = case.build(jnp.float64)
    parts = kernel.factors()
    assert len(parts) == {"causal attention": 2, "bilateral filter": 3}.get(case.name, 1)
    if len(parts) == 1:
        assert parts[0] is kernel
        return
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 11, 17)
    total = sum(np.asarray(part.log_matrix(queries, measure.sites)) for part in parts)
    assert error_of(total, pair_oracles.log_matrix(case, queries, measure.sites)) <= 1e-12


@pytest.mark.parametrize(
    "wrap",
    [
        lambda kernel: 3.0 * kernel,
        k.Transposed,
        k.OnValues,
        lambda kernel: k.Encoded(kernel, k.Sinusoidal()),
        lambda kernel: k.Pullback(kernel, jnp.sin, jnp.cos),
        lambda kernel: k.Constant() * kernel,
    ],
)
def test_wrapped_products_come_apart_too(wrap):
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 11, 17)
    kernel = wrap(k.Attention(0.7) * (k.Laplace(0.6) * k.Ball(2.0)))
    parts = kernel.factors()
    assert len(parts) == (4 if isinstance(kernel, k.Product) else 3)
    total = sum(np.asarray(part.log_matrix(queries, measure.sites)) for part in parts)
    assert error_of(total, np.asarray(kernel.log_matrix(queries, measure.sites))) <= 1e-12


def test_the_support_is_where_a_radial_kernel_ends():
    kernels = [k.Ball(1.5), k.Epanechnikov(1.9), k.Triangle(1.9), 2.0 * k.Ball(1.5), k.Ball(3.0) * k.Triangle(1.2)]
    for kernel, radius in zip(kernels, [1.5, 1.9, 1.9, 1.5, 1.2], strict=True):
        form = kernel.radial()
        assert form is not None
        assert form.support is not None
        assert float(form.support) == radius
        squares = jnp.square(radius * jnp.array([[0.0, 0.5, 0.999, 1.001, 2.0]]))
        np.testing.assert_array_equal(np.isneginf(form.log_profile(squares, 2))[0], [0, 0, 0, 1, 1])
    window = k.Window(4.0).radial()
    assert window is not None
    assert window.support is not None
    assert float(window.support) == 4.0
    for kernel in (k.Gaussian(1.0), k.Laplace(1.0), k.Alibi(1.0), k.SquaredDistanceAttention(1.0)):
        form = kernel.radial()
        assert form is not None
        assert form.support is None


def test_smallest_support_fits_float32():
    points = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), jnp.float32)
    form = (k.Ball(3.0) * k.Triangle(1.2)).radial()
    assert form is not None
    assert form.support is not None
    assert (points / form.support).dtype == jnp.float32


DIFFERENTIATED = [k.Gaussian(0.9), k.Attention(1.2) * k.Cosine(0.4), k.SquaredDistanceAttention(0.4, QUERY, KEY)]


@pytest.mark.parametrize("kernel", by_default(DIFFERENTIATED, DIFFERENTIATED[1:2]), ids=["one", "product", "matrices"])
def test_forms_are_differentiable_and_compiled(kernel):
    points = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)))

    @jax.jit
    def slope(kernel):
        form = kernel.bilinear()
        return jax.grad(lambda x: jnp.sum(jnp.sin(form.log_matrix(x, points))))(points + 0.1)

    @jax.jit
    def expected(kernel):
        return jax.grad(lambda x: jnp.sum(jnp.sin(kernel.log_matrix(x, points))))(points + 0.1)

    np.testing.assert_allclose(slope(kernel), expected(kernel), rtol=1e-9, atol=1e-10)


class SquaredProducts(k.AbstractMatrixKernel):
    """K(x, y) = exp(c ⟨x, y⟩² − |y|), bilinear in the products of coordinates."""

    c: jax.Array

    def log_matrix(self, xs: Any, ys: Any) -> jax.Array:
        return self.bilinear().log_matrix(xs, ys)

    def bilinear(self) -> k.Bilinear:
        def squares(sites: Any) -> jax.Array:
            return jnp.einsum("ni,nj->nij", k.points_of(sites), k.points_of(sites)).reshape(-1, 9)

        def offset(sites: Any) -> jax.Array:
            return -jnp.linalg.norm(k.points_of(sites), axis=1)

        return k.Bilinear(lambda xs: self.c * squares(xs), squares, key_offset=offset)


OWN_SUMS = [None, Dense(), Blockwise(3, 4), Auto(dense_bytes=8), Auto(tolerance=1e-9)]


@pytest.mark.parametrize("summation", by_default(OWN_SUMS, [None, Blockwise(3, 4)]))
def test_a_bilinear_kernel_of_ones_own(summation):
    rng = np.random.default_rng(4)
    x, y, values = rng.normal(size=(5, 3)), rng.normal(size=(11, 3)), rng.normal(size=(11, 2))
    kernel = SquaredProducts(jnp.asarray(0.3))
    logits = 0.3 * (x @ y.T) ** 2 - np.linalg.norm(y, axis=1) - np.log(11)
    found = jax.jit(local_mean)(kernel, Measure.uniform(y, values=values), x, summation=summation)
    np.testing.assert_allclose(found, pair_oracles.moments(logits, values)[1], rtol=1e-12, atol=1e-14)
    form = (2.0 * kernel * k.Gaussian(0.8)).bilinear()
    assert form is not None
    squares = ((x[:, None] - y[None]) ** 2).sum(-1)
    expected = logits + np.log(11) + np.log(2.0) - squares / (2 * 0.64)
    np.testing.assert_allclose(form.log_matrix(x, y), expected, rtol=1e-12, atol=1e-12)
    assert kernel.vanishes()  # as long as nothing is known
    assert kernel.radial() is None
    assert kernel.inverse_temperature() is None


# --- facts --------------------------------------------------------------------------------------------------------


@by_compiled_case
def test_a_kernel_that_never_vanishes_never_does(case):
    kernel = case.build(jnp.float64)
    assert kernel.vanishes() == (case.name not in POSITIVE)
    if kernel.vanishes():
        return
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 11, 17, seed=5)
    sizes = [1.0] if case.space in ("letters", "rules", "fuzzy inputs") else [0.0, 1.0, 1e-9, 1e3]
    reach = 1.0 if case.name == "normalised" else 1e3  # its own measure is far from far queries, but never unseen
    for size in sizes:
        far = queries._replace(points=min(size, reach) * queries.points)
        near = Sites(size * measure.points, measure.positions, measure.values)
        assert np.isfinite(kernel.log_matrix(far, near)).all()


@by_case
def test_a_kernel_that_vanishes_does_so_somewhere(case):
    kernel = case.build(jnp.float64)
    if not kernel.vanishes() or case.name in ("self-localized", "three points"):
        return  # nobody knows what a function of one's own does
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 11, 17, seed=2)
    sources = measure.sites if case.name != "feature product" else measure.sites._replace(points=0 * measure.points)
    assert np.isneginf(kernel.log_matrix(queries, sources)).any()


def test_what_vanishes_in_the_algebra():
    assert not (k.Gaussian(1.0) + k.Ball(1.0)).vanishes()
    assert (k.Ball(1.0) + k.Ball(2.0)).vanishes()
    assert k.Mixture((k.Gaussian(1.0), k.Ball(1.0)), (0.0, 1.0)).vanishes()
    assert (0.0 * k.Gaussian(1.0)).vanishes()
    assert (k.Gaussian(1.0) * k.Causal()).vanishes()
    assert not Normalised(k.Gaussian(1.0), Measure.uniform(np.ones((2, 1)))).vanishes()
    # Inside `jit` a factor is not known, and a kernel that may vanish says so.
    found: list[bool] = []
    jax.jit(lambda kernel: found.append(kernel.vanishes()))(2.0 * k.Gaussian(1.0))
    assert found == [True]


def test_inverse_temperatures():
    numbers = [
        (k.Attention(1.7), 1.7),
        (k.Attention(0.0), 0.0),
        (k.Cosine(3.0), 3.0),
        (k.Sigmoid(1.3), 1.3),
        (k.Rectified(1.1), 1.1),
        (k.SquaredDistanceAttention(0.4), 0.4),
        (k.Gaussian(0.5), 4.0),
        (k.Laplace(0.5), 4.0),
        (k.Cauchy(0.5), 4.0),
        (k.StudentT(0.5, 3.0), 4.0),
        (k.TimeGaussian(0.5), 4.0),
        (k.Causal() * k.Attention(1.7) * k.Gaussian(0.5), 1.7),
        (3.0 * k.Gaussian(0.5), 4.0),
        (k.Transposed(k.Attention(1.7)), 1.7),
        (k.Symmetrised(k.Attention(1.7)), 1.7),
        (k.Encoded(k.Gaussian(0.5), k.Sinusoidal()), 4.0),
        (k.OnValues(k.Gaussian(0.5)), 4.0),
        (k.Pullback(k.Attention(1.7), jnp.sin, jnp.cos), 1.7),
    ]
    for kernel, expected in numbers:
        beta = kernel.inverse_temperature()
        assert beta is not None
        np.testing.assert_allclose(beta, expected, rtol=1e-15)
    for kernel in (k.Ball(1.0), k.Constant(), k.Causal(), k.Alibi(1.0), k.Gaussian(1.0) + k.Gaussian(2.0)):
        assert kernel.inverse_temperature() is None


@by_case
def test_descriptions_are_json(case):
    description = described(case.build(jnp.float64))
    assert json.loads(json.dumps(description, allow_nan=False)) == description
    assert description["form"] in ("inner", "distance", "positional", "other")


def test_descriptions_say_what_a_kernel_is():
    matrix = [[1.0, 2.0], [3.0, 4.0]]
    attention = {"kind": "attention", "form": "inner", "beta": 2.0, "query": matrix, "key": [5.0, 6.0]}
    kernel = k.Attention(2.0, np.array(matrix), np.array([5.0, 6.0]))
    assert described(kernel) == attention
    assert described(k.StudentT(0.5, 3.0)) == {
        "kind": "student_t", "form": "distance", "width": 0.5, "freedom": 3.0
    }  # fmt: skip
    assert described(kernel * k.Causal()) == {
        "kind": "product", "form": "other", "kernels": [attention, {"kind": "causal", "form": "positional"}]
    }  # fmt: skip
    encoded = described(k.Encoded(k.Constant(), k.Sinusoidal(0.5, 100.0)))
    assert encoded["encoding"] == {"kind": "sinusoidal", "scale": 0.5, "base": 100.0}
    assert encoded["kernel"] == {"kind": "constant", "form": "other"}
    assert described(k.Symmetrised(k.Constant(), "geometric"))["mean"] == "geometric"
    assert described(k.Discrete(np.array([[0.0, -np.inf]])))["log_table"] == [[0.0, "-inf"]]
    table = described(k.Embedded(np.zeros((64, 65)), np.zeros((64, 65))[:63]))
    assert table["omitted"] == ["query_table"]
    assert np.shape(table["key_table"]) == (63, 65)
    functions = described(k.Pullback(k.Gaussian(1.0), jnp.sin, jnp.cos))
    assert functions["omitted"] == ["key_map", "query_map"]


# --- kernels as arguments -----------------------------------------------------------------------------------------


@by_compiled_case
def test_every_kernel_is_an_argument_of_jit_and_grad(case):
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 4, 6)
    kernel = case.build(jnp.float64)
    found = jax.jit(lambda kernel: kernel.log_matrix(queries, measure.sites))(kernel)
    assert error_of(found, pair_oracles.log_matrix(case, queries, measure.sites)) <= 1e-12
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree_util.tree_leaves(kernel))

    def mass(kernel):
        return jnp.sum(jnp.exp(kernel.log_matrix(queries, measure.sites)))

    for leaf in jax.tree_util.tree_leaves(jax.jit(jax.grad(mass))(kernel)):
        assert np.isfinite(leaf).all()


@by_compiled_case
def test_every_kernel_is_mapped_over_its_parameters(case):
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 4, 6)
    kernel = case.build(jnp.float64)
    if not jax.tree_util.tree_leaves(kernel):
        return
    twice = jax.tree_util.tree_map(lambda leaf: jnp.stack([leaf, leaf]), kernel)
    found = jax.vmap(lambda kernel: kernel.log_matrix(queries, measure.sites))(twice)
    expected = pair_oracles.log_matrix(case, queries, measure.sites)
    for matrix in found:
        assert error_of(matrix, expected) <= 1e-12


@pytest.mark.slow
def test_a_sweep_over_a_parameter_is_a_vmap():
    points = jnp.asarray(np.random.default_rng(7).normal(size=(5, 2)))
    betas = jnp.array([0.5, 2.0, 9.0])
    found = jax.vmap(lambda beta: (k.Attention(beta) * k.Gaussian(1 / beta)).log_matrix(points, points))(betas)
    x = np.asarray(points)
    squares = ((x[:, None] - x[None]) ** 2).sum(-1)
    for matrix, beta in zip(found, np.asarray(betas), strict=True):
        np.testing.assert_allclose(matrix, beta * x @ x.T - squares * beta**2 / 2, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", by_default(["features", "images", "two points"], ["images"]))
def test_networks_inside_kernels_are_differentiated(name):
    drawn = eqx.filter_jit(lambda key: eqx.nn.MLP(2, 3, 8, 1, activation=jnp.tanh, key=key))
    network = drawn(jax.random.key(0))
    points = jnp.asarray(np.random.default_rng(8).normal(size=(5, 2)))
    kernel = {
        "features": k.FeatureExponential(network, network),
        "images": k.Pullback(k.Gaussian(1.0), network, network),
        "two points": k.SelfLocalized(Learned(jnp.asarray(0.4))),
    }[name]
    sites = Sites(points, None, points)

    def mass(kernel):
        return jnp.sum(jnp.exp(kernel.log_matrix(sites, sites)))

    gradients = jax.tree_util.tree_leaves(jax.jit(jax.grad(mass))(kernel))
    assert gradients
    assert max(float(np.abs(leaf).max()) for leaf in gradients) > 1e-3


class Learned(eqx.Module):
    """A function with a parameter."""

    slope: jax.Array

    def __call__(self, x, fx, y, fy):
        return -self.slope * (jnp.sum(jnp.square(x - y)) + jnp.sum(jnp.abs(fx - fy)))
