"""Human judgments: scores of systems, agreement of judges, and correlation with metrics.

Sentence labels are counted over the sentences of all summaries of a system,
answers about summaries over summaries.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.evaluation.comparison import Sampling
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.significance import bootstrap_intervals
from longsum_jax.experimental.judging.agreement import (
    CORRELATIONS,
    Scale,
    krippendorff_alpha,
    majority_vote,
)
from longsum_jax.experimental.judging.judging import Key, Question
from longsum_jax.experimental.judging.sheets import SUMMARY, Answers
from longsum_jax.schema import first_names
from longsum_jax.text.rows import read_rows

# share of sentences with an error of any kind, in protocols with kinds
ANY_ERROR = "any_error"


class Judged(NamedTuple):
    """The score of one system for one question.

    Attributes:
        units: number of judged sentences or summaries.
        value: mean over judges and units; for shares, the percentage over all
            labels. None without units.
        low, high: bounds of its confidence interval, over documents.
        majority: percentage of the sentences that more than half of the judges
            count; None for questions about summaries.
        any_judge: percentage of the sentences that at least one judge counts;
            None as above.
    """

    units: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    majority: float | None = None
    any_judge: float | None = None


class AspectJudged(NamedTuple):
    """The scores of one system for one aspect (Huang et al. 2021, figures 5 and 6).

    A sentence has the aspect that more than half of its judges select.

    Attributes:
        informativeness: mean over summaries and judges; None without answers.
        sentences: percentage of the sentences with an agreed aspect.
        errors: percentage of the aspect's sentences in which more than half of
            the judges find an error of any kind; None without sentences.
    """

    informativeness: float | None
    sentences: float | None
    errors: float | None


class Agreement(NamedTuple):
    """The agreement of the judges on one question.

    Attributes:
        alpha: Krippendorff's alpha over sentences or summaries; None if it is
            undefined.
        no_alpha: reason why alpha is undefined.
        units: number of sentences or summaries.
        missing: number of missing answers, among all expected by the key.
    """

    alpha: float | None
    no_alpha: str | None
    units: int
    missing: int


class Judgements(NamedTuple):
    """The results of aggregating answers.

    Attributes:
        systems: share or question -> system -> score.
        aspects: aspect -> system -> score; {} for protocols without aspects.
        without_aspect: system -> number of sentences without a majority for an
            aspect.
        agreement: question -> agreement.
    """

    systems: dict[str, dict[str, Judged]]
    aspects: dict[str, dict[str, AspectJudged]]
    without_aspect: dict[str, int]
    agreement: dict[str, Agreement]


class _Ratings(NamedTuple):
    """Answers about sentences or summaries, with the summary of each answer.

    Attributes:
        systems, documents: int [units], indices of the key's systems and
            documents.
        answers: question -> float64 [judges, units], NaN for missing ones.
    """

    systems: np.ndarray
    documents: np.ndarray
    answers: dict[str, np.ndarray]


class Correlation(NamedTuple):
    """The correlation of a metric with the judges over summaries; None if it is undefined."""

    summaries: int
    pearson: float | None = None
    spearman: float | None = None
    kendall: float | None = None


def _ratings(
    key: Key, answers: Answers, questions: tuple[Question, ...]
) -> _Ratings:
    """Returns the answers to the key's questions about sentences, or about summaries."""
    of_sentences = questions == key.of_sentences
    rows: dict[tuple[str, str, int], int] = {}
    for item in key.items.values():
        for sentence in (
            range(1, item.sentences + 1) if of_sentences else (SUMMARY,)
        ):
            rows.setdefault((item.system, item.document, sentence), len(rows))
    values = {
        question.name: np.full((key.judges, len(rows)), np.nan)
        for question in questions
    }
    for name, by_sentence in answers.items():
        judge, document, system, _ = key.items[name]
        for sentence, row_answers in by_sentence.items():
            if (sentence != SUMMARY) == of_sentences:
                row = rows[system, document, sentence]
                for question, answer in row_answers.items():
                    values[question][judge, row] = answer
    systems = {name: number for number, name in enumerate(key.systems)}
    documents = {name: number for number, name in enumerate(key.documents)}
    system_ids = [systems[system] for system, _, _ in rows]
    document_ids = [documents[document] for _, document, _ in rows]
    return _Ratings(
        np.array(system_ids, np.int64), np.array(document_ids, np.int64), values
    )


def _shares(key: Key, ratings: _Ratings) -> dict[str, np.ndarray]:
    """Returns share -> [judges, sentences]: 1 for labels that the share counts, 0 for others."""
    shares = {}
    for question in key.of_sentences:
        if question.share:
            labels = ratings.answers[question.name]
            counted = (labels == question.counted).astype(np.float64)
            shares[question.share] = np.where(np.isnan(labels), np.nan, counted)
    if key.aspects:
        shares[ANY_ERROR] = np.max(np.stack(list(shares.values())), 0)
    return shares


def _summary_values(key: Key, ratings: _Ratings) -> dict[str, np.ndarray]:
    """Returns the answers about summaries, with means over aspects for questions by aspect.

    Returns:
        Question -> float64 [judges, summaries].
    """
    values = dict(ratings.answers)
    by_aspect = _questions_by_aspect(key)
    for name, columns in by_aspect.items():
        values[name] = np.mean(
            np.stack([values[column] for column in columns]), 0
        )
    return values


def _questions_by_aspect(key: Key) -> dict[str, list[str]]:
    """Returns the columns of each question that is answered per aspect, by its name."""
    columns: dict[str, list[str]] = {}
    for question in key.of_summaries:
        if question.kind == "per_aspect":
            columns.setdefault(question.name.partition(":")[0], []).append(
                question.name
            )
    return columns


def aggregate_answers(
    key: Key, answers: Answers, sampling: Sampling | None = None
) -> Judgements:
    """Aggregates the answers of all judges.

    Args:
        key: key of the items.
        answers: answers of all judges.
        sampling: rounds, level and seed of the intervals, bootstrapped over
            documents; None for the defaults.

    Raises:
        InputError: there are no answers.
    """
    sentences = _ratings(key, answers, key.of_sentences)
    summaries = _ratings(key, answers, key.of_summaries)
    tables = [*sentences.answers.values(), *summaries.answers.values()]
    if all(np.isnan(table).all() for table in tables):
        raise InputError(
            "no answer is given in any of the files; give filled ones"
        )
    sampling = sampling or Sampling()
    shares = _shares(key, sentences)
    systems: dict[str, dict[str, Judged]] = {}
    for name, values in shares.items():
        systems[name] = _judged(
            key, sentences, 100 * values, sampling, is_share=True
        )
    for name, values in _summary_values(key, summaries).items():
        systems[name] = _judged(
            key, summaries, values, sampling, is_share=False
        )
    aspects, without_aspect = _aspects(key, sentences, summaries, shares)
    return Judgements(
        systems,
        aspects,
        without_aspect,
        _agreement(key, sentences, summaries, shares),
    )


def _judged(
    key: Key,
    ratings: _Ratings,
    values: np.ndarray,
    sampling: Sampling,
    is_share: bool,
) -> dict[str, Judged]:
    """Returns every system's score for values [judges, units]; shares are 0 or 100."""
    judged = {}
    for number, name in enumerate(key.systems):
        is_own = (ratings.systems == number) & ~np.isnan(values).all(0)
        columns = values[:, is_own]
        if not columns.size:
            judged[name] = Judged(0)
            continue
        # sum and number of answers by document
        totals = np.zeros((len(key.documents), 2))
        np.add.at(
            totals[:, 0], ratings.documents[is_own], np.nansum(columns, 0)
        )
        np.add.at(
            totals[:, 1], ratings.documents[is_own], (~np.isnan(columns)).sum(0)
        )
        totals = totals[totals[:, 1] > 0]
        low, high = bootstrap_intervals(
            totals,
            level=sampling.level,
            rounds=sampling.rounds,
            seed=sampling.seed,
            statistic=lambda means: means[..., :1] / means[..., 1:],
        )[:, 0].tolist()
        value = float(totals[:, 0].sum() / totals[:, 1].sum())
        judged[name] = Judged(columns.shape[1], value, low, high)
        if is_share:
            of_judges = np.nanmean(columns, 0)
            majority, any_judge = (
                (of_judges > 50).mean(),
                (of_judges > 0).mean(),
            )
            judged[name] = judged[name]._replace(
                majority=100 * float(majority), any_judge=100 * float(any_judge)
            )
    return judged


def _aspects(
    key: Key,
    sentences: _Ratings,
    summaries: _Ratings,
    shares: Mapping[str, np.ndarray],
) -> tuple[dict[str, dict[str, AspectJudged]], dict[str, int]]:
    """Returns the scores of every system by aspect, and its sentences without a majority."""
    if not key.aspects:
        return {}, {}
    is_judged = ~np.isnan(sentences.answers["aspect"]).all(0)
    aspect = majority_vote(sentences.answers["aspect"])
    errors = _means(shares[ANY_ERROR]) > 0.5
    informativeness = _summary_values(key, summaries)
    table: dict[str, dict[str, AspectJudged]] = {
        name: {} for name in key.aspects
    }
    without_aspect = {}
    for system, name in enumerate(key.systems):
        is_own = sentences.systems == system
        agreed = is_own & ~np.isnan(aspect)
        without_aspect[name] = int(
            (is_own & is_judged & np.isnan(aspect)).sum()
        )
        for number, label in enumerate(key.aspects, 1):
            ratings = informativeness[f"informativeness: {label}"][
                :, summaries.systems == system
            ]
            of_aspect = agreed & (aspect == number)
            table[label][name] = AspectJudged(
                _mean(ratings[~np.isnan(ratings)]),
                _mean(100.0 * of_aspect[agreed]),
                _mean(100.0 * errors[of_aspect]),
            )
    return table, without_aspect


def _agreement(
    key: Key,
    sentences: _Ratings,
    summaries: _Ratings,
    shares: Mapping[str, np.ndarray],
) -> dict[str, Agreement]:
    agreement = {}
    for question in key.of_sentences:
        labels = sentences.answers[question.name]
        agreement[question.name] = _alpha(labels, question.scale)
    if key.aspects:
        agreement[ANY_ERROR] = _alpha(shares[ANY_ERROR], "nominal")
    by_aspect = _questions_by_aspect(key)
    for name, columns in by_aspect.items():
        ratings = np.concatenate(
            [summaries.answers[column] for column in columns], 1
        )
        agreement[name] = _alpha(ratings, "ordinal")
    for question in key.of_summaries:
        if question.kind != "per_aspect":
            agreement[question.name] = _alpha(
                summaries.answers[question.name], question.scale
            )
    return agreement


def _alpha(ratings: np.ndarray, scale: Scale) -> Agreement:
    missing = int(np.isnan(ratings).sum())
    try:
        return Agreement(
            krippendorff_alpha(ratings, scale), None, ratings.shape[1], missing
        )
    except InputError as error:
        return Agreement(None, str(error), ratings.shape[1], missing)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def _means(ratings: np.ndarray) -> np.ndarray:
    """Returns means over the first axis, ignoring missing answers; NaN if all are missing."""
    present = ~np.isnan(ratings)
    counts = present.sum(0)
    totals = np.where(present, ratings, 0).sum(0)
    return np.divide(
        totals, counts, where=counts > 0, out=np.full(counts.shape, np.nan)
    )


def read_scores(path: str | Path, key: Key) -> dict[tuple[str, str], Scores]:
    """Returns the scores in a file of ``longsum score --out`` by (document, system).

    Args:
        path: the file scores.jsonl.
        key: judged documents and systems.

    Raises:
        InputError: an invalid row, or a document or system of the key without
            scores.
    """
    rows = {}
    for number, row in read_rows(path):
        if not isinstance(row.get("scores"), dict):
            raise InputError(
                f'{path}:{number}: no "scores"; give the scores.jsonl of longsum score --out'
            )
        rows[str(row.get("id"))] = row["scores"]
    absent = [name for name in key.documents if name not in rows]
    if absent:
        raise InputError(
            f"{path}: no scores of {len(absent)} judged documents, {first_names(absent)}; score "
            "the files that were judged"
        )
    scores = {}
    for document in key.documents:
        for system in key.systems:
            if not isinstance(rows[document].get(system), dict):
                systems = first_names(list(rows[document]))
                raise InputError(
                    f'{path}: no scores of the system "{system}", only of {systems}; score the '
                    "files that were judged in one command"
                )
            scores[document, system] = rows[document][system]
    columns = next(iter(scores.values())).keys()
    for (document, system), values in scores.items():
        is_number = [
            isinstance(value, int | float) for value in values.values()
        ]
        if not columns or values.keys() != columns or not all(is_number):
            raise InputError(
                f'{path}: scores of "{document}" by "{system}" are not the same columns of numbers '
                "as the others; run longsum score --out again"
            )
    return scores


def correlations(
    key: Key, answers: Answers, scores: Mapping[tuple[str, str], Scores]
) -> dict[str, dict[str, Correlation]]:
    """Correlates the scores of metrics with the answers, over all judged summaries.

    A summary's value is the mean over judges and, for shares, over its
    sentences.

    Args:
        key: key of the items.
        answers: answers of all judges.
        scores: scores of metrics, by document and system.

    Returns:
        Share or question -> column of a metric -> correlation.
    """
    sentences = _ratings(key, answers, key.of_sentences)
    summaries = _ratings(key, answers, key.of_summaries)
    tables = [
        (name, sentences, values)
        for name, values in _shares(key, sentences).items()
    ]
    tables += [
        (name, summaries, values)
        for name, values in _summary_values(key, summaries).items()
    ]
    columns = list(next(iter(scores.values())))
    result: dict[str, dict[str, Correlation]] = {}
    for name, ratings, values in tables:
        people, names = _summary_means(key, ratings, values)
        result[name] = {}
        for column in columns:
            metric = np.array(
                [scores[unit][column] for unit in names], np.float64
            )
            result[name][column] = _correlation(metric, people)
    return result


def _summary_means(
    key: Key, ratings: _Ratings, values: np.ndarray
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Returns the mean of every judged summary, with its document and system."""
    shape = (len(key.systems), len(key.documents))
    totals, counts = np.zeros(shape), np.zeros(shape)
    units = (ratings.systems, ratings.documents)
    np.add.at(totals, units, np.nansum(values, 0))
    np.add.at(counts, units, (~np.isnan(values)).sum(0))
    systems, documents = np.nonzero(counts)
    names = [
        (key.documents[document], key.systems[system])
        for system, document in zip(systems, documents, strict=True)
    ]
    return totals[systems, documents] / counts[systems, documents], names


def _correlation(metric: np.ndarray, people: np.ndarray) -> Correlation:
    try:
        values = {
            name: function(metric, people)
            for name, function in CORRELATIONS.items()
        }
    except InputError:  # fewer than two summaries, or only equal numbers
        return Correlation(len(people))
    return Correlation(len(people), **values)


def missing_judges(key: Key, answers: Answers) -> list[int]:
    """Returns the judges, numbered from 1, without any answer."""
    present = {key.items[name].judge for name in answers}
    return [judge + 1 for judge in range(key.judges) if judge not in present]
