import dataclasses
import itertools
import json
import lzma

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.text.segmentation import SegmentOptions, segment_document, segment_ranges
from longsum_jax.text.sentences import sentence_ends, split_sentences
from longsum_jax.tokenizers.bytes import ByteTokenizer

SMALL = SegmentOptions(min_tokens=20, max_tokens=40, max_segment_tokens=60)


class Words:
    """A tokenizer whose tokens are words; it counts its calls."""

    calls = 0

    def encode_batch(self, texts):
        self.calls += 1
        return [[len(word) for word in text.split()] for text in texts]


def slow_ranges(lengths, vectors, options):
    """Algorithm 1 word for word, over lists of sentence numbers, with cosines one pair at a
    time."""

    def tokens(sentences):
        return sum(lengths[i] for i in sentences)

    def similarity(sentences, i):
        cosines = []
        for j in sentences:
            norms = np.linalg.norm(vectors[i]) * np.linalg.norm(vectors[j])
            cosines.append(vectors[i] @ vectors[j] / norms if norms else 0.0)
        return np.mean(cosines)

    everything = list(range(len(lengths)))
    limit = options.max_segment_tokens or 10**9
    if options.strict:
        limit = min(limit, options.max_tokens)
    if tokens(everything) <= min(limit, options.max_tokens):
        return [everything]
    segments, current, waiting = [], [], everything
    while waiting:
        i, waiting = waiting[0], waiting[1:]
        following, candidates = (
            [],
            [i, *waiting] if options.next_includes_sentence else list(waiting),
        )
        while candidates and tokens(following) < options.min_tokens:
            following.append(candidates.pop(0))
        if current and tokens([*current, i]) > limit:
            segments.append(current)
            current = [i]
        elif tokens(current) < options.min_tokens:
            current.append(i)
        elif tokens(current) > options.max_tokens:
            segments.append(current)
            current = [i]
        elif following and similarity(following, i) > similarity(current, i):
            segments.append(current)
            current = [i]
            moved = [j for j in following if j != i]
            if options.split_moves == "window" and tokens([i, *moved]) <= limit:
                current += moved
                waiting = waiting[len(moved) :]
        else:
            current.append(i)
    return [*segments, current]


VARIANTS = {
    "algorithm_1": {"max_segment_tokens": None},
    "limit": {},
    "strict": {"strict": True},
    "includes": {"next_includes_sentence": True},
    "window": {"split_moves": "window", "max_segment_tokens": None},
    "window_limit": {"split_moves": "window", "max_segment_tokens": 45, "strict": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_ranges_equal_the_slow_twin(variant):
    options = dataclasses.replace(SMALL, **VARIANTS[variant])
    rng = np.random.default_rng(0)
    cuts = 0
    for _ in range(60):
        count = int(rng.integers(1, 60))
        lengths = rng.integers(
            1, options.longest_sentence if options.limit < 60 else 30, count
        ).tolist()
        vectors = rng.standard_normal((count, 5))
        vectors[rng.random(count) < 0.1] = 0
        result = segment_ranges(lengths, vectors, options)
        assert [list(range(first, end)) for first, end in result] == slow_ranges(
            lengths, vectors, options
        )
        sizes = [sum(lengths[first:end]) for first, end in result]
        assert max(sizes) <= options.limit
        assert max(sizes) <= options.max_tokens + max(lengths) or options.split_moves == "window"
        cuts += len(result) - 1
    assert cuts > 50


def test_a_cut_falls_where_the_topic_changes():
    vectors = np.repeat(np.eye(2), 15, axis=0)  # fifteen sentences of either topic
    assert segment_ranges([2] * 30, vectors, SMALL) == [(0, 15), (15, 30)]


TEXTS = {
    "wrapped": "\n  A first sentence that\nwas wrapped by hand. The second, e.g. this, too."
    "\n\n- an item\n- one\n\t",
    "turns": "Speaker A: "
    + "words and more of them " * 8
    + ". Yes.\r\n\r\nSpeaker B:\u2028 no\x85. \u3000Dr. Who? \x1c End",
    "one": "nothing but words",
    "surrogate": "Half \ud800 a character. And more.  ",
    "window": "He said " + "one thing and another and then " * 600 + ". Then he left. " * 3,
}


@pytest.mark.parametrize("name", TEXTS)
def test_sentence_ends(name):
    text = TEXTS[name]
    sentences = split_sentences(text)
    ends = sentence_ends(text, sentences).tolist()
    slices = [text[start:stop] for start, stop in zip([0, *ends[:-1]], ends, strict=True)]
    assert ends[-1] == len(text)
    assert ["".join(part.split()) for part in slices] == [
        "".join(sentence.split()) for sentence in sentences
    ]


@pytest.mark.parametrize("name", ["wrapped", "turns", "window"])
def test_segments_give_back_the_document(name):
    text, tokenizer = TEXTS[name], Words()
    options = SegmentOptions(min_tokens=5, max_tokens=9, max_segment_tokens=12)
    document = segment_document(text, tokenizer, options)
    assert len(document.segments) > 1
    pieces = [document.segment_text(i) for i in range(len(document.segments))]
    assert "".join(pieces) == text
    assert [segment.num_tokens for segment in document.segments] == [
        len(piece.split()) for piece in pieces
    ]
    for index, segment in enumerate(document.segments):
        assert document.segment_ids(index) == Words().encode_batch([pieces[index]])[0]
        sentences = document.sentences[segment.first : segment.end]
        assert "".join(" ".join(sentences).split()) == "".join(pieces[index].split())
        assert segment.num_tokens <= 12
    assert document.segments[-1].end == len(document.sentences)
    assert tokenizer.calls <= 4  # the document at once, and its long sentences again


def test_a_long_enough_segment_ends_at_a_heading():
    vectors = np.ones((30, 2))  # nothing else tells sentences apart
    assert segment_ranges([2] * 30, vectors, SMALL) == [(0, 21), (21, 30)]
    result = segment_ranges([2] * 30, vectors, SMALL, sections={5, 12, 25})
    assert result == [(0, 12), (12, 25), (25, 30)]  # 10 sentences are min_tokens
    sentences = [f"This is number {i}." for i in range(12)]
    text = "\n\n".join([" ".join(sentences[:7]), "Costs", " ".join(sentences[7:])])
    result = segment_document(text, Words(), SMALL, headings={"Costs"})
    assert [result.segment_text(i).split()[0] for i in range(len(result.segments))] == [
        "This",
        "Costs",
    ]
    assert "".join(result.segment_text(i) for i in range(len(result.segments))) == text


def test_segments_begin_at_borders():
    parts = [" ".join(f"This is {name} number {i}." for i in range(9)) for name in ("one", "two")]
    text = "\n\n".join([*parts, "Short."])
    borders = [len(parts[0]) + 2, len(parts[0]) + len(parts[1]) + 4]
    result = segment_document(text, Words(), SMALL, borders=borders)
    alone = [segment_document(part, Words(), SMALL) for part in (*parts, "Short.")]
    count = len(result.segments)
    assert "".join(result.segment_text(i) for i in range(count)) == text == result.text
    assert {segment.start for segment in result.segments} >= set(borders)
    assert [result.segment_ids(i) for i in range(count)] == [
        document.segment_ids(i) for document in alone for i in range(len(document.segments))
    ]
    assert result.sentences == [sentence for document in alone for sentence in document.sentences]


def test_similarity_is_the_encoders():
    topics = ["cats purr.", "dogs bark."]
    text = " ".join([topics[0]] * 15 + [topics[1]] * 15)

    def encoder(sentences):
        return np.array(
            [[sentence.startswith("cats"), sentence.startswith("dogs")] for sentence in sentences],
            float,
        )

    for vectors in (encoder, None):  # TF-IDF finds the same
        document = segment_document(text, Words(), SMALL, *([vectors] if vectors else []))
        assert [(segment.first, segment.end) for segment in document.segments] == [
            (0, 15),
            (15, 30),
        ]


def test_one_sentence():
    (segment,) = segment_document("nothing but words", Words()).segments
    assert segment == (0, 17, 0, 1, 3)


@pytest.mark.parametrize("text", ["x" * 100, "\u732b" * 40, " " * 100 + "word " * 3, "ab " * 50])
def test_long_sentences_are_cut(text):
    options = SegmentOptions(min_tokens=4, max_tokens=9, max_segment_tokens=12)
    document = segment_document(text, ByteTokenizer(), options)
    assert max(map(len, document.token_ids)) <= 9
    assert bytes(i - 3 for ids in document.token_ids for i in ids).decode() == text
    if text.startswith("ab"):
        assert {word for piece in document.sentences for word in piece.split()} == {
            "ab"
        }  # no word is cut


def test_pieces_of_white_space_have_no_tokens():
    text = "one two" + " " * 90 + "three four five six seven"
    options = SegmentOptions(min_tokens=1, max_tokens=2, max_segment_tokens=4)
    document = segment_document(text, Words(), options)
    assert " ".join(document.sentences).split() == text.split()
    assert [] in document.token_ids
    assert sum(map(len, document.token_ids)) == 7


@pytest.mark.parametrize("text", ["", " \n\u3000"])
def test_blank_documents(text):
    with pytest.raises(
        InputError, match="a document to be cut into segments is empty; give it some text"
    ):
        segment_document(text, Words())


def test_a_character_of_too_many_tokens():
    with pytest.raises(
        InputError, match=r"one character takes more than segments.max_tokens=2 tokens; raise it"
    ):
        segment_document("\u732b", ByteTokenizer(), SegmentOptions(min_tokens=1, max_tokens=2))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"min_tokens": 0},
            "segments.min_tokens=0 and max_tokens=768 must be at least 1 and in this order",
        ),
        ({"max_tokens": 100}, "segments.min_tokens=512 and max_tokens=100 must be"),
        (
            {"max_segment_tokens": 511},
            "segments.max_segment_tokens=511 is below min_tokens=512; raise it",
        ),
        (
            {"split_moves": "windows"},
            'segments.split_moves: "windows" is not allowed; did you mean "window"',
        ),
    ],
)
def test_bad_options(options, problem):
    with pytest.raises(InputError, match=problem):
        SegmentOptions(**options)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["qmsum", "crd3", "techspecs", "sumpubmed"])
def test_real_documents_come_back(shared_data, name):
    with lzma.open(shared_data / name / "test.jsonl.xz", "rt") as lines:
        documents = [json.loads(line)["document"] for line in itertools.islice(lines, 10)]
    for text in documents:
        document = segment_document(text, Words())
        assert "".join(document.segment_text(i) for i in range(len(document.segments))) == text
        assert max(segment.num_tokens for segment in document.segments) <= 1024
        assert "".join("".join(document.sentences).split()) == "".join(text.split())
