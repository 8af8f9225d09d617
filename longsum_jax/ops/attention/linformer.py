"""Linformer's compression of a sequence to a fixed number of rows (Wang et al. 2020, section 4)."""

import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.typing import Array


def compress_length(x: Array, projection: Array) -> Array:
    """Every row a learned mean over the positions: the first L columns of ``projection`` times
    ``x``.

    Args:
        x: [B, L, D], zero on padding.
        projection: [P, longest L]; keys and values share it, and all heads (section 4, "key-value
            sharing").

    Returns:
        [B, P, D] in the type of ``x``, summed in float32.

    Raises:
        InputError: L is larger than the projection has columns.
    """
    length, longest = x.shape[1], projection.shape[1]
    if length > longest:
        raise InputError(
            f"an input of {length} tokens is longer than the {longest} tokens that the Linformer projection has "
            "weights for; shorten it, or train a model whose projection is longer"
        )
    columns = projection[:, :length].astype(x.dtype)
    return jnp.einsum("pl,bld->bpd", columns, x, preferred_element_type=jnp.float32).astype(x.dtype)
