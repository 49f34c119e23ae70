"""What a cut-off does to slowly decaying forces, and how Ewald's splitting recovers it: error against cut-off, drawn.

    python docs/examples/cut_off.py [cut_off.png]

Left: gravity in the plane, in squares of three sizes; the share of the fall of the mean |x|² that pairs beyond the
cut-off lose. Right: charges and all their copies in a periodic box; the error of the forces, by charges within the
cut-off alone, and by those of erfc(αr)/r beside all waves.
"""

import sys

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import erfc

import particleflow as pf
from particleflow import drifts, kernels

SPLITTING = 5.0  # α L
COLOURS = ("#0072B2", "#E69F00", "#000000")  # Okabe and Ito's


def fall(points: np.ndarray, kernel: kernels.AbstractKernel) -> float:
    """The rate at which the mean |x|² falls under attraction."""
    measure = pf.Measure.uniform(jnp.asarray(points))
    velocity = np.asarray(drifts.PairForce(kernel)(0.0, measure.sites, measure))
    return -2 * float(np.mean(np.sum(points * velocity, axis=1)))


def shares_lost(size: float, radii: np.ndarray) -> list[float]:
    """The share of the fall that is lost beyond radii, in units of the side of the square."""
    points = size * np.random.default_rng(0).uniform(-0.5, 0.5, size=(400, 2))
    gravity = kernels.InverseDistance(2.0, 1e-6 * size)
    whole = fall(points, gravity)
    return [1 - fall(points, gravity * kernels.Ball(size * radius)) / whole for radius in radii]


def errors_of_forces(radii: np.ndarray, screened: bool) -> list[float]:
    """The largest error of a field in a cube of side 1, relative to the largest, beside that of another splitting."""
    rng = np.random.default_rng(1)
    points, charges = rng.uniform(size=(24, 3)), np.tile([1.0, -1.0], 12)
    measure = pf.Measure(jnp.asarray(points), jnp.zeros(24), values=jnp.asarray(charges)[:, None])
    force = drifts.PeriodicForce(1.0, charged=True, splitting=0.7 * SPLITTING)
    whole = np.asarray(force(0.0, measure.sites, measure)) * charges[:, None]
    steps = points[:, None, None] - points[None, :, None] + whole_vectors(5)
    distances = np.linalg.norm(steps, axis=-1)
    distances[distances == 0] = np.inf
    pulls = distances**-3.0
    if screened:
        scaled = np.minimum(SPLITTING * distances, 30.0)
        pulls = pulls * (erfc(scaled) + 2 / np.sqrt(np.pi) * scaled * np.exp(-(scaled**2)))
    within = [np.einsum("j,ijc,ijca->ia", charges, pulls * (distances < radius), steps) for radius in radii]
    rest = field_of_waves(points, charges) if screened else 0.0
    size = np.linalg.norm(whole, axis=1).max()
    return [np.linalg.norm(each + rest - whole, axis=1).max() / size for each in within]


def field_of_waves(points: np.ndarray, charges: np.ndarray) -> np.ndarray:
    """4π Σ_k e^{−k²/4α²} k/k² Σ_j q_j sin⟨k, x − y_j⟩."""
    waves = 2 * np.pi * whole_vectors(10)
    squares = np.sum(waves**2, axis=1)
    waves, squares = waves[squares > 0], squares[squares > 0]
    factors = 4 * np.pi * np.exp(-squares / (4 * SPLITTING**2)) / squares
    phases = np.exp(1j * points @ waves.T)
    return np.imag(phases * (charges @ phases).conj()) @ (factors[:, None] * waves)


def whole_vectors(most: int) -> np.ndarray:
    """All whole vectors in space with entries of at most `most`."""
    line = np.arange(-most, most + 1)
    return np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)


def draw(path: str) -> None:
    """Both panels, as a PNG."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.9), layout="constrained")
    radii = np.linspace(0.02, 1.45, 40)
    for size, style, colour in zip((1.0, 10.0, 100.0), ("-", "--", ":"), COLOURS, strict=True):
        left.plot(radii, shares_lost(size, radii), style, lw=2.5, color=colour, label=f"square of side {size:g}")
    left.set(xlabel="cut-off ÷ side", ylabel="share of the fall of ⟨|x|²⟩ that is lost", ylim=(0, 1.02))
    left.set_title("Gravity in the plane: a share of any square")
    left.legend(frameon=False)
    radii = np.linspace(0.1, 4.0, 40)
    right.semilogy(
        radii, errors_of_forces(radii, False), "o-", ms=3, color="#D55E00", label="charges within the cut-off"
    )
    right.semilogy(
        radii, errors_of_forces(radii, True), "s-", ms=3, color="#0072B2", label="near part within it, and all waves"
    )
    right.set(xlabel="cut-off ÷ side of the box", ylabel="largest error of a force, relative")
    right.set_title("Charges in a periodic box: Ewald's splitting")
    right.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    draw(sys.argv[1] if len(sys.argv) > 1 else "cut_off.png")
