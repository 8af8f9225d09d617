"""Metrics that count n-grams, against counts written from their definitions."""

import random

import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.text.extractive import mean_salient_ngrams

DOCUMENT = "the cat sat on the mat a dog barked and the cat ran away"
RNG = random.Random(0)
LETTERS = [" ".join(RNG.choices("abcde", k=k)) for k in (40, 60, 80, 30)]
SUMMARIES = ["a b a b c", " ".join(RNG.choices("abcdefg", k=30)), "x", ""]


def scores_of(name, predictions=SUMMARIES, sources=LETTERS, references=LETTERS, **options):
    [metric] = make_metrics([name], {name: options}).values()
    return metric, metric.score(predictions, references, sources)


def ngrams(text, size):
    words = text.split()
    return [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]


def test_novel_ngrams_are_counted_once():
    _, scores = scores_of("novelty")
    for score, summary, source in zip(scores, SUMMARIES, LETTERS, strict=True):
        for size in (1, 2, 3, 4):
            written, read = set(ngrams(summary, size)), set(ngrams(source, size))
            expected = 100 * len(written - read) / len(written) if written else 0
            assert score[f"novel_{size}"] == pytest.approx(expected)
    _, [score] = scores_of("novelty", ["The cat sat. The CAT flew!"], [DOCUMENT], [""])
    assert score == pytest.approx(
        {"novel_1": 100 / 4, "novel_2": 100 * 2 / 4, "novel_3": 75, "novel_4": 100}
    )


def test_unique_and_repeated_ngrams():
    metric, scores = scores_of("repetition", sizes=(1, 2, 4))
    assert metric.columns == tuple(scores[0])
    for score, summary in zip(scores, SUMMARIES, strict=True):
        for size in (1, 2, 4):
            result = ngrams(summary, size)
            unique = 100 * len(set(result)) / len(result) if result else 0
            repeated = [each for each in set(result) if result.count(each) > 1]
            assert score[f"unique_{size}"] == pytest.approx(unique)
            share = 100 * len(repeated) / len(set(result)) if result else 0
            assert score[f"repeated_{size}"] == pytest.approx(share)
    assert scores[0]["unique_2"] == 75
    assert scores[0]["repeated_2"] == pytest.approx(100 / 3)


def test_extractiveness_of_outputs():
    predictions = ["The cat slept on the MAT!", "birds fly", ""]
    _, scores = scores_of("extractiveness", predictions, [DOCUMENT] * 3, [""] * 3)
    copied = {"coverage": 5 / 6, "density": (2**2 + 3**2) / 6, "compression": 14 / 6}
    assert scores[0] == pytest.approx(copied)
    assert scores[1] == {"coverage": 0, "density": 0, "compression": 7}
    assert set(scores[2].values()) == {0}


def test_lengths():
    _, scores = scores_of("length", ["A b, c!", ""], ["", ""], ["a b", "---"])
    assert scores == [
        {"summary_words": 3, "length_ratio": 1.5},
        {"summary_words": 0, "length_ratio": 0},
    ]


def test_salience_is_the_curve_of_the_documents_statistics():
    metric, scores = scores_of("salience")
    assert metric.columns == tuple(scores[0])
    result = metric.corpus_values(scores, SUMMARIES, LETTERS, LETTERS)
    expected = 100 * mean_salient_ngrams(zip(LETTERS, SUMMARIES, strict=True))
    assert list(result.values()) == pytest.approx(expected)
    assert scores[3]["salient_100"] == 0
    metric, scores = scores_of("salience", ["x y"], ["a b"], [""], shares=3, size=1)
    assert metric.columns == ("salient_33", "salient_66", "salient_100")
    assert set(metric.corpus_values(scores, [""], [""], [""]).values()) == {0}


@pytest.mark.parametrize("name", ["novelty", "extractiveness", "length", "salience"])
def test_other_scripts(name):
    """A text in another script has words for the unicode tokenizer alone."""
    texts = ["мы читали книгу, мы читали"]
    _, [none] = scores_of(name, texts, ["мы читали книгу"], texts)
    _, [some] = scores_of(name, texts, ["мы читали книгу"], texts, tokenizer="unicode")
    assert not any(none.values())
    assert any(some.values())


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("novelty", {"sizes": (0,)}, r"metrics.novelty.sizes=\[0\] must name sizes of n-grams"),
        ("repetition", {"sizes": (2, 2)}, r"metrics.repetition.sizes=\[2, 2\] must name sizes"),
        ("repetition", {"sizes": ()}, r"metrics.repetition.sizes=\[\] must name sizes"),
        ("salience", {"size": 0}, "metrics.salience.size=0 must be at least 1"),
        ("salience", {"shares": 101}, "metrics.salience.shares=101 must be from 1 to 100"),
        ("length", {"tokenizer": "moses"}, '"moses" is not allowed; known: default, unicode'),
    ],
)
def test_bad_options(name, options, problem):
    with pytest.raises(InputError, match=problem):
        make_metrics([name], {name: options})
