"""What every metric of the registry must do, and how metrics are asked for."""

import itertools

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.model_metric import ModelMetric
from longsum_jax.evaluation.registry import METRICS, make_metrics, notes_of

SOURCES = ["A cat sat on the mat. It slept.", "Rain fell all day. The river rose. A boat sank."]
REFERENCES = ["A cat slept.", "A boat sank in the rain."]
# What metrics of answers read in the right one.
RIGHT = {"percentage": ["40% are", "about 7.5%"], "ordering": ["2, 1", "Order: 3, 1, 2"]}


# Options of the metrics that read with a model of the user's, by their names: the fixture of its
# directory, and others.
OVER_MODELS = {
    "bertscore": ("tiny_bert", {"layer": 1}),
    "bartscore": ("tiny_bart", {}),
    "longdocfactscore": ("tiny_bart", {}),
    "discoscore": ("tiny_bert", {}),
    "factcc": ("tiny_facts", {}),
    "summac": ("tiny_entailment", {}),
    "blanc": ("tiny_masked", {}),
    "apes": ("tiny_answers", {}),
}


def options_of(name, request):
    if name not in OVER_MODELS:
        return {}
    fixture, options = OVER_MODELS[name]
    return {"model": str(request.getfixturevalue(fixture)), **options}


def test_metrics_over_models_are_known_here():
    assert OVER_MODELS.keys() == {
        name for name in METRICS if issubclass(METRICS[name], ModelMetric)
    }


@pytest.mark.parametrize("name", METRICS)
def test_scores_have_the_columns(name, request):
    (metric,) = make_metrics([name], {name: options_of(name, request)}).values()
    predictions = ["The cat slept.", ""]
    references = RIGHT.get(name, REFERENCES)
    scores = metric.score(predictions, references, SOURCES)
    assert [tuple(score) for score in scores] == [metric.columns] * 2
    assert np.isfinite([list(score.values()) for score in scores]).all()
    values = metric.corpus_values(scores, predictions, references, SOURCES)
    assert tuple(values) == metric.columns == METRICS[name].columns
    assert metric.is_function_of_means
    assert isinstance(metric.describe(), dict)


def test_no_two_metrics_share_a_column():
    columns = list(itertools.chain(*(metric.columns for metric in METRICS.values())))
    assert len(columns) == len(set(columns))


def test_metrics_by_name():
    assert list(make_metrics()) == ["rouge"]
    assert make_metrics(["rouge"], {"rouge": {"stemmer": True}})["rouge"].options.stemmer


@pytest.mark.parametrize(
    ("names", "options", "problem"),
    [
        ([], {}, "metrics: give at least one; known: .*rouge"),
        (["roug"], {}, 'unknown metric "roug"; did you mean "rouge"'),
        (["rouge"], {"bleu": {}}, 'unknown metric "bleu"'),
        (["rouge", "rouge"], {}, "metrics=rouge,rouge names a metric twice; give each once"),
        (["rouge"], {"rouge": {"stem": 1}}, 'metrics.rouge: unknown key "stem"; did you mean'),
        (["rouge"], {"rouge": {"stemmer": 1}}, "metrics.rouge.stemmer: expected bool, got 1"),
    ],
)
def test_metrics_that_cannot_be_made(names, options, problem):
    with pytest.raises(InputError, match=problem):
        make_metrics(names, options)


def test_a_note_on_scripts_whose_words_are_left_out():
    metrics = make_metrics(
        ["novelty", "support", "length", "salience"], {"salience": {"tokenizer": "unicode"}}
    )
    russian = "\u041a\u043e\u0442 \u0441\u0438\u0434\u0438\u0442."
    assert notes_of(metrics, REFERENCES) == []
    [note] = notes_of(metrics, [*REFERENCES, russian])
    assert note.startswith("1 of 3 references are not in Latin script, whose words novelty, length")
    options = "--metric_option=novelty.tokenizer=unicode --metric_option=length.tokenizer=unicode"
    assert note.endswith(f"give {options}")
    assert len(notes_of(make_metrics(["rouge"]), [russian])) == 2
