"""METEOR against NLTK's, given a WordNet that knows no synonyms."""

import random

import pytest
from nltk.translate import meteor_score

from longsum_jax.evaluation.meteor import Meteor, meteor


class NoSynonyms:
    def synsets(self, word):
        return []


WORDS = [
    "the",
    "cat",
    "cats",
    "running",
    "runs",
    "run",
    "dog",
    "dogs",
    "happily",
    "happy",
    "a",
    "b",
]
# An example of NLTK's documentation, without its punctuation.
FIRST = [
    "it",
    "is",
    "a",
    "guide",
    "to",
    "action",
    "which",
    "ensures",
    "that",
    "the",
    "military",
    "always",
    "obeys",
    "the",
    "commands",
]
SECOND = [
    "it",
    "is",
    "a",
    "guide",
    "to",
    "action",
    "that",
    "ensures",
    "that",
    "the",
    "military",
    "will",
    "forever",
    "heed",
    "party",
]


def expected_of(predicted, wanted):
    return meteor_score.single_meteor_score(wanted, predicted, wordnet=NoSynonyms())


def test_values_equal_nltks():
    rng = random.Random(0)
    for size in (1, 2, 5, 12, 40):
        for _ in range(40):
            predicted, wanted = (rng.choices(WORDS, k=rng.randrange(size + 1)) for _ in range(2))
            expected = expected_of(predicted, wanted)
            assert meteor(predicted, wanted) == pytest.approx(expected, abs=1e-12)
    assert meteor(FIRST, SECOND) == pytest.approx(expected_of(FIRST, SECOND), abs=1e-12)


def test_hand_counted_value():
    """Four of five words match by word or stem, in two chunks: the cat | runs home."""
    fmean = 0.8 * 0.8 / (0.9 * 0.8 + 0.1 * 0.8)
    penalty = 0.5 * (2 / 4) ** 3
    result = meteor(
        ["the", "cat", "quickly", "runs", "home"], ["the", "cats", "then", "running", "home"]
    )
    assert result == pytest.approx((1 - penalty) * fmean)


def test_the_metric_takes_texts_and_the_best_reference():
    metric = Meteor()
    references = ["A dog barked.", "Cats, running!", ""]
    scores = metric.score(["The cat runs."] * 3, references, [""] * 3)
    assert scores[0] == {"meteor": 0}
    expected = 100 * expected_of(["the", "cat", "runs"], ["cats", "running"])
    assert scores[1] == {"meteor": pytest.approx(expected)}
    assert metric.over_references(scores) == scores[1]
    assert metric.describe()["signature"] == "meteor|match:exact+stem|tok:default"
    other = Meteor(Meteor.Options(tokenizer="unicode"))
    assert other.score(["мы читали"], ["мы, читали"], [""])[0]["meteor"] == pytest.approx(93.75)
