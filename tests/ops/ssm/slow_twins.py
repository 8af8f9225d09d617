"""Slow forms of the convolution with state-space kernels, for tests."""

from functools import partial

import jax.numpy as jnp
from jax import lax

from longsum_jax.ops.ssm.kernel import (
    DiagonalSSM,
    Discretization,
    ssm_kernel_direct,
    ssm_recurrence,
    ssm_step,
)
from longsum_jax.typing import Array


def ssm_scan(
    u: Array, ssm: DiagonalSSM, D: Array, *, discretization: Discretization = "zoh"
) -> Array:
    """Computes ``ssm_convolution`` by the recurrence, once per direction.

    Args:
        u: float32 [B, L, H].   ssm: H channels, one or two directions.   D: float32 [H], skip.

    Returns:
        float32 [B, L, H].
    """
    recurrence = ssm_recurrence(ssm, discretization=discretization)
    y = D * u
    for direction in range(ssm.directions):
        step = partial(ssm_step, recurrence, direction=direction)
        state = jnp.zeros((u.shape[0], *recurrence.w.shape[1:]), jnp.complex64)
        _, out = lax.scan(step, state, u.swapaxes(0, 1), reverse=direction == 1)
        y = y + out.swapaxes(0, 1)
    return y


def ssm_convolution_direct(
    u: Array, ssm: DiagonalSSM, D: Array, *, discretization: Discretization = "zoh"
) -> Array:
    """Computes ``ssm_convolution`` through a [H, L, L] Toeplitz matrix."""
    kernel = ssm_kernel_direct(ssm, u.shape[1], discretization=discretization)
    lag = jnp.arange(u.shape[1])[:, None] - jnp.arange(u.shape[1])  # output minus input position
    matrix = jnp.where(lag >= 0, kernel[0][:, jnp.abs(lag)], 0.0)
    if ssm.directions == 2:
        matrix = matrix + jnp.where(lag <= 0, kernel[1][:, jnp.abs(lag)], 0.0)
    return jnp.einsum("hji,bih->bjh", matrix, u, precision=lax.Precision.HIGHEST) + D * u
