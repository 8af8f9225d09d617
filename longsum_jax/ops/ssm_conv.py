"""Convolution with the two-sided state-space kernel through the FFT, exact for every length up to 2**20.

    y[j] = sum_{l<=j} kf[j-l] u[l] + sum_{l>=j} kb[l-j] u[l] + D u[j]

Both directions and the skip D form ONE circular kernel, so a forward pass costs one FFT of the input, one of the
kernel and one inverse.  Channels are processed in blocks inside a loop, each block building its own kernel: the
temporary memory is that of one block.  The backward pass recomputes kernels; its residuals are inputs and parameters.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from longsum_jax.ops.ssm import (
    DiagonalSSM,
    Discretization,
    Modes,
    discretize,
    first_direction,
    inner_steps,
    kernel_of_modes,
    slice_channels,
    ssm_kernel_direct,
)
from longsum_jax.typing import Array

MIN_BLOCK_BYTES = 2**26  # temporary memory that a block of channels may take, whatever the input


def ssm_convolution(
    u: Array,
    ssm: DiagonalSSM,
    D: Array,
    *,
    causal: bool = False,
    discretization: Discretization = "zoh",
    block: int | None = None,
) -> Array:
    """Convolves every channel of ``u`` with its kernel (LOCOST, section 3, equation 3, and the published skip D).

    Args:
        u: [B, L, H], any float type; computed in float32.
        ssm: parameters of H channels, float32.
        D: float32 [H], weight of the input itself.
        causal: use the first direction alone, so that output j depends on inputs 0..j; implied by one direction.
        discretization: see ``ssm.discretize``.
        block: channels per step of the loop; chosen from the memory of one channel when not given.

    Returns:
        [B, L, H] in the type of ``u``.
    """
    modes = discretize(first_direction(ssm) if causal else ssm, discretization)
    if block is None:
        block = _channels_per_block(u.shape, modes)
    return _convolve(block, u, modes.decay, modes.theta, modes.Ct, D, modes.high, modes.low)


def ssm_convolution_sharded(
    u: Array,
    ssm: DiagonalSSM,
    D: Array,
    spec: PartitionSpec,
    *,
    causal: bool = False,
    discretization: Discretization = "zoh",
) -> Array:
    """``ssm_convolution`` with ``u`` laid out as ``spec`` (batch, None, channels) on the mesh in use.

    GSPMD does not partition FFTs and would gather the batch on every device; inside ``shard_map`` each device convolves
    its own rows and channels.

    Raises:
        ValueError: the length axis is sharded.
    """
    batch, length, channels = (*spec, None, None, None)[:3]
    if length is not None:
        raise ValueError(f"the length axis of {spec} is sharded; every device needs the whole length")
    parameters = DiagonalSSM(*(PartitionSpec(None, channels) for _ in ssm))
    convolve = jax.shard_map(
        partial(ssm_convolution, causal=causal, discretization=discretization),
        in_specs=(PartitionSpec(batch, None, channels), parameters, PartitionSpec(channels)),
        out_specs=PartitionSpec(batch, None, channels),
        check_vma=False,  # a custom_vjp inside: the cotangents of replicated parameters are summed on the way out
    )
    return convolve(u, ssm, D)


def smooth_length(length: int) -> int:
    """The smallest even 2-3-5-7-smooth FFT length on which ``length`` inputs and two-sided lags do not wrap."""
    n = max(2, 2 * length - 1)
    n += n % 2
    while not _is_smooth(n):
        n += 2
    return n


def _is_smooth(n: int) -> bool:
    for prime in (2, 3, 5, 7):
        while n % prime == 0:
            n //= prime
    return n == 1


def _channels_per_block(shape: tuple[int, ...], modes: Modes) -> int:
    """As many channels as fit the budget: an eighth of the input, at least MIN_BLOCK_BYTES."""
    batch, length, channels = shape
    sets, _, groups, size = modes.Ct.shape
    fft = smooth_length(length)
    inner = inner_steps(length)
    tables = 12 * sets * size * (inner + 2 * groups * -(-length // inner))
    per_channel = tables + 16 * fft * (batch + sets * groups)
    budget = max(MIN_BLOCK_BYTES, batch * length * channels // 2)
    return max(1, min(channels, budget // per_channel))


def circular_kernel(modes: Modes, D: Array, length: int, fft_length: int) -> Array:
    """[H, F] kernel: forward lags from the left, backward lags from the right, D at lag 0."""
    kernel = kernel_of_modes(modes, length)
    forward = kernel[0].at[:, 0].add(D)
    if kernel.shape[0] == 1:
        return jnp.pad(forward, ((0, 0), (0, fft_length - length)))
    forward = forward.at[:, 0].add(kernel[1, :, 0])
    gap = jnp.zeros((forward.shape[0], fft_length - 2 * length + 1), forward.dtype)
    return jnp.concatenate([forward, gap, kernel[1, :, :0:-1]], axis=1)


def _over_blocks(block: int, channels: int, body, carry):
    """carry = body(start, carry) over blocks of channels; the last block is moved back to fit, which changes nothing
    because every block writes (never adds) its own channels."""
    count = -(-channels // block)
    if count == 1:
        return body(0, carry)
    return lax.fori_loop(0, count, lambda i, carry: body(jnp.minimum(i * block, channels - block), carry), carry)


def _spectrum(x: Array, start: Array | int, block: int, fft_length: int) -> Array:
    """rfft over the length of a block of channels: [B, L, H] -> [B, block, F/2 + 1]."""
    x = lax.dynamic_slice_in_dim(x, start, block, 2).astype(jnp.float32)
    return jnp.fft.rfft(x.swapaxes(1, 2), n=fft_length)


def _write(x: Array, value: Array, start: Array | int, axis: int) -> Array:
    return lax.dynamic_update_slice_in_dim(x, value.astype(x.dtype), start, axis)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolve(block, u, decay, theta, Ct, D, high, low):
    length = u.shape[1]
    fft_length = smooth_length(length)
    modes = Modes(decay, theta, high, low, Ct)

    def body(start, y):
        skip = lax.dynamic_slice_in_dim(D, start, block)
        kernel = circular_kernel(slice_channels(modes, start, block), skip, length, fft_length)
        product = _spectrum(u, start, block, fft_length) * jnp.fft.rfft(kernel)
        out = jnp.fft.irfft(product, n=fft_length)[..., :length]
        return _write(y, out.swapaxes(1, 2), start, 2)

    return _over_blocks(block, u.shape[2], body, jnp.zeros_like(u))


def _convolve_forward(block, *inputs):
    return _convolve(block, *inputs), inputs


def _convolve_backward(block, inputs, dy):
    u, decay, theta, Ct, D, high, low = inputs
    length = u.shape[1]
    fft_length = smooth_length(length)

    def body(start, grads):
        du, *dparams = grads
        piece = slice_channels(Modes(decay, theta, high, low, Ct), start, block)
        skip = lax.dynamic_slice_in_dim(D, start, block)

        def build(decay, theta, Ct, D):
            return circular_kernel(piece._replace(decay=decay, theta=theta, Ct=Ct), D, length, fft_length)

        kernel, pull_back = jax.vjp(build, piece.decay, piece.theta, piece.Ct, skip)
        dy_spectrum = _spectrum(dy, start, block, fft_length)
        back = jnp.fft.irfft(dy_spectrum * jnp.fft.rfft(kernel).conj(), n=fft_length)[..., :length]
        du = _write(du, back.swapaxes(1, 2), start, 2)
        dkernel = (dy_spectrum * _spectrum(u, start, block, fft_length).conj()).sum(0)
        pieces = pull_back(jnp.fft.irfft(dkernel, n=fft_length))
        axes = (1, 1, 1, 0)
        return du, *(_write(x, p, start, axis) for x, p, axis in zip(dparams, pieces, axes, strict=True))

    grads = _over_blocks(block, u.shape[2], body, tuple(map(jnp.zeros_like, (u, decay, theta, Ct, D))))
    return *grads, None, None


_convolve.defvjp(_convolve_forward, _convolve_backward)


def ssm_convolution_direct(u: Array, ssm: DiagonalSSM, D: Array, *, discretization: Discretization = "zoh") -> Array:
    """Slow twin of ``ssm_convolution``: the O(L^2) sum through a [H, L, L] Toeplitz matrix."""
    kernel = ssm_kernel_direct(ssm, u.shape[1], discretization=discretization)
    lag = jnp.arange(u.shape[1])[:, None] - jnp.arange(u.shape[1])  # output minus input position
    matrix = jnp.where(lag >= 0, kernel[0][:, jnp.abs(lag)], 0.0)
    if ssm.directions == 2:
        matrix = matrix + jnp.where(lag <= 0, kernel[1][:, jnp.abs(lag)], 0.0)
    return jnp.einsum("hji,bih->bjh", matrix, u, precision=lax.Precision.HIGHEST) + D * u
