"""BigBird: a window of blocks, both ends of the text, and random blocks (Zaheer et al. 2020)."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from longsum_jax.layers.attention.base import EncoderAttention, window_bias
from longsum_jax.layers.attention.full import FullAttention, FullContext
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.bigbird import bigbird_attention, random_block_plan
from longsum_jax.typing import Array


class BigBirdContext(FullContext):
    """Full attention for short inputs, blocks for long ones; in training each layer draws random
    blocks."""

    def begin(self, x, mask, relative_bias, deterministic):
        o, length = self.stack.options, x.shape[1]
        if bigbird_is_full(o, length):
            return super().begin(x, mask, relative_bias, deterministic)
        context = mask, window_bias(relative_bias, o.block_size, o.block_size)
        if deterministic:
            return x, context, ()
        blocks = -(-length // o.block_size)
        plans = [
            random_block_plan(
                np.random.default_rng(layer), blocks, self.stack.num_heads, o.num_random_blocks
            )
            for layer in range(self.stack.num_layers)
        ]
        return x, context, jnp.asarray(np.stack(plans))


def bigbird_is_full(options: EncoderAttentionOptions, length: int) -> bool:
    """Whether an input of ``length`` tokens is too short for blocks: 2 end, 3 window, 2 R random
    ones."""
    return length <= (5 + 2 * options.num_random_blocks) * options.block_size


class BigBirdAttention(FullAttention):
    """Window, ends and random blocks (Zaheer et al. 2020); full attention up to
    ``bigbird_is_full``.

    Which of the two depends on this call's length alone. At evaluation every random block is the
    first block, as transformers has it; in training they are drawn once per layer and length, from
    fixed seeds.
    """

    options: EncoderAttentionOptions = EncoderAttentionOptions()

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        o = self.options
        if bigbird_is_full(o, x.shape[1]):
            return super().__call__(x, context, layer_input, deterministic)
        mask, bias = context
        random_blocks = o.num_random_blocks if isinstance(layer_input, tuple) else layer_input
        options = {
            "block_size": o.block_size,
            "random_blocks": random_blocks,
            **self.sparse_options(deterministic),
        }
        return self.o(bigbird_attention(self.q(x), *self.project_kv(x), mask, bias=bias, **options))


def _make_bigbird(stack: StackConfig) -> BigBirdAttention:
    return BigBirdAttention(**stack.attention_fields, options=stack.options)


BIGBIRD = EncoderAttention(
    _make_bigbird, BigBirdContext, ("block_size", "num_random_blocks"), pads_to="block_size"
)
