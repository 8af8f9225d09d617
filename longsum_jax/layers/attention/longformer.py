"""Longformer and LED: a window, and selected tokens that attend to and are seen by all
tokens (Beltagy et al. 2020).
"""

import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.layers.attention.base import (
    Context,
    EncoderSelfAttention,
    layer_radii,
    step_biases,
    window_bias,
)
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import (
    EncoderAttentionOptions,
    WindowOptions,
    check_windows,
)
from longsum_jax.layers.partitioning import active_sequence_sharding
from longsum_jax.ops.attention.dense import QKV, mix_states
from longsum_jax.ops.attention.local import local_block_size
from longsum_jax.ops.attention.longformer import (
    gather_positions,
    longformer_attention,
)
from longsum_jax.ops.sequence_sharding import shard_map_sequence
from longsum_jax.typing import AnyArray


class LongformerContext(Context):
    """The mask, T5's bias inside the window, the positions of the global tokens, the bias for
    kernels, and the window of every layer.
    """

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
        global_indices: Int[AnyArray, "batch num_globals"] | None = None,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        """See ``Context.prepare``.

        Args:
            global_indices: positions of the global tokens, int [batch,
                num_globals], -1 for none; by default only the first token.
        """
        if global_indices is None:
            global_indices = jnp.zeros((x.shape[0], 1), jnp.int32)
        windows = WindowOptions.of(self.stack.attention).attention_window
        bias = window_bias(relative_bias, max(windows) // 2)
        return (
            x,
            (mask, bias, global_indices, step_biases(relative_bias)),
            layer_radii(windows, self.stack.num_layers),
        )


class LongformerAttention(EncoderSelfAttention):
    """A window, and global tokens with separate projections (Beltagy et al. 2020, section 3.1)."""

    Options = WindowOptions
    context_class = LongformerContext
    inputs = ("global_indices",)

    options: WindowOptions = WindowOptions()

    @classmethod
    def check(
        cls, options: EncoderAttentionOptions, max_length: int | None
    ) -> None:
        check_windows(WindowOptions.of(options).attention_window)

    def setup(self) -> None:
        super().setup()
        self.q_global = self.query_map(self.projection_init)
        self.k_global = self.key_map()
        self.v_global = self.value_map()

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        windows = self.options.attention_window
        mask, bias, indices, steps = context
        max_radius = max(windows) // 2
        shared = {"bias": bias, "steps": steps}
        fused = None
        if len(set(windows)) == 1:
            # A single window for all layers is static, and needs no mask for
            # each layer.
            fused = self.fused_rows(
                *mask.shape,
                has_bias=bool(steps),
                deterministic=deterministic,
                margin=2 * max_radius,
            )
            attention = functools.partial(
                longformer_attention, radius=max_radius, fused=fused
            )
        else:
            self.without_kernel("windows that differ by layer")
            attention = functools.partial(
                longformer_attention, max_radius=max_radius
            )
            shared["radius"] = layer_input
        k, v = self.project_kv(x)
        tokens = QKV(self.q(x), k, v)
        # Only global tokens have queries of global attention.
        positions = jnp.clip(indices, 0, x.shape[1] - 1)
        global_q = self.q_global(self._gather(x, indices), positions)
        text = {"tokens": tokens, "mask": mask}
        rows = {"global_indices": indices}
        if self._absorbs_maps(indices.shape[1], deterministic):
            rows["global_values"] = self._attend_globally(
                global_q, x, mask, deterministic
            )
        else:
            global_k, global_v = self.all_heads(
                self.k_global(x), self.v_global(x)
            )
            text |= {"global_k": global_k, "global_v": global_v}
            rows["global_q"] = global_q

        def attend(
            global_values: Any = None,
            global_q: Any = None,
            global_k: Any = None,
            global_v: Any = None,
            **arrays: Any,
        ) -> Array:
            # Global queries are few, so that shards have all of them, but not
            # all keys and values.
            if global_values is None:
                global_values = QKV(global_q, global_k, global_v)
            return attention(global_tokens=global_values, **arrays)

        y = self.attend_sharded(
            attend,
            deterministic,
            text=text,
            rows=rows,
            shared=shared,
            block=local_block_size(max_radius),
            has_kernels=fused is not None,
        )
        return self.o(y)

    def _absorbs_maps(self, num_globals: int, deterministic: bool) -> bool:
        """Returns True if global keys and values of all tokens need not be formed.

        Scores and means of states take ``num_globals / head_dim`` times the
        operations of both maps. With dropout, the weights do not sum to one, as
        a bias of the values requires.
        """
        drops_weights = self.dropout_rate > 0 and not deterministic
        are_linear = self.k_global.is_linear and self.v_global.is_linear
        is_small = 2 * num_globals <= self.d_kv
        return is_small and are_linear and not drops_weights

    def _attend_globally(
        self,
        q: Float[AnyArray, "batch num_globals heads head_dim"],
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        deterministic: bool,
    ) -> Float[Array, "batch num_globals heads head_dim"]:
        """Attends from global tokens to all, without their keys and values.

        See ``MultiHeadAttention.attend_absorbed``.
        """

        def mix(
            q: AnyArray, x: AnyArray, mask: AnyArray, **options: Any
        ) -> Array:
            return mix_states(q, x, mask[:, None, None], **options)

        mixed = self.attend_sharded(
            mix,
            deterministic,
            text={"x": x, "mask": mask},
            rows={"q": self.absorb(q, self.k_global)},
            outputs="rows",
        )
        return self.values_of(mixed, mask[:, None, None], self.v_global)

    def _gather(self, x: AnyArray, indices: AnyArray) -> Array:
        """Gathers [batch, num_globals, d_model] from [batch, length, d_model]."""
        sharding = active_sequence_sharding(x.shape[0])
        if sharding is None:
            return gather_positions(x, indices)
        return shard_map_sequence(
            gather_positions,
            sharding,
            text={"x": x},
            rows={"indices": indices},
            outputs="rows",
        )
