"""The solvers by their names, each with its order, and whether its steps adapt, are implicit, and suit noise."""

from typing import NamedTuple

from particleflow._support.text import plural
from particleflow.simulation.stepping.implicit import TABLEAUX
from particleflow.simulation.stepping.positive_steps import SHU_OSHER
from particleflow.simulation.stepping.window import (
    ADAPTIVE_SOLVERS,
    EXPLICIT,
    MAP,
    STOCHASTIC_SOLVERS,
    fields_per_step,
)

_METHODS = {
    "bosh3": "Bogacki and Shampine's method",
    "dopri5": "Dormand and Prince's method",
    "dopri8": "Dormand and Prince's method for tight tolerances",
    "euler": "Euler's method",
    "heun": "Heun's method, the trapezium rule",
    "midpoint": "the midpoint rule",
    "ralston": "Ralston's method",
    "tsit5": "Tsitouras' method",
    SHU_OSHER: "Shu and Osher's method, which keeps densities positive",
    "implicit_euler": "Euler's implicit method",
    "kvaerno3": "Kværnø's method",
    "kvaerno4": "Kværnø's method",
    "kvaerno5": "Kværnø's method",
    MAP: "explicit layers x ← N(x + step · v), a map and no approximation of a flow",
}


class SolverFacts(NamedTuple):
    """A solver: its `order` of convergence (None for a map), which steps it takes, and the `noise` it converges to."""

    name: str
    method: str
    order: int | None
    adaptive: bool
    implicit: bool
    noise: str | None
    fields: int | None

    def sentence(self) -> str:
        """All of it in one sentence: "Tsitouras' method: order 5, explicit, adaptive or fixed steps, …"."""
        order = [] if self.order is None else [f"order {self.order}", "implicit" if self.implicit else "explicit"]
        steps = "adaptive or fixed steps" if self.adaptive else "fixed steps only"
        fields = "fields by Newton's method" if self.fields is None else f"{plural(self.fields, 'field')} a step"
        parts = [*order, steps, fields, *([f"also for {self.noise} at fixed steps"] if self.noise else [])]
        return f"{self.method[0].upper()}{self.method[1:]}: {', '.join(parts)}."


def solver_facts() -> tuple[SolverFacts, ...]:
    """Every solver that `solver` may name, explicit ones first."""
    orders: dict[str, int | None] = {name: make().order(None) for name, make in EXPLICIT.items()}  # pyright: ignore
    orders |= {SHU_OSHER: 3, **{name: tableau.order for name, tableau in TABLEAUX.items()}, MAP: None}
    noises = {**dict.fromkeys(STOCHASTIC_SOLVERS, "noise"), "euler": "additive noise"}
    return tuple(
        SolverFacts(
            name, _METHODS[name], order, name in ADAPTIVE_SOLVERS, name in TABLEAUX, noises.get(name),
            fields_per_step(name),
        )
        for name, order in orders.items()
    )  # fmt: skip
