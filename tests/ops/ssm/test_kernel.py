import math
import runpy
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.ssm.fft import circular_kernel
from longsum_jax.ops.ssm.kernel import (
    MAX_LENGTH,
    DiagonalSSM,
    discretize,
    inner_steps,
    ssm_kernel,
    ssm_kernel_direct,
    ssm_recurrence,
    ssm_step,
)

ssm_scan = runpy.run_path(str(Path(__file__).with_name("slow_twins.py")))["ssm_scan"]
PARAMETERS = ("log_dt", "inv_A_real", "A_imag", "B", "C")
LONGEST = 1025
BIDIRECTIONAL = ["a_kernel_init_H6_N16", "a_kernel_rand_H6_N16", "a_kernel_init_H4_N512"]


kernel_of = jax.jit(ssm_kernel, static_argnums=1, static_argnames="discretization")
direct_kernel_of = jax.jit(ssm_kernel_direct, static_argnums=1)


def published(arrays):
    """The parameters of the published module, by name."""
    return {name: arrays[f"param.{name}"] for name in PARAMETERS}


def to_ssm(log_dt, inv_A_real, A_imag, B, C):
    return DiagonalSSM(log_dt[None], -jnp.exp(inv_A_real)[None], A_imag[None], B[None], C)


def two_sided(params, length):
    """[H, 2L], laid out as the published code has it."""
    ssm = to_ssm(**params)
    return circular_kernel(discretize(ssm), jnp.zeros(ssm.C.shape[1]), length, 2 * length)


@partial(jax.jit, static_argnums=1)
def golden_forms(params, length):
    """Kernels by direction and the circular one."""
    return ssm_kernel(to_ssm(**params), length), two_sided(params, length)


@pytest.mark.slow
@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_golden_kernels(golden, name):
    arrays = golden(name)
    params = published(arrays)
    lengths = [int(key[1:].split(".")[0]) for key in arrays if key.endswith("f64.k_fwd")]
    assert len(lengths) >= 2
    for length in lengths:
        one_sided, circular = golden_forms(params, length)
        for direction, key in enumerate(("k_fwd", "k_bwd")):
            np.testing.assert_allclose(
                one_sided[direction], arrays[f"L{length}.f64.{key}"], rtol=0, atol=1e-5
            )
        np.testing.assert_allclose(circular, arrays[f"L{length}.f64.k_bidir"], rtol=0, atol=1e-5)


@jax.jit
@jax.grad
def golden_gradients(params, cotangent):
    return (two_sided(params, 64) * cotangent).sum()


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_golden_gradients_of_kernels(golden, name):
    arrays = golden(name)
    cotangent = arrays["grad.L64.cotangent"].astype(np.float32)
    gradients = golden_gradients(published(arrays), cotangent)
    for key, gradient in gradients.items():
        expected = arrays[f"grad.L64.f64.{key}"]
        np.testing.assert_allclose(
            gradient, expected, rtol=0, atol=1e-5 * np.abs(expected).max(), err_msg=key
        )


def test_golden_causal_kernel(golden):
    arrays = golden("a_kernel_unidir_H5_N8")
    ssm = jax.jit(to_ssm)(**published(arrays))
    assert ssm.directions == 1
    for length in (64, 1000):
        np.testing.assert_allclose(
            kernel_of(ssm, length)[0], arrays[f"L{length}.f64.k"], rtol=0, atol=1e-5
        )


@pytest.mark.slow
@pytest.mark.parametrize(("decay", "tolerance"), [(0.5, 1e-6), (0.02, 2e-6)])
def test_error_of_kernel_at_full_state_size(
    make_ssm, kernel_float64, relative_error, decay, tolerance
):
    ssm = make_ssm(2, 256, decay=decay)
    exact = kernel_float64(ssm, 65536)
    for length in (4096, 65536):
        assert relative_error(kernel_of(ssm, length), exact[..., :length]) <= tolerance


@pytest.mark.parametrize(
    ("length", "directions", "sets"),
    [
        *((length, 2, 1) for length in (1, 2, 7, 100, LONGEST)),
        (100, 1, 1),
        (100, 2, 2),
    ],
)
def test_two_level_kernel_equals_materialised_kernel(
    make_ssm, kernel_float64, length, directions, sets
):
    ssm = make_ssm(3, 4, directions, sets)
    fast, slow = kernel_of(ssm, length), np.asarray(direct_kernel_of(ssm, LONGEST))[..., :length]
    shape = directions, 3, length
    assert fast.shape == direct_kernel_of.eval_shape(ssm, length).shape == shape
    exact = kernel_float64(ssm, length)
    np.testing.assert_allclose(fast, exact, rtol=0, atol=1e-6)
    np.testing.assert_allclose(slow, exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("channels", [16, 17, 70])
def test_kernel_of_many_channels(make_ssm, kernel_float64, channels):
    ssm = make_ssm(channels, 2)
    np.testing.assert_allclose(kernel_of(ssm, 20), kernel_float64(ssm, 20), rtol=0, atol=1e-6)


@pytest.mark.parametrize("length", [1, 100])
def test_tangents_and_gradients_are_those_of_the_materialised_kernel(make_ssm, length):
    ssm, change = make_ssm(3, 5), make_ssm(3, 5, seed=1)
    result, expected = (
        jax.jit(partial(jax.jvp, lambda ssm, form=form: form(ssm, length)))((ssm,), (change,))
        for form in (ssm_kernel, ssm_kernel_direct)
    )
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * np.abs(y).max())
    weights = np.random.default_rng(0).normal(size=result[0].shape).astype(np.float32)
    result, expected = (
        jax.jit(jax.grad(lambda ssm, form=form: (form(ssm, length) * weights).sum()))(ssm)
        for form in (ssm_kernel, ssm_kernel_direct)
    )
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * np.abs(y).max())


def test_discretization_none_is_equation_2_of_the_paper(make_ssm):
    ssm = make_ssm(2, 3)
    log_dt, A_real, A_imag, B, C = (np.asarray(x, np.float64) for x in ssm)
    power = np.exp(np.exp(log_dt)[0, :, None] * (A_real + 1j * A_imag)[0])
    coefficient = (B[..., 0] + 1j * B[..., 1]) * (C[..., 0] + 1j * C[..., 1])
    expected = np.stack([2 * (coefficient * power**lag).sum(-1).real for lag in range(12)], -1)
    np.testing.assert_allclose(
        kernel_of(ssm, 12, discretization="none"), expected, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("dt", [1e-1, 1e-3, 1e-6, 1e-8])
def test_coefficients_have_the_digits_of_float32_for_every_step_size(make_ssm, dt):
    ssm = make_ssm(2, 5)
    ssm = ssm._replace(log_dt=np.full_like(ssm.log_dt, np.log(dt)))
    log_dt, A_real, A_imag, B, C = (np.asarray(x, np.float64) for x in ssm)
    A = A_real + 1j * A_imag
    angle = np.exp(log_dt)[..., None] * A
    # The series of (exp(x) - 1) / x, as the difference has few digits in float64, too.
    series = sum(angle**n / math.factorial(n + 1) for n in range(30))
    step = np.exp(log_dt)[..., None] * series
    expected = (B[..., 0] + 1j * B[..., 1]) * step * (C[..., 0] + 1j * C[..., 1])
    result = np.asarray(jax.jit(discretize)(ssm).Ct)[0].swapaxes(0, 1)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, MAX_LENGTH + 1])
def test_length_outside_the_exact_range_is_refused(make_ssm, length):
    with pytest.raises(ValueError, match=f"length is {length}"):
        jax.eval_shape(partial(ssm_kernel, length=length), make_ssm(1, 1))


@pytest.mark.slow
def test_random_lags_of_the_longest_kernel_against_float64(make_ssm, kernel_float64):
    """Modes that fall to a fifth over sixteen million steps, against their definition."""
    ssm = make_ssm(1, 8, decay=1e-4)
    ssm = ssm._replace(log_dt=np.full_like(ssm.log_dt, np.log(1e-3)))
    kernel = np.asarray(kernel_of(ssm, MAX_LENGTH))
    rng = np.random.default_rng(0)
    lags = np.sort(rng.integers(0, MAX_LENGTH, 500))
    exact = kernel_float64(ssm, MAX_LENGTH, lags=lags)
    largest = np.abs(exact).max()
    assert np.abs(exact[..., -50:]).max() > largest / 10  # far lags count
    np.testing.assert_allclose(kernel[..., lags], exact, rtol=0, atol=3e-6 * largest)


@pytest.mark.parametrize("length", [1, 2, 5, 63, 4096, 100_000, 2**20])
def test_inner_steps_is_within_a_factor_sqrt_2_of_the_root(length):
    assert length / 2 <= inner_steps(length) ** 2 <= length * 2


def test_steps_one_at_a_time_give_the_kernel_of_their_direction(make_ssm, kernel_float64):
    ssm = make_ssm(3, 4, sets=2)
    recurrence = jax.jit(ssm_recurrence)(ssm)
    step_of = jax.jit(ssm_step, static_argnums=3)
    exact = kernel_float64(ssm, 10)
    for direction in (0, 1):
        state, outputs = np.zeros((1, 3, 4), np.complex64), []
        for step in range(10):
            u = np.full((1, 3), step == 0, np.float32)  # an impulse
            state, y = step_of(recurrence, state, u, direction)
            outputs.append(np.asarray(y)[0])
        np.testing.assert_allclose(np.stack(outputs, -1), exact[direction], rtol=0, atol=1e-6)


def test_scan_equals_the_sum_of_the_definition(make_ssm, kernel_float64):
    ssm, rng = make_ssm(2, 3, sets=2), np.random.default_rng(1)
    u, D = rng.normal(size=(2, 9, 2)), rng.normal(size=2)
    forward, backward = kernel_float64(ssm, 9)
    expected = D * u
    for j in range(9):
        for i in range(9):
            if i <= j:
                expected[:, j] += forward[:, j - i] * u[:, i]
            if i >= j:
                expected[:, j] += backward[:, i - j] * u[:, i]
    scanned = jax.jit(ssm_scan)(np.float32(u), ssm, np.float32(D))
    np.testing.assert_allclose(scanned, expected, rtol=0, atol=1e-5)
