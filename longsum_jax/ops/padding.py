"""Padding of sequences: zeros after their tokens, and zeros in place of padding."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Shaped

from longsum_jax.typing import AnyArray


def append_zeros(
    x: Shaped[AnyArray, "batch length ..."], count: int
) -> Shaped[Array, "batch padded_length ..."]:
    """Appends ``count`` tokens of zeros (False) to every sequence."""
    return jnp.pad(x, ((0, 0), (0, count)) + ((0, 0),) * (x.ndim - 2))


def zero_padding(
    x: Shaped[AnyArray, "batch length heads features"],
    mask: Bool[AnyArray, "batch length"],
) -> Shaped[Array, "batch length heads features"]:
    """Returns ``x`` with zeros where ``mask`` is False."""
    return jnp.where(mask[..., None, None], x, 0)
