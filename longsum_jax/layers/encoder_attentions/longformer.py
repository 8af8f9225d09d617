"""LED and Longformer: a window, and chosen tokens that see and are seen everywhere (Beltagy et al. 2020)."""

from typing import Any

import jax.numpy as jnp

from longsum_jax.layers.encoder_attentions.base import (
    Context,
    EncoderAttention,
    SparseAttention,
    from_stack,
    window_bias,
)
from longsum_jax.ops.sparse_attention import gather_positions, longformer_attention
from longsum_jax.typing import Array


class LongformerContext(Context):
    """Windows of every layer, and which tokens are global: the first one unless ``global_indices`` says otherwise."""

    def begin(self, x, mask, relative_bias, deterministic, global_indices=None):
        if global_indices is None:
            global_indices = jnp.zeros((x.shape[0], 1), jnp.int32)
        windows = self.stack.options.attention_window
        bias = window_bias(relative_bias, max(windows) // 2)
        radius = jnp.broadcast_to(jnp.asarray(windows) // 2, (self.stack.num_layers,))
        return x, (mask, bias, global_indices), radius


class LongformerAttention(SparseAttention):
    """A window and chosen global tokens with projections of their own (LED; Beltagy et al. 2020, section 3.1)."""

    attention_window: tuple[int, ...] = (512,)

    def setup(self) -> None:
        super().setup()
        self.q_global, self.k_global, self.v_global = (self.projection() for _ in range(3))

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        mask, bias, indices = context
        widest = max(self.attention_window) // 2
        # One window for all layers is known while compiling, and needs no mask by layer.
        same = len(set(self.attention_window)) == 1
        sizes = {"radius": widest} if same else {"radius": layer_input, "max_radius": widest}
        globals_ = self.q_global(gather_positions(x, indices)), self.k_global(x), self.v_global(x)
        arrays = (self.q(x), *self.keys_values(x), *globals_, mask, indices)
        return self.o(longformer_attention(*arrays, bias=bias, **sizes, **self.sparse_options(deterministic)))


LONGFORMER = EncoderAttention(
    from_stack(LongformerAttention, attention_window="attention_window"),
    LongformerContext,
    ("attention_window",),
    inputs=("global_indices",),
)
