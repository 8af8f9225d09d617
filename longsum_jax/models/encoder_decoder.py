"""The base class of encoder-decoders: the methods that training and decoding call."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.global_tokens import without_globals
from longsum_jax.layers.attention.options import LsgOptions
from longsum_jax.layers.decoder_cache import (
    DecoderCache,
    DecoderSource,
    DraftCache,
)
from longsum_jax.layers.dense import Linear, normal
from longsum_jax.layers.layer import StackMemory
from longsum_jax.layers.partitioning import constrain
from longsum_jax.layers.s4d import KERNELS
from longsum_jax.models.config import EncoderDecoderConfig
from longsum_jax.models.precision import PreciseModule
from longsum_jax.models.vocabulary import score_labels
from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.dense import masked_softmax
from longsum_jax.ops.losses import TokenScores, shift_right
from longsum_jax.ops.packing import SegmentIds, segment_positions
from longsum_jax.ops.pages import make_pages
from longsum_jax.ops.storage import StoredTable
from longsum_jax.typing import AnyArray


class DocumentMemory(NamedTuple):
    """The memories of both stacks after some segments of a document; empty without memories."""

    encoder: StackMemory
    decoder: StackMemory


class EncoderDecoder(PreciseModule):
    """An encoder and a decoder; a family adds embeddings and output logits.

    A family's ``setup`` creates ``self.encoder`` and ``self.decoder``; the
    family defines ``embed_source``, ``embed_target`` and ``output_logits``.

    Names of sizes: ``length`` source tokens and ``target_length`` target tokens
    for each of ``batch`` rows. ``attention_mask`` is nonzero on real tokens; it
    may be of any type. The encoder returns ``states_length`` states: one per
    source token and, with ``pass_global_tokens_to_decoder``, one per global
    token before them.
    """

    config: EncoderDecoderConfig

    def __call__(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        decoder_input_ids: Int[AnyArray, "batch target_length"],
        deterministic: bool = True,
        **inputs: Any,
    ) -> Float[Array, "batch target_length vocab"]:
        """Returns teacher-forced logits in float32; for ``inputs`` see ``encode``."""
        states = self.encode(input_ids, attention_mask, deterministic, **inputs)
        return self.decode(
            decoder_input_ids, states, attention_mask, deterministic
        )

    def score_targets(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        labels: Int[AnyArray, "batch target_length"],
        deterministic: bool = True,
        *,
        label_smoothing: float = 0.0,
        segment_ids: SegmentIds | None = None,
        **inputs: Any,
    ) -> TokenScores:
        """Returns losses and top predictions of the tokens of targets, teacher-forced.

        Args:
            labels: ids of the targets; IGNORED_LABEL is left out.
            label_smoothing: see ``ops.losses.token_scores``.
            segment_ids: segment ids of packed rows, whose pairs get the scores
                that they get in rows of their own; None for one pair per row.
            **inputs: keyword arguments of ``encode``.
        """
        ids = self.decoder_inputs(labels)
        if segment_ids is not None:
            inputs["segment_ids"] = segment_ids.source
            # Every target begins with the start token.
            is_first = segment_positions(segment_ids.target) == 0
            ids = jnp.where(is_first, self.config.decoder_start_token_id, ids)
        states = self.encode(input_ids, attention_mask, deterministic, **inputs)
        x = self.decoder_states(
            ids, states, attention_mask, deterministic, segment_ids
        )
        return self.token_scores(x, labels, label_smoothing=label_smoothing)

    def score_pairs(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        chosen: Int[AnyArray, "batch target_length"],
        rejected: Int[AnyArray, "batch target_length"],
        deterministic: bool = True,
    ) -> Float[Array, "batch 2"]:
        """Returns the log-probabilities of two targets of every source, which is encoded once.

        Args:
            chosen, rejected: ids of the targets; IGNORED_LABEL is left out.
        """
        states = self.encode(input_ids, attention_mask, deterministic)
        # The two targets of a row remain adjacent, so that no row moves over a
        # mesh and the decoder's gradients are summed once.
        labels = jnp.stack([chosen, rejected], 1).reshape(-1, chosen.shape[-1])
        states, mask = (
            jnp.repeat(x, 2, axis=0) for x in (states, attention_mask)
        )
        x = self.decoder_states(
            self.decoder_inputs(labels), states, mask, deterministic
        )
        log_probs = -self.token_scores(x, labels).losses.sum(-1)
        return log_probs.reshape(-1, 2)

    def decoder_inputs(
        self, labels: Int[AnyArray, "batch target_length"]
    ) -> Int[Array, "batch target_length"]:
        """Returns the tokens that the decoder reads to predict ``labels``."""
        c = self.config
        return shift_right(
            labels, start_id=c.decoder_start_token_id, pad_id=c.pad_token_id
        )

    def token_scores(
        self,
        x: Float[AnyArray, "batch target_length d_model"],
        labels: Int[AnyArray, "batch target_length"],
        *,
        label_smoothing: float = 0.0,
    ) -> TokenScores:
        """Scores tokens by the decoder's states; see ``vocabulary.score_labels``."""

        def logits(model: EncoderDecoder, x: AnyArray) -> Array:
            return model.output_logits(x)

        return score_labels(
            self, logits, x, labels, label_smoothing=label_smoothing
        )

    def encode(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        deterministic: bool = True,
        layer: int | None = None,
        **inputs: Any,
    ) -> Float[AnyArray, "batch states_length d_model"]:
        """Returns the states of the encoder, with global tokens first.

        Args:
            layer: number of encoder layers to apply; None for all.
            **inputs: additional inputs of the encoder attention:
                ``global_indices`` int [batch, num_globals] for ``longformer``,
                ``segment_ids`` int [batch, length] of packed rows for ``full``
                and ``local``.

        Raises:
            InputError: additional inputs for a model that reads pages.
        """
        mask = jnp.asarray(attention_mask).astype(bool)
        if self.config.pages.page_length:
            if inputs:
                name = next(iter(inputs))
                raise InputError(
                    f"{name} is given, but models that read pages do not support it; leave it out"
                )
            return self._encode_pages(input_ids, mask, deterministic, layer)
        positions = None
        if "segment_ids" in inputs:
            positions = segment_positions(inputs["segment_ids"])
        x = constrain(
            self.embed_source(input_ids, positions),
            "batch",
            "length",
            "act_embed",
        )
        norm = self.source_embedding_norm()
        inputs = self.default_inputs(input_ids) | inputs
        return self.encoder(
            x, mask, deterministic, embedding_norm=norm, layer=layer, **inputs
        )

    def _encode_pages(
        self,
        ids: Int[AnyArray, "batch length"],
        mask: Bool[AnyArray, "batch length"],
        deterministic: bool,
        layer: int | None,
    ) -> Float[AnyArray, "batch length d_model"]:
        """Encodes the pages of sources separately; a source of one page is encoded normally."""
        c = self.config
        length = ids.shape[1]
        if length <= c.pages.page_length:
            return self._encode_page(ids, mask, deterministic, layer)
        # A row that ends before others has pages without a token, whose states
        # are never read.
        if not c.pages.page_context:
            blocks = (
                to_blocks(ids, c.pages.page_length),
                to_blocks(mask, c.pages.page_length),
            )
            return from_blocks(
                self._encode_blocks(*blocks, deterministic, layer), length
            )
        pages = make_pages(
            mask,
            c.pages.page_length,
            c.pages.page_context,
            full_last=not c.pages.page_decoding,
        )
        shape = pages.positions.shape
        blocks = (
            pages.split(ids).reshape(shape),
            pages.split(mask).reshape(shape),
        )
        states = self._encode_blocks(*blocks, deterministic, layer)
        return pages.join(states.reshape(-1, *states.shape[2:]))

    def _encode_blocks(
        self,
        ids: Int[AnyArray, "batch pages page_length"],
        mask: Bool[AnyArray, "batch pages page_length"],
        deterministic: bool,
        layer: int | None,
    ) -> Float[Array, "batch pages page_length d_model"]:
        """Encodes pages all at once or, with ``page_recompute``, one page of every row at a time.

        In the second case the backward pass encodes each page again from its
        tokens and adds its gradient to the sum of all pages: gradient caching
        (CachED, Saxena et al. 2025). The result equals the gradient of a single
        pass over all pages.
        """
        # Parameters and cached kernels are shared by all pages; a loop could
        # not create them.
        creates = self.is_initializing() or self.is_mutable_collection(KERNELS)
        if not self.config.pages.page_recompute or creates:
            # All pages as rows of one batch: [batch * pages, page_length].
            rows = (
                ids.reshape(-1, ids.shape[2]),
                mask.reshape(-1, mask.shape[2]),
            )
            states = self._encode_page(*rows, deterministic, layer)
            return jnp.reshape(states, (*ids.shape, -1))

        def encode_page(
            model: EncoderDecoder, ids: AnyArray, mask: AnyArray
        ) -> AnyArray:
            return model._encode_page(ids, mask, deterministic, layer)

        # The loop already keeps XLA from merging a page with its recomputation.
        recomputed = nn.remat(encode_page, prevent_cse=False)
        scan = nn.scan(
            lambda model, carry, page: (carry, recomputed(model, *page)),
            variable_broadcast=True,
            split_rngs={"params": False, "dropout": True},
            in_axes=1,
            out_axes=1,
            # otherwise the encoder is traced twice
            check_constancy_invariants=False,
        )
        _, states = scan(self, (), (ids, mask))
        return jnp.asarray(states)

    def _encode_page(
        self,
        ids: Int[AnyArray, "batch length"],
        mask: Bool[AnyArray, "batch length"],
        deterministic: bool,
        layer: int | None,
    ) -> Float[AnyArray, "batch length d_model"]:
        """Returns the states of tokens, without the states of global tokens."""
        x = self.embed_source(ids)
        norm = self.source_embedding_norm()
        inputs = self.default_inputs(ids)
        states = self.encoder(
            x, mask, deterministic, embedding_norm=norm, layer=layer, **inputs
        )
        return without_globals(states, ids.shape[1])

    def make_page_scores(self) -> None:
        """Makes the scores of pages if the decoder reads them one by one; call it in ``setup``."""
        c = self.config
        if c.pages.page_length and c.pages.page_decoding:
            shape, names = (c.decoder_stack.d_model, 1), ("embed", "pages")
            self.page_scores = Linear(
                shape, names, normal(0.02), nn.initializers.zeros
            )

    def _in_pages(self, x: Shaped[AnyArray, "batch length *features"]) -> Array:
        """Cuts states into [batch * pages, page_body, ...] for a decoder that reads one page."""
        x = to_blocks(x, self.config.pages.page_body)
        return x.reshape(-1, *x.shape[2:])

    def _mix_pages(
        self,
        x: Float[AnyArray, "all_pages target_length d_model"],
        page_mask: Bool[AnyArray, "batch pages"],
    ) -> Float[Array, "batch target_length d_model"]:
        """Returns the weighted means of the decoder's outputs for all pages (PageSum, section 3).

        Args:
            x: outputs for batch * pages pages.
            page_mask: True for pages with a token.
        """
        x = x.reshape(*page_mask.shape, *x.shape[1:])
        # [batch, pages, target_length]
        scores = self.page_scores(x)[..., 0].astype(jnp.float32)
        # A softmax over the pages, for every target position.
        weights = masked_softmax(jnp.moveaxis(scores, 1, 2), page_mask[:, None])
        weights = jnp.moveaxis(weights, 2, 1)
        return jnp.einsum("bpt,bptd->btd", weights.astype(x.dtype), x)

    def init_memory(
        self,
        rows: int,
        source_length: int,
        target_length: int,
        pending: int = 0,
    ) -> DocumentMemory:
        """Returns the memory before the first segment of a document.

        Args:
            rows: number of documents.
            source_length, target_length: numbers of tokens of the next segments
                and of their targets.
            pending: number of segments whose writes gradients flow back
                through; see ``layers.memory``.
        """
        encoder = self.encoder.empty_memory(rows, source_length, pending)
        decoder = self.decoder.empty_memory(rows, target_length, pending)
        return DocumentMemory(encoder, decoder)

    def read_segment(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Shaped[AnyArray, "batch length"],
        memory: DocumentMemory,
        deterministic: bool = True,
        **inputs: Any,
    ) -> tuple[Float[Array, "batch states_length d_model"], DocumentMemory]:
        """Encodes a segment of a document; returns its states and the memory after it.

        Args:
            **inputs: keyword arguments of ``encode``, and ``salient`` for
                models with
                ``salient_vectors``: a pair of states of important tokens in
                other segments [batch, vectors, d_model] and their mask [batch,
                vectors].
        """
        x = constrain(
            self.embed_source(input_ids), "batch", "length", "act_embed"
        )
        norm = self.source_embedding_norm()
        mask = jnp.asarray(attention_mask).astype(bool)
        inputs = self.default_inputs(input_ids) | inputs
        states, encoder_memory = self.encoder.with_memory(
            x,
            mask,
            memory.encoder,
            deterministic,
            embedding_norm=norm,
            **inputs,
        )
        return states, memory._replace(encoder=encoder_memory)

    def write_segment(
        self,
        decoder_input_ids: Int[AnyArray, "batch target_length"],
        target_mask: Bool[AnyArray, "batch target_length"],
        encoder_states: Float[AnyArray, "batch states_length source_size"],
        attention_mask: Shaped[AnyArray, "batch length"],
        memory: DocumentMemory,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "batch target_length d_model"], DocumentMemory]:
        """Decodes a segment; returns the decoder's states and the memory after it.

        Args:
            target_mask: True at positions to memorize, which predict a real
                token.
        """
        x = self.embed_target(
            decoder_input_ids, jnp.arange(decoder_input_ids.shape[1])
        )
        mask = self._states_mask(encoder_states, attention_mask)
        x, decoder_memory = self.decoder.with_memory(
            x, target_mask, encoder_states, mask, memory.decoder, deterministic
        )
        return x, memory._replace(decoder=decoder_memory)

    def decode(
        self,
        decoder_input_ids: Int[AnyArray, "batch target_length"],
        encoder_states: Float[AnyArray, "batch states_length source_size"],
        attention_mask: Shaped[AnyArray, "batch length"],
        deterministic: bool = True,
    ) -> Float[Array, "batch target_length vocab"]:
        """Returns float32 logits of every next token.

        Args:
            decoder_input_ids: ids, beginning with the start token.
            encoder_states: states of the encoder.
            attention_mask: mask of the encoder's input, nonzero on real tokens.
            deterministic: False in training, to apply dropout.
        """
        x = self.decoder_states(
            decoder_input_ids, encoder_states, attention_mask, deterministic
        )
        return self.output_logits(x)

    def decoder_states(
        self,
        decoder_input_ids: Int[AnyArray, "batch target_length"],
        encoder_states: Float[AnyArray, "batch states_length source_size"],
        attention_mask: Shaped[AnyArray, "batch length"],
        deterministic: bool = True,
        segment_ids: SegmentIds | None = None,
    ) -> Float[Array, "batch target_length d_model"]:
        """Returns the states of the decoder, from which ``decode`` computes logits.

        Args:
            segment_ids: see ``score_targets``.
        """
        if segment_ids is None:
            positions = jnp.arange(decoder_input_ids.shape[1])
        else:
            positions = segment_positions(segment_ids.target)
        x = self.embed_target(decoder_input_ids, positions)
        mask = self._states_mask(encoder_states, attention_mask)
        if not self.config.pages.page_decoding:
            return self.decoder(
                x, encoder_states, mask, deterministic, segment_ids
            )
        states, mask = self._in_pages(encoder_states), self._in_pages(mask)
        # Every page has its own copy of the target: [batch * pages,
        # target_length, d_model].
        page_mask = mask.any(1).reshape(x.shape[0], -1)
        x = jnp.repeat(x, page_mask.shape[1], 0)
        x = self.decoder(x, states, mask, deterministic)
        return self._mix_pages(x, page_mask)

    def read_source(
        self,
        encoder_states: Float[AnyArray, "batch states_length source_size"],
        attention_mask: Shaped[AnyArray, "batch length"],
        memory: DocumentMemory | None = None,
        stores_states: bool | None = None,
    ) -> DecoderSource:
        """Returns the decoder's cached inputs from a document.

        Args:
            memory: memory to be read, without changing it.
            stores_states: True to store encoder states, see
                ``layers.decoder.Decoder.read_source``.
        """
        mask = self._states_mask(encoder_states, attention_mask)
        if self.config.pages.page_decoding:
            encoder_states, mask = (
                self._in_pages(encoder_states),
                self._in_pages(mask),
            )
        if memory is None:
            decoder_memory = None
        else:
            decoder_memory = memory.decoder
        return self.decoder.read_source(
            encoder_states, mask, decoder_memory, stores_states
        )

    def init_cache(
        self, source: DecoderSource, beams: int, length: int, drafted: int = 0
    ) -> DecoderCache | DraftCache:
        """Returns an empty cache for ``decode_step``.

        Args:
            beams: number of sequences per row of the batch.
            length: capacity of the cache in tokens.
            drafted: number of draft tokens, see
                ``layers.decoder.Decoder.init_cache``.
        """
        return self.decoder.init_cache(source, beams, length, drafted)

    def decode_step(
        self,
        ids: Int[AnyArray, "batch beams"],
        cache: DecoderCache | DraftCache,
        source: DecoderSource,
        layers: tuple[Any, ...] | None = None,
    ) -> tuple[Float[Array, "batch beams vocab"], DecoderCache | DraftCache]:
        """Returns float32 logits of the next token, and the cache including ``ids``.

        With a ``DraftCache`` the ids of a row are consecutive tokens of a
        sequence.

        Args:
            layers: parameters of every decoder layer, see
                ``layers.decoder.Decoder.step``.
        """
        positions = cache.query_positions
        # Rows of the cache are pages; all pages of a document have the same
        # positions.
        pages = len(positions) // len(ids)
        x = self.embed_target(ids, positions[::pages])
        if not self.config.pages.page_decoding:
            x, cache = self.decoder.step(x, cache, source, layers)
            return self.output_logits(x), cache
        page_mask = source.mask.any((1, 2, 3)).reshape(ids.shape[0], -1)
        x, cache = self.decoder.step(
            jnp.repeat(x, page_mask.shape[1], 0), cache, source, layers
        )
        return self.output_logits(self._mix_pages(x, page_mask)), cache

    def _states_mask(
        self,
        states: Float[AnyArray, "batch states_length d_model"],
        attention_mask: Shaped[AnyArray, "batch length"],
    ) -> Bool[Array, "batch states_length"]:
        """Returns the mask of states that the decoder reads: global and real tokens."""
        mask = jnp.asarray(attention_mask).astype(bool)
        attention = self.config.attention
        if isinstance(attention, LsgOptions) and attention.mask_first_token:
            # The first global token replaces the first token, also in the
            # decoder.
            mask = mask & (jnp.arange(mask.shape[1]) > 0)
        num_globals = states.shape[1] - mask.shape[1]
        return jnp.pad(mask, ((0, 0), (num_globals, 0)), constant_values=True)

    def default_inputs(
        self, ids: Int[AnyArray, "batch length"]
    ) -> dict[str, Any]:
        """Returns the additional inputs of the encoder attention that a caller may leave out."""
        return {}

    def source_embedding_norm(self) -> nn.Module | None:
        """Returns the final norm of ``embed_source``, None without one."""
        return None

    def embed_source(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "batch length"] | None = None,
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of source tokens.

        Args:
            ids: source tokens.
            positions: positions of the tokens; None for 0, 1, ...
        """
        raise NotImplementedError

    def embed_target(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "..."],
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of target tokens.

        Args:
            ids: target tokens; in decoding the newest token of each beam.
            positions: positions of the columns, int [length], of the rows,
                [batch, 1], or of the tokens, [batch, length].
        """
        raise NotImplementedError

    def output_logits(
        self, x: Float[AnyArray, "*leading d_model"]
    ) -> Float[Array, "*leading vocab"]:
        """Returns float32 logits of decoder states."""
        raise NotImplementedError

    @property
    def logits_parameter(self) -> str:
        """Name of the embedding table that states are multiplied with for logits."""
        return "shared"

    def logits_table(self) -> Float[AnyArray, "vocab d_model"] | StoredTable:
        """Returns this table, or the converted copy that decoding steps pass in."""
        table = getattr(self, self.logits_parameter)
        return self.get_variable("stored", "logits_table", table)
