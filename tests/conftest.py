"""Every test runs with 64 bits, without silent broadcasting or casting, and without a display."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# The same examples every time, and no deadline: the first example of a law also compiles.
settings.register_profile(
    "particleflow",
    deadline=None,
    derandomize=True,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("particleflow")


_tests_since_clearing = 0


@pytest.fixture(autouse=True)
def _compiled_code_does_not_pile_up():
    """Hundreds of small compiled functions take gigabytes: forget them now and then."""
    global _tests_since_clearing
    yield
    _tests_since_clearing += 1
    if _tests_since_clearing >= 60:
        _tests_since_clearing = 0
        jax.clear_caches()
