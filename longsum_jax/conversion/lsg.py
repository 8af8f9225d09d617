"""From full attention to LSG attention: positions continued, global tokens made from the model's
own embeddings.

Condevaux and Harispe 2022, section 3.4, in the order and with the choices of the published script.
It differs on purpose in three places, and ``reference_quirks`` takes two of them back: RoBERTa's
token type is part of the global tokens, without which the first of them is not the `<s>` that it
stands for; embeddings that a model scales are scaled here too; and tables whose rows do not come
out even in the published order are put in the nearest order that does.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from longsum_jax.conversion.positions import check_length, extend_positions
from longsum_jax.errors import InputError
from longsum_jax.layers.attention.lsg import GLOBAL_ROWS
from longsum_jax.models.family import Family
from longsum_jax.models.lsg_layout import DEFAULTS, GLOBALS
from longsum_jax.typing import Params

_SEED = 123  # of rows that nothing in the model determines


def to_lsg(
    family: Family,
    config: Any,
    params: Params,
    *,
    first_id: int | None,
    mask_id: int | None,
    max_source_length: int | None = None,
    global_positional_stride: int = 64,
    use_token_ids: bool = True,
    keep_first_global_token: bool = False,
    random_global_init: bool = False,
    **options: Any,
) -> tuple[Any, Params]:
    """A config and parameters with LSG attention instead of full attention; what was trained stays.

    Global token m is the embedding of the mask token, token 0 that of the first token, at a
    position of its own. Where there is no mask token (T5; the published bart-large-cnn) it is drawn
    at random, as embeddings are spread.

    Args:
        first_id: token that a text begins with (`<s>`, `[CLS]`); None: the config's bos_token_id,
            or its eos_token_id.
        mask_id: the mask token; None where the model has none.
        max_source_length: tokens to make positions for, a multiple of block_size; None: as many as
            there are.
        global_positional_stride: from one global token to the next, in positions.
        use_token_ids: adds token type 0 where the model has token types.
        keep_first_global_token: for a model that has LSG attention: builds all global tokens but
            the first anew.
        random_global_init: draws all global tokens but the first in place of the mask token's
            embedding, also where there is one.
        **options: fields of EncoderAttentionOptions (block_size, sparsity_type, ...), by default as
            published.

    Raises:
        InputError: another attention than the full one, one converted already, options that do not
            fit together, or a length that is no multiple of the block.
    """
    _check_source(family, config, keep_first_global_token)
    defaults = {} if config.encoder_attention == "lsg" else DEFAULTS
    longer = dataclasses.replace(config, **{"encoder_attention": "lsg", **defaults, **options})
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    rows = _ordered_positions(config, flat, global_positional_stride)
    rows = rows + _token_rows(longer, flat, first_id, None if random_global_init else mask_id)
    if use_token_ids and "token_type_embeddings" in flat and not _forgets_types(longer):
        rows = rows + np.asarray(flat["token_type_embeddings"][0], np.float32)
    if keep_first_global_token:
        rows[0] = flat[GLOBALS][0]
    flat[GLOBALS] = jnp.asarray(rows, _word_embeddings(flat).dtype)
    params = flax.traverse_util.unflatten_dict(flat, sep="/")
    if max_source_length not in (None, config.max_source_length):
        return extend_positions(family, longer, params, max_source_length)
    check_length(longer)
    return longer, params


def with_lsg_options(config: Any, **options: Any) -> Any:
    """The config of a model with LSG attention, with other options; the parameters stay as they
    are.

    More global tokens are there already: every table of them has 512 rows.

    Raises:
        InputError: the model has another attention, or the options do not fit together or not its
            length.
    """
    if config.encoder_attention != "lsg":
        raise InputError(
            f"{min(options)} is an option of LSG attention, but the model has {config.encoder_attention} attention; "
            "add encoder_attention=lsg to convert it"
        )
    changed = dataclasses.replace(config, **options)
    check_length(changed)
    return changed


def _check_source(family: Family, config: Any, keep_first_global_token: bool) -> None:
    kind = config.encoder_attention
    if kind == "lsg" and not keep_first_global_token:
        raise InputError(
            "the model has LSG attention already; leave encoder_attention=lsg out to change its length and options, "
            "or keep only its first global token with keep_first_global_token"
        )
    if kind not in ("full", "lsg"):
        raise InputError(
            f"{family.name} has {kind} attention, which LSG cannot replace; convert a model with full attention"
        )
    if kind == "full" and keep_first_global_token:
        raise InputError(
            "keep_first_global_token is for models with LSG attention, this one has none; leave it out"
        )


def _word_embeddings(flat: Mapping[str, Any]) -> Any:
    return flat["word_embeddings"] if "word_embeddings" in flat else flat["shared"]


def _forgets_types(config: Any) -> bool:
    return config.reference_quirks and config.prefix == "roberta"


def _token_rows(
    config: Any, flat: Mapping[str, Any], first_id: int | None, mask_id: int | None
) -> np.ndarray:
    """The words that global tokens are made of: float32 [512, D]."""
    words = np.asarray(_word_embeddings(flat), np.float32)
    if first_id is None:
        first_id = config.eos_token_id if config.bos_token_id is None else config.bos_token_id
    rows = _draw_words(words) if mask_id is None else np.tile(words[mask_id], (GLOBAL_ROWS, 1))
    if first_id is not None:
        rows[0] = words[first_id]
    scaled = config.scale_embedding and not config.reference_quirks
    return rows * np.float32(np.sqrt(config.d_model)) if scaled else rows


def _draw_words(words: np.ndarray) -> np.ndarray:
    """A row for every global token, of the normal distribution with the mean and covariance of the
    embeddings."""
    rng, words = np.random.default_rng(_SEED), words.astype(np.float64)
    drawn = rng.multivariate_normal(
        words.mean(0), np.cov(words, rowvar=False), GLOBAL_ROWS, method="eigh"
    )
    return drawn.astype(np.float32)


def _ordered_positions(config: Any, flat: Mapping[str, Any], stride: int) -> np.ndarray:
    """A position for every global token, neighbours ``stride`` apart: float32 [512, D], zeros
    without positions.

    With 512 positions and stride 64, token m gets position 64 (m mod 8) + m // 8.
    """
    if stride < 1:
        raise InputError(f"global_positional_stride={stride} must be at least 1")
    table = _positions(config, flat)
    if table is None:
        return np.zeros((GLOBAL_ROWS, config.d_model), np.float32)
    factor = max(1, len(table) // GLOBAL_ROWS)
    table = table[: GLOBAL_ROWS * factor : factor]
    table = np.concatenate([table, _draw(table, GLOBAL_ROWS - len(table))])
    steps = max(
        d
        for d in range(1, GLOBAL_ROWS + 1)
        if GLOBAL_ROWS % d == 0 and d <= max(1, stride // factor)
    )
    return table.reshape(-1, steps, table.shape[1]).swapaxes(0, 1).reshape(table.shape)


def _positions(config: Any, flat: Mapping[str, Any]) -> np.ndarray | None:
    """Position embeddings of the encoder without unused first rows, None for models without any."""
    table = config.source_position_table()
    if table is not None:
        return table
    for name in ("position_embeddings", "source_positions"):
        if name in flat:
            return np.asarray(flat[name], np.float32)[config.position_offset :]
    return None


def _draw(table: np.ndarray, count: int) -> np.ndarray:
    """``count`` rows as spread as those of ``table``, column by column."""
    noise = np.random.default_rng(_SEED).normal(size=(count, table.shape[1]))
    return (table.mean(0) + table.std(0) * noise).astype(np.float32)
