import collections
import math

import numpy as np

from longsum_jax.text.tfidf import tfidf_vectors

SENTENCES = [
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
    bags = slow_weights(SENTENCES)
    vectors = tfidf_vectors(SENTENCES)
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
    wide, narrow = tfidf_vectors(SENTENCES), tfidf_vectors(SENTENCES, width=3)
    folded = np.zeros((5, 3), np.float32)
    for column in range(wide.shape[1]):
        folded[:, column % 3] += wide[:, column]
    np.testing.assert_allclose(narrow, folded, rtol=1e-6)


def test_no_words_at_all():
    assert tfidf_vectors(["...", "--"]).tolist() == [[0.0], [0.0]]
