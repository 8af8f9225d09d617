import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.ranking.lexicon import light_stem
from longsum_jax.ranking.parsing import class_counts, parse_document


def test_places_hold_the_sentences(text):
    for given in (text, text.replace("\n", "\r\n"), "  \n" + text + "\n \n"):
        document = parse_document(given)
        places = zip(document.starts, document.ends, document.sentences, strict=True)
        for start, end, sentence in places:
            assert given[start:end].split() == sentence.split()
            assert given[start:end].strip() == given[start:end]


def test_layout(text):
    document = parse_document(text)
    headings = [document.sentences[i] for i in np.flatnonzero(document.headings)]
    assert headings == ["A Report on Bridges", "Introduction", "Results", "Conclusion"]
    turns = [document.sentences[i][:4] for i in np.flatnonzero(document.turns)]
    assert turns == ["ANNA", "BEN:"]
    assert document.breaks.tolist() == [2, 2, 2, 0, 0, 2, 2, 1, 0, 2, 0, 2, 2, 0]
    assert document.paragraphs.tolist() == [0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 5, 6, 7, 7]


def test_windows_line_ends_change_nothing(text):
    first, second = parse_document(text), parse_document(text.replace("\n", "\r\n"))
    for name in ("sentences", "breaks", "paragraphs", "headings", "turns", "weights"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


def test_lines_are_paragraphs_where_blank_lines_are_rare():
    lines = [
        f"ANNA: I say this {i} times over and over, and nobody ever listens to me at all, " * 2
        for i in range(9)
    ]
    document = parse_document("\n".join(line + "Why?" for line in lines))
    starts = np.flatnonzero(np.diff(document.paragraphs, prepend=-1))
    assert document.turns.sum() == len(starts) == 9
    assert not document.headings.any()


def test_lines_without_words_are_no_headings():
    document = parse_document("Title\n\n* * *\n\nA sentence stands here.")
    assert document.headings.tolist() == [True, False, False]


@pytest.mark.parametrize(
    "line",
    ["“Where is he?”", '"I will not go."', "他说。", "「行くよ」", "走吧\uff01", "ไปตลาด" * 5],
)
def test_speech_and_other_scripts_are_no_headings(line):
    document = parse_document(f"Title\n\n{line}\n\nA sentence stands here.")
    assert document.headings.tolist() == [True, False, False]


def test_lengths_count_letters_of_scripts_without_spaces():
    document = parse_document("The bridge is old.\n\n桥很老。")
    assert document.lengths.tolist() == [4, 3]


def test_vectors_have_content_words_alone(text):
    document = parse_document(text)
    words = document.words
    norms = words.by_sentence(document.weights**2)
    assert np.allclose(norms, 1)
    stops = [name for name, keep in zip(words.names, document.content, strict=True) if not keep]
    assert {"the", "of", "we"} <= set(stops)
    assert not document.weights[~document.content[words.word]].any()


def test_character_classes():
    document = parse_document("Ab c-D. Äx 12_3.")
    counts = [class_counts(document, marked).tolist() for marked in document.characters]
    assert counts == [[1, 1], [0, 0], [2, 1], [0, 3], [2, 2], [0, 1]]


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_empty_documents_are_refused(text):
    with pytest.raises(InputError, match="the document is empty"):
        parse_document(text)


@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("studies", "study"),
        ("bridges", "bridg"),
        ("bridge", "bridg"),
        ("building", "build"),
        ("closed", "clos"),
        ("quickly", "quick"),
        ("classes", "class"),
        ("class", "class"),
        ("status", "status"),
        ("cats", "cat"),
        ("is", "is"),
        ("king", "king"),
        ("string", "string"),
        ("мосты", "мосты"),
    ],
)
def test_light_stem(word, stem):
    assert light_stem(word) == stem
