"""Encoder and decoder stacks of transformer layers, scanned over layers, with a cache for decoding.

One stack serves every family: T5's pre-norm with relative positions, BART's and BERT's post-norm, PEGASUS' pre-norm.
What differs is in ``StackConfig``; what an encoder layer looks at is in ``layers.encoder_attention``.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax import lax

from longsum_jax.layers.attention import Attention, RelativePositionBias
from longsum_jax.layers.common import constrain, map_over_length
from longsum_jax.layers.cross_attention import CrossAttention, get_cross_attention
from longsum_jax.layers.encoder_attention import get_encoder_attention
from longsum_jax.layers.stack import StackConfig
from longsum_jax.typing import Array


class Layer(nn.Module):
    """What encoder and decoder layers share: a residual around each part, normalised before or after it."""

    stack: StackConfig

    def before(self, norm: nn.Module, x: Array) -> Array:
        """What a part reads."""
        return norm(x) if self.stack.pre_norm else x

    def after(self, norm: nn.Module, x: Array, y: Array, deterministic: bool = True) -> Array:
        """The stream after a part that gave ``y``."""
        x = x + self.dropout(y, deterministic=deterministic)
        return x if self.stack.pre_norm else norm(x)


class EncoderLayer(Layer):
    """Self-attention (or what takes its place) and feed-forward."""

    def setup(self) -> None:
        kind = get_encoder_attention(self.stack.options)
        self.self_norm = kind.make_norm(self.stack)
        self.self_attention = kind.make_layer(self.stack)
        self.ff_norm = self.stack.make_norm()
        self.feed_forward = self.stack.make_feed_forward()
        self.dropout = nn.Dropout(self.stack.dropout_rate)

    def __call__(self, x: Array, layer_input: Any, context: Any, deterministic: bool):
        """x [B, L, D]; the rest as the attention's ``begin`` gave it -> [B, L, D] (and None, for the scan)."""
        y = self.self_attention(self.before(self.self_norm, x), context, layer_input, deterministic)
        x = self.after(self.self_norm, x, y, deterministic)

        def feed_forward(layer: EncoderLayer, x: Array) -> Array:
            y = layer.feed_forward(layer.before(layer.ff_norm, x), deterministic)
            return layer.after(layer.ff_norm, x, y, deterministic)

        x = map_over_length(self, feed_forward, self.stack.length_chunk, x)
        return constrain(x, "batch", "length", "act_embed"), None


class Encoder(nn.Module):
    """Scanned layers around what the attention needs once: masks, biases, global tokens."""

    stack: StackConfig

    def setup(self) -> None:
        s = self.stack
        layer = nn.remat(EncoderLayer, static_argnums=(4,), prevent_cse=False) if s.remat else EncoderLayer
        self.layers = nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(0, nn.broadcast, nn.broadcast),
            length=s.num_layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )(s)
        self.attention = get_encoder_attention(s.options).make_context(s)
        if s.relative_attention:
            self.relative_attention_bias = RelativePositionBias(s.num_heads, *s.relative_attention, bidirectional=True)
        if s.final_norm:
            self.final_norm = s.make_norm()
        self.dropout = nn.Dropout(s.dropout_rate)
        self.output_dropout = nn.Dropout(s.output_dropout_rate)

    def __call__(
        self,
        x: Array,
        mask: Array,
        deterministic: bool = True,
        *,
        embedding_norm: nn.Module | None = None,
        **inputs: Any,
    ) -> Array:
        """Embeddings [B, L, D], bool mask [B, L], further ``inputs`` of the attention -> states [B, L, D].

        ``embedding_norm`` is the norm that the embeddings went through, for tokens that the attention adds. With
        ``pass_global_tokens_to_decoder`` the states are [B, G + L, D].
        """
        if "embedding_norm" in get_encoder_attention(self.stack.options).inputs:
            inputs["embedding_norm"] = embedding_norm
        x, length = self.dropout(x, deterministic=deterministic), x.shape[1]
        bias = self.relative_attention_bias if self.stack.relative_attention else None
        x, context, layer_inputs = self.attention.begin(x, mask, bias, deterministic, **inputs)
        x, _ = self.layers(x, layer_inputs, context, deterministic)
        x = self.attention.end(x, length)
        if self.stack.final_norm:
            x = self.final_norm(x)
        return self.output_dropout(x, deterministic=deterministic)


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

    def reorder(self, beams: Array) -> "DecoderCache":
        """Row b, beam r continues old beam ``beams[b, r]``."""
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

    def __call__(
        self, x: Array, encoder_states: Array, bias: Array | None, mask: Array, cross_mask: Array, deterministic: bool
    ):
        """All positions at once: x [B, T, D]; bias [1, H, T, T]; bool masks [1, 1, T, T] and [B, 1 or H, 1, M]."""
        u = self.before(self.self_norm, x)
        k, v = self.self_attention.keys_values(u)
        y = self.self_attention.attend(u, k, v, mask=mask, bias=bias, deterministic=deterministic)
        x = self.after(self.self_norm, x, y, deterministic)
        k, v = self.cross_attention.keys_values(encoder_states)
        u = self.before(self.cross_norm, x)
        y = self.cross_attention.attend(u, k, v, mask=cross_mask, deterministic=deterministic)
        x = self.after(self.cross_norm, x, y, deterministic)
        y = self.feed_forward(self.before(self.ff_norm, x), deterministic)
        x = self.after(self.ff_norm, x, y, deterministic)
        return constrain(x, "batch", "length", "act_embed"), None

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
        self_k, self_v, cross_k, cross_v = layer_cache
        rows, beams, width = x.shape
        u = self.before(self.self_norm, x)
        new_k, new_v = self.self_attention.keys_values(u)
        self_k = lax.dynamic_update_slice_in_dim(self_k, new_k[:, :, None], position, 2)
        self_v = lax.dynamic_update_slice_in_dim(self_v, new_v[:, :, None], position, 2)
        flat_k, flat_v = (y.reshape(rows * beams, *y.shape[2:]) for y in (self_k, self_v))
        y = self.self_attention.attend(u.reshape(rows * beams, 1, width), flat_k, flat_v, mask=mask, bias=bias)
        x = self.after(self.self_norm, x, y.reshape(x.shape))
        # Beams stand in the place of target positions: they share one set of encoder keys.
        u = self.before(self.cross_norm, x)
        if states is None:
            y = self.cross_attention.attend(u, cross_k, cross_v, mask=cross_mask)
        else:
            y = self.cross_attention.attend_unprojected(u, states, mask=cross_mask)
        x = self.after(self.cross_norm, x, y)
        y = self.feed_forward(self.before(self.ff_norm, x))
        return self.after(self.ff_norm, x, y), (self_k, self_v)


class Decoder(nn.Module):
    """Scanned decoder layers, T5's relative position bias if there is one, and a final norm."""

    stack: StackConfig

    def setup(self) -> None:
        s = self.stack
        layer = nn.remat(DecoderLayer, static_argnums=(6,), prevent_cse=False) if s.remat else DecoderLayer
        scanned = {"variable_axes": {"params": 0}, "length": s.num_layers}
        scanned["metadata_params"] = {nn.PARTITION_NAME: "layers"}
        scanned["split_rngs"] = {"params": True, "dropout": True}
        self.layers = nn.scan(
            layer,
            methods={
                "__call__": scanned | {"in_axes": (nn.broadcast,) * 5},
                "encoder_keys_values": scanned,
                # Unrolled: slices of stacked weights then happen once, outside the decoding loop.
                "step": scanned | {"in_axes": (0, *(nn.broadcast,) * 5), "unroll": s.num_layers},
            },
        )(s)
        if s.relative_attention:
            self.relative_attention_bias = RelativePositionBias(s.num_heads, *s.relative_attention, bidirectional=False)
        if s.final_norm:
            self.final_norm = s.make_norm()
        self.dropout = nn.Dropout(s.dropout_rate)
        self.output_dropout = nn.Dropout(s.output_dropout_rate)

    def __call__(self, x: Array, encoder_states: Array, encoder_mask: Array, deterministic: bool = True) -> Array:
        """Embeddings [B, T, D], encoder states [B, L, D] and bool mask [B, L] -> states [B, T, D]."""
        positions = jnp.arange(x.shape[1])
        causal = (positions[:, None] >= positions[None, :])[None, None]
        x = self.dropout(x, deterministic=deterministic)
        bias = self._bias(positions, positions)
        encoder_states, cross_mask = self.cross.prepare(self.stack, encoder_states, encoder_mask)
        x, _ = self.layers(x, encoder_states, bias, causal, cross_mask, deterministic)
        return self.output_dropout(self._normalised(x), deterministic=deterministic)

    def init_cache(self, encoder_states: Array, encoder_mask: Array, beams: int, length: int) -> DecoderCache:
        """Cache for decoding up to ``length`` tokens with R ``beams`` per row."""
        s = self.stack
        rows, source = encoder_states.shape[:2]
        empty = jnp.zeros((s.num_layers, rows, beams, length, s.num_heads, s.d_kv), s.dtype)
        size = 2 * s.num_layers * rows * self.cross.num_keys(s, source) * s.num_heads * s.d_kv * empty.dtype.itemsize
        encoder_states, mask = self.cross.prepare(s, encoder_states, encoder_mask)
        cross_k = cross_v = states = None
        if size <= MAX_CROSS_CACHE_BYTES:
            _, (cross_k, cross_v) = self.layers.encoder_keys_values(encoder_states)
        else:
            states = encoder_states
        return DecoderCache(jnp.zeros((), jnp.int32), empty, empty, cross_k, cross_v, states, mask)

    def step(self, x: Array, cache: DecoderCache) -> tuple[Array, DecoderCache]:
        """Embeddings [B, R, D] of the newest token of every beam -> states [B, R, D] and the longer cache."""
        positions = jnp.arange(cache.self_k.shape[3])
        bias = self._bias(cache.position[None], positions)
        seen = (positions <= cache.position)[None, None, None]
        layer_cache = (cache.self_k, cache.self_v, cache.cross_k, cache.cross_v)
        x, (self_k, self_v) = self.layers.step(x, layer_cache, cache.states, bias, seen, cache.mask, cache.position)
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
