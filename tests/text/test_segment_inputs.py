"""How documents are read segment by segment; what becomes of them in training is in
tests/data/test_segments.py."""

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.text.segment_inputs import (
    SegmentInputOptions,
    central_sentences,
    read_segment_inputs,
)

SEGMENTS = {"segment_length": 48, "min_tokens": 16, "max_tokens": 24}


@pytest.mark.parametrize("limits", [{"max_tokens": 60}, {"max_segments": 2}, {"max_tokens": 1}])
def test_reading_ends_after_whole_segments(tiny_tokenizer, topics, limits):
    options = SegmentInputOptions(**SEGMENTS)
    whole = read_segment_inputs(topics[3], tiny_tokenizer, options)
    part = read_segment_inputs(topics[3], tiny_tokenizer, options, **limits)
    count = len(part.sources)
    assert 1 <= count < len(whole.sources)
    assert part.sources == whole.sources[:count]
    assert part.total_tokens == whole.total_tokens == whole.read_tokens > part.read_tokens
    assert whole.document.text.startswith(part.document.text)
    further = part.read_tokens + whole.document.segments[count].num_tokens
    assert (
        count == 1
        or limits.get("max_segments") == count
        or part.read_tokens <= limits["max_tokens"] < further
    )


def test_a_blank_document(tiny_tokenizer):
    with pytest.raises(InputError, match="is empty; give it some text or leave it out"):
        read_segment_inputs(" \n", tiny_tokenizer, SegmentInputOptions(**SEGMENTS))


def test_vectors_have_a_slot_each(tiny_tokenizer, topics):
    options = SegmentInputOptions(**SEGMENTS, salient="vectors", num_vectors=40)
    reading = read_segment_inputs(topics[3], tiny_tokenizer, options)
    slots, reads = reading.vectors(options)
    assert slots.shape == (len(reading.sources), 48)
    assert reads.shape == (len(reading.sources), 40)
    used = np.sort(slots[slots >= 0])
    np.testing.assert_array_equal(used, np.arange(len(used)))
    assert 40 < len(used) <= 80
    for index, (spans, row) in enumerate(zip(reading.spans, reads, strict=True)):
        assert all(span.segment != index for span in spans)
        assert spans
        tokens = [reading.sources[s][i] for s, start, stop in spans for i in range(start, stop)]
        where = [np.argwhere(slots == slot)[0] for slot in row if slot >= 0]
        assert [reading.sources[s][i] for s, i in where] == tokens


def test_central_sentences_are_like_the_rest():
    sentences = [
        "the cat sat on the mat",
        "rain falls",
        "the cat and the mat",
        "the mat is the cat's",
        "hills",
    ]
    assert central_sentences(sentences, share=0.6) == [0, 2, 3]
    assert central_sentences(["only one"]) == [0]
