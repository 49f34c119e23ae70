"""Exact identities: layer norm is a sphere, attention is a gradient and a MeanShift, hardmax contracts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, kernels
from particleflow.measure import Sites


@eqx.filter_jit
def _velocity(flow, measure):
    return flow.velocity(0.0, measure.points, measure)


@eqx.filter_jit
def _layer(flow, measure, step):
    return flow.step(0.0, measure.points, measure, step)


@eqx.filter_jit
def _values(drift, query, measure):
    return drift(0.0, query, measure)


def velocity(flow, points):
    return np.asarray(_velocity(flow, pf.Measure.uniform(points)))


def test_layer_norm_is_a_sphere_of_one_dimension_less():
    count, dimension, beta = 7, 5, 0.4
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(np.concatenate([np.ones((dimension, 1)), rng.normal(size=(dimension, 4))], 1))[0][:, 1:]
    units = oracle.random_sphere(1, count, dimension - 1)
    points = np.sqrt(dimension) * units @ basis.T
    normed = velocity(pf.Flow(pf.Attend(kernels.Attention(beta=beta)), geometry=pf.LayerNorm()), points)
    sphere = velocity(pf.Flow(pf.Attend(kernels.Attention(beta=beta * dimension)), geometry=pf.Sphere()), units)
    assert np.max(np.abs(normed @ basis / np.sqrt(dimension) - sphere)) < 1e-15
    assert np.max(np.abs(normed.sum(axis=1))) < 4e-15


def log_partition(query, points, beta):
    """log Σ_j e^{β⟨q, x_j⟩}, complex queries allowed."""
    return np.log(np.sum(np.exp(beta * (points @ query))))


def test_attention_is_the_gradient_of_the_log_partition_function():
    rng = np.random.default_rng(2)
    points, queries, beta = rng.normal(size=(9, 3)), rng.normal(size=(4, 3)), 1.7
    drift = pf.Attend(kernels.Attention(beta=beta))
    measure = pf.Measure.uniform(points)
    found = np.asarray(_values(drift, Sites(jnp.asarray(queries)), measure))
    jacobian = jax.jit(jax.jacfwd(lambda q: drift(0.0, Sites(q[None, :]), measure)[0]))
    for query, output in zip(queries, found, strict=True):
        steps = 1e-30j * np.eye(3)
        gradient = np.array([log_partition(query + step, points, beta).imag / 1e-30 for step in steps])
        assert np.max(np.abs(output - gradient / beta)) < 1e-12
        shares = np.exp(beta * points @ query - log_partition(query, points, beta))
        centred = points - shares @ points
        expected = beta * centred.T @ (shares[:, None] * centred)
        assert np.max(np.abs(np.asarray(jacobian(jnp.asarray(query))) - expected)) < 1e-10


def test_softmax_attention_on_the_sphere_is_mean_shift():
    beta = 3.0
    points = oracle.random_sphere(4, 10, 4)

    def log_density(x):
        return np.log(np.sum(np.exp(-beta / 2 * np.sum((x - points) ** 2, axis=1))))

    steps = 1e-30j * np.eye(4)
    gradient = np.array([[log_density(x + step).imag / 1e-30 for step in steps] for x in points])
    expected = oracle.tangent(points, gradient) / beta
    width = beta**-0.5
    for drift in (
        pf.Attend(kernels.Attention(beta=beta)),
        pf.MeanShift(kernels.Gaussian(width)),
        pf.LogNormalizerAscent(kernels.Gaussian(width)),
        pf.LogNormalizerAscent(kernels.Attention(beta=beta), rate=1 / beta),
    ):
        assert np.max(np.abs(velocity(pf.Flow(drift, geometry=pf.Sphere()), points) - expected)) < 1e-12


def hardmax_layer(points, alpha, tolerance=1e-9):
    """z ← (z + α · mean of the leaders)/(1 + α), leaders within `tolerance` of the best score."""
    scores = points @ points.T
    moved = []
    for point, row in zip(points, scores, strict=True):
        moved.append((point + alpha * points[row >= row.max() - tolerance].mean(axis=0)) / (1 + alpha))
    return np.array(moved)


def test_hardmax_contracts_exactly_towards_the_leaders():
    alpha = 0.5
    start = np.random.default_rng(7).normal(size=(12, 2))
    flow = pf.Flow(drifts.Hardmax(pull=1.0))
    step = alpha / (1 + alpha)
    expected = after = start
    for _ in range(8):
        before, after = after, np.asarray(_layer(flow, pf.Measure.uniform(after), step))
        expected = hardmax_layer(expected, alpha)
        assert np.max(np.abs(after - expected)) < 1e-13
        leaders = before[np.argmax(before @ before.T, axis=1)]
        distances = np.linalg.norm(before - leaders, axis=1), np.linalg.norm(after - leaders, axis=1)
        assert np.max(np.abs(distances[1] - distances[0] / (1 + alpha))) < 1e-14


def test_hardmax_ties_are_decided_by_tolerance():
    """Two leaders whose scores differ by rounding only count alike; floats that happen to be equal do not decide."""
    points = np.array([[0.1, 0.0], [0.1 + 0.2, 1.0], [0.3, -1.0]])
    assert points[1, 0] != points[2, 0]
    measure, query = pf.Measure.uniform(points), Sites(jnp.asarray(points[:1]))
    leader = np.asarray(_values(drifts.Hardmax(tolerance=1e-9), query, measure))[0]
    assert np.max(np.abs(leader - points[1:].mean(axis=0))) < 1e-15
    sharp = np.asarray(_values(drifts.Hardmax(tolerance=0.0), query, measure))[0]
    assert np.max(np.abs(sharp - points[1])) == 0


@pytest.mark.slow
def test_hardmax_is_the_limit_of_attention():
    points = oracle.random_sphere(3, 8, 3) * np.linspace(0.7, 1.3, 8)[:, None]
    hard = velocity(pf.Flow(drifts.Hardmax()), points)
    soft = velocity(pf.Flow(pf.Attend(kernels.Attention(beta=4000.0))), points)
    assert np.max(np.abs(hard - soft)) < 1e-10


@pytest.mark.slow
def test_six_local_means_are_six_layers_of_attention_without_anything_else():
    """torch's attention, Q = K = V = 1, causal, six times; with the residual of a transformer it is another map."""
    torch = pytest.importorskip("torch")
    start = np.random.default_rng(5).normal(size=(12, 4))
    kernel = kernels.Attention(0.5) * kernels.Causal()  # β = 1/√d
    measure = pf.Measure.uniform(start, positions=np.arange(12.0))
    run = pf.simulate(pf.Flow(pf.MeanShift(kernel)), measure, np.arange(7.0), step=1.0, solver="map")
    x = residual = torch.asarray(start)[None]
    for layer in range(7):
        np.testing.assert_allclose(run.points[layer], x[0].numpy(), atol=1e-12)
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        residual = residual + torch.nn.functional.scaled_dot_product_attention(
            residual, residual, residual, is_causal=True
        )
    spread = [np.asarray(run.points[layer]).std(axis=0).max() for layer in (0, 6)]
    assert spread[1] < 0.5 * spread[0]  # means of means contract; residuals do not
    assert float(residual.std()) > 2 * float(torch.asarray(start).std())
