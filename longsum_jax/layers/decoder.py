"""The transformer decoder: its layer, its cache, and the stack."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from longsum_jax.layers.attention.cross import CrossAttention, get_cross_attention
from longsum_jax.layers.attention.multi_head import Attention, RelativePositionBias
from longsum_jax.layers.layer import Layer, StackMemory, empty_memory, layers_like
from longsum_jax.layers.layer_groups import LayerGroup, LayerKind, layer_groups
from longsum_jax.layers.memory import LOSSES, MemoryState, memory_layers
from longsum_jax.layers.partitioning import constrain
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.blockwise import KeySet, attend_key_sets
from longsum_jax.ops.attention.dense import prepend_keys
from longsum_jax.typing import Array

# Above this size, keys and values of the encoder are not kept: every step attends to the encoder
# states themselves.
MAX_CROSS_CACHE_BYTES = 2**31


class KeyValueCache(NamedTuple):
    """Keys and values in the order of axes that a decoding step multiplies with, so that no step
    transposes them."""

    k: Array  # [..., H, K, M]
    v: Array  # [..., H, K, M]

    @classmethod
    def of(cls, k: Array, v: Array) -> "KeyValueCache":
        """Of [..., M, H, K] each."""
        return cls(jnp.moveaxis(k, -3, -1), jnp.moveaxis(v, -3, -1))

    def read(self) -> tuple[Array, Array]:
        """[..., M, H, K] each."""
        return jnp.moveaxis(self.k, -1, -3), jnp.moveaxis(self.v, -1, -3)

    def written(self, k: Array, v: Array, position: Array) -> "KeyValueCache":
        """With [..., H, K] each at a position of M."""
        write = lambda kept, x: lax.dynamic_update_slice_in_dim(
            kept, x[..., None], position, x.ndim
        )
        return KeyValueCache(write(self.k, k), write(self.v, v))


class LayerCache(NamedTuple):
    """What one layer keeps while decoding R beams per row.

    Each layer has arrays of its own, parameters included: slices of stacked arrays would be copied
    at every step.
    """

    params: Any
    own: KeyValueCache  # [B, R, ...], T positions
    source: KeyValueCache | None  # [B, ...], M positions, whatever the number of beams
    memory: (
        tuple[KeyValueCache, Array] | tuple[()]
    )  # [B, ...], m positions, and which of them there are, bool [B, m]


class DecoderCache(NamedTuple):
    """What decoding keeps; parameters are those that ``init_cache`` was called with.

    The encoder side is stored as keys and values of every layer, M of each head (which may be fewer
    than L, see ``layers.attention.cross``), or, where those would take more than
    MAX_CROSS_CACHE_BYTES, as its states alone.
    """

    position: Array  # int32 [], tokens decoded so far
    layers: tuple[LayerCache, ...]
    states: Array | None  # [B, L, D]
    mask: Array  # bool [B, 1 or H, 1, M], keys that may be seen

    @property
    def length(self) -> int:
        """T, tokens that there is room for."""
        return self.layers[0].own.k.shape[-1]

    def reorder(self, beams: Array) -> "DecoderCache":
        """Row b, beam r continues old beam ``beams[b, r]``; for P pages a row, ``beams`` are those
        of every P-th."""
        index = jnp.repeat(beams, len(self.mask) // len(beams), 0)[:, :, None, None, None]
        take = lambda x: jnp.take_along_axis(x, index, axis=1, mode="promise_in_bounds")  # noqa: E731
        return self._replace(
            layers=tuple(x._replace(own=jax.tree.map(take, x.own)) for x in self.layers)
        )


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
        """All positions at once: x [B, T, D]; bias [1, H, T, T]; bool masks [1, 1, T, T] and [B, 1
        or H, 1, M].

        ``valid``, bool [B, T], are the positions that a memory may keep. Returns x and the memory's
        next state.
        """
        u = self.before(self.self_norm, x)
        recalled, further = self.recall(state)
        k, v = self.self_attention.project_kv(u)
        if further is not None:
            kept = *self.self_attention.keys_values_of(further), further.valid
            k, v, mask, bias = prepend_keys(k, v, mask, bias, kept)
        y = self.self_attention.attend(u, k, v, mask=mask, bias=bias, deterministic=deterministic)
        x, state = self.after_self_attention(x, u, y, (state, recalled, valid), deterministic)
        k, v = self.cross_attention.project_kv(encoder_states)
        u = self.before(self.cross_norm, x)
        y = self.cross_attention.attend(u, k, v, mask=cross_mask, deterministic=deterministic)
        x = self.after(self.cross_norm, x, y, deterministic)
        y = self.feed_forward(self.before(self.ff_norm, x), deterministic)
        x = self.after(self.ff_norm, x, y, deterministic)
        return constrain(x, "batch", "length", "act_embed"), state

    def empty_cache(
        self,
        encoder_states: Array | None,
        size: tuple[int, int, int],
        memory: MemoryState | tuple[()],
    ) -> tuple[KeyValueCache, KeyValueCache | None, tuple[KeyValueCache, Array] | tuple[()]]:
        """``LayerCache`` of ``size`` B, R, T at the start, without the parameters; without
        ``source`` for None."""
        s = self.stack
        empty = jnp.zeros((*size, s.num_heads, s.d_kv), s.dtype)
        source = (
            None
            if encoder_states is None
            else KeyValueCache.of(*self.cross_attention.project_kv(encoder_states))
        )
        return KeyValueCache.of(empty, empty), source, self._memory_keys(memory) if memory else ()

    def _memory_keys(self, memory: MemoryState) -> tuple[KeyValueCache, Array]:
        (*_, slots), further = self.recall(memory)
        kept = (
            self.memory.project_kv(slots)
            if further is None
            else self.self_attention.keys_values_of(further)
        )
        return KeyValueCache.of(*kept), slots.valid

    def step(
        self,
        x: Array,
        cache: LayerCache,
        states: Array | None,
        bias: Array | None,
        mask: Array,
        cross_mask: Array,
        position: Array,
    ) -> tuple[Array, KeyValueCache]:
        """One token for every beam: x [B, R, D]; bias [1, H, 1, T]; masks [1, 1, 1, T] and [B, 1 or
        H, 1, M].

        Returns x and the layer's own keys and values with those of the token.
        """
        u = self.before(self.self_norm, x)
        own = cache.own.written(*self.self_attention.project_kv(u), position)
        compressive = self.stack.memory.memory == "compressive"
        y = self._attend_beams(u, own, mask, bias, cache.memory if compressive else ())
        x = self.after(self.self_norm, x, y)
        # Beams stand in the place of target positions: they share one set of keys, of the memory
        # and of the encoder.
        if cache.memory and not compressive:
            y = self.memory.attention.attend(
                self.before(self.memory_norm, x), *cache.memory[0].read()
            )
            x = self.after(self.memory_norm, x, y)
        u = self.before(self.cross_norm, x)
        if cache.source is None:
            y = self.cross_attention.attend_absorbed(u, states, mask=cross_mask)
        else:
            y = self.cross_attention.attend(u, *cache.source.read(), mask=cross_mask)
        x = self.after(self.cross_norm, x, y)
        y = self.feed_forward(self.before(self.ff_norm, x))
        return self.after(self.ff_norm, x, y), own

    def _attend_beams(
        self,
        u: Array,
        own: KeyValueCache,
        mask: Array,
        bias: Array | None,
        memory: tuple[KeyValueCache, Array] | tuple[()],
    ) -> Array:
        """Self-attention of every beam to its own tokens, and of all of them to a memory."""
        rows, beams, width = u.shape
        attention = self.self_attention
        if not memory:
            k, v = jax.tree.map(lambda y: y.reshape(rows * beams, *y.shape[2:]), own).read()
            return attention.attend(
                u.reshape(rows * beams, 1, width), k, v, mask=mask, bias=bias
            ).reshape(u.shape)
        kept, valid = memory
        tokens = KeySet(*own.read(), mask[:, None], None if bias is None else bias[:, None])
        sets = [KeySet(*kept.read(), valid[:, None, None, None]), tokens]
        return attention.o(
            attend_key_sets(attention.q(u)[:, :, None], sets, scale=attention.scale)[:, :, 0]
        )


class Decoder(nn.Module):
    """Scanned decoder layers, T5's relative position bias if there is one, and a final norm."""

    stack: StackConfig

    def setup(self) -> None:
        s = self.stack
        for group in self.groups:
            setattr(self, group.name, self._make_layers(group))
        if s.relative_attention:
            self.relative_attention_bias = RelativePositionBias(
                s.num_heads, *s.relative_attention, bidirectional=False
            )
        if s.final_norm:
            self.final_norm = s.make_norm()
        self.dropout = nn.Dropout(s.dropout_rate)
        self.output_dropout = nn.Dropout(s.output_dropout_rate)

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        own = memory_layers(self.stack.memory, self.stack.num_layers)
        return layer_groups([LayerKind("", i in own) for i in range(self.stack.num_layers)])

    def _make_layers(self, group: LayerGroup) -> nn.Module:
        layer = nn.remat(
            DecoderLayer,
            static_argnums=(6,),
            prevent_cse=False,
            policy=self.stack.kept_for_gradients,
        )
        return nn.scan(
            layer,
            variable_axes={"params": 0, LOSSES: 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(*(nn.broadcast,) * 5, 0, nn.broadcast),
            length=group.size,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )(layers_like(self.stack, group.kind))

    @property
    def _single_layers(self) -> list[DecoderLayer]:
        """Every layer by itself, without its parameters."""
        kinds = [group.kind for group in self.groups for _ in range(group.size)]
        return [DecoderLayer(layers_like(self.stack, kind), parent=None) for kind in kinds]

    def empty_memory(self, rows: int, length: int, waiting: int = 0) -> StackMemory:
        """What the layers remember before the first segment; see ``layers.memory.empty_state``."""
        return empty_memory(self.stack, self.groups, rows, length, waiting)

    def __call__(
        self, x: Array, encoder_states: Array, encoder_mask: Array, deterministic: bool = True
    ) -> Array:
        """Embeddings [B, T, D], encoder states [B, L, D] and bool mask [B, L] -> states [B, T,
        D]."""
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
        """The states of a segment's target, as ``__call__`` gives them, and what the layers
        remember after it.

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
        return self.output_dropout(self._normalised(x), deterministic=deterministic), tuple(
            remembered
        )

    def init_cache(
        self,
        encoder_states: Array,
        encoder_mask: Array,
        beams: int,
        length: int,
        memory: StackMemory | None = None,
    ) -> DecoderCache:
        """Cache for decoding up to ``length`` tokens with R ``beams`` per row; all beams share the
        memory."""
        s = self.stack
        rows, source = encoder_states.shape[:2]
        size = 2 * s.num_layers * rows * self.cross.num_keys(s, source) * s.num_heads * s.d_kv
        encoder_states, mask = self.cross.prepare(s, encoder_states, encoder_mask)
        large = size * jnp.dtype(s.dtype).itemsize > MAX_CROSS_CACHE_BYTES
        read, states = (None, encoder_states) if large else (encoder_states, None)
        memory = self.empty_memory(rows, 0) if memory is None else memory
        layers = []
        for layer, (params, state) in zip(self._single_layers, self._by_layer(memory), strict=True):
            kept = layer.apply(
                {"params": params}, read, (rows, beams, length), state, method="empty_cache"
            )
            layers.append(LayerCache(params, *kept))
        return DecoderCache(jnp.zeros((), jnp.int32), tuple(layers), states, mask)

    def _by_layer(self, memory: StackMemory) -> Iterator[tuple[Any, MemoryState | tuple[()]]]:
        """Parameters and memory of every layer."""
        for group, state in zip(self.groups, memory, strict=True):
            stacked = nn.meta.unbox(self.variables["params"][group.name]), state
            for i in range(group.size):
                yield jax.tree.map(lambda x: x[i], stacked)  # noqa: B023

    def step(self, x: Array, cache: DecoderCache) -> tuple[Array, DecoderCache]:
        """Embeddings [B, R, D] of the newest token of every beam -> states [B, R, D] and the longer
        cache."""
        positions = jnp.arange(cache.length)
        bias = self._bias(cache.position[None], positions)
        seen = (positions <= cache.position)[None, None, None]
        arrays = cache.states, bias, seen, cache.mask, cache.position
        layers = []
        for layer, kept in zip(self._single_layers, cache.layers, strict=True):
            x, own = layer.apply({"params": kept.params}, x, kept, *arrays, method="step")
            layers.append(kept._replace(own=own))
        return self._normalised(x), cache._replace(
            position=cache.position + 1, layers=tuple(layers)
        )

    @property
    def cross(self) -> CrossAttention:
        return get_cross_attention(self.stack.cross, self.stack.num_heads)

    def _bias(self, query_positions: Array, key_positions: Array) -> Array | None:
        if not self.stack.relative_attention:
            return None
        return self.relative_attention_bias(query_positions, key_positions)

    def _normalised(self, x: Array) -> Array:
        return self.final_norm(x) if self.stack.final_norm else x
