"""The base class of encoder and decoder layers: residual connections, and a memory.

A sublayer (self-attention, cross-attention, feed-forward) is applied as

    u = self.sublayer_input(norm, x)
    x = self.add_residual(norm, x, sublayer(u))

which normalizes before the sublayer (pre-norm) or after the sum (post-norm):

    pre-norm     x + sublayer(norm(x))
    sandwich     x + norm'(sublayer(norm(x)))
    post-norm    norm(x + sublayer(x))
"""

import dataclasses

import flax.linen as nn
from jaxtyping import Bool, Float

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.multi_head import ExtraKeyValues
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.layer_groups import (
    LayerGroup,
    LayerSpec,
    layer_attentions,
)
from longsum_jax.layers.memory import (
    MEMORIES,
    MemoryState,
    Slots,
    empty_state,
    memory_layers,
)
from longsum_jax.layers.stack import MemoryOptions, StackConfig
from longsum_jax.ops.random_masks import RowWords
from longsum_jax.typing import AnyArray

# The memories of a stack: one state for each group of layers, () for groups
# without a memory.
StackMemory = tuple[MemoryState | tuple[()], ...]


class Layer(nn.Module):
    """The base class of encoder and decoder layers.

    Subclasses set ``self_norm``, ``self_attention`` and ``dropout`` in
    ``setup``, and then call ``make_memory``.
    """

    stack: StackConfig

    def sublayer_input(
        self, norm: nn.Module, x: Float[AnyArray, "batch length d_model"]
    ) -> Float[AnyArray, "batch length d_model"]:
        """Returns the input of a sublayer: ``x``, normalized in pre-norm stacks."""
        return norm(x) if self.stack.pre_norm else x

    def add_residual(
        self,
        norm: nn.Module,
        x: Float[AnyArray, "batch length d_model"],
        y: Float[AnyArray, "batch length d_model"],
        deterministic: bool = True,
        words: RowWords | None = None,
    ) -> Float[AnyArray, "batch length d_model"]:
        """Adds the output ``y`` of a sublayer to ``x``; normalizes the sum in post-norm stacks, and
        ``y`` in stacks with ``sandwich_norm``.

        Args:
            norm, x, y: norm, input and output of the sublayer.
            deterministic: False in training.
            words: words of the positions, see ``layers.dense.Dropout``.
        """
        if self.stack.sandwich_norm:
            y = norm.of_output(y)
        # pre-norm   x + f(norm(x))
        # post-norm  norm(x + f(x))
        # sandwich   x + norm(f(norm(x)))
        x = x + self.dropout(y, deterministic, words)
        return x if self.stack.pre_norm else norm(x)

    def make_memory(self) -> None:
        """Makes the modules of the memory, if the layer has one; call it in ``setup``."""
        name = self.stack.memory.memory
        if name != "none":
            self.memory = MEMORIES[name](self.stack, self.self_attention)
        if name == "attentive":
            self.memory_norm = self.stack.make_sublayer_norm()

    def replay_memory(
        self, state: MemoryState | tuple[()]
    ) -> tuple[list[Slots], ExtraKeyValues | None]:
        """Computes the memory that this segment reads.

        Args:
            state: state of the memory, () for layers without a memory.

        Returns:
            The result of ``Memory.replay``, [] without a memory; the keys and
            values that self-attention reads from it, None unless the memory is
            compressive.
        """
        if state:
            memories = self.memory.replay(state)
        else:
            memories = []
        if self.stack.memory.memory != "compressive":
            return memories, None
        # The memory after all pending segments.
        values, valid = memories[-1]
        # Self-attention projects the slots like its own input, once to keys and
        # once to values.
        return memories, ExtraKeyValues(values, values, valid)

    def advance_memory(
        self,
        x: Float[AnyArray, "batch length d_model"],
        attention_input: Float[AnyArray, "batch length d_model"],
        attended: Float[AnyArray, "batch length d_model"],
        state: MemoryState | tuple[()],
        memories: list[Slots],
        mask: Bool[AnyArray, "batch text_length"],
        deterministic: bool,
    ) -> tuple[
        Float[AnyArray, "batch length d_model"], MemoryState | tuple[()]
    ]:
        """Reads an attentive memory, and adds this segment to the memory of either kind.

        Args:
            x: states after self-attention and its residual.
            attention_input, attended: input and output of self-attention.
            state: state of the memory before the segment, () for layers without
                a memory.
            memories: result of ``replay_memory``.
            mask: mask of the tokens that the memory may store; shorter than
                ``x`` if the attention prepends tokens (``text_states``).
            deterministic: False in training.

        Returns:
            The states after reading the memory; the memory's state after the
            segment.
        """
        if not state:
            return x, state
        # a compressive memory stores the input of self-attention
        hidden = attention_input
        if self.stack.memory.memory == "attentive":
            # The memory is read by a sublayer between self-attention and the
            # next one, with a norm and a residual.
            query = self.sublayer_input(self.memory_norm, x)
            read = self.memory.read(query, memories[-1], deterministic)
            x = self.add_residual(self.memory_norm, x, read, deterministic)
            if self.stack.memory.memory_hidden == "raw":
                hidden = attended
            else:
                hidden = query
        # Without prepended global tokens, which are not part of the document.
        hidden = self.text_states(hidden, mask.shape[1])
        return x, self.memory.advance(state, memories, hidden, mask)

    def text_states(
        self, x: Float[AnyArray, "batch length d_model"], length: int
    ) -> Float[AnyArray, "batch text_length d_model"]:
        """Returns the states of the tokens that a memory stores."""
        return x


def stack_of(stack: StackConfig, spec: LayerSpec) -> StackConfig:
    """Returns the config of a stack whose layers are all like ``spec``."""
    memory = stack.memory
    if spec.attention:
        stack = stack.with_attention(spec.attention)
    if not spec.memory:
        memory = dataclasses.replace(memory, memory="none")
    rotary = () if spec.rotary is None else (spec.rotary,)
    windows = (spec.window,) if spec.window else ()
    return dataclasses.replace(
        stack,
        memory=memory,
        rotary=rotary,
        windows=windows,
        normalizes_first=spec.normalizes,
    )


def check_memory_options(
    memory: MemoryOptions,
    encoder_attention: str,
    encoder_layers: int,
    decoder_layers: int,
) -> None:
    """Checks the memory options of an encoder-decoder.

    Args:
        memory: options of the memory.
        encoder_attention: encoder attention of the model.
        encoder_layers, decoder_layers: numbers of layers.

    Raises:
        InputError: incompatible sizes, layers that do not exist, or an encoder
            attention that cannot read the extra keys that an option needs.
    """
    layers_with_memory = memory_layers(memory, encoder_layers)
    if memory.memory_decoder:
        memory_layers(memory, decoder_layers)

    layers_with_extra_keys: frozenset[int] = frozenset()
    if memory.memory == "compressive":
        if (
            memory.memory_size % 2
            or 2 * memory.memory_compression > memory.memory_size
        ):
            raise InputError(
                f"memory_size is {memory.memory_size} with memory_compression "
                f"{memory.memory_compression}; half of the slots are for compressed states: give "
                "an even size of at least twice the compression"
            )
        layers_with_extra_keys = layers_with_memory
    if memory.salient_vectors:
        layers_with_extra_keys = frozenset(range(encoder_layers))
    if layers_with_extra_keys:
        attentions = layer_attentions(encoder_attention, encoder_layers)
        names = {attentions[i] for i in layers_with_extra_keys}
        _check_extra_keys(memory, names)


def _check_extra_keys(memory: MemoryOptions, names: set[str]) -> None:
    for name in names:
        if not get_encoder_attention(name).extra_keys:
            if memory.salient_vectors:
                reader = "salient_vectors"
            else:
                reader = 'memory "compressive"'
            raise InputError(
                f'{reader}: encoder_attention "{name}" cannot read keys outside of its text; '
                'use "full" in these layers, or memory "attentive", which supports any'
            )


def empty_memory(
    stack: StackConfig,
    groups: tuple[LayerGroup, ...],
    batch: int,
    length: int,
    pending: int,
) -> StackMemory:
    """Returns a stack's memories before the first segment, see ``layers.memory.empty_state``."""
    states: list[MemoryState | tuple[()]] = []
    for group in groups:
        if group.spec.memory:
            states.append(
                empty_state(stack, group.size, batch, length, pending)
            )
        else:
            states.append(())
    return tuple(states)
