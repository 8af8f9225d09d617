import math

import numpy as np
import pytest

from longsum_jax.text.alignment import MIN_GAIN, SUPPORTED, Support, align
from longsum_jax.text.ngrams import unicode_words, words_of

SOURCE = [
    "The model reads a whole novel in one pass.",
    "Its memory does not grow with the length of the text.",
    "We train it on four books.",
    "The results are in table two.",
]


def some_sentences(rng, count):
    words = [f"w{number}" for number in range(12)]
    return [" ".join(rng.choice(words, rng.integers(0, 9))) for _ in range(count)]


def distinct(sentence, size):
    words = sentence.split()
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def slow_gains(sentence, source, chosen):
    """The share that each sentence of the source would add to those chosen, n-gram by n-gram."""
    gains = [0.0] * len(source)
    sizes = [size for size in (1, 2) if distinct(sentence, size)]
    for size in sizes:
        held = [distinct(other, size) for other in source]
        weights = {
            ngram: math.log((1 + len(source)) / (1 + sum(ngram in each for each in held))) + 1
            for ngram in distinct(sentence, size)
        }
        covered = set().union(*(held[i] for i in chosen))
        for i, each in enumerate(held):
            new = [weights[ngram] for ngram in each - covered if ngram in weights]
            gains[i] += sum(new) / sum(weights.values()) / len(sizes)
    return gains


@pytest.mark.parametrize("seed", range(4))
def test_the_greedy_choice_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    source, summary = some_sentences(rng, 12), some_sentences(rng, 9)
    for sentence, support in zip(summary, align(summary, source), strict=True):
        for place, (index, score) in enumerate(zip(*support, strict=True)):
            gains = slow_gains(sentence, source, support.indices[:place])
            best = max(gains)
            assert index == next(i for i, gain in enumerate(gains) if gain > best - 1e-9)
            assert score == pytest.approx(best)
            assert score > (MIN_GAIN if place else 0)
        if len(support.indices) < 3:
            rest = max(slow_gains(sentence, source, support.indices))
            assert rest <= (MIN_GAIN if support.indices else 0) + 1e-9


def test_sentences_of_several_sources():
    joined = "The model reads a whole novel in one pass. We train it on four books."
    copied, both, other = align([SOURCE[3], joined, "Cats sleep in the sun."], SOURCE)
    assert copied.indices == [3]
    assert copied.total == pytest.approx(1)
    assert both.indices == [0, 2]
    assert both.total > 0.9
    assert copied.is_supported
    assert both.is_supported
    assert not other.is_supported
    assert 0 < other.total < SUPPORTED


def test_options():
    [support] = align([" ".join(SOURCE)], SOURCE, max_sources=2)
    assert len(support.indices) == 2
    [support] = align([" ".join(SOURCE)], SOURCE, max_sources=9, min_gain=0.25)
    assert len(support.indices) < 4
    russian = ["Кошка спит.", "Собака ест."]
    assert align(["Кошка спит"], russian)[0].indices == [0]
    assert align(["Кошка спит"], russian, tokenize=words_of) == [Support([], [])]
    assert align(["cat sat"], ["Cat sat."], tokenize=unicode_words)[0].total == pytest.approx(1)


@pytest.mark.parametrize("sentence", ["", "...", "Zebras"])
def test_nothing_in_common(sentence):
    [support] = align([sentence], SOURCE)
    assert support == Support([], [])
    assert support.total == 0
    assert not support.is_supported
    assert align([sentence], []) == [support]


def test_no_sentences():
    assert align([], SOURCE) == []
