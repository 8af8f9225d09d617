import collections

import numpy as np
import pytest

from longsum_jax.text.ngrams import (
    count_ngrams,
    is_latin,
    num_words,
    unicode_words,
    word_spans,
    words_of,
)

TEXTS = ["the cat and the cat", "", "x", "and the dog", "the"]
OTHERS = ["the cat and", "dog", "the cat"]


def slow_counts(text, n):
    words = text.split()
    return collections.Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_counts(n):
    known = {gram for text in OTHERS for gram in slow_counts(text, n)}
    result = count_ngrams(TEXTS, OTHERS, n)
    bags = [[slow_counts(text, n) for text in texts] for texts in (TEXTS, OTHERS)]
    for counts, bag in zip(result, bags, strict=True):
        assert counts.total.tolist() == [sum(b.values()) for b in bag]
        assert counts.dense().sum(1).tolist() == [
            sum(c for gram, c in b.items() if gram in known) for b in bag
        ]
    # Which column an n-gram has does not matter: overlaps must agree.
    tables = [counts.dense() for counts in result]
    overlaps = np.minimum(tables[0][:, None], tables[1][None]).sum(-1)
    assert overlaps.tolist() == [[sum((a & b).values()) for b in bags[1]] for a in bags[0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("é", True), ("aéb β", True), ("é βδ", False), ("aaé β 中 δ", False), ("12 «»", True)],
)
def test_latin_texts_have_at_most_a_quarter_of_other_letters(text, expected):
    assert is_latin(text) == expected


def test_words_are_those_of_rouge_score():
    from rouge_score.tokenizers import DefaultTokenizer

    text = "Don't stop, na\u00efve WORD-2 \u0130x \u212aelvin 3.5 _under_ \ud7ff"
    assert [word.decode() for word in words_of(text)] == DefaultTokenizer(
        use_stemmer=False
    ).tokenize(text)


def test_unicode_words_are_words_of_where_the_text_is_ascii():
    text = "Don't stop, WORD-2 3.5 _under_ (a)b\tx\x00y"
    assert unicode_words(text) == [word.decode() for word in words_of(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L'economie éte\u0301", "l economie été"),
        ("Привет, МИР!", "привет мир"),
        ("中文,a测2024年", "中 文 a 测 2024 年"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),  # vowel signs are marks
        ("Straße \ufb01ne \uff21\uff11 \uff76\uff9e", "strasse fine a1 ガ"),
        ("ภา", "ภ า"),
        ("", ""),
    ],
)
def test_unicode_words(text, expected):
    assert unicode_words(text) == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop - a naïve “word-2” … here.", 8),
        ("「你好。」他说 OK", 5),
        ("ガラス、です", 5),
        ("ที่นี่", 2),  # vowel signs and tones belong to their letters
        ("", 0),
    ],
)
def test_words_of_lengths(text, expected):
    assert num_words(text) == len(word_spans(text)) == expected
    shown = "".join(text[start:end] for start, end in word_spans(text))
    assert shown == "".join(text.split())


def test_english_is_counted_by_white_space():
    text = "The naïve — 中 — costs\u00a0“5 €” …\x1f - don't\n\nstop!"
    assert num_words(text) == len(text.split())


def test_words_of_up_to_three_letters_have_no_stem():
    assert words_of("It was his boss", stemmer=True) == [b"it", b"was", b"his", b"boss"]
    assert words_of("cats", stemmer=True) == [b"cat"]


def test_texts_shorter_than_an_ngram_have_none():
    for counts in count_ngrams(["a"], [""], 3):
        assert counts.total.tolist() == [0]
