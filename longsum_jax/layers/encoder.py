"""The transformer encoder: its layer, and the stack."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.layers.attention.multi_head import ExtraKeyValues, RelativePositionBias
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.chunking import map_over_length
from longsum_jax.layers.dense import Linear
from longsum_jax.layers.layer import Layer, StackMemory, empty_memory, layers_like
from longsum_jax.layers.layer_groups import LayerGroup, LayerKind, layer_groups, layer_kinds
from longsum_jax.layers.memory import LOSSES, MemoryState, memory_layers
from longsum_jax.layers.partitioning import constrain
from longsum_jax.layers.s4d import KERNELS
from longsum_jax.layers.stack import StackConfig
from longsum_jax.typing import Array


class EncoderLayer(Layer):
    """Self-attention (or what takes its place) and feed-forward."""

    def setup(self) -> None:
        s = self.stack
        kind = get_encoder_attention(s.options)
        self.self_norm = kind.make_norm(s)
        self.self_attention = kind.make_layer(s)
        self.ff_norm = s.make_norm()
        self.feed_forward = s.make_feed_forward()
        self.dropout = nn.Dropout(s.dropout_rate)
        self.make_memory()
        if s.memory.salient_vectors:
            count = {"shared": 1, "separate": 2}[s.memory.salient_projection]
            make = lambda: Linear(
                (s.d_model,) * 2, ("embed", "act_embed"), _identity, dtype=s.dtype
            )
            self.salient_maps = [make() for _ in range(count)]

    def __call__(
        self,
        x: Array,
        layer_input: Any,
        context: Any,
        deterministic: bool,
        state: MemoryState | tuple[()],
        mask: Array,
        salient: tuple[Array, Array] | None,
    ):
        """x [B, L, D] and a memory's state -> both after the layer.

        ``layer_input`` and ``context`` as the attention's ``begin`` gave them, ``mask`` bool [B,
        L], ``salient`` as for the encoder.
        """
        u = self.before(self.self_norm, x)
        recalled, further = self.recall(state)
        further = _joined_keys(further, self._salient_keys(salient))
        more = {} if further is None else {"further": further}
        y = self.self_attention(u, context, layer_input, deterministic, **more)
        x, state = self.after_self_attention(x, u, y, (state, recalled, mask), deterministic)

        def feed_forward(layer: EncoderLayer, x: Array) -> Array:
            y = layer.feed_forward(layer.before(layer.ff_norm, x), deterministic)
            return layer.after(layer.ff_norm, x, y, deterministic)

        x = map_over_length(self, feed_forward, self.stack.length_chunk, x)
        return constrain(x, "batch", "length", "act_embed"), state

    def _salient_keys(self, salient: tuple[Array, Array] | None) -> ExtraKeyValues | None:
        if salient is None:
            return None
        states, valid = salient
        keys, *values = (linear(states) for linear in self.salient_maps)
        return ExtraKeyValues(keys, values[0] if values else keys, valid)


def _identity(key: Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> Array:
    return jnp.eye(*shape, dtype=dtype)


def _joined_keys(*parts: ExtraKeyValues | None) -> ExtraKeyValues | None:
    found = [part for part in parts if part is not None]
    if len(found) < 2:
        return found[0] if found else None
    return ExtraKeyValues(*(jnp.concatenate(arrays, 1) for arrays in zip(*found, strict=True)))


class Encoder(nn.Module):
    """Scanned layers around what the attention needs once: masks, biases, global tokens."""

    stack: StackConfig

    def setup(self) -> None:
        s = self.stack
        for group in self.groups:
            setattr(self, group.name, self._make_layers(group))
        self.attention = get_encoder_attention(s.options).make_context(s)
        if s.relative_attention:
            self.relative_attention_bias = RelativePositionBias(
                s.num_heads, *s.relative_attention, bidirectional=True
            )
        if s.final_norm:
            self.final_norm = s.make_norm()
        self.dropout = nn.Dropout(s.dropout_rate)
        self.output_dropout = nn.Dropout(s.output_dropout_rate)

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        s = self.stack
        attentions, own = (
            layer_kinds(s.options.encoder_attention, s.num_layers),
            memory_layers(s.memory, s.num_layers),
        )
        return layer_groups(
            [LayerKind(attention, i in own) for i, attention in enumerate(attentions)]
        )

    def _make_layers(self, group: LayerGroup) -> nn.Module:
        layer = nn.remat(
            EncoderLayer,
            static_argnums=(4,),
            prevent_cse=False,
            policy=self.stack.kept_for_gradients,
        )
        return nn.scan(
            layer,
            variable_axes={"params": 0, KERNELS: 0, LOSSES: 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(0, nn.broadcast, nn.broadcast, 0, nn.broadcast, nn.broadcast),
            length=group.size,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )(layers_like(self.stack, group.kind))

    def empty_memory(self, rows: int, length: int, waiting: int = 0) -> StackMemory:
        """What the layers remember before the first segment; see ``layers.memory.empty_state``."""
        return empty_memory(self.stack, self.groups, rows, length, waiting)

    def __call__(self, x: Array, mask: Array, deterministic: bool = True, **inputs: Any) -> Array:
        """Embeddings [B, L, D], bool mask [B, L], further ``inputs`` as for ``with_memory`` ->
        states [B, L, D].

        With ``pass_global_tokens_to_decoder`` the states are [B, G + L, D].
        """
        return self.with_memory(x, mask, self.empty_memory(*x.shape[:2]), deterministic, **inputs)[
            0
        ]

    def with_memory(
        self,
        x: Array,
        mask: Array,
        memory: StackMemory,
        deterministic: bool = True,
        *,
        salient: tuple[Array, Array] | None = None,
        embedding_norm: nn.Module | None = None,
        **inputs: Any,
    ) -> tuple[Array, StackMemory]:
        """The states of a segment, as ``__call__`` gives them, and what the layers remember after
        it.

        Args:
            salient: states of important tokens elsewhere [B, m, D], and which there are, bool [B,
                m]; for encoders with ``salient_vectors``.
            embedding_norm: the norm that the embeddings went through, for tokens that the attention
                adds.
            **inputs: of the attention.
        """
        if "embedding_norm" in get_encoder_attention(self.stack.options).inputs:
            inputs["embedding_norm"] = embedding_norm
        if self.is_initializing() and self.stack.memory.salient_vectors:
            salient = x, mask
        x, length = self.dropout(x, deterministic=deterministic), x.shape[1]
        bias = self.relative_attention_bias if self.stack.relative_attention else None
        x, context, layer_inputs = self.attention.begin(x, mask, bias, deterministic, **inputs)
        remembered = []
        for group, state in zip(self.groups, memory, strict=True):
            shared, own = self.attention.part(context, layer_inputs, group)
            x, state = getattr(self, group.name)(
                x, own, shared, deterministic, state, mask, salient
            )
            remembered.append(state)
        x = self.attention.end(x, length)
        if self.stack.final_norm:
            x = self.final_norm(x)
        return self.output_dropout(x, deterministic=deterministic), tuple(remembered)
