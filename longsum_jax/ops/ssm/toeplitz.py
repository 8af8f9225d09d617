"""Convolution with the two-sided state-space kernel by Toeplitz matrices, in a kernel for TPUs.

The positions of a document are divided into N blocks of T. The output of a
block is a sum over all blocks of inputs, each times a matrix of T x T that
depends only on the distance d of the blocks:

    y[n] = sum_d  u[n - d] W[d],        W[d][j, i] = c[d T + i - j]

for a kernel c of lags in both directions. Rows of a matrix are rotated rows of
lags: above the diagonal lags of distance d, below it lags of distance d - 1:

              lags of d      of d - 1     matrix       d = 0, T = 3
    j = 0     0  1  2       -3 -2 -1      0  1  2
    j = 1     2  0  1       -1 -3 -2     -1  0  1      rotated by one
    j = 2     1  2  0       -2 -1 -3     -2 -1  0      rotated by two

A matrix is made on the chip and multiplies the blocks of all documents that
are d apart. There are no states, so that the kernel reads and writes nothing
but inputs, lags and outputs, and no loop over chunks; but the number of operations grows with
the length: 2 L for each input, twice, because lags have two bfloat16 parts.

The gradient of the lags is the same sum in reverse: the sums over documents and
blocks of u[n - d]^T dy[n], whose diagonals are rotated back and added.

Mosaic compiles the kernels for TPUs; other devices interpret them, for tests.
The module is imported on first use, because importing Pallas takes a third of a
second.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, BFloat16, Bool, Float

from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.precision import bfloat16_parts
from longsum_jax.ops.ssm.fft import circular_kernel
from longsum_jax.ops.ssm.kernel import Modes
from longsum_jax.typing import AnyArray

_BLOCK = 128  # positions of a block: lanes of a TPU
_MEMORY = 48 * 2**20  # on the chip


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
    _, length, _ = u.shape
    lags = circular_kernel(modes, D, length, 2 * _padded_length(length))
    return _from_rows(_convolve(_rows(u), lags), u)


def fused_gradients(
    u: BFloat16[AnyArray, "batch length channels"],
    modes: Modes,
    D: Float[AnyArray, " channels"],
    dy: BFloat16[AnyArray, "batch length channels"],
) -> tuple[Array, Modes, Array]:
    """Returns the gradients of ``u``, ``modes`` and ``D``."""
    _, length, _ = u.shape
    make_kernel = functools.partial(
        circular_kernel, length=length, fft_length=2 * _padded_length(length)
    )
    lags, pull_back = jax.vjp(make_kernel, modes, D)
    rows_of_dy = _rows(dy)
    # Lag -n of a circular kernel is n entries before its end.
    reverse = jnp.roll(lags[:, ::-1], 1, axis=1)
    du = _from_rows(_convolve(rows_of_dy, reverse), u)
    dmodes, dD = pull_back(_correlate(_rows(u), rows_of_dy))
    return du, dmodes, dD


def _padded_length(length: int) -> int:
    return -(-length // _BLOCK) * _BLOCK


def _rows(
    x: AnyArray,
) -> BFloat16[Array, "channels blocks batch positions"]:
    """Returns blocks of positions as rows."""
    batch, length, channels = x.shape
    size = _padded_length(length)
    x = jnp.pad(x, ((0, 0), (0, size - length), (0, 0)))
    x = x.reshape(batch, size // _BLOCK, _BLOCK, channels)
    return x.transpose(3, 1, 0, 2)


def _from_rows(rows: Array, like: AnyArray) -> Array:
    """Returns the documents of ``_rows`` in the shape of ``like``."""
    batch, length, channels = like.shape
    x = rows.transpose(2, 1, 3, 0).reshape(batch, -1, channels)
    return x[:, :length]


def _pairs(num_blocks: int, batch: int) -> Iterator[tuple[int, Any, Any]]:
    """Yields every distance of blocks, with the rows of inputs and of outputs at the distance."""
    for d in range(1 - num_blocks, num_blocks):
        count = (num_blocks - abs(d)) * batch
        yield (
            d,
            pl.ds(max(-d, 0) * batch, count),
            pl.ds(max(d, 0) * batch, count),
        )


def _convolve(
    rows: BFloat16[AnyArray, "channels blocks batch positions"],
    lags: Float[AnyArray, "channels fft_length"],
) -> BFloat16[Array, "channels blocks batch positions"]:
    """Returns the convolutions with circular kernels of twice the length."""
    channels, num_blocks, batch, _ = rows.shape
    num_rows = num_blocks * batch

    def run(u_ref: Any, lags_ref: Any, y_ref: Any, u: Any, total: Any) -> None:
        u[...] = u_ref[...].astype(jnp.float32)
        total[...] = jnp.zeros_like(total)
        is_above = _is_above_diagonal()
        below = _rotated(lags_ref, -num_blocks, num_blocks)
        for d, inputs, outputs in _pairs(num_blocks, batch):
            # Slices of float32 rows need not be whole tiles.
            factor = u[inputs].astype(jnp.bfloat16)
            above = _rotated(lags_ref, d, num_blocks)
            matrix = jnp.where(is_above, above, below)
            below = above
            for part in bfloat16_parts(matrix):
                total[outputs] += _dot(factor, part, 1, 0)
        y_ref[...] = total[...].astype(y_ref.dtype)

    pairs = num_blocks**2 * batch * _BLOCK**2
    scratch = pltpu.VMEM((num_rows, _BLOCK), jnp.float32)
    of_channel = pl.BlockSpec((None, num_rows, _BLOCK), lambda h: (h, 0, 0))
    of_lags = pl.BlockSpec((None, 1, lags.shape[1]), lambda h: (h, 0, 0))
    flat = rows.reshape(channels, num_rows, _BLOCK)
    y = _call(
        f"ssm_convolution_operations_{4 * channels * pairs}",
        run,
        channels,
        [of_channel, of_lags],
        of_channel,
        jax.ShapeDtypeStruct(flat.shape, flat.dtype),
        [scratch, scratch],
    )(flat, lags[:, None])
    return y.reshape(rows.shape)


def _rotated(
    lags: Any, distance: int, num_blocks: int
) -> Float[Array, "inputs outputs"]:
    """Returns the lags of a block as rows, each rotated by one more than the last."""
    start = distance % (2 * num_blocks) * _BLOCK
    row = lags[:, pl.ds(start, _BLOCK)]
    rows = jnp.broadcast_to(row, (_BLOCK, _BLOCK))
    return pltpu.roll(rows, 0, 1, stride=1, stride_axis=0)


def _is_above_diagonal() -> Bool[Array, "rows columns"]:
    """Returns True on the diagonal and above it, where rotated rows have not wrapped around."""
    shape = (_BLOCK, _BLOCK)
    rows = lax.broadcasted_iota(jnp.int32, shape, 0)
    return lax.broadcasted_iota(jnp.int32, shape, 1) >= rows


def _correlate(
    rows: BFloat16[AnyArray, "channels blocks batch positions"],
    others: BFloat16[AnyArray, "channels blocks batch positions"],
) -> Float[Array, "channels fft_length"]:
    """Returns the sums of products at every lag of ``others`` after ``rows``, circular."""
    channels, num_blocks, batch, _ = rows.shape
    num_rows = num_blocks * batch

    def run(u_ref: Any, dy_ref: Any, result: Any, u: Any, dy: Any) -> None:
        u[...] = u_ref[...].astype(jnp.float32)
        dy[...] = dy_ref[...].astype(jnp.float32)
        is_above = _is_above_diagonal()
        pairs_of_blocks = _pairs(num_blocks, batch)
        for n, (_, inputs, outputs) in enumerate(pairs_of_blocks):
            a = u[inputs].astype(jnp.bfloat16)
            b = dy[outputs].astype(jnp.bfloat16)
            products = _dot(a, b, 0, 0)  # [inputs, outputs]
            # The last input is not rotated, the first one furthest.
            rotated = pltpu.roll(products, 0, 1, stride=1, stride_axis=0)
            first = jnp.where(is_above, rotated, 0.0)
            second = jnp.where(is_above, 0.0, rotated)
            sums = [jnp.sum(x, 0, keepdims=True) for x in (first, second)]
            result[pl.ds(n, 1)] = jnp.concatenate(sums, 1)

    pairs = num_blocks**2 * batch * _BLOCK**2
    scratch = pltpu.VMEM((num_rows, _BLOCK), jnp.float32)
    of_channel = pl.BlockSpec((None, num_rows, _BLOCK), lambda h: (h, 0, 0))
    shape = (channels, 2 * num_blocks - 1, 2 * _BLOCK)
    sums = _call(
        f"ssm_correlation_operations_{2 * channels * pairs}",
        run,
        channels,
        [of_channel, of_channel],
        pl.BlockSpec((None, *shape[1:]), lambda h: (h, 0, 0)),
        jax.ShapeDtypeStruct(shape, jnp.float32),
        [scratch, scratch],
    )(
        rows[..., ::-1].reshape(channels, num_rows, _BLOCK),
        others.reshape(channels, num_rows, _BLOCK),
    )
    # Column t of distance d is lag d T + t - (T - 1).
    first, second = jnp.split(sums, 2, axis=2)
    total = jnp.pad(first, ((0, 0), (0, 1), (0, 0)))
    total += jnp.pad(second, ((0, 0), (1, 0), (0, 0)))
    lags: Array = total.reshape(channels, -1)
    return jnp.roll(lags, 1 - num_blocks * _BLOCK, axis=1)


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
    channels: int,
    specs: list[pl.BlockSpec],
    result_spec: pl.BlockSpec,
    result: jax.ShapeDtypeStruct,
    scratch: list[Any],
) -> Callable[..., Array]:
    """Returns a function that runs a kernel once for every channel.

    Args:
        name: name that ends with the number of operations, which
            ``longsum_plan`` reads.
        kernel: function of references to inputs, result and scratch.
        channels: number of channels.
        specs, result_spec: blocks of one channel.
        result: shape and type of the result.
        scratch: on-chip memory of one channel.
    """
    kernel.__name__ = name  # name of the function on the device
    call = pl.pallas_call(
        kernel,
        grid=(channels,),
        in_specs=specs,
        out_specs=result_spec,
        out_shape=result,
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",), vmem_limit_bytes=_MEMORY
        ),
        interpret=target_platform() != "tpu",
        name=name,
    )
    # Under jit, so that rematerialized layers can skip the whole call if its
    # results were saved.
    return jax.jit(call)
