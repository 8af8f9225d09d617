"""Convolution with the two-sided state-space kernel by matrix products, without an FFT (after SSD,
Dao and Gu 2024).

The input is cut into chunks of T positions. Inside a chunk the kernel is a
Toeplitz matrix of T lags; contributions of other chunks pass through the states
of the modes: one product into the states, a recurrence from chunk to chunk, and
one product out of them. This takes 16 M + 2 T operations per element with M
modes, and no kernel of the full length is ever built.

The recurrence has levels. Chunks are grouped, as many as memory allows, and a
loop passes the state from group to group; inside a group, from chunk to chunk,
or by segments of chunks that advance side by side (``_states``):

    group 0   [chunk 0  chunk 1  chunk 2  chunk 3]  ->  state
    group 1   [chunk 4  chunk 5  chunk 6  chunk 7]  ->  state

The gradient recomputes groups, so that only the states of one group are in
memory at a time. It consists of the same products and recurrences in the other
direction (``_from_other_chunks_backward``). Both directions of the kernel are
rows of the same products.
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
from longsum_jax.ops.ssm.kernel import (
    Modes,
    inner_steps,
    kernel_of_modes,
    mode_powers,
)
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
# written and read five times. Chunks are multiples of the least size.
_TILE, _LEAST_TILE = 64, 8
# Chunks of a group that pass states one by one; more are divided into segments.
_MOST_STEPS = 64


class Planes(NamedTuple):
    """Real and imaginary parts as two arrays, because hardware multiplies real matrices.

    Either may also be a tuple of arrays that sum to it.
    """

    real: Any
    imag: Any


def multiply(a: Planes, b: Planes) -> Planes:
    """Returns the product of every pair of entries."""
    return Planes(
        a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
    )


def add(*terms: Planes) -> Planes:
    """Returns the sum, added from the first to the last."""
    total, *others = terms
    for term in others:
        total = Planes(total.real + term.real, total.imag + term.imag)
    return total


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
    # A text shorter than a chunk is one chunk of whole tiles: the operations of
    # a tile grow with the cube of its size.
    whole = -(-length // _LEAST_TILE) * _LEAST_TILE
    chunk = min(chunk_length(batch, length), whole)
    num_chunks = -(-length // chunk)
    num_groups = -(-num_chunks // (group or num_chunks))
    group = -(-num_chunks // num_groups)  # groups of about equal size
    if group > _MOST_STEPS:
        # A prime number of chunks would have no segments.
        group += -group % (inner_steps(group) // 2)
        num_groups = -(-num_chunks // group)
    x = append_zeros(u, num_groups * group * chunk - length)
    x = x.reshape(batch, num_groups, group, chunk, channels)
    x = jnp.moveaxis(x, 0, 2)
    # Inside a chunk: h channel, g group, n chunk, b batch, i input and j output
    # position.
    toeplitz = _toeplitz(modes, D, chunk, precision)
    y = _product("hji,gnbih->gnbjh", toeplitz, x, precision)
    options = _Options(precision, jnp.dtype(dtype))
    y = y + _from_other_chunks(options, x, modes)
    y = jnp.moveaxis(y, 2, 0)
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
    # above it. Joined before they are cut, tiles are not padded to whole lanes.
    joined = tiles.reshape(channels, tile, -1)
    firsts = range(size - tile, -1, -tile)
    rows = [joined[:, :, first : first + size] for first in firsts]
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


class _Options(NamedTuple):
    """The static options of ``_from_other_chunks``.

    Attributes:
        precision: precision of the products.
        dtype: type that represents the inputs and the gradient of the result
            exactly.
    """

    precision: lax.Precision
    dtype: np.dtype[Any]


# Axes that are reversed for the first and the second direction in arrays
# [groups, chunks, batch, chunk, channels]. The second direction runs through
# reversed time. Inputs are counted down to the end of their chunk in the time
# of their direction, so that both directions, and the way into states and out
# of them, read the same powers.
_Reversed = tuple[tuple[int, ...], tuple[int, ...]]
_RUNNING: _Reversed = ((), (0, 1, 3))
_COUNTED_DOWN: _Reversed = ((3,), (0, 1))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _from_other_chunks(
    options: _Options,
    x: Float[AnyArray, "groups num_chunks batch chunk channels"],
    modes: Modes,
) -> Float[Array, "groups num_chunks batch chunk channels"]:
    """Returns the contribution of the other chunks to every position, in both directions."""
    return _from_other_chunks_forward(options, x, modes)[0]


def _from_other_chunks_forward(
    options: _Options, x: AnyArray, modes: Modes
) -> tuple[Array, Any]:
    precision, dtype = options
    chunk = x.shape[3]
    powers, scale = _powers(modes, chunk), _scale(modes)

    def advance(state: Planes, x: Array) -> tuple[Planes, tuple[Array, Planes]]:
        entering = _into_states(powers, x, precision)
        states, end = _states(entering, state, modes, chunk, scale=scale)
        y = _out_of_states(powers, states, precision)
        return end, (y, state)

    # Inside a loop, XLA does not see that float32 was converted from bfloat16.
    inputs = _by_direction(jnp.asarray(x, dtype), modes, _COUNTED_DOWN)
    _, (y, starts) = lax.scan(advance, _no_state(x, modes), inputs)
    return _sum_of_directions(y, _RUNNING), (x, modes, starts)


def _from_other_chunks_backward(
    options: _Options, residuals: Any, dy: AnyArray
) -> tuple[Array, Modes]:
    """Computes the gradients without the gradient of any power.

    With the states s[n] of a chunk, a mode w, its coefficient C, and T positions
    in a chunk, the outputs are y[n, j] = 2 Re C w w**j s[n]. The gradient dy
    reads the same powers in the other direction:

        r[n] = sum_j w**j dy[n, j]        q[n] = w**T q[n + 1] + r[n + 1]

    and 2 C w q[n] is the gradient of what chunk n adds to the state. A change of
    log w multiplies every power by its exponent, so that the gradient of log w
    has the same sums with powers multiplied by exponents. So all terms have the
    size of states; the gradients of powers would be larger.
    """
    precision, dtype = options
    x, modes, starts = residuals
    chunk = x.shape[3]
    powers, scale = _powers(modes, chunk), _scale(modes)
    # Inputs multiplied by exponents would be float32, and need more passes.
    exponents = jnp.arange(chunk, dtype=jnp.float32)
    moments = Planes(*(plane * exponents for plane in powers))

    def retreat(
        carry: tuple[Planes, list[Planes]], group: tuple[Any, ...]
    ) -> tuple[tuple[Planes, list[Planes]], Array]:
        adjoint, sums = carry
        x, dy, start = group
        entering, entering_moment = (
            _into_states(table, x, precision) for table in (powers, moments)
        )
        reading, reading_moment = (
            _into_states(table, dy, precision) for table in (powers, moments)
        )
        states, _ = _states(entering, start, modes, chunk)
        # of what each chunk adds to the state
        gradients, adjoint = _states(
            reading, adjoint, modes, chunk, scale=scale, backward=True
        )
        dx = _out_of_states(powers, gradients, precision)
        pairs = (
            (states, reading),
            (states, reading_moment),
            (gradients, entering_moment),
            (states, gradients),
        )
        sums = [
            add(total, _sum_of_products(*pair))
            for total, pair in zip(sums, pairs, strict=True)
        ]
        return (adjoint, sums), dx

    zero = Planes(*map(jnp.zeros_like, scale))
    carry = (_no_state(x, modes), [zero] * 4)
    groups = (
        _by_direction(jnp.asarray(x, dtype), modes, _COUNTED_DOWN),
        _by_direction(jnp.asarray(dy, dtype), modes, _RUNNING),
        starts,
    )
    (_, sums), dx = lax.scan(retreat, carry, groups, reverse=True)
    of_Ct, of_out, of_into, of_step = sums
    step = _power(modes, chunk)
    by_step = multiply(Planes(*(chunk * plane for plane in step)), of_step)
    of_log = add(multiply(scale, add(of_out, of_Ct)), of_into, by_step)
    # In JAX the gradient of a + i b is (gradient of a) - i (gradient of b), and
    # log w is decay + i theta.
    ddecay, negative_dtheta = (plane.sum((0, 1)) for plane in of_log)
    of_Ct = multiply(_power(modes, 1), of_Ct)
    dCt = 2 * jnp.moveaxis(lax.complex(*of_Ct)[:, 0], 0, 2)
    dmodes = Modes(ddecay, -negative_dtheta, None, None, dCt)  # type: ignore[arg-type] # integers have no gradients
    return _sum_of_directions(dx, _COUNTED_DOWN), dmodes


_from_other_chunks.defvjp(
    _from_other_chunks_forward, _from_other_chunks_backward
)


def _powers(modes: Modes, chunk: int) -> Planes:
    """Returns w**0 to w**(chunk - 1), [sets, channels, modes, chunk].

    They are products of two small tables, as in ``kernel.py``.
    """
    inner = inner_steps(chunk)
    outer = -(-chunk // inner)
    steps = jnp.arange(inner, dtype=jnp.int32)
    first_steps = inner * jnp.arange(outer, dtype=jnp.int32)
    rows = _planes(mode_powers(modes, first_steps)[..., None])
    columns = _planes(mode_powers(modes, steps)[..., None, :])
    powers = multiply(rows, columns)  # [..., outer, inner]
    shape = *modes.decay.shape, outer * inner
    return Planes(*(x.reshape(shape)[..., :chunk] for x in powers))


def _power(modes: Modes, exponent: int) -> Planes:
    """Returns w**exponent, [sets, channels, modes]."""
    steps = jnp.array([exponent], jnp.int32)
    return _planes(mode_powers(modes, steps)[..., 0])


def _scale(modes: Modes) -> Planes:
    """Returns 2 Ct w, [directions, 1, sets, channels, modes]."""
    coefficients = jnp.moveaxis(2 * modes.Ct, 2, 0)[:, None]
    return multiply(_planes(coefficients), _power(modes, 1))


def _by_direction(
    x: Float[AnyArray, "groups num_chunks batch chunk channels"],
    modes: Modes,
    reversed_axes: _Reversed,
) -> Float[Array, "groups num_chunks directions batch sets chunk channels"]:
    """Returns the inputs of each direction of each set of modes."""
    sets, _, directions, _ = modes.Ct.shape
    parts = [jnp.flip(x, axes) for axes in reversed_axes[: sets * directions]]
    shape = *x.shape[:2], sets, directions, *x.shape[2:]
    return jnp.moveaxis(jnp.stack(parts, 2).reshape(shape), 2, 4)


def _sum_of_directions(
    y: Float[
        AnyArray, "groups num_chunks directions batch sets chunk channels"
    ],
    reversed_axes: _Reversed,
) -> Float[Array, "groups num_chunks batch chunk channels"]:
    """Sums the directions in the order of the text; the transpose of ``_by_direction``."""
    y = jnp.moveaxis(y, (4, 2), (0, 1))
    parts = y.reshape(-1, *y.shape[2:])
    total, *others = map(jnp.flip, parts, reversed_axes)
    return sum(others, total)


def _no_state(x: AnyArray, modes: Modes) -> Planes:
    """Returns zeros, [1, directions, batch, sets, channels, modes]."""
    sets, channels, directions, size = modes.Ct.shape
    shape = 1, directions, x.shape[2], sets, channels, size
    zeros = jnp.zeros(shape, jnp.float32)
    return Planes(zeros, zeros)


def _into_states(
    powers: Planes,
    x: Float[AnyArray, "num_chunks directions batch sets chunk channels"],
    precision: lax.Precision,
) -> Planes:
    """Returns contributions of chunks, [num_chunks, directions, batch, sets, channels, modes]."""
    # Rows of a product are a single axis, or XLA adds axes to its window.
    rows = x.reshape(-1, *x.shape[3:])

    def sums(plane: Array) -> Array:
        product = _product("shmt,rsth->rshm", plane, rows, precision)
        return product.reshape(*x.shape[:3], *product.shape[1:])

    return Planes(*map(sums, powers))


def _out_of_states(
    powers: Planes, states: Planes, precision: lax.Precision
) -> Float[Array, "num_chunks directions batch sets chunk channels"]:
    """Returns the real part of the sums of powers and states over the modes."""

    def sums(plane: Array, states: Array) -> Array:
        rows = states.reshape(-1, *states.shape[3:])
        product = _product("shmt,rshm->rsth", plane, rows, precision)
        return product.reshape(*states.shape[:3], *product.shape[1:])

    real, imag = map(sums, powers, states)
    return real - imag


def _product(
    axes: str, a: AnyArray, b: AnyArray, precision: lax.Precision
) -> Array:
    return jnp.einsum(
        axes, a, b, precision=precision, preferred_element_type=jnp.float32
    )


def _states(
    entering: Planes,
    state: Planes,
    modes: Modes,
    chunk: int,
    *,
    scale: Planes | None = None,
    backward: bool = False,
) -> tuple[Planes, Planes]:
    """Returns the states at the start of each chunk of a group, and the state after the group.

    They are s[0] = ``state`` and s[n] = w**chunk s[n-1] + entering[n-1]; if
    ``backward``, from the last chunk to the first. Many chunks are divided into
    segments, which first advance side by side without the states before them.

    Args:
        entering: contribution of each chunk to the state, [num_chunks,
            directions, batch, sets, channels, modes].
        state: state before the group, as a single chunk.
        modes: modes w.
        chunk: positions of a chunk.
        scale: factor of the returned states of chunks; None for 1.
    """
    step = _power(modes, chunk)

    def advance(state: Planes, entering: Planes) -> tuple[Planes, Planes]:
        end = add(multiply(step, state), entering)
        if scale is None:
            return end, state
        return end, multiply(scale, state)

    def total(state: Planes, entering: Planes) -> tuple[Planes, None]:
        return advance(state, entering)[0], None

    count = len(entering.real)
    size = _chunks_per_segment(count)
    # [size, segments, ...]
    segments = Planes(
        *(x.reshape(-1, size, *x.shape[1:]).swapaxes(0, 1) for x in entering)
    )
    if size == count:
        end, states = lax.scan(advance, state, segments, reverse=backward)
    else:
        none = Planes(*(jnp.zeros_like(x[0]) for x in segments))
        totals, _ = lax.scan(total, none, segments, reverse=backward)
        firsts, end = _states(
            totals, state, modes, size * chunk, backward=backward
        )
        _, states = lax.scan(advance, firsts, segments, reverse=backward)
    in_order = (x.swapaxes(0, 1).reshape(count, *x.shape[2:]) for x in states)
    return Planes(*in_order), end


def _chunks_per_segment(count: int) -> int:
    """Returns a divisor of ``count``: all up to _MOST_STEPS, else near the square root."""
    if count <= _MOST_STEPS:
        return count
    size = math.gcd(count, inner_steps(count))
    if size == 1:
        return count
    return size


def _sum_of_products(a: Planes, b: Planes) -> Planes:
    """Returns sums over chunks and batch, [directions, 1, sets, channels, modes]."""
    return Planes(*(x.sum((0, 2))[:, None] for x in multiply(a, b)))


def _planes(x: Complex[AnyArray, "*axes"]) -> Planes:
    return Planes(jnp.real(x), jnp.imag(x))
