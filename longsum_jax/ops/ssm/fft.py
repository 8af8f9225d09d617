"""Convolution with the two-sided state-space kernel by FFT.

Both directions and the skip D form a single circular kernel, so a forward pass
takes one FFT of the input, one of the kernel and one inverse FFT. Three inputs,
with lags 0 to 2 of the kernels kf (forward) and kb (backward):

    lag       0              1     2     3     -2    -1
    kernel    kf0 + kb0 + D  kf1   kf2   0     kb2   kb1
    input     u0             u1    u2    0     0     0
    output    y0             y1    y2    (cut off)
"""

import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from longsum_jax.ops.ssm.kernel import Modes, kernel_of_modes
from longsum_jax.typing import AnyArray


def convolve_by_fft(
    u: Float[AnyArray, "batch length channels"],
    modes: Modes,
    D: Float[AnyArray, " channels"],
) -> Float[Array, "batch length channels"]:
    """Convolves all channels at once; ``convolution.ssm_convolution`` calls it block by block.

    Args:
        u: inputs, float32.
        modes: modes of the channels.
        D: skip weights, float32.

    Returns:
        float32.
    """
    return apply_spectrum(kernel_spectrum(modes, D, u.shape[1]), u)


def kernel_spectrum(
    modes: Modes, D: Float[AnyArray, " channels"], length: int
) -> Complex[Array, "channels num_frequencies"]:
    """Computes the spectrum of the circular kernel for inputs of ``length``, complex64."""
    kernel = circular_kernel(modes, D, length, smooth_length(length))
    return jnp.fft.rfft(kernel)


def circular_kernel(
    modes: Modes, D: Float[AnyArray, " channels"], length: int, fft_length: int
) -> Float[Array, "channels fft_length"]:
    """Computes circular kernels: forward lags from the left, backward lags from the right.

    Args:
        modes: modes of the channels.
        D: skip weights added at lag 0, float32.
        length: number of lags per direction.
        fft_length: number of entries of a kernel, at least 2 length - 1.

    Returns:
        float32.
    """
    kernel = kernel_of_modes(modes, length)
    # The skip is a kernel with a single lag, 0.
    forward = kernel[0].at[:, 0].add(D)
    if kernel.shape[0] == 1:
        return jnp.pad(forward, ((0, 0), (0, fft_length - length)))
    forward = forward.at[:, 0].add(kernel[1, :, 0])
    # The kernel is circular: lag -1 is its last entry.
    gap = jnp.zeros(
        (forward.shape[0], fft_length - 2 * length + 1), forward.dtype
    )
    backward = kernel[1, :, :0:-1]  # lags length - 1 down to 1
    return jnp.concatenate([forward, gap, backward], axis=1)


def apply_spectrum(
    spectrum: Complex[AnyArray, "channels num_frequencies"],
    u: Float[AnyArray, "batch length channels"],
) -> Float[Array, "batch length channels"]:
    """Convolves float32 inputs with the kernels of ``kernel_spectrum``."""
    length = u.shape[1]
    fft_length = smooth_length(length)
    # [batch, channels, num_frequencies]; the FFT pads the inputs with zeros to
    # its length.
    product = jnp.fft.rfft(u.swapaxes(1, 2), n=fft_length) * spectrum
    y = jnp.fft.irfft(product, n=fft_length)[..., :length]
    return y.swapaxes(1, 2)


def count_frequencies(length: int) -> int:
    """Returns the number of frequencies in the spectra of kernels for inputs of ``length``."""
    return smooth_length(length) // 2 + 1


def smooth_length(length: int) -> int:
    """Returns the smallest even FFT length that fits ``length`` inputs and two-sided lags.

    It is at least 2 length - 1, so that nothing wraps around, and has no prime
    factors above 7.
    """
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
