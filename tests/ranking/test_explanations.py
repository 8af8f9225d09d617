import json

import numpy as np
import pytest

from longsum_jax.ranking.explanations import NUM_REASONS, reason_name
from longsum_jax.ranking.fallback import Fallback
from longsum_jax.ranking.features import feature_table, sentence_features
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.ranker import builtin_ranker
from longsum_jax.summarization.summary import explanation_of, lines_with_sources
from longsum_jax.text.statements import Explanation, Reason, Statement


@pytest.mark.parametrize("share", [0, 0.3, 1])
@pytest.mark.parametrize("query", [None, "the oak"])
def test_numbers_add_up(text, query, share, monkeypatch):
    """The scores are a mixture of the trees and the linear ranker."""
    monkeypatch.setattr(Fallback, "share", lambda *_: share)
    ranker, document = builtin_ranker(), parse_document(text)
    scores = ranker.scores(document, query)
    statements = ranker.summarize(text, length="4 sentences", query=query).statements
    assert len(statements) == 4
    for statement in statements:
        explanation = statement.explanation
        row = document.starts.tolist().index(statement.sources[0].start)
        assert explanation.score == round(scores[row], 3)
        assert explanation.mean_score == round(scores.mean(), 3) + 0.0
        values = [reason.contribution for reason in explanation.reasons]
        total = sum(values) + explanation.others
        assert total == pytest.approx(explanation.score - explanation.mean_score)
        assert len({reason.name for reason in explanation.reasons}) == len(values) <= NUM_REASONS
        assert [abs(value) for value in values] == sorted(map(abs, values), reverse=True)


@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_contributions_sum_to_the_scores_without_their_mean(text, share, monkeypatch):
    monkeypatch.setattr(Fallback, "share", lambda *_: share)
    ranker, features = builtin_ranker(), sentence_features(parse_document(text), "the oak")
    scores = ranker.feature_scores(features)
    reached = ranker.trees.reached(feature_table(features, ranker.trees.names))
    rows = [0, 5, len(scores) - 1]
    _, contributions = ranker._contributions(features, reached, ranker.trees.sums(reached), rows)
    np.testing.assert_allclose(contributions.sum(1), scores[rows] - scores.mean(), atol=1e-12)


def test_features_of_the_built_in_ranker_have_words():
    for name in [*builtin_ranker().trees.names, *builtin_ranker().fallback.names]:
        assert reason_name(name) != name.replace("_", " ") or "_" not in name
    assert reason_name("near_10_rank_words") == "length of the sentences around"
    assert reason_name("rank_query_near_8") == reason_name("query_cosine") == "words of the query"
    assert reason_name("something_new") == "something new"


def test_the_query_is_a_reason(text):
    [statement] = builtin_ranker().summarize(text, length="1 sentence", query="oak").statements
    assert "words of the query" in [reason.name for reason in statement.explanation.reasons]


def test_text_and_json_have_the_same_numbers(text):
    statements = builtin_ranker().summarize(text, length="2 sentences").statements
    shown = lines_with_sources(statements)
    for statement in statements:
        report = json.loads(json.dumps(statement.report()))
        assert Statement.from_report(report) == statement
        for reason in report["explanation"]["reasons"]:
            assert f" {abs(reason['contribution']):.3f} {reason['name']}" in shown
    reasons = (Reason("length", 0.25), Reason("names", -0.5))
    explained = statements[0]._replace(explanation=Explanation(0.8, 1.0, reasons, 0.05))
    assert explanation_of(explained) == [
        "score 0.800 = 1.000 mean + 0.250 length - 0.500 names + 0.050 others"
    ]
    unexplained = explained._replace(explanation=None)
    assert (explanation_of(unexplained), "explanation" in unexplained.report()) == ([], False)
