"""Linformer: keys and values from a fixed number of learned means over the input (Wang
et al. 2020).
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.experimental.ops.linformer import compress_length
from longsum_jax.layers.attention.base import EncoderSelfAttention
from longsum_jax.layers.attention.cross import CrossAttention
from longsum_jax.layers.attention.multi_head import MultiHeadAttention
from longsum_jax.layers.attention.options import (
    CrossLinformerOptions,
    LinformerOptions,
)
from longsum_jax.layers.dense import torch_uniform
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.blockwise import attend_shared_keys
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.ops.padding import zero_padding
from longsum_jax.typing import AnyArray


class CompressedAttention(MultiHeadAttention):
    """Attention to learned means over all positions; keys, values and heads share the means.

    Attributes:
        size: number of means.
        max_length: number of positions that the projection has weights for.
    """

    size: int = 256
    max_length: int = 1024

    def setup(self) -> None:
        super().setup()
        init = logical(
            torch_uniform(self.max_length), "compressed", "positions"
        )
        # Row i contains the weights of mean i.
        self.length_projection = self.param(
            "length_projection", init, (self.size, self.max_length)
        )

    def compress(
        self, x: Float[AnyArray, "batch length d_model"]
    ) -> Float[Array, "batch num_keys d_model"]:
        """Computes the means of states, which must be zero on padding.

        Raises:
            InputError: the input is longer than ``max_length``.
        """
        return compress_length(x.astype(self.dtype), self.length_projection)

    def project_kv(
        self,
        x: Float[AnyArray, "batch length d_model"],
        positions: Int[AnyArray, "#batch length"] | None = None,
    ) -> tuple[
        Float[Array, "batch num_keys heads head_dim"],
        Float[Array, "batch num_keys heads head_dim"],
    ]:
        """Returns keys and values of the means of states, which must be zero on padding."""
        # [batch, length, d_model] -> [batch, size, d_model] before the
        # projections, which then run on ``size`` rows instead of ``length``.
        return super().project_kv(self.compress(x))


class LinformerAttention(CompressedAttention, EncoderSelfAttention):
    """Attention of every token to ``linformer_size`` means over all tokens.

    Linformer, Wang et al. 2020, section 4. A relative position bias does not
    apply, since each mean is over all positions.
    """

    Options = LinformerOptions
    max_input_length_option = "linformer_max_length"

    @classmethod
    def from_stack(cls, stack: StackConfig) -> nn.Module:
        options = LinformerOptions.of(stack.attention)
        return cls(
            **stack.attention_fields,
            options=options,
            size=options.linformer_size,
            max_length=options.linformer_max_length,
        )

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        self.without_kernel("learned means as keys")
        mask = context
        # Zeros on padding, so that it adds nothing to the means.
        k, v = self.project_kv(jnp.where(mask[..., None], x, 0))
        y = attend_shared_keys(
            self.q(x), [KeySet(k, v)], **self.sparse_options(deterministic)
        )
        return self.o(zero_padding(y, mask))


class LinformerCrossAttention(CompressedAttention, CrossAttention):
    """Attention of every head to learned means over the source."""

    Options = CrossLinformerOptions
    max_input_length_option = "cross_linformer_max_length"

    @classmethod
    def from_stack(
        cls, stack: StackConfig, maps: MultiHeadAttention | None = None
    ) -> "LinformerCrossAttention":
        options = CrossLinformerOptions.of(stack.cross)
        return cls(
            **stack.attention_fields,
            source_size=stack.source_size,
            options=options,
            size=options.cross_linformer_size,
            max_length=options.cross_linformer_max_length,
            maps=maps,
        )

    @classmethod
    def prepare(
        cls,
        stack: StackConfig,
        states: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> tuple[
        Float[AnyArray, "batch length d_model"],
        Bool[AnyArray, "batch mask_heads 1 num_keys"],
    ]:
        # Zeros on padding add nothing to the means.
        states = jnp.where(mask[..., None], states, 0)
        # Each mean is over the whole source: all are read or, without a real
        # token, none.
        has_tokens = jnp.any(mask, -1)
        return states, has_tokens[:, None, None, None]

    @classmethod
    def num_keys(cls, stack: StackConfig, length: int) -> int:
        return CrossLinformerOptions.of(stack.cross).cross_linformer_size

    def attend_absorbed(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        states: Float[AnyArray, "batch key_length source_size"],
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
        | None = None,
    ) -> Float[Array, "batch query_length d_model"]:
        """See ``MultiHeadAttention.attend_absorbed``; compresses the states in every call."""
        return super().attend_absorbed(x, self.compress(states), mask=mask)
