import dataclasses

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenize import tokenize

from longsum_jax.errors import InputError
from longsum_jax.text.gap_sentences import (
    GapSentenceOptions,
    _WordCounts,
    gap_sentence_example,
    select_gap_sentences,
)

RNG = np.random.default_rng(0)
FIELDS = {"f1": "fmeasure", "recall": "recall", "precision": "precision"}


class SetTokenizer:
    """rouge-score's words, each once: what PEGASUS calls Uniq."""

    def tokenize(self, text):
        return list(dict.fromkeys(tokenize(text, None)))


def slow_score(inside, outside, counting, metric):
    """ROUGE-1 by rouge-score of the text ``inside`` against ``outside``."""
    tokenizer = SetTokenizer() if counting == "unique" else None
    scorer = RougeScorer(["rouge1"], use_stemmer=False, tokenizer=tokenizer)
    return getattr(scorer.score(" ".join(outside), " ".join(inside))["rouge1"], FIELDS[metric])


def slow_scores(sentences, counting, metric, chosen=()):
    scores = []
    for index in range(len(sentences)):
        inside = [s for i, s in enumerate(sentences) if i in {*chosen, index}]
        outside = [s for i, s in enumerate(sentences) if i not in {*chosen, index}]
        scores.append(slow_score(inside, outside, counting, metric))
    return scores


def slow_sequential(sentences, options, count):
    selected = []
    for _ in range(count):
        scores = np.round(slow_scores(sentences, options.counting, options.metric, selected), 12)
        scores[selected] = -1
        selected.append(int(np.argmax(scores)))
    return sorted(selected)


def synthetic_document(seed, num_sentences=13):
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(40)] + ["The", "été", "don't", "U.S.", "x_y", "ΣΑΣ", "K2"]
    return [" ".join(rng.choice(words, rng.integers(1, 12))) + "." for _ in range(num_sentences)]


@pytest.mark.parametrize("metric", ["f1", "recall", "precision"])
@pytest.mark.parametrize("counting", ["original", "unique"])
def test_scores_equal_rouge_score(counting, metric):
    documents = [synthetic_document(seed) for seed in range(5)]
    documents += [
        ["...", "a b", "¿?", "b b c"],
        ["Same.", "same", "SAME!"],
        ["...", "!!"],
        ["alone"],
    ]
    for sentences in documents:
        expected = slow_scores(sentences, counting, metric)
        np.testing.assert_allclose(
            _WordCounts.of(sentences, counting).scores(metric), expected, rtol=0, atol=1e-12
        )


def test_scores_of_no_sentences():
    assert _WordCounts.of([], "original").scores("f1").shape == (0,)


def test_characters_without_an_encoding_are_no_words():
    words = _WordCounts.of(["a \ud800b", "a b"], "original")
    np.testing.assert_array_equal(words.scores("f1"), [1, 1])


@pytest.mark.parametrize(
    "sentences",
    [
        ["Кошка спит.", "Идёт дождь.", "Кошка и собака в доме.", "Собака спит в доме."],
        ["猫睡了。", "下雨。", "猫和狗在家里。", "狗在家里睡。"],
    ],
    ids=["russian", "chinese"],
)
def test_words_of_other_scripts_count_where_they_are_asked_for(sentences):
    blind = GapSentenceOptions(ratio=0.5)
    assert select_gap_sentences(sentences, blind, RNG) == [0, 1]  # all equal
    options = GapSentenceOptions(ratio=0.5, unicode_words=True)
    assert select_gap_sentences(sentences, options, RNG) == [2, 3]


@pytest.mark.parametrize("strategy", ["independent", "sequential"])
def test_words_of_english_are_the_same_either_way(strategy):
    sentences = [text.replace("é", "e").replace("ΣΑΣ", "x") for text in synthetic_document(3)]
    options = GapSentenceOptions(strategy=strategy)
    expected = select_gap_sentences(sentences, options, RNG)
    options = dataclasses.replace(options, unicode_words=True)
    assert select_gap_sentences(sentences, options, RNG) == expected


@pytest.mark.parametrize("metric", ["f1", "recall", "precision"])
@pytest.mark.parametrize("counting", ["original", "unique"])
def test_independent_selection_takes_the_best(counting, metric):
    options = GapSentenceOptions(ratio=0.3, counting=counting, metric=metric)
    for seed in range(10):
        sentences = synthetic_document(seed)
        scores = np.round(slow_scores(sentences, counting, metric), 12)
        expected = sorted(np.argsort(-scores, kind="stable")[:3].tolist())
        assert select_gap_sentences(sentences, options, RNG) == expected


@pytest.mark.parametrize("metric", ["f1", "recall", "precision"])
@pytest.mark.parametrize("counting", ["original", "unique"])
def test_sequential_selection_grows_greedily(counting, metric):
    options = GapSentenceOptions(ratio=0.4, strategy="sequential", counting=counting, metric=metric)
    for seed in range(4):
        sentences = synthetic_document(seed, num_sentences=10)
        assert select_gap_sentences(sentences, options, RNG) == slow_sequential(
            sentences, options, 4
        )


def test_sequential_and_independent_differ():
    sentences = ["a b c d", "a b c d", "a b c", "e f g", "e f", "h"]
    independent = select_gap_sentences(sentences, GapSentenceOptions(ratio=0.4), RNG)
    sequential = select_gap_sentences(
        sentences, GapSentenceOptions(ratio=0.4, strategy="sequential"), RNG
    )
    assert independent == [0, 1]
    assert sequential == [0, 3]


def test_ties_go_to_the_earlier_sentence():
    sentences = ["x y", "y x", "x y z q", "q z y x", "other"]
    assert select_gap_sentences(sentences, GapSentenceOptions(ratio=0.2), RNG) == [2]
    sentences = ["a b", "b a", "a b", "b a", "a b"]
    assert select_gap_sentences(sentences, GapSentenceOptions(ratio=0.4), RNG) == [0, 1]


@pytest.mark.parametrize(
    ("ratio", "num_sentences", "expected"), [(0.2, 25, 5), (0.57, 100, 57), (0.7, 10, 7)]
)
def test_number_of_gaps_is_not_lost_to_rounding(ratio, num_sentences, expected):
    options = GapSentenceOptions(ratio=ratio, strategy="lead")
    assert select_gap_sentences(["a"] * num_sentences, options, RNG) == list(range(expected))


def test_random_selection_follows_the_generator():
    options = GapSentenceOptions(strategy="random")
    sentences = ["s"] * 50
    first = select_gap_sentences(sentences, options, np.random.default_rng(1))
    assert first == select_gap_sentences(sentences, options, np.random.default_rng(1))
    assert first != select_gap_sentences(sentences, options, np.random.default_rng(2))
    assert first == sorted(set(first))
    assert len(first) == 10


def test_example_removes_or_masks_in_document_order():
    sentences = ["Zero.", "One a b.", "Two a b c.", "Three.", "Four b a."]
    options = GapSentenceOptions(ratio=0.4)
    removed = gap_sentence_example(sentences, options, RNG)
    assert removed == ("Zero. Three. Four b a.", "One a b. Two a b c.")
    masked = gap_sentence_example(
        sentences, dataclasses.replace(options, mask_token="<mask_1>"), RNG
    )
    assert masked == ("Zero. <mask_1> <mask_1> Three. Four b a.", "One a b. Two a b c.")


def test_example_splits_text():
    example = gap_sentence_example(
        "It is. We go. He sat. No one. All.", GapSentenceOptions(strategy="lead"), RNG
    )
    assert example == ("We go. He sat. No one. All.", "It is.")


def test_short_documents_are_skipped_or_give_one():
    sentences = ["a b", "c", "a b"]
    assert gap_sentence_example(sentences, GapSentenceOptions(), RNG) is None
    one = gap_sentence_example(sentences, GapSentenceOptions(short_documents="one"), RNG)
    assert one == ("c a b", "a b")


@pytest.mark.parametrize("sentences", [[], ["alone"], ""])
def test_a_single_sentence_gives_no_example(sentences):
    options = GapSentenceOptions(ratio=0.9, short_documents="one", mask_token="<mask>")
    assert gap_sentence_example(sentences, options, RNG) is None


@pytest.mark.parametrize("ratio", [0, 1, -0.1, 1.5, float("nan")])
def test_ratio_out_of_range(ratio):
    with pytest.raises(InputError, match=r"gap_sentences\.ratio must lie between 0 and 1"):
        GapSentenceOptions(ratio=ratio)


@pytest.mark.parametrize(
    ("name", "value", "guess"),
    [
        ("strategy", "independant", "independent"),
        ("counting", "uniq", "unique"),
        ("metric", "f", "f1"),
        ("short_documents", "skipped", "skip"),
    ],
)
def test_unknown_choices_suggest_the_nearest(name, value, guess):
    with pytest.raises(
        InputError, match=rf'gap_sentences\.{name}: "{value}" .* did you mean "{guess}"'
    ):
        GapSentenceOptions(**{name: value})


def test_empty_mask_token():
    with pytest.raises(InputError, match="use None"):
        GapSentenceOptions(mask_token="")
