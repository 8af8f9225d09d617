"""Checks inputs, and pads them to one of a few lengths to limit the number of compilations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from longsum_jax.errors import InputError, check_whole
from longsum_jax.layers.attention.global_tokens import NO_TOKEN
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.layer_groups import parse_hybrid
from longsum_jax.models.registry import max_input_length
from longsum_jax.ops.ssm.kernel import MAX_LENGTH

BUCKET = 64  # tokens; lengths are rounded up to a multiple of this
FINE_BUCKET = 8  # for many short rows, which reuse the same programs
# Limit of padding in a batch: a share, or a number of tokens that is cheaper
# than another batch.
MAX_PADDING = 1 / 8
FEW_TOKENS = 64


class PaddedInputs(NamedTuple):
    """Padded inputs of a module.

    Attributes:
        ids: int32 [batch, length].
        mask: bool [batch, length], True on real tokens.
        extra: further inputs of some encoders, by the names of the module's
            arguments.
    """

    ids: np.ndarray
    mask: np.ndarray
    extra: Mapping[str, np.ndarray]


def bucket_length(length: int, bucket: int = BUCKET) -> int:
    """Returns ``length`` rounded up to a multiple of ``bucket``.

    Above eight buckets, the result is at most one eighth longer.
    """
    # Buckets grow with the length, so that few lengths occur.
    # Between two powers of two there are at most eight lengths.
    step = max(bucket, 2 ** (length - 1).bit_length() // 16)
    return -(-length // step) * step


def padded_length(
    length: int, limit: int | None, multiple: int, bucket: int = BUCKET
) -> int:
    """Returns the padded length of an input.

    Args:
        length: token count of the input.
        limit: maximum input length of the model; None for no limit.
        multiple: number whose multiples the model requires; 0 for a bucket.
        bucket: bucket size, see ``bucket_length``.
    """
    # Round up to a multiple that the attention requires, or to a bucket.
    if multiple:
        padded = -(-length // multiple) * multiple
    else:
        padded = bucket_length(length, bucket)
    if limit is None:
        return padded
    # The limit itself may be no multiple; longer inputs are rejected elsewhere.
    return max(length, min(padded, limit))


def depends_on_padding(config: Any) -> bool:
    """Returns True if more padding changes what a model computes.

    In BigBird's attention the last block of the input is global.
    """
    return bool(get_encoder_attention(config.encoder_attention).pads_to)


def input_length(config: Any, length: int, bucket: int = BUCKET) -> int:
    """Returns the padded length of a model's input of ``length`` tokens."""
    attention = get_encoder_attention(config.encoder_attention)
    if attention.pads_to:
        multiple = config.option(attention.pads_to)
    else:
        multiple = 0
    return padded_length(length, max_input_length(config), multiple, bucket)


def batches_by_length(
    lengths: Sequence[Any], batch_size: int
) -> Iterator[list[int]]:
    """Yields the indices of rows of similar length, longest first.

    A batch ends before a row that would exceed the limit of padding
    (``MAX_PADDING``).

    Args:
        lengths: length of every row, or tuples of lengths, compared from the
            first on.
        batch_size: maximum rows of a batch.
    """
    # Longest first, so that the first row of a batch sets its length.
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    # int [inputs, rows]
    inputs = np.atleast_2d(np.transpose([lengths[i] for i in order]))
    start = 0
    while start < len(order):
        count = _rows_of_batch(
            inputs[:, start : start + batch_size], batch_size
        )
        yield order[start : start + count]
        start += count


def _rows_of_batch(lengths: np.ndarray, batch_size: int) -> int:
    """Returns the number of leading rows, with lengths int [inputs, rows], that make a batch."""
    counts = np.arange(1, lengths.shape[1] + 1)
    filled = np.array(
        [padded_rows(count, batch_size) for count in counts.tolist()]
    )
    # Tokens including padding, [counts]: rows times the longest length so far,
    # over all inputs.
    tokens = filled * np.maximum.accumulate(lengths, 1).sum(0)
    padding = tokens - lengths.sum(0).cumsum()
    fits = padding <= np.maximum(tokens * MAX_PADDING, FEW_TOKENS)
    # The largest batch within the limit of padding, at least one row.
    return int(counts[fits].max(initial=1))


def padded_rows(count: int, batch_size: int) -> int:
    """Returns the padded row count: the next power of two, at most ``batch_size``."""
    return min(1 << (count - 1).bit_length(), batch_size)


def pad_rows(
    rows: Sequence[Sequence[int]], batch_size: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of ids as one array with its mask.

    Args:
        rows: rows of ids, at least 1 and at most ``batch_size``.
        batch_size: maximum rows of an array. Copies of the last row are added
            up to ``padded_rows``, so that few programs are compiled.
        pad_id: id of the padding at the end of a row.

    Returns:
        ids int32 and mask bool, True on the ids of the rows, [rows, longest
        length].
    """
    filled = [
        *rows,
        *[rows[-1]] * (padded_rows(len(rows), batch_size) - len(rows)),
    ]
    lengths = np.array([len(row) for row in filled])
    # [rows, longest length], True on ids
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, np.int32)
    # Boolean indexing is row-major, like the concatenated rows.
    ids[mask] = np.concatenate(filled)
    return ids, mask


def pad_inputs(
    ids: np.ndarray,
    mask: np.ndarray,
    inputs: Mapping[str, Any],
    *,
    config: Any,
    family: str,
    bucket: int = BUCKET,
) -> PaddedInputs:
    """Pads ids, mask and further inputs to one of the compiled lengths.

    Args:
        ids: int32 [batch, length].
        mask: bool [batch, length].
        inputs: "global_attention_mask" or "token_type_ids", under their Hugging
            Face names.
        config: config of the model.
        family: name of the model family, for errors.
        bucket: bucket size, see ``bucket_length``.

    Raises:
        InputError: an input that this model does not take, a mismatched shape,
            or a bucket below 1.
    """
    check_whole("bucket", bucket, 1)
    attention = get_encoder_attention(config.encoder_attention)
    length = ids.shape[1]
    padding = input_length(config, length, bucket) - length
    widths = ((0, 0), (0, padding))
    extra = {}
    if config.has_more_globals and "global_attention_mask" not in inputs:
        is_global = config.is_global_token(ids, np) & mask
        # Tokens that the model's config makes global, unless the caller chose
        # others.
        inputs = {"global_attention_mask": is_global, **inputs}
    for name, value in inputs.items():
        if (
            name == "global_attention_mask"
            and "global_indices" in attention.inputs
        ):
            extra["global_indices"] = global_indices(like_ids(ids, value, name))
        elif name == "token_type_ids" and config.has_token_types:
            types = like_ids(ids, value, name)
            _check_types(types, config.type_vocab_size)
            extra[name] = np.pad(types, widths)
        else:
            raise InputError(
                f"{name} is given, but {family} with this attention does not support it; "
                "leave it out"
            )
    padded_ids = np.pad(ids, widths, constant_values=config.pad_token_id)
    return PaddedInputs(padded_ids, np.pad(mask, widths), extra)


def _check_types(types: np.ndarray, count: int) -> None:
    """Raises InputError for a token type outside the model's ``count`` types."""
    if types.min() < 0 or types.max() >= count:
        if types.min() < 0:
            outside = types.min()
        else:
            outside = types.max()
        raise InputError(
            f"token_type_ids holds {outside}, but this model has type_vocab_size={count}; give "
            f"types from 0 to {count - 1}"
        )


def document_inputs(
    ids: np.ndarray, document_id: int | None, config: Any
) -> Mapping[str, np.ndarray]:
    """Returns the further inputs for several documents that are read as one.

    The first token and the separators after documents get global attention
    (PRIMERA, section 3.1), in models whose attention supports global tokens.

    Args:
        ids: int32 [batch, length].
        document_id: id of the separator after each document; None for models
            without one.
        config: config of the model.
    """
    if (
        document_id is None
        or "global_indices"
        not in get_encoder_attention(config.encoder_attention).inputs
    ):
        return {}
    is_global = ids == document_id
    if not is_global.any():
        return {}
    # The first token is global in addition to the separators.
    is_global[:, 0] = True
    if config.has_more_globals:
        is_global |= config.is_global_token(ids, np)
    return {"global_attention_mask": is_global.astype(np.int32)}


def global_indices(global_attention_mask: np.ndarray) -> np.ndarray:
    """Returns the positions of nonzero entries, in ascending order, padded with -1.

    Args:
        global_attention_mask: [batch, length], nonzero on global tokens.

    Returns:
        int32 [batch, num_globals]; num_globals is a power of two.
    """
    positions = [np.flatnonzero(row) for row in global_attention_mask]
    most = max(map(len, positions))
    # A power of two, so that few programs are compiled.
    num_globals = 1 << max(most - 1, 0).bit_length()
    indices = np.full((len(positions), num_globals), NO_TOKEN, np.int32)
    for row, global_positions in zip(indices, positions, strict=True):
        row[: len(global_positions)] = global_positions
    return indices


def check_global_tokens(ids: np.ndarray, mask: np.ndarray, config: Any) -> None:
    """Checks that all tokens of questions or choices can be global, in models with this default.

    Args:
        ids: int32 [batch, length].
        mask: bool [batch, length].
        config: config of the model.

    Raises:
        InputError: a row with more than ``max_global_tokens`` global tokens.
    """
    if (
        "global_indices"
        not in get_encoder_attention(config.encoder_attention).inputs
    ):
        return
    kind = getattr(config, "global_tokens", "first")
    if kind not in ("question", "choice"):
        return
    is_after_separator = (ids == config.sep_token_id).cumsum(-1) > 0
    # The tokens up to the first separator: the question, or the text before the
    # choice.
    first, has_end = (
        (~is_after_separator).sum(-1, keepdims=True),
        is_after_separator.any(-1, keepdims=True),
    )
    # Tokens of a question precede a separator, tokens of a choice follow it.
    if kind == "question":
        is_global = ~is_after_separator
    else:
        is_global = np.arange(ids.shape[1]) > first + 1
    counts = (is_global & has_end & mask).sum(-1)
    if counts.max() > config.max_global_tokens:
        raise InputError(
            f"row {counts.argmax()} has {counts.max()} tokens of a {kind}, and this model makes at "
            f"most max_global_tokens={config.max_global_tokens} of them global; shorten it, or "
            "give global_attention_mask"
        )


def like_ids(ids: np.ndarray, value: Any, name: str) -> np.ndarray:
    """Returns ``value`` as int32; raises InputError if its shape differs from ``ids``."""
    value = rectangular(value, name)
    if value.shape != ids.shape:
        raise InputError(
            f"{name} has shape {value.shape}, input_ids {ids.shape}; they must agree"
        )
    return value.astype(np.int32)


def rectangular(value: Any, name: str) -> np.ndarray:
    """Returns an array, or raises InputError for rows of different lengths."""
    try:
        return np.asarray(value)
    except ValueError:
        raise InputError(
            f"{name} has rows of different lengths; pad them to one and give attention_mask, or "
            "one row at a time"
        ) from None


def check_ids(ids: Any, name: str, vocab_size: int) -> np.ndarray:
    """Returns ``ids`` as int32 [batch, length].

    Raises:
        InputError: a wrong shape or type, or ids outside the vocabulary.
    """
    if ids is None:
        raise InputError(f"{name} is missing; give integers [batch, length]")
    ids = rectangular(ids, name)
    if (
        ids.ndim != 2
        or ids.size == 0
        or not np.issubdtype(ids.dtype, np.integer)
    ):
        raise InputError(
            f"{name} has shape {ids.shape} and type {ids.dtype}; give integers [batch, length]"
        )
    if ids.min() < 0 or ids.max() >= vocab_size:
        outside = ids.min() if ids.min() < 0 else ids.max()
        raise InputError(
            f"{name} holds {outside}, outside the vocabulary of {vocab_size}; "
            "was it made with another tokenizer?"
        )
    return ids.astype(np.int32)


def check_inputs(
    input_ids: Any, attention_mask: Any, config: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids int32 and mask bool, [batch, length], for a model's encoder.

    Args:
        input_ids: int [batch, length].
        attention_mask: [batch, length], nonzero on real tokens; None for all
            except padding ids.
        config: config of the model.

    Raises:
        InputError: ids outside the vocabulary, too many tokens, mismatched
            shapes.
    """
    ids = check_ids(input_ids, "input_ids", config.vocab_size)
    check_length(ids.shape[1], config.max_source_length, "input_ids")
    check_kernel_length(ids.shape[1], config, "input_ids", "shorten it")
    if attention_mask is None:
        return ids, ids != config.pad_token_id
    mask = rectangular(attention_mask, "attention_mask").astype(bool)
    if mask.shape != ids.shape:
        raise InputError(
            f"attention_mask has shape {mask.shape}, input_ids {ids.shape}; they must agree"
        )
    return ids, mask


def check_ends(ids: np.ndarray, eos_id: int) -> None:
    """Raises InputError unless every row of ids has an end-of-sequence token."""
    lacking = np.flatnonzero(~(ids == eos_id).any(1))
    if len(lacking):
        raise InputError(
            f"input_ids: row {lacking[0]} has no end-of-sequence token (id {eos_id}), whose state "
            "this model classifies; add it"
        )


def check_length(length: int, limit: int | None, name: str) -> None:
    """Raises InputError if a source has more tokens than the model has positions."""
    if limit is not None and length > limit:
        raise InputError(
            f"{name}: {length} tokens, but this model has positions for {limit}; shorten it, or "
            f"extend the model with longsum convert SRC DST --max_source_length={length}"
        )


def check_target_length(length: int, limit: int | None, name: str) -> None:
    """Raises InputError if a target has more tokens than the decoder has positions."""
    if limit is not None and length > limit:
        raise InputError(
            f"{name}: {length} tokens, but the decoder of this model has positions for {limit}; "
            f"give at most {limit}"
        )


def kernel_limit(config: Any) -> int | None:
    """Returns the length up to which state-space kernels are exact; None without such layers.

    Pages are read one at a time, so models with pages have no limit.
    """
    attentions = [name for name, _ in parse_hybrid(config.encoder_attention)]
    pages = getattr(config, "pages", None)
    has_pages = pages is not None and pages.page_length > 0
    if "s4d" not in attentions or has_pages:
        return None
    return MAX_LENGTH


def check_kernel_length(
    length: int, config: Any, name: str, remedy: str
) -> None:
    """Raises InputError if state-space kernels are not exact for this many tokens."""
    limit = kernel_limit(config)
    if limit is not None and length > limit:
        raise InputError(
            f"{name} has {length:,} tokens, but state-space layers read at most {limit:,}; {remedy}"
        )
