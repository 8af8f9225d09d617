import dataclasses
import random
from importlib import metadata

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import mean_scores
from longsum_jax.evaluation.predictions import Pair, corpus_scores, example_scores
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.evaluation.rouge import (
    EQUALED_VERSION,
    Rouge,
    corpus_rouge,
    describe,
    rouge,
    rouge_parts,
)
from longsum_jax.text.sentences import splitter_name

REFERENCE = "The cats were sitting on mats. Dr. Smith saw them. He left!"
ALL_TYPES = ("rouge1", "rouge2", "rouge3", "rougeL", "rougeLsum")
PREDICTION = "Dr. Smith saw the cat. A cat sat on the mat"


@pytest.mark.parametrize("stemmer", [False, True])
def test_values_equal_rouge_score_on_lines_split_by_hand(stemmer):
    scorer = RougeScorer(["rouge1", "rouge2", "rougeLsum"], use_stemmer=stemmer)
    reference = "The cats were sitting on mats.\nDr. Smith saw them.\nHe left!"
    prediction = "Dr. Smith saw the cat.\nA cat sat on the mat"
    expected = {
        name: 100 * score.fmeasure for name, score in scorer.score(reference, prediction).items()
    }
    values = rouge(PREDICTION, REFERENCE, stemmer=stemmer)
    mean = values.pop("mean_rouge")
    assert values == pytest.approx(expected, abs=1e-12)
    assert mean == pytest.approx(sum(expected.values()) / 3, abs=1e-12)


def test_hand_counted_values():
    values = rouge("the cat sat", "the cat ran away")
    assert values["rouge1"] == pytest.approx(100 * 4 / 7)
    assert values["rouge2"] == pytest.approx(100 * 2 / 5)
    assert values["rougeLsum"] == pytest.approx(100 * 4 / 7)


def test_stemming_changes_values():
    assert rouge("cats", "cat")["rouge1"] == 0
    assert rouge("walking", "walked", stemmer=True)["rouge1"] == 100


def test_lines_of_a_text_are_split_further():
    with_lines = rouge(PREDICTION.replace(". A", ".\nA"), REFERENCE.replace("! ", "!\r\n"))
    assert with_lines == rouge(PREDICTION, REFERENCE)
    assert rouge("three four one two", "one two three four")["rougeLsum"] == 50
    assert rouge("three four one two", "one two\nthree four")["rougeLsum"] == 100


def test_an_empty_prediction_scores_nothing():
    assert set(rouge("", REFERENCE).values()) == {0}


def test_corpus_mean_is_over_examples():
    pairs = [(PREDICTION, REFERENCE), ("", REFERENCE), (REFERENCE, REFERENCE)]
    expected = {
        k: np.mean([rouge(*pair, stemmer=True)[k] for pair in pairs]) for k in rouge("", "")
    }
    assert corpus_rouge(iter(pairs), stemmer=True) == pytest.approx(expected)


def test_the_metric_gives_the_same_values():
    metric = Rouge(Rouge.Options(stemmer=True))
    predictions, references = [PREDICTION, ""], [REFERENCE, REFERENCE]
    scores = metric.score(predictions, references, ["", ""])
    assert scores == [rouge(each, REFERENCE, stemmer=True) for each in predictions]
    result = metric.corpus_values(scores, predictions, references, ["", ""])
    expected = corpus_rouge(zip(predictions, references, strict=True), stemmer=True)
    assert result == pytest.approx(expected, abs=1e-12)


def random_summary(rng, words):
    """Lines of words of which many repeat, some lines empty, with marks and numbers between."""
    lines = [
        " ".join(rng.choice(words) for _ in range(rng.randrange(12)))
        for _ in range(rng.randrange(1, 7))
    ]
    return rng.choice(["", "\n"]) + "\n".join(lines)


@pytest.mark.parametrize("stemmer", [False, True])
def test_all_types_equal_rouge_score_to_the_last_digit(stemmer):
    rng = random.Random(0)
    few = ["the", "cats", "running", "-", "3.5"]
    many = REFERENCE.split() + PREDICTION.split() + ["été", "\u212aelvin", "a-b", "\x85"]
    scorer = RougeScorer(ALL_TYPES, use_stemmer=stemmer)
    options = Rouge.Options(types=ALL_TYPES, stemmer=stemmer, splitter="lines")
    for words in [few, many] * 60:
        prediction, reference = random_summary(rng, words), random_summary(rng, words)
        result = rouge_parts(prediction, reference, options)
        expected = scorer.score(reference, prediction)
        assert {name: (*part,) for name, part in result.items()} == {
            name: (score.precision, score.recall, score.fmeasure)
            for name, score in expected.items()
        }


def test_the_version_that_is_equaled_is_the_one_installed():
    assert metadata.version("rouge_score") == EQUALED_VERSION


def test_columns_follow_the_options():
    options = Rouge.Options(types=("rouge1", "rouge2", "rougeL"), details=True)
    metric = Rouge(options)
    [values] = metric.score(["a b c d"], ["a c b"], [""])
    assert tuple(values) == metric.columns
    assert values["rouge1_precision"] == pytest.approx(75)
    assert values["rouge1_recall"] == pytest.approx(100)
    assert values["rougeL_precision"] == pytest.approx(50)
    assert "mean_rouge" not in values
    with pytest.raises(InputError, match=r'metrics.rouge.types="rouge1,rouge1" must name each'):
        Rouge.Options(types=("rouge1", "rouge1"))
    with pytest.raises(InputError, match=r'metrics.rouge.types="" must name each type once, of'):
        Rouge.Options(types=())
    with pytest.raises(InputError, match=r'metrics.rouge.types="rouge9" must name each type once'):
        Rouge.Options(types=("rouge9",))


def test_the_geometric_mean_is_that_of_the_corpus():
    """SCROLLS averages each type over examples before it takes the geometric mean."""
    metric = Rouge(Rouge.Options(types=("rouge1", "rouge2", "rougeL")))
    predictions, references = ["a b c", "a b"], ["a b d", "b a"]
    scores = metric.score(predictions, references, ["", ""])
    assert [score["geometric_rouge"] for score in scores] == [
        pytest.approx((200 / 3 * 50 * 200 / 3) ** (1 / 3)),
        0,
    ]
    result = metric.corpus_values(scores, predictions, references, ["", ""])
    means = [np.mean([score[name] for score in scores]) for name in metric.options.types]
    assert result["geometric_rouge"] == pytest.approx(np.prod(means) ** (1 / 3))


def test_the_example_of_the_scrolls_benchmark():
    """Values that the documentation of its metric gives, metrics/scrolls.py of tau/scrolls."""
    pairs = [
        Pair("a", "", "exact match example"),
        Pair("b", "", "hello", other_references=("hi there",)),
        Pair("c", "", "commander kenobi"),
    ]
    predictions = ["exact match example", "hello there", "general kenobi"]
    types = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    metrics = make_metrics(["rouge"], {"rouge": {"types": types}})
    scores = example_scores(metrics, predictions, pairs)
    result = corpus_scores(metrics, scores, predictions, pairs)
    assert {name: round(value, 4) for name, value in result.items() if name != "mean_rouge"} == {
        "rouge1": 72.2222,
        "rouge2": 33.3333,
        "rougeL": 72.2222,
        "rougeLsum": 72.2222,
        "geometric_rouge": 55.8136,
    }


def test_the_best_of_several_references_is_rouge_scores():
    references = ["the cat sat down", "cat the on mat dogs and cats", "a cat sat on a mat"]
    prediction = "the cat sat on the mat"
    metric = Rouge(Rouge.Options(types=ALL_TYPES, details=True, splitter="lines"))
    scores = metric.score([prediction] * 3, references, [""] * 3)
    result = metric.over_references(scores)
    expected = RougeScorer(ALL_TYPES).score_multi(references, prediction)
    for name, score in expected.items():
        assert result[name] == 100 * score.fmeasure
        assert result[f"{name}_precision"] == 100 * score.precision
        assert result[f"{name}_recall"] == 100 * score.recall
    best = [result[name] for name in ("rouge1", "rouge2", "rougeLsum")]
    assert result["mean_rouge"] == pytest.approx(np.mean(best))
    assert tuple(result) == metric.columns


def test_the_mean_of_several_references():
    metric = Rouge(Rouge.Options(references="mean"))
    scores = metric.score(["a b", "a b"], ["a b", "c d"], ["", ""])
    assert metric.over_references(scores) == pytest.approx(
        {"rouge1": 50, "rouge2": 50, "rougeLsum": 50, "mean_rouge": 50}
    )


def test_other_scripts_count_with_the_unicode_tokenizer():
    texts = [
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
        "\u4e2d\u6587\u6d4b\u8bd5\u3002",
        "L'economie \u00e9t\u00e9",
    ]
    expected_scores = {
        "default": [0, 0, 100],
        "unicode": [100, 100, 100],
        "auto": [100, 100, 100],
    }
    for tokenizer, expected in expected_scores.items():
        metric = Rouge(Rouge.Options(tokenizer=tokenizer))
        scores = metric.score(texts, texts, texts)
        assert [score["rouge1"] for score in scores] == pytest.approx(expected)
    words = Rouge(Rouge.Options(tokenizer="unicode", types=("rouge1",), details=True))
    [score] = words.score(["été"], ["L'economie été"], [""])
    assert score["rouge1_recall"] == pytest.approx(100 / 3)


def test_tokenizers_agree_on_english():
    names = ("default", "unicode", "auto")
    options = [Rouge.Options(tokenizer=name, stemmer=True) for name in names]
    first, second, third = (rouge_parts(PREDICTION, REFERENCE, option) for option in options)
    assert first == second == third


def test_the_reference_decides_on_the_tokenizer():
    metric = Rouge(Rouge.Options(types=("rouge1",)))
    references = ["\u4e2d\u6587 GDP 5 %", "L'\u00e9t\u00e9 GDP", "42"]
    scores = metric.score(["GDP"] * 3, references, [""] * 3)
    assert [round(score["rouge1"], 1) for score in scores] == [40.0, 50.0, 0.0]


def test_notes_on_other_scripts_and_on_lines():
    hindi, english = "\u0928\u092f\u093e \u092a\u0941\u0932", "A new bridge."
    options = Rouge.Options(types=("rouge1",))
    assert Rouge(options).notes([english]) == []
    [note] = Rouge(options).notes([english, hindi])
    assert note.startswith("1 of 2 references are not in Latin script: they are split")
    [note] = Rouge(dataclasses.replace(options, tokenizer="default")).notes([hindi])
    assert "rouge.tokenizer=unicode counts words of any script" in note
    assert Rouge(dataclasses.replace(options, tokenizer="unicode")).notes([hindi]) == []
    [note] = Rouge().notes([english])
    assert "rouge.splitter=lines" in note
    assert Rouge(Rouge.Options(splitter="lines")).notes([english]) == []


def test_no_examples():
    with pytest.raises(InputError, match="at least one pair"):
        corpus_rouge([])
    with pytest.raises(InputError, match="at least one pair"):
        mean_scores([])


def test_the_signature_names_all_that_values_depend_on():
    result = describe(Rouge.Options(stemmer=True))
    splitter = splitter_name().replace(" ", "-")
    assert result["signature"] == f"rouge|stem:yes|split:{splitter}|tok:auto|refs:max|v:0.1.2"
    result = describe(Rouge.Options(tokenizer="unicode", splitter="lines", references="mean"))
    assert result["signature"] == "rouge|stem:no|split:lines|tok:unicode|refs:mean|v:0.1.2"
    assert result["types"] == ("rouge1", "rouge2", "rougeLsum")
