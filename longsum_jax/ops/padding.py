"""Padding of sequences: zeros after their tokens, zeros in place of padding, and masks of it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from longsum_jax.errors import InputError
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


def check_states(name: str, x: Float[AnyArray, "batch length d_model"]) -> None:
    """Raises InputError unless states have three axes."""
    if x.ndim != 3:
        raise InputError(
            f"{name} has shape {x.shape}, which is not [batch, length, d_model]; reshape it, or "
            "use jax.vmap"
        )


def bool_mask(
    mask: Shaped[AnyArray, "#batch length"] | None,
    x: Float[AnyArray, "batch length d_model"],
) -> Bool[Array, "batch length"]:
    """Returns a mask of states as booleans; without one, all positions are True.

    Raises:
        InputError: a mask of another length or number of rows.
    """
    batch, length = x.shape[:2]
    if mask is None:
        return jnp.ones((batch, length), bool)
    if mask.shape not in ((batch, length), (1, length)):
        raise InputError(
            f"the mask has shape {mask.shape}, but the states have {batch} rows of {length} "
            f"positions; give a mask of shape {(batch, length)}"
        )
    return jnp.broadcast_to(jnp.asarray(mask).astype(bool), (batch, length))
