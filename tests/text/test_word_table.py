import collections
import math

import numpy as np

from longsum_jax.text.word_table import word_table

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
