"""Full attention: every token attends to every token."""

from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.layers.attention.base import Context, EncoderSelfAttention
from longsum_jax.layers.attention.multi_head import (
    ExtraKeyValues,
    RelativePositionBias,
    attend_fused,
)
from longsum_jax.layers.partitioning import active_sequence_sharding
from longsum_jax.ops.attention.blockwise import max_score_bytes
from longsum_jax.ops.attention.dense import QKV, prepend_keys
from longsum_jax.ops.attention.full import full_attention
from longsum_jax.ops.attention.fused import Kernel
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.ops.attention.relative_position import (
    StepBias,
    distance_entries,
)
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.ops.sequence_sharding import ByHead
from longsum_jax.typing import AnyArray


class FullContext(Context):
    """The mask, and T5's bias for each distance, float [heads, 2 length - 1], or None.

    Biases of every layer, [layers, heads, 2 length - 1], are inputs of the
    layers instead.
    """

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        bias = None
        if relative_bias is not None:
            bias = relative_bias.of_distances(_distances(x.shape[1]))
        if self.stack.bias_per_layer:
            return x, (mask, None), bias
        return x, (mask, bias), ()


class PackedContext(FullContext):
    """The context of ``FullContext``, the segment ids of packed rows or None, and the bias as
    steps, for kernels.
    """

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
        segment_ids: Int[AnyArray, "batch length"] | None = None,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        x, context, layer_inputs = super().prepare(
            x, mask, relative_bias, deterministic
        )
        steps = None if relative_bias is None else relative_bias.steps()
        if self.stack.bias_per_layer:
            return x, (*context, segment_ids, None), (layer_inputs, steps)
        return x, (*context, segment_ids, steps), layer_inputs


class FullAttention(EncoderSelfAttention):
    """Full attention; for long inputs block by block, in memory linear in the length."""

    context_class: ClassVar[type[Context]] = PackedContext
    inputs: ClassVar[tuple[str, ...]] = ("segment_ids",)
    extra_keys = True
    can_be_causal = True

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
        extra: ExtraKeyValues | None = None,
    ) -> Float[Array, "batch length d_model"]:
        mask, bias, segment_ids, steps = context
        if layer_input:  # the bias of this layer
            bias, steps = layer_input
        # Rotary positions are relative, and need not begin again in a segment.
        k, v = self.project_kv(x)
        key_mask = mask[:, None, None, :]
        segments = None
        if segment_ids is not None:
            segments = SegmentIds(segment_ids, segment_ids)
        kernel = None
        extra_arrays: tuple[AnyArray, AnyArray, AnyArray] | None = None
        # Kernels do not support extra keys.
        if extra is None:
            kernel = self.fused_kernel(
                x,
                k,
                mask=key_mask,
                bias=bias,
                steps=steps,
                is_packed=segments is not None,
                causal=self.causal,
                deterministic=deterministic,
                by_heads=True,
            )
        else:
            self.without_kernel("states of a memory among the keys")
            extra_arrays = (*self.project_extra(extra), extra.valid)
        if kernel is not None:
            tokens = QKV(self.q(x), k, v)
            y = self._attend_fused(
                kernel, tokens, mask, segments, steps, deterministic
            )
            return self.o(y)

        length = mask.shape[1]
        if self.causal:
            # A bias of minus infinity is the causal mask of both computations
            # below.
            bias = self._hide_later_tokens(bias, length)
        if self._needs_pieces(mask, extra):
            y = self._attend_in_pieces(
                QKV(self.q(x), k, v),
                mask,
                segment_ids,
                bias,
                extra_arrays,
                deterministic,
            )
            return self.o(y)
        if bias is not None:
            positions = jnp.arange(length)
            # [1, heads, length, length], from the bias per distance
            bias = bias[
                None, :, distance_entries(bias, positions - positions[:, None])
            ]
        if extra_arrays is not None:
            if segments is not None:
                key_mask, segments = key_mask & segments.mask(), None
            steps = None
            k, v, key_mask, bias = prepend_keys(
                k, v, key_mask, bias, extra_arrays
            )
        return self.attend(
            x,
            k,
            v,
            mask=key_mask,
            bias=bias,
            steps=steps,
            segment_ids=segments,
            deterministic=deterministic,
        )

    def _attend_fused(
        self,
        kernel: Kernel,
        tokens: QKV,
        mask: Bool[AnyArray, "batch length"],
        segments: SegmentIds | None,
        steps: StepBias | None,
        deterministic: bool,
    ) -> Float[Array, "batch length heads head_dim"]:
        """Attends by a kernel."""
        attend = partial(attend_fused, kernel=kernel, causal=self.causal)
        return self.attend_by_heads(
            attend,
            deterministic,
            text=tokens._asdict(),
            rows={"mask": mask[:, None], "segment_ids": segments},
            heads={"biases": ByHead([] if steps is None else [steps])},
        )

    def _needs_pieces(
        self, mask: Bool[AnyArray, "batch length"], extra: ExtraKeyValues | None
    ) -> bool:
        """Returns True if devices share a sequence, or the scores are too many for one array."""
        batch, length = mask.shape
        if active_sequence_sharding(batch) is not None:
            return True
        num_keys = length if extra is None else length + extra.valid.shape[1]
        return (
            4 * batch * self.num_heads * length * num_keys > max_score_bytes()
        )

    def _attend_in_pieces(
        self,
        tokens: QKV,
        mask: Bool[AnyArray, "batch length"],
        segment_ids: Int[AnyArray, "batch length"] | None,
        bias: Float[AnyArray, "heads distances"] | None,
        extra: tuple[AnyArray, AnyArray, AnyArray] | None,
        deterministic: bool,
    ) -> Float[Array, "batch length heads head_dim"]:
        """Attends block by block; ``extra`` are keys, values and mask of extra states."""

        def attend(
            extra_k: Array | None,
            extra_v: Array | None,
            valid: Array | None,
            **arrays: Any,
        ) -> Array:
            sets = []
            if (
                extra_k is not None
                and extra_v is not None
                and valid is not None
            ):
                sets = [KeySet(extra_k, extra_v, valid[:, None, None, None])]
            return full_attention(**arrays, extra=sets)

        extra_k, extra_v, valid = extra or (None, None, None)
        by_head = {
            "distance_bias": ByHead(bias),
            "extra_k": ByHead(extra_k, ("batch", None, "heads")),
            "extra_v": ByHead(extra_v, ("batch", None, "heads")),
        }
        return self.attend_by_heads(
            attend,
            deterministic,
            text=tokens._asdict(),
            rows={"mask": mask, "segment_ids": segment_ids, "valid": valid},
            heads=by_head,
        )

    def _hide_later_tokens(
        self, bias: Float[AnyArray, "heads distances"] | None, length: int
    ) -> Float[Array, "heads distances"]:
        """Returns the bias of each distance, minus infinity to later tokens."""
        earlier = jnp.zeros((self.num_heads, 1)) if bias is None else bias
        return jnp.where(_distances(length) > 0, -jnp.inf, earlier)


def _distances(length: int) -> Int[Array, " distances"]:
    """Returns all distances of a key from a query, key position - query position."""
    return jnp.arange(1 - length, length)
