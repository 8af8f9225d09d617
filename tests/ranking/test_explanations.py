import json

import pytest

from longsum_jax.inference.summary import explanation_of, lines_with_sources
from longsum_jax.ranking.explanations import NUM_REASONS, explain, reason_name
from longsum_jax.ranking.features import feature_table, sentence_features
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.ranker import builtin_ranker
from longsum_jax.text.statements import Explanation, Reason, Statement


def test_numbers_add_up(text):
    ranker, document = builtin_ranker(), parse_document(text)
    for query in (None, "the oak"):
        table = feature_table(sentence_features(document, query), ranker.trees.names)
        scores = ranker.scores(document, query)
        chosen = [0, 5, len(scores) - 1]
        explanations = explain(ranker.trees, ranker.trees.reached(table), chosen)
        for row, found in zip(chosen, explanations, strict=True):
            assert found.score == round(scores[row], 3)
            assert found.mean_score == round(scores.mean(), 3)
            values = [reason.contribution for reason in found.reasons]
            assert sum(values) + found.others == pytest.approx(found.score - found.mean_score)
            assert len({reason.name for reason in found.reasons}) == len(values) <= NUM_REASONS
            assert [abs(value) for value in values] == sorted(map(abs, values), reverse=True)


def test_features_of_the_built_in_ranker_have_words():
    for name in builtin_ranker().trees.names:
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
