"""Shared array types, and the names of dimensions in their annotations.

Shapes are names that are checked in tests: ``Float[Array, "batch length
d_model"]`` (jaxtyping; a single name is written with a leading space). The same
name is used for the same dimension everywhere:

    batch                   sequences of a batch
    length                  tokens of a sequence; query_length and key_length if they differ
    d_model                 width of the residual stream
    heads, head_dim         attention heads, and the width of one head
    num_blocks, block_size  blocks of a sequence, and tokens of a block
    num_keys                keys that the queries of a block attend to
    num_globals             global tokens
    channels, modes         state-space channels, and complex modes of a channel
    beams, vocab            hypotheses of a search, and entries of the vocabulary

Single letters are only used for dimensions in einsum strings and formulas:

    b batch   l, t lengths of keys and queries   d d_model   h heads   k head_dim
    n num_blocks   c queries of a block   w keys of a block
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

Array = jax.Array
# inputs of modules, which may also be called eagerly
AnyArray = jax.Array | np.ndarray
Params = Mapping[str, Any]  # a Flax parameter tree
NumpyBatch = dict[str, np.ndarray]  # one host's rows of one batch

IGNORED_LABEL = -100  # label ignored by losses, as in PyTorch and transformers


class RowShards(NamedTuple):
    """The rows of every batch that one host reads.

    Rows are divided into shards of adjacent rows, equally many for each device
    or group of devices. The shards of a host need not be adjacent: on a 4x4
    slice of TPUs, the first of four hosts may have 0, 1, 6 and 15 of 16.

    Attributes:
        numbers: numbers of the host's shards, ascending.
        total: number of shards of a batch.
    """

    numbers: tuple[int, ...]
    total: int

    @property
    def num_hosts(self) -> int:
        """The number of hosts that read different rows."""
        return self.total // len(self.numbers)

    def rows_of(self, num_rows: int) -> list[int]:
        """Returns the indices of the host's rows in a batch of ``num_rows``, ascending."""
        size = num_rows // self.total
        return [
            row
            for number in self.numbers
            for row in range(number * size, (number + 1) * size)
        ]


ALL_ROWS = RowShards((0,), 1)  # a single host reads all rows


class BatchIterator(Protocol):
    """An iterator over one host's batches, whose position can be saved and restored."""

    def __next__(self) -> NumpyBatch: ...

    def state(self) -> dict[str, Any]:
        """Returns the JSON-serializable position after the batches returned so far.

        It is the same on every host. Its "epoch", if present, counts the passes
        over the data.
        """
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from a position that ``state`` returned."""
        ...
