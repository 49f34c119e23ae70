"""A real run for tests to kill and resume: `python killed_run.py FILE [--resume] [--limit=BYTES]`.

`--limit` caps the size of every file it writes, which is how a full disk looks from inside.
"""

import resource
import signal
import sys

import jax
import numpy as np

import particleflow as pf
from particleflow.dynamics.initial.sphere_sampling import sample_uniform_sphere


def main() -> None:
    """Run, or go on with, the flow whose trajectory is the first argument."""
    for option in sys.argv[2:]:
        if option.startswith("--limit="):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            limit = int(option.removeprefix("--limit="))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
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
