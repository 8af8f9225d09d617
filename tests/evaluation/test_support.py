"""What the document holds of a summary, as a metric."""

import pytest

from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.text.support import find_statements

SOURCE = "Anna Berg built a bridge of stone in 1874. It stands. Nobody crosses it."
SUMMARY = "Anna Berg built a bridge in 1874. Zebras graze in Kenya with Paul Olsen, all 17."


def test_values_are_those_of_the_statements():
    (metric,) = make_metrics(["support"]).values()
    scores, nothing = metric.score([SUMMARY, " "], ["", ""], [SOURCE, SOURCE])
    built, zebras = find_statements(SUMMARY, SOURCE)
    assert (built.is_supported, zebras.is_supported) == (True, False)
    assert scores["supported_sentences"] == 50
    assert scores["held_by_document"] == pytest.approx(50 * (built.support + zebras.support))
    assert scores["missing_entities"] == len(zebras.flags) == 3  # Kenya, Paul Olsen, 17
    assert not any(nothing.values())
