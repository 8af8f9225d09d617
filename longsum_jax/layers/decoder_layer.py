"""One layer of the transformer decoder: all positions at once, or one token at a time."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.layers.attention.multi_head import (
    MultiHeadAttention,
    causal_mask,
)
from longsum_jax.layers.attention.registry import get_cross_attention
from longsum_jax.layers.decoder_cache import (
    KeyValueCache,
    LayerSource,
    MemorySource,
    StoredKeyValues,
    source_key_values,
)
from longsum_jax.layers.dense import Dropout
from longsum_jax.layers.layer import Layer
from longsum_jax.layers.memory import MemoryState
from longsum_jax.layers.partitioning import constrain
from longsum_jax.ops.attention.dense import prepend_keys
from longsum_jax.ops.attention.key_sets import KeySet, attend_jointly
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.packing import SegmentIds, segment_positions
from longsum_jax.typing import AnyArray


class DecoderLayer(Layer):
    """Self-attention, cross-attention and feed-forward, each with a residual.

    With ``StackConfig.merged_attention``, one attention replaces the first two.
    """

    def setup(self) -> None:
        stack = self.stack
        self.self_norm = stack.make_sublayer_norm()
        self.ff_norm = stack.make_sublayer_norm()
        self.self_attention = MultiHeadAttention(**stack.self_attention_fields)
        cross_attention = get_cross_attention(stack.cross_attention)
        if stack.merged_attention:
            self.cross_attention = cross_attention.from_stack(
                stack, self.self_attention
            )
        else:
            self.cross_norm = stack.make_sublayer_norm()
            self.cross_attention = cross_attention.from_stack(stack)
        self.feed_forward = stack.make_feed_forward()
        self.dropout = Dropout(stack.dropout_rate)
        self.make_memory()

    def __call__(
        self,
        x: Float[AnyArray, "batch target_length d_model"],
        encoder_states: Float[AnyArray, "batch length source_size"],
        bias: Float[AnyArray, "1 heads target_length target_length"] | None,
        cross_mask: Any,
        deterministic: bool,
        state: MemoryState | tuple[()],
        valid: Bool[AnyArray, "batch target_length"],
        segment_ids: SegmentIds | None = None,
        steps: StepBias | None = None,
    ) -> tuple[
        Float[AnyArray, "batch target_length d_model"], MemoryState | tuple[()]
    ]:
        """Applies the layer to all positions at once.

        Args:
            x: states of the target.
            encoder_states: states of the source.
            bias: bias of the self-attention scores.
            cross_mask: mask of the source keys that may be read, bool [batch,
                mask_heads, 1, num_keys], or the result of
                ``CrossAttention.arrange``.
            deterministic: False in training.
            state: state of the memory, () without a memory.
            valid: mask of the positions that the memory may store.
            segment_ids: segment ids of packed rows, None for one segment.
            steps: ``bias`` by distance, for kernels.

        Returns:
            The states after the layer; the memory's state after the segment.
        """
        # Self-attention, which may read keys of a memory and of the source.
        u = self.sublayer_input(self.self_norm, x)
        memories, extra = self.replay_memory(state)
        positions, segments = None, None
        if segment_ids is not None:
            positions = segment_positions(segment_ids.target)
            segments = SegmentIds(segment_ids.target, segment_ids.target)
        k, v = self.self_attention.project_kv(u, positions)
        length, window = x.shape[1], self.window
        # [1, 1, target_length, target_length]
        mask = causal_mask(length)
        # Fused kernels take a causal mask by name and segments by id, and no other
        # mask of pairs of queries and keys.
        is_causal = True
        if window and length > window:
            # Key position minus query position, [target_length, target_length].
            distances = jnp.arange(length) - jnp.arange(length)[:, None]
            mask = mask & _in_window(distances, window)
            is_causal = False
        if segments is not None:
            mask = mask & segments.mask()
        if extra is not None:
            extra_arrays = (
                *self.self_attention.project_extra(extra),
                extra.valid,
            )
            k, v, mask, bias = prepend_keys(k, v, mask, bias, extra_arrays)
            is_causal = False
        source_kv = self.cross_attention.project_kv(encoder_states)
        # Only cross-attentions that pack take segment ids.
        packed: dict[str, Any] = {}
        if segment_ids is not None:
            packed = {"segment_ids": segment_ids}
        if self.stack.merged_attention:
            y = self.cross_attention.attend_with(
                u,
                *source_kv,
                [KeySet(k, v, mask, bias)],
                mask=cross_mask,
                positions=positions,
                causal=is_causal and bias is None,
                deterministic=deterministic,
                **packed,
            )
        else:
            y = self.self_attention.attend(
                u,
                k,
                v,
                mask=None if is_causal else mask,
                bias=bias,
                steps=steps if is_causal else None,
                segment_ids=segments if is_causal else None,
                causal=is_causal,
                positions=positions,
                deterministic=deterministic,
            )
        x = self.add_residual(self.self_norm, x, y, deterministic)
        x, state = self.advance_memory(
            x, u, y, state, memories, valid, deterministic
        )

        # Cross-attention
        if not self.stack.merged_attention:
            u = self.sublayer_input(self.cross_norm, x)
            y = self.cross_attention.attend(
                u,
                *source_kv,
                mask=cross_mask,
                deterministic=deterministic,
                **packed,
            )
            x = self.add_residual(self.cross_norm, x, y, deterministic)

        # Feed-forward
        u = self.sublayer_input(self.ff_norm, x)
        y = self.feed_forward(u, deterministic)
        x = self.add_residual(self.ff_norm, x, y, deterministic)
        return constrain(x, "batch", "length", "act_embed"), state

    @property
    def window(self) -> int:
        """Number of tokens that a token sees, itself included; 0 for all."""
        if self.stack.windows:
            return self.stack.windows[0]  # equal in a group, see ``stack_of``
        return 0

    def read_source(
        self,
        encoder_states: Float[AnyArray, "batch length source_size"] | None,
        memory: MemoryState | tuple[()],
    ) -> LayerSource:
        """Returns the layer's cached inputs from a document.

        Args:
            encoder_states: states of the source, or None to store no keys and
                values of them.
            memory: state of the memory, () without a memory.
        """
        cross_kv = None
        if encoder_states is not None:
            cross_kv = source_key_values(
                *self.cross_attention.project_kv(encoder_states)
            )
        return LayerSource(
            cross_kv, self._memory_source(memory) if memory else ()
        )

    def _memory_source(
        self, memory: MemoryState
    ) -> tuple[KeyValueCache, AnyArray]:
        memories, extra = self.replay_memory(memory)
        # The memory after the pending segments, which this segment reads.
        slots = memories[-1]
        # An attentive memory has its own projections, a compressive one uses
        # the projections of self-attention.
        if extra is None:
            k, v = self.memory.project_kv(slots)
        else:
            k, v = self.self_attention.project_extra(extra)
        return KeyValueCache.of(k, v), slots.valid

    def step(
        self,
        x: Float[AnyArray, "batch beams d_model"],
        self_kv: KeyValueCache,
        source: LayerSource,
        states: Float[AnyArray, "batch length source_size"] | None,
        bias: Float[AnyArray, "bias_batch heads queries num_columns"] | None,
        mask: Bool[AnyArray, "batch 1 beams num_columns"],
        cross_mask: Bool[AnyArray, "batch mask_heads 1 num_keys"],
        column: Int[AnyArray, "*rows"],
        positions: Int[AnyArray, "batch queries"],
        distances: Int[AnyArray, "..."],
    ) -> tuple[Float[AnyArray, "batch beams d_model"], KeyValueCache]:
        """Applies the layer to one token of every beam, or to several of one sequence.

        Args:
            x: states of the tokens.
            self_kv: keys and values of the tokens decoded so far, see
                ``DecoderCache``.
            source: cached inputs from the document.
            states: encoder states, if the source has no keys and values of
                them.
            bias: bias of the self-attention scores.
            mask: mask of the columns of ``self_kv`` that each beam reads,
                including its new one.
            cross_mask: mask of the source keys that may be read.
            column: column of ``self_kv`` at which the first of these tokens is
                written, one for all rows or one per row.
            positions: positions of the tokens, one per row for all beams or one
                per token.
            distances: position of each column's token relative to the tokens of
                ``x``.

        Returns:
            The states after the layer; the keys and values of self-attention
            including these tokens.
        """
        # No operation here may copy a weight or the keys of the source; a test
        # checks the compiled program for it.
        u = self.sublayer_input(self.self_norm, x)
        positions = jnp.broadcast_to(positions, x.shape[:2])
        # [batch, beams, heads, head_dim]: in a step, beams are where positions
        # are in training.
        k, v = self.self_attention.project_kv(u, positions)
        # A batch of one has no batch axis in the cache.
        if self_kv.k.ndim == 3:
            k, v = k[0], v[0]
        self_kv = self_kv.write(k, v, column)
        # Beams replace target positions: they share one set of keys, of the
        # tokens of all beams, of the memory and of the encoder.
        is_compressive = self.stack.memory.memory == "compressive"
        extra = source.memory_kv if is_compressive else ()
        if self.window:
            # Columns of tokens outside of the window remain in the cache, but
            # are masked.
            mask = mask & _in_window(distances, self.window)[:, None]
        sets = self._target_keys(self_kv, mask, bias, extra)
        if not self.stack.merged_attention:
            y = self._attend_beams(u, sets, positions)
        elif isinstance(source.cross_kv, StoredKeyValues):
            y = self.cross_attention.attend_stored(
                u,
                *source.cross_kv,
                mask=cross_mask,
                positions=positions,
                others=sets,
            )
        else:
            y = self.cross_attention.attend_with(
                u,
                *self._source_kv(source, states),
                sets,
                mask=cross_mask,
                positions=positions,
            )
        x = self.add_residual(self.self_norm, x, y)
        # An attentive memory has a separate attention.
        if source.memory_kv and not is_compressive:
            memory_kv, _ = source.memory_kv
            u = self.sublayer_input(self.memory_norm, x)
            y = self.memory.attention.attend(u, *memory_kv.read())
            x = self.add_residual(self.memory_norm, x, y)
        if not self.stack.merged_attention:
            u = self.sublayer_input(self.cross_norm, x)
            y = self._attend_source(u, source, states, cross_mask)
            x = self.add_residual(self.cross_norm, x, y)
        y = self.feed_forward(self.sublayer_input(self.ff_norm, x))
        return self.add_residual(self.ff_norm, x, y), self_kv

    def _target_keys(
        self,
        self_kv: KeyValueCache,
        mask: AnyArray,
        bias: AnyArray | None,
        memory: MemorySource,
    ) -> list[KeySet]:
        """Returns the keys of the memory, if there is one, and of the tokens of all beams."""
        # A batch of one has no batch axis in the cache.
        k, v = (y.reshape(len(mask), *y.shape[-3:]) for y in self_kv.read())
        tokens = KeySet(k, v, mask, bias)
        if not memory:
            return [tokens]
        memory_kv, valid = memory
        return [KeySet(*memory_kv.read(), valid[:, None, None]), tokens]

    def _attend_beams(
        self, u: AnyArray, sets: list[KeySet], positions: AnyArray
    ) -> Array:
        """Attends from every beam to its own tokens and to the memory."""
        attention = self.self_attention
        if len(sets) == 1:
            [tokens] = sets
            return attention.attend(
                u,
                tokens.k,
                tokens.v,
                mask=tokens.mask,
                bias=tokens.bias_of_all(),
                positions=positions,
            )
        # One softmax over the slots of the memory, which all beams share, and
        # the columns of the cache.
        q = attention.q(u, positions)
        return attention.o(attend_jointly(q, sets, scale=attention.scale))

    def _attend_source(
        self,
        u: AnyArray,
        source: LayerSource,
        states: AnyArray | None,
        mask: AnyArray,
    ) -> Array:
        """Attends from every beam to the source."""
        attention = self.cross_attention
        if isinstance(source.cross_kv, StoredKeyValues):
            return attention.attend_stored(u, *source.cross_kv, mask=mask)
        # Without stored keys and values, steps read the encoder states.
        if source.cross_kv is None and self.stack.absorbs_keys:
            assert states is not None
            return attention.attend_absorbed(u, states, mask=mask)
        return attention.attend(u, *self._source_kv(source, states), mask=mask)

    def _source_kv(
        self, source: LayerSource, states: AnyArray | None
    ) -> tuple[AnyArray, AnyArray]:
        """Returns keys and values of the source, projected again if only its states are stored."""
        if source.cross_kv is None:
            assert states is not None
            return self.cross_attention.project_kv(states)
        assert not isinstance(source.cross_kv, StoredKeyValues)
        return source.cross_kv.read()


def _in_window(
    distances: Int[AnyArray, "*shape"], window: int
) -> Bool[Array, "*shape"]:
    """Returns True at keys that are less than ``window`` positions before the query."""
    return jnp.asarray(distances > -window)
