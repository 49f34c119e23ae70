"""Real harmonics on the circle and on the sphere, and the transforms between coefficients and values on a grid.

For the uniform probability σ on the unit sphere S^{d−1}, d = 2 or 3, the harmonics B_j of degree at most L are an
orthonormal basis, ∫ B_i B_j dσ = δ_ij, with B_0 = 1 and ΔB_j = −e_j B_j, e = l(l + d − 2):

    circle   1,  √2 cos kθ,  √2 sin kθ                          k = 1 … L
    sphere   P̄_l0(z),  √2 P̄_lm(z) cos mφ,  √2 P̄_lm(z) sin mφ    1 ≤ m ≤ l ≤ L,  ½ ∫ P̄_lm² dz = 1

A grid has points u_i with shares q_i, Σ q_i = 1, that integrate every polynomial of degree 3L exactly: the product of
three functions of degree L (a density, a velocity, a harmonic's gradient) does not fold back onto lower degrees. On the
circle it is equispaced, 3L + 1 points; on the sphere Gauss and Legendre's heights times equispaced longitudes.
"""

import abc
from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_ROOT = float(np.sqrt(2.0))


class AbstractHarmonics(eqx.Module):
    """Real orthonormal harmonics B_j of degree at most `modes` on a unit sphere, and transforms on their grid.

    `values` leads from coefficients to the grid, `coefficients` back, and `pulled` is the weak form of a divergence.
    """

    modes: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def points(self) -> np.ndarray:
        """The grid's points u_i, (n, d)."""

    @property
    @abc.abstractmethod
    def shares(self) -> np.ndarray:
        """The grid's shares q_i, (n,)."""

    @property
    @abc.abstractmethod
    def degrees(self) -> np.ndarray:
        """The degree of every harmonic, (m,)."""

    @abc.abstractmethod
    def values(self, coefficients: Float[Array, " m"]) -> Float[Array, " n"]:
        """Σ_j a_j B_j on the grid."""

    @abc.abstractmethod
    def coefficients(self, values: Float[Array, " n"]) -> Float[Array, " m"]:
        """a_j = Σ_i q_i g_i B_j(u_i)."""

    @abc.abstractmethod
    def pulled(self, field: Float[Array, "n d"]) -> Float[Array, " m"]:
        """∫ ⟨∇B_j, F⟩ dσ = −∫ B_j div F dσ of a tangent field on the grid; 0 for B_0, whatever the field."""

    @property
    def eigenvalues(self) -> np.ndarray:
        """e_j = l(l + d − 2), of −Δ, for every harmonic."""
        return self.degrees * (self.degrees + self.points.shape[1] - 2.0)


def harmonics_of(modes: int, dimension: int) -> AbstractHarmonics:
    """The harmonics of S^{dimension−1}."""
    return CircleHarmonics(modes) if dimension == 2 else SphereHarmonics(modes)


class CircleHarmonics(AbstractHarmonics):
    """1, √2 cos kθ, √2 sin kθ; coefficients in the order a_0, cosines, sines."""

    modes: int = eqx.field(static=True)

    @property
    def points(self) -> np.ndarray:
        """(cos θ_i, sin θ_i), θ_i = 2πi/n."""
        angles = 2 * np.pi * np.arange(self._count) / self._count
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    @property
    def shares(self) -> np.ndarray:
        """The same share 1/n for every point."""
        return np.full(self._count, 1 / self._count)

    @property
    def degrees(self) -> np.ndarray:
        """0, then 1 … L twice."""
        waves = np.arange(1, self.modes + 1)
        return np.concatenate([[0], waves, waves])

    def values(self, coefficients: Float[Array, " m"]) -> Float[Array, " n"]:
        """By a fast Fourier transform of (c_k − i s_k)/√2."""
        cosines, sines = jnp.split(coefficients[1:], 2)
        beyond = jnp.zeros(self._count // 2 - self.modes, coefficients.dtype)
        real = jnp.concatenate([coefficients[:1], cosines / _ROOT, beyond])
        imaginary = jnp.concatenate([jnp.zeros_like(coefficients[:1]), -sines / _ROOT, beyond])
        return self._count * jnp.fft.irfft(jax.lax.complex(real, imaginary), self._count)

    def coefficients(self, values: Float[Array, " n"]) -> Float[Array, " m"]:
        """By a fast Fourier transform."""
        real, imaginary = self._waves(values)
        return jnp.concatenate([real[:1], _ROOT * real[1:], -_ROOT * imaginary[1:]])

    def pulled(self, field: Float[Array, "n d"]) -> Float[Array, " m"]:
        """c_k = √2 k Im F̂_k, s_k = √2 k Re F̂_k for the component F of the field along the circle."""
        around = jnp.asarray(self.points[:, ::-1] * [-1.0, 1.0], field.dtype)
        real, imaginary = self._waves(jnp.sum(field * around, axis=1))
        waves = jnp.asarray(_ROOT * np.arange(1, self.modes + 1), field.dtype)
        return jnp.concatenate([jnp.zeros_like(real[:1]), waves * imaginary[1:], waves * real[1:]])

    @property
    def _count(self) -> int:
        return 3 * self.modes + 1

    def _waves(self, values: Array) -> tuple[Array, Array]:
        """The real and imaginary parts of the mean of f e^{−ikθ}, k = 0 … L."""
        found = jnp.fft.rfft(values)[: self.modes + 1] / self._count
        return found.real, found.imag


class SphereHarmonics(AbstractHarmonics):
    """P̄_lm(z) times 1, √2 cos mφ, √2 sin mφ; coefficients: all cosines (m, then l ≥ m), then all sines (m ≥ 1)."""

    modes: int = eqx.field(static=True)

    @property
    def points(self) -> np.ndarray:
        """√(1 − z²) (cos φ, sin φ), z: height by height, longitudes fastest."""
        heights, _ = _heights(self.modes)
        turns = 2 * np.pi * np.arange(self._turns) / self._turns
        waists = np.sqrt(1 - heights**2)[:, None]
        parts = [waists * np.cos(turns), waists * np.sin(turns), np.broadcast_to(heights[:, None], self._shape)]
        return np.stack(parts, axis=-1).reshape(-1, 3)

    @property
    def shares(self) -> np.ndarray:
        """Gauss's weights, shared out over the longitudes."""
        return np.repeat(_heights(self.modes)[1] / self._turns, self._turns)

    @property
    def degrees(self) -> np.ndarray:
        """l of every coefficient."""
        cosines, sines = _places(self.modes)
        return np.concatenate([cosines[1], sines[1]])

    def values(self, coefficients: Float[Array, " m"]) -> Float[Array, " n"]:
        """A sum over l at every height, then a fast Fourier transform around it."""
        table = jnp.asarray(_tables(self.modes).values, coefficients.dtype)
        waves = [jnp.einsum("mlj,ml->jm", table, part) for part in self._unpacked(coefficients)]
        scale = jnp.asarray(self._scale / 2, coefficients.dtype)  # 1 for m = 0, 1/√2 above
        beyond = ((0, 0), (0, self._turns // 2 - self.modes))
        real, imaginary = (jnp.pad(scale[None, :] * wave, beyond) for wave in waves)
        return self._turns * jnp.fft.irfft(jax.lax.complex(real, -imaginary), self._turns, axis=1).reshape(-1)

    def coefficients(self, values: Float[Array, " n"]) -> Float[Array, " m"]:
        """A fast Fourier transform around every height, then a sum over the heights."""
        tables = _tables(self.modes)
        real, imaginary = self._waves(values)
        return self._packed(*(self._summed(tables.values, part) for part in (real, -imaginary)))

    def pulled(self, field: Float[Array, "n d"]) -> Float[Array, " m"]:
        """c − i s = √2 Σ_j q_j (∂_θ P̄ F̂_θ − i (m/sin θ) P̄ F̂_φ) over the heights."""
        points, tables = self.points, _tables(self.modes)
        waists = np.sqrt(points[:, 0] ** 2 + points[:, 1] ** 2)
        east = np.stack([-points[:, 1] / waists, points[:, 0] / waists, np.zeros_like(waists)], axis=1)
        south = np.cross(east, points)  # e_θ = e_φ × u
        down, along = (self._waves(jnp.sum(field * jnp.asarray(frame, field.dtype), axis=1)) for frame in (south, east))
        cosines = self._summed(tables.slopes, down[0]) + self._summed(tables.turned, along[1])
        sines = self._summed(tables.turned, along[0]) - self._summed(tables.slopes, down[1])
        return self._packed(cosines, sines)

    @property
    def _turns(self) -> int:
        return 3 * self.modes + 1

    @property
    def _shape(self) -> tuple[int, int]:
        return len(_heights(self.modes)[0]), self._turns

    @property
    def _scale(self) -> np.ndarray:
        """2 for m = 0 and √2 above."""
        return np.concatenate([[2.0], np.full(self.modes, _ROOT)])

    def _waves(self, values: Array) -> tuple[Array, Array]:
        """The parts of the mean of f e^{−imφ} around every height, (heights, m)."""
        found = jnp.fft.rfft(values.reshape(self._shape), axis=1)[:, : self.modes + 1] / self._turns
        return found.real, found.imag

    def _summed(self, table: np.ndarray, waves: Array) -> Array:
        """Σ_j q_j table[m, l, j] waves[j, m], times 1 for m = 0 and √2 above."""
        factors = np.concatenate([[1.0], np.full(self.modes, _ROOT)])[:, None, None]
        weighted = jnp.asarray(factors * table * _heights(self.modes)[1], waves.dtype)
        return jnp.einsum("mlj,jm->ml", weighted, waves)

    def _packed(self, cosines: Array, sines: Array) -> Array:
        return jnp.concatenate([part[place] for part, place in zip((cosines, sines), _places(self.modes), strict=True)])

    def _unpacked(self, coefficients: Array) -> tuple[Array, Array]:
        """The coefficients as two tables [m, l], 0 where there is no harmonic."""
        first, second = _places(self.modes)
        empty = jnp.zeros((self.modes + 1, self.modes + 1), coefficients.dtype)
        count = len(first[0])
        return empty.at[first].set(coefficients[:count]), empty.at[second].set(coefficients[count:])


class _Tables(NamedTuple):
    """P̄_lm, ∂_θ P̄_lm and (m/sin θ) P̄_lm at the heights, each [m, l, height] and 0 for l < m."""

    values: np.ndarray
    slopes: np.ndarray
    turned: np.ndarray


@lru_cache(maxsize=8)
def _heights(modes: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss and Legendre's heights z_j, from the north down, and their shares, exact to degree 3L."""
    heights, weights = np.polynomial.legendre.leggauss(3 * modes // 2 + 1)
    return heights[::-1], weights[::-1] / 2


@lru_cache(maxsize=8)
def _places(modes: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(m, l) of all cosines, and of all sines."""
    orders, degrees = np.triu_indices(modes + 1)
    sines = orders > 0
    return (orders, degrees), (orders[sines], degrees[sines])


@lru_cache(maxsize=8)
def _tables(modes: int) -> _Tables:
    """The tables by the recurrence in l, which is stable upwards from l = m and never overflows once normalised."""
    heights, _ = _heights(modes)
    waists = np.sqrt(1 - heights**2)
    values = np.zeros((modes + 1, modes + 1, len(heights)))
    slopes = np.zeros_like(values)
    diagonal = np.ones_like(heights)
    for order in range(modes + 1):
        values[order, order] = diagonal
        for degree in range(order + 1, modes + 1):
            grown = np.sqrt((4 * degree**2 - 1) / (degree**2 - order**2))
            lower = np.sqrt(((degree - 1) ** 2 - order**2) / (4 * (degree - 1) ** 2 - 1)) if degree > order + 1 else 0.0
            values[order, degree] = grown * (heights * values[order, degree - 1] - lower * values[order, degree - 2])
        for degree in range(max(order, 1), modes + 1):
            below = np.sqrt((2 * degree + 1) / (2 * degree - 1) * (degree**2 - order**2))
            slopes[order, degree] = (
                degree * heights * values[order, degree] - below * values[order, degree - 1]
            ) / waists
        diagonal = np.sqrt((2 * order + 3) / (2 * order + 2)) * waists * diagonal
    turned = np.arange(modes + 1.0)[:, None, None] * values / waists
    return _Tables(values, slopes, turned)
