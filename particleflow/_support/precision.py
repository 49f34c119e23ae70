"""Switch JAX to 64 bits, which the tolerances of this package need; by default JAX computes in 32 bits."""

import os
import sys

_SWITCH = "JAX_ENABLE_X64"


def prefer_64_bits() -> None:
    """Switch JAX to 64 bits unless the environment says otherwise; JAX itself is not imported for that.

    JAX reads the environment when it is loaded; if it is loaded already, its configuration is changed.
    """
    if _SWITCH in os.environ:
        return
    if "jax" in sys.modules:
        import jax

        jax.config.update("jax_enable_x64", True)
    else:
        os.environ[_SWITCH] = "1"
