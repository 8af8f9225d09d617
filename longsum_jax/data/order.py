"""The order in which examples are read: a pure function of seed, epoch and position."""

from typing import Literal

import numpy as np

from longsum_jax.data.examples.base import ExampleStore
from longsum_jax.errors import InputError

Shuffle = Literal["all"] | int | None


class ExampleOrder:
    """Maps (epoch, position) to an example index; nothing in it moves.

    The examples are cut into consecutive blocks, and each block is permuted on its own:

        "all"   one block holding everything (stores of known length only; 8 bytes per example)
        W       blocks of W examples; a stream and prepared shards give the same order
        None    no shuffling, examples come as they lie

    Raises:
        InputError: a shuffle that the store cannot do, or a value that is none of the above.
    """

    def __init__(self, store: ExampleStore, *, seed: int, shuffle: Shuffle):
        if not 0 <= seed < 2**32:
            raise InputError(f"seed={seed} does not fit: use a number from 0 to {2**32 - 1}")
        self._store = store
        self._seed = seed
        self._width = _block_width(store, shuffle)
        self._cached: tuple[tuple[int, int], np.ndarray] | None = None

    def index_at(self, epoch: int, position: int) -> int | None:
        """Returns the index of the example at ``position`` of ``epoch``, None past the last one."""
        block, offset = divmod(position, self._width)
        permutation = self._permutation(epoch, block)
        return block * self._width + int(permutation[offset]) if offset < len(permutation) else None

    def _permutation(self, epoch: int, block: int) -> np.ndarray:
        if self._cached is None or self._cached[0] != (epoch, block):
            size = count_from(self._store, block * self._width, self._width)
            self._cached = (epoch, block), self._draw(epoch, block, size)
        return self._cached[1]

    def _draw(self, epoch: int, block: int, size: int) -> np.ndarray:
        if self._width == 1:
            return np.arange(size)
        # RandomState, because NumPy promises never to change its numbers: a run must resume in the
        # same order under a later NumPy. default_rng carries no such promise.
        return np.random.RandomState([self._seed, epoch, block]).permutation(size)


def count_from(store: ExampleStore, start: int, limit: int) -> int:
    """Returns how many examples of ``store`` lie in [start, start + limit)."""
    if hasattr(store, "count_from"):
        return store.count_from(start, limit)
    return max(0, min(limit, len(store) - start))


def _block_width(store: ExampleStore, shuffle: Shuffle) -> int:
    window = getattr(store, "window", None)
    if shuffle == "all":
        if window is not None:
            raise InputError(
                f'shuffle="all" needs a store of known length, this is a stream; use shuffle={window}'
            )
        return max(1, len(store))
    width = 1 if shuffle is None else shuffle
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise InputError(f'shuffle={shuffle!r} is none of "all", a positive block size, None')
    if window is not None and window % width:
        raise InputError(
            f"shuffle={width} does not divide the stream's window of {window}; use shuffle={window}"
        )
    return width
