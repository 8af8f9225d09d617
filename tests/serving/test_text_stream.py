"""Parts of a stream are the final text, wherever its tokens end."""

import random

import pytest

from longsum_jax.serving.text_stream import TextStream
from longsum_jax.tokenizers.bytes import ByteTokenizer

TEXTS = [
    "The council met on Monday , and it did n't object .",
    "理事会は月曜日に開かれ、予算を五パーセント引き上げたが、反対する者はいなかった。",
    "Zażółć gęślą jaźń 👩‍👩‍👧‍👦 \ufffd\ufffd naïve  two spaces\n\nand lines.  ",
]


def parts_of(tokenizer, ids, step):
    parts = []
    stream = TextStream(lambda part, _: parts.append(part))
    for end in range(0, len(ids), step):
        stream.update(tokenizer.decode(ids[:end]))
    stream.finish(tokenizer.decode(ids))
    return parts


@pytest.mark.parametrize("step", [1, 8])
def test_parts_are_the_text(tiny_tokenizer, step):
    draw = random.Random(0)
    for tokenizer in (tiny_tokenizer, ByteTokenizer()):
        sequences = [tokenizer.encode(text) for text in TEXTS]
        for _ in range(20):  # untrained models write such sequences
            sequences.append([draw.randrange(tokenizer.vocab_size) for _ in range(60)])
        for ids in sequences:
            parts = parts_of(tokenizer, ids, step)
            assert "".join(parts) == tokenizer.decode(ids)
            assert all(parts)
    assert len(parts_of(ByteTokenizer(), ByteTokenizer().encode(TEXTS[1]), 8)) > 5


def test_segments_are_joined_by_spaces():
    parts = []
    stream = TextStream(lambda part, is_segment: parts.append((part, is_segment)))
    for text in ("One.", "", "Two."):
        stream.add_segment(text)
    stream.finish("One. Two.")
    assert parts == [("One.", True), (" Two.", True)]
    with pytest.raises(RuntimeError, match="differ"):
        stream.finish("Other.")
