"""Random masks for dropout, drawn by the cheapest generator of the target's devices.

Threefry, JAX's default, draws the same numbers on any number of devices, and
takes 139 operations per entry in a program for TPUs; their hardware generator
takes 11 (compiled for a v5e). A step of the base model drops some 40,000
entries per token, twice if layers are rematerialized. The hardware generator's
numbers depend on the size of a device's part of an array.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

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


def drop_entries(
    x: Float[AnyArray, "*shape"], keep: Bool[AnyArray, "*shape"], share: float
) -> Float[Array, "*shape"]:
    """Sets entries of ``x`` to zero where ``keep`` is False, and divides the others by ``share``.

    The division is in float32: in bfloat16 a share of 0.9 is 0.8984, and all
    means would grow by 0.2 %.
    """
    scaled = x.astype(jnp.float32) / share
    return jnp.where(keep, scaled, 0).astype(x.dtype)
