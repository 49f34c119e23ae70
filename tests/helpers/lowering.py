"""The program of a run's first window, translated for platforms that need not be there.

It is for a process of its own, which takes itself for one that computes on an accelerator: native sums, which are for
processors, are turned off, and what is chosen by platform is chosen for CUDA. Callbacks into Python, by which diffrax
reports errors, have no translation for a platform that is not there: as on the command line, such errors are NaN.
"""

import json
import os
import re
import sys
from typing import Any

SWITCHES = {"EQX_ON_ERROR": "nan", "PARTICLEFLOW_NATIVE": "0"}
PLATFORMS = ("cuda", "tpu")
HOST = re.compile(r"custom_call @(\w*callback\w*)")


def pretend() -> None:
    """Compute for an accelerator from here on: before anything reads the platform."""
    assert all(os.environ.get(name) == value for name, value in SWITCHES.items())
    assert "particleflow.summation" not in sys.modules
    from particleflow._support import default_device

    default_device.computing_platform = lambda: "cuda"


def window_arguments(plan: Any) -> tuple:
    """What the first window of a run, the first one of an ensemble, is solved from, with the sums chosen for it."""
    import jax
    import numpy as np

    from particleflow.simulation.summation_choice import choose_sums
    from particleflow.simulation.window_loop import at_start

    progress, asked = at_start(plan), plan.window_times(0)
    if plan.approximates:
        plan = choose_sums(plan, 0, progress.time, progress.state, {}).plan
    state, proposed = jax.tree.map(lambda leaf: np.asarray(leaf[0]), (progress.state, progress.proposed))
    begin = np.asarray(progress.time, plan.times.dtype)
    method = plan.methods_for(progress.state)[0]
    numbers = plan.numbers if plan.runs is None else plan.numbers._replace(key=None)
    return (
        method, plan.observe, plan.event, plan.flow_of(0), plan.discretization, state, begin, asked.times, proposed,
        numbers, asked.passing,
    )  # fmt: skip


def calls_to_the_host(function: Any, arguments: tuple) -> dict[str, list[str]]:
    """The calls back to the host in the program of a function, by platform; raises where there is no translation."""
    import equinox as eqx
    import jax

    arrays, rest = eqx.partition(arguments, eqx.is_array)

    def program(arrays: Any) -> Any:
        return eqx.filter(function(*eqx.combine(arrays, rest)), eqx.is_array)

    traced = jax.jit(program).trace(arrays)
    return {each: HOST.findall(traced.lower(lowering_platforms=(each,)).as_text()) for each in PLATFORMS}


def outcome(name: str, precision: str) -> dict[str, Any]:
    """The calls to the host in the first window of a shipped scenario, or the sentence that refuses it."""
    from particleflow import scenario
    from particleflow.errors import UserError
    from particleflow.simulation.stepping import solve_window

    try:
        plan = scenario.load(name).with_values({"precision": precision}).build().plan
    except UserError as error:
        return {"refused": str(error)}
    return calls_to_the_host(solve_window, window_arguments(plan))


def sums() -> dict[str, Any]:
    """Every summation, by name, as a function of points (n, 2): its log-masses and means, and their derivatives."""
    import jax
    import jax.numpy as jnp

    import particleflow as pf
    from particleflow import kernels, summation

    bounded = kernels.Gaussian(0.5)
    table = {
        "Dense": (summation.Dense(), bounded),
        "Blockwise": (summation.Blockwise(8, 8), bounded),
        "Native": (summation.Native(), bounded),
        "Auto": (summation.Auto(), bounded),
        "Auto with a tolerance": (summation.Auto(tolerance=1e-3), bounded),
        "NearFar": (summation.NearFar(1e-3), kernels.Gaussian(0.05)),
        "Separated": (summation.Separated(), kernels.LinearisedAttention("elu")),
        "RandomBatch": (summation.RandomBatch(4), bounded),
        "Spectral": (summation.Spectral(1e-3), bounded),
        "Tree": (summation.Tree(1e-3), kernels.Cauchy(0.5)),
        **{f"Features, {how}": (summation.Features(16, how), bounded) for how in ("fourier", "positive", "nystrom")},
    }

    def looked(how: Any, kernel: Any) -> Any:
        def total(points: Any) -> Any:
            found = how.moments(kernel, pf.Measure.uniform(points), points)
            return jnp.sum(found.log_mass) + jnp.sum(found.mean)

        return jax.value_and_grad(total)

    return {name: looked(*each) for name, each in table.items()}


def outcomes_of_sums(precision: str) -> dict[str, Any]:
    """The calls to the host in every summation of a hundred points, or the sentence that refuses it."""
    import numpy as np

    from particleflow.errors import UserError

    points = np.random.default_rng(0).normal(size=(100, 2)).astype(precision)
    found: dict[str, Any] = {}
    for name, function in sums().items():
        try:
            found[name] = calls_to_the_host(function, (points,))
        except UserError as error:
            found[name] = {"refused": str(error)}
    return found


def outcomes(names: list[str], precision: str) -> dict[str, Any]:
    """The outcome of every scenario."""
    import jax

    found = {}
    for name in names:
        found[name] = outcome(name, precision)
        jax.clear_caches()
    return found


if __name__ == "__main__":
    pretend()
    precision, *names = sys.argv[1:]
    print(json.dumps(outcomes_of_sums(precision) if names == ["--sums"] else outcomes(names, precision)))
