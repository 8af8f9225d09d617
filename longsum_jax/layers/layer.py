"""What encoder and decoder layers share: residuals around their parts, and a memory."""

import dataclasses
from typing import Any

import flax.linen as nn

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.multi_head import ExtraKeyValues
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.layer_groups import LayerGroup, LayerKind, layer_kinds
from longsum_jax.layers.memory import MEMORIES, MemoryState, Slots, empty_state, memory_layers
from longsum_jax.layers.stack import StackConfig, with_attention
from longsum_jax.typing import Array

# The memories of a stack: the states of each group of layers, () of groups without one.
StackMemory = tuple[MemoryState | tuple[()], ...]


class Layer(nn.Module):
    """What encoder and decoder layers share: a residual around each part, normalised before or
    after it; a memory."""

    stack: StackConfig

    def before(self, norm: nn.Module, x: Array) -> Array:
        """What a part reads."""
        return norm(x) if self.stack.pre_norm else x

    def after(self, norm: nn.Module, x: Array, y: Array, deterministic: bool = True) -> Array:
        """The stream after a part that gave ``y``."""
        x = x + self.dropout(y, deterministic=deterministic)
        return x if self.stack.pre_norm else norm(x)

    def make_memory(self) -> None:
        """The parts of the memory, if there is one; to be called in ``setup``."""
        kind = self.stack.memory.memory
        if kind != "none":
            self.memory = MEMORIES[kind](self.stack, self.self_attention)
        if kind == "attentive":
            self.memory_norm = self.stack.make_norm()

    def recall(self, state: MemoryState | tuple[()]) -> tuple[list[Slots], ExtraKeyValues | None]:
        """What ``memory.recall`` gives, and what of it self-attention reads."""
        recalled = self.memory.recall(state) if state else []
        if self.stack.memory.memory != "compressive":
            return recalled, None
        values, valid = recalled[-1]
        return recalled, ExtraKeyValues(values, values, valid)

    def after_self_attention(
        self,
        x: Array,
        read: Array,
        y: Array,
        memory: tuple[MemoryState | tuple[()], list[Slots], Array],
        deterministic: bool,
    ) -> tuple[Array, MemoryState | tuple[()]]:
        """The stream after self-attention, which made ``y`` of ``read``, and after reading an
        attentive memory.

        ``memory`` is its state, what was recalled of it, and which tokens of the segment it may
        keep, bool [B, L]. Returns the stream and the memory's next state.
        """
        state, recalled, valid = memory
        x = self.after(self.self_norm, x, y, deterministic)
        if not state:
            return x, state
        if self.stack.memory.memory == "attentive":
            read = self.before(self.memory_norm, x)
            seen = self.memory.read(read, recalled[-1], deterministic)
            x = self.after(self.memory_norm, x, seen, deterministic)
            read = y if self.stack.memory.memory_hidden == "raw" else read
        text = read[:, read.shape[1] - valid.shape[1] :]  # without what an attention put in front
        return x, self.memory.remember(state, recalled, text, valid)


def layers_like(stack: StackConfig, kind: LayerKind) -> StackConfig:
    """The stack with ``kind`` for all of its layers."""
    options, memory = stack.options, stack.memory
    if kind.attention:
        options = with_attention(options, kind.attention)
    if not kind.memory:
        memory = dataclasses.replace(memory, memory="none")
    return dataclasses.replace(stack, options=options, memory=memory)


def check_memory(config: Any, encoder_layers: int, decoder_layers: int) -> None:
    """Checks the memory options of a model with both stacks, whose numbers of layers are given.

    Raises:
        InputError: sizes out of range, layers that there are not, or an encoder attention that
            cannot read what it is to read.
    """
    limits = {"memory_size": 1, "memory_compression": 1}
    limits |= dict.fromkeys(("memory_backprop", "memory_reconstruction", "salient_vectors"), 0)
    for key, least in limits.items():
        if getattr(config, key) < least:
            raise InputError(f"{key} is {getattr(config, key)}; it must be at least {least}")
    readers = memory_layers(config, encoder_layers)
    if config.memory_decoder:
        memory_layers(config, decoder_layers)
    if config.memory != "compressive":
        readers = frozenset()
    elif config.memory_size % 2 or 2 * config.memory_compression > config.memory_size:
        raise InputError(
            f"memory_size is {config.memory_size} with memory_compression {config.memory_compression}; half of the "
            "slots are for compressed states: give an even size of at least twice the compression"
        )
    if config.salient_vectors:
        readers = range(encoder_layers)
    kinds = layer_kinds(config.encoder_attention, encoder_layers) if readers else ()
    for name in {kinds[i] for i in readers}:
        if not get_encoder_attention(with_attention(config, name)).extra_keys:
            what = "salient_vectors" if config.salient_vectors else 'memory "compressive"'
            raise InputError(
                f'{what}: encoder_attention "{name}" takes no keys beside those of its text; use "full" in those '
                'layers, or memory "attentive", which goes with any'
            )


def empty_memory(
    stack: StackConfig, groups: tuple[LayerGroup, ...], rows: int, length: int, waiting: int
) -> StackMemory:
    """What the layers of all ``groups`` remember before the first segment; see
    ``layers.memory.empty_state``."""
    return tuple(
        empty_state(stack, group.size, rows, length, waiting) if group.kind.memory else ()
        for group in groups
    )
