from decimal import Decimal, getcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.ssm.phases import cis, exp_double, turns_per_step

getcontext().prec = 50
TWO_PI = 2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
jitted_turns = jax.jit(turns_per_step)
jitted_cis = jax.jit(cis)


def exact_turns(log_dt, frequency):
    return [
        Decimal(float(x)).exp() * Decimal(float(f)) / TWO_PI
        for x, f in zip(log_dt, frequency, strict=True)
    ]


def parameters(count=200):
    """Step sizes from 1e-3 to 1e-1 and frequencies up to the 256th mode, of either sign, zero
    included."""
    rng = np.random.default_rng(0)
    log_dt = rng.uniform(np.log(1e-3), np.log(1e-1), count)
    frequency = rng.uniform(-805, 805, count)
    frequency[:3] = 0.0, 1e-6, -1e-6
    return log_dt.astype(np.float32), frequency.astype(np.float32)


@pytest.mark.parametrize("turns_of", [jitted_turns, turns_per_step], ids=["jit", "eager"])
def test_turns_per_step_against_fifty_digits(turns_of):
    log_dt, frequency = parameters()
    turns = turns_of(jnp.asarray(log_dt), jnp.asarray(frequency))
    high, low = (np.asarray(x) for x in turns)
    assert high.dtype == low.dtype == np.uint32
    for exact, hi, lo in zip(
        exact_turns(log_dt, frequency), high.tolist(), low.tolist(), strict=True
    ):
        distance = (Decimal(hi) / 2**32 + Decimal(lo) / 2**48 - exact) % 1
        assert min(abs(distance), abs(1 - abs(distance))) < Decimal(2) ** -42


def test_exp_double_against_fifty_digits():
    x = np.linspace(-20, 20, 101).astype(np.float32)
    high, low = jax.jit(exp_double)(jnp.asarray(x))
    for value, hi, lo in zip(x, np.asarray(high), np.asarray(low), strict=True):
        exact = Decimal(float(value)).exp()
        assert abs(Decimal(float(hi)) + Decimal(float(lo)) - exact) < exact * Decimal(2) ** -45


@pytest.mark.parametrize("steps", [0, 1, 4097, 2**20 - 1, 2**20, 2**22 + 12345, 2**24 - 1, 2**24])
def test_cis_keeps_its_phase_over_sixteen_million_steps(steps):
    log_dt, frequency = parameters()
    turns = jitted_turns(jnp.asarray(log_dt), jnp.asarray(frequency))
    value = np.asarray(jitted_cis(jnp.zeros(len(log_dt)), *turns, jnp.int32(steps)))
    exact = exact_turns(log_dt, frequency)
    angle = np.array([float(t * steps % 1) * 2 * np.pi for t in exact])
    turned = 2 * np.pi * steps * np.abs(np.array(exact, float))
    assert (np.abs(value - np.exp(1j * angle)) <= 1e-6 + turned * 2.0**-45).all()


def test_gradient_of_cis_against_differences():
    log_dt, frequency = (x[:20] for x in parameters())
    turns = jitted_turns(jnp.asarray(log_dt), jnp.asarray(frequency))
    steps = jnp.int32(50)
    theta = np.exp(log_dt.astype(np.float64)) * frequency

    def real_and_imaginary(theta):
        value = cis(theta, *turns, steps)
        return jnp.stack([value.real, value.imag])

    _, tangent = jax.jvp(
        jax.jit(real_and_imaginary), (jnp.asarray(theta, jnp.float32),), (jnp.ones(len(theta)),)
    )
    step = 1e-6
    slope = (np.exp(1j * (theta + step) * 50) - np.exp(1j * (theta - step) * 50)) / (2 * step)
    np.testing.assert_allclose(tangent, np.stack([slope.real, slope.imag]), rtol=0, atol=50 * 2e-6)


def test_gradient_of_cis_in_reverse_and_under_checkpoint():
    turns = jitted_turns(jnp.float32(-3.0), jnp.float32(2.0))
    theta = jnp.exp(jnp.float32(-3.0)) * 2.0

    def real(theta):
        return cis(theta, *turns, jnp.int32(7)).real

    for fn in (real, jax.checkpoint(real)):
        np.testing.assert_allclose(jax.jit(jax.grad(fn))(theta), -7 * np.sin(7 * theta), rtol=1e-5)
