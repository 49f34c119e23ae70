"""What the command line sets for its own process: environment variables that NumPy, JAX and equinox read when loaded.

Importing `particleflow`, or calling `main` from Python with arguments, sets none of it.
"""

import os
import warnings

from particleflow._support.compilation_cache import KEEP_EVERY_PROGRAM, cache_folder, silence_xla

_configured: list[bool] = []


def is_command_line() -> bool:
    """Whether this process was started as the command line, and not by a program that uses particleflow."""
    return bool(_configured)


def configure_process() -> None:
    """Set what NumPy, JAX, XLA and equinox read when they are loaded; what the user has set stays."""
    _configured.append(True)
    # Matrices of analyses are small: several threads of BLAS spend more time waiting for each other than they save,
    # three times the processor time of a summary, and more where cores are busy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    silence_xla()
    # Checks inside compiled code call back into Python, and JAX does not cache a program with a callback. What diffrax
    # checks there, particleflow has checked before, and a run that is not finite ends with an error of its own.
    os.environ.setdefault("EQX_ON_ERROR", "nan")
    folder = cache_folder()
    if folder is not None:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
        for name, value in KEEP_EVERY_PROGRAM.items():
            os.environ.setdefault(f"JAX_PERSISTENT_CACHE_{name.upper()}", str(value))
    # JAX writes its cache in place. An entry that another process is still writing, or that was cut off, is compiled
    # again, so the warning is of no use to the user.
    warnings.filterwarnings(
        "ignore", message="Error (reading|writing) persistent compilation cache", category=UserWarning
    )
    # ffmpeg is started by fork and exec at once, which is safe beside JAX's threads.
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
