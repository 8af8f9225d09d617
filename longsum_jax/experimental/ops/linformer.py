"""Linformer's compression of a sequence to a fixed number of rows (Wang et al. 2020, section 4)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from longsum_jax.errors import InputError
from longsum_jax.typing import AnyArray


def compress_length(
    x: Float[AnyArray, "batch length d_model"],
    projection: Float[AnyArray, "num_rows max_length"],
) -> Float[Array, "batch num_rows d_model"]:
    """Multiplies the first ``length`` columns of ``projection`` with ``x``.

    Every row of the result is a learned weighted sum over the positions.

    Args:
        x: states, zero on padding.
        projection: weights shared by keys and values and by all heads
            ("key-value sharing" in section 4).

    Returns:
        Rows in the type of ``x``, summed in float32.

    Raises:
        InputError: ``length`` is larger than ``max_length``.
    """
    length, max_length = x.shape[1], projection.shape[1]
    if length > max_length:
        raise InputError(
            f"an input of {length} tokens is longer than the {max_length} tokens that the "
            "Linformer projection has weights for; shorten it, or train a model whose projection "
            "is longer"
        )
    columns = projection[:, :length].astype(x.dtype)
    rows = jnp.einsum(
        "pl,bld->bpd", columns, x, preferred_element_type=jnp.float32
    )
    return rows.astype(x.dtype)
