"""Linear stability of the uniform state on a sphere, from the kernel alone.

On the sphere of radius R in R^d (the circle is d = 2) let μ = (1 + ε Y_l) σ, σ uniform and Y_l a harmonic of degree l.
At first order attention with values V = c · identity, v = c m, moves the direction u of a point by u̇ = c ε p_l ∇Y_l:

    "none"      p_l = h_l                   λ_l, h_l: the coefficients of K, see `coefficients`
    "row"       p_l = h_l/λ_0               the mass ∫ K dμ changes the length of m alone, which P_u projects out
    "sinkhorn"  p_l = h_l/(λ_0 + λ_l)       the tilt changes by −ε ρ/(1 + ρ), ρ = λ_l/λ_0

and with ΔY_l = −l(l + d − 2) Y_l the continuity equation ∂_t μ + div(μ u̇) = (T/R²) Δμ gives the growth rate

    rate_l = l(l + d − 2) (c p_l − T/R²).

So mode l grows below the temperature T_l = c R² p_l, and the uniform state is stable above all of them. Rates of
several heads add up. For K = e^{β⟨x,y⟩} on the unit circle rate_l is l² I_l/β, l² I_l/(β I_0), l² I_l/(β(I_0 + I_l)).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from particleflow._support.arrays import apply_linear_map
from particleflow.dynamics.drifts.base import Interaction
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import directions, project_out, round_radius
from particleflow.errors import ArgumentError, whole_number
from particleflow.measure import Measure
from particleflow.theory.stability.coefficients import coefficients

_MODES = 64
_FEW = 16  # modes that are compared to check that mode 1 grows first
_POINTS = 7  # of a random cloud on which the drift is compared with the attention of its interactions
_SAME = 1e-6  # relative tolerance of that comparison, and of V = c · identity
_ROUNDING = 1e-12  # numbers below this share of the largest of all modes are rounding
_CROSSING = 1e-9  # rates that differ by less, relative to the largest, are equal


class Transition(NamedTuple):
    """How the uniform state of unnormalised attention becomes unstable when it is cooled.

    Parameters: `temperature` T_1 of the instability; `ratio` d h_2/h_1; `order` of the transition, 2 for ratios up to 1
    (continuous: the clustered state grows out of the uniform one), 1 above (discontinuous, with hysteresis).
    """

    temperature: float
    ratio: float
    order: int


def growth_rates(flow: Flow, modes: Any, dimension: int = 2, time: Any = 0.0) -> np.ndarray:
    """Growth rates of the modes of the density around the uniform state: ε(t) ∝ e^{rate t}.

    Parameters: `flow`, attention on a round sphere, with its temperature; `modes`, degrees l ≥ 1: wave numbers on the
    circle, degrees of spherical harmonics above; `dimension` d of the space in which the sphere S^{d−1} lies; `time`,
    at which the flow is evaluated. A flow that is not the attention of particles to each other by a rotation-invariant
    kernel is refused with the reason.
    """
    degrees = _as_degrees(modes)
    pulls, radius, temperature = _pulls(flow, degrees, dimension, time)
    return degrees * (degrees + dimension - 2) * (pulls - temperature / radius**2)


def mode_temperatures(flow: Flow, modes: Any, dimension: int = 2, time: Any = 0.0) -> np.ndarray:
    """The temperatures T_l = c R² p_l below which each mode grows; a mode with a negative T_l never grows.

    Parameters: as for `growth_rates`; the temperature of the flow itself is ignored.
    """
    pulls, radius, _ = _pulls(flow, _as_degrees(modes), dimension, time)
    return radius**2 * pulls


def critical_temperature(flow: Flow, dimension: int = 2, modes: int = _MODES, time: Any = 0.0) -> float:
    """The temperature below which the uniform state is unstable, the largest T_l of the first `modes`; 0 for none.

    For unnormalised attention K = e^{β⟨x,y⟩} on the unit sphere it is T_1 = 2^{d/2−1} Γ(d/2) I_{d/2}(β)/β^{d/2}.
    """
    found = mode_temperatures(flow, np.arange(1, modes + 1), dimension, time)
    return float(np.max(np.where(found > _ROUNDING * np.max(np.abs(found)), found, 0.0)))


def fastest_mode(flow: Flow, dimension: int = 2, modes: int = _MODES, time: Any = 0.0) -> int | None:
    """The mode l that grows fastest among the first `modes`, which is the number of clusters that appear first.

    None where no mode grows. Refused where the last of them grows fastest. Parameters: as for `growth_rates`.
    """
    degrees = np.arange(1, modes + 1)
    rates = growth_rates(flow, degrees, dimension, time)
    best = int(np.argmax(rates))
    per_mode = rates / (degrees * (degrees + dimension - 2))  # the last ones are rounding
    if per_mode[best] <= _ROUNDING * np.max(np.abs(per_mode)):
        return None
    if best == modes - 1:
        raise ArgumentError(f"The last of {modes} modes grows fastest; raise `modes` to find the fastest one.")
    return best + 1


def switches(
    family: Callable[[float], Flow], low: float, high: float, dimension: int = 2, modes: int = _MODES
) -> list[tuple[float, int, int]]:
    """Where the fastest mode of a family of flows changes: [(value, mode below, mode above), …].

    Parameters: `family`, which returns the flow of a parameter value (β, say) from `low` to `high`; `dimension` and
    `modes` as for `fastest_mode`. A mode that is fastest only between two values at which one other mode is fastest is
    missed.
    """
    from scipy.optimize import brentq

    degrees = np.arange(1, modes + 1)
    known: dict[float, np.ndarray] = {}

    def rates(value: float) -> np.ndarray:
        if value not in known:
            known[value] = growth_rates(family(value), degrees, dimension)
        return known[value]

    def between(left: float, right: float) -> list[tuple[float, int, int]]:
        first, last = int(np.argmax(rates(left))), int(np.argmax(rates(right)))
        if first == last:
            return []
        meet = float(brentq(lambda value: rates(value)[first] - rates(value)[last], left, right, xtol=1e-12))  # pyright: ignore[reportArgumentType]
        highest = np.max(rates(meet))
        if rates(meet)[first] >= highest - _CROSSING * np.max(np.abs(rates(meet))):
            return [(meet, first + 1, last + 1)]
        return between(left, meet) + between(meet, right)

    return between(float(low), float(high))


def transition(flow: Flow, dimension: int = 2, time: Any = 0.0) -> Transition:
    """The order of the phase transition of unnormalised attention, from two coefficients of its kernel.

    The free energy of 1 + a Y_1 + b Y_2, minimised over b at T_1, has the a⁴ term with the sign of 1 − d h_2/h_1. Where
    it is negative the clustered state exists at temperatures at which the uniform one is still stable. For
    K = e^{β⟨x,y⟩} the ratio is d I_{d/2+1}(β)/I_{d/2}(β), and the order changes where it is 1.
    """
    if any(each.normalization != "none" for each in flow.interactions(time)):
        raise ArgumentError(
            "The order of the transition is known from the kernel where there is a free energy, for normalization = "
            '"none"; follow the states of other flows with `branches`.'
        )
    found = mode_temperatures(flow, np.arange(1, _FEW + 1), dimension, time)
    if not found[0] > 0 or np.argmax(found) != 0:
        raise ArgumentError(
            "The order of the transition is known where mode 1 is the first to grow, but here "
            + (f"mode {np.argmax(found) + 1} is." if np.max(found) > 0 else "none does.")
        )
    ratio = float(dimension * found[1] / found[0])
    return Transition(float(found[0]), ratio, 1 if ratio > 1 else 2)


def _as_degrees(modes: Any) -> np.ndarray:
    """The modes as an array of whole numbers l ≥ 1, or an error."""
    given = np.atleast_1d(np.asarray(modes))
    if given.ndim != 1 or given.size == 0 or not np.all((given == np.round(given)) & (given >= 1)):
        raise ArgumentError(f"Argument `modes` must hold whole numbers of at least 1, but is {modes!r}.")
    return given.astype(int)


def _pulls(flow: Flow, degrees: np.ndarray, dimension: int, time: Any) -> tuple[np.ndarray, float, float]:
    """Σ c p_l over the heads (k,), the radius R, and the temperature T."""
    whole_number(dimension, "dimension", 2)
    flow, time = in_64_bits(flow), jnp.asarray(time, float)
    noisy = float(flow.temperature) > 0
    if float(flow.common_temperature) > 0:
        raise ArgumentError("Noise that all particles share moves the uniform state; `common_temperature` must be 0.")
    radius = float(round_radius(flow.geometry, dimension, noisy=noisy))
    check_attention(flow, time, dimension, radius)
    heads = [_pull(each, degrees, dimension, radius) for each in flow.interactions(time)]
    return np.sum(heads, axis=0), radius, float(flow.temperature)


def _pull(interaction: Interaction, degrees: np.ndarray, dimension: int, radius: float) -> np.ndarray:
    """c p_l of one head, (k,)."""
    known = coefficients(interaction, degrees, dimension, radius)
    strength = strength_of(interaction, dimension)
    if interaction.normalization == "none":
        return strength * np.exp(known.log_scale) * known.pulls
    if interaction.normalization == "row":
        return strength * known.pulls / known.mass
    return strength * known.pulls / (known.mass + known.masses)


def strength_of(interaction: Interaction, dimension: int) -> float:
    """The number c with O V = c · identity, 1 without V and O; other maps are refused."""
    matrix = jnp.eye(dimension)
    for name, part in (("value", interaction.value), ("output", interaction.output)):
        matrix = matrix if part is None else apply_linear_map(jnp.asarray(part, float), matrix, name)
    found = np.asarray(matrix)
    if np.max(np.abs(found - found[0, 0] * np.eye(dimension))) > _SAME * np.max(np.abs(found)):
        raise ArgumentError(
            "Growth rates of harmonics need values V = c · identity, but the map V is no such multiple."
        )
    return float(found[0, 0])


def check_attention(flow: Flow, time: Any, dimension: int, radius: float) -> None:
    """Raise unless the flow moves a random cloud with the velocity of the attention of its interactions alone."""
    known: Sequence[Interaction] = flow.interactions(time)
    if not known:
        raise ArgumentError("Growth rates are those of attention, but the flow has no kernel (attend, mean_shift, …).")
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(_POINTS, dimension))
    units = jnp.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    measure = Measure.weighted(radius * units, rng.uniform(0.5, 1.5, _POINTS) / _POINTS)
    if any(each.positional is not None or each.data is not None for each in known):
        return  # `coefficients` refuses these with its own message
    error, size = map(
        float, _difference(flow, time, measure, [jnp.asarray(strength_of(each, dimension)) for each in known])
    )
    if not error <= _SAME * max(1.0, size):
        raise ArgumentError(
            "Growth rates are those of attention alone, V m on a round sphere, but this flow moves points in another "
            "way, too: a further drift, a time-dependent pace, or a gradient that is no mean."
        )


@eqx.filter_jit
def _difference(flow: Flow, time: Any, measure: Measure, strengths: list[Any]) -> tuple[Any, Any]:
    """The largest |v − Σ c P_x m| of a cloud's velocities and the flow's interactions, and the largest |Σ c P_x m|."""
    units = directions(measure.points)
    expected = jnp.zeros_like(units)
    for each, strength in zip(flow.interactions(time), strengths, strict=True):
        moments = each.moments(measure.sites, measure)
        length = jnp.exp(moments.log_mass)[:, None] if each.normalization == "none" else 1.0
        expected = expected + strength * length * project_out(units, moments.mean)
    found = flow.velocity(time, measure.points, measure)
    return jnp.max(jnp.abs(found - expected)), jnp.max(jnp.abs(expected))


def in_64_bits(flow: Flow) -> Flow:
    """The same flow with every floating-point array in double precision."""
    return jax.tree_util.tree_map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, flow)
