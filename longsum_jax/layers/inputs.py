"""Checks of the inputs of layers that are used without a model of this library."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from longsum_jax.errors import InputError
from longsum_jax.typing import AnyArray


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
    """Returns the mask of states, True where it is not zero; all True for None.

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
