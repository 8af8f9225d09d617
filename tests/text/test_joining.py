"""Documents that are read as one, and summaries that are joined."""

import pytest

from longsum_jax.text.joining import (
    BLANK_LINE,
    DOCUMENT_TOKEN,
    Joiner,
    cut_documents,
    join_documents,
    num_words,
    split_documents,
)


@pytest.mark.parametrize("separator", [BLANK_LINE, DOCUMENT_TOKEN])
def test_documents_come_apart_again(separator):
    texts = ["One. Two.", "Three\n\nand four.", "Five"]
    text, borders = join_documents([f" {text}\n" for text in texts], separator)
    assert split_documents(text, borders, separator) == texts
    starts = [text[border:].split()[0].partition("<")[0] for border in borders]
    assert starts == ["Three", "Five"]


def test_separators():
    assert join_documents(["a", "b"]) == ("a\n\nb", (3,))
    # PRIMERA was trained with the token after the last document, too.
    assert join_documents(["a", "b"], DOCUMENT_TOKEN) == ("a<doc-sep>b<doc-sep>", (10,))
    assert join_documents([" a "], DOCUMENT_TOKEN) == ("a", ())
    assert split_documents("a\n\n", ()) == ["a\n\n"]


@pytest.mark.parametrize(
    ("ids", "limit", "read"),
    [
        ([1, 2, 0, 3, 4, 5, 6, 0], 8, [1, 2, 0, 3, 4, 5, 6, 0]),
        ([1, 2, 0, 3, 4, 5, 6, 0], 7, [1, 2, 0, 3, 4, 0]),  # 3 tokens each
        ([1, 2, 3, 4, 0, 5, 6, 7], 6, [1, 2, 0, 5, 6, 7]),  # no separator at the end
        ([1, 0, 2, 0, 3, 0], 2, [0, 0]),  # more documents than tokens
        ([1, 2, 3], 2, [1, 2]),
    ],
)
def test_of_several_long_documents_equal_shares_are_read(ids, limit, read):
    assert cut_documents(ids, 0, limit) == read
    assert cut_documents(ids, None, limit) == ids[:limit]


def test_repeated_sentences_are_said_once():
    joiner = Joiner()
    assert joiner.add("It rained. The dog\nbarked.") == "It rained. The dog\nbarked."
    assert joiner.add("THE DOG BARKED! It rained 5 mm.") == "It rained 5 mm."
    assert joiner.add("It rained 6 mm. It rained 6 mm.") == "It rained 6 mm."
    assert joiner.add("The dog barked.") == ""
    assert joiner.text == "It rained. The dog\nbarked. It rained 5 mm. It rained 6 mm."
    assert not joiner.is_cut


def test_texts_without_words_are_silent():
    joiner = Joiner()
    for text in ("", " \n", "...", "- * -"):
        assert joiner.add(text) == ""
    assert joiner.text == ""


def test_without_merging_texts_stay_as_they_are():
    joiner = Joiner(merges=False)
    for text in (" One.  One. ", "", "One.", "?"):
        joiner.add(text)
    assert joiner.text == "One.  One. One. ?"


@pytest.mark.parametrize("limit", range(2, 40))
def test_the_length_is_shared_out_along_the_document(limit):
    joiner = Joiner(limit)
    texts = [f"Part {i} is long. Part {i} goes on and on. Yes {i}." for i in range(5)]
    for i, text in enumerate(texts, 1):
        joiner.add(text, i / 5)
        assert num_words(joiner.text) <= limit * i / 5 or num_words(joiner.text) == 4
    assert num_words(joiner.text) <= max(limit, 4)
    assert joiner.is_cut
    if limit >= 20:  # there is room for the first sentence of each
        assert all(f"Part {i} is long." in joiner.text for i in range(5))


def test_what_a_part_leaves_is_for_those_after_it():
    joiner = Joiner(8)
    assert joiner.add("These are five whole words.", 0.5) == ""
    assert joiner.add("Now there is room.", 1) == "Now there is room."


def test_the_first_sentence_stands_alone_where_none_fits():
    joiner = Joiner(2)
    joiner.add("The first is long.", 0.5)
    joiner.add("The second is long.", 1)
    assert joiner.text == "The first is long."
    assert joiner.is_cut


def test_it_is_the_first_of_several_sentences():
    assert Joiner(2).add("The first is long. The second is, too.") == "The first is long."


def test_sentences_as_the_unit_and_ends_that_were_cut_off():
    joiner = Joiner(2, lambda sentence: 1)
    assert joiner.add("One. Two. Three.") == "One. Two."
    joiner = Joiner(9)
    assert joiner.add("It is done. And then it", ended=False) == "It is done."
    assert joiner.is_cut
    for share in (0.5, 1):
        assert Joiner(9).add("And then it", share, ended=False) == "And then it"
    assert Joiner().add("It is done. And then it", ended=False) == "It is done. And then it"


def test_a_sentence_that_was_left_out_may_be_said_later():
    joiner = Joiner(4)
    assert joiner.add("One two three. Four.", 0.5) == ""
    assert joiner.add("One two three.", 1) == "One two three."
