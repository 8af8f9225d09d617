"""Encoder and decoder stacks of transformer layers, scanned over layers, with a cache for decoding.

One stack serves every family: T5's pre-norm with relative positions, BART's and BERT's post-norm, PEGASUS' pre-norm.
What differs is in ``StackConfig``; what an encoder layer looks at is in ``layers.encoder_attention``. Where layers
differ from one another, every run of equal ones is scanned by itself, see ``layers.groups``.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from longsum_jax.layers.attention import Attention, FurtherKeys, RelativePositionBias
from longsum_jax.layers.common import Linear, constrain, map_over_length
from longsum_jax.layers.cross_attention import CrossAttention, get_cross_attention
from longsum_jax.layers.encoder_attention import get_encoder_attention
from longsum_jax.layers.groups import LayerGroup, LayerKind, layer_groups, layer_kinds
from longsum_jax.layers.memory import MemoryState, memory_layers
from longsum_jax.layers.residual import Layer, StackMemory, empty_memory, layers_like
from longsum_jax.layers.s4d import KERNELS
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention import with_further_keys
from longsum_jax.ops.key_sets import KeySet, attend_key_sets
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
            make = lambda: Linear((s.d_model,) * 2, ("embed", "act_embed"), _identity, dtype=s.dtype)  # noqa: E731
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

        ``layer_input`` and ``context`` as the attention's ``begin`` gave them, ``mask`` bool [B, L], ``salient`` as for
        the encoder.
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

    def _salient_keys(self, salient: tuple[Array, Array] | None) -> FurtherKeys | None:
        if salient is None:
            return None
        states, valid = salient
        keys, *values = (linear(states) for linear in self.salient_maps)
        return FurtherKeys(keys, values[0] if values else keys, valid)


def _identity(key: Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> Array:
    return jnp.eye(*shape, dtype=dtype)


def _joined_keys(*parts: FurtherKeys | None) -> FurtherKeys | None:
    found = [part for part in parts if part is not None]
    if len(found) < 2:
        return found[0] if found else None
    return FurtherKeys(*(jnp.concatenate(arrays, 1) for arrays in zip(*found, strict=True)))


class Encoder(nn.Module):
    """Scanned layers around what the attention needs once: masks, biases, global tokens."""

    stack: StackConfig

    def setup(self) -> None:
        s = self.stack
        for group in self.groups:
            setattr(self, group.name, self._make_layers(group))
        self.attention = get_encoder_attention(s.options).make_context(s)
        if s.relative_attention:
            self.relative_attention_bias = RelativePositionBias(s.num_heads, *s.relative_attention, bidirectional=True)
        if s.final_norm:
            self.final_norm = s.make_norm()
        self.dropout = nn.Dropout(s.dropout_rate)
        self.output_dropout = nn.Dropout(s.output_dropout_rate)

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        s = self.stack
        attentions, own = layer_kinds(s.options.encoder_attention, s.num_layers), memory_layers(s.memory, s.num_layers)
        return layer_groups([LayerKind(attention, i in own) for i, attention in enumerate(attentions)])

    def _make_layers(self, group: LayerGroup) -> nn.Module:
        layer = EncoderLayer
        if self.stack.remat:
            layer = nn.remat(EncoderLayer, static_argnums=(4,), prevent_cse=False)
        return nn.scan(
            layer,
            variable_axes={"params": 0, KERNELS: 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(0, nn.broadcast, nn.broadcast, 0, nn.broadcast, nn.broadcast),
            length=group.size,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )(layers_like(self.stack, group.kind))

    def empty_memory(self, rows: int, length: int, waiting: int = 0) -> StackMemory:
        """What the layers remember before the first segment; see ``layers.memory.empty_state``."""
        return empty_memory(self.stack, self.groups, rows, length, waiting)

    def __call__(self, x: Array, mask: Array, deterministic: bool = True, **inputs: Any) -> Array:
        """Embeddings [B, L, D], bool mask [B, L], further ``inputs`` as for ``with_memory`` -> states [B, L, D].

        With ``pass_global_tokens_to_decoder`` the states are [B, G + L, D].
        """
        return self.with_memory(x, mask, self.empty_memory(*x.shape[:2]), deterministic, **inputs)[0]

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
        """The states of a segment, as ``__call__`` gives them, and what the layers remember after it.

        Args:
            salient: states of important tokens elsewhere [B, m, D], and which there are, bool [B, m]; for encoders with
                ``salient_vectors``.
            embedding_norm: the norm that the embeddings went through, for tokens that the attention adds.
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
            x, state = getattr(self, group.name)(x, own, shared, deterministic, state, mask, salient)
            remembered.append(state)
        x = self.attention.end(x, length)
        if self.stack.final_norm:
            x = self.final_norm(x)
        return self.output_dropout(x, deterministic=deterministic), tuple(remembered)


# Above this size, keys and values of the encoder are not kept: every step attends to the encoder states themselves.
MAX_CROSS_CACHE_BYTES = 2**31


class DecoderCache(NamedTuple):
    """What N layers keep while decoding R beams per row.

    The encoder side is stored once per row, whatever the number of beams: as keys and values of every layer, M of
    each head (which may be fewer than L, see ``layers.cross_attention``), or, where those would take more than
    MAX_CROSS_CACHE_BYTES, as the encoder states alone.
    """

    position: Array  # int32 [], tokens decoded so far
    self_k: Array  # [N, B, R, T, H, K]
    self_v: Array  # [N, B, R, T, H, K]
    cross_k: Array | None  # [N, B, M, H, K]
    cross_v: Array | None  # [N, B, M, H, K]
    states: Array | None  # [B, L, D]
    mask: Array  # bool [B, 1 or H, 1, M], keys that may be seen
    memory: tuple[Any, ...] = ()  # of each group of layers: keys, values [n, B, m, H, K] and bool [n, B, m], or ()

    def reorder(self, beams: Array) -> "DecoderCache":
        """Row b, beam r continues old beam ``beams[b, r]``; for P pages a row, ``beams`` are those of every P-th."""
        beams = jnp.repeat(beams, self.self_k.shape[1] // len(beams), 0)
        index = beams[None, :, :, None, None, None]
        take = lambda x: jnp.take_along_axis(x, index, axis=2)  # noqa: E731
        return self._replace(self_k=take(self.self_k), self_v=take(self.self_v))


class DecoderLayer(Layer):
    """Self-attention, cross-attention and feed-forward."""

    def setup(self) -> None:
        s = self.stack
        self.self_norm, self.cross_norm, self.ff_norm = (s.make_norm() for _ in range(3))
        self.self_attention = Attention(**s.attention_fields)
        self.cross_attention = get_cross_attention(s.cross, s.num_heads).make_layer(s)
        self.feed_forward = s.make_feed_forward()
        self.dropout = nn.Dropout(s.dropout_rate)
        self.make_memory()

    def __call__(
        self,
        x: Array,
        encoder_states: Array,
        bias: Array | None,
        mask: Array,
        cross_mask: Array,
        deterministic: bool,
        state: MemoryState | tuple[()],
        valid: Array,
    ):
        """All positions at once: x [B, T, D]; bias [1, H, T, T]; bool masks [1, 1, T, T] and [B, 1 or H, 1, M].

        ``valid``, bool [B, T], are the positions that a memory may keep. Returns x and the memory's next state.
        """
        u = self.before(self.self_norm, x)
        recalled, further = self.recall(state)
        k, v = self.self_attention.keys_values(u)
        if further is not None:
            kept = *self.self_attention.keys_values_of(further), further.valid
            k, v, mask, bias = with_further_keys(k, v, mask, bias, kept)
        y = self.self_attention.attend(u, k, v, mask=mask, bias=bias, deterministic=deterministic)
        x, state = self.after_self_attention(x, u, y, (state, recalled, valid), deterministic)
        k, v = self.cross_attention.keys_values(encoder_states)
        u = self.before(self.cross_norm, x)
        y = self.cross_attention.attend(u, k, v, mask=cross_mask, deterministic=deterministic)
        x = self.after(self.cross_norm, x, y, deterministic)
        y = self.feed_forward(self.before(self.ff_norm, x), deterministic)
        x = self.after(self.ff_norm, x, y, deterministic)
        return constrain(x, "batch", "length", "act_embed"), state

    def memory_keys_values(self, carry: Any, state: MemoryState) -> tuple[Any, tuple[Array, Array, Array]]:
        """Keys and values of the memory [B, m, H, K] and which there are, bool [B, m], computed once per segment."""
        (*_, slots), further = self.recall(state)
        kept = self.memory.keys_values(slots) if further is None else self.self_attention.keys_values_of(further)
        return carry, (*kept, slots.valid)

    def encoder_keys_values(self, encoder_states: Array) -> tuple[Array, tuple[Array, Array]]:
        """Cross-attention keys and values [B, M, H, K], computed once per document."""
        return encoder_states, self.cross_attention.keys_values(encoder_states)

    def step(
        self,
        x: Array,
        layer_cache: tuple[Array | None, ...],
        states: Array | None,
        bias: Array | None,
        mask: Array,
        cross_mask: Array,
        position: Array,
    ):
        """One token for every beam: x [B, R, D]; bias [1, H, 1, T]; masks [1, 1, 1, T] and [B, 1 or H, 1, M]."""
        self_k, self_v, cross_k, cross_v, memory = layer_cache
        u = self.before(self.self_norm, x)
        new_k, new_v = self.self_attention.keys_values(u)
        self_k = lax.dynamic_update_slice_in_dim(self_k, new_k[:, :, None], position, 2)
        self_v = lax.dynamic_update_slice_in_dim(self_v, new_v[:, :, None], position, 2)
        compressive = self.stack.memory.memory == "compressive"
        y = self._attend_beams(u, self_k, self_v, mask, bias, memory if compressive else ())
        x = self.after(self.self_norm, x, y)
        # Beams stand in the place of target positions: they share one set of keys, of the memory and of the encoder.
        if memory and not compressive:
            y = self.memory.attention.attend(self.before(self.memory_norm, x), *memory[:2])
            x = self.after(self.memory_norm, x, y)
        u = self.before(self.cross_norm, x)
        if states is None:
            y = self.cross_attention.attend(u, cross_k, cross_v, mask=cross_mask)
        else:
            y = self.cross_attention.attend_unprojected(u, states, mask=cross_mask)
        x = self.after(self.cross_norm, x, y)
        y = self.feed_forward(self.before(self.ff_norm, x))
        return self.after(self.ff_norm, x, y), (self_k, self_v)

    def _attend_beams(
        self, u: Array, k: Array, v: Array, mask: Array, bias: Array | None, memory: tuple[Array, ...]
    ) -> Array:
        """Self-attention of every beam to its own tokens, and of all of them to a memory."""
        rows, beams, width = u.shape
        attention = self.self_attention
        if not memory:
            k, v = (y.reshape(rows * beams, *y.shape[2:]) for y in (k, v))
            return attention.attend(u.reshape(rows * beams, 1, width), k, v, mask=mask, bias=bias).reshape(u.shape)
        *kept, valid = memory
        own = KeySet(k, v, mask[:, None], None if bias is None else bias[:, None])
        sets = [KeySet(*kept, valid[:, None, None, None]), own]
        return attention.o(attend_key_sets(attention.q(u)[:, :, None], sets, scale=attention.scale)[:, :, 0])


class Decoder(nn.Module):
    """Scanned decoder layers, T5's relative position bias if there is one, and a final norm."""

    stack: StackConfig

    def setup(self) -> None:
        s = self.stack
        for group in self.groups:
            setattr(self, group.name, self._make_layers(group))
        if s.relative_attention:
            self.relative_attention_bias = RelativePositionBias(s.num_heads, *s.relative_attention, bidirectional=False)
        if s.final_norm:
            self.final_norm = s.make_norm()
        self.dropout = nn.Dropout(s.dropout_rate)
        self.output_dropout = nn.Dropout(s.output_dropout_rate)

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        own = memory_layers(self.stack.memory, self.stack.num_layers)
        return layer_groups([LayerKind("", i in own) for i in range(self.stack.num_layers)])

    def _make_layers(self, group: LayerGroup) -> nn.Module:
        layer = DecoderLayer
        if self.stack.remat:
            layer = nn.remat(DecoderLayer, static_argnums=(6,), prevent_cse=False)
        scanned = {"variable_axes": {"params": 0}, "length": group.size}
        scanned["metadata_params"] = {nn.PARTITION_NAME: "layers"}
        scanned["split_rngs"] = {"params": True, "dropout": True}
        return nn.scan(
            layer,
            methods={
                "__call__": scanned | {"in_axes": (*(nn.broadcast,) * 5, 0, nn.broadcast)},
                "encoder_keys_values": scanned,
                "memory_keys_values": scanned | {"in_axes": 0},
                # Unrolled: slices of stacked weights then happen once, outside the decoding loop.
                "step": scanned | {"in_axes": (0, *(nn.broadcast,) * 5), "unroll": group.size},
            },
        )(layers_like(self.stack, group.kind))

    def empty_memory(self, rows: int, length: int, waiting: int = 0) -> StackMemory:
        """What the layers remember before the first segment; see ``layers.memory.empty_state``."""
        return empty_memory(self.stack, self.groups, rows, length, waiting)

    def __call__(self, x: Array, encoder_states: Array, encoder_mask: Array, deterministic: bool = True) -> Array:
        """Embeddings [B, T, D], encoder states [B, L, D] and bool mask [B, L] -> states [B, T, D]."""
        memory, valid = self.empty_memory(*x.shape[:2]), jnp.ones(x.shape[:2], bool)
        return self.with_memory(x, valid, encoder_states, encoder_mask, memory, deterministic)[0]

    def with_memory(
        self,
        x: Array,
        valid: Array,
        encoder_states: Array,
        encoder_mask: Array,
        memory: StackMemory,
        deterministic: bool = True,
    ) -> tuple[Array, StackMemory]:
        """The states of a segment's target, as ``__call__`` gives them, and what the layers remember after it.

        ``valid``, bool [B, T], are the positions to be remembered.
        """
        positions = jnp.arange(x.shape[1])
        causal = (positions[:, None] >= positions[None, :])[None, None]
        x = self.dropout(x, deterministic=deterministic)
        bias = self._bias(positions, positions)
        encoder_states, cross_mask = self.cross.prepare(self.stack, encoder_states, encoder_mask)
        remembered = []
        for group, state in zip(self.groups, memory, strict=True):
            arrays = x, encoder_states, bias, causal, cross_mask
            x, state = getattr(self, group.name)(*arrays, deterministic, state, valid)
            remembered.append(state)
        return self.output_dropout(self._normalised(x), deterministic=deterministic), tuple(remembered)

    def init_cache(
        self, encoder_states: Array, encoder_mask: Array, beams: int, length: int, memory: StackMemory | None = None
    ) -> DecoderCache:
        """Cache for decoding up to ``length`` tokens with R ``beams`` per row; all beams share the memory."""
        s = self.stack
        rows, source = encoder_states.shape[:2]
        empty = jnp.zeros((s.num_layers, rows, beams, length, s.num_heads, s.d_kv), s.dtype)
        size = 2 * s.num_layers * rows * self.cross.num_keys(s, source) * s.num_heads * s.d_kv * empty.dtype.itemsize
        encoder_states, mask = self.cross.prepare(s, encoder_states, encoder_mask)
        cross_k = cross_v = states = None
        if size <= MAX_CROSS_CACHE_BYTES:
            kept = [getattr(self, group.name).encoder_keys_values(encoder_states)[1] for group in self.groups]
            cross_k, cross_v = _joined_layers(kept)
        else:
            states = encoder_states
        memory = self.empty_memory(rows, 0) if memory is None else memory
        groups = zip(self.groups, memory, strict=True)
        read = tuple(getattr(self, g.name).memory_keys_values((), state)[1] if state else () for g, state in groups)
        return DecoderCache(jnp.zeros((), jnp.int32), empty, empty, cross_k, cross_v, states, mask, read)

    def step(self, x: Array, cache: DecoderCache) -> tuple[Array, DecoderCache]:
        """Embeddings [B, R, D] of the newest token of every beam -> states [B, R, D] and the longer cache."""
        positions = jnp.arange(cache.self_k.shape[3])
        bias = self._bias(cache.position[None], positions)
        seen = (positions <= cache.position)[None, None, None]
        kept = []
        for group, memory in zip(self.groups, cache.memory, strict=True):
            own = (*group.rows((cache.self_k, cache.self_v, cache.cross_k, cache.cross_v)), memory)
            x, new = getattr(self, group.name).step(x, own, cache.states, bias, seen, cache.mask, cache.position)
            kept.append(new)
        self_k, self_v = _joined_layers(kept)
        return self._normalised(x), cache._replace(position=cache.position + 1, self_k=self_k, self_v=self_v)

    @property
    def cross(self) -> CrossAttention:
        return get_cross_attention(self.stack.cross, self.stack.num_heads)

    def _bias(self, query_positions: Array, key_positions: Array) -> Array | None:
        if not self.stack.relative_attention:
            return None
        return self.relative_attention_bias(query_positions, key_positions)

    def _normalised(self, x: Array) -> Array:
        return self.final_norm(x) if self.stack.final_norm else x


def _joined_layers(groups: list[Any]) -> Any:
    """Pytrees with one row per layer of a group as one for all layers."""
    return groups[0] if len(groups) == 1 else jax.tree.map(lambda *rows: jnp.concatenate(rows), *groups)
