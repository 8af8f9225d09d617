"""BARTScore and LongDocFACTScore beside the published code, see golden/metrics."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_checkpoints import SENTENCES

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.evaluation.model_metric import text_ids
from longsum_jax.experimental.metrics.bartscore import BartScore, target_ids
from longsum_jax.experimental.metrics.longdocfactscore import (
    LongDocFactScore,
    _unit_vectors,
    surroundings,
)
from longsum_jax.models.registry import get_family

GOLDEN = Path(__file__).parents[2] / "golden" / "metrics" / "bartscore.json"
A, B, C, D, E = SENTENCES
PREDICTIONS = [B, A, "the dam", "", E + " ", A + " " + C]
REFERENCES = [A, A, C, D, D, C + " " + A]
SOURCES = [C, B, D, E, A, B]
DOCUMENTS = [" ".join(SENTENCES), " ".join([C, A, E]), D]
SUMMARIES = [" ".join([D, B]), E, "the dam"]


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text())


@pytest.fixture(scope="module")
def bart(tiny_bart):
    return longsum_jax.load(tiny_bart)


def test_log_probs_are_those_of_transformers(tiny_bart, bart):
    import transformers

    theirs = transformers.BartForConditionalGeneration.from_pretrained(tiny_bart).eval()
    rng = np.random.default_rng(0)
    ids, targets = rng.integers(4, 260, (2, 20)), rng.integers(4, 260, (2, 9))
    with torch.no_grad():
        logits = theirs(torch.tensor(ids), labels=torch.tensor(targets)).logits
    expected = torch.log_softmax(logits, -1).numpy()
    expected = np.take_along_axis(expected, targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(bart.log_probs(ids, None, targets), expected, atol=1e-5)
    with pytest.raises(InputError, match="target_ids has 1 rows, input_ids 2; they must agree"):
        bart.log_probs(ids, None, targets[:1])
    with pytest.raises(InputError, match="target_ids: 41 tokens, but the decoder of this"):
        bart.log_probs(ids, None, np.ones((2, 41), np.int32))


def test_scores_of_the_published_code(golden, bart):
    scores = BartScore(model=bart).score(PREDICTIONS, REFERENCES, SOURCES)
    for direction in ("src_hyp", "ref_hyp", "hyp_ref"):
        result = [score[f"bartscore_{direction}"] for score in scores]
        np.testing.assert_allclose(result, golden[direction], atol=1e-5)
    means = np.mean([golden["ref_hyp"], golden["hyp_ref"]], 0)
    np.testing.assert_allclose([score["bartscore_f"] for score in scores], means, atol=1e-5)


def test_directions_that_are_not_asked_for_are_not_computed(golden, bart):
    options = BartScore.Options(directions=("src_hyp",), batch_size=5)
    metric = BartScore(options, bart)
    assert metric.columns == ("bartscore_src_hyp", "bartscore_unread")
    assert (metric.reads_references, metric.reads_sources) == (False, True)
    scores = metric.score(PREDICTIONS, [""] * 6, SOURCES)
    result = [score["bartscore_src_hyp"] for score in scores]
    np.testing.assert_allclose(result, golden["src_hyp"], atol=1e-5)
    room = 38
    tokens = [len(bart.tokenizer.encode(text)) for text in (A, B)]  # of a summary, a document
    cut = sum(max(count - room, 0) for count in tokens)
    assert cut > 0
    assert scores[1]["bartscore_unread"] == pytest.approx(100 * cut / (sum(tokens) + 4))
    for directions in ((), ("src_hyp", "src_hyp")):
        with pytest.raises(InputError, match=r"metrics.bartscore.directions=\[.* each once"):
            BartScore(BartScore.Options(directions=directions), bart)


def test_texts_beyond_the_decoders_positions_are_cut(bart):
    family = get_family("led")
    config = dataclasses.replace(family.presets["tiny"], max_decoder_position_embeddings=8)
    led = longsum_jax.Model(family, config, {}, bart.tokenizer)
    ids = bart.tokenizer.encode("the dam broke.")
    result = target_ids(led, ["the dam broke.", "dam"])
    assert result.rows[0] == [0, *ids[:6], 2]
    assert result.unread.tolist() == [len(ids) - 6, 0]
    assert text_ids(led, ["the dam broke."]).unread.tolist() == [0]


def test_parts_of_long_documents(golden, bart, tiny_bert, tiny_bart, monkeypatch):
    monkeypatch.setattr("longsum_jax.experimental.metrics.longdocfactscore.DOCUMENTS_AT_ONCE", 2)
    options = LongDocFactScore.Options(model=str(tiny_bart), sentence_model=str(tiny_bert))
    metric = LongDocFactScore(options)
    scores = metric.score(SUMMARIES, [""] * 3, DOCUMENTS)
    result = [score["longdocfactscore"] for score in scores]
    np.testing.assert_allclose(result, golden["longdocfactscore"], atol=1e-5)
    described = metric.describe()
    assert described["sentence_weights"] == longsum_jax.load(tiny_bert).fingerprint
    # Without another model the writing model's encoder compares, and every part can be tried.
    every = LongDocFactScore(LongDocFactScore.Options(top_k=9), bart)
    best = every.score(SUMMARIES, [""] * 3, DOCUMENTS)
    assert all(b["longdocfactscore"] >= value - 1e-5 for b, value in zip(best, result, strict=True))


def test_neighbours_of_a_sentence():
    sentences = ["a", "b", "c"]
    before = [surroundings(sentences, place, "before") for place in range(3)]
    assert before == ["a b", "a b", "b c"]  # as the published code takes them
    both = [surroundings(sentences, place, "both") for place in range(3)]
    assert both == ["a b", "a b c", "b c"]
    assert surroundings(["a"], 0, "before") == surroundings(["a"], 0, "both") == "a"


def test_empty_texts(bart):
    metric = LongDocFactScore(model=bart)
    scores = metric.score(["", "Rain."], ["", ""], ["", "The dam."])
    assert np.isfinite([score["longdocfactscore"] for score in scores]).all()


def test_vectors_of_zeros_are_like_no_other():
    with np.errstate(all="raise"):
        vectors = _unit_vectors(np.array, [[[0.0, 0.0]], [[3.0, 4.0], [0.0, 2.0]]])
    np.testing.assert_allclose(np.concatenate(vectors), [[0, 0], [0.6, 0.8], [0, 1]])


def test_options_and_models_that_do_not_fit(bart, tiny_bert):
    with pytest.raises(InputError, match=r"metrics.longdocfactscore.top_k=0 must be at least 1"):
        LongDocFactScore(LongDocFactScore.Options(top_k=0), bart)
    for metric in (BartScore, LongDocFactScore):
        with pytest.raises(
            InputError,
            match=rf"metrics.{metric.name}.model: .* is a bert with head masked_lm; give an "
            r"encoder-decoder that writes text",
        ):
            metric(metric.Options(model=str(tiny_bert)))
