"""Random state-space channels and their float64 kernels in plain numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.ssm.kernel import DiagonalSSM


@pytest.fixture(scope="session")
def make_ssm():
    """make_ssm(H, M, directions=2, sets=1, decay=0.5, seed=0): channels as at the start of
    training, B perturbed."""

    def make(channels, modes, directions=2, sets=1, decay=0.5, seed=0):
        rng = np.random.default_rng(seed)
        shape = (sets, channels, modes)
        parts = (
            rng.uniform(np.log(1e-3), np.log(1e-1), shape[:2]),
            -decay * np.exp(0.3 * rng.normal(size=shape)),
            np.broadcast_to(np.pi * np.arange(modes), shape) + 0.1 * rng.normal(size=shape),
            np.stack([1 + 0.3 * rng.normal(size=shape), 0.3 * rng.normal(size=shape)], -1),
            rng.normal(size=(directions, channels, modes, 2)) * 0.5**0.5,
        )
        return DiagonalSSM(*(jnp.asarray(x, jnp.float32) for x in parts))

    return make


@pytest.fixture(scope="session")
def kernel_float64():
    """kernel_float64(ssm, L): [directions, H, L] by the defining sum over modes, exp(log_dt)
    included, in float64; of some lags alone where they are given."""

    def kernel(ssm, length, chunk=1024, lags=None):
        log_dt, A_real, A_imag, B, C = (np.asarray(x, np.float64) for x in ssm)
        A = A_real + 1j * A_imag
        dt_A = np.exp(log_dt)[..., None] * A
        B, C = B[..., 0] + 1j * B[..., 1], C[..., 0] + 1j * C[..., 1]
        coefficient = np.broadcast_to(B * np.expm1(dt_A) / A, C.shape) * C
        if lags is not None:
            powers = np.exp(dt_A[..., None] * lags)
            return 2 * (coefficient[..., None, :] @ powers)[..., 0, :].real
        # The powers of the first lags, from every start: as exact as all of them, and much faster.
        powers = np.exp(dt_A[..., None] * np.arange(min(chunk, length)))  # [R, H, M, chunk]
        starts = np.arange(0, length, chunk)[:, None]
        pieces = (coefficient[..., None, :] * np.exp(dt_A[..., None, :] * starts)) @ powers
        return 2 * pieces.reshape(*C.shape[:2], -1)[..., :length].real

    return kernel


@pytest.fixture(scope="session")
def relative_error():
    """relative_error(value, reference): relative L2 distance, computed in float64."""

    def error(value, reference):
        reference = np.asarray(reference, np.float64)
        return np.linalg.norm(np.asarray(value, np.float64) - reference) / np.linalg.norm(reference)

    return error
