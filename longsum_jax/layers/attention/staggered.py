"""PEGASUS-X: staggered blocks and learned global tokens (Phang et al. 2022)."""

import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from longsum_jax.layers.attention.base import (
    Context,
    EncoderSelfAttention,
    step_biases,
)
from longsum_jax.layers.attention.global_tokens import (
    join_tokens,
    pad_to_shards,
    split_tokens,
)
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import StaggeredOptions
from longsum_jax.layers.dense import normal
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.dense import QKV
from longsum_jax.ops.attention.staggered import block_staggered_attention
from longsum_jax.typing import AnyArray


class StaggeredContext(Context):
    """Learned global tokens before the input; the mask, T5's bias inside a block, also
    for kernels, and for each layer True if its blocks are shifted.
    """

    @property
    def options(self) -> StaggeredOptions:
        """The options of the attention."""
        return StaggeredOptions.of(self.stack.attention)

    def setup(self) -> None:
        stack = self.stack
        init = logical(normal(1.0), "globals", "embed")
        shape = (self.options.num_global_tokens, stack.d_model)
        self.embed_global = self.param("embed_global", init, shape)

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        options = self.options
        bias = None
        if relative_bias is not None:
            positions = jnp.arange(options.block_size)
            bias = relative_bias.of_distances(positions - positions[:, None])
        tokens = self.embed_global.astype(x.dtype)
        tokens = jnp.broadcast_to(tokens, (x.shape[0], *tokens.shape))
        # Every second layer shifts its blocks.
        stagger = np.arange(self.stack.num_layers) % 2 == 1
        if not options.stagger_local_blocks:
            stagger[:] = False
        x = pad_to_shards(x, options.block_size)
        mask = pad_to_shards(mask, options.block_size)
        context = (mask, bias, step_biases(relative_bias))
        return join_tokens(tokens, x), context, jnp.asarray(stagger)

    def finish(
        self, x: Float[AnyArray, "batch extended_length d_model"], length: int
    ) -> Float[AnyArray, "batch output_length d_model"]:
        _, x = split_tokens(x, self.options.num_global_tokens)
        return x[:, :length]


class StaggeredNorm(nn.Module):
    """One norm for the prepended global tokens, another for the input."""

    stack: StackConfig

    @nn.compact
    def __call__(
        self, x: Float[AnyArray, "batch length d_model"]
    ) -> Float[AnyArray, "batch length d_model"]:
        options = StaggeredOptions.of(self.stack.attention)
        tokens, text = split_tokens(x, options.num_global_tokens)
        tokens = self.stack.make_norm(name="globals")(tokens)
        text = self.stack.make_norm(name="text")(text)
        return join_tokens(tokens, text)


class StaggeredAttention(EncoderSelfAttention):
    """Attention to a token's block and the global tokens (PEGASUS-X, Phang et al. 2022, 4.1)."""

    Options = StaggeredOptions
    context_class = StaggeredContext
    own_tokens = True

    options: StaggeredOptions = StaggeredOptions()

    @classmethod
    def make_norm(cls, stack: StackConfig) -> nn.Module:
        return StaggeredNorm(stack)

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        options = self.options
        mask, bias, steps = context
        keys, values = self.project_kv(x)
        # Global tokens and text share their projections.
        global_q, q = split_tokens(self.q(x), options.num_global_tokens)
        global_k, k = split_tokens(keys, options.num_global_tokens)
        global_v, v = split_tokens(values, options.num_global_tokens)
        size = options.block_size
        # A row of the kernel is a block of queries, with the keys of its block
        # and of all global tokens.
        num_keys = size + options.num_global_tokens
        fused = self.fused_rows(
            len(x),
            size,
            num_keys,
            has_bias=bool(steps),
            deterministic=deterministic,
        )
        text, global_tokens = self.attend_sharded(
            functools.partial(
                block_staggered_attention, block_size=size, fused=fused
            ),
            deterministic,
            text={"tokens": QKV(q, k, v), "mask": mask},
            rows={"global_tokens": QKV(global_q, global_k, global_v)},
            shared={"bias": bias, "steps": steps, "stagger": layer_input},
            block=size,
            outputs=("text", "rows"),
            has_kernels=fused is not None,
        )
        return self.o(join_tokens(global_tokens, text))
