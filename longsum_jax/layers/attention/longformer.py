"""LED and Longformer: a window, and chosen tokens that see and are seen everywhere (Beltagy et al.
2020)."""

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
from longsum_jax.layers.partitioning import sequence_sharding
from longsum_jax.ops.attention.local import local_block_size
from longsum_jax.ops.attention.longformer import gather_positions, longformer_attention
from longsum_jax.ops.sequence_sharding import shard_map_sequence
from longsum_jax.typing import Array


class LongformerContext(Context):
    """Windows of every layer, and which tokens are global: the first one unless ``global_indices``
    says otherwise."""

    def begin(self, x, mask, relative_bias, deterministic, global_indices=None):
        if global_indices is None:
            global_indices = jnp.zeros((x.shape[0], 1), jnp.int32)
        windows = self.stack.options.attention_window
        bias = window_bias(relative_bias, max(windows) // 2)
        radius = jnp.broadcast_to(jnp.asarray(windows) // 2, (self.stack.num_layers,))
        return x, (mask, bias, global_indices), radius


class LongformerAttention(SparseAttention):
    """A window and chosen global tokens with projections of their own (LED; Beltagy et al. 2020,
    section 3.1)."""

    attention_window: tuple[int, ...] = (512,)

    def setup(self) -> None:
        super().setup()
        self.q_global, self.k_global, self.v_global = (self.projection() for _ in range(3))

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        mask, bias, indices = context
        widest = max(self.attention_window) // 2
        # One window for all layers is known while compiling, and needs no mask by layer.
        same = len(set(self.attention_window)) == 1
        k, v = self.project_kv(x)
        text = {
            "q": self.q(x),
            "k": k,
            "v": v,
            "global_k": self.k_global(x),
            "global_v": self.v_global(x),
        }
        out = self.over_text(
            functools.partial(
                longformer_attention, **{"radius": widest} if same else {"max_radius": widest}
            ),
            deterministic,
            text=text | {"mask": mask},
            rows={"global_q": self.q_global(self._chosen(x, indices)), "global_indices": indices},
            shared={"bias": bias} if same else {"bias": bias, "radius": layer_input},
            block=local_block_size(widest),
        )
        return self.o(out)

    def _chosen(self, x: Array, indices: Array) -> Array:
        cut = sequence_sharding(x.shape[0])
        if cut is None:
            return gather_positions(x, indices)
        return shard_map_sequence(
            gather_positions, cut, text={"x": x}, rows={"indices": indices}, outputs="rows"
        )


LONGFORMER = EncoderAttention(
    from_stack(LongformerAttention, attention_window="attention_window"),
    LongformerContext,
    ("attention_window",),
    inputs=("global_indices",),
)
