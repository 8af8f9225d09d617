"""Array types that several rooms share, and the words for dimensions in their annotations.

Shapes are words that the test run checks: ``Float[Array, "batch length d_model"]`` (jaxtyping; a
single word is written with a leading space). The same word stands for the same dimension
everywhere:

    batch                   sequences of a batch
    length                  tokens of a sequence; query_length and key_length where they differ
    d_model                 width of the stream between layers
    heads, head_dim         attention heads, and the width of one head
    num_blocks, block_size  blocks of a sequence, and tokens of a block
    num_keys                keys that the queries of a block attend to
    num_globals             global tokens
    channels, modes         state-space channels, and complex modes of a channel
    beams, vocab            hypotheses of a search, and entries of the vocabulary

Letters stand for dimensions only inside einsum strings and formulas:

    b batch   l, t lengths of keys and queries   d d_model   h heads   k head_dim
    n num_blocks   c queries of a block   w keys of a block
"""

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np

Array = jax.Array
AnyArray = jax.Array | np.ndarray  # inputs of modules, which may be called eagerly
Params = Mapping[str, Any]  # a Flax parameter tree
NumpyBatch = dict[str, np.ndarray]  # one host's rows of one batch

IGNORED_LABEL = -100  # the label that losses leave out, as in PyTorch and transformers


class BatchIterator(Protocol):
    """An iterator over one host's batches, with a position that can be saved and taken up again."""

    def __next__(self) -> NumpyBatch: ...

    def state(self) -> dict[str, Any]:
        """Returns the JSON-able position after the batches handed out so far.

        It is the same on every host. Its "epoch", if it has one, counts the passes over the data.
        """
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from a position that ``state`` returned."""
        ...
