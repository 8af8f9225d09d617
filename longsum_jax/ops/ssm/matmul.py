"""Convolution with the two-sided state-space kernel by matrix products, without an FFT (after SSD,
Dao and Gu 2024).

The input is cut into N chunks of T positions. Inside a chunk the kernel is a Toeplitz matrix of T
lags; what comes from other chunks goes through the modes' states, one product into them, a
recurrence from chunk to chunk, one product out. That takes 16 M + 2 T operations for each element,
and no kernel of length L is ever built.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from longsum_jax.ops.ssm.kernel import Modes, kernel_of_modes, mode_powers
from longsum_jax.typing import Array

CHUNK = 128  # positions of a chunk, T


class _Planes(NamedTuple):
    """Real and imaginary part, kept apart: products of real matrices are what hardware is made
    for."""

    real: Array
    imag: Array


def convolve_by_matmul(u: Array, modes: Modes, D: Array, *, operands: str = "float32") -> Array:
    """Convolves all channels at once; ``convolution.ssm_convolution`` does it block by block.

    Args:
        u: float32 [B, L, H].   modes: of H channels.   D: float32 [H].
        operands: type that the factors of products are rounded to; sums are float32.

    Returns:
        float32 [B, L, H].
    """
    length = u.shape[1]
    chunk = min(CHUNK, length)
    x = jnp.pad(u, ((0, 0), (0, -length % chunk), (0, 0)))
    x = x.reshape(u.shape[0], -1, chunk, u.shape[2])  # [B, N, T, H]
    product = _Product(operands)
    y = product("hji,bnih->bnjh", _toeplitz(modes, D, chunk), x)
    sets, groups = modes.Ct.shape[0], modes.Ct.shape[2]
    for direction in range(sets * groups):
        own, group = direction // groups, direction % groups
        y = y + _from_other_chunks(
            product, x, _of_direction(modes, own), modes.Ct[own, :, group], direction == 1
        )
    return y.reshape(u.shape[0], -1, u.shape[2])[:, :length]


def _toeplitz(modes: Modes, D: Array, chunk: int) -> Array:
    """float32 [H, T, T]: what position i of a chunk adds to position j of the same."""
    kernel = kernel_of_modes(modes, chunk)
    # Lags -(T - 1) to T - 1 in a row; every row of the matrix is a window of it.
    past = kernel[0].at[:, 0].add(D + (kernel[1, :, 0] if len(kernel) == 2 else 0))
    future = kernel[1, :, 1:] if len(kernel) == 2 else jnp.zeros_like(past[:, 1:])
    lags = jnp.concatenate([past[:, ::-1], future], 1)  # lag j - i at T - 1 - (j - i)
    return _windows(lags, chunk)


def _windows(row: Array, size: int) -> Array:
    """[H, 2 T - 1] -> [H, T, T], row j being ``row[T - 1 - j : 2 T - 1 - j]``; by a skew, not a
    gather."""
    count = row.shape[0]
    wide = jnp.broadcast_to(
        jnp.pad(row, ((0, 0), (0, 1)))[:, None], (count, size, 2 * size)
    ).reshape(count, -1)
    return wide[:, : size * (2 * size - 1)].reshape(count, size, 2 * size - 1)[:, :, size - 1 :]


class _Product:
    """einsum of real arrays whose factors are rounded to ``operands`` and whose sums are
    float32."""

    def __init__(self, operands: str) -> None:
        self._dtype = jnp.dtype(operands)

    def __call__(self, pattern: str, a: Array, b: Array) -> Array:
        factors = a.astype(self._dtype), b.astype(self._dtype)
        return jnp.einsum(
            pattern, *factors, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
        )


def _of_direction(modes: Modes, own: int) -> Modes:
    return Modes(*(x[own : own + 1] for x in modes))


def _from_other_chunks(
    product: _Product, x: Array, modes: Modes, Ct: Array, backward: bool
) -> Array:
    """What the chunks before (or, ``backward``, after) add to every position: [B, N, T, H].

    Ct complex64 [H, M].
    """
    chunk = x.shape[2]
    steps = jnp.arange(chunk + 1, dtype=jnp.int32)
    powers = mode_powers(modes, steps)[0]  # [H, M, T + 1]
    # Steps from a position to the chunk's end (its beginning), and from there to a position of the
    # next chunk.
    into = powers[..., :chunk] if backward else powers[..., chunk - 1 :: -1]
    out = 2 * Ct[..., None] * (powers[..., :0:-1] if backward else powers[..., 1:])
    entering = _Planes(*(product("hmt,bnth->nbhm", part, x) for part in (into.real, into.imag)))
    states = _recurrence(entering, powers[..., chunk], backward)
    return product("hmt,nbhm->bnth", out.real, states.real) - product(
        "hmt,nbhm->bnth", out.imag, states.imag
    )


def _recurrence(entering: _Planes, step: Array, backward: bool) -> _Planes:
    """The state that each chunk begins with, s[n] = step s[n-1] + entering[n-1], over the first
    axis."""

    def advance(state: _Planes, new: _Planes) -> tuple[_Planes, _Planes]:
        turned = _Planes(
            step.real * state.real - step.imag * state.imag,
            step.real * state.imag + step.imag * state.real,
        )
        return _Planes(turned.real + new.real, turned.imag + new.imag), state

    nothing = _Planes(*(jnp.zeros_like(part[0]) for part in entering))
    return lax.scan(advance, nothing, entering, reverse=backward)[1]
