import itertools

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.text.prompts import prefix_prompt
from longsum_jax.text.salient_text import (
    SalientTextOptions,
    inclusion_order,
    room_for_text,
    salient_spans,
    segment_sources,
)
from longsum_jax.text.segmentation import Segment, SegmentOptions, segment_document
from longsum_jax.tokenizers.bytes import ByteTokenizer

TOKENIZER = ByteTokenizer()
TEXT = " ".join(f"Sentence {number} here." for number in range(10, 22))  # 12 of 17 or 18 bytes
OPTIONS = SegmentOptions(min_tokens=50, max_tokens=60, max_segment_tokens=70)


@pytest.fixture(scope="module")
def document():
    result = segment_document(TEXT, TOKENIZER, OPTIONS)
    assert [(segment.first, segment.end) for segment in result.segments] == [
        (0, 3),
        (3, 6),
        (6, 9),
        (9, 12),
    ]
    return result


def read(ids):
    assert ids[-1] == TOKENIZER.eos_id
    return TOKENIZER.decode(ids[:-1])


@pytest.mark.parametrize(
    ("salient", "expected"),
    [
        ([0, 1, 2, 7, 8, 9], [0, 9, 1, 8, 2, 7]),
        ([0, 1, 2, 3, 4, 5, 6], [0, 6, 1, 2]),
        ([4, 6, 7, 8], [8, 7, 6]),
        ([3, 5], []),
        ([], []),
    ],
)
def test_outermost_sentences_come_first(salient, expected):
    assert inclusion_order(salient, Segment(0, 0, 3, 6, 0)) == expected


def test_plain_sources_are_the_segments(document):
    sources = segment_sources(document, TOKENIZER, 80)
    assert "".join(map(read, sources)) == TEXT
    query = segment_sources(document, TOKENIZER, 100, prompt=prefix_prompt("sum: "), query="Which?")
    assert [read(ids) for ids in query] == [f"sum: Which?\n{read(ids)}" for ids in sources]


def test_important_sentences_stand_on_their_side(document):
    sources = segment_sources(document, TOKENIZER, 1000, salient=[1, 3, 7, 8, 11], query="Q")
    assert read(sources[1]) == (
        "Q\n Previous important sentences: Sentence 11 here. "
        "Current chunk: Sentence 13 here. Sentence 14 here. Sentence 15 here. "
        "Next important sentences: Sentence 17 here. Sentence 18 here. Sentence 21 here."
    )
    assert "Previous" not in read(sources[0])
    assert "Next" not in read(sources[3])
    first = SalientTextOptions(order="current_first")
    other = read(segment_sources(document, TOKENIZER, 1000, salient=[1, 7], options=first)[1])
    assert other.startswith(" Current chunk: Sentence 13")
    assert other.endswith(
        "Previous important sentences: Sentence 11 here. "
        "Next important sentences: Sentence 17 here."
    )
    assert read(segment_sources(document, TOKENIZER, 1000, salient=[])[1]).startswith(
        " Current chunk: Sentence 13"
    )


def slow_source(document, index, salient, limit, order):
    """Text of a segment, grown sentence by sentence and encoded whole every time."""
    segment, chosen = document.segments[index], []

    def text(chosen):
        past = [i for i in sorted(chosen) if i < segment.first]
        future = [i for i in sorted(chosen) if i >= segment.end]
        groups = {
            "past": (" Previous important sentences:", past),
            "future": (" Next important sentences:", future),
        }
        made = {
            name: label + "".join((" " if i else "") + document.sentences[i] for i in group)
            for name, (label, group) in groups.items()
            if group
        }
        current = " Current chunk:" + document.segment_text(index)
        if order == "current_first":
            return current + made.get("past", "") + made.get("future", "")
        return made.get("past", "") + current + made.get("future", "")

    past = [i for i in salient if i < segment.first]
    future = [i for i in salient if i >= segment.end][::-1]
    for sentence in [
        i for pair in itertools.zip_longest(past, future) for i in pair if i is not None
    ]:
        if len(TOKENIZER.encode(text([*chosen, sentence]))) + 1 > limit:
            break
        chosen.append(sentence)
    return text(chosen)


@pytest.mark.parametrize("order", ["document", "current_first"])
def test_budget(document, order):
    rng = np.random.default_rng(0)
    retained = set()
    for limit in range(75, 300, 7):
        salient = np.flatnonzero(rng.random(12) < 0.7).tolist()
        sources = segment_sources(
            document, TOKENIZER, limit, salient=salient, options=SalientTextOptions(order=order)
        )
        assert max(map(len, sources)) <= limit
        for index, source in enumerate(sources):
            assert read(source) == slow_source(document, index, salient, limit, order)
            retained.add(len(source))
    assert len(retained) > 10


def test_spans_are_the_sentences(document):
    salient = [0, 2, 4, 8, 9, 11]
    plain = segment_sources(document, TOKENIZER, 100, query="Q")
    everything = salient_spans(document, TOKENIZER, salient, query="Q")
    for index, (spans, segment) in enumerate(zip(everything, document.segments, strict=True)):
        texts = [
            TOKENIZER.decode(plain[span.segment][span.start : span.stop]).strip() for span in spans
        ]
        assert texts == [document.sentences[i] for i in inclusion_order(salient, segment)]
        assert index not in {span.segment for span in spans}
    for spans, fewer in zip(
        everything, salient_spans(document, TOKENIZER, salient, query="Q", budget=53), strict=True
    ):
        assert fewer == spans[: len(fewer)]
        assert 35 < sum(span.stop - span.start for span in fewer) <= 53


def test_room_for_text(document):
    assert room_for_text(TOKENIZER, 100) == 99
    label = SalientTextOptions(current="Now:")
    assert (
        room_for_text(TOKENIZER, 100, prompt=prefix_prompt("p "), query="Why?", salient=label)
        == 100 - 1 - 2 - 5 - 5
    )
    with pytest.raises(
        InputError,
        match=r'the query "Why\?Why\?.*" leaves 8 of 50 tokens, fewer than segments.min_t',
    ):
        room_for_text(TOKENIZER, 50, query="Why?" * 10, min_tokens=10)
    with pytest.raises(
        InputError, match="the text before a segment leaves 0 of 50 tokens, fewer than"
    ):
        room_for_text(TOKENIZER, 50, prompt=prefix_prompt("Why?" * 20))


def test_bad_input(document):
    with pytest.raises(
        InputError,
        match="segment 1 needs 53 tokens, but 49 of 50 are left for it; cut the document w",
    ):
        segment_sources(document, TOKENIZER, 50)
    with pytest.raises(
        InputError, match=r'salient.order: "documents" is not allowed; did you mean "document"'
    ):
        SalientTextOptions(order="documents")
