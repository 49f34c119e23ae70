"""Forces between pairs that add up: gravity, electrostatics, and any other along the line between two particles.

    v(x) = Σ_j w_j K(x, y_j) (y_j − x) = e^{G(x)} (m(x) − x)

is an unnormalised MeanShift. Under K = |x − y|^{−p−2} it is the force of the potential |x − y|^{−p}/p: gravity in space
is p = 1, `InverseDistance(power=3)`; in the plane, where the potential is a logarithm, `InverseDistance(power=2)`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import is_concrete
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction, check_interacting, with_summation
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.auto import Auto
from particleflow.summation.base import AbstractSummation


class PairForce(AbstractDrift):
    """v(x) = Σ_j w_j K(x, y_j) (y_j − x), all attracted; with charges v(x) = −q(x) Σ_j w_j q_j K(x, y_j) (y_j − x).

    Charges are the values that the particles carry, one number each: like ones repel. Sums take any way that sums of
    K take: near-linear for `InverseDistance` with `summation = { kind = "tree", tolerance = … }`, whose error is then
    tolerance · e^{G} (|x| + max |y|) at most. Without softening two particles at one place exert no limit of a force,
    and each is at its own: an `InverseDistance` needs a softening, or `positional` kernel `Others`, which leaves out
    the particle itself, as exact sums can.

    Parameters: `kernel` K; `charged`; `positional`, a kernel of positions that multiplies K; `summation`.
    """

    kernel: AbstractKernel
    charged: bool = eqx.field(static=True)
    positional: AbstractKernel | None
    summation: AbstractSummation

    def __init__(
        self,
        kernel: AbstractKernel,
        charged: bool = False,
        positional: AbstractKernel | None = None,
        summation: AbstractSummation | None = None,
    ):
        self.kernel = kernel
        self.charged = charged
        self.positional = positional
        self.summation = summation or Auto()

    def __check_init__(self):
        check_interacting(self.kernel, self.summation, positional=self.positional)
        if self.positional is None and any(_is_infinite_on_points(each) for each in self.kernel.factors()):
            raise ArgumentError(
                f"Argument `kernel` must be finite where two particles meet, but {self.kernel!r} is not, and a "
                "particle meets itself: give it a `softening`, or leave particles out of their own sums with "
                "`positional = { kind = 'others' }`."
            )

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The one kernel, unnormalised, on the particles."""
        return (Interaction(self.kernel, "none", self.positional, self.summation, None),)

    def resummed(self, time: Any, choose: Chooser) -> "PairForce":
        """The same drift with the summation that `choose` names for its kernel."""
        return with_summation(self, time, choose)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """e^{G} (m − x), or −q e^{G} (m_{qy} − m_q x) with the means of q_j y_j and of q_j."""
        (interaction,) = self.interactions(time)
        if not self.charged:
            moments = interaction.moments(queries, measure, measure.points)
            pull = jnp.where(jnp.isneginf(moments.log_mass)[:, None], 0.0, moments.mean - queries.points)
            return jnp.exp(moments.log_mass)[:, None] * pull
        if measure.values is None:
            raise ArgumentError(
                "Argument `charged` needs the charge of every particle as its value, but there are no values."
            )
        ours, theirs = charges_of(queries.values, "query"), charges_of(measure.values, "particle")
        moments = interaction.moments(queries, measure, jnp.concatenate([theirs * measure.points, theirs], axis=1))
        push = moments.mean[:, -1:] * queries.points - moments.mean[:, :-1]
        return ours * jnp.exp(moments.log_mass)[:, None] * push


def charges_of(values: Any, whose: str) -> Float[Array, "n 1"]:
    """The charges of some particles, as a column."""
    if values is None:
        raise ArgumentError(f"Argument `charged` needs the charge of every {whose} as its value, but there is none.")
    charges = jax.lax.reshape(values, (values.shape[0], int(np.prod(values.shape[1:], dtype=int))))
    if charges.shape[1] != 1:
        raise ArgumentError(f"Argument `charged` needs one number a {whose}, but values have shape {values.shape}.")
    return charges


def _is_infinite_on_points(factor: AbstractKernel) -> bool:
    """Whether a factor is known to be infinite where points meet: a power law without softening."""
    form = factor.radial()
    law = form and form.power_law(1)
    return bool(law) and is_concrete(law.softening) and float(np.min(law.softening)) == 0.0
