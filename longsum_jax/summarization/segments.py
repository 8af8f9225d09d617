"""Reads documents of any length in constant device memory, segment by segment.

``memory`` is the strategy of models that were trained to read segments. If a
segment depends on earlier ones, the same three compiled programs process every
segment, using the memory of the segments before it:

    memory 0 -> read segment 0 -> search for summary 0 -> write summary 0 -> memory 1
    memory 1 -> read segment 1 -> search for summary 1 -> write summary 1 -> memory 2
    ...

Reading encodes a segment. Searching does not change the memory. Writing runs
the decoder once more over the summary that the search returned, and adds it to
the memory. The summaries of a document's segments are joined (AWESOME, section
3).

Segments of a model without memories are independent, and decoded like
documents, in slots (``continuous``). With ``segments_no_repeat_ngram_size``
they are not: a search then also takes the summaries of earlier segments, in
arrays for the next power of two of segments, each of which is compiled once.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.decoding.decoder import TokenLimits
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated
from longsum_jax.inference.padding import PaddedInputs
from longsum_jax.inference.programs import Search, of_all_rows
from longsum_jax.layers.decoder_cache import DecoderSource
from longsum_jax.models.encoder_decoder import DocumentMemory, EncoderDecoder
from longsum_jax.models.salient_vectors import (
    empty_vectors,
    gather_vectors,
    store_vectors,
)
from longsum_jax.ops.storage import Storage
from longsum_jax.summarization.documents import (
    TokenizedDocument,
    check_overflow,
    summary_of_row,
)
from longsum_jax.summarization.strategies import (
    StepInput,
    Steps,
    StrategyInput,
    budget_of,
    summaries_of_segments,
)
from longsum_jax.summarization.summary import (
    Overflow,
    Request,
    Summary,
    check_text,
)
from longsum_jax.text.joining import Joiner
from longsum_jax.text.prompts import Prompt
from longsum_jax.text.segment_inputs import (
    Auxiliary,
    SegmentInputOptions,
    SegmentInputs,
    read_segment_inputs,
)
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.training.mesh import MeshJit
from longsum_jax.typing import Array, Params

# (ids [batch, length], mask) -> both, padded to one of a few compiled lengths
Pad = Callable[[np.ndarray, np.ndarray], PaddedInputs]


def memory(source: StrategyInput) -> Steps:
    """Summarizes segments as the model was trained to, and concatenates the summaries."""
    document, length = source.segments, source.reader.length
    assert document is not None
    # Summaries are concatenated as they are, unless a length is requested.
    joiner = Joiner(merges=False)
    if length is not None:
        budget = budget_of(length, document.document.text, document.read_tokens)
        joiner = Joiner(budget.limit, budget.cost)
    pieces = [
        StepInput(TokenizedDocument(ids, len(ids))) for ids in document.sources
    ]
    lengths = [segment.num_tokens for segment in document.document.segments]
    summaries = yield from summaries_of_segments(
        source, pieces, lengths, joiner
    )
    draft = source.draft(joiner, summaries)
    if length is not None:
        return draft
    num_tokens = sum(summary.summary_tokens for summary in summaries)
    return draft._replace(tokens=num_tokens)


class SegmentSummarizer:
    """Summarizes segments with a model that was trained to read documents segment by segment.

    Args:
        module: module of the model; its parameters are passed to every call.
        tokenizer: tokenizer of the model.
        options: options for cutting documents into segments.
        pad: function that pads ids and masks.
        auxiliary: functions that compare sentences and find important ones.
        storage: storage type of the decoder's weights and the segment's keys in
            decoding.
    """

    def __init__(
        self,
        module: EncoderDecoder,
        tokenizer: Tokenizer,
        options: SegmentInputOptions,
        *,
        pad: Pad,
        auxiliary: Auxiliary,
        storage: Storage = "float32",
    ) -> None:
        self._config = module.config
        self._tokenizer = tokenizer
        # counted once per document
        self._num_special = len(tokenizer.add_special_tokens([]))
        self._options = options
        self._pad = pad
        self._auxiliary = auxiliary
        self._start = MeshJit(partial(_start, module), static_argnums=(1, 2, 3))
        self._read_segment = MeshJit(
            partial(_read_segment, module, storage), donate_argnames="memory"
        )
        self._search = Search(module, storage)
        self._write_segment = MeshJit(
            partial(_write_segment, module), donate_argnames="memory"
        )
        self._keep = MeshJit(partial(_keep, module), donate_argnames="vectors")

    def read(
        self,
        request: Request,
        prompt: Prompt,
        limit: int | None,
        on_overflow: Overflow,
    ) -> SegmentInputs:
        """Cuts a document into segments.

        Args:
            request: document to read.
            prompt: text around every segment.
            limit: maximum tokens to read, including special tokens; None for
                all.
            on_overflow: behavior for longer documents.

        Raises:
            InputError: the text is empty or too long.
        """
        check_text(request)
        document = read_segment_inputs(
            request.text,
            self._tokenizer,
            self._options,
            prompt=prompt,
            query=request.query,
            max_tokens=None
            if limit is None
            else max(1, limit - self._num_special),
            auxiliary=self._auxiliary,
            borders=request.borders,
        )
        if limit is not None:
            total = document.total_tokens + self._num_special
            check_overflow(request.name, total, limit, on_overflow)
        return document

    def release_auxiliary(self) -> None:
        """Moves the auxiliary models off the device, to free its memory for the model."""
        self._auxiliary.release()

    @property
    def carries_memory(self) -> bool:
        """True if a segment depends on earlier ones."""
        return self._config.has_memory

    @property
    def length(self) -> int:
        """Padded length of a segment, in tokens."""
        return self._options.segment_length

    def read_ids(self, document: SegmentInputs) -> TokenizedDocument:
        """Returns the tokens that are read of a document, without query and labels."""
        ids = itertools.chain.from_iterable(document.document.token_ids)
        return TokenizedDocument(
            self._tokenizer.add_special_tokens(list(ids)),
            document.total_tokens + self._num_special,
        )

    def decode(
        self,
        params: Params,
        documents: Sequence[SegmentInputs],
        *,
        batch_size: int,
        options: GenerationOptions,
        seed: int,
        limits: TokenLimits | None = None,
    ) -> Iterator[list[Summary]]:
        """Yields the summaries of the first segments, then of the second ones, and so on.

        Documents that have ended are left out.

        Args:
            params: parameters of the module.
            documents: at most ``batch_size`` documents.
            batch_size: rows of the batch.
            options: generation options for every segment.
            seed: random seed for sampling.
            limits: numbers of tokens of every summary, scalars; None for the
                options' limits.
        """
        num_segments = max(len(document.sources) for document in documents)
        # Pad the last batch with copies, so that it has the shape that is
        # already compiled.
        filled = [*documents, *[documents[-1]] * (batch_size - len(documents))]
        segments = [
            self._segment(filled, index) for index in range(num_segments)
        ]
        length = segments[0]["ids"].shape[1]
        memory, vectors = self._start(
            params, batch_size, length, options.max_new_tokens
        )
        if self._options.salient == "vectors":
            # Segments read vectors of any other segment, so all are stored
            # first.
            for segment in segments:
                arrays = segment["ids"], segment["mask"], segment["slots"]
                vectors = self._keep(params, vectors, *arrays)
        outputs: list[Generated] = []
        # In order, because each segment reads the memory of the previous one:
        #
        #   read_segment(ids, memory) -> states, memory      encoder
        #   search(source)            -> summary             decoder
        #   write_segment(summary)    -> memory              for the next segment
        for index, segment in enumerate(segments):
            # Vectors of important tokens, for models that read them.
            salient = None
            if "reads" in segment:
                salient = (vectors, segment["reads"])
            mask = segment["mask"]
            states, memory, source = self._read_segment(
                params, segment["ids"], mask, memory, salient
            )
            # Ban n-grams of the earlier summaries in this search.
            if options.segments_no_repeat_ngram_size > 0:
                shape = batch_size, num_segments, options.max_new_tokens
                earlier = _said(outputs, *shape, self._special_ids(options))
                source = source._replace(said=earlier)
            out = self._search(
                params,
                source,
                _segment_keys(seed, index, batch_size)
                if options.do_sample
                else None,
                batch_size=batch_size,
                options=options,
                # documents without a segment at this index
                is_done=np.logical_not(mask.any(1)),
                limits=of_all_rows(limits, batch_size),
            )
            # Dispatched before device_get, to keep the device busy.
            memory = self._write_segment(params, out, states, mask, memory)
            outputs.append(jax.device_get(out))
            summaries = []
            for row, document in enumerate(documents):
                if index < len(document.sources):
                    ids = document.sources[index]
                    read = TokenizedDocument(ids, len(ids))
                    summaries.append(
                        summary_of_row(self._tokenizer, read, outputs[-1], row)
                    )
            yield summaries

    def _segment(
        self, documents: Sequence[SegmentInputs], index: int
    ) -> dict[str, np.ndarray]:
        """Returns the arrays of segment ``index`` of all documents.

        Rows of documents without a segment at this index are padding.

        Returns:
            ids int32 and mask bool [batch, length]; with vectors also slots
            int32 [batch, length] and reads int32 [batch, num_vectors], see
            ``SegmentInputs.vectors``.
        """
        options = self._options
        shape = len(documents), options.segment_length
        ids = np.full(shape, self._config.pad_token_id, np.int32)
        mask = np.zeros(shape, bool)
        unfinished = [
            (row, document)
            for row, document in enumerate(documents)
            if index < len(document.sources)
        ]
        for row, document in unfinished:
            source = document.sources[index]
            ids[row, : len(source)] = source
            mask[row, : len(source)] = True
        padded = self._pad(ids, mask)
        segment = {"ids": padded.ids, "mask": padded.mask}
        if options.salient != "vectors":
            return segment
        segment["slots"] = np.full(padded.ids.shape, -1, np.int32)
        segment["reads"] = np.full(
            (len(documents), options.num_vectors), -1, np.int32
        )
        for row, document in unfinished:
            slots, reads = document.vectors(options)
            segment["slots"][row, : slots.shape[1]] = slots[index]
            segment["reads"][row] = reads[index]
        return segment

    def _special_ids(self, generation: GenerationOptions) -> set[int]:
        """Returns the special tokens at the start or end of every summary."""
        first = generation.forced_bos_token_id
        around = {*self._tokenizer.add_special_tokens([]), *generation.eos_ids}
        if first is None:
            return around
        return around | {first}


def _said(
    outputs: Sequence[Generated],
    batch_size: int,
    num_segments: int,
    max_new_tokens: int,
    special_ids: Collection[int],
) -> np.ndarray:
    """Returns the summaries of earlier segments in the format of ``DecoderSource.said``.

    Args:
        outputs: outputs of the segments up to now.
        batch_size, num_segments, max_new_tokens: sizes of the batch, which
            determine the shape.
        special_ids: tokens at the start or end of summaries. They are omitted,
            so that several summaries may start or end alike.
    """
    row_length = max_new_tokens + 1  # a summary and a zero after it
    # A power of two, so that few shapes are compiled.
    rounded_up = 1 << (num_segments - 1).bit_length()
    earlier = np.zeros((batch_size, rounded_up, row_length), np.int32)
    for index, out in enumerate(outputs):
        # Without the start token.
        ids = out.sequences[:, 1:]
        # [batch, length], True on the tokens of summaries
        is_said = np.arange(ids.shape[1]) < out.lengths[:, None]
        is_said &= ~np.isin(ids, list(special_ids))
        # Ids are stored plus one, because zero marks the end.
        earlier[:, index, : ids.shape[1]] = np.where(is_said, ids + 1, 0)
    return earlier.reshape(batch_size, -1)


def _segment_keys(seed: int, index: int, batch_size: int) -> Array:
    """Returns the key of segment ``index``, the same for all rows of a batch."""
    key = jax.random.fold_in(jax.random.key(seed), index)
    return jnp.broadcast_to(key, (batch_size,))


def _start(
    module: EncoderDecoder,
    params: Params,
    batch_size: int,
    length: int,
    target_length: int,
) -> tuple[DocumentMemory, Array]:
    """Returns the memory and the vectors of important tokens before the first segment."""
    sizes = batch_size, length, target_length
    memory = module.apply({"params": params}, *sizes, method="init_memory")
    return memory, empty_vectors(module.config, batch_size)


def _keep(
    module: EncoderDecoder,
    params: Params,
    vectors: Array,
    ids: Array,
    mask: Array,
    slots: Array,
) -> Array:
    """Returns the vectors of important tokens after adding one more segment."""
    return module.apply(
        {"params": params}, vectors, ids, mask, slots, method=store_vectors
    )


def _read_segment(
    module: EncoderDecoder,
    storage: Storage,
    params: Params,
    ids: Array,
    mask: Array,
    memory: DocumentMemory,
    salient: tuple[Array, Array] | None,
) -> tuple[Array, DocumentMemory, DecoderSource]:
    """Encodes a segment.

    Args:
        module, params: module and parameters of the model.
        storage: storage type of the segment's keys and values.
        ids, mask: ids and mask of the segment, [batch, length].
        memory: memory before the segment.
        salient: vectors of important tokens of other segments, and the indices
            that this segment reads; None for models without them.

    Returns:
        Encoder states, the memory after reading, and the encoded segment for
        the decoder.
    """
    apply = partial(module.apply, {"params": params})
    inputs: Mapping[str, Any] = (
        {} if salient is None else {"salient": gather_vectors(*salient)}
    )
    states, memory = apply(ids, mask, memory, method="read_segment", **inputs)
    source = apply(states, mask, memory, method="read_source")
    return states, memory, source.stored(storage).with_ids(ids, mask)


def _write_segment(
    module: EncoderDecoder,
    params: Params,
    out: Generated,
    states: Array,
    mask: Array,
    memory: DocumentMemory,
) -> DocumentMemory:
    """Adds a summary to the memory by running the decoder over it once more."""
    num_tokens = out.sequences.shape[1] - 1
    # Mask the padding after summaries, and documents that have ended.
    is_written = jnp.arange(num_tokens) < out.lengths[:, None]
    target_mask = is_written & mask.any(1, keepdims=True)
    # Beams were reordered during the search; the decoder's memory is written
    # once, from the sequence that was selected.
    _, memory = module.apply(
        {"params": params},
        out.sequences[:, :-1],
        target_mask,
        states,
        mask,
        memory,
        method="write_segment",
    )
    return memory
