"""Blocks of queries and keys for the Pallas kernels of this package.

Kernels skip the blocks in which no query reads a key. A window of one block on
either side, and the table of its blocks:

    keys          0 1 2 3 4
    queries 0     x x . . .        0 1
    queries 1     x x x . .        0 1 2
    queries 2     . x x x .        1 2 3
"""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool

from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.platform import LANES
from longsum_jax.typing import AnyArray

# Sizes of a block of our kernel of TPUs, and bytes of on-chip memory that it may
# use. The largest numbers of queries compile for a v5e, v5p and v6e.
TPU_BLOCKS = (512, 256)
TPU_MEMORY = 48 * 2**20
_MAX_BYTES_OF_QUERIES = 2**25
_BYTES_OF_PAIR = 59  # scores, weights, their gradients, and biases


class Steps(NamedTuple):
    """Static arguments of a position bias (``StepBias``).

    Attributes:
        starts, origin, first_key: see ``StepBias``.
        end_key: index after the last key with this bias.
    """

    starts: tuple[int, ...]
    origin: int
    first_key: int
    end_key: int

    @classmethod
    def of(
        cls, biases: Sequence[StepBias], num_keys: int
    ) -> tuple["Steps", ...]:
        """Returns the arguments of biases over ``num_keys`` keys."""
        steps = []
        for bias in biases:
            end = num_keys if bias.end_key is None else bias.end_key
            steps.append(cls(bias.starts, bias.origin, bias.first_key, end))
        return tuple(steps)

    def cover(self, num_keys: int) -> bool:
        """Returns True if all of ``num_keys`` keys have this bias."""
        return self.first_key == 0 and self.end_key == num_keys


def all_keys(queries: AnyArray, keys: AnyArray) -> AnyArray:
    """Returns True for every pair: the pattern of full attention."""
    return (queries >= 0) & (keys >= 0)


def no_later_keys(queries: AnyArray, keys: AnyArray) -> AnyArray:
    """Returns True if a key is not after the query: the pattern of causal attention."""
    return queries >= keys


@functools.lru_cache(maxsize=12)
def block_pairs(
    pattern: Callable[..., Any],
    lengths: tuple[int, int],
    blocks: tuple[int, int],
) -> Bool[np.ndarray, "query_blocks key_blocks"] | None:
    """Returns True for each pair of blocks in which a query reads a key; None for all pairs.

    The table of a pattern is quadratic in the number of blocks. Windows split a
    text into rows, so that theirs stays small; attention to all keys needs no
    table.

    Args:
        pattern: keys that each query reads, see ``fused.Pattern``.
        lengths: numbers of queries and of keys, multiples of their blocks.
        blocks: numbers of queries and of keys of a block.
    """
    if pattern is all_keys:
        return None
    query_block, key_block = blocks
    keys = np.arange(lengths[1], dtype=np.int32)
    # One block of queries at a time, so that no array [num_queries, num_keys]
    # is built.
    rows = []
    for start in range(0, lengths[0], query_block):
        queries = np.arange(start, start + query_block, dtype=np.int32)
        reads = pattern(queries[:, None], keys).any(0)
        rows.append(reads.reshape(-1, key_block).any(1))
    return np.stack(rows)


def pairs_scope(
    pairs: Bool[np.ndarray, "query_blocks key_blocks"] | None,
    lengths: tuple[int, int],
    blocks: tuple[int, int],
) -> AbstractContextManager[Any]:
    """Returns a scope whose name carries the number of pairs that a kernel computes.

    It is for ``longsum_plan``, which cannot read the tables of blocks in a
    compiled program.

    Args:
        pairs: result of ``block_pairs``.
        lengths, blocks: see ``block_pairs``.
    """
    num_pairs = lengths[0] * lengths[1]
    if pairs is not None:
        num_pairs = pairs.sum() * blocks[0] * blocks[1]
    return jax.named_scope(f"pairs_{num_pairs}")


def block_table(
    pairs: Bool[np.ndarray, "own_blocks other_blocks"],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs of each block, int32 [own_blocks, largest count], and their counts.

    Entries after the count of a block are not in a pair with it.
    """
    counts = pairs.sum(1)
    # A stable sort puts the indices of True entries first, in ascending order;
    # other entries of a row are not read.
    indices = np.argsort(~pairs, axis=1, kind="stable")[
        :, : max(counts.max(), 1)
    ]
    return indices.astype(np.int32), counts.astype(np.int32)


def equal_blocks(length: int, largest: int) -> tuple[int, int]:
    """Returns the size of equal blocks of whole lanes for ``length`` positions, and their number.

    Args:
        length: number of positions.
        largest: largest size of a block.
    """
    count = -(-length // largest)
    lanes = -(-length // (count * LANES))
    return lanes * LANES, -(-length // (lanes * LANES))


def tpu_block(num_queries: int, head_dim: int, itemsize: int) -> int | None:
    """Returns the largest block of our kernel of TPUs that fits in its memory, or None.

    The kernel of the gradients needs most.

    Args:
        num_queries: number of queries of a row.
        head_dim: number of dimensions of a head.
        itemsize: bytes of an entry of the queries.
    """
    # float32 sums of all queries, and their results in two buffers
    of_queries = num_queries * head_dim * (4 + 2 * itemsize)
    if of_queries > _MAX_BYTES_OF_QUERIES:
        return None
    for block in TPU_BLOCKS:
        # four inputs and two results in two buffers; float32 sums, or parts of
        # float32 factors
        of_block = block * head_dim * 20 * itemsize
        of_pairs = _BYTES_OF_PAIR * block**2
        if of_queries + of_block + of_pairs <= TPU_MEMORY:
            return block
    return None
