"""Heads in config.json: their names, their labels, and what is refused."""

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.models.registry import get_family

RAW = {"model_type": "bert", "architectures": ["BertForQuestionAnswering"]}


def config_of(raw, family="bert"):
    return get_family(family).config_of_json(raw, "config.json")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"architectures": ["BertForNextSentencePrediction"]},
            '"BertForNextSentencePrediction" has a head that is not supported; .*ForQuestion',
        ),
        (
            {"id2label": {"0": "a", "1": "b", "2": "c"}},
            "num_labels is 3, but a head for question answering has 2 outputs",
        ),
        ({"problem_type": "regression"}, 'problem_type is "regression"; only'),
        ({"num_labels": 0}, "num_labels=0 must be at least 1"),
    ],
)
def test_what_is_refused(changes, problem):
    with pytest.raises(InputError, match=f"config.json: .*{problem}"):
        config_of(RAW | changes)


@pytest.mark.parametrize("family", ["bert", "bart"])
@pytest.mark.parametrize("count", [1, 2])
def test_single_labels_are_what_transformers_takes_by_itself(family, count):
    """Named in the file, they would forbid it one label, and be the loss of several ones."""
    result = get_family(family)
    values = {"head": "classification", "num_labels": count}
    assert "problem_type" not in result.config_json(result.config(values))
    several = result.config(values | {"problem_type": "multi_label_classification"})
    assert result.config_json(several)["problem_type"] == "multi_label_classification"


def test_other_summaries_of_electra_are_refused_where_it_chooses():
    raw = {"model_type": "electra", "summary_type": "mean"}
    with pytest.raises(InputError, match="summary_type is 'mean'; only 'first' is supported"):
        config_of(raw | {"architectures": ["ElectraForMultipleChoice"]}, "electra")
    assert config_of(raw | {"architectures": ["ElectraForMaskedLM"]}, "electra").head == "masked_lm"


@pytest.mark.parametrize("family", ["pegasus", "pegasus_x"])
def test_heads_that_a_family_lacks(family):
    with pytest.raises(InputError, match='head "classification" is unknown; '):
        get_family(family).config({"head": "classification"})


def test_a_decoder_that_reads_the_source_limits_it():
    """LED has fewer positions in its decoder, which grow with the encoder's."""
    config = get_family("led").config({"head": "classification"})
    assert config.max_source_length == 1024
    longer = config.with_max_source_length(4096)
    assert longer.max_source_length == 4096
    assert (longer.source_rows, longer.target_rows) == (16384, 4096)


@pytest.mark.parametrize(
    ("family", "head", "rates"),
    [
        ("bert", "classification", (0.0, 0.3)),
        ("bert", "token_classification", (0.0, 0.3)),
        ("bert", "question_answering", (0.0, 0.0)),
        ("roberta", "classification", (0.3, 0.3)),
        ("roberta", "multiple_choice", (0.0, 0.1)),
        ("electra", "classification", (0.3, 0.3)),
        ("electra", "multiple_choice", (0.0, 0.4)),
        ("distilbert", "classification", (0.0, 0.3)),
        ("distilbert", "token_classification", (0.0, 0.1)),
        ("distilbert", "question_answering", (0.0, 0.2)),
        ("big_bird", "question_answering", (0.0, 0.1)),
        ("longformer", "multiple_choice", (0.0, 0.1)),
    ],
)
def test_dropout_is_that_of_the_class(family, head, rates):
    """Before and after the hidden layer, with 0.1 in the layers and 0.3 for the classifier."""
    values = {"head": head, "classifier_dropout": 0.3, "hidden_dropout_prob": 0.1}
    further = {"distilbert": {"qa_dropout": 0.2}, "electra": {"summary_last_dropout": 0.4}}
    values |= further.get(family, {})
    config = get_family(family).config(values)
    assert (config.head_input_dropout, config.head_dropout) == rates


def test_answers_of_big_bird_are_not_in_the_question(draw_params):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 9}
    sizes |= {"num_attention_heads": 2, "encoder_attention": "full", "sep_token_id": 5}
    family = get_family("big_bird")
    config = family.config(sizes | {"head": "question_answering"})
    ids = np.array([[1, 2, 3, 5, 6, 7, 5]])
    variables = {"params": draw_params(family.init_params(config))}
    logits = family.module_class(config).apply(variables, ids, np.ones(ids.shape, bool))
    logits = np.asarray(logits)
    refused = (logits < -1e5).all(-1)
    assert refused.tolist() == [[False, True, True, True, False, False, False]]
    assert np.abs(logits[~refused]).max() < 1e3
