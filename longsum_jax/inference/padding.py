"""Pads inputs to one of a few lengths, so that few programs are compiled."""

from typing import TYPE_CHECKING, Any

import numpy as np

from longsum_jax.errors import InputError

if TYPE_CHECKING:
    pass


def bucket_length(length: int) -> int:
    """The padded length of ``length`` tokens: multiples of 64, above 512 at most an eighth
    longer."""
    step = max(64, 2 ** (length - 1).bit_length() // 16)
    return -(-length // step) * step


def padded_length(length: int, limit: int | None, multiple: int) -> int:
    """To which length an input is padded: a multiple that the model asks for, or a bucket within
    its limit."""
    padded = -(-length // multiple) * multiple if multiple else bucket_length(length)
    return padded if limit is None else max(length, min(padded, limit))


def global_indices(global_attention_mask: np.ndarray) -> np.ndarray:
    """Positions of the nonzero entries: [B, L] -> int32 [B, G], filled up with -1; G is a power of
    two."""
    chosen = [np.flatnonzero(row) for row in global_attention_mask]
    width = 1 << max(max(map(len, chosen)) - 1, 0).bit_length()
    indices = np.full((len(chosen), width), -1, np.int32)
    for row, positions in enumerate(chosen):
        indices[row, : len(positions)] = positions
    return indices


def like_ids(ids: np.ndarray, value: Any, name: str) -> np.ndarray:
    value = np.asarray(value)
    if value.shape != ids.shape:
        raise InputError(f"{name} has shape {value.shape}, input_ids {ids.shape}; they must agree")
    return value.astype(np.int32)


def check_length(length: int, limit: int | None, name: str) -> None:
    if limit is not None and length > limit:
        raise InputError(
            f"{name}: {length} tokens, but this model has positions for {limit}; shorten it, or extend the model with "
            f"longsum convert SRC DST --max_source_length={length}"
        )
