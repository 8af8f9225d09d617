import itertools
import random

import pytest

from longsum_jax.text.lcs import UnionLcs, lcs_length


def table_of(first, second):
    """Lengths of the longest common subsequences of all beginnings of two lists."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, j in itertools.product(range(len(first)), range(len(second))):
        longer = max(table[i][j + 1], table[i + 1][j])
        table[i + 1][j + 1] = table[i][j] + 1 if first[i] == second[j] else longer
    return table


def read_out(first, second):
    """Positions in ``first`` of one subsequence: words that agree, else up, else to the left."""
    table = table_of(first, second)
    i, j, result = len(first), len(second), set()
    while i and j:
        if first[i - 1] == second[j - 1]:
            i, j = i - 1, j - 1
            result.add(i)
        elif table[i - 1][j] >= table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return result


def words(rng, longest, vocabulary):
    return [rng.randrange(vocabulary) for _ in range(rng.randrange(longest))]


@pytest.mark.parametrize("vocabulary", [2, 5, 30])
def test_lengths_equal_the_table(vocabulary):
    rng = random.Random(vocabulary)
    for _ in range(60):
        first, second = words(rng, 90, vocabulary), words(rng, 20, vocabulary)
        expected = table_of(first, second)[-1][-1]
        assert lcs_length(first, second) == lcs_length(second, first) == expected


@pytest.mark.parametrize("vocabulary", [2, 3, 8])
def test_unions_equal_those_read_out_of_tables(vocabulary):
    rng = random.Random(vocabulary)
    for _ in range(150):
        sentences = [words(rng, 16, vocabulary) for _ in range(rng.randrange(5))]
        sentence = words(rng, 16, vocabulary)
        expected = set().union(*(read_out(sentence, each) for each in sentences))
        assert UnionLcs(sentences).union(sentence) == sorted(expected)


def test_hand_made_union():
    """Lin (2004), section 3.2: the union of w1 w2 and w1 w3 w5."""
    sentences = [["w1", "w2", "w6", "w7", "w8"], ["w1", "w3", "w8", "w9", "w5"]]
    assert UnionLcs(sentences).union(["w1", "w2", "w3", "w4", "w5"]) == [0, 1, 2, 4]


def test_no_words():
    assert lcs_length([], ["a"]) == lcs_length(["a"], []) == lcs_length([], []) == 0
    assert UnionLcs([]).union(["a"]) == UnionLcs([[], []]).union(["a"]) == []
    assert UnionLcs([["a"], []]).union([]) == []
