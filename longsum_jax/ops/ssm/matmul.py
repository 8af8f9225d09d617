"""Convolution with the two-sided state-space kernel by matrix products, without an FFT (after SSD,
Dao and Gu 2024).

The input is cut into chunks of T positions. Inside a chunk the kernel is a
Toeplitz matrix of T lags; contributions of other chunks pass through the states
of the modes: one product into the states, a recurrence from chunk to chunk, and
one product out of them. This takes 16 M + 2 T operations per element with M
modes, and no kernel of the full length is ever built.

The recurrence has two levels. Chunks are grouped, as many as memory allows;
inside a group states are combined pairwise, in logarithmically many steps
(Blelloch 1990), and a loop passes the state from group to group:

    group 0   [chunk 0  chunk 1  chunk 2  chunk 3]  ->  state
    group 1   [chunk 4  chunk 5  chunk 6  chunk 7]  ->  state

The gradient recomputes groups, so that only the states of one group are in
memory at a time.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Complex, Float

from longsum_jax.ops.padding import append_zeros
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.ssm.kernel import Modes, kernel_of_modes, mode_powers
from longsum_jax.typing import AnyArray

CHUNK_ON_CPU = 128  # positions of a chunk, T
# On accelerators, memory traffic consists of the states of modes, 1 / T of them
# per position of the batch, and of Toeplitz matrices with T**2 entries per
# channel. So the best T grows with the cube root of the positions. The factor:
# compiled for a TPU v5e, gradients of the base model's layer over 131,072,
# 32,768 and 4,096 positions have the least traffic with 512, 256 to 512, and 64
# to 128.
_CHUNK_OF_ROOT = 10
_LEAST_CHUNK, _LARGEST_CHUNK = 64, 1024
# Tile size of Toeplitz matrices on TPUs, where a skew of whole matrices is
# written and read five times.
_TILE = 64
# A matrix whose size has no common divisor with _TILE of at least this is a
# single tile.
_LEAST_TILE = 8


class _Planes(NamedTuple):
    """Real and imaginary parts as two arrays, because hardware multiplies real matrices."""

    real: Float[Array, "..."]
    imag: Float[Array, "..."]


def convolve_by_matmul(
    u: Float[AnyArray, "batch length channels"],
    modes: Modes,
    D: Float[AnyArray, " channels"],
    *,
    precision: lax.Precision = lax.Precision.HIGHEST,
    group: int | None = None,
) -> Float[Array, "batch length channels"]:
    """Convolves all channels at once; ``convolution.ssm_convolution`` calls it block by block.

    Args:
        u: inputs, float32.
        modes: modes of the channels.
        D: skip weights, float32.
        precision: precision of the products, whose sums are float32.
        group: number of chunks whose states are in memory at once; None for
            all.

    Returns:
        float32.
    """
    batch, length, channels = u.shape
    chunk = min(chunk_length(batch, length), length)
    num_chunks = -(-length // chunk)
    num_groups = -(-num_chunks // (group or num_chunks))
    group = -(-num_chunks // num_groups)  # groups of about equal size
    x = append_zeros(u, num_groups * group * chunk - length)
    x = x.reshape(batch, num_groups, group, chunk, channels)
    x = jnp.moveaxis(x, 1, 0)
    # Inside a chunk: h channel, g group, b batch, n chunk, i input and j output
    # position.
    product = partial(
        jnp.einsum, precision=precision, preferred_element_type=jnp.float32
    )
    y = product("hji,gbnih->gbnjh", _toeplitz(modes, D, chunk), x)
    sets, groups = modes.Ct.shape[0], modes.Ct.shape[2]
    for direction in range(sets * groups):
        # the set, and the direction within it
        index, which = divmod(direction, groups)
        dynamics, Ct = _of_set(modes, index), modes.Ct[index, :, which]
        y = y + _from_other_chunks(
            product, x, dynamics, Ct, backward=direction == 1
        )
    y = jnp.moveaxis(y, 0, 1)
    return y.reshape(batch, -1, channels)[:, :length]


def chunk_length(batch: int, length: int) -> int:
    """Returns the chunk length for inputs [batch, length] on the target's devices."""
    if target_platform() == "cpu":
        return CHUNK_ON_CPU
    best = _CHUNK_OF_ROOT * (batch * length) ** (1 / 3)
    return min(max(2 ** round(math.log2(best)), _LEAST_CHUNK), _LARGEST_CHUNK)


def count_chunks(batch: int, length: int) -> int:
    """Returns the number of chunks of each of ``batch`` inputs of ``length``."""
    return -(-length // chunk_length(batch, length))


def _toeplitz(
    modes: Modes, D: AnyArray, chunk: int
) -> Float[Array, "channels chunk chunk"]:
    """Returns the weight of input i of a chunk in output j of the same chunk, at [:, j, i]."""
    kernel = kernel_of_modes(modes, chunk)
    # Lags T - 1 down to -(T - 1) in a row; every row of the matrix is a window
    # of it.
    past = (
        kernel[0].at[:, 0].add(D + (kernel[1, :, 0] if len(kernel) == 2 else 0))
    )
    if len(kernel) == 2:
        future = kernel[1, :, 1:]
    else:
        future = jnp.zeros_like(past[:, 1:])
    # lag j - i at T - 1 - (j - i)
    lags = jnp.concatenate([past[:, ::-1], future], 1)
    return _windows(lags, chunk)


def _windows(lags: AnyArray, size: int) -> Float[Array, "channels size size"]:
    """Returns matrices whose row j is ``lags[:, size - 1 - j : 2 * size - 1 - j]``.

    On TPUs they are assembled from tiles, one for every diagonal of tiles:

        lags    [a b c d e f g]        [d e | f g]      tiles   [b c]  [d e]  [f g]
                                       [c d | e f]              [a b]  [c d]  [e f]
                                       [b c | d e]
                                       [a b | c d]

    Args:
        lags: lags of each channel, [channels, 2 size - 1].
    """
    if target_platform() != "tpu":
        return _skewed(lags, size)
    tile = math.gcd(size, _TILE)
    if tile < _LEAST_TILE:
        tile = size
    count = size // tile
    channels = len(lags)
    pieces = jnp.pad(lags, ((0, 0), (0, 1))).reshape(channels, 2 * count, tile)
    # [channels, 2 * count - 1, 2 * tile - 1]: the lags of each diagonal of
    # tiles.
    diagonals = jnp.concatenate([pieces[:, :-1], pieces[:, 1:]], 2)[:, :, :-1]
    # One-hot in lag: the lag on its diagonal that each entry of a tile reads.
    lag, row, column = (jnp.arange(n) for n in (2 * tile - 1, tile, tile))
    is_read = lag[:, None, None] == column + tile - 1 - row[:, None]
    tiles = jnp.einsum(
        "hnk,kji->hjni",
        diagonals,
        is_read.astype(lags.dtype),
        precision=lax.Precision.HIGHEST,
    )
    # A row of tiles reads ``count`` diagonals, shifted by one from the row
    # above it.
    firsts = range(count - 1, -1, -1)
    rows = [
        tiles[:, :, n : n + count].reshape(channels, tile, size) for n in firsts
    ]
    return jnp.concatenate(rows, 1)


def _skewed(lags: AnyArray, size: int) -> Float[Array, "channels size size"]:
    """Computes ``_windows`` by a skew: repeats 2 size entries, and reads them in shorter rows."""
    channels, width = lags.shape
    lags = jnp.pad(lags, ((0, 0), (0, 1)))[:, None]
    repeated = jnp.broadcast_to(lags, (channels, size, 2 * size)).reshape(
        channels, -1
    )
    skewed = repeated[:, : size * width].reshape(channels, size, width)
    return skewed[:, :, size - 1 :]


def _of_set(modes: Modes, index: int) -> Modes:
    """Returns one of the sets of modes."""
    return Modes(*(x[index : index + 1] for x in modes))


def _from_other_chunks(
    product: Callable[..., Array],
    x: Float[AnyArray, "groups batch num_chunks chunk channels"],
    modes: Modes,
    Ct: Complex[AnyArray, "channels modes"],
    backward: bool,
) -> Float[Array, "groups batch num_chunks chunk channels"]:
    """Returns the contribution of the previous (``backward``: later) chunks to every position."""
    _, batch, _, chunk, _ = x.shape
    steps = jnp.arange(chunk + 1, dtype=jnp.int32)
    powers = mode_powers(modes, steps)[0]  # [channels, modes, chunk + 1]
    # Powers from a position to the end of its chunk (backward: its beginning),
    # and from there to a position of the next chunk.
    if backward:
        into = powers[..., :chunk]
    else:
        into = powers[..., chunk - 1 :: -1]
    out = (
        2
        * Ct[..., None]
        * (powers[..., :0:-1] if backward else powers[..., 1:])
    )
    step = _Planes(powers[..., chunk].real, powers[..., chunk].imag)

    def advance(state: _Planes, x: AnyArray) -> tuple[_Planes, Array]:
        planes = (into.real, into.imag)
        entering = _Planes(
            *(product("hmt,bnth->nbhm", plane, x) for plane in planes)
        )
        states, state = _states(entering, state, step, backward)
        real = product("hmt,nbhm->bnth", out.real, states.real)
        return state, real - product("hmt,nbhm->bnth", out.imag, states.imag)

    zeros = jnp.zeros((batch, *step.real.shape), jnp.float32)
    # The loop already keeps XLA from merging a group with its recomputation.
    of_group = jax.checkpoint(advance, prevent_cse=False)
    _, y = lax.scan(of_group, _Planes(zeros, zeros), x, reverse=backward)
    return y


def _states(
    entering: _Planes, state: _Planes, step: _Planes, backward: bool
) -> tuple[_Planes, _Planes]:
    """Returns the states at the start of each chunk of a group, and the state after the group.

    They are s[0] = ``state`` and s[n] = step s[n-1] + entering[n-1]; if
    ``backward``, from the last chunk to the first.

    Args:
        entering: contribution of each chunk to the state, [num_chunks, batch,
            channels, modes].
        state: state before the group, [batch, channels, modes].
        step: factor of the state per chunk, [channels, modes].
    """
    # Composition of the affine maps s -> factor s + value, which is
    # associative.

    def combine(
        first: tuple[_Planes, _Planes], then: tuple[_Planes, _Planes]
    ) -> Any:
        (factor, value), (next_factor, next_value) = first, then
        turned = _times(next_factor, value)
        total = _Planes(
            turned.real + next_value.real, turned.imag + next_value.imag
        )
        return _times(factor, next_factor), total

    def join(first: AnyArray, others: AnyArray) -> Array:
        if backward:
            parts = [others, first[None]]
        else:
            parts = [first[None], others]
        return jnp.concatenate(parts)

    count = entering.real.shape[0] + 1
    factors = _Planes(
        *(jnp.broadcast_to(x, (count, 1, *x.shape)) for x in step)
    )
    values = _Planes(*map(join, state, entering))
    _, states = lax.associative_scan(
        combine, (factors, values), reverse=backward
    )
    if backward:
        return _Planes(*(x[1:] for x in states)), _Planes(
            *(x[0] for x in states)
        )
    return _Planes(*(x[:-1] for x in states)), _Planes(*(x[-1] for x in states))


def _times(a: _Planes, b: _Planes) -> _Planes:
    return _Planes(
        a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
    )
