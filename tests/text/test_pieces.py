import itertools
import random
from pydoc_data.topics import topics

import pytest

from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.text.documents import DataRow
from longsum_jax.text.gap_sentences import cut_text, in_pieces, is_first_piece
from longsum_jax.text.sentences import split_sentences


def text_of(lengths):
    """Sentences of these many words, every word another one."""
    numbers = iter(range(10**9))
    return " ".join(
        "The " + " ".join(f"w{next(numbers)}" for _ in range(n - 1)) + "." for n in lengths
    )


def random_text(seed, sentences):
    choose = random.Random(seed)
    return text_of(choose.randint(2, 30) for _ in range(sentences))


def slow_twin(text, piece_words):
    """Tries every sentence end for every cut."""
    sentences = split_sentences(text)
    ends = [sum(len(s.split()) for s in sentences[:i]) for i in range(len(sentences) + 1)]
    count = -(-ends[-1] // piece_words)
    bounds = {
        min(range(len(ends)), key=lambda i: abs(ends[i] * count - ends[-1] * k))
        for k in range(count + 1)
    }
    return [sentences[a:b] for a, b in itertools.pairwise(sorted(bounds))]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("piece_words", [20, 57, 200])
def test_pieces_are_those_of_the_slow_twin(seed, piece_words):
    text = random_text(seed, sentences=90)
    assert [split_sentences(piece) for piece in cut_text(text, piece_words)] == slow_twin(
        text, piece_words
    )


@pytest.mark.parametrize("piece_words", [50, 101, 640])
def test_number_and_lengths(piece_words):
    text = random_text(0, sentences=400)
    lengths = [len(piece.split()) for piece in cut_text(text, piece_words)]
    assert len(lengths) == -(-len(text.split()) // piece_words)
    mean = sum(lengths) / len(lengths)
    assert all(
        abs(length - mean) <= 30 for length in lengths
    )  # half a sentence of 30 words at either end


def test_nothing_is_lost_of_real_documents():
    for text in topics.values():
        pieces = cut_text(text, 200)
        if len(pieces) > 1:
            assert "\n\n".join(pieces) == "\n\n".join(split_sentences(text))
    assert max(len(cut_text(text, 200)) for text in topics.values()) > 30


def test_a_short_text_stays_as_it_is():
    text = "One  line.\nAnother\n\tline. "
    assert cut_text(text, 4) == [text]
    assert cut_text(text, 3) == ["One  line.", "Another line."]
    assert cut_text(" ", 20) == [" "]


def test_a_long_sentence_is_never_cut():
    assert cut_text(text_of([200]), 20) == [text_of([200])]
    lengths = [len(piece.split()) for piece in cut_text(text_of([5, 5, 100, 5, 5]), 20)]
    assert lengths == [10, 100, 10]


def test_a_book_of_five_megabytes():
    book = "\n\n".join([random_text(1, sentences=8000)] * 7)
    lengths = [len(piece.split()) for piece in cut_text(book, 3000)]
    assert len(book) > 5_000_000
    assert len(lengths) == -(-sum(lengths) // 3000)
    assert sum(lengths) == len(book.split())


def test_ids_name_document_and_piece():
    docs = [
        DataRow("a", text_of([10] * 6), None, "Who?"),
        DataRow("b#0", "Short text.", None, None),
    ]
    result = list(in_pieces(docs, 20))
    assert [d.id for d in result] == ["a#0", "a#1", "a#2", "b#0#0"]
    assert [d.query for d in result] == ["Who?"] * 3 + [None]
    assert result[3].document == "Short text."
    assert [is_first_piece(d.id) for d in result] == [True, False, False, True]
    assert not is_first_piece("a#10")


def test_embedded_corpus_in_pieces():
    whole = list(documents(get_task("embedded"), "train"))
    result = list(documents(get_task("embedded", piece_words=200), "train"))
    assert result == list(in_pieces(whole, 200))
    assert len({d.id for d in result}) == len(result) > 2 * len(whole)
