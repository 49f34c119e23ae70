"""64 bits: every tolerance this package promises is a float64 tolerance, and JAX computes in 32 bits unless told."""

import os
import sys

_SWITCH = "JAX_ENABLE_X64"


def prefer_64_bits() -> None:
    """Switch JAX to 64 bits unless the environment says otherwise; JAX itself is not imported for that.

    A JAX that is not loaded yet reads the environment when it is; one that is loaded has to be told.
    """
    if _SWITCH in os.environ:
        return
    if "jax" in sys.modules:
        import jax

        jax.config.update("jax_enable_x64", True)
    else:
        os.environ[_SWITCH] = "1"
