"""The order of examples: a pure function of seed, epoch and position."""

from collections.abc import Sized
from typing import Literal, cast

import numpy as np

from longsum_jax.data.examples.base import ExampleStore
from longsum_jax.errors import InputError

Shuffle = Literal["all"] | int | None


class ExampleOrder:
    """A map from (epoch, position) to the index of an example.

    The examples are divided into consecutive blocks, and each block is permuted
    separately:

        "all"   one block with all examples (stores of known length only; 8 bytes per example)
        W       blocks of W examples; a stream and prepared shards have the same order
        None    no shuffling, examples in the order of the store

    For example W = 4 and ten examples, in one epoch:

        position   0 1 2 3 | 4 5 6 7 | 8 9
        index      2 0 3 1 | 5 7 4 6 | 9 8

    Raises:
        InputError: a shuffle that the store does not support, or an invalid
            value.
    """

    def __init__(self, store: ExampleStore, *, seed: int, shuffle: Shuffle):
        if not 0 <= seed < 2**32:
            raise InputError(
                f"seed={seed} does not fit: use a number from 0 to {2**32 - 1}"
            )
        self._store = store
        self._seed = seed
        self._block_size = _block_size(store, shuffle)
        self._cached_block: tuple[int, int] | None = None  # (epoch, block)
        self._cached_permutation = np.zeros(0, np.int64)

    def index_at(self, epoch: int, position: int) -> int | None:
        """Returns the index of the example at ``position`` of ``epoch``; None past the last one."""
        block, offset = divmod(position, self._block_size)
        permutation = self._permutation(epoch, block)
        if offset >= len(permutation):
            return None
        return block * self._block_size + int(permutation[offset])

    def _permutation(self, epoch: int, block: int) -> np.ndarray:
        if self._cached_block != (epoch, block):
            size = count_from(
                self._store, block * self._block_size, self._block_size
            )
            self._cached_permutation = self._draw(epoch, block, size)
            self._cached_block = epoch, block
        return self._cached_permutation

    def _draw(self, epoch: int, block: int, size: int) -> np.ndarray:
        if self._block_size == 1:
            return np.arange(size)
        # RandomState, because NumPy guarantees that its numbers never change: a
        # run must resume in the same order with a later NumPy. default_rng does
        # not have this guarantee.
        return np.random.RandomState([self._seed, epoch, block]).permutation(
            size
        )


def count_from(store: ExampleStore, start: int, limit: int) -> int:
    """Returns the number of examples of ``store`` in [start, start + limit)."""
    if hasattr(store, "count_from"):
        return store.count_from(start, limit)
    return max(0, min(limit, len(cast(Sized, store)) - start))


def _block_size(store: ExampleStore, shuffle: Shuffle) -> int:
    window = getattr(store, "window", None)
    if shuffle == "all":
        if window is not None:
            raise InputError(
                'shuffle="all" needs a store of known length, this is a stream; '
                f"use shuffle={window}"
            )
        return max(1, len(cast(Sized, store)))
    size = 1 if shuffle is None else shuffle
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(
            f'shuffle={shuffle!r} must be "all", a positive block size or None'
        )
    if window is not None and window % size:
        raise InputError(
            f"shuffle={size} does not divide the stream's window of {window}; use shuffle={window}"
        )
    return size
