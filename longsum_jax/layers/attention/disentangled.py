"""Disentangled attention, the attention of DeBERTa: contents and relative positions apart."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import Context, EncoderSelfAttention
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import (
    DisentangledOptions,
    EncoderAttentionOptions,
)
from longsum_jax.layers.dense import Dropout, LayerNorm, normal
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.dense import repeat_heads
from longsum_jax.ops.attention.disentangled import disentangled_attention
from longsum_jax.ops.sequence_sharding import ByHead
from longsum_jax.typing import AnyArray


class DisentangledContext(Context):
    """The mask, and the normalized table of relative positions [rows, d_model].

    All layers share the table, and project it with their maps of queries and
    keys.
    """

    def setup(self) -> None:
        stack = self.stack
        options = DisentangledOptions.of(stack.attention)
        init = normal(1.0 if stack.kernel_std is None else stack.kernel_std)
        self.position_embeddings = self.param(
            "position_embeddings",
            logical(init, "positions", "embed"),
            (2 * options.position_buckets, stack.d_model),
        )
        self.norm = LayerNorm(stack.norm_epsilon, stack.dtype)

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        return x, (mask, self.norm(self.position_embeddings)), ()


class DisentangledAttention(EncoderSelfAttention):
    """Full attention whose scores add products of contents and relative positions.

    T5's bias does not apply, since the products replace it.

    Attributes:
        position_dropout_rate: dropout rate of the table in every layer.
    """

    Options = DisentangledOptions
    context_class = DisentangledContext

    options: DisentangledOptions = DisentangledOptions()
    position_dropout_rate: float = 0.0

    @classmethod
    def check(
        cls, options: EncoderAttentionOptions, max_length: int | None
    ) -> None:
        options = DisentangledOptions.of(options)
        smallest = options.position_buckets // 2 + 2
        if options.max_relative_positions < smallest:
            raise InputError(
                f"max_relative_positions is {options.max_relative_positions}, but position_buckets="
                f"{options.position_buckets} need at least {smallest}; change either"
            )

    @classmethod
    def from_stack(cls, stack: StackConfig) -> nn.Module:
        return cls(
            **stack.self_attention_fields,
            options=cls.Options.of(stack.attention),
            position_dropout_rate=stack.dropout_rate,
        )

    def setup(self) -> None:
        super().setup()
        self.position_dropout = Dropout(self.position_dropout_rate)

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        self.without_kernel("scores of relative positions")
        mask, table = context
        table = self.position_dropout(table[None], deterministic)
        # Rotary positions, if any, do not turn the table.
        unplaced = jnp.zeros((1, table.shape[1]), jnp.int32)
        position_q = self.q(table, unplaced)
        position_k = repeat_heads(self.k(table, unplaced), self.num_heads)
        k, v = self.project_kv(x)
        y = self.attend_by_heads(
            partial(
                disentangled_attention,
                max_distance=self.options.max_relative_positions,
            ),
            deterministic,
            text={"q": self.q(x), "k": k, "v": v},
            rows={"mask": mask},
            heads={
                "position_q": ByHead(position_q[0], (None, "heads")),
                "position_k": ByHead(position_k[0], (None, "heads")),
            },
        )
        return self.o(y)
