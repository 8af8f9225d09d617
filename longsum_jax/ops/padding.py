"""Padding of sequences: zeros after their tokens, and zeros in place of padding."""

import jax
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
    return zero_unless(mask[..., None, None], x)


def zero_unless(
    mask: Bool[AnyArray, "#*shape"], x: Shaped[AnyArray, "*shape"]
) -> Shaped[Array, "*shape"]:
    """Returns ``x`` with zeros where ``mask`` is False.

    The zeros of ``jnp.where(mask, x, 0)`` are made inside of a function of
    their own. In a loop over layers, JAX moves that function before the loop,
    and XLA for GPUs does not move its zeros back: they are stored in the size of
    ``x``, and every layer reads them.
    """
    return jax.lax.select(jnp.broadcast_to(mask, x.shape), x, jnp.zeros_like(x))
