"""Scores over the vocabulary: logits, and losses of labels without the logits of all positions."""

from collections.abc import Callable
from typing import TypeVar

import flax.linen as nn
from jaxtyping import Array, Float, Int

from longsum_jax.layers.chunking import map_over_length
from longsum_jax.layers.partitioning import rows_per_device
from longsum_jax.ops.device_memory import times_memory
from longsum_jax.ops.losses import TokenScores, token_scores
from longsum_jax.ops.precision import products_of_rows
from longsum_jax.ops.storage import (
    PaddedTable,
    Stored,
    StoredTable,
    stored_product,
)
from longsum_jax.typing import AnyArray

Model = TypeVar("Model", bound=nn.Module)
# maximum float32 logits of labels in a device's memory at once, for each 32 GiB
MAX_LOGIT_BYTES = 2**28
_MEMORY_OF_LOGITS = 2**35


def vocabulary_logits(
    x: Float[AnyArray, "*leading d_model"],
    table: Float[AnyArray, "vocab d_model"] | StoredTable,
) -> Float[Array, "*leading vocab"]:
    """Returns the products of states with the rows of an embedding table, in float32.

    A table in a storage type is transposed, [d_model, vocab].
    """
    if isinstance(table, PaddedTable):
        return vocabulary_logits(x, table.rows)[..., : table.size]
    if isinstance(table, Stored):
        return stored_product(x.reshape(-1, x.shape[-1]), table).reshape(
            *x.shape[:-1], -1
        )
    return products_of_rows(x, table.astype(x.dtype))


def score_labels(
    module: Model,
    logits: Callable[[Model, AnyArray], Array],
    x: Float[AnyArray, "batch length d_model"],
    labels: Int[AnyArray, "batch length"],
    *,
    label_smoothing: float = 0.0,
) -> TokenScores:
    """Scores labels by states.

    If the logits of all positions would take more than MAX_LOGIT_BYTES on a
    device, more if its memory is large, a loop runs over the positions, and
    gradients recompute the logits.

    Args:
        module: module with a ``config``; ``logits`` must access parameters
            through its argument.
        logits: function (module, states [batch, chunk, d_model]) -> float32
            [batch, chunk, vocab].
        x: states [batch, length, d_model].
        labels: ids of the tokens; IGNORED_LABEL is left out.
        label_smoothing: see ``ops.losses.token_scores``.
    """

    def score(module: Model, x: AnyArray, labels: AnyArray) -> TokenScores:
        return token_scores(
            logits(module, x), labels, label_smoothing=label_smoothing
        )

    position_bytes = 4 * rows_per_device(x.shape[0]) * module.config.vocab_size
    most = MAX_LOGIT_BYTES * times_memory(_MEMORY_OF_LOGITS)
    chunk = max(1, most // max(1, position_bytes))
    if x.shape[1] <= chunk:
        return score(module, x, labels)
    return map_over_length(module, score, chunk, x, labels, recompute=True)
