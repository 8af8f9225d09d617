"""Conversion from full attention to LSG attention.

Positions are extended, and global tokens are made from the model's embeddings
(Condevaux and Harispe 2022, section 3.4), following the published script. Three
differences are intentional, and ``reference_quirks`` undoes two of them:
RoBERTa's token type is added to the global tokens, without which the first of
them would not equal the `<s>` that it replaces; embeddings that a model scales
are also scaled here; and position tables of sizes that the script does not
expect are put in the nearest order that divides them evenly.
"""

from collections.abc import Mapping
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from longsum_jax.conversion.positions import check_length, extend_positions
from longsum_jax.errors import InputError, check_whole
from longsum_jax.layers.attention.lsg import GLOBAL_ROWS
from longsum_jax.layers.attention.options import LsgOptions
from longsum_jax.models.config import ModelConfig
from longsum_jax.models.family import Family
from longsum_jax.models.lsg_layout import DEFAULTS, GLOBALS
from longsum_jax.typing import Params

# seed of rows that the model does not determine; the published default
SEED = 123


def to_lsg(
    family: Family,
    config: ModelConfig,
    params: Params,
    *,
    first_id: int | None,
    mask_id: int | None,
    max_source_length: int | None = None,
    global_positional_stride: int = 64,
    use_token_ids: bool = True,
    keep_first_global_token: bool = False,
    random_global_init: bool = False,
    seed: int = SEED,
    **options: Any,
) -> tuple[ModelConfig, Params]:
    """Returns a config and parameters with LSG attention instead of full attention.

    All parameters of the model are kept. A global token is the embedding of the
    mask token, the first global token the embedding of a text's first token,
    each plus the embedding of a position. Without a mask token (T5; the
    published bart-large-cnn) embeddings are drawn from a normal distribution
    fitted to the model's embeddings.

    Args:
        first_id: id of the token that a text begins with (`<s>`, `[CLS]`); None
            for the config's bos_token_id, or its eos_token_id.
        mask_id: id of the mask token; None if the model has none.
        max_source_length: maximum input length in tokens, a multiple of
            block_size; None to keep the current one.
        global_positional_stride: number of positions between one global token
            and the next.
        use_token_ids: True to add token type 0 if the model has token types.
        keep_first_global_token: True to rebuild all global tokens except the
            first, for a model that already has LSG attention.
        random_global_init: True to draw all global tokens except the first even
            if there is a mask token.
        seed: seed of the random rows.
        **options: fields of LsgOptions (block_size, sparsity_type, ...); defaults as published.

    Raises:
        InputError: an attention other than full attention, a model that is
            already converted, incompatible options, or a length that is not a
            multiple of the block.
    """
    _check_source(family, config, keep_first_global_token)
    defaults = {} if config.encoder_attention == "lsg" else DEFAULTS
    changed = {"encoder_attention": "lsg", **defaults, **options}
    converted = config.replace(**changed)
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    rows = _ordered_positions(config, flat, global_positional_stride, seed)
    mask_id = None if random_global_init else mask_id
    rows = rows + _token_rows(
        converted, flat, first_token(config, first_id), mask_id, seed
    )
    if (
        use_token_ids
        and "token_type_embeddings" in flat
        and not _omits_token_type(converted)
    ):
        rows = rows + np.asarray(flat["token_type_embeddings"][0], np.float32)
    if keep_first_global_token:
        rows[0] = flat[GLOBALS][0]
    flat[GLOBALS] = jnp.asarray(rows, _word_embeddings(flat).dtype)
    params = flax.traverse_util.unflatten_dict(flat, sep="/")
    if max_source_length not in (None, config.max_source_length):
        return extend_positions(family, converted, params, max_source_length)
    check_length(converted)
    return converted, params


def with_lsg_options(config: ModelConfig, **options: Any) -> ModelConfig:
    """Returns the config of a model with LSG attention with other options.

    The parameters are unchanged, even for more global tokens: every table of
    them has 512 rows.

    Raises:
        InputError: the model has another attention, or the options are
            incompatible with each other or with its length.
    """
    if config.encoder_attention != "lsg":
        raise InputError(
            f"{min(options)} is an option of LSG attention, but the model has "
            f"{config.encoder_attention} attention; add encoder_attention=lsg to convert it"
        )
    changed = config.replace(**options)
    check_length(changed)
    return changed


def first_token(config: ModelConfig, first_id: int | None) -> int | None:
    """Returns the token of the first global token: ``first_id``, else the config's, else None."""
    if first_id is not None:
        return first_id
    if config.bos_token_id is None:
        return config.eos_token_id
    return config.bos_token_id


def _check_source(
    family: Family, config: ModelConfig, keep_first_global_token: bool
) -> None:
    """Raises an InputError for a model that cannot be converted."""
    attention = config.encoder_attention
    if attention == "lsg" and not keep_first_global_token:
        raise InputError(
            "the model has LSG attention already; leave encoder_attention=lsg out to change its "
            "length and options, or keep only its first global token with keep_first_global_token"
        )
    if attention not in ("full", "lsg"):
        raise InputError(
            f"{family.name} has {attention} attention, which LSG cannot replace; convert a model "
            "with full attention"
        )
    if attention == "full" and keep_first_global_token:
        raise InputError(
            "keep_first_global_token is for models with LSG attention, this one has full "
            "attention; leave it out"
        )


def _word_embeddings(flat: Mapping[str, Any]) -> Any:
    """Returns the embedding table, [vocab, d_model]."""
    if "word_embeddings" in flat:
        return flat["word_embeddings"]
    return flat["shared"]


def _omits_token_type(config: ModelConfig) -> bool:
    """Returns True if the token type is omitted, as in the published script for RoBERTa."""
    options = LsgOptions.of(config.attention)
    return options.reference_quirks and config.prefix == "roberta"


def _token_rows(
    config: ModelConfig,
    flat: Mapping[str, Any],
    first_id: int | None,
    mask_id: int | None,
    seed: int,
) -> np.ndarray:
    """Returns the token embeddings of all global tokens: float32 [512, d_model]."""
    words = np.asarray(_word_embeddings(flat), np.float32)
    if mask_id is None:
        rows = _draw_words(words, seed)
    else:
        rows = np.tile(words[mask_id], (GLOBAL_ROWS, 1))
    if first_id is not None:
        rows[0] = words[first_id]
    has_quirks = LsgOptions.of(config.attention).reference_quirks
    if config.scale_embedding and not has_quirks:
        rows = rows * np.float32(np.sqrt(config.d_model))
    return rows


def _draw_words(words: np.ndarray, seed: int) -> np.ndarray:
    """Returns a row for every global token, drawn with the mean and covariance of the embeddings.

    ``words`` is the embedding table [vocab, d_model]; the distribution is
    normal.
    """
    rng = np.random.default_rng(seed)
    words = words.astype(np.float64)
    covariance = np.cov(words, rowvar=False)
    drawn = rng.multivariate_normal(
        words.mean(0), covariance, GLOBAL_ROWS, method="eigh"
    )
    return drawn.astype(np.float32)


def _ordered_positions(
    config: ModelConfig, flat: Mapping[str, Any], stride: int, seed: int
) -> np.ndarray:
    """Returns the position embedding of every global token: float32 [512, d_model].

    Neighboring tokens are ``stride`` positions apart: with 512 positions and
    stride 64, token m gets position 64 (m mod 8) + m // 8. A model without
    position embeddings gets zeros.
    """
    check_whole("global_positional_stride", stride, 1)
    table = _positions(config, flat)
    if table is None:
        return np.zeros(
            (GLOBAL_ROWS, _word_embeddings(flat).shape[1]), np.float32
        )
    factor = max(1, len(table) // GLOBAL_ROWS)
    table = table[: GLOBAL_ROWS * factor : factor]
    table = np.concatenate(
        [table, _draw(table, GLOBAL_ROWS - len(table), seed)]
    )
    # The largest divisor of 512 that is not above the stride gives the order of
    # the rows.
    largest = max(1, stride // factor)
    divisors = [d for d in range(1, GLOBAL_ROWS + 1) if GLOBAL_ROWS % d == 0]
    step = max(d for d in divisors if d <= largest)
    columns = table.reshape(-1, step, table.shape[1])
    return columns.swapaxes(0, 1).reshape(table.shape)


def _positions(
    config: ModelConfig, flat: Mapping[str, Any]
) -> np.ndarray | None:
    """Returns the encoder's position embeddings without unused first rows, or None."""
    table = config.source_position_table()
    if table is not None:
        return table
    for name in ("position_embeddings", "source_positions"):
        if name in flat:
            return np.asarray(flat[name], np.float32)[config.position_offset :]
    return None


def _draw(table: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Returns ``count`` random rows with the mean and standard deviation of each column."""
    noise = np.random.default_rng(seed).normal(size=(count, table.shape[1]))
    return (table.mean(0) + table.std(0) * noise).astype(np.float32)
