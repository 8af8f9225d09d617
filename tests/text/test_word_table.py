import collections
import math

import numpy as np

from longsum_jax.text.word_table import tfidf_vectors, word_table

SENTENCES = ["the cats sat", "", "a cat and the cat", "dogs"]


def singular(word):
    return word.removesuffix("s")


def test_counts_are_those_of_a_dictionary():
    table = word_table(SENTENCES, str.split, singular)
    bags = [collections.Counter(map(singular, line.split())) for line in SENTENCES]
    result = [collections.Counter() for _ in SENTENCES]
    for row, word, count in zip(table.row, table.word, table.counts, strict=True):
        result[row][table.names[word]] = count
    assert result == bags
    assert table.names == ["the", "cat", "sat", "a", "and", "dog"]
    words = [singular(word) for line in SENTENCES for word in line.split()]
    assert [table.names[i] for i in table.ids] == words
    assert table.rows.tolist() == [0, 0, 0, 2, 2, 2, 2, 2, 3]


def test_sums_and_inverse_frequencies():
    table = word_table(SENTENCES, str.split, singular)
    assert table.by_sentence(table.counts).tolist() == [3, 0, 5, 1]
    assert table.by_word(table.counts).tolist() == [2, 3, 1, 1, 1, 1]
    expected = [math.log(5 / (1 + df)) + 1 for df in (2, 2, 1, 1, 1, 1)]
    np.testing.assert_allclose(table.inverse_frequencies(), expected)


def test_no_words():
    table = word_table(["", ""], str.split)
    assert (table.size, table.names) == (1, [])
    assert table.by_sentence(table.counts).tolist() == [0, 0]
    assert table.by_word(table.counts).dtype == np.float64


LINES = [
    "The cat sat on the mat.",
    "A CAT!",
    "...",
    "The dog and the dog.",
    "mat, mat, mat; dog",
]


def slow_weights(sentences):
    """A dictionary of weights for each sentence, by the formula."""
    bags = [
        collections.Counter("".join(c if c.isalnum() else " " for c in s.lower()).split())
        for s in sentences
    ]
    df = collections.Counter(word for bag in bags for word in bag)
    n = len(sentences)
    return [{w: c * (math.log((1 + n) / (1 + df[w])) + 1) for w, c in bag.items()} for bag in bags]


def test_inner_products_are_those_of_the_formula():
    bags = slow_weights(LINES)
    vectors = tfidf_vectors(LINES)
    expected = [
        [sum(weight * b.get(word, 0) for word, weight in a.items()) for b in bags] for a in bags
    ]
    np.testing.assert_allclose(vectors @ vectors.T, expected, rtol=1e-5)
    assert not vectors[2].any()
    assert vectors.shape == (5, 8)
    assert vectors.dtype == np.float32


def test_words_of_other_scripts():
    vectors = tfidf_vectors(["Кошка спит.", "Спит собака.", "Дождь.", "猫在睡觉", "狗在睡觉"])
    similar = vectors @ vectors.T
    assert similar[0, 1] > 0
    assert similar[3, 4] > 0
    assert not similar[2, [0, 1, 3, 4]].any()


def test_columns_are_shared_beyond_the_width():
    wide, narrow = tfidf_vectors(LINES), tfidf_vectors(LINES, width=3)
    folded = np.zeros((5, 3), np.float32)
    for column in range(wide.shape[1]):
        folded[:, column % 3] += wide[:, column]
    np.testing.assert_allclose(narrow, folded, rtol=1e-6)


def test_no_words_at_all():
    assert tfidf_vectors(["...", "--"]).tolist() == [[0.0], [0.0]]
