import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import mean_scores
from longsum_jax.evaluation.rouge import Rouge, corpus_rouge, describe, rouge

REFERENCE = "The cats were sitting on mats. Dr. Smith saw them. He left!"
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
    found = metric.corpus_values(scores, predictions, references, ["", ""])
    assert found == corpus_rouge(zip(predictions, references, strict=True), stemmer=True)
    assert metric.describe() == describe(stemmer=True)


def test_no_examples():
    with pytest.raises(InputError, match="at least one pair"):
        corpus_rouge([])
    with pytest.raises(InputError, match="at least one pair"):
        mean_scores([])


def test_description_names_versions():
    description = describe(stemmer=True)
    assert description["package"].startswith("rouge-score 0.")
    assert description["splitter"].startswith("sentencex ")
    assert description["stemmer"] is True
