"""Sequences in blocks of equal size, blocks together with their neighbors, and longer pieces."""

import jax.numpy as jnp
from jaxtyping import Array, Shaped

from longsum_jax.errors import InputError
from longsum_jax.ops.padding import append_zeros
from longsum_jax.ops.sequence_sharding import Axes, halo_exchange
from longsum_jax.typing import AnyArray


def check_block_size(block_size: int) -> None:
    """Raises InputError for a block without tokens."""
    if block_size < 1:
        raise InputError(
            f"block_size is {block_size}; it must be 1 or more tokens"
        )


def to_blocks(
    x: Shaped[AnyArray, "batch length ..."], size: int
) -> Shaped[Array, "batch num_blocks block_size ..."]:
    """Splits a sequence into ceil(length / size) blocks; zeros (False) fill the last one.

    Args:
        x: sequence of any dtype.
        size: number of tokens of a block.
    """
    num_blocks = -(-x.shape[1] // size)
    x = append_zeros(x, -x.shape[1] % size)
    return x.reshape(x.shape[0], num_blocks, size, *x.shape[2:])


def from_blocks(
    x: Shaped[Array, "batch num_blocks block_size ..."], length: int
) -> Shaped[Array, "batch length ..."]:
    """Joins blocks to a sequence, the inverse of ``to_blocks``.

    Args:
        x: blocks of any dtype.
        length: number of tokens of the sequence; the rest is cut off.
    """
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])[
        :, :length
    ]


def neighbors(
    x: Shaped[AnyArray, "batch num_blocks block_size ..."],
    left: int,
    right: int,
    axes: Axes = (),
) -> Shaped[Array, "batch num_blocks window ..."]:
    """Joins every block to the ``left`` blocks before and the ``right`` blocks after it.

    Args:
        x: blocks of a sequence, or of one shard of it.
        left, right: numbers of blocks.
        axes: mesh axes that shard the sequence (``ops.sequence_sharding``).

    Returns:
        ``(left + 1 + right) * block_size`` tokens for every block, in order of
        position; zeros (False) beyond both ends of the sequence.
    """
    num_blocks = x.shape[1]
    x = halo_exchange(x, left, right, axes)
    shifted = [x[:, i : i + num_blocks] for i in range(left + 1 + right)]
    return jnp.concatenate(shifted, axis=2)


def overlapping(
    x: Shaped[AnyArray, "batch num_blocks ..."],
    first: int,
    size: int,
    extra: int,
    pieces: int,
    axes: Axes = (),
) -> Shaped[Array, "pieces batch piece_blocks ..."]:
    """Splits the blocks (or tokens), starting at ``first``, into pieces of ``size`` blocks.

    Each piece also has the first ``extra`` blocks of the next one, at most all
    of them. Zeros (False) pad both ends. Two pieces of blocks 0 to 5, with
    first = -1, size = 3, extra = 2:

        piece 0   [. 0 1][2 3]
        piece 1         [2 3 4][5 .]

    Args:
        x: blocks of a sequence, or of one shard of it.
        first, size, extra, pieces: index of the first block, numbers of blocks,
            and number of pieces.
        axes: mesh axes that shard the sequence (``ops.sequence_sharding``).
    """
    if extra:
        num_blocks = (pieces + 1) * size
    else:
        num_blocks = pieces * size
    total = size + extra if pieces == 1 else num_blocks
    x = halo_exchange(x, max(-first, 0), max(first + extra, 0), axes)
    x = x[:, max(first, 0) :][:, :total]
    x = append_zeros(x, total - x.shape[1])
    if pieces == 1:
        return x[None]
    # [num_pieces (+ 1), batch, size, ...]
    x = x.reshape(x.shape[0], -1, size, *x.shape[2:]).swapaxes(0, 1)
    if extra:
        return jnp.concatenate([x[:-1], x[1:, :, :extra]], axis=2)
    return x
