"""Random masks for dropout, drawn by the cheapest generator of the target's devices.

Threefry, JAX's default, draws the same numbers on any number of devices, and
takes 139 operations per entry in a program for TPUs; their hardware generator
takes 11 (compiled for a v5e). A step of the base model drops some 40,000
entries per token, twice if layers are rematerialized. The hardware generator's
numbers depend on the size of a device's part of an array.

Fused kernels drop attention weights by a hash of their position, in eight
operations for each weight.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from longsum_jax.ops.padding import zero_unless
from longsum_jax.ops.platform import target_platform
from longsum_jax.typing import AnyArray

_WORDS_OF_RBG = 4


def has_own_generator() -> bool:
    """Returns True if the target's devices have a hardware generator."""
    return target_platform() == "tpu"


def keep_mask(
    rng: PRNGKeyArray, share: float, shape: Sequence[int]
) -> Bool[Array, "..."]:
    """Draws a mask whose entries are True with probability ``share``.

    Args:
        rng: PRNG key, of any kind.
        share: probability of True.
        shape: shape of the array.
    """
    if has_own_generator():
        # RBG keys have four words, Threefry keys two.
        words = jax.random.key_data(rng)
        words = jnp.tile(words, _WORDS_OF_RBG // words.size)
        rng = jax.random.wrap_key_data(words, impl="rbg")
    return jax.random.bernoulli(rng, share, shape)


def head_words(
    rng: PRNGKeyArray, rows: int, heads: int
) -> UInt32[Array, "rows heads words"]:
    """Returns two words for each row and head, from which ``keep_pairs`` draws.

    Args:
        rng: PRNG key, of any kind.
        rows, heads: numbers of rows and heads on all devices.
    """
    numbers = jnp.arange(rows * heads).reshape(rows, heads)
    keys = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (None, 0))(
        rng, numbers
    )
    return jax.random.key_data(keys)[..., :2]


def keep_pairs(
    words: tuple[Any, Any],
    queries: Int[AnyArray, "#rows #columns"],
    keys: Int[AnyArray, "#rows #columns"],
    share: float,
) -> Bool[Array, "rows columns"]:
    """Draws a mask of pairs of queries and keys inside a kernel, True with probability ``share``.

    The mask depends on the words and positions only, not on blocks and devices.
    It is a hash, which takes eight operations for each pair.

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
    # The share of the smallest rates rounds to 2**32, which exceeds uint32.
    limit = jnp.uint32(min(round(share * 2**32), 2**32 - 1))
    return _hashed(of_queries + of_keys) < limit


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
