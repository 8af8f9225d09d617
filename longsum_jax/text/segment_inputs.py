"""Builds the inputs of a model that reads a document segment by segment."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.schema import from_dict
from longsum_jax.text.prompts import NO_PROMPT, Prompt
from longsum_jax.text.salient_text import (
    Order,
    SalientTextOptions,
    TokenSpan,
    room_for_text,
    salient_spans,
    segment_sources,
)
from longsum_jax.text.segment_targets import TargetMetric
from longsum_jax.text.segmentation import (
    SegmentedDocument,
    SegmentOptions,
    SentenceEncoder,
    SplitMoves,
    segment_document,
)
from longsum_jax.text.word_table import tfidf_vectors
from longsum_jax.tokenizers.base import Tokenizer

# (sentences of a document, query or None) -> indices of the important
# sentences, ascending
Extract = Callable[[Sequence[str], str | None], list[int]]


@dataclasses.dataclass(frozen=True)
class SegmentInputOptions:
    """Options of segment inputs; a model trained with them stores them in its config.json.

    Attributes:
        segment_length: length of a segment's source in tokens, including
            special tokens, query and important sentences. Tasks set it to their
            ``max_source_length``.
        min_tokens, max_tokens, strict, next_includes_sentence, split_moves: see
            ``text.segmentation.SegmentOptions``.
        target_metric, target_stemmer: see
            ``text.segment_targets.assign_sentences``.
        train_tokens: number of tokens of a document to read in training, in
            whole segments; 0 for all.
        train_empty: True if a segment without a summary sentence is trained to
            produce the empty text; otherwise it is read without a loss.
        salient: form in which a segment reads important sentences of other
            segments: not at all ("none"), as "text", or as "vectors" (for
            models with ``salient_vectors``).
        salient_order: see ``text.salient_text.SalientTextOptions``.
        salient_source: source of important sentences in training: the extractor
            ("predicted", as at inference) or the summary ("oracle").
        num_vectors: number of tokens of important sentences that a segment
            reads as vectors; equal to ``salient_vectors`` of the model.
        extractor: directory for ``longsum_jax.load`` whose ``extract`` finds
            important sentences; empty for ``central_sentences``. In a model's
            config.json: a subdirectory next to it.
        sentence_encoder: directory of a model whose mean states compare
            sentences; empty for TF-IDF. In a model's config.json: a
            subdirectory next to it.
    """

    segment_length: int = 1024
    min_tokens: int = 512
    max_tokens: int = 768
    strict: bool = False
    next_includes_sentence: bool = False
    split_moves: SplitMoves = "sentence"
    target_metric: TargetMetric = "precision"
    target_stemmer: bool = True
    train_tokens: int = 51200
    train_empty: bool = False
    salient: Literal["none", "text", "vectors"] = "none"
    salient_order: Order = "document"
    salient_source: Literal["predicted", "oracle"] = "predicted"
    num_vectors: int = 0
    extractor: str = ""
    sentence_encoder: str = ""

    def __post_init__(self) -> None:
        if self.salient == "none" and self.extractor:
            raise InputError(
                f'segments.extractor is {self.extractor}, but segments.salient is "none"; '
                'give "text" or "vectors"'
            )
        self.segmentation(None)  # checks the lengths

    def segmentation(self, room: int | None) -> SegmentOptions:
        """Returns the options of segmentation into segments of at most ``room`` tokens."""
        return SegmentOptions(
            min_tokens=self.min_tokens,
            max_tokens=self.max_tokens,
            max_segment_tokens=room,
            strict=self.strict,
            next_includes_sentence=self.next_includes_sentence,
            split_moves=self.split_moves,
        )


def segment_options(summarization: Mapping[str, Any]) -> SegmentInputOptions:
    """Returns the options for reading segments from "segments" in a model's config.json.

    Raises:
        InputError: an unknown option, or one out of range.
    """
    return from_dict(
        SegmentInputOptions, summarization["segments"], "config.json: segments"
    )


class SegmentInputs(NamedTuple):
    """The inputs of a model for one document.

    Attributes:
        document: segmented document, up to the last segment that is read.
        sources: token ids of every segment, including special tokens.
        spans: spans in ``sources``, per segment, of important sentences of
            other segments; empty without vectors.
        total_tokens: length of the whole document in tokens, read or not,
            without special tokens.
    """

    document: SegmentedDocument
    sources: list[list[int]]
    spans: list[list[TokenSpan]]
    total_tokens: int

    @property
    def read_tokens(self) -> int:
        """The number of document tokens that are read, without special tokens, query and labels."""
        return sum(segment.num_tokens for segment in self.document.segments)

    def vectors(
        self, options: SegmentInputOptions
    ) -> tuple[np.ndarray, np.ndarray]:
        """Assigns important tokens to slots, and slots to the segments that read them.

        Every token that any segment reads has one slot. A document of any
        length needs at most ``2 * num_vectors`` slots, because segments read
        the outermost sentences first.

        Returns:
            slots, int32 [S, L]: slot of each token, -1 for tokens without one;
            reads, int32 [S, P]: slots that each segment reads, padded with -1.
            S segments, L ``segment_length``, P ``num_vectors``.
        """
        slots = np.full((len(self.spans), options.segment_length), -1, np.int32)
        reads = np.full((len(self.spans), options.num_vectors), -1, np.int32)
        used = 0
        all_spans = set(itertools.chain.from_iterable(self.spans))
        for segment, start, stop in sorted(all_spans):
            slots[segment, start:stop] = np.arange(used, used + stop - start)
            used += stop - start
        for row, spans in zip(reads, self.spans, strict=True):
            end = 0
            for segment, start, stop in spans:
                row[end : end + stop - start] = slots[segment, start:stop]
                end += stop - start
        return slots, reads


def central_sentences(
    sentences: Sequence[str], query: str | None = None, *, share: float = 0.1
) -> list[int]:
    """Returns the indices of the sentences nearest to the mean sentence, by TF-IDF, ascending.

    No weights are needed. Radev et al. (2004) rank by the same centroid.

    Args:
        sentences: sentences of one document.
        query: ignored; model-based extractors use it.
        share: fraction of the sentences to select; at least one is selected.
    """
    del query
    vectors = tfidf_vectors(sentences)
    vectors = vectors / np.maximum(
        np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9
    )
    scores = vectors @ vectors.mean(0)
    count = max(1, round(share * len(sentences)))
    return sorted(np.argsort(-scores, kind="stable")[:count].tolist())


def _release_nothing() -> None:
    """Does nothing, because functions without weights occupy no device memory."""


class Auxiliary(NamedTuple):
    """Helper functions for reading documents in segments; the defaults need no weights.

    Attributes:
        encode_sentences: sentences -> vectors float [n, d], which are compared
            to cut a document.
        extract: (sentences, query) -> indices of the important sentences,
            ascending.
        release: function that removes the models of the other two from their
            device until the next call.
    """

    encode_sentences: SentenceEncoder = tfidf_vectors
    extract: Extract = central_sentences
    release: Callable[[], None] = _release_nothing


DEFAULT_AUXILIARY = Auxiliary()


def read_segment_inputs(
    text: str,
    tokenizer: Tokenizer,
    options: SegmentInputOptions,
    *,
    prompt: Prompt = NO_PROMPT,
    query: str | None = None,
    max_tokens: int | None = None,
    max_segments: int | None = None,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
    borders: Sequence[int] = (),
) -> SegmentInputs:
    """Cuts a document into segments and builds their sources.

    Args:
        text: text of a document.
        tokenizer: tokenizer of the model.
        options: options of lengths and of the form of important sentences.
        prompt, query: text around every segment.
        max_tokens, max_segments: limits of the document; whole segments are
            read, at least one. None reads the whole document.
        auxiliary: functions that compare sentences and find the important ones.
        borders: positions in the text at which a segment always begins.

    Raises:
        InputError: the text is blank, or the query leaves no room for a
            segment.
    """
    salient_text = None
    if options.salient == "text":
        salient_text = SalientTextOptions(options.salient_order)
    before: dict[str, Any] = {"prompt": prompt, "query": query}
    room = room_for_text(
        tokenizer,
        options.segment_length,
        min_tokens=options.min_tokens,
        salient=salient_text,
        **before,
    )
    segmentation = options.segmentation(room)
    full = segment_document(
        text, tokenizer, segmentation, auxiliary.encode_sentences, borders
    )
    total_tokens = sum(segment.num_tokens for segment in full.segments)
    document = _first_segments(full, max_tokens, max_segments)
    salient: list[int] = []
    if options.salient != "none":
        salient = sorted(auxiliary.extract(document.sentences, query))
    if salient_text is not None:
        before |= {"salient": salient, "options": salient_text}
    sources = segment_sources(
        document, tokenizer, options.segment_length, **before
    )
    spans: list[list[TokenSpan]] = [[]] * len(sources)
    if options.salient == "vectors":
        spans = salient_spans(
            document,
            tokenizer,
            salient,
            budget=options.num_vectors,
            prompt=prompt,
            query=query,
        )
    return SegmentInputs(document, sources, spans, total_tokens)


def _first_segments(
    document: SegmentedDocument,
    max_tokens: int | None,
    max_segments: int | None,
) -> SegmentedDocument:
    """Returns the beginning of a document: whole segments within both limits, at least one."""
    count, tokens = 0, 0
    for segment in document.segments[:max_segments]:
        tokens += segment.num_tokens
        if count and max_tokens is not None and tokens > max_tokens:
            break
        count += 1
    segments = document.segments[:count]
    end = segments[-1].end
    return SegmentedDocument(
        document.text[: segments[-1].stop],
        document.sentences[:end],
        document.token_ids[:end],
        segments,
    )
