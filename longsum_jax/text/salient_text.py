"""Builds the source of a segment: a query, the segment, and important sentences of other segments.

Source: AWESOME (Cao & Wang 2023), section 3.2.

Sources consist of the tokens of the segmented document, so their lengths are
exact and nothing is truncated.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.prompts import NO_PROMPT, Prompt, PromptedIds
from longsum_jax.text.segmentation import Segment, SegmentedDocument
from longsum_jax.tokenizers.base import Tokenizer

Order = Literal["document", "current_first"]


@dataclasses.dataclass(frozen=True)
class SalientTextOptions:
    """The layout of a segment and important sentences of other segments.

    Attributes:
        order: "document" puts earlier sentences, the segment, later sentences;
            "current_first" puts the segment first.
        past, current, future: labels before each group; an empty group has no
            label.
    """

    order: Order = "document"
    past: str = "Previous important sentences:"
    current: str = "Current chunk:"
    future: str = "Next important sentences:"

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise InputError(
                f'salient.order: "{self.order}" is not allowed; '
                f"{did_you_mean(self.order, get_args(Order))}"
            )


class TokenSpan(NamedTuple):
    """Tokens [start, stop) in the source of a segment without salient text."""

    segment: int
    start: int
    stop: int


def inclusion_order(salient: Sequence[int], segment: Segment) -> list[int]:
    """Returns the important sentences outside a segment, outermost first.

    The order is earliest past, last future, second earliest past, second last
    future and so on. When one side is exhausted, the other continues.

    Args:
        salient: indices of important sentences, ascending.
        segment: segment whose own sentences are omitted.
    """
    past = salient[: bisect.bisect_left(salient, segment.first)]
    future = salient[bisect.bisect_left(salient, segment.end) :][::-1]
    pairs = itertools.zip_longest(past, future)
    return [
        sentence for pair in pairs for sentence in pair if sentence is not None
    ]


def room_for_text(
    tokenizer: Tokenizer,
    limit: int,
    *,
    min_tokens: int = 1,
    prompt: Prompt = NO_PROMPT,
    query: str | None = None,
    salient: SalientTextOptions | None = None,
) -> int:
    """Returns the maximum length of a segment in tokens, for ``SegmentOptions.max_segment_tokens``.

    Args:
        limit: length of a source in tokens, including special tokens.
        min_tokens: minimum length of a segment in tokens.
        prompt, query, salient: text around a segment, see ``segment_sources``.

    Raises:
        InputError: fewer than ``min_tokens`` are left.
    """
    if salient:
        label = tokenizer.encode(f" {salient.current}")
    else:
        label = []
    empty = prompt.source(tokenizer, prompt.encode(tokenizer, "", query))
    room = limit - len(empty) - len(label)
    if room < min_tokens:
        if query:
            what = f'the query "{query[:60]}"'
        else:
            what = "the text before a segment"
        raise InputError(
            f"{what} leaves {max(room, 0)} of {limit} tokens, fewer than "
            f"segments.min_tokens={min_tokens}; shorten it or lower min_tokens"
        )
    return room


def segment_sources(
    document: SegmentedDocument,
    tokenizer: Tokenizer,
    limit: int,
    *,
    prompt: Prompt = NO_PROMPT,
    query: str | None = None,
    salient: Sequence[int] | None = None,
    options: SalientTextOptions = SalientTextOptions(),
) -> list[list[int]]:
    """Returns the source of every segment as token ids, including special tokens.

    Every segment stands in the prompt with the query. Important sentences of
    other segments are added in their ``inclusion_order`` until one does not
    fit, and appear in document order under their labels.

    Args:
        document: document cut by the same tokenizer into segments of at most
            ``room_for_text``.
        limit: maximum length of a source in tokens, including labels and
            special tokens.
        prompt, query: text around every segment.
        salient: indices of the important sentences, ascending; None for
            segments without labels.

    Raises:
        InputError: a segment does not fit.
    """
    lead, tail = prompt.encode(tokenizer, "", query)
    room = limit - len(prompt.source(tokenizer, PromptedIds(lead, tail)))
    labels = {
        name: tokenizer.encode(f" {getattr(options, name)}")
        for name in ("past", "current", "future")
    }
    sources = []
    for index, segment in enumerate(document.segments):
        current = [
            *(labels["current"] if salient is not None else ()),
            *document.segment_ids(index),
        ]
        if len(current) > room:
            raise InputError(
                f"segment {index + 1} needs {len(current)} tokens, but {room} of {limit} are left "
                "for it; cut the document with max_segment_tokens=room_for_text(...)"
            )
        groups = {"past": [], "current": current, "future": []}
        if salient:
            order = inclusion_order(salient, segment)
            groups |= _important(
                document, order, segment, labels, room - len(current)
            )
        names = (
            ("current", "past", "future")
            if options.order == "current_first"
            else groups
        )
        ids = list(lead)
        for name in names:
            ids += groups[name]
        sources.append(prompt.source(tokenizer, PromptedIds(ids, tail)))
    return sources


def salient_spans(
    document: SegmentedDocument,
    tokenizer: Tokenizer,
    salient: Sequence[int],
    *,
    budget: int = 1024,
    prompt: Prompt = NO_PROMPT,
    query: str | None = None,
) -> list[list[TokenSpan]]:
    """Returns, for every segment, the token spans of important sentences in other segments.

    The encoder states of these spans become key-value vectors.

    Args:
        salient: indices of the important sentences, ascending.
        budget: maximum number of tokens per segment. Sentences are added whole,
            in their ``inclusion_order``, until one does not fit.
        prompt, query: text around every segment in its source.
    """
    lead = prompt.encode(tokenizer, "", query).head
    offset = prompt.num_before(tokenizer) + len(lead)
    sentence_spans = _sentence_spans(document, offset)
    spans = []
    for segment in document.segments:
        candidates = [
            sentence_spans[sentence]
            for sentence in inclusion_order(salient, segment)
        ]
        totals = itertools.accumulate(
            span.stop - span.start for span in candidates
        )
        spans.append(
            [
                span
                for span, total in zip(candidates, totals, strict=True)
                if total <= budget
            ]
        )
    return spans


def _important(
    document: SegmentedDocument,
    order: list[int],
    segment: Segment,
    labels: dict[str, list[int]],
    room: int,
) -> dict[str, list[int]]:
    """Returns the tokens of "past" and "future" sentences that fit into ``room``, with labels."""
    selected: dict[str, list[int]] = {"past": [], "future": []}
    for sentence in order:
        if sentence < segment.first:
            side = "past"
        else:
            side = "future"
        room -= len(document.token_ids[sentence]) + (
            0 if selected[side] else len(labels[side])
        )
        if room < 0:
            break
        selected[side].append(sentence)
    groups = {}
    for side, sentences in selected.items():
        if sentences:
            tokens = [
                document.token_ids[sentence] for sentence in sorted(sentences)
            ]
            groups[side] = [
                *labels[side],
                *itertools.chain.from_iterable(tokens),
            ]
    return groups


def _sentence_spans(
    document: SegmentedDocument, offset: int
) -> list[TokenSpan]:
    """Returns the span of each sentence in its segment's source, which starts at ``offset``."""
    spans = []
    for index, segment in enumerate(document.segments):
        start = offset
        for ids in document.token_ids[segment.first : segment.end]:
            spans.append(TokenSpan(index, start, start + len(ids)))
            start += len(ids)
    return spans
