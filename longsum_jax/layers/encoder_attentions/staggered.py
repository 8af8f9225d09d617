"""PEGASUS-X: staggered blocks and learned global tokens (Phang et al. 2022)."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from longsum_jax.layers.common import logical, normal
from longsum_jax.layers.encoder_attentions.base import Context, EncoderAttention, SparseAttention, from_stack
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.sparse_attention import block_staggered_attention
from longsum_jax.typing import Array


class StaggeredContext(Context):
    """Learned global tokens in front of the text; blocks of every second layer are shifted."""

    def setup(self) -> None:
        s = self.stack
        init = logical(normal(1.0), "globals", "embed")
        self.embed_global = self.param("embed_global", init, (s.options.num_global_tokens, s.d_model))

    def begin(self, x, mask, relative_bias, deterministic):
        bias = None if relative_bias is None else relative_bias.of_distances(self._distances())
        tokens = jnp.broadcast_to(self.embed_global.astype(x.dtype), (x.shape[0], *self.embed_global.shape))
        stagger = np.arange(self.stack.num_layers) % 2 == 1
        if not self.stack.options.stagger_local_blocks:
            stagger[:] = False
        return jnp.concatenate([tokens, x], 1), (mask, bias), jnp.asarray(stagger)

    def _distances(self) -> Array:
        place = jnp.arange(self.stack.options.block_size)
        return place - place[:, None]

    def end(self, x: Array, length: int) -> Array:
        return x[:, self.stack.options.num_global_tokens :]


class StaggeredNorm(nn.Module):
    """One norm for the global tokens in front, another for the text."""

    stack: StackConfig

    @nn.compact
    def __call__(self, x: Array) -> Array:
        count = self.stack.options.num_global_tokens
        parts = self.stack.make_norm(name="globals")(x[:, :count]), self.stack.make_norm(name="text")(x[:, count:])
        return jnp.concatenate(parts, 1)


class StaggeredAttention(SparseAttention):
    """Own block and global tokens (PEGASUS-X, Phang et al. 2022, section 4.1)."""

    block_size: int = 64
    num_global_tokens: int = 32

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        count = self.num_global_tokens
        projections = (self.q(x), *self.keys_values(x))
        text, tokens = ([y[:, part] for y in projections] for part in (slice(count, None), slice(count)))
        mask, bias = context
        options = {"block_size": self.block_size, "stagger": layer_input, **self.sparse_options(deterministic)}
        text, tokens = block_staggered_attention(*text, *tokens, mask, bias=bias, **options)
        return self.o(jnp.concatenate([tokens, text], 1))


BLOCK_STAGGERED = EncoderAttention(
    from_stack(StaggeredAttention, block_size="block_size", num_global_tokens="num_global_tokens"),
    StaggeredContext,
    ("block_size", "num_global_tokens", "stagger_local_blocks"),
    StaggeredNorm,
)
