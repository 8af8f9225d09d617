"""Convolution with the two-sided state-space kernel by chunks of positions, in kernels for TPUs.

As in ``matmul.py``, Toeplitz matrices multiply the positions of a chunk, and
states of modes pass from chunk to chunk (after SSD, Dao and Gu 2024). Matrices
and powers of modes are made on the chip, so that the kernels read and write
nothing but inputs, small tables, states and outputs.

**Toeplitz matrices.** A chunk has blocks of T positions. The output of a block
is a sum over the blocks of inputs of its chunk, each times a matrix of T x T
that depends only on the distance d of the blocks:

    y[n] = sum_d  u[n - d] W[d],        W[d][j, i] = c[d T + i - j]

for a kernel c of lags in both directions. Rows of a matrix are rotated rows of
lags: above the diagonal lags of distance d, below it lags of distance d - 1:

              lags of d      of d - 1     matrix       d = 0, T = 3
    j = 0     0  1  2       -3 -2 -1      0  1  2
    j = 1     2  0  1       -1 -3 -2     -1  0  1      rotated by one
    j = 2     1  2  0       -2 -1 -3     -2 -1  0      rotated by two

A matrix multiplies the blocks of all chunks that are d apart. The gradient of
the lags is the same sum in reverse: the sums over chunks and blocks of
u[n - d]^T dy[n], whose diagonals are rotated back and added.

**States.** A mode w of chunk n has the state s[n] = w**C s[n - 1] + e[n - 1] at
its start, for chunks of C positions and the products e of inputs and powers of
w; in the second direction, from the last chunk to the first. Outputs are
products of states and powers. Powers are w**(64 a + 8 b + c), products of three
tables of eight rows. The chunks of a tile advance together, in a logarithmic
number of steps; a loop over tiles carries the state.

Products are in bfloat16 with float32 sums. Inputs are bfloat16; lags, powers and
states are sums of two bfloat16 parts. Of states and powers, the product of both
second parts is left out.

Mosaic compiles the kernels for TPUs; other devices interpret them, for tests.
The module is imported on first use, because importing Pallas takes a third of a
second.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, BFloat16, Bool, Float

from longsum_jax.ops.platform import LANES, target_platform
from longsum_jax.ops.precision import bfloat16_parts
from longsum_jax.ops.ssm.backends import (
    FUSED_CHUNK,
    chunks_per_tile,
    count_fused_chunks,
)
from longsum_jax.ops.ssm.fft import circular_kernel
from longsum_jax.ops.ssm.kernel import Modes, mode_powers
from longsum_jax.typing import AnyArray

_BLOCK = LANES  # positions of a block
_SUBLANES = 16  # rows of a tile of bfloat16
_MEMORY = 48 * 2**20  # on the chip
# Rows of the tables of powers of a mode: of its steps 0 to 7, of multiples of 8
# and of 64, and of 2**j chunks.
_RADIX = 8
_MIDDLE, _OUTER, _DOUBLINGS, _TABLE_ROWS = 8, 16, 24, 32
_SUMS = 4  # sums over states, for the gradient of modes


class _Layout(NamedTuple):
    """Sizes of the rows of an input.

    A row has a block of positions of a chunk of a document. Rows are in the order
    of chunks, then of documents: chunk 0 of all documents, then chunk 1.

    Attributes:
        documents: number of documents.
        blocks: number of blocks of a chunk.
        chunks: number of chunks of a document.
        tile: number of chunks of a tile.
    """

    documents: int
    blocks: int
    chunks: int
    tile: int

    @classmethod
    def of(cls, batch: int, length: int) -> "_Layout":
        chunks = count_fused_chunks(length)
        blocks = FUSED_CHUNK // _BLOCK
        if chunks == 1:
            blocks = -(-length // _BLOCK)
        tile = chunks_per_tile(batch, chunks)
        assert tile is not None, "backends.can_fuse refuses such inputs"
        return cls(batch, blocks, -(-chunks // tile) * tile, tile)

    @property
    def num_tiles(self) -> int:
        return self.chunks // self.tile

    @property
    def tile_rows(self) -> int:
        """Returns the rows of a tile; only a single tile has rows of padding."""
        return -(-self.tile * self.documents // _SUBLANES) * _SUBLANES

    @property
    def chunk(self) -> int:
        """Returns the positions of a chunk."""
        return self.blocks * _BLOCK


def convolve_fused(
    u: BFloat16[AnyArray, "batch length channels"],
    modes: Modes,
    D: Float[AnyArray, " channels"],
) -> BFloat16[Array, "batch length channels"]:
    """Convolves all channels.

    Args:
        u: inputs that ``backends.can_fuse`` accepts.
        modes: modes of the channels.
        D: skip weights, float32.
    """
    batch, length, _ = u.shape
    layout = _Layout.of(batch, length)
    lags = _lags(layout, length, modes, D)
    directions = _directions(layout, modes)
    rows, _ = _convolve(layout, _rows(layout, u), lags, directions)
    return _from_rows(layout, rows, u)


def fused_gradients(
    u: BFloat16[AnyArray, "batch length channels"],
    modes: Modes,
    D: Float[AnyArray, " channels"],
    dy: BFloat16[AnyArray, "batch length channels"],
) -> tuple[Array, Modes, Array]:
    """Returns the gradients of ``u``, ``modes`` and ``D``."""
    batch, length, _ = u.shape
    layout = _Layout.of(batch, length)
    make_lags = functools.partial(_lags, layout, length)
    lags, pull_back = jax.vjp(make_lags, modes, D)
    x, rows_of_dy = _rows(layout, u), _rows(layout, dy)
    # The gradient of inputs is a convolution in reversed time: lag -n of a
    # circular kernel is n entries before its end.
    reverse = jnp.roll(lags[:, ::-1], 1, axis=1)
    directions = _directions(layout, modes)
    swapped = [
        one._replace(is_reversed=not one.is_reversed) for one in directions
    ]
    du, adjoints = _convolve(layout, rows_of_dy, reverse, swapped)
    dmodes, dD = pull_back(_correlate(layout, x, rows_of_dy))
    if directions:
        between = [
            _gradient_between_chunks(layout, one, x, rows_of_dy, adjoint)
            for one, adjoint in zip(directions, adjoints, strict=True)
        ]
        dmodes = _add_directions(dmodes, between)
    return _from_rows(layout, du, u), dmodes, dD


def _lags(
    layout: _Layout, length: int, modes: Modes, D: AnyArray
) -> Float[Array, "channels fft_length"]:
    """Returns circular kernels of twice the length of a chunk."""
    chunk = layout.chunk
    return circular_kernel(modes, D, min(length, chunk), 2 * chunk)


def _rows(
    layout: _Layout, x: AnyArray
) -> BFloat16[Array, "channels blocks rows positions"]:
    """Returns blocks of positions as rows."""
    batch, length, channels = x.shape
    size = layout.chunks * layout.chunk
    x = jnp.pad(x, ((0, 0), (0, size - length), (0, 0)))
    x = x.reshape(batch, layout.chunks, layout.blocks, _BLOCK, channels)
    x = x.transpose(4, 2, 1, 0, 3)
    x = x.reshape(channels, layout.blocks, -1, _BLOCK)
    missing = layout.num_tiles * layout.tile_rows - x.shape[2]
    return jnp.pad(x, ((0, 0), (0, 0), (0, missing), (0, 0)))


def _from_rows(layout: _Layout, rows: Array, like: AnyArray) -> Array:
    """Returns the documents of ``_rows`` in the shape of ``like``."""
    batch, length, channels = like.shape
    x = rows[:, :, : layout.chunks * batch]
    x = x.reshape(channels, layout.blocks, layout.chunks, batch, _BLOCK)
    x = x.transpose(3, 2, 1, 4, 0).reshape(batch, -1, channels)
    return x[:, :length]


class _Direction(NamedTuple):
    """A direction of the kernel.

    Attributes:
        modes: modes of the direction, with an axis of channels and one of
            modes.
        table: powers of the modes, real parts before imaginary parts, padded to
            whole lanes.
        scale: 2 Ct w, in the same form.
        is_reversed: True if states go from the last chunk to the first.
    """

    modes: Modes
    table: Float[Array, "channels table_rows planes"]
    scale: Float[Array, "channels 1 planes"]
    is_reversed: bool


def _directions(layout: _Layout, modes: Modes) -> list[_Direction]:
    """Returns the directions of ``modes``; none if documents have one chunk."""
    if layout.chunks == 1:
        return []
    sets, _, groups, _ = modes.Ct.shape
    eight = jnp.arange(_RADIX, dtype=jnp.int32)
    doublings = layout.chunk << eight
    steps = jnp.concatenate([eight, 8 * eight, 64 * eight, doublings])
    result = []
    for i in range(sets):
        of_set = Modes(*(x[i] for x in modes))
        powers = mode_powers(of_set, steps, axis=-2)
        table = _in_planes(powers)
        for j in range(groups):
            Ct = of_set.Ct[:, j]
            scale = _in_planes((2 * Ct * powers[:, 1])[:, None])
            of_direction = of_set._replace(Ct=Ct)
            result.append(
                _Direction(of_direction, table, scale, is_reversed=i + j > 0)
            )
    return result


def _in_planes(x: AnyArray) -> Float[Array, "channels rows planes"]:
    """Returns real parts before imaginary parts, each padded to whole lanes."""
    missing = -x.shape[2] % LANES
    parts = [
        jnp.pad(part, ((0, 0), (0, 0), (0, missing)))
        for part in (x.real, x.imag)
    ]
    return jnp.concatenate(parts, 2)


def _complex(planes: AnyArray, num_modes: int) -> Array:
    """Returns the complex numbers of ``_in_planes``."""
    real, imag = jnp.split(planes, 2, axis=-1)
    return lax.complex(real[..., :num_modes], imag[..., :num_modes])


def _convolve(
    layout: _Layout,
    rows: BFloat16[AnyArray, "channels blocks rows positions"],
    lags: Float[AnyArray, "channels fft_length"],
    directions: Sequence[_Direction],
) -> tuple[BFloat16[Array, "channels blocks rows positions"], list[Array]]:
    """Returns the convolutions, and the states of each direction."""
    states = [_states(layout, one, rows) for one in directions]
    return _outputs(layout, rows, lags, directions, states), states


def _states(
    layout: _Layout,
    direction: _Direction,
    rows: BFloat16[AnyArray, "channels blocks rows positions"],
) -> Float[Array, "channels rows planes"]:
    """Returns the states at the start of each chunk, in the direction's time."""
    channels = len(rows)
    tile_rows, documents = layout.tile_rows, layout.documents
    num_planes = direction.table.shape[2]
    is_reversed = direction.is_reversed
    first, last = pl.ds(0, documents), pl.ds(tile_rows - documents, documents)
    if is_reversed:
        first, last = last, first

    def run(x: Any, table: Any, states: Any, carry: Any, total: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            carry[...] = jnp.zeros_like(carry)

        powers = _Powers(layout, table, descends=not is_reversed)
        total[...] = jnp.zeros_like(total)
        for block in range(layout.blocks):
            for part in bfloat16_parts(powers.of_block(block)):
                total[...] += _dot(x[block], part, 1, 0)
        total[first] += _times(carry[...], table[pl.ds(_DOUBLINGS, 1)])
        row = lax.broadcasted_iota(jnp.int32, (tile_rows, 1), 0)
        for i in range((layout.tile - 1).bit_length()):
            shift = documents << i
            before = _shifted(total[...], shift, is_reversed)
            if is_reversed:
                has_before = row < tile_rows - shift
            else:
                has_before = row >= shift
            step = table[pl.ds(_DOUBLINGS + i, 1)]
            total[...] += jnp.where(has_before, _times(before, step), 0.0)
        states[...] = _shifted(total[...], documents, is_reversed)
        states[first] = carry[...]
        carry[...] = total[last]

    def in_order(channel: Any, tile: Any) -> tuple[Any, Any]:
        if is_reversed:
            return channel, layout.num_tiles - 1 - tile
        return channel, tile

    def rows_of_tile(*grid: Any) -> tuple[Any, ...]:
        channel, tile = in_order(*grid)
        return channel, 0, tile, 0

    def states_of_tile(*grid: Any) -> tuple[Any, ...]:
        channel, tile = in_order(*grid)
        return channel, tile, 0

    shape = channels, layout.num_tiles * tile_rows, num_planes
    products = 2 * rows.size * num_planes
    return _call(
        f"ssm_states_operations_{2 * products}",
        run,
        layout,
        [
            pl.BlockSpec((None, *_tile_shape(layout)), rows_of_tile),
            _of_channel(direction.table),
        ],
        [rows, direction.table],
        pl.BlockSpec((None, tile_rows, num_planes), states_of_tile),
        jax.ShapeDtypeStruct(shape, jnp.float32),
        [
            pltpu.VMEM((documents, num_planes), jnp.float32),
            pltpu.VMEM((tile_rows, num_planes), jnp.float32),
        ],
    )


def _shifted(x: Array, rows: int, is_reversed: bool) -> Array:
    """Returns rows moved down, or up if ``is_reversed``; rows at the end go around."""
    if rows == len(x):
        return x
    return pltpu.roll(x, len(x) - rows if is_reversed else rows, 0)


class _Powers:
    """Powers of the modes of a channel inside of a kernel.

    Args:
        layout: sizes of the rows.
        table: reference to the table of the channel.
        descends: True for w**(C - 1), ..., w**0 at the C positions of a chunk,
            False for w**0, ..., w**(C - 1).
    """

    def __init__(self, layout: _Layout, table: Any, *, descends: bool) -> None:
        self._table = table
        self._descends = descends
        self._last = layout.chunk - 1
        order = range(_RADIX)
        if descends:
            order = order[::-1]
        fine = jnp.concatenate([table[pl.ds(i, 1)] for i in order])
        # [64, planes]
        self._inner = jnp.concatenate(
            [_times(fine, table[pl.ds(_MIDDLE + i, 1)]) for i in order]
        )

    def of_block(self, block: int) -> Float[Array, "positions planes"]:
        """Returns the powers at the positions of a block."""
        per_block = _BLOCK // len(self._inner)
        outer = list(range(block * per_block, (block + 1) * per_block))
        if self._descends:
            outer = [_RADIX - 1 - i for i in outer]
        parts = [
            _times(self._inner, self._table[pl.ds(_OUTER + i, 1)])
            for i in outer
        ]
        return jnp.concatenate(parts)

    def moments_of_block(self, block: int) -> Float[Array, "positions planes"]:
        """Returns the powers times their exponents."""
        shape = (_BLOCK, 1)
        exponent = block * _BLOCK + lax.broadcasted_iota(jnp.int32, shape, 0)
        if self._descends:
            exponent = self._last - exponent
        return self.of_block(block) * exponent.astype(jnp.float32)


def _times(a: Array, b: Array) -> Array:
    """Returns the complex product of numbers in planes."""
    (a_real, a_imag), (b_real, b_imag) = (jnp.split(x, 2, 1) for x in (a, b))
    real = a_real * b_real - a_imag * b_imag
    imag = a_real * b_imag + a_imag * b_real
    return jnp.concatenate([real, imag], 1)


def _outputs(
    layout: _Layout,
    rows: BFloat16[AnyArray, "channels blocks rows positions"],
    lags: Float[AnyArray, "channels fft_length"],
    directions: Sequence[_Direction],
    states: Sequence[AnyArray],
) -> BFloat16[Array, "channels blocks rows positions"]:
    """Returns the convolutions inside of chunks, and the contributions of states."""
    num_inputs = 3 * len(directions)

    def run(x: Any, lags: Any, *refs: Any) -> None:
        of_states, (y, total) = refs[:num_inputs], refs[num_inputs:]
        total[...] = jnp.zeros_like(total)
        _add_convolution(layout, x, lags, total)
        for i, direction in enumerate(directions):
            state, table, scale = of_states[3 * i : 3 * i + 3]
            _add_states(layout, direction, state, table, scale, total)
        y[...] = total[...].astype(y.dtype)

    of_tile = _rows_of_tile(layout)
    specs = [of_tile, pl.BlockSpec((None, 1, lags.shape[1]), _first_axis(3))]
    arrays = [rows, lags[:, None]]
    products = 2 * rows.size * _BLOCK * layout.blocks
    operations = 2 * products
    for direction, of_direction in zip(directions, states, strict=True):
        num_planes = of_direction.shape[2]
        specs += [
            pl.BlockSpec((None, layout.tile_rows, num_planes), _second_axis),
            _of_channel(direction.table),
            _of_channel(direction.scale),
        ]
        arrays += [of_direction, direction.table, direction.scale]
        operations += 3 * 2 * rows.size * num_planes
    return _call(
        f"ssm_outputs_operations_{operations}",
        run,
        layout,
        specs,
        arrays,
        of_tile,
        jax.ShapeDtypeStruct(rows.shape, rows.dtype),
        [pltpu.VMEM(_tile_shape(layout), jnp.float32)],
    )


def _add_convolution(layout: _Layout, x: Any, lags: Any, total: Any) -> None:
    """Adds the products with Toeplitz matrices to the sums of a tile."""
    is_above = _is_above_diagonal()
    below = _rotated(layout, lags, -layout.blocks)
    for distance, inputs, outputs in _pairs(layout):
        above = _rotated(layout, lags, distance)
        matrix = jnp.where(is_above, above, below)
        below = above
        factor = x[inputs].reshape(-1, _BLOCK)
        for part in bfloat16_parts(matrix):
            product = _dot(factor, part, 1, 0)
            total[outputs] += product.reshape(-1, *total.shape[1:])


def _add_states(
    layout: _Layout,
    direction: _Direction,
    states: Any,
    table: Any,
    scale: Any,
    total: Any,
) -> None:
    """Adds the real parts of the products of states and powers to the sums of a tile."""
    powers = _Powers(layout, table, descends=direction.is_reversed)
    real, imag = jnp.split(_times(states[...], scale[...]), 2, 1)
    scaled = jnp.concatenate([real, -imag], 1)
    high, low = bfloat16_parts(scaled)
    for block in range(layout.blocks):
        of_high, of_low = bfloat16_parts(powers.of_block(block))
        for a, b in ((high, of_high), (high, of_low), (low, of_high)):
            total[block] += _dot(a, b, 1, 1)


def _pairs(layout: _Layout) -> Iterator[tuple[int, Any, Any]]:
    """Yields every distance of blocks, with the blocks of inputs and of outputs at the distance."""
    for distance in range(1 - layout.blocks, layout.blocks):
        count = layout.blocks - abs(distance)
        yield (
            distance,
            pl.ds(max(-distance, 0), count),
            pl.ds(max(distance, 0), count),
        )


def _rotated(
    layout: _Layout, lags: Any, distance: int
) -> Float[Array, "inputs outputs"]:
    """Returns the lags of a block as rows, each rotated by one more than the last."""
    start = distance % (2 * layout.blocks) * _BLOCK
    row = lags[:, pl.ds(start, _BLOCK)]
    rows = jnp.broadcast_to(row, (_BLOCK, _BLOCK))
    return pltpu.roll(rows, 0, 1, stride=1, stride_axis=0)


def _is_above_diagonal() -> Bool[Array, "rows columns"]:
    """Returns True on the diagonal and above it, where rotated rows have not wrapped around."""
    shape = (_BLOCK, _BLOCK)
    rows = lax.broadcasted_iota(jnp.int32, shape, 0)
    return lax.broadcasted_iota(jnp.int32, shape, 1) >= rows


def _correlate(
    layout: _Layout,
    rows: BFloat16[AnyArray, "channels blocks rows positions"],
    others: BFloat16[AnyArray, "channels blocks rows positions"],
) -> Float[Array, "channels fft_length"]:
    """Returns the sums of products at every lag of ``others`` after ``rows``, circular."""

    def run(x: Any, dy: Any, result: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            result[...] = jnp.zeros_like(result)

        is_above = _is_above_diagonal()
        for i, (_distance, inputs, outputs) in enumerate(_pairs(layout)):
            a = x[inputs].reshape(-1, _BLOCK)
            b = dy[outputs].reshape(-1, _BLOCK)
            products = _dot(a, b, 0, 0)  # [inputs, outputs]
            # The last input is not rotated, the first one furthest.
            rotated = pltpu.roll(products, 0, 1, stride=1, stride_axis=0)
            first = jnp.where(is_above, rotated, 0.0)
            second = jnp.where(is_above, 0.0, rotated)
            sums = [jnp.sum(x, 0, keepdims=True) for x in (first, second)]
            result[pl.ds(i, 1)] += jnp.concatenate(sums, 1)

    of_tile = _rows_of_tile(layout)
    shape = len(rows), 2 * layout.blocks - 1, 2 * _BLOCK
    products = 2 * rows.size * _BLOCK * layout.blocks
    sums = _call(
        f"ssm_correlation_operations_{products}",
        run,
        layout,
        [of_tile, of_tile],
        [rows[..., ::-1], others],
        pl.BlockSpec((None, *shape[1:]), _first_axis(3)),
        jax.ShapeDtypeStruct(shape, jnp.float32),
    )
    # Column t of distance d is lag d T + t - (T - 1).
    first, second = jnp.split(sums, 2, axis=2)
    total = jnp.pad(first, ((0, 0), (0, 1), (0, 0)))
    total += jnp.pad(second, ((0, 0), (1, 0), (0, 0)))
    lags: Array = total.reshape(len(rows), -1)
    return jnp.roll(lags, 1 - layout.chunk, axis=1)


def _gradient_between_chunks(
    layout: _Layout,
    direction: _Direction,
    rows: AnyArray,
    rows_of_dy: AnyArray,
    adjoint: AnyArray,
) -> tuple[Array, Array]:
    """Returns the gradients of log w and of Ct, [channels, modes].

    ``matmul._from_other_chunks_backward`` derives them; ``adjoint`` are its states
    q, without their scale.
    """
    states = _states(layout, direction, rows)
    sums = _sums(layout, direction, rows, rows_of_dy, states, adjoint)
    modes = direction.modes
    num_modes = modes.decay.shape[1]
    of_Ct, of_out, of_into, of_step = (
        _complex(sums[:, i], num_modes) for i in range(_SUMS)
    )
    w = _complex(direction.table[:, 1], num_modes)
    step = _complex(direction.table[:, _DOUBLINGS], num_modes)
    scale = _complex(direction.scale[:, 0], num_modes)
    of_log = scale * (of_Ct + of_out + of_into + layout.chunk * step * of_step)
    return of_log, 2 * w * of_Ct


def _sums(
    layout: _Layout,
    direction: _Direction,
    rows: AnyArray,
    rows_of_dy: AnyArray,
    states: AnyArray,
    adjoint: AnyArray,
) -> Float[Array, "channels sums planes"]:
    """Returns sums over chunks and documents of products with states."""
    num_planes = states.shape[2]

    def run(
        x: Any, dy: Any, states: Any, adjoint: Any, table: Any, result: Any
    ) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            result[...] = jnp.zeros_like(result)

        is_reversed = direction.is_reversed
        into = _Powers(layout, table, descends=not is_reversed)
        out = _Powers(layout, table, descends=is_reversed)
        zeros = jnp.zeros(states.shape, jnp.float32)
        reading, reading_moment, entering_moment = zeros, zeros, zeros
        for block in range(layout.blocks):
            for part in bfloat16_parts(out.of_block(block)):
                reading += _dot(dy[block], part, 1, 0)
            for part in bfloat16_parts(out.moments_of_block(block)):
                reading_moment += _dot(dy[block], part, 1, 0)
            for part in bfloat16_parts(into.moments_of_block(block)):
                entering_moment += _dot(x[block], part, 1, 0)
        pairs = (
            (states[...], reading),
            (states[...], reading_moment),
            (adjoint[...], entering_moment),
            (states[...], adjoint[...]),
        )
        for i, pair in enumerate(pairs):
            total = jnp.sum(_times(*pair), 0, keepdims=True)
            result[pl.ds(i, 1)] += total

    of_tile = _rows_of_tile(layout)
    of_states = pl.BlockSpec((None, layout.tile_rows, num_planes), _second_axis)
    products = 2 * rows.size * num_planes
    return _call(
        f"ssm_sums_operations_{3 * 2 * products}",
        run,
        layout,
        [of_tile, of_tile, of_states, of_states, _of_channel(direction.table)],
        [rows, rows_of_dy, states, adjoint, direction.table],
        pl.BlockSpec((None, _SUMS, num_planes), _first_axis(3)),
        jax.ShapeDtypeStruct((len(rows), _SUMS, num_planes), jnp.float32),
    )


def _add_directions(
    dmodes: Modes, of_directions: Sequence[tuple[Array, Array]]
) -> Modes:
    """Adds the gradients of log w and of Ct of each direction."""
    sets, channels, groups, size = dmodes.Ct.shape
    of_log, of_Ct = (
        jnp.stack(x).reshape(sets, groups, channels, size)
        for x in zip(*of_directions, strict=True)
    )
    # In JAX the gradient of a + i b is (gradient of a) - i (gradient of b), and
    # log w is decay + i theta.
    of_log = of_log.sum(1)
    return dmodes._replace(
        decay=dmodes.decay + of_log.real,
        theta=dmodes.theta - of_log.imag,
        Ct=dmodes.Ct + of_Ct.swapaxes(1, 2),
    )


def _tile_shape(layout: _Layout) -> tuple[int, int, int]:
    return layout.blocks, layout.tile_rows, _BLOCK


def _rows_of_tile(layout: _Layout) -> pl.BlockSpec:
    """Returns the block of a tile of rows."""
    return pl.BlockSpec(
        (None, *_tile_shape(layout)),
        lambda channel, tile: (channel, 0, tile, 0),
    )


def _of_channel(x: AnyArray) -> pl.BlockSpec:
    """Returns the block that has all of a channel."""
    return pl.BlockSpec((None, *x.shape[1:]), _first_axis(x.ndim))


def _first_axis(ndim: int) -> Callable[..., tuple[Any, ...]]:
    return lambda channel, _: (channel,) + (0,) * (ndim - 1)


def _second_axis(channel: Any, tile: Any) -> tuple[Any, ...]:
    return channel, tile, 0


def _dot(a: Array, b: Array, axis_of_a: int, axis_of_b: int) -> Array:
    """Returns the float32 product of bfloat16 matrices over one axis of each."""
    axes = ((axis_of_a,), (axis_of_b,))
    return lax.dot_general(
        a,
        b,
        (axes, ((), ())),
        # Mosaic refuses others for bfloat16, such as the default of a model.
        precision=lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )


def _call(
    name: str,
    kernel: Callable[..., None],
    layout: _Layout,
    specs: Sequence[pl.BlockSpec],
    arrays: Sequence[AnyArray],
    result_spec: pl.BlockSpec,
    result: jax.ShapeDtypeStruct,
    scratch: Sequence[Any] = (),
) -> Array:
    """Runs a kernel for every tile of every channel.

    Args:
        name: name that ends with the number of operations, which
            ``longsum_plan`` reads.
        kernel: function of references to inputs, result and scratch.
        layout: sizes of the rows.
        specs, arrays: blocks of inputs, and the inputs.
        result_spec, result: block of the result, and its shape and type.
        scratch: on-chip memory, kept from tile to tile.
    """
    kernel.__name__ = name  # name of the function on the device
    call = pl.pallas_call(
        kernel,
        grid=(result.shape[0], layout.num_tiles),
        in_specs=specs,
        out_specs=result_spec,
        out_shape=result,
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=_MEMORY,
        ),
        interpret=target_platform() != "tpu",
        name=name,
    )
    # Under jit, so that rematerialized layers can skip the whole call if its
    # results were saved.
    return jax.jit(call)(*arrays)
