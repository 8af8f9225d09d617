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
from typing import Any, Protocol

import jax
import numpy as np

Array = jax.Array
# inputs of modules, which may also be called eagerly
AnyArray = jax.Array | np.ndarray
Params = Mapping[str, Any]  # a Flax parameter tree
NumpyBatch = dict[str, np.ndarray]  # one host's rows of one batch

IGNORED_LABEL = -100  # label ignored by losses, as in PyTorch and transformers


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
