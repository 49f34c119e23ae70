"""Restricted Boltzmann machines: visible units v ∈ {0, 1}^d and hidden units h ∈ {0, 1}^m that see only each other,

    p(v, h) = exp(⟨b, v⟩ + ⟨c, h⟩ + ⟨h, W v⟩)/Z.

W is a bilinear kernel between both layers, K(v, h) = exp⟨h, W v⟩, and each layer given the other is a `Conditional` of
coins. A sum over all hidden units is a log-mass: with the measure ν_c = Σ_h e^{⟨c, h⟩} δ_h on the 2^m corners,

    G(v) = log ∫ K(v, h) dν_c(h) = Σ_j log(1 + e^{(W v + c)_j}),    m(v) = ∇G = E[h | v] = σ(W v + c),

so that the machine is attention of v to all hidden patterns, in a closed form that no sum over them is needed for. The
free energy is F(v) = −⟨b, v⟩ − G(v), and p(v) = e^{−F(v)}/Z. Source: Smolensky, Information processing in dynamical
systems: foundations of harmony theory (1986); Hinton, Training products of experts by minimizing contrastive
divergence (2002).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow._support.representation import shown
from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.kernels.inner_product import Attention
from particleflow.measure import Measure
from particleflow.theory.exponential_family.base_measures import hypercube
from particleflow.theory.exponential_family.conditional import Conditional
from particleflow.theory.exponential_family.finite import Bernoulli

_MOST_UNITS = 20  # of the smaller layer, over all of whose patterns is summed


class MachineSlope(NamedTuple):
    """Derivatives by the parameters of a machine: `weight` (m, d), `visible` (d,), `hidden` (m,)."""

    weight: Float[Array, "m d"]
    visible: Float[Array, " d"]
    hidden: Float[Array, " m"]


class RestrictedBoltzmannMachine(eqx.Module):
    """p(v, h) = exp(⟨b, v⟩ + ⟨c, h⟩ + ⟨h, W v⟩)/Z of binary units in two layers.

    Parameters: `weight` W (m, d), the `visible` biases b (d,), the `hidden` biases c (m,); a number is repeated.
    """

    weight: Float[Array, "m d"]
    visible: Float[Array, " d"]
    hidden: Float[Array, " m"]

    def __init__(self, weight: Any, visible: Any = 0.0, hidden: Any = 0.0):
        self.weight = as_float_array(weight, "weight")
        if self.weight.ndim != 2 or 0 in self.weight.shape:
            raise ShapeError(f"Argument `weight` must have shape (hidden, visible), but has shape {self.weight.shape}.")
        rows, columns = self.weight.shape
        self.visible = _biases(visible, "visible", columns, self.weight)
        self.hidden = _biases(hidden, "hidden", rows, self.weight)

    @staticmethod
    def random(key: Array, visible: int, hidden: int, scale: float = 0.01) -> "RestrictedBoltzmannMachine":
        """Independent normal weights of standard deviation `scale`, biases 0."""
        return RestrictedBoltzmannMachine(scale * jax.random.normal(key, (hidden, visible)))

    @property
    def hidden_given_visible(self) -> Conditional:
        """p(h | v): coins with natural parameters W v + c."""
        return Conditional(Bernoulli(self.weight.shape[0]), self.weight, self.hidden)

    @property
    def visible_given_hidden(self) -> Conditional:
        """p(v | h): coins with natural parameters Wᵀ h + b."""
        return Conditional(Bernoulli(self.weight.shape[1]), self.weight.T, self.visible)

    def as_attention(self) -> tuple[Attention, Measure]:
        """The kernel K(v, h) = exp⟨W v, h⟩ and the measure ν_c on all 2^m hidden patterns.

        Its local mean at v is E[h | v], its log-mass −F(v) − ⟨b, v⟩: the machine as attention, summed by brute force.
        """
        patterns = _patterns(self.weight.shape[0], self.weight)
        return Attention(1.0, query=self.weight), Measure(patterns, patterns @ self.hidden)

    def free_energy(self, patterns: Float[Array, "n d"]) -> Float[Array, " n"]:
        """F(v) = −⟨b, v⟩ − Σ_j log(1 + e^{(W v + c)_j}), hidden units summed out."""
        given = self.hidden_given_visible
        return -patterns @ self.visible - jax.vmap(given.family.log_normalizer)(given.parameters(patterns))

    def log_partition(self) -> Float[Array, ""]:
        """log Z by enumeration of the smaller layer, of at most 20 units."""
        transposed = RestrictedBoltzmannMachine(self.weight.T, self.hidden, self.visible)
        machine = self if self.weight.shape[1] <= self.weight.shape[0] else transposed
        return jax.nn.logsumexp(-machine.free_energy(_patterns(machine.weight.shape[1], self.weight)))

    def log_likelihood(self, patterns: Float[Array, "n d"]) -> Float[Array, " n"]:
        """log p(v) = −F(v) − log Z, by enumeration."""
        return -self.free_energy(patterns) - self.log_partition()

    def log_pseudo_likelihood(self, patterns: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """log p(v_i | all other visible units) = log σ(F(v with unit i flipped) − F(v)), which needs no Z."""

        def flipped(unit: Array) -> Float[Array, " n"]:
            other = patterns.at[:, unit].set(1 - patterns[:, unit])
            return self.free_energy(other) - self.free_energy(patterns)

        return jax.nn.log_sigmoid(jax.vmap(flipped)(jnp.arange(patterns.shape[1])).T)

    def gibbs(self, key: Array, patterns: Float[Array, "n d"], steps: int = 1) -> Float[Array, "n d"]:
        """The visible units after some rounds of drawing h given v, then v given h (block Gibbs sampling)."""
        whole_number(steps, "steps")

        def round_of(visible: Array, key: Array) -> tuple[Array, None]:
            first, second = jax.random.split(key)
            hidden = self.hidden_given_visible.sample(first, visible, 1)[:, 0]
            return self.visible_given_hidden.sample(second, hidden, 1)[:, 0], None

        return jax.lax.scan(round_of, patterns, jax.random.split(key, steps))[0]

    def mean_statistics(self, patterns: Float[Array, "n d"], shares: Any = None) -> MachineSlope:
        """E[h vᵀ], E[v] and E[h] over visible patterns of some `shares` (equal ones if left out), h given v in mean.

        It is the mean of −∂F(v)/∂(W, b, c); so the likelihood's slope is that of the data less that of the model.
        """
        shares = jnp.full(len(patterns), 1 / len(patterns), patterns.dtype) if shares is None else shares
        hidden = self.hidden_given_visible.mean(patterns)
        return MachineSlope((shares[:, None] * hidden).T @ patterns, shares @ patterns, shares @ hidden)

    def likelihood_slope(self, patterns: Float[Array, "n d"]) -> MachineSlope:
        """The derivatives of mean log p(v), E_data − E_model of the statistics, by enumeration of all visible units."""
        every = _patterns(self.weight.shape[1], self.weight)
        model = self.mean_statistics(every, jax.nn.softmax(-self.free_energy(every)))
        return jax.tree_util.tree_map(jnp.subtract, self.mean_statistics(patterns), model)

    def contrastive_divergence(self, key: Array, patterns: Float[Array, "n d"], steps: int = 1) -> MachineSlope:
        """CD-k: the likelihood's slope with the model replaced by data after k rounds of Gibbs sampling.

        It is biased, because k rounds from the data do not reach the model's law; the bias vanishes as k → ∞.
        """
        return self.slope_from(patterns, self.gibbs(key, patterns, steps))

    def slope_from(self, patterns: Float[Array, "n d"], drawn: Float[Array, "k d"]) -> MachineSlope:
        """E_data − E_drawn of the statistics: the likelihood's slope where the model has `drawn` patterns."""
        return jax.tree_util.tree_map(jnp.subtract, self.mean_statistics(patterns), self.mean_statistics(drawn))

    def __repr__(self) -> str:
        return shown(self)


def _patterns(units: int, like: Array) -> Float[Array, "n d"]:
    """All 2^d patterns of a layer."""
    if units > _MOST_UNITS:
        raise ArgumentError(
            f"The smaller layer would have 2^{units} patterns to sum over, but at most 2^{_MOST_UNITS} are; use "
            "`log_pseudo_likelihood`, or contrastive divergence."
        )
    return hypercube(units).points.astype(like.dtype)


def _biases(given: Any, name: str, count: int, like: Array) -> Float[Array, " k"]:
    biases = as_float_array(given, name)
    if biases.shape not in ((), (count,)):
        raise ShapeError(f"Argument `{name}` must be a number or have shape ({count},), but has {biases.shape}.")
    return jnp.broadcast_to(biases, (count,)).astype(like.dtype)
