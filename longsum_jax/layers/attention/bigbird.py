"""BigBird: a window of blocks, the first and the last block, and random blocks (Zaheer
et al. 2020).
"""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from longsum_jax.layers.attention.base import step_biases, window_bias
from longsum_jax.layers.attention.full import FullAttention, PackedContext
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import RandomBlockOptions
from longsum_jax.ops.attention.bigbird import (
    bigbird_attention,
    random_block_plan,
)
from longsum_jax.ops.sequence_sharding import ByHead
from longsum_jax.typing import AnyArray


def bigbird_is_full(options: RandomBlockOptions, length: int) -> bool:
    """Returns True if an input has too few blocks for BigBird and gets full attention.

    A block attends to 2 blocks at the ends, 3 of its window, and
    ``num_random_blocks`` random blocks, which are drawn from at least twice
    their number.
    """
    return length <= (5 + 2 * options.num_random_blocks) * options.block_size


class BigBirdContext(PackedContext):
    """The context of full attention for short inputs. For long inputs the mask, T5's
    bias inside the window, also for kernels, and, in training, the random blocks of
    each layer.
    """

    def prepare(  # type: ignore[override]  # without segments
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        options = RandomBlockOptions.of(self.stack.attention)
        length = x.shape[1]
        if bigbird_is_full(options, length):
            return super().prepare(x, mask, relative_bias, deterministic)
        context = (
            mask,
            window_bias(relative_bias, options.block_size, options.block_size),
            step_biases(relative_bias),
        )
        if deterministic:
            return x, context, ()
        num_blocks = -(-length // options.block_size)
        # The seed is the layer index, so that every call of a layer has the
        # same plan.
        plans = []
        for layer in range(self.stack.num_layers):
            plan = random_block_plan(
                np.random.default_rng(layer),
                num_blocks,
                self.stack.num_heads,
                options.num_random_blocks,
            )
            plans.append(plan)
        return x, context, jnp.asarray(np.stack(plans))


class BigBirdAttention(FullAttention):
    """A window, the ends and random blocks (Zaheer et al. 2020), or full attention for short
    inputs.

    ``bigbird_is_full`` decides by the length of the input. In evaluation every
    random block is the first block, as in transformers; in training random
    blocks are drawn once per layer and length, from fixed seeds.
    """

    Options = RandomBlockOptions
    context_class = BigBirdContext
    inputs = ()
    pads_to = "block_size"
    extra_keys = False
    can_be_causal = False

    options: RandomBlockOptions = RandomBlockOptions()

    def __call__(  # type: ignore[override]  # without extra keys
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        options = self.options
        if bigbird_is_full(options, x.shape[1]):
            return super().__call__(x, context, layer_input, deterministic)
        mask, bias, steps = context
        # A row of the kernel is a block of queries, with the keys of all its blocks;
        # in evaluation a bias counts the first block several times.
        num_blocks = 5 + (0 if deterministic else options.num_random_blocks)
        fused = self.fused_rows(
            len(x),
            options.block_size,
            num_blocks * options.block_size,
            has_bias=bool(steps) or deterministic,
            deterministic=deterministic,
            by_heads=True,
        )
        k, v = self.project_kv(x)
        # Bias and random blocks differ by head, so devices exchange heads of
        # whole sequences.
        attention = functools.partial(
            bigbird_attention, block_size=options.block_size, fused=fused
        )
        heads = {"bias": ByHead(bias), "steps": ByHead(steps)}
        if deterministic:
            attention = functools.partial(
                attention, random_blocks=options.num_random_blocks
            )
        else:
            heads["random_blocks"] = ByHead(layer_input)
        text = {"q": self.q(x), "k": k, "v": v}
        rows = {"mask": mask}
        return self.o(
            self.attend_by_heads(
                attention, deterministic, text=text, rows=rows, heads=heads
            )
        )
