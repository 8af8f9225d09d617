"""The legend of dimension letters, and the array types of public signatures.

Shape comments, einsum strings and docstrings use one letter per dimension:

    B batch          L source length   T target length   D model width
    H heads (attention) or channels (state space)         K size of one head
    C block size     N number of blocks                   M complex state-space modes
    R beams          S stride          G global tokens    V vocabulary
    W keys that one block sees
"""

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np

Array = jax.Array
Params = Mapping[str, Any]  # a Flax parameter tree
NumpyBatch = dict[str, np.ndarray]  # one host's rows of one batch

IGNORED_LABEL = -100  # the label that losses leave out, as in PyTorch and transformers


class BatchIterator(Protocol):
    """An iterator over one host's rows of batches, with a position to save and to restore."""

    def __next__(self) -> NumpyBatch: ...

    def state(self) -> dict[str, Any]:
        """Returns the position after the batches so far, ready for JSON, the same on every host."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from a position that ``state`` returned."""
        ...
