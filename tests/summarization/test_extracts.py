"""Summaries without a model: what stands in the place of a document or of its outline."""

import pytest

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.summarization.extracts import summarize_stream
from longsum_jax.summarization.summary import Request

TEXT = "A Report\n\nThe bridge was closed in May. Lena Lund repaired it within a year."


def test_none_is_no_outline():
    result = longsum_jax.summarize(TEXT, outline=None)
    assert result == longsum_jax.summarize(TEXT)
    assert result.sources == longsum_jax.summarize(TEXT).sources


def test_texts_in_place_of_requests():
    [[(place, summary)]] = summarize_stream([Request(TEXT, "a", None)])
    assert (place, summary.text) == (0, longsum_jax.summarize(TEXT).text)
    with pytest.raises(InputError, match="requests holds a str; give each document as"):
        list(summarize_stream([TEXT]))
