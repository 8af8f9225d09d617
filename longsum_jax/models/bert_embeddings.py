"""The embeddings of BERT and related models: tokens, positions and token types."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from longsum_jax.layers.partitioning import look_up
from longsum_jax.models.bert_config import BertConfig
from longsum_jax.typing import AnyArray


class EmbeddingTables(NamedTuple):
    """The embedding tables of a stack; ``types`` is None in models without token types."""

    words: Float[AnyArray, "vocab embedding_size"]
    positions: Float[AnyArray, "positions embedding_size"]
    types: Float[AnyArray, "types embedding_size"] | None


def sum_embeddings(
    config: BertConfig,
    tables: EmbeddingTables,
    ids: Int[AnyArray, "batch length"],
    rows: Int[AnyArray, "..."],
    token_type_ids: Int[AnyArray, "batch length"] | None = None,
) -> Float[Array, "batch length embedding_size"]:
    """Returns the sum of word, position and token type embeddings, before its norm.

    Args:
        config: config of the stack.
        tables: embedding tables of the stack.
        ids: ids of the tokens.
        rows: rows of the position table, int [length] or [batch, length].
        token_type_ids: types of the tokens; None for zeros.
    """
    if config.scale_embedding:
        scale = math.sqrt(config.hidden_size)
    else:
        scale = 1.0
    x = look_up(tables.words, ids) * scale
    # Padding may be beyond the table, and is masked: any row will do.
    x = x + jnp.take(tables.positions, rows, axis=0, mode="clip")
    if tables.types is not None:
        types = (
            jnp.zeros_like(ids) if token_type_ids is None else token_type_ids
        )
        x = x + jnp.take(tables.types, types, axis=0)
    return x


def position_rows(
    config: BertConfig, ids: Int[AnyArray, "batch length"]
) -> Int[Array, "..."]:
    """Returns the row of the position table for every token, [length] or [batch, length]."""
    if not config.position_offset:
        return jnp.arange(ids.shape[1])
    # RoBERTa counts the tokens that are not padding; padding has a separate
    # row.
    mask = ids != config.pad_token_id
    return jnp.cumsum(mask, axis=1) * mask + config.pad_token_id


def decoder_position_rows(
    config: BertConfig,
    ids: Int[AnyArray, "batch length"],
    positions: Int[AnyArray, "..."],
) -> Int[Array, "..."]:
    """Returns the row of the position table for every token at explicit positions, as in a decoder.

    Args:
        config: config of the stack.
        ids: ids of the tokens.
        positions: positions of the columns, int [length], or of the rows,
            [batch, 1], or of the tokens, [batch, length]. Padding is only at
            the end of a row.
    """
    if not config.position_offset:
        return jnp.asarray(positions)
    is_padding = ids == config.pad_token_id
    return jnp.where(
        is_padding, config.pad_token_id, positions + config.position_offset
    )
