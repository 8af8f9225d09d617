"""Features beside slow twins with dense tables and dictionaries."""

import collections
import itertools
import math
import re

import numpy as np
import pytest

from longsum_jax.ranking import features
from longsum_jax.ranking.lexicon import CUES, STOP_WORDS, light_stem
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.text.ngrams import unicode_words


@pytest.fixture
def document(text):
    return parse_document(text)


def bags_of(document):
    return [
        collections.Counter(map(light_stem, unicode_words(sentence)))
        for sentence in document.sentences
    ]


def dense(document):
    """Unit TF-IDF vectors of content words, [n, words], and the words."""
    bags = bags_of(document)
    names = sorted(set().union(*bags))
    df = {name: sum(name in bag for bag in bags) for name in names}
    n = len(bags)
    table = np.array(
        [
            [
                bag[name] * (math.log((1 + n) / (1 + df[name])) + 1) * (name not in STOP_WORDS)
                for name in names
            ]
            for bag in bags
        ]
    )
    return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12), names


def cosines(vectors, target):
    return vectors @ target / max(np.linalg.norm(target), 1e-12)


def test_centrality_is_that_of_dense_vectors(document):
    result = features.sentence_features(document)
    vectors, _ = dense(document)
    n = len(vectors)
    block = max(10, int(2 * math.sqrt(n)))
    blocks = [vectors[i // block * block :][:block].sum(0) for i in range(n)]
    like_block = [cosines(vectors[i], blocks[i]) for i in range(n)]
    expected = {
        "centroid": cosines(vectors, vectors.sum(0)),
        "like_beginning": cosines(vectors, vectors[:10].sum(0)),
        "like_end": cosines(vectors, vectors[-10:].sum(0)),
        "like_first": cosines(vectors, vectors[0]),
        "like_headings": cosines(vectors, vectors[document.headings].sum(0)),
        "like_previous": [0, *(vectors[i] @ vectors[i - 1] for i in range(1, n))],
        "like_next": [*(vectors[i] @ vectors[i + 1] for i in range(n - 1)), 0],
        "like_block": like_block,
    }
    for name, values in expected.items():
        np.testing.assert_allclose(result[name], values, atol=1e-12, err_msg=name)


def test_lexrank_is_that_of_the_table_of_cosines(document):
    vectors, _ = dense(document)
    table = vectors @ vectors.T
    rank = np.full(len(table), 1 / len(table))
    for _ in range(features.LEXRANK_STEPS):
        rank = table @ rank
        rank /= rank.sum()
    np.testing.assert_allclose(features.lexrank(document), rank, rtol=1e-9)


def test_textrank_is_that_of_the_table_of_links(document):
    sets = [set(bag) - STOP_WORDS for bag in bags_of(document)]
    logs = np.maximum(np.log([bag.total() for bag in bags_of(document)]), 0.5)
    links = np.array([[len(a & b) for b in sets] for a in sets]) / (logs[:, None] + logs)
    np.fill_diagonal(links, 0)
    degree = np.maximum(links.sum(0), 1e-9)
    count = len(links)
    expected = np.linalg.solve(np.eye(count) - 0.85 * links / degree, np.full(count, 0.15 / count))
    np.testing.assert_allclose(features.textrank(document, 60), expected, rtol=0.05)
    # The built-in ranker was trained with so many steps.
    np.testing.assert_array_equal(features.textrank(document), features.textrank(document, 10))


def test_topic_lengths_are_those_of_singular_vectors(document):
    vectors, _ = dense(document)
    left, strengths, _ = np.linalg.svd(vectors, full_matrices=False)
    strong = (np.arange(len(strengths)) < 10) & (strengths >= strengths[0] / 2)
    expected = np.sqrt(((left * strengths)[:, strong] ** 2).sum(1))
    np.testing.assert_allclose(features.topic_lengths(document, 200), expected, atol=1e-3)


def test_standardized_features():
    values = np.array([0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9])
    result = features._standardized(values)
    assert result.max() == 4  # clipped
    np.testing.assert_allclose(result[0], -values.mean() / values.std())
    assert not features._standardized(np.full(3, 0.1)).any()


def test_questions():
    result = features.sentence_features(parse_document('Who is it? "Who knows?" It is he.'))
    assert result["question"].tolist() == [1, 1, 0]


def test_frequencies_are_those_of_dictionaries(document):
    result = features.sentence_features(document)
    bags = bags_of(document)
    contents = [{w: c for w, c in bag.items() if w not in STOP_WORDS} for bag in bags]
    total = collections.Counter()
    for bag in contents:
        total.update(bag)
    everything = sum(total.values())
    places = {w: [i for i, bag in enumerate(bags) if w in bag] for w in total}
    n = len(bags)

    def mean(values):
        values = list(values)
        return sum(values) / max(len(values), 1)

    for i, bag in enumerate(contents):
        logs = [math.log1p(total[w]) for w in bag]
        expected = {
            "probability": sum(c * total[w] for w, c in bag.items())
            / everything
            / max(sum(bag.values()), 1),
            "probability_sum": sum(total[w] for w in bag) / everything,
            "log_frequency": mean(logs),
            "log_frequency_sum": sum(logs),
            "highest_frequency": max(logs, default=0),
            "first_mentions": mean(places[w][0] == i for w in bag),
            "first_place": mean(places[w][0] / n for w in bag),
            "spread": mean((places[w][-1] - places[w][0]) / n for w in bag),
            "words": sum(bags[i].values()),
            "distinct": len(bags[i]) / max(sum(bags[i].values()), 1),
            "numbers": sum(c for w, c in bags[i].items() if w.isdigit()),
        }
        expected |= {f"cue_{cue}": len(stems & set(bags[i])) for cue, stems in CUES.items()}
        for name, value in expected.items():
            assert result[name][i] == pytest.approx(value, abs=1e-12), (i, name)


def test_bigrams_are_those_of_dictionaries(document):
    result = features.sentence_features(document)
    lines = [list(map(light_stem, unicode_words(s))) for s in document.sentences]
    pairs = [list(itertools.pairwise(line)) for line in lines]
    counts = collections.Counter(pair for line in pairs for pair in line)
    for i, line in enumerate(pairs):
        logs = [math.log(counts[pair]) for pair in line]
        both = [math.log(counts[pair]) for pair in line if not STOP_WORDS.intersection(pair)]
        assert result["bigrams"][i] == pytest.approx(sum(logs) / max(len(line), 1))
        assert result["content_bigrams"][i] == pytest.approx(sum(both) / max(len(line), 1))


def test_layout_and_form(document):
    result = features.sentence_features(document)
    n = len(document.sentences)
    assert result["position"].tolist() == [i / (n - 1) for i in range(n)]
    assert result["opening"].tolist() == [False, *[True] * 4, *[False] * (n - 5)]
    assert result["closing"].tolist() == [False] * (n - 3) + [True] * 3  # Conclusion
    assert result["since_heading"].tolist()[:7] == [0, 0, 1, 2, 3, 0, 1]
    assert result["paragraph_sentences"].tolist()[:5] == [1, 1, 3, 3, 3]
    for i, sentence in enumerate(document.sentences):
        capitals = len(re.findall("[A-Z]", sentence))
        assert result["upper"][i] * (document.ends[i] - document.starts[i]) == pytest.approx(
            capitals
        )


def test_names_are_capitals_after_small_letters():
    result = features.sentence_features(parse_document("We met Anna and Ben, later Jo. He left."))
    assert result["names"].tolist() == [3, 0]


def test_query_is_compared_without_stop_words(document):
    result = features.sentence_features(document, "What is the oak?")
    vectors, names = dense(document)
    target = np.array([float(name == "oak") for name in names])
    np.testing.assert_allclose(result["query_cosine"], vectors @ target, atol=1e-12)
    has = ["oak" in sentence for sentence in document.sentences]
    assert result["query_covered"].tolist() == has
    assert result["query_words"][0] == result["query_known"][0] == 1
    without = features.sentence_features(document)
    unknown = features.sentence_features(document, "zebra")
    for name in without:
        if name.startswith("query") and name != "query_words":
            assert not without[name].any(), name
            assert not unknown[name].any(), name
        elif not name.startswith(("query", "rank_query", "standard_query")):
            np.testing.assert_array_equal(result[name], without[name])


def test_ranks_and_windows():
    values = np.array([3.0, 1.0, 3.0, 0.0, 2.0])
    slow = [((values < x).sum() + ((values == x).sum() - 1) / 2) / 4 for x in values]
    np.testing.assert_allclose(features._ranks(values), slow)
    for reach in (1, 2, 7):
        around = [values[max(i - reach, 0) : i + reach + 1] for i in range(5)]
        expected = [part.mean() for part in around]
        np.testing.assert_allclose(features._window_mean(values, reach), expected)
        expected = [part.max() for part in around]
        np.testing.assert_allclose(features._window_max(values, reach), expected)


@pytest.mark.parametrize(
    "text", ["Hello.", "...", "a", "the of and", "Мосты старые. Мосты новые.", "x\0y. \ud800 z."]
)
def test_odd_documents_have_finite_features(text):
    document = parse_document(text)
    result = features.sentence_features(document, "Мосты a")
    for name, values in result.items():
        assert values.shape == (len(document.sentences),), name
        assert np.isfinite(values).all(), name
    table = features.feature_table(result, ["words", "position"])
    assert table.dtype == np.float32
    assert table[:, 0].tolist() == result["words"].tolist()


def test_features_that_depend_on_the_length_or_the_kind_are_not_relative():
    absolute = ("words", "size", "frequency_sum", "centroid")
    assert not any(map(features.is_relative, absolute))
    assert all(map(features.is_relative, ("position", "heading", "rank_words", "cue_first")))
