"""Human judgements: values of systems, agreement, and correlation of metrics with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.evaluation.agreement import CORRELATIONS, krippendorff_alpha, majority_vote
from longsum_jax.evaluation.comparison import Sampling
from longsum_jax.evaluation.judging import Key, Question
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.sheets import Answers
from longsum_jax.evaluation.significance import bootstrap_intervals
from longsum_jax.schema import first_names
from longsum_jax.text.documents import read_json_objects


class Judged(NamedTuple):
    """One system by one question.

    Attributes:
        documents: that any judge answered for.
        mean: over documents of the mean over judges; None without documents.
        low, high: ends of its confidence interval.
        majority: percentage of yes among documents where most judges agree, for questions answered
            by no or yes.
        level: documents where as many judges say yes as no.
    """

    documents: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    majority: float | None = None
    level: int | None = None


class Judgement(NamedTuple):
    """All systems by one question.

    Attributes:
        systems: by name.
        alpha: Krippendorff's; None where it is not defined.
        no_alpha: why not.
        missing: answers that no judge gave, of all that the key asks for.
    """

    systems: dict[str, Judged]
    alpha: float | None
    no_alpha: str | None
    missing: int


class Correlation(NamedTuple):
    """Of a metric with the means over judges, over summaries; None where it is not defined."""

    summaries: int
    pearson: float | None = None
    spearman: float | None = None
    kendall: float | None = None


def ratings_of(key: Key, answers: Answers) -> np.ndarray:
    """Returns answers as float64 [questions, judges, systems, documents], NaN for missing ones."""
    shape = (len(key.questions), key.judges, len(key.systems), len(key.documents))
    ratings = np.full(shape, np.nan)
    systems = {name: row for row, name in enumerate(key.systems)}
    documents = {name: row for row, name in enumerate(key.documents)}
    for name, given in answers.items():
        judge, document, system = key.items[name]
        for row, question in enumerate(key.questions):
            value = given.get(question.name, np.nan)
            ratings[row, judge, systems[system], documents[document]] = value
    return ratings


def aggregate_answers(
    key: Key, answers: Answers, sampling: Sampling | None = None
) -> dict[str, Judgement]:
    """Aggregates the answers of all judges, by question.

    Args:
        key: of the items.
        answers: of all judges.
        sampling: rounds, level and seed of the intervals, bootstrapped over documents; None for
            the defaults.

    Raises:
        InputError: no answers at all.
    """
    ratings = ratings_of(key, answers)
    if np.isnan(ratings).all():
        raise InputError("no answer is given in any of the files; give filled ones")
    sampling = sampling or Sampling()
    found = {}
    for question, values in zip(key.questions, ratings, strict=True):
        systems = {
            name: _judged(question, each, sampling)
            for name, each in zip(key.systems, np.moveaxis(values, 1, 0), strict=True)
        }
        alpha, no_alpha = _alpha(values.reshape(key.judges, -1), question)
        missing = int(np.isnan(values).sum())
        found[question.name] = Judgement(systems, alpha, no_alpha, missing)
    return found


def _judged(question: Question, ratings: np.ndarray, sampling: Sampling) -> Judged:
    """Returns one system's values of ratings [judges, documents]."""
    means = _means(ratings)
    means = means[~np.isnan(means)]
    if not means.size:
        return Judged(0)
    low, high = bootstrap_intervals(
        means, level=sampling.level, rounds=sampling.rounds, seed=sampling.seed
    ).tolist()
    judged = Judged(len(means), float(means.mean()), low, high)
    if not question.is_binary:
        return judged
    labels = majority_vote(ratings)
    clear = labels[~np.isnan(labels)]
    majority = 100 * float(clear.mean()) if clear.size else None
    return judged._replace(majority=majority, level=len(means) - len(clear))


def _means(ratings: np.ndarray) -> np.ndarray:
    """Returns means over the first axis of what is given, NaN where nothing is."""
    given = ~np.isnan(ratings)
    counts = given.sum(0)
    totals = np.where(given, ratings, 0).sum(0)
    return np.divide(totals, counts, where=counts > 0, out=np.full(counts.shape, np.nan))


def _alpha(ratings: np.ndarray, question: Question) -> tuple[float | None, str | None]:
    try:
        return krippendorff_alpha(ratings, question.scale), None
    except InputError as error:
        return None, str(error)


def read_scores(path: str | Path, key: Key) -> dict[tuple[str, str], Scores]:
    """Reads the scores.jsonl of ``longsum score --out`` by document and system of a key.

    Raises:
        InputError: a row that does not fit, or a document or a system of the key without scores.
    """
    rows = {}
    for number, row in read_json_objects(path):
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
    found = {}
    for document in key.documents:
        for system in key.systems:
            if not isinstance(rows[document].get(system), dict):
                known = first_names(list(rows[document]))
                raise InputError(
                    f'{path}: no scores of the system "{system}", only of {known}; score the '
                    "files that were judged in one command"
                )
            found[document, system] = rows[document][system]
    columns = next(iter(found.values())).keys()
    for (document, system), values in found.items():
        is_number = [isinstance(value, int | float) for value in values.values()]
        if not columns or values.keys() != columns or not all(is_number):
            raise InputError(
                f'{path}: scores of "{document}" by "{system}" are not the same columns of numbers '
                "as the others; run longsum score --out again"
            )
    return found


def correlations(
    key: Key, answers: Answers, scores: Mapping[tuple[str, str], Scores]
) -> dict[str, dict[str, Correlation]]:
    """Correlates the scores of metrics with the answers, over all judged summaries.

    Args:
        key: of the items.
        answers: of all judges, of which every summary takes the mean.
        scores: of metrics, by document and system.

    Returns:
        Question -> column of a metric -> correlation.
    """
    units = [(document, system) for system in key.systems for document in key.documents]
    columns = list(next(iter(scores.values())))
    found: dict[str, dict[str, Correlation]] = {}
    for question, ratings in zip(key.questions, ratings_of(key, answers), strict=True):
        means = _means(ratings).ravel()
        given = np.flatnonzero(~np.isnan(means))
        found[question.name] = {}
        for column in columns:
            metric = np.array([scores[units[row]][column] for row in given], np.float64)
            found[question.name][column] = _correlation(metric, means[given])
    return found


def _correlation(metric: np.ndarray, people: np.ndarray) -> Correlation:
    try:
        values = {name: function(metric, people) for name, function in CORRELATIONS.items()}
    except InputError:  # fewer than two summaries, or numbers that are all the same
        return Correlation(len(people))
    return Correlation(len(people), **values)


def missing_judges(key: Key, answers: Answers) -> list[int]:
    """Returns the judges, from 1, of whom there is no row."""
    present = {key.items[name].judge for name in answers}
    return [judge + 1 for judge in range(key.judges) if judge not in present]
