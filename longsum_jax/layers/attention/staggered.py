"""PEGASUS-X: staggered blocks and learned global tokens (Phang et al. 2022)."""

import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from longsum_jax.layers.attention.base import (
    Context,
    EncoderAttention,
    SparseAttention,
    from_stack,
    join_tokens,
    pad_to_shards,
    split_tokens,
)
from longsum_jax.layers.dense import normal
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.staggered import block_staggered_attention
from longsum_jax.typing import Array


class StaggeredContext(Context):
    """Learned global tokens in front of the text; blocks of every second layer are shifted."""

    def setup(self) -> None:
        s = self.stack
        init = logical(normal(1.0), "globals", "embed")
        self.embed_global = self.param(
            "embed_global", init, (s.options.num_global_tokens, s.d_model)
        )

    def begin(self, x, mask, relative_bias, deterministic):
        bias = None if relative_bias is None else relative_bias.of_distances(self._distances())
        tokens = jnp.broadcast_to(
            self.embed_global.astype(x.dtype), (x.shape[0], *self.embed_global.shape)
        )
        stagger = np.arange(self.stack.num_layers) % 2 == 1
        if not self.stack.options.stagger_local_blocks:
            stagger[:] = False
        x, mask = (pad_to_shards(y, self.stack.options.block_size) for y in (x, mask))
        return join_tokens(tokens, x), (mask, bias), jnp.asarray(stagger)

    def _distances(self) -> Array:
        place = jnp.arange(self.stack.options.block_size)
        return place - place[:, None]

    def end(self, x: Array, length: int) -> Array:
        return split_tokens(x, self.stack.options.num_global_tokens)[1][:, :length]


class StaggeredNorm(nn.Module):
    """One norm for the global tokens in front, another for the text."""

    stack: StackConfig

    @nn.compact
    def __call__(self, x: Array) -> Array:
        tokens, text = split_tokens(x, self.stack.options.num_global_tokens)
        return join_tokens(
            self.stack.make_norm(name="globals")(tokens), self.stack.make_norm(name="text")(text)
        )


class StaggeredAttention(SparseAttention):
    """Own block and global tokens (PEGASUS-X, Phang et al. 2022, section 4.1)."""

    block_size: int = 64
    num_global_tokens: int = 32

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        mask, bias = context
        projections = (self.q(x), *self.project_kv(x))
        tokens, text = zip(
            *(split_tokens(y, self.num_global_tokens) for y in projections), strict=True
        )
        text, tokens = self.over_text(
            functools.partial(block_staggered_attention, block_size=self.block_size),
            deterministic,
            text=dict(zip("qkv", text, strict=True)) | {"mask": mask},
            rows=dict(zip(("global_q", "global_k", "global_v"), tokens, strict=True)),
            shared={"bias": bias, "stagger": layer_input},
            block=self.block_size,
            outputs=("text", "rows"),
        )
        return self.o(join_tokens(tokens, text))


BLOCK_STAGGERED = EncoderAttention(
    from_stack(StaggeredAttention, block_size="block_size", num_global_tokens="num_global_tokens"),
    StaggeredContext,
    ("block_size", "num_global_tokens", "stagger_local_blocks"),
    StaggeredNorm,
)
