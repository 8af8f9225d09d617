"""The transformer decoder: one layer, its cache, and the stack of layers.

Training and scoring run all target positions at once (``Decoder.__call__``), with scanned layers.
Generation runs one token at a time (``Decoder.init_cache``, ``Decoder.step``), with the layers one
by one: every array of the cache belongs to one layer, parameters included, because slices of
stacked arrays would be copied at every step.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.layers.attention.cross import CrossAttention
from longsum_jax.layers.attention.multi_head import MultiHeadAttention, RelativePositionBias
from longsum_jax.layers.attention.registry import get_cross_attention
from longsum_jax.layers.layer import Layer, StackMemory, empty_memory, stack_of
from longsum_jax.layers.layer_groups import LayerGroup, LayerSpec, layer_groups
from longsum_jax.layers.memory import LOSSES, MemoryState, memory_layers
from longsum_jax.layers.partitioning import constrain
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.blockwise import KeySet, attend_key_sets
from longsum_jax.ops.attention.dense import prepend_keys
from longsum_jax.typing import AnyArray

# Above this size, keys and values of the encoder are not stored: every step attends to the encoder
# states themselves.
MAX_CROSS_CACHE_BYTES = 2**31


class KeyValueCache(NamedTuple):
    """Keys and values with their axes in the order that a decoding step multiplies in, so that no
    step transposes them."""

    k: Float[Array, "*batch heads head_dim num_keys"]
    v: Float[Array, "*batch heads head_dim num_keys"]

    @classmethod
    def of(
        cls,
        k: Float[AnyArray, "*batch num_keys heads head_dim"],
        v: Float[AnyArray, "*batch num_keys heads head_dim"],
    ) -> "KeyValueCache":
        """Stores keys and values."""
        return cls(jnp.moveaxis(k, -3, -1), jnp.moveaxis(v, -3, -1))

    def read(
        self,
    ) -> tuple[
        Float[Array, "*batch num_keys heads head_dim"],
        Float[Array, "*batch num_keys heads head_dim"],
    ]:
        """Returns keys and values in the order of axes of ``of``."""
        return jnp.moveaxis(self.k, -1, -3), jnp.moveaxis(self.v, -1, -3)

    def write(
        self,
        k: Float[AnyArray, "*batch heads head_dim"],
        v: Float[AnyArray, "*batch heads head_dim"],
        position: Int[AnyArray, ""],
    ) -> "KeyValueCache":
        """Returns a cache with the key and value of ``position`` replaced."""

        def write_one(cached: AnyArray, new: AnyArray) -> Array:
            return lax.dynamic_update_slice_in_dim(cached, new[..., None], position, new.ndim)

        return KeyValueCache(write_one(self.k, k), write_one(self.v, v))


# Keys and values of a memory [batch, slots, ...] and which slots hold something, bool [batch,
# slots]; () without a memory.
MemoryCache = tuple[KeyValueCache, Array] | tuple[()]


class LayerCache(NamedTuple):
    """The cache of one layer while decoding several beams per row.

    Attributes:
        params: the layer's parameters.
        self_kv: [batch, beams, ...], of the tokens decoded so far; room for all.
        cross_kv: [batch, ...], of the encoder states, shared by all beams; None where steps attend
            to the states themselves.
        memory_kv: of the layer's memory, shared by all beams.
    """

    params: Any
    self_kv: KeyValueCache
    cross_kv: KeyValueCache | None
    memory_kv: MemoryCache


class DecoderCache(NamedTuple):
    """The cache of a decoder, made by ``Decoder.init_cache``.

    The source is stored as keys and values of every layer or, where those would take more than
    MAX_CROSS_CACHE_BYTES, as its encoder states alone. The number of keys of a head may be smaller
    than the source, see ``layers.attention.cross``.

    Attributes:
        position: number of tokens decoded so far.
        layers: the cache of each layer.
        states: encoder states, None where keys and values are stored.
        mask: keys of the source that may be read.
    """

    position: Int[Array, ""]
    layers: tuple[LayerCache, ...]
    states: Float[AnyArray, "batch length d_model"] | None
    mask: Bool[AnyArray, "batch mask_heads 1 num_keys"]

    @property
    def length(self) -> int:
        """Number of tokens that there is room for."""
        return self.layers[0].self_kv.k.shape[-1]

    def reorder(self, beams: Int[AnyArray, "rows beams"]) -> "DecoderCache":
        """Continues other beams: beam r of row b continues the old beam ``beams[b, r]``.

        The cache may have several rows (pages) for each row of ``beams``.
        """
        pages = len(self.mask) // len(beams)
        index = jnp.repeat(beams, pages, 0)[:, :, None, None, None]

        def take(x: AnyArray) -> Array:
            return jnp.take_along_axis(x, index, axis=1, mode="promise_in_bounds")

        layers = []
        for layer in self.layers:
            layers.append(layer._replace(self_kv=jax.tree.map(take, layer.self_kv)))
        return self._replace(layers=tuple(layers))


class DecoderLayer(Layer):
    """Self-attention, cross-attention and feed-forward, each with a residual."""

    def setup(self) -> None:
        stack = self.stack
        self.self_norm = stack.make_norm()
        self.cross_norm = stack.make_norm()
        self.ff_norm = stack.make_norm()
        self.self_attention = MultiHeadAttention(**stack.attention_fields)
        cross_attention = get_cross_attention(stack.cross, stack.num_heads)
        self.cross_attention = cross_attention.from_stack(stack)
        self.feed_forward = stack.make_feed_forward()
        self.dropout = nn.Dropout(stack.dropout_rate)
        self.make_memory()

    def __call__(
        self,
        x: Float[AnyArray, "batch target_length d_model"],
        encoder_states: Float[AnyArray, "batch length d_model"],
        bias: Float[AnyArray, "1 heads target_length target_length"] | None,
        mask: Bool[AnyArray, "1 1 target_length target_length"],
        cross_mask: Bool[AnyArray, "batch mask_heads 1 num_keys"],
        deterministic: bool,
        state: MemoryState | tuple[()],
        valid: Bool[AnyArray, "batch target_length"],
    ) -> tuple[Float[Array, "batch target_length d_model"], MemoryState | tuple[()]]:
        """Applies the layer to all positions at once.

        Args:
            x: states of the target.
            encoder_states: states of the source.
            bias: added to the scores of self-attention.
            mask: causal mask.
            cross_mask: keys of the source that may be read.
            deterministic: False in training.
            state: the memory's state, () without a memory.
            valid: positions that the memory may store.

        Returns:
            The states after the layer; the memory's state after the segment.
        """
        u = self.sublayer_input(self.self_norm, x)
        memories, extra = self.replay_memory(state)
        k, v = self.self_attention.project_kv(u)
        if extra is not None:
            extra_arrays = *self.self_attention.project_extra(extra), extra.valid
            k, v, mask, bias = prepend_keys(k, v, mask, bias, extra_arrays)
        y = self.self_attention.attend(u, k, v, mask=mask, bias=bias, deterministic=deterministic)
        x = self.add_residual(self.self_norm, x, y, deterministic)
        x, state = self.advance_memory(x, u, y, state, memories, valid, deterministic)

        k, v = self.cross_attention.project_kv(encoder_states)
        u = self.sublayer_input(self.cross_norm, x)
        y = self.cross_attention.attend(u, k, v, mask=cross_mask, deterministic=deterministic)
        x = self.add_residual(self.cross_norm, x, y, deterministic)

        u = self.sublayer_input(self.ff_norm, x)
        y = self.feed_forward(u, deterministic)
        x = self.add_residual(self.ff_norm, x, y, deterministic)
        return constrain(x, "batch", "length", "act_embed"), state

    def empty_cache(
        self,
        encoder_states: Float[AnyArray, "batch length d_model"] | None,
        size: tuple[int, int, int],
        memory: MemoryState | tuple[()],
    ) -> tuple[KeyValueCache, KeyValueCache | None, MemoryCache]:
        """Returns the fields of ``LayerCache`` after ``params``, before the first token.

        Args:
            encoder_states: None to store no keys and values of the source.
            size: batch, beams, and tokens to make room for.
            memory: the memory's state, () without a memory.
        """
        stack = self.stack
        empty = jnp.zeros((*size, stack.num_heads, stack.d_kv), stack.dtype)
        cross_kv = None
        if encoder_states is not None:
            cross_kv = KeyValueCache.of(*self.cross_attention.project_kv(encoder_states))
        self_kv = KeyValueCache.of(empty, empty)
        memory_kv = self._memory_cache(memory) if memory else ()
        return self_kv, cross_kv, memory_kv

    def _memory_cache(self, memory: MemoryState) -> tuple[KeyValueCache, Array]:
        memories, extra = self.replay_memory(memory)
        slots = memories[-1]
        if extra is None:
            k, v = self.memory.project_kv(slots)
        else:
            k, v = self.self_attention.project_extra(extra)
        return KeyValueCache.of(k, v), slots.valid

    def step(
        self,
        x: Float[AnyArray, "batch beams d_model"],
        cache: LayerCache,
        states: Float[AnyArray, "batch length d_model"] | None,
        bias: Float[AnyArray, "1 heads 1 target_length"] | None,
        mask: Bool[AnyArray, "1 1 1 target_length"],
        cross_mask: Bool[AnyArray, "batch mask_heads 1 num_keys"],
        position: Int[AnyArray, ""],
    ) -> tuple[Float[Array, "batch beams d_model"], KeyValueCache]:
        """Applies the layer to one token of every beam.

        Args:
            x: states of the tokens.
            cache: the layer's cache.
            states: encoder states, where the cache has no keys and values of them.
            bias: added to the scores of self-attention.
            mask: decoded positions, this one included.
            cross_mask: keys of the source that may be read.
            position: position of the tokens.

        Returns:
            The states after the layer; the keys and values of self-attention with these tokens'.
        """
        # No operation here may copy a weight or the keys of the source; a test reads the compiled
        # program for it.
        u = self.sublayer_input(self.self_norm, x)
        self_kv = cache.self_kv.write(*self.self_attention.project_kv(u), position)
        is_compressive = self.stack.memory.memory == "compressive"
        extra = cache.memory_kv if is_compressive else ()
        y = self._attend_beams(u, self_kv, mask, bias, extra)
        x = self.add_residual(self.self_norm, x, y)
        # Beams take the place of target positions from here on: they share one set of keys, of the
        # memory and of the encoder.
        if cache.memory_kv and not is_compressive:
            memory_kv, _ = cache.memory_kv
            u = self.sublayer_input(self.memory_norm, x)
            y = self.memory.attention.attend(u, *memory_kv.read())
            x = self.add_residual(self.memory_norm, x, y)
        u = self.sublayer_input(self.cross_norm, x)
        if cache.cross_kv is None:
            y = self.cross_attention.attend_absorbed(u, states, mask=cross_mask)
        else:
            y = self.cross_attention.attend(u, *cache.cross_kv.read(), mask=cross_mask)
        x = self.add_residual(self.cross_norm, x, y)
        y = self.feed_forward(self.sublayer_input(self.ff_norm, x))
        return self.add_residual(self.ff_norm, x, y), self_kv

    def _attend_beams(
        self,
        u: AnyArray,
        self_kv: KeyValueCache,
        mask: AnyArray,
        bias: AnyArray | None,
        memory: MemoryCache,
    ) -> Array:
        """Self-attention of every beam to its own tokens, and of all beams to a memory."""
        batch, beams, d_model = u.shape
        attention = self.self_attention
        if not memory:
            merged = jax.tree.map(lambda y: y.reshape(batch * beams, *y.shape[2:]), self_kv)
            k, v = merged.read()
            u = u.reshape(batch * beams, 1, d_model)
            y = attention.attend(u, k, v, mask=mask, bias=bias)
            return y.reshape(batch, beams, d_model)
        memory_kv, valid = memory
        k, v = self_kv.read()
        tokens = KeySet(k, v, mask[:, None], None if bias is None else bias[:, None])
        sets = [KeySet(*memory_kv.read(), valid[:, None, None, None]), tokens]
        q = attention.q(u)[:, :, None]
        y = attend_key_sets(q, sets, scale=attention.scale)
        return attention.o(y[:, :, 0])


class Decoder(nn.Module):
    """A stack of decoder layers, with T5's relative position bias and a final norm where the stack
    has them."""

    stack: StackConfig

    def setup(self) -> None:
        stack = self.stack
        for group in self.groups:
            setattr(self, group.name, self._make_layers(group))
        if stack.relative_attention:
            self.relative_attention_bias = RelativePositionBias(
                stack.num_heads, *stack.relative_attention, bidirectional=False
            )
        if stack.final_norm:
            self.final_norm = stack.make_norm()
        self.dropout = nn.Dropout(stack.dropout_rate)
        self.output_dropout = nn.Dropout(stack.output_dropout_rate)

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """Runs of equal layers: all with a memory, or all without."""
        num_layers = self.stack.num_layers
        with_memory = memory_layers(self.stack.memory, num_layers)
        return layer_groups([LayerSpec("", i in with_memory) for i in range(num_layers)])

    @property
    def cross(self) -> type[CrossAttention]:
        """Class of the cross-attention."""
        return get_cross_attention(self.stack.cross, self.stack.num_heads)

    def _make_layers(self, group: LayerGroup) -> nn.Module:
        """Makes the layers of a group as one scanned layer."""
        layer = nn.remat(
            DecoderLayer,
            static_argnums=(6,),  # deterministic
            prevent_cse=False,
            policy=self.stack.remat_policy,
        )
        scanned = nn.scan(
            layer,
            variable_axes={"params": 0, LOSSES: 0},
            split_rngs={"params": True, "dropout": True},
            # state has a row for each layer, the other arguments are shared.
            in_axes=(*(nn.broadcast,) * 5, 0, nn.broadcast),
            length=group.size,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        return scanned(stack_of(self.stack, group.spec))

    @property
    def _single_layers(self) -> list[DecoderLayer]:
        """Every layer by itself, without its parameters."""
        layers = []
        for group in self.groups:
            stack = stack_of(self.stack, group.spec)
            layers += [DecoderLayer(stack, parent=None) for _ in range(group.size)]
        return layers

    def empty_memory(self, batch: int, length: int, pending: int = 0) -> StackMemory:
        """Returns the memories before the first segment; see ``layers.memory.empty_state``."""
        return empty_memory(self.stack, self.groups, batch, length, pending)

    def __call__(
        self,
        x: Float[AnyArray, "batch target_length d_model"],
        encoder_states: Float[AnyArray, "batch length d_model"],
        encoder_mask: Bool[AnyArray, "batch length"],
        deterministic: bool = True,
    ) -> Float[Array, "batch target_length d_model"]:
        """Decodes all target positions at once.

        Args:
            x: embeddings of the target.
            encoder_states: states of the source.
            encoder_mask: True on real tokens of the source.
            deterministic: False in training.
        """
        batch, length = x.shape[:2]
        memory = self.empty_memory(batch, length)
        valid = jnp.ones((batch, length), bool)
        states, _ = self.with_memory(x, valid, encoder_states, encoder_mask, memory, deterministic)
        return states

    def with_memory(
        self,
        x: Float[AnyArray, "batch target_length d_model"],
        valid: Bool[AnyArray, "batch target_length"],
        encoder_states: Float[AnyArray, "batch length d_model"],
        encoder_mask: Bool[AnyArray, "batch length"],
        memory: StackMemory,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "batch target_length d_model"], StackMemory]:
        """Decodes the target of one segment of a document.

        Args:
            x: embeddings of the target.
            valid: positions that the memories may store.
            encoder_states: states of the source.
            encoder_mask: True on real tokens of the source.
            memory: memories after the segment before.
            deterministic: False in training.

        Returns:
            The states, as ``__call__`` returns them; the memories after this segment.
        """
        positions = jnp.arange(x.shape[1])
        causal = (positions[:, None] >= positions[None, :])[None, None]
        x = self.dropout(x, deterministic=deterministic)
        bias = self._bias(positions, positions)
        encoder_states, cross_mask = self.cross.prepare(self.stack, encoder_states, encoder_mask)
        next_memory = []
        for group, state in zip(self.groups, memory, strict=True):
            layers = getattr(self, group.name)
            x, state = layers(
                x, encoder_states, bias, causal, cross_mask, deterministic, state, valid
            )
            next_memory.append(state)
        x = self.output_dropout(self._normalize(x), deterministic=deterministic)
        return x, tuple(next_memory)

    def init_cache(
        self,
        encoder_states: Float[AnyArray, "batch length d_model"],
        encoder_mask: Bool[AnyArray, "batch length"],
        beams: int,
        length: int,
        memory: StackMemory | None = None,
    ) -> DecoderCache:
        """Makes the cache for decoding.

        Args:
            encoder_states: states of the source.
            encoder_mask: True on real tokens of the source.
            beams: beams per row.
            length: tokens to make room for.
            memory: memories after the segment before, shared by all beams.
        """
        stack = self.stack
        batch, source_length = encoder_states.shape[:2]
        num_keys = self.cross.num_keys(stack, source_length)
        size = 2 * stack.num_layers * batch * num_keys * stack.num_heads * stack.d_kv
        is_large = size * jnp.dtype(stack.dtype).itemsize > MAX_CROSS_CACHE_BYTES
        encoder_states, mask = self.cross.prepare(stack, encoder_states, encoder_mask)
        to_project, to_store = (None, encoder_states) if is_large else (encoder_states, None)
        memory = self.empty_memory(batch, 0) if memory is None else memory
        layers = []
        for layer, (params, state) in zip(self._single_layers, self._by_layer(memory), strict=True):
            fields = layer.apply(
                {"params": params}, to_project, (batch, beams, length), state, method="empty_cache"
            )
            layers.append(LayerCache(params, *fields))
        return DecoderCache(jnp.zeros((), jnp.int32), tuple(layers), to_store, mask)

    def _by_layer(self, memory: StackMemory) -> Iterator[tuple[Any, MemoryState | tuple[()]]]:
        """Yields parameters and memory of every layer."""
        for group, state in zip(self.groups, memory, strict=True):
            stacked = nn.meta.unbox(self.variables["params"][group.name]), state
            for i in range(group.size):
                yield jax.tree.map(lambda x: x[i], stacked)  # noqa: B023

    def step(
        self, x: Float[AnyArray, "batch beams d_model"], cache: DecoderCache
    ) -> tuple[Float[Array, "batch beams d_model"], DecoderCache]:
        """Decodes one token of every beam.

        Args:
            x: embeddings of the newest tokens.
            cache: the cache before these tokens.

        Returns:
            The states of the tokens; the cache with them.
        """
        positions = jnp.arange(cache.length)
        bias = self._bias(cache.position[None], positions)
        decoded = (positions <= cache.position)[None, None, None]
        layers = []
        for layer, layer_cache in zip(self._single_layers, cache.layers, strict=True):
            x, self_kv = layer.apply(
                {"params": layer_cache.params},
                x,
                layer_cache,
                cache.states,
                bias,
                decoded,
                cache.mask,
                cache.position,
                method="step",
            )
            layers.append(layer_cache._replace(self_kv=self_kv))
        x = self._normalize(x)
        return x, cache._replace(position=cache.position + 1, layers=tuple(layers))

    def _bias(self, query_positions: AnyArray, key_positions: AnyArray) -> Array | None:
        if not self.stack.relative_attention:
            return None
        return self.relative_attention_bias(query_positions, key_positions)

    def _normalize(self, x: AnyArray) -> Array:
        return self.final_norm(x) if self.stack.final_norm else x
