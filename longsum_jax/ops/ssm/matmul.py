"""Convolution with the two-sided state-space kernel by matrix products, without an FFT (after SSD,
Dao and Gu 2024).

The input is cut into chunks of T positions. Inside a chunk the kernel is a Toeplitz matrix of T
lags; contributions of other chunks go through the states of the modes: one product into them, a
recurrence from chunk to chunk, and one product out. That takes 16 M + 2 T operations for each
element with M modes, and no kernel of the full length is ever built.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Complex, Float

from longsum_jax.ops.ssm.kernel import Modes, kernel_of_modes, mode_powers
from longsum_jax.typing import AnyArray

CHUNK = 128  # positions of a chunk, T


class _Planes(NamedTuple):
    """Real and imaginary part as two arrays, because hardware multiplies real matrices."""

    real: Float[Array, "..."]
    imag: Float[Array, "..."]


def convolve_by_matmul(
    u: Float[AnyArray, "batch length channels"],
    modes: Modes,
    D: Float[AnyArray, " channels"],
    *,
    operands: str = "float32",
) -> Float[Array, "batch length channels"]:
    """Convolves all channels at once; ``convolution.ssm_convolution`` calls it block by block.

    Args:
        u: inputs, float32.
        modes: modes of the channels.
        D: weights of the inputs themselves, float32.
        operands: type that the factors of products are rounded to; sums are float32.

    Returns:
        float32.
    """
    length = u.shape[1]
    chunk = min(CHUNK, length)
    x = jnp.pad(u, ((0, 0), (0, -length % chunk), (0, 0)))
    x = x.reshape(u.shape[0], -1, chunk, u.shape[2])  # [batch, num_chunks, chunk, channels]
    product = _Product(operands)
    y = product("hji,bnih->bnjh", _toeplitz(modes, D, chunk), x)
    sets, groups = modes.Ct.shape[0], modes.Ct.shape[2]
    for direction in range(sets * groups):
        index, group = divmod(direction, groups)
        dynamics, Ct = _of_set(modes, index), modes.Ct[index, :, group]
        y = y + _from_other_chunks(product, x, dynamics, Ct, backward=direction == 1)
    return y.reshape(u.shape[0], -1, u.shape[2])[:, :length]


def _toeplitz(modes: Modes, D: AnyArray, chunk: int) -> Float[Array, "channels chunk chunk"]:
    """Returns the weights of position i of a chunk in output j of the same chunk, at [:, j, i]."""
    kernel = kernel_of_modes(modes, chunk)
    # Lags -(T - 1) to T - 1 in a row; every row of the matrix is a window of it.
    past = kernel[0].at[:, 0].add(D + (kernel[1, :, 0] if len(kernel) == 2 else 0))
    future = kernel[1, :, 1:] if len(kernel) == 2 else jnp.zeros_like(past[:, 1:])
    lags = jnp.concatenate([past[:, ::-1], future], 1)  # lag j - i at T - 1 - (j - i)
    return _windows(lags, chunk)


def _windows(lags: AnyArray, size: int) -> Float[Array, "channels size size"]:
    """Returns matrices whose row j is ``lags[:, size - 1 - j : 2 * size - 1 - j]``.

    By a skew, not a gather: repetitions of 2 size entries, read in rows of 2 size - 1.

    Args:
        lags: [channels, 2 size - 1].
    """
    channels, width = lags.shape
    lags = jnp.pad(lags, ((0, 0), (0, 1)))[:, None]
    repeated = jnp.broadcast_to(lags, (channels, size, 2 * size)).reshape(channels, -1)
    skewed = repeated[:, : size * width].reshape(channels, size, width)
    return skewed[:, :, size - 1 :]


class _Product:
    """An einsum of real arrays with factors rounded to ``operands``, and float32 sums."""

    def __init__(self, operands: str) -> None:
        self._dtype = jnp.dtype(operands)

    def __call__(self, pattern: str, a: AnyArray, b: AnyArray) -> Array:
        factors = a.astype(self._dtype), b.astype(self._dtype)
        return jnp.einsum(
            pattern, *factors, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
        )


def _of_set(modes: Modes, index: int) -> Modes:
    """Returns one of the sets of modes."""
    return Modes(*(x[index : index + 1] for x in modes))


def _from_other_chunks(
    product: _Product,
    x: Float[AnyArray, "batch num_chunks chunk channels"],
    modes: Modes,
    Ct: Complex[AnyArray, "channels modes"],
    backward: bool,
) -> Float[Array, "batch num_chunks chunk channels"]:
    """Returns the contribution of the chunks before (or, ``backward``, after) to every position."""
    chunk = x.shape[2]
    steps = jnp.arange(chunk + 1, dtype=jnp.int32)
    powers = mode_powers(modes, steps)[0]  # [channels, modes, chunk + 1]
    # Steps from a position to the chunk's end (its beginning), and from there to a position of the
    # next chunk.
    into = powers[..., :chunk] if backward else powers[..., chunk - 1 :: -1]
    out = 2 * Ct[..., None] * (powers[..., :0:-1] if backward else powers[..., 1:])
    planes = (into.real, into.imag)
    entering = _Planes(*(product("hmt,bnth->nbhm", plane, x) for plane in planes))
    states = _recurrence(entering, powers[..., chunk], backward)
    real = product("hmt,nbhm->bnth", out.real, states.real)
    return real - product("hmt,nbhm->bnth", out.imag, states.imag)


def _recurrence(entering: _Planes, step: AnyArray, backward: bool) -> _Planes:
    """Returns the state at the start of each chunk, s[n] = step s[n-1] + entering[n-1].

    Chunks are on the first axis.
    """

    def advance(state: _Planes, new: _Planes) -> tuple[_Planes, _Planes]:
        turned = _Planes(
            step.real * state.real - step.imag * state.imag,
            step.real * state.imag + step.imag * state.real,
        )
        return _Planes(turned.real + new.real, turned.imag + new.imag), state

    zeros = _Planes(*(jnp.zeros_like(plane[0]) for plane in entering))
    _, states = lax.scan(advance, zeros, entering, reverse=backward)
    return states
