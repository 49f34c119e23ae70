"""Implicit steps that count their field evaluations.

An explicit method evaluates the field a fixed number of times a step; an implicit one as often as Newton's method
needs. diffrax's own implicit solvers do not return that number, and it cannot be carried in the state, because stages
are mixed with weights that may be zero or negative, and the state of a rejected step is discarded. So the diagonally
implicit step is written out here, on diffrax's tableaux, and the count is passed with the error estimate to the
step-size controller, which is called for rejected steps, too. A state is any pytree; inside a step it is one vector.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int

from particleflow.simulation.stepping.newton import Factors, KeptNewton, no_factors

_NEWTON_STEPS = 10
_FIELD_ROUNDING = 1.0  # the rounding error of a field, in units of eps · max |y|


class Tableau(NamedTuple):
    """Stage i solves f_i = f(t + c_i h, y + h Σ_{j<i} lower_ij f_j + h diagonal_i f_i), starting from Σ guess_ij f_j.

    Stage 0 is the field at the beginning, and the last stage ends at the new state. The error is h Σ error_i f_i.
    """

    order: int
    lower: np.ndarray
    diagonal: np.ndarray
    guess: np.ndarray
    nodes: np.ndarray
    error: np.ndarray

    @staticmethod
    def of(solver: type, order: int) -> "Tableau":
        """The tableau of a diffrax solver whose first stage is explicit and whose last stage is the new state."""
        tableau: Any = solver.tableau  # type: ignore[attr-defined]
        stages = len(tableau.b_sol)
        lower, guess = np.zeros((2, stages, stages))
        for stage, (row, first) in enumerate(zip(tableau.a_lower, tableau.a_predictor, strict=True), start=1):
            lower[stage, : len(row)], guess[stage, : len(first)] = row, first
        nodes = np.concatenate([[0.0], tableau.c])
        return Tableau(order, lower, np.asarray(tableau.a_diagonal), guess, nodes, np.asarray(tableau.b_error))


TABLEAUX = {
    "implicit_euler": Tableau(
        1, np.zeros((2, 2)), np.array([0.0, 1.0]), np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0.0, 1.0]),
        np.array([-0.5, 0.5]),
    ),
    "kvaerno3": Tableau.of(diffrax.Kvaerno3, 3),
    "kvaerno4": Tableau.of(diffrax.Kvaerno4, 4),
    "kvaerno5": Tableau.of(diffrax.Kvaerno5, 5),
}  # fmt: skip


class CountedError(NamedTuple):
    """The error estimate of a step, and the number of field evaluations that the step took."""

    error: Any
    evaluations: Array


def uncounted(error: Any) -> tuple[Any, Int[Array, ""]]:
    """The error estimate alone and the evaluations that came with it, 0 if none did."""
    if isinstance(error, CountedError):
        return error.error, error.evaluations.astype(int)
    return error, jnp.zeros((), int)


class Implicit(diffrax.AbstractImplicitSolver, diffrax.AbstractAdaptiveSolver):
    """A diagonally implicit Runge–Kutta method, each stage solved by Newton's method to the tolerances of the steps.

    diffrax's default (`VeryChord`) keeps one Jacobian for a whole step. That of attention changes over distances of
    1/β, so a fixed one fails while particles merge, and half of all steps are rejected: here another one is computed
    where iterations converge slowly (`newton`). With `counted`, errors are `CountedError`. `eps` is the rounding unit
    of the field, whose precision may be below that of the steps.
    """

    method: str = eqx.field(static=True)
    counted: bool = eqx.field(static=True)
    eps: float = eqx.field(static=True)
    root_finder: Any = diffrax.with_stepsize_controller_tols(KeptNewton)()  # pyright: ignore
    root_find_max_steps: Any = _NEWTON_STEPS  # pyright: ignore
    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

    @property
    def tableau(self) -> Tableau:
        """The coefficients of the method."""
        return TABLEAUX[self.method]

    def order(self, terms: Any) -> int:
        """The order of convergence."""
        return self.tableau.order

    def error_order(self, terms: Any) -> float:
        """The order of the embedded error estimate, as diffrax counts it."""
        return max(self.tableau.order, 2)

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """The field at a time and a state."""
        return terms.vf(t0, y0, args)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Array:
        """The field at the beginning; later steps take it from the last stage of the step before."""
        return ravel_pytree(terms.vf(t0, y0, args))[0]

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Array, made_jump: Any
    ) -> tuple[Any, Any, dict[str, Any], Array, Any]:
        """One step: new state, error, what the interpolation needs, last stage, and whether Newton converged."""
        size, table = t1 - t0, self.tableau
        begin, unravel = ravel_pytree(y0)
        first = solver_state
        if made_jump is not False:  # known while tracing, unless the field jumps
            first = jax.lax.cond(made_jump, lambda: self.init(terms, t0, t1, y0, args), lambda: solver_state)

        def field(time: Any, y: Array) -> Array:
            return ravel_pytree(terms.vf(time, unravel(y), args))[0]

        (fields, _, evaluations, result), states = self._stages(field, begin, first, t0, t1)
        estimate = size * jnp.tensordot(jnp.asarray(table.error, begin.dtype), fields, 1)
        converged: Any = result == diffrax.RESULTS.successful
        error: Any = unravel(jnp.asarray(jnp.where(converged, estimate, jnp.inf)))  # rejects the step
        counted = CountedError(error, evaluations.astype(begin.dtype)) if self.counted else error
        y1 = unravel(states[-1])
        dense = {"y0": y0, "y1": y1, "k": jax.vmap(unravel)(size * fields)}
        return y1, counted, dense, fields[-1], result

    def _stages(
        self, field: Callable[[Any, Array], Array], begin: Array, first: Array, t0: Any, t1: Any
    ) -> tuple[tuple[Array, Factors, Array, Any], Array]:
        """Solve the stages one after the other: fields, matrix, evaluations and result, and the state of each.

        A loop, so that the field and Newton's method are compiled once for all stages; they share the matrix I − hγJ.
        """
        size, table = t1 - t0, self.tableau
        rounding = jax.lax.stop_gradient(_FIELD_ROUNDING * self.eps * size * jnp.max(jnp.abs(begin)))

        def solve_stage(so_far: tuple, stage: tuple) -> tuple[tuple, Array]:
            fields, matrix, evaluations, result = so_far
            index, lower, diagonal, guess, node = stage
            time = jnp.where(node == 1, t1, t0 + node * size)
            known, weight = begin + size * jnp.tensordot(lower, fields, 1), size * diagonal
            solution = optx.root_find(
                lambda increment, _: increment - weight * field(time, known + increment),
                self.root_finder,
                weight * jnp.tensordot(guess, fields, 1),
                options={"factors": matrix, "known": index > 1, "rounding": rounding},
                throw=False,
                max_steps=self.root_find_max_steps,
            )
            result = diffrax.RESULTS.where(
                result == diffrax.RESULTS.successful, diffrax.RESULTS.promote(solution.result), result
            )
            fields = fields.at[index].set(solution.value / weight)
            state = known + solution.value
            matrix = jax.lax.stop_gradient(solution.state.factors)
            return (fields, matrix, evaluations + solution.stats["num_steps"], result), state

        rows = (np.arange(len(table.diagonal)), table.lower, table.diagonal, table.guess, table.nodes)
        later = jax.tree.map(lambda row: jnp.asarray(row[1:], None if row.dtype == int else begin.dtype), rows)
        fields = jnp.zeros((len(table.diagonal), *begin.shape), begin.dtype).at[0].set(first)
        nothing = no_factors(begin), jnp.zeros((), int), diffrax.RESULTS.successful
        return jax.lax.scan(solve_stage, (fields, *nothing), later)
