"""LongT5's attentions: a window, and a window with one global token for every block (Guo et al.
2022)."""

import functools
from typing import Any

import jax.numpy as jnp

from longsum_jax.layers.attention.base import (
    Context,
    EncoderAttention,
    SparseAttention,
    from_stack,
    window_bias,
)
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.dense import RMSNorm
from longsum_jax.layers.partitioning import sequence_sharding
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.local import (
    block_sums,
    local_attention,
    local_block_size,
    side_distances,
    transient_blocks,
    transient_global_attention,
)
from longsum_jax.ops.sequence_sharding import shard_map_sequence
from longsum_jax.typing import Array


class LocalContext(Context):
    """The mask, and T5's bias inside the window."""

    def begin(self, x, mask, relative_bias, deterministic):
        return x, (mask, window_bias(relative_bias, self.stack.options.local_radius)), ()


class LocalAttention(SparseAttention):
    """A window of ``radius`` tokens on either side (LongT5, Guo et al. 2022, section 3.1)."""

    radius: int = 127

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        mask, bias = context
        k, v = self.project_kv(x)
        text, shared = {"q": self.q(x), "k": k, "v": v, "mask": mask}, {"bias": bias}
        attend = functools.partial(local_attention, radius=self.radius)
        block = local_block_size(self.radius)
        return self.o(self.over_text(attend, deterministic, text=text, shared=shared, block=block))


class TransientGlobalContext(LocalContext):
    """Adds the fixed blocks of the text and, with relative positions, a second bias by distance in
    blocks."""

    def setup(self) -> None:
        s = self.stack
        if s.relative_attention:
            self.global_relative_attention_bias = RelativePositionBias(
                s.num_heads, *s.relative_attention, bidirectional=True
            )

    def begin(self, x, mask, relative_bias, deterministic):
        block_ids, present = transient_blocks(mask, self.stack.options.global_block_size)
        side_bias = None
        if self.stack.relative_attention:
            distances = jnp.asarray(side_distances(present.shape[1]))
            side_bias = self.global_relative_attention_bias.of_distances(distances)
        bias = window_bias(relative_bias, self.stack.options.local_radius)
        return x, (mask, block_ids, present, bias, side_bias), ()


class TransientGlobalAttention(LocalAttention):
    """A window and one global token for every block of the text (LongT5, Guo et al. 2022, section
    3.2)."""

    norm_epsilon: float = 1e-6

    def setup(self) -> None:
        super().setup()
        self.global_norm = RMSNorm(self.norm_epsilon, self.dtype)

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        mask, block_ids, present, bias, side_bias = context
        k, v = self.project_kv(x)
        global_k, global_v = self.project_kv(
            self.global_norm(self._sums(x, block_ids, present.shape[1]))
        )
        attend = functools.partial(transient_global_attention, radius=self.radius)
        out = self.over_text(
            attend,
            deterministic,
            text={"q": self.q(x), "k": k, "v": v, "mask": mask, "block_ids": block_ids},
            rows={"present": present, "global_k": global_k, "global_v": global_v},
            shared={"bias": bias, "side_bias": side_bias},
            block=local_block_size(self.radius),
        )
        return self.o(out)

    def _sums(self, x: Array, block_ids: Array, count: int) -> Array:
        cut = sequence_sharding(x.shape[0])
        if cut is None:
            return block_sums(x, block_ids, count)
        sums = functools.partial(block_sums, num_blocks=count)
        return shard_map_sequence(sums, cut, text={"x": x, "block_ids": block_ids}, outputs="rows")


def _make_transient_global(stack: StackConfig) -> TransientGlobalAttention:
    radius = stack.options.local_radius
    return TransientGlobalAttention(
        **stack.attention_fields, radius=radius, norm_epsilon=stack.norm_epsilon
    )


LOCAL = EncoderAttention(
    from_stack(LocalAttention, radius="local_radius"), LocalContext, ("local_radius",)
)
TRANSIENT_GLOBAL = EncoderAttention(
    _make_transient_global, TransientGlobalContext, ("local_radius", "global_block_size")
)
