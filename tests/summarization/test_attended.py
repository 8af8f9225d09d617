"""Sources by cross-attention: their shares beside a slow sum over tokens."""

import numpy as np
import pytest

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.models import registry
from longsum_jax.summarization.attended import (
    LEAST_SHARE,
    attended_sources,
    check_attends,
    cross_attention_weights,
)
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.summary import Request, Summary

DOCUMENT = "A cat sat on the mat. It rained all day. Nobody came to see the cat."
WRITTEN = "The cat sat. Nobody came."


@pytest.fixture(scope="module")
def model(small_model):
    return longsum_jax.load(small_model)


@pytest.mark.slow
def test_shares_are_sums_over_tokens(model):
    request = Request(DOCUMENT, "a", "Who came?")
    summary = Summary(WRITTEN, 99, 99, 0, 5, "eos").of(request)
    result = attended_sources(model, summary)
    assert [statement.text for statement in result] == ["The cat sat.", "Nobody came."]
    assert [each.support for each in result] == [each.support for each in summary.sources]
    tokenizer = model.tokenizer
    lead = "Who came?\n"
    ids = tokenizer.add_special_tokens(tokenizer.encode(lead + DOCUMENT))
    targets = tokenizer.add_special_tokens(tokenizer.encode(WRITTEN))
    each_token = np.eye(len(targets), dtype=np.float32)[None]
    [weights] = cross_attention_weights(
        model, np.array([ids], np.int32), np.array([targets], np.int32), each_token
    )
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    spans = [
        (start - len(lead), end - len(lead)) for start, end in tokenizer.spans(lead + DOCUMENT)
    ]
    ends = [21, 40, len(DOCUMENT)]
    assert not tokenizer.prefix_ids  # so the first span is of the first id
    for statement, before in zip(result, (0, result[0].end), strict=True):
        shares = [0.0, 0.0, 0.0]
        for target, (_, last) in enumerate(tokenizer.spans(WRITTEN)):
            if before < last <= statement.end:  # white space goes with the word after it
                for token, (_, end) in enumerate(spans):
                    if end > 0:
                        owner = next(i for i, stop in enumerate(ends) if end <= stop)
                        shares[owner] += float(weights[target, token])
        shares = np.array(shares) / sum(shares)
        order = [int(i) for i in np.argsort(-shares)]
        retained = order[:1] + [i for i in order[1:] if shares[i] >= LEAST_SHARE]
        assert [source.number for source in statement.sources] == retained
        scores = [source.score for source in statement.sources]
        assert scores == pytest.approx(shares[retained].tolist(), abs=2e-4)


@pytest.mark.slow
def test_documents_that_are_read_as_one(draw_params):
    """The token after each has global attention, as where they are summarized."""
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "attention_window": [4], "vocab_size": 60}
    family, config = registry.model_config(registry.preset("led", "tiny", **sizes))
    model = Model(family, config, draw_params(family.init_params(config)))
    ids, targets = np.arange(5, 35)[None], np.array([[5, 6]])
    groups = np.ones((1, 2, 1), np.float32)
    plain = cross_attention_weights(model, ids, targets, groups)
    model._document_id = 15
    result = cross_attention_weights(model, ids, targets, groups)
    np.testing.assert_allclose(result.sum(-1), plain.sum(-1), rtol=1e-5)
    assert np.abs(result - plain).max() > 1e-3


def test_models_that_do_not_attend_to_a_whole_document(model):
    check_attends(model)
    hepos = model.with_cross_attention("hepos", hepos_stride=2)
    with pytest.raises(InputError, match="but this model reads by hepos; use sources"):
        check_attends(hepos)
    with pytest.raises(InputError, match="the summary has no document"):
        attended_sources(model, Summary(WRITTEN, 9, 9, 0, 5, "eos"))
    refined = Summary(WRITTEN, 9, 9, 0, 5, "eos", strategy="refine").of(
        Request(DOCUMENT, "a", None)
    )
    with pytest.raises(
        InputError, match='read with strategy="refine"; use sources by shared words'
    ):
        attended_sources(model, refined)


def test_an_empty_summary_has_no_sources(model):
    for text in ("", " "):
        summary = Summary(text, 9, 9, 0, 0, "eos").of(Request(DOCUMENT, "a", None))
        assert attended_sources(model, summary) == []


def test_documents_that_were_not_read_in_one_piece(monkeypatch, model):
    monkeypatch.setattr(registry, "max_input_length", lambda config: 9)
    summary = Summary(WRITTEN, 99, 99, 0, 5, "eos").of(Request(DOCUMENT, "a.txt", None))
    with pytest.raises(InputError, match=r"a.txt has \d\d tokens, but .*, of up to 9; use"):
        attended_sources(model, summary)
