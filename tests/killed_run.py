"""A real run that tests start in a process of its own, kill, and resume: `python killed_run.py FILE [--resume]`."""

import sys

import jax
import numpy as np

import particleflow as pf
from particleflow.sphere_sampling import sample_uniform_sphere


def main() -> None:
    """Run, or go on with, the flow whose trajectory is the first argument."""
    start = sample_uniform_sphere(jax.random.key(3), 3, 96)
    flow = pf.Flow(pf.Attend(pf.kernels.Attention(beta=7.0)), pf.Sphere())
    print("ready", flush=True)
    pf.simulate(
        flow,
        start,
        np.linspace(0.0, 12.0, 241),
        rtol=1e-9,
        atol=1e-11,
        observe=[pf.observables.energy, pf.observables.order_parameter],
        window=3,
        store=sys.argv[1],
        resume="--resume" in sys.argv,
        progress=lambda frames: print(frames.progress.frames, flush=True),
    )


if __name__ == "__main__":
    main()
