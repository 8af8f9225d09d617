import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.ranking import selection
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.selection import select_sentences
from longsum_jax.text.lengths import AUTO, Length, parse_length


def slow_selection(document, scores, room, costs, alike):
    """The rule, with a dense table of cosines."""
    words = document.words
    vectors = np.zeros((words.num_sentences, words.size))
    vectors[words.row, words.word] = document.weights
    table = vectors @ vectors.T
    taken = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if costs[i] <= room and not any(table[i, j] > alike for j in taken):
            taken.append(i)
            room -= costs[i]
    return sorted(taken)


@pytest.mark.parametrize("alike", [0.2, 0.4, 1.0])
@pytest.mark.parametrize("length", ["40 words", "5 sentences", "30%", "100%"])
def test_selection_is_greedy(text, length, alike):
    document = parse_document(text)
    costs = np.array([len(sentence.split()) for sentence in document.sentences])
    limit = parse_length(length)
    room = limit.value
    if limit.unit == "percent":
        room = limit.value / 100 * costs.sum()
    elif limit.unit == "sentences":
        costs = np.ones_like(costs)
    for seed in range(5):
        scores = np.random.default_rng(seed).normal(size=len(costs))
        result = select_sentences(document, scores, limit, alike=alike)
        assert result == slow_selection(document, scores, room, costs, alike)
        assert costs[result].sum() <= room


def test_repetitions_are_left_out():
    document = parse_document("The old bridge fell. Oak rots. The old bridge fell! Stone stays.")
    scores = np.array([3.0, 1.0, 2.0, 0.0])
    assert select_sentences(document, scores, Length(3, "sentences")) == [0, 1, 3]
    assert select_sentences(document, scores, Length(3, "sentences"), alike=1) == [0, 1, 2]


def test_sentences_of_the_same_letters_are_no_repetitions():
    thai = (
        "\u0e2a\u0e30\u0e1e\u0e32\u0e19\u0e40\u0e01\u0e48\u0e32\u0e1e\u0e31\u0e07\u0e43\u0e19\u0e24\u0e14\u0e39\u0e2b\u0e19\u0e32\u0e27",
        "\u0e40\u0e21\u0e37\u0e2d\u0e07\u0e08\u0e30\u0e2a\u0e23\u0e49\u0e32\u0e07\u0e2a\u0e30\u0e1e\u0e32\u0e19\u0e43\u0e2b\u0e21\u0e48\u0e43\u0e19\u0e1b\u0e35\u0e2b\u0e19\u0e49\u0e32",
        "\u0e0a\u0e32\u0e27\u0e19\u0e32\u0e2b\u0e25\u0e32\u0e22\u0e04\u0e19\u0e44\u0e21\u0e48\u0e40\u0e2b\u0e47\u0e19\u0e14\u0e49\u0e27\u0e22\u0e01\u0e31\u0e1a\u0e23\u0e32\u0e04\u0e32",
    )
    document = parse_document("\n\n".join([*thai, thai[0]]))
    assert select_sentences(document, np.arange(4.0)[::-1], Length(4, "sentences")) == [0, 1, 2]


def test_repetitions_of_one_letter_are_left_out():
    yes, rain, snow = "\u55ef\u3002", "\u4eca\u65e5\u306f\u96e8\u3002", "\u96ea\u3002"
    document = parse_document(yes + rain + yes + snow)
    assert select_sentences(document, np.ones(4), Length(4, "sentences")) == [0, 1, 3]


DEPENDENT = "Oak rots. The old bridge fell. It was built of wood. Stone stays. They like it."


@pytest.mark.parametrize(
    ("scores", "count", "expected"),
    [
        ([0, 1, 9, 2, 0], 1, [3]),  # no room for two
        ([0, 1, 9, 2, 0], 2, [1, 2]),
        ([0, 1, 2, 9, 0], 2, [1, 3]),  # the mean of both is next, but there is room for one
        ([0, 1, 2, 9, 0], 3, [1, 2, 3]),
        ([0, 8, 2, 1, 0], 2, [1, 2]),  # after its predecessor it has its own score
        ([0, -np.inf, 9, 2, 1], 4, [0, 3, 4]),
        ([0, -np.inf, 9, 2, 1], 5, [0, 1, 2, 3, 4]),  # there is room for the whole document
    ],
)
def test_dependent_sentences_have_the_one_before(scores, count, expected):
    document = parse_document(DEPENDENT)
    dependent = np.array([False, False, True, False, True])
    length = Length(count, "sentences")
    result = select_sentences(document, np.array(scores, float), length, dependent=dependent)
    assert result == expected


def test_labels_take_words():
    document = parse_document("Oak rots. The old bridge fell. Stone stays.")
    scores = np.array([1.0, 3.0, 2.0])
    words = np.array([0, 2, 0])
    assert select_sentences(document, scores, Length(6)) == [1, 2]
    assert select_sentences(document, scores, Length(6), label_words=words) == [1]
    assert select_sentences(document, scores, Length(3, "sentences"), label_words=words) == [
        *(0, 1, 2)
    ]


@pytest.mark.parametrize(
    ("length", "expected"),
    [("short", 3), ("4 sentences", 4), ("1 sentence", 1), ("5%", 1)],
)
def test_short_summaries_of_books_are_taken_by_parts(monkeypatch, length, expected):
    monkeypatch.setattr(selection, "BOOK_WORDS", 8_000)
    lines = [f"The w{i}a w{i}b w{i}c w{i}d w{i}e w{i}f w{i}g w{i}h." for i in range(1000)]
    document = parse_document(" ".join(lines))
    scores = np.arange(1000.0)  # the last chapter is best
    result = select_sentences(document, scores, parse_length(length))
    parts = {number * expected // 1000 for number in result}
    assert len(parts) == expected
    assert document.lengths[result].sum() <= (75 if length == "short" else 500)


def test_something_is_always_taken():
    document = parse_document("One long sentence with many words. Another one that is long.")
    assert select_sentences(document, np.array([0.0, 1.0]), Length(2)) == [1]
    document = parse_document("... !!!\n\n* * *\n\nWords here.")
    scores = -np.arange(len(document.sentences))
    [only] = select_sentences(document, scores, Length(9, "sentences"))
    assert document.sentences[only] == "Words here."
    assert select_sentences(parse_document("..."), np.zeros(1), Length(1)) == [0]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("150", Length(150)),
        (150, Length(150)),
        ("150 words", Length(150)),
        (" 1 Word ", Length(1)),
        ("7 sentences", Length(7, "sentences")),
        ("2.5%", Length(2.5, "percent")),
        ("10 percent", Length(10, "percent")),
        ("short", Length(75)),
        ("medium", Length(150)),
        ("auto", AUTO),
        (Length(3), Length(3)),
    ],
)
def test_lengths(text, length):
    assert parse_length(text) == length


@pytest.mark.parametrize("text", ["", "longish", "-3 words", "5 pages", "1e3", "150words%"])
def test_texts_that_are_no_length(text):
    with pytest.raises(InputError, match="write short, medium, long, a number of words"):
        parse_length(text)


@pytest.mark.parametrize("text", ["0", "0%", "101%", "1.5 sentences", "0.5 words"])
def test_lengths_out_of_range(text):
    with pytest.raises(InputError, match="or more than 0 and at most 100 percent"):
        parse_length(text)
