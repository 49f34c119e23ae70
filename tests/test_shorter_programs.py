"""The number before a number: that of NumPy, bit for bit, and the one that diffrax asks for; what it need not ask."""

import diffrax
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from particleflow.integrate.shorter import known_times, predecessor, shorten_programs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_number_before(dtype):
    """Of random numbers of every size and sign, powers of two and their neighbours, and 0."""
    numbers, rng = np.finfo(dtype), np.random.default_rng(17)
    exponents = np.arange(numbers.minexp + 60, numbers.maxexp - 1)
    powers = np.ldexp(dtype(1), exponents)
    some = np.ldexp(rng.uniform(1, 2, (40, len(powers))).astype(dtype), exponents).ravel()
    above = np.concatenate([some, powers, np.nextafter(powers, dtype(np.inf)), np.nextafter(powers, dtype(0))])
    x = np.concatenate([above, -above]).astype(dtype)
    np.testing.assert_array_equal(predecessor(jnp.asarray(x)), np.nextafter(x, dtype(-np.inf)))
    both = np.array([0.0, *x[:1000]], dtype)
    np.testing.assert_array_equal(predecessor(jnp.asarray(both)), eqxi.prevbefore(jnp.asarray(both)))
    assert predecessor(jnp.asarray(both)).dtype == dtype


def test_diffrax_asks_for_it():
    """A solve has no `nextafter` left, however often it is asked for."""
    shorten_programs()

    def end(t1):
        decay = diffrax.ODETerm(lambda t, y, args: -y)
        steps = diffrax.PIDController(1e-6, 1e-6)
        return diffrax.diffeqsolve(decay, diffrax.Tsit5(), 0.0, t1, 0.1, jnp.ones(2), stepsize_controller=steps).ys

    program = jax.jit(end).lower(jnp.asarray(1.0)).as_text()
    assert "next_after" not in program
    assert program.count("call @predecessor") == 100
    np.testing.assert_allclose(jax.jit(end)(jnp.asarray(1.0)), np.exp([[-1.0, -1.0]]), rtol=1e-5)


def test_diffrax_looks_at_the_times_of_everybody_else():
    """Times in no order are refused, unless they are known to be in order."""
    shorten_programs()

    def ends():
        decay = diffrax.ODETerm(lambda t, y, args: -y)
        times = diffrax.SaveAt(ts=jnp.array([0.5, 0.2]))
        return diffrax.diffeqsolve(decay, diffrax.Euler(), 0.0, 1.0, 0.25, jnp.ones(1), saveat=times).ys

    with pytest.raises(RuntimeError, match="increasing"):
        ends()
    with known_times():
        ends()
    with known_times(active=False), pytest.raises(RuntimeError, match="increasing"):
        ends()
