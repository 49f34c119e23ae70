"""Stationary densities on the circle: the equation, its free energy, and whether such a state is stable.

A density g (relative to the uniform one) that is even, g(−θ) = g(θ), is at rest under attention and noise where no mass
flows, T ∂_θ log g = R² u̇[g]. With log g = Σ_k φ_k cos kθ − log Z and the sine coefficients s_k of the angular velocity

    T φ_k = Φ_k(φ),    Φ_k = −(R²/k) s_k[u̇],    u̇ as the flow's drift says, whatever its normalisation.

For unnormalised attention u̇ is a gradient, Φ = c R² h ∗ g, and such states are the critical points of

    F = T ∫ g log g dσ − ½ Σ_{l≥1} T_l Σ_{deg j = l} a_j²,    F(uniform) = 0,

a_j the coefficients of g and T_l the temperatures at which the modes of the uniform state begin to grow.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.discretization import Spectral
from particleflow.discretization.density.spectral.harmonics import CircleHarmonics
from particleflow.dynamics.flow import Flow
from particleflow.measure import Measure


class StationaryEquation(NamedTuple):
    """The stationary equation of a flow on the circle, in cosines up to degree `harmonics`.

    Parameters: `flow`; the `radius` R of the circle; `harmonics` N; the `time` at which the drift is evaluated. A state
    is a `place`, the vector (φ_1, …, φ_N, T).
    """

    flow: Flow
    radius: float
    harmonics: int
    time: Any

    @property
    def basis(self) -> CircleHarmonics:
        """The harmonics, with the grid on which the drift is evaluated."""
        return CircleHarmonics(self.harmonics)

    def residual(self, place: np.ndarray) -> np.ndarray:
        """The residual T φ − Φ(φ) (N,) at a place (φ, T) (N + 1,)."""
        return np.asarray(_residual(self.flow, self.time, self.radius, self.basis, jnp.asarray(place)))

    def jacobian(self, place: np.ndarray) -> np.ndarray:
        """The derivative of the residual, (N, N + 1)."""
        return np.asarray(_jacobian(self.flow, self.time, self.radius, self.basis, jnp.asarray(place)))

    def density(self, place: np.ndarray) -> np.ndarray:
        """The density g on the grid, relative to the uniform one."""
        return np.asarray(_density(self.basis, jnp.asarray(place[:-1])))

    def coefficients(self, place: np.ndarray) -> np.ndarray:
        """The coefficients a_j of g in the basis (1, √2 cos kθ, √2 sin kθ)."""
        return np.asarray(self.basis.coefficients(jnp.asarray(self.density(place))))

    def tail(self, place: np.ndarray) -> float:
        """The largest of the last eighth of g's cosine coefficients, which estimates the truncation error."""
        cosines = np.abs(self.coefficients(place)[1 : self.harmonics + 1])
        return float(np.max(cosines[-max(self.harmonics // 8, 1) :]))

    def free_energy(self, place: np.ndarray, mode_temperatures: np.ndarray) -> float:
        """The free energy F = T ∫ g log g dσ − ½ Σ T_l a_j² of a state, 0 for the uniform one."""
        density, coefficients = self.density(place), self.coefficients(place)
        positive = np.where(density > 0, density, 1.0)
        entropy = float(np.mean(density * np.log(positive)))
        weights = np.concatenate([mode_temperatures, mode_temperatures])
        return float(place[-1] * entropy - 0.5 * weights @ coefficients[1:] ** 2)

    def fastest_rate(self, place: np.ndarray) -> float:
        """The growth rate of the fastest perturbation of a state, rotations left out.

        Eigenvalues are those of the discretized equation (`Spectral`), of even and of odd perturbations separately; the
        rotation is odd and has the eigenvalue 0.
        """
        how, flow = Spectral(self.harmonics), _at_temperature(self.flow, place[-1])
        matrix = np.asarray(_linearised(how, flow, self.time, jnp.asarray(self.coefficients(place))))
        count = self.harmonics
        even = np.linalg.eigvals(matrix[1 : count + 1, 1 : count + 1])
        odd = np.linalg.eigvals(matrix[count + 1 :, count + 1 :])
        odd = np.delete(odd, np.argmin(np.abs(odd)))
        return float(max(even.real.max(), odd.real.max()))


def _density(basis: CircleHarmonics, cosines: Float[Array, " N"]) -> Float[Array, " n"]:
    """e^{Σ φ_k cos kθ}/Z on the grid."""
    zeros = jnp.zeros_like(cosines)
    log_density = basis.values(jnp.concatenate([zeros[:1], cosines / np.sqrt(2.0), zeros]))
    return jax.nn.softmax(log_density) * log_density.size


@eqx.filter_jit
def _residual(flow: Flow, time: Any, radius: float, basis: CircleHarmonics, place: Array) -> Array:
    """T φ − Φ(φ), with Φ from the drift's angular velocity on the grid."""
    cosines, temperature = place[:-1], place[-1]
    points = jnp.asarray(radius * basis.points)
    masses = _density(basis, cosines) / points.shape[0]
    turning = flow.velocity(time, points, Measure.weighted(points, masses)) / radius
    # c_k of `pulled` is √2 k Im F̂_k = −k s_k/√2, so that Φ_k = −(R²/k) s_k = √2 (R²/k²) c_k.
    waves = np.arange(1, basis.modes + 1)
    pulled = basis.pulled(turning)[1 : basis.modes + 1]
    return temperature * cosines - jnp.asarray(np.sqrt(2.0) * radius**2 / waves**2) * pulled


@eqx.filter_jit
def _jacobian(flow: Flow, time: Any, radius: float, basis: CircleHarmonics, place: Array) -> Array:
    """The derivative of the residual by φ and T, by forward mode."""
    return jax.jacfwd(lambda each: _residual(flow, time, radius, basis, each))(place)


@eqx.filter_jit
def _linearised(how: Spectral, flow: Flow, time: Any, coefficients: Array) -> Array:
    """The derivative of d a/dt at the coefficients of a state."""

    def rate(each: Array) -> Array:
        return how.velocity(flow, time, {"coefficients": each[:, None]})["coefficients"][:, 0]

    return jax.jacfwd(rate)(coefficients)


def _at_temperature(flow: Flow, temperature: float) -> Flow:
    """The flow with another temperature."""
    return eqx.tree_at(lambda each: each.temperature, flow, jnp.asarray(temperature))
