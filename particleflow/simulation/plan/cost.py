"""The cost of a plan, as far as it can be estimated before anything is compiled.

    pairs = Σ over interactions of particles × points summed over × runs,    seconds a field ≈ 11 · cost / speed

with the cost of a summation in pairs of three coordinates, 11 multiply-adds each: all pairs for exact sums, fewer for
approximations within a tolerance.

The speed is that of the native sum, measured: 7·10⁹ multiply-adds a second and core, within a factor of two between
processors. How many fields a run takes is known only for fixed steps.
"""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from particleflow._support.text import readable_size
from particleflow.discretization.discretization_capabilities import ClosedForm
from particleflow.errors import ArgumentError
from particleflow.simulation.plan.plan import Plan
from particleflow.simulation.stepping import fields_per_step, frame

_SPEED = 7e9  # multiply-adds a second and core
_MULTIPLY_ADDS = 11  # of a pair in three dimensions
_SWEEPS = 20  # of Sinkhorn's iteration, as a rule
_COPIES = 12  # of the state, in a solver: its stages, the state before and after, the error
_LONG = 3600.0  # seconds of a thousand fields from which on a warning is due
_LARGE_FILE = 50e9  # bytes from which on a warning is due
_SMALL = 2**30  # bytes of a matrix of all pairs for which memory is not checked
# The outputs of these operations are certainly in memory as a whole; those of others may be fused away.
_KEPT = frozenset({"dot_general", "sort", "scan", "while"})


class Cost(NamedTuple):
    """Pairs and seconds of a field, bytes of the file, the least bytes of memory, and the number of fields, if known.

    `fields` is exact for fixed steps of explicit solvers, but for one evaluation where a window begins, and None else.
    """

    pairs: int
    field_seconds: float
    file_bytes: int
    memory_bytes: int
    fields: int | None
    solver: str
    summation: str

    def stored(self, share: float) -> "Cost":
        """The same where a file holds only a share of the bytes: some particles, or numbers of another precision."""
        return self._replace(file_bytes=round(share * self.file_bytes))

    def lines(self) -> list[str]:
        """Three lines of text: the time of the fields, how kernels are summed, and bytes of file and memory.

        Where the number of fields is not known, the time is that of a thousand of them.
        """
        many = f"{self.fields:,}" if self.fields else "every 1,000"
        time = f"about {_seconds(self.field_seconds * (self.fields or 1000))} for {many} fields"
        return [
            f"a field: {self.pairs:.3g} pairs, {time}; solver {self.solver}",
            f"sums: {self.summation}",
            f"the file: {readable_size(self.file_bytes)}; memory: at least {readable_size(self.memory_bytes)}",
        ]

    def warnings(self) -> list[str]:
        """Warnings about implausible cost: a run of hours, a file of tens of gigabytes."""
        found = []
        seconds = self.field_seconds * (self.fields or 1000)
        if seconds > _LONG:
            found.append(
                f"{self.pairs:.1e} pairs a field take about {_seconds(self.field_seconds)} each, "
                f"{_seconds(seconds)} for {self.fields or 1000:,} of them: fewer particles, or a larger machine?"
            )
        if self.file_bytes > _LARGE_FILE:
            found.append(f"the file will have {readable_size(self.file_bytes)}: fewer frames, or record.particles?")
        return found


def cost_of(plan: Plan) -> Cost:
    """Estimate the cost of a plan; for many pairs a field and a frame are traced, but nothing is compiled."""
    runs, start = plan.runs or 1, plan.start_of(0)
    pairs, work = 0, 0.0
    closed = isinstance(plan.discretization, ClosedForm)
    for each in () if closed else plan.flow_of(0).interactions(jnp.asarray(plan.times[0], plan.dtype)):
        choice = next((each if plan.runs is None else each.exactly()).choices(start))
        sweeps = _SWEEPS if each.normalization == "sinkhorn" else 1
        pairs, work = pairs + runs * start.count * (each.data or start).count, work + runs * choice.cost * sweeps
    point_bytes = start.points.size * start.points.dtype.itemsize * runs
    return Cost(
        pairs=pairs,
        field_seconds=work * _MULTIPLY_ADDS / (_SPEED * (os.cpu_count() or 1)),
        file_bytes=len(plan.times) * point_bytes,
        memory_bytes=point_bytes * (_COPIES + 2 * plan.window) + _largest_array(plan),
        fields=_known_fields(plan),
        solver=plan.choices["solver"],
        summation=plan.choices["summation"],
    )


def check_memory(cost: Cost) -> None:
    """Raise if a run cannot fit into the memory of this machine."""
    there = memory_of_machine()
    if there is not None and cost.memory_bytes > there:
        raise ArgumentError(
            f"The run needs at least {readable_size(cost.memory_bytes)} of memory, but this machine has "
            f"{readable_size(there)}. Take fewer particles or runs, a smaller window, or leave out observables that "
            "hold all pairs."
        )


def memory_of_machine() -> int | None:
    """Bytes of memory of this machine, None where they are not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _known_fields(plan: Plan) -> int | None:
    """Steps times evaluations a step; None for adaptive steps, and where Newton's method decides how many."""
    each = fields_per_step(plan.method.solver)
    if plan.method.adaptive or each is None:
        return None
    return each * round((plan.times[-1] - plan.times[0]) / float(plan.numbers.step))


def _largest_array(plan: Plan) -> int:
    """Bytes of the largest array that a field or a frame certainly makes, looked for where all pairs would be large."""
    start = plan.start_of(0)
    if start.count**2 * start.points.dtype.itemsize < _SMALL:
        return 0

    def everything(time: Any, state: Any) -> Any:
        present = plan.present(0, state, time)
        return present.velocity, frame(plan.observe, present)

    shapes = jax.eval_shape(lambda: plan.discretization.begin(plan.flow_of(0), start))
    program = jax.make_jaxpr(everything)(jnp.asarray(plan.times[0], plan.dtype), shapes)
    return max((array.size * array.dtype.itemsize for array in _made_in(program.jaxpr)), default=0)


def _made_in(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        if equation.primitive.name in _KEPT:
            yield from (out.aval for out in equation.outvars if isinstance(getattr(out.aval, "dtype", None), np.dtype))
        for inner in jax.tree_util.tree_leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(inner):
                yield from _made_in(getattr(inner, "jaxpr", inner))


def _is_program(value: Any) -> bool:
    return isinstance(value, jax.extend.core.ClosedJaxpr | jax.extend.core.Jaxpr)


def _seconds(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
