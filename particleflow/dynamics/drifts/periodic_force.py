"""Gravity and electrostatics in a periodic box: every particle and all its copies, by Ewald's splitting.

v(x) = ∇φ(x), charged v(x) = −q(x) ∇φ(x),    φ(x) = Σ_j w_j q_j Σ_n 1/|x − y_j + L n|, with q = 1 for masses
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.dynamics.drifts.base import AbstractDrift
from particleflow.dynamics.drifts.pair_force import charges_of
from particleflow.errors import ArgumentError, ShapeError
from particleflow.measure import Measure, Sites
from particleflow.summation.periodic.ewald import ewald_gradients


class PeriodicForce(AbstractDrift):
    """v(x) = Σ_j w_j Σ_n r/|r|³ with r = y_j + L n − x, over all copies of a cube in space; of charges −q(x) q_j times.

    Charges are the values that the particles carry: like ones repel. Of a box whose charges or masses do not sum to 0
    it is the force beside a uniform background that makes them so (for gravity: Jeans' swindle). Particles may leave
    the cube: only their places modulo L count, and paths stay smooth. Particles at one place exert nothing on each
    other; there is no softening, so charges of both signs fall into each other. Cost: O(n²) pairs times near copies,
    and O(n) a wave: for few thousand particles; there is no mesh.

    Parameters: the `side` L; `charged`; `splitting` α L, which changes the cost alone, √π n^{1/6} if left out;
    `tolerance`, of the terms left out.
    """

    side: float = eqx.field(static=True)
    charged: bool = eqx.field(static=True)
    splitting: float | None = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)

    def __init__(self, side: float, charged: bool = False, splitting: float | None = None, tolerance: float = 1e-12):
        self.side = side
        self.charged = charged
        self.splitting = splitting
        self.tolerance = tolerance

    def __check_init__(self):
        for name, number in (("side", self.side), ("splitting", self.splitting)):
            if number is not None and not (_is_number(number) and 0 < number < np.inf):
                raise ArgumentError(f"Argument `{name}` must be a positive number, but is {number!r}.")
        if not (_is_number(self.tolerance) and 0 < self.tolerance < 1):
            raise ArgumentError(f"Argument `tolerance` must be a number between 0 and 1, but is {self.tolerance!r}.")

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m 3"]:
        """The gradient of the potential, times −q(x) for charges."""
        if measure.dimension != 3:
            raise ShapeError(
                f"The drift PeriodicForce needs points in space, but they have {measure.dimension} numbers."
            )
        amounts = jnp.exp(measure.log_weights)
        if self.charged:
            amounts = amounts * charges_of(measure.values, "particle")[:, 0]
        usual = float(np.sqrt(np.pi) * measure.count ** (1 / 6))
        splitting = usual if self.splitting is None else float(self.splitting)
        slopes = ewald_gradients(
            queries.points, measure.points, amounts, float(self.side), splitting, float(self.tolerance)
        )
        return -charges_of(queries.values, "query") * slopes if self.charged else slopes


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
