"""Finite volumes: meshes, limited faces, sums by transforms, and the order of the scheme on known solutions."""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.special import iv

import particleflow as pf
import volumes_oracles as oracle
from particleflow import drifts, kernels, summation
from particleflow.discretization import FiniteVolumes
from particleflow.discretization.density.finite_volumes import (
    Box,
    Circle,
    GridConvolution,
    NodeInterpolation,
    VoronoiSphere,
)
from particleflow.discretization.density.finite_volumes.mesh import mesh_places
from particleflow.dynamics.initial import CircleWave, Density, VonMisesFisher
from shares import by_default


def box(low: list[float], high: list[float], sides: tuple[int, ...], closed: bool) -> Box:
    return Box(low=jnp.asarray(low), high=jnp.asarray(high), sides=sides, closed=(closed,) * len(sides))


MESHES: dict[str, Any] = {
    "circle": lambda: Circle.of(jnp.asarray(2.0), 24),
    "line": lambda: box([-1.0], [2.0], (24,), False),
    "plane": lambda: box([-1.0, 0.0], [2.0, 1.0], (12, 9), False),
    "torus": lambda: box([-1.0, 0.0], [2.0, 1.0], (12, 9), True),
    "sphere": lambda: VoronoiSphere.of(jnp.asarray(2.0), 60),
}
TOTALS = {"circle": 4 * np.pi, "line": 3.0, "plane": 3.0, "torus": 3.0, "sphere": 16 * np.pi}


@pytest.mark.parametrize("name", MESHES)
def test_cells_tile_the_space_and_fluxes_only_move_mass(name):
    mesh = MESHES[name]()
    volumes = np.asarray(mesh_places(mesh).volumes)
    assert abs(volumes.sum() - TOTALS[name]) < 1e-12
    random = np.random.default_rng(0)
    flux = random.normal(size=len(mesh_places(mesh).faces))
    density = random.uniform(size=mesh.count) * (random.uniform(size=mesh.count) < 0.5)

    @eqx.filter_jit
    def asked(mesh, flux, density):
        level = jnp.ones_like(density)
        return (
            mesh.onto_cells(-flux, flux),
            mesh.reconstructed(density),
            mesh.beside(density),
            mesh.reconstructed(level),
        )

    moved, sides, cells, level = jax.tree.map(np.asarray, asked(mesh, jnp.asarray(flux), jnp.asarray(density)))
    assert abs(np.sum(volumes * moved)) < 1e-12
    for side, cell in zip(sides, cells, strict=True):
        assert side.min() >= 0
        assert side[cell == 0].max() == 0  # what is empty gives nothing away
    assert np.allclose(level, 1, atol=1e-14)


@pytest.mark.parametrize("name", MESHES)
def test_points_are_found_in_the_cells_they_are_the_middles_of(name):
    mesh = MESHES[name]()
    nodes = mesh.nodes()
    assert np.array_equal(mesh.containing(np.asarray(mesh_places(mesh).centres)), np.arange(mesh.count))
    assert np.allclose(nodes.weights.sum(axis=1), 1, atol=1e-12)
    inside = nodes.weights > 0
    cells = np.broadcast_to(np.arange(mesh.count)[:, None], inside.shape)[inside]
    assert np.array_equal(mesh.containing(nodes.points[inside]), cells)


def test_a_sphere_in_cells_has_the_divergence_of_a_gradient():
    """div P e = −2⟨e, x⟩/R² for a fixed vector e, to second order in the size of cells."""
    errors = []
    for count in (100, 400):
        mesh = VoronoiSphere.of(jnp.asarray(1.0), count)
        assert mesh.left.shape == (3 * count - 6,)  # Euler: every vertex has three arcs
        axis, faces = np.array([0.2, 1.0, -0.5]), np.asarray(mesh.unit_faces)
        field = axis - faces * (faces @ axis)[:, None]
        out = jnp.asarray(np.sum(field * np.asarray(mesh.unit_normals), axis=1))
        found = np.asarray(eqx.filter_jit(lambda mesh, out: mesh.onto_cells(out, -out))(mesh, out))
        errors.append(float(np.mean(np.abs(found + 2 * np.asarray(mesh.unit_centres) @ axis))))
    assert oracle.order_of(errors) > 1.7
    assert errors[-1] < 4e-3


KERNELS: dict[str, Any] = {
    "attention": kernels.Attention(beta=5.0),
    "narrow attention": kernels.Attention(beta=12.0),
    "gaussian": kernels.Gaussian(0.8),
    "product": kernels.Cauchy(0.5) * kernels.Cosine(2.0),
}


def differences(kernel: Any, how: FiniteVolumes, geometry: Any, dimension: int, expected: type) -> float:
    """The largest difference of sums by `expected` from those over all pairs; nearly all mass is in one place."""
    flow = pf.Flow(pf.Attend(kernel, normalization="none"), geometry=geometry)
    mesh = how.mesh(flow, dimension)
    weights = np.random.default_rng(1).uniform(size=mesh.count) ** 40
    weights[mesh.count // 2 :] = 0
    where = mesh_places(mesh)
    measure = pf.Measure.weighted(where.centres, weights / weights.sum())
    found = how.specialise_sums(flow, measure).interactions(0.0)[0].summation
    assert isinstance(found, expected)
    largest = 0.0
    for queries in (where.centres, where.faces):
        some = np.arange(0, len(queries), 1 + len(queries) // 1500)
        ours = eqx.filter_jit(found.moments)(kernel, measure, queries)
        exact = eqx.filter_jit(summation.Dense().moments)(kernel, measure, queries[some])
        for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(exact), strict=True):
            largest = max(largest, float(np.max(np.abs(np.asarray(mine)[some] - np.asarray(other)))))
    return largest


@pytest.mark.parametrize("name", by_default(KERNELS, ["attention"]))
def test_sums_by_transforms_are_those_over_all_pairs_on_the_circle(name):
    sphere = pf.Sphere(1.5 if name == "gaussian" else 1.0)
    assert differences(KERNELS[name], FiniteVolumes(1024), sphere, 2, GridConvolution) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2])
def test_sums_by_transforms_are_those_over_all_pairs_in_boxes(dimension):
    how = FiniteVolumes(700, -2.0, 2.0) if dimension == 1 else FiniteVolumes(1100, [-2, -1], [2, 1.5])
    assert differences(kernels.Gaussian(2.0), how, pf.Euclidean(), dimension, GridConvolution) < 1e-12


SMOOTH: dict[str, Any] = {
    "attention": (kernels.Attention(beta=1.0), 3000, 1.0),
    "sharper attention": (kernels.Attention(beta=5.0), 10_000, 1.0),
    "queries and keys": (kernels.Attention(beta=1.5, query=np.random.default_rng(2).normal(size=(3, 3))), 10_000, 1.0),
    "gaussian": (kernels.Gaussian(1.0), 6000, 1.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_sums_by_nodes_are_those_over_all_pairs_on_the_sphere(name):
    kernel, cells, radius = SMOOTH[name]
    assert differences(kernel, FiniteVolumes(cells), pf.Sphere(radius), 3, NodeInterpolation) < 1e-12


@pytest.mark.slow
def test_sums_by_nodes_in_single_precision():
    """Those of double precision to rounding: 1e-7 times the number of operations that a sum goes through."""
    volumes, kernel = FiniteVolumes(4000), kernels.Attention(beta=np.float32(2.0))
    flow = pf.Flow(pf.Attend(kernel, normalization="none"), geometry=pf.Sphere(np.float32(1.0)))
    mesh = volumes.mesh(flow, 3, np.float32)
    where = mesh_places(mesh)
    measure = pf.Measure.uniform(where.centres)
    found = volumes.specialise_sums(flow, measure).interactions(0.0)[0].summation
    assert isinstance(found, NodeInterpolation)
    ours = eqx.filter_jit(found.moments)(kernel, measure, where.faces)
    assert ours.mean.dtype == np.float32
    some = np.asarray(where.faces, float)[::20]
    exact = summation.Dense().moments(
        kernels.Attention(2.0), pf.Measure.uniform(np.asarray(where.centres, float)), some
    )
    assert np.max(np.abs(np.asarray(ours.mean)[::20] - np.asarray(exact.mean))) < 1e-5
    assert np.max(np.abs(np.asarray(ours.log_mass)[::20] - np.asarray(exact.log_mass))) < 1e-5


@pytest.mark.slow
def test_nodes_are_used_only_where_they_are_right_and_asked_for():
    volumes = FiniteVolumes(3000)

    def prepared(flow: pf.Flow) -> pf.Flow:
        return volumes.specialise_sums(flow, volumes.project(flow, VonMisesFisher([0.0, 0.6, 0.8], 3.0)))

    def chosen(kernel: Any, how: Any = None) -> str:
        flow = pf.Flow(pf.Attend(kernel, summation=how), geometry=pf.Sphere())
        return type(prepared(flow).interactions(0.0)[0].summation).__name__

    assert chosen(kernels.Attention(beta=1.0)) == "NodeInterpolation"
    assert chosen(kernels.Attention(beta=1.0), summation.Dense()) == "Dense"
    assert [chosen(each) for each in (kernels.Laplace(0.5), kernels.Ball(0.5))] == ["Auto"] * 2  # a kink, a jump
    assert chosen(kernels.Attention(beta=60.0)) == "Auto"  # so many nodes would be no gain
    ramp = drifts.Varying(pf.Attend(kernels.Attention(beta=1.0)), drifts.Ramp(1.0, 40.0, 1.0), "kernel.beta")
    flow = pf.Flow(ramp, geometry=pf.Sphere())
    state = volumes.begin(flow, volumes.project(flow, VonMisesFisher([0.0, 0.6, 0.8], 3.0)))
    fast, plain = (
        eqx.filter_jit(volumes.velocity)(each, jnp.asarray(1.0), state).density for each in (prepared(flow), flow)
    )
    assert float(jnp.max(jnp.abs(fast - plain))) < 1e-11 * float(jnp.max(jnp.abs(plain)))


def test_transforms_are_used_only_where_they_are_right_and_asked_for():
    volumes = FiniteVolumes(512)

    def chosen(kernel: Any, how: Any = None) -> str:
        flow = pf.Flow(pf.Attend(kernel, summation=how), geometry=pf.Sphere())
        laid = volumes.project(flow, CircleWave())
        return type(volumes.specialise_sums(flow, laid).interactions(0.0)[0].summation).__name__

    assert chosen(kernels.Attention(beta=3.0)) == "GridConvolution"
    assert chosen(kernels.Attention(beta=3.0), summation.Dense()) == "Dense"
    assert chosen(kernels.Attention(beta=3.0, query=[1.0, 1.01])) == "Auto"
    assert chosen(kernels.Ball(0.5)) == "Auto"  # a kernel that vanishes has no range


@pytest.mark.slow
def test_all_pairs_are_summed_when_a_schedule_leaves_what_was_chosen():
    volumes = FiniteVolumes(512)
    ramp = drifts.Varying(pf.Attend(kernels.Attention(beta=1.0)), drifts.Ramp(1.0, 60.0, 1.0), "kernel.beta")
    flow = pf.Flow(ramp, geometry=pf.Sphere())
    laid = volumes.project(flow, oracle.poisson(0.9))
    state = volumes.begin(flow, laid)
    fast, plain = (
        eqx.filter_jit(volumes.velocity)(each, jnp.asarray(1.0), state).density
        for each in (volumes.specialise_sums(flow, laid), flow)
    )
    assert float(jnp.max(jnp.abs(fast - plain))) < 1e-11 * float(jnp.max(jnp.abs(plain)))


GROWTH = {
    "none": lambda k, beta: k**2 * iv(k, beta) / beta,
    "row": lambda k, beta: k**2 * iv(k, beta) / (beta * iv(0, beta)),
    "sinkhorn": lambda k, beta: k**2 * iv(k, beta) / (beta * (iv(0, beta) + iv(k, beta))),
}


def rate_of(flow: pf.Flow, mode: int, cells: int, amplitude: float = 1e-6) -> float:
    """How fast a wave on the uniform circle grows, from the rate of the scheme."""
    volumes = FiniteVolumes(cells)
    laid = volumes.project(flow, CircleWave(mode, amplitude))
    state = volumes.begin(flow, laid)
    flow = volumes.specialise_sums(flow, laid)
    rate = jax.jit(lambda state: volumes.velocity(flow, 0.0, state).density)(state)
    wave = np.cos(2 * np.pi * mode * np.arange(cells) / cells)
    return float(2 * np.pi * np.mean(2 * wave * np.asarray(rate)) / amplitude)


@pytest.mark.slow
@pytest.mark.parametrize("normalization", GROWTH)
def test_waves_on_the_circle_grow_as_theory_says(normalization):
    """Growth rates of modes to second order in the size of cells; by Richardson's extrapolation much nearer still."""
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=5.0), normalization=normalization), geometry=pf.Sphere())
    expected = GROWTH[normalization](3, 5.0)
    coarse, fine = (rate_of(flow, 3, cells) for cells in (128, 256))
    assert 3.8 < (coarse - expected) / (fine - expected) < 4.2
    assert abs((4 * fine - coarse) / 3 / expected - 1) < 1e-5
    assert abs(fine / expected - 1) < 5e-3


def test_repulsion_is_heat_flow_at_large_beta_and_without_normalisation_a_porous_medium():
    """As β → ∞: rates −k²/β of softmax, and ∂ρ/∂t = (c/2) Δρ², c = e^β √(2π/β)/β, without normalisation."""
    heat = [rate_of(_repelling(beta, "row"), 2, 512) * beta / -4 for beta in (100.0, 400.0)]
    assert abs(heat[0] - iv(2, 100.0) / iv(0, 100.0)) < 2e-3  # the exact rate at this β
    assert abs(heat[1] - 1) < 0.3 * abs(heat[0] - 1)
    volumes, errors = FiniteVolumes(512), []
    angles = 2 * np.pi * np.arange(512) / 512
    for beta in (100.0, 400.0):
        flow = _repelling(beta, "none")
        laid = volumes.project(flow, CircleWave(1, 0.5))
        rate = eqx.filter_jit(volumes.velocity)(flow, 0.0, volumes.begin(flow, laid)).density
        scale = np.exp(beta) * np.sqrt(2 * np.pi / beta) / beta / (2 * np.pi) ** 2
        expected = 0.5 * scale * (-np.cos(angles) - 0.5 * np.cos(2 * angles))  # ½ (ρ²)'' for 1 + ½ cos θ
        errors.append(float(np.max(np.abs(rate - expected)) / np.max(np.abs(expected))))
    assert errors[0] < 0.05
    assert errors[1] < 0.3 * errors[0]


def _repelling(beta: float, normalization: Any) -> pf.Flow:
    return pf.Flow(pf.Attend(kernels.Attention(beta=beta), -1.0, normalization), geometry=pf.Sphere())


SPIN = np.array([[0.0, -0.5, 0.3], [0.5, 0.0, -0.7], [-0.3, 0.7, 0.0]])


def _circle(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """β = 0 from a Poisson density stays one."""
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=0.0)), geometry=pf.Sphere())
    volumes = FiniteVolumes(cells)
    found = oracle.stepped(volumes, flow, oracle.poisson(0.3), 2.0, cells // 2)
    return found, oracle.masses_of(volumes, flow, oracle.poisson(oracle.kuramoto_order(2.0, 0.3)))


def _line(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """MeanShift of itself keeps a Gaussian one: d log σ + (β/2) dσ² = −dt."""
    flow, volumes = pf.Flow(pf.MeanShift(kernels.Gaussian(1.0))), FiniteVolumes(cells, -6.0, 6.0)
    width = 0.7
    end = -np.log(width) - 0.5 * (width**2 - 1)
    found = oracle.stepped(volumes, flow, oracle.normal(np.zeros(1), np.eye(1)), end, cells // 4)
    return found, oracle.masses_of(volumes, flow, oracle.normal(np.zeros(1), width**2 * np.eye(1)))


def _noise(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """An Ornstein–Uhlenbeck process from its own kind: variance e^{−2t} s² + T(1 − e^{−2t})."""
    flow, volumes = pf.Flow(drifts.Linear(-1.0), temperature=0.5), FiniteVolumes(cells, -5.0, 5.0)
    spread = 0.25 * np.exp(-1.0) + 0.5 * (1 - np.exp(-1.0))
    found = oracle.stepped(volumes, flow, oracle.normal(np.zeros(1), 0.25 * np.eye(1)), 0.5, cells**2 // 20)
    return found, oracle.masses_of(volumes, flow, oracle.normal(np.zeros(1), spread * np.eye(1)))


def _plane(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """A linear field takes N(m, C) to N(e^A m, e^A C e^{Aᵀ})."""
    matrix = np.array([[-0.3, -1.0], [0.8, 0.1]])
    flow, volumes = pf.Flow(drifts.Linear(matrix)), FiniteVolumes(cells**2, -4.0, 4.0)
    push, mean, spread = expm(matrix), np.array([0.6, -0.3]), np.array([[0.3, 0.1], [0.1, 0.4]])
    found = oracle.stepped(volumes, flow, oracle.normal(mean, spread), 1.0, cells)
    return found, oracle.masses_of(volumes, flow, oracle.normal(push @ mean, push @ spread @ push.T))


def _sphere(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """A rotation turns a density as a whole."""
    flow, volumes = pf.Flow(drifts.Linear(SPIN), geometry=pf.Sphere()), FiniteVolumes(cells)
    mean = np.array([0.6, 0.0, 0.8])
    found = oracle.stepped(volumes, flow, oracle.fisher(mean, 4.0), 1.0, int(2 * cells**0.5))
    return found, oracle.masses_of(volumes, flow, oracle.fisher(expm(SPIN) @ mean, 4.0))


ORDERS: dict[str, Any] = {
    "circle": (_circle, (64, 128), 2.0, 1.9),
    "line": (_line, (60, 120), 2.0, 1.9),
    "noise": (_noise, (40, 80), 2.0, 1.9),
    "plane": (_plane, (48, 96), 2.0, 1.9),
    "sphere": (_sphere, (1000, 4000), 2.0, 1.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDERS)
def test_smooth_solutions_are_met_to_second_order(name):
    solved, sizes, factor, least = ORDERS[name]
    errors = []
    for cells in sizes:
        found, expected = solved(cells)
        assert abs(found.sum() - 1) < 1e-12
        assert found.min() >= 0
        errors.append(float(np.abs(found - expected).sum()))
    assert oracle.order_of(errors, factor) > least, errors


@pytest.mark.slow
def test_a_torus_carries_a_wave_around_and_noise_damps_it():
    """∂ρ + c·∇ρ = TΔρ on the unit torus: a wave moves with c and decays like e^{−4π²T|k|²t}."""
    volumes = FiniteVolumes(48**2, 0.0, 1.0, periodic=True)
    flow = pf.Flow(drifts.FeedForward(np.zeros((2, 2)), output_bias=np.array([1.0, -0.5])), temperature=0.01)

    def wave(shift: np.ndarray, amplitude: float) -> Density:
        def values(points: np.ndarray) -> np.ndarray:
            return 1 + amplitude * np.cos(2 * np.pi * (points - shift) @ np.array([1.0, 1.0]))

        return Density("flat", 2, values)

    found = oracle.stepped(volumes, flow, wave(np.zeros(2), 0.5), 0.5, 100)
    left = 0.5 * np.exp(-4 * np.pi**2 * 0.01 * 2 * 0.5)
    expected = oracle.masses_of(volumes, flow, wave(np.array([0.5, -0.25]), left))
    assert np.abs(found - expected).sum() < 4e-3


def test_a_step_is_no_longer_than_the_scheme_is_stable():
    """Where lines lean on the upwind cell a ripple of two cells has the rate −4 v/h, and no step may enlarge it."""

    def enlarged(courant: float) -> float:  # by the method of order three, 1 + z + z²/2 + z³/6
        z = -4 * courant
        return abs(1 + z + z**2 / 2 + z**3 / 6)

    how = FiniteVolumes(24)
    flow = pf.Flow(drifts.Linear(np.array([[0.0, -3.0], [3.0, 0.0]])), geometry=pf.Sphere())
    level = pf.Measure.weighted(mesh_places(how.mesh(flow, 2)).centres, np.full(24, 1 / 24))
    bound = float(eqx.filter_jit(how.bounded_velocity)(flow, 0.0, how.begin(flow, level))[1])
    courant = bound * 3.0 / (2 * np.pi / 24)  # every point turns at the speed 3
    assert enlarged(courant) < 1 < enlarged(1.1 * courant)
    assert 0.55 < courant < 0.63


@pytest.mark.slow
def test_symmetric_starts_stay_symmetric_on_grids_that_have_the_symmetry():
    """Modes that are not in the start stay below 1e-12: 1e-16 times what they grow by in the linear theory, e^9."""
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=5.0), normalization="none"), geometry=pf.Sphere())
    options: dict[str, Any] = {"discretization": FiniteVolumes(510), "rtol": 1e-4, "atol": 1e-6}
    run = pf.simulate(flow, CircleWave(3, 1e-3), np.linspace(0, 0.6, 25), **options)
    amplitudes = pf.analysis.mode_amplitudes(run, 8)
    assert amplitudes[-1, 2] > 0.99
    assert np.delete(amplitudes, [2, 5], axis=1).max() < 1e-12
    other = pf.simulate(flow, CircleWave(3, 0.1), [0.0, 0.01, 0.35], **options | {"discretization": FiniteVolumes(64)})
    assert pf.analysis.mode_amplitudes(other, 1)[-1] > 1e-3  # 64 cells cannot be turned by a third
    section = pf.analysis.summarize(other)["modes"]
    assert section["errors"] == [1, 2, 4, 5]
    assert section["asymmetry"] > 1e-3
    assert section["growth_rates"][0] is None
