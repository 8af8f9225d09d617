"""A head that scores the sentences of a document from their vectors (AWESOME, appendix D)."""

import dataclasses
from typing import cast

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.layers.attention.full import FullAttention
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.dense import Dropout, Linear, normal
from longsum_jax.layers.layer import Layer
from longsum_jax.ops.positions import pegasus_frequencies, sinusoidal_positions
from longsum_jax.typing import AnyArray


def mean_state(
    states: Float[AnyArray, "batch length d_model"],
    mask: Bool[AnyArray, "batch length"],
) -> Float[Array, "batch d_model"]:
    """Returns the mean state of the real tokens of each row, computed in float32.

    Rows without a real token are zeros.
    """
    total = jnp.einsum(
        "bld,bl->bd",
        states,
        mask.astype(states.dtype),
        preferred_element_type=jnp.float32,
    )
    count = jnp.maximum(mask.sum(-1, keepdims=True), 1)
    return (total / count).astype(states.dtype)


class ExtractionHead(Layer):
    """Self-attention between sentences, residual and norm, then a feed-forward map to a score.

    Attributes:
        stack: config of the sentence encoder; the head has its width, norm and
            dropout.
        num_heads: number of heads of the attention.
        sentence_positions: True to add sinusoidal positions (Vaswani et al.
            2017) to sentence vectors.
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
            encoder_attention="full",
            attention=EncoderAttentionOptions(),
        )
        self.attention = FullAttention.from_stack(full)
        self.attention_norm = s.make_norm()
        init, zeros = normal(cast(float, s.kernel_std)), nn.initializers.zeros
        self.dense = Linear(
            (s.d_model, s.d_model),
            ("embed", "embed_out"),
            init,
            zeros,
            dtype=s.dtype,
        )
        self.out = Linear(
            (s.d_model, 1), ("embed", "labels"), init, zeros, dtype=s.dtype
        )
        self.dropout = Dropout(s.dropout_rate)

    def __call__(
        self,
        x: Float[AnyArray, "batch sentences d_model"],
        mask: Bool[AnyArray, "batch sentences"],
        deterministic: bool = True,
    ) -> Float[Array, "batch sentences"]:
        """Returns float32 scores of sentence vectors: logits of selecting the sentence."""
        if self.sentence_positions:
            num_sentences, d_model = x.shape[1:]
            frequencies = pegasus_frequencies(d_model)
            positions = sinusoidal_positions(
                jnp.arange(num_sentences), frequencies
            )
            x = x + positions.astype(x.dtype)
        y = self.attention(x, (mask, None, None, None), (), deterministic)
        x = self.add_residual(self.attention_norm, x, y, deterministic)
        hidden = self.dropout(
            nn.relu(self.dense(x)), deterministic=deterministic
        )
        return self.out(hidden)[..., 0].astype(jnp.float32)
