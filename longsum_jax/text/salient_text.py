"""What a model reads with a segment: a query, and important sentences of the rest of the document
(AWESOME, section 4).

Sources are made of the tokens that the document was cut into, so their lengths are exact and
nothing is cut off.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.segmentation import Segment, SegmentedDocument
from longsum_jax.tokenizers.base import Tokenizer

Order = Literal["document", "current_first"]


@dataclasses.dataclass(frozen=True)
class SalientTextOptions:
    """How important sentences stand beside a segment.

    Attributes:
        order: "document": earlier sentences, the segment, later ones; "current_first": the segment
            before both.
        past, current, future: what is said before each of them; an empty group has no label.
    """

    order: Order = "document"
    past: str = "Previous important sentences:"
    current: str = "Current chunk:"
    future: str = "Next important sentences:"

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise InputError(
                f'salient.order: "{self.order}" is not allowed; {did_you_mean(self.order, get_args(Order))}'
            )


class TokenSpan(NamedTuple):
    """Tokens [start, stop) of the source of a segment, as ``segment_sources`` gives it without
    salient text."""

    segment: int
    start: int
    stop: int


def inclusion_order(salient: Sequence[int], segment: Segment) -> list[int]:
    """Returns the important sentences outside a segment, outermost first.

    Earliest past, last future, second earliest past, second last future and so on; where one side
    ends the other goes on.

    Args:
        salient: numbers of sentences, ascending.
        segment: whose sentences are left out.
    """
    past = salient[: bisect.bisect_left(salient, segment.first)]
    future = salient[bisect.bisect_left(salient, segment.end) :][::-1]
    pairs = itertools.zip_longest(past, future)
    return [sentence for pair in pairs for sentence in pair if sentence is not None]


def room_for_text(
    tokenizer: Tokenizer,
    limit: int,
    *,
    min_tokens: int = 1,
    prefix: str = "",
    query: str | None = None,
    salient: SalientTextOptions | None = None,
) -> int:
    """Returns how many tokens a segment may have: give it as ``SegmentOptions.max_segment_tokens``.

    Args:
        limit: tokens of a source, special ones included.
        min_tokens: of a segment.
        prefix, query, salient: what stands before it, see ``segment_sources``.

    Raises:
        InputError: fewer than ``min_tokens`` are left.
    """
    label = tokenizer.encode(f" {salient.current}") if salient else []
    room = limit - len(tokenizer.add_special_tokens(_lead(tokenizer, prefix, query) + label))
    if room < min_tokens:
        what = f'the query "{query[:60]}"' if query else "the text before a segment"
        raise InputError(
            f"{what} leaves {max(room, 0)} of {limit} tokens, fewer than segments.min_tokens={min_tokens}; shorten it "
            "or lower min_tokens"
        )
    return room


def segment_sources(
    document: SegmentedDocument,
    tokenizer: Tokenizer,
    limit: int,
    *,
    prefix: str = "",
    query: str | None = None,
    salient: Sequence[int] | None = None,
    options: SalientTextOptions = SalientTextOptions(),
) -> list[list[int]]:
    """Returns what is read of every segment, as token ids between the tokenizer's special ones.

    Prefix, query and a line break stand before every segment. Important sentences of other segments
    join it in their ``inclusion_order`` until one does not fit, and are put in document order under
    their labels.

    Args:
        document: cut with the same tokenizer into segments of at most ``room_for_text``.
        limit: tokens of a source, labels and special ones included.
        salient: numbers of the important sentences, ascending; None for the segment alone, without
            a label.

    Raises:
        InputError: a segment that does not fit.
    """
    lead = _lead(tokenizer, prefix, query)
    room = limit - len(tokenizer.add_special_tokens(lead))
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
                f"segment {index + 1} needs {len(current)} tokens, but {room} of {limit} are left for it; cut the "
                "document with max_segment_tokens=room_for_text(...)"
            )
        parts = {"past": [], "current": current, "future": []}
        if salient:
            parts |= _important(
                document, inclusion_order(salient, segment), segment, labels, room - len(current)
            )
        names = ("current", "past", "future") if options.order == "current_first" else parts
        sources.append(
            tokenizer.add_special_tokens(
                [*lead, *itertools.chain.from_iterable(parts[name] for name in names)]
            )
        )
    return sources


def salient_spans(
    document: SegmentedDocument,
    tokenizer: Tokenizer,
    salient: Sequence[int],
    *,
    budget: int = 1024,
    prefix: str = "",
    query: str | None = None,
) -> list[list[TokenSpan]]:
    """Returns for every segment where the important sentences of the others stand, for key-value
    vectors.

    Args:
        salient: numbers of the important sentences, ascending.
        budget: tokens for one segment; sentences are taken whole, in their ``inclusion_order``,
            until one does not fit.
        prefix, query: what stands before every segment in its source.
    """
    offset = len(tokenizer.prefix_ids) + len(_lead(tokenizer, prefix, query))
    where = _sentence_spans(document, offset)
    spans = []
    for segment in document.segments:
        found = [where[sentence] for sentence in inclusion_order(salient, segment)]
        used = itertools.accumulate(span.stop - span.start for span in found)
        spans.append([span for span, total in zip(found, used, strict=True) if total <= budget])
    return spans


def _lead(tokenizer: Tokenizer, prefix: str, query: str | None) -> list[int]:
    text = f"{prefix}{query}\n" if query else prefix
    return tokenizer.encode(text) if text else []


def _important(
    document: SegmentedDocument,
    order: list[int],
    segment: Segment,
    labels: dict[str, list[int]],
    room: int,
) -> dict[str, list[int]]:
    """Labelled tokens of the sentences of ``order`` that fit into ``room``, "past" and "future"."""
    chosen: dict[str, list[int]] = {"past": [], "future": []}
    for sentence in order:
        side = "past" if sentence < segment.first else "future"
        room -= len(document.token_ids[sentence]) + (0 if chosen[side] else len(labels[side]))
        if room < 0:
            break
        chosen[side].append(sentence)
    return {
        side: labels[side]
        + [token for sentence in sorted(found) for token in document.token_ids[sentence]]
        for side, found in chosen.items()
        if found
    }


def _sentence_spans(document: SegmentedDocument, offset: int) -> list[TokenSpan]:
    """Where each sentence stands in the source of its segment, ``offset`` tokens before the
    first."""
    spans = []
    for index, segment in enumerate(document.segments):
        start = offset
        for ids in document.token_ids[segment.first : segment.end]:
            spans.append(TokenSpan(index, start, start + len(ids)))
            start += len(ids)
    return spans
