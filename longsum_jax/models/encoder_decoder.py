"""What all encoder-decoders share: the methods that training and decoding call, over two stacks."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.layers.decoder import DecoderCache
from longsum_jax.layers.dense import Linear, normal
from longsum_jax.layers.layer import StackMemory
from longsum_jax.layers.partitioning import constrain
from longsum_jax.layers.stack import PageOptions
from longsum_jax.ops.attention.blocks import neighbors, to_blocks
from longsum_jax.ops.attention.dense import masked_softmax
from longsum_jax.typing import Array


class DocumentMemory(NamedTuple):
    """What both stacks remember of the segments of a document so far; empty without memories."""

    encoder: StackMemory
    decoder: StackMemory


def check_pages(config: PageOptions, rows: int | None) -> None:
    """Checks how a source is cut into pages; ``rows`` are the positions that there are, None for
    any number.

    Raises:
        InputError: pages of no length or of more than there are positions for, or pages beside what
            does not know them.
    """
    if not config.page_length:
        if config.page_decoding:
            raise InputError(
                "page_decoding is true, but page_length 0 makes no pages; give their length"
            )
        return
    if config.page_body < 1 or not 0 <= config.page_context <= config.page_body:
        raise InputError(
            f"page_length is {config.page_length} with page_context {config.page_context}; give a context of at most a "
            "third of the page"
        )
    if rows is not None and config.page_length > rows:
        raise InputError(
            f"page_length is {config.page_length}, but there are positions for {rows}; give at most that"
        )
    if config.memory != "none" or config.salient_vectors:
        raise InputError(
            "page_length cuts a source that memories read segment by segment; give one or the other"
        )


class EncoderDecoder(nn.Module):
    """An encoder, a decoder, and what a family adds: embeddings and output logits.

    A family's ``setup`` makes ``self.encoder`` and ``self.decoder`` (layers.transformer); the
    family defines ``embed_source``, ``embed_target`` and ``output_logits``. Ids are int [B, L] or
    [B, T]; ``attention_mask`` [B, L] is nonzero on real tokens.
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

    def encode(
        self, input_ids: Array, attention_mask: Array, deterministic: bool = True, **inputs: Array
    ) -> Array:
        """Encoder states [B, L, D]; [B, G + L, D] with ``pass_global_tokens_to_decoder``, global
        tokens first.

        ``inputs`` are what the encoder attention takes besides, ``global_indices`` [B, G] for
        ``longformer``.
        """
        if self.config.page_length:
            if inputs:
                raise InputError(
                    f"{next(iter(inputs))} is given, but a model that reads pages does not take it"
                )
            return self._encode_pages(input_ids, attention_mask.astype(bool), deterministic)
        x = constrain(self.embed_source(input_ids), "batch", "length", "act_embed")
        norm = self.source_embedding_norm()
        return self.encoder(
            x, attention_mask.astype(bool), deterministic, embedding_norm=norm, **inputs
        )

    def _encode_pages(self, ids: Array, mask: Array, deterministic: bool) -> Array:
        """States [B, L, D], each page of which knows nothing of the others."""
        c, length = self.config, ids.shape[1]
        first, last = c.page_body - c.page_context, c.page_body * 2 + c.page_context
        cut = lambda x: neighbors(to_blocks(x, c.page_body), 1, 1)[:, :, first:last].reshape(
            -1, c.page_length
        )
        x, norm = self.embed_source(cut(ids)), self.source_embedding_norm()
        states = self.encoder(x, cut(mask), deterministic, embedding_norm=norm)
        kept = states[:, states.shape[1] - c.page_length :][
            :, c.page_context : c.page_context + c.page_body
        ]
        return kept.reshape(ids.shape[0], -1, *kept.shape[1:]).reshape(
            ids.shape[0], -1, kept.shape[-1]
        )[:, :length]

    def make_page_scores(self) -> None:
        """The weights of pages, where the decoder reads them one by one; to be called in
        ``setup``."""
        c = self.config
        if c.page_length and c.page_decoding:
            self.page_scores = Linear(
                (c.d_model, 1), ("embed", "pages"), normal(0.02), nn.initializers.zeros
            )

    def _in_pages(self, x: Array) -> Array:
        """[B, L, ...] -> [B P, page, ...] for a decoder that reads one page at a time."""
        x = to_blocks(x, self.config.page_body)
        return x.reshape(-1, *x.shape[2:])

    def _mix_pages(self, x: Array, there: Array) -> Array:
        """Outputs of the decoder for all pages [B P, T, D] -> their weighted means [B, T, D]
        (PageSum, section 3).

        ``there``: bool [B, P], pages with a token.
        """
        x = x.reshape(*there.shape, *x.shape[1:])
        scores = self.page_scores(x)[..., 0].astype(jnp.float32)  # [B, P, T]
        weights = jnp.moveaxis(masked_softmax(jnp.moveaxis(scores, 1, 2), there[:, None]), 2, 1)
        return jnp.einsum("bpt,bptd->btd", weights.astype(x.dtype), x)

    def init_memory(
        self, rows: int, source_length: int, target_length: int, waiting: int = 0
    ) -> DocumentMemory:
        """What is remembered before the first segment of a document.

        Args:
            rows: documents, B.
            source_length, target_length: tokens of the segments to come, L, and of their targets,
                T.
            waiting: segments whose writing gradients go back through; see ``layers.memory``.
        """
        decoder = self.decoder.empty_memory(rows, target_length, waiting)
        return DocumentMemory(self.encoder.empty_memory(rows, source_length, waiting), decoder)

    def read_segment(
        self,
        input_ids: Array,
        attention_mask: Array,
        memory: DocumentMemory,
        deterministic: bool = True,
        **inputs: Any,
    ) -> tuple[Array, DocumentMemory]:
        """``encode`` for a segment of a document: its states [B, L, D], and what is remembered
        after it.

        ``inputs`` as for ``encode``, and ``salient`` for models with ``salient_vectors``: states of
        important tokens of other segments [B, m, D] and which there are, bool [B, m].
        """
        x = constrain(self.embed_source(input_ids), "batch", "length", "act_embed")
        norm = self.source_embedding_norm()
        mask = attention_mask.astype(bool)
        states, kept = self.encoder.with_memory(
            x, mask, memory.encoder, deterministic, embedding_norm=norm, **inputs
        )
        return states, memory._replace(encoder=kept)

    def write_segment(
        self,
        decoder_input_ids: Array,
        target_mask: Array,
        encoder_states: Array,
        attention_mask: Array,
        memory: DocumentMemory,
        deterministic: bool = True,
    ) -> tuple[Array, DocumentMemory]:
        """``decode`` for a segment: logits [B, T, V], and what is remembered after it.

        ``target_mask``, bool [B, T], are the positions to be remembered: those that say a real next
        token.
        """
        x = self.embed_target(decoder_input_ids, jnp.arange(decoder_input_ids.shape[1]))
        mask = self._states_mask(encoder_states, attention_mask)
        x, kept = self.decoder.with_memory(
            x, target_mask, encoder_states, mask, memory.decoder, deterministic
        )
        return self.output_logits(x), memory._replace(decoder=kept)

    def decode(
        self,
        decoder_input_ids: Array,
        encoder_states: Array,
        attention_mask: Array,
        deterministic: bool = True,
    ) -> Array:
        """Logits float32 [B, T, V] of every next token."""
        x = self.embed_target(decoder_input_ids, jnp.arange(decoder_input_ids.shape[1]))
        mask = self._states_mask(encoder_states, attention_mask)
        if not self.config.page_decoding:
            return self.output_logits(self.decoder(x, encoder_states, mask, deterministic))
        states, mask = self._in_pages(encoder_states), self._in_pages(mask)
        there = mask.any(1).reshape(x.shape[0], -1)
        x = self.decoder(jnp.repeat(x, there.shape[1], 0), states, mask, deterministic)
        return self.output_logits(self._mix_pages(x, there))

    def init_cache(
        self,
        encoder_states: Array,
        attention_mask: Array,
        beams: int,
        length: int,
        memory: DocumentMemory | None = None,
    ) -> DecoderCache:
        """Empty cache for ``decode_step``: R ``beams`` per row, room for ``length`` tokens;
        ``memory`` stays."""
        mask = self._states_mask(encoder_states, attention_mask)
        if self.config.page_decoding:
            encoder_states, mask = self._in_pages(encoder_states), self._in_pages(mask)
        return self.decoder.init_cache(
            encoder_states, mask, beams, length, memory and memory.decoder
        )

    def decode_step(self, ids: Array, cache: DecoderCache) -> tuple[Array, DecoderCache]:
        """Newest ids int [B, R] -> logits float32 [B, R, V] of the next token, and the longer
        cache."""
        x = self.embed_target(ids, cache.position)
        if not self.config.page_decoding:
            x, cache = self.decoder.step(x, cache)
            return self.output_logits(x), cache
        there = cache.mask.any((1, 2, 3)).reshape(ids.shape[0], -1)
        x, cache = self.decoder.step(jnp.repeat(x, there.shape[1], 0), cache)
        return self.output_logits(self._mix_pages(x, there)), cache

    def _states_mask(self, states: Array, attention_mask: Array) -> Array:
        """Which states the decoder may see: those of real tokens, and what the encoder put in front
        of them."""
        mask = attention_mask.astype(bool)
        if self.config.encoder_attention == "lsg" and self.config.mask_first_token:
            mask = mask & (
                jnp.arange(mask.shape[1]) > 0
            )  # the first global token stands for it, also here
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
