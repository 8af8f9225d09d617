"""Shares of parts of a document, against counting characters one by one."""

import numpy as np
import pytest

from longsum_jax.text.coverage import covered_parts, statement_coverage, summary_coverage
from longsum_jax.text.sentences import split_sentences
from longsum_jax.text.support import find_statements


def counted(spans, indices, num_parts):
    """Cuts a hundredfold copy of the characters of sentences, each marked or not."""
    marks = [i in indices for i, (start, stop) in enumerate(spans) for _ in range(start, stop)]
    parts = np.array_split(np.repeat(marks, num_parts), num_parts)
    return [part.mean() for part in parts]


@pytest.mark.parametrize("num_parts", [1, 3, 10])
def test_shares_are_those_of_characters(num_parts):
    rng = np.random.default_rng(num_parts)
    ends = np.cumsum(rng.integers(1, 40, 23))
    starts = np.array([0, *ends[:-1]]) + rng.integers(0, 2, 23) * (np.diff([0, *ends]) > 1)
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    indices = [3, 4, 4, 22, 0]
    result = covered_parts(spans, indices, num_parts)
    np.testing.assert_allclose(result, counted(spans, indices, num_parts), atol=1e-6)
    assert covered_parts(spans, range(23), num_parts) == (1,) * num_parts
    assert covered_parts(spans, [], num_parts) == (0,) * num_parts


def test_a_document_without_sentences():
    assert covered_parts([], []) == (0,) * 10


def test_a_summary_that_rests_on_the_end():
    text = " ".join(f"Sentence number {i} is about item{i} and thing{i}." for i in range(10))
    last = split_sentences(text)[-1]
    result = summary_coverage(text, last)
    assert result[-1] == pytest.approx(1, abs=0.02)
    assert sum(result[:-1]) == 0
    assert statement_coverage(text, find_statements(last, text)) == result
    assert summary_coverage(text, "") == (0,) * 10
    assert summary_coverage(text, text) == (1,) * 10
