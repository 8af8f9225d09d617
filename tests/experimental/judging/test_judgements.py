"""Values, agreement and correlations of filled sheets, compared with loops."""

import json
import re

import numpy as np
import pytest
from judged_summaries import NAMES, SYSTEMS, key_of, random_answers, sheet

from longsum_jax.errors import InputError
from longsum_jax.experimental.judging.agreement import (
    kendall,
    krippendorff_alpha,
    pearson,
    spearman,
)
from longsum_jax.experimental.judging.judgements import (
    ANY_ERROR,
    aggregate_answers,
    correlations,
    read_scores,
)
from longsum_jax.experimental.judging.sheets import read_sheets

ERRORS = ("hallucination", "deletion", "false_concatenation")


def filled(key, tmp_path, judges=(0, 1, 2), fill=None):
    """Answers of some judges, read from a sheet."""
    (tmp_path / "all.csv").write_text(sheet(key, fill or random_answers(key), judges))
    return read_sheets([tmp_path / "all.csv"], key)


@pytest.fixture(scope="module")
def key():
    return key_of()


def summaries_of(key, answers, system):
    """The sentences' and the summary's answers of all judges, by document."""
    for document in key.documents:
        yield [
            answers[name]
            for name, item in key.items.items()
            if (item.system, item.document) == (system, document) and name in answers
        ]


def shares(key, answers, system, count):
    """Percentages of labels, of majorities and of any judge, by loops over sentences."""
    labels, majority, any_judge = [], [], []
    for judges in summaries_of(key, answers, system):
        for sentence in sorted(set(judges[0]) - {0}):
            votes = [count(rows[sentence]) for rows in judges]
            labels += votes
            majority.append(2 * sum(votes) > len(votes))
            any_judge.append(any(votes))
    return len(majority), *(100 * np.mean(values) for values in (labels, majority, any_judge))


@pytest.mark.parametrize("judges", [(0, 1, 2), (0, 2)])
def test_figure_2_of_awesome_is_counted_by_sentences(key, tmp_path, judges):
    answers = filled(key, tmp_path, judges)
    result = aggregate_answers(key, answers)
    assert list(result.systems) == ["incoherent", "unfaithful", "rank"]
    assert result.aspects == {}
    for share, question in (("incoherent", "coherent"), ("unfaithful", "faithful")):
        for system, judged in result.systems[share].items():
            expected = shares(key, answers, system, lambda row, q=question: row[q] == 0)
            numbers = (judged.units, judged.value, judged.majority, judged.any_judge)
            assert numbers == pytest.approx(expected)
            assert judged.low <= judged.value <= judged.high
    for system, judged in result.systems["rank"].items():
        ranks = [
            np.mean([rows[0]["rank"] for rows in of_judges])
            for of_judges in summaries_of(key, answers, system)
        ]
        assert judged.value == pytest.approx(np.mean(ranks))
        assert (judged.units, judged.majority) == (5, None)
        assert judged.low <= judged.value <= judged.high


def test_agreement_is_over_sentences(key, tmp_path):
    answers = filled(key, tmp_path, (0, 2))
    result = aggregate_answers(key, answers)
    for question in (*key.of_sentences, *key.of_summaries):
        units = {}
        for name, item in key.items.items():
            rows = range(1, item.sentences + 1) if question in key.of_sentences else (0,)
            for row in rows:
                unit = units.setdefault((item.system, item.document, row), [np.nan] * 3)
                if name in answers:
                    unit[item.judge] = answers[name][row][question.name]
        ratings = np.array(list(units.values())).T
        agreement = result.agreement[question.name]
        assert agreement.alpha == pytest.approx(krippendorff_alpha(ratings, question.scale))
        assert agreement.units == agreement.missing == len(units)


def test_table_6_and_figures_5_and_6_of_hepos(tmp_path):
    key = key_of("hepos", documents=12)
    answers = filled(key, tmp_path)
    result = aggregate_answers(key, answers)
    informativeness = [f"informativeness: {aspect}" for aspect in key.aspects]
    assert list(result.systems) == [*ERRORS, ANY_ERROR, *informativeness, "informativeness"]
    counts = {name: lambda row, name=name: row[name] == 1 for name in ERRORS}
    counts[ANY_ERROR] = lambda row: any(row[name] == 1 for name in ERRORS)
    for share, count in counts.items():
        for system, judged in result.systems[share].items():
            numbers = (judged.units, judged.value, judged.majority, judged.any_judge)
            assert numbers == pytest.approx(shares(key, answers, system, count))
    for system in key.systems:
        agreed, errors, tied, ratings = [], [], 0, {name: [] for name in informativeness}
        for judges in summaries_of(key, answers, system):
            for name in informativeness:
                ratings[name] += [rows[0][name] for rows in judges]
            for sentence in sorted(set(judges[0]) - {0}):
                labels = [rows[sentence]["aspect"] for rows in judges]
                if labels[0] != labels[1]:
                    tied += 1
                    continue
                agreed.append(labels[0])
                errors.append(all(counts[ANY_ERROR](rows[sentence]) for rows in judges))
        assert result.without_aspect[system] == tied
        assert tied
        means = [np.mean(ratings[name]) for name in informativeness]
        assert result.systems["informativeness"][system].value == pytest.approx(np.mean(means))
        for number, aspect in enumerate(key.aspects, 1):
            row = result.aspects[aspect][system]
            is_own = np.equal(agreed, number)
            assert row.informativeness == pytest.approx(means[number - 1])
            assert row.sentences == pytest.approx(100 * np.mean(is_own))
            expected = 100 * np.mean(np.array(errors)[is_own]) if is_own.any() else None
            assert row.errors == pytest.approx(expected)
    assert result.agreement["informativeness"].units == 3 * 12 * 3
    assert set(result.agreement) == {"aspect", *ERRORS, ANY_ERROR, "informativeness"}


def test_judges_that_all_agree(key, tmp_path):
    answers = filled(key, tmp_path, fill=lambda *cell: 1)
    result = aggregate_answers(key, answers)
    assert result.systems["incoherent"]["lead.jsonl"] == (15, 0, 0, 0, 0, 0)
    agreement = result.agreement["coherent"]
    assert agreement.alpha is None
    assert agreement.no_alpha == "all ratings are 1; alpha needs at least two values"


def test_answers_of_nobody(key):
    with pytest.raises(InputError, match="no answer is given in any of the files; give filled"):
        aggregate_answers(key, {})


@pytest.mark.parametrize("protocol", ["awesome", "hepos"])
def test_metrics_are_correlated_with_means_of_summaries(protocol, tmp_path):
    key = key_of(protocol)
    answers = filled(key, tmp_path)
    draw = np.random.default_rng(0).random
    scores = {
        name: {system: {"rouge1": draw(), "constant": 3} for system in SYSTEMS} for name in NAMES
    }
    lines = [json.dumps({"id": name, "scores": row}) + "\n" for name, row in scores.items()]
    (tmp_path / "scores.jsonl").write_text("".join(lines))
    result = correlations(key, answers, read_scores(tmp_path / "scores.jsonl", key))
    if protocol == "awesome":
        shares = {"unfaithful": lambda row: row["faithful"] == 0}
        means = {"rank": lambda row: row["rank"]}
    else:
        shares = {ANY_ERROR: lambda row: any(row[name] == 1 for name in ERRORS)}
        means = {"informativeness": lambda row: np.mean(list(row.values()))}
    for name, value in (shares | means).items():
        metric, people = [], []
        for system in key.systems:
            of_documents = summaries_of(key, answers, system)
            for document, judges in zip(key.documents, of_documents, strict=True):
                rows = [
                    value(row)
                    for by_sentence in judges
                    for sentence, row in by_sentence.items()
                    if bool(sentence) == (name in shares)
                ]
                if rows:  # a summary without sentences has no share
                    people.append(np.mean(rows))
                    metric.append(scores[document][system]["rouge1"])
        expected = [function(metric, people) for function in (pearson, spearman, kendall)]
        assert result[name]["rouge1"] == pytest.approx((len(people), *expected))
        assert result[name]["constant"] == (len(people), None, None, None)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"id": "doc0"}, 'scores.jsonl:1: no "scores"; give the scores.jsonl of longsum score'),
        ({"id": "z", "scores": {}}, "no scores of 5 judged documents"),
    ],
)
def test_scores_that_do_not_fit(key, tmp_path, row, problem):
    (tmp_path / "scores.jsonl").write_text(json.dumps(row))
    with pytest.raises(InputError, match=re.escape(problem)):
        read_scores(tmp_path / "scores.jsonl", key)


def test_scores_of_other_systems(key, tmp_path):
    rows = [json.dumps({"id": name, "scores": {"lead.jsonl": {}}}) + "\n" for name in NAMES]
    (tmp_path / "scores.jsonl").write_text("".join(rows))
    with pytest.raises(InputError, match=r'no scores of the system "ours\.jsonl", only of lead'):
        read_scores(tmp_path / "scores.jsonl", key)


@pytest.mark.parametrize("values", [{}, {"rouge1": "x"}, {"rouge2": 1}])
def test_scores_of_other_columns(key, tmp_path, values):
    rows = {name: {system: {"rouge1": 1} for system in SYSTEMS} for name in NAMES}
    rows[key.documents[3]]["ours.jsonl"] = values
    lines = [json.dumps({"id": name, "scores": row}) + "\n" for name, row in rows.items()]
    (tmp_path / "scores.jsonl").write_text("".join(lines))
    with pytest.raises(InputError, match=r'by "ours\.jsonl" are not the same columns of numbers'):
        read_scores(tmp_path / "scores.jsonl", key)
