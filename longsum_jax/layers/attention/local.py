"""LongT5's attentions: a window, and a window with one global token for every block
(Guo et al. 2022).
"""

import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.layers.attention.base import (
    Context,
    EncoderSelfAttention,
    step_biases,
    window_bias,
)
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import (
    TransientGlobalOptions,
    WindowSizeOptions,
)
from longsum_jax.layers.dense import RMSNorm
from longsum_jax.layers.partitioning import active_sequence_sharding
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.dense import QKV
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.ops.attention.local import (
    block_sums,
    local_attention,
    local_block_size,
    side_distances,
    transient_blocks,
    transient_global_attention,
)
from longsum_jax.ops.sequence_sharding import shard_map_sequence
from longsum_jax.typing import AnyArray


class LocalContext(Context):
    """The mask, T5's bias inside the window, the segment ids of packed rows or None, and the
    bias for kernels.
    """

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
        segment_ids: Int[AnyArray, "batch length"] | None = None,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        options = WindowSizeOptions.of(self.stack.attention)
        bias = window_bias(relative_bias, options.local_radius)
        steps = step_biases(relative_bias)
        return x, (mask, bias, segment_ids, steps), ()


class LocalAttention(EncoderSelfAttention):
    """A window of ``local_radius`` tokens on either side (LongT5, Guo et al. 2022, section 3.1)."""

    Options = WindowSizeOptions
    context_class = LocalContext
    inputs = ("segment_ids",)

    options: WindowSizeOptions = WindowSizeOptions()

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        options = self.options
        radius = options.local_radius
        mask, bias, segment_ids, steps = context
        # Rotary positions are relative, and need not begin again in a segment.
        k, v = self.project_kv(x)
        fused = self.fused_rows(
            *mask.shape,
            has_bias=bool(steps),
            deterministic=deterministic,
            margin=2 * radius,
            is_packed=segment_ids is not None,
        )
        y = self.attend_sharded(
            functools.partial(
                local_attention,
                radius=radius,
                is_even=options.local_even,
                fused=fused,
            ),
            deterministic,
            text={
                "q": self.q(x),
                "k": k,
                "v": v,
                "mask": mask,
                "segment_ids": segment_ids,
            },
            shared={"bias": bias, "steps": steps},
            block=local_block_size(radius),
            has_kernels=fused is not None,
        )
        return self.o(y)


class TransientGlobalContext(Context):
    """The mask, T5's bias inside the window, the blocks of the input and, with
    relative positions, a second bias by distance in blocks; both biases for kernels.
    """

    def setup(self) -> None:
        stack = self.stack
        if stack.relative_attention:
            self.global_relative_attention_bias = RelativePositionBias(
                stack.num_heads, *stack.relative_attention, bidirectional=True
            )

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        options = TransientGlobalOptions.of(self.stack.attention)
        block_ids, global_mask = transient_blocks(
            mask, options.global_block_size
        )
        side_bias = None
        steps = step_biases(relative_bias)
        if self.stack.relative_attention:
            steps += step_biases(self.global_relative_attention_bias)
            distances = jnp.asarray(side_distances(global_mask.shape[1]))
            side_bias = self.global_relative_attention_bias.of_distances(
                distances
            )
        bias = window_bias(relative_bias, options.local_radius)
        biases = (bias, side_bias, steps)
        return x, (mask, block_ids, global_mask, biases), ()


class TransientGlobalAttention(EncoderSelfAttention):
    """A window and one global token for every block (LongT5, Guo et al. 2022, section 3.2).

    A global token is the normalized sum of its block's states.
    """

    Options = TransientGlobalOptions
    context_class = TransientGlobalContext

    options: TransientGlobalOptions = TransientGlobalOptions()
    global_epsilon: float = 1e-6

    @classmethod
    def from_stack(cls, stack: StackConfig) -> nn.Module:
        return cls(
            **stack.self_attention_fields,
            options=cls.Options.of(stack.attention),
            global_epsilon=stack.norm_epsilon,
        )

    def setup(self) -> None:
        super().setup()
        self.global_norm = RMSNorm(self.global_epsilon, self.dtype)

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        radius = self.options.local_radius
        mask, block_ids, global_mask, (bias, side_bias, steps) = context
        k, v = self.project_kv(x)
        # Global tokens are normalized sums of blocks, projected like the other
        # tokens.
        global_tokens = self.global_norm(
            self._block_sums(x, mask, global_mask.shape[1])
        )
        size = self.options.global_block_size
        centers = (jnp.arange(global_mask.shape[1]) * size + size // 2)[None]
        global_k, global_v = self.project_kv(global_tokens, centers)
        # The mask is [batch, 1, 1, 1, num_blocks]: all queries and heads read
        # the same global keys.
        global_keys = KeySet(
            global_k, global_v, global_mask[:, None, None, None]
        )
        fused = self.fused_rows(
            *mask.shape,
            has_bias=bool(steps),
            deterministic=deterministic,
            margin=2 * radius,
        )
        y = self.attend_sharded(
            functools.partial(
                transient_global_attention, radius=radius, fused=fused
            ),
            deterministic,
            text={
                "tokens": QKV(self.q(x), k, v),
                "mask": mask,
                "block_ids": block_ids,
            },
            rows={"global_keys": global_keys},
            shared={"bias": bias, "side_bias": side_bias, "steps": steps},
            block=local_block_size(radius),
            has_kernels=fused is not None,
        )
        return self.o(y)

    def _block_sums(
        self, x: AnyArray, mask: AnyArray, num_blocks: int
    ) -> Array:
        """Sums [batch, length, d_model] over blocks to [batch, num_blocks, d_model]."""
        size = self.options.global_block_size
        sums = functools.partial(block_sums, size=size, num_blocks=num_blocks)
        sharding = active_sequence_sharding(x.shape[0])
        if sharding is None:
            return sums(x, mask)
        text = {"x": x, "mask": mask}
        return shard_map_sequence(sums, sharding, text=text, outputs="rows")
