"""What all encoder-decoders share: the methods that training and decoding call, over two stacks."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.layers.common import constrain
from longsum_jax.layers.transformer import DecoderCache
from longsum_jax.typing import Array


class EncoderDecoder(nn.Module):
    """An encoder, a decoder, and what a family adds: embeddings and output logits.

    A family's ``setup`` makes ``self.encoder`` and ``self.decoder`` (layers.transformer); the family defines
    ``embed_source``, ``embed_target`` and ``output_logits``. Ids are int [B, L] or [B, T]; ``attention_mask`` [B, L] is
    nonzero on real tokens.
    """

    config: Any

    def __call__(
        self,
        input_ids: Array,
        attention_mask: Array,
        decoder_input_ids: Array,
        deterministic: bool = True,
        **inputs: Array,
    ) -> Array:
        """Teacher-forced logits, float32 [B, T, V]; ``inputs`` as for ``encode``."""
        states = self.encode(input_ids, attention_mask, deterministic, **inputs)
        return self.decode(decoder_input_ids, states, attention_mask, deterministic)

    def encode(self, input_ids: Array, attention_mask: Array, deterministic: bool = True, **inputs: Array) -> Array:
        """Encoder states [B, L, D]; [B, G + L, D] with ``pass_global_tokens_to_decoder``, global tokens first.

        ``inputs`` are what the encoder attention takes besides, ``global_indices`` [B, G] for ``longformer``.
        """
        x = constrain(self.embed_source(input_ids), "batch", "length", "act_embed")
        norm = self.source_embedding_norm()
        return self.encoder(x, attention_mask.astype(bool), deterministic, embedding_norm=norm, **inputs)

    def decode(
        self, decoder_input_ids: Array, encoder_states: Array, attention_mask: Array, deterministic: bool = True
    ) -> Array:
        """Logits float32 [B, T, V] of every next token."""
        x = self.embed_target(decoder_input_ids, jnp.arange(decoder_input_ids.shape[1]))
        mask = self._states_mask(encoder_states, attention_mask)
        return self.output_logits(self.decoder(x, encoder_states, mask, deterministic))

    def init_cache(self, encoder_states: Array, attention_mask: Array, beams: int, length: int) -> DecoderCache:
        """Empty cache for ``decode_step``: R ``beams`` per row, room for ``length`` tokens."""
        return self.decoder.init_cache(encoder_states, self._states_mask(encoder_states, attention_mask), beams, length)

    def decode_step(self, ids: Array, cache: DecoderCache) -> tuple[Array, DecoderCache]:
        """Newest ids int [B, R] -> logits float32 [B, R, V] of the next token, and the longer cache."""
        x, cache = self.decoder.step(self.embed_target(ids, cache.position), cache)
        return self.output_logits(x), cache

    def _states_mask(self, states: Array, attention_mask: Array) -> Array:
        """Which states the decoder may see: those of real tokens, and what the encoder put in front of them."""
        mask = attention_mask.astype(bool)
        if self.config.encoder_attention == "lsg" and self.config.mask_first_token:
            mask = mask & (jnp.arange(mask.shape[1]) > 0)  # the first global token stands for it, also here
        front = states.shape[1] - mask.shape[1]
        return jnp.pad(mask, ((0, 0), (front, 0)), constant_values=True)

    def source_embedding_norm(self) -> nn.Module | None:
        """The norm that ends ``embed_source``, if there is one."""
        return None

    def embed_source(self, ids: Array) -> Array:
        """Ids [B, L] -> embeddings [B, L, D] for the encoder."""
        raise NotImplementedError

    def embed_target(self, ids: Array, positions: Array) -> Array:
        """Ids [B, T] at ``positions`` [T] or [] -> embeddings [B, T, D] for the decoder."""
        raise NotImplementedError

    def output_logits(self, x: Array) -> Array:
        """Decoder states [..., D] -> logits float32 [..., V]."""
        raise NotImplementedError


def vocabulary_logits(x: Array, table: Array) -> Array:
    """States [..., D] against the rows of ``table`` [V, D] -> logits float32 [..., V]."""
    return jnp.einsum("...d,vd->...v", x, table.astype(x.dtype), preferred_element_type=jnp.float32)
