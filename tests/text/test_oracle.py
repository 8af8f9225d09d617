import collections

import numpy as np
from rouge_score import rouge_scorer

from longsum_jax.text.oracle import greedy_oracle, recalled_sentences

NAMES = [
    "alpha",
    "Beta",
    "gamma's",
    "delta-2",
    "EPSILON",
    "zeta",
    "\u00e9ta",
    "theta",
    "iota",
    "kappa",
]


def some_sentences(rng, count):
    return [" ".join(rng.choice(NAMES, rng.integers(0, 9))) + "." for _ in range(count)]


def slow_oracle(sentences, summary):
    """Adds sentences one by one, every score anew with the n-grams and the F-measure of
    rouge-score."""
    tokenize = rouge_scorer.tokenizers.DefaultTokenizer(False).tokenize

    def score(chosen):
        total = 0
        for n in (1, 2):
            bag = sum(
                (rouge_scorer._create_ngrams(tokenize(sentences[i]), n) for i in chosen),
                collections.Counter(),
            )
            total += rouge_scorer._score_ngrams(
                rouge_scorer._create_ngrams(tokenize(summary), n), bag
            ).fmeasure
        return total

    chosen, best = [], 0.0
    while True:
        scores = {i: score([*chosen, i]) for i in range(len(sentences)) if i not in chosen}
        highest = max(scores.values(), default=0)
        if highest <= best + 1e-9:
            return sorted(chosen)
        best = highest
        chosen.append(next(i for i, value in scores.items() if value > highest - 1e-9))


def test_selection_equals_rouge_score():
    rng = np.random.default_rng(1)
    sizes = set()
    for _ in range(40):
        sentences, summary = (
            some_sentences(rng, rng.integers(0, 12)),
            " ".join(some_sentences(rng, 4)),
        )
        result = greedy_oracle(sentences, summary)
        assert result == slow_oracle(sentences, summary)
        sizes.add(len(result))
    assert len(sizes) > 3


def test_an_extract_is_found_again():
    sentences = [
        "The cat sat.",
        "It rained all day long.",
        "A dog came by later.",
        "Nobody saw it.",
    ]
    assert greedy_oracle(sentences, "A dog came by later. The cat sat.") == [0, 2]


def test_nothing_in_common():
    assert greedy_oracle(["one", "two"], "three") == []
    assert greedy_oracle([], "three") == []
    assert greedy_oracle(["one", "..."], "--") == []


def test_words_of_other_scripts_count():
    sentences = [
        "\u5e02\u9577\u306f\u6a4b\u3092\u5efa\u3066\u308b\u3068\u8a00\u3063\u305f\u3002",
        "\u5929\u6c17\u306f\u826f\u304b\u3063\u305f\u3002",
        "The GDP grew.",
    ]
    assert greedy_oracle(sentences, sentences[1] + sentences[0]) == [0, 1]
    assert recalled_sentences(sentences, sentences[1], sizes=[1, 1, 1], room=1) == [1]
