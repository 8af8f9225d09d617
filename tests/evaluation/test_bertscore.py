"""BERTScore beside bert-score, see golden/metrics."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_checkpoints import SENTENCES

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.evaluation.bertscore import BertScore, idf_weights
from longsum_jax.evaluation.predictions import Pair, example_scores

GOLDEN = Path(__file__).parents[1] / "golden" / "metrics" / "bertscore.json"
A, B, C, D, E = SENTENCES
PREDICTIONS = [B, A, "the dam", "", E + " ", A + " " + C]
REFERENCES = [A, A, C, D, D, C + " " + A]
OTHER_REFERENCES = [C, B, D, E, A, B]
LAYERS = {"bert": 2, "roberta": 2, "bart": 1}
COLUMNS = ("bertscore_precision", "bertscore_recall", "bertscore_f1")


def make(model, **options):
    return BertScore(BertScore.Options(model=str(model), **options))


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text())


def table(scores):
    return np.array([[score[column] / 100 for column in COLUMNS] for score in scores]).T


@pytest.mark.parametrize("name", LAYERS)
def test_scores_of_the_package(name, golden, request):
    model = request.getfixturevalue(f"tiny_{name}")
    for idf in (False, True):
        metric = make(model, layer=LAYERS[name], idf=idf, batch_size=4)
        expected = golden[f"{name}|idf:{'yes' if idf else 'no'}"]
        result = table(metric.score(PREDICTIONS, REFERENCES, REFERENCES))
        np.testing.assert_allclose(result, expected, atol=1e-6)
        assert len(np.unique(result.round(4))) > 10


@pytest.mark.parametrize("form", ["file", "numbers"])
def test_the_best_of_several_references_less_the_baseline(form, golden, tiny_bert, tmp_path):
    path = tmp_path / "baseline.csv"
    path.write_text("LAYER,P,R,F\n1,0,0,0\n2,0.2,0.4,0.6\n")
    baseline = {"file": str(path), "numbers": (0.2, 0.4, 0.6)}[form]
    metric = make(tiny_bert, layer=2, baseline=baseline)
    rows = zip(REFERENCES, OTHER_REFERENCES, strict=True)
    pairs = [Pair("", "", first, None, (other,)) for first, other in rows]
    result = table(example_scores({"bertscore": metric}, PREDICTIONS, pairs))
    np.testing.assert_allclose(result, golden["bert|two references|rescaled"], atol=1e-5)
    assert "rescaled:yes" in metric.describe()["signature"]


def test_values_do_not_depend_on_batches_or_on_how_much_is_in_memory(tiny_bert, monkeypatch):
    whole = table(make(tiny_bert, layer=2).score(PREDICTIONS, REFERENCES, REFERENCES))
    monkeypatch.setattr("longsum_jax.evaluation.bertscore.TOKENS_AT_ONCE", 30)
    parts = table(make(tiny_bert, layer=2, batch_size=1).score(PREDICTIONS, REFERENCES, REFERENCES))
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_long_texts_are_cut_and_counted_or_read_in_windows(tiny_bert):
    long = " ".join(SENTENCES)
    tokenizer = longsum_jax.load(tiny_bert).tokenizer
    total = len(tokenizer.encode(long))
    # What is cut off does not count, so the texts seem equal.
    (cut,) = make(tiny_bert, layer=2).score([long + " Boats."], [long], [""])
    assert cut["bertscore_f1"] == pytest.approx(100)
    end = len(tokenizer.encode("Boats."))
    assert cut["bertscore_unread"] == pytest.approx(100 - 100 * 76 / (2 * total + end))
    metric = make(tiny_bert, layer=2, long_texts="windows")
    (whole,) = metric.score([long + " Boats."], [long], [""])
    assert whole["bertscore_unread"] == 0
    assert whole["bertscore_f1"] < 99.9
    assert metric.score([long], [long], [""])[0]["bertscore_f1"] == pytest.approx(100)


def test_weights_of_rare_words():
    weights = idf_weights([[1, 2, 2], [1, 3], [1]], 5)
    np.testing.assert_allclose(weights, np.log([4, 1, 2, 2, 4]))


def test_a_text_without_weight_scores_nothing(tiny_bert):
    # Both references have all words, so that none has a weight.
    scores = make(tiny_bert, layer=1, idf=True).score(["dam", "river"], ["dam", "dam"], ["", ""])
    assert table(scores)[:, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, r"metrics.bertscore.layer is not given, and no default is known for .*; give one of "
             r"1 to 3, --metric_option=bertscore.layer=N"),
        ({"layer": 4}, "metrics.bertscore.layer=4: .* has layers 0 to 3"),
        ({"layer": 1, "baseline": (0.1, 0.2)}, "must be precision, recall and F1"),
        ({"layer": 1, "baseline": (0.1, 0.2, 1.0)}, "each below 1"),
        ({"layer": 1, "baseline": "no.csv"}, "metrics.bertscore.baseline=no.csv: no values of lay"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(tiny_bert, options, problem):
    with pytest.raises(InputError, match=problem):
        make(tiny_bert, **options)


def test_rarity_needs_references(tiny_bert):
    with pytest.raises(InputError, match=r"metrics.bertscore.idf=true needs at least two referenc"):
        make(tiny_bert, layer=1, idf=True).score(["a"], ["b"], ["c"])


def test_the_layer_is_that_of_the_models_name(tiny_bert, tmp_path):
    place = tmp_path / "distilroberta-base"
    place.symlink_to(tiny_bert)
    with pytest.raises(InputError, match=r"metrics.bertscore.layer=5: .* has layers 0 to 3"):
        make(place)
