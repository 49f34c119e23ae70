"""The command line. Nothing heavy is imported here: each command imports what it needs when it runs."""

import os

# Matrices of analyses are small: several threads of BLAS spend more time waiting for each other than they save, three
# times the processor time of a summary, and more where cores are busy. This is read when NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from particleflow.compilation_cache import collector_at_rest

with collector_at_rest():
    from particleflow.cli.main import main

__all__ = ["main"]
