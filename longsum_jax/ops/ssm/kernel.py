"""The bidirectional diagonal state-space kernel (LOCOST, Le Bronnec et al. 2023, section 3; S4D, Gu
et al. 2022).

A channel holds M complex modes.  Per mode, with ``A = A_real + i A_imag`` and step ``dt =
exp(log_dt)``:

    w = exp(dt A)          Ct = B C (w - 1) / A     (zero-order hold)
    k[l] = 2 Re sum_m Ct[m] w[m]**l                 l = 0 .. L-1

Modes stand for conjugate pairs, hence the 2 Re.  Two directions have kernels of their own and
share, in the published model, everything but C; the convolution in ``ssm_conv.py`` adds both.
"""

import math
from functools import partial
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import lax

from longsum_jax.ops.ssm.phases import cis, turns_per_step
from longsum_jax.typing import Array

Discretization = Literal["zoh", "none"]
MAX_LENGTH = 2**20  # what the fixed-point phases are exact for


class DiagonalSSM(NamedTuple):
    """Parameters of H diagonal state-space channels with M complex modes each, all float32.

    The leading axis R is 1 when the directions share a parameter and equals the number of
    directions when each has
    its own.  ``directions`` (the leading axis of C) is 1 for causal use and 2 for bidirectional
    use.
    """

    log_dt: Array  # [R, H], log of the step size
    A_real: Array  # [R, H, M], negative
    A_imag: Array  # [R, H, M], radians per unit of time
    B: Array  # [R, H, M, 2], real and imaginary part
    C: Array  # [directions, H, M, 2], real and imaginary part

    @property
    def directions(self) -> int:
        return self.C.shape[0]


def first_direction(ssm: DiagonalSSM) -> DiagonalSSM:
    """The forward direction of ``ssm`` alone, for causal use."""
    return DiagonalSSM(*(x[:1] for x in ssm))


class Modes(NamedTuple):
    """A DiagonalSSM discretised: what kernels are built from.  H is axis 1 of every field; G =
    directions / R."""

    decay: Array  # [R, H, M] float32, dt A_real: log-magnitude per step
    theta: Array  # [R, H, M] float32, dt A_imag: radians per step (carries the gradient)
    high: Array  # [R, H, M] uint32, fixed-point turns per step (carries the phase)
    low: Array  # [R, H, M] uint32
    Ct: Array  # [R, H, G, M] complex64, discretised coefficient


def discretize(ssm: DiagonalSSM, discretization: Discretization = "zoh") -> Modes:
    """Modes of ``ssm``: "zoh" as published, "none" for the coefficient B C of the paper's equation
    2."""
    dt = jnp.exp(ssm.log_dt)[..., None]
    decay, theta = dt * ssm.A_real, dt * ssm.A_imag
    high, low = turns_per_step(ssm.log_dt[..., None], ssm.A_imag)
    B, C = (lax.complex(x[..., 0], x[..., 1]) for x in (ssm.B, ssm.C))
    if discretization == "zoh":
        B = B * _power_minus_one(decay, theta, high, low) / lax.complex(ssm.A_real, ssm.A_imag)
    sets = ssm.log_dt.shape[0]
    Ct = B[:, :, None] * C.reshape(sets, -1, *C.shape[1:]).swapaxes(1, 2)
    return Modes(decay, theta, high, low, Ct)


def ssm_kernel(ssm: DiagonalSSM, length: int, *, discretization: Discretization = "zoh") -> Array:
    """Kernels of every direction and channel by the two-level Vandermonde product.

    With ``l = n S + s`` and S near the square root of L, ``k[n S + s] = Re((2 Ct w**(n S))
    (w**s))``: a batched real
    matrix product whose factors take O(H M sqrt(L)) memory; nothing of size H M L exists.  Phases
    are exact integers (``phases.py``).

    Args:
        ssm: parameters of H channels.
        length: number of lags L, 1 to 2**20.
        discretization: see ``discretize``.

    Returns:
        float32 [directions, H, L].
    """
    modes = discretize(ssm, discretization)
    channels = modes.decay.shape[1]
    width = min(channels, 16)

    # A loop over channels keeps the tables in cache, and keeps XLA from recomputing the modes
    # inside them.
    def block(kernel, i):
        piece = kernel_of_modes(slice_channels(modes, i * width, width), length)
        return lax.dynamic_update_slice_in_dim(kernel, piece, i * width, 1), None

    kernel = jnp.zeros((ssm.directions, channels, length), jnp.float32)
    return lax.scan(block, kernel, jnp.arange(-(-channels // width)))[0]


def slice_channels(modes: Modes, start: Array | int, width: int) -> Modes:
    """``width`` channels from ``start``; like ``lax.dynamic_slice``, the start is clamped to
    fit."""
    return Modes(*(lax.dynamic_slice_in_dim(x, start, width, 1) for x in modes))


def kernel_of_modes(modes: Modes, length: int) -> Array:
    """float32 [directions, H, L] kernels of discretised ``modes``, all channels at once; see
    ``ssm_kernel``."""
    if not 1 <= length <= MAX_LENGTH:
        raise ValueError(f"length is {length}; the kernel is exact for 1 to {MAX_LENGTH} steps")
    inner = inner_steps(length)
    outer = -(-length // inner)
    sets, channels, groups, _ = modes.Ct.shape
    # One axis for sets and channels, J: a leading axis of 1 makes sums of products on CPUs ten
    # times as slow.
    modes = Modes(*(x.reshape(-1, *x.shape[2:]) for x in modes))
    columns = mode_powers(modes, jnp.arange(inner, dtype=jnp.int32), axis=-1)  # [J, M, S]
    rows = mode_powers(modes, inner * jnp.arange(outer, dtype=jnp.int32), axis=-2)[
        :, None
    ]  # [J, 1, N, M]
    # Real products: XLA on CPUs sums complex ones, for gradients, eight times as slowly.
    scale = 2.0 * modes.Ct[:, :, None]  # [J, G, 1, M]
    real = scale.real * rows.real - scale.imag * rows.imag  # [J, G, N, M]
    imag = scale.real * rows.imag + scale.imag * rows.real
    kernel = _real_product(real, columns.real) - _real_product(imag, columns.imag)
    kernel = kernel.reshape(sets, channels, groups, outer * inner)[..., :length]
    return kernel.swapaxes(1, 2).reshape(sets * groups, channels, length)


def _real_product(rows: Array, columns: Array) -> Array:
    return jnp.einsum("jgnm,jms->jgns", rows, columns, precision=lax.Precision.HIGHEST)


def inner_steps(length: int) -> int:
    """S of the two-level form, the power of two nearest to the square root of L."""
    return 2 ** round(math.log2(length) / 2)


def _power_minus_one(decay: Array, theta: Array, high: Array, low: Array) -> Array:
    """exp(dt A) - 1 without cancellation: expm1(a) cos b - 2 sin(b/2)**2 + i exp(a) sin b."""
    turn = cis(theta, high, low, jnp.ones((), jnp.int32))
    growth = jnp.expm1(decay)
    # 1 - cos b = sin(b)**2 / (1 + cos b) away from b = pi, where plain subtraction is accurate.
    near = turn.real > 0
    versine = jnp.where(near, turn.imag**2 / jnp.where(near, 1 + turn.real, 1.0), 1 - turn.real)
    return lax.complex(growth * turn.real - versine, (growth + 1) * turn.imag)


def mode_powers(modes: Modes, steps: Array, axis: int = -1) -> Array:
    """w**steps as complex64 [..., M], the steps (int32, up to 2**20) on a new ``axis``, -1 or
    -2."""
    decay, theta, high, low = (jnp.expand_dims(x, axis) for x in modes[:4])
    steps = steps[:, None] if axis == -2 else steps
    return jnp.exp(decay * steps.astype(jnp.float32)) * cis(theta, high, low, steps)


def ssm_kernel_direct(
    ssm: DiagonalSSM, length: int, *, discretization: Discretization = "zoh"
) -> Array:
    """Slow twin of ``ssm_kernel``: the [R, H, M, L] powers are materialised.  For tests and
    benchmarks."""
    modes = discretize(ssm, discretization)
    powers = mode_powers(modes, jnp.arange(length, dtype=jnp.int32), axis=-1)
    kernel = (
        2.0 * jnp.einsum("rhgm,rhml->rghl", modes.Ct, powers, precision=lax.Precision.HIGHEST).real
    )
    return kernel.reshape(ssm.directions, -1, length)


class Recurrence(NamedTuple):
    """State-space channels as a recurrence: ``x = w x + u``, ``y = 2 Re sum_m Ct x``."""

    w: Array  # [directions, H, M] complex64
    Ct: Array  # [directions, H, M] complex64


def ssm_recurrence(ssm: DiagonalSSM, *, discretization: Discretization = "zoh") -> Recurrence:
    """The step-by-step form of ``ssm``, for ``ssm_step``."""
    modes = discretize(ssm, discretization)
    w = mode_powers(modes, jnp.ones((1,), jnp.int32), axis=-1)[..., 0]
    return Recurrence(
        jnp.broadcast_to(w, ssm.C.shape[:-1]), modes.Ct.swapaxes(1, 2).reshape(ssm.C.shape[:-1])
    )


def ssm_step(
    recurrence: Recurrence, state: Array, u: Array, direction: int = 0
) -> tuple[Array, Array]:
    """One step of the recurrence.

    Args:
        recurrence: from ``ssm_recurrence``.
        state: complex64 [B, H, M]; zeros before the first step.
        u: float32 [B, H], the input of this step.
        direction: which kernel: 0 reads from the first step on, 1 from the last step back.

    Returns:
        (state, y): the new state, and the output [B, H] without the skip ``D u``.
    """
    state = recurrence.w[direction] * state + u[..., None]
    return state, 2.0 * (recurrence.Ct[direction] * state).sum(-1).real


def ssm_scan(
    u: Array, ssm: DiagonalSSM, D: Array, *, discretization: Discretization = "zoh"
) -> Array:
    """Slow twin of ``ssm_convolution``: the recurrence by ``lax.scan``, once per direction.

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
