"""Linformer: keys and values of a fixed number of learned means over the text (Wang et al.
2020)."""

from typing import Any

import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import EncoderAttention, SparseAttention, from_stack
from longsum_jax.layers.attention.linformer_compression import CompressedAttention
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.ops.attention.blockwise import KeySet, attend_all
from longsum_jax.typing import Array


class LinformerAttention(CompressedAttention, SparseAttention):
    """Every token sees ``size`` means over all tokens; keys, values and heads share the means,
    layers do not.

    A relative position bias has no place here, since a mean stands for all positions.
    """

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        mask = context
        k, v = self.project_kv(jnp.where(mask[..., None], x, 0))
        out = attend_all(self.q(x), [KeySet(k, v)], **self.sparse_options(deterministic))
        return self.o(jnp.where(mask[..., None, None], out, 0))


def _check(options: EncoderAttentionOptions) -> None:
    for key in LINFORMER.options:
        if getattr(options, key) < 1:
            raise InputError(f"{key} is {getattr(options, key)}; it must be at least 1")


LINFORMER = EncoderAttention(
    from_stack(LinformerAttention, size="linformer_size", max_length="linformer_max_length"),
    options=("linformer_size", "linformer_max_length"),
    check=_check,
    limit="linformer_max_length",
)
