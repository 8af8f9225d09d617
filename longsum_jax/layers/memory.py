"""Memories of transformer layers that travel from segment to segment of a document (AWESOME,
section 3.1).

A memory is read while a segment goes through its layer, and written with the states of the segment
afterwards. No gradient flows into those states. With ``waiting`` > 0 writing is put off: a state
keeps the last segments' states beside the memory before them, and the memory is computed from both
in the graph of the next segment, so that gradients reach what writes it and stop there (truncated
back-propagation, at the same cost for every length of a document).
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.multi_head import Attention
from longsum_jax.layers.dense import Linear, normal
from longsum_jax.layers.partitioning import constrain, logical
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
from longsum_jax.typing import Array


def memory_layers(options: MemoryOptions, num_layers: int) -> frozenset[int]:
    """The layers of a stack of ``num_layers`` that have a memory.

    Raises:
        InputError: layers that there are not, or a value that names none.
    """
    which = options.memory_layers
    if options.memory == "none":
        return frozenset()
    if which is None:
        which = {"compressive": "first3", "attentive": "last3"}[options.memory]
    if isinstance(which, str):
        found = re.fullmatch(r"(first|last)([1-9]\d*)|all", which)
        if found is None:
            raise InputError(
                f'memory_layers is "{which}"; give "firstN", "lastN", "all" or the indices of layers'
            )
        number = num_layers if which == "all" else min(int(found[2]), num_layers)
        start = num_layers - number if found[1] == "last" else 0
        return frozenset(range(start, start + number))
    outside = [i for i in which if not 0 <= i < num_layers]
    if outside or not which:
        raise InputError(
            f"memory_layers is {which}; give indices from 0 to {num_layers - 1}, at least one"
        )
    return frozenset(which)


def decoder_memory(options: MemoryOptions) -> MemoryOptions:
    """The options of a model's decoder."""
    return options if options.memory_decoder else dataclasses.replace(options, memory="none")


# The collection of what layers add to the loss beside what their outputs do.
LOSSES = "losses"


class Slots(NamedTuple):
    """A memory: values [B, m, D] of its m slots, and which of them hold something, bool [B, m]."""

    values: Array
    valid: Array


class MemoryState(NamedTuple):
    """What a layer hands on to the next segment; stacked over layers, every array has their number
    in front.

    Attributes:
        slots: the memory before the segments that wait.
        hidden: states of the W segments that wait, [B, W, L, D], oldest first.
        valid: bool [B, W, L], those of real tokens.
    """

    slots: Slots
    hidden: Array
    valid: Array


class Memory(nn.Module):
    """The base of both memories: what ``write`` makes of states that wait, and what waits next.

    ``self_attention`` is the layer's own.
    """

    stack: StackConfig
    self_attention: Attention

    def write(self, slots: Slots, hidden: Array, valid: Array) -> Slots:
        """The memory after a segment with the states ``hidden`` [B, L, D]; ``valid`` bool [B,
        L]."""
        raise NotImplementedError

    def learn(self, slots: Slots, hidden: Array, valid: Array) -> None:
        """Called once for every segment with the arguments of ``write``; may ``sow`` a loss of its
        own in LOSSES."""

    def recall(self, state: MemoryState) -> list[Slots]:
        """The memory before and after each segment that waits; the last one is what the next
        segment reads."""
        found = [state.slots]
        for i in range(state.hidden.shape[1]):
            segment = state.hidden[:, i], state.valid[:, i]
            found.append(self.write(found[-1], *segment))
        if len(found) > 1:
            self.learn(found[-2], *segment)
        return found

    def remember(
        self, state: MemoryState, recalled: Sequence[Slots], hidden: Array, valid: Array
    ) -> MemoryState:
        """The state after a segment with the states ``hidden`` [B, L, D]; ``recalled`` is what
        ``recall`` gave."""
        hidden = constrain(jax.lax.stop_gradient(hidden), "batch", "length", "act_embed")
        if not state.hidden.shape[1]:
            self.learn(recalled[-1], hidden, valid)
            return state._replace(slots=self.write(recalled[-1], hidden, valid))
        queue = lambda old, new: jnp.concatenate([old[:, 1:], new[:, None].astype(old.dtype)], 1)  # noqa: E731
        slots = Slots(jax.lax.stop_gradient(recalled[1].values), recalled[1].valid)
        return MemoryState(slots, queue(state.hidden, hidden), queue(state.valid, valid))


class CompressiveMemory(Memory):
    """The newest states of a layer's input, and older ones compressed; self-attention reads them as
    further keys."""

    def setup(self) -> None:
        width, stride = self.stack.d_model, self.stack.memory.memory_compression
        init = logical(normal((stride * width) ** -0.5), "strides", "embed", "act_embed")
        self.kernel = self.param("kernel", init, (stride, width, width))
        self.bias = self.param("bias", logical(nn.initializers.zeros, "embed"), (width,))

    def write(self, slots: Slots, hidden: Array, valid: Array) -> Slots:
        return Slots(
            *compressive_update(
                *slots, hidden, valid, self.kernel, self.bias, overflow=self._overflow
            )
        )

    def learn(self, slots: Slots, hidden: Array, valid: Array) -> None:
        """What the segment sees in the states that it pushes out against what it sees in their
        compression."""
        if not self.stack.memory.memory_reconstruction or not self.is_mutable_collection(LOSSES):
            return
        newest, newest_valid = jax.lax.stop_gradient(newest_states(*slots, hidden, valid))
        old, old_valid = newest[:, : hidden.shape[1]], newest_valid[:, : hidden.shape[1]]
        new, new_valid = compress(old, old_valid, self.kernel, self.bias, overflow=self._overflow)
        q = jax.lax.stop_gradient(self.self_attention.q(hidden))

        def attend(states: Array, there: Array) -> Array:
            k, v = self.self_attention.keys_values_for(states)
            return dot_product_attention(
                q, k, v, mask=there[:, None, None], scale=self.stack.attention_scale
            )

        error = reconstruction_error(
            attend(new, new_valid), attend(old, old_valid), valid, old_valid
        )
        self.sow(
            LOSSES,
            "reconstruction",
            error,
            reduce_fn=jnp.add,
            init_fn=lambda: jnp.zeros((), jnp.float32),
        )

    @property
    def _overflow(self) -> Overflow:
        return self.stack.memory.memory_overflow


class AttentiveMemory(Memory):
    """Slots that gates rewrite after every segment (MART's form, Lei et al. 2020); an attention of
    its own reads them.

    Slots that were never written to are ``initial``, which is learned: from equal slots all would
    stay equal for ever.
    """

    def setup(self) -> None:
        s = self.stack
        self.attention = Attention(**s.attention_fields)
        # Of the size of normalised states, so that slots begin by looking at different ones.
        init = logical(normal(1.0), "slots", "embed")
        self.initial = self.param("initial", init, (s.memory.memory_size, s.d_model))
        self.q, self.k, self.v = self._head_map("query_init"), self._head_map(), self._head_map()
        self.update_memory, self.gate_memory = self._slot_map(), self._slot_map()
        self.update_segment, self.gate_segment = self._segment_map(), self._segment_map()

    def write(self, slots: Slots, hidden: Array, valid: Array) -> Slots:
        memory, scale = self.values_of(slots), self.stack.attention_scale
        x, hidden = memory.astype(self.stack.dtype), hidden.astype(self.stack.dtype)
        seen = dot_product_attention(
            self.q(x), self.k(hidden), self.v(hidden), mask=valid[:, None, None], scale=scale
        )
        update = self.update_memory(x) + self.update_segment(seen)
        gate = self.gate_memory(x) + self.gate_segment(seen)
        changed = valid.any(1)
        return Slots(gated_update(memory, update, gate, changed), slots.valid | changed[:, None])

    def values_of(self, slots: Slots) -> Array:
        """What the slots hold, [B, m, D] float32."""
        return jnp.where(slots.valid[..., None], slots.values, self.initial.astype(jnp.float32))

    def read(self, x: Array, slots: Slots, deterministic: bool) -> Array:
        """What x [B, L, D] sees in the slots, [B, L, D] (eq. 7)."""
        return self.attention.attend(x, *self.project_kv(slots), deterministic=deterministic)

    def project_kv(self, slots: Slots) -> tuple[Array, Array]:
        """Of the attention that reads the memory, two [B, m, H, K]."""
        return self.attention.project_kv(self.values_of(slots).astype(self.stack.dtype))

    def _head_map(self, init: str = "projection_init") -> Linear:
        """[B, L, D] -> [B, L, H, K]. Without a bias, as the maps of a memory are in the paper's
        parameter count."""
        s = self.stack
        fields = s.attention_fields
        return Linear(
            (s.d_model, s.num_heads, s.d_kv), ("embed", "heads", "kv"), fields[init], dtype=s.dtype
        )

    def _slot_map(self) -> Linear:
        """[B, m, D] -> [B, m, D]."""
        s = self.stack
        shape, names = (s.d_model, s.d_model), ("embed", "act_embed")
        return Linear(shape, names, s.attention_fields["projection_init"], dtype=s.dtype)

    def _segment_map(self) -> Linear:
        """[B, m, H, K] -> [B, m, D]; the bias of a sum of two maps stands here."""
        s = self.stack
        shape, names, init = (
            (s.num_heads, s.d_kv, s.d_model),
            ("heads", "kv", "embed"),
            s.attention_fields["output_init"],
        )
        return Linear(shape, names, init, nn.initializers.zeros, inputs=2, dtype=s.dtype)


MEMORIES: dict[str, type[Memory]] = {"compressive": CompressiveMemory, "attentive": AttentiveMemory}


def empty_state(
    stack: StackConfig, layers: int, rows: int, length: int, waiting: int
) -> MemoryState:
    """Where a document begins: the state of ``layers`` layers of ``stack``, for segments of
    ``length`` tokens.

    ``waiting`` is how many segments gradients go back through; 0 writes every segment at once.
    """
    size, width = stack.memory.memory_size, stack.d_model
    # Gates add up over a document what rounding would swallow; copies of states need no more than
    # the states had.
    dtype = jnp.float32 if stack.memory.memory == "attentive" else stack.dtype
    slots = Slots(
        jnp.zeros((layers, rows, size, width), dtype), jnp.zeros((layers, rows, size), bool)
    )
    hidden = jnp.zeros((layers, rows, waiting, length, width), stack.dtype)
    return MemoryState(slots, hidden, jnp.zeros(hidden.shape[:-1], bool))
