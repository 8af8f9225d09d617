"""The decoder stack of T5, which LOCOST shares (Raffel et al. 2020; Hugging Face layer order and names)."""

from typing import Any, Literal, NamedTuple, Protocol

import flax.linen as nn
import jax.numpy as jnp
from jax import lax

from longsum_jax.layers.attention import Attention, RelativePositionBias
from longsum_jax.layers.common import FeedForward, RMSNorm, constrain, normal, torch_uniform
from longsum_jax.typing import Array


class DecoderConfig(Protocol):
    """What the decoder reads of a model's config; names as in Hugging Face configs."""

    d_model: int
    d_kv: int
    d_ff: int
    num_decoder_layers: int
    num_heads: int
    relative_attention_num_buckets: int
    relative_attention_max_distance: int
    dropout_rate: float
    layer_norm_epsilon: float
    feed_forward_proj: str
    attention_init: Literal["torch", "t5"]
    remat: bool

    @property
    def compute_dtype(self) -> Any: ...


# Above this size, keys and values of the encoder are not kept: every step attends to the encoder states themselves.
MAX_CROSS_CACHE_BYTES = 2**31


class DecoderCache(NamedTuple):
    """What N layers keep while decoding R beams per row.

    The encoder side is stored once per row, whatever the number of beams: as keys and values of every layer, or,
    where those would take more than MAX_CROSS_CACHE_BYTES, as the encoder states alone.
    """

    position: Array  # int32 [], tokens decoded so far
    self_k: Array  # [N, B, R, T, H, K]
    self_v: Array  # [N, B, R, T, H, K]
    cross_k: Array | None  # [N, B, L, H, K]
    cross_v: Array | None  # [N, B, L, H, K]
    states: Array | None  # [B, L, D]
    mask: Array  # bool [B, L]

    def reorder(self, beams: Array) -> "DecoderCache":
        """Row b, beam r continues old beam ``beams[b, r]``."""
        index = beams[None, :, :, None, None, None]
        take = lambda x: jnp.take_along_axis(x, index, axis=2)  # noqa: E731
        return self._replace(self_k=take(self.self_k), self_v=take(self.self_v))


class DecoderLayer(nn.Module):
    """Pre-norm self-attention, cross-attention and feed-forward, each with a residual."""

    config: DecoderConfig

    def setup(self) -> None:
        c = self.config
        norm = lambda: RMSNorm(c.layer_norm_epsilon, c.compute_dtype)  # noqa: E731
        self.self_norm, self.cross_norm, self.ff_norm = norm(), norm(), norm()
        self.self_attention, self.cross_attention = self._attention(), self._attention()
        self.feed_forward = FeedForward(c.d_ff, c.feed_forward_proj, c.dropout_rate, c.compute_dtype)
        self.dropout = nn.Dropout(c.dropout_rate)

    def _attention(self) -> Attention:
        c = self.config
        inner = c.num_heads * c.d_kv
        if c.attention_init == "torch":
            projection, output = torch_uniform(c.d_model), torch_uniform(inner)
        else:
            projection, output = normal(c.d_model**-0.5), normal(inner**-0.5)
        return Attention(
            c.d_model, c.num_heads, c.d_kv, projection, output, dropout_rate=c.dropout_rate, dtype=c.compute_dtype
        )

    def __call__(
        self, x: Array, encoder_states: Array, bias: Array, mask: Array, cross_mask: Array, deterministic: bool
    ):
        """All positions at once: x [B, T, D]; bias [1, H, T, T]; bool masks [1, 1, T, T] and [B, 1, 1, L]."""
        drop = lambda y: self.dropout(y, deterministic=deterministic)  # noqa: E731
        u = self.self_norm(x)
        k, v = self.self_attention.keys_values(u)
        x = x + drop(self.self_attention.attend(u, k, v, mask=mask, bias=bias, deterministic=deterministic))
        k, v = self.cross_attention.keys_values(encoder_states)
        u = self.cross_norm(x)
        x = x + drop(self.cross_attention.attend(u, k, v, mask=cross_mask, deterministic=deterministic))
        x = x + drop(self.feed_forward(self.ff_norm(x), deterministic))
        return constrain(x, "batch", "length", "act_embed"), None

    def encoder_keys_values(self, encoder_states: Array) -> tuple[Array, tuple[Array, Array]]:
        """Cross-attention keys and values [B, L, H, K], computed once per document."""
        return encoder_states, self.cross_attention.keys_values(encoder_states)

    def step(
        self,
        x: Array,
        layer_cache: tuple[Array | None, ...],
        states: Array | None,
        bias: Array,
        mask: Array,
        cross_mask: Array,
        position: Array,
    ):
        """One token for every beam: x [B, R, D]; bias [1, H, 1, T]; masks [1, 1, 1, T] and [B, 1, 1, L]."""
        self_k, self_v, cross_k, cross_v = layer_cache
        rows, beams, width = x.shape
        u = self.self_norm(x)
        new_k, new_v = self.self_attention.keys_values(u)
        self_k = lax.dynamic_update_slice_in_dim(self_k, new_k[:, :, None], position, 2)
        self_v = lax.dynamic_update_slice_in_dim(self_v, new_v[:, :, None], position, 2)
        flat_k, flat_v = (y.reshape(rows * beams, *y.shape[2:]) for y in (self_k, self_v))
        y = self.self_attention.attend(u.reshape(rows * beams, 1, width), flat_k, flat_v, mask=mask, bias=bias)
        x = x + y.reshape(x.shape)
        # Beams stand in the place of target positions: they share one set of encoder keys.
        u = self.cross_norm(x)
        if states is None:
            x = x + self.cross_attention.attend(u, cross_k, cross_v, mask=cross_mask)
        else:
            x = x + self.cross_attention.attend_unprojected(u, states, mask=cross_mask)
        return x + self.feed_forward(self.ff_norm(x)), (self_k, self_v)


class Decoder(nn.Module):
    """Scanned decoder layers with one relative position bias, and a final norm."""

    config: DecoderConfig

    def setup(self) -> None:
        c = self.config
        layer = nn.remat(DecoderLayer, static_argnums=(6,), prevent_cse=False) if c.remat else DecoderLayer
        scanned = {"variable_axes": {"params": 0}, "length": c.num_decoder_layers}
        scanned["metadata_params"] = {nn.PARTITION_NAME: "layers"}
        scanned["split_rngs"] = {"params": True, "dropout": True}
        self.layers = nn.scan(
            layer,
            methods={
                "__call__": scanned | {"in_axes": (nn.broadcast,) * 5},
                "encoder_keys_values": scanned,
                # Unrolled: slices of stacked weights then happen once, outside the decoding loop.
                "step": scanned | {"in_axes": (0, *(nn.broadcast,) * 5), "unroll": c.num_decoder_layers},
            },
        )(c)
        self.relative_attention_bias = RelativePositionBias(
            c.num_heads, c.relative_attention_num_buckets, c.relative_attention_max_distance, bidirectional=False
        )
        self.final_norm = RMSNorm(c.layer_norm_epsilon, c.compute_dtype)
        self.dropout = nn.Dropout(c.dropout_rate)

    def __call__(self, x: Array, encoder_states: Array, encoder_mask: Array, deterministic: bool = True) -> Array:
        """Embeddings [B, T, D], encoder states [B, L, D] and bool mask [B, L] -> states [B, T, D]."""
        positions = jnp.arange(x.shape[1])
        bias = self.relative_attention_bias(positions, positions)
        causal = (positions[:, None] >= positions[None, :])[None, None]
        x = self.dropout(x, deterministic=deterministic)
        cross_mask = encoder_mask[:, None, None, :]
        x, _ = self.layers(x, encoder_states, bias, causal, cross_mask, deterministic)
        return self.dropout(self.final_norm(x), deterministic=deterministic)

    def init_cache(self, encoder_states: Array, encoder_mask: Array, beams: int, length: int) -> DecoderCache:
        """Cache for decoding up to ``length`` tokens with R ``beams`` per row."""
        c = self.config
        rows, source = encoder_states.shape[:2]
        empty = jnp.zeros((c.num_decoder_layers, rows, beams, length, c.num_heads, c.d_kv), c.compute_dtype)
        size = 2 * c.num_decoder_layers * rows * source * c.num_heads * c.d_kv * empty.dtype.itemsize
        cross_k = cross_v = states = None
        if size <= MAX_CROSS_CACHE_BYTES:
            _, (cross_k, cross_v) = self.layers.encoder_keys_values(encoder_states)
        else:
            states = encoder_states
        return DecoderCache(jnp.zeros((), jnp.int32), empty, empty, cross_k, cross_v, states, encoder_mask)

    def step(self, x: Array, cache: DecoderCache) -> tuple[Array, DecoderCache]:
        """Embeddings [B, R, D] of the newest token of every beam -> states [B, R, D] and the longer cache."""
        positions = jnp.arange(cache.self_k.shape[3])
        bias = self.relative_attention_bias(cache.position[None], positions)
        seen = (positions <= cache.position)[None, None, None]
        layer_cache = (cache.self_k, cache.self_v, cache.cross_k, cache.cross_v)
        cross_mask = cache.mask[:, None, None, :]
        x, (self_k, self_v) = self.layers.step(x, layer_cache, cache.states, bias, seen, cross_mask, cache.position)
        return self.final_norm(x), cache._replace(position=cache.position + 1, self_k=self_k, self_v=self_v)
