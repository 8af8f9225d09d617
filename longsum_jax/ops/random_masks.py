"""Random masks for dropout, drawn by hashes of positions.

JAX's default generator, Threefry, takes 139 operations per entry in a program
for TPUs, and a step of the base model drops some 40,000 entries per token,
twice if layers are rematerialized. The generators of hardware take fewer, but
write their numbers to memory, and the numbers depend on the size of a device's
part of an array. A hash takes eleven operations inside the loop that drops the
entries, and draws the same numbers on any number of devices.

The key of a module gives every row of an array two numbers, its start and its
step. Entry i of the row is the hash of start + i step: the row is a stream of
SplitMix (Steele, Lea and Flood 2014, section 3), in 32 bits and with the
finalizer of MurmurHash3 (Appleby 2011). Fused attention kernels hash the
positions of query and key instead.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from longsum_jax.ops.padding import zero_unless
from longsum_jax.typing import AnyArray

_GOLDEN_RATIO = 0x9E3779B9  # its fraction in 32 bits, as in SplitMix


class RowWords(NamedTuple):
    """The start and the step of the numbers of each row."""

    start: UInt32[Array, "*rows"]
    step: UInt32[Array, "*rows"]


def row_words(rng: PRNGKeyArray, shape: Sequence[int]) -> RowWords:
    """Returns two words for each row, from which masks are drawn.

    Args:
        rng: PRNG key, of any kind; inside of ``shard_map``, a different one on
            every device.
        shape: numbers of rows along each axis, on all devices.
    """
    number = jnp.zeros(shape, jnp.uint32)
    for axis, size in enumerate(shape):
        index = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        number = number * jnp.uint32(size) + index
    # RBG keys begin with the words of a Threefry key.
    start, step = jax.random.key_data(rng)[..., :2]
    # The first word of a key is 0 for all small seeds.
    start ^= _hashed(step ^ jnp.uint32(_GOLDEN_RATIO))
    return RowWords(_hashed(number ^ start), _hashed(number ^ step))


def module_words(words: RowWords, number: int) -> RowWords:
    """Returns words for one of several modules with the same rows.

    Args:
        words: result of ``row_words``.
        number: number of the module, less than 2**32.
    """
    return RowWords(*(_hashed(word ^ jnp.uint32(number)) for word in words))


def keep_entries(
    words: RowWords, size: int, share: float
) -> Bool[Array, "*rows size"]:
    """Draws ``size`` entries for each row, True with probability ``share``.

    Args:
        words: result of ``row_words``.
        size: number of entries of a row.
        share: probability of True, less than 1.
    """
    start, step = (word[..., None] for word in words)
    index = jax.lax.broadcasted_iota(
        jnp.uint32, (*start.shape[:-1], size), start.ndim - 1
    )
    # Streams with an odd step repeat only after 2**32 entries.
    return _hashed(start + index * (step | 1)) < _limit(share)


def keep_mask(
    rng: PRNGKeyArray, share: float, shape: Sequence[int]
) -> Bool[Array, "..."]:
    """Draws a mask whose entries are True with probability ``share``.

    Args:
        rng: PRNG key, of any kind.
        share: probability of True, less than 1.
        shape: shape of the array on all devices, with at least one axis.
    """
    *rows, size = shape
    return keep_entries(row_words(rng, rows), size, share)


def head_words(
    rng: PRNGKeyArray, rows: int, heads: int
) -> UInt32[Array, "rows heads words"]:
    """Returns two words for each row and head, from which ``keep_pairs`` draws.

    Args:
        rng: PRNG key, of any kind.
        rows, heads: numbers of rows and heads on all devices.
    """
    return jnp.stack(row_words(rng, (rows, heads)), -1)


def keep_pairs(
    words: tuple[Any, Any],
    queries: Int[AnyArray, "#rows #columns"],
    keys: Int[AnyArray, "#rows #columns"],
    share: float,
) -> Bool[Array, "rows columns"]:
    """Draws a mask of pairs of queries and keys inside a kernel, True with probability ``share``.

    The mask depends on the words and positions only, not on blocks and devices.
    It is a hash, which takes ten operations for each pair.

    Args:
        words: the two words of a row and head.
        queries, keys: indices of the queries and keys, one along the rows of
            the mask and the other along its columns.
        share: probability of True, less than 1.
    """
    of_queries, of_keys = (
        _hashed(jnp.asarray(indices).astype(jnp.uint32) ^ word)
        for indices, word in zip((queries, keys), words, strict=True)
    )
    return _hashed(of_queries + of_keys) < _limit(share)


def _limit(share: float) -> Array:
    # The share of the smallest rates rounds to 2**32, which exceeds uint32.
    return jnp.uint32(min(round(share * 2**32), 2**32 - 1))


def _hashed(x: Array) -> Array:
    """Returns the finalizer of MurmurHash3 (Appleby 2011) of uint32 numbers."""
    x ^= x >> 16
    x *= jnp.uint32(0x85EBCA6B)
    x ^= x >> 13
    x *= jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def drop_entries(
    x: Float[AnyArray, "*shape"], keep: Bool[AnyArray, "*shape"], share: float
) -> Float[Array, "*shape"]:
    """Sets entries of ``x`` to zero where ``keep`` is False, and divides the others by ``share``.

    The division is in float32: in bfloat16 a share of 0.9 is 0.8984, and all
    means would grow by 0.2 %.
    """
    scaled = x.astype(jnp.float32) / share
    return zero_unless(keep, scaled).astype(x.dtype)


def drop_randomly(
    x: Float[AnyArray, "*shape"], rng: PRNGKeyArray, rate: float
) -> Float[Array, "*shape"]:
    """Sets entries of ``x`` to zero at a rate in [0, 1), and scales the others to have its mean."""
    share = 1 - rate
    return drop_entries(x, keep_mask(rng, share, x.shape), share)
