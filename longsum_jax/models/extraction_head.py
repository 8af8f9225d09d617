"""Which sentences of a document to take: a head over the vectors of all its sentences (AWESOME,
appendix D)."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.layer import Layer
from longsum_jax.layers.dense import Linear, normal
from longsum_jax.ops.positions import pegasus_frequencies, sinusoidal_positions
from longsum_jax.typing import Array


def mean_state(states: Array, mask: Array) -> Array:
    """The mean over the tokens that ``mask`` bool [B, L] keeps of states [B, L, D]: [B, D]; zeros
    where there is none.

    Computed in float32.
    """
    total = jnp.einsum(
        "bld,bl->bd", states, mask.astype(states.dtype), preferred_element_type=jnp.float32
    )
    return (total / jnp.maximum(mask.sum(-1, keepdims=True), 1)).astype(states.dtype)


class ExtractionHead(Layer):
    """Self-attention of sentences to one another, residual and norm, then a map with one hidden
    layer to a score.

    Attributes:
        stack: of the sentence encoder, whose width, norm, dropout and activation the head has.
        num_heads: of the attention.
        sentence_positions: adds sinusoidal positions (Vaswani et al. 2017) to the sentence vectors.
    """

    num_heads: int
    sentence_positions: bool = False

    def setup(self) -> None:
        s, d_kv = self.stack, self.stack.d_model // self.num_heads
        full = dataclasses.replace(
            s,
            num_heads=self.num_heads,
            d_kv=d_kv,
            attention_scale=d_kv**-0.5,
            options=EncoderAttentionOptions(),
        )
        self.attention = get_encoder_attention(full.options).from_stack(full)
        self.attention_norm = s.make_norm()
        init, zeros = normal(s.attention_init), nn.initializers.zeros
        self.dense = Linear(
            (s.d_model, s.d_model), ("embed", "embed_out"), init, zeros, dtype=s.dtype
        )
        self.out = Linear((s.d_model, 1), ("embed", "labels"), init, zeros, dtype=s.dtype)
        self.dropout = nn.Dropout(s.dropout_rate)

    def __call__(self, x: Array, mask: Array, deterministic: bool = True) -> Array:
        """Sentence vectors [B, S, D] and which there are, bool [B, S] -> scores float32 [B, S],
        logits of "take it"."""
        if self.sentence_positions:
            length, width = x.shape[1:]
            x = x + sinusoidal_positions(jnp.arange(length), pegasus_frequencies(width)).astype(
                x.dtype
            )
        y = self.attention(x, (mask, None), (), deterministic)
        x = self.add_residual(self.attention_norm, x, y, deterministic)
        hidden = self.dropout(nn.relu(self.dense(x)), deterministic=deterministic)
        return self.out(hidden)[..., 0].astype(jnp.float32)
