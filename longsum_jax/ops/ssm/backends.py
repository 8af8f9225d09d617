"""Selection of a convolution's backend, and of blocks of channels that fit a memory budget.

The temporary memory of a block is proportional to its channels. Blocks are as
large as fits the budget, and of about equal size:

    768 channels, 100 of which fit   ->   8 blocks of 96
"""

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from longsum_jax.errors import InputError
from longsum_jax.ops.device_memory import target_memory
from longsum_jax.ops.platform import LANES, target_kind, target_platform
from longsum_jax.ops.ssm.fft import smooth_length
from longsum_jax.ops.ssm.kernel import Modes, inner_steps
from longsum_jax.ops.ssm.matmul import chunk_length, count_chunks
from longsum_jax.ops.ssm.options import Backend

# Longest inputs of "fused" on GPUs, and prefixes of JAX's names of devices that
# its kernels are compiled for. Complex arrays of 64 x 64 take half of the
# registers of such a GPU; on older ones, whose products read only registers, they
# do not fit. Older TPUs have too little on-chip memory.
LONGEST_FUSED = 4096
_FUSED_DEVICES = (
    "NVIDIA H100",
    "NVIDIA H200",
    "NVIDIA GH200",
    "NVIDIA B200",
    "NVIDIA GB200",
    "TPU v5",
    "TPU v6",
)
# Positions of a chunk of "fused" on TPUs, and of inputs that are a single chunk,
# which needs no states. A row is a chunk of a document: products with more rows
# share powers of modes, and the on-chip memory is enough for the most rows. A tile
# has as many chunks as the table of powers has doublings for.
FUSED_CHUNK = 512
_LONGEST_CHUNK = 1024
_TILE_ROWS, _MOST_TILE_ROWS = 512, 1024
_TILE_CHUNKS = 256
_TILE_MULTIPLE = 16  # rows that hardware stores together in bfloat16
# TPUs, by JAX's names, to the number of positions of a batch from which "auto" is
# "fused" if it supports the inputs. The two cores of a v5p exchange arrays of
# "matmul" through memory; on others, arrays of so many positions do not fit the
# chip. This is an expectation, not a measurement (docs/design/ssm.md).
FUSED_FROM: Mapping[str, int] = {
    "TPU v5": 1,
    "TPU v5p": 1,
    "TPU v5 lite": 2**19,
    "TPU v5e": 2**19,
    "TPU v6 lite": 2**19,
    "TPU v6e": 2**19,
}
# Platform to batch size to the first length at which "matmul" is faster. On
# CPUs the FFT was always faster, see benchmarks/results/ssm_backends.json. On
# GPUs it is expected to be, and on TPUs not to be: XLA's FFT is slow there.
_MATMUL_FROM: Mapping[str, Mapping[int, int]] = {"tpu": {1: 1}}
# Minimum budget for the temporary memory of a block of channels; an eighth of
# the input if that is more. On CPUs it is the size of caches, on TPUs what XLA
# keeps on the chip (BUILD_NOTES.md), elsewhere the device's memory divided by
# the number of the backend.
MIN_BLOCK_BYTES: Mapping[str, int] = {"cpu": 2**25, "tpu": 2**27}
_MEMORY_DIVISORS: Mapping[str, int] = {"fft": 128, "matmul": 32, "fused": 8}
# Blocks of the gradient in one of the forward pass: on TPUs the gradient of
# "matmul" has more arrays at once, and moves several times the bytes if they
# leave the chip. The two cores of a v5p (by JAX's names) exchange them through
# memory in any case.
_GRADIENT_BLOCKS: Mapping[str, int] = {"tpu": 4, "TPU v5": 2, "TPU v5p": 2}
# Channels of a tile: TPUs store arrays in tiles of 8 rows, and channels are
# rows of states and powers.
_TILES: Mapping[str, int] = {"tpu": 8}
# XLA keeps inputs that fit on a TPU's chip there, but to make room for the
# matrices of a block, it may copy all of them to memory and back. Such inputs are
# divided into parts of at most _PART_BYTES: steps on a v6e then move up to 18 %
# less (docs/design/ssm.md).
_CHIP_BYTES = 2**27
_PART_BYTES = 12 * 2**20
# channels of a block, so that its tables of powers stay in caches
MOST_CHANNELS_ON_CPU = 16
# Bytes of spectra, over all channels, that a CPU saves for the gradient: little
# compared with activations.
MOST_SPECTRUM_BYTES_ON_CPU = 2**28


class ConvolutionPlan(NamedTuple):
    """The static options of a convolution.

    Attributes:
        backend: backend of all blocks.
        block: number of channels of a block.
        part: number of channels of a part of the inputs, which the forward pass
            copies before a loop over its blocks.
        gradient_block: number of channels of a block of the gradient.
        group: for "matmul", number of chunks whose states are in memory at
            once.
        precision: for "matmul", precision of the products.
        dtype: type of the inputs.
        saves_spectrum: for "fft", True if the forward pass saves spectra for
            the gradient.
    """

    backend: Backend
    block: int
    part: int
    gradient_block: int
    group: int
    precision: lax.Precision
    dtype: np.dtype[Any]
    saves_spectrum: bool


def plan_convolution(
    shape: tuple[int, ...],
    modes: Modes,
    *,
    backend: Backend | Literal["auto"],
    block: int | None,
    dtype: Any,
) -> ConvolutionPlan:
    """Selects the options that are not given, for the target's devices.

    Args:
        shape: shape of the inputs, [batch, length, channels].
        modes: modes of the channels; only their number matters.
        backend, block: see ``convolution.ssm_convolution``; "fused" has no
            blocks, and is the faster of the others for inputs that its kernel
            does not support.
        dtype: type of the inputs.

    Raises:
        InputError: ``block`` is less than one channel.
    """
    batch, length, channels = shape
    if block is not None and (not isinstance(block, Integral) or block < 1):
        raise InputError(
            f"block={block} of a convolution must be a whole number of channels, at least 1; leave "
            "it out for a block that fits the device"
        )
    least_fused = FUSED_FROM.get(target_kind(), math.inf)
    # "fused" would ignore the size of a block.
    if backend == "auto" and block is None and batch * length >= least_fused:
        backend = "fused"
    precision = product_precision(target_platform(), dtype)
    if backend == "fused":
        if can_fuse(batch, length, dtype):
            return ConvolutionPlan(
                backend,
                block=_channels_of_kernels(shape, modes, copies=1),
                part=channels,
                # states and their adjoints
                gradient_block=_channels_of_kernels(shape, modes, copies=2),
                group=0,
                precision=precision,
                dtype=jnp.dtype(dtype),
                saves_spectrum=False,
            )
        backend = "auto"
    if backend == "auto":
        backend = choose_backend(target_platform(), length, batch)
    if block is None:
        block = channels_per_block(shape, modes, backend)
        gradient_block = _channels_of_gradient(block)
    else:
        gradient_block = block
    block = min(block, channels)
    gradient_block = min(gradient_block, channels)
    if backend == "matmul":
        group = _chunks_per_group(shape, modes, block)
    else:
        group = 0
    saves_spectrum = backend == "fft" and _can_save_spectrum(shape)
    return ConvolutionPlan(
        backend,
        block=block,
        part=_channels_of_part(shape, block, dtype),
        gradient_block=gradient_block,
        group=group,
        precision=precision,
        dtype=jnp.dtype(dtype),
        saves_spectrum=saves_spectrum,
    )


def choose_backend(platform: str, length: int, batch: int) -> Backend:
    """Returns the backend that was measured (on accelerators: is expected) to be faster."""
    lengths = _MATMUL_FROM.get(platform, {})
    batches = [size for size in lengths if size <= batch]
    if batches and length >= lengths[max(batches)]:
        return "matmul"
    return "fft"


def can_fuse(batch: int, length: int, dtype: Any) -> bool:
    """Returns True if "fused" supports inputs of this size and type on the target's devices."""
    platform = target_platform()
    is_supported = (
        platform not in ("gpu", "tpu")  # interpreted
        or target_kind().startswith(_FUSED_DEVICES)
    )
    if platform == "tpu":
        fits = chunks_per_tile(batch, count_fused_chunks(length)) is not None
    else:
        fits = length <= LONGEST_FUSED
    return is_supported and fits and jnp.dtype(dtype) == jnp.bfloat16


def count_fused_chunks(length: int) -> int:
    """Returns the number of chunks of "fused" on TPUs."""
    return 1 if length <= _LONGEST_CHUNK else -(-length // FUSED_CHUNK)


def chunks_per_tile(batch: int, num_chunks: int) -> int | None:
    """Returns the chunks of a tile of "fused" on TPUs; None if no tile fits the chip."""
    if num_chunks <= _TILE_CHUNKS and batch * num_chunks <= _TILE_ROWS:
        return num_chunks
    # the fewest chunks that have whole tiles of bfloat16
    unit = _TILE_MULTIPLE // math.gcd(_TILE_MULTIPLE, batch)
    most = min(_TILE_CHUNKS, unit * max(1, _TILE_ROWS // (unit * batch)))
    if num_chunks <= most:
        most = num_chunks
    if most * batch > _MOST_TILE_ROWS:
        return None
    num_tiles = -(-num_chunks // most)
    if num_tiles == 1:
        return num_chunks
    return -(-num_chunks // (num_tiles * unit)) * unit


def product_precision(platform: str, dtype: Any) -> lax.Precision:
    """Returns the precision of float32 products for inputs of a type.

    It is HIGH for bfloat16 inputs on TPUs, otherwise HIGHEST. TPUs multiply
    float32 arrays in passes of bfloat16 products: six passes (HIGHEST) are exact
    to float32, three (HIGH) lose at most 2**-15 of a factor, far less than the
    2**-8 that rounding inputs to bfloat16 may have lost. If one factor is
    bfloat16, two passes are as exact as three, and XLA makes two. On GPUs,
    precisions below HIGHEST round factors to ten bits.
    """
    if platform == "tpu" and jnp.dtype(dtype) == jnp.bfloat16:
        return lax.Precision.HIGH
    return lax.Precision.HIGHEST


def caches_kernels(platform: str, backend: Backend | Literal["auto"]) -> bool:
    """Returns True if layers of ``backend`` reuse the spectra of their kernels in later calls.

    Layers of "auto" do, except on platforms where FFTs are the slower backend
    at any length.
    """
    return backend == "fft" or (
        backend == "auto" and choose_backend(platform, 1, 1) == "fft"
    )


def channels_per_block(
    shape: tuple[int, ...], modes: Modes, backend: Backend
) -> int:
    """Returns the channels per block for a convolution of ``shape`` that also makes its kernels."""
    if backend == "matmul":
        return _channels_within(_bytes_by_matmul(shape, modes), shape, backend)
    channels = _channels_within(_bytes_by_fft(shape, modes), shape, backend)
    if target_platform() == "cpu":
        channels = min(MOST_CHANNELS_ON_CPU, channels)
    return channels


def channels_per_block_of_spectra(shape: tuple[int, ...]) -> int:
    """Returns the channels per block for a convolution of ``shape`` with precomputed spectra."""
    batch, length, _ = shape
    return _channels_within(16 * smooth_length(length) * batch, shape, "fft")


def _channels_of_kernels(
    shape: tuple[int, ...], modes: Modes, *, copies: int
) -> int:
    """Returns the channels of a block of "fused", whose states on TPUs are in memory."""
    batch, length, channels = shape
    if target_platform() == "gpu":
        return channels
    sets, _, groups, size = modes.Ct.shape
    num_states = batch * count_fused_chunks(length) * sets * groups
    num_bytes = copies * num_states * 8 * -(-size // LANES) * LANES
    most = target_memory() // _MEMORY_DIVISORS["fused"] // num_bytes
    # Blocks are slices of the last axis of inputs, which has whole lanes.
    num_blocks = -(-channels // (max(1, most // LANES) * LANES))
    return min(channels, -(-channels // num_blocks // LANES) * LANES)


def _bytes_by_fft(shape: tuple[int, ...], modes: Modes) -> int:
    """Returns the bytes per channel: powers; padded texts and kernels, and their spectra."""
    batch, length, _ = shape
    sets, _, groups, size = modes.Ct.shape
    inner = inner_steps(length)
    outer = -(-length // inner)
    powers = 12 * sets * size * (inner + 2 * groups * outer)
    return powers + 16 * smooth_length(length) * (batch + sets * groups)


def _bytes_by_matmul(shape: tuple[int, ...], modes: Modes) -> int:
    """Returns the bytes per channel: Toeplitz matrices, powers, inputs and sums."""
    batch, length, _ = shape
    size = modes.Ct.shape[-1]
    chunk = chunk_length(batch, length)
    powers = 8 * size * chunk  # four tables of two planes
    return 4 * (2 * chunk**2 + powers) + 16 * batch * length


def _channels_within(
    per_channel: int, shape: tuple[int, ...], backend: Backend
) -> int:
    """Returns the channels per block that fit the budget at ``per_channel`` bytes each."""
    eighth_of_input = math.prod(shape) * 4 // 8  # in float32
    budget = max(_least_block_bytes(backend), eighth_of_input)
    channels = shape[2]
    most = max(1, min(channels, budget // per_channel))
    tile = _whole_tiles(1)
    if tile < most < channels:
        most -= most % tile
    # Blocks of about equal size: the last block is moved back and would
    # recompute channels.
    num_blocks = -(-channels // most)
    return min(most, _whole_tiles(-(-channels // num_blocks)))


def _channels_of_gradient(block: int) -> int:
    """Returns the channels of a block of the gradient, in the nearest number of tiles."""
    of_platform = _GRADIENT_BLOCKS.get(target_platform(), 1)
    count = _GRADIENT_BLOCKS.get(target_kind(), of_platform)
    tile = _whole_tiles(1)
    num_tiles = (2 * block + count * tile) // (2 * count * tile)
    return min(block, max(1, num_tiles) * tile)


def _channels_of_part(shape: tuple[int, ...], block: int, dtype: Any) -> int:
    """Returns the channels of a part: whole blocks, or all channels if parts have no use."""
    channels = shape[2]
    size = math.prod(shape) * jnp.dtype(dtype).itemsize
    if target_platform() != "tpu" or size > _CHIP_BYTES:
        return channels
    num_parts = -(-size // _PART_BYTES)
    num_blocks = -(-channels // block)
    return min(channels, max(1, num_blocks // num_parts) * block)


def _whole_tiles(channels: int) -> int:
    """Rounds channels up to tiles of the target's devices."""
    tile = _TILES.get(target_platform(), 1)
    return -(-channels // tile) * tile


def _chunks_per_group(shape: tuple[int, ...], modes: Modes, block: int) -> int:
    """Returns the chunks of "matmul" whose states fit, in four copies of both directions.

    In blocks of the gradient on TPUs, which have at most half of the channels,
    they are eight copies or more.
    """
    batch, length, _ = shape
    copy_bytes = 4 * 2 * 2 * batch * block * modes.Ct.shape[-1]  # in two planes
    chunk_bytes = 4 * copy_bytes
    count = _least_block_bytes("matmul") // chunk_bytes
    return max(1, min(count, count_chunks(batch, length)))


def _least_block_bytes(backend: Backend) -> int:
    min_bytes = MIN_BLOCK_BYTES.get(target_platform())
    return min_bytes or target_memory() // _MEMORY_DIVISORS[backend]


def _can_save_spectrum(shape: tuple[int, ...]) -> bool:
    """Returns True if spectra are saved for the gradient instead of being recomputed."""
    _, length, channels = shape
    size = 4 * smooth_length(length) * channels
    return target_platform() == "cpu" and size <= MOST_SPECTRUM_BYTES_ON_CPU
