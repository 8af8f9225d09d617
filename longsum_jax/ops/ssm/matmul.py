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
memory at a time. It consists of the same products and recurrences in the other
direction (``_from_other_chunks_backward``).
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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
    dtype: Any = jnp.float32,
    group: int | None = None,
) -> Float[Array, "batch length channels"]:
    """Convolves all channels at once; ``convolution.ssm_convolution`` calls it block by block.

    Args:
        u: inputs, float32.
        modes: modes of the channels.
        D: skip weights, float32.
        precision: precision of the products, whose sums are float32.
        dtype: type that represents ``u`` and the gradient of the result
            exactly; TPUs multiply bfloat16 factors in fewer passes.
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
    toeplitz = _toeplitz(modes, D, chunk, precision)
    y = _product("hji,gbnih->gbnjh", toeplitz, x, precision)
    for direction in range(modes.Ct.shape[0] * modes.Ct.shape[2]):
        options = _Options(direction == 1, precision, jnp.dtype(dtype))
        y = y + _from_other_chunks(options, x, _of_direction(modes, direction))
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
    modes: Modes, D: AnyArray, chunk: int, precision: lax.Precision
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
    return _windows(lags, chunk, precision)


def _windows(
    lags: AnyArray, size: int, precision: lax.Precision
) -> Float[Array, "channels size size"]:
    """Returns matrices whose row j is ``lags[:, size - 1 - j : 2 * size - 1 - j]``.

    On TPUs they are assembled from tiles, one for every diagonal of tiles:

        lags    [a b c d e f g]        [d e | f g]      tiles   [b c]  [d e]  [f g]
                                       [c d | e f]              [a b]  [c d]  [e f]
                                       [b c | d e]
                                       [a b | c d]

    Args:
        lags: lags of each channel, [channels, 2 size - 1].
        size: rows and columns of a matrix.
        precision: precision of the products with the matrices: on TPUs, parts
            of lags that these would drop are dropped here.
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
        precision=precision,
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


def _of_direction(modes: Modes, direction: int) -> Modes:
    """Returns the modes of a direction, [channels, modes]."""
    groups = modes.Ct.shape[2]
    index, which = divmod(direction, groups)
    decay, theta, high, low = (x[index] for x in modes[:4])
    return Modes(decay, theta, high, low, modes.Ct[index, :, which])


class _Options(NamedTuple):
    """The static options of ``_from_other_chunks``.

    Attributes:
        backward: True for the second direction.
        precision: precision of the products.
        dtype: type that represents the inputs and the gradient of the result
            exactly.
    """

    backward: bool
    precision: lax.Precision
    dtype: np.dtype[Any]


class _ChunkPowers(NamedTuple):
    """Powers of modes that connect the positions of a chunk with the states at its ends.

    Attributes:
        into: from a position to the end of its chunk (backward: its beginning).
        out: from there to a position of the next chunk.
        into_steps, out_steps: the exponents of both.
        step: from chunk to chunk.
    """

    into: _Planes
    out: _Planes
    into_steps: Float[Array, " chunk"]
    out_steps: Float[Array, " chunk"]
    step: _Planes

    @classmethod
    def of(cls, modes: Modes, chunk: int, backward: bool) -> "_ChunkPowers":
        """Computes the powers of ``modes``, [channels, modes]."""
        steps = jnp.arange(chunk + 1, dtype=jnp.int32)
        powers = mode_powers(modes, steps)  # [channels, modes, chunk + 1]
        lags = steps.astype(jnp.float32)
        into: tuple[Any, ...] = np.s_[..., chunk - 1 :: -1]
        out: tuple[Any, ...] = np.s_[..., 1:]
        if backward:
            into, out = np.s_[..., :chunk], np.s_[..., :0:-1]
        return cls(
            _planes(powers[into]),
            _planes(powers[out]),
            lags[into],
            lags[out],
            _planes(powers[..., chunk]),
        )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _from_other_chunks(
    options: _Options,
    x: Float[AnyArray, "groups batch num_chunks chunk channels"],
    modes: Modes,
) -> Float[Array, "groups batch num_chunks chunk channels"]:
    """Returns the contribution of the previous (``backward``: later) chunks to every position.

    Args:
        options: static options; ``backward`` selects the later chunks.
        x: inputs, float32.
        modes: modes of one direction, [channels, modes].
    """
    return _from_other_chunks_forward(options, x, modes)[0]


def _from_other_chunks_forward(
    options: _Options, x: AnyArray, modes: Modes
) -> tuple[Array, Any]:
    backward, precision, dtype = options
    powers = _ChunkPowers.of(modes, x.shape[3], backward)
    scale = _planes(2 * modes.Ct)

    def advance(
        state: _Planes, x: Array
    ) -> tuple[_Planes, tuple[Array, _Planes]]:
        entering = _into_states(powers.into, x, precision)
        states, end = _states(entering, state, powers.step, backward)
        y = _out_of_states(powers.out, _times(scale, states), precision)
        return end, (y, state)

    # Inside a loop, XLA does not see that float32 was converted from bfloat16.
    x = jnp.asarray(x, dtype)
    _, (y, starts) = lax.scan(advance, _no_state(x, modes), x, reverse=backward)
    return y, (x, modes, starts)


def _from_other_chunks_backward(
    options: _Options, residuals: Any, dy: AnyArray
) -> tuple[Array, Modes]:
    """Computes the gradients without the gradient of any power.

    With the states s[n] of a chunk, a mode w, its coefficient C, and T positions
    in a chunk, the outputs are y[n, j] = 2 Re C w**(j + 1) s[n]. The gradient
    dy reads the same powers in the other direction:

        r[n] = sum_j w**(j + 1) dy[n, j]        q[n] = w**T q[n + 1] + r[n + 1]

    and 2 C q[n] is the gradient of what chunk n adds to the state. A change of
    log w multiplies every power by its exponent, so that the gradient of log w
    has the same sums with powers multiplied by exponents. So all terms have the
    size of states; the gradients of powers would be larger.
    """
    backward, precision, dtype = options
    x, modes, starts = residuals
    chunk = x.shape[3]
    powers = _ChunkPowers.of(modes, chunk, backward)
    into_moments = _multiplied(powers.into, powers.into_steps)
    out_moments = _multiplied(powers.out, powers.out_steps)
    scale = _planes(2 * modes.Ct)

    def retreat(
        carry: tuple[_Planes, list[_Planes]], group: tuple[Any, ...]
    ) -> tuple[tuple[_Planes, list[_Planes]], Array]:
        adjoint, sums = carry
        x, dy, start = group
        entering, entering_moment = (
            _into_states(p, x, precision) for p in (powers.into, into_moments)
        )
        reading, reading_moment = (
            _into_states(p, dy, precision) for p in (powers.out, out_moments)
        )
        states, _ = _states(entering, start, powers.step, backward)
        adjoints, adjoint = _states(reading, adjoint, powers.step, not backward)
        dx = _out_of_states(powers.into, _times(scale, adjoints), precision)
        pairs = (
            [(states, reading)],
            [(states, reading_moment), (adjoints, entering_moment)],
            [(states, adjoints)],
        )
        sums = [
            _plus(total, *(_sum_of_products(a, b) for a, b in terms))
            for total, terms in zip(sums, pairs, strict=True)
        ]
        return (adjoint, sums), dx

    zero = _planes(jnp.zeros_like(modes.Ct))
    carry = (_no_state(x, modes), [zero] * 3)
    groups = (x, jnp.asarray(dy, dtype), starts)
    (_, sums), dx = lax.scan(retreat, carry, groups, reverse=not backward)
    of_Ct, moments, of_step = sums
    step = _Planes(chunk * powers.step.real, chunk * powers.step.imag)
    of_log = _times(scale, _plus(moments, _times(step, of_step)))
    # In JAX the gradient of a + i b is (gradient of a) - i (gradient of b), and
    # log w is decay + i theta.
    dCt = 2 * lax.complex(*of_Ct)
    return dx, Modes(of_log.real, -of_log.imag, None, None, dCt)  # type: ignore[arg-type] # integers have no gradients


_from_other_chunks.defvjp(
    _from_other_chunks_forward, _from_other_chunks_backward
)


def _no_state(x: AnyArray, modes: Modes) -> _Planes:
    """Returns zeros, [batch, channels, modes]."""
    zeros = jnp.zeros((x.shape[1], *modes.decay.shape), jnp.float32)
    return _Planes(zeros, zeros)


def _into_states(
    powers: _Planes,
    x: Float[AnyArray, "batch num_chunks chunk channels"],
    precision: lax.Precision,
) -> _Planes:
    """Returns the contribution of each chunk, [num_chunks, batch, channels, modes]."""
    return _Planes(
        *(_product("hmt,bnth->nbhm", plane, x, precision) for plane in powers)
    )


def _multiplied(
    powers: _Planes, exponents: Float[AnyArray, " chunk"]
) -> _Planes:
    """Returns the powers multiplied by their exponents.

    Inputs multiplied by exponents would be float32, and need more passes.
    """
    return _Planes(*(plane * exponents for plane in powers))


def _out_of_states(
    powers: _Planes, states: _Planes, precision: lax.Precision
) -> Float[Array, "batch num_chunks chunk channels"]:
    """Returns the real part of the sums of powers and states over the modes."""
    real = _product("hmt,nbhm->bnth", powers.real, states.real, precision)
    return real - _product(
        "hmt,nbhm->bnth", powers.imag, states.imag, precision
    )


def _product(
    axes: str, a: AnyArray, b: AnyArray, precision: lax.Precision
) -> Array:
    return jnp.einsum(
        axes, a, b, precision=precision, preferred_element_type=jnp.float32
    )


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


def _plus(*terms: _Planes) -> _Planes:
    total, *others = terms
    for term in others:
        total = _Planes(total.real + term.real, total.imag + term.imag)
    return total


def _sum_of_products(a: _Planes, b: _Planes) -> _Planes:
    """Returns sums over chunks and batch, [channels, modes]."""
    return _Planes(*(x.sum((0, 1)) for x in _times(a, b)))


def _planes(x: Complex[AnyArray, "*axes"]) -> _Planes:
    return _Planes(jnp.real(x), jnp.imag(x))
