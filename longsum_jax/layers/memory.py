"""Memories of transformer layers, carried from segment to segment of a document (AWESOME, section
3.1).

A layer reads its memory while it processes a segment. It then writes the
segment's states to the memory; no gradient flows into these states.

The parameters of a write get their gradient from later segments that read the
memory. To train them one segment at a time, writes are deferred: the state of a
memory has the states of the last ``memory_backprop`` segments ("pending"), and
every segment replays their writes before it reads. This is truncated
back-propagation: gradients reach that many segments back, and the cost does not
depend on the length of the document. With two pending segments, segment 4
proceeds as follows (m1: the memory after segment 1, h2: the states of segment
2):

    state before    m1        h2              h3

    replay          m1 -- write(h2) -> m2 -- write(h3) -> m3      gradients reach both writes
                                                          |
    layers          read m3 and compute h4                m3

    state after               m2              h3          h4      m2 without gradients

Without pending segments (``memory_backprop`` 0) the state is only the memory: a
layer reads m3, and h4 is written immediately. Gradients then flow back through
the whole document.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.multi_head import (
    MultiHeadAttention,
    attend_fused,
)
from longsum_jax.layers.dense import Linear, normal
from longsum_jax.layers.partitioning import Initializer, constrain, logical
from longsum_jax.layers.stack import MemoryOptions, StackConfig
from longsum_jax.ops.attention.dense import dot_product_attention
from longsum_jax.ops.memory import (
    Overflow,
    compress,
    compressive_update,
    gated_update,
    newest_states,
    reconstruction_error,
)
from longsum_jax.typing import AnyArray

# Flax collection of auxiliary losses that layers sow.
LOSSES = "losses"


def memory_layers(options: MemoryOptions, num_layers: int) -> frozenset[int]:
    """Returns the indices of the layers with a memory in a stack of ``num_layers``.

    Raises:
        InputError: layers that the stack does not have, or a value that does
            not name any.
    """
    layers = options.memory_layers
    if options.memory == "none":
        return frozenset()
    if layers is None:
        layers = {"compressive": "first3", "attentive": "last3"}[options.memory]
    if isinstance(layers, str):
        return _named_layers(layers, num_layers)
    outside = [i for i in layers if not 0 <= i < num_layers]
    if outside or not layers:
        raise InputError(
            f"memory_layers is {layers}; give indices from 0 to {num_layers - 1}, at least one"
        )
    return frozenset(layers)


def _named_layers(name: str, num_layers: int) -> frozenset[int]:
    """Returns the layers of "first3", "last3" or "all"."""
    match = re.fullmatch(r"(first|last)([1-9]\d{0,8})|all", name)
    if match is None:
        raise InputError(
            f'memory_layers is "{name}"; give "firstN", "lastN", "all" or the indices of layers'
        )
    if name == "all":
        count = num_layers
    else:
        # "first3" of a stack with two layers means both.
        count = min(int(match[2]), num_layers)
    start = num_layers - count if match[1] == "last" else 0
    return frozenset(range(start, start + count))


def decoder_memory(options: MemoryOptions) -> MemoryOptions:
    """Returns the options of a model's decoder: without a memory unless ``memory_decoder``."""
    if options.memory_decoder:
        return options
    return dataclasses.replace(options, memory="none")


class Slots(NamedTuple):
    """The slots of a memory, and a mask of the filled ones."""

    values: Float[Array, "batch slots d_model"]
    valid: Bool[AnyArray, "batch slots"]


class MemoryState(NamedTuple):
    """The state of a layer's memory between two segments.

    The states of a group of layers are stacked: every array has a leading axis
    of layers.

    Attributes:
        slots: memory before the pending segments.
        hidden: states of the pending segments, oldest first.
        hidden_mask: mask of their real tokens.
    """

    slots: Slots
    hidden: Float[Array, "batch pending length d_model"]
    hidden_mask: Bool[AnyArray, "batch pending length"]


class Memory(nn.Module):
    """The base class of both memories; subclasses define how to ``write`` a segment.

    Attributes:
        self_attention: self-attention of the layer, or the state-space layer in
            its place. The compressive memory uses the projections of a
            ``MultiHeadAttention``.
    """

    stack: StackConfig
    self_attention: nn.Module

    def write(
        self,
        slots: Slots,
        hidden: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> Slots:
        """Returns the memory after a segment.

        Args:
            slots: memory before the segment.
            hidden: states of the segment.
            mask: mask of its real tokens.
        """
        raise NotImplementedError

    def add_loss(
        self,
        slots: Slots,
        hidden: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> None:
        """Adds the memory's loss, if it has one, to the variable collection LOSSES.

        Args:
            slots, hidden, mask: see ``write``.
        """

    def replay(self, state: MemoryState) -> list[Slots]:
        """Writes the pending segments again.

        Returns:
            The memory before the first pending segment and after each pending
            segment; this segment reads the last one.
        """
        # Pending segments are written again, so that gradients flow through
        # their writes.
        memories = [state.slots]
        for i in range(state.hidden.shape[1]):
            segment = state.hidden[:, i], state.hidden_mask[:, i]
            memories.append(self.write(memories[-1], *segment))
        # The last write is the one whose reconstruction loss has not been added
        # before.
        if len(memories) > 1:
            self.add_loss(memories[-2], *segment)
        return memories

    def advance(
        self,
        state: MemoryState,
        memories: Sequence[Slots],
        hidden: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> MemoryState:
        """Returns the state after this segment.

        Args:
            state: state before the segment.
            memories: result of ``replay``.
            hidden: states of this segment.
            mask: mask of its real tokens.
        """
        # Gradients flow through the writes, but not into the states of earlier
        # segments.
        hidden = constrain(
            jax.lax.stop_gradient(hidden), "batch", "length", "act_embed"
        )
        num_pending = state.hidden.shape[1]
        if num_pending == 0:
            self.add_loss(memories[-1], hidden, mask)
            return state._replace(slots=self.write(memories[-1], hidden, mask))
        # The oldest pending segment is written for good, without gradients.
        oldest = memories[1]
        slots = Slots(jax.lax.stop_gradient(oldest.values), oldest.valid)
        pending = _queue(state.hidden, hidden), _queue(state.hidden_mask, mask)
        return MemoryState(slots, *pending)


def _queue(pending: AnyArray, segment: AnyArray) -> Array:
    """Drops the oldest pending segment and appends a new one."""
    newer = pending[:, 1:]
    return jnp.concatenate([newer, segment[:, None].astype(pending.dtype)], 1)


class CompressiveMemory(Memory):
    """The newest states of a layer and compressions of older ones, which self-attention
    reads as extra keys (Rae et al. 2020; AWESOME, section 3.1).

    Half of the ``memory_size`` slots contain the newest states. A learned
    convolution compresses ``memory_compression`` states that leave this half
    into one state of the other half, whose oldest states are dropped.
    """

    def setup(self) -> None:
        d_model, stride = (
            self.stack.d_model,
            self.stack.memory.memory_compression,
        )
        # Each compressed state is a sum over stride * d_model inputs.
        init = logical(
            normal((stride * d_model) ** -0.5), "strides", "embed", "act_embed"
        )
        self.kernel = self.param("kernel", init, (stride, d_model, d_model))
        self.bias = self.param(
            "bias", logical(nn.initializers.zeros, "embed"), (d_model,)
        )

    def write(
        self,
        slots: Slots,
        hidden: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> Slots:
        values, valid = compressive_update(
            *slots,
            hidden,
            mask,
            self.kernel,
            self.bias,
            overflow=self._overflow,
        )
        return Slots(values, valid)

    def add_loss(
        self,
        slots: Slots,
        hidden: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> None:
        """Sows the reconstruction loss of the compression.

        Queries of this segment attend to the states that the segment evicts
        from the memory, and to their compression; the loss of a row is the mean
        squared difference of the two results.
        """
        if (
            not self.stack.memory.memory_reconstruction
            or not self.is_mutable_collection(LOSSES)
        ):
            return
        length = hidden.shape[1]
        newest, newest_valid = jax.lax.stop_gradient(
            newest_states(*slots, hidden, mask)
        )
        # Compare attention to the evicted states with attention to their
        # compression.
        old, old_valid = newest[:, :length], newest_valid[:, :length]
        new, new_valid = compress(
            old, old_valid, self.kernel, self.bias, overflow=self._overflow
        )
        # Only the compression is trained by this loss: queries and projections
        # are frozen (Rae et al. 2020).
        q = jax.lax.stop_gradient(self.self_attention.q(hidden))

        def attend(states: AnyArray, key_mask: AnyArray) -> Array:
            k, v = self.self_attention.project_kv_frozen(states)
            return dot_product_attention(
                q,
                k,
                v,
                mask=key_mask[:, None, None],
                scale=self.self_attention.scale,
            )

        error = reconstruction_error(
            attend(new, new_valid), attend(old, old_valid), mask, old_valid
        )
        # One loss per row, [batch]. A scanned stack adds an axis of layers; calls
        # of the same layer add up.
        self.sow(
            LOSSES,
            "reconstruction",
            error,
            reduce_fn=jnp.add,
            init_fn=lambda: jnp.zeros(mask.shape[:1], jnp.float32),
        )

    @property
    def _overflow(self) -> Overflow:
        return self.stack.memory.memory_overflow


class AttentiveMemory(Memory):
    """Slots that gates update after every segment (as in MART, Lei et al. 2020), read by a
    separate attention (AWESOME, section 3.1).

    There are ``memory_size`` slots of size ``d_model``. Before the first segment,
    they contain the parameter ``initial``, which differs by slot: equal slots
    would get equal updates and remain equal.
    """

    def setup(self) -> None:
        stack = self.stack
        self.attention = MultiHeadAttention(**stack.attention_fields)
        # As large as normalized states, so that slots attend to different
        # tokens from the start.
        init = logical(normal(1.0), "slots", "embed")
        self.initial = self.param(
            "initial", init, (stack.memory.memory_size, stack.d_model)
        )
        self.q = self._head_map(stack.attention_initializers.query)
        self.k = self._head_map(stack.attention_initializers.projection)
        self.v = self._head_map(stack.attention_initializers.projection)
        self.update_memory = self._slot_map()
        self.gate_memory = self._slot_map()
        self.update_segment = self._segment_map()
        self.gate_segment = self._segment_map()

    def write(
        self,
        slots: Slots,
        hidden: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> Slots:
        memory = self.values_of(slots)
        x = memory.astype(self.stack.dtype)
        hidden = hidden.astype(self.stack.dtype)
        # Slots attend to the segment: [batch, slots, heads, head_dim].
        q, k, v = self.q(x), self.k(hidden), self.v(hidden)
        scale = self.stack.attention_scale
        kernel = self.attention.fused_kernel(
            x,
            k,
            mask=mask[:, None, None],
            bias=None,
            causal=False,
            deterministic=True,
        )
        if kernel is not None:
            summary = attend_fused(
                q, k, v, mask[:, None], kernel=kernel, scale=scale
            )
        else:
            summary = dot_product_attention(
                q, k, v, mask=mask[:, None, None], scale=scale
            )
        # Both the candidate and the gate depend on the old slot and on its
        # summary of the segment, [batch, slots, d_model].
        update = self.update_memory(x) + self.update_segment(summary)
        gate = self.gate_memory(x) + self.gate_segment(summary)
        # Rows whose document has ended read only padding, and keep their slots.
        has_tokens = jnp.any(mask, 1)
        values = gated_update(memory, update, gate, has_tokens)
        return Slots(values, slots.valid | has_tokens[:, None])

    def values_of(self, slots: Slots) -> Float[Array, "batch slots d_model"]:
        """Returns the values of the slots in float32, ``initial`` for slots never written."""
        initial = self.initial.astype(jnp.float32)
        return jnp.where(slots.valid[..., None], slots.values, initial)

    def read(
        self,
        x: Float[AnyArray, "batch length d_model"],
        slots: Slots,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        """Attends from ``x`` to the slots (section 3.1, "Attentive Memory")."""
        k, v = self.project_kv(slots)
        return self.attention.attend(x, k, v, deterministic=deterministic)

    def project_kv(
        self, slots: Slots
    ) -> tuple[
        Float[Array, "batch slots heads head_dim"],
        Float[Array, "batch slots heads head_dim"],
    ]:
        """Returns keys and values of the slots, for the attention that reads them."""
        return self.attention.project_kv(
            self.values_of(slots).astype(self.stack.dtype)
        )

    def _head_map(self, init: Initializer) -> Linear:
        """Makes a projection [batch, length, d_model] -> [batch, length, heads, head_dim].

        It has no bias, as the paper's number of parameters implies.
        """
        stack = self.stack
        shape = (stack.d_model, stack.num_heads, stack.d_kv)
        return Linear(shape, ("embed", "heads", "kv"), init, dtype=stack.dtype)

    def _slot_map(self) -> Linear:
        """Makes a projection [batch, slots, d_model] -> [batch, slots, d_model]."""
        stack = self.stack
        shape = (stack.d_model, stack.d_model)
        init = stack.attention_initializers.projection
        return Linear(shape, ("embed", "act_embed"), init, dtype=stack.dtype)

    def _segment_map(self) -> Linear:
        """Makes a projection [batch, slots, heads, head_dim] -> [batch, slots, d_model].

        It includes the bias of the sum of both maps: a ``_slot_map`` has none.
        """
        stack = self.stack
        return Linear(
            (stack.num_heads, stack.d_kv, stack.d_model),
            ("heads", "kv", "embed"),
            stack.attention_initializers.output,
            nn.initializers.zeros,
            inputs=2,
            dtype=stack.dtype,
        )


MEMORIES: dict[str, type[Memory]] = {
    "compressive": CompressiveMemory,
    "attentive": AttentiveMemory,
}


def empty_state(
    stack: StackConfig, num_layers: int, batch: int, length: int, pending: int
) -> MemoryState:
    """Returns the state of a group of layers at the beginning of a document.

    Args:
        stack: config of the stack.
        num_layers: number of layers of the group.
        batch: number of documents.
        length: number of tokens of a segment.
        pending: number of segments that gradients flow back through; 0 writes
            every segment immediately.
    """
    num_slots, d_model = stack.memory.memory_size, stack.d_model
    # Gates accumulate small changes, which bfloat16 would round away;
    # compressive memories hold copies of states and need no higher precision.
    if stack.memory.memory == "attentive":
        dtype = jnp.float32
    else:
        dtype = stack.dtype
    values = jnp.zeros((num_layers, batch, num_slots, d_model), dtype)
    slots = Slots(values, jnp.zeros(values.shape[:-1], bool))
    hidden = jnp.zeros(
        (num_layers, batch, pending, length, d_model), stack.dtype
    )
    return MemoryState(slots, hidden, jnp.zeros(hidden.shape[:-1], bool))
